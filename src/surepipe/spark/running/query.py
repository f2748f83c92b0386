"""The one query of a pipeline: it reads all inputs, and each micro-batch is one job with one shuffle.

    entries of all inputs -> stages (narrow) -> by target and input, sorted -> writers -> the driver's ends

Whatever Spark does again, after a crash or with another split, is skipped where it is in already: streams and ends
keep their own places. So the checkpoint saves work, and does not decide what is right.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from surepipe.errors import MisuseError
from surepipe.pipelines.engine.real import RealEnvironment
from surepipe.pipelines.engine.tallies import Tallies
from surepipe.spark.arrow import RecordBatch
from surepipe.spark.mapping import collected, mapped
from surepipe.spark.running.ends import End
from surepipe.spark.running.layout import Input, Layout
from surepipe.spark.running.progress import source_key
from surepipe.spark.running.rows import COUNTS, GROUP, ORDER, SCHEMA, AnyRow, counts_of
from surepipe.spark.running.working import READ, stages_of
from surepipe.spark.running.writing import give, parts_of, rows_of, writes_of
from surepipe.spark.starting import start

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_ROWS_MAX = 200_000
"""Entries in a micro-batch at the most: what comes of them for files of the driver goes through its memory."""
PROGRESS_EVERY_S = 0.5
TASK_ROWS_MAX = 20_000
"""Entries that one task takes: so one busy stream keeps several cores at work."""


class Query:
    """The query, from its start to its end. ``batches`` counts what is through; the last one had ``entries``."""

    def __init__(self, spark: SparkSession, layout: Layout, tallies: Tallies) -> None:
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
            name: End(layout, name, "driver", self._environment, tallies)
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
        """End it behind the batch that it is at, if that ends soon; what it is at is done again another time."""
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
        """Close what the driver writes."""
        for end in self._ends.values():
            end.close()


def partitions_of(layout: Layout, most: int) -> int:
    """Partitions for the writers: twice what is told apart, so that few share one. An empty one costs a task, too,
    and on a cluster Spark makes two hundred of them."""
    groups = 1 + sum(len(one.targets) for one in layout.inputs)
    return min(2 * groups, most)


def _last_progress(query: StreamingQuery) -> dict[str, object]:
    found = query.lastProgress
    return {} if found is None else cast("dict[str, object]", json.loads(found.json))
