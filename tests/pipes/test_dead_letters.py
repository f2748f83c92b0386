"""Failing handlers and dead letters (pipes D-1 to D-5)."""

from __future__ import annotations

import pytest

from surepipe.core.effects import NoticeKind, WriteFailed, WriteStored, WriteUnknown
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions, given_up_in
from tests.kit.journal import MemoryJournal
from tests.kit.wire import MS, SECOND, Wire
from tests.pipes.reliable_kit import DURABLE, TwinWire, confirms, noticed

POISON = BoundaryOptions(retries=3, dead_letters=True)


def linked(boundary: BoundaryOptions, layers: object = "reliable", **more: bool) -> Wire:
    """A wire whose deliveries are answered by hand."""
    wire = Wire(layers, boundary=boundary, auto_settle=False, **more)  # type: ignore[arg-type]
    wire.exchange()
    return wire


def deliveries(wire: Wire) -> list[tuple[int, int, int]]:
    """(first, count, attempt) of each delivery."""
    return [(d.first, len(d.payloads), d.attempt) for d in wire.delivered]


def handle(wire: Wire, poison: set[int]) -> None:
    """Answer all open deliveries in order: numbers in ``poison`` fail, all others settle."""
    for _ in range(100):
        while wire.open:
            delivery = next(iter(wire.open.values()))
            numbers = range(delivery.first, delivery.first + len(delivery.payloads))
            bad = [n for n in numbers if n in poison]
            if bad:
                wire.fail(bad[0])
            else:
                wire.settle()
        wire.exchange()
        wire.advance(200 * MS)
        wire.exchange()


def test_a_poison_message_gets_its_attempts_one_letter_and_lets_the_others_pass() -> None:
    """e3 of five, retries 3: three attempts, one letter, e4 and e5 after it, all confirmed (pipes dl1)."""
    wire = linked(POISON)
    wire.send(1, 2, 3, 4, 5)
    wire.exchange()
    handle(wire, {3})
    assert deliveries(wire) == [(1, 5, 1), (3, 3, 2), (3, 3, 3), (4, 2, 1)]
    assert [letter.seq for letter in wire.letters] == [3]
    assert wire.settled == [1, 2, 4, 5]
    assert wire.confirmed == {1, 2, 3, 4, 5}
    assert wire.receiver.counters()["dead_lettered"] == 1


def test_a_letter_tells_everything_about_the_message_and_its_failures() -> None:
    """Payload, identity, pipe, layer, attempts, both times, error type and text (pipes D-3)."""
    wire = linked(POISON)
    wire.send(b"payload")
    wire.exchange()
    started = ended = wire.now
    for _ in range(3):
        wire.fail(1, ("KeyError", "'customer'"))
        ended = wire.now
        wire.advance(SECOND)
    letter = wire.letters[0]
    assert (letter.pipe, letter.layer, letter.epoch, letter.seq) == ("pipe", 0, 1 << 20, 1)
    assert (letter.payload, letter.attempts) == (b"payload", 3)
    assert (letter.first_failure_us, letter.last_failure_us) == (started, ended)
    assert (letter.error_type, letter.error_text) == ("KeyError", "'customer'")


@pytest.mark.parametrize("retries", [1, 2, 4, 5, 7])
def test_a_message_that_becomes_a_letter_is_told_however_few_its_attempts(retries: int) -> None:
    """One notice when it is a letter, and one before where it had failed warn_after times (pipes D-2, D-3)."""
    wire = linked(BoundaryOptions(retries=retries, dead_letters=True, warn_after=5))
    wire.send(1, 2, 3)
    wire.exchange()
    handle(wire, {2})
    told = [notice for _, notice in wire.notices if notice.kind is NoticeKind.POISON]
    assert [notice.ranges for notice in told] == [((2, 2),)] * (2 if retries > 5 else 1)
    times = "1 attempt, which" if retries == 1 else f"{retries} attempts, the last"
    assert told[-1].detail == f"{times} raised ValueError: boom. It is in the dead letters"


def test_nothing_is_told_of_a_letter_before_it_is_stored() -> None:
    """Its place does not answer: the message waits, and is in no dead letters."""
    boundary = BoundaryOptions(retries=1, dead_letters=True)
    wire = Wire("reliable", boundary=boundary, auto_settle=False, auto_answer=False)
    wire.exchange()
    wire.send(1)
    wire.exchange()
    wire.fail(1)
    side, ticket, _ = wire.unanswered.pop(0)
    wire.answer(side, ticket, WriteUnknown())
    wire.advance(200 * MS)
    assert noticed(wire, NoticeKind.POISON) == []
    side, ticket, _ = wire.unanswered.pop(0)
    wire.answer(side, ticket, WriteStored())
    assert len(noticed(wire, NoticeKind.POISON)) == 1


@pytest.mark.parametrize("durable", [False, True])
def test_a_crash_between_letter_and_confirm_gives_the_same_letter_again(durable: bool) -> None:
    """The letter's identity is the message's, so its store keeps one; nothing is lost (pipes dl2)."""
    boundary = BoundaryOptions(retries=1, dead_letters=True, durable=durable)
    wire = Wire(
        "reliable",
        boundary=boundary,
        auto_settle=False,
        auto_answer=False,
    )
    wire.exchange()
    wire.send(1, 2)
    wire.exchange()
    wire.fail(1)
    assert len(wire.letters) == 1
    wire.unanswered.clear()
    wire.crash_receiver()
    wire.auto_answer = True
    wire.advance(3 * SECOND)
    wire.exchange()
    handle(wire, {1})
    assert {(letter.epoch, letter.seq) for letter in wire.letters} == {(1 << 20, 1)}
    assert wire.settled == [2]
    assert wire.confirmed == {1, 2}


def test_a_letter_is_posted_again_with_pauses_that_double() -> None:
    """D-4: three answers that say nothing: after 0.1 s, 0.2 s and 0.4 s."""
    boundary = BoundaryOptions(retries=1, dead_letters=True, retry_min_s=0.1, jitter=0.0)
    wire = Wire("reliable", boundary=boundary, auto_settle=False, auto_answer=False)
    wire.exchange()
    wire.send(1)
    wire.exchange()
    wire.fail(1)
    for number, pause in enumerate((100 * MS, 200 * MS, 400 * MS), 1):
        side, ticket, _ = wire.unanswered.pop(0)
        wire.answer(side, ticket, WriteUnknown())
        wire.advance(pause - 1)
        assert len(wire.letters) == number
        wire.advance(1)
        assert len(wire.letters) == number + 1


@pytest.mark.parametrize("outcome", [WriteUnknown(), WriteFailed("unavailable")])
def test_while_the_dead_letter_store_is_down_nothing_is_confirmed_and_nothing_lost(
    outcome: object,
) -> None:
    """Down for ten seconds: the source waits, what follows waits, then all goes on (pipes dl3, D-4)."""
    wire = Wire("reliable", boundary=POISON, auto_settle=False, auto_answer=False)
    wire.exchange()
    wire.send(1, 2, 3)
    wire.exchange()
    handle(wire, {2})
    while wire.now < 30 * SECOND:
        if wire.unanswered:
            side, ticket, _ = wire.unanswered.pop(0)
            wire.answer(side, ticket, outcome)
        wire.advance(50 * MS)
        wire.exchange()
    assert max(frame.cum for frame in confirms(wire)) == 1
    assert wire.settled == [1]
    assert len(wire.letters) > 3
    assert {(letter.epoch, letter.seq) for letter in wire.letters} == {(1 << 20, 2)}
    wire.auto_answer = True
    wire.advance(40 * SECOND)
    handle(wire, {2})
    assert wire.settled == [1, 3]
    assert wire.confirmed == {1, 2, 3}


def test_attempts_count_only_for_the_message_that_ran() -> None:
    """Ten in one delivery, the seventh raises: 1..6 settled once, 7 alone has attempt 2 (pipes dl4, D-1)."""
    wire = linked(BoundaryOptions())
    wire.send(*range(1, 11))
    wire.exchange()
    wire.fail(7)
    assert wire.settled == [1, 2, 3, 4, 5, 6]
    wire.advance(200 * MS)
    assert deliveries(wire) == [(1, 10, 1), (7, 4, 2)]
    wire.settle(1)
    wire.fail(8)
    wire.advance(200 * MS)
    assert deliveries(wire)[-1] == (8, 3, 2)
    wire.settle()
    assert wire.settled == list(range(1, 11))


def test_pauses_double_from_retry_min_to_retry_max() -> None:
    """Eight failures without jitter: 0.1 0.2 0.4 0.8 1.6 2 2 2 seconds (pipes D-1)."""
    wire = linked(BoundaryOptions(retry_min_s=0.1, retry_max_s=2.0, jitter=0.0))
    wire.send(1)
    wire.exchange()
    pauses: list[int] = []
    for _ in range(8):
        wire.fail(1)
        failed = wire.now
        while not wire.open:
            wire.advance(10 * MS)
        pauses.append((wire.now - failed) // (10 * MS))
    assert pauses == [10, 20, 40, 80, 160, 200, 200, 200]


def test_without_retries_it_is_tried_for_ever_and_told_once() -> None:
    """Twelve failures, warn_after 5: one Poison notice, then it succeeds (pipes D-2)."""
    wire = linked(BoundaryOptions(warn_after=5))
    wire.send(1, 2)
    wire.exchange()
    for _ in range(12):
        wire.fail(1)
        wire.advance(60 * SECOND)
    assert noticed(wire, NoticeKind.POISON) == [(1 << 20, ((1, 1),))]
    wire.settle()
    assert wire.settled == [1, 2]
    assert not wire.letters


def test_an_ordered_pipe_waits_with_what_follows_a_failed_message() -> None:
    """While 2 waits for its second attempt, 3 and later messages are not delivered (pipes D-1)."""
    wire = linked(BoundaryOptions(retry_min_s=5.0))
    wire.send(1, 2, 3)
    wire.exchange()
    wire.fail(2)
    wire.send(4)
    wire.exchange()
    wire.advance(4 * SECOND)
    wire.exchange()
    assert wire.settled == [1]
    assert not wire.open
    wire.advance(2 * SECOND)
    while wire.open:
        wire.settle()
    assert wire.settled == [1, 2, 3, 4]


def test_an_unordered_pipe_goes_on_and_repeats_only_what_is_open() -> None:
    """2 fails of 1..5, 4 is settled already: 3 and 5 are delivered at once, 2 later (pipes D-1)."""
    wire = linked(BoundaryOptions(), "multi-unconfirmed")
    wire.send(1, 2, 3, 4, 5)
    wire.exchange()
    ticket, delivery = next(iter(wire.open.items()))
    wire._step(  # pyright: ignore[reportPrivateUsage]
        "receiver", lambda: wire.receiver.settled(ticket, ((4, 4),), wire.now)
    )
    wire.settled.append(4)
    wire.fail(2)
    assert delivery.first == 1
    assert deliveries(wire)[1:] == [(3, 1, 1), (5, 1, 1)]
    wire.settle()
    wire.settle()
    wire.advance(SECOND)
    wire.settle()
    assert wire.settled == [4, 1, 3, 5, 2]


def test_a_dead_letter_with_a_committed_boundary_has_its_cursor_stored_before_the_confirm() -> None:
    """No transaction of the host covers it: a state write does, and the next delivery waits (pipes P-7)."""
    boundary = BoundaryOptions(
        boundary=Boundary.COMMITTED, durable=True, retries=1, dead_letters=True
    )
    wire = Wire("reliable", boundary=boundary, auto_settle=False, auto_answer=False)
    wire.exchange()
    wire.send(1, 2, 3)
    wire.exchange()
    wire.fail(2)
    for letters in (0, 1):  # the state gives it up; then its letter is written
        assert len(wire.letters) == letters
        side, ticket, _ = wire.unanswered.pop(0)
        wire.answer(side, ticket, WriteStored())
        wire.advance(20 * MS)
        assert max(frame.cum for frame in confirms(wire)) == 1
        assert not wire.open
    side, ticket, _ = wire.unanswered.pop(0)
    wire.answer(side, ticket, WriteStored())
    wire.advance(20 * MS)
    assert max(frame.cum for frame in confirms(wire)) == 2
    wire.crash_receiver()
    wire.auto_answer = True
    wire.advance(3 * SECOND)
    wire.exchange()
    handle(wire, set())
    assert wire.settled == [1, 3]
    assert wire.confirmed == {1, 2, 3}
    assert not noticed(wire, NoticeKind.STATE_ROLLBACK)


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize(
    "layers", [["reliable"], ["dedupe", "multi-unconfirmed"], ["strict-monotonic", "resend"]]
)
def test_what_a_state_gives_up_is_a_letter_whatever_comes_between(
    layers: list[str], written: int
) -> None:
    """committed, receiver-crash behind the state, and behind the letter: the message comes again, and the handler
    would take it now. It isn't asked; the letter says of the failure what the state has kept (pipes D-2, D-3)."""
    boundary = BoundaryOptions(
        boundary=Boundary.COMMITTED, durable=True, retries=1, dead_letters=True
    )
    wire = Wire(layers, boundary=boundary, auto_settle=False, auto_answer=False)
    wire.exchange()
    wire.send(1, 2, 3)
    wire.exchange()
    wire.fail(2, ("KeyError", "'price'" * 100, "main/unpriced", "Traceback ..."))
    for _ in range(written):
        side, ticket, _ = wire.unanswered.pop(0)
        wire.answer(side, ticket, WriteStored())
    assert len(wire.letters) == written
    wire.unanswered.clear()
    wire.crash_receiver()
    wire.auto_answer = True
    wire.advance(3 * SECOND)
    wire.exchange()
    handle(wire, set())
    assert sorted(wire.settled) == [1, 3]
    assert wire.confirmed == {1, 2, 3}
    last = wire.letters[-1]
    assert {(letter.epoch, letter.seq) for letter in wire.letters} == {(1 << 20, 2)}
    assert (last.payload, last.attempts) == (b"2", 1)
    assert (last.error_type, last.error_text) == ("KeyError", ("'price'" * 100)[:100])
    assert (last.place, last.traceback) == ("main/unpriced", "")
    assert last.last_failure_us >= 3 * SECOND
    assert wire.saved_state is not None
    assert given_up_in(wire.saved_state, "pipe") == []


def test_what_a_state_gave_up_of_an_epoch_that_is_over_is_forgotten() -> None:
    """The sender had no journal and began anew: the message can't come again, and the state needn't know of it for
    ever (pipes V-5)."""
    boundary = BoundaryOptions(
        boundary=Boundary.COMMITTED, durable=True, retries=1, dead_letters=True
    )
    wire = Wire("reliable", boundary=boundary, auto_settle=False, auto_answer=False)
    wire.exchange()
    wire.send(1)
    wire.exchange()
    wire.fail(1)
    assert wire.saved_state is not None
    assert [letter.seq for letter in given_up_in(wire.saved_state, "pipe")] == [1]
    wire.unanswered.clear()
    wire.crash_receiver()
    wire.crash_sender()
    wire.auto_answer = True
    wire.advance(3 * SECOND)
    wire.exchange()
    wire.send(2)
    wire.exchange()
    handle(wire, set())
    assert wire.settled == [2]
    assert not wire.letters
    assert given_up_in(wire.saved_state, "pipe") == []


def test_restored_ends_go_on_with_retries_and_letters() -> None:
    """A twin takes every input while messages fail, wait and become letters (pipes P-11)."""
    boundary = BoundaryOptions(retries=2, dead_letters=True, durable=True, deliver_max=2)
    wire = TwinWire("reliable", boundary=boundary, auto_settle=False, journal=MemoryJournal())
    wire.send(*range(1, 8))
    wire.exchange()
    handle(wire, {2, 5})
    assert [letter.seq for letter in wire.letters] == [2, 5]
    assert wire.settled == [1, 3, 4, 6, 7]
    assert wire.confirmed == set(range(1, 8))
    assert wire.compared > 30


def test_a_durable_cursor_passes_a_dead_letter_too() -> None:
    """After the letter is stored and the cursor with it, a restart does not bring the message again."""
    wire = linked(BoundaryOptions(retries=1, dead_letters=True, durable=DURABLE.durable))
    wire.send(1)
    wire.exchange()
    wire.fail(1)
    wire.exchange()
    wire.crash_receiver()
    wire.send(2)
    wire.advance(3 * SECOND)
    wire.exchange()
    handle(wire, set())
    assert wire.settled == [2]
    assert wire.confirmed == {1, 2}
