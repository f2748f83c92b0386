"""The predicates say exactly what their names say, in one pass (pipes V-1 to V-6)."""

from __future__ import annotations

from itertools import chain, pairwise, product

import pytest

from surepipe.audit.predicates import (
    JudgedProperty,
    OrderJudge,
    PropertyOutcome,
    judge_trace,
)
from surepipe.core.claims import Atom

U, M, G = Atom.NO_DUPLICATE, Atom.MONOTONIC, Atom.GAP_FREE
ALL_TRACES = tuple(chain.from_iterable(product(range(1, 5), repeat=n) for n in range(7)))


def digits(*words: str) -> list[int]:
    """Several traces of single digits as one."""
    return [int(digit) for digit in "".join(words)]


def holding(trace: list[int]) -> set[Atom]:
    """Which of the three order atoms hold."""
    return {atom for atom in (U, M, G) if judge_trace(trace).held(atom)}


@pytest.mark.parametrize(
    ("trace", "atoms"),
    [
        ("123", {U, M, G}),
        ("1123", {M, G}),
        ("1223", {M, G}),
        ("12", {U, M, G}),
        ("13", {U, M}),
        ("23", {U, M}),
        ("1213", {G}),
        ("1323", set[Atom]()),
        ("132", {U}),
        ("", {U, M, G}),
    ],
)
def test_each_small_trace_has_exactly_its_atoms(trace: str, atoms: set[Atom]) -> None:
    """absolute, continuous, strict, monotonic and gap-free traces, told apart (V-1)."""
    assert holding(digits(trace)) == atoms


@pytest.mark.parametrize(
    ("traces", "atoms"),
    [
        (("123",), {U, M, G}),
        (("123", "1123", "1223"), {M, G}),
        (("123", "12", "13", "23"), {U, M}),
        (("123", "1223", "12", "13", "23"), {M}),
    ],
)
def test_a_set_of_traces_has_the_atoms_that_all_of_them_have(
    traces: tuple[str, ...], atoms: set[Atom]
) -> None:
    """The order names of the catalogue as sets of the traces they allow (V-1, V-3)."""
    common = {U, M, G}
    for trace in traces:
        common &= holding(digits(trace))
    assert common == atoms


def test_over_all_short_traces_the_judge_agrees_with_the_definitions() -> None:
    """Every trace of up to 6 of 4 positions against the sentences of V-1, written out naively."""
    for trace in ALL_TRACES:
        verdict = judge_trace(trace, accepted=4)
        pairs = [(a, b) for i, a in enumerate(trace) for b in trace[i + 1 :]]
        reach = [1 + max(trace[:i], default=0) for i in range(len(trace))]
        assert verdict.held(U) == (len(set(trace)) == len(trace))
        assert verdict.held(M) == all(a <= b for a, b in pairs)
        assert verdict.held(G) == all(x <= top for x, top in zip(trace, reach, strict=True))
        assert verdict.held(Atom.NO_LOSS) == (set(trace) == {1, 2, 3, 4})


def test_over_all_short_traces_the_names_relate_as_they_should() -> None:
    """strict = M and U = strictly rising; absolute = G and U = a prefix of what was accepted (V-3)."""
    for trace in ALL_TRACES:
        verdict = judge_trace(trace)
        rising = all(a < b for a, b in pairwise(trace))
        assert verdict.held(M, U) == rising
        assert verdict.held(G, U) == (trace == tuple(range(1, len(trace) + 1)))
        if verdict.held(G, U):
            assert verdict.held(M)


def test_one_pass_without_memory_is_exact_while_either_order_atom_holds() -> None:
    """The constant-memory judge against the exact one over all short traces (V-6)."""
    for trace in ALL_TRACES:
        lean, exact = OrderJudge(), judge_trace(trace)
        for position in trace:
            lean.step(position)
        assert lean.outcome(JudgedProperty.MONOTONIC) is exact.of(M)
        assert lean.outcome(JudgedProperty.GAP_FREE) is exact.of(G)
        repeats = lean.outcome(JudgedProperty.NO_DUPLICATE)
        if exact.held(M) or exact.held(G) or repeats is not PropertyOutcome.UNDECIDED:
            assert repeats is exact.of(U)


def test_the_lean_judge_keeps_nothing_for_each_message() -> None:
    """A million positions in runs: its state is a few integers, and still is after single steps."""
    judge = OrderJudge()
    for first in range(1, 1_000_000, 1000):
        judge.run(first, first + 999)
    judge.step(1_000_001)
    assert judge.count == 1_000_001
    assert judge.highest == 1_000_001
    assert not judge.violations


@pytest.mark.parametrize("trace", ["123456", "12346", "123123", "1334", "5671", "222"])
def test_a_run_is_judged_as_its_single_steps(trace: str) -> None:
    """Maximal runs of the trace fed at once give the same verdict and places."""
    single, runs = OrderJudge(), OrderJudge()
    for position in digits(trace):
        single.step(position)
    first = last = 0
    for position in [*digits(trace), 0]:
        if position != last + 1 or not first:
            if first:
                runs.run(first, last)
            first = position
        last = position
    assert runs.violations == single.violations
    assert (runs.count, runs.highest) == (single.count, single.highest)


def test_a_violation_names_the_atom_the_place_and_the_position() -> None:
    """1 2 4 2: the gap comes first, then the step back that is a repeat too."""
    verdict = judge_trace([1, 2, 4, 2])
    assert [str(v) for v in verdict.violations] == [
        "gap-free violated at place 3, position 4",
        "monotonic violated at place 4, position 2",
        "no-duplicate violated at place 4, position 2",
    ]
    first = verdict.first
    assert first is not None
    assert first.broken is JudgedProperty.GAP_FREE


def test_only_the_first_violation_of_each_atom_is_kept() -> None:
    """Later ones don't replace it."""
    where = judge_trace([2, 1, 2, 1]).where(M)
    assert where is not None
    assert (where.place, where.position) == (2, 1)
