"""The SQLite store: the contract at both levels, threads, transactions, and files that are in a bad way."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable
from surepipe.storage.sqlite import POLL_MAX_US, SqliteStore
from surepipe.storage.sqlite_file import SqliteFile, connect
from surepipe.storage.sqlite_pages import PAGE_MAX_BYTES
from surepipe.storage.sqlite_writer import Writer
from surepipe.store_api import (
    KEEP_ALL,
    AppendRun,
    Batch,
    CommitPosition,
    Exists,
    Failed,
    Gap,
    Hint,
    Level,
    NoPosition,
    Position,
    Stored,
    Trimmed,
    Unavailable,
)
from tests.contracts.store_contract import (
    Bench,
    StoreContract,
    commit,
    make,
    owner_of,
    put,
    read_all,
    read_payloads,
    texts,
)
from tests.storage.sqlite_bench import SqliteBench

FAILS_LOUDLY_AFTER_S = 60
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


class TestContract(StoreContract):
    """The suite that every store passes, so1-so10 and so12, at both levels."""

    @pytest.fixture
    def bench(self, bench: SqliteBench) -> Bench:
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
            path, busy_timeout_s, isolation_level=None, check_same_thread=False, factory=Careless
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


def test_an_append_wakes_the_thread_that_waits(tmp_path: Path) -> None:
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
        store.append("s", "p", 1, 1, texts("a"))
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


def in_threads(*works: Callable[[], object]) -> None:
    """Run all at once, and see them end."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(FAILS_LOUDLY_AFTER_S)
        assert not thread.is_alive()


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


# Transactions.


def make_effects(bench: SqliteBench) -> None:
    """A table of the user's own in the file, and a stream."""
    make(bench)
    with bench.store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE effects (n INTEGER)")


def effects_of(bench: SqliteBench) -> list[int]:
    """The user's rows, seen from outside."""
    connection = sqlite3.connect(bench.path)
    rows = [n for (n,) in connection.execute("SELECT n FROM effects")]
    connection.close()
    return rows


def test_sql_of_the_caller_happens_with_the_writes_or_not_at_all(bench: SqliteBench) -> None:
    """S-11: done with an append that is Stored, undone with one that is a Gap."""
    make_effects(bench)
    for first, effect, outcome in ((1, 10, Stored(1, 1, 1)), (5, 20, Gap(2))):
        with bench.store.transaction() as transaction:
            transaction.connection.execute("INSERT INTO effects VALUES (?)", (effect,))
            transaction.append(AppendRun("s", "p", 1, first, texts("x")))
        assert transaction.outcomes == (outcome,)
        assert transaction.done is isinstance(outcome, Stored)
    assert effects_of(bench) == [10]
    assert read_payloads(bench) == texts("x")


def test_sql_of_the_caller_alone_is_a_transaction_too(one: SqliteBench) -> None:
    """S-11: without any request the block is done when it is committed."""
    make_effects(one)
    with one.store.transaction() as transaction:
        transaction.connection.execute("INSERT INTO effects VALUES (1)")
    assert transaction.done
    assert effects_of(one) == [1]


def test_an_exception_undoes_the_callers_sql(one: SqliteBench) -> None:
    """S-11: and the store goes on."""
    make_effects(one)

    def fail_after_a_row() -> None:
        with one.store.transaction() as transaction:
            transaction.connection.execute("INSERT INTO effects VALUES (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_row()
    assert effects_of(one) == []
    assert put(one, 1, "a") == Stored(1, 1, 1)


def call_commit(connection: sqlite3.Connection) -> None:
    """As a careless handler would."""
    connection.commit()


def call_script(connection: sqlite3.Connection) -> None:
    """It commits before it does anything."""
    connection.executescript("SELECT 1")


def execute(sql: str) -> Callable[[sqlite3.Connection], object]:
    """One statement."""
    return lambda connection: connection.execute(sql)


@pytest.mark.parametrize(
    "act",
    [
        call_commit,
        call_script,
        execute("COMMIT"),
        execute("ROLLBACK"),
        execute("DELETE FROM surepipe_pages"),
        execute("UPDATE surepipe_positions SET next = 1"),
        execute("DROP TABLE surepipe_streams"),
    ],
    ids=["commit", "script", "COMMIT", "ROLLBACK", "delete", "update", "drop"],
)
def test_the_caller_can_neither_end_the_transaction_nor_touch_the_stores_tables(
    one: SqliteBench, act: Callable[[sqlite3.Connection], object]
) -> None:
    """S-11: SQLite refuses it; nothing of the block is done, and the store goes on."""
    make_effects(one)
    put(one, 1, "a")

    def misuse() -> None:
        with one.store.transaction() as transaction:
            transaction.connection.execute("INSERT INTO effects VALUES (1)")
            act(transaction.connection)

    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        misuse()
    assert effects_of(one) == []
    assert put(one, 2, "b") == Stored(2, 1, 2)
    assert read_payloads(one) == texts("a", "b")


def test_changes_to_the_lent_connection_end_with_the_block(one: SqliteBench) -> None:
    """S-11: a row factory of the caller's is not ours."""
    make_effects(one)
    with one.store.transaction() as transaction:
        transaction.connection.row_factory = sqlite3.Row
        transaction.connection.text_factory = bytes
        transaction.append(AppendRun("s", "p", 1, 1, texts("x")))
    assert transaction.done
    assert put(one, 2, "y") == Stored(2, 1, 2)


def test_nested_use_is_refused(one: SqliteBench) -> None:
    """S-11: another transaction, a write beside it, closing; each MisuseError, and the block goes on."""
    make_effects(one)
    store = one.store
    misuses: list[Callable[[], object]] = [
        lambda: store.transaction().__enter__(),
        lambda: store.append("s", "p", 1, 1, texts("x")),
        lambda: store.claim("s", "r", 1),
        store.close,
    ]
    for touch in (False, True):
        with store.transaction() as transaction:
            if touch:
                transaction.connection.execute("INSERT INTO effects VALUES (1)")
            for misuse in misuses:
                with pytest.raises(MisuseError):
                    misuse()
        assert transaction.done
    assert effects_of(one) == [1]
    assert read_payloads(one) == []


def test_a_transaction_that_sqlite_ended_inside_the_block_is_not_done(one: SqliteBench) -> None:
    """S-11: an ON CONFLICT ROLLBACK that the caller swallows undoes everything, and the outcomes say so."""
    make(one)
    with one.store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE once (n INTEGER UNIQUE ON CONFLICT ROLLBACK)")
        transaction.connection.execute("INSERT INTO once VALUES (1)")
    with one.store.transaction() as transaction:
        with pytest.raises(sqlite3.IntegrityError):
            transaction.connection.execute("INSERT INTO once VALUES (1)")
        transaction.append(AppendRun("s", "p", 1, 1, texts("x")))
    assert not transaction.done
    assert [type(outcome) for outcome in transaction.outcomes] == [Unavailable]
    assert read_payloads(one) == []


def test_transactions_of_threads_do_not_mix(one: SqliteBench) -> None:
    """S-11: four threads forward with SQL of their own; each position has its effect."""
    make_effects(one)

    def forward(name: str) -> None:
        owner = owner_of(one, 1, reader=name, stream="in")
        for n in range(1, 26):
            with one.store.transaction() as transaction:
                transaction.append(AppendRun("s", name, 1, n, texts(f"{name}{n}")))
                transaction.connection.execute("INSERT INTO effects VALUES (?)", (n,))
                transaction.commit(CommitPosition("in", name, owner, 1, n + 1))
            assert transaction.done

    in_threads(*(partial(forward, name) for name in "abcd"))
    assert sorted(effects_of(one)) == sorted([*range(1, 26)] * 4)
    assert len(read_payloads(one)) == 100


# Files in a bad way.


def test_memory_is_refused() -> None:
    """R-9: connections to memory share nothing, so it is no store."""
    for path in (":memory:", ""):
        with pytest.raises(ConfigurationError, match="MemoryStore"):
            SqliteStore(path)


@pytest.mark.parametrize("level", [Level.NONE, Level.INTERVAL])
def test_levels_that_sqlite_does_not_have_are_refused(tmp_path: Path, level: Level) -> None:
    """S-3: nobody gets less than was asked for, or more than there is."""
    with pytest.raises(ConfigurationError, match="process or power"):
        SqliteStore(tmp_path / "store.db", level=level)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """S-1: and left as it is."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to look at " * 40)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="no SQLite database"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """S-1: the error says what must be there."""
    with pytest.raises(ConfigurationError, match="its folder must be there"):
        SqliteStore(tmp_path / "no" / "store.db")


def test_another_layout_names_the_step_to_take(one: SqliteBench) -> None:
    """R-2's rule for SQLite: another version of the layout is refused, not guessed at."""
    one.store.close()
    connection = sqlite3.connect(one.path)
    connection.execute("UPDATE surepipe_layout SET version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigurationError, match=r"layout 99 .*`surepipe migrate "):
        SqliteStore(one.path)


def test_a_file_of_the_users_own_gets_the_tables_too(tmp_path: Path) -> None:
    """S-11: effects and positions may share a file that was there first."""
    path = tmp_path / "own.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (n INTEGER)")
    connection.execute("PRAGMA user_version = 7")
    connection.commit()
    with SqliteStore(path) as store:
        store.create("s", 1, KEEP_ALL)
    assert connection.execute("SELECT count(*) FROM orders").fetchone() == (0,)
    assert connection.execute("PRAGMA user_version").fetchone() == (7,)
    connection.close()


def test_a_file_that_can_only_be_read_fails_writes_with_the_reason(one: SqliteBench) -> None:
    """S-1, F30: a permanent failure that says what to change; reading goes on."""
    make(one)
    put(one, 1, "a")

    def connect_to_read(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{path}?mode=ro",
            busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )

    with SqliteStore(one.path, connect=connect_to_read) as store:
        outcome = store.append("s", "p", 1, 2, texts("b"))
        assert isinstance(outcome, Failed)
        assert "change its rights" in outcome.reason
        assert isinstance(store.read("s", 1, 9, 9), Batch)


def test_a_full_disk_stores_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """S-1, F30: Unavailable, because room comes back; the same append then is stored once."""
    pages_max = 60

    def connect_with_limit(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        connection = connect(path, busy_timeout_s)
        connection.execute(f"PRAGMA max_page_count={pages_max}")
        return connection

    path = tmp_path / "store.db"
    with SqliteStore(path, connect=connect_with_limit) as store:
        store.create("s", 1, KEEP_ALL)
        outcomes = [
            store.append("s", "p", 1, seq, [bytes(60_000)]) for seq in range(1, 12) for _ in "ab"
        ]
        stored = [outcome.last for outcome in outcomes if isinstance(outcome, Stored)]
        full = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
        assert len(full) >= 2
        assert "no room" in full[0].detail
        with store.transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, stored[-1] + 1, [bytes(60_000)]))
        assert not transaction.done
        assert [type(outcome) for outcome in transaction.outcomes] == [Unavailable]
    with SqliteStore(path) as store:
        following = stored[-1] + 1
        assert store.append("s", "p", 1, following, [bytes(60_000)]) == Stored(
            following, 1, following
        )


def test_a_file_held_by_somebody_else_is_unavailable(one: SqliteBench) -> None:
    """S-1, F18: no exception, and the same call is done when the lock is gone."""
    make(one)
    holder = sqlite3.connect(one.path, isolation_level=None)
    with SqliteStore(one.path, busy_timeout_s=0.01) as store:
        holder.execute("BEGIN IMMEDIATE")
        assert isinstance(store.append("s", "p", 1, 1, texts("a")), Unavailable)
        with pytest.raises(StoreUnavailable), store.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE x (n)")
        holder.execute("ROLLBACK")
        assert store.append("s", "p", 1, 1, texts("a")) == Stored(1, 1, 1)
    holder.close()


def test_values_that_sqlite_can_not_hold_fail(one: SqliteBench) -> None:
    """S-1: a number of 64 bits and a name that is no text are failures of the request, not exceptions."""
    make(one)
    assert isinstance(put(one, 1, "a", epoch=2**63), Failed)
    assert isinstance(put(one, 1, "a", producer="\ud800"), Failed)
    assert isinstance(one.store.claim("s", "r", 2**64), Failed)
    assert read_payloads(one) == []


def test_a_closed_store_answers_failed_and_leaves_no_connection_open(tmp_path: Path) -> None:
    """S-1: every connection that was ever opened is closed; closing twice does nothing."""
    opened: list[sqlite3.Connection] = []

    def connect_and_remember(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        opened.append(connect(path, busy_timeout_s))
        return opened[-1]

    store = SqliteStore(tmp_path / "store.db", connect=connect_and_remember)
    store.create("s", 1, KEEP_ALL)
    in_threads(*[lambda: store.read("s", 1, 1, 1)] * 4)
    store.wait("s", 1, 0)
    store.append("s", "p", 1, 1, texts("a"))
    store.close()
    store.close()
    assert len(opened) >= 4
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    for outcome in (
        store.append("s", "p", 1, 2, texts("b")),
        store.read("s", 1, 1, 1),
        store.wait("s", 1, 1),
        store.claim("s", "r", 1),
    ):
        assert isinstance(outcome, Failed)
        assert "closed" in outcome.reason
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.db"]
