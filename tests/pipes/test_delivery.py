"""The boundary of a receiver: tickets, order, stored cursors, refusals."""

from __future__ import annotations

import random

import pytest

from surepipe.core.effects import (
    Deliver,
    Effect,
    Notice,
    NoticeKind,
    Persist,
    WriteFailed,
    WriteFenced,
    WriteStored,
    WriteUnknown,
)
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import (
    LONGEST_S,
    Boundary,
    BoundaryOptions,
    decode_state,
    given_up_in,
)
from tests.kit.wire import MS, SECOND, Wire
from tests.pipes.reliable_kit import BEFORE, COMMITTED, DURABLE, confirms

GIVES_UP = BoundaryOptions(boundary=Boundary.COMMITTED, durable=True, retries=1, dead_letters=True)
UNORDERED = ["dedupe", {"multi-unconfirmed": {"run_max": 1}}]


def linked(boundary: BoundaryOptions, layers: object = "reliable") -> Wire:
    """A wire whose deliveries and state writes are answered by hand."""
    wire = Wire(layers, boundary=boundary, auto_settle=False, auto_answer=False)  # type: ignore[arg-type]
    wire.exchange()
    return wire


def stored(wire: Wire) -> list[int]:
    """The tickets of state writes that wait for their answer."""
    return [ticket for side, ticket, _ in wire.unanswered if side == "receiver"]


def answer(wire: Wire, outcome: object) -> None:
    """Answer the oldest state write or dead letter."""
    side, ticket, _ = wire.unanswered.pop(0)
    wire.answer(side, ticket, outcome)


def cum_of(wire: Wire) -> int:
    """How far the receiver has confirmed, with everything it may still say said."""
    wire.advance(20 * MS)
    return max((frame.cum for frame in confirms(wire)), default=0)


# Boundaries.


@pytest.mark.parametrize("boundary", [Boundary.HANDED, Boundary.PROCESSED])
def test_without_a_state_a_message_is_confirmed_when_the_host_says_settled(
    boundary: Boundary,
) -> None:
    """Delivered: cum 0; settled: cum 2 (pipes K-3, P-7)."""
    wire = linked(BoundaryOptions(boundary=boundary))
    wire.send(1, 2)
    wire.exchange()
    assert cum_of(wire) == 0
    wire.settle()
    assert cum_of(wire) == 2


def test_with_a_state_it_is_confirmed_when_the_cursor_is_stored() -> None:
    """Settled by the host, state write unanswered: not confirmed; stored: confirmed (pipes P-7)."""
    wire = linked(DURABLE)
    wire.send(1, 2)
    wire.exchange()
    wire.settle()
    assert cum_of(wire) == 0
    answer(wire, WriteStored())
    assert cum_of(wire) == 2


def test_the_next_messages_are_delivered_while_a_cursor_is_being_stored() -> None:
    """One state write at a time; what is settled meanwhile goes into the next one."""
    wire = linked(DURABLE, {"reliable": {"run_max": 1}})
    wire.send(1, 2, 3)
    wire.exchange()
    wire.settle()
    wire.settle()
    assert len(stored(wire)) == 1
    answer(wire, WriteStored())
    assert cum_of(wire) == 1
    answer(wire, WriteStored())
    assert cum_of(wire) == 3


def test_before_the_delivery_stands_the_stored_cursor() -> None:
    """No Deliver until the state is stored; then it counts as settled whatever the handler does (pipes K-3)."""
    wire = linked(BEFORE)
    wire.send(1, 2)
    wire.exchange()
    assert not wire.delivered
    answer(wire, WriteStored())
    assert [(d.first, len(d.payloads)) for d in wire.delivered] == [(1, 2)]
    assert cum_of(wire) == 2
    assert wire.receiver.counters()["settled"] == 2


def test_before_never_repeats_and_may_lose_one_batch_in_a_crash() -> None:
    """Cursor stored, crash before the handler ran: 1..2 are gone, 3 follows (pipes K-3)."""
    wire = linked(BEFORE)
    wire.send(1, 2)
    wire.exchange()
    answer(wire, WriteStored())
    wire.crash_receiver()
    wire.auto_answer = wire.auto_settle = True
    wire.send(3)
    wire.run()
    assert wire.settled == [3]
    assert wire.confirmed == {1, 2, 3}


def test_committed_leaves_the_state_to_the_host_and_confirms_when_it_says_settled() -> None:
    """No Persist; state_after holds the cursor as it will be; a crash before: again; after: not (pipes K-3)."""
    wire = linked(COMMITTED)
    wire.send(1, 2, 3)
    wire.exchange()
    ticket = next(iter(wire.open))
    before = decode_state(wire.receiver.state_after(ticket, 2))
    assert before != decode_state(wire.receiver.state_after(ticket, 3))
    assert cum_of(wire) == 0
    wire.settle(2)
    assert not wire.unanswered
    assert cum_of(wire) == 2
    wire.crash_receiver()
    wire.auto_settle = True
    wire.advance(2 * SECOND)
    wire.run()
    assert wire.settled == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "wrong", "fine"),
    [
        *(
            (name, wrong, 1)
            for name in ("retries", "deliver_max", "warn_after")
            for wrong in (0, -1, True, 1.0)
        ),
        *(("retry_min_s", wrong, 0.001) for wrong in (0, -0.5, True, "1", float("nan"))),
        *(("retry_max_s", wrong, LONGEST_S - 1) for wrong in (0, LONGEST_S, float("inf"), None)),
    ],
)
def test_a_bound_that_can_not_be_meant_is_refused(name: str, wrong: object, fine: object) -> None:
    """pipes K-9: the option and its value stand in the error; the nearest sensible value is taken."""
    with pytest.raises(ConfigurationError, match=f"{name} is {wrong!r}"):
        BoundaryOptions(**{name: wrong})  # type: ignore[arg-type]
    assert getattr(BoundaryOptions(**{name: fine}), name) == fine  # type: ignore[arg-type]


def test_before_without_a_state_is_refused_when_the_machine_is_built() -> None:
    """Nothing durable to store the cursor in (pipes K-6)."""
    with pytest.raises(ConfigurationError, match="state store"):
        ReceiverStack(
            "pipe",
            parse_layers("reliable"),
            rng=random.Random(1),
            boundary=BoundaryOptions(boundary=Boundary.BEFORE),
        )


# State writes.


def test_a_receiver_whose_state_has_lost_its_store_for_good_ends() -> None:
    """It was closed: no state write can ever be done, so nothing is repeated, and a notice says why."""
    wire = linked(DURABLE)
    wire.send(1)
    wire.exchange()
    wire.settle()
    answer(wire, WriteFailed("closed under it", closed=True))
    wire.advance(300 * SECOND)
    assert not stored(wire)
    told = [(one.kind, one.detail) for end, one in wire.notices if end == "receiver"]
    why = "its state can't be stored any more, so it ends: closed under it"
    assert told[0] == (NoticeKind.UNANSWERED, why)


@pytest.mark.parametrize("outcome", [WriteUnknown(), WriteFailed("disk full")])
def test_a_state_write_is_repeated_until_it_is_stored_and_nothing_is_confirmed_before(
    outcome: object,
) -> None:
    """Five bad outcomes with growing pauses, then stored (pipes P-7). A refusal is told, once, with its reason."""
    wire = linked(DURABLE)
    wire.send(1)
    wire.exchange()
    wire.settle()
    for _ in range(5):
        answer(wire, outcome)
        assert not stored(wire)
        wire.advance(30 * SECOND)
        assert len(stored(wire)) == 1
    assert cum_of(wire) == 0
    told = [notice.detail for end, notice in wire.notices if end == "receiver"]
    refused = isinstance(outcome, WriteFailed)
    assert told == ["its state can't be stored, so nothing is confirmed: disk full"] * refused
    answer(wire, WriteStored())
    assert cum_of(wire) == 1


def test_a_receiver_whose_state_belongs_to_another_confirms_and_delivers_nothing_more() -> None:
    """Fenced on a state write: a notice, what is unsaved and waiting is refused, settled in vain."""
    wire = linked(DURABLE, {"reliable": {"run_max": 1}})
    wire.send(1, 2, 3)
    wire.exchange()
    wire.settle()
    assert len(wire.open) == 1
    answer(wire, WriteFenced(9))
    wire.settle()
    assert not wire.open
    assert not wire.unanswered
    assert wire.kinds_noticed() == [NoticeKind.FENCED]
    assert cum_of(wire) == 0
    assert wire.receiver.gauges()["in_work"] == 0
    assert wire.receiver.idle


def test_the_stored_state_holds_the_cursors_of_all_layers_in_one_record() -> None:
    """Two layers, one SaveState with two entries, outermost first (pipes K-5)."""
    wire = linked(DURABLE, ["continuous-index", "multi-unconfirmed"])
    wire.send(1, 2)
    wire.exchange()
    wire.settle()
    assert wire.saved_state is not None
    cursors = decode_state(wire.saved_state)
    assert len(cursors) == 2
    assert cursors[0] is not None


# Tickets.


def test_each_message_of_a_ticket_is_answered_once() -> None:
    """Second and unknown answers are counted and change nothing (pipes P-3)."""
    wire = linked(BoundaryOptions())
    wire.send(1, 2)
    wire.exchange()
    ticket = next(iter(wire.open))
    wire.settle()
    counts = wire.receiver.counters()["late_answer"]
    receiver, now = wire.receiver, wire.now
    assert receiver.settled(ticket, ((1, 2),), now) == []
    assert receiver.failed(ticket, 1, ("E", "e"), now) == []
    assert receiver.refused(ticket, ((1, 2),), now) == []
    assert receiver.settled(999, ((1, 1),), now) == []
    assert receiver.counters()["late_answer"] == counts + 4
    assert receiver.counters()["settled"] == 2


def test_a_failure_of_a_message_that_is_settled_already_is_a_late_answer() -> None:
    """1 settled, then failed(1) for the same ticket: counted, 2 stays open (pipes P-3)."""
    wire = linked(BoundaryOptions())
    wire.send(1, 2)
    wire.exchange()
    ticket = next(iter(wire.open))
    wire.receiver.settled(ticket, ((1, 1),), wire.now)
    wire.receiver.failed(ticket, 1, ("E", "e"), wire.now)
    assert wire.receiver.counters()["late_answer"] == 1
    wire.receiver.settled(ticket, ((2, 2),), wire.now)
    assert wire.receiver.idle


def test_the_state_of_a_closed_ticket_is_not_to_be_had() -> None:
    """state_after of an answered ticket is misuse by the host (pipes P-8)."""
    wire = linked(COMMITTED)
    wire.send(1)
    wire.exchange()
    ticket = next(iter(wire.open))
    wire.settle()
    with pytest.raises(MisuseError, match="not open"):
        wire.receiver.state_after(ticket, 1)


def test_a_delivery_is_bounded_and_the_rest_follows() -> None:
    """deliver_max 3: 1..3, 4..6, 7 (pipes P-13)."""
    wire = linked(BoundaryOptions(deliver_max=3))
    wire.send(*range(7))
    wire.exchange()
    while wire.open:
        wire.settle()
    assert [(d.first, len(d.payloads)) for d in wire.delivered] == [(1, 3), (4, 3), (7, 1)]


def test_nothing_passes_a_refused_message_in_an_ordered_pipe() -> None:
    """3 refused of 1..4 while 5..6 wait: all from 3 on come again, in order (pipes K-2)."""
    wire = linked(BoundaryOptions(deliver_max=4))
    wire.send(*range(1, 7))
    wire.exchange()
    wire.settle(2)
    wire.refuse(3)
    assert not wire.open
    wire.auto_settle = True
    wire.run()
    assert wire.settled == [1, 2, 3, 4, 5, 6]
    assert wire.confirmed == set(range(1, 7))


def test_before_can_not_give_back_what_its_cursor_has_passed() -> None:
    """Refused after the cursor was stored: it counts as settled, once, and is not delivered again."""
    wire = linked(BEFORE)
    wire.send(1, 2)
    wire.exchange()
    answer(wire, WriteStored())
    wire.refuse(1)
    wire.auto_answer = wire.auto_settle = True
    wire.send(3)
    wire.run()
    assert wire.settled == [3]
    assert wire.confirmed == {1, 2, 3}


# Closing.


def test_a_closing_delivery_gives_back_what_waits_and_takes_the_answers_that_are_due() -> None:
    """1 in work, 2..3 queued: close; 1 settles and is confirmed, 2..3 were refused (pipes P-15)."""
    wire = linked(BoundaryOptions(deliver_max=1))
    wire.send(1, 2, 3)
    wire.exchange()
    close(wire)
    assert len(wire.open) == 1
    wire.settle()
    assert wire.receiver.idle
    assert len(wire.delivered) == 1
    assert cum_of(wire) == 1


def test_a_message_that_fails_while_closing_is_given_back_and_not_tried_again() -> None:
    """No delay, no retry after close: the carrier brings it to the next incarnation (pipes P-15)."""
    wire = linked(BoundaryOptions())
    wire.send(1, 2, 3)
    wire.exchange()
    close(wire)
    wire.fail(2)
    assert wire.receiver.idle
    assert cum_of(wire) == 1
    wire.crash_receiver()
    wire.auto_settle = True
    wire.advance(2 * SECOND)
    wire.run()
    assert wire.settled == [1, 2, 3]


def close(wire: Wire) -> None:
    """Tell the receiver to deliver nothing more."""
    wire._step("receiver", lambda: wire.receiver.close(wire.now))  # pyright: ignore[reportPrivateUsage]


def test_a_late_wake_or_an_early_one_delivers_nothing_twice() -> None:
    """Woken at every millisecond around a retry: one Deliver per attempt (pipes P-4)."""
    wire = linked(BoundaryOptions(retry_min_s=0.1, jitter=0.0))
    wire.send(1)
    wire.exchange()
    wire.fail(1)
    seen: list[Effect] = []
    for _ in range(300):
        wire.now += MS
        seen += wire.receiver.wake(wire.now)
    delivered = [e for e in seen if isinstance(e, Deliver)]
    assert [d.attempt for d in delivered] == [2]
    assert not [e for e in seen if isinstance(e, Notice | Persist)]


def test_a_saved_state_is_what_a_new_incarnation_starts_from() -> None:
    """SaveState carries bytes; the next incarnation expects 3 and says so when it is opened."""
    wire = linked(DURABLE)
    wire.send(1, 2)
    wire.exchange()
    wire.settle()
    answer(wire, WriteStored())
    wire.crash_receiver()
    wire.auto_answer = wire.auto_settle = True
    wire.send(3)
    wire.run()
    assert wire.settled == [1, 2, 3]


def test_an_unordered_receiver_that_lost_its_state_gives_back_what_settles_later() -> None:
    """Two deliveries open, the first one's cursor is fenced: the second can't be confirmed either."""
    wire = linked(DURABLE, ["dedupe", {"multi-unconfirmed": {"run_max": 1}}])
    wire.send(1)
    wire.exchange()
    wire.send(2)
    wire.exchange()
    assert len(wire.open) == 2
    wire.settle()
    answer(wire, WriteFenced(9))
    wire.settle()
    assert wire.receiver.gauges()["in_work"] == 0
    assert cum_of(wire) == 0


# Answers that come in pieces.


@pytest.mark.parametrize("layers", ["strict-monotonic", "continuous-index", "dedupe"])
def test_with_before_what_follows_a_dead_letter_is_stored_and_settled_once(layers: str) -> None:
    """2 of 1..4 becomes a letter; 3..4 are delivered again, but their cursor stands: one state write, four
    settled, and nothing of them is given back when the receiver closes (pipes K-2, K-3)."""
    boundary = BoundaryOptions(boundary=Boundary.BEFORE, durable=True, retries=1, dead_letters=True)
    wire = Wire([layers, "resend"], boundary=boundary, auto_settle=False)
    wire.send(1, 2, 3, 4)
    wire.exchange()
    state = wire.saved_state
    writes = wire.effects_done["receiver"]
    wire.fail(2)
    assert [(d.first, len(d.payloads)) for d in wire.delivered] == [(1, 4), (3, 2)]
    assert wire.receiver.counters()["settled"] == 4
    assert wire.effects_done["receiver"] - writes <= 4, "no state was written again"
    assert wire.saved_state == state
    wire.close_receiver()
    wire.settle()
    wire.exchange()
    assert wire.receiver.idle
    assert wire.receiver.layers[0].gauges()["in_work"] == 0
    assert wire.confirmed == {1, 2, 3, 4}


@pytest.mark.parametrize(
    "layers", ["strict-monotonic", "continuous-index", "reliable", "resend", "sequential-confirm"]
)
def test_what_was_settled_behind_a_failed_message_is_not_delivered_again(layers: str) -> None:
    """Of 1..6 the host settles 4, then 2 fails: 2..3 and 5..6 come again, 4 does not (pipes P-3, D-1)."""
    wire = linked(BoundaryOptions(), {layers: {"run_max": 6}})
    wire.send(*range(1, 7))
    wire.exchange()
    (ticket,) = wire.open
    wire.settled.append(4)
    wire._step("receiver", lambda: wire.receiver.settled(ticket, ((4, 4),), wire.now))  # pyright: ignore[reportPrivateUsage]
    wire.fail(2)
    wire.advance(SECOND)
    while wire.open:
        wire.settle()
        wire.advance(SECOND)
    assert [(d.first, len(d.payloads)) for d in wire.delivered] == [(1, 6), (2, 2), (5, 2)]
    assert sorted(wire.settled) == [1, 2, 3, 4, 5, 6]
    assert wire.receiver.counters()["settled"] == 6
    assert wire.receiver.counters()["late_answer"] == 0


def test_several_messages_of_one_delivery_fail_and_each_has_attempts_of_its_own() -> None:
    """Unordered: 2 and 5 of 1..6 fail, 2 twice more: attempts 1, 2, 3 for 2 and 1, 2 for 5; the rest runs once
    and waits for nobody (pipes D-1)."""
    wire = linked(BoundaryOptions(jitter=0.0), [{"multi-unconfirmed": {"run_max": 6}}])
    wire.send(*range(1, 7))
    wire.exchange()
    wire.fail(2)
    wire.fail(5)
    wire.settle()
    assert sorted(wire.settled) == [1, 3, 4, 6]
    failing = {2: 2}
    for _ in range(6):
        wire.advance(SECOND)
        while wire.open:
            seq = next(iter(wire.open.values())).first
            if failing.get(seq):
                failing[seq] -= 1
                wire.fail(seq)
            else:
                wire.settle()
    attempts = [
        (d.first, d.attempt) for d in wire.delivered if len(d.payloads) == 1 and d.attempt > 1
    ]
    assert sorted(attempts) == [(2, 2), (2, 3), (2, 4), (5, 2)]
    assert sorted(wire.settled) == [1, 2, 3, 4, 5, 6]


def test_a_letter_of_a_receiver_that_lost_its_state_is_given_back() -> None:
    """committed: the letter is stored after the state was fenced: its cursor can't be, so it is refused and
    nothing stays in work (storage S-9, pipes P-7)."""
    wire = linked(GIVES_UP, UNORDERED)
    for n in (1, 2):
        wire.send(n)
        wire.exchange()
    wire.fail(1)
    wire.fail(2)
    answer(wire, WriteStored())
    (_, first, _), (_, second, _) = wire.unanswered
    wire.unanswered.clear()
    wire.answer("receiver", first, WriteStored())
    answer(wire, WriteFenced(9))
    wire.answer("receiver", second, WriteStored())
    assert wire.receiver.idle
    assert wire.receiver.gauges()["in_work"] == 0
    assert cum_of(wire) == 0


def test_a_receiver_that_lost_its_state_gives_nothing_up() -> None:
    """committed: its state is fenced before it says so. No letter is written: its successor handles the message
    (storage S-9, D-2)."""
    wire = linked(GIVES_UP)
    wire.send(1, 2)
    wire.exchange()
    wire.fail(1)
    assert not wire.letters
    answer(wire, WriteFenced(9))
    wire.advance(SECOND)
    assert not wire.letters
    assert not wire.unanswered
    assert wire.receiver.idle


def test_letters_that_wait_to_be_given_up_have_their_turn() -> None:
    """committed, unordered: of six that failed the state gives up four at a time, and what comes meanwhile is
    delivered when the last is in it: each delivery would hold its state up (pipes V-5, D-2)."""
    wire = linked(GIVES_UP, UNORDERED)
    for n in range(1, 7):
        wire.send(n)
        wire.exchange()
    for n in range(1, 7):
        wire.fail(n)
    wire.send(7)
    wire.exchange()
    assert [len(wire.unanswered), len(wire.letters), len(wire.open)] == [1, 0, 0]
    answer(wire, WriteStored())
    assert [letter.seq for letter in wire.letters] == [1, 2, 3, 4]
    assert not wire.open
    for _ in range(3):
        answer(wire, WriteStored())
    while wire.unanswered:
        answer(wire, WriteStored())
    assert [letter.seq for letter in wire.letters] == [1, 2, 3, 4, 5, 6]
    assert [delivery.first for delivery in wire.open.values()] == [7]


def test_a_state_to_commit_holds_what_was_settled_without_the_host() -> None:
    """committed: a letter of the same epoch waits for its cursor to be stored; the host's own commit has it
    too, so that nothing in it stands behind a hole (pipes K-3, K-5). Until then it says that it is given up."""
    wire = linked(GIVES_UP, UNORDERED)
    wire.send(1)
    wire.exchange()
    wire.fail(1)
    answer(wire, WriteStored())
    wire.send(2)
    wire.exchange()
    (ticket,) = wire.open
    before = wire.receiver.state_after(ticket, 2)
    assert decode_state(before)[0] == [1 << 20, 2, [[2, 2]]]
    assert [letter.seq for letter in given_up_in(before, "pipe")] == [1]
    answer(wire, WriteStored())
    after = wire.receiver.state_after(ticket, 2)
    assert decode_state(after)[0] == [1 << 20, 2, [[1, 2]]]
    assert given_up_in(after, "pipe") == []


def test_what_a_host_could_not_commit_is_delivered_again_before_what_came_behind_it() -> None:
    """committed, store-outage: 1 and 2 are in work when the store is away, 3 comes meanwhile; the attempts that
    failed before are not forgotten, and the ticket that nobody committed is answered by nothing any more."""
    wire = linked(COMMITTED, "strict-monotonic")
    wire.send(1, 2)
    wire.transfer()
    wire.fail(1)
    wire.advance(SECOND)
    [ticket] = wire.open
    assert wire.open.pop(ticket).attempt == 2
    wire.send(3)
    wire.transfer()
    again = [e for e in wire.receiver.again(wire.now) if isinstance(e, Deliver)]
    assert [(e.first, list(e.payloads), e.attempt) for e in again] == [(1, [b"1", b"2"], 2)]
    assert wire.receiver.settled(ticket, ((1, 2),), wire.now) == []
    assert wire.receiver.counters()["late_answer"] == 1
    settling = wire.receiver.settled(again[0].ticket, ((1, 2),), wire.now)
    assert [e.first for e in settling if isinstance(e, Deliver)] == [3]


def test_what_a_host_could_not_commit_is_given_back_by_a_receiver_that_closes() -> None:
    """committed, store-outage: nothing is delivered any more, and nothing stays in work."""
    wire = linked(COMMITTED, "strict-monotonic")
    wire.send(1)
    wire.transfer()
    wire.close_receiver()
    assert not [e for e in wire.receiver.again(wire.now) if isinstance(e, Deliver)]
    assert wire.receiver.idle


def test_all_that_is_handed_out_is_delivered_again_in_its_order_where_order_is_kept_by_the_route() -> (
    None
):
    """committed, store-outage: a dedupe hands out what comes as it comes. 1 met the outage, 2 and 3 wait for the
    handler: all three come under new tickets, so that the old one of 2 commits nothing before 1."""
    wire = linked(COMMITTED, ["dedupe", "multi-unconfirmed"])
    for n in (1, 2, 3):
        wire.send(n)
        wire.transfer()
    old = list(wire.open)
    assert len(old) == 3
    again = [e for e in wire.receiver.again(wire.now) if isinstance(e, Deliver)]
    assert [(e.first, e.attempt) for e in again] == [(1, 1), (2, 1), (3, 1)]
    with pytest.raises(MisuseError):
        wire.receiver.state_after(old[1], 2)
    for delivery in again:
        wire.receiver.settled(delivery.ticket, ((delivery.first, delivery.first),), wire.now)
    assert wire.receiver.idle


@pytest.mark.parametrize("layers", ["strict-monotonic", "continuous-index", "dedupe"])
def test_where_nobody_sends_again_a_host_that_waits_for_room_loses_nothing(layers: str) -> None:
    """handler-failure, decision 0034: the first of 3,000 messages fails while the others come. Given frames only
    while it has room the machine drops none; given all of them at once it drops what it has no room for."""
    dropped: list[int] = []
    for waits in (True, False):
        wire = linked(BoundaryOptions(), layers)
        wire.send(*range(3000))
        while wire.to_receiver and (wire.receiver.has_room or not waits):
            wire.transfer(1)
        wire.fail(1)
        for _ in range(20_000):
            if wire.open:
                wire.settle()
            elif wire.to_receiver and (wire.receiver.has_room or not waits):
                wire.transfer(1)
            elif wire.next_deadline() is None:
                break
            else:
                wire.advance(SECOND)
        dropped.append(wire.receiver.counters()["over_limit"])
        assert (len(set(wire.settled)) == len(wire.accepted)) is waits
    assert dropped[0] == 0
    assert dropped[1] > 1000


TIGHT = [
    {"receive_window": 8},
    {"receive_window": 1},
    {"receive_window_bytes": 500},
    {"receive_window_bytes": 3, "frame_max_bytes": 1_000_000},
]


def taken_as_there_is_room(wire: Wire) -> int:
    """Give the machine frames only while it has room, and settle what it hands up; how much it dropped."""
    while wire.open or wire.to_receiver:
        if wire.to_receiver and wire.receiver.has_room:
            wire.transfer(1)
        else:
            wire.settle()
    return wire.receiver.counters()["over_limit"]


@pytest.mark.parametrize("kind", ["strict-monotonic", "continuous-index", "dedupe"])
@pytest.mark.parametrize("sizes", TIGHT, ids=str)
@pytest.mark.parametrize("where", ["both", "receiver", "below", "below, one by one"])
def test_a_window_below_a_run_loses_nothing_where_nobody_sends_again(
    kind: str, sizes: dict[str, int], where: str
) -> None:
    """no-loss, decision 0034: 3,000 messages, a receiver whose window takes less than a whole run: set so at both
    ends, at the receiver alone, or in a layer below the outermost."""
    tight: LayerText = {kind: sizes}
    layers: list[LayerText] = [kind, tight] if "below" in where else [tight]
    sender: list[LayerText] = [kind] if where == "receiver" else layers
    wire = Wire(sender, receiver_layers=layers, auto_settle=False)
    for part in range(3000) if "one" in where else ():
        wire.send(part)
    if "one" not in where:
        wire.send(*range(3000))
    assert taken_as_there_is_room(wire) == 0
    assert sorted(wire.settled) == list(range(1, 3001))
