"""What a stream's receiver has handed up and not finished: from identities back to indexes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from surepipe.core.effects import Ranges
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.core.store_requests import Entries, Identity


def split(entries: Entries, count: int) -> tuple[Entries, Entries]:
    """The first ``count`` entries, and those after them."""
    return (
        replace(entries, payloads=entries.payloads[:count]),
        replace(
            entries,
            index=entries.index + count,
            first=entries.first + count,
            payloads=entries.payloads[count:],
        ),
    )


@stateful
class StreamWork:
    """The entries from ``next`` on that are in work, and which of them are settled.

    Everything below ``next`` is settled, ``anchor`` is the entry before it (None when it is not known), ``end``
    is the index after the last entry taken. Answers name (epoch, seq). Two producers whose epochs have the
    same number are never in work together, so an answer means one entry.
    """

    def __init__(self) -> None:
        self.next = 1
        self.anchor: Identity | None = None
        self.end = 1
        self.runs: deque[Entries] = deque()
        self.settled_above = RangeSet()
        self.speakers: dict[int, str] = {}
        self.unanswered = 0
        self.has_refused = False

    def start_at(self, index: int, anchor: Identity | None) -> None:
        """Go on from here; nothing is in work."""
        self.drop_runs()
        self.next = self.end = index
        self.anchor = anchor
        self.settled_above = RangeSet()

    def drop_runs(self) -> None:
        """Forget what was taken, but not what of it is settled: the rest will be taken again."""
        assert not self.unanswered, "an answer is still to come for what would be dropped"
        self.runs.clear()
        self.speakers.clear()
        self.end = self.next
        self.has_refused = False

    @property
    def last(self) -> Identity | None:
        """The entry before ``end``, if it is known."""
        return self._identity(self.end - 1) if self.runs else self.anchor

    def may_take(self, entries: Entries) -> bool:
        """False while another producer's epoch of the same number is in work."""
        return self.speakers.get(entries.epoch, entries.producer) == entries.producer

    def take(self, entries: Entries) -> list[Entries]:
        """Put these, which follow the last taken, into work; returns the parts that are not settled yet."""
        self.runs.append(entries)
        self.speakers[entries.epoch] = entries.producer
        self.end = entries.index + len(entries.payloads)
        parts: list[Entries] = []
        for first, last in self.settled_above.missing(entries.index, self.end - 1):
            _, rest = split(entries, first - entries.index)
            parts.append(split(rest, last - first + 1)[0])
            self.unanswered += last - first + 1
        return parts

    def settle(self, epoch: int, first: int, last: int) -> bool:
        """These are settled; True when ``next`` moved."""
        for start, end in self._indexes(epoch, first, last):
            self.settled_above.add(start, end)
            self.unanswered -= end - start + 1
        end = self.settled_above.end_of_run(self.next)
        if end < self.next:
            return False
        self.anchor = self._identity(end)
        self.next = end + 1
        self.settled_above.discard_below(self.next)
        is_shorter = False
        while self.runs and self.runs[0].index + len(self.runs[0].payloads) <= self.next:
            self.runs.popleft()
            is_shorter = True
        if is_shorter:
            self.speakers = {run.epoch: run.producer for run in self.runs}
        return True

    def refuse(self, epoch: int, first: int, last: int) -> None:
        """These were not taken: they must be read again."""
        for start, end in self._indexes(epoch, first, last):
            self.unanswered -= end - start + 1
        self.has_refused = True

    def position_with(self, epoch: int, also: Ranges) -> tuple[int, Identity | None]:
        """``next`` and ``anchor`` as they will be when ``also`` is settled too."""
        settled = RangeSet(self.settled_above)
        for first, last in also:
            for start, end in self._indexes(epoch, first, last):
                settled.add(start, end)
        end = settled.end_of_run(self.next)
        return (end + 1, self._identity(end)) if end >= self.next else (self.next, self.anchor)

    def _indexes(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges of indexes that hold these messages."""
        for run in self.runs:
            start = max(first, run.first)
            end = min(last, run.first + len(run.payloads) - 1)
            if run.epoch == epoch and start <= end:
                yield run.index + start - run.first, run.index + end - run.first

    def _identity(self, index: int) -> Identity | None:
        for run in self.runs:
            if run.index <= index < run.index + len(run.payloads):
                return Identity(run.producer, run.epoch, run.first + index - run.index)
        return None
