"""A plan on Spark does what it does on actors: messages, order, dead letters, counters (spark SP-2, SP-17)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from surepipe.errors import ConfigurationError
from surepipe.spark.running import SparkRun
from tests.spark.running.kit import Folder, orders, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = """
version: 1
name: shop
stores: {main: {kind: sqlite, path: "{folder}/main.db", durability: process}}
sources: {lines: {kind: jsonl, path: "{folder}/lines.jsonl", key: customer}}
pipes:
  intake: {from: lines, route: {kind: sqlite, store: main}}
  priced: {from: price, route: {kind: sqlite, store: main}}
stages:
  price:
    from: intake
    call: "tests.spark.running.functions:price"
    retries: 2
    retry_min_s: 0.01
    dead_letter: main/dead
  even: {from: priced, filter: "tests.spark.running.functions:is_even"}
  copies: {from: priced, flat-map: "tests.spark.running.functions:copies"}
sinks:
  lines_out: {from: copies, kind: jsonl, path: "{folder}/out.jsonl"}
  rows_out: {from: even, kind: csv, path: "{folder}/out.csv"}
  table: {from: priced, kind: parquet, path: "{folder}/table", rows_per_file: 100}
  results: {from: copies, kind: stream, store: main, stream: results}
"""


def shop(folder: Path) -> Folder:
    """The pipeline, in a new folder."""
    folder.mkdir()
    return Folder(folder, SHOP)


def test_one_file_gives_the_same_on_actors_and_on_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """spark sp8, SP-13: two pipes, a stage that fails, a filter, a flat-map, four sinks; every output is equal,
    the dead letters and their attempts too."""
    actors, sparks = shop(tmp_path / "actors"), shop(tmp_path / "spark")
    for each in (actors, sparks):
        each.lines(orders(1, 300))
    actors.on_actors()
    counters = told(sparks.on_spark(spark))
    assert sparks.jsonl("out.jsonl") == actors.jsonl("out.jsonl")
    assert sparks.parquet("table") == actors.parquet("table")
    assert sparks.stream("results") == actors.stream("results")
    assert sparks.letters() == actors.letters()
    rows = [(each.path / "out.csv").read_text("utf-8").count("\n") for each in (sparks, actors)]
    assert rows == [151, 151]
    assert len(sparks.jsonl("out.jsonl")) > 200
    assert counters["price"] == {"passed": 294, "failed": 12}
    assert counters["intake"]["settled"] == counters["intake"]["accepted"] == 300
    assert counters["priced"] == {"accepted": 294, "settled": 294}
    made = len(sparks.jsonl("out.jsonl"))
    assert counters["results"] == counters["lines_out"] == {"taken": made}


def test_a_stage_that_is_a_class_is_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """spark SP-2: its memory would be another one in each task; no checkpoint, no store is made."""
    folder = Folder(tmp_path, SHOP.replace("functions:is_even", "functions:Sums"))
    with pytest.raises(
        ConfigurationError, match=r"even: .* is a class, whose memory is that of one"
    ):
        folder.started(spark)
    assert list(tmp_path.iterdir()) == []


def test_what_spark_can_not_do_is_refused_without_spark(tmp_path: Path) -> None:
    """spark SP-2: the same reasons as check gives."""
    text = SHOP.replace("{from: lines, route: {kind: sqlite, store: main}}", "{from: lines}")
    folder = Folder(tmp_path, text)
    with pytest.raises(
        ConfigurationError, match="pipe intake: a local route is within one process"
    ):
        SparkRun(folder.plan)
