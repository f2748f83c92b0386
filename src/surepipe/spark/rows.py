"""Rows that reach the sink, as runs of one origin: numpy looks at the columns, nothing is asked of one message.

Payloads stay where Arrow has them; a store cuts its pages out of there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, cast

import numpy as np

from surepipe.errors import MisuseError
from surepipe.spark import arrow
from surepipe.spark.arrow import RecordBatch
from surepipe.spark.columns import LENGTH
from surepipe.spark.payloads import Numbers, Payloads
from surepipe.spark.sink import Origin

NEEDED = ("stream", "partition", "index", "life", "payload")
"""The columns that rows for the sink have."""
PAGE_NEEDED = ("stream", "partition", "index", "life", "count", "lengths", "body")
"""Those of rows that are pages; ``made_of`` may be there, too (``columns.PAGE_TYPES``)."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one origin, one after the other: the index of each, and those that have a payload."""

    origin: Origin
    indexes: Numbers
    made_of: Numbers
    payloads: Payloads

    def check_order(self, last: int) -> None:
        """Raises MisuseError unless each entry repeats or follows the one before it, at first ``last``."""
        steps = np.diff(self.indexes, prepend=last)
        wrong = np.flatnonzero((steps < 0) | (steps > 1))
        if not len(wrong):
            return
        at = int(wrong[0])
        raise MisuseError(
            f"a row of entry {self.indexes[at]} of {self.origin.key} follows one of entry "
            f"{self.indexes[at - 1] if at else last}: rows reach the sink in order and without a gap; sort by "
            "stream and index after a shuffle, and set the payload to null instead of removing a row"
        )


def runs_of(batch: RecordBatch) -> Iterator[Rows]:
    """The rows of a batch in order, cut where the origin changes.

    Raises MisuseError for a row that does not say what it was made of.
    """
    _check_given(batch, NEEDED[:-1])
    streams, names = arrow.numbered(batch.column("stream"))
    columns = [streams, *(arrow.numbers(batch.column(name)) for name in ("partition", "life"))]
    indexes = arrow.numbers(batch.column("index"))
    payloads = batch.column("payload")
    for start, stop in pairwise(_cuts(columns, batch.num_rows)):
        stream, partition, life = (int(column[start]) for column in columns)
        made_of, found = _made(indexes[start:stop], payloads.slice(start, stop - start))
        origin = Origin(cast("str", names[stream]), partition, life)
        yield Rows(origin, indexes[start:stop], made_of, found)


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row that is a page: the entries ``first`` and ``count`` - 1 more, and what was made of which of them."""

    first: int
    count: int
    lengths: Numbers
    made_of: Numbers
    body: memoryview

    @property
    def payloads(self) -> Payloads:
        """What was made, in order."""
        return Payloads.of_lengths(self.lengths, self.body)

    def check(self) -> None:
        """Raises MisuseError for a page whose columns do not fit each other."""
        size, made_of = int(self.lengths.sum()), self.made_of
        is_whole = len(made_of) == len(self.lengths) and size == len(self.body)
        if not is_whole or self.count < 1 or (len(made_of) and made_of.max() >= self.count):
            raise MisuseError(
                f"the page of {self.count} entries from {self.first} on does not fit: {len(self.lengths)} "
                f"lengths of {size} bytes in all, a body of {len(self.body)}, made of {len(made_of)} entries"
            )


def page_rows(batch: RecordBatch) -> Iterator[PageRow]:
    """The pages of a batch. Raises MisuseError for one that can't be."""
    _check_given(batch, PAGE_NEEDED)
    firsts, counts = (arrow.numbers(batch.column(name)) for name in ("index", "count"))
    lengths, bodies = (Payloads.of_column(batch.column(name)) for name in ("lengths", "body"))
    for at, said in enumerate(_made_of(batch)):
        count = int(counts[at])
        made_of = np.arange(count) if said is None else _numbers(said)
        page = PageRow(int(firsts[at]), count, _numbers(lengths.view(at)), made_of, bodies.view(at))
        page.check()
        yield page


def runs_of_pages(batch: RecordBatch) -> Iterator[Rows]:
    """What the pages of a batch hold, page by page. Raises as ``page_rows``."""
    columns = [batch.column(name).to_pylist() for name in ("stream", "partition", "life")]
    for page, origin in zip(page_rows(batch), zip(*columns, strict=True), strict=True):
        covered = np.arange(page.first, page.first + page.count)
        made_of = page.first + page.made_of
        yield Rows(Origin(*cast("Any", origin)), covered, made_of, page.payloads)


def _made_of(batch: RecordBatch) -> Iterable[bytes | None]:
    if "made_of" not in batch.schema.names:
        return repeat(None, batch.num_rows)
    return cast("list[bytes | None]", batch.column("made_of").to_pylist())


def _numbers(packed: bytes | memoryview) -> Numbers:
    return np.frombuffer(packed, LENGTH).astype(np.int64)


def _check_given(batch: RecordBatch, names: Iterable[str]) -> None:
    for name in names:
        if batch.column(name).null_count:
            raise MisuseError(
                f"a row without {name} reaches the sink: keep the source's columns as they are"
            )


def _cuts(columns: list[Numbers], count: int) -> list[int]:
    """Where a run begins, and after the last one the end."""
    if not count:
        return []
    changed = np.zeros(count - 1, dtype=np.bool_)
    for column in columns:
        changed |= column[1:] != column[:-1]
    return [0, *(np.flatnonzero(changed) + 1).tolist(), count]


def _made(indexes: Numbers, payloads: arrow.Array) -> tuple[Numbers, Payloads]:
    """The rows with a payload."""
    if not payloads.null_count:
        return indexes, Payloads.of_column(payloads)
    there = payloads.is_valid()
    return indexes[arrow.flags(there)], Payloads.of_column(payloads.filter(there))
