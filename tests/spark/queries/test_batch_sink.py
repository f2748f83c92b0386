"""A function that gets whole batches is told their identities, and says if it is idempotent (spark SP-11)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from surepipe.errors import ConfigurationError
from surepipe.spark.batch_sink import BatchSink, IdentityRange
from tests.spark.streams import Streams, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Interrupted(Exception):
    """Stands for whatever ends a batch in its middle."""


class Warehouse:
    """Keeps what each call brought; its second call fails when all of it is there, once."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[IdentityRange, ...], list[int]]] = []

    def __call__(self, batch: DataFrame, ranges: Sequence[IdentityRange]) -> None:
        payloads = [bytes(row["payload"]) for row in batch.collect()]
        self.calls.append((tuple(ranges), sorted(numbers(payloads))))
        if len(self.calls) == 2:
            raise Interrupted

    @property
    def keys(self) -> list[str]:
        """Of the calls' ranges, without the life, which is drawn."""
        return [
            f"{one.stream}/{one.partition}:{one.first}-{one.last} x{one.count}"
            for ranges, _ in self.calls
            for one in ranges
        ]


def run(spark: SparkSession, streams: Streams, sink: BatchSink, checkpoint: Path) -> None:
    """All that is there, thirty entries a batch; some are filtered out."""
    options = streams.options("orders", max_rows=30)
    rows = spark.readStream.format("surepipe").options(**options).load()
    query = (
        rows.where("index % 10 != 0")
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_a_batch_that_is_done_again_has_the_same_ranges(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """spark SP-11: the second call fails behind its effect; the next run brings the same key, so that the function
    can know it, and then the rest. A filter makes fewer rows, and the range is that of the rows."""
    streams.create("orders")
    streams.fill("orders", 80)
    warehouse = Warehouse()
    sink = BatchSink(warehouse, idempotent=True)
    with pytest.raises(Exception, match="Interrupted"):
        run(spark, streams, sink, tmp_path / "checkpoint")
    run(spark, streams, sink, tmp_path / "checkpoint")
    assert warehouse.keys == [
        "orders/0:1-29 x27",
        "orders/0:31-59 x27",
        "orders/0:31-59 x27",
        "orders/0:61-79 x18",
    ]
    again, before = warehouse.calls[2], warehouse.calls[1]
    assert again == before
    assert again[0][0].key == before[0][0].key
    (life,) = {one.life for ranges, _ in warehouse.calls for one in ranges}
    assert again[0][0].key == f"orders/0@{life}:31-59"


def test_rows_without_identity_are_refused(spark: SparkSession) -> None:
    """spark SP-11: before the function is called; the line names the columns."""
    warehouse = Warehouse()
    with pytest.raises(
        ConfigurationError, match="without the columns stream, partition, life, index"
    ):
        BatchSink(warehouse, idempotent=True)(spark.range(3).toDF("number"), 0)
    assert warehouse.calls == []


def test_what_is_not_idempotent_is_called_at_least_once() -> None:
    """spark SP-3, SP-11: the word of the caller decides, and exactly-once is never said."""
    assert BatchSink(Warehouse(), idempotent=False).delivery == "at least once"
    assert BatchSink(Warehouse(), idempotent=True).delivery == "effectively once, by index"
