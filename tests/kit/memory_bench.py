"""A memory store as the contract suite needs it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from surepipe.storage.memory import MemoryStore


def return_at_once(condition: threading.Condition, timeout_us: int) -> None:
    """A way to wait that takes no time."""
    del condition, timeout_us


@dataclass
class MemoryBench:
    """A memory store with a clock that stands until it is told to go on."""

    now: int = 1_000_000
    store: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=lambda: self.now, pause=return_at_once)

    @property
    def streams(self) -> MemoryStore:
        return self.store

    @property
    def positions(self) -> MemoryStore:
        return self.store

    def advance(self, micros: int) -> None:
        self.now += micros

    def remove(self, stream: str, *indexes: int) -> None:
        for index in indexes:
            self.store.remove(stream, index, index)

    def delete(self, stream: str) -> None:
        self.store.delete(stream)
