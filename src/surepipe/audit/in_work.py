"""What a killed receiver had in work, as a real trace tells of it.

A receiver stores effect and position in one transaction, and writes its row ``settled`` a moment later. A kill
between the two leaves messages that were delivered, are nowhere settled, and never come again, because the store
has them. Where the sender was told so, or the receiver's stored position is behind them, an audit takes that for
the missing row, and says for how many messages it did.

A process that stands still between the two writes that row after all, when its successor has gone on. It tells of
what was before: where a successor said at its start that the stored position is behind these messages, the row is
read there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from surepipe.audit.trace import Kind, Row
from surepipe.core.ranges import RangeSet

Place = tuple[str, int]
"""A pipe and an epoch."""
Life = tuple[str, str, int]
"""Run, node and incarnation."""
Key = tuple[str, str, int, int, str]
"""Of one row."""


@dataclass
class Passed:
    """What stored positions are behind, as rows ``passed`` tell of it."""

    upto: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Of each pipe: this message, and all before it."""
    runs: dict[Place, RangeSet] = field(default_factory=dict[Place, RangeSet])

    def see(self, row: Row) -> None:
        """A row ``passed``."""
        if row.count:
            self.runs.setdefault((row.pipe, row.epoch), RangeSet()).add(row.seq, row.last)
        else:
            self.upto[row.pipe] = max(self.upto.get(row.pipe, (0, 0)), (row.epoch, row.seq))

    def within(self, place: Place, low: int, high: int) -> RangeSet:
        """Which of these messages a position is behind."""
        pipe, epoch = place
        found = RangeSet(self.runs.get(place, RangeSet()).within(low, high))
        last_epoch, last = self.upto.get(pipe, (0, 0))
        end = high if epoch < last_epoch else min(high, last) if epoch == last_epoch else 0
        if low <= end:
            found.add(low, end)
        return found

    def covers(self, row: Row) -> bool:
        """A position is behind all messages of this row."""
        if (row.epoch, row.last) <= self.upto.get(row.pipe, (0, 0)):
            return True
        runs = self.runs.get((row.pipe, row.epoch))
        return runs is not None and runs.covers(row.seq, row.last)


class LateRows:
    """Finds rows that tell for the first time of some message that a successor's position was behind before."""

    def __init__(self, rows: Iterable[Row]) -> None:
        """Rows in the order in which they were told."""
        self.moved: list[tuple[Row, Row]] = []
        """Each of them, and the row before which it is read."""
        self._moved: dict[Key, list[Row]] = {}
        self._late: set[Key] = set()
        told: dict[Place, RangeSet] = {}
        ahead: dict[str, list[tuple[Row, Passed]]] = {}
        passed = Passed()
        for row in rows:
            if row.kind == Kind.PASSED:
                one = Passed()
                one.see(row)
                ahead.setdefault(row.pipe, []).append((row, one))
                passed.see(row)
            elif row.kind in (Kind.SETTLED, Kind.DEAD) and row.count and not row.layer:
                known = told.setdefault((row.pipe, row.epoch), RangeSet())
                if passed.covers(row) and not known.covers(row.seq, row.last):
                    told_of = ahead.get(row.pipe, ())
                    first = next((at for at, one in told_of if one.covers(row)), None)
                    if first is not None:
                        self.moved.append((row, first))
                        self._moved.setdefault(_key(first), []).append(row)
                        self._late.add(_key(row))
                known.add(row.seq, row.last)

    def in_order(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows, with each of these where its messages had been passed at the latest."""
        for row in rows:
            key = _key(row)
            if row.kind == Kind.PASSED:
                yield from self._moved.get(key, ())
            if key not in self._late:
                yield row


class KilledWork:
    """Finds these messages; ``count`` is how many there are of each pipe. ``doubtful``: how many there are that
    nothing speaks of."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.count: dict[str, int] = {}
        self.doubtful: dict[str, int] = {}
        self._passed = Passed()
        self._open: dict[str, dict[Place, RangeSet]] = {}
        self._left: dict[Place, list[tuple[Row, RangeSet]]] = {}
        self._confirmed: dict[Place, RangeSet] = {}
        self._settled: dict[Place, RangeSet] = {}
        for row in rows:
            self._see(row)
        self._missing = self._found()

    def _see(self, row: Row) -> None:
        place = (row.pipe, row.epoch)
        if row.kind == Kind.START:
            for where, ranges in self._open.pop(row.node, {}).items():
                self._left.setdefault(where, []).append((row, ranges))
        elif row.kind == Kind.PASSED:
            self._passed.see(row)
        elif row.kind == Kind.CONFIRMED:
            self._confirmed.setdefault(place, RangeSet()).add(row.seq, row.last)
        elif row.kind == Kind.DELIVERED:
            self._come_again(place, row)
            self._open.setdefault(row.node, {}).setdefault(place, RangeSet()).add(row.seq, row.last)
        elif row.kind in (Kind.SETTLED, Kind.DEAD):
            self._settled.setdefault(place, RangeSet()).add(row.seq, row.last)

    def _come_again(self, place: Place, row: Row) -> None:
        for _, ranges in self._left.get(place, ()):
            ranges.discard(row.seq, row.last)

    def _found(self) -> dict[Life, list[Row]]:
        found: dict[Life, list[Row]] = {}
        for (pipe, epoch), lives in self._left.items():
            confirmed = RangeSet(self._confirmed.get((pipe, epoch), ()))
            settled = self._settled.get((pipe, epoch), RangeSet())
            for start, ranges in lives:
                for low, high in [left for one in ranges for left in settled.missing(*one)]:
                    for first, last in self._passed.within((pipe, epoch), low, high):
                        confirmed.add(first, last)
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
                        found.setdefault(life_of(start), []).append(row)
                        self.count[pipe] = self.count.get(pipe, 0) + row.count
        return found

    def before(self, row: Row) -> Sequence[Row]:
        """The rows that are missing just before this one."""
        return self._missing.get(life_of(row), ()) if row.kind == Kind.START else ()


def left_behind(rows: Iterable[Row], lives: Set[Life]) -> set[str]:
    """The nodes of those of these lives that settled something behind what they left unsettled: no position is
    behind that, so it comes again."""
    handed: dict[tuple[Life, Place], RangeSet] = {}
    settled: dict[tuple[Life, Place], RangeSet] = {}
    for row in rows:
        if row.kind in (Kind.DELIVERED, Kind.SETTLED, Kind.DEAD) and row.count and not row.layer:
            key = (life_of(row), (row.pipe, row.epoch))
            if key[0] in lives:
                found = handed if row.kind == Kind.DELIVERED else settled
                found.setdefault(key, RangeSet()).add(row.seq, row.last)
    left: dict[tuple[Life, str], tuple[int, int]] = {}
    for (life, (pipe, epoch)), ranges in handed.items():
        done = settled.get((life, (pipe, epoch)), RangeSet())
        for first, _ in [open_ for one in ranges for open_ in done.missing(*one)]:
            left[life, pipe] = min(left.get((life, pipe), (epoch, first)), (epoch, first))
    return {
        life[1]
        for (life, (pipe, epoch)), ranges in settled.items()
        if (life, pipe) in left and (epoch, ranges.highest()) > left[life, pipe]
    }


def life_of(row: Row) -> Life:
    """Who tells this row."""
    return row.run, row.node, row.incarnation


def _key(row: Row) -> Key:
    return (*life_of(row), row.step, row.kind)
