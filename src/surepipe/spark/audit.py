"""Audits on Spark: of two logs of any size, and of streams while they live."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as made
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from surepipe.audit.bulk.engine import REQUIRED, TOLD, Cell, Columns
from surepipe.audit.bulk.logs import check, missing_columns
from surepipe.audit.bulk.loss_watch import LossAlarm, LossTrouble, LossWatch, SeenMessage
from surepipe.audit.trace_file import PARQUET
from surepipe.errors import ConfigurationError
from surepipe.spark.following import Follower
from surepipe.spark.session import start
from surepipe.spark.source_options import SourceOptions
from surepipe.spark.stores import StorePlace

if TYPE_CHECKING:
    import pandas as pd


_TYPES: dict[type, DataType] = {str: StringType(), int: LongType()}
_CORRUPT = "cut_off"
_PUT_AT_ONCE = 200_000


class SparkEngine:
    """Runs the judgement on a session, whose views ``told``, ``accepted`` and so on are replaced.

    Files must be where executors can read them. What is kept between statements is on the executors' disks.
    """

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._kept: dict[str, DataFrame] = {}

    def traces(self, files: Sequence[Path]) -> int:
        for file in files:
            check(file)
        columns = [file for file in files if file.suffix == PARQUET]
        lines = [file for file in files if file.suffix != PARQUET]
        tables: list[DataFrame] = []
        torn = 0
        if columns:
            tables.append(self._parquet(columns))
        if lines:
            read = self._lines(lines)
            torn = read.where(made.col(_CORRUPT).isNotNull()).count()
            tables.append(_as_told(read.where(made.col(_CORRUPT).isNull()), read.columns))
        told = tables[0] if len(tables) == 1 else tables[0].unionAll(tables[1])
        told.createOrReplaceTempView("told")
        return torn

    def _parquet(self, files: Sequence[Path]) -> DataFrame:
        try:
            read = self._session.read.option("mergeSchema", len(files) > 1).parquet(
                *map(name_of, files)
            )
        except (PySparkException, Py4JError) as error:
            raise refused(f"{files[0]} can't be read", error) from None
        missing_columns(files, read.columns, REQUIRED)
        return _as_told(read, read.columns)

    def _lines(self, files: Sequence[Path]) -> DataFrame:
        """JSON Lines, kept: or each statement would read them again."""
        schema = _schema((*TOLD, (_CORRUPT, str)))
        read = (
            self._session.read.schema(schema)
            .option("columnNameOfCorruptRecord", _CORRUPT)
            .json([*map(name_of, files)])
        )
        return self._keep("told", read)

    def put(self, name: str, columns: Columns, rows: Iterable[Sequence[Cell]]) -> None:
        schema = _schema(columns)
        parts = [self._table(chunk, schema) for chunk in _chunks(rows)]
        whole = parts[0] if parts else self._table([], schema)
        for part in parts[1:]:
            whole = whole.unionAll(part)
        whole.createOrReplaceTempView(name)

    def _table(self, rows: list[tuple[Cell, ...]], schema: StructType) -> DataFrame:
        # Spark's own types name what comes of pandas, which has none.
        return self._session.createDataFrame(rows, schema)  # pyright: ignore[reportUnknownMemberType]

    def view(self, name: str, statement: str) -> None:
        """See ``Engine``. It holds what the names in it stand for now."""
        self._sql(statement).createOrReplaceTempView(name)

    def keep(self, name: str, statement: str) -> None:
        self._keep(name, self._sql(statement)).createOrReplaceTempView(name)

    def _keep(self, name: str, table: DataFrame) -> DataFrame:
        # The old one goes first. Spark tells tables apart by their plan: of files that are read again the new one
        # would be what was kept of them before, and letting go of the old one would leave none.
        if (old := self._kept.pop(name, None)) is not None:
            old.unpersist()
        self._kept[name] = table.persist(StorageLevel.MEMORY_AND_DISK)
        return self._kept[name]

    def rows(self, statement: str) -> list[tuple[Cell, ...]]:
        try:
            found = self._sql(statement).collect()
        except (PySparkException, Py4JError) as error:
            raise refused("the audit can't be done", error) from error
        return [cast("tuple[Cell, ...]", tuple(row)) for row in found]

    def each(self, low: str, high: str) -> str:
        return f"explode(sequence({low}, {high}))"

    def close(self) -> None:
        """See ``Engine``; the session goes on."""
        for table in self._kept.values():
            table.unpersist()
        self._kept.clear()

    def _sql(self, statement: str) -> DataFrame:
        return self._session.sql(statement)


def _as_told(read: DataFrame, found: Sequence[str]) -> DataFrame:
    return read.select(*(_column(name, kind, found).alias(name) for name, kind in TOLD))


def _column(name: str, kind: type[str] | type[int], found: Sequence[str]) -> Column:
    empty = made.lit("" if kind is str else 0).cast(_TYPES[kind])
    return made.coalesce(made.col(name).cast(_TYPES[kind]), empty) if name in found else empty


def _schema(columns: Columns) -> StructType:
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns])


def _chunks(rows: Iterable[Sequence[Cell]]) -> Iterator[list[tuple[Cell, ...]]]:
    left = iter(rows)
    while chunk := [tuple(row) for row in islice(left, _PUT_AT_ONCE)]:
        yield chunk


def name_of(file: Path) -> str:
    """A file as Spark's readers take it: a pattern, in which a space stands for itself."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(file.absolute()))


def refused(what: str, error: Exception) -> ConfigurationError:
    """The first line that says something: Java's own begin with where in Python the call was made."""
    lines = [line for line in str(error).splitlines() if not line.startswith("An error occurred")]
    return ConfigurationError(f"{what}: {next(iter(lines), type(error).__name__)}")


# An audit that never ends: a query over two live streams that raises an alarm within a stated time of a loss.
#
# query = watch(session, Watched(place, "orders", place, "orders.done", within_s=30), print)
#
# Both streams are followed by the source ``surepipe``; messages meet by the digest of their payload in
# ``LossWatch``, which is kept by Spark's state store, so a restart on the same checkpoint forgets nothing. An
# alarm is raised at most ``within_s`` and two triggers after the message was read. After a restart alarms of
# the last batch may be raised again.


DIGITS = 16
BUCKETS = 8
"""Into how many keys messages are spread, each with a watch of its own."""
_STATE = "open string"
_ALARMS = "trouble string, stream string, index long, waited_us long"


@dataclass(frozen=True, slots=True)
class Watched:
    """The two ends of a hop, and how long a message may take between them."""

    sent_in: StorePlace
    sent: str
    delivered_in: StorePlace
    delivered: str
    within_s: float
    every_s: float = 1.0
    open_max: int = 100_000
    """How many messages each of the keys remembers at most."""

    def __post_init__(self) -> None:
        if self.within_s <= 0 or self.every_s <= 0 or self.open_max < 1:
            raise ConfigurationError("a watch needs within_s, every_s and open_max above 0")


def watch(
    session: SparkSession,
    watched: Watched,
    on_alarms: Callable[[Sequence[LossAlarm]], object],
    *,
    checkpoint: Path,
) -> StreamingQuery:
    """Start the query; ``on_alarms`` is called in this process with the alarms of each batch that has any.

    Both streams must exist. Stop it with ``query.stop()``. Raises ConfigurationError for a stream that is not
    there, StoreUnavailable.
    """
    both = _followed(session, watched.sent_in, watched.sent, is_sent=True).unionAll(
        _followed(session, watched.delivered_in, watched.delivered, is_sent=False)
    )
    for place, stream in (
        (watched.sent_in, watched.sent),
        (watched.delivered_in, watched.delivered),
    ):
        Follower(SourceOptions(place, (stream,))).look()
    follow = partial(
        _follow, within_us=round(watched.within_s * 1_000_000), open_max=watched.open_max
    )
    alarms = both.groupBy("bucket").applyInPandasWithState(
        follow, _ALARMS, _STATE, "append", GroupStateTimeout.ProcessingTimeTimeout
    )

    def tell(batch: DataFrame, _: int) -> None:
        found = [_alarm(row) for row in batch.collect()]
        if found:
            on_alarms(found)

    return start(
        alarms.writeStream.foreachBatch(tell)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=f"{round(watched.every_s * 1000)} milliseconds")
    )


def _followed(session: SparkSession, place: StorePlace, stream: str, *, is_sent: bool) -> DataFrame:
    token = made.substring(made.sha2(made.col("payload"), 256), 1, DIGITS)
    read = session.readStream.format("surepipe").options(**place.options(), stream=stream).load()
    return read.select(
        made.pmod(made.xxhash64("payload"), made.lit(BUCKETS)).alias("bucket"),
        token.alias("token"),
        made.col("stream"),
        made.col("index"),
        made.lit(is_sent).alias("is_sent"),
    )


def _follow(
    key: tuple[object, ...],
    batches: Iterator[pd.DataFrame],
    state: GroupState,
    *,
    within_us: int,
    open_max: int,
) -> Iterator[pd.DataFrame]:
    """One bucket: what is new of it, and the alarms that are due."""
    import pandas  # noqa: PLC0415 - on executors, when the query runs

    del key
    now_us = state.getCurrentProcessingTimeMs() * 1000
    kept = cast("_State", state)
    known = kept.get[0] if state.exists else "[]"
    loss_watch = LossWatch.of_state(known, within_us, open_max)
    alarms: list[LossAlarm] = []
    for batch in batches:
        sent, came = _seen(batch, is_sent=True), _seen(batch, is_sent=False)
        alarms += loss_watch.see(sent, came, now_us)
    alarms += loss_watch.due(now_us)
    deadline = loss_watch.deadline_us
    if deadline is None:
        state.remove()
    else:
        kept.update((loss_watch.state(),))
        state.setTimeoutDuration(max(1, (deadline - now_us) // 1000))
    if alarms:
        rows = [(str(a.trouble), a.stream, a.index, a.waited_us) for a in alarms]
        yield pandas.DataFrame(rows, columns=["trouble", "stream", "index", "waited_us"])


class _State(Protocol):
    """Spark's state of a key, with the type that it has here."""

    @property
    def get(self) -> tuple[str]: ...

    def update(self, newValue: tuple[str], /) -> None: ...  # noqa: N803 - Spark's name


def _seen(batch: pd.DataFrame, *, is_sent: bool) -> list[SeenMessage]:
    side = batch[batch["is_sent"] == is_sent].sort_values("index")
    return [
        SeenMessage(str(token), str(stream), int(index))
        for token, stream, index in zip(side["token"], side["stream"], side["index"], strict=True)
    ]


def _alarm(row: Row) -> LossAlarm:
    return LossAlarm(LossTrouble(row["trouble"]), row["stream"], row["index"], row["waited_us"])
