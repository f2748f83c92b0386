"""Redis servers for the tests of stores: one of each version that the machine has, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surepipe.testing.servers import (
    NONE_FOUND,
    Binary,
    RedisServer,
    Server,
    Source,
    local_servers,
    redis_servers,
)
from tests.kit.redis_bench import RedisBench


def _name(source: Source | None) -> str:
    return source.name.split(" (")[0] if source else "none"


@pytest.fixture(scope="session", params=redis_servers() or [None], ids=_name)
def redis_source(request: pytest.FixtureRequest) -> Source:
    """Each server that the machine has. None at all is a failure, never a skip."""
    if request.param is None:
        pytest.fail(NONE_FOUND)
    source: Source = request.param
    return source


@pytest.fixture(scope="session")
def redis_server(redis_source: Source) -> Iterator[Server]:
    """A running server, used by many tests: they choose keys of their own."""
    server = redis_source.server()
    try:
        yield server.start()
    finally:
        server.close()


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
