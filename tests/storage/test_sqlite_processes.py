"""SQLite with real processes: killed anywhere, writing at once, waiting for each other."""

from __future__ import annotations

import fcntl
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from surepipe.core.store_requests import (
    KEEP_ALL,
    Batch,
    Hint,
    Level,
    Position,
    Retention,
    Stored,
    StreamInfo,
)
from surepipe.storage.sqlite.store import SqliteStore
from tests.contracts.store_contract import read_all
from tests.storage import crash_writer
from tests.storage.crash_writer import RUN, Work, payload_of
from tests.storage.sqlite_bench import FAILS_LOUDLY_AFTER_S, SqliteBench

KILLED = {-9, -14}
CYCLES = 13
"""For each of the eight ways below: 104 kills."""


class Process:
    """A crash writer."""

    def __init__(self) -> None:
        source = Path(crash_writer.__file__)
        self.child = subprocess.Popen(
            [sys.executable, str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source.parents[2]), *sys.path])},
        )

    def begin(self, work: Work) -> None:
        """Let it do something."""
        assert self.child.stdin
        self.child.stdin.write(json.dumps(asdict(work)) + "\n")
        self.child.stdin.flush()

    def hear(self) -> str:
        """The next line that it says."""
        assert self.child.stdout
        return self.child.stdout.readline().strip()

    def end(self) -> tuple[list[str], int]:
        """What it said, and how it ended."""
        assert self.child.stdout
        said: list[str] = []
        for line in self.child.stdout:
            if line.startswith("end "):
                return said, int(line[4:])
            said.append(line.strip())
        raise AssertionError(f"the process is gone; it said {said}")

    def do(self, work: Work) -> tuple[list[str], int]:
        """Both."""
        self.begin(work)
        return self.end()

    def close(self) -> None:
        """Its stdin ends, so it ends."""
        assert self.child.stdin
        assert self.child.stdout
        self.child.stdin.close()
        self.child.wait()
        self.child.stdout.close()


@pytest.fixture(name="processes", scope="module")
def start_processes() -> Iterator[tuple[Process, Process]]:
    """Two of them."""
    both = (Process(), Process())
    yield both
    for process in both:
        process.close()


def make_file(path: Path) -> None:
    """The stream, and a table of the user's own in the same file."""
    with SqliteStore(path, level=Level.PROCESS) as store:
        store.create("out", 1, KEEP_ALL)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE effects (n INTEGER)")
    connection.commit()
    connection.close()


def last_of(store: SqliteStore) -> int:
    """The last seq of the only producer, after a look at all that the child has written."""
    info = store.info("out")
    assert isinstance(info, StreamInfo)
    last = info.producers[0].last if info.producers else 0
    assert info.next == last + 1, (
        "S-4: no entry without its producer knowing it, and the other way round"
    )
    assert last % RUN == 0, "S-4: a run is there wholly or not at all"
    return last


def effects_of(path: Path) -> list[int]:
    """The user's own rows."""
    connection = sqlite3.connect(path)
    rows = [n for (n,) in connection.execute("SELECT n FROM effects ORDER BY rowid")]
    connection.close()
    return rows


# Where the kills may fall: before one of the statements or instructions (the ranges reach from opening the file to
# the last of the six runs), or so many microseconds after the file was opened.
RANGES = {"statement": (1, 90), "instruction": (1, 2_200), "moment": (50, 8_000)}


@pytest.mark.parametrize("level", ["process", "power"])
@pytest.mark.parametrize(
    ("unit", "work"),
    [
        ("statement", "append"),
        ("statement", "transaction"),
        ("instruction", "transaction"),
        ("moment", "transaction"),
    ],
)
def test_a_writer_killed_anywhere_leaves_all_or_nothing_and_what_it_was_told_is_there(
    tmp_path: Path, processes: tuple[Process, Process], level: str, unit: str, work: str
) -> None:
    """so11: kill -9 of a real process; each life goes on where the one before it ended."""
    path = tmp_path / "store.db"
    make_file(path)
    rng = random.Random(f"{level} {unit} {work}")
    kills = before = 0
    with SqliteStore(path, level=Level.PROCESS) as store:
        for cycle in range(CYCLES + 1):
            at = rng.randint(*RANGES[unit]) if cycle < CYCLES else 0  # the last one lives
            scale = rng.choice([1, 20_000])
            said, ended = processes[0].do(Work(str(path), level, work, 6, unit, at, "p", scale))
            assert ended in {0, *KILLED}, said
            kills += ended in KILLED
            last = last_of(store)
            told = [int(line.split()[1]) for line in said]
            assert last >= max([before, *told]), (
                f"cycle {cycle}, at {at}: an acknowledged run is lost"
            )
            assert last <= max([before, *told]) + RUN, "S-4: more than was asked for"
            check_new(store, before, last, scale)
            if work == "transaction":
                position = store.get("in", "r")
                at_next = position.next if isinstance(position, Position) else 1
                assert at_next == last + 1, "S-11: position and append together"
                assert effects_of(path) == [*range(1, last + 1)], "S-11: and the effects with them"
            before = last
    assert before, "some runs must get through"
    assert unit == "moment" or kills >= CYCLES // 2, "and the kills must hit, or this shows nothing"


def check_new(store: SqliteStore, before: int, last: int, scale: int) -> None:
    """Everything that is new has its own payload."""
    index = before + 1
    while index <= last:
        batch = store.read("out", index, 100, 1 << 20)
        assert isinstance(batch, Batch)
        for run in batch.entries:
            assert run.first == run.index
            for seq, payload in enumerate(run.payloads, run.first):
                assert payload == payload_of(seq, scale)
        index = batch.next


def test_two_processes_write_to_one_file_at_once(
    tmp_path: Path, processes: tuple[Process, Process]
) -> None:
    """R-9, S-4: two producers in two processes; indexes are dense and each producer's order is kept."""
    path = tmp_path / "store.db"
    for producer, process in zip("ab", processes, strict=True):
        process.begin(Work(str(path), "process", "append", 60, producer=producer))
    for process in processes:
        said, ended = process.end()
        assert ended == 0, said
    bench = SqliteBench(path)
    entries = read_all(bench, "out")
    bench.store.close()
    assert [entry[0] for entry in entries] == [*range(1, 2 * 60 * RUN + 1)]
    for producer in "ab":
        assert [entry[3] for entry in entries if entry[1] == producer] == [*range(1, 60 * RUN + 1)]


def test_a_process_with_a_backlog_of_transactions_leaves_every_other_turn_to_another_process(
    tmp_path: Path, processes: tuple[Process, Process]
) -> None:
    """R-9: thirty appends beside it, every third by a store that has just been opened. Each is stored, and between
    two of them the other process has committed twice at the most."""
    path = tmp_path / "store.db"
    make_file(path)
    greedy = processes[0]
    greedy.begin(Work(str(path), "process", "greed", 0))
    assert greedy.hear() == "begun"
    store = SqliteStore(path, level=Level.PROCESS)
    seen = [len(effects_of(path))]
    for seq in range(1, 31):
        if seq % 3 == 0:
            store.close()
            store = SqliteStore(path, level=Level.PROCESS)
            store.create("out", 1, KEEP_ALL)
        assert store.append("out", "p", 1, seq, [b"x"]) == Stored(seq, 1, seq)
        seen.append(len(effects_of(path)))
    store.close()
    Path(f"{path}.enough").touch()
    said, ended = greedy.end()
    assert ended == 0, said
    # It counts one more transaction where a row was committed between the append and the look.
    steps = [after - before for before, after in pairwise(seen)]
    assert max(steps) <= 3, steps
    assert sum(steps) <= 2 * len(steps), steps
    assert seen[-1] > seen[0], "and it goes on itself"


def test_a_process_that_stands_still_with_the_turn_holds_up_nobody_who_finds_the_file_free(
    tmp_path: Path,
) -> None:
    """R-9: the turn is a courtesy. Somebody has both locks of the queue and does not write: an append is stored
    all the same, and so is one while he does let go of the file but not of the queue."""
    path = tmp_path / "store.db"
    make_file(path)
    with SqliteStore(path, level=Level.PROCESS) as store:
        assert store.append("out", "p", 1, 1, [b"x"]) == Stored(1, 1, 1)
        with ExitStack() as held:
            for name in ("next", "turn"):
                lock = held.enter_context(Path(f"{path}-{name}").open("r+b"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            assert store.append("out", "p", 1, 2, [b"x"]) == Stored(2, 1, 2)
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            outcomes: list[object] = []
            waiting = threading.Thread(
                target=lambda: outcomes.append(store.append("out", "p", 1, 3, [b"x"]))
            )
            waiting.start()
            holder.rollback()
            holder.close()
            waiting.join(FAILS_LOUDLY_AFTER_S)
            assert outcomes == [Stored(3, 1, 3)]
        assert store.append("out", "p", 1, 4, [b"x"]) == Stored(4, 1, 4)


def test_the_files_of_the_queue_go_with_the_last_store_and_come_again_with_the_next_write(
    tmp_path: Path,
) -> None:
    """R-9: a store that was idle meanwhile finds the new ones, and queues there."""
    path = tmp_path / "store.db"
    make_file(path)
    queue = [Path(f"{path}-{name}") for name in ("next", "turn")]
    assert not any(file.exists() for file in queue)
    with SqliteStore(path, level=Level.PROCESS) as idle:
        assert idle.append("out", "p", 1, 1, [b"x"]) == Stored(1, 1, 1)
        with SqliteStore(path, level=Level.PROCESS) as other:
            assert other.append("out", "q", 1, 1, [b"x"]) == Stored(1, 1, 2)
        assert not any(file.exists() for file in queue), "nobody waited there"
        with SqliteStore(path, level=Level.PROCESS) as other:
            assert other.append("out", "q", 1, 2, [b"x"]) == Stored(2, 1, 3)
            with idle.transaction() as transaction:
                transaction.connection.execute("INSERT INTO effects VALUES (1)")
                waiting = threading.Thread(target=other.append, args=("out", "q", 1, 3, [b"x"]))
                waiting.start()
                while not transaction.is_full:
                    assert waiting.is_alive()
            waiting.join(FAILS_LOUDLY_AFTER_S)
            assert last_of_producer(idle, "q") == 3
    assert not any(file.exists() for file in queue)


def last_of_producer(store: SqliteStore, producer: str) -> int:
    """The last seq of this producer."""
    info = store.info("out")
    assert isinstance(info, StreamInfo)
    return next(known.last for known in info.producers if known.producer == producer)


def test_waiting_ends_when_another_process_has_appended(
    tmp_path: Path, processes: tuple[Process, Process]
) -> None:
    """R-9: the other process appends during the first pause; the look after it finds the entry."""
    path = tmp_path / "store.db"
    make_file(path)
    pauses: list[int] = []

    def pause(condition: threading.Condition, timeout_us: int) -> None:
        del condition
        pauses.append(timeout_us)
        assert processes[0].do(Work(str(path), "process", "append", 1))[1] == 0

    with SqliteStore(path, pause=pause) as store:
        assert store.wait("out", 1, 3_600_000_000) == Hint()
    assert len(pauses) == 1


def test_a_store_from_before_a_fork_is_refused(
    tmp_path: Path, processes: tuple[Process, Process]
) -> None:
    """SQLite's locks don't survive a fork: what the child writes, also by a store that it opens itself, would be
    confirmed to it and lost."""
    said, ended = processes[0].do(Work(str(tmp_path / "store.db"), "process", "misuse", 0))
    assert (len(said), ended) == (4, 0), (
        "a look, a transaction, another store; and one once it is closed"
    )
    assert all("opened before a fork" in one for one in said[:3])
    assert "does not exist" in said[3], "it answers"


def test_two_processes_may_make_the_file_at_once(
    tmp_path: Path, processes: tuple[Process, Process]
) -> None:
    """R-9: opening a new file is a race that both win, twenty times."""
    for n in range(20):
        path = tmp_path / f"{n}.db"
        for producer, process in zip("ab", processes, strict=True):
            process.begin(Work(str(path), "process", "append", 1, producer=producer))
        for process in processes:
            said, ended = process.end()
            assert ended == 0, said
        with SqliteStore(path) as store:
            store.create("other", 1, Retention())
            info = store.info("out")
        assert isinstance(info, StreamInfo)
        assert info.next == 2 * RUN + 1
