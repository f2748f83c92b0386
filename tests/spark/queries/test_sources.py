"""Sources: a Parquet file, which the driver reads, and streams that have partitions (spark SP-2, SP-5)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import KEEP_ALL, Created, Stored, partition_of
from surepipe.errors import ConfigurationError
from tests.spark.running.kit import Folder, orders, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
version: 1
name: tables
stores: {main: {kind: sqlite, path: "{folder}/main.db", durability: process}}
sources: {table: {kind: parquet, path: "{folder}/table.parquet", key: customer}}
pipes: {intake: {from: table, route: {kind: sqlite, store: main}}}
stages: {even: {from: intake, filter: "tests.spark.running.functions:is_even"}}
sinks: {results: {from: even, kind: stream, store: main, stream: results}}
"""


def table(folder: Path) -> Folder:
    """The pipeline in a new folder, with a Parquet file of 500 orders in groups of 64 rows."""
    folder.mkdir()
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    rows = arrow.Table.from_pylist(orders(1, 500))
    parquet.write_table(rows, folder / "table.parquet", row_group_size=64)
    return Folder(folder, PIPELINE)


def test_a_parquet_file_gives_the_same_on_both_engines_and_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """spark SP-2, sp8: 250 even orders of 500, in order; another run, without its checkpoint, adds none."""
    actors, sparks = table(tmp_path / "actors"), table(tmp_path / "spark")
    actors.on_actors()
    counters = told(sparks.on_spark(spark))
    assert [one["n"] for one in sparks.stream("results") if isinstance(one, dict)] == [
        *range(2, 501, 2)
    ]
    assert sparks.stream("results") == actors.stream("results")
    assert counters["intake"]["settled"] == counters["intake"]["accepted"] == 500
    sparks.on_spark(spark, "another")
    assert sparks.stream("results") == actors.stream("results")


PARTED = """
version: 1
name: parted
stores: {main: {kind: sqlite, path: "{folder}/main.db", durability: process}}
sources:
  first: {kind: stream, store: main, stream: "in#0"}
  second: {kind: stream, store: main, stream: "in#1"}
pipes: {intake: {from: [first, second], route: {kind: sqlite, store: main}}}
sinks: {results: {from: intake, kind: stream, store: main, stream: results}}
"""
WHOLE = PARTED.replace("in#0", "in").replace("in#1", "other")


def parted(folder: Path, text: str) -> Folder:
    """The pipeline, and a stream of two partitions with orders 1..40 and 41..60."""
    with Folder(folder, text).store as store:
        assert isinstance(store.create("in", 2, KEEP_ALL), Created)
        for partition, numbers in enumerate((range(1, 41), range(41, 61))):
            payloads = [AutoCodec().encode({"n": number}) for number in numbers]
            stored = store.append(partition_of("in", partition), "maker", 1, 1, payloads)
            assert isinstance(stored, Stored)
    return Folder(folder, text)


def test_partitions_are_sources_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """spark SP-5, SP-9: both have indexes from 1 in one life, and each message comes out once, in its order."""
    folder = parted(tmp_path, PARTED)
    folder.on_spark(spark)
    first, second = ([{"n": n} for n in range(*ends)] for ends in ((1, 41), (41, 61)))
    found = folder.stream("results")
    assert [one for one in found if one in first] == first
    assert [one for one in found if one not in first] == second


def test_a_stream_with_partitions_is_refused_as_a_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    """spark SP-9: their indexes are the same numbers, so one would pass for a repeat of the other."""
    folder = parted(tmp_path, WHOLE)
    with pytest.raises(ConfigurationError, match=r"it has 2 partitions, not 1; name each .*in#0"):
        folder.started(spark)
    assert folder.stream("results") == []
