"""What the judgement asks of an engine: a few verbs over named tables. DuckDB is one, Spark another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

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


class Engine(Protocol):
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

    def rows(self, statement: str) -> list[tuple[Cell, ...]]:
        """What a statement gives."""
        ...

    def each(self, low: str, high: str) -> str:
        """The expression that makes a row of every number from low to high."""
        ...

    def close(self) -> None:
        """Give back what was taken."""
        ...


def integers(cells: Iterable[Cell]) -> list[int]:
    """The numbers of a row; none is 0."""
    return [cell if isinstance(cell, int) else int(cell or 0) for cell in cells]
