"""When a receiver says something, and what the sender makes of a Nack (pipes T-6, T-7, P-15)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surepipe.core.effects import Transmit, WakeAt
from surepipe.pipes.retry.confirming import ConfirmingReceiver
from surepipe.pipes.wire.frames import Confirm, Data, Probe
from tests.kit.wire import MS, SECOND, Wire
from tests.pipes.retry_kit import (
    confirm,
    data_of,
    engine_of,
    nack,
    nacks,
    send_all,
    spans,
    wire_of,
)


def test_a_confirm_goes_out_at_once_on_ask_repeat_probe_and_hole() -> None:
    """T-6: each of the four reasons, at the moment of arrival."""
    wire = wire_of()
    wire.send(1, 2)  # two frames, the second asks
    wire.transfer(1, back=0)
    assert wire.sent_back == []
    wire.transfer(1, back=0)
    assert len(wire.sent_back) == 1
    [_, asking] = wire.sent
    assert isinstance(asking, Data)
    wire.arrive(replace(asking, ask=False))
    assert len(wire.sent_back) == 2
    wire.arrive(replace(asking, ask=False, first=5, stamp=9, payloads=[b"5"]))
    assert len(wire.sent_back) == 3


def test_other_confirms_wait_a_moment_for_company() -> None:
    """T-6: within confirm_delay_s of the first unreported event; half a receive_window goes at once."""
    wire = wire_of(receive_window=8, window=8)
    send_all(wire, 8)
    wire.to_receiver.pop()  # the one that asks
    wire.transfer(back=0)
    assert wire.sent_back == []
    for _ in range(3):
        wire.settle()
    assert wire.sent_back == []
    wire.settle()
    assert len(wire.sent_back) == 1
    wire.settle()
    wire.advance(9 * MS)
    assert len(wire.sent_back) == 1
    wire.advance(MS)
    assert len(wire.sent_back) == 2


@pytest.mark.parametrize("kind", ["multi-unconfirmed", "reliable"])
def test_half_of_a_window_of_three_is_one_message(kind: str) -> None:
    """T-6: of three the first that is settled is reported at once, as nobody asked about the others."""
    wire = Wire({kind: {"run_max": 1, "receive_window": 3}}, auto_settle=False)
    wire.exchange()
    send_all(wire, 3, batch=3)
    wire.to_receiver.pop()  # the one that asks
    wire.transfer(back=0)
    before = len(wire.sent_back)
    wire.settle()
    assert len(wire.sent_back) == before + 1


def test_what_the_sender_waits_for_is_confirmed_when_it_is_settled() -> None:
    """T-6: the end of what was asked about is reported at once, not after the delay."""
    wire = wire_of()
    wire.send(1, 2)
    wire.exchange()
    wire.settle()
    assert wire.confirmed == set()
    wire.settle()
    wire.exchange()
    assert wire.confirmed == {1, 2}
    assert wire.now == 0


def test_a_confirm_names_at_most_64_ranges_lowest_first() -> None:
    """T-6: 100 holes in what is held."""
    wire = wire_of(window=300, initial_credit=300)
    send_all(wire, 300)
    frames = list(wire.to_receiver)
    wire.to_receiver.clear()
    for frame in frames[1::2]:
        wire.arrive(frame)
    last = [frame for frame in wire.sent_back if isinstance(frame, Confirm)][-1]
    assert last.held == tuple((n, n) for n in range(2, 130, 2))
    assert all(len(frame.missing) <= 64 for frame in nacks(wire.sent_back))


def test_a_nack_of_what_is_settled_or_never_sent_sends_no_data() -> None:
    """T-7: beyond next: impossible; settled: one Probe a round trip, for a receiver that has forgotten."""
    wire = wire_of()
    send_all(wire, 3)
    wire.arrive_back(confirm(wire, 2))
    wire.advance(200 * MS)
    sent = len(wire.sent)
    wire.arrive_back(nack(wire, (2, 4)))
    assert wire.sender.counters()["impossible"] == 1
    wire.arrive_back(nack(wire, (1, 2)))
    wire.arrive_back(nack(wire, (1, 2)))
    assert wire.sender.counters()["repeated_confirm"] == 1
    assert [type(frame) for frame in wire.sent[sent:]] == [Probe]


def test_a_nack_sends_the_named_part_of_a_run_again() -> None:
    """T-7: 4..6 of a run of 10, and the deadline of the rest stays."""
    wire = Wire("multi-unconfirmed", auto_settle=False)
    wire.send(*range(1, 11))
    wire.to_receiver.clear()
    wire.advance(200 * MS)
    wire.arrive_back(nack(wire, (4, 6)))
    assert spans(wire)[1:] == [(4, 6)]
    runs = [(run.first, run.last, run.waits) for run in engine_of(wire).flights.runs]
    assert runs == [(1, 3, 1), (4, 6, 1), (7, 10, 1)]


def test_what_a_nack_sends_again_keeps_the_patience_that_it_had() -> None:
    """T-2, T-7: after two silent waits the third is of four seconds; the Nack begins it anew, no shorter."""
    wire = wire_of(jitter=0.0)
    wire.send(1)
    wire.advance(4 * SECOND)
    wire.arrive_back(nack(wire, (1, 1)))
    wire.advance(4 * SECOND)
    assert data_of(wire, 1) == [at * SECOND for at in (0, 1, 3, 4, 8)]


def test_the_nack_of_another_incarnation_brings_a_first_wait_again() -> None:
    """T-5, T-7: all is due and sent at once, and the wait after it is the first one."""
    wire = wire_of(jitter=0.0)
    wire.send(1)
    wire.arrive_back(confirm(wire, 0))
    wire.advance(4 * SECOND)
    wire.crash_receiver()
    wire.arrive_back(nack(wire, (1, 1)))
    wire.advance(SECOND)
    assert data_of(wire, 1) == [at * SECOND for at in (0, 1, 3, 4, 5)]


def test_closing_says_the_last_confirm_and_the_sender_goes_on() -> None:
    """P-15: the receiver finishes what is in work and confirms it without waiting."""
    wire = wire_of()
    wire.send(1, 2)
    wire.to_receiver.pop()
    wire.transfer(back=0)
    wire.close_receiver()
    wire.settle()
    wire.exchange()
    assert wire.confirmed == {1}


def test_what_is_beyond_the_limit_is_ignored_even_when_little_is_in_work() -> None:
    """T-1, P-9: 1 is missing and 2 to 4 are settled: with a window of 4 there is no place for 5."""
    wire = wire_of(receive_window=4, initial_credit=8)
    send_all(wire, 5)
    frames = list(wire.to_receiver)
    wire.to_receiver.clear()
    for frame in frames[1:4]:
        wire.arrive(frame)
        wire.settle()
    wire.arrive(frames[4])
    assert wire.open == {}
    assert wire.receiver.counters()["over_limit"] == 1
    last = wire.sent_back[-1]
    assert isinstance(last, Confirm)
    assert (last.cum, last.done, last.limit) == (0, ((2, 4),), 4)


@pytest.mark.parametrize("kind", ["resend", "sequential-confirm"])
def test_a_refused_unit_is_reported_as_not_held_at_once(kind: str) -> None:
    """T-6, K-2: resend keeps no state behind it, so the sender must hear before it is forgotten."""
    wire = Wire({kind: {"run_max": 2}}, auto_settle=False)
    wire.send(1, 2)
    wire.exchange()
    before = len(wire.sent_back)
    ticket = next(iter(wire.open))
    for effect in wire.receiver.refused(ticket, ((1, 2),), wire.now):
        if isinstance(effect, Transmit) and isinstance(effect.frame, Confirm):
            assert (effect.frame.cum, effect.frame.held) == (0, ())
            before -= 1
        assert not isinstance(effect, WakeAt), "nothing is left to be said"
    assert len(wire.sent_back) == before + 1
    assert wire.receiver.gauges()["in_work"] == 0


def test_resend_keeps_nothing_of_what_it_had_no_room_for() -> None:
    """V-5, P-9: one message fills the window; of another epoch's message nothing stays, not even its epoch."""
    wire = Wire({"resend": {"receive_window": 1}}, auto_settle=False)
    wire.send(1)
    wire.transfer(1, back=0)
    [first] = wire.sent
    assert isinstance(first, Data)
    [layer] = wire.receiver.layers
    assert isinstance(layer, ConfirmingReceiver)
    wire.arrive(replace(first, epoch=first.epoch + 1))
    assert wire.receiver.counters()["over_limit"] == 1
    assert list(layer.sessions) == [first.epoch]
