"""The pipes of a plan, explored one by one: what is said of each, and what is never said."""

from __future__ import annotations

from dataclasses import replace

from surepipe.core.store_requests import Level
from surepipe.guarantees.hops import LOCAL, DeclaredStore, Hop
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.explore import explore
from surepipe.simulation.explore.hops import NOT_EXPLORED, explore_hops, subject_of
from surepipe.simulation.explore.result import Explored
from surepipe.simulation.subjects import Subject
from tests.plain.resend import RESEND

SAFE = DeclaredStore("safe", Level.POWER)
STRICT = Hop("prices", parse_layers("strict-monotonic"), LOCAL)
RELIABLE = Hop("orders", parse_layers("reliable"), LOCAL)


def test_a_pipe_that_is_explored_to_its_end_holds() -> None:
    """simulation X-53: strict order through losses, copies, overtaking; every scope is finished."""
    (found,) = explore_hops([STRICT], messages=2)
    assert found.verdict == "holds"
    assert all(explored.holds for _, explored in found.tried)
    tried = {fault for scope, _ in found.tried for fault in scope.faults}
    assert {"F1", "F3", "F4", "F5"} <= tried
    assert any({"F1", "F3"} <= set(scope.faults) for scope, _ in found.tried)
    assert str(found).startswith("prices: holds (")


def test_a_pipe_with_too_many_schedules_is_bounded_and_says_which_scopes_were_finished() -> None:
    """simulation XT-9, X-4: a pipe that holds, with half of the states that this takes; nothing is verified."""
    (whole,) = explore_hops([STRICT], messages=2)
    (found,) = explore_hops([STRICT], messages=2, states_max=whole.states // 2)
    assert found.verdict == "bounded, not exhausted"
    assert Explored.HOLDS in {explored.verdict for _, explored in found.tried}
    assert found.counterexample is None
    assert "bounded, not exhausted" in str(found)


def test_a_pipe_whose_machines_break_its_promise_is_violated() -> None:
    """simulation X-53: planted are machines that repeat, under a promise never to."""

    def repeats(hop: Hop) -> Subject:
        return replace(RESEND, name=hop.name)

    (found,) = explore_hops([STRICT], messages=2, subject=repeats)
    assert found.verdict == "violated"
    assert found.counterexample is not None
    assert found.counterexample.counterexample is not None
    assert found.counterexample.counterexample.property in ("P3", "P4")


def test_what_a_stream_keeps_is_not_explored_and_that_is_said() -> None:
    """simulation X-4: no verdict about it, and no failure either; the other pipe has its own."""
    stream = Hop("log", parse_layers("stream"), LOCAL, stream=SAFE)
    log, prices = explore_hops([stream, STRICT], messages=1)
    assert log.verdict == NOT_EXPLORED
    assert "stream" in log.left_out[0]
    assert prices.verdict == "holds"


def test_what_of_a_promise_is_not_tried_is_said() -> None:
    """simulation X-4: crashes that a journal or a transaction survives, lanes, handlers that fail."""
    hop = replace(
        RELIABLE,
        journal=SAFE,
        receiver_state=SAFE,
        sink=SAFE,
        boundary=Boundary.COMMITTED,
        lanes=4,
        retries=5,
        dead_letters=SAFE,
    )
    (found,) = explore_hops([hop], messages=1, states_max=40)
    assert len(found.left_out) == 4
    tried = {fault for scope, _ in found.tried for fault in scope.faults}
    assert not tried & {"F8", "F10", "F11"}
    assert "not tried: lanes" in str(found)


def test_the_same_pipes_give_the_same_answer() -> None:
    """simulation X-11: no clock bounds the work."""
    assert explore_hops([STRICT], messages=2) == explore_hops([STRICT], messages=2)


def test_each_scope_is_explored_once_for_all_that_is_promised_in_it() -> None:
    """simulation X-51, X-53: a kind of fault, or two, is one scope however many properties survive it."""
    (found,) = explore_hops([RELIABLE], messages=1, states_max=100)
    kinds = [frozenset(scope.faults) for scope, _ in found.tried]
    assert len(kinds) == len(set(kinds))
    judged = {frozenset(scope.faults): scope.properties for scope, _ in found.tried}
    assert set(judged[frozenset({"F3"})]) == {"P1", "P2", "P3", "P4", "P6g"}
    assert set(judged[frozenset({"F8"})]) == {"P1", "P3", "P4"}


def test_an_outage_is_explored_to_its_end_with_so_many_wakes() -> None:
    """simulation X-53: a sender that counts its attempts has no end of states otherwise; the bound is told."""
    (found,) = explore_hops([RELIABLE], messages=1, states_max=100)
    (outage,) = (scope for scope, _ in found.tried if set(scope.faults) == {"F6"})
    assert f"{outage}: bounded, not exhausted" in str(found)
    assert "at most 3 wakes in time" in str(outage)
    enough = replace(outage, states_max=1_000)
    assert explore(subject_of(RELIABLE), enough).holds
    assert not explore(subject_of(RELIABLE), replace(enough, wakes=None)).holds
