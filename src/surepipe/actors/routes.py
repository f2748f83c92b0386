"""Routes: what carries frames between the two ends of a pipe.

A route has two sides. Each end opens its own, with a function that takes what arrives, and sends through it. A
route may lose, repeat, delay and reorder; it *declares* which of these it does, and the guarantee is computed
from that. Sending never blocks and never raises: what can't be carried now is route loss.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Container, Mapping
from random import Random
from typing import Protocol, TypeAlias, runtime_checkable

from surepipe.actors.runtime import Alarm, Runtime
from surepipe.core.claims import Fault, Faults
from surepipe.core.effects import Addressed
from surepipe.core.timing import below
from surepipe.errors import ConfigurationError
from surepipe.guarantees import hops
from surepipe.pipes.options import micros

HELD_MAX = 16
"""Frames that a link holds while nobody is connected; what comes later is lost."""


class Landing(Protocol):
    """Where a side puts what arrives: the inbox of an end. None of it blocks."""

    def put(self, frame: object, /) -> None: ...

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
    def declared(self) -> hops.DeclaredRoute:
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
        self.landing: Landing | None = None
        """Where the end of this side takes its frames; None while it is closed."""
        self._other: LocalSide | None = None

    def join(self, other: LocalSide) -> None:
        """Make these two the sides of one route."""
        self._other, other._other = other, self

    def open(self, landing: Landing, runtime: Runtime) -> None:
        del runtime
        self.landing = landing

    @property
    def _there(self) -> Landing | None:
        assert self._other is not None
        return self._other.landing

    @property
    def room(self) -> int:
        """What fits into the other end's inbox."""
        there = self._there
        return 0 if there is None else there.room

    def send(self, frame: object) -> None:
        """Give the frame to the other side; it is lost when that one is not open."""
        assert self._other is not None
        there = self._other.landing
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
        self.landing = None


class LocalRoute:
    """Within one process: frames are handed over as they are, at once and in order."""

    def __init__(self, *, one_way: bool = False) -> None:
        self.declared = hops.one_way(hops.LOCAL) if one_way else hops.LOCAL
        self.sender = LocalSide(has_reverse=not one_way)
        self.receiver = LocalSide(has_reverse=not one_way, may_send=not one_way)
        self.sender.join(self.receiver)


class NamedSides:
    """Sides of several routes as one, for a machine that names the route of each frame (see ``Addressed``).

    A frame for a name that is not there is lost, as on any route. ``room`` is that of the fullest.
    """

    def __init__(self, sides: Mapping[str, RouteSide]) -> None:
        self._sides = dict(sides)
        self.lost = 0

    @property
    def has_reverse(self) -> bool:
        """True when each of them has it."""
        return all(side.has_reverse for side in self._sides.values())

    @property
    def room(self) -> int:
        return min((side.room for side in self._sides.values()), default=0)

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Begin to carry on all of them."""
        for name, side in self._sides.items():
            side.open(_NamedLanding(landing, name), runtime)

    def send(self, frame: object) -> None:
        """Carry the frame on the route that it names."""
        side = self._sides.get(frame.route) if isinstance(frame, Addressed) else None
        if side is None or not isinstance(frame, Addressed):
            self.lost += 1
        else:
            side.send(frame.frame)

    def taken(self) -> None:
        """There is room again: whoever sends here may know."""
        for side in self._sides.values():
            side.taken()

    def close(self) -> None:
        """Carry nothing more. A second call does nothing."""
        for side in self._sides.values():
            side.close()


class _NamedLanding:
    """An inbox as the side of one of several routes sees it."""

    def __init__(self, landing: Landing, name: str) -> None:
        self._landing = landing
        self._name = name
        self.wake = landing.wake
        self.reconnected = landing.reconnected

    def put(self, frame: object) -> None:
        self._landing.put(Addressed(self._name, frame))

    @property
    def room(self) -> int:
        return self._landing.room


@runtime_checkable
class _Counting(Protocol):
    def counters(self) -> dict[str, int]: ...


def link_counters(route: Route | None) -> dict[str, int]:
    """The counters of the link under a route, as ``link_...``: connections, strangers, frames lost."""
    link: object = route
    counted = link.counters() if isinstance(link, _Counting) else {}
    return {f"link_{name}": count for name, count in counted.items()}


# A route that loses, repeats, delays and reorders what another route carries, drawn from a seed.
#
# For trying out what a stack survives. It declares what it does, so the computed guarantee is that of a stack
# over such a route.


_PARTS = 1 << 30
Seconds: TypeAlias = float | tuple[float, float]


class FaultySide:
    """One side: what is sent through it meets faults, what arrives has met those of the other side."""

    def __init__(self, inner: RouteSide, faults: FaultyRoute, seed: str) -> None:
        self.lost = 0
        self.copied = 0
        self._inner = inner
        self._faults = faults
        self._rng = Random(seed)
        self._lock = threading.Lock()
        self._delayed: list[tuple[int, int, object]] = []
        self._count = 0
        self._latest = 0
        self._runtime: Runtime | None = None
        self._alarm: Alarm | None = None

    @property
    def has_reverse(self) -> bool:
        return self._inner.has_reverse

    @property
    def room(self) -> int:
        """As the route inside, less what is on its way."""
        return max(0, self._inner.room - len(self._delayed))

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Open the side inside; delays need the runtime's time."""
        self._runtime = runtime
        self._alarm = runtime.alarm(self._carry_due)
        self._inner.open(landing, runtime)

    def send(self, frame: object) -> None:
        """Draw the fate of the frame."""
        assert self._runtime is not None
        now = self._runtime.now()
        with self._lock:  # also while sending: what leaves here keeps its order
            for at in self._fates(now):
                self._carry_at(at, frame, now)
            self._arm()

    def taken(self) -> None:
        self._inner.taken()

    def close(self) -> None:
        """Lose what is still on its way."""
        if self._alarm is not None:
            self._alarm.close()
        with self._lock:
            self.lost += len(self._delayed)
            self._delayed.clear()
        self._inner.close()

    def _fates(self, now: int) -> list[int]:
        """When the frame arrives; once, never, or twice."""
        faults = self._faults
        arrivals: list[int] = []
        if self._happens(faults.loss):
            self.lost += 1
        else:
            at = now + self._draw(faults.delay_us)
            if self._happens(faults.reorder):
                at += self._draw(faults.reorder_us)
            else:
                at = self._latest = max(at, self._latest)
            arrivals.append(at)
        if self._happens(faults.duplicate):
            self.copied += 1
            arrivals.append(now + self._draw(faults.delay_us) + self._draw(faults.reorder_us))
        return arrivals

    def _carry_at(self, at: int, frame: object, now: int) -> None:
        if at <= now and not self._delayed:
            self._inner.send(frame)
        else:
            self._count += 1
            heapq.heappush(self._delayed, (at, self._count, frame))

    def _carry_due(self) -> None:
        assert self._runtime is not None
        now = self._runtime.now()
        with self._lock:
            while self._delayed and self._delayed[0][0] <= now:
                self._inner.send(heapq.heappop(self._delayed)[2])
            self._arm()

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.set(self._delayed[0][0] if self._delayed else None)

    def _happens(self, rate: float) -> bool:
        return rate > 0 and below(self._rng, _PARTS) < rate * _PARTS

    def _draw(self, span: tuple[int, int]) -> int:
        low, high = span
        return low + below(self._rng, high - low + 1)


class FaultyRoute:
    """A route with faults: rates are probabilities for each frame and direction, times are seconds.

    ``loss``: the frame vanishes. ``duplicate``: a copy arrives later. ``delay``: every frame takes this long (one
    number, or the least and the most); order is kept. ``reorder``: the frame is held back by up to ``reorder_s``
    more, and later ones pass it.
    Raises ConfigurationError for a rate outside 0 .. 1 or a negative time.
    """

    def __init__(
        self,
        inner: Route,
        *,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        delay: Seconds = 0.0,
        reorder_s: float = 0.05,
        seed: int = 1,
    ) -> None:
        for name, rate in (("loss", loss), ("duplicate", duplicate), ("reorder", reorder)):
            if not 0 <= rate <= 1:
                raise ConfigurationError(f"{name} is {rate}: a rate is between 0 and 1")
        least, most = delay if isinstance(delay, tuple) else (delay, delay)
        if not 0 <= least <= most or reorder_s <= 0:
            raise ConfigurationError(
                f"delay is {delay} and reorder_s {reorder_s}: write seconds, the least delay first"
            )
        self.loss, self.duplicate, self.reorder = loss, duplicate, reorder
        self.delay_us = (micros(least), micros(most))
        self.reorder_us = (1, max(1, micros(reorder_s)))
        self.declared = self._declare(inner.declared)
        self.sender = FaultySide(inner.sender, self, f"{seed} forward")
        self.receiver = FaultySide(inner.receiver, self, f"{seed} back")

    def _declare(self, inner: hops.DeclaredRoute) -> hops.DeclaredRoute:
        found = {
            Fault.ROUTE_LOSS: self.loss,
            Fault.ROUTE_DUPLICATION: self.duplicate,
            Fault.ROUTE_REORDERING: self.reorder,
            Fault.ROUTE_DELAY: self.delay_us[1] or self.reorder,
        }
        added: Faults = frozenset(fault for fault, amount in found.items() if amount)
        back = None if inner.back is None else inner.back | added
        return hops.DeclaredRoute(f"faulty {inner.name}", inner.forward | added, back)
