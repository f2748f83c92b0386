"""The one connection of a process that writes to the file, and how many threads share one commit.

A write waits in a list. Whoever gets the turn does all writes that wait, in one immediate transaction, and commits
once; the others find theirs done when they get the turn. So while one commit is on its way to the disk the next
group gathers, and no thread of our own is needed. Outcomes are given after the commit.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from surepipe.errors import MisuseError, SurepipeError
from surepipe.storage.sqlite_file import SqliteFile, breaks_connection

T = TypeVar("T")
_OUR_TABLES = "surepipe_"
_CHANGES = (
    sqlite3.SQLITE_INSERT,
    sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE,
    sqlite3.SQLITE_DROP_TABLE,
)


class Closed(Exception):
    """The writer was closed."""


class _Job(Generic[T]):
    """One write and what came of it."""

    def __init__(self, step: Callable[[sqlite3.Connection], T]) -> None:
        self._step = step
        self._outcome: list[T] = []
        self._found: list[T] = []
        self._error: Exception | None = None
        self.is_done = False

    def run(self, connection: sqlite3.Connection) -> None:
        """Do it, inside the transaction."""
        self._found = [self._step(connection)]

    def finish(self, error: Exception | None = None) -> None:
        """The transaction has ended."""
        self._outcome = self._found
        self._error = error
        self.is_done = True

    def result(self) -> T:
        """The outcome, or the error, of a job that is done."""
        if self._error is not None:
            raise self._error
        return self._outcome[0]


class Writer:
    """Group commit for the threads of one process; immediate transactions and the busy timeout for processes."""

    def __init__(self, file: SqliteFile, committed: Callable[[], None]) -> None:
        self._file = file
        self._committed = committed
        self._turn = threading.Lock()
        self._waiting: deque[_Job[object]] = deque()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        self._is_lent = False

    @property
    def waiting(self) -> int:
        """Writes that wait for their turn now."""
        return len(self._waiting)

    def do(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Do the step in a transaction and return what it returned when that is committed.

        A step may run twice (first in a group, then alone), so it must do nothing but SQL on the connection.
        Raises what SQLite raised, and Closed.
        """
        job = _Job(step)
        self._waiting.append(job)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - results stay with their job
        with self._turn:
            if not job.is_done:
                self._work_off()
        return job.result()

    def _work_off(self) -> None:
        jobs = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._do_all(jobs)
        finally:
            # Only an interrupt of this thread leaves something undone; the others must not wait for ever.
            for job in jobs:
                if not job.is_done:
                    job.finish(sqlite3.OperationalError("interrupted: done or not done"))

    def _do_all(self, jobs: list[_Job[object]]) -> None:
        try:
            connection = self._begin()
            if self._try_together(connection, jobs):
                return
        except (sqlite3.Error, Closed, SurepipeError) as error:
            for job in jobs:
                job.finish(error)
            return
        for job in jobs:
            self._do_alone(job)

    def _try_together(self, connection: sqlite3.Connection, jobs: list[_Job[object]]) -> bool:
        """False when something failed: each of them alone will show whose error it is."""
        try:
            self._commit_all(connection, jobs)
        except Exception as error:  # noqa: BLE001 - raised again where the job was asked for
            if len(jobs) == 1:
                jobs[0].finish(error)
            return len(jobs) == 1
        return True

    def _do_alone(self, job: _Job[object]) -> None:
        try:
            self._commit_all(self._begin(), [job])
        except Exception as error:  # noqa: BLE001 - raised again where the job was asked for
            job.finish(error)

    def _commit_all(self, connection: sqlite3.Connection, jobs: list[_Job[object]]) -> None:
        try:
            for job in jobs:
                job.run(connection)
            connection.commit()
        except BaseException as error:
            self._undo(error)
            raise
        for job in jobs:
            job.finish()
        self._committed()

    def _begin(self) -> sqlite3.Connection:
        if self._is_closed:
            raise Closed
        if self._connection is None:
            self._connection = self._file.open_writer()
            self._connection.set_authorizer(self._authorize)
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def _undo(self, error: BaseException | None = None) -> None:
        """Take everything back. After an error of the disk the next write begins with a fresh connection."""
        connection = self._connection
        assert connection is not None
        try:
            connection.rollback()
        except sqlite3.Error:
            self._drop_connection()
            return
        if error is not None and breaks_connection(error):
            self._drop_connection()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # A transaction that lasts as long as a block of the caller's.

    def lend(self) -> sqlite3.Connection:
        """Begin a transaction and give the connection to the caller, until ``commit`` or ``undo``.

        Meanwhile the caller may not end the transaction nor write to our tables.
        """
        self._turn.acquire()
        try:
            connection = self._begin()
        except BaseException:
            self._turn.release()
            raise
        self._is_lent = True
        return connection

    def commit_lent(self, step: Callable[[sqlite3.Connection], bool]) -> bool:
        """Do the step in the lent transaction, then commit if it returns True, otherwise undo.

        Raises what SQLite raised; then nothing was done, or (an error of the disk in the commit) nobody knows.
        """
        connection = self._connection
        assert connection is not None
        self._is_lent = False
        try:
            if not connection.in_transaction:
                raise sqlite3.OperationalError("SQLite ended the transaction inside the block")
            connection.row_factory = None
            connection.text_factory = str
            is_done = step(connection)
            if is_done:
                connection.commit()
            else:
                connection.rollback()
        except BaseException as error:
            self._undo(error)
            raise
        finally:
            self._turn.release()
        if is_done:
            self._committed()
        return is_done

    def undo_lent(self) -> None:
        """Take back the lent transaction."""
        self._is_lent = False
        try:
            self._undo()
        finally:
            self._turn.release()

    def _authorize(
        self,
        action: int,
        table: str | None,
        _detail: str | None,
        _database: str | None,
        _trigger: str | None,
    ) -> int:
        """SQLite asks this when it prepares a statement."""
        if not self._is_lent:
            return sqlite3.SQLITE_OK
        ends_transaction = action == sqlite3.SQLITE_TRANSACTION
        is_ours = action in _CHANGES and (table or "").startswith(_OUR_TABLES)
        return sqlite3.SQLITE_DENY if ends_transaction or is_ours else sqlite3.SQLITE_OK

    # Going back, for tests and simulations.

    def replace_all(self, image: sqlite3.Connection) -> None:
        """Make the file equal to another database."""
        with self._turn:
            self._begin().rollback()
            assert self._connection is not None
            image.backup(self._connection)
        self._committed()

    def close(self) -> None:
        """Refuse everything from now on; waits for the write that is under way."""
        with self._turn:
            self._is_closed = True
            self._drop_connection()


class Blocks:
    """Which threads are inside the block of a transaction; they may neither begin another nor write beside it."""

    def __init__(self) -> None:
        self._threads: set[int] = set()

    def enter(self) -> None:
        """Begin the block of this thread."""
        self.refuse_inside("begin another transaction")
        self._threads.add(threading.get_ident())

    def leave(self) -> None:
        """The block of this thread has ended."""
        self._threads.discard(threading.get_ident())

    def refuse_inside(self, what: str) -> None:
        """Raise MisuseError when this thread is inside a block."""
        if threading.get_ident() in self._threads:
            raise MisuseError(
                f"this thread can't {what} inside a transaction of the same store: use the transaction's own "
                "append and commit; nothing was done"
            )
