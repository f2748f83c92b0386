"""A store in one SQLite file: durable, no server, several threads and processes at once.

    with SqliteStore("orders.db") as store:
        store.create("orders", 1, KEEP_ALL)

The file has a write-ahead log. At level ``power`` each commit is synced to the disk before its outcome is given;
at level ``process`` the system syncs when it likes, so a crash of the process loses nothing and a power cut may
lose the last commits, never one from the middle. Writes of several threads share a commit. The user's own tables
may be in the same file: that is what ``transaction`` is for.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from surepipe.core.store_requests import (
    AppendRun,
    ChangeRetention,
    ClaimReader,
    CommitPosition,
    CreateStream,
    DescribeStream,
    DropStream,
    Failed,
    GetPosition,
    Hint,
    IdentifyEntry,
    KeyedRequest,
    Level,
    LoadTable,
    Marked,
    OpenProducer,
    ReadFrom,
    ReadKeys,
    Store,
    StoreOutcome,
    StoreRequest,
    Together,
    TrimBefore,
    Unavailable,
    WaitForMark,
    WaitForMore,
    lent_for_block,
)
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.storage.pages import PagesOutcome
from surepipe.storage.sqlite import positions as sqlite_positions
from surepipe.storage.sqlite import streams as sqlite_streams
from surepipe.storage.sqlite import tables as sqlite_tables
from surepipe.storage.sqlite.file import Connect, SqliteFile, breaks_connection, connect
from surepipe.storage.sqlite.transaction import SqliteTransaction, all_or_nothing
from surepipe.storage.sqlite.writer import Blocks, Closed, Writer
from surepipe.storage.together import why_not

# Connections that read: one for each thread that is reading right now, and one that watches for changes.


class Readers:
    """Lends connections to reads; kept open for the next one."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False

    def do(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Run the step in a read transaction. Raises what SQLite raises, Closed, and ConfigurationError."""
        self._file.require_same()
        connection = self._take()
        try:
            connection.execute("BEGIN")
            found = step(connection)
            connection.rollback()
        except BaseException as error:
            self._give_back_after(error, connection)
            raise
        self._give_back(connection)
        return found

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._is_closed:
                raise Closed
            if self._idle:
                return self._idle.pop()
        return self._file.open_reader()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _give_back_after(self, error: BaseException, connection: sqlite3.Connection) -> None:
        if breaks_connection(error):
            connection.close()
            return
        try:
            connection.rollback()
        except sqlite3.Error:
            connection.close()
        else:
            self._give_back(connection)

    def close(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class FileWatch:
    """Tells whether anybody has written to the file: a number that differs when somebody has."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        self._reopened = 0

    def version(self) -> tuple[int, int]:
        """Equal to an earlier one only when nothing was committed in between. Raises as ``Readers.do``."""
        with self._lock:
            if self._is_closed:
                raise Closed
            if self._connection is None:
                self._connection = self._file.open_reader()
                self._reopened += 1
            try:
                (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:
                self._connection.close()
                self._connection = None
                raise
            return self._reopened, int(version)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None


T = TypeVar("T")
POLL_MIN_US = 1_000
POLL_MAX_US = 50_000
"""How often ``wait`` looks for what other processes have written: twice as long each time nothing was."""

_ERRORS = (sqlite3.Error, OverflowError, UnicodeError, Closed, StoreUnavailable, ConfigurationError)


def _wall_clock_us() -> int:
    return time.time_ns() // 1000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def _random_incarnation() -> int:
    return secrets.randbits(62) + 1


def _wait_on_condition(condition: threading.Condition, timeout_us: int) -> None:
    condition.wait(timeout_us / 1_000_000)


class SqliteStore(Store):
    """A store that can do all, and SQL of the caller's, in one transaction.

    Safe for threads. Not for a fork: a child process opens the file itself.
    """

    kind = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        level: Level = Level.POWER,
        busy_timeout_s: float = 5.0,
        clock: Callable[[], int] = _wall_clock_us,
        monotonic: Callable[[], int] = _monotonic_us,
        new_incarnation: Callable[[], int] = _random_incarnation,
        pause: Callable[[threading.Condition, int], None] = _wait_on_condition,
        connect: Connect = connect,
    ) -> None:
        """Open the file, and make it when it is not there.

        Raises ConfigurationError when it can't be used (no database, another layout, no rights, a level that
        SQLite does not have) and StoreUnavailable when it is locked for longer than ``busy_timeout_s``.

        ``clock`` gives wall-clock microseconds (for retention by age), ``monotonic`` those for timeouts.
        ``pause`` is how ``wait`` waits: it is called with a condition held and the longest time in microseconds.
        """
        self._file = SqliteFile(path, level, busy_timeout_s, connect)
        self._clock = clock
        self._monotonic = monotonic
        self._new_incarnation = new_incarnation
        self._pause = pause
        self._changed = threading.Condition()
        self._commits = 0
        self._interrupts = 0
        self._is_closed = False
        self._blocks = Blocks(self._file.identity)
        self._writer = Writer(self._file, self._tell_waiting)
        self._readers = Readers(self._file)
        self._watch = FileWatch(self._file)

    @property
    def level(self) -> Level:
        """What survives, as the connection really is set."""
        return self._file.level

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._is_closed

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self._file.path

    @property
    def name(self) -> str:
        """What findings call it: its path."""
        return self.path

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. Calls under way end; later ones answer Failed. A repeat does nothing.

        Waits for the write that is under way; inside the block of a transaction: MisuseError. In the child of a
        fork nothing is closed: the connections are the parent's.
        """
        if self._file.is_of_parent:
            self._is_closed = True
            return
        self._blocks.refuse_inside("close the store")
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._writer.close()
        self._readers.close()
        self._watch.close()
        self._file.forget()

    def refuse_inside(self, what: str, *, holds_thread: bool) -> None:
        """Raise MisuseError where a wait for a write of somebody else would be for the end of a transaction that
        this code is in, or (where it ``holds_thread``) that a coroutine of this thread is in."""
        self._blocks.refuse_inside(what, holds_thread=holds_thread)

    # How each call is done.

    def _write(self, step: Callable[[sqlite3.Connection], T]) -> T | Failed | Unavailable:
        self._refuse_in_child()
        self._refuse_to_wait()
        try:
            # A coroutine of this thread may get a transaction while this waits for the end of the one before.
            return self._writer.do(step, self._refuse_to_wait)
        except _ERRORS as error:
            return self._outcome_of(error)

    def _refuse_to_wait(self) -> None:
        self._blocks.refuse_inside("write")
        self._blocks.refuse_beside()

    def _look(self, step: Callable[[sqlite3.Connection], T]) -> T | Failed | Unavailable:
        """A read in one transaction, so that it sees one moment."""
        self._refuse_in_child()
        try:
            return self._readers.do(step)
        except _ERRORS as error:
            return self._outcome_of(error)

    def _outcome_of(self, error: Exception) -> Failed | Unavailable:
        if isinstance(error, Closed) or self._is_closed:
            return Failed(f"the store on {self.path} is closed")
        if isinstance(error, StoreUnavailable):
            return Unavailable(str(error))
        if isinstance(error, ConfigurationError):
            return Failed(str(error))
        return self._file.outcome_of(error)

    def _refuse_in_child(self) -> None:
        """SQLite's connections and locks don't survive a fork; using them would damage the file."""
        self._file.refuse_in_child()

    def _tell_waiting(self) -> None:
        with self._changed:
            self._commits += 1
            self._changed.notify_all()

    def ask(  # noqa: PLR0911, PLR0912 - a line per kind
        self, request: StoreRequest
    ) -> StoreOutcome:
        """See ``Store.ask``. Trims whole pages, a page being one append or 64 KiB of it. What this process writes
        ends a wait at once, what another one writes within 50 ms."""
        match request:
            case AppendRun():
                now_us = self._clock()
                return self._write(lambda c: sqlite_streams.append(c, request, now_us))
            case ReadFrom():
                return self._look(lambda c: sqlite_streams.read(c, request))
            case CommitPosition():
                return self._write(lambda c: sqlite_positions.commit(c, request))
            case WaitForMore(stream, index, timeout_us):
                found = self._watch_until(
                    lambda c: sqlite_streams.next_index(c, stream),
                    lambda at: at != index,
                    timeout_us,
                )
                return Hint() if isinstance(found, int) else found
            case CreateStream(stream, partitions, retention):
                incarnation = self._new_incarnation()
                return self._write(
                    lambda c: sqlite_streams.create(c, stream, partitions, retention, incarnation)
                )
            case ChangeRetention(stream, retention):
                return self._write(lambda c: sqlite_streams.change_retention(c, stream, retention))
            case OpenProducer(stream, producer, epoch, base):
                return self._write(
                    lambda c: sqlite_streams.open_producer(c, stream, producer, epoch, base)
                )
            case IdentifyEntry(stream, index):
                return self._look(lambda c: sqlite_streams.identify(c, stream, index))
            case TrimBefore(stream, before):
                return self._write(lambda c: sqlite_streams.trim(c, stream, before))
            case DescribeStream(stream):
                return self._look(lambda c: sqlite_streams.info(c, stream))
            case ClaimReader(stream, reader, claimant):
                return self._write(lambda c: sqlite_positions.claim(c, stream, reader, claimant))
            case GetPosition(stream, reader):
                return self._look(lambda c: sqlite_positions.get(c, stream, reader))
            case ReadKeys() | LoadTable() | WaitForMark() | DropStream() | Together():
                return why_not(request) or self._ask_keyed(request)

    def _ask_keyed(self, request: KeyedRequest) -> StoreOutcome:
        match request:
            case ReadKeys(table, keys):
                return self._look(lambda c: sqlite_tables.read(c, table, keys))
            case LoadTable(table, after, limit):
                return self._look(lambda c: sqlite_tables.load(c, table, after, limit))
            case WaitForMark(mark, seen, timeout_us):
                found = self._watch_until(
                    lambda c: sqlite_tables.mark_of(c, mark), lambda at: at != seen, timeout_us
                )
                return Marked(found) if isinstance(found, int) else found
            case DropStream():
                return self._write(lambda c: sqlite_streams.drop(c, request))
            case Together():
                now_us = self._clock()
                return self._write(lambda c: all_or_nothing(c, request, now_us))

    def read_pages(
        self,
        stream: str,
        index: int,
        max_messages: int,
        max_bytes: int,
        incarnation: int | None = None,
    ) -> PagesOutcome:
        """As ``read``, in whole pages that are not taken apart: for readers in bulk."""
        request = ReadFrom(stream, index, max_messages, max_bytes, incarnation)
        return self._look(lambda c: sqlite_streams.read_pages(c, request))

    def _watch_until(
        self,
        step: Callable[[sqlite3.Connection], int | Failed],
        is_enough: Callable[[int], bool],
        timeout_us: int,
    ) -> int | Failed | Unavailable:
        """Look at a number each time when somebody has written, until it is enough or the time is over."""
        give_up_at, interrupts = self._monotonic() + timeout_us, self._interrupts
        seen, poll_us, found = (0, 0), POLL_MIN_US, 0
        while True:
            commits = self._commits
            try:
                version = self._watch.version()
            except _ERRORS as error:
                return self._outcome_of(error)
            if version != seen:
                looked = self._look(step)
                if not isinstance(looked, int) or is_enough(looked):
                    return looked
                found, seen, poll_us = looked, version, POLL_MIN_US
            left_us = give_up_at - self._monotonic()
            if left_us <= 0 or interrupts != self._interrupts:
                return found
            self._pause_unless_changed(commits, min(poll_us, left_us))
            poll_us = min(2 * poll_us, POLL_MAX_US)

    def stop_waiting(self) -> None:
        """Every ``wait`` that is under way returns within a moment."""
        with self._changed:
            self._interrupts += 1
            self._changed.notify_all()

    def _pause_unless_changed(self, commits: int, longest_us: int) -> None:
        with self._changed:
            if commits == self._commits and not self._is_closed:
                self._pause(self._changed, longest_us)

    @contextmanager
    def transaction(self) -> Generator[SqliteTransaction]:
        """See ``Transaction`` in the store requests; ``SqliteTransaction.connection`` is for the caller's own SQL.

        Not inside another one of the same thread, and no other write of this store inside the block:
        MisuseError. When the file is locked or the disk full at the end, the outcomes say so and ``done`` is
        false. After a crash all of it is there, or nothing.
        """
        self._refuse_in_child()
        transaction = SqliteTransaction(self._writer, self._file, self._blocks)
        block = self._blocks.enter()
        try:
            with lent_for_block(transaction):
                yield transaction
        except BaseException:
            transaction.undo()
            raise
        finally:
            self._blocks.leave(block)
        try:
            transaction.finish(self._clock())
        except _ERRORS as error:
            transaction.settle(self._outcome_of(error))

    # For operators and tests.

    def delete(self, stream: str) -> Failed | Unavailable | None:
        """Forget a stream with all its partitions, but not the positions of its readers. None: done."""
        return self._write(lambda c: sqlite_streams.delete(c, stream))

    def snapshot(self) -> bytes:
        """The whole database at one moment, for ``roll_back``. Raises StoreUnavailable."""
        with tempfile.TemporaryDirectory() as folder:
            image = Path(folder, "image.db")

            def copy(connection: sqlite3.Connection) -> bytes:
                target = sqlite3.connect(image)
                try:
                    connection.backup(target)
                finally:
                    target.close()
                return image.read_bytes()

            found = self._look(copy)
        if isinstance(found, bytes):
            return found
        raise StoreUnavailable(f"no snapshot of {self.path}: {found}")

    def roll_back(self, state: bytes) -> None:
        """Go back to a snapshot, as a file restored from a backup does, with everything else in the file."""
        with tempfile.TemporaryDirectory() as folder:
            image = Path(folder, "image.db")
            image.write_bytes(state)
            source = sqlite3.connect(image)
            try:
                self._writer.replace_all(source)
            finally:
                source.close()
