"""Drains: from which states, in which ways, and that each way sees what the others don't."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from surepipe.core.effects import Effect
from surepipe.simulation.explore import explore
from surepipe.simulation.explore.drain import DrainStates, FairDrain
from surepipe.simulation.explore.history import Broken
from surepipe.simulation.explore.parts import arrangement_of
from surepipe.simulation.explore.result import Explored
from surepipe.simulation.explore.scope import Scope
from surepipe.simulation.explore.search import Search
from surepipe.simulation.explore.transitions import Space, State
from tests.plain.base import PlainSubject
from tests.plain.multi_unconfirmed import MULTI_UNCONFIRMED, Sender
from tests.plain.resend import RESEND, Receiver
from tests.plain.resend import Sender as OneByOne
from tests.simulation.explore.scopes import MULTI, RELIABLE

ENDING = ("P2", "P11", "P12")

D = TypeVar("D", bound=DrainStates)


def test_every_state_is_drained_fast_and_slow_and_each_hundredth_fairly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """simulation X-49: the states that each drain is asked about, in the order in which they were met."""
    asked: dict[DrainStates, list[State]] = {}

    def noted(real: Callable[[D, State], Broken | None]) -> Callable[[D, State], Broken | None]:
        def failure(drain: D, state: State) -> Broken | None:
            asked.setdefault(drain, []).append(state)
            return real(drain, state)

        return failure

    monkeypatch.setattr(DrainStates, "failure", noted(DrainStates.failure))
    monkeypatch.setattr(FairDrain, "failure", noted(FairDrain.failure))
    scope = Scope(messages=2, faults={"F1": 1, "F3": 1}, properties=ENDING)
    search = Search(Space(arrangement_of(MULTI_UNCONFIRMED), scope))
    assert search.run().found is None
    reached = list(search.reached)
    assert list(asked.values()) == [reached, reached, reached[::100]]
    assert len(reached) > 100


def test_without_a_property_of_the_end_nothing_is_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only P2, P11 and P12 need a drain."""

    def failure(_: DrainStates, state: State) -> Broken:
        raise AssertionError(f"drained {state}")

    monkeypatch.setattr(DrainStates, "failure", failure)
    monkeypatch.setattr(FairDrain, "failure", failure)
    assert explore(RESEND, Scope(messages=1, properties=("P1", "P3"))).holds


class GivesUp(OneByOne):
    """Planted: what is not confirmed when a deadline passes is given up."""

    def again(self) -> list[Effect]:
        """Nothing is sent again."""
        self.waiting = ()
        return []


class GivesUpTheRest(Sender):
    """Planted: a deadline that passes when some of four, but not all, are confirmed ends the others."""

    def again(self) -> list[Effect]:
        """All, or nothing."""
        if len(self.waiting) in (0, 4):
            return super().again()
        self.waiting = ()
        return []


def _sees_nothing(_: DrainStates, state: State) -> None:  # noqa: ARG001
    return None


SLOW = (PlainSubject("gives up", GivesUp, Receiver), Scope(messages=1, properties=("P12",)))
MIXED = (
    PlainSubject("gives up the rest", GivesUpTheRest, Receiver),
    Scope(messages=4, batch=4, properties=("P12",)),
)


def test_only_answers_that_are_late_show_a_sender_that_does_not_wait() -> None:
    """simulation X-49, X-38 (O1): no fault is needed, and the fast drain sees nothing."""
    subject, scope = SLOW
    found = explore(subject, scope).counterexample
    assert found is not None
    assert (found.property, found.length) == ("P12", 0)
    assert "wakes" in " ".join(found.drain)
    space = Space(arrangement_of(subject), scope)
    assert DrainStates(space, slow=False).failure(space.first()) is None
    assert DrainStates(space, slow=True).failure(space.first()) is not None


def test_only_a_fair_drain_lets_a_deadline_pass_between_two_confirms() -> None:
    """simulation X-49: in the fast drain no deadline passes, in the slow one before all confirms of a round."""
    subject, scope = MIXED
    space = Space(arrangement_of(subject), scope)
    first = space.first()
    assert DrainStates(space, slow=False).failure(first) is None
    assert DrainStates(space, slow=True).failure(first) is None
    failure = FairDrain(space).failure(first)
    assert failure is not None
    assert failure[0] == "P12"
    assert explore(MULTI_UNCONFIRMED, scope).holds


def test_what_a_fair_drain_finds_is_told_with_the_steps_that_it_drew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """simulation X-11, X-48: the draws follow from the state, so the same steps are told each time."""
    monkeypatch.setattr(DrainStates, "failure", _sees_nothing)
    subject, scope = MIXED
    found = explore(subject, scope).counterexample
    assert found is not None
    assert (found.property, found.length) == ("P12", 0)
    woken = [place for place, step in enumerate(found.drain) if step == "sender wakes"]
    confirmed = [place for place, step in enumerate(found.drain) if "gets Confirm" in step]
    assert any(confirmed[0] < place < confirmed[-1] for place in woken)
    assert explore(subject, scope).counterexample == found


def test_a_deadline_that_an_answer_takes_away_does_not_pass() -> None:
    """simulation X-49: answers that come late, in the slow drain, of a stack that ships."""
    scope = Scope(messages=2, properties=("P2",), apart=True)
    assert explore(RELIABLE.subject(), scope).holds


def _nobody_else(_: Space, state: State, woken: object) -> State:  # noqa: ARG001
    return state


def test_time_passes_in_a_slow_drain_for_an_end_that_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """simulation X-49, P11: a new receiver asks for ever what a sender, for whom no time passes, never answers."""
    scope = Scope(
        messages=3,
        faults={"F1": 1, "F10": 1, "F11": 1},
        properties=("P11",),
        reduced=True,
        states_max=600,
        drain_steps_max=200,
    )
    assert explore(MULTI.subject(), scope).verdict is Explored.BOUNDED
    monkeypatch.setattr(Space, "passed", _nobody_else)
    assert explore(MULTI.subject(), scope).verdict is Explored.FOUND
