"""Looks for a run that breaks each cell which is not tolerated, shrinks it, and keeps it as a script.

    python -m tests.faults.product_golden [RUNS] [PART/PARTS] [WORD ...]

Words choose cells by their names, cautious ones too; without words those are left out. Cells that have a run
already are left alone, unless it no longer shows anything. A cell that is not shown wants a better search, or a
note in ``cautious``, or another rule in the algebra.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from surepipe.audit.findings import Violation
from surepipe.audit.properties import judge
from surepipe.audit.trace import Row
from surepipe.core.claims import Fault
from surepipe.simulation.causal import Growth, grown_runs
from surepipe.simulation.chance.script import Script, load, save
from surepipe.simulation.faults import ALWAYS, CATALOGUE
from surepipe.simulation.hop import replay
from surepipe.simulation.processes import OFFER_TO_ZOMBIE
from surepipe.simulation.results import Replayer, RunResult
from surepipe.simulation.shrink import shrink
from tests.faults.cautious import CAUTIOUS
from tests.faults.product import (
    BROKEN,
    KEPT,
    Cell,
    has_its_faults,
    kinds_within,
    survived_with,
)

RUNS = 2_000
REPLAYS_MAX = 300
HARMLESS = [kind.id for kind in CATALOGUE if kind.names == (ALWAYS,) and kind.ranges]


def again(cell: Cell, script: Script) -> RunResult:
    """The run of a script, judged by the property of the cell alone."""
    return replay(cell.subject, script, judge=lambda rows: look(cell, rows))


def look(cell: Cell, rows: Sequence[Row]) -> tuple[Violation, ...]:
    """What this property says of a run."""
    return judge(rows, [cell.judged])


def with_its_faults(cell: Cell, script: Script) -> RunResult:
    """The same, but a run that lacks the cell's fault, or has one too many, shows nothing."""
    result = again(cell, script)
    if result.violations and not has_its_faults(cell, result.script):
        return replace(result, violations=())
    return result


def shows(cell: Cell, script: Script) -> bool:
    """Whether a script still breaks the cell, with nothing in it that is not there any more."""
    result = with_its_faults(cell, script)
    return result.stale is None and result.violates(cell.judged) is not None


def growth_for(cells: Sequence[Cell], runs: int) -> Growth:
    """What strikes in the search for cells of one subject and fault: that, and what their atoms survive."""
    subject, fault = cells[0].subject, cells[0].fault
    within = [kind for cell in cells for kind in kinds_within(subject, survived_with(cell))]
    must = [kind.id for kind in within if fault in kind.names]
    if fault is Fault.SENDER_ZOMBIE:
        must.append(OFFER_TO_ZOMBIE)
    may = [kind.id for kind in within if kind.id not in must]
    return Growth(dict.fromkeys(must), dict.fromkeys([*may, *HARMLESS]), runs)


def borrowed(cell: Cell) -> Iterator[Script]:
    """What breaks other subjects by this fault, told of this one, whose layers may be fewer or more."""
    for other in BROKEN:
        if other.fault is cell.fault and other.path.exists():
            script = replace(load(other.path), subject=cell.subject.name)
            for old, new in (("", ""), ("pipe/0", "pipe/1"), ("pipe/1", "pipe/0")):
                decisions = [replace(one, at=one.at.replace(old, new)) for one in script.decisions]
                yield replace(script, decisions=tuple(decisions))


def found_runs(cells: Sequence[Cell], judged: Replayer, runs: int) -> Iterator[RunResult]:
    """What is borrowed, then what grows."""
    for script in borrowed(cells[0]):
        result = judged(script)
        if result.stale is None and result.violations:
            yield result
    yield from grown_runs(cells[0].subject, judged, growth_for(cells, runs))


def search(cells: Sequence[Cell], runs: int) -> Iterator[tuple[Cell, Script]]:
    """The shrunk scripts that break some of these cells, all of one subject and fault."""
    open_ = {cell.judged: cell for cell in cells}

    def judged(script: Script) -> RunResult:
        result = replay(cells[0].subject, script, judge=lambda rows: judge(rows, list(open_)))
        found = [
            violation
            for violation in result.violations
            if has_its_faults(open_[violation.property], result.script)
        ]
        return replace(result, violations=tuple(found))

    for result in found_runs(cells, judged, runs):
        for name in dict.fromkeys(violation.property for violation in result.violations):
            cell = open_.pop(name)
            yield cell, shortest(cell, result.script)
        if not open_:
            return


def shortest(cell: Cell, script: Script) -> Script:
    """What is left of it when it is shrunk, and of the time before all is healed."""
    found = shrink(
        script,
        lambda script: with_its_faults(cell, script),
        cell.judged,
        replays_max=REPLAYS_MAX,
    ).script
    return healed_sooner(cell, found)


def healed_sooner(cell: Cell, script: Script) -> Script:
    """Half the time as often as it still shows the same: two ends that contend for a link do so all the time."""
    sooner = replace(
        script, options={**script.options, "chaos_us": int(script.options.get("chaos_us", 0)) // 2}
    )
    if sooner.options["chaos_us"] and shows(cell, sooner):
        return healed_sooner(cell, sooner)
    return script


def wanted(words: Sequence[str]) -> Iterator[list[Cell]]:
    """The cells without a run that shows them, by subject and fault; ``words`` choose among them by name."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in BROKEN:
        is_chosen = all(word in cell.id for word in words) if words else cell.id not in CAUTIOUS
        if is_chosen and not (cell.path.exists() and shows(cell, load(cell.path))):
            groups.setdefault((cell.subject.name, cell.fault), []).append(cell)
    yield from groups.values()


def main() -> None:
    """Keep what was found, and say what was not."""
    logging.disable(logging.WARNING)  # what a journal says of stores that go back, at each run
    words = [word for word in sys.argv[1:] if word[0].isalpha()]
    part, parts = next((map(int, w.split("/")) for w in sys.argv[1:] if "/" in w), (0, 1))
    runs = next((int(word) for word in sys.argv[1:] if word.isdigit()), RUNS)
    KEPT.mkdir(exist_ok=True)
    for cells in list(wanted(words))[part::parts]:
        left = {cell.id: cell for cell in cells}
        for cell, script in search(cells, runs):
            save(script, cell.path)
            del left[cell.id]
            sys.stdout.write(f"{len(script.decisions)} decisions: {cell.id}\n")
            sys.stdout.flush()
        for cell in left.values():
            cell.path.unlink(missing_ok=True)
            sys.stdout.write(f"not shown: {cell.id}\n")


if __name__ == "__main__":
    main()
