"""The measured figures of the plain patterns: kept in ``tests/golden/explore.toml``, and written by

    python -m tests.faults.plain_golden

A figure that changes needs a sentence in the commit: a longer schedule means that the explorer lost some, a
shorter one that a pattern got worse.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias, cast

from surepipe.simulation.explore import explore
from surepipe.simulation.explore.result import Exploration
from surepipe.simulation.explore.scope import Scope
from tests.faults.plain_table import TABLE, Cell, Explored, cells
from tests.faults.stack_table import BROKEN, KEPT

GOLDEN = Path(__file__).parents[1] / "golden" / "explore.toml"

Figures: TypeAlias = dict[str, int | str | list[str]]

DIFFERENCES: Mapping[str, str] = {
    "F2-ST-P3": "one hop fewer is counted: an append makes the stream answer the fetch that waits there",
    "F10-ST-P3-any": "the crash needs a second answer on the way, which a repeated fetch brings: one hop more",
    "F16+F10-ST-P3": "the commit and the crash of the index are steps of their own here",
    "F17+F10-ST-P3": "the commit and the crash of the index are steps of their own here",
    "F23+F8+F1-SQ-P2-later": "a sender without a deadline is stuck after the one lost frame; no collision needed",
}
"""Why a length differs from the one that others measured on models of their own."""


class Measured(Protocol):
    """Something that is explored, and whose figures are kept."""

    @property
    def id(self) -> str:
        """Its name in the golden file."""
        ...

    @property
    def subject(self) -> Explored:
        """What is explored."""
        ...

    @property
    def reference(self) -> int | None:
        """The length that others measured."""
        ...

    def scope(self) -> Scope:
        """The scope of it."""
        ...


def measured() -> Iterator[Measured]:
    """Everything in the golden file, in its order."""
    yield from cells(kept=False)
    yield from BROKEN
    yield from cells(kept=True)
    yield from KEPT


def figures(cell: Measured, explored: Exploration) -> Figures:
    """What is kept of an exploration."""
    kept: Figures = {"states": explored.states}
    found = explored.counterexample
    if found is not None:
        kept |= {"property": found.property, "length": found.length, "schedule": list(found.steps)}
    if found is not None and cell.reference not in (None, found.length):
        kept |= {"reference": cell.reference or 0, "why": DIFFERENCES.get(cell.id, "")}
    return kept


@cache
def golden() -> Mapping[str, Figures]:
    """The figures of all cells, by the id of the cell."""
    return cast("Mapping[str, Figures]", tomllib.loads(GOLDEN.read_text(encoding="utf-8")))


@dataclass(frozen=True, slots=True)
class Shown:
    """One claim of the table as people read it: ``+P2``, or ``-P3`` with its shortest schedule."""

    row: str
    column: str
    property: str
    is_kept: bool
    length: int
    schedule: tuple[str, ...]


def measured_table() -> Iterator[Shown]:
    """The table of claims with the lengths that were measured, row by row."""
    for row, columns in TABLE.items():
        for column, claims in columns.items():
            for claim in claims:
                found = golden()[Cell(row, column, claim).id]
                length = cast("int", found.get("length", 0))
                schedule = tuple(cast("list[str]", found.get("schedule", [])))
                yield Shown(row, column, claim.property, claim.is_kept, length, schedule)


def write() -> None:
    """Measure everything anew."""
    lines = [
        "# Written by `python -m tests.faults.plain_golden`; a change needs a sentence in the commit."
    ]
    for cell in measured():
        lines += ["", f"[{json.dumps(cell.id)}]"]
        found = figures(cell, explore(cell.subject, cell.scope()))
        lines += [f"{name} = {_value(value)}" for name, value in found.items()]
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _value(value: int | str | list[str]) -> str:
    if isinstance(value, list):
        return "[\n" + "".join(f"    {json.dumps(item)},\n" for item in value) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    write()
