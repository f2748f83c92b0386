"""Writes docs/fault-table.md: ``python -m tools.fault_table``; with ``--check`` it only compares.

The cells are those that ``tests/faults`` tries; the steps are those of the runs kept in ``tests/golden``.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from surepipe.core.claims import Atom, Fault, faults_told
from surepipe.simulation.chance.script import load
from surepipe.simulation.subjects import HopSubject
from tests.faults.cautious import CAUTIOUS, NOTES
from tests.faults.product import CELLS, SUBJECTS, Cell
from tools.pattern_tables import table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fault-table.md"
PLAIN = ROOT / "tests" / "golden" / "explore.toml"

COLUMNS = {
    "RS": "resend",
    "RM": "multi-unconfirmed",
    "ST": "stream",
    "SQ": "sequential-confirm",
    "SM": "strict-monotonic",
    "CI": "continuous-index",
}
INTRODUCTION = """# What each pipe survives, and how the rest breaks

This page is generated (`python -m tools.fault_table`) from what the tests run. It has two parts.

**Pipes as they ship.** Every pipe and common stack is tried under every fault in a simulated world, for every atom
of its guarantee:

- *holds*: the guarantee covers the fault; runs with it, with all other covered faults together and in pairs, broke
  nothing;
- *breaks, n*: the guarantee does not cover it, and a run is kept that shows it, with this fault and none beside it
  that is not covered, and n decisions left after shrinking; each test run repeats it;
- *caution n*: not covered, and no run was found that breaks it; note n says why;
- a dot: the fault can't occur there.

In brackets stands the part of a word of `expect` that was tried, such as `process-crash (sender-crash)`.

**Plain patterns.** The six patterns with nothing added, explored exhaustively: the number of steps of the shortest
schedule that breaks the property (P2 no loss, P3 no duplicates, P4 monotonic, P5 strict, P6g gap-free, P7
absolute). *any*: on a route that may change the order of frames; *later*: counting only what was accepted after
the crash.
"""


@cache
def steps(path: Path) -> int:
    """How many decisions a kept run has."""
    return len(load(path).decisions)


def text_of(cell: Cell) -> str:
    """What stands in one place of the table."""
    if cell.is_tolerated:
        return "holds"
    if cell.id in CAUTIOUS:
        return f"caution {list(NOTES).index(CAUTIOUS[cell.id]) + 1}"
    return f"breaks, {steps(cell.path)}"


def product_table(subject: HopSubject) -> str:
    """Faults by atoms, for one subject."""
    found = {(cell.fault, cell.atom): text_of(cell) for cell in CELLS if cell.subject == subject}
    atoms = [atom for atom in Atom if any(atom is known for _, known in found)]
    rows = [
        [faults_told(frozenset({fault})), *(found.get((fault, atom), ".") for atom in atoms)]
        for fault in Fault
        if any((fault, atom) in found for atom in atoms)
    ]
    return table(["fault", *(atom.value for atom in atoms)], rows)


def plain_cells() -> Iterator[tuple[str, str, str, int]]:
    """Fault, pattern, property and length of each schedule that exploration keeps."""
    for name, value in tomllib.loads(PLAIN.read_text(encoding="utf-8")).items():
        parts = name.split("-")
        entry = cast("dict[str, object]", value)
        length = entry.get("length")
        if len(parts) >= 3 and parts[1] in COLUMNS and isinstance(length, int):
            yield parts[0], parts[1], "-".join(parts[2:]), length


def plain_table() -> str:
    """Faults by patterns."""
    found: dict[tuple[str, str], list[str]] = {}
    for fault, pattern, broken, length in plain_cells():
        found.setdefault((fault, pattern), []).append(f"{broken} {length}")
    faults = list(dict.fromkeys(fault for fault, _ in found))
    rows = [
        [fault, *(", ".join(found.get((fault, pattern), ["."])) for pattern in COLUMNS)]
        for fault in sorted(faults, key=_by_number)
    ]
    return table(["fault", *COLUMNS.values()], rows)


def _by_number(fault: str) -> tuple[int, str]:
    digits = "".join(c for c in fault.partition("+")[0] if c.isdigit())
    return (int(digits or 0), fault)


def measured(kind: str) -> str:
    """What the tests measured of one pipe: the pattern with nothing added, then the pipe as it ships."""
    shortest = [
        f"{broken} by {fault} in {length} steps"
        for fault, pattern, broken, length in plain_cells()
        if COLUMNS[pattern] == kind
    ]
    lines = [f"With nothing added, the pattern breaks like this: {'; '.join(shortest)}.\n"] * bool(
        shortest
    )
    subject = next(one for one in SUBJECTS if one.name.partition(",")[0] == kind)
    return "\n".join([*lines, product_table(subject)])


def page() -> str:
    """The whole page."""
    parts = [
        *(INTRODUCTION, "## Pipes as they ship\n"),
        *(f"### {subject.name}\n\n{product_table(subject)}\n" for subject in SUBJECTS),
        "### Notes\n\n" + "\n".join(_notes()) + "\n",
        f"## Plain patterns\n\n{plain_table()}\n",
    ]
    return "\n".join(parts)


def _notes() -> Sequence[str]:
    return [f"{number}. {note}." for number, note in enumerate(NOTES, 1)]


def main() -> int:
    """1 when the page is not what it should be."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
