"""Stored pages as Arrow columns: whole pages become buffers, and nothing is done for a single message.

The payloads of a page stay where they lie; only where each one begins is computed, by numpy, for all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from surepipe.errors import StoreReset
from surepipe.spark import arrow
from surepipe.spark.arrow import Array, RecordBatch, Schema
from surepipe.spark.payloads import Numbers, Payloads
from surepipe.storage.raw_pages import RawPage

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
class Cut:
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
class Named:
    """What all rows of one range share."""

    stream: str
    partition: int
    life: int


def cut_of(page: RawPage, start: int, stop: int) -> Cut:
    """The entries of a page from index ``start`` up to ``stop``."""
    skip = max(0, start - page.index)
    return Cut(page, skip, min(page.stop, stop) - page.index - skip)


def record_batch(cuts: Sequence[Cut], named: Named, schema: Schema) -> RecordBatch:
    """The entries of these cuts as rows, in order, with the columns that the schema names."""
    counts = np.array([cut.count for cut in cuts], dtype=np.int64)
    arrays = [_MAKERS[field.name](cuts, counts, named) for field in schema]
    return arrow.batch_of(arrays, schema)


def page_batch(cuts: Sequence[Cut], named: Named, schema: Schema) -> RecordBatch:
    """These cuts as rows."""
    ones = np.ones(len(cuts), dtype=np.int64)
    arrays = [_MAKERS[field.name](cuts, ones, named) for field in schema]
    return arrow.batch_of(arrays, schema)


# Columns.


def _stream(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del cuts
    return _repeated_texts([named.stream], np.array([int(counts.sum())]))


def _partition(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del cuts
    return arrow.array(np.full(int(counts.sum()), named.partition, dtype=np.int32))


def _life(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del cuts
    return arrow.array(np.full(int(counts.sum()), named.life, dtype=np.int64))


def _index(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del named
    return arrow.array(_counting([cut.index for cut in cuts], counts))


def _seq(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del named
    return arrow.array(_counting([cut.seq for cut in cuts], counts))


def _epoch(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del named
    return arrow.array(
        np.repeat(np.array([cut.page.epoch for cut in cuts], dtype=np.int64), counts)
    )


def _at(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del named
    times = np.repeat(np.array([cut.page.at_us for cut in cuts], dtype=np.int64), counts)
    return arrow.times(times)


def _producer(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del named
    return _repeated_texts([cut.page.producer for cut in cuts], counts)


def _nothing(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del cuts, named
    return arrow.nulls(int(counts.sum()), type=arrow.BINARY)


def _payload(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del counts, named
    return Payloads.joined([_payloads(cut) for cut in cuts]).column()


def _count(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del counts, named
    return arrow.array(np.array([cut.count for cut in cuts], dtype=np.int32))


def _lengths(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del counts, named
    return Payloads.of([_payloads(cut).lengths(LENGTH_BYTES) for cut in cuts]).column()


def _body(cuts: Sequence[Cut], counts: Numbers, named: Named) -> Array:
    del counts, named
    return Payloads.of([_payloads(cut).body for cut in cuts]).column()


_MAKERS: dict[str, Callable[[Sequence[Cut], Numbers, Named], Array]] = {
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
    return arrow.array_of_buffers(arrow.STRING, len(lengths), offsets, body)


def _payloads(cut: Cut) -> Payloads:
    """The payloads of a cut, where they lie."""
    begins = _begins(cut.page)[cut.skip : cut.skip + cut.count + 1]
    return Payloads(begins, memoryview(cut.page.body)[cut.page.start :])


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
