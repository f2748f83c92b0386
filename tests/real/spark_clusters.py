"""Plans and queries on clusters of this machine, whose executors have none of our code and are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from surepipe.testing.servers import NONE_FOUND, local_servers
from tests.real.spark_kills import no_spark
from tests.real.stage import Stage, Tally
from tests.spark.clusters import run_on_local_cluster

ROOT = Path(__file__).parents[2]
WITHIN_S = 600
MESSAGES = 1_600
"""Four fifths of what a plan is given: it leaves out the others."""


def kill_executors(rng: Random, tally: Tally) -> None:
    """A standalone cluster: code is shipped, two executors are killed under a query, then a plan runs (sp2, sp8,
    sp11, SP-12, SP-24)."""
    del rng  # the query says when it is in the middle of its work
    with tempfile.TemporaryDirectory() as folder, local_servers()[0].server() as redis:
        told = _told(Path(folder), redis.url)
    assert told["executors"] == "True", "no executor ran without our code on its path"
    assert "can't import 'stages_here': ship it with the query" in told["unimportable"]
    assert told["exact"] == "True", "messages were lost, repeated or reordered"
    assert told["killed"] == told["lost"], "a killed executor was not noticed"
    tally.add("executors killed", int(told["killed"]))
    tally.add("messages of a plan", int(told["plan"]))


def _told(folder: Path, url: str) -> dict[str, str]:
    """What the program on the cluster found."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_program", str(folder), url],
        cwd=ROOT,
        env=dict(os.environ),
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
    {"executors killed": 2, "messages of a plan": MESSAGES},
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
