"""One plan on actors and on clusters of Spark whose executors don't have our code, nor the plan's.

    run_on_local_cluster(folder, redis_url)     # through the command: ``local-cluster[2,1,1024]``
    compare(session, folder, redis_url)         # on the cluster of a session

Both raise AssertionError when what comes out is not what actors give.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import Stored
from surepipe.pipelines import Plan, loads
from surepipe.pipelines.run import run as run_on_actors
from surepipe.spark.running import run as run_on_spark
from surepipe.spark.stores import StorePlace
from tests.spark.hidden import hidden_python
from tests.spark.short_java import surroundings
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
WITHIN_S = 900
COUNT = 2000
FUNCTIONS = """
from plan_helper import twice

def price(order):
    return {**order, "price": twice(order["n"])}

def is_wanted(order):
    return order["n"] % 5 != 0
"""
HELPER = """
def twice(number):
    return 2 * number
"""
PIPELINE = """
version: 1
name: {name}
engine: {{kind: {kind}, ship: [plan_helper]{options}}}
stores: {{main: {{kind: redis, url: "{url}"}}}}
sources: {{orders: {{kind: stream, store: main, stream: orders}}}}
pipes:
  intake: {{from: orders, route: {{kind: redis, store: main}}}}
  priced: {{from: price, route: {{kind: redis, store: main}}}}
stages:
  price: {{from: intake, call: "plan_stages:price"}}
  wanted: {{from: priced, filter: "plan_stages:is_wanted"}}
sinks: {{out: {{from: wanted, kind: stream, store: main, stream: prices}}}}
"""


def write_code(folder: Path) -> None:
    """The plan's functions, and a module that these import: the first is shipped by itself, the second as told."""
    (folder / "plan_stages.py").write_text(FUNCTIONS)
    (folder / "plan_helper.py").write_text(HELPER)


def filled(name: str, url: str, count: int = COUNT) -> Streams:
    """The streams of a pipeline, with orders in the one that is read."""
    streams = Streams(StorePlace(url, pipeline=name)).create("orders")
    payloads = [AutoCodec().encode({"n": number}) for number in range(1, count + 1)]
    assert isinstance(streams.store.append("orders", "shop", 1, 1, payloads), Stored)
    return streams


def text_of(name: str, url: str, kind: str, **options: str) -> str:
    """The file of a pipeline."""
    further = "".join(f', {key}: "{value}"' for key, value in options.items())
    return PIPELINE.format(name=name, url=url, kind=kind, options=further)


def plan_of(name: str, url: str, kind: str) -> Plan:
    """The plan."""
    return loads(text_of(name, url, kind))


def on_actors(name: str, url: str) -> list[bytes]:
    """What actors give."""
    streams = filled(name, url)
    run_on_actors(plan_of(name, url, "actors"), once=True)
    return streams.read("prices")


def compare(session: SparkSession, folder: Path, url: str) -> int:
    """Run on both; how many messages came out of each, equal and in order. The folder is on the path here."""
    streams = filled("sparks", url)
    run_on_spark(plan_of("sparks", url, "spark"), session, checkpoint=folder / "plan", once=True)
    found = streams.read("prices")
    assert found == on_actors("actors", url)
    return len(found)


def run_on_local_cluster(folder: Path, url: str) -> int:
    """The same through ``surepipe run``: each executor is a process with a JVM of its own."""
    write_code(folder)
    sys.path.insert(0, str(folder))
    wanted = on_actors("actors", url)
    streams = filled("sparks", url)
    python = str(hidden_python(folder / "hidden"))
    file = folder / "plan.yaml"
    file.write_text(text_of("sparks", url, "spark", master=LOCAL_CLUSTER, python=python))
    done = subprocess.run(
        [sys.executable, "-m", "surepipe", "run", str(file), "--once", "--json"],
        cwd=folder,
        env={name: value for name, value in surroundings().items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert streams.read("prices") == wanted
    assert json.loads(done.stdout)["counters"]["spark"]["batches"] > 0
    return len(wanted)
