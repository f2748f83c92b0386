"""Runs of a plan that begin again, and runs in which something fails (spark SP-9, SP-17)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.running.kit import Folder, finish, orders, told
from tests.spark.running.test_runs import shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_lost_checkpoint_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """spark sp4, SP-9: the second run has no checkpoint, and more lines; each end knows its own place."""
    folder = shop(tmp_path / "shop")
    folder.lines(orders(1, 120))
    folder.on_spark(spark)
    folder.lines(orders(121, 200))
    folder.on_spark(spark, "another")
    good = [number for number in range(1, 201) if number % 50 != 7]
    assert [row["n"] for row in folder.parquet("table")] == good
    assert [one["n"] for one in folder.jsonl("out.jsonl")] == [
        n for n in good for _ in range(n % 3)
    ]
    assert folder.stream("results") == folder.jsonl("out.jsonl")
    assert [message["n"] for _, message, _ in folder.letters() if isinstance(message, dict)] == [
        7, 57, 107, 157,
    ]  # fmt: skip


TRIED = """
version: 1
name: tried
stores: {main: {kind: sqlite, path: "{folder}/main.db", durability: process}}
sources: {lines: {kind: jsonl, path: "{folder}/lines.jsonl"}}
pipes: {intake: {from: lines, route: {kind: sqlite, store: main}}}
stages: {retried: {from: intake, call: "tests.spark.running.functions:fails_twice", retry_min_s: 0.01}}
sinks:
  books:
    from: retried
    kind: python
    call: "tests.spark.running.functions:book"
    retries: 3
    retry_min_s: 0.01
    dead_letter: main/dead
"""


def test_what_fails_is_tried_again_then_buried_and_the_rest_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """spark sp10, SP-17: a stage fails twice for 3, a sink always for 5; its letter has the message as it was."""
    folder = Folder(tmp_path, TRIED)
    folder.lines(orders(1, 9))
    run = folder.started(spark)
    try:
        finish(run)
    finally:
        run.close()
    booked = (tmp_path / "booked.jsonl").read_text("utf-8").split()
    assert booked == ["1", "2", "3", "4", "6", "7", "8", "9"]
    assert folder.letters() == [("no book for 5", {"n": 5, "customer": "c5"}, 3)]
    counters = told(run.counters())
    assert counters["retried"] == {"passed": 9, "failed": 2}
    assert counters["books"] == {"taken": 8, "failed": 3, "dead_lettered": 1}
    assert run.buried == {"main/dead": 1}
