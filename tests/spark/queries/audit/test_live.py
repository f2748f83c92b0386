"""A query over live streams raises an alarm for a planted loss within the stated time (spark SP-19)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from surepipe.audit.bulk.loss_watch import LossAlarm, LossTrouble
from surepipe.core.store_requests import Stored
from surepipe.errors import ConfigurationError
from surepipe.spark.audit import Watched, watch
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 120.0
WITHIN_S = 1.0


class Alarms:
    """What was raised, and a bell for it."""

    def __init__(self) -> None:
        self.all: list[LossAlarm] = []
        self._bell = threading.Event()

    def __call__(self, alarms: Sequence[LossAlarm]) -> None:
        self.all += alarms
        self._bell.set()

    def wait(self) -> bool:
        """Until something is raised."""
        return self._bell.wait(PATIENCE_S)


def test_a_watch_over_a_stream_that_is_not_there_is_refused(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """spark SP-19: by name, and before a query starts."""
    place = streams.create("orders").place
    with pytest.raises(ConfigurationError, match=r"stream 'orders.done' does not exist"):
        watch(
            spark,
            Watched(place, "orders", place, "orders.done", WITHIN_S),
            Alarms(),
            checkpoint=tmp_path / "checkpoint",
        )
    assert not (tmp_path / "checkpoint").exists()


def test_a_loss_in_a_live_stream_raises_one_alarm_that_names_it(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """Forty messages went in, all but the 17th come out, nothing more comes: index 17 is told."""
    streams.create("orders", "orders.done")
    streams.fill("orders", 40)
    came = [payload for at, payload in enumerate(streams.read("orders"), 1) if at != 17]
    assert isinstance(streams.store.append("orders.done", "hop", 1, 1, came[:25]), Stored)
    alarms = Alarms()
    place = streams.place
    watched = Watched(place, "orders", place, "orders.done", WITHIN_S, every_s=0.2)
    assert isinstance(streams.store.append("orders.done", "hop", 1, 26, came[25:]), Stored)
    query = watch(spark, watched, alarms, checkpoint=tmp_path / "checkpoint")
    try:
        assert alarms.wait(), query.exception()
    finally:
        query.stop()
    assert [(one.trouble, one.stream, one.index) for one in alarms.all] == [
        (LossTrouble.LOST, "orders", 17)
    ]
    assert alarms.all[0].waited_us >= WITHIN_S * 1_000_000
