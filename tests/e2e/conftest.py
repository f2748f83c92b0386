"""A Redis server for whole pipes: started once for those that share it, or one of the test's own that it may
kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surepipe.testing.servers import NONE_FOUND, RedisServer, Server, local_servers, redis_servers


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A running server; tests choose pipelines of their own. None at all is a failure, never a skip."""
    found = redis_servers()
    if not found:
        pytest.fail(NONE_FOUND)
    server: Server = found[0].server()
    try:
        yield server.start().url
    finally:
        server.close()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server of the test's own, which keeps every write before it answers."""
    found = local_servers()
    if not found:
        pytest.fail(NONE_FOUND)
    with found[0].server(appendonly="yes", appendfsync="always") as server:
        yield server
