"""What tasks do behind the shuffle: all rows of a target and an input come to one of them, in order.

That they are all there is checked, not hoped for: every message of the input is told by ``seen``, or it is
missing, and what is missing ends the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import cast

from surepipe.errors import StoreReset
from surepipe.pipelines.engine.real import RealEnvironment
from surepipe.pipelines.engine.tallies import Tallies
from surepipe.pipelines.models.pipes import PipePart
from surepipe.spark.arrow import RecordBatch
from surepipe.spark.mapping import Batches
from surepipe.spark.running.ends import End, Row
from surepipe.spark.running.layout import Layout, Stream, Target
from surepipe.spark.running.rows import COUNTS, LAST_PART, Rows
from surepipe.spark.sink import Origin, Outputs, append_by_identity

ROWS_MAX = 10_000
"""Outputs that are written in one step."""
AnyRow = tuple[str, str, int, int, int, int | None, bytes | None, str | None]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one target and one input that belong together: all that messages ``first`` to ``last`` gave."""

    first: int
    last: int
    rows: list[AnyRow]


def parts_of(rows: Iterable[AnyRow], what: str) -> Iterator[Part]:
    """Rows in order, in pieces that are complete. Raises StoreReset when messages are missing between."""
    waiting: list[AnyRow] = []
    first, last = 0, 0
    for row in rows:
        if row[4] != LAST_PART:
            waiting.append(row)
            continue
        begin = cast("int", row[5])
        if last and begin != last + 1:
            raise StoreReset(
                f"{what}: messages {last + 1} to {begin - 1} are missing between two parts of one batch"
            )
        first, last = first or begin, row[3]
        if len(waiting) >= ROWS_MAX:
            yield Part(first, last, waiting)
            waiting, first = [], 0
    if waiting and waiting[-1][3] > last:
        raise StoreReset(f"{what}: nobody says that message {waiting[-1][3]} is complete")
    if first:
        yield Part(first, last, waiting)


def writes_of(layout: Layout) -> Callable[[Batches], Batches]:
    """The function of a task: writes what tasks write; what is for the driver goes on to it."""

    def write(batches: Batches) -> Batches:
        writer = Writer(layout)
        try:
            yield from writer.take(rows_of(batches))
        finally:
            writer.close()

    return write


def rows_of(batches: Iterable[RecordBatch]) -> Iterator[AnyRow]:
    """All rows of record batches."""
    for batch in batches:
        columns = [batch.column(number).to_pylist() for number in range(len(batch.schema.names))]
        yield from zip(*columns, strict=True)


class Writer:
    """The writers of one task, or of the driver."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._tallies = Tallies()
        self._environment = RealEnvironment(layout.plan)
        self._ends: dict[tuple[str, str], End] = {}

    def take(self, rows: Iterable[AnyRow]) -> Batches:
        """Write all of them; what comes out is for the driver."""
        for (target, input_, life), group in groupby(rows, key=itemgetter(0, 1, 2)):
            found = self._layout.targets.get(target)
            if found is None or found.kind == "driver":
                yield from _passed_on(group)
            else:
                for part in parts_of(group, f"{target} from {input_}"):
                    self._write(found, input_, life, part)
        told = Rows()
        told.counts(self._tallies.all())
        yield told.take()

    def _write(self, target: Target, input_: str, life: int, part: Part) -> None:
        if target.stream is not None:
            self._append(target, target.stream, input_, life, part)
            return
        key = (target.name, input_)
        if key not in self._ends:
            self._ends[key] = End(
                self._layout, target.name, input_, self._environment, self._tallies
            )
        self._ends[key].take(f"{input_}@{life}", end_rows(part), part.first, part.last)

    def _append(self, target: Target, stream: Stream, input_: str, life: int, part: Part) -> None:
        origin = Origin(self._layout.input_of(input_).stream.name, 0, life)
        payloads = [cast("bytes", row[6]) for row in part.rows]
        outputs = Outputs(part.first, part.last + 1, [row[3] for row in part.rows], payloads)
        written = append_by_identity(
            self._layout.places[stream.store],
            stream.name,
            origin,
            outputs,
            sink=f"{self._layout.plan.name}/{input_}>{target.name}",
        )
        counted = (
            "accepted" if isinstance(self._layout.plan.part(target.name), PipePart) else "taken"
        )
        self._tallies.add(target.name, counted, written.new)

    def close(self) -> None:
        """Let go of what is held open."""
        for end in self._ends.values():
            end.close()


def end_rows(part: Part) -> list[Row]:
    """The rows of a part as ends take them."""
    return [
        (index, number, cast("bytes", payload), cast("str", about))
        for *_, index, number, _, payload, about in part.rows
    ]


def _passed_on(group: Iterable[AnyRow]) -> Iterator[RecordBatch]:
    rows = Rows()
    for row in group:
        rows.copy(row)
        if len(rows) >= ROWS_MAX:
            yield rows.take()
    yield rows.take()


def is_count(row: AnyRow) -> bool:
    """True for what parts counted."""
    return row[0] == COUNTS
