"""Processes that end, sleep, and are replaced: at every event, after every effect."""

from __future__ import annotations

import pytest

from surepipe.audit.trace import LOOKED_AGAIN
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.simulation.faults import Mode, draw_options
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.subjects import HopSubject
from tests.simulation.kit import (
    COUNTING,
    RELIABLE,
    RESEND,
    TIMER_US,
    crash,
    decide,
    delivered,
    frames,
    of_kind,
    told,
    with_options,
)

TWO = Options(messages=2, chaos_us=5 * TIMER_US)
JOURNALED = HopSubject({"reliable": {"run_max": 1}}, name="journaled", journaled=True)
COMMITTED = HopSubject(
    {"reliable": {"run_max": 1}},
    name="committed",
    journaled=True,
    durable=True,
    boundary=Boundary.COMMITTED,
)


@pytest.mark.parametrize(
    ("point", "accepted", "sent"),
    [(-1, 0, []), (0, 0, []), (1, 1, []), (2, 1, [1]), (3, 1, [1])],
)
def test_a_crash_after_k_effects_leaves_the_first_k_done(
    point: int, accepted: int, sent: list[int]
) -> None:
    """simulation X-18: the effects of a submit are Accepted, Transmit, WakeAt."""
    rows = told(crash("sender", "submit 1", point), options=with_options(TWO, messages=1)).rows
    first_life = [row for row in rows if row.node == "sender" and row.incarnation == 1]
    assert len(of_kind(first_life, "accepted")) == accepted
    assert frames(first_life, "transmit") == sent
    assert len(of_kind(first_life, "crash")) == 1


def test_drawn_crashes_fall_between_events_and_inside_of_them() -> None:
    """simulation X-18: over a few seeds, before an event, and after some of its effects, at both ends."""
    drawn = [
        decision
        for seed in range(40)
        for decision in run_hop(
            RELIABLE,
            Options(seed=seed, messages=6, sender_crashes=2, receiver_crashes=2, crash_within=20),
            judge=None,
        ).script.decisions
        if decision.verb == "crash"
    ]
    for node in ("sender", "receiver"):
        points = {int(one.value[0]) for one in drawn if one.authority == f"faults/{node}"}
        assert points >= {-1, 0}
    assert max(int(one.value[0]) for one in drawn) > 0


@pytest.mark.parametrize(("point", "count"), [(-1, 1), (0, 1), (1, 0), (2, 0)])
def test_what_was_offered_and_not_answered_is_unknown(point: int, count: int) -> None:
    """Not accepted, not rejected; with its number, since the machine had given one."""
    rows = told(crash("sender", "submit 1", point), options=with_options(TWO, messages=1)).rows
    unknown = of_kind(rows, "unknown")
    assert [(row.epoch, row.seq, row.count) for row in unknown] == [(1, 1, 1)] * count


def test_a_message_is_settled_when_it_crosses_and_not_when_the_machine_hears() -> None:
    """simulation X-18, F11: the crash falls between; the message comes again in the next incarnation."""
    event = "settled 1..1 of handle e1 1+1 a1"
    result = told(crash("receiver", event, 1), subject=RESEND, options=TWO)
    rows = result.rows
    settled = of_kind(rows, "settled")[0]
    assert (settled.seq, settled.incarnation) == (1, 1)
    assert rows[settled.step + 1].kind == "crash"
    assert [seq for _, seq in delivered(rows)] == [1, 1, 2]
    assert "P3" not in {violation.property for violation in result.violations}


def test_a_crash_before_the_boundary_settles_nothing() -> None:
    """simulation F10: the handler was running; nothing of it is seen."""
    event = "settled 1..1 of handle e1 1+1 a1"
    rows = told(crash("receiver", event, -1), subject=RELIABLE, options=TWO).rows
    assert of_kind(rows, "settled")[0].incarnation == 2
    assert [seq for _, seq in delivered(rows)] == [1, 2]


def test_a_crash_inside_a_batch_settles_a_prefix_of_it() -> None:
    """simulation X-18: three messages in one delivery, the process ends after two of them."""
    subject = HopSubject("reliable", name="batches")
    options = with_options(TWO, messages=3)
    event = "settled 1..3 of handle e1 1+3 a1"
    rows = told(crash("receiver", event, 2), subject=subject, options=options).rows
    assert [seq for _, seq in delivered(rows)] == [1, 2, 1, 2, 3]


@pytest.mark.parametrize("point", range(-1, 6))
def test_a_transaction_settles_all_of_a_batch_or_nothing(point: int) -> None:
    """pipes K-3 committed: wherever the crash falls, each message has its effect once."""
    subject = HopSubject("reliable", name="committed", durable=True, boundary=Boundary.COMMITTED)
    event = "settled 1..3 of handle e1 1+3 a1"
    result = told(
        crash("receiver", event, point), subject=subject, options=with_options(TWO, messages=3)
    )
    assert [seq for _, seq in delivered(result.rows)] == [1, 2, 3]
    assert result.violations == ()


@pytest.mark.parametrize("subject", [JOURNALED, COMMITTED], ids=lambda subject: subject.name)
def test_a_journaled_sender_may_end_after_any_effect_of_any_event(subject: HopSubject) -> None:
    """simulation F9, pipes L-3: every event of its first life, every point of it; nothing is lost."""
    plain = told(subject=subject, options=TWO)
    events = [name for name in plain.asked if name.startswith("sender: ")]
    assert len(events) > 8
    for event in events:
        for point in range(-1, 4):
            result = told(
                crash("sender", event.removeprefix("sender: "), point),
                subject=subject,
                options=TWO,
            )
            assert result.violations == (), f"{event} after {point}"
            assert result.limit == ""


def test_a_receiver_may_end_after_any_effect_of_any_event() -> None:
    """simulation F10, F11: with a transaction each message comes out once, whatever the crash falls on."""
    plain = told(subject=COMMITTED, options=TWO)
    for event in [name for name in plain.asked if name.startswith("receiver: ")]:
        for point in range(-1, 4):
            result = told(
                crash("receiver", event.removeprefix("receiver: "), point),
                subject=COMMITTED,
                options=TWO,
            )
            assert [seq for _, seq in delivered(result.rows)] == [1, 2], f"{event} after {point}"
            assert result.violations == ()


def test_a_node_comes_back_after_its_delay_with_a_higher_life() -> None:
    """simulation X-18: frames that arrive meanwhile find nobody."""
    result = told(crash("receiver", "start 1", 0, 3 * TIMER_US), options=TWO)
    starts = of_kind(result.rows, "start", "receiver")
    assert [(row.time_us, row.incarnation) for row in starts] == [(0, 1), (3 * TIMER_US, 2)]
    missed = of_kind(result.rows, "lost", "receiver")
    assert missed
    assert all('"reason":"node down"' in row.detail for row in missed)
    assert {seq for _, seq in delivered(result.rows)} == {1, 2}


def test_what_waited_for_a_sleeping_node_comes_as_a_burst() -> None:
    """simulation X-19: both frames, at the moment it wakes, in their order."""
    sleep = decide("faults/receiver", "receiver: start 1", "pause", 0, 500_000, fault="F28")
    rows = told(sleep, options=TWO).rows
    arrived = of_kind(rows, "arrived", "receiver")
    assert [(row.time_us, row.seq) for row in arrived] == [(500_000, 1), (500_000, 2)]
    assert of_kind(rows, "resume")


def test_a_zombie_wakes_while_its_successor_runs() -> None:
    """simulation X-19, F28: both hear what arrives, and a volatile receiver delivers twice."""
    zombie = decide("faults/receiver", "receiver: start 1", "zombie", 0, TIMER_US, fault="F28")
    options = with_options(TWO, gap_us=2 * TIMER_US)
    rows = told(zombie, options=options).rows
    second = [row for row in of_kind(rows, "delivered") if row.seq == 1]
    assert sorted(row.incarnation for row in second) == [1, 2]
    assert any('"fault":"F28"' in row.detail for row in of_kind(rows, "copied"))


def test_a_zombie_with_a_stored_state_is_refused_with_its_effects() -> None:
    """pipes K-6: its transaction fails, so each message has its effect once."""
    zombie = decide(
        "faults/receiver",
        "receiver: arrive pipe/0 data e1 1+1 a1",
        "zombie",
        0,
        TIMER_US,
        fault="F28",
    )
    result = told(zombie, subject=COMMITTED, options=TWO)
    assert [seq for _, seq in delivered(result.rows)] == [1, 2]
    assert any("Fenced" in row.detail for row in of_kind(result.rows, "refused"))


def test_the_mailbox_of_a_node_goes_with_its_owner() -> None:
    """simulation F26: the frame in flight to it is lost as well."""
    event = "receiver: arrive pipe/0 data e1 1+1 a1"
    loss = decide("faults/receiver", event, "mailbox", -1, 0, fault="F26")
    rows = told(loss, options=TWO).rows
    assert frames(rows, "lost") == [2]
    assert {seq for _, seq in delivered(rows)} == {1, 2}


def test_a_power_cut_ends_both_ends_and_keeps_what_the_stores_made_safe() -> None:
    """simulation F31: at level power, with all states stored, nothing is lost or repeated."""
    event = "receiver: settled 1..1 of handle e1 1+1 a1"
    cut = decide("faults/receiver", event, "power", 3, 1000, fault="F31")
    result = told(cut, subject=COMMITTED, options=TWO)
    assert {row.node for row in of_kind(result.rows, "crash")} == {"sender", "receiver"}
    assert [seq for _, seq in delivered(result.rows)] == [1, 2]
    assert result.violations == ()


def test_a_handler_that_raises_is_tried_again_and_poison_becomes_a_letter() -> None:
    """simulation F20, P14: once for a passing failure, five times for poison; the others come out."""
    options = BoundaryOptions(retries=5, dead_letters=True)
    subject = HopSubject({"reliable": {"run_max": 1}}, name="letters", options=options)
    failing = decide("stage/handler", "handle e1 1+1 a1", "raise", 1, fault="F20")
    poison = decide("stage/handler", "message m2", "poison", fault="F20")
    result = told(failing, poison, subject=subject, options=with_options(TWO, messages=3))
    assert [seq for _, seq in delivered(result.rows)] == [1, 3]
    dead = of_kind(result.rows, "dead")
    assert [(row.seq, row.attempt) for row in dead] == [(2, 5)]
    assert len([row for row in of_kind(result.rows, "raised") if row.seq == 2]) == 5
    assert result.violations == ()


def test_a_slow_handler_holds_up_what_comes_after() -> None:
    """simulation F21: the handler takes one delivery after the other."""
    slow = decide("stage/handler", "handle e1 1+1 a1", "slow", 300_000, fault="F21")
    rows = told(slow, subject=COUNTING, options=TWO).rows
    settled = of_kind(rows, "settled")
    assert [(row.seq, row.time_us) for row in settled] == [(1, 301_000), (2, 301_000)]


@pytest.mark.parametrize("seed", [14, 20, 21, 6, 40, 43, 47, 58])
def test_what_was_handed_out_behind_a_doubt_is_not_committed_before_it(seed: int) -> None:
    """store-outage: a dedupe that commits hands out what comes as it comes. What its store did not take is handled
    again with all that was handed out behind it, so order and gap-free hold (P4, P6), and that is excused (P9)."""
    subject = HopSubject(
        [
            {"dedupe": {"run_max": 2}},
            {
                "multi-unconfirmed": {
                    "run_max": 2,
                    "window": 16,
                    "rto_initial_s": 0.2,
                    "rto_max_s": 2,
                }
            },
        ],
        name="d",
        durable=True,
        boundary=Boundary.COMMITTED,
    )
    options = draw_options(seed, promise_of(subject), mode=Mode.CLAIM, messages=24)
    result = run_hop(subject, options)
    assert not result.violations
    assert LOOKED_AGAIN in "".join(row.detail for row in result.rows if row.kind == "answer")
