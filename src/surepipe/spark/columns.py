"""Stored pages as Arrow columns: whole pages become buffers, and nothing is done for a single message.

The payloads of a page stay where they lie; only where each one begins is computed, by numpy, for all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from surepipe.errors import StoreReset
from surepipe.storage.pages import Packed, RawPage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# The border to pyarrow, which has no types of its own: the parts that are used, typed.


class Array(Protocol):
    """A column."""

    @property
    def null_count(self) -> int: ...
    def __len__(self) -> int: ...
    def to_pylist(self) -> list[object]: ...
    def equals(self, other: Array) -> bool: ...
    def slice(self, offset: int, length: int) -> Array: ...
    def filter(self, mask: Array) -> Array: ...
    def is_valid(self) -> Array: ...
    def take(self, rows: Array) -> Array: ...


class Field(Protocol):
    """The name and the type of a column."""

    @property
    def name(self) -> str: ...


class Schema(Protocol):
    """The columns of record batches, in order."""

    @property
    def names(self) -> list[str]: ...
    def field(self, name: str) -> Field: ...
    def __iter__(self) -> Iterator[Field]: ...


class RecordBatch(Protocol):
    """Rows as columns."""

    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> Schema: ...
    def column(self, name: str | int) -> Array: ...
    def __getitem__(self, name: str) -> Array: ...
    def slice(self, offset: int, length: int) -> RecordBatch: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def validate(self, *, full: bool = False) -> None: ...


_arrow: Any = import_module("pyarrow")
_compute: Any = import_module("pyarrow.compute")

array: Callable[..., Array] = _arrow.array
"""A column of a numpy array."""
nulls: Callable[..., Array] = _arrow.nulls
TIME_UTC: object = _arrow.timestamp("us", tz="UTC")
BINARY: object = _arrow.binary()
STRING: object = _arrow.string()
INT32: object = _arrow.int32()
INT64: object = _arrow.int64()
INTEGER: object = _arrow.int64()
LARGE_BINARY: object = _arrow.large_binary()
BINARIES: object = _arrow.list_(_arrow.binary())
FLAGS: object = _arrow.list_(_arrow.bool_())


def array_of_buffers(kind: object, count: int, offsets: object, body: object) -> Array:
    """A column of texts or bytes without nulls: where each begins (int32, one more than rows), and all of them."""
    buffers = [None, _arrow.py_buffer(offsets), _arrow.py_buffer(body)]
    made: Array = _arrow.Array.from_buffers(kind, count, buffers)
    return made


def times(microseconds: object) -> Array:
    """A column of times of a numpy array of microseconds since 1970."""
    made: Array = _arrow.array(microseconds, type=_arrow.int64()).cast(TIME_UTC)
    return made


def numbers(column: Array) -> NDArray[np.int64]:
    """A column of whole numbers without nulls."""
    border: Any = column
    found: NDArray[np.int64] = border.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def flags(column: Array) -> NDArray[np.bool_]:
    """A column of truth values without nulls."""
    border: Any = column
    found: NDArray[np.bool_] = border.to_numpy(zero_copy_only=False)
    return found


def numbered(column: Array) -> tuple[NDArray[np.int64], list[object]]:
    """A column without nulls as numbers of its values, and the values."""
    border: Any = column
    known = border.dictionary_encode()
    return numbers(known.indices), known.dictionary.to_pylist()


def bytes_and_begins(column: Array) -> tuple[NDArray[np.int64], memoryview]:
    """A column of bytes without nulls: where each value begins in a buffer (and the last one ends), the buffer."""
    border: Any = column
    wide = border.cast(LARGE_BINARY)  # Spark may give either width
    if not len(wide):
        return np.zeros(1, np.int64), memoryview(b"")
    _, offsets, body = wide.buffers()
    begins = np.frombuffer(offsets, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return begins, memoryview(b"") if body is None else memoryview(body)


def plus(column: Array, more: NDArray[np.int64]) -> Array:
    """A column of whole numbers, each with one of these added; null stays null."""
    made: Array = _compute.add(column, _arrow.array(more))
    return made


def only(column: Array, wanted: NDArray[np.bool_]) -> Array:
    """A column without nulls, with null for what is not wanted."""
    if wanted.all():
        return column
    border: Any = column
    bits = _arrow.py_buffer(np.packbits(wanted, bitorder="little"))
    _, *rest = border.buffers()
    made: Array = _arrow.Array.from_buffers(border.type, len(column), [bits, *rest])
    return made


def batch_of_columns(columns: Mapping[str, Array]) -> RecordBatch:
    """Named columns as a record batch."""
    made: RecordBatch = _arrow.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return made


def batch_of(arrays: Sequence[Array], schema: Schema) -> RecordBatch:
    """Columns as a record batch."""
    made: RecordBatch = _arrow.RecordBatch.from_arrays(arrays, schema=schema)
    return made


def batch_of_rows(rows: Iterable[object], schema: Schema) -> RecordBatch:
    """Rows (mappings) as a record batch."""
    made: RecordBatch = _arrow.RecordBatch.from_pylist(list(rows), schema=schema)
    return made


def schema_of(fields: Iterable[tuple[str, object] | Field]) -> Schema:
    """A schema of names and types."""
    made: Schema = _arrow.schema(list(fields))
    return made


# Functions of record batches on DataFrames: the border to Spark's Arrow calls, whose types are open.


Batches: TypeAlias = Iterator[RecordBatch]


def mapped(frame: DataFrame, function: Callable[[Batches], Batches], schema: str) -> DataFrame:
    """The frame that a function makes of each partition: its record batches in, others out."""
    border: Any = frame
    made: DataFrame = border.mapInArrow(function, schema)
    return made


def collected(frame: DataFrame) -> list[RecordBatch]:
    """Run the frame, and bring its rows to the driver. Raises what Spark raises."""
    border: Any = frame
    batches: list[RecordBatch] = border.toArrow().to_batches()
    return batches


# Payloads as numpy sees them: where each one begins in a buffer. The sink makes pages of a store from them.


Numbers = NDArray[np.int64]


class BufferPayloads(Packed):
    """Payload n lies in the buffer from ``begins[n]`` up to ``begins[n + 1]``."""

    __slots__ = ("_buffer", "begins")

    def __init__(self, begins: Numbers, buffer: memoryview) -> None:
        self.begins = begins
        self._buffer = buffer

    @classmethod
    def of(cls, payloads: Sequence[bytes | memoryview]) -> BufferPayloads:
        """Payloads that are objects, or are packed already."""
        if isinstance(payloads, BufferPayloads):
            return payloads
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        return cls.of_lengths(lengths, memoryview(b"".join(payloads)))

    @classmethod
    def of_lengths(cls, lengths: Numbers, buffer: memoryview) -> BufferPayloads:
        """Payloads of these lengths, one after the other from the start of the buffer."""
        return cls(np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))), buffer)

    @classmethod
    def of_column(cls, column: Array) -> BufferPayloads:
        """The values of a column of bytes without nulls."""
        return cls(*bytes_and_begins(column))

    @classmethod
    def joined(cls, parts: Sequence[BufferPayloads]) -> BufferPayloads:
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(one.begins) for one in parts)])
        return cls.of_lengths(lengths, memoryview(b"".join(one.body for one in parts)))

    def __len__(self) -> int:
        return len(self.begins) - 1

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> BufferPayloads: ...
    def __getitem__(self, at: int | slice) -> bytes | BufferPayloads:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            assert step == 1, "a part of a buffer is one piece"
            return BufferPayloads(self.begins[start : max(start, stop) + 1], self._buffer)
        place = range(len(self))[at]
        return self.view(place).tobytes()

    def __iter__(self) -> Iterator[bytes]:
        whole, begins = self.body.tobytes(), (self.begins - self.begins[0]).tolist()
        return (whole[start:stop] for start, stop in pairwise(begins))

    def view(self, at: int) -> memoryview:
        """One payload where it lies."""
        return self._buffer[self.begins[at] : self.begins[at + 1]]

    def column(self) -> Array:
        """All of them as a column of Arrow."""
        begins = (self.begins - self.begins[0]).astype(np.int32)
        return array_of_buffers(BINARY, len(self), begins, self.body)

    @property
    def body(self) -> memoryview:
        """All payloads, one after the other."""
        return self._buffer[self.begins[0] : self.begins[-1]]

    def lengths(self, width: int) -> bytes:
        """The length of each, as unsigned little-endian numbers of so many bytes."""
        return np.diff(self.begins).astype(f"<u{width}").tobytes()

    def extremes(self) -> tuple[int, int]:
        """The length of the shortest and of the longest."""
        lengths = np.diff(self.begins)
        return int(lengths.min()), int(lengths.max())

    def fitting(self, start: int, limit: int) -> int:
        """Up to where payloads from the ``start``-th on fit into so many bytes; one always does."""
        within = int(np.searchsorted(self.begins, int(self.begins[start]) + limit, "right"))
        return max(start + 1, within - 1)


TYPES = {
    "stream": "string",
    "partition": "int",
    "index": "bigint",
    "producer": "string",
    "epoch": "bigint",
    "seq": "bigint",
    "key": "binary",
    "payload": "binary",
    "at": "timestamp",
    "life": "bigint",
}
"""What the source gives, and Spark's name of each type. ``key`` is null: a stream keeps none beside the payload.
``life`` is what the indexes count in: it changes when the stream is made anew or went back."""
COLUMNS = tuple(TYPES)
LENGTH_BYTES = 4
LENGTH = f"<u{LENGTH_BYTES}"
"""A length in a page that is a row, as numpy calls it."""
PAGE_TYPES = {
    **{name: kind for name, kind in TYPES.items() if name not in {"key", "payload"}},
    "count": "int",
    "lengths": "binary",
    "body": "binary",
    "made_of": "binary",
}
"""The same where a row is a page: ``count`` entries, of which ``index`` and ``seq`` are those of the first.

The payloads lie one after the other in ``body``, and ``lengths`` are theirs, each an unsigned little-endian number
of four bytes. ``made_of`` has such a number for each payload: which entry it was made of, the first one being 0.
It is null where each entry gave one, as it is in what is read.
"""


@dataclass(frozen=True, slots=True)
class PageCut:
    """The part of a page that is wanted: its entries from ``skip`` on, ``count`` of them."""

    page: RawPage
    skip: int
    count: int

    @property
    def index(self) -> int:
        """The index of its first entry."""
        return self.page.index + self.skip

    @property
    def seq(self) -> int:
        """The seq of its first entry."""
        return self.page.first + self.skip


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """What all rows of one range share."""

    stream: str
    partition: int
    life: int


def cut_of(page: RawPage, start: int, stop: int) -> PageCut:
    """The entries of a page from index ``start`` up to ``stop``."""
    skip = max(0, start - page.index)
    return PageCut(page, skip, min(page.stop, stop) - page.index - skip)


def record_batch(cuts: Sequence[PageCut], named: RangeFacts, schema: Schema) -> RecordBatch:
    """The entries of these cuts as rows, in order, with the columns that the schema names."""
    counts = np.array([cut.count for cut in cuts], dtype=np.int64)
    arrays = [_MAKERS[field.name](cuts, counts, named) for field in schema]
    return batch_of(arrays, schema)


def page_batch(cuts: Sequence[PageCut], named: RangeFacts, schema: Schema) -> RecordBatch:
    """These cuts as rows."""
    ones = np.ones(len(cuts), dtype=np.int64)
    arrays = [_MAKERS[field.name](cuts, ones, named) for field in schema]
    return batch_of(arrays, schema)


# Columns.


def _stream(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del cuts
    return _repeated_texts([named.stream], np.array([int(counts.sum())]))


def _partition(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del cuts
    return array(np.full(int(counts.sum()), named.partition, dtype=np.int32))


def _life(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del cuts
    return array(np.full(int(counts.sum()), named.life, dtype=np.int64))


def _index(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del named
    return array(_counting([cut.index for cut in cuts], counts))


def _seq(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del named
    return array(_counting([cut.seq for cut in cuts], counts))


def _epoch(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del named
    return array(np.repeat(np.array([cut.page.epoch for cut in cuts], dtype=np.int64), counts))


def _at(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del named
    appended = np.repeat(np.array([cut.page.at_us for cut in cuts], dtype=np.int64), counts)
    return times(appended)


def _producer(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del named
    return _repeated_texts([cut.page.producer for cut in cuts], counts)


def _nothing(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del cuts, named
    return nulls(int(counts.sum()), type=BINARY)


def _payload(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del counts, named
    return BufferPayloads.joined([_payloads(cut) for cut in cuts]).column()


def _count(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del counts, named
    return array(np.array([cut.count for cut in cuts], dtype=np.int32))


def _lengths(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del counts, named
    return BufferPayloads.of([_payloads(cut).lengths(LENGTH_BYTES) for cut in cuts]).column()


def _body(cuts: Sequence[PageCut], counts: Numbers, named: RangeFacts) -> Array:
    del counts, named
    return BufferPayloads.of([_payloads(cut).body for cut in cuts]).column()


_MAKERS: dict[str, Callable[[Sequence[PageCut], Numbers, RangeFacts], Array]] = {
    "stream": _stream,
    "partition": _partition,
    "index": _index,
    "producer": _producer,
    "epoch": _epoch,
    "seq": _seq,
    "key": _nothing,
    "payload": _payload,
    "at": _at,
    "life": _life,
    "count": _count,
    "lengths": _lengths,
    "body": _body,
    "made_of": _nothing,
}


# Their parts.


def _counting(firsts: Sequence[int], counts: Numbers) -> Numbers:
    """first, first + 1 ... for each run."""
    ends = np.cumsum(counts)
    shifts: Numbers = np.array(firsts, dtype=np.int64) - (ends - counts)
    numbers: Numbers = np.arange(int(ends[-1]), dtype=np.int64) + np.repeat(shifts, counts)
    return numbers


def _repeated_texts(texts: Sequence[str], counts: Numbers) -> Array:
    """Each text as often as it is counted."""
    encoded = [text.encode() for text in texts]
    lengths = np.repeat(np.array([len(text) for text in encoded], dtype=np.int64), counts)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    body = b"".join(text * int(count) for text, count in zip(encoded, counts, strict=True))
    return array_of_buffers(STRING, len(lengths), offsets, body)


def _payloads(cut: PageCut) -> BufferPayloads:
    """The payloads of a cut, where they lie."""
    begins = _begins(cut.page)[cut.skip : cut.skip + cut.count + 1]
    return BufferPayloads(begins, memoryview(cut.page.body)[cut.page.start :])


def _begins(page: RawPage) -> Numbers:
    """Where each payload of a page begins, and where the last one ends, from the first one on."""
    begins = np.zeros(page.count + 1, dtype=np.int64)
    if page.width:
        lengths = np.frombuffer(page.lengths, dtype=f"<u{page.width}", count=page.count)
        np.cumsum(lengths, out=begins[1:])
    else:
        begins[:] = np.arange(page.count + 1) * (page.payload_bytes // page.count)
    if begins[-1] != page.payload_bytes:
        raise StoreReset(
            f"the page at index {page.index} says {begins[-1]} bytes of payload and holds {page.payload_bytes}: "
            "it is damaged; restore the store from a copy"
        )
    return begins
