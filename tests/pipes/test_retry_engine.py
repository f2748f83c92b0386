"""The retry engine, rule by rule (pipes T-1 to T-11)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from surepipe.core.effects import NoticeKind
from surepipe.pipes.retry.flights import STAMPS_MAX
from surepipe.pipes.wire.frames import Confirm, Nack, Open
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.retry_kit import (
    assert_quiet,
    bounds_of,
    confirm,
    data_of,
    engine_of,
    nack,
    probes,
    send_all,
    spans,
    wire_of,
)

MANY = "multi-unconfirmed"


def test_before_the_first_confirm_only_the_initial_credit_is_used() -> None:
    """T-1: limit = base + initial_credit - 1."""
    wire = wire_of(initial_credit=5)
    send_all(wire, 20)
    assert spans(wire) == [(n, n) for n in range(1, 6)]


def test_messages_leave_while_window_limit_and_bytes_allow() -> None:
    """T-1: each of the three bounds in turn."""
    for options, expected in (
        ({"window": 7}, 7),
        ({"window_bytes": 30}, 3),
        ({"window_bytes": 30, "run_max": 512}, 1),
        ({"receive_window": 4, "initial_credit": 2}, 4),
    ):
        wire = wire_of(**options)
        wire.send(*[b"0123456789"] * 20)
        wire.advance(10 * MS)
        wire.exchange()
        assert len(spans(wire)) == expected
        bounds_of(wire)()


def test_the_limit_follows_what_is_settled_without_a_hole() -> None:
    """T-1: the receiver's limit is the end of what is settled in a row, plus its window."""
    wire = wire_of(receive_window=4)
    send_all(wire, 4)
    wire.transfer(back=0)
    wire.settle(at=1)
    wire.advance(10 * MS)
    limits = [frame.limit for frame in wire.sent_back if isinstance(frame, Confirm)]
    assert set(limits) == {4}
    wire.settle()
    wire.advance(10 * MS)
    last = wire.sent_back[-1]
    assert isinstance(last, Confirm)
    assert (last.cum, last.limit) == (2, 6)


def test_a_message_larger_than_the_byte_window_travels_alone() -> None:
    """T-1: it is not stuck for ever, and nothing travels beside it."""
    wire = wire_of(window_bytes=30)
    wire.send(b"a", b"b" * 100, b"c")
    assert spans(wire) == [(1, 1)]
    wire.transfer()
    wire.settle()
    wire.exchange()
    wire.advance(10 * MS)
    wire.exchange()
    assert spans(wire) == [(1, 1), (2, 2)]
    wire.auto_settle = True
    wire.settle()
    wire.run()
    assert wire.confirmed == {1, 2, 3}


def test_waits_of_each_run_double_with_jitter_up_to_the_limit() -> None:
    """T-2: rto * 2^(attempt - 1), at most rto_max_s, within the jitter."""
    wire = wire_of(rto_initial_s=0.5, rto_max_s=4.0, jitter=0.2)
    wire.send(1)
    wire.advance(60 * SECOND)
    waits = [b - a for a, b in pairwise(data_of(wire, 1))]
    for attempt, wait in enumerate(waits):
        assert wait == pytest.approx(min(2**attempt * SECOND // 2, 4 * SECOND), rel=0.2)
    assert len(set(waits)) > 1


def test_a_wait_below_a_microsecond_is_one_and_not_none() -> None:
    """T-2: a deadline lies ahead of its transmission, or time would stand still at it."""
    wire = wire_of(rto_initial_s=1e-7, jitter=0.0)
    wire.send(1)
    assert wire.deadline["sender"] == wire.now + 1


def test_at_most_a_burst_is_sent_again_at_one_wake_and_the_rest_follows_the_answer() -> None:
    """T-2: burst_max 4 of 20 due frames, oldest first; the next Confirm releases the next burst."""
    wire = wire_of(burst_max=4, jitter=0.0)
    for _ in range(20):
        wire.send(b"x" * 40_000)
    wire.to_receiver.clear()
    wire.advance(SECOND)
    assert spans(wire)[20:] == [(n, n) for n in range(1, 5)]
    wire.auto_settle = True
    counts = [len(wire.sent)]
    wire.run(
        Faults(lose=lambda frame, _: isinstance(frame, Nack)),
        each_step=lambda: counts.append(len(wire.sent)),
    )
    assert wire.confirmed == set(range(1, 21))
    assert max(b - a for a, b in pairwise(counts)) == 4
    assert wire.now < SECOND + 100 * MS


def test_without_an_answer_the_rest_of_a_burst_waits_one_round_trip() -> None:
    """T-2 pacing: into a silent route goes one burst in each round trip."""
    wire = wire_of(burst_max=4, jitter=0.0)
    for _ in range(12):
        wire.send(b"x" * 40_000)
    wire.advance(SECOND)
    moments = sorted(set(wire.times[12:]))
    assert moments == [1_000 * MS]
    wire.advance(250 * MS)
    assert [b - a for a, b in pairwise(sorted(set(wire.times[12:])))][:2] == [100 * MS, 100 * MS]


def test_neighbours_with_one_history_travel_again_in_one_frame() -> None:
    """T-2: a re-send may cut runs differently: ten frames of one message come again as one."""
    wire = Wire({MANY: {"jitter": 0.0}})
    for number in range(1, 11):
        wire.send(number)
    wire.to_receiver.clear()
    wire.advance(SECOND)
    assert spans(wire)[10:] == [(1, 10)]
    wire.run()
    assert wire.confirmed == set(range(1, 11))


def test_only_what_is_neither_settled_nor_held_travels_again() -> None:
    """T-2, Q-23: a run of 10, of which 3 is done and 5..6 are held."""
    wire = Wire({MANY: {"jitter": 0.0}}, auto_settle=False)
    wire.send(*range(1, 11))
    wire.to_receiver.clear()
    wire.arrive_back(confirm(wire, 0, done=((3, 3),), held=((5, 6),)))
    wire.advance(SECOND)
    assert spans(wire)[1:] == [(1, 2), (4, 4), (7, 10)]
    assert probes(wire) == []


def test_a_run_reported_held_is_asked_after_once_for_all_that_is_due() -> None:
    """T-2: three held runs due together: one Probe."""
    wire = wire_of(jitter=0.0)
    send_all(wire, 3)
    wire.advance(10 * MS)
    wire.exchange()
    wire.advance(990 * MS)
    assert len(probes(wire)) == 1
    assert (probes(wire)[0].base, probes(wire)[0].next) == (1, 4)


def test_the_wait_is_measured_from_any_transmission_whose_answer_arrives() -> None:
    """T-3: an echo of the first copy after two re-sends is a valid sample."""
    wire = wire_of(rto_initial_s=0.1)
    wire.send(1)
    wire.advance(350 * MS)
    assert len(data_of(wire, 1)) == 3
    wire.arrive_back(confirm(wire, 0, echo=1))
    trips = engine_of(wire).round_trips
    assert (trips.smoothed, trips.variation) == (350 * MS, 175 * MS)
    assert trips.rto == 350 * MS + 4 * 175 * MS + 10 * MS
    wire.arrive_back(confirm(wire, 0, echo=1))  # the same answer once more measures nothing
    assert trips.smoothed == 350 * MS
    assert wire.sender.counters()["repeated_confirm"] == 1


@pytest.mark.parametrize(("copies", "is_measured"), [(STAMPS_MAX, True), (STAMPS_MAX + 1, False)])
def test_so_many_transmissions_of_a_run_are_remembered_and_no_more(
    copies: int, is_measured: bool
) -> None:
    """T-3, V-5: an echo of the first of eight copies is a sample, of the first of nine it is not."""
    wire = wire_of(rto_initial_s=0.1, rto_max_s=1.0)
    wire.send(1)
    while len(data_of(wire, 1)) < copies:
        wire.advance(10 * MS)
    wire.arrive_back(confirm(wire, 0, echo=1))
    assert engine_of(wire).round_trips.smoothed == (wire.now if is_measured else None)


def test_the_wait_stays_between_its_bounds() -> None:
    """T-3: a round trip of 1 ms gives rto_min_s, one of a minute gives rto_max_s."""
    for trip, rto in ((MS, 100 * MS), (60 * SECOND, 30 * SECOND)):
        wire = wire_of(rto_initial_s=100.0, rto_max_s=30.0)
        wire.send(1)
        wire.now += trip
        wire.arrive_back(confirm(wire, 0, echo=1))
        assert engine_of(wire).round_trips.rto == rto


@pytest.mark.parametrize(
    ("counter", "fields"),
    [
        ("stale_link", {"link": 5}),
        ("stale_epoch", {"epoch": 5}),
        ("impossible", {"done": ((3, 9),)}),
        ("impossible", {"held": ((4, 4),)}),
    ],
)
def test_a_confirm_that_speaks_of_something_else_is_counted_and_changes_nothing(
    counter: str, fields: dict[str, object]
) -> None:
    """T-4: other link, other epoch, a seq never sent: one counter, and nothing confirmed."""
    wire = wire_of()
    send_all(wire, 3)
    before = engine_of(wire).unconfirmed()
    wire.arrive_back(confirm(wire, 2, **fields))
    assert wire.sender.counters()[counter] == 1
    assert wire.confirmed == set()
    assert engine_of(wire).unconfirmed() == before


def test_a_confirm_is_reported_once_for_each_message() -> None:
    """T-4: cum and done, overlapping and repeated: each number is confirmed once."""
    wire = wire_of()
    send_all(wire, 6)
    wire.arrive_back(confirm(wire, 1, done=((3, 4),)))
    wire.arrive_back(confirm(wire, 1, done=((3, 5),)))
    wire.arrive_back(confirm(wire, 1, done=((3, 5),)))
    wire.arrive_back(confirm(wire, 5))
    assert wire.confirmed == {1, 2, 3, 4, 5}
    assert wire.sender.counters()["confirmed"] == 5
    assert wire.sender.counters()["repeated_confirm"] == 1
    assert engine_of(wire).base == 6


def test_facts_beyond_what_was_sent_settle_what_was_sent() -> None:
    """L-3, T-4: the receiver knows more of an old epoch than this life has sent: only that is reported."""
    wire = wire_of(initial_credit=3)
    send_all(wire, 5)
    engine_of(wire).take_facts(99, ((101, 102),))
    assert engine_of(wire).unconfirmed() == ((4, 5),)
    assert (engine_of(wire).base, engine_of(wire).in_flight) == (4, 0)


def test_another_incarnation_voids_the_hints_and_makes_all_due() -> None:
    """T-5, L-11: what the former receiver held travels again at once."""
    wire = wire_of(jitter=0.0)
    send_all(wire, 3)
    wire.advance(10 * MS)
    wire.exchange()
    wire.crash_receiver()
    wire.arrive_back(confirm(wire, 0))
    wire.advance(0)
    assert spans(wire)[3:] == [(1, 1), (2, 2), (3, 3)]
    assert wire.now == 10 * MS


def test_late_frames_of_a_former_incarnation_keep_their_facts_and_no_hints() -> None:
    """T-5, F-5: cum is true for ever; held and limit are void, and nothing is due because of it."""
    wire = wire_of(initial_credit=3)
    send_all(wire, 3)
    former = wire.receiver.incarnation
    wire.arrive_back(confirm(wire, 0))
    wire.crash_receiver()
    wire.arrive_back(confirm(wire, 0, limit=3))
    wire.advance(0)
    sent = len(wire.sent)
    wire.arrive_back(confirm(wire, 1, incarnation=former, held=((2, 3),), limit=900))
    assert wire.confirmed == {1}
    assert engine_of(wire).held == ()
    assert engine_of(wire).limit == 3
    wire.advance(0)
    assert len(wire.sent) == sent


def test_a_sender_blocked_by_a_limit_asks_until_it_has_credit() -> None:
    """T-8: nothing in flight, no credit, its Probe lost: it asks again, and goes on."""
    wire = wire_of(initial_credit=2)
    send_all(wire, 3)
    wire.drop_all()
    wire.arrive_back(confirm(wire, 2, limit=2))
    assert engine_of(wire).in_flight == 0
    wire.advance(3 * SECOND)
    assert len(probes(wire)) == 2
    wire.auto_settle = True
    wire.run()
    assert wire.confirmed == {1, 2, 3}
    assert_quiet(wire)


def test_unanswered_is_noticed_when_so_many_transmissions_went_without_an_answer() -> None:
    """T-11: warn_after 3: at the end of the third wait, not of the second; a letter says how many there were."""
    wire = wire_of(warn_after=3, give_up_after_s=20.0)
    wire.send(1)
    while not wire.notices:
        wire.advance(100 * MS)
    [(_, notice)] = wire.notices
    assert (len(data_of(wire, 1)), notice.detail) == (4, "3 attempts unanswered")
    wire.advance(20 * SECOND)
    [letter] = wire.letters
    assert letter.attempts == len(data_of(wire, 1))
    assert not engine_of(wire).stamps


def test_what_is_settled_leaves_no_stamps_behind() -> None:
    """V-5: 2 is settled above 1; when both are due, only the transmissions of 1 are remembered."""
    wire = wire_of()
    send_all(wire, 2)
    wire.arrive_back(confirm(wire, 0, done=((2, 2),)))
    wire.advance(5 * SECOND)
    engine = engine_of(wire)
    assert engine.stamps.keys() == {at for run in engine.flights.runs for at in run.stamps}
    assert [(run.first, run.last) for run in engine.flights.runs] == [(1, 1)]


def test_an_answer_before_anything_was_sent_may_give_credit() -> None:
    """T-1, T-4: it speaks of no message, so it is not impossible."""
    wire = wire_of(initial_credit=2)
    wire.arrive_back(confirm(wire, 0, limit=5))
    assert wire.sender.counters()["impossible"] == 0
    assert engine_of(wire).limit == 5


def test_a_silence_is_told_once_and_so_is_its_end() -> None:
    """T-11: while nobody answers, a notice names what was unanswered first, and not each message that follows.
    That it is over is told when all that was told of has its answer; the next silence is told anew."""
    wire = wire_of(warn_after=3, rto_initial_s=0.5, rto_max_s=2.0, jitter=0.1)
    for _ in range(20):
        wire.send(1)
        wire.advance(5 * SECOND)
        wire.drop_all()
    [(_, notice)] = wire.notices
    assert (notice.kind, notice.ranges) == (NoticeKind.UNANSWERED, ((1, 1),))
    wire.arrive_back(confirm(wire, 0, done=((2, 2),)))
    assert wire.kinds_noticed() == [NoticeKind.UNANSWERED]
    wire.arrive_back(confirm(wire, 20))
    assert wire.kinds_noticed() == [NoticeKind.UNANSWERED, NoticeKind.RECOVERED]
    wire.send(1)
    wire.advance(120 * SECOND)
    assert wire.kinds_noticed()[2:] == [NoticeKind.UNANSWERED]
    assert wire.notices[-1][1].ranges == ((21, 21),)


def test_a_receiver_that_dies_with_a_message_in_work_is_noticed() -> None:
    """T-11: the run is reported held, so only Probes go out; they stay unanswered."""
    wire = wire_of(warn_after=3)
    wire.send(1)
    wire.exchange()
    for _ in range(10):
        wire.advance(30 * SECOND)
        wire.drop_all()
    assert len(data_of(wire, 1)) == 1
    assert wire.kinds_noticed() == [NoticeKind.UNANSWERED]


def test_what_a_dead_receiver_held_is_told_in_one_notice_when_it_was_asked_after_often_enough() -> (
    None
):
    """T-11: 20 runs are held, and each one's turn asks one question. Two rounds make 40 turns and no notice; the
    notice of the third names all 20, with as many questions as were sent."""
    wire = wire_of(warn_after=3, rto_initial_s=0.5, jitter=0.0)
    for _ in range(20):
        wire.send(1)
        wire.advance(10 * MS)
    wire.exchange()
    asked: list[int] = []
    for _ in range(3_000):
        wire.advance(10 * MS)
        wire.drop_all()
        asked.append(len(probes(wire)))
        if wire.notices:
            break
    [(_, notice)] = wire.notices
    assert (notice.kind, notice.ranges) == (NoticeKind.UNANSWERED, ((1, 20),))
    assert notice.detail.startswith(f"{asked[-2]} questions")
    assert {run.waits for run in engine_of(wire).flights.runs} <= {3, 4, 5}
    wire.advance(300 * SECOND)
    assert len(wire.notices) == 1


def test_a_route_that_comes_and_goes_does_not_hide_a_dead_receiver() -> None:
    """T-11: each time that the route is back patience begins anew; what was asked in vain counts all the same."""
    wire = wire_of(warn_after=3)
    wire.send(1)
    wire.exchange()
    for _ in range(10):
        wire.advance(50 * MS)
        wire.route_is_back()
        wire.drop_all()
    assert wire.kinds_noticed() == [NoticeKind.UNANSWERED]


def test_runs_that_are_due_together_are_told_in_one_notice() -> None:
    """T-11: a whole window of single messages is unanswered: one notice names it, as far as it is due at once."""
    wire = wire_of(warn_after=3, burst_max=64, run_max=1, jitter=0.0)
    send_all(wire, 20)
    for _ in range(20):
        wire.advance(30 * SECOND)
        wire.drop_all()
    assert [notice.ranges for _, notice in wire.notices] == [((1, 20),)]


def test_frames_that_a_sender_never_gets_are_counted() -> None:
    """P-8: an Open at the sender, and a Nack for a pipe that has none."""
    wire = Wire("resend")
    wire.send(1)
    wire.arrive_back(Open(wire.sender.tag, 0, 1, 1, 1, 1, 1, 1))
    wire.arrive_back(nack(wire, (1, 1)))
    assert wire.sender.counters()["wrong_state"] == 2


def test_what_was_taken_anew_has_room_again() -> None:
    """L-5: window and backlog were full when the epoch began anew: all of it comes back in."""
    wire = wire_of(window=10, initial_credit=4, backlog=5)
    send_all(wire, 4)
    wire.arrive_back(confirm(wire, 0))
    wire.send(*range(5, 16))
    engine = engine_of(wire)
    assert engine.room == 0
    waiting = engine.waiting()
    assert len(waiting) == 15
    engine.begin(engine.epoch + 1, 1)
    assert engine.send(waiting) == 15
    assert engine.waiting() == waiting
    assert (engine.room, engine.send([b"more"])) == (0, 0)


def test_a_hundred_thousand_messages_cost_calls_per_frame() -> None:
    """P-10: 200 frames of 500: the sender makes a bounded number of records, none per message."""
    wire = Wire({MANY: {"window": 100_000, "backlog": 100_000, "initial_credit": 100_000}})
    wire.send(*[b""] * 100_000)
    assert len(engine_of(wire).flights) == len(wire.sent) == 196
    wire.run()
    assert len(wire.confirmed) == 100_000
    assert len(wire.sent_back) < 200
