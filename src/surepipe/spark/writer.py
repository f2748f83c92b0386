"""The writer of the data source "surepipe": rows of the source, changed, into one stream, by identity.

    changed.writeStream.format("surepipe").options(**place.options(), stream="prices").start()

Rows keep the source's columns stream, partition, index and life; ``payload`` is what is appended. A row without a
payload says that nothing was made of its entry, several rows of one index are several outputs. So each index of a
task's range must be there: a missing one is a gap, and refused. A filter sets the payload to null instead of
removing the row, or writes with ``sink.write_rows``, which is told the range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from surepipe.errors import ConfigurationError, MisuseError
from surepipe.spark.arrow import RecordBatch
from surepipe.spark.places import StorePlace
from surepipe.spark.sink import Origin, Outputs, append_by_identity
from surepipe.spark.source_options import PLACE_OPTIONS, SPARKS_OPTIONS, nearest

NEEDED = ("stream", "partition", "index", "life", "payload")
_OPTIONS = (*PLACE_OPTIONS, "stream", "sink")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Which stream is written, and under which name the position is kept."""

    place: StorePlace
    stream: str
    sink: str = "spark"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read Spark's options. Raises ConfigurationError."""
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in (*_OPTIONS, *SPARKS_OPTIONS, "checkpointlocation"):
                raise ConfigurationError(
                    f"option {name!r} of the surepipe sink is unknown: {nearest(name, _OPTIONS)}"
                )
        if not given.get("stream"):
            raise ConfigurationError(
                "the surepipe sink is not told where to append: give stream=prices"
            )
        return cls(StorePlace.of_options(given), given["stream"], given.get("sink", "spark"))


def check_schema(schema: StructType) -> None:
    """Raises ConfigurationError for rows that do not say what they were made of."""
    missing = [name for name in NEEDED if name not in schema.fieldNames()]
    if missing:
        raise ConfigurationError(
            f"rows for the surepipe sink lack {', '.join(missing)}: keep the source's columns {', '.join(NEEDED)}"
        )
    kind = schema["payload"].dataType.simpleString()
    if kind != "binary":
        raise ConfigurationError(f"payload is a {kind}: cast it to binary before the sink")


class Done(WriterCommitMessage):
    """What a task has done; nothing is left to commit."""

    def __init__(self, new: int, skipped: int) -> None:
        self.new = new
        self.skipped = skipped


@dataclass(slots=True)
class _Run:
    """Rows of one origin that came one after the other, and are not appended yet."""

    origin: Origin
    from_index: int
    last: int
    indexes: list[int] = field(default_factory=list[int])
    payloads: list[bytes] = field(default_factory=list[bytes])

    def take(self, index: int, payload: bytes | None) -> None:
        """One more row. Raises MisuseError for one that does not follow."""
        if not self.last <= index <= self.last + 1:
            raise MisuseError(
                f"a row of entry {index} of {self.origin.key} follows one of entry {self.last}: rows reach "
                "the sink in order and without a gap; sort by stream and index after a shuffle, and set the "
                "payload to null instead of removing a row"
            )
        self.last = index
        if payload is not None:
            self.indexes.append(index)
            self.payloads.append(payload)


class TaskWriter:
    """Appends the rows of one task."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.done = Done(0, 0)
        self._run: _Run | None = None

    def write(self, batches: Iterator[RecordBatch]) -> Done:
        """Append everything. Raises what ``append_by_identity`` raises, and MisuseError for rows out of order."""
        for batch in batches:
            self._take(batch)
            if self._run:
                self._append(self._run, self._run.last)
        if self._run:
            self._append(self._run, self._run.last + 1)
        return self.done

    def _take(self, batch: RecordBatch) -> None:
        columns = [batch.column(name).to_pylist() for name in NEEDED]
        for stream, partition, index, life, payload in zip(*columns, strict=True):
            origin = Origin(cast("str", stream), cast("int", partition), cast("int", life))
            self._follow(origin, cast("int", index)).take(
                cast("int", index), cast("bytes | None", payload)
            )

    def _follow(self, origin: Origin, index: int) -> _Run:
        if self._run is None or self._run.origin != origin:
            if self._run:
                self._append(self._run, self._run.last + 1)
            self._run = _Run(origin, index, index)
        return self._run

    def _append(self, run: _Run, to_index: int) -> None:
        """Append what was made of entries below ``to_index``: of the last entry more rows may come."""
        if to_index <= run.from_index:
            return
        kept = len(run.indexes)
        while kept and run.indexes[kept - 1] >= to_index:
            kept -= 1
        outputs = Outputs(run.from_index, to_index, run.indexes[:kept], run.payloads[:kept])
        written = append_by_identity(
            self.options.place, self.options.stream, run.origin, outputs, sink=self.options.sink
        )
        self.done.new += written.new
        self.done.skipped += written.skipped
        del run.indexes[:kept], run.payloads[:kept]
        run.from_index = to_index


class StreamWriter(DataSourceStreamArrowWriter):
    """For ``writeStream``. Tasks append by themselves, so commit and abort have nothing to do."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Append the rows of a task."""
        return TaskWriter(self.options).write(iterator)


class BatchWriter(DataSourceArrowWriter):
    """For ``write``; as ``StreamWriter``."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Append the rows of a task."""
        return TaskWriter(self.options).write(iterator)
