"""Stores of streams, positions and dead letters: one contract, several backends.

``MemoryStore`` for one process and for trying things out, ``SqliteStore`` for one machine, ``RedisStore`` for
several. The Redis store, and the client library that it needs, is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surepipe.core.store_requests import KEEP_ALL, Level, Retention, Store
from surepipe.errors import ConfigurationError
from surepipe.storage.letters import DeadLetterStream, StoredLetter
from surepipe.storage.memory import MemoryStore, MemoryTransaction
from surepipe.storage.positions import forget_reader, readers_of
from surepipe.storage.retention import change_retention
from surepipe.storage.sqlite.store import SqliteStore
from surepipe.storage.sqlite.transaction import SqliteTransaction

if TYPE_CHECKING:
    from surepipe.storage.redis.store import RedisStore
    from surepipe.storage.redis.transaction import RedisTransaction


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
    "change_retention",
    "forget_reader",
    "open_store",
    "readers_of",
]


def open_store(address: str, pipeline: str) -> MemoryStore | SqliteStore | RedisStore:
    """The store at an address: ``sqlite:///orders.db`` (three strokes, then the path), ``redis://host:6379/0``, or
    ``memory:``. ``pipeline`` names the keys of a Redis store. Raises ConfigurationError for any other text."""
    if address == "memory:":
        return MemoryStore()
    if address.startswith("sqlite:///") and address != "sqlite:///":
        return SqliteStore(address.removeprefix("sqlite:///"))
    if address.startswith(("redis://", "rediss://", "unix://")):
        from surepipe.storage.redis.store import RedisStore  # noqa: PLC0415 - takes 0.1 s

        return RedisStore.from_url(address, pipeline=pipeline)
    raise ConfigurationError(
        f"{address!r} is no address of a store: write sqlite:///orders.db (sqlite:////var/lib/orders.db from the "
        "root), redis://localhost:6379/0, or memory:"
    )


def __getattr__(name: str) -> object:
    """Imports what needs redis-py, when it is asked for."""
    if name == "RedisStore":
        from surepipe.storage.redis.store import RedisStore  # noqa: PLC0415 - takes 0.1 s

        return RedisStore
    if name == "RedisTransaction":
        from surepipe.storage.redis.transaction import RedisTransaction  # noqa: PLC0415 - as above

        return RedisTransaction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
