"""Spark as the engine of an audit in bulk: the same statements, over as many machines as the session has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import cast

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as made
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from surepipe.audit.bulk.engine import REQUIRED, TOLD, Cell, Columns
from surepipe.audit.bulk.logs import check, missing_columns
from surepipe.audit.trace_file import PARQUET
from surepipe.errors import ConfigurationError

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
        """See ``Engine``."""
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
                *(file.absolute().as_uri() for file in files)
            )
        except (PySparkException, Py4JError) as error:
            raise _refused(f"{files[0]} can't be read", error) from None
        missing_columns(files, read.columns, REQUIRED)
        return _as_told(read, read.columns)

    def _lines(self, files: Sequence[Path]) -> DataFrame:
        """JSON Lines, kept: or each statement would read them again."""
        schema = _schema((*TOLD, (_CORRUPT, str)))
        read = (
            self._session.read.schema(schema)
            .option("columnNameOfCorruptRecord", _CORRUPT)
            .json([file.absolute().as_uri() for file in files])
        )
        return self._keep("told", read)

    def put(self, name: str, columns: Columns, rows: Iterable[Sequence[Cell]]) -> None:
        """See ``Engine``."""
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
        """See ``Engine``."""
        self._keep(name, self._sql(statement)).createOrReplaceTempView(name)

    def _keep(self, name: str, table: DataFrame) -> DataFrame:
        old = self._kept.pop(name, None)
        self._kept[name] = table.persist(StorageLevel.MEMORY_AND_DISK)
        if old is not None:
            old.unpersist()
        return self._kept[name]

    def rows(self, statement: str) -> list[tuple[Cell, ...]]:
        """See ``Engine``."""
        try:
            found = self._sql(statement).collect()
        except (PySparkException, Py4JError) as error:
            raise _refused("the audit can't be done", error) from error
        return [cast("tuple[Cell, ...]", tuple(row)) for row in found]

    def each(self, low: str, high: str) -> str:
        """See ``Engine``."""
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


def _refused(what: str, error: Exception) -> ConfigurationError:
    """The first line that says something: Java's own begin with where in Python the call was made."""
    lines = [line for line in str(error).splitlines() if not line.startswith("An error occurred")]
    return ConfigurationError(f"{what}: {next(iter(lines), type(error).__name__)}")
