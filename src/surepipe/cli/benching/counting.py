"""Stores that count what they are asked: commands of a Redis, statements and commits of an SQLite file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import replace

from surepipe.pipelines.models.stores import RedisStorePart, SqliteStorePart
from surepipe.storage.redis_keys import Keys
from surepipe.storage.redis_link import Command, Limits, RedisLink, Reply, settings_of
from surepipe.storage.redis_store import RedisStore
from surepipe.storage.sqlite import SqliteStore
from surepipe.storage.sqlite_file import connect
from surepipe.store_api import Failed, Level, Unavailable


class StoreCount:
    """What one store was asked. ``keys``: those that scripts were given, by the tag of their node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.commands = 0
        self.commits = 0
        self.keys: dict[str, set[str]] = {}

    def add_statement(self, sql: str) -> None:
        """Count a statement of SQL."""
        with self._lock:
            self.commands += 1
            self.commits += sql.startswith("COMMIT")

    def add_commands(self, tag: str, commands: Sequence[Command]) -> None:
        """Count commands, and note the keys of scripts."""
        with self._lock:
            self.commands += len(commands)
            for command in commands:
                if command[0] == "EVALSHA" and isinstance(count := command[2], int):
                    keys = (key for key in command[3 : 3 + count] if isinstance(key, str))
                    self.keys.setdefault(tag, set()).update(keys)


class _CountedLink(RedisLink):
    """A link that counts what goes over it."""

    count: StoreCount

    def call(self, tag: str, commands: Sequence[Command]) -> list[Reply] | Unavailable | Failed:
        """Count the commands, and send them."""
        self.count.add_commands(tag, commands)
        return super().call(tag, commands)


def counted_sqlite(part: SqliteStorePart, count: StoreCount) -> SqliteStore:
    """The store of a part. Raises what opening it raises."""

    def opened(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        connection = connect(path, busy_timeout_s)
        connection.set_trace_callback(count.add_statement)
        return connection

    return SqliteStore(part.path.reveal(), level=Level[part.durability.upper()], connect=opened)


def counted_redis(part: RedisStorePart, count: StoreCount) -> RedisStore:
    """The store of a part. Raises ConfigurationError for an address that can't be used."""
    assert part.keys is not None, "a bench has keys of its own"
    limits = Limits() if part.answer_within_s is None else Limits(answer_s=part.answer_within_s)
    patient = replace(limits, answer_s=limits.answer_s + limits.block_s)
    return RedisStore(
        Keys(part.keys, part.spread),
        redis_link(part.url.reveal(), limits, count),
        redis_link(part.url.reveal(), patient, count),
        level=None if part.durability is None else Level[part.durability.upper()],
        replicas=part.replicas,
        limits=limits,
    )


def redis_link(url: str, limits: Limits, count: StoreCount) -> RedisLink:
    """A link that counts. Raises ConfigurationError for an address that can't be used."""
    link = _CountedLink(settings_of(url, limits), limits=limits)
    link.count = count
    return link


def remove_keys(url: str, count: StoreCount) -> None:
    """Remove the keys that scripts were given. A server that does not answer any more keeps them."""
    link = RedisLink(settings_of(url, Limits()), limits=Limits())
    try:
        for tag, keys in count.keys.items():
            link.call(tag, [("UNLINK", key) for key in sorted(keys)])
    finally:
        link.close()
