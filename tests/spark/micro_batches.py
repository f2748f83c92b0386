"""Spark's side of a streaming source, without Spark: asks for offsets, plans, reads, and commits one batch late.

Everything goes through JSON and pickle on its way, as it does between the JVM and its Python workers.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from surepipe.spark.source import STRUCT, StreamReader
from surepipe.spark.source_options import SourceOptions


class MicroBatches:
    """One query. Its checkpoint outlives it: ``again`` begins where it ended."""

    def __init__(self, options: dict[str, str], checkpoint: list[str] | None = None) -> None:
        self.options = options
        self.reader = StreamReader(SourceOptions.of(options), STRUCT)
        self.checkpoint = [] if checkpoint is None else checkpoint

    def again(self, **changed: object) -> MicroBatches:
        """A new run of the query on the same checkpoint."""
        options = {**self.options, **{name: str(value) for name, value in changed.items()}}
        return MicroBatches(options, self.checkpoint)

    def begin(self) -> str:
        """The offset where the next batch begins."""
        if not self.checkpoint:
            self.checkpoint.append(json.dumps(self.reader.initialOffset()))
        return self.checkpoint[-1]

    def batch(self) -> list[dict[str, Any]] | None:
        """The rows of one batch; None when there is nothing new."""
        start = self.begin()
        limit = self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if end == start:
            return None
        rows = self.rows(start, end)
        if len(self.checkpoint) > 1:
            self.reader.commit(json.loads(start))
        self.checkpoint.append(end)
        return rows

    def rows(self, start: str, end: str) -> list[dict[str, Any]]:
        """What lies between two offsets."""
        found: list[dict[str, Any]] = []
        for task in self.reader.partitions(json.loads(start), json.loads(end)):
            for batch in pickle.loads(pickle.dumps(self.reader)).read(
                pickle.loads(pickle.dumps(task))
            ):
                found += batch.to_pylist()
        return found

    def payloads(self) -> list[bytes]:
        """All payloads that are there now, batch by batch."""
        found: list[bytes] = []
        while (rows := self.batch()) is not None:
            found += [row["payload"] for row in rows]
        return found

    def everything(self) -> str:
        """The offset after all that is there, whatever the option says."""
        start = json.loads(self.begin())
        return json.dumps(self.reader.latestOffset(start, ReadAllAvailable()))
