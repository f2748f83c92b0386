"""A SQLite store as the contract suite needs it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from surepipe.core.store_requests import Level
from surepipe.storage.sqlite.store import SqliteStore

FAILS_LOUDLY_AFTER_S = 60


@dataclass
class ManualTime:
    """A wall clock and a monotonic clock that go on when told, or when somebody waits."""

    now: int = 1_000_000
    pauses: int = 0

    def read(self) -> int:
        """Microseconds."""
        return self.now

    def advance(self, micros: int) -> None:
        """Go on."""
        self.now += micros

    def pause(self, condition: threading.Condition, timeout_us: int) -> None:
        """A way to wait that takes no time."""
        del condition
        self.pauses += 1
        self.now += timeout_us


@dataclass
class SqliteBench:
    """A store on one file, with a clock that stands until it is told to go on."""

    path: Path
    level: Level = Level.PROCESS
    time: ManualTime = field(default_factory=ManualTime)
    store: SqliteStore = field(init=False)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Open the file."""
        self.store = SqliteStore(
            self.path,
            level=self.level,
            clock=self.time.read,
            monotonic=self.time.read,
            pause=self.time.pause,
        )

    def reopen(self) -> None:
        """As after a restart of the process."""
        self.store.close()
        self.open()

    @property
    def streams(self) -> SqliteStore:
        return self.store

    @property
    def positions(self) -> SqliteStore:
        return self.store

    def advance(self, micros: int) -> None:
        self.time.advance(micros)

    def remove(self, stream: str, *indexes: int) -> None:
        """By plain SQL."""
        connection = sqlite3.connect(self.path)
        with connection:
            for index in indexes:
                connection.execute(
                    "DELETE FROM surepipe_pages WHERE first_index = ? AND stream ="
                    " (SELECT id FROM surepipe_streams WHERE name = ?)",
                    (index, stream),
                )
        connection.close()

    def delete(self, stream: str) -> None:
        assert self.store.delete(stream) is None


def in_threads(*works: Callable[[], object]) -> None:
    """Run all at once, and see them end."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(FAILS_LOUDLY_AFTER_S)
        assert not thread.is_alive()
