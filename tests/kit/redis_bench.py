"""Redis stores for tests: each with keys of its own, a wall clock that stands, and pauses that take no time."""

from __future__ import annotations

import random
import secrets
from typing import Any, cast

import redis

from surepipe.core.store_requests import partition_of
from surepipe.storage.redis.keys import Keys
from surepipe.storage.redis.link import RedisLimits
from surepipe.storage.redis.store import RedisStore

SHORT = RedisLimits(connect_s=10.0, answer_s=10.0, block_s=10.0)


class Redis:
    """A client beside the store, to look at the server and to do it harm."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, protocol=2)  # pyright: ignore[reportUnknownMemberType]

    def __call__(self, *command: object) -> Any:
        """One command, as typed into redis-cli."""
        return cast("Any", self._client.execute_command(*command))  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]

    def info(self, section: str) -> dict[str, str]:
        """One section of INFO."""
        reply = self._client.execute_command("INFO", section)  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return {
            str(name): str(value) for name, value in cast("dict[object, object]", reply).items()
        }

    def calls(self) -> dict[str, int]:
        """How often each command was called, by clients and by scripts, since CONFIG RESETSTAT."""
        reply = self._client.execute_command("INFO", "commandstats")  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        stats = cast("dict[str, dict[str, int]]", reply)
        return {name.removeprefix("cmdstat_"): fields["calls"] for name, fields in stats.items()}

    def entries(self, key: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """All entries of a stream, with their fields."""
        return cast("list[tuple[bytes, dict[bytes, bytes]]]", self("XRANGE", key, "-", "+"))

    def clients(self) -> int:
        """Connections to the server, but this one."""
        return len(cast("bytes", self("CLIENT", "LIST")).splitlines()) - 1

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class Pauses:
    """Records how long it was asked to wait, and does not."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class RewindableRedis(RedisStore):
    """A store that a test may set back and delete from, through a client beside it."""

    admin: Redis

    def _all_keys(self) -> list[bytes]:
        return cast("list[bytes]", self.admin("KEYS", f"sp:{{{self.keys.pipeline}*"))

    def snapshot(self) -> dict[bytes, bytes]:
        """Every key of the pipeline."""
        return {key: cast("bytes", self.admin("DUMP", key)) for key in sorted(self._all_keys())}

    def roll_back(self, state: dict[bytes, bytes]) -> None:
        """As a failover does to a replica that lagged."""
        for key in self._all_keys():
            self.admin("DEL", key)
        for key, value in state.items():
            self.admin("RESTORE", key, 0, value)

    def delete(self, stream: str) -> None:
        """Forget a stream with its partitions, but not the positions of its readers."""
        for name in (stream, *(partition_of(stream, n) for n in range(4))):
            self.admin("DEL", *self.keys.of_stream(name))


class RedisBench:
    """A store as the contract suite needs it, on a server that others may use too."""

    def __init__(self, url: str, *, pipeline: str | None = None, **options: Any) -> None:
        self.url = url
        self.pipeline = pipeline or f"test-{secrets.token_hex(6)}"
        self.now = 1_000_000
        self.pauses = Pauses()
        self.redis = Redis(url)
        self._stores: list[RewindableRedis] = []
        self.store = self.another(**options)

    def another(self, **options: Any) -> RewindableRedis:
        """One more store on the same keys, as another process would have it."""
        options = {
            "pipeline": self.pipeline,
            "clock": lambda: self.now,
            "pause": self.pauses,
            "rng": random.Random(1),
            "limits": SHORT,
            **options,
        }
        store = RewindableRedis.from_url(options.pop("url", self.url), **options)
        assert isinstance(store, RewindableRedis)
        store.admin = self.redis
        self._stores.append(store)
        return store

    @property
    def keys(self) -> Keys:
        return self.store.keys

    @property
    def streams(self) -> RewindableRedis:
        return self.store

    @property
    def positions(self) -> RewindableRedis:
        return self.store

    def advance(self, micros: int) -> None:
        self.now += micros

    def remove(self, stream: str, *indexes: int) -> None:
        """By XDEL; Redis keeps an empty stream."""
        self.redis("XDEL", self.keys.pages(stream), *(f"{index}-0" for index in indexes))

    def delete(self, stream: str) -> None:
        self.store.delete(stream)

    def remove_keys(self) -> None:
        """Leave nothing on a server that others use, too."""
        for key in self.redis("KEYS", f"sp:{{{self.pipeline}*"):
            self.redis("DEL", key)

    def close(self) -> None:
        """Close all connections."""
        for store in self._stores:
            store.close()
        self.redis.close()
