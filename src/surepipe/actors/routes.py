"""Routes: what carries frames between the two ends of a pipe.

A route has two sides. Each end opens its own, with a function that takes what arrives, and sends through it. A
route may lose, repeat, delay and reorder; it *declares* which of these it does, and the guarantee is computed
from that. Sending never blocks and never raises: what can't be carried now is route loss.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol, runtime_checkable

from surepipe.actors.runtime import Runtime
from surepipe.pipes.algebra import hops


class Landing(Protocol):
    """Where a side puts what arrives: the inbox of an end. None of it blocks."""

    def put(self, frame: object) -> None:
        """A frame has arrived."""
        ...

    @property
    def room(self) -> int:
        """How many more frames fit into the inbox now."""
        ...

    def wake(self) -> None:
        """The other end has room again."""
        ...

    def reconnected(self, elsewhere: Container[int] = ()) -> None:
        """Frames get through again, after a time in which they may not have: what waits may be tried at once.

        ``elsewhere``: pipes that are known to be somewhere else, where nothing has changed.
        """
        ...


class RouteSide(Protocol):
    """One end's side of a route."""

    @property
    def has_reverse(self) -> bool:
        """True when frames can travel from the receiver to the sender."""
        ...

    @property
    def room(self) -> int:
        """How many frames the other end would take now; ``UNBOUNDED`` where that isn't known.

        Only stacks that never send again need it: they don't send what there is no room for.
        """
        ...

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Begin to carry; what arrives here is put there."""
        ...

    def send(self, frame: object) -> None:
        """Carry a frame to the other side, or lose it."""
        ...

    def taken(self) -> None:
        """This end has taken frames out of its inbox: there is room again, where anybody asks for it."""
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
        self._landing: Landing | None = None
        self._other: LocalSide | None = None

    def join(self, other: LocalSide) -> None:
        """Make these two the sides of one route."""
        self._other, other._other = other, self

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Begin to take frames."""
        del runtime
        self._landing = landing

    @property
    def _there(self) -> Landing | None:
        assert self._other is not None
        return self._other._landing

    @property
    def room(self) -> int:
        """What fits into the other end's inbox."""
        there = self._there
        return 0 if there is None else there.room

    def send(self, frame: object) -> None:
        """Give the frame to the other side; it is lost when that one is not open."""
        there = self._there
        if there is None or not self._may_send:
            self.lost += 1
        else:
            there.put(frame)

    def taken(self) -> None:
        """Wake the other end: it may have waited for room."""
        there = self._there
        if there is not None:
            there.wake()

    def close(self) -> None:
        """Take nothing more."""
        self._landing = None


class LocalRoute:
    """Within one process: frames are handed over as they are, at once and in order."""

    def __init__(self, *, one_way: bool = False) -> None:
        self.declared = hops.one_way(hops.LOCAL) if one_way else hops.LOCAL
        self.sender = LocalSide(has_reverse=not one_way)
        self.receiver = LocalSide(has_reverse=not one_way, may_send=not one_way)
        self.sender.join(self.receiver)


@runtime_checkable
class _Counting(Protocol):
    def counters(self) -> dict[str, int]: ...


def link_counters(route: Route) -> dict[str, int]:
    """What the link counts on which a route runs, as ``link_...``: connections, strangers, frames lost."""
    counted = route.counters() if isinstance(route, _Counting) else {}
    return {f"link_{name}": count for name, count in counted.items()}
