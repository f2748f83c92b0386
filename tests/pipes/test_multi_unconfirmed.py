"""multi-unconfirmed: at-least-once with a window in flight (pipes 8.2, mu1 to mu8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from surepipe.core.effects import NoticeKind, RejectReason, WriteUnknown
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.retry.window import WindowSender
from surepipe.pipes.wire.frames import Confirm, Data, Nack, Numbered, Open, Probe
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.retry_kit import (
    ROUGH,
    assert_quiet,
    bounds_of,
    data_of,
    is_gap_free,
    nacks,
    probes,
    send_all,
    spans,
)

SINGLES: LayerText = {"multi-unconfirmed": {"run_max": 1}}


def send_singly(wire: Wire, *numbers: int) -> None:
    """Each message in a frame of its own."""
    for number in numbers:
        wire.send(number)


def settle_all(wire: Wire) -> None:
    """The handlers of all open deliveries return."""
    while wire.open:
        wire.settle()


@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_messages_arrive_over_a_rough_route(seed: int) -> None:
    """mu1, V-5, O-2: loss, duplication, reordering both ways; bounds hold at every step."""
    wire = Wire({"multi-unconfirmed": {"run_max": 20, "window": 500}}, seed=seed)
    check = bounds_of(wire)

    def go_on() -> None:
        check()
        if len(wire.accepted) < 10_000 and wire.sender.room >= 100:
            first = len(wire.accepted) + 1
            wire.send(*range(first, first + 100))

    go_on()
    wire.run(ROUGH, each_step=go_on)
    assert set(wire.settled) == set(range(1, 10_001)) == wire.confirmed
    assert_quiet(wire)


def test_a_lost_confirm_is_made_up_for_by_the_next() -> None:
    """mu2: the Confirm of 1 is lost, traffic goes on, nothing is sent again."""
    wire = Wire(SINGLES)
    send_singly(wire, 1)
    wire.transfer(1)
    wire.to_sender.clear()
    wire.advance(100 * MS)
    send_singly(wire, 2)
    wire.run()
    assert wire.confirmed == {1, 2}
    assert spans(wire) == [(1, 1), (2, 2)]


def test_a_lost_frame_whose_nacks_are_lost_is_sent_again_at_its_own_deadline() -> None:
    """mu2: frame 1 lost, every Nack lost: 1 travels again after one wait, nothing else does."""
    wire = Wire(SINGLES)
    send_singly(wire, 1, 2, 3, 4, 5, 6)
    wire.drop()
    wire.run(Faults(lose=lambda frame, _: isinstance(frame, Nack)))
    assert len(nacks(wire.sent_back)) >= 1
    assert [len(data_of(wire, seq)) for seq in range(1, 7)] == [2, 1, 1, 1, 1, 1]
    assert data_of(wire, 1)[1] == pytest.approx(SECOND, rel=0.1)
    assert wire.confirmed == set(range(1, 7))


def test_what_exceeds_the_window_waits_and_what_exceeds_the_backlog_is_rejected() -> None:
    """mu3: window 20, backlog 10, nothing settled: 20 in flight, 10 wait, the rest is refused."""
    wire = Wire({"multi-unconfirmed": {"window": 20, "backlog": 10}}, auto_settle=False)
    wire.send(*range(40))
    wire.exchange()
    gauges = wire.sender.gauges()
    assert (gauges["in_flight"], gauges["backlog"]) == (20, 10)
    assert [(reject.reason, reject.count) for reject in wire.rejected] == [(RejectReason.FULL, 10)]
    assert wire.sender.room == 0


def test_a_last_message_that_is_lost_arrives_after_one_wait() -> None:
    """mu4: no later frame tells of it, so its deadline does."""
    wire = Wire(SINGLES)
    send_singly(wire, 1, 2, 3)
    wire.run()
    send_singly(wire, 4)
    sent, rto = wire.now, wire.sender.gauges()["rto_us"]
    wire.drop()
    wire.run()
    assert data_of(wire, 4)[1] - sent == pytest.approx(rto, rel=0.1)
    assert wire.confirmed == {1, 2, 3, 4}


def test_a_hole_is_named_and_sent_again_at_once_and_once_a_round_trip() -> None:
    """mu5, T-7: 3 is lost, 4 5 6 arrive: a Nack names 3; a second Nack within a round trip is void."""
    wire = Wire(SINGLES, auto_settle=False)
    send_singly(wire, 1, 2)
    wire.advance(MS)
    wire.exchange()  # measures a round trip of 1 ms
    send_singly(wire, 3, 4, 5, 6)
    wire.drop()
    wire.advance(5 * MS)
    wire.transfer(back=0)
    [nack] = nacks(wire.sent_back)
    assert nack.missing == ((3, 3),)
    wire.transfer()
    assert len(data_of(wire, 3)) == 2
    assert data_of(wire, 3)[1] == wire.now
    wire.arrive_back(nack)
    assert len(data_of(wire, 3)) == 2
    wire.drop_all()
    wire.advance(5 * MS)
    wire.arrive_back(nack)
    assert len(data_of(wire, 3)) == 3


def test_an_old_hole_is_named_without_later_frames_and_again_while_it_lasts() -> None:
    """T-7: one frame behind the hole: named after 20 ms, then with growing pauses."""
    wire = Wire(SINGLES, auto_settle=False)
    send_singly(wire, 1, 2)
    wire.drop()
    wire.transfer(back=0)
    assert nacks(wire.sent_back) == []
    times: list[int] = []
    while len(times) < 4:
        due = wire.deadline["receiver"]
        assert due is not None, "a hole that lasts is looked at again"
        before = len(nacks(wire.sent_back))
        wire.advance(due - wire.now)
        times += [due] * (len(nacks(wire.sent_back)) - before)
    assert times[0] == 20 * MS
    pauses = [b - a for a, b in pairwise(times)]
    assert pauses == sorted(pauses)


def test_a_hole_that_is_filled_is_not_named() -> None:
    """T-7: 2 overtakes 1 by less than 20 ms."""
    wire = Wire(SINGLES)
    send_singly(wire, 1, 2)
    wire.swap()
    wire.exchange()
    wire.run()
    assert nacks(wire.sent_back) == []
    assert wire.confirmed == {1, 2}


def test_a_slow_handler_is_asked_after_and_gets_no_copies() -> None:
    """mu6: a handler of 20 waits: Probes, each message transmitted once."""
    wire = Wire(SINGLES, handler_us=20 * SECOND)
    send_singly(wire, 1, 2, 3)
    wire.run()
    assert spans(wire) == [(1, 1), (2, 2), (3, 3)]
    assert len(probes(wire)) >= 3
    assert wire.kinds_noticed() == []
    assert wire.confirmed == {1, 2, 3}


def test_many_held_runs_are_asked_after_once_per_round_trip() -> None:
    """T-2, T-11: 20 runs whose deadlines lie close together; the answers come, so nothing is noticed."""
    wire = Wire({"multi-unconfirmed": {"run_max": 1, "rto_min_s": 0.2}}, handler_us=60 * SECOND)
    for number in range(1, 21):
        wire.send(number)
        wire.advance(1 * MS)
    wire.run(Faults(delay_us=(40 * MS, 40 * MS)))
    asked = [
        at for at, frame in zip(wire.times, wire.sent, strict=True) if isinstance(frame, Probe)
    ]
    assert len(asked) >= 3
    assert all(later - earlier >= 80 * MS for earlier, later in pairwise(asked))
    assert wire.kinds_noticed() == []
    assert len(wire.confirmed) == 20


def test_a_restarted_receiver_that_gets_a_late_copy_learns_what_is_settled() -> None:
    """V-4, T-7: all is confirmed, the receiver restarts, a copy of 9 arrives: one Nack, one Probe, quiet."""
    wire = Wire(SINGLES)
    send_singly(wire, *range(1, 10))
    wire.run(Faults(delay_us=(5 * MS, 5 * MS)))
    late_copy = wire.sent[8]
    wire.crash_receiver()
    wire.arrive(late_copy)
    wire.run(Faults(delay_us=(5 * MS, 5 * MS)))
    assert len(nacks(wire.sent_back)) == len(probes(wire)) == 1
    assert_quiet(wire)


def test_the_holes_of_a_life_that_ended_are_named_no_more() -> None:
    """V-4, L-3: 1 is lost and 2 arrives, the sender restarts empty, 3 is sent; later a copy of 2 comes."""
    wire = Wire(SINGLES)
    send_singly(wire, 1, 2)
    wire.drop()
    wire.exchange()
    late_copy = wire.sent[1]
    wire.crash_sender()
    wire.drop_all()
    send_singly(wire, 3)
    wire.run()
    count = len(nacks(wire.sent_back))
    wire.arrive(late_copy)
    wire.run()
    assert len(nacks(wire.sent_back)) == count
    assert wire.settled.count(3) == 1
    assert wire.sender.idle
    assert wire.deadline == {"sender": None, "receiver": None}


def test_a_restarted_receiver_gets_what_the_former_one_held() -> None:
    """mu7, T-5: everything is held when the receiver restarts: the hints are dropped."""
    wire = Wire(SINGLES, auto_settle=False)
    send_singly(wire, 1, 2, 3)
    wire.advance(10 * MS)
    wire.exchange()
    assert wire.sender.gauges()["in_flight"] == 3
    wire.crash_receiver()
    wire.auto_settle = True
    wire.run()
    assert wire.settled == [1, 2, 3]
    assert wire.confirmed == {1, 2, 3}


def test_a_full_window_whose_last_confirm_is_lost_resumes_by_a_probe() -> None:
    """mu8: window full of held messages, their Confirm lost: one Probe, no Data again."""
    wire = Wire({"multi-unconfirmed": {"window": 8}}, auto_settle=False)
    wire.send(*range(1, 13))
    wire.advance(10 * MS)
    wire.exchange()
    wire.settle()
    wire.advance(10 * MS)
    assert wire.to_sender
    wire.to_sender.clear()
    wire.auto_settle = True
    wire.run()
    assert spans(wire) == [(1, 8), (9, 12)]
    assert len(probes(wire)) == 1
    assert wire.confirmed == set(range(1, 13))


def test_a_message_that_stays_unsettled_stops_the_sender_one_window_later() -> None:
    """8.2: the span is bounded, not the count: 1 stays open, window 10."""
    wire = Wire({"multi-unconfirmed": {"window": 10, "run_max": 1}}, auto_settle=False)
    send_all(wire, 30)
    wire.transfer()
    while len(wire.open) > 1:
        wire.settle(at=1)
    wire.advance(10 * MS)
    wire.transfer()
    wire.advance(10 * MS)
    assert max(last for _, last in spans(wire)) == 10


def test_a_given_up_message_goes_to_the_dead_letters_and_the_pipe_goes_on() -> None:
    """T-10: 2 never gets through; it is a letter after 60 s, the others are confirmed."""
    layers = {"multi-unconfirmed": {"run_max": 1, "window": 4, "give_up_after_s": 60.0}}
    wire = Wire(layers)
    send_all(wire, 10)

    def lose(frame: object, _way: str) -> bool:
        return isinstance(frame, Data) and frame.first == 2

    wire.run(Faults(lose=lose), each_step=bounds_of(wire))
    assert [letter.seq for letter in wire.letters] == [2]
    assert (wire.letters[0].payload, wire.letters[0].attempts) == (b"2", len(data_of(wire, 2)))
    assert [n.ranges for _, n in wire.notices if n.kind == NoticeKind.UNDELIVERABLE] == [((2, 2),)]
    assert wire.confirmed == {1, *range(3, 11)}
    assert wire.sender.counters()["given_up"] == 1
    window = wire.sender.layers[0]
    assert isinstance(window, WindowSender)
    assert not window.stamps, "what was given up is not remembered"
    assert wire.sender.idle
    assert_quiet(wire)


def test_a_letter_that_was_not_stored_is_posted_again_after_a_wait_of_the_layer_that_gave_up() -> (
    None
):
    """T-10: over a carrier that has no such wait; nothing is lost in silence."""
    layers = [{"multi-unconfirmed": {"give_up_after_s": 3.0, "jitter": 0.0}}, "strict-monotonic"]
    wire = Wire(layers, auto_answer=False)  # type: ignore[arg-type]
    wire.send(1)
    while not wire.letters:
        wire.advance(100 * MS)
    side, ticket, _ = wire.unanswered.pop(0)
    wire.answer(side, ticket, WriteUnknown())
    wire.advance(SECOND - 1)
    assert len(wire.letters) == 1
    wire.advance(1)
    assert len(wire.letters) == 2
    assert not wire.sender.idle


def test_what_a_living_receiver_has_in_work_is_not_given_up() -> None:
    """T-10: a handler of 200 s, giving up after 60 s: the receiver answers, so nothing is given up."""
    layers = {"multi-unconfirmed": {"give_up_after_s": 60.0}}
    wire = Wire(layers, handler_us=200 * SECOND)
    wire.send(1)
    wire.run()
    assert wire.confirmed == {1}
    assert wire.letters == []


def test_messages_settled_out_of_order_are_confirmed_and_never_sent_again() -> None:
    """T-4 done: 2 is settled while 1 is in work; a receiver restart brings only 1 again."""
    wire = Wire(SINGLES, auto_settle=False)
    send_singly(wire, 1, 2)
    wire.transfer()
    wire.settle(at=1)
    wire.advance(10 * MS)
    wire.transfer()
    assert wire.confirmed == {2}
    wire.crash_receiver()
    wire.advance(10 * SECOND)
    assert len(data_of(wire, 2)) == 1


def test_a_repeat_of_a_settled_message_is_delivered_again_and_confirmed_at_once() -> None:
    """8.2, T-6: the receiver never drops a repeat."""
    wire = Wire("multi-unconfirmed")
    wire.send(1, 2)
    first = wire.to_receiver[0]
    wire.exchange()
    before = len(wire.sent_back)
    wire.arrive(first)
    assert wire.settled == [1, 2, 1, 2]
    assert isinstance(wire.sent_back[before], Confirm)


def test_a_receiver_without_room_ignores_and_counts_what_exceeds_it() -> None:
    """P-9: receive_window 4 under a window of 16: over_limit, and all of it arrives in the end."""
    layers = {"multi-unconfirmed": {"window": 16, "receive_window": 4, "initial_credit": 16}}
    wire = Wire(layers, handler_us=50 * MS)
    wire.send(*range(1, 41))
    wire.run(each_step=bounds_of(wire))
    assert wire.receiver.counters()["over_limit"] > 0
    assert wire.confirmed == set(range(1, 41))


def full_of_repeats(*later: int) -> Wire:
    """Repeats of 1 to 4, which are settled, fill the receiver; the later ones are on their way."""
    wire = Wire({"multi-unconfirmed": {"run_max": 1, "window": 4}}, auto_settle=False)
    send_singly(wire, 1, 2, 3, 4)
    repeats = list(wire.to_receiver)
    wire.transfer()
    settle_all(wire)
    wire.exchange()
    send_singly(wire, *later)
    for frame in repeats:
        wire.arrive(frame)
    return wire


def test_what_found_no_room_is_not_overtaken_by_what_comes_later() -> None:
    """8.2, G: repeats fill the receive window, 5 is turned away; when there is room, 6 and 7 wait for it."""
    wire = full_of_repeats(5, 6, 7)
    later = list(wire.to_receiver)
    wire.transfer(3, back=0)
    wire.settle()
    wire.arrive(later[1])
    assert wire.receiver.counters()["over_limit"] == 4
    wire.arrive(later[0])
    wire.settle()
    wire.arrive(later[2])
    assert wire.receiver.counters()["over_limit"] == 5
    wire.arrive(later[1])
    wire.auto_settle = True
    settle_all(wire)
    wire.run()
    assert is_gap_free(wire.settled)
    assert wire.confirmed == set(range(1, 8))


def test_what_found_no_room_is_asked_for_when_there_is_room_again() -> None:
    """T-7: one Nack names all that was left out, so that it comes again in order and not at many deadlines."""
    wire = full_of_repeats(5, 6, 7)
    wire.transfer(3, back=0)
    settle_all(wire)
    wire.advance(20 * MS)
    assert [frame.missing for frame in nacks(wire.sent_back)] == [((5, 7),)]


def test_a_message_that_is_given_up_is_waited_for_no_longer() -> None:
    """T-10: 5 found no room and is given up; 6 is taken as soon as the base has passed it."""
    wire = full_of_repeats(5, 6)
    sixth = wire.to_receiver[1]
    assert isinstance(sixth, Data)
    wire.transfer(2, back=0)
    settle_all(wire)
    wire.arrive(sixth)
    assert not wire.open
    wire.arrive(replace(sixth, base=6))
    assert [delivery.first for delivery in wire.open.values()] == [6]


def test_a_receiver_bounds_the_bytes_in_work_and_still_takes_one_large_message() -> None:
    """V-5 bytes, P-9: a message above the byte bound is taken when it is alone."""
    layers: LayerText = {
        "multi-unconfirmed": {"receive_window_bytes": 1000, "window_bytes": 2000, "run_max": 4}
    }
    wire = Wire(layers, handler_us=5 * MS)
    wire.send(*[b"x" * 300] * 10, b"y" * 5000, b"z" * 10)
    most = 0

    def watch() -> None:
        nonlocal most
        gauges = wire.receiver.gauges()
        most = max(most, gauges["in_work_bytes"])
        assert gauges["in_work_bytes"] <= 1000 or gauges["in_work"] == 1

    wire.run(each_step=watch)
    assert most == 5000
    assert wire.confirmed == set(range(1, 13))


def test_a_receiver_remembers_a_bounded_number_of_epochs() -> None:
    """P-9: 1000 epochs in turn: at most 8 sessions, none with anything in work is dropped."""
    wire = Wire(SINGLES, auto_settle=False)
    send_singly(wire, 1)
    [frame] = wire.to_receiver
    assert isinstance(frame, Data)
    sizes: set[int] = set()
    receiver = wire.receiver
    for epoch in range(1, 1001):
        receiver.frame(replace(frame, epoch=epoch), 0)
        sizes.add(receiver.gauges()["in_work"])
    assert max(sizes) == 8
    assert receiver.counters()["over_limit"] == 1000 - 8


def test_frames_of_other_pipes_kinds_are_counted_as_wrong_state() -> None:
    """P-8: an Open and a Numbered at this receiver change one counter."""
    wire = Wire("multi-unconfirmed")
    tag = wire.sender.tag
    before = wire.receiver.export()
    wire.arrive(Open(tag, 0, 1, 1, 1, 1, 1, 1))
    wire.arrive(Numbered(tag, 0, 1, 1, [b"x"]))
    assert wire.receiver.counters()["wrong_state"] == 2
    assert wire.receiver.gauges()["in_work"] == 0
    assert repr(before) != repr(wire.receiver.export())


def test_a_probe_is_answered_at_once_with_what_is_held_and_settled() -> None:
    """T-6, 8.1: the answer to a Probe has cum, done, held and the limit."""
    wire = Wire({"multi-unconfirmed": {"run_max": 1, "window": 8}}, auto_settle=False)
    send_singly(wire, 1, 2, 3)
    [one, _, _] = wire.to_receiver
    assert isinstance(one, Data)
    wire.transfer(back=0)
    wire.settle()
    wire.arrive(Probe(one.pipe, 0, one.link, one.epoch, 1, 4))
    answer = wire.to_sender[-1]
    assert isinstance(answer, Confirm)
    assert (answer.cum, answer.held, answer.limit, answer.echo) == (1, ((2, 3),), 9, 0)


@pytest.mark.parametrize("inner", ["resend", "strict-monotonic", "multi-unconfirmed"])
def test_it_works_over_other_pipes(inner: str) -> None:
    """K-2: over another layer that itself loses, repeats or reorders: all confirmed, none left over."""
    wire = Wire([{"multi-unconfirmed": {"run_max": 4}}, inner])
    send_all(wire, 60, batch=7)
    wire.run(Faults(loss=0.1, duplication=0.1, delay_us=(MS, 20 * MS), fifo=False))
    assert set(wire.settled) == set(range(1, 61)) == wire.confirmed
    assert wire.sender.idle
    assert wire.receiver.idle


@pytest.mark.parametrize("window", [1, 4])
def test_what_a_host_gives_back_is_told_in_time_and_not_at_once(window: int) -> None:
    """T-6: nothing was settled, so the Confirm waits for company, however small the receive window is."""
    wire = Wire({"multi-unconfirmed": {"receive_window": window}}, auto_settle=False)
    wire.send(1)
    wire.exchange()
    wire.refuse(1)
    assert not wire.to_sender
    wire.advance(10 * MS)
    assert [type(frame) for frame in wire.to_sender] == [Confirm]
