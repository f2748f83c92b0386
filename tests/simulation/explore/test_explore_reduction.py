"""Reduction: it says what the whole search says, goes into fewer states, and measures no lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from surepipe.simulation.explore import explore
from surepipe.simulation.explore import forgetting as explore_forgetting
from surepipe.simulation.explore import hops as explore_hops
from surepipe.simulation.explore.forgetting import Attributes
from surepipe.simulation.explore.hops import HopExplored, reduced_first
from surepipe.simulation.explore.numbers import BASE
from surepipe.simulation.explore.parts import Arrangement
from surepipe.simulation.explore.result import Explored
from surepipe.simulation.explore.scope import Scope
from surepipe.simulation.explore.search import Covering, Left
from surepipe.simulation.subjects import Subject
from tests.faults.plain_golden import Measured
from tests.faults.plain_table import PATTERNS
from tests.plain.resend import RESEND
from tests.plain.stacked import STACKS
from tests.simulation.explore.reduction import below, expected, futures, not_covered, reduced
from tests.simulation.explore.scopes import CONTINUOUS, MULTI, RELIABLE, Stack, Tried, small
from tests.simulation.explore.scopes import RESEND as RESEND_STACK
from tests.simulation.explore.scopes import STACKS as STACKS_SHIPPED

QUICK = list(below(1_000))

ONE_OF_EACH = {"F1": 1, "F2": 1, "F3": 1, "F5": 1}
ENDING = ("P1", "P2", "P12")
LATE = Scope(messages=3, faults={**ONE_OF_EACH, "F2": 3}, properties=("P4",))


@pytest.mark.parametrize("cell", QUICK, ids=[cell.id for cell in QUICK])
def test_a_reduced_search_says_what_the_whole_search_says(cell: Measured) -> None:
    """simulation X-50: small scopes of the golden file; `python -m tests.simulation.explore.reduction` has all."""
    explored = reduced(cell)
    assert explored.verdict is expected(cell)
    assert explored.reduced


COVERED: list[tuple[str, Subject | Arrangement, Scope]] = [
    ("RS", PATTERNS["RS"], Scope(messages=2, faults=ONE_OF_EACH, properties=ENDING)),
    ("RM", PATTERNS["RM"], Scope(messages=2, faults=ONE_OF_EACH, order="any", properties=ENDING)),
    ("RM-crash", PATTERNS["RM"], Scope(messages=2, faults={"F8": 1, "F11": 1, "F26": 1})),
    ("RM-zombie", PATTERNS["RM"], Scope(messages=2, faults={"F28": 1, "F3": 1})),
    ("ST", PATTERNS["ST"], Scope(messages=1, faults={"F1": 1, "F5": 1}, wakes=3)),
    ("CI over RS", STACKS["CI over RS"], Scope(faults={"F3": 2, "F6": 1}, properties=("P2", "P7"))),
    ("reliable", RELIABLE.subject(), Scope(messages=1, faults={"F1": 1, "F3": 1}, apart=True)),
]


@pytest.mark.parametrize(
    ("subject", "scope"), [given[1:] for given in COVERED], ids=[given[0] for given in COVERED]
)
def test_every_state_that_is_left_out_has_one_that_can_do_as_much(
    subject: Subject | Arrangement, scope: Scope
) -> None:
    """simulation X-50: the same but for the faults that are left, of which it has as many of each kind."""
    assert not_covered(subject, scope) == []


def _whatever_is_left(_: Covering, one: Left, other: Left) -> bool:  # noqa: ARG001
    return True


def _one_kind_for_another(_: Covering, one: Left, other: Left) -> bool:
    return sum(one) >= sum(other)


@pytest.mark.parametrize("planted", [_whatever_is_left, _one_kind_for_another])
def test_a_reduction_that_leaves_out_too_much_is_noticed(
    planted: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """simulation X-50: planted are a rule that looks at no budget, and one that takes a loss for an early wake."""
    monkeypatch.setattr(Covering, "covers", planted)
    _, subject, scope = COVERED[1]
    assert not_covered(subject, scope)


SHIPPED: list[tuple[Stack, Scope]] = [
    (RESEND_STACK, Scope(messages=2, faults={"F1": 1, "F2": 1, "F5": 1}, properties=("P1",))),
    (RELIABLE, Scope(messages=2, faults={"F1": 1, "F5": 1}, properties=("P1",))),
    (RELIABLE, Scope(messages=1, faults={"F1": 1, "F11": 1}, properties=("P1",))),
    (MULTI, Scope(messages=2, faults={"F1": 1, "F4": 1}, order="any", properties=("P1",))),
    (CONTINUOUS, Scope(messages=2, faults={"F10": 1, "F5": 1}, properties=("P1",))),
]


@pytest.mark.parametrize(("stack", "scope"), SHIPPED)
def test_machines_that_forget_come_to_the_states_of_those_that_do_not(
    stack: Stack, scope: Scope
) -> None:
    """simulation X-50: what is forgotten changes no step after it, in any schedule of the scope."""
    whole = futures(stack.subject(), scope, forgets=False)
    assert futures(stack.subject(), scope, forgets=True) == whole
    assert len(whole) > 50


def _forgets_since_when_to_wait(known: Attributes, usual: int) -> None:
    if usual:
        known["sent"] = known["since"] = BASE - usual


def _forgets_how_many_came(known: Attributes, usual: int) -> None:
    del usual
    known["arrivals"] = 0


@pytest.mark.parametrize(
    ("name", "planted"),
    [("Flight", _forgets_since_when_to_wait), ("Holes", _forgets_how_many_came)],
)
def test_forgetting_what_matters_is_noticed(
    name: str, planted: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """simulation X-50: planted are one round trip that always seems over, and frames that are not counted."""
    stack, scope = MULTI, Scope(messages=3, faults={"F1": 1}, properties=("P1",))
    whole = futures(stack.subject(), scope, forgets=False)
    monkeypatch.setitem(cast("dict[str, object]", explore_forgetting.FORGET), name, planted)
    assert futures(stack.subject(), scope, forgets=True) != whole


FAST = [tried for stack in STACKS_SHIPPED for tried in small(stack) if "F3" in tried.faults]


@pytest.mark.parametrize("tried", FAST, ids=[tried.id for tried in FAST])
def test_a_reduced_search_of_a_stack_that_ships_says_what_the_whole_search_says(
    tried: Tried,
) -> None:
    """simulation X-50: what holds, and that what the stack does not promise is found."""
    for name in ("P2", "P3", "P4"):
        scope = replace(tried.scope, properties=("P1", name))
        whole = explore(tried.stack.subject(), scope)
        fewer = explore(tried.stack.subject(), replace(scope, reduced=True))
        assert fewer.holds == whole.holds
        assert fewer.states <= whole.states or not whole.holds


def test_ignored_copies_cost_nothing() -> None:
    """simulation X-50: one of each kind of fault on plain multi-unconfirmed, less than half of the states."""
    scope = Scope(messages=2, faults=ONE_OF_EACH, properties=("P1",))
    whole, fewer = (explore(PATTERNS["RM"], replace(scope, reduced=by)) for by in (False, True))
    assert whole.holds
    assert fewer.holds
    assert fewer.states < whole.states / 2


def test_a_reduced_search_finds_violations_and_measures_none() -> None:
    """simulation X-50: no counterexample, no depth; the same scope unreduced has both."""
    scope = Scope(messages=2, faults={"F3": 1}, properties=("P3",), reduced=True)
    explored = explore(PATTERNS["RS"], scope)
    assert explored.verdict is Explored.FOUND
    assert "search again unreduced" in str(explored.verdict)
    assert (explored.counterexample, explored.depth, explored.holds) == (None, 0, False)
    assert explore(PATTERNS["RS"], replace(scope, reduced=False)).verdict is Explored.VIOLATED


def test_a_reduced_search_that_reaches_its_limit_is_bounded() -> None:
    """simulation X-4, X-50: leaving out is no reason to say that it holds."""
    scope = Scope(messages=3, faults=ONE_OF_EACH, reduced=True, states_max=50)
    assert explore(PATTERNS["RM"], scope).verdict is Explored.BOUNDED


def test_what_reduction_finds_is_searched_again_for_the_shortest_schedule() -> None:
    """simulation X-50: one that needs a copy and an early wake, with the length of the unreduced search."""
    scope, explored = reduced_first(RESEND, LATE)
    assert (scope.reduced, explored.verdict) == (False, Explored.VIOLATED)
    assert explored.counterexample is not None
    assert explored.counterexample.length == 9


def test_what_reduction_finds_is_not_forgotten_when_the_search_for_the_shortest_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """simulation X-4: a violation is known, so "bounded" would say too little."""
    enough = explore(RESEND, replace(LATE, reduced=True)).states
    few = replace(LATE, states_max=enough)
    assert explore(RESEND, few).verdict is Explored.BOUNDED
    monkeypatch.setattr(explore_hops, "STATES_MAX", 1)
    scope, explored = reduced_first(RESEND, few)
    assert (scope.reduced, explored.verdict) == (True, Explored.FOUND)
    told = HopExplored("orders", ((scope, explored),))
    assert told.verdict == "violated"
    assert "reduced: violated: search again" in str(told)
