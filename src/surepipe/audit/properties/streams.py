"""P10 and P21: the indexes of a stream and the position of a reader only ever go forward, and what a store has
lost is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from surepipe.audit.properties.base import Property, Report
from surepipe.audit.properties.ledger import (
    DIGITS,
    INDEX_FAULTS,
    STREAM_FAULTS,
    Look,
    PipeHistories,
    PipeHistory,
)
from surepipe.audit.settings import facts_of, integers, mapping, number, pair, pairs
from surepipe.audit.trace import Kind, Row
from surepipe.core.claims import Atom
from surepipe.core.ranges import RangeSet


class _Stream:
    """The entries of one stream, and how far each reader has committed."""

    def __init__(self) -> None:
        self.next = 1
        self.indexes: list[int] = []
        self.rows: list[tuple[PipeHistory, int, int, int]] = []
        """(book, epoch, seq, count) of the entries from each of ``indexes`` on."""
        self.digests = bytearray()
        self.committed: dict[str, int] = {}
        self.may_go_back = False
        self.readers_may_go_back: set[str] = set()
        self.gone = RangeSet()
        """Indexes whose entries were taken out before they were read."""
        self.once = 0
        """How far it went before it went back: a reader may have been there."""

    def cut(self, index: int) -> None:
        """The store has forgotten everything from this index on."""
        while self.indexes and self.indexes[-1] >= index:
            self.indexes.pop()
            self.rows.pop()
        if self.indexes:
            book, epoch, seq, count = self.rows[-1]
            self.rows[-1] = (book, epoch, seq, min(count, index - self.indexes[-1]))
        del self.digests[(index - 1) * DIGITS :]
        self.gone.discard(index, self.gone.highest())
        self.next = index


class IndexDiscipline(Property):
    """P10: indexes are dense and grow, an index keeps its payload, and a reader commits only what is settled,
    never less than before. After a declared fault of a store each of these may go back once."""

    id: ClassVar[str] = "P10"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._streams: dict[str, _Stream] = {}

    def looks(self) -> Mapping[str, Look]:
        return {
            Kind.APPENDED: self._appended,
            Kind.COMMITTED: self._committed,
            Kind.FAULT: self._fault,
            Kind.TRIMMED: self._take_out,
        }

    def _stream(self, row: Row) -> tuple[str, _Stream, Mapping[str, object]]:
        facts = facts_of(row)
        name = facts.get("stream")
        chosen = name if isinstance(name, str) else row.pipe.partition("@")[0]
        return chosen, self._streams.setdefault(chosen, _Stream()), facts

    def _fault(self, row: Row) -> None:
        is_stream = any(fault in row.detail for fault in STREAM_FAULTS)
        is_index = any(fault in row.detail for fault in INDEX_FAULTS)
        self._take_out(row)
        for stream in self._streams.values():
            stream.may_go_back |= is_stream
            if is_stream or is_index:
                stream.readers_may_go_back |= stream.committed.keys()

    def _take_out(self, row: Row) -> None:
        """Note messages that are gone: nobody can commit them as settled, and whoever reads that far commits
        past them."""
        for name, gone in mapping(facts_of(row).get("gone")).items():
            self._streams.setdefault(name, _Stream()).gone.add(*pair(gone))

    def _appended(self, row: Row) -> None:
        name, stream, facts = self._stream(row)
        index = number(facts.get("index"))
        if index is None:
            index = stream.next
        if index < stream.next and not stream.may_go_back:
            self._repeated(row, name, stream, index)
            return
        if index > stream.next:
            self.fail(f"Stream {name} went from index {stream.next - 1} to {index}.", row)
        elif index < stream.next:
            stream.may_go_back = False
            end = stream.next
            stream.once = max(stream.once, end)
            stream.cut(index)
            # A reader that had been further passes what is written there now: to tell of that is another property.
            stream.gone.add(index, end - 1)
        self._note(row, stream, index)

    def _note(self, row: Row, stream: _Stream, index: int) -> None:
        stream.indexes.append(index)
        stream.rows.append((self.books.book, row.epoch, row.seq, row.count))
        stream.digests += b" " * ((index - 1) * DIGITS - len(stream.digests))
        text = row.digests.encode()
        length = row.count * DIGITS
        stream.digests += text if len(text) == length else b" " * length
        stream.next = index + row.count

    def _repeated(self, row: Row, name: str, stream: _Stream, index: int) -> None:
        start = (index - 1) * DIGITS
        known = bytes(stream.digests[start : start + row.count * DIGITS])
        if row.digests and known != row.digests.encode() and b" " not in known:
            self.fail(f"Index {index} of stream {name} held one payload and then another.", row)
        else:
            self.fail(f"Stream {name} gave index {index} once more.", row)

    def _committed(self, row: Row) -> None:
        name, stream, facts = self._stream(row)
        reader = str(facts.get("reader", row.pipe))
        bound = number(facts.get("next")) or row.seq
        if not bound:
            return
        before = stream.committed.get(reader, 1)
        if bound < before:
            if reader not in stream.readers_may_go_back:
                self.fail(f"Reader {reader} of stream {name} fell from {before} to {bound}.", row)
            stream.readers_may_go_back.discard(reader)
        index = self._first_open(stream, min(before, bound), bound)
        settings = self.books.settings
        comes_first = settings.commits_first or name in settings.before
        if index and not (comes_first and index < stream.next):
            self.fail(
                f"Reader {reader} of stream {name} committed {bound} while index {index} "
                "was not settled.",
                row,
            )
        stream.committed[reader] = bound

    def _first_open(self, stream: _Stream, first: int, bound: int) -> int:
        """The first index in first .. bound - 1 whose message has not come out; 0 for none."""
        if bound > stream.next and stream.indexes:
            return stream.next if bound > stream.once else 0
        at = max(0, bisect_right(stream.indexes, first) - 1)
        while at < len(stream.indexes) and stream.indexes[at] < bound:
            start = stream.indexes[at]
            book, epoch, seq, count = stream.rows[at]
            low, high = max(first, start), min(bound, start + count) - 1
            for part_seq, position, size in book.positions.find(
                epoch, seq + low - start, high - low + 1
            ):
                missing = book.settled.missing(position, position + size - 1) if position else ()
                for lowest, highest in missing:
                    at_index = start + part_seq - seq - position
                    left = stream.gone.missing(at_index + lowest, at_index + highest)
                    if left:
                        return left[0][0]
            at += 1
        return 0


_PASSED = frozenset({"Trimmed", "Diverged", "Reset", "StoreRollback"})
"""Notices whose ranges are of messages that are lost, or may be."""
_BACK = frozenset({"Diverged", "Reset"})
"""Notices of a reader that its stream went back: it may have passed what was written in place of what is gone, and
stops there, or reads all of it again. A sender, who tells of what it had confirmed, can't know of that."""
_HALTING = frozenset({"Trimmed", "Diverged", "Reset", "Stalled", "Fenced"})
"""After these a reader may have stopped."""
_GOING_BACK = frozenset({"store-rollback", "store-trim", "store-crash"})


@dataclass(slots=True)
class _Lost:
    """An entry that is gone because its store went back."""

    book: PipeHistory
    position: int
    index: int
    epoch: int
    later: list[int] = field(default_factory=list[int])
    """What was appended of its epoch since then: whoever does that learns what is gone."""


class _Held:
    """The contents of one stream by index, its losses, and what was told of both."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[PipeHistory, int, int]] = {}
        """(book, position, epoch)"""
        self.replacing: set[int] = set()
        """Indexes at which something else stood before the store went back."""
        self.is_back_told = False
        """A reader has told since then that it did."""
        self.lost: list[_Lost] = []
        self.named = RangeSet()
        """Indexes that a notice speaks of."""
        self.halted: dict[tuple[str, int], int] = {}
        """For each life of a node that reads it: at which index it may have stopped."""


class LossTold(Property):
    """P21: what a store lost is told. Whatever stood in a stream and never came out is named: by the reader, which
    finds the place empty or something else there, or by who writes on in the epoch and hears what is gone of it.

    Excused is what nobody could know: nothing more was written in the epoch, and no reader had been there. Judged
    in runs that tell gauges, where no-loss is not claimed because stores go back or are trimmed, and for no other
    reason.
    """

    id: ClassVar[str] = "P21"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._streams: dict[str, _Held] = {}
        self._carries: dict[str, str] = {}
        """The stream of each pipe."""
        self._named: dict[str, RangeSet] = {}
        self._started: dict[str, int] = {}

    def looks(self) -> Mapping[str, Look]:
        """Looks at calls of stores, faults of stores, and what is told of them."""
        if not self.books.settings.gauges:
            return {}
        return {
            Kind.APPENDED: self._appended,
            Kind.START: self._start,
            Kind.FAULT: self._fault,
            "notice": self._notice,
        }

    def _appended(self, row: Row) -> None:
        facts, book = facts_of(row), self.books.book
        name, index = str(facts.get("stream")), number(facts.get("index"))
        held = self._streams.setdefault(name, _Held())
        self._carries[row.pipe.partition("@")[0]] = name
        for seq, position, count in self.books.parts if index else ():
            start = (index or 0) + seq - row.seq
            for offset in range(count if position else 0):
                held.entries[start + offset] = (book, position + offset, row.epoch)
            for lost in held.lost if position else ():
                if (lost.book, lost.epoch) == (book, row.epoch):
                    lost.later += range(position, position + count)

    def _start(self, row: Row) -> None:
        self._started[row.node] = row.incarnation

    def _fault(self, row: Row) -> None:
        for name, end in integers(facts_of(row).get("ends")).items():
            held = self._streams.setdefault(name, _Held())
            held.is_back_told = held.is_back_told and end > max(held.entries, default=0)
            for index in [i for i in held.entries if i >= end]:
                held.replacing.add(index)
                book, position, epoch = held.entries.pop(index)
                if position in book.confirmed:
                    held.lost.append(_Lost(book, position, index, epoch))

    def _notice(self, row: Row) -> None:
        facts = facts_of(row)
        kind, ranges = facts.get("notice"), pairs(facts.get("ranges"))
        held = self._streams.setdefault(self._carries.get(row.pipe.partition("@")[0], ""), _Held())
        held.is_back_told |= kind in _BACK
        if row.epoch:
            book = self.books.of(row.pipe)
            named = self._named.setdefault(book.key, RangeSet())
            for first, last in ranges if kind in _PASSED else ():
                for _, position, count in book.positions.find(row.epoch, first, last - first + 1):
                    if position:
                        named.add(position, position + count - 1)
            return
        for first, last in ranges if kind in _PASSED else ():
            held.named.add(first, last)
        if kind in _HALTING:
            lowest = min((first for first, _ in ranges), default=0)
            held.halted[row.node, row.incarnation] = lowest

    def end(self) -> None:
        """Look for what is missing and was not named."""
        end = self.books.end
        if end is None or not end.quiescent:
            return
        for name, held in self._streams.items():
            stopped = [at for life, at in held.halted.items() if life in self._started.items()]
            behind = min(stopped, default=max(held.entries, default=0) + 1)
            excused = held.replacing if stopped and held.is_back_told else set[int]()
            for index, (book, position, _) in held.entries.items():
                if index < behind and index not in excused:
                    self._judge(name, held, index, book, position)
            for lost in held.lost:
                if any(position in lost.book.confirmed for position in lost.later):
                    self._judge(name, held, lost.index, lost.book, lost.position)

    def _judge(
        self, stream: str, held: _Held, index: int, book: PipeHistory, position: int
    ) -> None:
        is_named = index in held.named or position in self._named.get(book.key, RangeSet())
        if not is_named and self._is_judged(book) and position in self.books.owed(book):
            self.fail(
                f"Message #{position} stood at index {index} of stream {stream} and never came out, and nobody "
                "was told of it.",
                book=book,
                position=position,
            )

    def _is_judged(self, book: PipeHistory) -> bool:
        tolerated = self.books.claim_on(book.pipe).get(Atom.NO_LOSS)
        others = frozenset(self.books.settings.faults) - _GOING_BACK
        return tolerated is not None and "P2" not in book.wanted and others <= set(tolerated)
