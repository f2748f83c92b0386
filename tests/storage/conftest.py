"""Redis servers for the tests of stores: one of each version that the machine has, started once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surepipe.testing.servers import (
    NONE_FOUND,
    Binary,
    RedisServer,
    Server,
    ServerSource,
    local_servers,
    redis_servers,
)
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import SqliteBench


def _name(source: ServerSource | None) -> str:
    return source.name.split(" (")[0] if source else "none"


@pytest.fixture(scope="session", params=redis_servers() or [None], ids=_name)
def redis_source(request: pytest.FixtureRequest) -> ServerSource:
    """Each server that the machine has. None at all is a failure, never a skip."""
    if request.param is None:
        pytest.fail(NONE_FOUND)
    source: ServerSource = request.param
    return source


@pytest.fixture(scope="session")
def redis_server(redis_source: ServerSource) -> Iterator[Server]:
    """A running server, used by many tests: they choose keys of their own."""
    server = redis_source.server()
    try:
        yield server.start()
    finally:
        server.close()


class Running:
    """The shared servers, each started when the first test wants it."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}

    def url(self, name: str) -> str:
        """Where the server of this name is."""
        if name not in SOURCES:
            pytest.fail(NONE_FOUND)
        if name not in self._servers:
            self._servers[name] = SOURCES[name].server()
            self._servers[name].start()
        return self._servers[name].url

    def close(self) -> None:
        """End them."""
        for server in self._servers.values():
            server.close()


SOURCES = {_name(source): source for source in redis_servers()}
KINDS = ["memory", "sqlite", *(SOURCES or ["redis"])]
"""Every kind of store; a Redis server of each version."""


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    """The servers of ``any_bench``."""
    servers = Running()
    yield servers
    servers.close()


@pytest.fixture(params=KINDS)
def any_bench(
    request: pytest.FixtureRequest, tmp_path: Path, running: Running
) -> Iterator[MemoryBench | SqliteBench | RedisBench]:
    """Each kind of store in turn; all of them can be set back."""
    if request.param == "memory":
        yield MemoryBench()
        return
    if request.param == "sqlite":
        sqlite = SqliteBench(tmp_path / "store.db")
        yield sqlite
        sqlite.store.close()
        return
    redis = RedisBench(running.url(request.param))
    yield redis
    redis.remove_keys()
    redis.close()


@pytest.fixture
def redis_bench(redis_server: Server) -> Iterator[RedisBench]:
    """A store with keys of its own."""
    bench = RedisBench(redis_server.url)
    yield bench
    bench.remove_keys()
    bench.close()


@pytest.fixture(scope="session", params=local_servers() or [None], ids=_name)
def local_source(request: pytest.FixtureRequest) -> Binary:
    """Each server that a test may configure and kill."""
    if request.param is None:
        pytest.fail(NONE_FOUND)
    source: Binary = request.param
    return source


@pytest.fixture
def own_redis(local_source: Binary) -> Iterator[RedisServer]:
    """A server of the test's own, with AOF always; it is started."""
    with local_source.server(appendonly="yes", appendfsync="always") as server:
        yield server


@pytest.fixture
def own_bench(own_redis: RedisServer) -> Iterator[RedisBench]:
    """A store on a server of the test's own."""
    bench = RedisBench(own_redis.url)
    yield bench
    bench.close()
