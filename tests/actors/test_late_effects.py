"""What a handler has begun, and does not await, when its attempt is over: it writes into no transaction."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from surepipe import Pipe, StreamReceiver, StreamSender
from surepipe.actors import DeadLetters
from surepipe.core.store_requests import KEEP_ALL, AppendRun, Batch
from surepipe.errors import TransactionEnded
from surepipe.storage import MemoryStore, MemoryTransaction, SqliteStore, SqliteTransaction
from tests.actors.kit import PATIENCE_S
from tests.actors.stored_kit import STREAM, effects_in, make_effects, sqlite_store

Write = Callable[[object], object]
Prepared = Callable[[SqliteTransaction], Write]


def by_property(transaction: SqliteTransaction) -> Write:
    """Asks for the connection when it writes."""
    return lambda row: transaction.connection.execute("INSERT INTO effects VALUES (?)", (row,))


def by_connection(transaction: SqliteTransaction) -> Write:
    """Has kept the connection."""
    connection = transaction.connection
    return lambda row: connection.execute("INSERT INTO effects VALUES (?)", (row,))


def by_cursor(transaction: SqliteTransaction) -> Write:
    """Has kept a cursor."""
    cursor = transaction.connection.cursor()
    return lambda row: cursor.execute("INSERT INTO effects VALUES (?)", (row,))


def by_many(transaction: SqliteTransaction) -> Write:
    """Has kept the connection, and writes a list of rows."""
    connection = transaction.connection
    return lambda row: connection.executemany("INSERT INTO effects VALUES (?)", [(row,)])


def by_connection_of_cursor(transaction: SqliteTransaction) -> Write:
    """Has the connection from a cursor."""
    connection = transaction.connection.execute("SELECT 1").connection
    return lambda row: connection.execute("INSERT INTO effects VALUES (?)", (row,))


KEPT = (by_connection, by_cursor, by_many, by_connection_of_cursor)


class Gathering:
    """A coroutine handler whose first attempt at message 0 fails, while its write is still to come.

    The write comes when the next call has the transaction open, and that call waits for it.
    """

    def __init__(self, prepare: Prepared) -> None:
        self.calls = 0
        self.late: BaseException | None = None
        self._prepare = prepare
        self._next_is_open = asyncio.Event()
        self._is_written = asyncio.Event()

    async def __call__(self, message: object, transaction: SqliteTransaction) -> None:
        """Fails once, and then writes as it should."""
        self.calls += 1
        write = self._prepare(transaction)
        if self.calls == 1:
            await asyncio.gather(self._fail(), self._write_late(write))
            return
        write(f"{message} in call {self.calls}")
        if self.calls == 2:
            self._next_is_open.set()
            await asyncio.wait_for(self._is_written.wait(), PATIENCE_S)

    async def _fail(self) -> None:
        raise ConnectionError("the bank is away")

    async def _write_late(self, write: Write) -> None:
        await asyncio.wait_for(self._next_is_open.wait(), PATIENCE_S)
        try:
            write("late")
        except TransactionEnded as error:
            self.late = error
        self._is_written.set()


@pytest.mark.parametrize("prepare", [by_property, *KEPT])
def test_what_a_gather_leaves_running_writes_into_no_later_attempt(
    prepare: Prepared, tmp_path: Path
) -> None:
    """The message that failed comes again at once, and its late write finds the transaction of that attempt."""

    async def body() -> Gathering:
        handle = Gathering(prepare)
        with sqlite_store(tmp_path) as store:
            make_effects(store)
            async with (
                asyncio.timeout(PATIENCE_S),
                Pipe("bids", state=store, boundary="committed", retry_min_s=0.001) as pipe,
            ):
                pipe.receive(handle)
                await pipe.send(0, until="confirmed")
            assert effects_in(store) == ["0 in call 2"]
        return handle

    assert "TaskGroup" in str(asyncio.run(body()).late)


def test_a_dead_letters_late_write_is_not_committed_with_the_next_message(tmp_path: Path) -> None:
    """What failed for good is in the dead letters alone."""
    letters = DeadLetters()

    async def body() -> None:
        handle = Gathering(by_connection)
        with sqlite_store(tmp_path) as store:
            make_effects(store)
            async with (
                asyncio.timeout(PATIENCE_S),
                Pipe(
                    "bids", state=store, boundary="committed", retries=1, dead_letter=letters
                ) as pipe,
            ):
                pipe.receive(handle)
                await pipe.send_many([0, 1])
                await pipe.flush()
            assert effects_in(store) == ["1 in call 2"]

    asyncio.run(body())
    assert len(letters) == 1


@pytest.mark.parametrize("prepare", [by_property, *KEPT])
def test_a_task_that_outlives_its_message_writes_into_none_of_the_same_transaction(
    prepare: Prepared, tmp_path: Path
) -> None:
    """One delivery, one transaction: message 0 was handled, and the task that it left writes while 1 is."""
    told: list[str] = []

    async def body() -> None:
        tasks: list[asyncio.Task[None]] = []
        is_next = asyncio.Event()

        async def write_late(write: Write) -> None:
            await is_next.wait()
            try:
                write("late")
            except TransactionEnded as error:
                told.append(str(error))

        async def handle(message: object, transaction: SqliteTransaction) -> None:
            write = prepare(transaction)
            write(message)
            if message == 0:
                tasks.append(asyncio.create_task(write_late(write)))
            else:
                is_next.set()
                await asyncio.wait(tasks)

        with sqlite_store(tmp_path) as store:
            make_effects(store)
            async with asyncio.timeout(PATIENCE_S):
                async with Pipe("bids", state=store, boundary="committed") as pipe:
                    await pipe.send_many([0, 1])
                    pipe.receive(handle)
                    await pipe.flush()
            assert effects_in(store) == [0, 1]

    asyncio.run(body())
    assert len(told) == 1


@pytest.mark.parametrize("prepare", [by_property, *KEPT])
def test_a_late_write_behind_the_commit_leaves_the_file_free(
    prepare: Prepared, tmp_path: Path
) -> None:
    """Another connection writes at once, and the pipe goes on."""

    async def body() -> None:
        kept: list[Write] = []

        async def handle(message: object, transaction: SqliteTransaction) -> None:
            kept.append(prepare(transaction))
            kept[-1](message)

        with sqlite_store(tmp_path) as store:
            make_effects(store)
            async with asyncio.timeout(PATIENCE_S):
                async with Pipe("bids", state=store, boundary="committed") as pipe:
                    pipe.receive(handle)
                    await pipe.send(1, until="confirmed")
                    with pytest.raises(TransactionEnded, match="Await"):
                        kept[0]("late")
                    write_from_outside(store)
                    await pipe.send(2, until="confirmed")
            assert effects_in(store) == [1, "outside", 2]

    asyncio.run(body())


def write_from_outside(store: SqliteStore) -> None:
    """As another process would, which does not wait."""
    with closing(sqlite3.connect(store.path, timeout=0, isolation_level=None)) as connection:
        connection.execute("INSERT INTO effects VALUES ('outside')")


@pytest.mark.parametrize("prepare", KEPT)
def test_a_thread_of_a_failed_attempt_writes_into_no_later_one(
    prepare: Prepared, tmp_path: Path
) -> None:
    """A thread of a pool knows nothing of the call; what it has kept does."""
    is_next, late = threading.Event(), list["Future[Any]"]()
    calls: list[object] = []
    with ThreadPoolExecutor(1) as pool, sqlite_store(tmp_path) as store:
        make_effects(store)

        def write_late(write: Write) -> None:
            assert is_next.wait(PATIENCE_S)
            write("late")

        def handle(message: object, transaction: SqliteTransaction) -> None:
            calls.append(message)
            write = prepare(transaction)
            if len(calls) == 1:
                late.append(pool.submit(write_late, write))
                raise ConnectionError("the bank is away")
            write(message)
            is_next.set()
            assert isinstance(late[0].exception(PATIENCE_S), TransactionEnded)

        with Pipe("bids", state=store, boundary="committed", retry_min_s=0.001) as pipe:
            pipe.receive(handle)
            pipe.send(0)
            pipe.flush(PATIENCE_S)
        assert effects_in(store) == [0]


def test_rows_that_are_still_on_their_way_when_the_attempt_ends_are_not_written(
    tmp_path: Path,
) -> None:
    """``executemany`` of a thread, whose rows come one by one: the call does not wait for them."""
    is_over, first, late = threading.Event(), threading.Event(), list["Future[Any]"]()
    with ThreadPoolExecutor(1) as pool, sqlite_store(tmp_path) as store:
        make_effects(store)

        def rows() -> Any:
            yield (1,)
            first.set()
            assert is_over.wait(PATIENCE_S)
            yield (2,)

        with store.transaction() as transaction:
            connection = transaction.connection
            sql = "INSERT INTO effects VALUES (?)"
            late.append(pool.submit(connection.executemany, sql, rows()))
            assert first.wait(PATIENCE_S)
        is_over.set()
        assert isinstance(late[0].exception(PATIENCE_S), TransactionEnded)
        assert effects_in(store) == [1]


def test_a_late_append_and_a_late_change_of_a_memory_transaction_are_refused() -> None:
    """What a gather left running adds to no transaction: neither to its own, nor to that of the next attempt."""
    store, told, changed = MemoryStore(), list[str](), list[str]()
    store.create("notices", 1, KEEP_ALL)

    async def body() -> None:
        calls: list[object] = []
        is_next, is_over = asyncio.Event(), asyncio.Event()

        async def fail() -> None:
            raise ConnectionError("the bank is away")

        async def add_late(transaction: MemoryTransaction) -> None:
            await is_next.wait()
            adds: list[Callable[[], None]] = [
                lambda: transaction.append(AppendRun("notices", "late", 1, 1, [b"late"])),
                lambda: transaction.also(lambda: changed.append("late")),
            ]
            for add in adds:
                try:
                    add()
                except TransactionEnded as error:
                    told.append(str(error))
            is_over.set()

        async def handle(message: object, transaction: MemoryTransaction) -> None:
            calls.append(message)
            if len(calls) == 1:
                await asyncio.gather(fail(), add_late(transaction))
            is_next.set()
            await is_over.wait()
            transaction.append(AppendRun("notices", "in time", 1, 1, [b"in time"]))
            transaction.also(lambda: changed.append("in time"))

        async with (
            asyncio.timeout(PATIENCE_S),
            StreamReceiver(
                "bids", STREAM, store=store, boundary="committed", retry_min_s=0.001
            ) as bids,
        ):
            bids.receive(handle)
            await is_over.wait()
            assert await bids.catch_up(PATIENCE_S)

    with StreamSender("bids", store=store) as sender:
        sender.send(0)
    asyncio.run(body())
    batch = store.read("notices", 1, 10, 1000)
    assert isinstance(batch, Batch)
    assert [bytes(payload) for run in batch.entries for payload in run.payloads] == [b"in time"]
    assert changed == ["in time"]
    assert len(told) == 2


def doubled(number: int) -> int:
    """A function for SQL."""
    return 2 * number


def test_the_connection_of_a_call_is_one_for_libraries_too(tmp_path: Path) -> None:
    """It is a sqlite3.Connection, has what one has, and looks at rows as the borrower says, until it goes back."""
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        with store.transaction() as transaction:
            connection = transaction.connection
            assert isinstance(connection, sqlite3.Connection)
            assert transaction.connection is connection
            connection.create_function("twice", 1, doubled)
            connection.row_factory = sqlite3.Row
            cursor = connection.cursor()
            cursor.executemany("INSERT INTO effects VALUES (twice(?))", iter([(1,), (2,)]))
            assert cursor.rowcount == 2
            assert connection.total_changes >= 2
            assert connection.in_transaction
            assert [row["message"] for row in cursor.execute("SELECT message FROM effects")] == [
                2,
                4,
            ]
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"), connection:
                connection.execute("INSERT INTO effects VALUES (5)")
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                connection.executescript("INSERT INTO effects VALUES (6)")
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                sqlite3.Cursor(connection).execute("INSERT INTO effects VALUES (7)")
        assert effects_in(store) == [2, 4, 5]
