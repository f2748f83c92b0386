"""The one query of a pipeline: it reads all inputs, and each micro-batch is one job with one shuffle.

    entries of all inputs -> stages (narrow) -> by target and input, sorted -> writers -> the driver's ends

Whatever Spark does again, after a crash or with another split, is skipped where it is in already: streams and ends
keep their own places. So the checkpoint saves work, and does not decide what is right.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias, cast

from surepipe.errors import MisuseError, StoreReset
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.run.tallies import Tallies
from surepipe.spark.columns import Batches, BufferPayloads, RecordBatch, collected, mapped
from surepipe.spark.running.ends import Row, SparkEnd
from surepipe.spark.running.layout import Input, SparkLayout, StreamInStore, Target
from surepipe.spark.running.rows import (
    COUNTS,
    GROUP,
    ORDER,
    SCHEMA,
    AnyRow,
    RowPart,
    RowsToWrite,
    counts_of,
    part_of,
)
from surepipe.spark.running.working import READ, stages_of
from surepipe.spark.session import start
from surepipe.spark.sink import CHUNK_BYTES, CHUNK_MESSAGES, Origin, append_by_identity

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


# What tasks do behind the shuffle: all rows of a target and an input come to one of them, in order.
#
# That they are all there is checked, not hoped for: each row says which messages of the input it is of, and
# what is missing between two ends the query.


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
        self, target: Target, stream: StreamInStore, input_: str, life: int, part: RowPart
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


# What Spark tells of a query after each batch, as the numbers that parts of a pipeline count.
#
# The part ``spark`` gets what is of the whole query: rows per second, how long a batch took, the size of its
# state. Each input gets its ``lag``: what is in its stream behind the last batch that is through, as it was
# known then.


Told: TypeAlias = Mapping[str, object]
SourceKey: TypeAlias = tuple[str, str]
"""The store, and where reading begins: the query has one source of Spark for each."""
US_PER_MS = 1000


def source_key(input_: Input) -> SourceKey:
    """Which of the query's sources an input is in."""
    return input_.stream.store, input_.start


def sources_of(inputs: Iterable[Input]) -> list[SourceKey]:
    """All sources, in the order in which the query has them."""
    return sorted({source_key(one) for one in inputs})


def counted_of(told: Told, entries: int) -> dict[str, int]:
    """The numbers of the part ``spark``; none before the first batch. ``entries`` were in the last one: rows that
    Spark counts are pages."""
    if not told:
        return {}
    states = cast("Sequence[Told]", told.get("stateOperators") or ())
    took_ms, has_rows = _number(told, "batchDuration"), _number(told, "numInputRows") > 0
    return {
        "rows_per_s": round(entries / took_ms * 1000) if took_ms and has_rows else 0,
        "batch_us": round(took_ms) * US_PER_MS,
        "state_rows": round(sum(_number(one, "numRowsTotal") for one in states)),
        "state_bytes": round(sum(_number(one, "memoryUsedBytes") for one in states)),
    }


def lags_of(told: Told, inputs: Sequence[Input]) -> dict[str, int]:
    """How many entries of each input wait, by its part's name; those of which Spark says nothing are left out."""
    sources = cast("Sequence[Told]", told.get("sources") or ())
    keys = sources_of(inputs)
    if len(sources) != len(keys):
        return {}
    found: dict[str, int] = {}
    for key, source in zip(keys, sources, strict=True):
        done, there = _nexts(source.get("endOffset")), _nexts(source.get("latestOffset"))
        for one in inputs:
            if source_key(one) == key:
                lag = _lag(one.stream.name, done, there)
                found |= {} if lag is None else {one.part: lag}
    return found


def _lag(stream: str, done: Mapping[str, int], there: Mapping[str, int]) -> int | None:
    keys = [key for key in there if key.rpartition("/")[0] == stream]
    return sum(max(0, there[key] - done.get(key, 1)) for key in keys) if keys else None


def _nexts(offset: object) -> dict[str, int]:
    """Next indexes by stream and partition. Spark gives an offset as a value or as text of JSON."""
    found: object = json.loads(offset) if isinstance(offset, str) else offset
    if not isinstance(found, dict):
        return {}
    places = cast("Mapping[str, Mapping[str, int]]", found)
    return {key: int(place["next"]) for key, place in places.items()}


def _number(told: Told, name: str) -> float:
    """A number that is not there, or none (Spark says NaN for nothing over no time), is 0."""
    value = told.get(name)
    is_number = isinstance(value, int | float) and value == value  # noqa: PLR0124 - not NaN
    return max(0.0, float(cast("float", value))) if is_number and value != float("inf") else 0.0


BATCH_ROWS_MAX = 200_000
"""Entries in a micro-batch at the most: what comes of them for files of the driver goes through its memory."""
PROGRESS_EVERY_S = 0.5
TASK_ROWS_MAX = 20_000
"""Entries that one task takes: so one busy stream keeps several cores at work."""


class Query:
    """The query, from its start to its end. ``batches`` counts what is through; the last one had ``entries``."""

    def __init__(self, spark: SparkSession, layout: SparkLayout, tallies: Tallies) -> None:
        """Opens what the driver writes. Raises StoreUnavailable, ConfigurationError."""
        self.batches = self.entries = self._settled = 0
        self._spark = spark
        self._layout = layout
        self._tallies = tallies
        self._is_ending = False
        self._at_work = threading.Lock()
        self._environment = RealEnvironment(layout.plan)
        self._told: dict[str, object] = {}
        self._ask_at = 0.0
        self._ends = {
            name: SparkEnd(layout, name, "driver", self._environment, tallies)
            for name, target in layout.targets.items()
            if target.kind == "driver"
        }
        self._query: StreamingQuery | None = None

    def start(self, checkpoint: str, trigger_s: float | None) -> None:
        """Begin, or go on where the checkpoint says. Raises what Spark raises."""
        writer = (
            self._entries()
            .writeStream.queryName(self._layout.plan.name)
            .option("checkpointLocation", checkpoint)
            .foreachBatch(self._batch)
        )
        if trigger_s is not None:
            writer = writer.trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
        self._query = start(writer)

    def _entries(self) -> DataFrame:
        """The entries of all inputs: a source for each store (and start), put together."""
        wanted = sorted(self._layout.inputs, key=source_key)
        frames = [
            self._read(store, start, list(group))
            for (store, start), group in groupby(wanted, key=source_key)
        ]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _read(self, store: str, start: str, inputs: list[Input]) -> DataFrame:
        from pyspark.sql.functions import lit  # noqa: PLC0415

        streams = sorted({one.stream.name for one in inputs})
        found = (
            self._spark.readStream.format("surepipe")
            .options(**self._layout.places[store].options())
            .option("streams", json.dumps(streams))
            .option("start", start)
            .option("reader", f"{self._layout.plan.name}/spark")
            .option("max_rows", str(BATCH_ROWS_MAX))
            .option("max_rows_per_task", str(TASK_ROWS_MAX))
            .option("rows", "pages")
            .load()
        )
        return found.withColumn("store", lit(store)).select(*READ)

    # A batch.

    def _batch(self, entries: DataFrame, number: int) -> None:
        """Done again with the same entries when the driver died in it; then most of it is there already."""
        del number
        with self._at_work:
            if self._is_ending:  # a batch that returned would count as done
                raise MisuseError("this query is ending: its next batch is left for another run")
            self._settled = 0
            self._take(collected(self._job(entries)))
            self.entries = self._settled
            self.batches += 1

    def _job(self, entries: DataFrame) -> DataFrame:
        """What the driver gets, when it is run: everything else is written on the way."""
        most = int(cast("str", self._spark.conf.get("spark.sql.shuffle.partitions")))
        partitions = partitions_of(self._layout, most)
        columns: list[Column | str] = list(GROUP)
        worked = mapped(entries, stages_of(self._layout), SCHEMA)
        ordered = worked.repartition(partitions, *columns).sortWithinPartitions(*ORDER)
        return mapped(ordered, writes_of(self._layout), SCHEMA)

    def _take(self, batches: list[RecordBatch]) -> None:
        rows = rows_of(batches)
        for (target, input_, life), group in groupby(rows, key=itemgetter(0, 1, 2)):
            if target == COUNTS:
                self._count(group)
            elif target in self._ends:
                for part in parts_of(group, f"{target} from {input_}"):
                    give(self._ends[target], input_, life, part)

    def _count(self, rows: Iterator[AnyRow]) -> None:
        for part, counts in chain.from_iterable(counts_of(row).items() for row in rows):
            for what, count in counts.items():
                self._tallies.add(part, what, count)
            self._settled += counts.get("settled", 0)

    # Looking at it.

    @property
    def failure(self) -> Exception | None:
        """What ended it, if something did."""
        return None if self._query is None else cast("Exception | None", self._query.exception())

    def progress(self) -> dict[str, object]:
        """The last thing that Spark said about it, also after its end. Spark is asked twice a second."""
        now = self._environment.clock.monotonic()
        if self._query is not None and now >= self._ask_at:
            self._ask_at = now + PROGRESS_EVERY_S
            self._told = _last_progress(self._query) or self._told
        return self._told

    def drain(self, is_over: Callable[[], bool]) -> bool:
        """Wait until nothing is left to read, hop by hop; False when it is over before. Raises what ended it."""
        while not is_over() and self._query is not None:
            before = self.batches
            self._query.processAllAvailable()
            if self.batches == before:
                return True
        return False

    def begin_no_more(self) -> None:
        """Let no further batch begin."""
        self._is_ending = True

    @property
    def is_at_work(self) -> bool:
        """True while a batch is under way."""
        return self._at_work.locked()

    def stop(self, patience_s: float) -> None:
        """End it after the current batch, if that ends soon; else the batch is done again another time."""
        if self._query is None:
            return
        self._is_ending = True
        is_between = self._at_work.acquire(timeout=patience_s)
        try:
            self._query.stop()
        finally:
            if is_between:
                self._at_work.release()
            self._told = _last_progress(self._query) or self._told
            self._query = None

    def close(self) -> None:
        for end in self._ends.values():
            end.close()


def partitions_of(layout: SparkLayout, most: int) -> int:
    """Partitions for the writers: twice what is told apart, so that few share one. An empty one costs a task, too,
    and on a cluster Spark makes two hundred of them."""
    groups = 1 + sum(len(one.targets) for one in layout.inputs)
    return min(2 * groups, most)


def _last_progress(query: StreamingQuery) -> dict[str, object]:
    found = query.lastProgress
    return {} if found is None else cast("dict[str, object]", json.loads(found.json))
