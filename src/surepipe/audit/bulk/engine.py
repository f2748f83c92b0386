"""What the judgement asks of an engine: a few verbs over named tables. DuckDB is one, Spark another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeAlias, cast

from surepipe.audit.bulk.logs import check, missing_columns
from surepipe.audit.trace_file import PARQUET
from surepipe.errors import ConfigurationError

Cell: TypeAlias = "str | int | None"
Columns: TypeAlias = Sequence[tuple[str, type[str] | type[int]]]

TOLD: Columns = (
    *(("run", str), ("node", str), ("incarnation", int), ("step", int), ("time_us", int)),
    *(("kind", str), ("pipe", str), ("epoch", int), ("seq", int), ("count", int)),
    *(("layer", str), ("detail", str)),
)
"""The columns of a trace that a judgement reads."""
REQUIRED = frozenset(name for name, _ in TOLD) - {"layer", "detail"}
"""Those that a table must have."""


class AuditEngine(Protocol):
    """Runs the statements. Names are those of tables and views; a name given again replaces the old one."""

    name: str

    def traces(self, files: Sequence[Path]) -> int:
        """Make the view ``told`` of these trace files; how many lines of them were cut off.

        Raises ConfigurationError for files that hold no trace.
        """
        ...

    def put(self, name: str, columns: Columns, rows: Iterable[Sequence[Cell]]) -> None:
        """Make a table of rows that are at hand."""
        ...

    def view(self, name: str, statement: str) -> None:
        """Give a statement a name; it runs when it is used."""
        ...

    def keep(self, name: str, statement: str) -> None:
        """Run a statement once and keep what it gave, which must fit on this machine's disk."""
        ...

    def rows(self, statement: str) -> list[tuple[Cell, ...]]: ...

    def each(self, low: str, high: str) -> str:
        """The expression that makes a row of every number from low to high."""
        ...

    def close(self) -> None: ...


def integers(cells: Iterable[Cell]) -> list[int]:
    """The numbers of a row; none is 0."""
    return [cell if isinstance(cell, int) else int(cell or 0) for cell in cells]


# DuckDB as the engine: in this process, over all cores, on disk when memory does not do.


_TYPES = {str: "VARCHAR", int: "BIGINT"}
_PUT_AT_ONCE = 50_000
_READ_AT_ONCE = 1 << 24


class _Connection(Protocol):
    """The parts of a connection that are used; the library has types, but it is an extra."""

    description: Sequence[Sequence[object]] | None

    def execute(self, query: str, parameters: object = None) -> _Connection: ...

    def fetchall(self) -> list[tuple[Cell, ...]]: ...

    def close(self) -> None: ...


class DuckEngine:
    """Runs the judgement in this process. Raises ConfigurationError without the extra ``audit``.

    ``threads`` bounds the cores that it takes. A judgement that does not fit into memory goes on in ``folder``,
    or in ``.tmp`` beside where the process stands.
    """

    name = "local"

    def __init__(self, *, threads: int | None = None, folder: Path | None = None) -> None:
        try:
            library = import_module("duckdb")
        except ImportError:
            raise ConfigurationError(
                "an audit in bulk needs DuckDB: pip install 'surepipe[audit]', or use --engine spark"
            ) from None
        config = {"threads": str(threads)} if threads else {}
        if folder is not None:
            config["temp_directory"] = str(folder)
        self._connection = cast("_Connection", library.connect(config=config))
        self._error = cast("type[Exception]", library.Error)

    def traces(self, files: Sequence[Path]) -> int:
        for file in files:
            check(file)
        parts = [
            self._table(
                [file for file in files if (file.suffix == PARQUET) is is_parquet], is_parquet
            )
            for is_parquet in (True, False)
        ]
        if parts[1]:
            self.keep("told_in_lines", parts[1])  # or each statement would read JSON again
            parts[1] = "SELECT * FROM told_in_lines"
        self.view("told", " UNION ALL ".join(part for part in parts if part))
        return self._torn([file for file in files if file.suffix != PARQUET])

    def _table(self, files: Sequence[Path], is_parquet: bool) -> str:
        if not files:
            return ""
        names = ", ".join(_quoted(str(file)) for file in files)
        if is_parquet:
            source = f"read_parquet([{names}], union_by_name = true)"
        else:
            columns = ", ".join(f"{_quoted(name)}: '{_TYPES[kind]}'" for name, kind in TOLD)
            source = (
                f"read_json([{names}], format = 'newline_delimited', columns = {{{columns}}}, "
                "ignore_errors = true)"
            )
        try:
            self._connection.execute(f"SELECT * FROM {source} LIMIT 0")
        except self._error as error:
            raise ConfigurationError(f"{files[0]} can't be read: {_first_line(error)}") from None
        found = [str(column[0]) for column in self._connection.description or ()]
        missing_columns(files, found, REQUIRED)
        return (
            f"SELECT {', '.join(_column(name, kind, found) for name, kind in TOLD)} FROM {source}"
        )

    def _torn(self, files: Sequence[Path]) -> int:
        lines = sum(_lines(file) for file in files)
        if not lines:
            return 0
        found = self.rows("SELECT count(*) FROM told_in_lines WHERE kind <> ''")
        return lines - integers(found[0])[0]

    def put(self, name: str, columns: Columns, rows: Iterable[Sequence[Cell]]) -> None:
        declared = ", ".join(f'"{column}" {_TYPES[kind]}' for column, kind in columns)
        self._drop(name)
        self._connection.execute(f"CREATE TEMP TABLE {name} ({declared})")
        left = iter(rows)
        while chunk := list(islice(left, _PUT_AT_ONCE)):
            # As columns: one statement for each row would cost a hundred times as much.
            given = {
                column: list(cells)
                for (column, _), cells in zip(columns, zip(*chunk, strict=True), strict=True)
            }
            unpacked = ", ".join(f"unnest(${column})" for column in given)
            self._connection.execute(f"INSERT INTO {name} SELECT {unpacked}", given)

    def view(self, name: str, statement: str) -> None:
        self._drop(name)
        self._connection.execute(f"CREATE TEMP VIEW {name} AS {statement}")

    def keep(self, name: str, statement: str) -> None:
        self._drop(name)
        self._run(f"CREATE TEMP TABLE {name} AS {statement}")

    def rows(self, statement: str) -> list[tuple[Cell, ...]]:
        return self._run(statement).fetchall()

    def each(self, low: str, high: str) -> str:
        return f"unnest(range({low}, {high} + 1))"

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str) -> _Connection:
        try:
            return self._connection.execute(statement)
        except self._error as error:
            raise ConfigurationError(f"the audit can't be done: {_first_line(error)}") from error

    def _drop(self, name: str) -> None:
        for kind in ("VIEW", "TABLE"):
            found = self._connection.execute(
                "SELECT 1 FROM information_schema.tables WHERE table_name = ? AND (table_type = 'VIEW') = ?",
                [name, kind == "VIEW"],
            ).fetchall()
            if found:
                self._connection.execute(f"DROP {kind} {name}")


def _column(name: str, kind: type[str] | type[int], found: Sequence[str]) -> str:
    empty = "''" if kind is str else "0"
    if name not in found:
        return f'{empty} AS "{name}"'
    return f'coalesce(CAST("{name}" AS {_TYPES[kind]}), {empty}) AS "{name}"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _lines(file: Path) -> int:
    count, last = 0, b"\n"
    with file.open("rb") as stream:
        while chunk := stream.read(_READ_AT_ONCE):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last != b"\n")
