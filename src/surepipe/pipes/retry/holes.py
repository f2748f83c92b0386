"""Missing messages: which numbers a receiver has not seen while later ones have arrived, and when to say so.

A hole is named at once when enough later frames stand behind it (loss is likelier than overtaking then), or
when it is old enough; and again, with growing pauses, while it lasts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from surepipe.core.effects import Ranges
from surepipe.core.snapshot import stateful
from surepipe.pipes.retry.flights import NEVER


@stateful
@dataclass(slots=True)
class Hole:
    """Consecutive missing numbers. ``arrivals`` is the count of frames before the first one behind it."""

    first: int
    last: int
    since: int
    arrivals: int
    due: int
    named: int = 0


@stateful
class Holes:
    """The holes of one epoch, by number. Their count is bounded by the span that the receiver lets in."""

    __slots__ = ("arrivals", "delay", "due_at", "enough", "high", "holes")

    def __init__(self, base: int, enough: int, delay: int) -> None:
        self.high = base - 1
        self.enough = enough
        self.delay = delay
        self.arrivals = 0
        self.holes: list[Hole] = []
        self.due_at = NEVER

    def __len__(self) -> int:
        return len(self.holes)

    def raise_base(self, base: int) -> None:
        """Everything below ``base`` is settled, so nothing of it is missing."""
        self.high = max(self.high, base - 1)
        if self.holes and self.holes[0].first < base:
            self._remove(self.holes[0].first, base - 1)

    def arrived(self, first: int, last: int, now: int) -> bool:
        """These numbers are here now; True when that shows a new hole."""
        opened = first > self.high + 1
        if opened:
            due = now + self.delay
            self.holes.append(Hole(self.high + 1, first - 1, now, self.arrivals, due))
            self.due_at = min(self.due_at, due)
        elif self.holes and first <= self.holes[-1].last:
            self._remove(first, last)
        if last > self.high:
            self.high = last
            self.arrivals += 1
        return opened

    def shown(self, last: int, now: int) -> None:
        """Everything up to ``last`` was sent: a frame arrived that lies behind it and could not be kept."""
        if last > self.high:
            due = now + self.delay
            self.holes.append(Hole(self.high + 1, last, now, self.arrivals, due))
            self.due_at = min(self.due_at, due)
            self.high = last
        self.arrivals += 1

    def reopen(self, first: int, last: int, now: int) -> None:
        """These numbers were here and are missing again."""
        at = bisect_left(self.holes, first, key=lambda hole: hole.last)
        due = now + self.delay
        self.holes.insert(at, Hole(first, last, now, self.arrivals, due))
        self.due_at = min(self.due_at, due)

    def renew(self, first: int, last: int, now: int) -> None:
        """Nobody could have taken these before: they are named as if they were missing since now."""
        self._remove(first, last)
        self.reopen(first, last, now)

    def forget_from(self, first: int) -> None:
        """Nothing from ``first`` on was ever seen."""
        self._remove(first, self.high)
        self.high = min(self.high, first - 1)

    def is_due(self, now: int) -> bool:
        """Whether some hole should be named now. (May be True too early, never too late.)"""
        if self.due_at <= now:
            return True
        for hole in reversed(self.holes):
            if hole.named:
                return False
            if self.arrivals - hole.arrivals >= self.enough:
                return True
        return False

    def name_due(self, now: int, count: int, pause: Callable[[int], int]) -> Ranges:
        """The holes to name now, lowest first; each waits for ``pause(times named)`` after that."""
        due: list[Hole] = []
        for hole in self.holes:
            has_waited = not hole.named and self.arrivals - hole.arrivals >= self.enough
            if len(due) < count and (has_waited or hole.due <= now):
                hole.named += 1
                hole.due = now + pause(hole.named)
                due.append(hole)
        self.due_at = min((hole.due for hole in self.holes), default=NEVER)
        return tuple((hole.first, hole.last) for hole in due)

    def oldest(self) -> int | None:
        """Since when the oldest hole is open."""
        return min((hole.since for hole in self.holes), default=None)

    def _remove(self, first: int, last: int) -> None:
        at = bisect_left(self.holes, first, key=lambda hole: hole.last)
        end = at
        left: list[Hole] = []
        while end < len(self.holes) and self.holes[end].first <= last:
            hole = self.holes[end]
            if hole.first < first:
                left.append(_part(hole, hole.first, first - 1))
            if hole.last > last:
                left.append(_part(hole, last + 1, hole.last))
            end += 1
        self.holes[at:end] = left
        if not self.holes:
            self.due_at = NEVER


def _part(hole: Hole, first: int, last: int) -> Hole:
    return Hole(first, last, hole.since, hole.arrivals, hole.due, hole.named)
