from __future__ import annotations

from surepipe.actors.ends.intake import Mark, SenderMarks, Until
from surepipe.core.effects import Accepted, Ranges, Renumbered
from surepipe.errors import NotConfirmed, PipeStopped

NOTHING: list[tuple[int, Ranges]] = []


def _flush() -> Mark:
    return Mark((), 0, Until.CONFIRMED)


def _one(payload: bytes = b"x", until: Until = Until.CONFIRMED) -> Mark:
    return Mark((payload,), 1, until)


def _offer(ledger: SenderMarks, *items: bytes | Mark) -> list[bytes]:
    payloads = ledger.offering(items, 0)
    ledger.offered(len(payloads))
    return payloads


def test_a_flush_waits_for_everything_before_it_and_nothing_after() -> None:
    """Two messages, the mark, one more: done when the first two are confirmed (pipes P-14)."""
    ledger, mark = SenderMarks(), _flush()
    assert _offer(ledger, b"a", b"b", mark, b"c") == [b"a", b"b", b"c"]
    ledger.accepted(Accepted(7, 1, 3))
    assert not ledger.resolve([(7, ((1, 3),))])
    assert mark.open == ((7, 1, 2),)
    assert ledger.resolve([(7, ((3, 3),))])
    assert mark.done


def test_a_flush_names_older_epochs_too() -> None:
    """Rows of an earlier life come out of the journal first."""
    ledger, mark = SenderMarks(), _flush()
    _offer(ledger, b"a", mark)
    ledger.accepted(Accepted(9, 1, 1))
    ledger.resolve([(7, ((4, 6),)), (9, ((1, 1),))])
    assert mark.open == ((7, 4, 6), (9, 1, 1))


def test_a_flush_of_a_life_that_sent_nothing_waits_for_what_earlier_lives_left() -> None:
    """There is no message of its own to stand for."""
    ledger, mark = SenderMarks(), _flush()
    _offer(ledger, mark)
    ledger.resolve([(7, ((4, 6),))])
    assert mark.open == ((7, 4, 6),)
    ledger.resolve(NOTHING)
    assert mark.done


def test_a_message_waits_for_itself_alone() -> None:
    """In a pipe without order an earlier one may still be open."""
    ledger, mark = SenderMarks(), _one()
    _offer(ledger, b"a", mark, b"b")
    ledger.accepted(Accepted(7, 1, 3))
    assert not ledger.resolve([(7, ((1, 2),))])
    assert ledger.resolve([(7, ((1, 1), (3, 3)))])


def test_a_mark_waits_until_its_message_is_accepted() -> None:
    """With a journal acceptance comes later, in pieces."""
    ledger, early, late = SenderMarks(), _one(until=Until.ACCEPTED), _one(until=Until.ACCEPTED)
    _offer(ledger, early, late)
    assert not ledger.resolve(NOTHING)
    ledger.accepted(Accepted(7, 1, 1))
    assert ledger.resolve(NOTHING)
    assert early.done
    assert not late.done


def test_rejected_messages_fail_their_marks_and_give_their_place_to_the_next() -> None:
    """The journal refuses the second of two; a third takes its number (pipes P-6)."""
    ledger, first, second, third = SenderMarks(), _one(), _one(), _one()
    _offer(ledger, first, second)
    ledger.rejected(1, PipeStopped("no journal"))
    _offer(ledger, third)
    ledger.accepted(Accepted(7, 1, 2))
    ledger.resolve([(7, ((2, 2),))])
    assert first.done
    assert isinstance(second.error, PipeStopped)
    assert third.open == ((7, 2, 2),)


def test_a_mark_follows_its_message_to_a_new_number() -> None:
    """Renumbered into a higher life (pipes L-5)."""
    ledger, mark = SenderMarks(), _one()
    _offer(ledger, b"a", b"b", mark)
    ledger.accepted(Accepted(7, 1, 3))
    ledger.renumbered(Renumbered(7, 2, 2, 9, 1))
    ledger.resolve([(9, ((1, 2),))])
    assert mark.open == ((9, 2, 2),)
    assert ledger.resolve([(9, ((1, 1),))])


def test_the_marks_of_a_dead_sender_fail_with_what_is_known() -> None:
    """They name what was open when it was last looked at."""
    ledger, mark = SenderMarks(), _flush()
    _offer(ledger, b"a", mark)
    ledger.accepted(Accepted(7, 1, 1))
    ledger.resolve([(7, ((1, 1),))])
    ledger.fail("gone")
    assert isinstance(mark.error, NotConfirmed)
    assert mark.error.ranges == ((7, 1, 1),)
    assert ledger.marks == []


def test_a_mark_nobody_waits_for_any_more_is_dropped() -> None:
    """Its caller ran out of time."""
    ledger, mark = SenderMarks(), _flush()
    _offer(ledger, b"a", mark)
    mark.abandoned = True
    ledger.resolve([(7, ((1, 1),))])
    assert ledger.marks == []
