"""The way to a Redis server: few connections, kept, renewed after trouble, never trusted again after an error.

``RedisLink.call`` sends commands in one go and gives back one reply each, or says why there are none. It never
repeats a command whose outcome is unknown: that is the caller's business, who knows that it is safe.

A connection that ever failed is closed. The next one is made after a pause that doubles with each failure in a
row, with jitter, so that the clients of a server that comes back don't come all at once.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Final, Protocol, TypeAlias, cast

from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, UnixDomainSocketConnection, parse_url  # pyright: ignore[reportUnknownVariableType]
from redis.retry import Retry

from surepipe.core.store_requests import Failed, Unavailable
from surepipe.core.timing import BackOff
from surepipe.errors import ConfigurationError

# What an error of a Redis server, or of the way to it, means: ask again, or change something first.
#
# A server answers an error with a code word. Inside a script the word stands somewhere in the text, in another
# place in each version, so the words are looked for.


_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.AuthenticationError, "NOAUTH"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
)

# What will do once the server has changed: the caller asks again, and the text says what it waits for.
_PASSING: Final[dict[str, str]] = {
    "LOADING": "the server is still loading its data from disk",
    "READONLY": "this server is a replica now and takes no writes; the next connection looks for the master",
    "OOM": "the server has no memory left (maxmemory): nothing was stored; raise maxmemory, trim streams, or let"
    " readers catch up",
    "MISCONF": "the server can't write to its disk and refuses writes: free or repair the disk",
    "NOREPLICAS": "the server has fewer replicas than min-replicas-to-write and refuses writes",
    "MASTERDOWN": "this replica has lost its master and refuses to answer",
    "CLUSTERDOWN": "the cluster does not serve this slot now: look at CLUSTER INFO",
    "MOVED": "the slot is on another node now; the next call goes there",
    "ASK": "the slot is being moved to another node",
    "TRYAGAIN": "the slot is being moved to another node",
    "BUSY": "the server is busy with a script that somebody runs for too long",
    "UNBLOCKED": "the server ended the wait, as it does when its role changes",
    "MAXCLIENTS": "the server has as many clients as maxclients allows: raise it, or close other clients",
}

# Of these, what a cluster or a change of roles brings about by itself: nobody has to do anything.
_ROUTINE: Final = frozenset({"MOVED", "ASK", "TRYAGAIN", "UNBLOCKED"})

# What stays as it is until somebody acts.
_LASTING: Final[dict[str, str]] = {
    "NOAUTH": "the server refused the user name or the password: give both in the URL,"
    " redis://user:password@host (no user name: the default user)",
    "WRONGPASS": "the server refused the user name or the password: give both in the URL,"
    " redis://user:password@host (no user name: the default user)",
    "NOPERM": "the user lacks a right; docs/redis.md lists the rights that it needs",
    "CROSSSLOT": "the keys of one call lie in different slots of the cluster:"
    " use spread='pipeline', or transactions on one stream only",
    "WRONGTYPE": "a key holds something else than surepipe put there",
}

_WORDS = re.compile(rf"(?:^|[^A-Z])({'|'.join([*_PASSING, *_LASTING, 'NOSCRIPT'])})(?![A-Z])")

# After these replies the connection leads to the wrong place, or to a server that is not ready.
DISCARDING: Final = frozenset(
    {
        "LOADING",
        "READONLY",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "NOAUTH",
        "WRONGPASS",
        "UNBLOCKED",
        "MAXCLIENTS",
    }
)


@dataclass(frozen=True, slots=True)
class RefusedForNow(Unavailable):
    """The server answered, and takes nothing for now. Somebody may have to act, so it is for the log, too."""


def code_of(error: Exception) -> str:
    """The code word of a server's error; "LOST" for a connection that broke or answered too late."""
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    if "max number of clients" in str(error):
        return "MAXCLIENTS"
    if "The user executing the script" in str(error):
        return "NOPERM"  # for a command that the script calls; the word itself is not there
    if isinstance(error, exceptions.ResponseError):
        found = _WORDS.search(str(error))
        return found[1] if found else "ERR"
    return "LOST"


def meaning_of(error: Exception, where: str) -> Unavailable | Failed:
    """The outcome of a call that met this error. ``where`` names the server."""
    code = code_of(error)
    if code in _PASSING:
        kind = Unavailable if code in _ROUTINE else RefusedForNow
        return kind(f"Redis at {where}: {_PASSING[code]} ({code})")
    if code in _LASTING:
        return Failed(f"Redis at {where}: {_LASTING[code]} ({error})")
    if code == "ERR":
        return Failed(f"Redis at {where} refused the command: {error}")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failed(
            f"Redis at {where} showed a certificate that is not trusted; give ssl_ca_certs=... in the URL"
            f" ({error})"
        )
    return Unavailable(
        f"Redis at {where} does not answer, so the call was done or it was not ({error})"
    )


def moved_to(error: Exception) -> tuple[str, int] | None:
    """The address that a MOVED names; the host is empty for: the same host."""
    found = re.search(r"(\d+) (\S*):(\d+)$", str(error))
    return (found[2], int(found[3])) if found and code_of(error) == "MOVED" else None


Command: TypeAlias = tuple[bytes | str | int, ...]
Reply: TypeAlias = "bytes | int | list[Reply] | Exception | None"
Address: TypeAlias = tuple[str, int]
Locator: TypeAlias = Callable[[], Address]

_TROUBLE = (exceptions.RedisError, OSError)


class _Connection(Protocol):
    """What is used of redis-py's connections, which have no usable types of their own."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def pack_commands(self, commands: Sequence[Command]) -> Sequence[bytes]: ...
    def send_packed_command(self, command: Sequence[bytes], check_health: bool) -> None: ...
    def read_response(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class RedisLimits:
    """How long things may take, in seconds. All are finite."""

    connect_s: float = 5.0
    answer_s: float = 5.0
    block_s: float = 10.0
    """The longest that one ``wait`` blocks. An idle reader asks two or three times per wait."""
    pause_min_s: float = 0.05
    pause_max_s: float = 2.0
    idle_max: int = 16
    """So many idle connections are kept."""


@dataclass(frozen=True, slots=True)
class ServerRun:
    """One run of one server process in one role: data can go back only when this changes."""

    run_id: bytes
    replication_id: bytes


@dataclass(slots=True, eq=False)
class _Line:
    """A connection in use or idle, and the node that it leads to."""

    connection: _Connection
    node: _Node
    severed: bool = False
    """Another thread has closed it under the one that uses it, which may then fail in any way."""


@dataclass(slots=True, eq=False)
class _Node:
    """One server address: its idle connections, and how it has been lately."""

    address: Address | None
    idle: list[_Line] = field(default_factory=list[_Line])
    failures: int = 0
    run: ServerRun | None = None


class RedisLink:
    """Connections to one server, or to the nodes of one cluster. Threads may share it."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        limits: RedisLimits,
        locate: Locator | None = None,
        pause: Callable[[float], object] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """``settings`` are those of redis-py's connections (``settings_of``). ``locate`` finds the master before
        each new connection. ``pause`` waits so many seconds (by default until ``close`` at most)."""
        self._settings = dict(settings)
        self._class = cast("Callable[..., _Connection]", self._settings.pop("connection_class"))
        self._limits = limits
        self._locate = locate
        self._closed = threading.Event()
        self._pause = pause or self._closed.wait
        self._rng = rng or random.SystemRandom()
        self._lock = threading.Lock()
        self._nodes: dict[Address | None, _Node] = {}
        self._routes: dict[str, Address] = {}
        self._in_use: set[_Line] = set()
        self.generation = 0
        """Goes up each time a node turns out to be another process, or the same in another role, than before."""

    # Calling.

    def call(self, tag: str, commands: Sequence[Command]) -> list[Reply] | Unavailable | Failed:
        """Send the commands to the node that has the tag's slot; one reply each, an error of the server too."""
        try:
            line = self._take(tag)
        except _TROUBLE as error:
            return meaning_of(error, self.where(tag))
        if line is None:
            return Failed("the store is closed")
        try:
            replies = _exchange(line.connection, commands)
        except _TROUBLE as error:
            self._discard(line, tag)
            return meaning_of(error, self.where(tag))
        except BaseException as error:
            # Interrupted between sending and reading: the connection holds an answer that nobody waits for.
            self._drop(line)
            if line.severed and isinstance(error, Exception):
                return Unavailable(
                    f"the call to Redis at {self.where(tag)} was cut off by this process"
                )
            raise
        self._give_back(line, tag, replies)
        return replies

    def where(self, tag: str = "") -> str:
        """The server's address, for people. Never the password."""
        if path := self._settings.get("path"):
            return str(path)
        host, port = self._routes.get(tag) or self._fixed_address()
        return f"{host}:{port}"

    def _address_of(self, node: _Node) -> Address:
        return node.address or self._fixed_address()

    def _fixed_address(self) -> Address:
        return (
            str(self._settings.get("host", "localhost")),
            int(self._settings.get("port", 6379)),
        )

    # Connections.

    def _take(self, tag: str) -> _Line | None:
        """An idle connection or a new one; None when the link is closed."""
        with self._lock:
            if self._closed.is_set():
                return None
            node = self._node_of(tag)
            line = node.idle.pop() if node.idle else None
            if line:
                self._in_use.add(line)
                return line
        return self._connect(node)

    def _node_of(self, tag: str) -> _Node:
        address = self._routes.get(tag)
        return self._nodes.setdefault(address, _Node(address))

    def _connect(self, node: _Node) -> _Line | None:
        if node.failures:
            self._pause(self._pause_after(node.failures))
        try:
            line = _Line(self._new_connection(node), node)
            with self._lock:
                if self._closed.is_set():
                    return None
                self._in_use.add(line)
            self._greet(line)
        except BaseException:
            node.failures += 1
            raise
        return line

    def _greet(self, line: _Line) -> None:
        try:
            line.connection.connect()
            self._note_run(line.node, _server_run(line.connection))
        except BaseException:
            self._drop(line)
            raise

    def _pause_after(self, failures: int) -> float:
        waits = BackOff.of_seconds(self._limits.pause_min_s, self._limits.pause_max_s)
        return waits.calm(failures) / 1_000_000 * self._rng.uniform(0.5, 1.0)

    def _new_connection(self, node: _Node) -> _Connection:
        settings = dict(self._settings)
        if node.address is not None:
            settings["host"], settings["port"] = node.address
        elif self._locate is not None:
            settings["host"], settings["port"] = self._locate()
            self._settings.update(host=settings["host"], port=settings["port"])
        return self._class(**settings)

    def _note_run(self, node: _Node, run: ServerRun | None) -> None:
        with self._lock:
            # A server that does not say who it is may be another one each time.
            if run is None or (node.run is not None and run != node.run):
                self.generation += 1
                stale, node.idle = node.idle, []
            else:
                stale = []
            node.run = run
        for line in stale:
            line.connection.disconnect()

    def _give_back(self, line: _Line, tag: str, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Exception) and code_of(reply) in DISCARDING:
                self._discard(line, tag)
                return
            if isinstance(reply, Exception) and (address := moved_to(reply)):
                self._routes[tag] = (address[0] or self._address_of(line.node)[0], address[1])
        line.node.failures = 0
        with self._lock:
            self._in_use.discard(line)
            keep = len(line.node.idle) < self._limits.idle_max and not self._closed.is_set()
            if keep:
                line.node.idle.append(line)
        if not keep:
            line.connection.disconnect()

    def _discard(self, line: _Line, tag: str) -> None:
        """Close a connection after an error, and with it the idle ones to the same node: they share its fate."""
        with self._lock:
            stale, line.node.idle = line.node.idle, []
            line.node.failures += 1
            self._routes.pop(tag, None)
        self._drop(line)
        for other in stale:
            other.connection.disconnect()

    def _drop(self, line: _Line) -> None:
        with self._lock:
            self._in_use.discard(line)
        line.connection.disconnect()

    def interrupt(self) -> None:
        """Calls under way answer Unavailable; later ones connect anew."""
        with self._lock:
            lines = [*self._in_use]
        _sever(lines)

    def close(self) -> None:
        """Close all connections; calls under way answer Unavailable, later ones Failed."""
        with self._lock:
            self._closed.set()
            lines = [*self._in_use, *(line for node in self._nodes.values() for line in node.idle)]
            for node in self._nodes.values():
                node.idle = []
        _sever(lines)


def _sever(lines: Sequence[_Line]) -> None:
    for line in lines:
        line.severed = True
        line.connection.disconnect()


def settings_of(url: str, limits: RedisLimits) -> dict[str, Any]:
    """Settings of connections for a URL: ``redis://``, ``rediss://`` (TLS) or ``unix://``."""
    if not isinstance(cast("object", url), str):
        raise ConfigurationError(
            f"the URL of the Redis server is {url!r}: write it as text, such as 'redis://localhost:6379/0'"
        )
    try:
        settings = cast("Callable[[str], dict[str, Any]]", parse_url)(url)
    except ValueError as error:
        raise ConfigurationError(f"the URL of the Redis server is not usable: {error}") from error
    settings.setdefault("connection_class", Connection)
    if settings["connection_class"] is not UnixDomainSocketConnection:
        settings.setdefault("socket_keepalive", True)
        settings["socket_connect_timeout"] = limits.connect_s
    # No repeats behind our back: an unknown outcome must come to the caller, who then looks for a rollback.
    settings.update(
        socket_timeout=limits.answer_s,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        decode_responses=False,
        **_silence(),
    )
    return settings


def _silence() -> dict[str, None]:
    """How this version of redis-py is told not to introduce itself on each new connection: that costs two commands
    and a look at the disk."""
    known = signature(AbstractConnection.__init__).parameters
    if "driver_info" in known:
        return {"driver_info": None}
    return {name: None for name in ("lib_name", "lib_version") if name in known}


def _exchange(connection: _Connection, commands: Sequence[Command]) -> list[Reply]:
    connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    return [_read_reply(connection) for _ in commands]


def _read_reply(connection: _Connection) -> Reply:
    """A reply; an error of the server is one too."""
    try:
        return cast("Reply", connection.read_response())
    except (exceptions.ResponseError, exceptions.BusyLoadingError) as error:
        return error


def _server_run(connection: _Connection) -> ServerRun | None:
    """Who answers there. A replica is refused: what it shows may be old. None: it does not say."""
    replies = _exchange(connection, [("INFO", "server"), ("INFO", "replication")])
    fields: dict[bytes, bytes] = {}
    for reply in replies:
        if not isinstance(reply, bytes):
            return None
        for line in reply.splitlines():
            name, _, value = line.partition(b":")
            fields[name] = value
    if fields.get(b"role") == b"slave":
        raise exceptions.ReadOnlyError("the server is a replica")
    return ServerRun(fields.get(b"run_id", b""), fields.get(b"master_replid", b""))
