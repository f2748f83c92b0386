"""The data source "surepipe": streams of a store as a DataFrame, in batches and streaming; and its writers.

    spark.readStream.format("surepipe").options(**place.options(), streams="orders,clicks").load()

Offsets are the indexes of the streams, so a query begins again exactly where its checkpoint says. The options are
those of ``SourceOptions``; the columns those of ``columns.TYPES`` (with rows=pages of ``columns.PAGE_TYPES``), of
which a schema of the caller's own may pick some. Spark hands arguments by keyword and pickles readers: names are
part of the contract, and nothing here keeps a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema  # pyright: ignore[reportUnknownVariableType]
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from surepipe.core.store_requests import Ahead, Empty, Identity, Reset, Trimmed
from surepipe.errors import ConfigurationError, StoreReset
from surepipe.spark.columns import (
    PAGE_TYPES,
    TYPES,
    PageCut,
    RangeFacts,
    RecordBatch,
    Schema,
    cut_of,
    page_batch,
    record_batch,
)
from surepipe.spark.following import Follower
from surepipe.spark.ranges import EntryRange, Task, from_json, tasks_of, to_json
from surepipe.spark.shipping import keep_what_is_loaded
from surepipe.spark.sink import BatchWriter, SinkOptions, StreamWriter, check_schema
from surepipe.spark.source_options import (
    TASK_ROWS_MIN,
    SourceOptions,
    WantedEntries,
    nearest,
    wanted_of,
)
from surepipe.spark.stores import OpenStore, asked
from surepipe.storage.pages import RawBatch, RawPage

# What an executor does: read ranges of entries, whole pages at a time, and see that none is missing.


logger = logging.getLogger("surepipe")
READ_ROWS = 65_536
READ_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class RangeReader:
    """Reads ranges of one store into record batches."""

    options: SourceOptions
    schema: Schema

    def read(self, ranges: Sequence[EntryRange]) -> Iterator[RecordBatch]:
        """The entries of all ranges, in order.

        Raises StoreReset for entries that are gone (unless an option says to go on), StoreUnavailable when the
        store stays away, ConfigurationError when it refuses.
        """
        keep_what_is_loaded()
        store = self.options.place.store()
        for each in ranges:
            yield from self._range(store, each)

    def _range(self, store: OpenStore, whole: EntryRange) -> Iterator[RecordBatch]:
        named = RangeFacts(whole.stream, whole.partition, whole.life)
        index = whole.start
        while index < whole.stop:
            found = self._ask(store, whole, index)
            if isinstance(found, int):
                index = found
                continue
            cuts = list(self._cuts(found.pages, whole, index))
            index = cuts[-1].index + cuts[-1].count
            if index >= whole.stop:
                self._check_end(cuts[-1], whole)
            made = page_batch if self.options.rows == "pages" else record_batch
            yield made(cuts, named, self.schema)

    def _ask(self, store: OpenStore, whole: EntryRange, index: int) -> RawBatch | int:
        """The next pages, or the index where reading goes on without them."""
        wanted = min(whole.stop - index, READ_ROWS)
        outcome: object = asked(
            lambda: store.read_pages(whole.name, index, wanted, READ_BYTES, whole.incarnation),
            f"reading {whole}",
            self.options.place,
        )
        match outcome:
            case RawBatch():
                return outcome
            case Trimmed(earliest):
                return self._gone(store, whole, index, min(earliest, whole.stop))
            case Reset(incarnation):
                what = f"the stream was made anew (incarnation {incarnation})"
                return self._given_up(whole, index, what, self.options.on_reset, "on_reset")
            case Empty(next=following) | Ahead(next=following):
                what = f"the store went back: its next index is {following}"
                return self._given_up(whole, index, what, self.options.on_diverged, "on_diverged")
            case _:
                raise AssertionError(f"no outcome of reading pages: {outcome!r}")

    def _gone(self, store: OpenStore, whole: EntryRange, index: int, stop: int) -> int:
        """Behind what the stream itself says that it begins with, somebody else has removed them."""
        told = asked(lambda: store.info(whole.name), f"asking {whole}", self.options.place)
        if told.earliest <= index:
            self._hole(whole, index, stop)
            return stop
        return self._trimmed(whole, index, stop)

    def _trimmed(self, whole: EntryRange, index: int, gone: int) -> int:
        what = f"entries {index} to {gone - 1} of stream {whole.name} were trimmed before they were read"
        if self.options.on_trimmed == "stop":
            raise StoreReset(
                f"{what}; give the query a reader's name so that they are kept, or say on_trimmed=skip"
            )
        logger.warning("%s, and are skipped", what)
        return gone

    def _given_up(self, whole: EntryRange, index: int, what: str, policy: str, option: str) -> int:
        """The rest of a range is gone for good; the next batch finds where the query goes on."""
        lost = f"entries {index} to {whole.stop - 1} of stream {whole.name} can't be read: {what}"
        if policy == "stop":
            raise StoreReset(f"{lost}; find out why, or say {option}=earliest")
        logger.warning("%s", lost)
        return whole.stop

    def _cuts(self, pages: Sequence[RawPage], whole: EntryRange, index: int) -> Iterator[PageCut]:
        for page in pages:
            if page.index > index:
                self._hole(whole, index, min(page.index, whole.stop))
            if page.index >= whole.stop:
                return
            cut = cut_of(page, index, whole.stop)
            yield cut
            index = cut.index + cut.count

    def _hole(self, whole: EntryRange, first: int, stop: int) -> None:
        what = f"entries {first} to {stop - 1} of stream {whole.name} are missing in the middle of the store"
        if self.options.on_hole == "stop":
            raise StoreReset(
                f"{what}: somebody removed them by hand; restore a backup, or say on_hole=skip"
            )
        logger.warning("%s, and are skipped", what)

    def _check_end(self, last: PageCut, whole: EntryRange) -> None:
        """The last entry is who it was when the batch was planned (S-12)."""
        page = last.page
        found = Identity(page.producer, page.epoch, last.seq + last.count - 1)
        if (
            whole.anchor is not None
            and found != whole.anchor
            and self.options.on_diverged == "stop"
        ):
            raise StoreReset(
                f"entry {whole.stop - 1} of stream {whole.name} is {found}, and was {whole.anchor} when the batch "
                "was planned: the store went back and grew again; find out why, or say on_diverged=earliest"
            )


NAME = "surepipe"
_KINDS: dict[str, AtomicType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}
STRUCT, PAGE_STRUCT = (
    StructType([StructField(name, _KINDS[kind]) for name, kind in types.items()])
    for types in (TYPES, PAGE_TYPES)
)
"""All columns of the source, where a row is a message and where it is a page."""


class SurepipeSource(DataSource):
    """Found by Spark under the name "surepipe" once it is registered."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """All columns; ``.schema(...)`` of the caller picks some."""
        return PAGE_STRUCT if SourceOptions.of(self.options).rows == "pages" else STRUCT

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(SourceOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(SourceOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """For ``write``. Raises ConfigurationError for mode overwrite: a stream is only appended to."""
        return BatchWriter(self._sink_options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        return StreamWriter(self._sink_options(schema, overwrite))

    def _sink_options(self, schema: StructType, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise ConfigurationError("a stream can't be overwritten: write in mode append")
        options = SinkOptions.of(self.options)
        check_schema(schema, options.rows)
        return options


def arrow_schema(schema: StructType, rows: str = "messages") -> Schema:
    """The schema of the record batches, exactly as Spark expects them.

    Raises ConfigurationError for a column that the source does not have, or has with another type.
    """
    types = PAGE_TYPES if rows == "pages" else TYPES
    for field in schema.fields:
        wanted = types.get(field.name)
        if wanted is None:
            raise ConfigurationError(
                f"the surepipe source has no column {field.name!r}: {nearest(field.name, tuple(types))}"
            )
        if field.dataType.simpleString() != wanted:
            raise ConfigurationError(
                f"column {field.name} of the surepipe source is a {wanted}, not a {field.dataType.simpleString()}"
            )
    return cast("Schema", to_arrow_schema(schema, timezone="UTC"))


class BatchReader(DataSourceReader):
    """Reads what is in the streams when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        arrow_schema(schema, options.rows)
        self.options = options
        self.struct = schema
        self.wanted = WantedEntries()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes conditions on stream, partition and index; Spark keeps the others."""
        self.wanted, rest = wanted_of(filters)
        return rest

    def partitions(self) -> list[InputPartition]:
        """Ranges for about as many tasks as the option says."""
        ranges = Follower(self.options).whole(self.wanted)
        total = sum(each.count for each in ranges)
        each_max = self.options.max_rows_per_task or max(
            TASK_ROWS_MIN, -(-total // self.options.tasks)
        )
        found = tasks_of(ranges, self.options.tasks, each_max, TASK_ROWS_MIN)
        return list(found) or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        assert isinstance(partition, Task)
        schema = arrow_schema(self.struct, self.options.rows)
        return RangeReader(self.options, schema).read(partition.ranges)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the streams from batch to batch. On the driver one lives as long as its query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        arrow_schema(schema, options.rows)
        self.options = options
        self.struct = schema
        self.follower = Follower(options)

    def initialOffset(self) -> dict[str, dict[str, int | str]]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return to_json(self.follower.initial())

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, object], limit: ReadLimit
    ) -> dict[str, dict[str, int | str]]:
        """How far the next batch goes. ``ReadAllAvailable`` overrules the option ``max_rows``."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(self.follower.latest(from_json(start), rows))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        rows = self.options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> dict[str, dict[str, int | str]]:  # noqa: N802 - Spark's name
        """Where the streams end, for the progress that Spark reports."""
        return to_json(self.follower.ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """A run to the end ends at what is there now."""
        self.follower.go_no_further()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """The ranges of a batch. A stream is read by one task, in order, unless the option cuts it."""
        ranges = self.follower.ranges(from_json(start), from_json(end))
        return list(
            tasks_of(ranges, self.options.tasks, self.options.max_rows_per_task, TASK_ROWS_MIN)
        )

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        assert isinstance(partition, Task)
        schema = arrow_schema(self.struct, self.options.rows)
        return RangeReader(self.options, schema).read(partition.ranges)

    def commit(self, end: dict[str, object]) -> None:
        """Spark has done with what is before ``end``, one batch ago (``Follower.keep``)."""
        if self.options.reader or self.options.trim:
            self.follower.keep(from_json(end))
