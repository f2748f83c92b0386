from __future__ import annotations

from collections.abc import Iterator

import pytest

from surepipe.testing.servers import NONE_FOUND, RedisServer, local_servers
from tests.cli.kit import Command


@pytest.fixture
def surepipe(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, in this process."""
    return Command(capsys)


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    """A server that keeps every write before it answers. None at all is a failure, never a skip."""
    found = local_servers()
    if not found:
        pytest.fail(NONE_FOUND)
    with found[0].server(appendonly="yes", appendfsync="always") as server:
        yield server
