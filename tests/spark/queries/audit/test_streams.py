"""Streams on Redis, judged by both engines (spark SP-18, sp9)."""

from __future__ import annotations

from pathlib import Path
from random import Random

from surepipe.audit.bulk import BulkAudit, DuckEngine, Place, Question, judge, place_of
from surepipe.audit.bulk.judging import Match
from surepipe.core.store_requests import Stored, partition_of
from surepipe.spark.audit import SparkEngine
from surepipe.spark.stores import StorePlace
from surepipe.testing.servers import RedisServer
from tests.spark.streams import Streams

SENT = 300
SEED = 20261122


def places(server: RedisServer, pipeline: str) -> tuple[Streams, Place, Place]:
    """The streams sent and done of a pipeline, and how an audit names them."""
    url = f"{server.url}/0?pipeline={pipeline}"
    streams = Streams(StorePlace(server.url, pipeline=pipeline))
    return streams, place_of(f"{url}#sent"), place_of(f"{url}#done")


def both(
    engine: SparkEngine, sent: Place, done: Place, match: Match
) -> tuple[BulkAudit, BulkAudit]:
    """What Spark finds, and what this process finds."""
    question = Question(sent, done, at_rest=True, match=match)
    return judge(engine, question), judge(DuckEngine(), question)


def spoiled(payloads: list[bytes], rng: Random) -> list[bytes]:
    """What comes out of a bad hop: 4 lost, 3 late by one, 2 twice."""
    places = rng.sample(range(0, len(payloads), 2), 9)
    came = list(payloads)
    for at in places[4:7]:
        came[at], came[at + 1] = came[at + 1], came[at]
    again = [payloads[at] for at in places[7:]]
    lost = {payloads[at] for at in places[:4]}
    return [payload for payload in came if payload not in lost] + again


def test_engines_agree_on_streams_on_redis_by_payload(
    engine: SparkEngine, spark_redis: RedisServer, tmp_path: Path
) -> None:
    """Two partitions, each spoiled by itself, into one stream, and one message from nowhere."""
    streams, sent, done = places(spark_redis, tmp_path.name)
    streams.create("sent", partitions=2).create("done")
    rng, came = Random(SEED), [b"from nowhere"]
    for partition in range(2):
        streams.fill(partition_of("sent", partition), SENT, page=40)
        came += spoiled(streams.read(partition_of("sent", partition)), rng)
    assert isinstance(streams.store.append("done", "hop", 1, 1, came), Stored)
    found, local = both(engine, sent, done, "payload")
    assert found.channels == local.channels
    assert [one.channel for one in found.channels if one.sent] == ["sent#0", "sent#1"]
    for one in found.channels:
        if one.sent:
            assert (one.lost, one.out_of_order, one.repeated) == (4, 3, 2)
    assert found.total("foreign") == 1


def test_engines_agree_on_streams_on_redis_by_identity(
    engine: SparkEngine, spark_redis: RedisServer, tmp_path: Path
) -> None:
    """The hop changes payloads, keeps identities, and is not through; the first page that was sent is trimmed."""
    streams, sent, done = places(spark_redis, tmp_path.name)
    streams.create("sent", "done").fill("sent", SENT, page=40)
    changed = [b"changed" for _ in range(SENT - 20)]
    assert isinstance(streams.store.append("done", "maker", 1, 1, changed), Stored)
    assert streams.trim("sent", 41) == 41
    found, local = both(engine, sent, done, "identity")
    assert found.channels == local.channels
    (one,) = found.channels
    assert (one.channel, one.sent, one.settled, one.lost) == (
        "sent@maker",
        SENT - 40,
        SENT - 60,
        20,
    )
    assert (one.foreign, one.untold) == (0, 40)
