"""The SQLite store: the contract at both levels, what stays, pages, waiting, threads."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    Exists,
    Failed,
    Hint,
    Level,
    NoPosition,
    Position,
    Retention,
    Stored,
    Trimmed,
)
from surepipe.storage.sqlite.file import SqliteFile, connect
from surepipe.storage.sqlite.store import POLL_MAX_US, SqliteStore
from surepipe.storage.sqlite.streams import PAGE_MAX_BYTES
from surepipe.storage.sqlite.writer import Writer
from tests.contracts.keyed_contract import KeyedContract
from tests.contracts.store_contract import (
    StoreContract,
    StrangerContract,
    commit,
    make,
    owner_of,
    put,
    read_all,
    read_payloads,
    texts,
)
from tests.storage.sqlite_bench import FAILS_LOUDLY_AFTER_S, SqliteBench, in_threads

HOUR_US = 3_600_000_000


@pytest.fixture(name="bench", params=[Level.PROCESS, Level.POWER], ids=str)
def open_at_each_level(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteBench]:
    """A new file at each level."""
    bench = SqliteBench(tmp_path / "store.db", request.param)
    yield bench
    bench.store.close()


@pytest.fixture(name="one")
def open_at_one_level(tmp_path: Path) -> Iterator[SqliteBench]:
    """A new file, where the level makes no difference."""
    bench = SqliteBench(tmp_path / "store.db")
    yield bench
    bench.store.close()


class TestContract(StoreContract, KeyedContract, StrangerContract):
    """The suite that every store passes, so1-so10 and so12, at both levels."""

    @pytest.fixture
    def bench(self, bench: SqliteBench) -> SqliteBench:
        return bench


# What stays.


def test_everything_is_there_after_the_file_was_closed_and_opened(bench: SqliteBench) -> None:
    """S-3: entries, producers, positions with their state, incarnations."""
    tag = make(bench)
    put(bench, 1, "a", "b")
    owner = owner_of(bench, 1)
    commit(bench, 2, owner=owner, tag=tag, state=b"\x00state")
    bench.reopen()
    assert bench.store.create("s", 1, KEEP_ALL) == Exists(tag)
    assert read_payloads(bench) == texts("a", "b")
    assert put(bench, 1, "a", "b", "c") == Stored(3, 1, 3)
    assert bench.store.get("s", "r") == Position(tag, 2, None, b"\x00state", owner)
    assert owner_of(bench, 1) == owner


def test_the_level_is_that_of_the_connection(bench: SqliteBench) -> None:
    """S-3, R-9: power syncs at each commit, process does not; the setting is read back, not believed."""
    assert bench.store.level is bench.level
    with bench.store.transaction() as transaction:
        (synchronous,) = transaction.connection.execute("PRAGMA synchronous").fetchone()
        (mode,) = transaction.connection.execute("PRAGMA journal_mode").fetchone()
    assert (synchronous, mode) == ({Level.PROCESS: 1, Level.POWER: 2}[bench.level], "wal")


def test_a_connection_that_ignores_the_setting_lowers_the_level(tmp_path: Path) -> None:
    """S-3: what is declared is what is there, not what was asked for."""

    class Careless(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            return super().execute(sql.replace("=FULL", "=OFF"), parameters)

    def connect_carelessly(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            path,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            factory=Careless,
        )

    with SqliteStore(tmp_path / "store.db", connect=connect_carelessly) as store:
        assert store.level is Level.INTERVAL


def test_a_snapshot_brings_the_whole_file_back(one: SqliteBench) -> None:
    """X-17: entries and positions that came after it are gone; threads that wait look again."""
    make(one)
    put(one, 1, "a")
    before = one.store.snapshot()
    put(one, 2, "b")
    commit(one, 2, owner=owner_of(one, 1))
    one.store.roll_back(before)
    assert read_payloads(one) == texts("a")
    assert one.store.get("s", "r") == NoPosition()
    assert put(one, 2, "c") == Stored(2, 1, 2)


# Pages.


def test_a_long_run_takes_several_pages_and_is_one_append(one: SqliteBench) -> None:
    """S-4: pages of up to 64 KiB, a longer message alone in one; trimming then is to the page."""
    make(one)
    sizes = [30_000, 30_000, 30_000, PAGE_MAX_BYTES + 5, 1, 0]
    payloads = [bytes([n]) * size for n, size in enumerate(sizes, 1)]
    assert one.store.append("s", "p", 1, 1, payloads) == Stored(6, 6, 1)
    assert [len(entry[4]) for entry in read_all(one)] == sizes
    batch = one.store.read("s", 1, 100, 1 << 20)
    assert isinstance(batch, Batch)
    assert [run.index for run in batch.entries] == [1, 3, 4, 5]
    assert one.store.trim("s", 3) == Trimmed(3)
    assert one.store.trim("s", 6) == Trimmed(5)
    assert read_payloads(one) == payloads[4:]


# Waiting.


@pytest.mark.parametrize("beside_sql", [False, True])
def test_an_append_wakes_the_thread_that_waits(tmp_path: Path, beside_sql: bool) -> None:
    """S-7: with a timeout of an hour and no polling in between, the wait returns when the entry is there."""
    waiting = threading.Event()

    def announce_and_wait(condition: threading.Condition, timeout_us: int) -> None:
        del timeout_us
        waiting.set()
        assert condition.wait(FAILS_LOUDLY_AFTER_S)

    with SqliteStore(tmp_path / "store.db", pause=announce_and_wait) as store:
        store.create("s", 1, KEEP_ALL)
        hints: list[object] = []
        thread = threading.Thread(target=lambda: hints.append(store.wait("s", 1, HOUR_US)))
        thread.start()
        assert waiting.wait(FAILS_LOUDLY_AFTER_S)
        with store.transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
            if beside_sql:
                transaction.connection.execute("SELECT 1")
        thread.join(FAILS_LOUDLY_AFTER_S)
        assert hints == [Hint()]


def test_an_idle_wait_looks_rarely(one: SqliteBench) -> None:
    """R-9: pauses double up to 50 ms, so ten idle minutes are about twelve thousand looks at one number."""
    make(one)
    minutes_us = 600_000_000
    assert one.store.wait("s", 1, minutes_us) == Hint()
    assert one.time.pauses <= minutes_us // POLL_MAX_US + 10
    assert one.time.now >= 1_000_000 + minutes_us


def test_closing_ends_a_wait(tmp_path: Path) -> None:
    """No thread is left waiting on a closed store."""
    waiting = threading.Event()

    def announce_and_wait(condition: threading.Condition, timeout_us: int) -> None:
        del timeout_us
        waiting.set()
        assert condition.wait(FAILS_LOUDLY_AFTER_S)

    store = SqliteStore(tmp_path / "store.db", pause=announce_and_wait)
    store.create("s", 1, KEEP_ALL)
    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.append(store.wait("s", 1, HOUR_US)))
    thread.start()
    assert waiting.wait(FAILS_LOUDLY_AFTER_S)
    store.close()
    thread.join(FAILS_LOUDLY_AFTER_S)
    assert [type(outcome) for outcome in outcomes] == [Failed]


# Threads.


def test_threads_may_write_and_read_at_once(bench: SqliteBench) -> None:
    """R-9, S-4: four writers and two readers; indexes are dense, each producer's order is kept."""
    make(bench)

    def write(name: str) -> None:
        for seq in range(1, 41):
            put(bench, seq, f"{name}{seq}", producer=name)

    def follow(found: list[bytes]) -> None:
        index = 1
        while index <= 160:
            batch = bench.store.read("s", index, 10, 1_000)
            if isinstance(batch, Batch):
                found += [payload for run in batch.entries for payload in run.payloads]
                index = batch.next

    seen: tuple[list[bytes], list[bytes]] = ([], [])
    in_threads(
        *(partial(write, name) for name in "abcd"),
        *(partial(follow, found) for found in seen),
    )
    entries = read_all(bench)
    assert [entry[0] for entry in entries] == list(range(1, 161))
    for name in "abcd":
        assert [entry[3] for entry in entries if entry[1] == name] == list(range(1, 41))
    assert seen[0] == seen[1] == [entry[4] for entry in entries]


def test_a_read_sees_one_moment(tmp_path: Path) -> None:
    """S-7: between its look at the ends and its look at the pages, everything is trimmed by force."""
    meanwhile: list[Callable[[], object]] = []

    class Interrupted(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if "FROM surepipe_pages" in sql and meanwhile:
                meanwhile.pop()()
            return super().execute(sql, parameters)

    def connect_interrupted(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            path,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            factory=Interrupted,
        )

    path = tmp_path / "store.db"
    with SqliteStore(path) as other, SqliteStore(path, connect=connect_interrupted) as store:
        other.create("s", 1, Retention(force=True))
        other.append("s", "p", 1, 1, texts("a", "b"))
        meanwhile.append(partial(other.trim, "s", 3))
        batch = store.read("s", 1, 9, 9)
        assert not meanwhile
        assert isinstance(batch, Batch)
        assert [payload for run in batch.entries for payload in run.payloads] == texts("a", "b")
        assert store.read("s", 1, 9, 9) == Trimmed(3)


class Gathering:
    """A writer whose first job lasts until others wait for their turn."""

    def __init__(self, path: Path) -> None:
        self.commits = 0
        self.writer = Writer(SqliteFile(path, Level.PROCESS, 5.0, connect), self.count)
        self.writer.do(lambda c: c.execute("CREATE TABLE notes (n INTEGER UNIQUE)"))
        self.commits = 0
        self.outcomes: dict[int, object] = {}
        self.has_begun = threading.Event()

    def count(self) -> None:
        """A commit was made."""
        self.commits += 1

    def lead(self, others: int) -> None:
        """Hold the turn until so many others wait."""

        def step(connection: sqlite3.Connection) -> None:
            self.has_begun.set()
            while self.writer.waiting < others:
                os.sched_yield()
            connection.execute("INSERT INTO notes VALUES (0)")

        self.writer.do(step)

    def note(self, key: int, number: int) -> None:
        """One of the others."""
        assert self.has_begun.wait(FAILS_LOUDLY_AFTER_S)
        try:
            self.outcomes[key] = self.writer.do(
                lambda c: c.execute("INSERT INTO notes VALUES (?)", (number,)).rowcount
            )
        except sqlite3.IntegrityError as error:
            self.outcomes[key] = type(error)

    def run(self, numbers: list[int]) -> list[int]:
        """All at once; returns what is in the table."""
        in_threads(
            lambda: self.lead(len(numbers)),
            *(partial(self.note, key, number) for key, number in enumerate(numbers)),
        )
        found = self.writer.do(
            lambda c: [n for (n,) in c.execute("SELECT n FROM notes ORDER BY n")]
        )
        self.writer.close()
        return found


def test_writes_that_wait_share_one_commit(tmp_path: Path) -> None:
    """R-9: while one write has the turn eight gather; they take one commit together."""
    gathering = Gathering(tmp_path / "store.db")
    assert gathering.run([*range(1, 9)]) == [*range(9)]
    assert gathering.commits == 3, "the leader's, the group's, and that of the look at the table"


def test_a_write_that_fails_in_a_group_fails_alone(tmp_path: Path) -> None:
    """R-9, S-1: one of eight breaks a rule of the database; the other seven are done."""
    gathering = Gathering(tmp_path / "store.db")
    assert gathering.run([1, 2, 3, 0, 5, 6, 7, 8]) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert gathering.outcomes.pop(3) is sqlite3.IntegrityError
    assert set(gathering.outcomes.values()) == {1}
