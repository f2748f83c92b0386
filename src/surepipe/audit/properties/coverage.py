"""Numbers about runs of messages: which position an identity has, how often a position was covered, and by what.

Memory follows the rows of a trace, not the messages: everything here is kept for runs of consecutive numbers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from surepipe.core.effects import Ranges
from surepipe.core.ranges import RangeSet

Part: TypeAlias = tuple[int, int, int]
"""(seq, position, count) of consecutive messages; position 0: never accepted."""
Parts: TypeAlias = list[Part]
T = TypeVar("T")


class _Epoch:
    """The messages of one epoch that have a position: disjoint runs by their seqs."""

    __slots__ = ("firsts", "lasts", "shifts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.shifts: list[int] = []

    def parts(self, first: int, last: int) -> Parts:
        """This run, cut where positions don't follow each other."""
        parts: Parts = []
        at = max(0, bisect_right(self.firsts, first) - 1)
        while first <= last:
            while at < len(self.firsts) and self.lasts[at] < first:
                at += 1
            if at == len(self.firsts) or self.firsts[at] > last:
                parts.append((first, 0, last - first + 1))
                break
            if first < self.firsts[at]:
                parts.append((first, 0, self.firsts[at] - first))
                first = self.firsts[at]
            end = min(last, self.lasts[at])
            parts.append((first, first + self.shifts[at], end - first + 1))
            first = end + 1
        return parts

    def place(self, first: int, last: int, shift: int) -> None:
        """Give a run that has none its positions."""
        firsts, lasts, shifts = self.firsts, self.lasts, self.shifts
        if lasts and lasts[-1] == first - 1 and shifts[-1] == shift:
            lasts[-1] = last
            return
        at = bisect_left(firsts, first)
        firsts.insert(at, first)
        lasts.insert(at, last)
        shifts.insert(at, shift)


class Positions:
    """The positions of one pipe's messages: 1, 2, 3 ... in the order in which they were accepted."""

    __slots__ = ("_epochs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._epochs: dict[int, _Epoch] = {}

    def find(self, epoch: int, first: int, count: int) -> Parts:
        known = self._epochs.get(epoch)
        if known is None:
            return [(first, 0, count)]
        at = bisect_right(known.firsts, first) - 1
        last = first + count - 1
        if at >= 0 and last <= known.lasts[at]:
            return [(first, first + known.shifts[at], count)]
        return known.parts(first, last)

    def add(self, epoch: int, first: int, count: int) -> Parts:
        """Number those of these messages that have no number yet; gives these."""
        known = self._epochs.get(epoch)
        if known is None:
            known = self._epochs[epoch] = _Epoch()
        if not known.lasts or known.lasts[-1] < first:
            return [self._number(known, first, count)]
        return [
            self._number(known, seq, length)
            for seq, position, length in known.parts(first, first + count - 1)
            if not position
        ]

    def _number(self, known: _Epoch, first: int, count: int) -> Part:
        position = self.count + 1
        known.place(first, first + count - 1, position - first)
        self.count += count
        return (first, position, count)

    def move(self, epoch: int, first: int, count: int, new_epoch: int, new_first: int) -> None:
        """These messages are known by a new identity too."""
        target = self._epochs.setdefault(new_epoch, _Epoch())
        for seq, position, length in self.find(epoch, first, count):
            start = new_first + seq - first
            for moved, known, size in target.parts(start, start + length - 1):
                if position and not known:
                    target.place(moved, moved + size - 1, position - start)

    def last(self, epoch: int) -> int:
        """The highest seq of an epoch; 0 for one that is not known."""
        known = self._epochs.get(epoch)
        return known.lasts[-1] if known is not None and known.lasts else 0


class Reached:
    """A set of numbers that mostly grows at its end: all up to ``top``, and ranges beyond."""

    __slots__ = ("beyond", "has_beyond", "top")

    def __init__(self) -> None:
        self.top = 0
        self.has_beyond = False
        self.beyond = RangeSet()

    def __contains__(self, number: int) -> bool:
        return 0 < number <= self.top or number in self.beyond

    def add(self, first: int, last: int) -> None:
        if first > self.top + 1:
            self.beyond.add(first, last)
            self.has_beyond = True
        elif last > self.top:
            self.top = last
            if self.has_beyond:
                self.top = max(last, self.beyond.end_of_run(last + 1))
                self.beyond.discard_below(self.top + 1)
                self.has_beyond = bool(self.beyond)

    def grow(self, first: int, last: int) -> bool:
        """Put first..last into the set, if all of that is new and follows what is there. Whether it was."""
        if first != self.top + 1 or self.has_beyond:
            return False
        self.top = last
        return True

    def is_new(self, first: int) -> bool:
        """True when ``first`` and everything above it is outside of the set."""
        return first > self.top and (not self.has_beyond or first > self.beyond.highest())

    def covers(self, first: int, last: int) -> bool:
        """True when all of first..last is in the set."""
        return last <= self.top or self.beyond.covers(max(first, self.top + 1), last)

    def within(self, first: int, last: int) -> Ranges:
        """The parts of first..last that are in the set."""
        low = ((first, min(last, self.top)),) if first <= self.top else ()
        return low + self.beyond.within(max(first, self.top + 1), last)

    def missing(self, first: int, last: int) -> Ranges:
        """The parts of first..last that are not in the set."""
        return self.beyond.missing(max(first, self.top + 1), last)

    def count(self) -> int:
        """How many numbers are in the set."""
        return self.top + self.beyond.count()


class Tally:
    """How many runs have covered a number."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> None:
        insort(self._firsts, first)
        insort(self._lasts, last)

    def of(self, number: int) -> int:
        """How many of the runs hold this number."""
        return bisect_right(self._firsts, number) - bisect_left(self._lasts, number)


class Notes(Generic[T]):
    """What was the case when a number came up for the first time."""

    __slots__ = ("_firsts", "_lasts", "_values")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._values: list[T] = []

    def note(self, first: int, last: int, value: T) -> None:
        """Note this for all of first..last that have no note."""
        lasts = self._lasts
        if not lasts or first > lasts[-1]:
            if lasts and lasts[-1] == first - 1 and self._values[-1] == value:
                lasts[-1] = last
            else:
                self._firsts.append(first)
                lasts.append(last)
                self._values.append(value)
            return
        for low, _, high in self._holes(first, last):
            at = bisect_left(self._firsts, low)
            self._firsts.insert(at, low)
            lasts.insert(at, high)
            self._values.insert(at, value)

    def _holes(self, first: int, last: int) -> Parts:
        """The parts of first..last without a note, as (first, 0, last)."""
        holes: Parts = []
        at = max(0, bisect_right(self._firsts, first) - 1)
        while first <= last:
            while at < len(self._firsts) and self._lasts[at] < first:
                at += 1
            if at == len(self._firsts) or self._firsts[at] > last:
                holes.append((first, 0, last))
                break
            if first < self._firsts[at]:
                holes.append((first, 0, self._firsts[at] - 1))
            first = self._lasts[at] + 1
        return holes

    def within(self, first: int, last: int) -> Iterator[tuple[int, int, T]]:
        """The parts of first..last that have a note, and their notes."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        while at < len(self._firsts) and self._firsts[at] <= last:
            if self._lasts[at] >= first:
                yield max(first, self._firsts[at]), min(last, self._lasts[at]), self._values[at]
            at += 1

    def of(self, number: int) -> T | None:
        at = bisect_right(self._firsts, number) - 1
        return self._values[at] if at >= 0 and number <= self._lasts[at] else None
