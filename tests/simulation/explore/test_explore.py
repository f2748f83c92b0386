"""The explorer itself: what it counts, what it says, and that it sees planted bugs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from surepipe.audit.predicates import judge_trace
from surepipe.audit.trace import Kind
from surepipe.core.claims import Atom
from surepipe.core.effects import Effect, Transmit
from surepipe.errors import ConfigurationError
from surepipe.simulation.explore import explore
from surepipe.simulation.explore.result import Exploration, Explored, Shortest
from surepipe.simulation.explore.scope import Scope
from surepipe.simulation.subjects import HopSubject
from tests.plain.base import Confirm, Data, PlainReceiver, PlainSubject
from tests.plain.multi_unconfirmed import MULTI_UNCONFIRMED
from tests.plain.resend import RESEND, Receiver, Sender
from tests.plain.sequential import SEQUENTIAL
from tests.plain.stream import STREAM
from tests.plain.strict import STRICT
from tests.simulation.explore.scopes import RELIABLE, TIMERS


def found(explored: Exploration) -> Shortest:
    """The counterexample of an exploration that must have one."""
    assert explored.counterexample is not None
    return explored.counterexample


MIXED = Scope(messages=2, faults={"F1": 1, "F3": 1, "F11": 1}, properties=("P1", "P2", "P12"))


def test_digests_of_states_count_the_same_as_whole_states() -> None:
    """simulation X-47: plain, with four parts, and a stack that ships."""
    for subject in (RESEND, MULTI_UNCONFIRMED, STREAM, RELIABLE.subject()):
        scope = replace(MIXED, messages=1)
        digested, exact = explore(subject, scope), explore(subject, replace(scope, exact=True))
        assert (digested.states, digested.transitions) == (exact.states, exact.transitions)
        assert digested.holds


def test_a_long_drain_is_printed_from_both_ends() -> None:
    """simulation X-56: what a reader can take in; the object has all of it."""
    shortest = found(explore(RESEND, Scope(messages=2, faults={"F8": 1}, properties=("P2",))))
    long = replace(shortest, drain=tuple(f"step {n}" for n in range(1, 1_001)))
    told = str(long).splitlines()[1 + len(shortest.steps) :]
    assert (told[0], told[-1]) == ("  .  step 1", "  .  step 1000")
    assert told[10] == "  .  ... 980 more steps like these ..."
    assert len(told) == 21


def test_states_that_differ_only_in_frames_on_the_way_are_two() -> None:
    """simulation X-47: one message, lost or not, confirmed or not; counted by hand once."""
    lossy = Scope(messages=1, faults={"F1": 1, "F2": 1}, properties=("P2",))
    explored = explore(RESEND, lossy)
    assert (explored.states, explored.transitions) == (16, 16)


def test_the_same_scope_gives_the_same_exploration() -> None:
    """simulation X-11: states, transitions, depth and the counterexample with its rows are equal."""
    scope = Scope(messages=2, faults={"F3": 1}, properties=("P4",))
    one, other = explore(MULTI_UNCONFIRMED, scope), explore(MULTI_UNCONFIRMED, scope)
    assert one == other
    assert found(one).run.digest == found(other).run.digest


def test_a_scope_that_is_too_large_is_never_said_to_hold() -> None:
    """simulation X-4: the limit of states is reached."""
    explored = explore(MULTI_UNCONFIRMED, replace(MIXED, states_max=50))
    assert explored.verdict is Explored.BOUNDED
    assert str(explored.verdict) == "bounded, not exhausted"
    assert not explored.holds


def test_a_scope_that_makes_no_sense_is_refused() -> None:
    """An unknown fault, a negative number of faults, no messages, a cut that heals beside one that stays."""
    for faults in ({"F99": 1}, {"F1": -1}, {"F6": 1, "F7a": 1}):
        with pytest.raises(ConfigurationError):
            Scope(faults=faults)
    with pytest.raises(ConfigurationError):
        Scope(messages=0)


def test_a_journal_is_refused_as_it_can_not_be_explored() -> None:
    """The message says who tries journals."""
    with pytest.raises(ConfigurationError, match="simulator"):
        explore(HopSubject("reliable", journaled=True))


def test_a_fault_that_can_strike_nobody_is_refused() -> None:
    """simulation X-4: to hold through a crash that never happens would mean nothing; no journal, no store here."""
    for fault in ("F9", "F13", "F18"):
        with pytest.raises(ConfigurationError, match=f"can suffer {fault} "):
            explore(RESEND, Scope(messages=1, faults={fault: 1}))
    assert explore(RESEND, Scope(messages=1, faults={"F9": 0})).holds


def test_a_counterexample_is_told_in_words_with_the_fault_marked() -> None:
    """simulation X-48, X-56: property, number of steps, the steps, and the drain that doesn't count."""
    shortest = found(explore(SEQUENTIAL, Scope(faults={"F2": 1}, properties=("P2",))))
    assert shortest.length == len(shortest.steps) == 3
    assert shortest.steps[2].endswith("is lost on its way to the sender *** F2")
    assert str(shortest).startswith("P2 no loss VIOLATED in 3 steps\n  1  sender is given #1")
    assert shortest.drain


def test_the_rows_of_a_counterexample_are_a_trace_that_another_judge_convicts() -> None:
    """simulation X-1, X-31: dense steps from run to end; settled rows, by identity, repeat a message."""
    shortest = found(explore(RESEND, Scope(faults={"F3": 1}, properties=("P3",))))
    rows = shortest.run.rows
    assert [row.step for row in rows] == list(range(len(rows)))
    assert (rows[0].kind, rows[-1].kind) == (Kind.RUN, Kind.END)
    assert json.loads(rows[0].detail)["faults"] == ["F3"]
    accepted = [(row.epoch, row.seq) for row in rows if row.kind == Kind.ACCEPTED]
    settled = [(row.epoch, row.seq) for row in rows if row.kind == Kind.SETTLED]
    positions = [accepted.index(identity) + 1 for identity in settled]
    assert not judge_trace(positions).held(Atom.NO_DUPLICATE)
    assert shortest.violation.position == 1
    assert rows[shortest.violation.step].kind == Kind.SETTLED


def test_a_loss_that_only_the_end_shows_is_convicted_at_the_end() -> None:
    """simulation X-48: the last step of the schedule, then the phase of the drain, then the row end."""
    shortest = found(explore(SEQUENTIAL, Scope(faults={"F1": 1}, properties=("P2",))))
    kinds = [row.kind for row in shortest.run.rows]
    assert kinds.index(Kind.LOST) < kinds.index(Kind.PHASE)
    assert shortest.run.rows[shortest.violation.step].kind == Kind.END
    assert [decision.fault for decision in shortest.run.script.decisions if decision.fault] == [
        "F1"
    ]


class TakesAnyConfirm(Sender):
    """Planted: the number of a confirm is not looked at."""

    def means(self, confirm: Confirm) -> bool:  # noqa: ARG002
        """Any confirm will do."""
        return True


class ConfirmsFirst(PlainReceiver):
    """Planted: the confirm leaves before the message is handed over."""

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Confirm, then hand over."""
        if not isinstance(frame, Data):
            return []
        return [Transmit(Confirm(frame.epoch, frame.number)), *self.hand_over(frame)]


class Forgets(Sender):
    """Planted: gives up after the first wake."""

    def again(self) -> list[Effect]:
        """Nothing is sent again."""
        self.waiting = self.waiting[1:]
        return []


PLANTED = [
    (TakesAnyConfirm, Receiver, {"F3": 1, "F1": 1}, "P2"),
    (Sender, ConfirmsFirst, {"F11": 1}, "P2"),
    (Forgets, Receiver, {"F1": 1}, "P2"),
]


@pytest.mark.parametrize(("sender", "receiver", "faults", "name"), PLANTED)
def test_a_planted_bug_is_found_where_the_sound_pattern_holds(
    sender: type[Sender], receiver: type[PlainReceiver], faults: dict[str, int], name: str
) -> None:
    """simulation PL-1, PL-2, PL-3: the same scope holds for plain re-send."""
    scope = Scope(messages=3, faults=faults, properties=(name,))
    assert explore(RESEND, scope).holds
    assert found(explore(PlainSubject("planted", sender, receiver), scope)).property == name


def test_a_crash_of_the_receiver_repeats_what_it_had_not_confirmed() -> None:
    """A stack that ships loses its volatile cursor: simulation F11 against P3, through the boundary."""
    scope = Scope(messages=1, faults={"F11": 1}, properties=("P3",))
    shortest = found(explore(HopSubject([{"reliable": TIMERS}], name="reliable"), scope))
    assert "crashes *** F11" in " ".join(shortest.steps)


def test_answers_that_take_their_time_are_steps_of_their_own() -> None:
    """simulation X-46: with `apart`, arrival and settling are two steps, and more can come between."""
    scope = Scope(messages=1, faults={"F1": 1}, properties=("P1", "P2"))
    subject = HopSubject([{"resend": TIMERS}], name="resend")
    together, apart = explore(subject, scope), explore(subject, replace(scope, apart=True))
    assert together.holds
    assert apart.holds
    assert apart.states > together.states


def test_every_decision_that_is_a_fault_has_the_fault_of_the_catalogue() -> None:
    """simulation X-35: an arrival before what was sent earlier is F4; the drain's own order is no fault."""
    scope = Scope(messages=2, faults={"F4": 1}, properties=("P4",))
    shortest = found(explore(MULTI_UNCONFIRMED, scope))
    faults = [decision.fault for decision in shortest.run.script.decisions]
    assert faults == ["", "", "F4", ""]
    assert shortest.steps[2].endswith("*** overtaking, F4")


def test_a_crash_on_what_overtakes_is_two_decisions() -> None:
    """simulation X-35: both faults are named, and the schedule is as long as before."""
    scope = Scope(messages=3, faults={"F10": 1}, order="any", properties=("P5",))
    shortest = found(explore(STRICT, scope))
    faults = [decision.fault for decision in shortest.run.script.decisions if decision.fault]
    assert sorted(faults) == ["F10", "F4", "F4"]
    assert shortest.length == 6
