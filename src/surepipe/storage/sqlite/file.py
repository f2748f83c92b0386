"""A database file: its connections, its layout, its level, and what its errors mean to a caller.

The tables may live beside the user's own in one file, so their names begin with ``surepipe_`` and the version of
the layout has a table, not ``user_version``. All of them, with who writes them:

    surepipe_layout      one row: the version of the layout                          (this module)
    surepipe_streams     one row per stream or partition: how it was made, its ends  (streams.py)
    surepipe_producers   one row per producer of a stream: epoch and last seq        (streams.py)
    surepipe_pages       one row per page of messages, found by its first index      (streams.py)
    surepipe_positions   one row per reader of a stream: owner, position, state      (positions.py)
    surepipe_keys        one row per key of a table: its value                       (tables.py)
    surepipe_marks       one row per mark that was ever raised: how often            (tables.py)
    surepipe_removals    one row per stream of which somebody else removed entries:
                         what was told of it, and to which run                       (streams.py)

The last three came later. They hold nothing that the others lean on, so a file without them gets them when it is
opened, and the version of the layout stays.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, cast

from surepipe.core.store_requests import Failed, Level, Unavailable
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable
from surepipe.storage.complaints import Complaints

LAYOUT = 2
CHECKPOINT_PAGES = 8_000
"""The log is copied into the database when it has so many pages (about 32 MB): each copy waits for the disk, so
the default of 1000 makes appends of 50 KB take nearly twice as long."""
SWITCH_AGAIN_S = 0.01

TABLES = (
    "CREATE TABLE surepipe_layout (version INTEGER NOT NULL)",
    """CREATE TABLE surepipe_streams (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        incarnation INTEGER NOT NULL,
        partitions INTEGER NOT NULL,
        max_bytes INTEGER,
        max_age_us INTEGER,
        forced INTEGER NOT NULL,
        earliest INTEGER NOT NULL,
        next INTEGER NOT NULL,
        bytes INTEGER NOT NULL)""",
    """CREATE TABLE surepipe_producers (
        stream INTEGER NOT NULL,
        name TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        last INTEGER NOT NULL,
        PRIMARY KEY (stream, name)) WITHOUT ROWID""",
    """CREATE TABLE surepipe_pages (
        stream INTEGER NOT NULL,
        first_index INTEGER NOT NULL,
        producer TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        first_seq INTEGER NOT NULL,
        count INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        stored_us INTEGER NOT NULL,
        lengths BLOB,
        body BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX surepipe_pages_by_index ON surepipe_pages (stream, first_index)",
    """CREATE TABLE surepipe_positions (
        stream TEXT NOT NULL,
        reader TEXT NOT NULL,
        owner INTEGER NOT NULL,
        claimant INTEGER,
        tag INTEGER,
        next INTEGER,
        anchor_producer TEXT,
        anchor_epoch INTEGER,
        anchor_seq INTEGER,
        state BLOB,
        committed_by INTEGER,
        revision INTEGER,
        PRIMARY KEY (stream, reader))""",
)

LATER_TABLES = (
    """CREATE TABLE IF NOT EXISTS surepipe_keys (
        name TEXT NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (name, key)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS surepipe_marks (
        name TEXT PRIMARY KEY,
        number INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS surepipe_removals (
        stream INTEGER PRIMARY KEY,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        producer TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        seq INTEGER NOT NULL)""",
)

_TELLS: dict[int, tuple[type[Failed | Unavailable], str]] = {
    sqlite3.SQLITE_BUSY: (Unavailable, "another process holds it for longer than the busy timeout"),
    sqlite3.SQLITE_LOCKED: (Unavailable, "another connection holds it"),
    sqlite3.SQLITE_FULL: (Unavailable, "there is no room: free some, or raise the file's limit"),
    sqlite3.SQLITE_IOERR: (Unavailable, "the disk gave an error: done or not done"),
    sqlite3.SQLITE_READONLY: (
        Failed,
        "it can't be written: change its rights, or those of its folder",
    ),
    sqlite3.SQLITE_PERM: (Failed, "it can't be used: change its rights"),
    sqlite3.SQLITE_CANTOPEN: (
        Failed,
        "it can't be opened: its folder must be there, with the right to write",
    ),
    sqlite3.SQLITE_NOTADB: (Failed, "this is no SQLite database: give another path"),
    sqlite3.SQLITE_CORRUPT: (Failed, "the database is damaged: restore it from a copy"),
}
"""What an error means for who called, and for who runs the store. Disk full comes and goes, so it is no Failed."""

Connect: TypeAlias = Callable[[str, float], sqlite3.Connection]
"""Opens a connection to a path with a busy timeout in seconds, in autocommit mode, usable from any thread."""


def connect(path: str, busy_timeout_s: float) -> sqlite3.Connection:
    """In autocommit mode, as the store begins and ends each transaction itself."""
    return sqlite3.connect(
        path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )


def is_in_transaction(connection: sqlite3.Connection) -> bool:
    """Works for a closed one, too."""
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:
        return False


# Forks. SQLite keeps in memory which locks the process has. The child of a fork gets that memory and none of the
# locks, and nothing gives it up there. So a connection that the child opens believes that it is locked:
#
# 1. The parent has the file open, forks, and the child opens it by itself.
# 2. The parent closes it. Nobody has a lock now.
# 3. A third process takes itself for the first, and begins the log anew.
# 4. What the child writes from then on is confirmed to it, and overwritten.

_OPEN: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
_OPEN_IN_PARENT: set[object] = set()
"""Files that a process which this one was forked from had open then."""


def _inherit() -> None:
    _OPEN_IN_PARENT.update(_identity_of(file.path) for file in list(_OPEN))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)


class SqliteFile:
    """How connections to one file are opened. Opening makes the layout, or checks the one that is there."""

    def __init__(
        self, path: str | os.PathLike[str], level: Level, busy_timeout_s: float, connect: Connect
    ) -> None:
        """Raises ConfigurationError when the file can't be used as asked, StoreUnavailable when it is locked,
        MisuseError in the child of a fork whose parent had it open."""
        self.path = _checked_path(path)
        self._process = os.getpid()
        if _identity_of(self.path) in _OPEN_IN_PARENT:
            raise self._open_in_parent()
        self.busy_timeout_s = busy_timeout_s
        self._asked = _checked_level(level)
        self._connect = connect
        self._complaints = Complaints()
        _OPEN.add(self)
        try:
            with_layout = self.open_writer()
            self.level = _probed_level(with_layout, self.path)
            with_layout.close()
            self._identity = _identity_of(self.path)
        except sqlite3.Error as error:
            raise self._as_exception(error) from error

    @property
    def is_of_parent(self) -> bool:
        """In the child of a fork: this was opened before."""
        return os.getpid() != self._process

    def refuse_in_child(self) -> None:
        """Raises MisuseError where this was opened before a fork."""
        if self.is_of_parent:
            raise self._open_in_parent()

    def _open_in_parent(self) -> MisuseError:
        return MisuseError(
            f"the store on {self.path} was opened before a fork, and only the parent can use that file: "
            "what is written here would be lost. Close every store on it before the fork, or start the process "
            "anew (by multiprocessing.get_context('spawn') or subprocess); nothing was done"
        )

    def forget(self) -> None:
        """All connections are closed."""
        _OPEN.discard(self)

    def open_writer(self) -> sqlite3.Connection:
        """A connection that may write, with the synchronous setting of the level."""
        connection = self._connect(self.path, self.busy_timeout_s)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        _switch_to_wal(connection, self.busy_timeout_s)
        connection.execute(
            f"PRAGMA synchronous={'FULL' if self._asked is Level.POWER else 'NORMAL'}"
        )
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        # On macOS only these two make fsync reach the disk; elsewhere they do nothing.
        connection.execute(f"PRAGMA fullfsync={int(self._asked is Level.POWER)}")
        connection.execute(f"PRAGMA checkpoint_fullfsync={int(self._asked is Level.POWER)}")
        _make_or_check_layout(connection, self.path)

    @property
    def identity(self) -> object:
        """The same for every path to this file."""
        return self._identity

    def require_same(self) -> None:
        """Raises ConfigurationError when the file was removed or replaced since it was opened.

        Connections that are open go on with the former file, which nobody will find again: what they write is
        lost, and nothing tells it. Opening the new file beside them is no way out: who closes last removes the
        log of the other one.
        """
        if _identity_of(self.path) != self._identity:
            raise ConfigurationError(
                "the file was removed or replaced while it was open, and what is written to it now would be lost: "
                "end every process that uses it, put the right file in its place (without -wal and -shm of "
                "another one), and start again"
            )

    def open_reader(self) -> sqlite3.Connection:
        """A connection that never writes."""
        connection = self._connect(self.path, self.busy_timeout_s)
        connection.execute("PRAGMA query_only=1")
        return connection

    def outcome_of(self, error: Exception) -> Failed | Unavailable:
        """What a caller is told instead of an exception of sqlite3. What may pass is logged now and then."""
        outcome = self._told(error)
        if isinstance(outcome, Unavailable):
            self._complaints.hear(outcome.detail)
        return outcome

    def _told(self, error: Exception) -> Failed | Unavailable:
        text = f"{self.path}: {error}"
        code = _primary_code(error)
        if code in _TELLS:
            kind, advice = _TELLS[code]
            return kind(f"{text}; {advice}")
        if isinstance(error, sqlite3.OperationalError):
            return Unavailable(text)
        return Failed(f"{text} ({type(error).__name__})")

    def _as_exception(self, error: sqlite3.Error) -> Exception:
        match self._told(error):
            case Failed(reason):
                return ConfigurationError(reason)
            case Unavailable(detail):
                return StoreUnavailable(detail)


def breaks_connection(error: BaseException) -> bool:
    """Whether a connection should not be used any more after this error."""
    return _primary_code(error) in (
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    )


def _identity_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_busy(error: BaseException) -> bool:
    """Whether somebody else holds the file."""
    return _primary_code(error) == sqlite3.SQLITE_BUSY


def _primary_code(error: BaseException) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def _checked_path(path: str | os.PathLike[str]) -> str:
    if not isinstance(cast("object", path), str | os.PathLike):
        raise ConfigurationError(
            f"a SQLite store is made of the path of its file, such as SqliteStore('orders.db'); {path!r} is none"
        )
    text = os.fspath(path)
    if text in ("", ":memory:"):
        raise ConfigurationError(
            "a SQLite store needs a file: connections to memory don't see each other's data, and nothing "
            "of it would survive; use MemoryStore"
        )
    return str(Path(text).absolute())


def _checked_level(level: Level) -> Level:
    if not isinstance(cast("object", level), Level) or level not in (Level.PROCESS, Level.POWER):
        raise ConfigurationError(
            f"a SQLite store keeps at level process or power (Level.PROCESS, Level.POWER), not at {level!r}"
        )
    return level


def _switch_to_wal(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """SQLite gives up at once when two processes switch a new file, whatever the busy timeout; so ask again."""
    give_up_at = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
            time.sleep(SWITCH_AGAIN_S)


def _probed_level(connection: sqlite3.Connection, path: str) -> Level:
    """The level as the connection really is set, not as it was asked for."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        raise ConfigurationError(
            f"{path}: this file can't have a write-ahead log (its mode is {mode}); put it on a local disk"
        )
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    levels = {0: Level.INTERVAL, 1: Level.PROCESS, 2: Level.POWER, 3: Level.POWER}
    return levels[synchronous]


def _make_or_check_layout(connection: sqlite3.Connection, path: str) -> None:
    if _found_layout(connection) is None:
        _make_layout(connection)
    found = _found_layout(connection)
    if found != LAYOUT:
        raise ConfigurationError(
            f"{path} has layout {found} and this version of surepipe uses layout {LAYOUT}: open it with the "
            "version that made it, let everything in it be delivered and the dead letters be replayed, then "
            "begin with a new file"
        )
    if not _has_table(connection, "surepipe_removals"):
        _make_later_tables(connection)


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def _make_later_tables(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for table in LATER_TABLES:
            connection.execute(table)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _found_layout(connection: sqlite3.Connection) -> int | None:
    if not _has_table(connection, "surepipe_layout"):
        return None
    (version,) = connection.execute("SELECT max(version) FROM surepipe_layout").fetchone()
    return int(version) if version is not None else -1


def _make_layout(connection: sqlite3.Connection) -> None:
    """All tables in one transaction; another process may have been faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _found_layout(connection) is None:
            for table in (*TABLES, *LATER_TABLES):
                connection.execute(table)
            connection.execute("INSERT INTO surepipe_layout VALUES (?)", (LAYOUT,))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
