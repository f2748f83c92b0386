"""Stores of streams, positions and dead letters: one contract, several backends.

``MemoryStore`` for one process and for trying things out, ``SqliteStore`` for one machine, ``RedisStore`` for
several. The Redis store, and the client library that it needs, is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surepipe.storage.dead_letters import DeadLetterStream, StoredLetter
from surepipe.storage.memory import MemoryStore, MemoryTransaction
from surepipe.storage.sqlite import SqliteStore
from surepipe.storage.sqlite_transaction import SqliteTransaction
from surepipe.store_api import KEEP_ALL, Level, Retention, Store

if TYPE_CHECKING:
    from surepipe.storage.redis_store import RedisStore
    from surepipe.storage.redis_transaction import RedisTransaction

__all__ = [
    "KEEP_ALL",
    "DeadLetterStream",
    "Level",
    "MemoryStore",
    "MemoryTransaction",
    "RedisStore",
    "RedisTransaction",
    "Retention",
    "SqliteStore",
    "SqliteTransaction",
    "Store",
    "StoredLetter",
]


def __getattr__(name: str) -> object:
    """Imports what needs redis-py, when it is asked for."""
    if name == "RedisStore":
        from surepipe.storage.redis_store import RedisStore  # noqa: PLC0415 - takes 0.1 s

        return RedisStore
    if name == "RedisTransaction":
        from surepipe.storage.redis_transaction import RedisTransaction  # noqa: PLC0415 - as above

        return RedisTransaction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
