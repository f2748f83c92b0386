"""Transactions of a SQLite store: SQL of the caller's own beside appends and commits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from surepipe.actors.threads import THREADS
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    CommitPosition,
    Created,
    Gap,
    Level,
    Stored,
    StoreOutcome,
    StreamInfo,
    Unavailable,
)
from surepipe.errors import MisuseError, words_of
from surepipe.storage import SqliteStore
from tests.actors.kit import PATIENCE_S, await_that
from tests.contracts.store_contract import (
    make,
    owner_of,
    put,
    read_payloads,
    texts,
)
from tests.storage.sqlite_bench import SqliteBench, in_threads


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


def test_a_part_that_raises_is_taken_back_and_the_rest_is_done(one: SqliteBench) -> None:
    """S-11: its SQL and its requests, also those of a part inside it; the transaction goes on behind it."""
    make_effects(one)
    with one.store.transaction() as transaction:

        def effect(n: int) -> None:
            transaction.connection.execute("INSERT INTO effects VALUES (?)", (n,))
            transaction.append(AppendRun("s", "p", 1, len(transaction.requests) + 1, texts(n)))

        effect(10)
        for is_bad in (False, True):
            with suppress(ValueError), transaction.part():
                effect(20 + is_bad)
                with transaction.part():
                    effect(30 + is_bad)
                if is_bad:
                    raise ValueError("boom")
        effect(40)
    assert transaction.done
    assert effects_of(one) == [10, 20, 30, 40]
    assert read_payloads(one) == texts(10, 20, 30, 40)


def test_a_part_takes_back_what_came_before_a_part_inside_it_that_was_taken_back(
    one: SqliteBench,
) -> None:
    """S-11: the end of the inner part is no later beginning of the outer one."""
    make_effects(one)
    with one.store.transaction() as transaction:
        with suppress(ZeroDivisionError), transaction.part():
            transaction.connection.execute("INSERT INTO effects VALUES (1)")
            with suppress(ValueError), transaction.part():
                raise ValueError("inside")
            raise ZeroDivisionError
        transaction.connection.execute("INSERT INTO effects VALUES (2)")
    assert transaction.done
    assert effects_of(one) == [2]


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


def test_a_lent_connection_that_the_caller_closed_is_replaced(one: SqliteBench) -> None:
    """S-11: whether the block raises or not, nothing of it is done, and the store goes on."""
    make_effects(one)

    def close_it() -> bool:
        with one.store.transaction() as transaction:
            transaction.connection.execute("INSERT INTO effects VALUES (1)")
            transaction.connection.close()
        return transaction.done

    def close_and_raise() -> None:
        with one.store.transaction() as transaction:
            transaction.connection.execute("INSERT INTO effects VALUES (1)")
            transaction.connection.close()
            raise ZeroDivisionError

    assert not close_it()
    assert put(one, 1, "a") == Stored(1, 1, 1)
    with pytest.raises(ZeroDivisionError):
        close_and_raise()
    assert put(one, 2, "b") == Stored(2, 1, 2)
    assert effects_of(one) == []


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


def test_another_store_on_the_file_of_a_transaction_is_refused_at_once(
    one: SqliteBench, tmp_path: Path
) -> None:
    """S-11: by another path to the file, on the same thread and on one that was begun there: MisuseError that says
    what to write through; nothing waits for the busy timeout, other threads do, and afterwards all go on."""
    make_effects(one)
    (tmp_path / "link.db").symlink_to(one.store.path)
    with SqliteStore(tmp_path / "link.db", level=Level.PROCESS, busy_timeout_s=1e6) as other:
        with one.store.transaction() as transaction:
            transaction.connection.execute("INSERT INTO effects VALUES (1)")
            for misuse in (
                lambda: other.append("s", "p", 1, 1, texts("x")),
                lambda: other.transaction().__enter__(),
                lambda: asyncio.run(asyncio.to_thread(other.claim, "s", "r", 1)),
            ):
                with pytest.raises(MisuseError, match="Write through the transaction that"):
                    misuse()
            with SqliteStore(tmp_path / "aside.db", level=Level.PROCESS) as aside:
                assert isinstance(aside.create("s", 1, KEEP_ALL), Created)
        assert transaction.done
        with one.store.transaction() as transaction:  # it has not asked for the lock of the file
            other.create("later", 1, KEEP_ALL)
        in_threads(lambda: put(one, 1, "x"), lambda: other.claim("s", "r", 1))
    assert effects_of(one) == [1]


def test_a_locked_file_in_a_part_says_who_may_hold_it(one: SqliteBench) -> None:
    """S-11: a connection of the caller's own, in the middle of a transaction on the same file."""
    make_effects(one)
    own = sqlite3.connect(one.store.path, timeout=0)
    with (
        one.store.transaction() as transaction,
        pytest.raises(sqlite3.OperationalError) as error,
        transaction.part(),
    ):
        own.execute("INSERT INTO effects VALUES (2)")
    own.close()
    assert "database is locked. If that is" in words_of(error.value)
    assert "through the transaction's own connection" in words_of(error.value)
    assert effects_of(one) == []


def test_a_write_that_waits_for_a_transaction_which_comes_to_need_its_thread_is_refused(
    tmp_path: Path,
) -> None:
    """A loop's thread asks between two messages of one transaction; the handler of the second then waits for that
    loop. Neither would ever go on."""
    refused = list[str]()

    def write() -> None:
        with pytest.raises(MisuseError) as caught:
            store.append("orders", "p", 1, 1, [b"1"])
        refused.append(str(caught.value))

    with SqliteStore(tmp_path / "a.db") as store:
        store.create("orders", 1, KEEP_ALL)
        with store.transaction() as transaction:
            transaction.connection.execute("SELECT 1")
            thread = threading.Thread(target=write)
            thread.start()
            writer: Any = vars(store)["_writer"]
            await_that(THREADS, lambda: bool(writer.waiting == 1), "the write waits")
            with transaction.reaches(thread.ident):
                thread.join(PATIENCE_S)
        (said,) = refused
        assert "can't write on this event loop now" in said
        found = store.info("orders")
        assert isinstance(found, StreamInfo)
        assert found.next == 1


def test_a_write_that_others_have_done_does_not_wait_for_the_next_transaction(
    tmp_path: Path,
) -> None:
    """1. A write waits. 2. Who has the turn does it. 3. A transaction that may last gets the turn first."""
    with SqliteStore(tmp_path / "a.db") as store:
        store.create("orders", 1, KEEP_ALL)
        writer: Any = vars(store)["_writer"]
        done = list[StoreOutcome]()
        with writer._turn:
            thread = threading.Thread(
                target=lambda: done.append(store.append("orders", "p", 1, 1, [b"1"]))
            )
            thread.start()
            await_that(THREADS, lambda: bool(writer.waiting == 1), "the write waits")
            writer._work_off()
            thread.join(PATIENCE_S)
            assert len(done) == 1
