"""Traces in files: JSON Lines, or Parquet where pyarrow is installed.

A line is one row: its columns that are not empty, sorted, as JSON. Columns that a reader does not know are left
out, kinds that nobody knows are passed on and mean nothing to a judge; a trace of a newer format is refused. A
process that is killed leaves at worst one torn line: it is left out, and counted in ``TraceFile.torn``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappushpop
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Protocol, Self, cast

from surepipe.actors.tracing import Columns
from surepipe.audit.settings import facts_of
from surepipe.audit.trace import COLUMNS, FORMAT, Kind, RollingDigest, Row
from surepipe.errors import ConfigurationError

PARQUET = ".parquet"
ROWS_AT_ONCE = 65_536
_TEXTS = frozenset(
    ("run", "node", "cause", "kind", "pipe", "layer", "link", "digests", "detail", "state")
)
_FIRST = COLUMNS[:7]
"""Columns that a row must have."""


def line_of(row: Row) -> str:
    """A row as a line of JSON, without the line's end."""
    columns = {name: value for name in COLUMNS if (value := getattr(row, name)) not in ("", 0)}
    return json.dumps(columns, sort_keys=True, separators=(",", ":"))


def row_of(columns: dict[str, object]) -> Row:
    """A row from its columns. Raises ValueError when one holds what it can't."""
    found: dict[str, str | int] = {name: "" if name in _TEXTS else 0 for name in _FIRST}
    for name in COLUMNS:
        value = columns.get(name)
        if value is None:
            continue
        kind = str if name in _TEXTS else int
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"column {name} of a trace holds {value!r}")
        found[name] = value
    return Row(**found)  # type: ignore[arg-type]  # each was checked against its column


def write_trace(rows: Iterable[Row], path: str | Path) -> None:
    """Write a whole trace in place of what the file held; the ending ``.parquet`` chooses that format.

    Raises ConfigurationError for Parquet without pyarrow.
    """
    if Path(path).suffix == PARQUET:
        _write_parquet(rows, Path(path))
        return
    with Path(path).open("w", encoding="utf-8", newline="\n") as lines:
        lines.writelines(f"{line_of(row)}\n" for row in rows)


class TraceFile:
    """The rows of a trace file; each iteration reads it anew.

    Raises ConfigurationError for a file that is no trace, is of a newer format, or is Parquet without pyarrow.
    ``torn`` counts the lines of the last iteration that were cut off.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.torn = 0

    def __iter__(self) -> Iterator[Row]:
        self.torn = 0
        is_first = True
        for row in _read_parquet(self.path) if self._is_parquet else self._lines():
            if is_first and row.kind != Kind.RUN:
                raise ConfigurationError(
                    f"{self.path} is no trace: it does not begin with a row 'run'"
                )
            is_first = False
            if row.kind == Kind.RUN:
                self._check_format(row)
            yield row

    @property
    def _is_parquet(self) -> bool:
        return self.path.suffix == PARQUET

    def _check_format(self, row: Row) -> None:
        told = facts_of(row).get("format", FORMAT)
        if not isinstance(told, int) or told > FORMAT:
            raise ConfigurationError(
                f"{self.path} has trace format {told} and this version of surepipe reads {FORMAT}: "
                "update surepipe"
            )

    def _lines(self) -> Iterator[Row]:
        with self.path.open("rb") as lines:
            for line in lines:
                try:
                    columns: object = json.loads(line)
                    if not isinstance(columns, dict):
                        raise ValueError("no object")
                    row = row_of(cast("dict[str, object]", columns))
                except ValueError:
                    self.torn += 1
                    continue
                yield row


class RowsInTime:
    """The rows of a real trace by their times; those of one life stay as they were told.

    Several lives may write into one file, and a life that waits for a locked store writes a row long after the
    time that the row tells. What is written within ``ROWS_AT_ONCE`` rows of its place is put in order.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self._is_in_order = False
        """Known once all of them were read: an audit reads them several times."""

    def __iter__(self) -> Iterator[Row]:
        if self._is_in_order:
            yield from self._rows
            return
        is_in_order = True
        for number, (*_, at, row) in enumerate(_in_order(self._rows)):
            is_in_order &= at == number
            yield row
        self._is_in_order = is_in_order


def _in_order(rows: Iterable[Row]) -> Iterator[tuple[int, str, int, int, int, Row]]:
    remaining = _timed(rows)
    waiting = list(islice(remaining, ROWS_AT_ONCE))
    heapify(waiting)
    for one in remaining:
        yield heappushpop(waiting, one)
    while waiting:
        yield heappop(waiting)


def _timed(rows: Iterable[Row]) -> Iterator[tuple[int, str, int, int, int, Row]]:
    """Each behind what orders it. A clock that was set back puts nothing before what its life told earlier."""
    latest: dict[tuple[str, str, int], int] = {}
    for at, row in enumerate(rows):
        life = (row.run, row.node, row.incarnation)
        time_us = latest[life] = max(latest.get(life, 0), row.time_us)
        yield time_us, row.run, row.incarnation, row.step, at, row


def digest_of_trace(rows: Iterable[Row]) -> str:
    """The digest of a run, from its rows."""
    rolling = RollingDigest()
    for row in rows:
        rolling.add(row)
    return rolling.hex()


# Parquet. pyarrow is an extra and has no types of its own: these are the parts that are used.


class _Table(Protocol):
    def to_pylist(self) -> list[dict[str, object]]: ...


class _File(Protocol):
    def iter_batches(self, batch_size: int) -> Iterable[_Table]: ...

    def close(self) -> None: ...


class _Writer(Protocol):
    def write_table(self, table: object) -> None: ...

    def close(self) -> None: ...


def _pyarrow(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigurationError(
            "traces as Parquet need pyarrow: pip install 'surepipe[spark]', or use JSON Lines"
        ) from None


def _write_parquet(rows: Iterable[Row], path: Path) -> None:
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    schema = arrow.schema(
        [(name, arrow.string() if name in _TEXTS else arrow.int64()) for name in COLUMNS]
    )
    writer = cast("_Writer", parquet.ParquetWriter(path, schema, compression="zstd"))
    remaining = iter(rows)
    try:
        while chunk := list(islice(remaining, ROWS_AT_ONCE)):
            columns = {name: [getattr(row, name) for row in chunk] for name in COLUMNS}
            writer.write_table(arrow.table(columns, schema=schema))
    finally:
        writer.close()


def _read_parquet(path: Path) -> Iterator[Row]:
    parquet = _pyarrow("pyarrow.parquet")
    file = cast("_File", parquet.ParquetFile(path))
    try:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            yield from map(row_of, batch.to_pylist())
    finally:
        file.close()


# Takes the rows of real pipes: into a file that outlives its process, or into a list.
#
# with TraceRecorder("orders.jsonl") as trace, Pipe("orders", trace=trace) as pipe: ...
#
# audit(TraceFile("orders.jsonl"))


class TraceRecorder:
    """Appends rows to a file, as JSON Lines, each with one call to the system.

    So a killed process leaves every row that it wrote, and several pipes, threads and processes may write into one
    file. Nothing is forced onto the disk: a power cut may take the end of it, which an audit takes for a kill.

    Without digests the cost is that of a row for each batch. ``with_digests``: payloads are told by digests, so an
    audit notices changed ones, at a few microseconds for each message. Raises OSError when the file can't be
    opened, and when a row can't be written; a pipe logs that and goes on.
    """

    def __init__(self, path: str | Path, *, with_digests: bool = False) -> None:
        self.path = Path(path)
        self.with_digests = with_digests
        self._file = self.path.open("ab", buffering=0)
        if _ends_torn(self.path):
            self._file.write(b"\n")

    def write(self, columns: Columns) -> None:
        told = {name: value for name, value in columns.items() if value not in ("", 0)}
        line = json.dumps(told, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        written = self._file.write(line)
        if written != len(line):
            raise OSError(
                f"only {written} of {len(line)} bytes went into {self.path}: is the disk full?"
            )

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RecordedRows:
    """Keeps rows in a list, for tests."""

    with_digests = True

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def write(self, columns: Columns) -> None:
        self.rows.append(row_of(dict(columns)))


def _ends_torn(path: Path) -> bool:
    """True when the last line was cut off by the end of an earlier process."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"
