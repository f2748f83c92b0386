"""A route that loses, repeats, delays and reorders what another route carries, drawn from a seed.

For trying out what a stack survives. It declares what it does, so the computed guarantee is that of a stack over
such a route.
"""

from __future__ import annotations

import heapq
import threading
from random import Random
from typing import TypeAlias

from surepipe.actors.routes import Landing, Route, RouteSide
from surepipe.actors.runtime import Alarm, Runtime
from surepipe.errors import ConfigurationError
from surepipe.pipes.algebra import hops
from surepipe.pipes.algebra.guarantees import Fault, Faults
from surepipe.pipes.options import micros
from surepipe.pipes.timing import below

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
        """As the route inside."""
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
        """As the route inside."""
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

    def _declare(self, inner: hops.Route) -> hops.Route:
        found = {
            Fault.ROUTE_LOSS: self.loss,
            Fault.ROUTE_DUPLICATION: self.duplicate,
            Fault.ROUTE_REORDERING: self.reorder,
            Fault.ROUTE_DELAY: self.delay_us[1] or self.reorder,
        }
        added: Faults = frozenset(fault for fault, amount in found.items() if amount)
        back = None if inner.back is None else inner.back | added
        return hops.Route(f"faulty {inner.name}", inner.forward | added, back)
