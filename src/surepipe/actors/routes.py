"""Routes: what carries frames between the two ends of a pipe.

A route has two sides. Each end opens its own, with a function that takes what arrives, and sends through it. A
route may lose, repeat, delay and reorder; it *declares* which of these it does, and the guarantee is computed
from that. Sending never blocks and never raises: what can't be carried now is route loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from surepipe.actors.runtime import Runtime
from surepipe.pipes import hops

Receive = Callable[[object], None]


class RouteSide(Protocol):
    """One end's side of a route."""

    @property
    def has_reverse(self) -> bool:
        """True when frames can travel from the receiver to the sender."""
        ...

    def open(self, receive: Receive, runtime: Runtime) -> None:
        """Begin to carry; what arrives here is given to ``receive``, which is quick."""
        ...

    def send(self, frame: object) -> None:
        """Carry a frame to the other side, or lose it."""
        ...

    def close(self) -> None:
        """Carry nothing more. A second call does nothing."""
        ...


class Route(Protocol):
    """Both sides of a route, where both are in one process."""

    @property
    def declared(self) -> hops.Route:
        """What the route may do to frames, in each direction."""
        ...

    @property
    def sender(self) -> RouteSide:
        """The side of the sending end."""
        ...

    @property
    def receiver(self) -> RouteSide:
        """The side of the receiving end."""
        ...


class LocalSide:
    """One side of a local route: puts frames, as they are, into the inbox of the other."""

    def __init__(self, *, has_reverse: bool, may_send: bool = True) -> None:
        self.has_reverse = has_reverse
        self.lost = 0
        self._may_send = may_send
        self._receive: Receive | None = None
        self._other: LocalSide | None = None

    def join(self, other: LocalSide) -> None:
        """Make these two the sides of one route."""
        self._other, other._other = other, self  # noqa: SLF001 - the same class

    def open(self, receive: Receive, runtime: Runtime) -> None:
        """Begin to take frames."""
        del runtime
        self._receive = receive

    def send(self, frame: object) -> None:
        """Give the frame to the other side; it is lost when that one is not open."""
        assert self._other is not None
        receive = self._other._receive  # noqa: SLF001 - the same class
        if receive is None or not self._may_send:
            self.lost += 1
        else:
            receive(frame)

    def close(self) -> None:
        """Take nothing more."""
        self._receive = None


class LocalRoute:
    """Within one process: frames are handed over as they are, at once and in order."""

    def __init__(self, *, one_way: bool = False) -> None:
        self.declared = hops.one_way(hops.LOCAL) if one_way else hops.LOCAL
        self.sender = LocalSide(has_reverse=not one_way)
        self.receiver = LocalSide(has_reverse=not one_way, may_send=not one_way)
        self.sender.join(self.receiver)
