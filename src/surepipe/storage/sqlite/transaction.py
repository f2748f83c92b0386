"""A transaction of a SQLite store: its requests, and SQL of the caller's own on the same connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from surepipe.core.store_requests import (
    AppendOutcome,
    AppendRun,
    CommitOutcome,
    CommitPosition,
    Committed,
    Stored,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable
from surepipe.storage.sqlite import positions as sqlite_positions
from surepipe.storage.sqlite import streams as sqlite_streams
from surepipe.storage.sqlite.file import SqliteFile, is_busy
from surepipe.storage.sqlite.writer import Blocks, Closed, Writer


class SqliteTransaction:
    """What a transaction of a SQLite store does when its block ends, together with the caller's own SQL."""

    def __init__(self, writer: Writer, file: SqliteFile, blocks: Blocks) -> None:
        self.done = False
        self.outcomes: tuple[AppendOutcome | CommitOutcome, ...] = ()
        self.requests: list[AppendRun | CommitPosition] = []
        self._writer = writer
        self._file = file
        self._blocks = blocks
        self._lent: sqlite3.Connection | None = None

    def append(self, request: AppendRun) -> None:
        """Add an append."""
        self.requests.append(request)

    def commit(self, request: CommitPosition) -> None:
        """Add a commit."""
        self.requests.append(request)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, inside an immediate transaction that ends with the block.

        From the first use on, all other writers of the file wait for the end of the block. It refuses to end
        the transaction (``commit``, ``rollback``, ``executescript``) and to write to the store's own tables.
        Don't keep it, and don't wait inside the block for anything that writes to this file.

        Raises StoreUnavailable when the file is locked for too long or can't be written.
        """
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

    @contextmanager
    def part(self) -> Generator[None]:
        """When this inner block raises, its SQL and its requests are taken back (to a savepoint); the rest
        stays."""
        requests, connection = len(self.requests), self.connection
        connection.execute("SAVEPOINT surepipe_part")
        try:
            yield
        except BaseException as error:
            if is_busy(error):
                error.add_note(
                    f"If that is {self._file.path}: the transaction that this ran in is writing to it, so another "
                    "connection waits in vain. Write through the transaction's own connection (in a stage "
                    "context.transaction.connection)."
                )
            del self.requests[requests:]
            if (
                connection.in_transaction
            ):  # some errors of SQLite have ended it: then nothing is left to take back
                connection.execute("ROLLBACK TO surepipe_part")
                connection.execute("RELEASE surepipe_part")
            raise
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
        if self._lent is None:
            self.outcomes, self.done = self._writer.do(lambda c: self._all_or_nothing(c, now_us))
            return
        found: list[tuple[AppendOutcome | CommitOutcome, ...]] = []

        def step(connection: sqlite3.Connection) -> bool:
            outcomes, is_done = self._do_all(connection, now_us)
            found.append(outcomes)
            return is_done

        self._lent = None
        self._blocks.let_go()
        is_done = self._writer.commit_lent(step)
        self.outcomes, self.done = found[0], is_done

    def _all_or_nothing(
        self, connection: sqlite3.Connection, now_us: int
    ) -> tuple[tuple[AppendOutcome | CommitOutcome, ...], bool]:
        """Within a group of writes of other threads, which must not be undone with these."""
        connection.execute("SAVEPOINT surepipe_whole")
        outcomes, is_done = self._do_all(connection, now_us)
        if not is_done:
            connection.execute("ROLLBACK TO surepipe_whole")
        connection.execute("RELEASE surepipe_whole")
        return outcomes, is_done

    def _do_all(
        self, connection: sqlite3.Connection, now_us: int
    ) -> tuple[tuple[AppendOutcome | CommitOutcome, ...], bool]:
        outcomes = tuple(_do(connection, request, now_us) for request in self.requests)
        return outcomes, all(isinstance(outcome, Stored | Committed) for outcome in outcomes)


def _do(
    connection: sqlite3.Connection, request: AppendRun | CommitPosition, now_us: int
) -> AppendOutcome | CommitOutcome:
    if isinstance(request, AppendRun):
        return sqlite_streams.append(connection, request, now_us)
    return sqlite_positions.commit(connection, request)
