"""The one connection of a process that writes to the file, and how many threads share one commit.

A write waits in a list. Whoever gets the turn does all writes that wait, in one immediate transaction, and commits
once; the others find theirs done when they get the turn. So while one commit is on its way to the disk the next
group gathers, and no thread of our own is needed. Outcomes are given after the commit. Processes take turns by a
queue of their own (``Turns``).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Generic, TypeVar

from surepipe.errors import MisuseError, SurepipeError
from surepipe.storage.sqlite.file import SqliteFile, breaks_connection, is_busy

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


class Turns:
    """Whose turn it is to write, among the processes and stores that have one file open.

    SQLite gives its write lock to whoever asks while it is free, and whoever waits asks ten times a second. A
    receiver with a backlog begins its next transaction microseconds after it has committed, so it kept all others
    out until it had caught up: a sender waited for 41 s, and a second process ended with "database is locked".

    So there is a queue beside the file, of two locks. Whoever wants to write takes ``next``, waits for ``turn``,
    and lets ``next`` go when it has it. Who has just written needs ``next`` again, and whoever waits holds that.

    It is a courtesy: what protects the data is SQLite's lock. A process may stand still with the turn (a stopped
    one, between two instructions), so after ``PATIENCE_S`` the file is tried as well, and one that turns out to be
    free is written to. Whoever writes by other means than a store waits as SQLite lets it, without a place here.
    """

    def __init__(self, path: str, longest_s: float) -> None:
        self._paths = (f"{path}-next", f"{path}-turn")
        self._longest_s = longest_s
        self._locks: list[int] = []
        self._has_turn = False
        self._patience_s = PATIENCE_S

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin an immediate transaction when it is our turn. Raises what SQLite raises when it never is."""
        began = time.monotonic()
        if not self._open():
            connection.execute(_BEGIN)
            return
        has_next = False
        try:
            while True:
                has_next = has_next or self._try(_NEXT)
                if has_next and self._try(_TURN):
                    self._has_turn, self._patience_s = True, PATIENCE_S
                    break
                waited_s = time.monotonic() - began
                if waited_s >= self._patience_s and _try_to_begin(connection):
                    self._patience_s = (
                        0.0  # somebody stands still with the turn; it is not waited for again
                    )
                    return
                if waited_s >= self._longest_s:
                    break
                time.sleep(ASK_AGAIN_S)
        finally:
            if has_next:
                self._leave(_NEXT)
        try:
            connection.execute(_BEGIN)
        except BaseException:
            self.end()
            raise

    @property
    def is_awaited(self) -> bool:
        """True when somebody waits for the turn that we have."""
        if not self._has_turn or not self._try(_NEXT):
            return self._has_turn
        self._leave(_NEXT)
        return False

    def end(self) -> None:
        """The transaction is over: the next one, please."""
        if self._has_turn:
            self._has_turn = False
            self._leave(_TURN)

    def _open(self) -> bool:
        """False where no such locks can be had; then SQLite's own must do."""
        if not all(map(_is_still_there, self._paths, self._locks)):
            self._forget()  # who closed last has taken them along
        try:
            while len(self._locks) < len(self._paths):
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._locks.append(os.open(self._paths[len(self._locks)], flags, 0o666))
        except OSError:
            self._forget()
        return bool(self._locks)

    def _try(self, lock: int) -> bool:
        try:
            fcntl.flock(self._locks[lock], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _leave(self, lock: int) -> None:
        fcntl.flock(self._locks[lock], fcntl.LOCK_UN)

    def close(self) -> None:
        """Close both files, and remove them when nobody uses them now."""
        if self._locks and self._try(_NEXT) and self._try(_TURN):
            for path in self._paths:
                with suppress(OSError):
                    os.unlink(path)
        self._forget()

    def _forget(self) -> None:
        while self._locks:
            os.close(self._locks.pop())
        self._has_turn = False


_NEXT, _TURN = 0, 1
_BEGIN = "BEGIN IMMEDIATE"
ASK_AGAIN_S = 0.001
LOOK_S = 0.1
"""How often who waits for a turn looks whether that is still one to be waited for."""
PATIENCE_S = 0.25
"""How long a turn may take before the file itself is tried: some deliveries of a committing receiver."""
YIELD_AFTER_S = 0.03
"""A lent transaction that others wait for takes nothing more after this time."""
FREE_PART = 0.1
"""After a lent transaction the file is left alone for this part of the time that it took, before the next of them:
whoever is not a store has no place in the queue, and finds the file free only if it is so for a while."""
FREE_MAX_S = 0.01


def _is_still_there(path: str, opened: int) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(opened).st_ino
    except OSError:
        return False


def _try_to_begin(connection: sqlite3.Connection) -> bool:
    """Begin at once or not at all."""
    (busy_timeout_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout=0")
    try:
        connection.execute(_BEGIN)
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")
    return True


def _nobody_minds() -> None:
    return None


class Writer:
    """Group commit for the threads of one process; immediate transactions and turns for processes."""

    def __init__(self, file: SqliteFile, committed: Callable[[], None]) -> None:
        self._file = file
        self._committed = committed
        self._turn = threading.Lock()
        self._waiting: deque[_Job[object]] = deque()
        self._connection: sqlite3.Connection | None = None
        self._turns = Turns(file.path, file.busy_timeout_s)
        self._is_closed = False
        self._is_lent = False
        self._lent_at = self._free_until = 0.0

    @property
    def waiting(self) -> int:
        """Writes that wait for their turn now."""
        return len(self._waiting)

    def do(
        self,
        step: Callable[[sqlite3.Connection], T],
        may_wait: Callable[[], object] = _nobody_minds,
    ) -> T:
        """Do the step in a transaction and return what it returned when that is committed.

        A step may run twice (first in a group, then alone), so it must do nothing but SQL on the connection.
        ``may_wait`` is asked now and then while others have their turn: what it raises ends the wait, and nothing
        was done. Raises what SQLite raised, and Closed.
        """
        job = _Job(step)
        self._waiting.append(job)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - results stay with their job
        while not self._turn.acquire(timeout=LOOK_S):
            if job.is_done:  # by others; a transaction that is lent has the turn now
                return job.result()
            try:
                may_wait()
            except BaseException:
                if self._withdrawn(job):
                    raise
        try:
            if not job.is_done:
                self._work_off()
        finally:
            self._turn.release()
        return job.result()

    def _withdrawn(self, job: _Job[T]) -> bool:
        """False where whoever has the turn has taken it already, and is through with it in a moment."""
        with suppress(ValueError):
            self._waiting.remove(job)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - as above
            return True
        return False

    def _work_off(self) -> None:
        """Begin, then do all that waits: what came while another process had its turn shares this one."""
        jobs: list[_Job[object]] = []
        try:
            try:
                connection = self._begin()
            except (sqlite3.Error, Closed, SurepipeError) as error:
                for job in self._gathered(jobs):
                    job.finish(error)
                return
            if not self._try_together(connection, self._gathered(jobs)):
                for job in jobs:
                    self._do_alone(job)
        finally:
            # Only an interrupt of this thread leaves something undone; the others must not wait for ever.
            for job in jobs or self._gathered(jobs):
                if not job.is_done:
                    job.finish(sqlite3.OperationalError("interrupted: done or not done"))

    def _gathered(self, jobs: list[_Job[object]]) -> list[_Job[object]]:
        jobs += (self._waiting.popleft() for _ in range(len(self._waiting)))
        return jobs

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
        self._turns.end()
        for job in jobs:
            job.finish()
        self._committed()

    def _begin(self) -> sqlite3.Connection:
        if self._is_closed:
            raise Closed
        self._file.require_same()
        if self._connection is None:
            self._connection = self._file.open_writer()
            self._connection.set_authorizer(self._authorize)
        self._turns.begin(self._connection)
        return self._connection

    def _undo(self, error: BaseException | None = None) -> None:
        """Take everything back. After an error of the disk the next write begins with a fresh connection."""
        connection = self._connection
        assert connection is not None
        try:
            connection.rollback()
        except sqlite3.Error:
            self._drop_connection()
        else:
            if error is not None and breaks_connection(error):
                self._drop_connection()
        finally:
            self._turns.end()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # A transaction that lasts as long as a block of the caller's.

    def lend(self) -> sqlite3.Connection:
        """Begin a transaction and give the connection to the caller, until ``commit`` or ``undo``.

        Meanwhile the caller may not end the transaction nor write to our tables.
        """
        if (free_s := self._free_until - time.monotonic()) > 0:
            time.sleep(free_s)
        self._turn.acquire()
        try:
            connection = self._begin()
        except BaseException:
            self._turn.release()
            raise
        self._is_lent = True
        self._lent_at = time.monotonic()
        return connection

    def _take_back(self, connection: sqlite3.Connection) -> None:
        """The caller may have set how its rows look."""
        self._is_lent = False
        connection.row_factory = None
        connection.text_factory = str

    @property
    def is_awaited(self) -> bool:
        """True when the lent transaction has lasted for a moment, and another thread or process wants to write."""
        if time.monotonic() - self._lent_at < YIELD_AFTER_S:
            return False
        return bool(self._waiting) or self._turns.is_awaited

    def commit_lent(self, step: Callable[[sqlite3.Connection], bool]) -> bool:
        """Do the step in the lent transaction, then commit if it returns True, otherwise undo.

        Raises what SQLite raised; then nothing was done, or (an error of the disk in the commit) nobody knows.
        """
        connection = self._connection
        assert connection is not None
        self._take_back(connection)
        try:
            if not connection.in_transaction:
                raise sqlite3.OperationalError("SQLite ended the transaction inside the block")
            is_done = step(connection)
            if is_done:
                connection.commit()
            else:
                connection.rollback()
        except BaseException as error:
            self._undo(error)
            raise
        finally:
            self._turns.end()
            now = time.monotonic()
            self._free_until = now + min(FREE_MAX_S, FREE_PART * (now - self._lent_at))
            self._turn.release()
        if is_done:
            self._committed()
        return is_done

    def undo_lent(self) -> None:
        """Take back the lent transaction."""
        assert self._connection is not None
        self._take_back(self._connection)
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
            try:
                self._begin().rollback()
                assert self._connection is not None
                image.backup(self._connection)
            finally:
                self._turns.end()
        self._committed()

    def close(self) -> None:
        """Refuse everything from now on; waits for the write that is under way."""
        with self._turn:
            self._is_closed = True
            self._drop_connection()
            self._turns.close()


class _Block:
    """One transaction of a store, as those see it who run on its behalf."""

    def __init__(self, owner: Blocks) -> None:
        self.owner = owner
        self.is_open = True


_AROUND: ContextVar[tuple[_Block, ...]] = ContextVar("surepipe_blocks", default=())
"""The transactions that this code was begun in. A task and ``asyncio.to_thread`` inherit it."""


_HOLDING: dict[object, Blocks] = {}
"""The blocks of this process that have the write lock of a file; of each file there can be one."""


class Blocks:
    """Who is inside the block of a transaction: a thread, and what was begun there and may be waited for.

    None of them may begin another or write beside it: that would wait for the end of the block, which waits for
    it. The same goes for another store on the same ``file``, from the moment when the block has the write lock.
    """

    def __init__(self, file: object) -> None:
        self._file = file
        self._threads: Counter[int] = Counter()
        self._lock = threading.Lock()

    def enter(self) -> _Block:
        """Begin the block of this thread."""
        self.refuse_inside("begin another transaction")
        self.refuse_beside()
        self.join(threading.get_ident())
        block = _Block(self)
        _AROUND.set((*_AROUND.get(), block))
        return block

    def leave(self, block: _Block) -> None:
        """The block of this thread has ended."""
        block.is_open = False  # for what was begun there, and goes on
        _AROUND.set(tuple(one for one in _AROUND.get() if one is not block))
        self.part(threading.get_ident())

    def join(self, thread: int) -> None:
        """That thread works for a block too, from now on."""
        with self._lock:
            self._threads[thread] += 1

    def part(self, thread: int) -> None:
        """Not any more."""
        with self._lock:
            self._threads[thread] -= 1
            if not self._threads[thread]:
                del self._threads[thread]

    def refuse_inside(self, what: str, *, holds_thread: bool = True) -> None:
        """Raise MisuseError when this code is inside a block, was begun in one, or (where it ``holds_thread``)
        keeps the thread that a block needs."""
        if holds_thread and not self._is_begun_here() and self._is_here():
            raise MisuseError(
                f"can't {what} on this event loop now: a coroutine on it has a transaction of the same store "
                "open, which ends only when the loop goes on. Call it with asyncio.to_thread; nothing was done"
            )
        if self._is_begun_here():
            raise MisuseError(
                f"this thread can't {what} inside a transaction of the same store: write through the transaction. "
                "Into the stream of another pipe that is transaction.append(AppendRun(stream, identity of the "
                "message, 1, 1, [payload])), see docs/storage.md; nothing was done"
            )

    def refuse_beside(self) -> None:
        """Raise MisuseError when this thread is inside a block of another store that has this file."""
        holding = _HOLDING.get(self._file)
        if holding is not None and holding is not self and holding._is_here():
            raise MisuseError(
                "this thread can't write through another store to a file that it has a transaction on: that "
                "waits for the end of the transaction, which waits for this. Write through the transaction that "
                "the handler was given (append, commit, connection; in a stage context.transaction); nothing was "
                "done"
            )

    def _is_begun_here(self) -> bool:
        return any(block.owner is self and block.is_open for block in _AROUND.get())

    def _is_here(self) -> bool:
        return self._is_begun_here() or threading.get_ident() in self._threads

    def hold(self) -> None:
        """The block has the write lock."""
        _HOLDING[self._file] = self

    def let_go(self) -> None:
        """Not any more. A repeat does nothing."""
        if _HOLDING.get(self._file) is self:
            del _HOLDING[self._file]
