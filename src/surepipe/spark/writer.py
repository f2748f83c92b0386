"""The writer of the data source "surepipe": rows of the source, changed, into one stream, by identity.

    changed.writeStream.format("surepipe").options(**place.options(), stream="prices").start()

Rows keep the source's columns stream, partition, index and life; ``payload`` is what is appended. A row without a
payload says that nothing was made of its entry, several rows of one index are several outputs. So each index of a
task's range must be there: a missing one is a gap, and refused. A filter sets the payload to null instead of
removing the row, or writes with ``sink.write_rows``, which is told the range. With rows=pages a row is a page of
the source, or one that ``pages`` made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from surepipe.errors import ConfigurationError
from surepipe.spark.arrow import RecordBatch
from surepipe.spark.columns import BufferPayloads, Numbers
from surepipe.spark.sink import (
    CHUNK_BYTES,
    CHUNK_MESSAGES,
    NEEDED,
    PAGE_NEEDED,
    Origin,
    OriginRows,
    Outputs,
    append_by_identity,
    runs_of,
    runs_of_pages,
)
from surepipe.spark.source_options import PLACE_OPTIONS, SPARKS_OPTIONS, choice, nearest
from surepipe.spark.stores import StorePlace

_OPTIONS = (*PLACE_OPTIONS, "stream", "sink", "rows")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Which stream is written, and under which name the position is kept."""

    place: StorePlace
    stream: str
    sink: str = "spark"
    rows: str = "messages"

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
        return cls(
            StorePlace.of_options(given),
            given["stream"],
            given.get("sink", "spark"),
            choice(given, "rows"),
        )


def check_schema(schema: StructType, rows: str = "messages") -> None:
    """Raises ConfigurationError for rows that do not say what they were made of."""
    needed = PAGE_NEEDED if rows == "pages" else NEEDED
    missing = [name for name in needed if name not in schema.fieldNames()]
    if missing:
        raise ConfigurationError(
            f"rows for the surepipe sink lack {', '.join(missing)}: keep the source's columns {', '.join(needed)} "
            f"(its rows are {rows})"
        )
    for name in {"payload", "lengths", "body", "made_of"} & {*schema.fieldNames()}:
        kind = schema[name].dataType.simpleString()
        if kind != "binary":
            raise ConfigurationError(f"{name} is a {kind}: cast it to binary before the sink")


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
    made_of: list[Numbers] = field(default_factory=list[Numbers])
    """Of each payload in ``payloads``, part by part."""
    payloads: list[BufferPayloads] = field(default_factory=list[BufferPayloads])

    def take(self, rows: OriginRows) -> None:
        """More rows. Raises MisuseError, and takes none of them, when one does not follow."""
        rows.check_order(self.last)
        self.last = int(rows.indexes[-1])
        self.made_of.append(rows.made_of)
        self.payloads.append(rows.payloads)

    def give(self, to_index: int) -> Outputs:
        """Let go of what was made of entries below ``to_index``."""
        made_of, payloads = np.concatenate(self.made_of), BufferPayloads.joined(self.payloads)
        kept = int(np.searchsorted(made_of, to_index))
        outputs = Outputs(self.from_index, to_index, made_of[:kept], payloads[:kept])
        self.made_of, self.payloads = [made_of[kept:]], [payloads[kept:]]
        self.from_index = to_index
        return outputs

    @property
    def is_large(self) -> bool:
        """True when it is worth a transaction: each one takes three exchanges with the store."""
        count, size = sum(map(len, self.payloads)), sum(len(one.body) for one in self.payloads)
        return count >= CHUNK_MESSAGES or size >= CHUNK_BYTES


class TaskWriter:
    """Appends the rows of one task."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.done = Done(0, 0)
        self._run: _Run | None = None

    def write(self, batches: Iterator[RecordBatch]) -> Done:
        """Append everything. Raises what ``append_by_identity`` raises, and MisuseError for rows out of order."""
        runs = runs_of_pages if self.options.rows == "pages" else runs_of
        for batch in batches:
            for rows in runs(batch):
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
        outputs = run.give(to_index)
        written = append_by_identity(
            self.options.place, self.options.stream, run.origin, outputs, sink=self.options.sink
        )
        self.done.new += written.new
        self.done.skipped += written.skipped


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
