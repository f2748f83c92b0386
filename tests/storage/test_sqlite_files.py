"""SQLite files that are in a bad way, and what the store says about them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    Created,
    Failed,
    Level,
    Stored,
    Unavailable,
)
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.storage.sqlite.file import connect
from surepipe.storage.sqlite.store import SqliteStore
from tests.contracts.store_contract import (
    make,
    put,
    read_payloads,
    texts,
)
from tests.storage.sqlite_bench import SqliteBench, in_threads


@pytest.fixture(name="one")
def open_at_one_level(tmp_path: Path) -> Iterator[SqliteBench]:
    """A new file, where the level makes no difference."""
    bench = SqliteBench(tmp_path / "store.db")
    yield bench
    bench.store.close()


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


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE surepipe_layout SET version = 99", "99"),
        ("DELETE FROM surepipe_layout", "-1"),
    ],
)
def test_another_layout_names_the_step_to_take(one: SqliteBench, change: str, found: str) -> None:
    """R-2's rule for SQLite: another version of the layout, or none, is refused, not guessed at."""
    one.store.close()
    with closing(sqlite3.connect(one.path)) as connection:
        connection.execute(change)
        connection.commit()
    with pytest.raises(ConfigurationError, match=rf"layout {found} .*begin with a new file"):
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
    """S-1, F30: a permanent failure that says what to change. Reading goes on, and writing when that was done."""
    make(one)
    put(one, 1, "a")
    mode = "ro"

    def connect_with_rights(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{path}?mode={mode}",
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )

    with SqliteStore(one.path, connect=connect_with_rights) as store:
        outcome = store.append("s", "p", 1, 2, texts("b"))
        assert isinstance(outcome, Failed)
        assert "change its rights" in outcome.reason
        assert isinstance(store.read("s", 1, 9, 9), Batch)
        mode = "rw"
        assert store.append("s", "p", 1, 2, texts("b")) == Stored(2, 1, 2)


def test_a_full_disk_stores_nothing_and_goes_on_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S-1, F30: Unavailable, because room comes back; the same append then is stored once. The log names the store
    and the reason, and not at each attempt."""
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
    assert [record.getMessage().rpartition("again: ")[2] for record in caplog.records] == [
        full[0].detail
    ]
    assert str(path) in full[0].detail
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


def test_a_new_file_held_by_somebody_else_is_waited_for_within_the_timeout(tmp_path: Path) -> None:
    """R-9: SQLite does not wait to switch a file to its log, so the store asks again; but not for ever."""
    path = tmp_path / "store.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE theirs (n)")
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process"):
        SqliteStore(path, busy_timeout_s=0.01)
    holder.execute("ROLLBACK")
    holder.close()
    SqliteStore(path, busy_timeout_s=0.01).close()


def test_a_new_file_that_is_switched_by_somebody_else_is_asked_for_again(tmp_path: Path) -> None:
    """R-9: SQLite says at once that it is busy; the store asks again, and then the other one is done."""
    path = tmp_path / "store.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE theirs (n)")
    holder.execute("BEGIN IMMEDIATE")

    class MeetsTheOther(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            try:
                return super().execute(sql, parameters)
            except sqlite3.OperationalError:
                holder.execute("ROLLBACK")
                raise

    def connect_without_patience(path: str, _busy_timeout_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, factory=MeetsTheOther
        )

    with SqliteStore(path, connect=connect_without_patience) as store:
        assert not holder.in_transaction
        assert isinstance(store.create("s", 1, KEEP_ALL), Created)
    holder.close()


def test_values_that_sqlite_can_not_hold_fail(one: SqliteBench) -> None:
    """S-1: a number of 64 bits and a name that is no text are failures of the request, not exceptions."""
    make(one)
    assert isinstance(put(one, 1, "a", epoch=2**63), Failed)
    assert isinstance(put(one, 1, "a", producer="\ud800"), Failed)
    assert isinstance(one.store.claim("s", "r", 2**64), Failed)
    assert read_payloads(one) == []


def test_a_file_that_was_replaced_or_removed_while_it_was_open_takes_nothing_more(
    tmp_path: Path,
) -> None:
    """R-9: an older copy is put in its place, then nothing. Open connections would go on with the former file."""
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.create("s", 1, KEEP_ALL)
        store.append("s", "p", 1, 1, [b"a"])
        copy = store.snapshot()
        store.append("s", "p", 1, 2, [b"b"])
        (tmp_path / "copy.db").write_bytes(copy)
        os.replace(tmp_path / "copy.db", path)
        for _ in range(2):
            for outcome in (store.append("s", "p", 1, 3, [b"c"]), store.read("s", 1, 9, 99)):
                assert isinstance(outcome, Failed)
                assert "removed or replaced while it was open" in outcome.reason
            with (
                pytest.raises(StoreUnavailable, match="removed or replaced"),
                store.transaction() as transaction,
            ):
                _ = transaction.connection
            path.unlink(missing_ok=True)
    assert not path.exists(), "and none is made in its place"


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
