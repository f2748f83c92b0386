"""A transaction of a SQLite store: its requests, and SQL of the caller's own on the same connection."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager

from surepipe.core.store_requests import (
    OVER,
    AllDone,
    AppendRun,
    Changed,
    CommitPosition,
    DropValues,
    JoinedOutcome,
    JoinedRequest,
    NoneDone,
    PutValues,
    RaiseMark,
    Together,
    Transaction,
    in_time,
    lent_to_call,
    loan_of,
    require_open,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable, TransactionEnded
from surepipe.storage.sqlite import positions as sqlite_positions
from surepipe.storage.sqlite import streams as sqlite_streams
from surepipe.storage.sqlite import tables as sqlite_tables
from surepipe.storage.sqlite.file import SqliteFile, is_busy, is_in_transaction
from surepipe.storage.sqlite.lent import LentConnection
from surepipe.storage.sqlite.writer import Blocks, Closed, Writer
from surepipe.storage.together import perform_together, was_done_before, why_not

_NOT_YOURS = (
    "The pipe ends the transaction, and the tables surepipe_... are its own: a handler only writes to its own "
    "tables, without commit, rollback, executescript and `with connection`."
)


class SqliteTransaction(Transaction):
    """What a transaction of a SQLite store does when its block ends, together with the caller's own SQL."""

    def __init__(self, writer: Writer, file: SqliteFile, blocks: Blocks) -> None:
        super().__init__(lock=threading.RLock())
        self._writer = writer
        self._file = file
        self._blocks = blocks
        self._lent: sqlite3.Connection | None = None
        self._handed: LentConnection | None = None

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, inside an immediate transaction that ends with the block.

        From the first use on, all other writers of the file wait for the end of the block. It refuses to end
        the transaction (``commit``, ``rollback``, ``executescript``) and to write to the store's own tables.
        Don't keep it, and don't wait inside the block for anything that writes to this file. Each call of a
        handler has one of its own, which refuses everything when the call has ended: TransactionEnded.

        Raises StoreUnavailable when the file is locked for too long or can't be written.
        """
        with in_time(self):
            if self._handed is None or self._handed.loan is not loan_of(self):
                self._handed = LentConnection(self._begun(), loan_of(self))
            return self._handed

    def _begun(self) -> sqlite3.Connection:
        if self._lent is None:
            try:
                self._lent = self._writer.lend()
            except Closed as error:
                raise MisuseError(f"the store on {self._file.path} is closed") from error
            except ConfigurationError as error:  # the file was replaced: no message is to blame
                raise StoreUnavailable(f"{self._file.path}: {error}") from error
            except sqlite3.Error as error:
                raise StoreUnavailable(str(self._file.outcome_of(error))) from error
            self._blocks.hold()
        return self._lent

    @property
    def is_full(self) -> bool:
        """It takes any number of parts, but not while others wait to write."""
        return self._lent is not None and self._writer.is_awaited

    @property
    def is_over(self) -> bool:
        """True when a statement of the caller's ended it, or the caller closed the connection."""
        return self._lent is not None and not is_in_transaction(self._lent)

    @contextmanager
    def part(self) -> Generator[None]:
        """When this inner block raises, its SQL and its requests are taken back (to a savepoint); the rest
        stays. Raises TransactionEnded where the block has ended the transaction."""
        with in_time(self):
            requests, connection = len(self.requests), self._begun()
        require_open(self)
        connection.execute("SAVEPOINT surepipe_part")
        try:
            with lent_to_call(self):
                yield
        except BaseException as error:
            if is_busy(error):
                error.add_note(
                    f"If that is {self._file.path}: the transaction that this ran in is writing to it, so another "
                    "connection waits in vain. Write through the transaction's own connection (in a stage "
                    "context.transaction.connection)."
                )
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:
                error.add_note(_NOT_YOURS)
            del self.requests[requests:]
            if not self.is_over:
                connection.execute("ROLLBACK TO surepipe_part")
                connection.execute("RELEASE surepipe_part")
            elif not isinstance(error, TransactionEnded):
                error.add_note(f"So {OVER}")
            raise
        require_open(self)
        connection.execute("RELEASE surepipe_part")

    @contextmanager
    def reaches(self, thread: int | None) -> Generator[None]:
        """While a coroutine runs for this block, its thread counts as inside: what writes there would wait for the
        end of the block, which needs that thread."""
        if thread is None:
            yield
            return
        self._blocks.join(thread)
        try:
            yield
        finally:
            self._blocks.part(thread)

    def undo(self) -> None:
        """The block has raised."""
        if self._lent is not None:
            self._lent = None
            self._blocks.let_go()
            self._writer.undo_lent()

    def finish(self, now_us: int) -> None:
        """The block has ended: do everything, or nothing."""
        request = self.joined()
        if refused := why_not(request):
            self.settle(refused)
            self.undo()
            return
        if self._lent is None:
            self.settle(self._writer.do(lambda c: all_or_nothing(c, request, now_us)))
            return
        found: list[AllDone | NoneDone] = []

        def step(connection: sqlite3.Connection) -> bool:
            found.append(_do_all(connection, request, now_us))
            is_done = isinstance(found[0], AllDone)
            return is_done and not was_done_before(request, found[0])

        self._lent = None
        self._blocks.let_go()
        self._writer.commit_lent(step)
        self.settle(found[0])


def all_or_nothing(
    connection: sqlite3.Connection, request: Together, now_us: int
) -> AllDone | NoneDone:
    """Within a group of writes of other threads, which must not be undone with these."""
    connection.execute("SAVEPOINT surepipe_whole")
    outcome = _do_all(connection, request, now_us)
    if isinstance(outcome, NoneDone):
        connection.execute("ROLLBACK TO surepipe_whole")
    connection.execute("RELEASE surepipe_whole")
    return outcome


def _do_all(connection: sqlite3.Connection, request: Together, now_us: int) -> AllDone | NoneDone:
    return perform_together(request, lambda part: _do(connection, part, now_us))


def _do(connection: sqlite3.Connection, request: JoinedRequest, now_us: int) -> JoinedOutcome:
    match request:
        case AppendRun():
            return sqlite_streams.append(connection, request, now_us)
        case CommitPosition():
            return sqlite_positions.commit(connection, request)
        case PutValues(table, pairs):
            sqlite_tables.put(connection, table, pairs)
        case DropValues(table, keys):
            sqlite_tables.drop(connection, table, keys)
        case RaiseMark(mark):
            sqlite_tables.raise_mark(connection, mark)
    return Changed()
