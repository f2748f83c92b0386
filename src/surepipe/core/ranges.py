"""A set of whole numbers kept as disjoint inclusive ranges: memory follows the holes, not the messages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from surepipe.core.effects import Ranges
from surepipe.core.snapshot import stateful


@stateful
class RangeSet:
    """Sorted, disjoint, never touching ranges; each operation costs a binary search and a list splice."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            if first <= last and (not self._lasts or first > self._lasts[-1] + 1):
                self._firsts.append(first)
                self._lasts.append(last)
            else:
                self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def count(self) -> int:
        """How many numbers are in the set."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def highest(self) -> int:
        """The greatest number, 0 for an empty set."""
        return self._lasts[-1] if self._lasts else 0

    def covers(self, first: int, last: int) -> bool:
        """True when every number of first..last is in the set."""
        at = bisect_right(self._firsts, first) - 1
        return at >= 0 and last <= self._lasts[at]

    def end_of_run(self, first: int) -> int:
        """The last number of the run that holds ``first``, or ``first - 1`` when it isn't in the set."""
        at = bisect_right(self._firsts, first) - 1
        return self._lasts[at] if at >= 0 and first <= self._lasts[at] else first - 1

    def add(self, first: int, last: int) -> None:
        """Put first..last into the set, joining what it touches."""
        if last < first:
            return
        left = bisect_left(self._lasts, first - 1)
        right = bisect_right(self._firsts, last + 1)
        if left < right:
            first = min(first, self._firsts[left])
            last = max(last, self._lasts[right - 1])
        self._firsts[left:right] = [first]
        self._lasts[left:right] = [last]

    def discard(self, first: int, last: int) -> None:
        """Take first..last out of the set."""
        if last < first:
            return
        left = bisect_left(self._lasts, first)
        right = bisect_right(self._firsts, last)
        if left >= right:
            return
        low, high = self._firsts[left], self._lasts[right - 1]
        firsts: list[int] = []
        lasts: list[int] = []
        if low < first:
            firsts.append(low)
            lasts.append(first - 1)
        if high > last:
            firsts.append(last + 1)
            lasts.append(high)
        self._firsts[left:right] = firsts
        self._lasts[left:right] = lasts

    def discard_below(self, bound: int) -> None:
        """Take every number below ``bound`` out of the set."""
        if self._firsts and self._firsts[0] < bound:
            self.discard(self._firsts[0], bound - 1)

    def within(self, first: int, last: int) -> Ranges:
        """The parts of first..last that are in the set."""
        if last < first:
            return ()
        left = bisect_left(self._lasts, first)
        right = bisect_right(self._firsts, last)
        if right - left == 1:
            return ((max(first, self._firsts[left]), min(last, self._lasts[left])),)
        return tuple(
            (max(first, self._firsts[at]), min(last, self._lasts[at])) for at in range(left, right)
        )

    def missing(self, first: int, last: int) -> Ranges:
        """The parts of first..last that are not in the set."""
        if not self._firsts:
            return ((first, last),) if first <= last else ()
        holes: list[tuple[int, int]] = []
        for start, end in self.within(first, last):
            if first < start:
                holes.append((first, start - 1))
            first = end + 1
        if first <= last:
            holes.append((first, last))
        return tuple(holes)

    def lowest(self, count: int) -> Ranges:
        """The first ``count`` ranges."""
        if not self._firsts:
            return ()
        return tuple(zip(self._firsts[:count], self._lasts[:count], strict=True))
