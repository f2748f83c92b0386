"""Receivers as keyed operators of Spark: the same machines, outputs and states (spark SP-14, SP-15)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from surepipe.errors import ConfigurationError
from surepipe.spark.keyed import (
    KeyedMessage,
    KeyedReceiver,
    digest_of,
    left_standing,
    receive_by_channel,
)
from tests.spark.queries.keyed.schedules import DDL, Schedules, schedules, write_in_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

COUNT = 1_000
SEED = 20260701


@pytest.fixture(scope="session")
def brought(tmp_path_factory: pytest.TempPathFactory) -> tuple[Schedules, Path]:
    """A thousand schedules, in files for two micro-batches."""
    folder = tmp_path_factory.mktemp("schedules") / "rows"
    found = schedules(SEED, COUNT)
    write_in_batches(folder, found, SEED, 2)
    for number in range(2):  # Spark takes files by their age
        os.utime(folder / f"{number}.parquet", (number + 1, number + 1))
    return found, folder


def rows_of(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of the rows, one file in a micro-batch."""
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run_to_the_end(frame: DataFrame, checkpoint: Path) -> list[Row]:
    """All rows that a query gives until it has read everything that is there."""
    found: list[Row] = []

    def keep(batch: DataFrame, number: int) -> None:
        del number
        found.extend(batch.collect())

    query = (
        frame.writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    assert query.awaitTermination(120)
    return found


def by_channel(rows: list[Row]) -> Mapping[str, list[tuple[int, int, bytes]]]:
    """The messages of each channel, as they were delivered."""
    found: dict[str, list[tuple[int, int, bytes]]] = {}
    for row in rows:
        if not row["notice"]:
            message = (row["epoch"], row["seq"], bytes(row["payload"]))
            found.setdefault(row["channel"], []).append(message)
    return found


@pytest.mark.parametrize("layer", ["continuous-index", "strict-monotonic"])
def test_a_keyed_receiver_is_the_machine_that_actors_run(
    spark: SparkSession, brought: tuple[Schedules, Path], tmp_path: Path, layer: str
) -> None:
    """spark sp6, pipes P-11: 1,000 schedules, cut into micro-batches at random and shuffled; outputs, and digests
    of the states in Spark's store, equal those of machines that got each schedule in one go."""
    found, folder = brought
    rows = run_to_the_end(receive_by_channel(rows_of(spark, folder), layer), tmp_path / "points")
    delivered, standing = by_channel(rows), left_standing(spark, tmp_path / "points", layer)
    held = 0
    for channel, arrivals in found.items():
        machine = KeyedReceiver(channel, layer)
        said = [
            (m.epoch, m.seq, m.payload)
            for m in machine.take(arrivals)
            if isinstance(m, KeyedMessage)
        ]
        assert delivered.get(channel, []) == said, channel
        assert standing[channel].digest == digest_of(machine.state), channel
        held += standing[channel].held
    assert sum(map(len, delivered.values())) > COUNT
    assert (held > 0) is (layer == "continuous-index")


def test_a_run_to_the_end_with_timers_ends_and_says_what_it_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    """spark sp7, SP-15: 1 is lost, and its alarm is armed; the query ends, and two messages are left."""
    gapped = {"gapped": [one for one in schedules(1, 1)["channel-0"] if one.seq > 1][:2]}
    assert len({one.seq for one in gapped["gapped"]}) == 2
    write_in_batches(tmp_path / "rows", gapped, 1, 1)
    layer = {"continuous-index": {"gap_alarm_s": 3600.0}}
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        frame = receive_by_channel(rows_of(spark, tmp_path / "rows"), layer, clock="processing")
        rows = run_to_the_end(frame, tmp_path / "points")
    finally:
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    assert rows == []
    assert left_standing(spark, tmp_path / "points", layer)["gapped"].held == 2


def test_what_is_no_keyed_operator_is_refused(spark: SparkSession) -> None:
    """spark SP-14: a pipe that sends again needs a way back; columns that are missing are named."""
    rows = spark.range(1).selectExpr("'a' AS channel", "id AS arrived")
    with pytest.raises(ConfigurationError, match="multi-unconfirmed is no keyed operator"):
        receive_by_channel(rows, "multi-unconfirmed")
    with pytest.raises(ConfigurationError, match="epoch, seq, payload are not there"):
        receive_by_channel(rows)
