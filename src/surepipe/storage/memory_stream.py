"""One stream in memory: pages of entries, and what is remembered of its producers. No locks: the store has one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from surepipe.store_api import (
    Absent,
    Ahead,
    AppendOutcome,
    AppendRun,
    Batch,
    Empty,
    Entries,
    Fenced,
    Full,
    Gap,
    Identity,
    Opened,
    ReadFrom,
    Reset,
    Retention,
    Stored,
    Trimmed,
)


@dataclass(frozen=True, slots=True)
class Page:
    """What one append stored, or what a trim left of it."""

    entries: Entries
    size_bytes: int
    stored_us: int

    @property
    def index(self) -> int:
        """The index of the first entry."""
        return self.entries.index

    @property
    def end(self) -> int:
        """The index after the last entry."""
        return self.entries.index + len(self.entries.payloads)


def _part(entries: Entries, start: int, stop: int | None = None) -> Entries:
    return replace(
        entries,
        index=entries.index + start,
        first=entries.first + start,
        payloads=entries.payloads[start:stop],
    )


@dataclass(slots=True)
class MemoryStream:
    """The entries from ``earliest`` to ``next - 1``."""

    incarnation: int
    partitions: int
    retention: Retention
    pages: list[Page] = field(default_factory=list[Page])
    earliest: int = 1
    next: int = 1
    size_bytes: int = 0
    producers: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def copy(self) -> MemoryStream:
        """An independent copy; pages never change, so they are shared."""
        return replace(self, pages=list(self.pages), producers=dict(self.producers))

    # Writing.

    def open_producer(self, producer: str, epoch: int, base: int) -> Opened | Fenced:
        """Take the epoch, and say what was stored of it."""
        known_epoch, last = self.producers.get(producer, (epoch, base - 1))
        if epoch < known_epoch:
            return Fenced(known_epoch)
        if epoch > known_epoch:
            last = 0
        lost = (last + 1, base - 1) if last < base - 1 else None
        last = max(last, base - 1)
        self.producers[producer] = (epoch, last)
        return Opened(self.incarnation, last, lost)

    def append(
        self, run: AppendRun, now_us: int, unread: int
    ) -> tuple[AppendOutcome, Callable[[], None] | None]:
        """Append what is new of the run; also returns how to take it back (None: nothing to take back).

        ``unread`` is the lowest index that some reader has not read. Trimming at the bound is not taken back:
        what it removes could have gone at any time.
        """
        epoch, last = self.producers.get(run.producer, (run.epoch, 0))
        if run.epoch < epoch:
            return Fenced(epoch), None
        if run.epoch > epoch:
            last = 0
        if run.first > last + 1:
            return Gap(last + 1), None
        new = tuple(run.payloads[last + 1 - run.first :])
        if not new:
            return Stored(last, 0, None), None
        size = sum(map(len, new))
        if bound := self._make_room(size, now_us, unread):
            return Full(bound), None
        return self._store(run, last, new, size, now_us)

    def _store(
        self, run: AppendRun, last: int, new: tuple[bytes, ...], size: int, now_us: int
    ) -> tuple[Stored, Callable[[], None]]:
        remembered, earliest = self.producers.get(run.producer), self.earliest
        removed = self._removed_by_others()
        index = self.next
        entries = Entries(index, run.producer, run.epoch, last + 1, new)
        self.pages.append(Page(entries, size, now_us))
        self.next += len(new)
        self.size_bytes += size
        self.producers[run.producer] = (run.epoch, last + len(new))
        self.earliest = self.pages[0].index  # so what was removed in front of it is told once

        def take_back() -> None:
            self.pages.pop()
            self.earliest = earliest
            self.next -= len(new)
            self.size_bytes -= size
            if remembered is None:
                del self.producers[run.producer]
            else:
                self.producers[run.producer] = remembered

        return Stored(last + len(new), len(new), index, removed), take_back

    def _removed_by_others(self) -> tuple[int, int] | None:
        """The first and last index of what is missing at either end; who reads in between meets a hole there."""
        first = self.pages[0].index if self.pages else self.next
        last = self.pages[-1].end if self.pages else self.earliest
        if (first, last) == (self.earliest, self.next) or self.earliest == self.next:
            return None
        gone_first = self.earliest if first > self.earliest else last
        return gone_first, self.next - 1 if last < self.next else first - 1

    def _make_room(self, size: int, now_us: int, unread: int) -> str:
        """Let old pages go; returns the bound that would be broken all the same."""
        keep = self.next if self.retention.force else unread - 1
        while self.pages and self.pages[0].end <= keep and self._broken(size, now_us, 0):
            self.trim(self.pages[0].end)
        # Read pages that stay as anchors are no reason to refuse new messages for ever.
        return "" if self.retention.force else self._broken(size, now_us, unread)

    def _broken(self, size: int, now_us: int, start: int) -> str:
        """The bound that the entries from ``start`` on break together with ``size`` new bytes."""
        limit, age = self.retention.max_bytes, self.retention.max_age_us
        if limit is not None and self.size_bytes + size > limit:
            unread = (page.size_bytes for page in self.pages if page.end > start)
            kept = self.size_bytes if start <= self.earliest else sum(unread)
            if kept and kept + size > limit:
                return f"max_bytes={limit}"
        if age is not None:
            oldest = max(0, self._page_of(start))
            if start < self.next and self.pages and now_us - self.pages[oldest].stored_us > age:
                return f"max_age_us={age}"
        return ""

    def trim(self, before: int) -> None:
        """Forget the entries below ``before``, cutting a page in two where it falls."""
        before = min(before, self.next)
        whole = 0
        while whole < len(self.pages) and self.pages[whole].end <= before:
            self.size_bytes -= self.pages[whole].size_bytes
            whole += 1
        del self.pages[:whole]
        if self.pages and self.pages[0].index < before:
            page = self.pages[0]
            rest = _part(page.entries, before - page.index)
            left = Page(rest, sum(map(len, rest.payloads)), page.stored_us)
            self.size_bytes -= page.size_bytes - left.size_bytes
            self.pages[0] = left
        self.earliest = max(self.earliest, before)

    def remove(self, first: int, last: int) -> None:
        """Entries are gone, and nothing else says so: somebody else took them out."""
        kept: list[Page] = []
        for page in self.pages:
            for start, stop in ((page.index, min(page.end, first)), (last + 1, page.end)):
                if (start := max(start, page.index)) < stop:
                    rest = _part(page.entries, start - page.index, stop - page.index)
                    kept.append(Page(rest, sum(map(len, rest.payloads)), page.stored_us))
        self.pages = kept
        self.size_bytes = sum(page.size_bytes for page in kept)

    # Reading.

    def read(self, request: ReadFrom) -> Batch | Empty | Trimmed | Reset | Ahead:
        """Entries from an index on."""
        if request.incarnation is not None and request.incarnation != self.incarnation:
            return Reset(self.incarnation)
        if request.index < self.earliest:
            return Trimmed(self.earliest)
        if request.index > self.next:
            return Ahead(self.next)
        if request.index == self.next:
            return Empty(self.next)
        if (place := self._page_of(request.index)) < 0 or self.pages[place].end <= request.index:
            behind = self.pages[place + 1 :]
            return Trimmed(behind[0].index if behind else self.next)
        entries = self._cut(request.index, request.max_messages, request.max_bytes)
        last = entries[-1]
        return Batch(tuple(entries), last.index + len(last.payloads), self.next)

    def _cut(self, index: int, messages: int, size: int) -> list[Entries]:
        """The longest run of entries within both bounds, one at least."""
        found: list[Entries] = []
        for page in self.pages[self._page_of(index) :]:
            if page.index > index:
                break  # a hole: it is for who reads there
            start = index - page.index
            wanted = _part(page.entries, start, start + messages)
            count = _fitting(wanted.payloads, size) or (0 if found else 1)
            if count:
                found.append(_part(wanted, 0, count))
            messages -= count
            size -= sum(map(len, wanted.payloads[:count]))
            index = page.end
            if count < len(page.entries.payloads) - start or not messages:
                break
        return found

    def _page_of(self, index: int) -> int:
        return bisect_right(self.pages, index, key=lambda page: page.index) - 1

    def identify(self, index: int) -> Identity | Trimmed | Absent:
        """Who wrote the entry at an index."""
        if not 1 <= index < self.next:
            return Absent()
        if index < self.earliest:
            return Trimmed(self.earliest)
        if (place := self._page_of(index)) < 0 or self.pages[place].end <= index:
            return Trimmed(index + 1)  # somebody else has removed it
        entries = self.pages[place].entries
        return Identity(entries.producer, entries.epoch, entries.first + index - entries.index)


def _fitting(payloads: Sequence[bytes], size: int) -> int:
    """How many of the first payloads fit into so many bytes."""
    for count, payload in enumerate(payloads):
        size -= len(payload)
        if size < 0:
            return count
    return len(payloads)
