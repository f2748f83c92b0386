"""A route between processes, and between machines, over TCP.

One process listens and the other connects, whichever of them has the sender; several may connect to one. A link
carries any number of pipes and channels. It reconnects by itself, with growing and jittered waits; what was under
way when a connection broke is lost, which is what a route may do and pipes are made for.

    route = TcpRoute.listen("0.0.0.0:7400", security=SharedKey(key))       # one program
    route = TcpRoute.connect("orders.internal:7400", security=SharedKey(key))       # the other
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from random import Random
from typing import cast

from surepipe.actors.links.connection import Connection, LinkLimits
from surepipe.actors.links.network import NETWORK, SocketLoop
from surepipe.actors.links.security import OneMachine, Security, address_of, require_suitable
from surepipe.actors.routes import HELD_MAX, Landing
from surepipe.actors.runtime import Runtime
from surepipe.errors import ConfigurationError
from surepipe.guarantees import hops
from surepipe.pipes.stack.layers import UNBOUNDED
from surepipe.pipes.wire.codec import encode, pipe_of
from surepipe.pipes.wire.frames import Frame

logger = logging.getLogger("surepipe")

OPEN_S = 10.0
BYE_S = 1.0
"""How long the last bytes get to leave."""
WAIT_MIN_S = 0.05
WAIT_MAX_S = 5.0
KNOWN_MAX = 65_536
"""Pipes whose whereabouts are remembered; frames of others go to everybody who is connected."""


_BROKEN_RULES = {
    "oversized": "a record is longer than frame_max_bytes of this side allows: raise it on both sides, and see "
    "that both have the same security",
    "forged": "a record was changed on its way, repeated or left out",
}


class TcpSide:
    """This process's side of a link: one for both directions, shared by all ends that use the route."""

    has_reverse = True

    def __init__(
        self, address: str, security: Security, limits: LinkLimits, *, listening: bool
    ) -> None:
        self._address = address
        self._host, self._port = address_of(address)
        self._security = security
        self._limits = limits
        self._listening = listening
        self._wires = security.wires(listening=listening, host=self._host)
        self._lock = threading.Lock()
        self._everybody: dict[int, Connection] = {}
        self._connections: dict[int, Connection] = {}
        self._known: OrderedDict[int, Connection] = OrderedDict()
        self._counted: Counter[str] = Counter()
        self._landing: Landing | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._gone: asyncio.Event | None = None
        self._warned: set[str] = set()
        self._has_lost = False
        """Whether frames may have been lost since somebody connected last."""
        self._held: list[bytes] = []
        self._changed = threading.Condition()
        self._rng = Random(0)

    # As a route side.

    @property
    def room(self) -> int:
        """Not known: the other process may be anywhere."""
        return UNBOUNDED

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Listen, or begin to connect. Raises ConfigurationError when the address can't be listened on."""
        self._landing = landing
        self._rng = runtime.rng(None)
        loop = self._loop = NETWORK.enter()
        try:
            SocketLoop.call(loop, self._listen if self._listening else self._start_dialing, OPEN_S)
        except BaseException as error:
            self._loop = None
            NETWORK.leave()
            if isinstance(error, OSError):
                message = f"can't listen on {self._address}: {error}"
                raise ConfigurationError(message) from None
            raise

    def send(self, frame: object) -> None:
        """Send to whoever has that pipe; to all while nobody is known to have it. What can't go is lost."""
        data = frame if isinstance(frame, bytes) else encode(cast("Frame", frame))
        if len(data) > self._limits.frame_max_bytes:
            self._too_large(len(data))
            return
        known = self._known.get(pipe_of(data) or 0)
        targets = [known] if known is not None else self._trusted()
        if not targets and not self._hold(data):
            self.count("frames_lost")
        for connection in targets:
            if not connection.post(data):
                self.count("frames_lost")

    def _hold(self, data: bytes) -> bool:
        """A few frames wait for a connection, so that a pipe need not send its first one twice."""
        with self._lock:
            if self._connections or len(self._held) >= HELD_MAX:
                self._has_lost = True
                return False
            self._held.append(data)
            return True

    def _too_large(self, size: int) -> None:
        self.count("frames_too_large")
        self._warn_once(
            "too large",
            f"a frame of {size} bytes exceeds frame_max_bytes={self._limits.frame_max_bytes} of this link and can "
            "never pass: raise it on both sides, or lower message_max_bytes of the pipe",
            level=logging.ERROR,
        )

    def _warn_once(self, about: str, text: str, *, level: int = logging.WARNING) -> None:
        """What goes on is told once, until it is over; the counters tell how often."""
        logger.log(logging.DEBUG if about in self._warned else level, "%s: %s", self, text)
        self._warned.add(about)

    def taken(self) -> None:
        """Nobody asks: the other process does not know our room."""

    def close(self) -> None:
        """Send what is queued, and end. A second call does nothing."""
        loop, self._loop = self._loop, None
        if loop is None or not NETWORK.has(loop):
            return
        self._landing = None
        self._held = []
        try:
            SocketLoop.call(loop, self._end, OPEN_S)
        finally:
            NETWORK.leave()

    # As the owner of connections, on the network thread.

    def met(self, connection: Connection) -> bool:
        """Somebody is there, and may be anybody yet. For one too many, another has to go."""
        if self._landing is None:  # this side is closing
            return False
        self._everybody[id(connection)] = connection
        strangers = [each for each in self._everybody.values() if each.is_stranger]
        if self._listening and len(strangers) > self._limits.strangers_max:
            _most_in_the_way(strangers).give_way()
        return True

    def trusted(self, connection: Connection) -> None:
        """Somebody who knows the key is there."""
        self.count("connections")
        with self._lock:
            self._connections[id(connection)] = connection
            held, self._held = self._held, []
            has_lost, self._has_lost = self._has_lost, False
        self._warned.discard("unreachable")
        for frame in held:
            connection.post(frame)
        self._tell()
        logger.info("%s: connected with %s", self, connection.peer)
        if self._landing is not None and has_lost:
            self._landing.reconnected(self._known)

    def arrived(self, connection: Connection, frame: bytes) -> None:
        """Pass a frame on, and remember where its pipe is."""
        tag = pipe_of(frame)
        if tag is None or self._landing is None:
            self.count("frames_unknown")
            return
        if self._known.get(tag) is not connection:
            self._remember(tag, connection)
        self._landing.put(frame)

    def ended(self, connection: Connection) -> None:
        self._everybody.pop(id(connection), None)
        with self._lock:
            was_trusted = self._connections.pop(id(connection), None) is not None
            self._has_lost |= was_trusted
            for tag in [tag for tag, where in self._known.items() if where is connection]:
                del self._known[tag]
        if was_trusted:
            logger.info("%s: connection with %s ended", self, connection.peer)
        self._tell()
        if self._gone is not None:
            self._gone.set()

    def count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counted[name] += by

    def broke_rules(self, connection: Connection, why: str, detail: str = "") -> None:
        """Count it, and tell it the first time: a wrong key or bound is a mistake that somebody can repair."""
        self.count(why)
        told = self._security.unproven if why == "strangers" else _BROKEN_RULES.get(why)
        if told is not None and self._loop is not None:
            because = f" ({detail})" if detail else ""
            self._warn_once(why, f"connection with {connection.peer} dropped: {told}{because}")

    def _remember(self, tag: int, connection: Connection) -> None:
        with self._lock:
            self._known[tag] = connection
            self._known.move_to_end(tag)
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def _trusted(self) -> list[Connection]:
        with self._lock:
            return list(self._connections.values())

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # Listening and connecting.

    def _new_connection(self) -> Connection:
        greeting = self._security.greeting(listening=self._listening)
        return Connection(self, self._wires(), greeting, self._limits)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._new_connection, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        NETWORK.descriptors.update(each.fileno() for each in self._server.sockets)

    async def _start_dialing(self) -> None:
        self._dialing = asyncio.get_running_loop().create_task(self._dial_for_ever())

    async def _dial_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        wait = WAIT_MIN_S / 2
        while True:
            self._gone = asyncio.Event()
            counted, began = self._counted["connections"], loop.time()
            try:
                await self._dial()
                await self._gone.wait()
            except OSError as error:
                self.count("dials_failed")
                reason = str(error) or type(error).__name__
                self._warn_once("unreachable", f"no connection yet, and tries go on: {reason}")
            was_there = self._counted["connections"] > counted
            wait = next_wait(wait, loop.time() - began if was_there else None)
            await asyncio.sleep(wait * (0.5 + self._rng.random()))

    async def _dial(self) -> None:
        async with asyncio.timeout(self._limits.greeting_s):  # wait_for may swallow the word to end
            await asyncio.get_running_loop().create_connection(
                self._new_connection, self._host, self._port
            )

    async def _end(self) -> None:
        if self._dialing is not None:
            self._dialing.cancel()
            await asyncio.gather(self._dialing, return_exceptions=True)
            self._dialing = None
        if self._server is not None:
            NETWORK.descriptors.difference_update(each.fileno() for each in self._server.sockets)
            self._server.close()
            self._server = None
        self._gone = asyncio.Event()
        for connection in list(self._everybody.values()):
            connection.say_bye()
        try:
            await asyncio.wait_for(self._all_gone(), BYE_S)
        except TimeoutError:
            for connection in list(self._everybody.values()):
                connection.abort()
            await asyncio.sleep(0)

    async def _all_gone(self) -> None:
        assert self._gone is not None
        while self._everybody:
            self._gone.clear()
            await self._gone.wait()

    # Questions.

    @property
    def port(self) -> int:
        """The port that is listened on, or connected to."""
        return self._port

    def counters(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counted)

    def wait_connected(self, timeout: float, *, there: bool = True) -> bool:
        """Wait until somebody who knows the key is there, or nobody is any more."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._connections) == there, timeout)

    def __str__(self) -> str:
        return f"tcp {'listening on' if self._listening else 'to'} {self._host}:{self._port}"


def next_wait(before: float, lived_s: float | None) -> float:
    """How long to wait before the next dial, after a wait of ``before`` and a connection that lived so long.

    A connection that ends as fast as it came is no better than none: whoever takes one and drops it, for ever,
    must not be dialled eighteen times a second.
    """
    if lived_s is not None and lived_s >= before:
        return WAIT_MIN_S
    return min(2 * before, WAIT_MAX_S)


def _most_in_the_way(strangers: Sequence[Connection]) -> Connection:
    """The oldest of the address that has most of them.

    So a crowd of one address can't keep the peer of another out; and within a crowd the peer that has the key
    greets within a round trip, while those who have it not grow old.
    """
    crowds = Counter(each.host for each in strangers)
    largest = max(crowds.values())
    return next(each for each in strangers if crowds[each.host] == largest)


class TcpRoute:
    """A link as a route: give it to the ends that this process has.

    ``security``: ``SharedKey`` or ``MutualTls``; ``OneMachine()``, the default, on loopback addresses only. The
    link is open while an end uses it. Raises ConfigurationError for an address or a security that does not do.
    """

    def __init__(
        self, address: str, security: Security, limits: LinkLimits | None, *, listening: bool
    ) -> None:
        require_suitable(address, security)
        if not listening and address_of(address)[1] == 0:
            raise ConfigurationError(
                f"nobody listens on port 0 ({address}): it stands for any port that is free, and which one that "
                "was, the listening route's `port` tells once an end of it is open"
            )
        self.declared = hops.TCP
        self._side = TcpSide(address, security, limits or LinkLimits(), listening=listening)

    @classmethod
    def listen(
        cls, address: str, *, security: Security | None = None, limits: LinkLimits | None = None
    ) -> TcpRoute:
        """Wait for connections at ``host:port``; port 0 takes any that is free."""
        return cls(address, security or OneMachine(), limits, listening=True)

    @classmethod
    def connect(
        cls, address: str, *, security: Security | None = None, limits: LinkLimits | None = None
    ) -> TcpRoute:
        """Connect to ``host:port``, and again whenever the connection breaks."""
        return cls(address, security or OneMachine(), limits, listening=False)

    @property
    def sender(self) -> TcpSide:
        """The side of a sending end in this process."""
        return self._side

    @property
    def receiver(self) -> TcpSide:
        """The side of a receiving end in this process."""
        return self._side

    @property
    def port(self) -> int:
        """The port that is listened on, once an end is open."""
        return self._side.port

    def counters(self) -> dict[str, int]:
        """Connections, frames lost, strangers turned away, and the like, by name."""
        return self._side.counters()

    def wait_connected(self, timeout: float) -> bool:
        """Wait until another process is connected; False when none is within ``timeout`` seconds."""
        return self._side.wait_connected(timeout)

    def wait_disconnected(self, timeout: float) -> bool:
        """Wait until nobody is connected; False when somebody still is after ``timeout`` seconds."""
        return self._side.wait_connected(timeout, there=False)

    def __str__(self) -> str:
        return str(self._side)
