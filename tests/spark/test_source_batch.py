from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from surepipe.core.store_requests import Retention
from surepipe.errors import ConfigurationError, MisuseError, StoreReset
from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.shipping import failure_of
from tests.spark.streams import Streams, numbers


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """The streams as they stand."""
    return spark.read.format("surepipe").options(**options).load()


def test_a_batch_reads_every_entry_with_its_identity_and_its_time(
    spark: SparkSession, any_streams: Streams
) -> None:
    """Two streams of a store of each kind, pages of several lengths; spark SP-5."""
    any_streams.create("orders", "clicks")
    any_streams.fill("orders", 2500, page=700)
    any_streams.fill("clicks", 10, page=1)
    rows = read(spark, any_streams.options("orders", "clicks")).collect()
    orders = sorted(
        (row for row in rows if row["stream"] == "orders"), key=lambda row: row["index"]
    )
    assert [row["index"] for row in orders] == [*range(1, 2501)]
    assert numbers([bytes(row["payload"]) for row in orders]) == [*range(1, 2501)]
    assert {(row["producer"], row["epoch"], row["seq"] - row["index"]) for row in orders} == {
        ("maker", 1, 0)
    }
    assert {row["key"] for row in rows} == {None}
    assert all(row["at"] is not None for row in rows)
    assert {row["life"] for row in orders} == {any_streams.info("orders").incarnation}
    assert len(rows) == 2510


def test_conditions_are_pushed_down_so_that_what_they_leave_out_is_not_read(
    spark: SparkSession, streams: Streams
) -> None:
    """The first entries are trimmed: only a query that asks for none of them succeeds; spark SP-8."""
    streams.create("orders", "clicks", retention=Retention(max_bytes=1 << 40, force=True))
    streams.fill("orders", 100, page=10)
    streams.fill("clicks", 5)
    streams.trim("orders", 51)
    frame = read(spark, streams.options("orders", "clicks"))
    with pytest.raises(PySparkException) as refused:
        frame.collect()
    failure = failure_of(refused.value)
    assert isinstance(failure, StoreReset)
    assert "entries 1 to 50 of stream orders are trimmed" in str(failure)
    some = frame.where("stream = 'orders' and index > 60 and index <= 63 and payload is not null")
    assert [row["index"] for row in some.select("index").collect()] == [61, 62, 63]
    assert frame.where("stream in ('clicks', 'x')").count() == 5


def test_a_large_stream_is_read_by_several_tasks(spark: SparkSession, streams: Streams) -> None:
    """A task takes 300 rows at most; together they have every entry once; spark SP-5."""
    streams.create("orders")
    streams.fill("orders", 1000, page=64)
    frame = read(spark, streams.options("orders", max_rows_per_task=300))
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row["index"] for row in frame.select("index").collect()) == [*range(1, 1001)]


def test_an_unknown_option_comes_back_as_one_error_of_ours(
    spark: SparkSession, streams: Streams
) -> None:
    """Through the JVM and back."""
    with pytest.raises(PySparkException) as refused:
        read(spark, streams.options("orders", tsaks=3)).collect()
    failure = failure_of(refused.value)
    assert isinstance(failure, ConfigurationError)
    assert "option 'tsaks' of the surepipe source is unknown: did you mean 'tasks'?" in str(failure)


def test_a_second_session_in_one_process_is_refused(spark: SparkSession) -> None:
    """The first one goes on."""
    with pytest.raises(MisuseError, match="this process runs Spark already"):
        open_session(SparkOptions(master="local[1]"))
    assert spark.range(3).count() == 3


def test_the_settings_that_spark_needs_are_set(spark: SparkSession) -> None:
    """Pushdown, state in RocksDB, partitions as many as threads, task retries; spark SP-8, SP-16, SP-23."""
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert "RocksDB" in str(spark.conf.get("spark.sql.streaming.stateStore.providerClass"))
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.master == "local[2,4]"
