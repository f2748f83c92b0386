"""The stores of a world: what of journal, state and stream survives, and what a call may meet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surepipe.core.store_requests import Level
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.subjects import HopSubject
from tests.simulation.kit import TIMER_US, crash, decide, delivered, of_kind, told

STREAM = {"stream": {"start": "earliest"}}
TWO = Options(messages=2, chaos_us=4 * TIMER_US, gap_us=TIMER_US)
JOURNALED = HopSubject({"reliable": {"run_max": 1}}, name="journaled", journaled=True)
STREAMED = HopSubject(STREAM, name="stream")
EXACT = HopSubject(
    STREAM, name="stream, committed", journaled=True, durable=True, boundary=Boundary.COMMITTED
)


def test_a_stream_carries_messages_from_one_end_to_the_other() -> None:
    """pipes 8.7: appended, fetched, delivered, committed; quiescent although its reader waits for more."""
    result = told(subject=STREAMED, options=TWO)
    assert [seq for _, seq in delivered(result.rows)] == [1, 2]
    assert [row.seq for row in of_kind(result.rows, "appended")] == [1, 2]
    assert of_kind(result.rows, "committed")
    assert result.limit == ""
    assert result.violations == ()


@pytest.mark.parametrize("verb", ["unknown", "lost", "slow"])
def test_a_journal_whose_answers_get_lost_loses_nothing(verb: str) -> None:
    """simulation F18, pipes P-6: the write is repeated under its identity, and accepted once."""
    call = "sender append-rows e1 1+1 a1"
    fate = decide("disk/journal", call, verb, 300_000, fault="F18")
    result = told(fate, subject=JOURNALED, options=TWO)
    assert [seq for _, seq in delivered(result.rows)] == [1, 2]
    assert result.violations == ()


@pytest.mark.parametrize("verb", ["unknown", "lost", "slow"])
def test_an_append_whose_answer_gets_lost_is_in_the_stream_once(verb: str) -> None:
    """simulation F18: done and unanswered, or not done; the repeat is the same append."""
    fate = decide("disk/stream", "sender append pipe pipe e1 1+1 a1", verb, 300_000, fault="F18")
    result = told(fate, subject=EXACT, options=TWO)
    appended = of_kind(result.rows, "appended")
    assert [seq for row in appended for seq in range(row.seq, row.last + 1)] == [1, 2]
    assert [seq for _, seq in delivered(result.rows)] == [1, 2]
    assert result.violations == ()


@pytest.mark.parametrize("store", ["journal", "stream", "index"])
def test_a_store_may_be_down_for_a_while(store: str) -> None:
    """simulation F18: nothing is answered meanwhile, and everything arrives."""
    down = decide(f"disk/{store}", "mishap down 1", "down", 10, 0, 2 * TIMER_US, fault="F18")
    result = told(down, subject=EXACT, options=TWO)
    assert [seq for _, seq in delivered(result.rows)] == [1, 2]
    assert result.violations == ()


def test_a_journal_at_level_none_forgets_with_its_crash_and_one_at_power_does_not() -> None:
    """simulation X-17, F13: the same schedule; the message that only the journal had is gone, or it is not."""
    lost = crash("sender", "answer sender append-rows e1 1+1 a1", 0, TIMER_US)
    cut = decide("disk/journal", "mishap crash 1", "crash", 500_000, 0, 0, fault="F13")
    kept: list[list[int]] = []
    for level in (Level.POWER, Level.NONE):
        subject = HopSubject(
            {"reliable": {"run_max": 1}}, name="journaled", journaled=True, level=level
        )
        result = told(lost, cut, subject=subject, options=Options(messages=1, chaos_us=TIMER_US))
        kept.append([seq for _, seq in delivered(result.rows)])
    assert kept == [[1], []]


def test_a_store_that_is_rolled_back_is_told_of_in_the_trace() -> None:
    """simulation F14: how many writes are gone."""
    back = decide("disk/stream", "mishap rollback 1", "rollback", 1_500_000, 1, 0, fault="F14")
    result = told(back, subject=STREAMED, options=TWO)
    assert [row.detail for row in of_kind(result.rows, "fault")] == [
        '{"fault":"F14","lost":1,"verb":"rollback"}'
    ]


def test_a_start_that_finds_its_store_down_is_tried_again() -> None:
    """simulation F18: the node comes back when its journal can be read."""
    ends = crash("sender", "submit 1", -1, 0)
    down = decide("disk/journal", "mishap down 1", "down", 0, 0, 3 * TIMER_US, fault="F18")
    result = told(ends, down, subject=JOURNALED, options=TWO)
    second = of_kind(result.rows, "start", "sender")[1]
    assert second.time_us >= 3 * TIMER_US
    assert result.limit == ""


def test_perturbations_fire_and_are_part_of_the_script() -> None:
    """simulation X-20: over some seeds, early wakes and slow replies; each run repeats by its script."""
    fired: set[str] = set()
    base = Options(perturb=True, messages=12, gap_us=100_000, delay_us=300_000)
    for seed in range(16):
        options = replace(base, seed=seed, chaos_us=4 * TIMER_US)
        drawn = run_hop(JOURNALED, options, judge=None)
        fired |= {d.authority for d in drawn.script.decisions if d.verb == "fire"}
        assert replay(JOURNALED, drawn.script, judge=None).digest == drawn.digest
    assert fired == {"perturb/early-wake", "perturb/slow-reply"}


def test_rows_can_tell_gauges_counters_and_states() -> None:
    """simulation X-30, X-40: on the row that ends a step, for the judge of bounds and balances; by option."""
    watched = replace(TWO, gauges=True, states=True)
    result = told(subject=JOURNALED, options=watched)
    gauged = [row for row in result.rows if '"gauges":{' in row.detail and row.kind != "end"]
    assert len(gauged) > 10
    assert all(len(row.state) == 32 for row in gauged)
    assert result.violations == ()
    assert told(subject=JOURNALED, options=watched).digest == result.digest
