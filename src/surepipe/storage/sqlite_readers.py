"""Connections that read: one for each thread that is reading right now, and one that watches for changes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import TypeVar

from surepipe.storage.sqlite_file import SqliteFile, breaks_connection
from surepipe.storage.sqlite_writer import Closed

T = TypeVar("T")


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


class Watch:
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
        """Close the connection."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None
