"""kill -9 of a whole driver, Python and JVM, in the middle of a run over four streams; and a naive sink beside it.

Each life gets more messages, and is killed a drawn moment after a drawn sign of work: a stream that grew, or lines
of the naive sink that are not accounted for yet. The last life runs to its end. What counts is the stream that
came out: each message once, in the order of its stream. The naive sink, a function that adds lines to a file, must
have repeats, or the kills would have hit nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from surepipe.actors.codecs import AutoCodec
from surepipe.errors import ConfigurationError
from surepipe.spark.java import find_java
from surepipe.spark.session import require_extra
from surepipe.storage import SqliteStore
from surepipe.store_api import KEEP_ALL, Batch, Created, Stored, StreamInfo
from tests.real.history import Anomaly
from tests.real.stage import Stage, Tally

ROOT = Path(__file__).parents[2]
KILLS = 8
MESSAGES = 80_000
STREAMS = ("north", "east", "south", "west")
PATIENCE_S = 300.0
LINES_EACH = 10
"""One message in so many goes to the naive sink."""

PIPELINE = """
version: 1
name: killed
engine: {kind: spark, master: "local[2]", checkpoint: points}
stores: {main: {kind: sqlite, path: main.db, durability: process}}
sources:
  north: {kind: stream, store: main, stream: north}
  east: {kind: stream, store: main, stream: east}
  south: {kind: stream, store: main, stream: south}
  west: {kind: stream, store: main, stream: west}
pipes: {all: {from: [north, east, south, west], route: {kind: sqlite, store: main}}}
stages:
  some: {from: all, filter: "tests.real.spark_kills:is_for_naive"}
sinks:
  out: {from: all, kind: stream, store: main, stream: out}
  naive: {from: some, kind: python, call: "tests.real.spark_kills:naive"}
"""


def is_for_naive(message: dict[str, object]) -> bool:
    """One in ten."""
    number = message["n"]
    assert isinstance(number, int)
    return number % LINES_EACH == 0


def naive(message: dict[str, object]) -> None:
    """Add a line, and know nothing of what is there already. Slow enough to be killed in the middle."""
    with Path("naive.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(message) + "\n")
    time.sleep(0.0005)


@dataclass
class Ground:
    """The folder of a run, and what was put into its streams."""

    folder: Path
    sent: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        (self.folder / "killed.yaml").write_text(PIPELINE, encoding="utf-8")
        self.store = SqliteStore(self.folder / "main.db")
        for stream in STREAMS:
            assert isinstance(self.store.create(stream, 1, KEEP_ALL), Created)

    def send(self, count: int) -> None:
        """So many more messages into each stream."""
        encode = AutoCodec().encode
        for stream in STREAMS:
            first = self.sent[stream] + 1
            numbers = range(first, first + count)
            payloads = [encode({"s": stream, "n": number}) for number in numbers]
            assert isinstance(self.store.append(stream, "maker", 1, first, payloads), Stored)
            self.sent[stream] += count

    def start(self) -> subprocess.Popen[bytes]:
        """A driver, in a process group of its own with its JVM."""
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "surepipe", "run", "killed.yaml", "--once", "--json"],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def signs(self) -> tuple[int, int, int]:
        """What grows while a driver works: the pipe, what comes out, the naive sink's file."""
        lines = self.folder / "naive.jsonl"
        return (
            self._next("killed/all"),
            self._next("out"),
            lines.stat().st_size if lines.exists() else 0,
        )

    def _next(self, stream: str) -> int:
        info = self.store.info(stream)
        return info.next if isinstance(info, StreamInfo) else 1

    # The verdict.

    def came_out(self) -> list[dict[str, object]]:
        """All messages of the stream that counts."""
        found: list[dict[str, object]] = []
        decode, index = AutoCodec().decode, 1
        while isinstance(batch := self.store.read("out", index, 20_000, 1 << 26), Batch):
            for run in batch.entries:
                found += [one for one in map(decode, run.payloads) if isinstance(one, dict)]
            index = batch.next
        return found

    def check(self) -> None:
        """Raises Anomaly unless each message came out once, in the order of its stream."""
        found: dict[str, list[object]] = {stream: [] for stream in STREAMS}
        for message in self.came_out():
            found[str(message["s"])].append(message["n"])
        for stream, numbers in found.items():
            if numbers != list(range(1, self.sent[stream] + 1)):
                seen = Counter(numbers)
                lost = self.sent[stream] - len(seen)
                twice = sum(count > 1 for count in seen.values())
                raise Anomaly(f"{stream}: {lost} lost, {twice} repeated, of {self.sent[stream]}")

    def naive_repeats(self) -> int:
        """Lines of the naive sink that are there again."""
        lines = (self.folder / "naive.jsonl").read_text("utf-8").splitlines()
        return len(lines) - len(set(lines))


def live_and_die(ground: Ground, rng: Random, sign: int) -> bool:
    """A life that ends by kill -9; False when it came to its end before."""
    before = ground.signs[sign]
    driver = ground.start()
    end = time.monotonic() + PATIENCE_S
    while ground.signs[sign] == before and driver.poll() is None:
        if time.monotonic() > end:
            os.killpg(driver.pid, signal.SIGKILL)
            raise Anomaly(f"nothing happened for {PATIENCE_S} s: {log_of(ground)}")
        time.sleep(0.01)
    time.sleep(rng.uniform(0.0, 0.1))  # the drawn moment
    is_alive = driver.poll() is None
    os.killpg(driver.pid, signal.SIGKILL) if is_alive else None
    driver.wait()
    return is_alive


def live_to_the_end(ground: Ground) -> None:
    """A life that nobody disturbs. Raises Anomaly when it fails."""
    driver = ground.start()
    if driver.wait(PATIENCE_S) != 0:
        raise Anomaly(f"the last life failed: {log_of(ground)}")


def log_of(ground: Ground) -> str:
    """The end of what the drivers said."""
    return (ground.folder / "driver.log").read_text("utf-8", errors="replace")[-2000:]


def kill_drivers(rng: Random, tally: Tally, kills: int, messages: int) -> None:
    """So many kills, with so many messages in all."""
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        each = messages // len(STREAMS) // kills
        for number in range(kills):
            ground.send(each)
            with tally.timed(f"life {number}"):
                was_killed = live_and_die(ground, rng, (2, 1, 0)[number % 3])
            tally.add("drivers killed", int(was_killed))
        with tally.timed("last life"):
            live_to_the_end(ground)
        ground.check()
        tally.add("messages", sum(ground.sent.values()))
        tally.add("repeats of the naive sink", ground.naive_repeats())
        ground.store.close()


def run(rng: Random, tally: Tally) -> None:
    """The stage."""
    kill_drivers(rng, tally, KILLS, MESSAGES)


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
    run,
    {"drivers killed": KILLS - 1, "messages": MESSAGES, "repeats of the naive sink": 1},
    no_spark,
    omits="executors on other machines",
)
