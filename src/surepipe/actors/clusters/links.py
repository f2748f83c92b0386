"""What carries frames between the nodes and clients of a replicated queue: in one process, and over TCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from zlib import crc32

from surepipe.actors.links.security import Security
from surepipe.actors.links.tcp import TcpRoute, TcpSide
from surepipe.actors.routes import Landing
from surepipe.actors.runtime import Runtime
from surepipe.core.effects import Addressed, Effect, Transmit
from surepipe.pipes.wire.codec import decoded
from surepipe.pipes.wire.frames import Numbered
from surepipe.queues.rmq.encoding import Malformed, decode, encode, taken

GATHERED_BYTES_MAX = 256 << 10
"""Frames that go together have no more bytes, unless it is one."""


def gathered(effects: Sequence[Effect]) -> list[Effect]:
    """The effects of a step; what goes to one party in it goes as one run, in its order, over a ``TcpMesh``.

    A frame on its way costs more than the bytes in it, and a step has many for one party.
    """
    found: list[Effect] = []
    runs: dict[str, tuple[list[bytes], int]] = {}
    for effect in effects:
        match effect:
            case Transmit(Addressed(route, bytes() as frame)):
                run, size = runs.get(route, (list[bytes](), 0))
                if not run or size + len(frame) > GATHERED_BYTES_MAX:
                    run, size = list[bytes](), 0
                    found.append(Transmit(Addressed(route, run)))
                run.append(frame)
                runs[route] = run, size + len(frame)
            case _:
                found.append(effect)
    return found


def _frames(sent: object) -> tuple[str, Sequence[bytes]]:
    """Who a frame, or a run of frames, is for, and what it says."""
    match sent:
        case Addressed(route, bytes() as frame):
            return route, (frame,)
        case Addressed(route, frame) if isinstance(frame, list):
            return route, cast("list[bytes]", frame)
        case _:
            return "", ()


class Hub:
    """Carries frames between the parties of one process, by their names."""

    def __init__(self) -> None:
        self.landings: dict[str, Landing] = {}

    def side(self, name: str) -> HubSide:
        return HubSide(self, name)

    def carry(self, sender: str, frame: Addressed) -> None:
        """Give the frame to who it is for; lost when nobody of that name is there."""
        landing = self.landings.get(frame.route)
        if landing is not None:
            landing.put(Addressed(sender, frame.frame))


class HubSide:
    """One party's side of a hub: frames name the party that they go to."""

    has_reverse = True

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub, self._name = hub, name

    @property
    def room(self) -> int:
        return 1 << 30

    def open(self, landing: Landing, runtime: Runtime) -> None:
        del runtime
        self._hub.landings[self._name] = landing

    def send(self, frame: object) -> None:
        """Give it to the hub."""
        if isinstance(frame, Addressed):
            self._hub.carry(self._name, frame)

    def taken(self) -> None:
        pass

    def close(self) -> None:
        self._hub.landings.pop(self._name, None)


class _Inlet:
    """An inbox as a link sees it: what comes says who it is from, and who it is for."""

    def __init__(self, landing: Landing, name: str) -> None:
        self._landing, self._name = landing, name
        self.wake, self.reconnected = landing.wake, landing.reconnected

    @property
    def room(self) -> int:
        return self._landing.room

    def put(self, frame: object, /) -> None:
        match decoded(frame):
            case Numbered(payloads=payloads):
                for payload in payloads:
                    self._put(payload)
            case _:
                pass

    def _put(self, payload: bytes) -> None:
        try:
            sender, target, data = taken(decode(payload), str, str, bytes)
        except Malformed:
            return
        if target == self._name:
            self._landing.put(Addressed(sender, data))


class TcpMesh:
    """One party's side of links over TCP: it dials each node, and whoever can't be dialled has dialled it.

    Names of senders are believed: entries, receipts and answers are signed, so a wrong name misleads nobody.
    """

    has_reverse = True

    def __init__(
        self,
        name: str,
        peers: Mapping[str, str],
        *,
        listen: str | None = None,
        security: Security | None = None,
    ) -> None:
        """``peers``: addresses of the nodes, by name. ``listen``: where this one is, if it is a node."""
        self._name, self._security = name, security
        self._opened: tuple[_Inlet, Runtime] | None = None
        self._dialled: dict[str, TcpSide] = {}
        self.learn(peers)
        self._listening = (
            TcpRoute.listen(listen, security=security).sender if listen is not None else None
        )

    @property
    def room(self) -> int:
        return 1 << 30

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Listen, and begin to dial. Raises ConfigurationError where the address can't be had."""
        inlet = _Inlet(landing, self._name)
        for side in self._sides():
            side.open(inlet, runtime)
        self._opened = inlet, runtime

    def learn(self, addresses: Mapping[str, str]) -> None:
        """Dial those nodes, too, that aren't dialled yet: they came later than the file."""
        for peer, address in addresses.items():
            if peer != self._name and address and peer not in self._dialled:
                side = TcpRoute.connect(address, security=self._security).sender
                if self._opened is not None:
                    side.open(*self._opened)
                self._dialled[peer] = side

    def connected(self) -> Sequence[str]:
        """The nodes that this one has a connection to."""
        return tuple(each for each, side in self._dialled.items() if side.wait_connected(0))

    def _sides(self) -> Sequence[TcpSide]:
        listening = [self._listening] if self._listening is not None else []
        return [*listening, *self._dialled.values()]

    def send(self, frame: object) -> None:
        """Send a frame, or a run of them, on its way; one of the two parties has a connection, or it is lost."""
        target, frames = _frames(frame)
        side = self._dialled.get(target, self._listening)
        if side is not None and frames:
            payloads = [encode((self._name, target, each)) for each in frames]
            pair = " ".join(sorted((self._name, target)))
            side.send(Numbered(crc32(pair.encode()), 0, 1, 1, payloads))

    def taken(self) -> None:
        pass

    def close(self) -> None:
        for side in self._sides():
            side.close()
