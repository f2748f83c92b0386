from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surepipe.testing.servers import NONE_FOUND, RedisServer, local_servers


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def durable_redis() -> Iterator[RedisServer]:
    """A server that keeps every write before it answers. None at all is a failure, never a skip."""
    found = local_servers()
    if not found:
        pytest.fail(NONE_FOUND)
    with found[0].server(appendonly="yes", appendfsync="always") as server:
        yield server
