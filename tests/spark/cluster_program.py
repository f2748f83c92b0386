"""A driver on a standalone cluster whose executors don't have our code: prints what it found, one word a line.

    python -m tests.spark.cluster_program FOLDER REDIS-URL SEED

Kept as a program because a process can run one Spark only, and the tests' own is a local one.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from random import Random

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from surepipe.pipelines import loads
from surepipe.spark.columns import mapped
from surepipe.spark.running import SparkRun
from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.shipping import failure_of
from surepipe.testing.spark_cluster import StandaloneCluster
from tests.real.ancestry import ancestor, families
from tests.real.naive_sink import LINES
from tests.real.spark_ground import NAIVE, SIGNS, STREAMS, Ground
from tests.spark.clusters import compare, write_code
from tests.spark.hidden import hidden_python

MESSAGES = 20_000
LOOK_S = 0.05
STAGE = """
def unchanged(batches):
    yield from batches
"""


def main(folder: Path, url: str, seed: str) -> None:
    """Run everything on one cluster."""
    (folder / "stages_here.py").write_text(STAGE)
    write_code(folder)
    sys.path.insert(0, str(folder))
    ground = Ground(folder, url)
    ground.send(MESSAGES // len(STREAMS))
    with StandaloneCluster(workers=2) as cluster:
        session = open_session(options_for(cluster, folder, ground))
        try:
            tell("unimportable", unimportable(session))
            tell("killed", run_with_kills(session, ground, cluster, Random(seed)))
            tell("plan", compare(session, folder, url))
        finally:
            session.stop()
    log = (folder / "spark" / "spark.log").read_text()
    tell(
        "lost", log.count("Lost executor")
    )  # by Spark's own account: the kills hit what they should
    ground.check()
    tell("exact", sum(ground.sent.values()))
    tell("repeats", ground.naive_repeats())


def options_for(cluster: StandaloneCluster, folder: Path, ground: Ground) -> SparkOptions:
    """Small executors, whose Python has no code of ours."""
    settings = {
        "spark.executor.memory": "512m",
        f"spark.executorEnv.{LINES}": str(ground.lines),
        "spark.sql.shuffle.partitions": "2",
    }
    return SparkOptions(
        master=cluster.url,
        memory="512m",
        state_dir=folder / "spark",
        python=str(hidden_python(folder / "hidden")),
        settings=settings,
    )


def tell(what: str, value: object) -> None:
    """A line for the stage that runs this program."""
    sys.stdout.write(f"{what} {value}\n")


def unimportable(session: SparkSession) -> str:
    """What a stage says that executors don't have."""
    try:
        mapped(session.range(1), import_module("stages_here").unchanged, "id long").count()
    except PySparkException as error:
        return str(failure_of(error))
    return "it ran"


def run_with_kills(
    session: SparkSession, ground: Ground, cluster: StandaloneCluster, rng: Random
) -> int:
    """Run to the end; an executor is killed at each first sign of work: for the naive sink the one that writes."""
    run = SparkRun(loads(ground.text), session, checkpoint=ground.folder / "points", once=True)
    before, waiting = {sign: ground.sign(sign) for sign in SIGNS}, list(SIGNS)
    run.start()
    try:
        while not run.look():
            for sign in [one for one in waiting if ground.sign(one) > before[one]]:
                if (found := victim(ground, cluster, sign, rng)) is not None:
                    os.kill(found, signal.SIGKILL)
                    waiting.remove(sign)
            run.wait(LOOK_S)
    finally:
        run.close()
    return len(SIGNS) - len(waiting)


def victim(ground: Ground, cluster: StandaloneCluster, sign: int, rng: Random) -> int | None:
    """An executor with tasks, for the naive sink the one that writes to it; None when there is none."""
    parents = {one.parent for one in families().values()}
    at_work = [one for one in cluster.executors() if one in parents]
    if sign == NAIVE:
        writers = [process for _, process in ground.naive_lines()]
        return ancestor(writers[-1], at_work) if writers else None
    return rng.choice(at_work) if at_work else None


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
