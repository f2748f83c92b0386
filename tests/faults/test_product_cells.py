"""The table of the product, both ways: what is tolerated holds, what is not is shown by a kept run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from surepipe.core.claims import Atom, Fault
from surepipe.simulation.chance.script import Decision, load
from surepipe.simulation.faults import FaultKind, Mode, draw_options
from surepipe.simulation.hop import run_hop
from surepipe.simulation.promises import promise_of
from surepipe.simulation.subjects import HopSubject
from surepipe.simulation.world import judge_rows
from tests.faults.cautious import CAUTIOUS
from tests.faults.product import (
    BROKEN,
    BY_NAME,
    KEPT,
    NEVER_ALONE,
    SUBJECTS,
    Cell,
    guarantee_of,
    has_its_faults,
    kinds_within,
)
from tests.faults.product_golden import again
from tools import fault_table

SEEDS_TOGETHER = 4
EVERY_PAIR = 12
"""So many of all pairs are tried at each run of the tests; the hunt tries all."""
MESSAGES = 12

SHOWN: Sequence[Cell] = tuple(cell for cell in BROKEN if cell.id not in CAUTIOUS)


def survived(subject: HopSubject) -> Iterator[tuple[Atom, list[FaultKind]]]:
    """Each atom with the kinds that bring nothing but faults that it survives."""
    for atom, faults in guarantee_of(subject).items():
        yield atom, kinds_within(subject, faults)


def broken_by(subject: HopSubject, seed: int, kinds: Sequence[FaultKind]) -> list[str]:
    """What a run with these kinds violates."""
    options = draw_options(
        seed, promise_of(subject), mode=Mode.CLAIM, kinds=kinds, messages=MESSAGES
    )
    found = judge_rows(run_hop(subject, options, judge=None).rows)
    words = " ".join(kind.kind for kind in kinds)
    return [f"seed {seed}, {words}: {violation}" for violation in found]


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_tolerated_holds_under_all_of_it_together(name: str) -> None:
    """simulation X-43: for each atom, runs with every kind of fault that it survives."""
    subject = BY_NAME[name]
    broken = [
        told
        for _, kinds in survived(subject)
        for seed in range(SEEDS_TOGETHER)
        for told in broken_by(subject, seed, kinds)
    ]
    assert not broken


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_tolerated_holds_in_pairs(name: str) -> None:
    """simulation X-42, X-43: single faults hide what two do; a part of all pairs, with twelve messages."""
    subject = BY_NAME[name]
    pairs = {pair for _, kinds in survived(subject) for pair in combinations(kinds, 2)}
    chosen = sorted(pairs, key=lambda pair: (pair[0].id, pair[1].id))
    start = SUBJECTS.index(subject) % EVERY_PAIR
    broken = [
        told
        for seed, pair in enumerate(chosen[start::EVERY_PAIR])
        for told in broken_by(subject, seed, pair)
    ]
    assert not broken


@pytest.mark.parametrize("cell", SHOWN, ids=lambda cell: cell.id)
def test_what_is_not_tolerated_is_shown_by_a_kept_run(cell: Cell) -> None:
    """simulation X-43, X-34: the run has this fault and breaks this atom, and nothing in its script is stale."""
    script = load(cell.path)
    result = again(cell, script)
    assert has_its_faults(cell, result.script)
    assert result.stale is None, f"{result.stale}: python -m tests.faults.product_golden"
    assert result.violates(cell.judged) is not None


def test_every_cell_is_shown_or_cautious() -> None:
    """simulation X-43: one kept run for each cell without a note, and nothing is kept that no cell asks for."""
    assert {path.name for path in KEPT.iterdir()} == {cell.path.name for cell in SHOWN}


def test_what_is_declared_with_caution_stands_under_a_few_notes() -> None:
    """simulation X-43, pipes G-10."""
    notes: Mapping[str, str] = CAUTIOUS
    assert len(set(notes.values())) <= 5
    assert set(notes) <= {cell.id for cell in BROKEN}


def test_a_run_without_the_fault_of_its_cell_shows_nothing() -> None:
    """simulation X-43: nor does one with a fault that the atom does not survive by itself."""
    cell = next(one for one in SHOWN if one.id == "resend_-_no-loss_-_sender-zombie")
    script = load(cell.path)
    calm = [one for one in script.decisions if one.verb != "zombie"]
    crash = Decision("faults/sender", "sender: start 1", "crash", (0, 0), "F8")
    assert has_its_faults(cell, script)
    assert not has_its_faults(cell, replace(script, decisions=tuple(calm)))
    assert not has_its_faults(cell, replace(script, decisions=(*script.decisions, crash)))


def test_runs_of_what_is_survived_are_held_to_it() -> None:
    """simulation X-43: no kind brings a fault beside those that are survived, or nobody would judge the atom."""
    for subject in SUBJECTS:
        for atom, kinds in survived(subject):
            named = {name for kind in kinds for name in kind.names}
            faults = frozenset(fault for fault in Fault if fault in named) - NEVER_ALONE
            assert guarantee_of(subject).holds(atom, faults), (subject.name, atom)


def test_the_page_of_all_cells_is_up_to_date() -> None:
    """simulation X-41: generated, so it can't drift: python -m tools.fault_table."""
    assert fault_table.PAGE.read_text(encoding="utf-8") == fault_table.page()


def test_options_are_told_both_ways() -> None:
    """simulation X-43: with a journal a crashed sender loses nothing; without one a run is kept that does."""
    with_it = guarantee_of(BY_NAME["reliable, journal"])
    assert with_it.holds(Atom.NO_LOSS, frozenset({Fault.SENDER_CRASH}))
    assert any(
        (cell.subject.name, cell.atom, cell.fault) == ("reliable", Atom.NO_LOSS, Fault.SENDER_CRASH)
        for cell in SHOWN
    )
