"""reliable, event by event: the tables of its sender and receiver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.effects import Deliver, Notice, NoticeKind, Reject, RejectReason
from surepipe.pipes.kinds import reliable
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.stack.counters import FRAME_COUNTERS
from surepipe.pipes.wire.frames import (
    MAX_NUMBER,
    Confirm,
    Data,
    Frame,
    Nack,
    Open,
    Opened,
    Probe,
    Refused,
    RefusedReason,
    Unknown,
)
from tests.kit import frames as drawn
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.reliable_kit import (
    DURABLE,
    TwinWire,
    assert_all_confirmed,
    confirms,
    counted,
    data,
    linked,
    noticed,
    openeds,
    opens,
    transmitted,
)


def altered(frame: Frame, **changes: object) -> Frame:
    """The same frame with other fields."""
    make = cast("Callable[..., Frame]", replace)
    return make(frame, **changes)


# Linking.


def test_at_the_start_a_link_is_offered_and_no_data_leaves_before_it_is_taken() -> None:
    """One Open; messages wait in the backlog; Opened lets them go (pipes T-9)."""
    wire = Wire("reliable")
    wire.send(1, 2)
    assert [type(frame) for frame in wire.to_receiver] == [Open]
    assert wire.sender.gauges()["backlog"] == 2
    wire.exchange()
    assert [(f.first, len(f.payloads)) for f in data(wire)] == [(1, 2)]


def test_an_open_is_repeated_on_the_same_link_with_growing_pauses() -> None:
    """A dead receiver for two minutes: pauses double up to rto_max, within the jitter (pipes T-9, T-2)."""
    wire = Wire("reliable")
    for _ in range(120):
        wire.advance(SECOND)
        wire.drop_all()
    offered = opens(wire)
    assert len({frame.link for frame in offered}) == 1
    pauses = [b - a for a, b in zip(wire.times, wire.times[1:], strict=False)]
    for number, pause in enumerate(pauses):
        expected = min(SECOND << number, 30 * SECOND)
        assert 0.9 * expected <= pause <= 1.1 * expected


def test_a_repeated_open_of_the_current_link_gets_a_fresh_answer_and_resets_nothing() -> None:
    """1 in work, 3 held: the copy of the Open is answered with expected 2, 3 stays held (pipes T-9)."""
    wire = linked({"run_max": 1})
    wire.send(1, 2, 3)
    wire.drop(1)
    wire.transfer()
    held = wire.receiver.gauges()
    wire.arrive(opens(wire)[0])
    assert wire.receiver.gauges() == held
    assert (openeds(wire)[-1].expected, openeds(wire)[-1].cum) == (2, 0)


def test_data_of_an_unknown_link_is_answered_unknown_once_and_not_processed() -> None:
    """To a fresh receiver, and with another link: one Unknown per frame, one counter (pipes 8.7)."""
    wire = linked()
    wire.send(1)
    frame = wire.to_receiver.pop()
    wire.crash_receiver()
    wire.arrive(frame)
    assert [type(answer) for answer in wire.to_sender] == [Unknown]
    assert counted(wire.receiver) == {"unknown_link": 1}
    assert not wire.delivered


def test_a_sender_that_hears_unknown_draws_a_new_link_and_goes_on() -> None:
    """Receiver restarted with frames on the way: new link, everything arrives (pipes T-9)."""
    wire = Wire("reliable")
    wire.exchange()
    wire.send(1, 2, 3)
    wire.crash_receiver()
    wire.run()
    assert len({frame.link for frame in opens(wire)}) == 2
    assert_all_confirmed(wire)


@pytest.mark.parametrize("kind", [Confirm, Nack, Opened])
def test_a_frame_of_the_current_link_from_another_incarnation_begins_a_new_link(
    kind: type[Frame],
) -> None:
    """Confirm, Nack and Opened with another incarnation: Open again, no Data until Opened (pipes T-9)."""
    wire = linked()
    wire.send(1)
    wire.transfer(1, back=0)
    wire.to_sender.clear()
    link, epoch, tag = opens(wire)[0].link, opens(wire)[0].epoch, wire.sender.tag
    strange: dict[type[Frame], Frame] = {
        Confirm: Confirm(tag, 0, link, 4711, epoch, 0, (), (), 50, 0),
        Nack: Nack(tag, 0, link, 4711, epoch, ((1, 1),)),
        Opened: Opened(tag, 0, link, 4711, epoch, 1, 0, 50, closed=False),
    }
    wire.arrive_back(strange[kind])
    wire.send(2)
    assert [type(frame) for frame in wire.to_receiver] == [Open]
    assert wire.to_receiver[0].link != link  # type: ignore[union-attr]


def test_answers_that_come_before_the_link_is_taken_are_in_the_wrong_state() -> None:
    """Confirm, Nack and Unknown of the offered link: counted, nothing else (pipes T-4, 8.7)."""
    wire = Wire("reliable")
    wire.send(1)
    link, epoch, tag = opens(wire)[0].link, opens(wire)[0].epoch, wire.sender.tag
    before = wire.sender.export()
    answers: list[Frame] = [
        Confirm(tag, 0, link, 5, epoch, 0, (), (), 9, 0),
        Nack(tag, 0, link, 5, epoch, ()),
        Unknown(tag, 0, link, 5),
    ]
    for number, frame in enumerate(answers, 1):
        wire.arrive_back(frame)
        assert counted(wire.sender)["wrong_state"] == number
    assert unchanged(before, wire.sender.export())
    assert [type(frame) for frame in wire.to_receiver] == [Open]


def test_a_second_opened_of_the_same_incarnation_is_ignored() -> None:
    """A copy of Opened while Linked changes nothing (pipes 8.7)."""
    wire = linked()
    before = wire.sender.export()
    wire.arrive_back(openeds(wire)[0])
    assert unchanged(before, wire.sender.export())
    assert counted(wire.sender)["repeated_confirm"] == 1


def test_after_a_new_link_what_is_in_work_is_asked_after_and_not_sent_again() -> None:
    """A slow handler has 1..3 when the link is drawn anew: cum < seq < expected counts as held (pipes 8.7)."""
    wire = linked()
    wire.send(1, 2, 3)
    wire.exchange()
    sent = len(data(wire))
    wire.arrive_back(Unknown(wire.sender.tag, 0, opens(wire)[0].link, wire.receiver.incarnation))
    for _ in range(8):
        wire.exchange()
        wire.advance(SECOND)
    assert len(data(wire)) == sent
    assert any(isinstance(frame, Probe) for frame in wire.sent)
    wire.settle()
    wire.exchange()
    wire.advance(SECOND)
    wire.exchange()
    assert wire.confirmed == {1, 2, 3}


def test_stacks_that_differ_are_refused_and_the_sender_stops() -> None:
    """The receiver has another layer list: Refused(stack), Mismatch notices, Reject(stopped) (pipes F-5)."""
    wire = Wire("reliable", receiver_layers=["reliable", "strict-monotonic"])
    wire.send(1)
    wire.exchange()
    refused = wire.sent_back[0]
    assert isinstance(refused, Refused)
    assert refused.reason is RefusedReason.STACK
    assert noticed(wire, NoticeKind.MISMATCH) == [(0, ()), (1 << 20, ((1, 1),))]
    wire.send(2)
    assert wire.rejected == [Reject(RejectReason.STOPPED, 1)]
    assert (wire.sender.room, wire.sender.room_bytes) == (0, 0)
    assert wire.deadline["sender"] is None


def test_an_offer_that_nobody_answers_is_told_once_and_given_up_in_time() -> None:
    """warn_after 3, give_up_after 20 s: one Unanswered, then Undeliverable with the range (pipes T-10, T-11)."""
    wire = Wire({"reliable": {"warn_after": 3, "give_up_after_s": 20.0}})
    wire.send(1, 2)
    wire.run(Faults(loss=1.0), until_us=200 * SECOND)
    assert noticed(wire, NoticeKind.UNANSWERED) == [(1 << 20, ((1, 2),))]
    assert noticed(wire, NoticeKind.UNDELIVERABLE) == [(1 << 20, ((1, 2),))]
    assert wire.deadline["sender"] is None


def test_a_new_link_does_not_make_a_message_younger() -> None:
    """Sent at 0, a new link is offered at 15 s, nobody answers: given up at 20 s, not at 35 s (pipes T-10)."""
    wire = linked({"give_up_after_s": 20.0})
    wire.send(1)
    for _ in range(15):
        wire.advance(SECOND)
        wire.drop_all()
    wire.arrive_back(Unknown(wire.sender.tag, 0, opens(wire)[0].link, wire.receiver.incarnation))
    for _ in range(8):
        wire.advance(SECOND)
        wire.drop_all()
    assert noticed(wire, NoticeKind.UNDELIVERABLE) == [(1 << 20, ((1, 1),))]


def test_a_message_that_is_never_answered_stops_the_pipe_because_order_would_break() -> None:
    """Linked, then a dead route: Undeliverable, nothing behind it is ever sent (pipes T-10)."""
    wire = Wire({"reliable": {"give_up_after_s": 5.0}})
    wire.exchange()
    wire.send(1, 2)
    wire.run(Faults(loss=1.0), until_us=200 * SECOND)
    assert noticed(wire, NoticeKind.UNDELIVERABLE) == [(1 << 20, ((1, 2),))]
    wire.send(3)
    assert wire.rejected == [Reject(RejectReason.STOPPED, 1)]


# Messages at the receiver.


def test_what_comes_early_is_held_and_delivered_in_one_run_when_the_hole_is_filled() -> None:
    """1, 3, 2 and 4: one delivery of 1, then one of 2..4 when 1 is settled (pipes 8.7, P-13)."""
    wire = linked({"run_max": 1})
    wire.send(1, 2, 3, 4)
    wire.swap(1)
    wire.transfer(4, back=0)
    assert [(d.first, len(d.payloads)) for d in wire.delivered] == [(1, 1)]
    wire.settle()
    assert [(d.first, len(d.payloads)) for d in wire.delivered] == [(1, 1), (2, 3)]


def test_at_most_one_delivery_is_outstanding_and_it_is_bounded() -> None:
    """deliver_max 1024 of the boundary; here ten frames while the first is in work (pipes P-13)."""
    wire = linked({"run_max": 5})
    wire.send(*range(50))
    wire.exchange()
    assert len(wire.open) == 1
    assert len(wire.delivered) == 1


def test_a_hole_is_named_and_sent_again_before_its_deadline() -> None:
    """3 lost, 4..6 arrive: Nack 3, one more transmission of 3 only (pipes T-7, mu5)."""
    wire = Wire({"reliable": {"run_max": 1}})
    wire.exchange()
    wire.send(*range(1, 7))
    wire.drop(2)
    wire.exchange()
    wire.advance(150 * MS)
    wire.exchange()
    assert next(f.missing for f in wire.sent_back if isinstance(f, Nack)) == ((3, 3),)
    assert [f.first for f in data(wire)] == [1, 2, 3, 4, 5, 6, 3]
    assert wire.now < SECOND
    wire.run()
    assert_all_confirmed(wire)


def test_a_copy_is_counted_and_confirmed_again_at_once() -> None:
    """Settled: duplicate; in work: in_work; both are answered, neither is delivered (pipes T-6)."""
    wire = linked()
    wire.send(1, 2)
    frame = wire.to_receiver[0]
    wire.exchange()
    said = len(confirms(wire))
    wire.arrive(frame)
    assert counted(wire.receiver)["in_work"] == 2
    assert confirms(wire)[-1].held == ((1, 2),)
    wire.settle()
    wire.arrive(frame)
    assert counted(wire.receiver)["duplicate"] == 2
    assert confirms(wire)[-1].cum == 2
    assert len(confirms(wire)) >= said + 2
    assert len(wire.delivered) == 1


def test_another_payload_for_a_held_message_is_a_conflict_and_the_first_is_kept() -> None:
    """3 is held; 3 with other bytes: conflict 1, what is delivered is the first (pipes ci6)."""
    wire = linked({"run_max": 1})
    wire.send(1, 2, 3)
    wire.drop(1)
    wire.transfer(2, back=0)
    third = data(wire)[2]
    wire.arrive(altered(third, payloads=[b"forged"]))
    assert counted(wire.receiver)["conflict"] == 1
    wire.arrive(data(wire)[1])
    wire.settle()
    wire.settle()
    assert wire.settled == [1, 2, 3]


def test_beyond_the_limit_a_message_is_ignored_counted_and_comes_again() -> None:
    """receive_window 2, a forged run of four: two are taken, two are over_limit (pipes P-9)."""
    wire = linked({"receive_window": 2, "initial_credit": 2})
    wire.send(1, 2)
    frame = wire.to_receiver.pop()
    wire.positions.update({(opens(wire)[0].epoch, n): n for n in (3, 4)})
    wire.arrive(altered(frame, payloads=[b"1", b"2", b"3", b"4"]))
    assert counted(wire.receiver)["over_limit"] == 2
    assert wire.receiver.gauges()["in_work"] == 2
    assert confirms(wire)[-1].limit == 2


def test_the_greatest_number_is_a_number() -> None:
    """It is far beyond the limit; one more does not exist, so no frame may speak of it (pipes P-8)."""
    wire = linked()
    wire.send(1)
    frame = wire.to_receiver.pop()
    wire.arrive(altered(frame, first=MAX_NUMBER))
    assert counted(wire.receiver) == {"over_limit": 1}
    wire.arrive(altered(frame, first=MAX_NUMBER, payloads=[b"1", b"2"]))
    assert counted(wire.receiver) == {"over_limit": 1, "impossible": 1}


def test_the_limit_moves_with_what_is_settled_and_nothing_is_sent_beyond_it() -> None:
    """receive_window 4 under a window of 1024: never more than 4 unsettled at the receiver (pipes T-1)."""
    wire = linked({"receive_window": 4, "run_max": 2})
    wire.send(*range(20))
    while wire.open or wire.to_receiver:
        wire.exchange()
        gauges = wire.receiver.gauges()
        assert gauges["held"] + gauges["in_work"] <= 4
        if wire.open:
            wire.settle(1)
        wire.advance(20 * MS)
    assert wire.settled == list(range(1, 21))
    assert wire.receiver.counters()["over_limit"] == 0


def test_a_lost_credit_is_asked_for() -> None:
    """Everything confirmed but the Confirm with more room is lost: a Probe brings it (pipes T-8)."""
    wire = linked({"receive_window": 2})
    wire.send(*range(6))
    for _ in range(3):
        wire.transfer(len(wire.to_receiver), back=0)
        wire.to_sender.clear()
        if wire.open:
            wire.settle()
        wire.to_sender.clear()
    wire.auto_settle = True
    wire.run()
    assert wire.confirmed == set(range(1, 7))


def test_the_first_question_for_a_credit_comes_after_one_wait_and_the_next_after_two() -> None:
    """The link was taken without any room: after 1 s, and 2 s more, each a tenth off at most; an answer with
    room, before anything was ever sent, lets the first message go (pipes T-8)."""
    wire = Wire("reliable", auto_settle=False)
    wire.transfer(1, back=0)
    opened = wire.to_sender.pop()
    assert isinstance(opened, Opened)
    wire.arrive_back(altered(opened, limit=0))
    wire.send(1)
    for wait in (SECOND, 2 * SECOND):
        due = wire.deadline["sender"]
        assert due is not None
        assert 0.9 * wait <= due - wire.now <= 1.1 * wait
        wire.advance(due - wire.now)
    assert [type(frame) for frame in wire.to_receiver] == [Probe, Probe]
    wire.transfer(1)
    wire.transfer(0, back=1)
    assert len(data(wire)) == 1


def test_a_handler_that_takes_long_is_asked_after_and_not_sent_copies() -> None:
    """A handler of 20 s: Probes, one transmission per message (pipes mu6)."""
    wire = Wire({"reliable": {"run_max": 2}}, handler_us=20 * SECOND)
    wire.send(*range(4))
    wire.run()
    assert wire.sender.counters()["retransmitted"] == 0
    assert_all_confirmed(wire)


def test_a_hole_that_lasts_is_told_with_its_exact_range_once() -> None:
    """3..4 never arrive for 60 s: Stalled 3..4, then the route heals and all is delivered (pipes 8.5)."""
    wire = Wire({"reliable": {"run_max": 2}})
    wire.exchange()
    wire.send(*range(1, 9))

    def is_lost(frame: Frame, _way: str) -> bool:
        return isinstance(frame, Data) and frame.first == 3 and wire.now < 60 * SECOND

    wire.run(Faults(lose=is_lost))
    assert noticed(wire, NoticeKind.STALLED) == [(1 << 20, ((3, 4),))]
    assert_all_confirmed(wire)


def test_a_refused_delivery_comes_again_with_all_that_followed_it() -> None:
    """The host gives back 3..4 of 1..4: settled 1..2, then 3..6 are brought again in order (pipes K-2)."""
    wire = linked({"run_max": 4})
    wire.send(1, 2, 3, 4)
    wire.exchange()
    wire.send(5, 6)
    wire.exchange()
    ticket, delivery = next(iter(wire.open.items()))
    wire.settle(2)
    assert delivery.first == 1
    wire.open.clear()
    effects = wire.receiver.refused(ticket, ((3, 4),), wire.now)
    assert not [e for e in effects if isinstance(e, Notice)]
    assert wire.receiver.gauges() == {"held": 0, "in_work": 0, "held_bytes": 0}
    wire.auto_settle = True
    wire.advance(MS)
    wire.run()
    assert wire.settled == [1, 2, 3, 4, 5, 6]
    assert wire.confirmed == set(range(1, 7))


# Closing.


def test_a_closing_receiver_settles_what_is_in_work_and_says_a_last_confirm() -> None:
    """1..2 in work, 4 held: close, handler returns, Confirm says cum 2; 4 is not confirmed (pipes P-15)."""
    wire = linked({"run_max": 2})
    wire.send(1, 2, 3, 4, 5, 6)
    wire.drop(1)
    wire.transfer(2, back=0)
    wire._step("receiver", lambda: wire.receiver.close(wire.now))  # pyright: ignore[reportPrivateUsage]
    wire.settle()
    assert confirms(wire)[-1].cum == 2
    wire.transfer(0, back=len(wire.to_sender))
    assert wire.confirmed == {1, 2}
    assert wire.receiver.idle


def test_a_closing_sender_takes_nothing_more_and_finishes_what_it_has() -> None:
    """Five accepted, close, one more: rejected as closed, the five arrive (pipes P-15)."""
    wire = Wire("reliable")
    wire.send(*range(5))
    wire.close_sender()
    wire.send(6)
    assert wire.rejected == [Reject(RejectReason.CLOSED, 1)]
    wire.run()
    assert_all_confirmed(wire)


# Any frame in any state.


def unchanged(before: object, after: object) -> bool:
    """Whether the parts of a machine (not its clock and counters) are the same."""
    assert isinstance(before, list)
    assert isinstance(after, list)
    return before[1:] == after[1:]


def busy() -> Wire:
    """Both ends in the middle of things: in work, held, a hole, a backlog, unconfirmed messages."""
    wire = linked({"run_max": 2, "window": 12, "initial_credit": 12})
    wire.send(*range(1, 21))
    wire.drop(2)
    wire.transfer(4, back=0)
    return wire


def given_to(machine: SenderStack | ReceiverStack, frame: object, now: int) -> None:
    """Give a frame that must be ignored: nothing changes but one frame counter, by one (pipes P-8)."""
    before, counts = machine.export(), dict(machine.counters())
    machine.frame(frame, now)
    after = machine.counters()
    moved = {name: after[name] - counts[name] for name in counts if after[name] != counts[name]}
    assert sum(moved.values()) == 1
    assert moved.keys() <= set(FRAME_COUNTERS)
    assert unchanged(before, machine.export())


@given(frame=drawn.frames)
def test_a_frame_of_another_pipe_layer_or_link_changes_one_counter_and_nothing_else(
    frame: Frame,
) -> None:
    """Any frame at all to both ends in the middle of a run; its link is never ours (pipes P-8)."""
    wire = busy()
    ours = altered(frame, pipe=wire.sender.tag, layer=0)
    for machine in (wire.sender, wire.receiver):
        given_to(machine, frame, wire.now)
        is_greeting = isinstance(frame, Open) and machine is wire.receiver
        if not is_greeting:
            given_to(machine, ours, wire.now)


@given(data=st.binary(max_size=200))
def test_any_bytes_change_one_counter_and_nothing_else(data: bytes) -> None:
    """Random bytes to both ends (pipes P-8, F-2)."""
    wire = busy()
    given_to(wire.sender, data, wire.now)
    given_to(wire.receiver, data, wire.now)


@given(frame=drawn.frames, seed=st.integers(0, 3))
def test_a_frame_with_our_link_and_epoch_never_breaks_a_machine_or_its_bounds(
    frame: Frame, seed: int
) -> None:
    """Forged fields in a frame that names our link: no exception, nothing beyond the bounds (pipes P-8)."""
    wire = busy()
    offer = opens(wire)[0]
    changes: dict[str, object] = {"pipe": wire.sender.tag, "layer": 0}
    if hasattr(frame, "link"):
        changes["link"] = offer.link
    if hasattr(frame, "epoch"):
        changes["epoch"] = offer.epoch + (seed == 3)
    if hasattr(frame, "incarnation"):
        changes["incarnation"] = wire.receiver.incarnation + (seed == 2)
    if isinstance(frame, Open):
        changes |= {"stack": offer.stack, "life": offer.life + seed}
    forged = altered(frame, **changes)
    wire.sender.frame(forged, wire.now)
    wire.receiver.frame(forged, wire.now)
    gauges = wire.receiver.gauges()
    assert gauges["held"] + gauges["in_work"] <= 1024
    wire.sender.wake(wire.now + SECOND)
    wire.receiver.wake(wire.now + SECOND)


def test_a_wake_that_is_early_late_or_doubled_is_harmless() -> None:
    """Both ends woken after every step of a lossy run: the outcome is the same (pipes P-4)."""
    wire = Wire({"reliable": {"run_max": 3}})
    wire.send(*range(60))

    def wake() -> None:
        for _ in range(2):
            wire._step("sender", lambda: wire.sender.wake(wire.now))  # pyright: ignore[reportPrivateUsage]
            wire._step("receiver", lambda: wire.receiver.wake(wire.now))  # pyright: ignore[reportPrivateUsage]

    wire.run(Faults(loss=0.2, delay_us=(MS, 30 * MS), fifo=False), each_step=wake)
    assert_all_confirmed(wire)


def test_restored_ends_give_the_same_effects_over_a_bad_route() -> None:
    """A twin of each end takes every input of a lossy run with restarts (pipes P-11, P-12)."""
    wire = TwinWire(
        {"reliable": {"run_max": 2, "window": 8}},
        crashes=frozenset({("receiver", 25), ("sender", 60)}),
        handler_us=40 * MS,
    )
    wire.send(*range(60))
    wire.run(Faults(loss=0.2, duplication=0.2, delay_us=(MS, 60 * MS), fifo=False))
    assert wire.compared > 100


# Two receivers at once.


def exchange_with_both(
    wire: Wire, former: ReceiverStack, *, former_first: bool
) -> tuple[int, list[Deliver]]:
    """Every frame reaches the receiver of the wire and the one that it replaced, whose handler hangs.

    Gives how many Opens left, and what the hanging handler was given.
    """
    before, hanging = len(opens(wire)), list[Deliver]()
    for _ in range(1_000):
        if wire.to_receiver:
            frame, here = wire.to_receiver.pop(0), len(wire.to_sender)
            wire.arrive(frame)
            effects = former.frame(frame, wire.now)
            hanging += [effect for effect in effects if isinstance(effect, Deliver)]
            at = here if former_first else len(wire.to_sender)
            wire.to_sender[at:at] = transmitted(effects)
        elif wire.to_sender:
            wire.arrive_back(wire.to_sender.pop(0))
        else:
            return len(opens(wire)) - before, hanging
    raise AssertionError("a sender and two receivers never stop talking")


@pytest.mark.parametrize("former_first", [True, False])
@pytest.mark.parametrize("boundary", [BoundaryOptions(), DURABLE])
def test_two_receivers_that_answer_every_open_do_not_make_a_sender_draw_links_for_ever(
    boundary: BoundaryOptions, *, former_first: bool
) -> None:
    """A replaced receiver wakes up beside its successor: three links at the most, then all is quiet, and what is
    sent from then on goes to one of them (pipes T-9)."""
    wire = Wire({"reliable": {"run_max": 1}}, boundary=boundary)
    wire.send(1, 2)
    wire.exchange()
    former = wire.receiver
    wire.crash_receiver()
    wire.send(3)
    links, _ = exchange_with_both(wire, former, former_first=former_first)
    assert 1 <= links <= 3
    for number in range(4, 40):
        wire.send(number)
        assert exchange_with_both(wire, former, former_first=former_first)[0] == 0
        wire.advance(100 * MS)
        exchange_with_both(wire, former, former_first=former_first)
    assert_all_confirmed(wire)
    assert len(opens(wire)) <= 4


@pytest.mark.parametrize("former_first", [True, False])
def test_a_question_behind_a_new_link_is_no_sign_that_nobody_answers(*, former_first: bool) -> None:
    """Both receivers have the message in work for long, so the sender asks after it behind each link, and the one
    that it was not linked with knows no such link: that is passed over, too (pipes T-9).

    Simulated, that was a run of 20,000 events (reliable, committed, journal, two in one store, seed 2348)."""
    wire = Wire({"reliable": {"run_max": 1}}, handler_us=60 * SECOND)
    wire.send(1)
    wire.exchange()
    former = wire.receiver
    wire.crash_receiver()
    for _ in range(40):
        wire.advance(100 * MS)
        exchange_with_both(wire, former, former_first=former_first)
    assert len(opens(wire)) <= 6
    wire.run()
    assert_all_confirmed(wire)


@pytest.mark.parametrize("knows_link", [True, False])
def test_a_receiver_that_was_passed_over_is_taken_when_nobody_else_answers(
    *, knows_link: bool
) -> None:
    """The successor is killed, and the one before lives: it is asked after a while, and serves (pipes T-9). Also
    when it has not heard of the last link, and says that, and nothing else."""
    wire = Wire({"reliable": {"run_max": 1}})
    wire.send(1)
    wire.exchange()
    former = wire.receiver
    wire.crash_receiver()
    wire.send(2)
    _, hanging = exchange_with_both(wire, former, former_first=True)
    wire.receiver = former
    if not knows_link:
        layer = former.layers[0]
        assert isinstance(layer, reliable.Receiver)
        layer.link += 1
    wire.open.update((delivery.ticket, delivery) for delivery in hanging)
    wire.settle()
    wire.send(3)
    wire.run(steps_max=1_000)
    assert wire.confirmed == {1, 2, 3}
    assert wire.sender.idle
