"""Looks for a run that breaks each cell which is not tolerated, shrinks it, and keeps it as a script.

    python -m tests.faults.product_golden [SEEDS] [PART/PARTS] [WORD ...]

Words choose cells by their names, cautious ones too; without words those are left out. In the end
``product-open.txt`` holds what is still not shown.
Cells that have a run already are left alone, unless it no longer shows anything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from surepipe.pipes.algebra.guarantees import Fault
from surepipe.simulation.drawing import draw_options
from surepipe.simulation.faults import FaultKind, Mode
from surepipe.simulation.findings import RunResult, Violation
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.properties import judge
from surepipe.simulation.randomness import draws
from surepipe.simulation.script import Script
from surepipe.simulation.script_file import load, save
from surepipe.simulation.shrink import shrink
from surepipe.simulation.trace import Row
from tests.faults.cautious import CAUTIOUS, OPEN_CELLS
from tests.faults.product import BROKEN, KEPT, Cell, guarantee_of, kinds_for, unknown_to

SEEDS = 100
MESSAGES = 8
HELPFUL = ("F3", "F4", "F1")
"""Kinds that make something of a crash: copies that come late, and what was not heard."""
REPLAYS_MAX = 30


def run_of(cell: Cell, options: Options) -> RunResult:
    """A drawn run, judged by the property of the cell alone."""
    return run_hop(cell.subject, options, judge=lambda rows: look(cell, rows))


def again(cell: Cell, script: Script) -> RunResult:
    """The run of a script, judged by the property of the cell alone."""
    return replay(cell.subject, script, judge=lambda rows: look(cell, rows))


def look(cell: Cell, rows: Sequence[Row]) -> tuple[Violation, ...]:
    """What this property says of a run."""
    return judge(rows, [cell.judged])


def shows(cell: Cell, script: Script) -> bool:
    """Whether a script still breaks the cell, with nothing in it that is not there any more."""
    result = again(cell, script)
    return result.stale is None and result.violates(cell.judged) is not None


def mixtures(cell: Cell) -> Iterator[list[FaultKind]]:
    """With which faults to try: the one alone, with each other that the atom survives, then with all of these."""
    alone = kinds_for(cell.subject, cell.fault)
    yield alone
    survived = guarantee_of(cell.subject).tolerated(cell.atom) or frozenset[Fault]()
    beside = kinds_for(cell.subject, *(survived - unknown_to(cell.subject)))
    others = [kind for kind in beside if kind not in alone]
    yield from ([*alone, kind] for kind in others if kind.id in HELPFUL)
    yield [*alone, *others]


def harsh(cell: Cell, seed: int, kinds: list[FaultKind]) -> Options:
    """Options of a seed under which all of these kinds strike, large values being as likely as small ones."""
    promise = promise_of(cell.subject)
    calm = draw_options(seed, promise, mode=Mode.NONE, messages=MESSAGES)
    source = draws(seed, "harsh")
    values = {
        one.option: source.between(max(1, one.low * unit // 10), one.high * unit // 10)
        for kind in kinds
        for one in kind.ranges
        for unit in [promise.timer_us if one.in_timeouts else 1]
    }
    return replace(calm, mode=Mode.BREAK.value, **values)  # type: ignore[arg-type]


def search(cell: Cell, seeds: int) -> Script | None:
    """The shrunk script of the first run that breaks the cell."""
    for kinds in mixtures(cell):
        for seed in range(seeds):
            options = harsh(cell, seed, kinds)
            result = run_of(cell, options)
            if result.violates(cell.judged) is not None:
                return shrink(
                    result.script,
                    lambda script: again(cell, script),
                    cell.judged,
                    replays_max=REPLAYS_MAX,
                ).script
    return None


def main() -> None:
    """Keep what was found, and say what was not."""
    words = [word for word in sys.argv[1:] if word[0].isalpha()]
    part, parts = next((map(int, w.split("/")) for w in sys.argv[1:] if "/" in w), (0, 1))
    seeds = next((int(word) for word in sys.argv[1:] if word.isdigit()), SEEDS)
    KEPT.mkdir(exist_ok=True)
    for cell in BROKEN[part::parts]:
        if words and not all(word in cell.id for word in words):
            continue
        if cell.id in CAUTIOUS and not words:
            continue
        if cell.path.exists() and shows(cell, load(cell.path)):
            continue
        script = search(cell, seeds)
        if script is None:
            sys.stdout.write(f"not shown: {cell.id}\n")
        else:
            save(script, cell.path)
            sys.stdout.write(f"{len(script.decisions)} decisions: {cell.id}\n")
        sys.stdout.flush()
    note_open()


def note_open() -> None:
    """Write down which cells have neither a run nor a note."""
    left = [cell.id for cell in BROKEN if cell.id not in CAUTIOUS and not cell.path.exists()]
    OPEN_CELLS.write_text("".join(f"{id_}\n" for id_ in sorted(left)), encoding="utf-8")


if __name__ == "__main__":
    main()
