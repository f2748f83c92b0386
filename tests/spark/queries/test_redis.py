"""A pipeline on Spark whose Redis goes away and comes back (spark sp10)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import Stored
from surepipe.pipelines import loads
from surepipe.spark.running import SparkRun
from surepipe.spark.stores import StorePlace, asked
from surepipe.testing.servers import local_servers
from tests.spark.running.kit import finish
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
version: 1
name: away
stores: {{main: {{kind: redis, url: "{url}"}}}}
sources:
  north: {{kind: stream, store: main, stream: north}}
  south: {{kind: stream, store: main, stream: south}}
pipes: {{all: {{from: [north, south], route: {{kind: redis, store: main}}}}}}
sinks: {{out: {{from: all, kind: stream, store: main, stream: out}}}}
"""


def send(streams: Streams, name: str, first: int, count: int) -> None:
    """Messages of a stream, numbered."""
    payloads = [AutoCodec().encode({"s": name, "n": n}) for n in range(first, first + count)]
    append = partial(streams.store.append, name, "maker", 1, first, payloads)
    assert isinstance(asked(append, f"filling {name}", streams.place), Stored)


def test_a_query_goes_on_when_redis_was_restarted_under_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """spark sp10: killed and started again while the query looks for more; each message comes out once."""
    with local_servers()[0].server(appendonly="yes", appendfsync="always") as server:
        streams = Streams(StorePlace(server.url, pipeline="away")).create("north", "south")
        send(streams, "north", 1, 500)
        run = SparkRun(
            loads(PIPELINE.format(url=server.url)),
            spark,
            checkpoint=tmp_path / "points",
            once=True,
        )
        run.start()
        try:
            server.kill()
            server.start()
            send(streams, "south", 1, 500)
            finish(run)
        finally:
            run.close()
        found = [AutoCodec().decode(payload) for payload in streams.read("out")]
        for name in ("north", "south"):
            assert [
                one["n"] for one in found if isinstance(one, dict) and one["s"] == name
            ] == list(range(1, 501))
