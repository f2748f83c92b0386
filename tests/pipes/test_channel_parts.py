"""What an end of a channel keeps: which messages are its own, and frames that wait for it to open."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.effects import (
    Accepted,
    Confirmed,
    JournalContents,
    JournalRows,
    Notice,
    NoticeKind,
    Reject,
    RejectReason,
    Renumbered,
    Transmit,
)
from surepipe.pipes.channel import CONFIRM, MESSAGE, HeldFrames, OwnMessages
from surepipe.pipes.wire.frames import Data, Numbered

OFFERS = st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=8)
"""Whether they are the channel's own, and how many."""


def others(flags: Sequence[bool], first: int, last: int) -> set[int]:
    """The application's among the messages with these numbers; ``flags[0]`` is that of message 1."""
    return {number for number in range(first, last + 1) if not flags[number - 1]}


def offered(offers: Sequence[tuple[bool, int]]) -> tuple[OwnMessages, list[bool]]:
    """Messages of both kinds that were offered, and of each whether it is the channel's own."""
    own, flags = OwnMessages(), list[bool]()
    for is_own, count in offers:
        own.offer(count, own=is_own)
        flags += [is_own] * count
    return own, flags


def accepted(own: OwnMessages, first: int, count: int) -> set[int]:
    """What the host is told when these are accepted, in epoch 1."""
    told = [*own.told(Accepted(1, first, count))]
    return {n for each in told if isinstance(each, Accepted) for n in numbers(each)}


def numbers(told: Accepted) -> range:
    """Of messages that were accepted."""
    return range(told.first, told.first + told.count)


@given(OFFERS, st.data())
def test_the_host_is_told_of_the_messages_of_the_application_only(
    offers: list[tuple[bool, int]], data: st.DataObject
) -> None:
    """pipes P-5, C-5: the last few offered are rejected, the others accepted in pieces, then confirmed."""
    own, flags = offered(offers)
    rejected = data.draw(st.integers(0, len(flags)))
    kept = len(flags) - rejected
    told = [*own.told(Reject(RejectReason.FULL, rejected))]
    left_out = sum(not is_own for is_own in flags[kept:])
    assert told == ([Reject(RejectReason.FULL, left_out)] if left_out else [])
    assert own.refused == rejected - left_out
    done = 0
    while done < kept:
        count = data.draw(st.integers(1, kept - done))
        assert accepted(own, done + 1, count) == others(flags, done + 1, done + count)
        done += count
    assert not own.offered
    for first in range(1, kept + 1, 3):
        last = min(first + 2, kept)
        confirmed = [*own.told(Confirmed(1, ((first, last),)))]
        found = {n for each in confirmed for a, b in ranges_of(each) for n in range(a, b + 1)}
        assert found == others(flags, first, last)
        assert len(confirmed) == bool(found)
    assert own.numbers == {}


def ranges_of(effect: object) -> Sequence[tuple[int, int]]:
    """What was confirmed."""
    assert isinstance(effect, Confirmed)
    return effect.ranges


@given(OFFERS.filter(lambda offers: any(count for _, count in offers)), st.data())
def test_messages_that_are_numbered_again_stay_what_they_are(
    offers: list[tuple[bool, int]], data: st.DataObject
) -> None:
    """pipes L-5: a part gets numbers of another epoch; nothing of it is left under the former ones."""
    own, flags = offered(offers)
    first = data.draw(st.integers(1, len(flags)))
    last = data.draw(st.integers(first, len(flags)))
    shift = data.draw(st.integers(1, 20)) - first
    accepted(own, 1, len(flags))
    told = [*own.told(Renumbered(1, first, last - first + 1, 2, first + shift))]
    pairs = {
        one.first + at: one.new_first + at
        for one in told
        if isinstance(one, Renumbered)
        for at in range(one.count)
    }
    assert pairs == {number: number + shift for number in others(flags, first, last)}
    everything = range(1, len(flags) + 1)
    moved = {n + shift for n in everything if flags[n - 1] and first <= n <= last}
    left = {n for n in everything if flags[n - 1] and not first <= n <= last}
    assert own_numbers(own) == {epoch: seqs for epoch, seqs in ((1, left), (2, moved)) if seqs}


def own_numbers(own: OwnMessages) -> dict[int, set[int]]:
    """The channel's own, by epoch."""
    return {
        epoch: {n for first, last in ranges for n in range(first, last + 1)}
        for epoch, ranges in own.numbers.items()
    }


def test_rows_of_a_journal_tell_by_their_mark_whose_they_are() -> None:
    """pipes L-3: epochs 3 and 5; what is noticed later names the application's messages."""
    own = OwnMessages()
    rows = (
        JournalRows(3, 7, [MESSAGE + b"a", CONFIRM + b"x", MESSAGE, CONFIRM]),
        JournalRows(5, 1, [CONFIRM]),
    )
    own.load(JournalContents(5, rows))
    assert own_numbers(own) == {3: {8, 10}, 5: {1}}
    for kind in (NoticeKind.FENCED, NoticeKind.UNDELIVERABLE, NoticeKind.ORPHANS):
        notice = Notice(kind, 3, ((6, 10),), "of messages")
        assert [*own.told(notice)] == [Notice(kind, 3, ((6, 7), (9, 9)), "of messages")]
    other = Notice(NoticeKind.UP, 3, ((6, 10),), "of something else")
    assert [*own.told(other)] == [other]
    assert own.without(4, ((1, 2),)) == ((1, 2),)


def test_a_later_transmission_of_a_frame_that_waits_takes_its_place() -> None:
    """pipes C-2, V-5: one message of three frames; what waits is counted as it is, and goes out once, in order."""
    held = HeldFrames()
    first, second, again = (Data(1, 0, 5, 1, at, 1, 9, False, [b"%d" % at]) for at in (1, 2, 1))
    other = Numbered(1, 1, 1, 1, [b"of", b"another"])
    for frame in (first, second, again, other):
        held.add(frame)
    assert (held.messages, held.size_bytes) == (4, 11)
    assert bool(held)
    assert held.take_all() == [Transmit(again), Transmit(second), Transmit(other)]
    assert (held.messages, held.size_bytes, bool(held)) == (0, 0, False)
