"""A range of a stream once more through a changed stage (spark SP-21)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import Stored
from surepipe.errors import ConfigurationError
from surepipe.spark.replaying import replay
from surepipe.spark.shipping import failure_of
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRICE = "tests.spark.running.functions:price"
EVEN = "tests.spark.running.functions:even_or_none"


def numbers(streams: Streams, name: str) -> list[object]:
    """The orders' numbers in a stream."""
    found = [AutoCodec().decode(payload) for payload in streams.read(name)]
    return [one["n"] for one in found if isinstance(one, dict)]


def test_a_replay_goes_on_where_it_ended_and_adds_nothing_twice(
    spark: SparkSession, streams: Streams
) -> None:
    """spark SP-21: 2..6, then all the range 2..9 under the same name, then once more: even ones, in order."""
    streams.create("orders")
    payloads = [AutoCodec().encode({"n": number}) for number in range(1, 11)]
    assert isinstance(streams.store.append("orders", "shop", 1, 1, payloads), Stored)
    place = streams.place
    first = replay(spark, place, "orders", "even", EVEN, first=2, last=6, each=3)
    assert (first.entries, first.written) == (5, 3)
    again = replay(spark, place, "orders", "even", EVEN, first=2, last=9)
    assert (again.entries, again.written) == (3, 1)
    assert replay(spark, place, "orders", "even", EVEN, first=2, last=9).written == 0
    assert numbers(streams, "even") == [2, 4, 6, 8]


def test_a_range_that_is_not_there_and_a_stage_that_fails_write_nothing(
    spark: SparkSession, streams: Streams
) -> None:
    """spark SP-21: the range that there is is told; what the stage raises ends the replay before a write."""
    streams.create("orders")
    payloads = [AutoCodec().encode({"n": number}) for number in range(1, 4)]
    assert isinstance(streams.store.append("orders", "shop", 1, 1, payloads), Stored)
    with pytest.raises(ConfigurationError, match="has entries 1 to 3, and 2 to 9 are wanted"):
        replay(spark, streams.place, "orders", "out", EVEN, first=2, last=9)
    with pytest.raises(Exception, match="argument") as raised:
        replay(spark, streams.place, "orders", "out", PRICE)
    assert failure_of(raised.value) is None
    assert streams.read("out") == []
