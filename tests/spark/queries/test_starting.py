"""A query whose source answers too late is started again, whoever starts it (spark SP-5, SP-14, SP-19).

The Python of sources is a script here, which drops the line to Spark some times before it is a Python: what Spark
then says is what it says after ten seconds without an answer.
"""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from surepipe.audit.bulk.loss_watch import LossAlarm
from surepipe.core.store_requests import Stored
from surepipe.spark.audit import Watched, watch
from surepipe.spark.keyed import receive_by_channel
from surepipe.spark.session import STARTS, prepare_session, start
from tests.spark.running.kit import Folder, orders
from tests.spark.streams import Streams, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Late = Callable[[int], Callable[[], int]]
PATIENCE_S = 120
DROP = """
import os, socket
path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
if path:
    socket.socket(socket.AF_UNIX).connect(path)
else:
    socket.create_connection(("127.0.0.1", int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
"""
SCRIPT = """#!/bin/sh
case "$*" in *python_streaming_source_runner*)
    for number in {numbers}; do
        mkdir {folder}/dropped-$number 2>/dev/null && exec {python} -S -c {drop}
    done;;
esac
exec {python} "$@"
"""


@pytest.fixture
def late(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Late]:
    """Makes processes of sources fail to answer so many times; what it gives tells how many did."""
    folder = tmp_path / "late"
    folder.mkdir()

    def arrange(times: int) -> Callable[[], int]:
        script = folder / "python"
        parts = {"python": shlex.quote(sys.executable), "drop": shlex.quote(DROP)}
        numbers = " ".join(map(str, range(times)))
        script.write_text(SCRIPT.format(folder=folder, numbers=numbers, **parts))
        script.chmod(0o755)
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(script))
        prepare_session(spark)
        return lambda: len([*folder.glob("dropped-*")])

    yield arrange
    monkeypatch.undo()
    prepare_session(spark)


PIPELINE = """
version: 1
name: late
stores: {main: {kind: sqlite, path: "{folder}/main.db", durability: process}}
sources: {lines: {kind: jsonl, path: "{folder}/lines.jsonl"}}
pipes: {intake: {from: lines, route: {kind: sqlite, store: main}}}
sinks: {results: {from: intake, kind: stream, store: main, stream: results}}
"""


def test_a_pipeline_survives_two_sources_that_are_late(
    spark: SparkSession, late: Late, tmp_path: Path
) -> None:
    """spark SP-2: the third start is the one that works."""
    dropped = late(STARTS - 1)
    folder = Folder(tmp_path, PIPELINE)
    folder.lines(orders(1, 9))
    folder.on_spark(spark)
    assert folder.stream("results") == orders(1, 9)
    assert dropped() == STARTS - 1


def test_a_watch_survives_a_source_that_is_late(
    spark: SparkSession, late: Late, streams: Streams, tmp_path: Path
) -> None:
    """spark SP-19: one of its two sources is; the loss is told all the same."""
    streams.create("orders", "orders.done").fill("orders", 5)
    came = streams.read("orders")[1:]
    assert isinstance(streams.store.append("orders.done", "hop", 1, 1, came), Stored)
    dropped, told, bell = late(1), list[LossAlarm](), threading.Event()

    def tell(alarms: Sequence[LossAlarm]) -> None:
        told.extend(alarms)
        bell.set()

    place = streams.place
    watched = Watched(place, "orders", place, "orders.done", 0.1, every_s=0.1)
    query = watch(spark, watched, tell, checkpoint=tmp_path / "checkpoint")
    try:
        assert bell.wait(PATIENCE_S), query.exception()
    finally:
        query.stop()
    assert [one.index for one in told] == [1]
    assert dropped() == 1


def test_receivers_by_channel_survive_a_source_that_is_late(
    spark: SparkSession, late: Late, streams: Streams, tmp_path: Path
) -> None:
    """spark SP-14: a query of the user's own, started by ``start``."""
    streams.create("in").fill("in", 9)
    dropped, found = late(1), list[bytes]()
    rows = (
        spark.readStream.format("surepipe")
        .options(**streams.options("in"))
        .load()
        .selectExpr("stream AS channel", "index AS arrived", "epoch", "seq", "payload")
    )

    def keep(batch: DataFrame, number: int) -> None:
        del number
        found.extend(bytes(row["payload"]) for row in batch.collect())

    query = start(
        receive_by_channel(rows, "continuous-index")
        .writeStream.option("checkpointLocation", str(tmp_path / "points"))
        .trigger(availableNow=True)
        .foreachBatch(keep)
    )
    assert query.awaitTermination(PATIENCE_S)
    assert numbers(found) == [*range(1, 10)]
    assert dropped() == 1


def test_a_source_that_never_answers_ends_the_query_with_what_spark_says(
    spark: SparkSession, late: Late, streams: Streams, tmp_path: Path
) -> None:
    """spark SP-5: three starts, no fourth."""
    streams.create("in", "out").fill("in", 9)
    dropped = late(STARTS + 1)
    options = streams.place.options()
    query = start(
        spark.readStream.format("surepipe")
        .options(**streams.options("in"))
        .load()
        .writeStream.format("surepipe")
        .options(**options, stream="out")
        .option("checkpointLocation", str(tmp_path / "points"))
    )
    with pytest.raises(StreamingQueryException, match="worker failed to connect back"):
        query.awaitTermination(PATIENCE_S)
    assert dropped() == STARTS
    assert streams.read("out") == []
