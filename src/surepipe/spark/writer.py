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

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from surepipe.errors import ConfigurationError, MisuseError
from surepipe.spark.arrow import RecordBatch
from surepipe.spark.places import StorePlace
from surepipe.spark.rows import NEEDED, Rows, runs_of
from surepipe.spark.sink import CHUNK_BYTES, CHUNK_MESSAGES, Origin, Outputs, append_by_identity
from surepipe.spark.source_options import PLACE_OPTIONS, SPARKS_OPTIONS, nearest

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
    size: int = 0
    """Bytes of the payloads."""

    def take(self, rows: Rows) -> None:
        """More rows. Raises MisuseError, and takes none of them, when one does not follow."""
        if wrong := rows.out_of_order(self.last):
            index, before = wrong
            raise MisuseError(
                f"a row of entry {index} of {self.origin.key} follows one of entry {before}: rows reach "
                "the sink in order and without a gap; sort by stream and index after a shuffle, and set the "
                "payload to null instead of removing a row"
            )
        self.last = int(rows.indexes[-1])
        self.indexes += rows.made_of
        self.payloads += rows.payloads
        self.size += sum(map(len, rows.payloads))

    @property
    def is_large(self) -> bool:
        """True when it is worth a transaction: each one takes three exchanges with the store."""
        return len(self.payloads) >= CHUNK_MESSAGES or self.size >= CHUNK_BYTES


class TaskWriter:
    """Appends the rows of one task."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.done = Done(0, 0)
        self._run: _Run | None = None

    def write(self, batches: Iterator[RecordBatch]) -> Done:
        """Append everything. Raises what ``append_by_identity`` raises, and MisuseError for rows out of order."""
        for batch in batches:
            for rows in runs_of(batch):
                self._follow(rows.origin, int(rows.indexes[0])).take(rows)
            if self._run and self._run.is_large:
                self._append(self._run, self._run.last)
        if self._run:
            self._append(self._run, self._run.last + 1)
        return self.done

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
        run.from_index, run.size = to_index, sum(map(len, run.payloads))


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
