"""Rows that reach the sink, as runs of one origin: numpy looks at the columns, nothing is asked of a single row.

Only the payloads become objects of their own, because a store takes them so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from surepipe.errors import MisuseError
from surepipe.spark import arrow
from surepipe.spark.arrow import RecordBatch
from surepipe.spark.sink import Origin

NEEDED = ("stream", "partition", "index", "life", "payload")
"""The columns that rows for the sink have."""

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one origin, one after the other: the index of each, and those that have a payload."""

    origin: Origin
    indexes: Numbers
    made_of: list[int]
    payloads: list[bytes]

    def out_of_order(self, last: int) -> tuple[int, int] | None:
        """The first entry that neither repeats nor follows the one before it (at first ``last``), and that one."""
        steps = np.diff(self.indexes, prepend=last)
        wrong = np.flatnonzero((steps < 0) | (steps > 1))
        if not len(wrong):
            return None
        at = int(wrong[0])
        return int(self.indexes[at]), int(self.indexes[at - 1]) if at else last


def runs_of(batch: RecordBatch) -> Iterator[Rows]:
    """The rows of a batch in order, cut where the origin changes.

    Raises MisuseError for a row that does not say what it was made of.
    """
    for name in NEEDED[:-1]:
        if batch.column(name).null_count:
            raise MisuseError(
                f"a row without {name} reaches the sink: keep the source's columns as they are"
            )
    streams, names = arrow.numbered(batch.column("stream"))
    columns = [streams, *(arrow.numbers(batch.column(name)) for name in ("partition", "life"))]
    indexes = arrow.numbers(batch.column("index"))
    payloads = batch.column("payload")
    for start, stop in pairwise(_cuts(columns, batch.num_rows)):
        stream, partition, life = (int(column[start]) for column in columns)
        made_of, found = _made(indexes[start:stop], payloads.slice(start, stop - start))
        origin = Origin(cast("str", names[stream]), partition, life)
        yield Rows(origin, indexes[start:stop], made_of, found)


def _cuts(columns: list[Numbers], count: int) -> list[int]:
    """Where a run begins, and after the last one the end."""
    if not count:
        return []
    changed = np.zeros(count - 1, dtype=np.bool_)
    for column in columns:
        changed |= column[1:] != column[:-1]
    return [0, *(np.flatnonzero(changed) + 1).tolist(), count]


def _made(indexes: Numbers, payloads: arrow.Array) -> tuple[list[int], list[bytes]]:
    """The rows with a payload."""
    if not payloads.null_count:
        return indexes.tolist(), arrow.all_bytes(payloads)
    there = payloads.is_valid()
    return indexes[arrow.flags(there)].tolist(), arrow.all_bytes(payloads.filter(there))
