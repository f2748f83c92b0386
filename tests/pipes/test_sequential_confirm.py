"""sequential-confirm: one message at a time, each confirmed before the next (pipes 8.3, sc1 to sc5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from surepipe.core.effects import Deliver, NoticeKind
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.retry.confirming import SESSIONS_MAX
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.wire.codec import decode, encode
from surepipe.pipes.wire.frames import Confirm, Data, Frame, Numbered, Probe, Refused, RefusedReason
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.retry_kit import (
    ROUGH,
    assert_quiet,
    bounds_of,
    data_of,
    is_gap_free,
    probes,
    send_all,
    spans,
)

CARRIER: LayerText = {"sequential-confirm": {"retry": "carrier"}}
FORWARD: LayerText = {"sequential-confirm": {"repeats": "forward"}}
DURABLE = BoundaryOptions(durable=True)
COMMITTED = BoundaryOptions(boundary=Boundary.COMMITTED, durable=True)


def serve_another_life(wire: Wire, frame: Data) -> None:
    """The receiver takes and settles a frame of another sender, off the record of the wire."""
    for effect in wire.receiver.frame(frame, wire.now):
        if isinstance(effect, Deliver):
            last = effect.first + len(effect.payloads) - 1
            wire.receiver.settled(effect.ticket, ((effect.first, last),), wire.now)


def test_a_lost_frame_and_a_lost_confirm_only_delay() -> None:
    """sc1: 10 messages; the first frame and then the first confirms are lost: absolute order."""
    wire = Wire("sequential-confirm")
    send_all(wire, 10)
    wire.drop()
    wire.advance(2 * SECOND)
    wire.transfer(back=0)
    wire.to_sender.clear()
    wire.run()
    assert wire.settled == list(range(1, 11))
    assert wire.confirmed == set(range(1, 11))
    assert_quiet(wire)


@pytest.mark.parametrize("run_max", [1, 6])
@pytest.mark.parametrize("seed", range(5))
def test_order_is_absolute_over_a_rough_route(seed: int, run_max: int) -> None:
    """V-1, V-5: every atom holds while frames are lost, repeated and overtaken."""
    wire = Wire({"sequential-confirm": {"run_max": run_max}}, seed=seed)
    send_all(wire, 100)
    wire.run(ROUGH, each_step=bounds_of(wire))
    assert wire.settled == list(range(1, 101))
    assert wire.confirmed == set(range(1, 101))


def test_a_carrier_that_loses_nothing_is_enough() -> None:
    """sc2: retry carrier over a route that repeats and reorders and loses nothing: absolute."""
    wire = Wire(CARRIER)
    send_all(wire, 50)
    wire.run(Faults(duplication=0.3, delay_us=(MS, 50 * MS), fifo=False))
    assert wire.settled == list(range(1, 51))
    assert wire.confirmed == set(range(1, 51))
    assert len(spans(wire)) == 50


def test_a_lost_confirm_under_retry_carrier_stops_the_pipe_and_is_noticed() -> None:
    """sc3: nothing is sent again; one Unanswered after rto_max_s, then no deadline is left."""
    wire = Wire(CARRIER)
    wire.send(1, 2)
    wire.transfer(back=0)
    wire.to_sender.clear()
    wire.run(until_us=10_000 * SECOND)
    assert wire.settled == [1]
    assert wire.confirmed == set()
    assert spans(wire) == [(1, 1)]
    assert [(n.kind, n.ranges) for _, n in wire.notices] == [(NoticeKind.UNANSWERED, ((1, 1),))]
    assert wire.now == 30 * SECOND
    assert_quiet(wire)


def test_under_retry_carrier_another_receiver_is_no_reason_to_send_or_to_warn() -> None:
    """T-5: the carrier brings the unit to the new receiver; this layer waits on."""
    wire = Wire(CARRIER, auto_settle=False)
    wire.send(1)
    wire.exchange()
    wire.crash_receiver()
    [frame] = wire.sent
    wire.arrive(frame)
    wire.exchange()
    wire.advance(SECOND)
    assert spans(wire) == [(1, 1)]
    assert wire.notices == []
    wire.settle()
    wire.exchange()
    assert wire.confirmed == {1}


def test_retry_carrier_works_over_a_carrier_that_repeats() -> None:
    """8.3: over multi-unconfirmed on a lossy forward path with whole confirms: absolute, N."""
    wire = Wire([CARRIER, "multi-unconfirmed"])
    send_all(wire, 40)
    wire.run(Faults(loss=0.3, back_loss=0.0, duplication=0.1))
    assert wire.settled == list(range(1, 41))
    assert wire.confirmed == set(range(1, 41))


def as_numbered(unit: Data) -> Frame:
    """A frame of another kind of pipe."""
    return Numbered(unit.pipe, unit.layer, unit.epoch, unit.first, unit.payloads)


def as_a_later_one(unit: Data) -> Frame:
    """No sender of this kind sends the second before the first is confirmed."""
    return replace(unit, first=unit.first + 1)


@pytest.mark.parametrize("spoiled", [as_numbered, as_a_later_one])
def test_what_a_carrier_brought_and_nobody_takes_goes_back_to_it(
    spoiled: Callable[[Data], Frame],
) -> None:
    """8.3, K-2: the carrier sends it again, and then it is as it should be."""
    wire = Wire([CARRIER, "multi-unconfirmed"])
    wire.send(1)
    carried, unit = carried_unit(wire)
    wire.arrive(replace(carried, payloads=[encode(spoiled(unit))]))
    wire.run()
    assert (wire.settled, wire.confirmed) == ([1], {1})


def test_a_unit_of_one_life_too_many_goes_back_to_the_carrier() -> None:
    """V-5, K-2: of eight lives something is in work, so there is no place for a ninth."""
    wire = Wire([CARRIER, "multi-unconfirmed"], auto_settle=False)
    wire.send(1)
    carried, unit = carried_unit(wire)
    lives = [encode(replace(unit, epoch=unit.epoch + more)) for more in range(SESSIONS_MAX + 1)]
    wire.arrive(replace(carried, payloads=lives))
    assert wire.receiver.counters()["over_limit"] == 1
    assert wire.receiver.layers[1].gauges()["in_work"] == SESSIONS_MAX


def carried_unit(wire: Wire) -> tuple[Data, Data]:
    """Take the one frame from the wire: it, and the unit that it carries."""
    [carried] = wire.to_receiver
    wire.to_receiver.clear()
    assert isinstance(carried, Data)
    unit = decode(carried.payloads[0])
    assert isinstance(unit, Data)
    return carried, unit


def test_a_confirm_of_what_was_never_sent_is_ignored() -> None:
    """sc4: a Confirm with a higher seq while 1 is lost: impossible; 1 is still first."""
    wire = Wire("sequential-confirm")
    wire.send(1, 2, 3)
    lost = wire.drop()
    assert isinstance(lost, Data)
    wire.arrive_back(Confirm(lost.pipe, 0, lost.link, 9, lost.epoch, 3, (), (), 99, 0))
    assert wire.sender.counters()["impossible"] == 1
    assert wire.confirmed == set()
    wire.run()
    assert wire.settled == [1, 2, 3]


@pytest.mark.parametrize("step", range(1, 40))
def test_a_volatile_receiver_that_restarts_repeats_one_message_at_most(step: int) -> None:
    """sc5: the receiver crashes after any one of its effects: N and G, one repeat at most."""
    wire = Wire("sequential-confirm", crashes=frozenset({("receiver", step)}))
    send_all(wire, 8)
    wire.run()
    assert set(wire.settled) == set(range(1, 9)) == wire.confirmed
    assert is_gap_free(wire.settled)
    assert len(wire.settled) <= 9


@pytest.mark.parametrize("step", range(1, 60))
def test_a_durable_receiver_with_boundary_committed_repeats_nothing(step: int) -> None:
    """8.3 restart, G-5: effect and cursor in one transaction: all four atoms through any crash."""
    wire = Wire("sequential-confirm", boundary=COMMITTED, crashes=frozenset({("receiver", step)}))
    send_all(wire, 8)
    wire.run()
    assert wire.settled == list(range(1, 9))
    assert wire.confirmed == set(range(1, 9))


def test_a_repeat_of_a_settled_message_is_confirmed_again_and_not_delivered() -> None:
    """8.3: duplicate; the answer is a Confirm at once."""
    wire = Wire("sequential-confirm")
    wire.send(1)
    wire.repeat()
    wire.transfer()
    assert wire.settled == [1]
    assert wire.receiver.counters()["duplicate"] == 1
    last = wire.sent_back[-1]
    assert isinstance(last, Confirm)
    assert last.cum == 1


def test_a_repeat_of_a_message_in_work_waits_for_it() -> None:
    """8.3: in_work; confirmed when it settles, delivered once."""
    wire = Wire("sequential-confirm", auto_settle=False)
    wire.send(1)
    wire.repeat()
    wire.transfer()
    assert len(wire.delivered) == 1
    assert wire.receiver.counters()["in_work"] == 1
    wire.settle()
    wire.exchange()
    assert wire.confirmed == {1}


def test_with_repeats_forward_they_are_delivered_in_order() -> None:
    """8.3 repeats forward: U is lost, G is kept."""
    wire = Wire(FORWARD, seed=4)
    send_all(wire, 60)
    wire.run(ROUGH)
    assert set(wire.settled) == set(range(1, 61)) == wire.confirmed
    assert is_gap_free(wire.settled)
    assert len(wire.settled) > 60


def test_a_new_life_of_the_sender_is_served_after_what_is_in_work_of_the_old() -> None:
    """L-9, L-3: the old epoch's message is in work when the new one arrives; both settle in order."""
    wire = Wire("sequential-confirm", auto_settle=False)
    wire.send(1)
    wire.transfer()
    wire.crash_sender()
    wire.send(2)
    wire.transfer()
    assert [d.payloads for d in wire.delivered] == [[b"1"]]
    wire.settle()
    wire.settle()
    wire.exchange()
    assert wire.settled == [1, 2]
    assert wire.confirmed == {2}


def test_a_lower_epoch_is_refused_and_its_sender_stops_when_it_was_served_before() -> None:
    """L-7: an older sender that was answered before names its unconfirmed ranges and stops."""
    wire = Wire("sequential-confirm")
    wire.send(1)
    [first] = wire.to_receiver
    assert isinstance(first, Data)
    wire.exchange()
    wire.send(2)
    serve_another_life(wire, replace(first, epoch=first.epoch + 5))
    wire.transfer()
    refused = wire.to_sender[-1]
    head = (first.pipe, 0, first.link, first.epoch)
    assert refused == Refused(*head, RefusedReason.FENCED, first.epoch + 5)
    assert wire.receiver.counters()["fenced"] == 1
    wire.transfer()
    assert [(n.kind, n.ranges) for _, n in wire.notices] == [(NoticeKind.FENCED, ((2, 2),))]
    wire.send(3)
    assert [reject.reason for reject in wire.rejected] == ["stopped"]
    assert wire.settled == [1]


def test_a_sender_refused_before_it_was_ever_answered_takes_a_higher_life() -> None:
    """L-7, L-5: nothing was answered in this life: numbered again above the known epoch, nothing lost."""
    wire = Wire("sequential-confirm")
    wire.send(1, 2)
    frame = wire.drop()
    assert isinstance(frame, Data)
    serve_another_life(wire, replace(frame, epoch=frame.epoch + 9))
    wire.arrive(frame)
    wire.run()
    assert wire.confirmed == {1, 2}
    assert wire.settled == [1, 2]


def test_a_probe_of_a_lower_epoch_is_refused() -> None:
    """L-7: a question of an old life gets the refusal too."""
    wire = Wire("sequential-confirm")
    wire.send(1)
    [frame] = wire.to_receiver
    assert isinstance(frame, Data)
    wire.exchange()
    wire.arrive(Probe(frame.pipe, 0, 7, frame.epoch - 1, 1, 2))
    assert isinstance(wire.to_sender[-1], Refused)


def test_an_epoch_that_the_state_does_not_know_lacks_all_that_its_sender_knows_as_settled() -> None:
    """L-10: the first message of a later epoch was settled, says its sender; the stored state has none of it."""
    wire = Wire("sequential-confirm", boundary=DURABLE, auto_settle=False)
    wire.send(1)
    [frame] = wire.sent
    assert isinstance(frame, Data)
    wire.exchange()
    wire.arrive(replace(frame, epoch=frame.epoch + 1, first=2, base=2))
    assert [(n.epoch, n.ranges) for _, n in wire.notices] == [(frame.epoch + 1, ((1, 1),))]


def test_a_receiver_state_behind_the_sender_is_noticed_and_does_not_stall() -> None:
    """L-10: the stored cursor is older than what the sender knows: StateRollback with the range."""
    wire = Wire("sequential-confirm", boundary=DURABLE)
    wire.send(1)
    wire.run()
    older = wire.saved_state
    wire.send(2, 3)
    wire.run()
    wire.saved_state = older
    wire.crash_receiver()
    wire.send(4)
    wire.run()
    assert wire.settled == [1, 2, 3, 4]
    assert [(n.kind, n.ranges) for _, n in wire.notices] == [(NoticeKind.STATE_ROLLBACK, ((2, 3),))]


def test_a_slow_handler_is_asked_after_and_gets_no_copies() -> None:
    """T-2: a handler of 5 s: Probes, one Data frame for each message."""
    wire = Wire("sequential-confirm", handler_us=5 * SECOND)
    wire.send(1, 2)
    wire.run()
    assert spans(wire) == [(1, 1), (2, 2)]
    assert probes(wire)
    assert [len(data_of(wire, seq)) for seq in (1, 2)] == [1, 1]


def test_giving_up_stops_the_pipe_and_hands_everything_back() -> None:
    """T-10: skipping would break the order: Undeliverable names all that is unconfirmed."""
    wire = Wire({"sequential-confirm": {"give_up_after_s": 60.0}})
    wire.send(1, 2, 3)
    wire.advance(100 * SECOND)
    undeliverable = [n for _, n in wire.notices if n.kind == NoticeKind.UNDELIVERABLE]
    assert [n.ranges for n in undeliverable] == [((1, 3),)]
    assert wire.letters == []
    wire.send(4)
    assert [reject.reason for reject in wire.rejected] == ["stopped"]
    assert wire.deadline["sender"] is None


def test_a_unit_partly_refused_comes_again_without_what_was_settled() -> None:
    """K-2: over the cursor the refused message is wanted again, the settled ones are not."""
    wire = Wire({"sequential-confirm": {"run_max": 3}}, auto_settle=False)
    wire.send(1, 2, 3)
    wire.transfer()
    ticket = next(iter(wire.open))
    wire.settle(1)
    del wire.open[ticket]
    wire.receiver.refused(ticket, ((2, 2),), wire.now)
    wire.auto_settle = True
    wire.run()
    assert wire.settled == [1, 2, 3]
    assert wire.confirmed == {1, 2, 3}
