"""What a stream's receiver has handed up and not finished: from identities back to indexes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from surepipe.core.effects import Ranges, Speaker
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
    is the index after the last entry taken. Answers name producer, epoch and seq: each producer counts its epochs
    for itself, and what is forwarded under names of their own is all "epoch 1, number 1".
    """

    def __init__(self) -> None:
        self.next = 1
        self.anchor: Identity | None = None
        self.end = 1
        self.runs: deque[Entries] = deque()
        self.settled_above = RangeSet()
        self.said: dict[Speaker, deque[Entries]] = {}
        """The same runs, by who numbered them."""
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
        self.said.clear()
        self.end = self.next
        self.has_refused = False

    @property
    def last(self) -> Identity | None:
        """The entry before ``end``, if it is known."""
        return _identity_in(self.runs[-1], self.end - 1) if self.runs else self.anchor

    def take(self, entries: Entries) -> list[Entries]:
        """Put these, which follow the last taken, into work; returns the parts that are not settled yet."""
        self.runs.append(entries)
        self.said.setdefault((entries.producer, entries.epoch), deque()).append(entries)
        self.end = entries.index + len(entries.payloads)
        parts: list[Entries] = []
        for first, last in self.settled_above.missing(entries.index, self.end - 1):
            _, rest = split(entries, first - entries.index)
            parts.append(split(rest, last - first + 1)[0])
            self.unanswered += last - first + 1
        return parts

    def settle(self, speaker: Speaker, first: int, last: int) -> bool:
        """These are settled; True when ``next`` moved."""
        for start, end in self._indexes(speaker, first, last):
            self.settled_above.add(start, end)
            self.unanswered -= end - start + 1
        end = self.settled_above.end_of_run(self.next)
        if end < self.next:
            return False
        self.anchor = self._identity(end)
        self.next = end + 1
        self.settled_above.discard_below(self.next)
        while self.runs and self.runs[0].index + len(self.runs[0].payloads) <= self.next:
            self._forget(self.runs.popleft())
        return True

    def _forget(self, run: Entries) -> None:
        speaker = run.producer, run.epoch
        self.said[speaker].popleft()
        if not self.said[speaker]:
            del self.said[speaker]

    def refuse(self, speaker: Speaker, first: int, last: int) -> None:
        """These were not taken: they must be read again."""
        for start, end in self._indexes(speaker, first, last):
            self.unanswered -= end - start + 1
        self.has_refused = True

    def position_with(self, speaker: Speaker, also: Ranges) -> tuple[int, Identity | None]:
        """``next`` and ``anchor`` as they will be when ``also`` is settled too."""
        settled = RangeSet(self.settled_above)
        for first, last in also:
            for start, end in self._indexes(speaker, first, last):
                settled.add(start, end)
        end = settled.end_of_run(self.next)
        return (end + 1, self._identity(end)) if end >= self.next else (self.next, self.anchor)

    def _indexes(self, speaker: Speaker, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges of indexes that hold these messages."""
        for run in self.said.get(speaker, ()):
            start = max(first, run.first)
            end = min(last, run.first + len(run.payloads) - 1)
            if start <= end:
                yield run.index + start - run.first, run.index + end - run.first

    def _identity(self, index: int) -> Identity | None:
        for run in self.runs:
            if run.index <= index < run.index + len(run.payloads):
                return _identity_in(run, index)
        return None


def _identity_in(run: Entries, index: int) -> Identity:
    return Identity(run.producer, run.epoch, run.first + index - run.index)
