"""A driver on a standalone cluster whose executors don't have our code: prints what it found, one word a line.

    python -m tests.spark.cluster_program FOLDER REDIS-URL

Kept as a program because a process can run one Spark only, and the tests' own is a local one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from surepipe.spark.failures import failure_of
from surepipe.spark.places import StorePlace
from surepipe.spark.session import SparkOptions, open_session
from surepipe.testing.spark_cluster import StandaloneCluster
from tests.spark.clusters import compare, write_code
from tests.spark.hidden import hidden_python
from tests.spark.streams import Streams, numbers

COUNT = 6000
BATCH = 1000
STAGES = """
import pyarrow as pa

def doubled(batches):
    for batch in batches:
        at = batch.schema.get_field_index("payload")
        changed = [None if p is None else p + b"-" + p for p in batch["payload"].to_pylist()]
        yield batch.set_column(at, "payload", pa.array(changed, type=pa.binary()))
"""


def main(folder: Path, url: str) -> None:
    """Run everything on one cluster."""
    (folder / "stages_here.py").write_text(STAGES)
    (folder / "stages_shipped.py").write_text(STAGES)
    write_code(folder)
    sys.path.insert(0, str(folder))
    streams = Streams(StorePlace(url, pipeline="cluster")).create("in", "out")
    streams.fill("in", COUNT, page=100)
    python = str(hidden_python(folder / "hidden"))
    with StandaloneCluster(workers=2) as cluster:
        options = SparkOptions(
            master=cluster.url,
            memory="512m",
            state_dir=folder / "spark",
            python=python,
            ship=[folder / "stages_shipped.py"],
            settings={"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"},
        )
        session = open_session(options)
        try:
            tell("executors", len(cluster.executors()) > 0)
            tell("unimportable", unimportable(session, streams))
            tell("killed", run_with_kills(session, streams, cluster, folder))
            tell("plan", compare(session, folder, url))
        finally:
            session.stop()
    log = (folder / "spark" / "spark.log").read_text()
    tell("lost", log.count("Lost executor"))  # by Spark's own account: the kill hit what it should
    found = numbers(streams.read("out"))
    tell("exact", found == [*range(1, COUNT + 1)])


def tell(what: str, value: object) -> None:
    """A line for the test that runs this program."""
    sys.stdout.write(f"{what} {value}\n")


def followed(session: SparkSession, streams: Streams) -> DataFrame:
    """The stream, a thousand rows a batch."""
    options = streams.options("in", max_rows=BATCH)
    return session.readStream.format("surepipe").options(**options).load()


def staged(frame: DataFrame, stage: object) -> DataFrame:
    """The frame behind a stage."""
    apply: Callable[..., DataFrame] = getattr(frame, "mapInArrow")  # noqa: B009 - its types are not known
    return apply(stage, frame.schema)


def unimportable(session: SparkSession, streams: Streams) -> str:
    """What a stage says that executors don't have."""
    doubled = import_module("stages_here").doubled
    frame = session.read.format("surepipe").options(**streams.options("in")).load()
    try:
        staged(frame, doubled).count()
    except PySparkException as error:
        return str(failure_of(error))
    return "it ran"


def run_with_kills(
    session: SparkSession, streams: Streams, cluster: StandaloneCluster, folder: Path
) -> int:
    """Run to the end; an executor is killed after each of the first batches."""
    doubled = import_module("stages_shipped").doubled
    frame = followed(session, streams)
    changed = staged(frame, doubled)
    killed: list[int] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        if batch_id in (1, 3) and cluster.executors():
            killed.append(cluster.kill_executor())
        options = streams.place.options()
        batch.write.format("surepipe").options(**options, stream="out").mode("append").save()

    query = (
        changed.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return len(killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
