from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from surepipe.errors import MisuseError, StoreReset
from surepipe.spark.shipping import failure_of
from surepipe.storage import SqliteStore
from tests.spark.streams import Streams, numbers


def source(spark: SparkSession, streams: Streams, *names: str, **further: object) -> DataFrame:
    """The streams, followed."""
    options = streams.options(*names, **further)
    return spark.readStream.format("surepipe").options(**options).load()


def run_to_the_end(frame: DataFrame, streams: Streams, checkpoint: Path) -> list[int]:
    """Write everything into the stream "out" until nothing is left; the rows of each batch."""
    query = (
        frame.writeStream.format("surepipe")
        .options(**streams.place.options(), stream="out")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_a_query_goes_on_at_its_checkpoint_and_without_it_at_the_sinks_position(
    spark: SparkSession, any_streams: Streams, tmp_path: Path
) -> None:
    """Two runs on one checkpoint, then one without: 0 lost, 0 repeated, in order; spark SP-5, SP-9, sp4."""
    any_streams.create("in", "out")
    any_streams.fill("in", 2000, page=300)
    checkpoint = tmp_path / "checkpoint"
    frame = source(spark, any_streams, "in", max_rows=1500)
    assert run_to_the_end(frame, any_streams, checkpoint) == [1500, 500]
    any_streams.fill("in", 700)
    assert sum(run_to_the_end(frame, any_streams, checkpoint)) == 700
    assert numbers(any_streams.read("out")) == [*range(1, 2701)]
    shutil.rmtree(checkpoint)
    any_streams.fill("in", 300)
    assert sum(run_to_the_end(frame, any_streams, checkpoint)) == 3000, "all is read again"
    assert numbers(any_streams.read("out")) == [*range(1, 3001)], "and appended once"


def test_an_ordering_step_after_a_shuffle_makes_the_sink_take_everything(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """Without it the query stops with the reason, and nothing is silently short; spark SP-10, sp3."""
    streams.create("in", "out")
    streams.fill("in", 3000, page=500)
    shuffled = source(spark, streams, "in").repartition(2, "seq")
    with pytest.raises(StreamingQueryException) as refused:
        run_to_the_end(shuffled, streams, tmp_path / "checkpoint")
    assert isinstance(failure_of(refused.value), MisuseError | StoreReset)
    done = numbers(streams.read("out"))
    assert done == [*range(1, len(done) + 1)]

    def ordered(batch: DataFrame, batch_id: int) -> None:
        del batch_id
        in_order = batch.repartition(1).sortWithinPartitions("stream", "index")
        options = streams.place.options()
        in_order.write.format("surepipe").options(**options, stream="out").mode("append").save()

    query = (
        shuffled.writeStream.foreachBatch(ordered)
        .option("checkpointLocation", str(tmp_path / "other"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert numbers(streams.read("out")) == [*range(1, 3001)]


def test_a_store_that_went_back_under_the_query_ends_it_with_one_error(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """The stream is set back between two runs; the error comes out of Spark whole; spark SP-6, sp5."""
    assert isinstance(streams.store, SqliteStore)
    streams.create("in", "out")
    streams.fill("in", 10)
    copy = streams.store.snapshot()
    streams.fill("in", 10)
    frame = source(spark, streams, "in")
    run_to_the_end(frame, streams, tmp_path / "checkpoint")
    streams.store.roll_back(copy)
    with pytest.raises(StreamingQueryException) as refused:
        run_to_the_end(frame, streams, tmp_path / "checkpoint")
    failure = failure_of(refused.value)
    assert isinstance(failure, StoreReset)
    assert "entries 11 to 20 were read and are not there" in str(failure)


def test_a_live_query_reads_what_is_appended_while_it_runs(
    spark: SparkSession, any_streams: Streams, tmp_path: Path
) -> None:
    """A stream grows and another one is made meanwhile; the reader's position follows; spark SP-5, SP-7."""
    any_streams.create("in", "out")
    any_streams.fill("in", 5)
    frame = source(spark, any_streams, "in", "later", on_missing="wait", reader="query")
    query = (
        frame.writeStream.format("surepipe")
        .options(**any_streams.place.options(), stream="out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        assert len(any_streams.read("out")) == 5
        any_streams.fill("in", 20)
        any_streams.create("later")
        any_streams.fill("later", 7)
        query.processAllAvailable()
        any_streams.fill("in", 1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(any_streams.read("out")) == 5 + 20 + 7 + 1
    (reader,) = any_streams.info("in").readers
    assert reader.next >= 26
