"""The receiving half of the stream pipe, call by call against a memory store."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest

from surepipe.core.effects import Letter, NoticeKind
from surepipe.core.snapshot import export_attributes
from surepipe.core.store_requests import (
    Batch,
    CommitPosition,
    Empty,
    Entries,
    Failed,
    Gap,
    Hint,
    Identity,
    NoPosition,
    Owner,
    Position,
    ProducerOpened,
    ReadFrom,
    Retention,
    Trimmed,
    Unavailable,
)
from surepipe.errors import ConfigurationError
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions, given_up_in
from surepipe.pipes.stream.position import commit_of
from tests.kit.stream_wire import MS, SECOND, Reader, StreamWire


def reading(
    *names: object,
    hold: bool = False,
    retention: Retention | None = None,
    policy: Mapping[str, object] | None = None,
    **options: object,
) -> StreamWire:
    """A wire with these messages in the stream, each of them a page, and a reader that does not settle."""
    wire = StreamWire(
        [{"stream": {"start": "earliest", **(policy or {}), **options}}],
        auto_settle=False,
        retention=retention or Retention(),
        with_reader=False,
    )
    put(wire, *names)
    wire.hold = hold
    Reader(wire)
    return wire


def put(wire: StreamWire, *names: object, producer: str = "p", epoch: int = 1) -> None:
    """Somebody appends to the stream, one message after the other."""
    opened = wire.store.open_producer("pipe", producer, epoch, 1)
    assert isinstance(opened, ProducerOpened)
    for seq, name in enumerate(names, opened.last + 1):
        wire.store.append("pipe", producer, epoch, seq, [str(name).encode()])
    wire.do(lambda: None)


def delivered(wire: StreamWire) -> list[bytes]:
    """All payloads delivered, attempt by attempt."""
    return [payload for delivery in wire.receiver.delivered for payload in delivery.payloads]


def position(wire: StreamWire) -> int | None:
    """The committed next index."""
    stored = wire.store.get("pipe", "pipe")
    return stored.next if isinstance(stored, Position) else None


def bytes_of(*names: object) -> list[bytes]:
    """Payloads that read as their names."""
    return [str(name).encode() for name in names]


def commits(reader: Reader) -> Iterator[int]:
    """The next of each commit that the reader asked for."""
    for effect in reader.effects:
        request = getattr(effect, "request", None)
        if isinstance(request, CommitPosition):
            yield request.next


# Where a reader starts.


def test_the_start_policy_must_be_given() -> None:
    """8.8: no default, and the error says what to write."""
    with pytest.raises(ConfigurationError, match="earliest, latest or an index"):
        ReceiverStack("pipe", parse_layers("stream"), rng=random.Random(1), reverse=False)


@pytest.mark.parametrize(("start", "expected"), [("earliest", "abc"), ("latest", ""), (2, "bc")])
def test_a_reader_without_a_position_starts_where_its_policy_says(
    start: str | int, expected: str
) -> None:
    """8.8: and its place is committed before anything is read."""
    wire = reading("a", "b", "c", start=start)
    assert delivered(wire) == bytes_of(*expected)
    assert position(wire) == 4 - len(expected)
    put(wire, "d")
    if not expected:
        assert delivered(wire) == [b"d"]


def test_a_reader_that_starts_at_the_latest_does_not_start_later_after_a_crash() -> None:
    """8.8, A-18: what came between its first start and its first message is not skipped."""
    wire = reading("a", "b", start="latest")
    put(wire, "c")
    wire.receiver.crash()
    put(wire, "d")
    assert [d.payloads[0] for d in wire.receiver.delivered] == [b"c"]


def test_a_start_index_beyond_the_end_is_waited_for() -> None:
    """8.8: nothing is there yet, so nothing went back."""
    wire = reading("a", start=3)
    assert position(wire) is None
    put(wire, "b", "c", "d")
    wire.advance(10 * SECOND)
    assert delivered(wire) == bytes_of("c", "d")
    assert wire.receiver.notices == []


def test_a_reader_goes_on_where_its_position_is() -> None:
    """A-18: the next index to read is committed; nothing before it comes again."""
    wire = reading("a", "b", "c", commit="message")
    wire.receiver.settle()
    wire.receiver.settle()
    wire.receiver.crash()
    assert delivered(wire) == [b"c"]


# One read.


def test_stray_and_repeated_answers_start_no_second_read() -> None:
    """st3: an idle reader gets three: still one question open, and nothing is delivered twice."""
    wire = reading(hold=True)
    reader = wire.receiver
    reader.answer_all()
    [(wait, _)] = reader.waits.items()
    for ticket, outcome in (
        (wait - 1, Empty(1)),
        (wait - 1, Batch((Entries(1, "p", 1, 1, [b"stray"]),), 2, 2)),
        (99, Hint()),
    ):
        reader.take_answer(ticket, outcome)
    assert reader.receiver.counters()["late_answer"] == 3
    assert (reader.calls, list(reader.waits)) == ([], [wait])
    put(wire, "a")
    assert reader.asked() == ["ReadFrom"]
    ticket = reader.calls[0][0]
    reader.answer()
    reader.take_answer(wait, Hint())
    reader.take_answer(ticket, Batch((Entries(1, "p", 1, 1, [b"a"]),), 2, 2))
    assert delivered(wire) == [b"a"]
    assert reader.calls == []


def test_at_most_one_question_is_open_at_any_time() -> None:
    """8.8: over a whole run, with every answer lost once."""
    wire = reading(*range(20), hold=True, read_max=3)
    reader = wire.receiver
    wire.auto_settle = True
    for _ in range(400):
        assert len({ticket for ticket, r in reader.calls if isinstance(r, ReadFrom)}) <= 1
        if reader.calls and wire.now % 2:
            reader.lose_answer()
        elif reader.calls:
            reader.answer()
        wire.advance(300 * MS + 1)
    assert reader.payloads == bytes_of(*range(20))


def test_without_the_hint_the_reader_looks_for_itself() -> None:
    """S-7: wait is a hint only; when its answer is lost, the reader reads after a while."""
    wire = reading(hold=True)
    wire.receiver.answer_all()
    wire.receiver.waits.clear()
    put(wire, "a")
    wire.advance(10 * SECOND)
    wire.receiver.answer_all()
    assert delivered(wire) == [b"a"]


def test_an_idle_reader_asks_the_store_less_than_once_a_second() -> None:
    """R-6: nothing happens for a minute."""
    wire = reading()
    before = len(wire.receiver.effects)
    wire.advance(60 * SECOND)
    calls = [e for e in wire.receiver.effects[before:] if hasattr(e, "request")]
    assert len(calls) <= 60


def test_a_read_keeps_within_its_bounds() -> None:
    """P-9: read_max messages, read_max_bytes bytes; the next read follows when all are answered."""
    wire = reading(*"abcdef", read_max=4)
    assert delivered(wire) == bytes_of(*"abcd")
    wire.receiver.settle()
    assert delivered(wire) == bytes_of(*"abcdef")
    assert {"held": 0, "in_work": 2, "lag": 2}.items() <= wire.receiver.receiver.gauges().items()


# Commit policies.


@pytest.mark.parametrize(
    ("commit", "expected"),
    [("batch", [1, 7, 11]), (4, [1, 5, 9, 11]), ("message", [*range(1, 12)])],
)
def test_the_commit_policy_says_how_often_the_position_is_committed(
    commit: object, expected: list[int]
) -> None:
    """8.8: batch, n or message; what is left over is committed when there is nothing more to read."""
    wire = reading(*range(10), commit=commit, read_max=6)
    while wire.receiver.open:
        wire.receiver.settle()
    assert list(commits(wire.receiver)) == expected


@pytest.mark.parametrize("commit", [1, 3])
def test_no_more_than_n_are_repeated_after_a_crash(commit: int) -> None:
    """8.8: at whatever moment, in the middle of a delivery too."""
    for settled in range(8):
        wire = reading(*range(8), commit=commit)
        for _ in range(settled):
            wire.receiver.settle(count=1)
        wire.receiver.crash()
        first = int(delivered(wire)[0])
        assert settled - commit <= first <= settled


def test_a_commit_by_time_waits_for_its_time() -> None:
    """8.8: seconds; reading goes on meanwhile, and commits come at the pace that was set."""
    wire = reading(*range(6), commit=2.0, read_max=2)
    for _ in range(3):
        wire.receiver.settle()
        wire.advance(500 * MS)
    assert position(wire) == 1
    wire.advance(500 * MS)
    assert position(wire) == 7
    assert list(commits(wire.receiver)) == [1, 7]


def test_an_unanswered_commit_is_repeated_before_anything_else_is_handed_up() -> None:
    """8.8: Committing; what comes next is read meanwhile and held; the repeat of the commit is Committed."""
    wire = reading("a", "b", hold=True, read_max=1)
    reader = wire.receiver
    reader.answer_all()
    reader.settle()
    assert reader.asked() == ["CommitPosition", "ReadFrom"]
    reader.lose_answer()
    reader.answer()
    assert delivered(wire) == bytes_of("a")
    wire.advance(2 * SECOND)
    assert reader.asked() == ["CommitPosition"]
    reader.answer()
    assert position(wire) == 2
    assert delivered(wire) == bytes_of("a", "b")


def test_a_commit_is_not_held_up_by_the_read_beside_it() -> None:
    """8.8: the commit's answer comes first, the read stays open, and its entries are handed up at once."""
    wire = reading("a", "b", hold=True, read_max=1)
    reader = wire.receiver
    reader.answer_all()
    reader.settle()
    reader.answer()
    assert (position(wire), reader.asked()) == (2, ["ReadFrom"])
    reader.answer()
    assert delivered(wire) == bytes_of("a", "b")


# Outages.


@pytest.mark.parametrize("is_read_first", [False, True])
def test_a_commit_that_met_an_outage_is_repeated_and_then_the_stream_is_looked_at(
    is_read_first: bool,
) -> None:
    """8.8: Unavailable while committing: again, then Locating. What was read beside it is read again."""
    wire = reading("a", "b", hold=True, read_max=1)
    reader = wire.receiver
    reader.answer_all()
    reader.settle()
    if is_read_first:
        reader.answer(at=1)
    reader.answer(outcome=Unavailable())
    late = [] if is_read_first else [reader.answer()]  # of a question that was given up
    assert all(isinstance(request, ReadFrom) for request in late)
    wire.advance(SECOND)
    asked: list[str] = []
    while reader.calls:
        asked += reader.asked()
        reader.answer()
    assert asked == ["CommitPosition", "DescribeStream", "IdentifyEntry", "ReadFrom"]
    assert delivered(wire) == bytes_of("a", "b")


def test_after_an_outage_the_anchor_is_checked_before_reading_on() -> None:
    """8.8, S-12: Unavailable, then info and identify, then the read."""
    wire = reading("a", hold=True)
    reader = wire.receiver
    reader.answer_all()
    reader.settle()
    reader.answer()
    put(wire, "b")
    assert reader.asked() == ["ReadFrom"]
    reader.answer(outcome=Unavailable())
    assert reader.calls == []
    asked: list[str] = []
    wire.advance(SECOND)
    while reader.calls:
        asked += reader.asked()
        reader.answer()
    assert asked == ["DescribeStream", "IdentifyEntry", "ReadFrom"]
    assert delivered(wire) == bytes_of("a", "b")


def test_every_call_survives_unavailable() -> None:
    """S-1: each is asked again after a pause, whatever it was; nothing is skipped or repeated."""
    wire = reading("a", "b", "c", hold=True, read_max=1)
    reader = wire.receiver
    refused: set[str] = set()
    wire.auto_settle = True
    for _ in range(300):
        if reader.calls:
            kind = reader.asked()[0]
            reader.answer(outcome=None if kind in refused else Unavailable())
            refused.add(kind)
        wire.advance(100 * MS)
    assert refused == {
        *("ClaimReader", "GetPosition", "DescribeStream", "IdentifyEntry"),
        *("ReadFrom", "CommitPosition"),
    }
    assert reader.payloads == bytes_of("a", "b", "c")
    assert position(wire) == 4


def test_an_outage_after_a_read_begins_with_the_first_pause() -> None:
    """S-1, T-2: pauses double within one outage; what was read ends it."""
    wire = reading("a", "b", hold=True, read_max=1, jitter=0.0)
    reader = wire.receiver
    reader.answer(outcome=Unavailable())
    wire.advance(100 * MS)
    reader.answer_all()
    reader.settle()
    assert isinstance(reader.answer(at=1, outcome=Unavailable()), ReadFrom)
    wire.advance(100 * MS)
    assert reader.asked()[-1] == "DescribeStream"


def test_a_long_outage_is_told_once() -> None:
    """T-11: with the place of the reader, which is in the stream and in no epoch."""
    wire = reading("a", hold=True)
    reader = wire.receiver
    for _ in range(200):
        if reader.calls:
            reader.answer(outcome=Unavailable())
        wire.advance(SECOND)
    [notice] = reader.notices
    assert (notice.kind, notice.epoch, notice.ranges) == (NoticeKind.UNANSWERED, 0, ((1, 1),))


def test_a_read_of_slow_messages_is_committed_each_second() -> None:
    """A-18: a read may be in work for an hour, and a crash in its last minute repeated all of it."""
    wire = StreamWire([{"stream": {"start": "earliest"}}], auto_settle=False, with_reader=False)
    wire.store.open_producer("pipe", "p", 1, 1)
    wire.store.append("pipe", "p", 1, 1, bytes_of(*range(20)))
    reader = Reader(wire)
    assert len(reader.delivered) == 1, "all twenty are one read"
    for _ in range(9):
        wire.advance(300 * MS)
        reader.settle(count=1)
    assert position(wire) == 9
    wire.advance(SECOND)
    assert position(wire) == 10


@pytest.mark.parametrize("more", [{"commit": 0.5}, {"commit": 1}])
def test_a_place_that_is_not_stored_is_told_though_reading_goes_on(
    more: Mapping[str, object],
) -> None:
    """T-11: positions have a store of their own, and each read that was answered ended the row of its failures.

    Nobody heard that the place did not move for hours, and the store was asked at the first pause all the time.
    """
    wire = reading(*range(200), hold=True, policy=more, read_max=1, jitter=0.0)
    reader = wire.receiver
    wire.auto_settle = True
    refused: list[int] = []
    for _ in range(300):
        kinds = reader.asked()
        if "CommitPosition" in kinds and position(wire) is not None:
            reader.answer(at=kinds.index("CommitPosition"), outcome=Unavailable())
            refused.append(wire.now)
        elif kinds:
            reader.answer()
        wire.advance(100 * MS)
    [notice] = reader.notices
    assert (notice.kind, "positions" in notice.detail) == (NoticeKind.UNANSWERED, True)
    pauses = [later - earlier for earlier, later in pairwise(refused)]
    assert pauses[:4] == [100 * MS, 200 * MS, 400 * MS, 800 * MS]


@pytest.mark.parametrize("answered", range(5))
def test_a_store_that_never_answers_is_told_once(answered: int) -> None:
    """T-11: whatever it was asked: the owner, the position, the stream, an entry, a read, or to store a place."""
    wire = reading("a", hold=True)
    reader = wire.receiver
    wire.auto_settle = True
    for _ in range(answered):
        reader.answer()
    for _ in range(200):
        wire.advance(SECOND)
    assert [notice.kind for notice in reader.notices] == [NoticeKind.UNANSWERED]


def test_a_claim_whose_answer_was_lost_does_not_fence_the_claimer() -> None:
    """S-2: it is asked again by the same claimant, and gets the same number."""
    wire = reading("a", hold=True)
    reader = wire.receiver
    reader.lose_answer()
    wire.advance(2 * SECOND)
    ticket, _ = reader.calls[0]
    reader.answer()
    reader.take_answer(ticket, Owner(1))
    reader.answer_all()
    reader.settle()
    reader.answer_all()
    assert reader.notices == []
    assert position(wire) == 2


def test_a_failure_for_good_stops_the_reader_with_the_reason() -> None:
    """S-1: loud, and nothing more is asked."""
    wire = reading("a", hold=True)
    wire.receiver.answer(outcome=Failed("no such stream"))
    [notice] = wire.receiver.notices
    assert notice.kind is NoticeKind.STALLED
    assert "no such stream" in notice.detail
    assert wire.receiver.deadline is None


# Failing handlers, refusals.


def test_a_failing_message_is_tried_again_and_what_follows_waits() -> None:
    """st5: e3 fails twice: three attempts of e3, then e4 and e5, one delivery each."""
    wire = reading(*(f"e{n}" for n in range(1, 6)))
    wire.receiver.failing[b"e3"] = 2
    wire.auto_settle = True
    wire.receiver.handle()
    wire.advance(5 * SECOND)
    attempts = [d.payloads[0] for d in wire.receiver.delivered if d.attempt > 1]
    assert attempts == [b"e3", b"e3"]
    assert wire.receiver.payloads == bytes_of("e1", "e2", "e3", "e4", "e5")
    assert position(wire) == 6


def test_refused_messages_are_read_again_after_a_pause() -> None:
    """K-2: the cursor steps back to the first of them; what stood before stays settled."""
    wire = reading("a", "b", "c", "d")
    wire.receiver.settle(count=2)
    wire.receiver.refuse()
    assert delivered(wire) == bytes_of(*"abcd")
    wire.advance(SECOND)
    assert delivered(wire) == bytes_of(*"abcd", *"cd")
    wire.receiver.settle()
    assert position(wire) == 5


def test_a_message_that_is_always_refused_is_told() -> None:
    """O-3: Stalled with its index, once; it is never skipped."""
    wire = reading("a", "b")
    for _ in range(10):
        wire.receiver.refuse()
        wire.advance(60 * SECOND)
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.STALLED, ((1, 1),))]
    wire.receiver.settle()
    assert position(wire) == 3


# Trimmed, reset, diverged.


def trimmed(**options: object) -> StreamWire:
    """A reader at 2 whose entries 2 and 3 are trimmed by force."""
    wire = reading("a", "b", "c", "d", retention=Retention(force=True), read_max=1, policy=options)
    wire.receiver.settle()
    wire.receiver.stop()
    assert wire.store.trim("pipe", 4) == Trimmed(4, ("pipe",))
    Reader(wire)
    return wire


def test_a_reader_whose_entries_were_trimmed_stops_with_the_range() -> None:
    """st4: the default."""
    wire = trimmed()
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.TRIMMED, ((2, 3),))]
    assert delivered(wire) == []
    assert wire.receiver.deadline is None
    assert position(wire) == 2


def test_a_reader_may_skip_what_was_trimmed() -> None:
    """st4: with on_trimmed skip: the same notice first, then the earliest that is left."""
    wire = trimmed(on_trimmed="skip")
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.TRIMMED, ((2, 3),))]
    assert delivered(wire) == [b"d"]
    assert position(wire) == 4


def made_anew(**options: object) -> StreamWire:
    """A reader at 3; the stream is deleted, made again, and has entries again."""
    wire = reading("a", "b", policy=options)
    wire.receiver.settle()
    wire.store.delete("pipe")
    wire.create()
    put(wire, "x", "y", "z")
    wire.advance(10 * SECOND)
    return wire


def test_a_stream_made_anew_stops_its_reader() -> None:
    """S-7: Reset with what it had read; index 3 of the new stream is not index 3 of the old one."""
    wire = made_anew()
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.RESET, ((1, 2),))]
    assert delivered(wire) == bytes_of("a", "b")


def test_a_reader_may_start_over_in_a_stream_made_anew() -> None:
    """S-9: its position moves back to 1 under the new tag, and stays there after a restart."""
    wire = made_anew(on_reset="earliest")
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.RESET, ((1, 2),))]
    assert delivered(wire) == bytes_of("a", "b", "x", "y", "z")
    wire.receiver.settle()
    assert position(wire) == 4
    put(wire, "w")
    wire.receiver.crash()
    assert delivered(wire) == [b"w"]
    assert wire.receiver.notices == []


def went_back(grown: int, *, running: bool, **options: object) -> StreamWire:
    """A reader at 6 of a stream that went back to 3 entries and has grown by others since."""
    wire = reading("a", "b", "c", policy=options)
    wire.receiver.settle()
    older = wire.store.snapshot()
    put(wire, "d", "e")
    wire.receiver.settle()
    kept = wire.store.get("pipe", "pipe")
    if not running:
        wire.receiver.stop()
    wire.store.roll_back(older)
    assert isinstance(kept, Position)
    wire.store.commit(
        CommitPosition("pipe", "pipe", kept.owner, kept.tag, kept.next, kept.anchor, kept.state)
    )
    put(wire, *range(grown), producer="q")
    if not running:
        Reader(wire)
    return wire


@pytest.mark.parametrize(
    ("grown", "gone"), [(0, (4, 5)), (1, (5, 5)), (2, (5, 5)), (3, (5, 5)), (9, (5, 5))]
)
def test_a_store_that_went_back_and_grew_again_is_noticed_at_the_start(
    grown: int, gone: tuple[int, int]
) -> None:
    """st7, S-12: also when the stream has grown past the position: the anchor is another entry."""
    wire = went_back(grown, running=False)
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.DIVERGED, (gone,))]
    assert delivered(wire) == []


def test_a_store_that_went_back_is_noticed_while_reading() -> None:
    """S-7: Ahead, before the stream has grown past the reader."""
    wire = went_back(0, running=True)
    wire.advance(10 * SECOND)
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.DIVERGED, ((4, 5),))]


@pytest.mark.parametrize("grown", [2, 3, 9])
def test_a_store_that_went_back_and_grew_again_is_noticed_while_the_reader_waits(
    grown: int,
) -> None:
    """S-7, S-12: no call failed, and there is nothing odd but the entry before the one that it waits for."""
    wire = went_back(grown, running=True)
    wire.advance(10 * SECOND)
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.DIVERGED, ((5, 5),))]
    assert delivered(wire) == bytes_of("a", "b", "c", "d", "e")


def test_a_reader_that_waits_reads_all_again_where_the_store_went_back() -> None:
    """S-9: told to begin at the earliest, it has read everything that stands there, and tells once."""
    wire = went_back(3, running=True, on_diverged="earliest")
    wire.advance(10 * SECOND)
    wire.receiver.settle()
    wire.receiver.settle()
    assert wire.receiver.kinds_noticed() == [NoticeKind.DIVERGED]
    before, again = bytes_of("a", "b", "c", "d", "e"), bytes_of("a", "b", "c", 0, 1, 2)
    assert delivered(wire) == before + again


def test_a_store_that_went_back_in_an_outage_is_noticed_after_it() -> None:
    """st7: it grew past the position before the reader could see it; the anchor check after Unavailable tells."""
    wire = went_back(0, running=True)
    wire.hold = True
    put(wire, *range(9), producer="q")
    assert wire.receiver.asked() == ["ReadFrom"]
    wire.receiver.answer(outcome=Unavailable())
    wire.advance(SECOND)
    wire.receiver.answer_all()
    assert [(n.kind, n.ranges) for n in wire.receiver.notices] == [(NoticeKind.DIVERGED, ((5, 5),))]


def test_a_reader_may_start_over_where_the_store_went_back() -> None:
    """S-9: the position goes back under a new tag; a restart finds it, and does not diverge again."""
    wire = went_back(3, running=False, on_diverged="earliest")
    assert wire.receiver.kinds_noticed() == [NoticeKind.DIVERGED]
    assert delivered(wire) == bytes_of("a", "b", "c")
    wire.receiver.settle()
    wire.receiver.settle()
    assert position(wire) == 7
    put(wire, "w", producer="q")
    wire.receiver.crash()
    assert delivered(wire) == [b"w"]
    assert wire.receiver.notices == []


# Owners.


def test_the_older_of_two_readers_of_one_name_is_fenced_at_its_next_commit() -> None:
    """st8, S-9: its position is not moved, it says what it could not commit, and it reads no more."""
    wire = reading("a", "b", "c", read_max=2)
    old = wire.receiver
    Reader(wire)
    assert delivered(wire) == bytes_of("a", "b")
    old.settle()
    assert [(notice.kind, notice.epoch, notice.ranges) for notice in old.notices] == [
        (NoticeKind.FENCED, 0, ((1, 2),))
    ]
    assert old.deadline is None
    assert position(wire) == 1
    wire.receiver.settle()
    wire.receiver.settle()
    assert position(wire) == 4
    assert wire.receiver.payloads == bytes_of("a", "b", "c")


def test_answers_of_a_handler_after_the_reader_stopped_are_harmless() -> None:
    """P-8: the delivery was open when the commit by time was fenced."""
    wire = reading("a", "b", "c", "d", read_max=2, commit=0.5)
    old = wire.receiver
    old.settle()
    Reader(wire)
    wire.advance(SECOND)
    assert old.kinds_noticed() == [NoticeKind.FENCED]
    old.settle()
    assert (old.calls, old.waits, old.deadline) == ([], {}, None)


# Several producers.


def test_runs_of_several_producers_keep_the_order_of_the_stream() -> None:
    """S-4: each run under its own producer's identity, split where the producer changes."""
    wire = reading()
    for name in "abc":
        put(wire, f"p{name}", producer="p", epoch=7)
        put(wire, f"q{name}", producer="q", epoch=9)
    while wire.receiver.open:
        wire.receiver.settle()
    assert wire.receiver.payloads == bytes_of("pa", "qa", "pb", "qb", "pc", "qc")
    assert {(d.producer, d.epoch, d.first) for d in wire.receiver.delivered} == {
        *(("p", 7, seq) for seq in (1, 2, 3)),
        *(("q", 9, seq) for seq in (1, 2, 3)),
    }
    assert position(wire) == 7


def test_producers_with_epochs_of_one_number_are_in_work_together() -> None:
    """K-2: an answer names the producer, too, so all four entries are handed up at once, in their order."""
    wire = reading(hold=True)
    for name in "ab":
        put(wire, f"p{name}", producer="p")
        put(wire, f"q{name}", producer="q")
    wire.receiver.answer_all()
    assert wire.receiver.receiver.gauges()["in_work"] == 4
    seen: list[tuple[str, list[bytes]]] = []
    while wire.receiver.open:
        delivery = next(iter(wire.receiver.open.values()))
        seen.append((delivery.producer, list(delivery.payloads)))
        wire.receiver.settle()
    wire.receiver.answer_all()
    assert seen == [("p", [b"pa"]), ("q", [b"qa"]), ("p", [b"pb"]), ("q", [b"qb"])]
    assert position(wire) == 5


def test_what_is_refused_of_one_producer_is_read_again_and_not_what_another_one_numbered_so() -> (
    None
):
    """K-2, S-7: q's message 1 of epoch 1 is refused; p's is settled, and committed behind."""
    wire = reading(hold=True)
    for name in "pqr":
        put(wire, name, producer=name)
    wire.receiver.answer_all()
    wire.receiver.settle()
    wire.receiver.refuse()
    wire.receiver.answer_all()
    assert position(wire) == 2
    wire.advance(SECOND)
    while wire.receiver.calls or wire.receiver.open:
        wire.receiver.answer_all()
        wire.receiver.settle()
        wire.receiver.answer_all()
    assert wire.receiver.payloads == bytes_of(*"pqr")
    assert position(wire) == 4


def test_an_answer_for_one_producer_does_not_commit_the_entry_of_another() -> None:
    """K-2: message 1 of epoch 1 of p is settled; that of q, with the same numbers, comes after the crash."""
    wire = reading(commit="batch")
    wire.receiver.stop()
    put(wire, "pa", producer="p")
    put(wire, "qa", producer="q")
    Reader(wire)
    wire.receiver.settle()
    wire.receiver.crash()
    while wire.receiver.open:
        wire.receiver.settle()
    assert wire.receiver.payloads[-1] == b"qa"


def test_poison_of_two_producers_gives_two_letters_with_names_of_their_own() -> None:
    """D-2, D-3: both are message 1 of epoch 1; the name of the producer tells the letters apart."""
    poison = BoundaryOptions(retries=2, dead_letters=True)
    wire = StreamWire(boundary=poison, with_reader=False)
    put(wire, "bad p", producer="p")
    put(wire, "bad q", producer="q")
    reader = Reader(wire)
    reader.failing = {b"bad p": 9, b"bad q": 9}
    wire.advance(10 * SECOND)
    letters = [effect.letter for effect in reader.letters]
    assert [(x.producer, x.epoch, x.seq, x.payload) for x in letters] == [
        ("p", 1, 1, b"bad p"),
        ("q", 1, 1, b"bad q"),
    ]
    assert position(wire) == 3


def test_what_is_given_up_of_one_producer_stays_so_when_the_other_settles_the_same_number() -> None:
    """committed: a former receiver gave up message 1 of epoch 1 of p, and it is q's 1 of epoch 1 that crosses the
    boundary now (decision 0040)."""
    boundary = BoundaryOptions(
        boundary=Boundary.COMMITTED, durable=True, retries=2, dead_letters=True
    )
    wire = StreamWire(boundary=boundary, with_reader=False, auto_settle=False)
    put(wire, "a", producer="q")
    reader = Reader(wire)
    reader.machine.delivery.restore(
        [Letter("pipe", 0, 1, 1, b"", 2, 0, 0, "ValueError", "boom", producer="p")]
    )
    reader.answer_all()
    (ticket,) = reader.open
    state = reader.machine.state_after(ticket, 1)
    assert [(one.producer, one.epoch, one.seq) for one in given_up_in(state, "pipe")] == [
        ("p", 1, 1)
    ]


# Layers without order.


def test_what_is_settled_out_of_order_moves_the_position_when_the_hole_is_closed() -> None:
    """8.6 over 8.8: two deliveries are open at once; the later one is settled first."""
    wire = StreamWire(["dedupe", {"stream": {"start": "earliest"}}], auto_settle=False)
    wire.hold = True
    wire.receiver.answer_all()
    wire.sender.answer_all()
    for name in "abc":
        wire.send(name)
        wire.sender.answer_all()
    wire.receiver.answer_all()
    first, second, third = wire.receiver.open
    wire.receiver.settle(third)
    wire.receiver.settle(second)
    assert position(wire) == 1
    assert wire.receiver.calls == []
    wire.receiver.settle(first)
    wire.receiver.answer_all()
    assert position(wire) == 4


def test_refused_messages_between_settled_ones_are_the_only_ones_read_again() -> None:
    """K-2: what is settled above the refused one is skipped when it is read once more."""
    wire = StreamWire(["dedupe", {"stream": {"start": "earliest"}}], auto_settle=False, hold=True)
    wire.receiver.answer_all()
    wire.sender.answer_all()
    for name in "abc":
        wire.send(name)
        wire.sender.answer_all()
    wire.receiver.answer_all()
    first, second, third = wire.receiver.open
    wire.receiver.settle(third)
    wire.receiver.settle(first)
    wire.receiver.refuse(second)
    wire.receiver.answer_all()
    assert position(wire) == 2
    wire.advance(SECOND)
    wire.receiver.answer_all()
    assert delivered(wire) == bytes_of(*"abcb")
    wire.receiver.settle()
    wire.receiver.answer_all()
    assert position(wire) == 4


# The end.


def test_a_closing_reader_commits_what_is_settled_and_reads_no_more() -> None:
    """P-15: what is in work may still be answered; it is committed too."""
    wire = reading("a", "b", "c", "d", read_max=3, commit=100)
    wire.receiver.settle(count=1)
    wire.receiver.close()
    assert position(wire) == 2
    ticket = next(iter(wire.receiver.open))
    wire.receiver.step(lambda: wire.receiver.receiver.settled(ticket, ((2, 3),), wire.now))
    assert position(wire) == 4
    wire.advance(60 * SECOND)
    assert delivered(wire) == bytes_of("a", "b", "c")


def test_an_idle_reader_that_closes_asks_nothing_more() -> None:
    """P-15: not even when the wait is answered late."""
    wire = reading()
    wire.receiver.close()
    assert wire.receiver.deadline is None
    put(wire, "a")
    assert wire.receiver.calls == []
    assert delivered(wire) == []


# Totality.


def test_frames_mean_nothing_to_a_stream() -> None:
    """P-8: exactly one counter changes, and nothing else."""
    wire = reading("a")
    before = export_attributes(wire.receiver.receiver.layers[0])
    wire.receiver.step(lambda: wire.receiver.receiver.frame(b"nonsense", wire.now))
    counters = wire.receiver.receiver.counters()
    assert counters["malformed"] + counters["version"] == 1
    assert export_attributes(wire.receiver.receiver.layers[0]) == before


def test_an_outcome_that_does_not_fit_is_no_answer() -> None:
    """S-1: treated as Unavailable: the question stays open and is asked again."""
    wire = reading("a", hold=True)
    reader = wire.receiver
    wire.auto_settle = True
    nonsense = ("nonsense", NoPosition(), Gap(1), None)
    for outcome in nonsense:
        for _ in range(40):
            if reader.calls and not isinstance(reader.calls[0][1], ReadFrom):
                break
            if reader.calls:
                reader.answer()
            wire.advance(SECOND)
        if reader.calls and not reader.asked()[0].startswith(("GetPosition", "Commit")):
            ticket, request = reader.calls.pop(0)
            reader.take_answer(ticket, outcome)
            assert request is not None
    wire.hold = False
    reader.answer_all()
    wire.advance(60 * SECOND)
    assert reader.payloads == [b"a"]


def test_a_state_names_its_commit() -> None:
    """S-10, K-5: commit_of gives the request that stores a state with its position."""
    wire = reading("a", "b", "c")
    reader = wire.receiver
    ticket = next(iter(reader.open))
    state = reader.receiver.state_after(ticket, 2)
    assert commit_of(state) == CommitPosition(
        "pipe", "pipe", 1, 1001, 3, Identity("p", 1, 2), state, None, 2
    )
    newer = reader.receiver.state_after(ticket, 2)
    assert commit_of(newer).revision == 3, "a state that is asked for later is a newer one"
    with pytest.raises(ValueError, match="no position in a stream"):
        commit_of(b"[null]")


@pytest.mark.parametrize("is_newer", [True, False])
def test_of_a_stored_state_and_the_position_the_further_one_counts(is_newer: bool) -> None:
    """S-10: the state of a crashed life tells of b, and the store of positions of nothing; then the other way."""
    wire = reading("a", "b", "c", "d", read_max=2)
    former = wire.receiver
    state = former.receiver.state_after(next(iter(former.open)), 2 if is_newer else 1)
    if not is_newer:
        former.settle()
        wire.advance(SECOND)
    assert position(wire) == (1 if is_newer else 3)
    former.stop()

    class Restored(Reader):
        def build(self) -> ReceiverStack:
            rng, layers = random.Random(2), parse_layers(self.layers)
            life = wire.receiver_life
            return ReceiverStack("pipe", layers, rng=rng, reverse=False, life=life, state=state)

    Restored(wire, former.layers)
    assert delivered(wire) == bytes_of("c", "d")


def test_no_lag_is_told_before_the_end_of_the_stream_is_known() -> None:
    """S-9: a reader that goes on at 3 has asked for its position, and not yet how long the stream is."""
    wire = reading("a", "b")
    former = wire.receiver
    former.settle()
    wire.advance(SECOND)
    assert position(wire) == 3
    former.stop()
    wire.hold = True
    reader = Reader(wire, former.layers)
    lags: dict[str, int] = {}
    while reader.asked()[0] != "ReadFrom":
        lags[reader.asked()[0]] = reader.receiver.gauges()["lag"]
        reader.answer()
    assert "DescribeStream" in lags
    assert set(lags.values()) == {0}
