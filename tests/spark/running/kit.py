"""Pipelines in a folder of their own, run to their end on actors or on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import Batch
from surepipe.pipelines import Plan, loads
from surepipe.pipelines.run import RealEnvironment
from surepipe.pipelines.run import run as run_on_actors
from surepipe.spark.running import SparkRun
from surepipe.spark.running.run import LOOK_S
from surepipe.storage import SqliteStore
from surepipe.storage.letters import DeadLetterStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE_S = 240.0
Counters = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, and the pipeline of a text in it: ``{folder}`` stands for its path."""

    path: Path
    text: str

    @property
    def plan(self) -> Plan:
        """The pipeline."""
        return loads(self.text.replace("{folder}", str(self.path)))

    def lines(self, orders: Iterable[Mapping[str, object]]) -> None:
        """Add orders to the file that the source reads."""
        with (self.path / "lines.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({**one, "folder": str(self.path)}) + "\n" for one in orders)

    # Running.

    def on_actors(self) -> Counters:
        """Run on actors."""
        return run_on_actors(self.plan, once=True)

    def on_spark(self, spark: SparkSession, checkpoint: str = "checkpoint") -> Counters:
        """Run on Spark, to the end."""
        run = self.started(spark, checkpoint)
        try:
            finish(run)
        finally:
            run.close()
        return run.counters()

    def started(self, spark: SparkSession, checkpoint: str = "checkpoint") -> SparkRun:
        """A run that goes on until somebody ends it."""
        run = SparkRun(self.plan, spark, checkpoint=self.path / checkpoint, once=True)
        run.start()
        return run

    # What came out.

    def jsonl(self, name: str) -> list[dict[str, object]]:
        """The lines of a file."""
        found = (self.path / name).read_text("utf-8").splitlines()
        return [self._own(json.loads(line)) for line in found]

    def parquet(self, name: str) -> list[dict[str, object]]:
        """The rows of a folder of Parquet files, by their number."""
        parquet: Any = import_module("pyarrow.parquet")
        rows: list[dict[str, object]] = parquet.read_table(self.path / name).to_pylist()
        return sorted(map(self._own, rows), key=lambda row: json.dumps(row["n"]).zfill(9))

    def stream(self, name: str) -> list[object]:
        """The messages of a stream."""
        found: list[object] = []
        store, index = self.store, 1
        while isinstance(batch := store.read(name, index, 10_000, 1 << 24), Batch):
            for run in batch.entries:
                found += [self._own(AutoCodec().decode(one)) for one in run.payloads]
            index = batch.next
        store.close()
        return found

    def letters(self, name: str = "dead") -> list[tuple[str, object, int]]:
        """Error, message and attempts of the dead letters."""
        store = self.store
        found = [one.letter for one in DeadLetterStream(store, name).all()]
        store.close()
        return [
            (one.error_text, self._own(AutoCodec().decode(one.payload)), one.attempts)
            for one in found
        ]

    @property
    def store(self) -> SqliteStore:
        """The store of the pipeline, once more."""
        return SqliteStore(self.path / "main.db")

    @staticmethod
    def _own(message: object) -> dict[str, object]:
        assert isinstance(message, dict)
        found = cast("dict[str, object]", message)
        return {name: value for name, value in found.items() if name not in ("folder", "draw")}


def finish(run: SparkRun) -> None:
    """Wait until all is through. AssertionError when that takes for ever."""
    clock = RealEnvironment(run.plan).clock
    end = clock.monotonic() + DONE_S
    while not run.look():
        assert clock.monotonic() < end, run.counters()
        run.wait(LOOK_S)


def told(counters: Counters) -> dict[str, dict[str, int]]:
    """Counters that say something."""
    return {
        part: {what: count for what, count in counts.items() if count}
        for part, counts in counters.items()
    }


def orders(first: int, last: int) -> list[dict[str, object]]:
    """Numbered ones."""
    return [{"n": number, "customer": f"c{number % 7}"} for number in range(first, last + 1)]
