"""Small helpers of the tests of pipes with stores."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from surepipe.actors import Pipe
from surepipe.core.store_requests import StoreOutcome, StoreRequest, Transaction
from surepipe.storage import Level, SqliteStore, SqliteTransaction
from tests.actors.kit import PATIENCE_S, await_that

STREAM = {"stream": {"start": "earliest"}}
QUICK_STREAM = {"stream": {"start": "earliest", "rto_initial_s": 0.05, "rto_min_s": 0.01}}


def sqlite_store(folder: Path, name: str = "pipes.db") -> SqliteStore:
    """A store in a file, synced by the system: tests don't cut the power."""
    return SqliteStore(folder / name, level=Level.PROCESS)


class ClosesAt(SqliteStore):
    """Is closed by somebody just before it is asked the how-many-th request of this kind."""

    def __init__(self, path: Path, kind: type[StoreRequest], count: int = 1) -> None:
        super().__init__(path, level=Level.PROCESS)
        self.was_closed = threading.Event()
        self._kind, self._left = kind, count

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """As any store, before and after."""
        self._left -= isinstance(request, self._kind)
        if not self._left:
            self.close()
            self.was_closed.set()
        return super().ask(request)


def make_effects(store: SqliteStore) -> None:
    """A table of effects in the file of the store."""
    with store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE IF NOT EXISTS effects (message)")


def put_effect(message: object, transaction: Transaction) -> None:
    """A handler that notes the message in the transaction it was given."""
    assert isinstance(transaction, SqliteTransaction)
    transaction.connection.execute("INSERT INTO effects VALUES (?)", (message,))


def effects_in(store: SqliteStore) -> list[object]:
    """All effects, in the order in which they were made."""
    with closing(sqlite3.connect(store.path)) as connection:
        rows = connection.execute("SELECT message FROM effects ORDER BY rowid").fetchall()
    return [message for (message,) in rows]


class Until:
    """Keeps messages, and lets a test wait for a number of them."""

    def __init__(self, count: int) -> None:
        self.messages: list[object] = []
        self._count = count
        self._complete = threading.Event()

    def __call__(self, message: object) -> None:
        self.messages.append(message)
        if len(self.messages) >= self._count:
            self._complete.set()

    def wait(self) -> list[object]:
        """Everything so far, once there is enough of it."""
        assert self._complete.wait(PATIENCE_S), f"only {len(self.messages)} of {self._count} came"
        return self.messages


class DiesAfter:
    """Wraps a handler: before the given message it lets an end of the pipe crash, once."""

    def __init__(
        self, message: object, crash: Callable[[], None], handler: Callable[..., object]
    ) -> None:
        self._message = message
        self._crash = crash
        self._handler = handler

    def __call__(self, message: object, *more: object) -> None:
        if message == self._message:
            self._message = None
            self._crash()
        self._handler(message, *more)


def crash_sender(pipe: Pipe) -> None:
    """Kill the sender's actor and wait until it is dead: a send that met its death would not know its fate."""
    keeper = pipe.sender.keeper
    before = keeper.restarts
    pipe.sender.crash()
    await_that(pipe.sender.runtime, lambda: keeper.restarts > before, "the sender dies")


def send_slowly(pipe: Pipe, numbers: range) -> None:
    """One by one, each stored in the journal before the next."""
    for number in numbers:
        pipe.send(number)
