"""What tasks do behind the shuffle: all rows of a target and an input come to one of them, in order.

That they are all there is checked, not hoped for: each row says which messages of the input it is of, and what is
missing between two ends the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from surepipe.errors import StoreReset
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.run.tallies import Tallies
from surepipe.spark.arrow import Batches, RecordBatch
from surepipe.spark.columns import BufferPayloads
from surepipe.spark.running.ends import Row, SparkEnd
from surepipe.spark.running.layout import SparkLayout, Stream, Target
from surepipe.spark.running.rows import AnyRow, RowPart, RowsToWrite, part_of
from surepipe.spark.sink import CHUNK_BYTES, CHUNK_MESSAGES, Origin, append_by_identity


def parts_of(rows: Iterable[AnyRow], what: str) -> Iterator[RowPart]:
    """What rows in order hold, small ones together. Raises StoreReset when messages are missing between."""
    waiting: list[RowPart] = []
    following: int | None = None
    for part in map(part_of, rows):
        begin = part.outputs.from_index
        if following not in (None, begin):
            raise StoreReset(
                f"{what}: messages {following} to {begin - 1} are missing between two parts of one batch"
            )
        following = part.outputs.to_index
        waiting.append(part)
        if _are_worth_it(waiting):
            yield RowPart.joined(waiting)
            waiting = []
    if waiting:
        yield RowPart.joined(waiting)


def _are_worth_it(parts: Sequence[RowPart]) -> bool:
    """True when they are worth a write of their own."""
    payloads = [BufferPayloads.of(part.outputs.payloads) for part in parts]
    count, size = sum(map(len, payloads)), sum(len(one.body) for one in payloads)
    return 2 * count >= CHUNK_MESSAGES or 2 * size >= CHUNK_BYTES


def writes_of(layout: SparkLayout) -> Callable[[Batches], Batches]:
    """The function of a task: writes what tasks write; what is for the driver goes on to it."""

    def write(batches: Batches) -> Batches:
        writer = TargetWriters(layout)
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


class TargetWriters:
    """The writers of one task, or of the driver."""

    def __init__(self, layout: SparkLayout) -> None:
        self._layout = layout
        self._tallies = Tallies()
        self._environment = RealEnvironment(layout.plan)
        self._ends: dict[tuple[str, str], SparkEnd] = {}

    def take(self, rows: Iterable[AnyRow]) -> Batches:
        """Write all of them; what comes out is for the driver."""
        for (target, input_, life), group in groupby(rows, key=itemgetter(0, 1, 2)):
            found = self._layout.targets.get(target)
            if found is None or found.kind == "driver":
                yield from _passed_on(group)
            else:
                for part in parts_of(group, f"{target} from {input_}"):
                    self._write(found, input_, life, part)
        told = RowsToWrite()
        told.counts(self._tallies.all())
        yield told.take()

    def _write(self, target: Target, input_: str, life: int, part: RowPart) -> None:
        if target.stream is not None:
            self._append(target, target.stream, input_, life, part)
            return
        key = (target.name, input_)
        if key not in self._ends:
            self._ends[key] = SparkEnd(
                self._layout, target.name, input_, self._environment, self._tallies
            )
        give(self._ends[key], input_, life, part)

    def _append(
        self, target: Target, stream: Stream, input_: str, life: int, part: RowPart
    ) -> None:
        written = append_by_identity(
            self._layout.places[stream.store],
            stream.name,
            Origin(self._layout.input_of(input_).stream.name, 0, life),
            part.outputs,
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


def give(end: SparkEnd, input_: str, life: int, part: RowPart) -> None:
    """Let an end take a part."""
    outputs = part.outputs
    end.take(f"{input_}@{life}", end_rows(part), outputs.from_index, outputs.to_index - 1)


def end_rows(part: RowPart) -> list[Row]:
    """What is in a part as ends take it: numbered within each message."""
    outputs = part.outputs
    made = zip(outputs.indexes, outputs.payloads, part.abouts, strict=True)
    return [
        (int(index), number, payload, about)
        for index, group in groupby(made, key=itemgetter(0))
        for number, (_, payload, about) in enumerate(group)
    ]


def _passed_on(group: Iterable[AnyRow]) -> Iterator[RecordBatch]:
    for row in group:
        yield RowsToWrite([row]).take()
