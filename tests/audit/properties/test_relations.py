"""What properties about order have to do with each other, over all short traces (X-39)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import chain, product

from surepipe.audit.predicates import judge_trace
from surepipe.audit.properties import ORDERS, Judge
from surepipe.core.claims import Atom
from tests.audit.properties.kit import judged, whole

LONGEST = 6
POSITIONS = 4
ALL_TRACES = tuple(
    chain.from_iterable(product(range(1, POSITIONS + 1), repeat=n) for n in range(LONGEST + 1))
)


def broken(trace: tuple[int, ...]) -> frozenset[str]:
    """Which of P2 to P7 a trace breaks."""
    return frozenset(one.property for one in judged(whole(POSITIONS, trace), "P2", *ORDERS))


@cache
def all_broken() -> Mapping[tuple[int, ...], frozenset[str]]:
    """The same of every trace; made by the first test that asks."""
    return {trace: broken(trace) for trace in ALL_TRACES}


def test_over_all_short_traces_the_judge_agrees_with_the_predicates() -> None:
    """Each atom, and no loss at the end, against the one implementation of V-1 (X-1, pipes V-6)."""
    atoms = {"P3": Atom.NO_DUPLICATE, "P4": Atom.MONOTONIC, "P6g": Atom.GAP_FREE}
    for trace, found in all_broken().items():
        verdict = judge_trace(trace, accepted=POSITIONS)
        assert {one for one, atom in atoms.items() if not verdict.held(atom)} == found & set(atoms)
        assert ("P2" in found) == (not verdict.held(Atom.NO_LOSS))


def test_strict_is_monotonic_without_repeats_and_absolute_is_gap_free_without_repeats() -> None:
    """P5 = P4 and P3, P6 = P6g and P4, P7 = P6g and P3 (X-39)."""
    for found in all_broken().values():
        assert ("P5" in found) == bool(found & {"P4", "P3"})
        assert ("P6" in found) == bool(found & {"P6g", "P4"})
        assert ("P7" in found) == bool(found & {"P6g", "P3"})


def test_monotonic_and_gap_free_are_independent() -> None:
    """Each is broken alone by some trace, and both by another (X-39)."""
    seen = {found & {"P4", "P6g"} for found in all_broken().values()}
    assert seen == {frozenset(), frozenset({"P4"}), frozenset({"P6g"}), frozenset({"P4", "P6g"})}


def test_an_absolute_trace_is_a_prefix_of_what_was_accepted() -> None:
    """P7 holds for 1, 12, 123 and 1234 only, and for nothing at all."""
    held = [trace for trace, found in all_broken().items() if "P7" not in found]
    assert held == [tuple(range(1, n + 1)) for n in range(POSITIONS + 1)]


def test_a_violation_stands_at_the_first_step_at_which_the_trace_is_broken() -> None:
    """Judged row by row: before that row the property held for the prefix."""
    for trace in ALL_TRACES[:: len(ALL_TRACES) // 200]:
        rows = whole(POSITIONS, trace)
        first = {v.property: v.step for v in reversed(judged(rows, *ORDERS))}
        for one, step in first.items():
            assert not [v for v in judged(rows[:step], *ORDERS) if v.property == one]


def test_rows_that_cover_runs_are_judged_as_their_messages_one_by_one() -> None:
    """Maximal runs of each trace in one row: the same sentences in the same order."""
    for trace in ALL_TRACES[:: len(ALL_TRACES) // 300]:
        single = judged(whole(POSITIONS, trace), "P2", *ORDERS)
        rows = [*whole(POSITIONS, ())[:-1]]
        for row in whole(POSITIONS, trace)[2:]:
            last = rows[-1]
            if row.kind == last.kind == "settled" and row.seq == last.seq + last.count:
                last.count += 1
                last.digests += row.digests
            else:
                rows.append(row)
        judge = Judge(["P2", *ORDERS], rows[0])
        for row in rows:
            judge.see(row)
        assert [v.sentence for v in judge.finish()] == [v.sentence for v in single]
