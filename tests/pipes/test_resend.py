"""resend: at-least-once with one frame unconfirmed (pipes 8.1, rs1 to rs9)."""

from __future__ import annotations

import math
import sys
from itertools import pairwise

import pytest

from surepipe.core.effects import NoticeKind, RejectReason
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.wire.frames import Data
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.retry_kit import (
    ROUGH,
    assert_quiet,
    bounds_of,
    confirm,
    data_of,
    is_gap_free,
    probes,
    send_all,
    spans,
)

SINGLES: LayerText = {"resend": {"run_max": 1}}


@pytest.mark.parametrize("seed", range(10))
def test_everything_arrives_over_a_route_that_loses_frames_both_ways(seed: int) -> None:
    """rs1, V-5: 100 messages, 5 % loss each way: all settled, all confirmed, then silence."""
    wire = Wire(SINGLES, seed=seed)
    send_all(wire, 100)
    wire.run(Faults(loss=0.05), each_step=bounds_of(wire))
    assert set(wire.settled) == set(range(1, 101)) == wire.confirmed
    assert_quiet(wire)


@pytest.mark.parametrize("seed", range(10))
def test_order_is_gap_free_while_frames_are_lost_repeated_and_overtaken(seed: int) -> None:
    """V-1 G, N: runs of 7 over a rough route."""
    wire = Wire({"resend": {"run_max": 7}}, seed=seed)
    send_all(wire, 200)
    wire.run(ROUGH, each_step=bounds_of(wire))
    assert is_gap_free(wire.settled)
    assert set(wire.settled) == set(range(1, 201)) == wire.confirmed


def test_a_wait_shorter_than_the_route_adapts_after_the_first_message() -> None:
    """rs2: 100 ms each way and a first wait of 50 ms: only the first message is sent more than once."""
    wire = Wire({"resend": {"run_max": 1, "rto_initial_s": 0.05}})
    wire.send(1, 2, 3)
    wire.run(Faults(delay_us=(100 * MS, 100 * MS)))
    assert wire.confirmed == {1, 2, 3}
    assert len(data_of(wire, 1)) <= 4
    assert [len(data_of(wire, seq)) for seq in (2, 3)] == [1, 1]


def test_waits_double_up_to_their_limit_while_the_receiver_is_dead() -> None:
    """rs3: intervals 1 s, 2 s, 4 s ... 30 s, each within 10 %."""
    wire = Wire("resend")
    wire.send(1)
    wire.advance(300 * SECOND)
    intervals = [b - a for a, b in pairwise(data_of(wire, 1))]
    assert len(intervals) >= 10
    for attempt, interval in enumerate(intervals):
        assert interval == pytest.approx(min(2**attempt, 30) * SECOND, rel=0.1)


def test_messages_before_and_after_a_receiver_restart_all_arrive() -> None:
    """rs4: 5 messages, the receiver restarts, 5 more."""
    wire = Wire("resend")
    wire.send(1, 2, 3, 4, 5)
    wire.transfer(back=0)
    wire.crash_receiver()
    wire.send(6, 7, 8, 9, 10)
    wire.run()
    assert set(wire.settled) == set(range(1, 11)) == wire.confirmed


def test_a_dead_route_costs_no_memory_beyond_the_backlog() -> None:
    """rs5: 10,000 calls are rejected at the bound, and the exported state stays the same."""
    wire = Wire({"resend": {"run_max": 1, "backlog": 16}})
    send_all(wire, 17)
    before = repr(wire.sender.export())
    for number in range(10_000):
        wire.send(number)
    assert len(wire.rejected) == 10_000
    assert {reject.reason for reject in wire.rejected} == {RejectReason.FULL}
    assert wire.sender.gauges()["backlog"] == 16
    after = repr(wire.sender.export())
    assert sys.getsizeof(after) - sys.getsizeof(before) < 32  # one counter grew


def test_nothing_is_sent_twice_when_nothing_goes_wrong() -> None:
    """rs6: fault-free, ten times the wait: one transmission each."""
    wire = Wire(SINGLES)
    wire.send(1, 2, 3)
    wire.run()
    wire.advance(10 * SECOND)
    assert spans(wire) == [(1, 1), (2, 2), (3, 3)]
    assert probes(wire) == []
    assert_quiet(wire)


@pytest.mark.parametrize("confirmed_first", [False, True])
def test_a_unit_half_settled_before_a_crash_comes_again_without_a_gap(
    *, confirmed_first: bool
) -> None:
    """rs7: a unit of 4, the receiver crashes after 2; whether the confirm of those got out or not."""
    wire = Wire("resend", auto_settle=False)
    wire.send(1, 2, 3, 4)
    wire.transfer()
    wire.settle(2)
    if confirmed_first:
        wire.advance(10 * MS)
        wire.transfer()
    wire.crash_receiver()
    wire.drop_all()
    wire.auto_settle = True
    wire.run()
    assert wire.settled == ([1, 2, 3, 4] if confirmed_first else [1, 2, 1, 2, 3, 4])
    assert wire.confirmed == {1, 2, 3, 4}


@pytest.mark.parametrize(("arrive", "confirm"), [(0.9, 0.5), (0.6, 0.8), (0.5, 0.25)])
def test_deliveries_for_each_message_follow_the_loss_of_confirms_alone(
    arrive: float, confirm: float
) -> None:
    """rs8: frames arrive with p, confirms with q: 1/q deliveries each, within 3 sigma, over 5 seeds."""
    count = 100
    deliveries = 0
    for seed in range(5):
        wire = Wire(SINGLES, seed=seed)
        send_all(wire, count)
        wire.run(Faults(loss=1 - arrive, back_loss=1 - confirm), until_us=10**12)
        assert wire.confirmed == set(range(1, count + 1))
        deliveries += len(wire.settled)
    sigma = math.sqrt(1 - confirm) / confirm / math.sqrt(5 * count)
    assert deliveries / (5 * count) == pytest.approx(1 / confirm, abs=3 * sigma)


def test_a_message_to_nobody_is_never_confirmed_and_is_noticed_once() -> None:
    """rs9, T-11: nothing answers; after 5 attempts there is one notice with the range."""
    wire = Wire("resend")
    wire.send(1, 2)
    for _ in range(30):
        wire.advance(30 * SECOND)
        wire.drop_all()
    assert wire.confirmed == set()
    notices = [notice for _, notice in wire.notices]
    assert [(n.kind, n.ranges) for n in notices] == [(NoticeKind.UNANSWERED, ((1, 2),))]
    assert notices[0].detail.startswith("5 attempts")


def test_a_copy_of_a_unit_in_work_is_counted_and_not_delivered() -> None:
    """8.1: what is in work is not delivered again; the answer says that it is held."""
    wire = Wire("resend", auto_settle=False)
    wire.send(1, 2)
    wire.repeat()
    wire.transfer()
    assert [delivery.first for delivery in wire.delivered] == [1]
    assert wire.receiver.counters()["in_work"] == 2


def test_a_repeat_of_a_settled_unit_is_delivered_again() -> None:
    """8.1: the receiver keeps nothing but what is in work, so it can't know a repeat."""
    wire = Wire("resend")
    wire.send(1, 2)
    wire.repeat()
    wire.exchange()
    assert wire.settled == [1, 2, 1, 2]
    assert wire.receiver.gauges()["in_work"] == 0


def test_a_slow_handler_is_asked_after_and_gets_no_copies() -> None:
    """T-2: a handler of 5 s against a wait of 1 s: Probes, one Data frame."""
    wire = Wire("resend", handler_us=5 * SECOND)
    wire.send(1)
    wire.run()
    assert spans(wire) == [(1, 1)]
    assert probes(wire)
    assert wire.confirmed == {1}


def test_a_unit_is_never_longer_than_run_max_and_a_frame_no_longer_than_its_bytes() -> None:
    """P-9: units are cut by messages and by bytes; a large message travels alone."""
    wire = Wire({"resend": {"run_max": 3, "frame_max_bytes": 100}})
    wire.send(*[b"x" * 40] * 4, b"y" * 500, b"z")
    wire.run()
    assert spans(wire) == [(1, 2), (3, 4), (5, 5), (6, 6)]


def test_a_unit_is_answered_to_its_carrier_once() -> None:
    """K-2: over strict-monotonic, over a route that repeats frames: settled once, all confirmed."""
    wire = Wire([SINGLES, "strict-monotonic"])
    send_all(wire, 20)
    wire.run(Faults(loss=0.2, duplication=0.3))
    assert set(wire.settled) == set(range(1, 21)) == wire.confirmed


@pytest.mark.parametrize("seed", range(5))
def test_under_strict_monotonic_nothing_is_lost_or_repeated(seed: int) -> None:
    """al6, K-2: strict-monotonic > resend over a rough route is exactly-once, absolute."""
    wire = Wire(["strict-monotonic", {"resend": {"run_max": 5}}], seed=seed)
    for number in range(1, 101):
        wire.send(number)
    wire.run(ROUGH)
    assert wire.settled == list(range(1, 101))
    assert wire.confirmed == set(range(1, 101))


def test_the_rest_of_a_unit_travels_again_in_one_frame() -> None:
    """8.1: a unit of 4, one settled and confirmed, the receiver gone: 2 to 4 come in one frame."""
    wire = Wire({"resend": {"run_max": 4}}, auto_settle=False)
    wire.send(1, 2, 3, 4, 5)
    wire.transfer()
    wire.settle(1)
    wire.advance(10 * MS)
    wire.transfer()
    wire.crash_receiver()
    while spans(wire) == [(1, 4)]:  # the answer to a Probe tells that nothing is held any more
        wire.advance(SECOND)
        wire.transfer()
    rest = wire.sent[-1]
    assert isinstance(rest, Data)
    assert (rest.first, rest.base, list(rest.payloads)) == (2, 2, [b"2", b"3", b"4"])
    assert wire.delivered[-1].first == 2


def _half_settled() -> Wire:
    """A unit of 5 whose receiver has the third message settled and the others in work, as lanes do it."""
    wire = Wire("resend")
    wire.send(1, 2, 3, 4, 5)
    wire.drop_all()
    wire.arrive_back(confirm(wire, 0, done=((3, 3),), held=((1, 2), (4, 5))))
    assert wire.confirmed == {3}
    return wire


def test_a_unit_with_a_settled_middle_is_asked_after_while_the_rest_is_in_work() -> None:
    """T-2: all that is not settled is reported held, so a Probe goes out and no Data."""
    wire = _half_settled()
    wire.advance(5 * SECOND)
    assert spans(wire) == [(1, 5)]
    assert probes(wire)


def test_a_settled_middle_does_not_travel_again_and_what_is_behind_it_waits() -> None:
    """8.1: another receiver holds nothing of it: 1 to 2 come in one frame, 4 to 5 only after these are settled."""
    wire = _half_settled()
    wire.arrive_back(confirm(wire, 0, incarnation=8))
    wire.advance(10 * SECOND)
    assert set(spans(wire)[1:]) == {(1, 2)}
    wire.arrive_back(confirm(wire, 3, incarnation=8))
    before = len(spans(wire))
    wire.advance(60 * SECOND)
    assert set(spans(wire)[before:]) == {(4, 5)}
    wire.arrive_back(confirm(wire, 5, incarnation=8))
    assert wire.confirmed == {1, 2, 3, 4, 5}


def test_a_notice_of_a_unit_leaves_out_its_settled_middle() -> None:
    """T-11: what nobody answers for is named, and not what was settled."""
    wire = _half_settled()
    wire.arrive_back(confirm(wire, 0, incarnation=8))
    wire.advance(300 * SECOND)
    assert [notice.ranges for _, notice in wire.notices] == [((1, 2), (4, 5))]
