"""Plans and queries on clusters of this machine, whose executors have none of our code and are killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from surepipe.testing.servers import NONE_FOUND, local_servers
from tests.real.spark_kills import no_spark
from tests.real.stage import Stage, Tally
from tests.spark.clusters import run_on_local_cluster
from tests.spark.short_java import surroundings

ROOT = Path(__file__).parents[2]
WITHIN_S = 600
MESSAGES = 1_600
"""Four fifths of what a plan is given: it leaves out the others."""


def kill_executors(rng: Random, tally: Tally) -> None:
    """A standalone cluster: executors are killed under a pipeline, as in ``spark_kills``; a stage that they don't
    have is told; and a plan whose code is shipped gives what actors give (sp2, sp8, sp11, SP-12, SP-24)."""
    with tempfile.TemporaryDirectory() as folder, local_servers()[0].server() as redis:
        told = _told(folder, redis.url, str(rng.random()))
    assert "can't import 'stages_here': ship it with the query" in told["unimportable"]
    assert told["killed"] == told["lost"], "a killed executor was not noticed"
    tally.add("executors killed", int(told["killed"]))
    tally.add("messages", int(told["exact"]))
    tally.add("repeats of the naive sink", int(told["repeats"]))
    tally.add("messages of a plan", int(told["plan"]))


def _told(*arguments: str) -> dict[str, str]:
    """What the program on the cluster found."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_program", *arguments],
        cwd=ROOT,
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def run_local_cluster(rng: Random, tally: Tally) -> None:
    """``surepipe run`` on ``local-cluster[2,1,1024]`` gives what actors give (sp8, SP-24)."""
    del rng  # nothing is drawn
    with tempfile.TemporaryDirectory() as folder, local_servers()[0].server() as redis:
        tally.add("messages of a plan", run_on_local_cluster(Path(folder), redis.url))


def what_is_missing() -> str:
    """Spark or Redis."""
    return no_spark() or ("" if local_servers() else NONE_FOUND)


EXECUTORS = Stage(
    "executors",
    "spark",
    kill_executors,
    {
        "executors killed": 3,
        "messages": 20_000,
        "repeats of the naive sink": 1,
        "messages of a plan": MESSAGES,
    },
    what_is_missing,
    omits="workers on other machines",
)
LOCAL_CLUSTER = Stage(
    "local-cluster",
    "spark",
    run_local_cluster,
    {"messages of a plan": MESSAGES},
    what_is_missing,
    omits="workers on other machines",
)
