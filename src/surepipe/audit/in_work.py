"""What a killed receiver had in work, as a real trace tells of it.

A receiver stores effect and position in one transaction, and writes its row ``settled`` a moment later. A kill
between the two leaves messages that were delivered, are nowhere settled, and never come again, because the store
has them. Where the sender was told so, or the receiver's stored position is behind them, an audit takes that for
the missing row, and says for how many messages it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from surepipe.audit.trace import Kind, Row
from surepipe.core.ranges import RangeSet

Place = tuple[str, int]
"""A pipe and an epoch."""
Life = tuple[str, str, int]
"""Run, node and incarnation."""


class KilledWork:
    """Finds these messages; ``count`` is how many there are of each pipe. ``doubtful``: how many there are that
    nothing speaks of."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.count: dict[str, int] = {}
        self.doubtful: dict[str, int] = {}
        self._passed: dict[str, tuple[int, int]] = {}
        self._open: dict[str, dict[Place, RangeSet]] = {}
        self._left: dict[Place, list[tuple[Row, RangeSet]]] = {}
        self._confirmed: dict[Place, RangeSet] = {}
        for row in rows:
            self._see(row)
        self._missing = self._found()

    def _see(self, row: Row) -> None:
        place = (row.pipe, row.epoch)
        if row.kind == Kind.START:
            for where, ranges in self._open.pop(row.node, {}).items():
                self._left.setdefault(where, []).append((row, ranges))
        elif row.kind == Kind.PASSED:
            self._passed[row.pipe] = max(self._passed.get(row.pipe, (0, 0)), (row.epoch, row.seq))
        elif row.kind == Kind.CONFIRMED:
            self._confirmed.setdefault(place, RangeSet()).add(row.seq, row.last)
        elif row.kind == Kind.DELIVERED:
            self._come_again(place, row)
            self._open.setdefault(row.node, {}).setdefault(place, RangeSet()).add(row.seq, row.last)
        elif row.kind in (Kind.SETTLED, Kind.DEAD):
            self._come_again(place, row)
            open_here = self._open.get(row.node, {}).get(place)
            if open_here is not None:
                open_here.discard(row.seq, row.last)

    def _come_again(self, place: Place, row: Row) -> None:
        for _, ranges in self._left.get(place, ()):
            ranges.discard(row.seq, row.last)

    def _found(self) -> dict[Life, list[Row]]:
        found: dict[Life, list[Row]] = {}
        for (pipe, epoch), lives in self._left.items():
            confirmed = RangeSet(self._confirmed.get((pipe, epoch), ()))
            passed_epoch, passed = self._passed.get(pipe, (0, 0))
            for start, ranges in lives:
                for low, high in ranges:
                    if epoch <= passed_epoch:
                        _add(confirmed, low, high if epoch < passed_epoch else min(high, passed))
                    known = sum(last - first + 1 for first, last in confirmed.within(low, high))
                    self.doubtful[pipe] = self.doubtful.get(pipe, 0) + high - low + 1 - known
                    for first, last in confirmed.within(low, high):
                        row = replace(
                            start,
                            kind=Kind.SETTLED.value,
                            pipe=pipe,
                            epoch=epoch,
                            seq=first,
                            count=last - first + 1,
                            detail="",
                        )
                        found.setdefault(_life(start), []).append(row)
                        self.count[pipe] = self.count.get(pipe, 0) + row.count
        return found

    def before(self, row: Row) -> Sequence[Row]:
        """The rows that are missing just before this one."""
        return self._missing.get(_life(row), ()) if row.kind == Kind.START else ()


def _add(ranges: RangeSet, low: int, high: int) -> None:
    if low <= high:
        ranges.add(low, high)


def _life(row: Row) -> Life:
    return row.run, row.node, row.incarnation
