"""A Python stage over rows that are pages: Spark moves a row for each page, and the function sees messages.

    pages = spark.readStream.format("surepipe").options(**options, rows="pages").load()
    priced = pages.mapInArrow(over_messages(price), PAGES)
    priced.writeStream.format("surepipe").options(**place.options(), stream="prices", rows="pages").start()

The function takes record batches of messages, with the columns of the source, and gives such for the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surepipe.spark import columns as arrow
from surepipe.spark.columns import (
    BINARY,
    COLUMNS,
    INT32,
    INT64,
    LENGTH,
    LENGTH_BYTES,
    PAGE_TYPES,
    STRING,
    Array,
    Batches,
    BufferPayloads,
    Numbers,
    RecordBatch,
    batch_of_rows,
)
from surepipe.spark.sink import PAGE_NEEDED, OriginRows, PageRow, page_rows, runs_of
from surepipe.storage.pages import cuts

MADE = (*PAGE_NEEDED, "made_of")
PAGES = ", ".join(f"`{name}` {PAGE_TYPES[name]}" for name in MADE)
"""The schema of pages that were made, as Spark reads it."""
_KINDS = {"string": STRING, "int": INT32, "bigint": INT64, "binary": BINARY}
SCHEMA = arrow.schema_of([(name, _KINDS[PAGE_TYPES[name]]) for name in MADE])
GROUP_BYTES = 4 * 1024 * 1024
"""Pages of so many bytes become one batch of messages."""


def over_messages(
    function: Callable[[Batches], Batches], columns: Sequence[str] = COLUMNS
) -> Callable[[Batches], Batches]:
    """A function of messages as one of pages, for ``mapInArrow`` with the schema ``PAGES``.

    It is given those of ``columns`` that its pages have. What it gives keeps stream, partition, index and life, in
    order: several rows of one index are several outputs, and a null payload says that there is none.
    """

    def work(pages: Batches) -> Batches:
        for made in function(messages_of(pages, columns)):
            yield pages_of(made)

    return work


def messages_of(pages: Batches, columns: Sequence[str] = COLUMNS) -> Iterator[RecordBatch]:
    """The messages of pages, in batches of about 4 MiB. An entry of which nothing was made has a null payload."""
    for batch in pages:
        for start, stop in cuts(BufferPayloads.of_column(batch.column("body")), GROUP_BYTES):
            yield _messages(batch.slice(start, stop - start), columns)


def _messages(pages: RecordBatch, columns: Sequence[str]) -> RecordBatch:
    found = [_Messages.of(page) for page in page_rows(pages)]
    entries = np.concatenate([one.entries for one in found])
    rows = arrow.array(np.repeat(np.arange(len(found)), [len(one.entries) for one in found]))
    made: dict[str, Array] = {}
    for name in columns:
        if name == "payload":
            made[name] = _payload_column(pages, found)
        elif name == "key":
            made[name] = arrow.nulls(len(entries), type=arrow.BINARY)
        elif name in pages.schema.names:
            whole = pages.column(name).take(rows)
            made[name] = arrow.plus(whole, entries) if name in {"index", "seq"} else whole
    return arrow.batch_of_columns(made)


@dataclass(frozen=True, slots=True)
class _Messages:
    """The messages of a page: which entry of it each is of, whether it is there, and its length or 0."""

    entries: Numbers
    is_there: NDArray[np.bool_]
    lengths: Numbers

    @classmethod
    def of(cls, page: PageRow) -> _Messages:
        """An entry of which nothing was made is a message, too."""
        each = np.bincount(page.made_of, minlength=page.count)
        rows = np.maximum(each, 1)
        is_there = np.repeat(each > 0, rows)
        lengths = np.zeros(len(is_there), np.int64)
        lengths[is_there] = page.lengths
        return cls(np.repeat(np.arange(page.count), rows), is_there, lengths)


def _payload_column(pages: RecordBatch, found: Sequence[_Messages]) -> Array:
    lengths = np.concatenate([one.lengths for one in found])
    bodies = BufferPayloads.of_column(pages.column("body")).body
    whole = BufferPayloads.of_lengths(lengths, bodies).column()
    return arrow.only(whole, np.concatenate([one.is_there for one in found]))


def pages_of(messages: RecordBatch) -> RecordBatch:
    """Messages for the sink as pages, one for each origin in turn. Raises MisuseError as the sink does."""
    return batch_of_rows([_page(rows) for rows in runs_of(messages)], SCHEMA)


def _page(rows: OriginRows) -> dict[str, object]:
    first = int(rows.indexes[0])
    rows.check_order(first)
    count = int(rows.indexes[-1]) - first + 1
    made_of = rows.made_of - first
    is_plain = np.array_equal(made_of, np.arange(count))
    return {
        "stream": rows.origin.stream,
        "partition": rows.origin.partition,
        "index": first,
        "life": rows.origin.life,
        "count": count,
        "lengths": rows.payloads.lengths(LENGTH_BYTES),
        "body": rows.payloads.body,
        "made_of": None if is_plain else made_of.astype(LENGTH).tobytes(),
    }
