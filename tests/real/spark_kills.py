"""kill -9 of a whole driver, Python and JVM, in the middle of a run over four streams; and a naive sink beside it.

Each life gets more messages, and is killed a drawn moment after a drawn sign of work: a stream that grew, or lines
of the naive sink that are not accounted for yet. The last life runs to its end (``spark_ground``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from surepipe.errors import ConfigurationError
from surepipe.spark.java import find_java
from surepipe.spark.session import require_extra
from tests.real.ancestry import families
from tests.real.history import Anomaly
from tests.real.naive_sink import LINES
from tests.real.spark_ground import NAIVE, OUT, PIPE, STREAMS, Ground
from tests.real.stage import Stage, Tally
from tests.spark.short_java import surroundings

KILLS = 8
MESSAGES = 80_000
LOOK_S = 0.03
PATIENCE_S = 300.0


def start(ground: Ground) -> subprocess.Popen[bytes]:
    """A driver, in a process group of its own with its JVM."""
    with (ground.folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "surepipe", "run", "killed.yaml", "--once", "--json"],
            cwd=ground.folder,
            env=surroundings(**{LINES: str(ground.lines)}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def live_and_die(ground: Ground, rng: Random, sign: int) -> None:
    """A life that ends by kill -9 while it works. Raises Anomaly when it ends by itself."""
    before = ground.sign(sign)
    driver = start(ground)
    end = time.monotonic() + PATIENCE_S
    while ground.sign(sign) == before and driver.poll() is None and time.monotonic() < end:
        time.sleep(LOOK_S)
    time.sleep(rng.uniform(0.0, 0.1))  # the drawn moment
    has_ended, has_worked = driver.poll() is not None, ground.sign(sign) != before
    if not has_ended:
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    if has_ended or not has_worked:
        raise Anomaly(f"nobody was killed at work: {log_of(ground)}")
    wait_for_tasks(driver)


def wait_for_tasks(driver: subprocess.Popen[bytes]) -> None:
    """Until processes of tasks have missed their JVM: what they still write is no sign of the next life."""
    while any(one.session == driver.pid for one in families().values()):
        time.sleep(LOOK_S)


def live_to_the_end(ground: Ground) -> None:
    """A life that nobody disturbs. Raises Anomaly when it fails."""
    driver = start(ground)
    if driver.wait(PATIENCE_S) != 0:
        raise Anomaly(f"the last life failed: {log_of(ground)}")


def log_of(ground: Ground) -> str:
    """The end of what the drivers said."""
    return (ground.folder / "driver.log").read_text("utf-8", errors="replace")[-2000:]


def kill_drivers(rng: Random, tally: Tally) -> None:
    """Eight kills, each sign of work in turn (sp1)."""
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        for number in range(KILLS):
            ground.send(MESSAGES // len(STREAMS) // KILLS)
            with tally.timed(f"life {number}"):
                live_and_die(ground, rng, (NAIVE, OUT, PIPE)[number % 3])
            tally.add("drivers killed")
        with tally.timed("last life"):
            live_to_the_end(ground)
        ground.check()
        tally.add("messages", sum(ground.sent.values()))
        tally.add("repeats of the naive sink", ground.naive_repeats())
        ground.store.close()


def no_spark() -> str:
    """What is missing for Spark here."""
    try:
        require_extra()
        find_java()
    except ConfigurationError as error:
        return str(error)
    return ""


STAGE = Stage(
    "drivers",
    "spark",
    kill_drivers,
    {"drivers killed": KILLS, "messages": MESSAGES, "repeats of the naive sink": 1},
    no_spark,
    omits="executors on other machines",
)
