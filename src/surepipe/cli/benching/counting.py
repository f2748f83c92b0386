"""Stores that count what they are asked: commands of a Redis, statements and commits of an SQLite file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from surepipe.actors.tracing import Columns
from surepipe.core.store_requests import Failed, Level, Unavailable
from surepipe.observe.latency import Latencies
from surepipe.pipelines.models.stores import RedisStorePart, SqliteStorePart
from surepipe.storage.redis.keys import Keys
from surepipe.storage.redis.link import Command, RedisLimits, RedisLink, Reply, settings_of
from surepipe.storage.redis.store import RedisStore
from surepipe.storage.sqlite.file import connect
from surepipe.storage.sqlite.store import SqliteStore


class StoreCount:
    """What one store was asked. ``keys``: those that scripts were given, by the tag of their node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.commands = 0
        self.commits = 0
        self.keys: dict[str, set[str]] = {}

    def add_statement(self, sql: str) -> None:
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
    limits = (
        RedisLimits()
        if part.answer_within_s is None
        else RedisLimits(answer_s=part.answer_within_s)
    )
    patient = replace(limits, answer_s=limits.answer_s + limits.block_s)
    return RedisStore(
        Keys(part.keys, part.spread),
        redis_link(part.url.reveal(), limits, count),
        redis_link(part.url.reveal(), patient, count),
        level=None if part.durability is None else Level[part.durability.upper()],
        replicas=part.replicas,
        limits=limits,
    )


def redis_link(url: str, limits: RedisLimits, count: StoreCount) -> RedisLink:
    """A link that counts. Raises ConfigurationError for an address that can't be used."""
    link = _CountedLink(settings_of(url, limits), limits=limits)
    link.count = count
    return link


def remove_keys(url: str, count: StoreCount) -> None:
    """Remove the keys that scripts were given. A server that does not answer any more keeps them."""
    link = RedisLink(settings_of(url, RedisLimits()), limits=RedisLimits())
    try:
        for tag, keys in count.keys.items():
            link.call(tag, [("UNLINK", key) for key in sorted(keys)])
    finally:
        link.close()


# What the trace of a run tells: how many messages are through each pipe, how quickly, and how long each took.


FINE_BOUNDS_US = tuple(dict.fromkeys(round(10 * 1.05**step) for step in range(330)))
"""From 10 us to more than a minute, each bound a twentieth above the one before."""
_DONE = frozenset({"settled", "dead"})


@dataclass(slots=True)
class PipeTimes:
    """Messages of one pipe, and the times of the first that was accepted and the last that was done.

    Done is what was settled, and what became a dead letter. What a pipe gets in the transaction of the one before
    it is stored and not accepted: such a pipe begins with the first message of the run.
    """

    accepted: int = 0
    done: int = 0
    dead: int = 0
    first_us: int = 0
    last_us: int = 0

    @property
    def per_s(self) -> float:
        """Messages per second; 0 where nothing was measured."""
        took_us = self.last_us - self.first_us
        return self.done * 1_000_000 / took_us if took_us > 0 else 0.0

    @property
    def under_way(self) -> int:
        return max(0, self.accepted - self.done)


class Gauge:
    """A trace's sink. ``latencies`` has how long messages took, under the full names of pipes."""

    with_digests = False

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pipes: dict[str, PipeTimes] = {}
        self._began_us: int | None = None
        self.latencies = Latencies(bounds_us=FINE_BOUNDS_US)

    def write(self, columns: Columns) -> None:
        """Take a row of the trace."""
        self.latencies.write(columns)
        kind = str(columns["kind"])
        if kind == "accepted" or kind in _DONE:
            pipe = str(columns["pipe"]).partition("@")[0]
            with self._changed:
                self._count(pipe, kind, int(columns["count"]), int(columns["time_us"]))
                self._changed.notify_all()

    def _count(self, pipe: str, kind: str, messages: int, now_us: int) -> None:
        if self._began_us is None:
            self._began_us = now_us
        if pipe not in self._pipes:
            first_us = now_us if kind == "accepted" else self._began_us
            self._pipes[pipe] = PipeTimes(first_us=first_us, last_us=first_us)
        passed = self._pipes[pipe]
        if kind == "accepted":
            passed.accepted += messages
            return
        passed.done += messages
        passed.dead += messages if kind == "dead" else 0
        passed.last_us = now_us

    def of(self, pipe: str) -> PipeTimes:
        """A pipe by its full name, as it stands now."""
        with self._changed:
            return self._pipes.get(pipe) or PipeTimes()

    @property
    def done(self) -> int:
        """Messages that came through a pipe, of all pipes."""
        with self._changed:
            return self._done()

    def wait_until_idle(self, done_before: int, timeout_s: float) -> bool:
        """Wait until a message more is through, and none under way; False when that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle(done_before), timeout_s)

    def _is_idle(self, done_before: int) -> bool:
        is_empty = not any(passed.under_way for passed in self._pipes.values())
        return is_empty and self._done() > done_before

    def _done(self) -> int:
        return sum(passed.done for passed in self._pipes.values())
