"""P10: the indexes of a stream and the position of a reader only ever go forward."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import ClassVar

from surepipe.simulation.properties.base import Property, Report
from surepipe.simulation.properties.books import (
    DIGITS,
    INDEX_FAULTS,
    STREAM_FAULTS,
    Book,
    Books,
    Look,
)
from surepipe.simulation.properties.settings import facts_of, number
from surepipe.simulation.trace import Kind, Row


class _Stream:
    """The entries of one stream, and how far each reader has committed."""

    def __init__(self) -> None:
        self.next = 1
        self.indexes: list[int] = []
        self.rows: list[tuple[Book, int, int, int]] = []
        """(book, epoch, seq, count) of the entries from each of ``indexes`` on."""
        self.digests = bytearray()
        self.committed: dict[str, int] = {}
        self.may_go_back = False
        self.readers_may_go_back: set[str] = set()

    def cut(self, index: int) -> None:
        """The store has forgotten everything from this index on."""
        while self.indexes and self.indexes[-1] >= index:
            self.indexes.pop()
            self.rows.pop()
        if self.indexes:
            book, epoch, seq, count = self.rows[-1]
            self.rows[-1] = (book, epoch, seq, min(count, index - self.indexes[-1]))
        del self.digests[(index - 1) * DIGITS :]
        self.next = index


class IndexDiscipline(Property):
    """P10: indexes are dense and grow, an index keeps its payload, and a reader commits only what is settled,
    never less than before. After a declared fault of a store each of these may go back once."""

    id: ClassVar[str] = "P10"

    def __init__(self, books: Books, report: Report) -> None:
        super().__init__(books, report)
        self._streams: dict[str, _Stream] = {}

    def looks(self) -> Mapping[str, Look]:
        """What stores do."""
        return {
            Kind.APPENDED: self._appended,
            Kind.COMMITTED: self._committed,
            Kind.FAULT: self._fault,
        }

    def _stream(self, row: Row) -> tuple[str, _Stream, Mapping[str, object]]:
        facts = facts_of(row)
        name = facts.get("stream")
        chosen = name if isinstance(name, str) else row.pipe.partition("@")[0]
        return chosen, self._streams.setdefault(chosen, _Stream()), facts

    def _fault(self, row: Row) -> None:
        is_stream = any(fault in row.detail for fault in STREAM_FAULTS)
        is_index = any(fault in row.detail for fault in INDEX_FAULTS)
        for stream in self._streams.values():
            stream.may_go_back |= is_stream
            if is_stream or is_index:
                stream.readers_may_go_back |= stream.committed.keys()

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
            stream.cut(index)
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
        if bound < before and reader not in stream.readers_may_go_back:
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
            return stream.next
        at = max(0, bisect_right(stream.indexes, first) - 1)
        while at < len(stream.indexes) and stream.indexes[at] < bound:
            start = stream.indexes[at]
            book, epoch, seq, count = stream.rows[at]
            low, high = max(first, start), min(bound, start + count) - 1
            for part_seq, position, size in book.positions.find(
                epoch, seq + low - start, high - low + 1
            ):
                missing = book.settled.missing(position, position + size - 1) if position else ()
                if missing:
                    return start + part_seq - seq + missing[0][0] - position
            at += 1
        return 0
