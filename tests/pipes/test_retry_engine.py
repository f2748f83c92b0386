"""The retry engine, rule by rule (pipes T-1 to T-11)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from surepipe.effects import NoticeKind
from surepipe.pipes.frames import Confirm, Data, Nack, Open
from surepipe.pipes.retry import RetrySender
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.retry_kit import (
    assert_quiet,
    data_of,
    nacks,
    probes,
    send_all,
    spans,
)

MANY = "multi-unconfirmed"


def wire_of(**options: object) -> Wire:
    """multi-unconfirmed with single-message frames, nothing settled unless told."""
    return Wire({MANY: {"run_max": 1, **options}}, auto_settle=False)


def engine_of(wire: Wire) -> RetrySender:
    """The sending half."""
    [layer] = wire.sender.layers
    assert isinstance(layer, RetrySender)
    return layer


def confirm(wire: Wire, cum: int, **fields: object) -> Confirm:
    """A Confirm as the receiver would send it, with some fields changed."""
    engine = engine_of(wire)
    values: dict[str, object] = {
        "link": engine.link,
        "incarnation": wire.receiver.incarnation,
        "epoch": engine.epoch,
        "done": (),
        "held": (),
        "limit": cum + 1024,
        "echo": 0,
        **fields,
    }
    return Confirm(wire.sender.tag, 0, cum=cum, **values)  # type: ignore[arg-type]


def nack(wire: Wire, *missing: tuple[int, int]) -> Nack:
    """A Nack of the current link."""
    engine = engine_of(wire)
    head = (wire.sender.tag, 0, engine.link, wire.receiver.incarnation, engine.epoch)
    return Nack(*head, missing)


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
        ({"receive_window": 4, "initial_credit": 2}, 4),
    ):
        wire = wire_of(**options)
        wire.send(*[b"0123456789"] * 20)
        wire.advance(10 * MS)
        wire.exchange()
        assert len(spans(wire)) == expected


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
    quiet = Data(*(*fields_of(asking)[:7], False, asking.payloads))
    wire.arrive(quiet)
    assert len(wire.sent_back) == 2
    ahead = Data(*(*fields_of(asking)[:4], 5, 1, 9, False, [b"5"]))
    wire.arrive(ahead)
    assert len(wire.sent_back) == 3


def fields_of(frame: Data) -> tuple[object, ...]:
    """The fields of a frame in order."""
    return tuple(getattr(frame, name) for name in Data.__slots__)


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


def test_a_nack_of_what_is_settled_or_never_sent_sends_nothing() -> None:
    """T-7: beyond next: impossible; settled: nothing new."""
    wire = wire_of()
    send_all(wire, 3)
    wire.arrive_back(confirm(wire, 2))
    wire.advance(200 * MS)
    sent = len(wire.sent)
    wire.arrive_back(nack(wire, (2, 4)))
    assert wire.sender.counters()["impossible"] == 1
    wire.arrive_back(nack(wire, (1, 2)))
    assert wire.sender.counters()["repeated_confirm"] == 1
    assert len(wire.sent) == sent


def test_a_nack_sends_the_named_part_of_a_run_again() -> None:
    """T-7: 4..6 of a run of 10, and the deadline of the rest stays."""
    wire = Wire(MANY, auto_settle=False)
    wire.send(*range(1, 11))
    wire.to_receiver.clear()
    wire.advance(200 * MS)
    wire.arrive_back(nack(wire, (4, 6)))
    assert spans(wire)[1:] == [(4, 6)]
    runs = [(run.first, run.last, run.waits) for run in engine_of(wire).flights.runs]
    assert runs == [(1, 3, 1), (4, 6, 1), (7, 10, 1)]


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


def test_unanswered_is_noticed_once_for_each_run() -> None:
    """T-11: two runs, warn_after 3: two notices, however long it lasts."""
    wire = wire_of(warn_after=3, rto_initial_s=0.5, rto_max_s=2.0, jitter=0.1)
    wire.send(1)
    wire.advance(50 * MS)
    wire.send(2)
    wire.advance(120 * SECOND)
    unanswered = [n.ranges for _, n in wire.notices if n.kind == NoticeKind.UNANSWERED]
    assert sorted(unanswered) == [((1, 1),), ((2, 2),)]


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


def test_frames_that_a_sender_never_gets_are_counted() -> None:
    """P-8: an Open at the sender, and a Nack for a pipe that has none."""
    wire = Wire("resend")
    wire.send(1)
    wire.arrive_back(Open(wire.sender.tag, 0, 1, 1, 1, 1, 1, 1))
    wire.arrive_back(nack(wire, (1, 1)))
    assert wire.sender.counters()["wrong_state"] == 2


def test_what_was_taken_anew_has_room_again() -> None:
    """L-5: window and backlog were full when the epoch began anew: all of it comes back in."""
    wire = wire_of(window=10, initial_credit=10, backlog=5)
    send_all(wire, 15, batch=15)
    engine = engine_of(wire)
    assert engine.room == 0
    waiting = engine.waiting()
    assert len(waiting) == 15
    engine.begin(engine.epoch + 1, 1)
    assert engine.send(waiting) == 15
    assert engine.waiting() == waiting
    assert engine.send([b"more"]) == 0


def test_a_hundred_thousand_messages_cost_calls_per_frame() -> None:
    """P-10: 200 frames of 500: the sender makes a bounded number of records, none per message."""
    wire = Wire({MANY: {"window": 100_000, "backlog": 100_000, "initial_credit": 100_000}})
    wire.send(*[b""] * 100_000)
    assert len(engine_of(wire).flights) == len(wire.sent) == 196
    wire.run()
    assert len(wire.confirmed) == 100_000
    assert len(wire.sent_back) < 200


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
