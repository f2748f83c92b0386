"""The sending half of the stream pipe, call by call against a memory store."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest

from surepipe.core.effects import Notice, NoticeKind, RejectReason
from surepipe.core.snapshot import export_attributes
from surepipe.core.store_requests import (
    AppendRun,
    Failed,
    FencedOut,
    Full,
    Gap,
    Retention,
    Unavailable,
)
from tests.kit.journal import MemoryJournal
from tests.kit.stream_wire import MS, SECOND, StreamWire, Writer


def held(**options: object) -> StreamWire:
    """A wire whose sender has opened; its calls wait for verbs. The reader is not there."""
    layers = [{"stream": {"run_max": 2, **options}}]
    wire = StreamWire(layers, hold=True, with_reader=False)
    wire.sender.answer()
    return wire


def state_of(wire: StreamWire) -> object:
    """Everything the sending layer knows."""
    return export_attributes(wire.sender.sender.layers[0])


def ranges_of(notices: list[Notice]) -> list[tuple[NoticeKind, object]]:
    """What was noticed, and of which messages."""
    return [(notice.kind, notice.ranges) for notice in notices]


def test_appends_are_cut_into_runs_and_at_most_four_are_under_way() -> None:
    """8.8: eleven messages in runs of two; the fifth run waits until an append is answered."""
    wire = held()
    wire.send(*range(11))
    runs = [request for _, request in wire.sender.calls]
    assert [(run.first, len(run.payloads)) for run in runs if isinstance(run, AppendRun)] == [
        (1, 2),
        (3, 2),
        (5, 2),
        (7, 2),
    ]
    gauges = wire.sender.sender.gauges()
    assert (gauges["in_flight"], gauges["backlog"]) == (8, 3)
    wire.sender.answer()
    assert len(wire.sender.calls) == 4
    wire.sender.answer_all()
    assert wire.stored() == [str(n).encode() for n in range(11)]
    assert wire.confirmed == set(range(1, 12))


def test_a_run_keeps_within_its_bytes() -> None:
    """P-9: frame_max_bytes bounds an append, and one message above it goes alone."""
    wire = held(run_max=512, frame_max_bytes=10)
    wire.send(b"x" * 6, b"y" * 6, b"z" * 50, b"a", b"b")
    wire.sender.answer_all()
    assert [len(page) for page in wire.stored()] == [6, 6, 50, 1, 1]
    assert wire.sender.sender.counters()["transmitted"] == 5


def test_all_answers_of_the_first_round_are_lost() -> None:
    """st1, S-5: everything is asked again at its deadline and stored once, in order."""
    wire = held()
    wire.send(*range(8))
    for _ in range(4):
        wire.sender.lose_answer()
    assert wire.confirmed == set()
    wire.advance(2 * SECOND)
    assert len(wire.sender.calls) >= 4
    wire.sender.answer_all()
    assert wire.stored() == [str(n).encode() for n in range(8)]
    assert wire.confirmed == set(range(1, 9))
    assert wire.sender.sender.counters()["retransmitted"] >= 8


def test_all_calls_of_the_first_round_are_lost() -> None:
    """st1: they were never done; asked again they are done, in order."""
    wire = held()
    wire.send(*range(8))
    for _ in range(4):
        wire.sender.lose_call()
    wire.advance(2 * SECOND)
    wire.sender.answer_all()
    assert wire.stored() == [str(n).encode() for n in range(8)]
    assert wire.confirmed == set(range(1, 9))


def test_an_unanswered_append_is_asked_again_at_its_own_deadline() -> None:
    """st2: answers to later appends, and messages sent meanwhile, do not put it off."""
    wire = held()
    wire.send(1, 2)
    deadline = wire.sender.deadline
    assert deadline is not None
    assert deadline <= 1.1 * SECOND
    wire.sender.lose_answer()
    for name in range(3, 9):
        wire.advance(100 * MS)
        wire.send(name)
        wire.sender.answer()
    assert wire.sender.deadline == deadline
    assert wire.sender.calls == []
    wire.advance(deadline - wire.now)
    assert [request for _, request in wire.sender.calls] == [
        AppendRun("pipe", "pipe", 1 << 20, 1, [b"1", b"2"])
    ]
    wire.sender.answer()
    assert [wire.sender.deadline, *wire.sender.calls] == [None]
    assert wire.stored() == [str(n).encode() for n in range(1, 9)]


def test_a_lost_append_shows_as_a_gap_and_is_filled() -> None:
    """8.8: Gap drops what is under way, asks the store what it has, and goes on from there."""
    wire = held()
    wire.send(*range(8))
    wire.sender.lose_call()
    wire.sender.answer()
    assert wire.sender.asked() == ["AppendRun", "AppendRun", "OpenProducer"]
    wire.sender.answer(2)
    wire.sender.answer_all()
    assert wire.stored() == [str(n).encode() for n in range(8)]
    assert wire.confirmed == set(range(1, 9))


def test_late_and_repeated_answers_change_nothing() -> None:
    """P-3, P-8: an answer to a forgotten or answered call is counted and ignored."""
    wire = held()
    wire.send(1, 2)
    ticket, _ = wire.sender.calls[0]
    wire.sender.answer()
    before = state_of(wire)
    for outcome in (Unavailable(), FencedOut(9), Full("x"), Failed("x"), "nonsense"):
        wire.sender.take_answer(ticket, outcome)
    wire.sender.take_answer(999, FencedOut(9))
    assert wire.sender.sender.counters()["late_answer"] == 6
    assert state_of(wire) == before
    assert wire.sender.kinds_noticed() == []


def test_after_an_outage_the_store_is_asked_what_it_has() -> None:
    """8.8, R-6: Unavailable leads to Opening after a pause that doubles, with the same identities."""
    wire = held(jitter=0.0)
    wire.send(1, 2)
    wire.sender.answer(outcome=Unavailable())
    pauses: list[int] = []
    for _ in range(4):
        assert wire.sender.calls == []
        assert wire.sender.deadline is not None
        pauses.append(wire.sender.deadline - wire.now)
        wire.advance(pauses[-1])
        assert wire.sender.asked() == ["OpenProducer"]
        wire.sender.answer(outcome=Unavailable())
    assert pauses == [200 * MS, 400 * MS, 800 * MS, 1600 * MS]
    assert wire.sender.kinds_noticed() == [NoticeKind.UNANSWERED]
    wire.advance(30 * SECOND)
    wire.sender.answer_all()
    assert wire.stored() == [b"1", b"2"]
    assert wire.confirmed == {1, 2}


def runs_asked(wire: StreamWire) -> list[tuple[int, Sequence[bytes]]]:
    """The appends that wait for an answer."""
    found = [request for _, request in wire.sender.calls]
    return [(run.first, run.payloads) for run in found if isinstance(run, AppendRun)]


@pytest.mark.parametrize("stored", [3, 4, 5, 6])
def test_what_a_store_has_beyond_an_append_is_not_asked_for_again(stored: int) -> None:
    """st9, L-7: a process that this one replaced appends its rows, too, so an answer goes beyond what was asked.

    The place of the next append stayed behind what was confirmed and gone: it was cut from the end of what waits,
    other payloads under these numbers or none, and an append of nothing was asked again and again.
    """
    wire = held(calls_max=1)
    wire.send(*range(6))
    wire.store.append("pipe", "pipe", 1 << 20, 1, [str(n).encode() for n in range(stored)])
    wire.sender.answer()
    rest = [str(n).encode() for n in range(stored, 6)]
    assert runs_asked(wire) == ([(stored + 1, rest[:2])] if rest else [])
    wire.sender.answer_all()
    assert wire.stored() == [str(n).encode() for n in range(6)]
    assert wire.confirmed == set(range(1, 7))


def test_a_full_stream_that_got_the_run_meanwhile_is_not_asked_for_it_again() -> None:
    """st9: Full is answered to the first append after the answer to the second told that the store has both."""
    wire = held()
    wire.send(*range(6))
    wire.store.append("pipe", "pipe", 1 << 20, 1, [b"0", b"1"])
    wire.sender.answer(1)
    wire.sender.answer(0, outcome=Full("entries"))
    wire.sender.lose_call()
    assert wire.confirmed == {1, 2, 3, 4}
    wire.advance(SECOND // 2)
    assert runs_asked(wire) == [(5, [b"4", b"5"])]
    wire.sender.answer_all()
    assert wire.stored() == [str(n).encode() for n in range(6)]


def test_an_opening_that_finds_more_in_the_store_ends_the_row_of_failures() -> None:
    """8.8: a store with room for one run takes the first, and its Gap for the next comes before that answer.

    The pause doubled although the store took a run each time: a full stream that was read all the time took one
    run in rto_max.
    """
    wire = held(run_max=1, calls_max=2, jitter=0.0)
    wire.send(*range(8))
    pauses: list[int] = []
    for stored in range(1, 8):
        wire.sender.lose_answer()
        wire.sender.answer(outcome=Gap(stored + 1))
        pauses.append(0 if wire.sender.calls else (wire.sender.deadline or wire.now) - wire.now)
        wire.advance(pauses[-1])
        wire.sender.answer()
        assert wire.confirmed == set(range(1, stored + 1))
    assert pauses == [0] * 7
    assert wire.sender.kinds_noticed() == []
    wire.sender.answer_all()
    assert wire.stored() == [str(n).encode() for n in range(8)]


def test_openings_that_find_nothing_new_come_ever_more_rarely() -> None:
    """8.8: a store that says Gap again and again, and takes nothing, is not asked as fast as it answers."""
    wire = held(jitter=0.0)
    wire.send(1, 2)
    pauses: list[int] = []
    for _ in range(5):
        wire.sender.answer(outcome=Gap(1))
        pauses.append(0 if wire.sender.calls else (wire.sender.deadline or wire.now) - wire.now)
        wire.advance(pauses[-1])
        wire.sender.answer()
    assert pauses == [0, 200 * MS, 400 * MS, 800 * MS, 1600 * MS]
    assert wire.sender.kinds_noticed() == [NoticeKind.UNANSWERED]
    wire.sender.answer_all()
    assert wire.stored() == [b"1", b"2"]


def test_what_somebody_else_removed_is_told_though_the_answer_that_said_so_was_lost() -> None:
    """S-5, O-3: the repeat of the append tells it, or the opening after an outage; and it is told once."""
    for is_refused in (False, True):
        wire = held()
        wire.send(1, 2)
        wire.sender.answer()
        wire.store.remove("pipe", 1, 2)
        wire.send(3, 4)
        wire.sender.lose_answer()
        wire.send(5, 6)
        wire.sender.answer(outcome=Unavailable() if is_refused else None)
        wire.advance(2 * SECOND)
        wire.sender.answer_all()
        wire.send(7)
        wire.sender.answer(outcome=Unavailable())
        wire.advance(2 * SECOND)
        wire.sender.answer_all()
        assert wire.confirmed == set(range(1, 8))
        assert ranges_of(wire.sender.notices) == [(NoticeKind.STORE_ROLLBACK, ((1, 2),))]


def test_a_full_stream_is_asked_again_until_there_is_room() -> None:
    """S-8, P-9: nothing is lost, nothing passes the run that was refused, and the backlog pushes back."""
    wire = held(backlog=6, jitter=0.0)
    wire.send(*range(6))
    wire.sender.answer(outcome=Full("max_bytes=1"))
    assert wire.sender.sender.room == 0
    wire.send("too much")
    assert [(reject.reason, reject.count) for reject in wire.sender.rejected] == [
        (RejectReason.FULL, 1)
    ]
    wire.sender.calls.clear()
    for _ in range(3):
        assert wire.sender.deadline is not None
        wire.advance(wire.sender.deadline - wire.now)
        assert wire.sender.asked() == ["AppendRun"] * 3
        wire.sender.answer(outcome=Full("max_bytes=1"))
        wire.sender.calls.clear()
    wire.advance(SECOND)
    wire.sender.answer_all()
    assert wire.stored() == [str(n).encode() for n in range(6)]


def test_a_full_store_resumes_when_its_reader_has_read() -> None:
    """S-8: with a real bound; the reader's commits make the room."""
    wire = StreamWire(retention=Retention(max_bytes=200), auto_settle=False)
    for n in range(40):
        wire.send(b"%02d........" % n)
        wire.advance(MS)
    assert 0 < len(wire.confirmed) < 40
    wire.auto_settle = True
    wire.receiver.handle()
    wire.run(wire.all_settled_and_confirmed)
    assert wire.settled == list(range(1, 41))


def test_a_fenced_sender_that_was_heard_stops_and_says_what_is_unconfirmed() -> None:
    """L-7: a second sender of one pipe takes over; the older names its range and rejects from then on."""
    wire = held()
    wire.send(1)
    wire.sender.answer()
    old = wire.sender
    old.send(2, 3)
    Writer(wire)
    wire.sender.answer()
    old.answer()
    assert ranges_of(old.notices) == [(NoticeKind.FENCED, ((2, 3),))]
    old.send("more")
    assert old.rejected[-1].reason is RejectReason.STOPPED
    assert old.deadline is None
    assert wire.stored() == [b"1"]


def test_a_sender_that_was_never_heard_takes_a_higher_life() -> None:
    """L-7, L-1: the clock of the machine went back, so the life number is below a known one."""
    wire = StreamWire(hold=True, with_reader=False)
    wire.store.append("pipe", "pipe", 5 << 40, 1, [b"theirs"])
    wire.send("a", "b")
    wire.sender.answer_all()
    assert wire.stored() == [b"theirs", b"a", b"b"]
    assert wire.sender.sender.unconfirmed() == []
    assert wire.confirmed == {1, 2}


@pytest.mark.parametrize("theirs", [[b"theirs"], [b"theirs", b"theirs too"]])
def test_an_epoch_that_somebody_else_used_is_not_taken_for_ones_own(theirs: list[bytes]) -> None:
    """L-5: the same life number by accident; what is stored under it are not our messages."""
    wire = StreamWire(hold=True, with_reader=False)
    wire.store.append("pipe", "pipe", 1 << 20, 1, theirs)
    wire.send("a", "b")
    wire.sender.answer_all()
    assert wire.stored() == [*theirs, b"a", b"b"]
    assert wire.confirmed == {1, 2}


def test_a_refusal_for_good_stops_the_sender_with_the_reason() -> None:
    """S-1: Failed is permanent; nothing is dropped in silence."""
    wire = held()
    wire.send(1, 2)
    wire.sender.answer(outcome=Failed("no such stream"))
    [notice] = wire.sender.notices
    assert (notice.kind, notice.ranges) == (NoticeKind.STALLED, ((1, 2),))
    assert "no such stream" in notice.detail
    wire.send(3)
    assert wire.sender.rejected[-1].reason is RejectReason.STOPPED


@pytest.mark.parametrize("retain", [0, 3, 100])
def test_a_store_that_went_back_gets_again_what_is_retained(retain: int) -> None:
    """8.8, S-6: eight confirmed, five of them lost: the range is told, the kept part is appended again."""
    wire = held(retain=retain, run_max=1)
    for name in range(1, 4):
        wire.send(name)
        wire.sender.answer_all()
    older = wire.store.snapshot()
    for name in range(4, 9):
        wire.send(name)
        wire.sender.answer_all()
    wire.store.roll_back(older)
    wire.send(9)
    wire.sender.answer(outcome=Unavailable())
    wire.advance(SECOND)
    wire.sender.answer_all()
    assert ranges_of(wire.sender.notices) == [(NoticeKind.STORE_ROLLBACK, ((4, 8),))]
    gone = range(4, 9 - min(retain, 5))
    assert wire.stored() == [str(n).encode() for n in range(1, 10) if n not in gone]
    assert wire.confirmed == set(range(1, 10))
    assert wire.sender.sender.counters()["confirmed"] == 9


@pytest.mark.parametrize("retain", [0, 3, 100])
def test_a_store_that_went_back_is_told_of_though_its_first_answer_is_lost(retain: int) -> None:
    """8.8, S-6: the store says once what it lacks; the sender asked so that the answer is the same each time."""
    wire = held(retain=retain, run_max=1)
    older = wire.store.snapshot()
    for name in range(1, 6):
        wire.send(name)
        wire.sender.answer_all()
    wire.store.roll_back(older)
    wire.send(6)
    wire.sender.answer(outcome=Unavailable())
    for _ in range(2):
        wire.advance(SECOND)
        assert wire.sender.asked() == ["OpenProducer"]
        wire.sender.lose_answer()
    wire.advance(4 * SECOND)
    wire.sender.answer_all()
    assert ranges_of(wire.sender.notices) == [(NoticeKind.STORE_ROLLBACK, ((1, 5),))]
    assert wire.stored() == [str(n).encode() for n in range(6 - min(retain, 5), 7)]


def test_a_store_that_forgot_its_producer_is_told_of() -> None:
    """8.8, S-6: of a producer that it does not know a store believes everything, also one that went back."""
    wire = held(run_max=1)
    older = wire.store.snapshot()
    older.streams["pipe"].producers.clear()
    for name in range(1, 4):
        wire.send(name)
        wire.sender.answer_all()
    wire.store.roll_back(older)
    wire.send(4)
    wire.sender.answer_all()
    assert ranges_of(wire.sender.notices) == [(NoticeKind.STORE_ROLLBACK, ((1, 3),))]
    assert wire.stored() == [b"4"]
    assert wire.confirmed == {1, 2, 3, 4}


def test_a_stream_made_anew_has_lost_everything_that_was_confirmed() -> None:
    """S-6, S-7: another incarnation that never heard of the producer; the range is told all the same."""
    wire = held(retain=2, run_max=1)
    for name in range(1, 6):
        wire.send(name)
        wire.sender.answer_all()
    wire.store.crash()
    wire.create()
    wire.send(6)
    wire.sender.answer(outcome=Unavailable())
    wire.advance(SECOND)
    wire.sender.answer_all()
    assert ranges_of(wire.sender.notices) == [(NoticeKind.STORE_ROLLBACK, ((1, 5),))]
    assert wire.stored() == [b"4", b"5", b"6"]


def test_retained_messages_are_bounded() -> None:
    """P-9: a million confirmed, a hundred kept."""
    wire = held(retain=100, run_max=512)
    for _ in range(10):
        wire.send(*[b"x"] * 1000)
        wire.sender.answer_all()
    layer = wire.sender.sender.layers[0]
    assert len(layer.payloads) == 100  # type: ignore[attr-defined]
    assert layer.room == 8192


def test_a_restarted_sender_with_a_journal_appends_what_is_missing() -> None:
    """L-3, L-4: older epochs first with their own identities; what was stored is not stored again."""
    wire = StreamWire(hold=True, with_reader=False, journal=MemoryJournal())
    wire.sender.answer_all()
    wire.send("a", "b", "c")
    assert wire.sender.asked() == ["AppendRun"]
    wire.sender.lose_answer()
    wire.send("d")
    wire.sender.lose_call()
    wire.sender.crash()
    wire.send("e")
    wire.sender.answer_all()
    assert wire.stored() == [b"a", b"b", b"c", b"d", b"e"]
    assert wire.confirmed == {1, 2, 3, 4, 5}
    assert wire.journal is not None
    assert wire.journal.contents().rows == []
    counters = wire.sender.sender.counters()
    assert counters["transmitted"] == 2, "d and e: the store said that it has a to c"
    assert counters.get("retransmitted", 0) == 0


def test_a_restarted_sender_does_not_miss_what_its_former_life_saw_confirmed() -> None:
    """S-6, L-6: a and b are confirmed and forgotten, the store has them: nothing went back, nothing is told."""
    wire = StreamWire(hold=True, with_reader=False, journal=MemoryJournal())
    wire.sender.answer_all()
    wire.send("a", "b")
    wire.sender.answer_all()
    wire.send("c")
    wire.sender.lose_call()
    wire.sender.crash()
    wire.sender.answer_all()
    assert wire.stored() == [b"a", b"b", b"c"]
    assert wire.sender.notices == []


def test_a_store_that_has_more_than_an_older_journal_confirms_what_the_journal_has() -> None:
    """L-4, O-3: b is stored, and the journal went back to a: told, nothing is repeated, and c follows."""
    wire = StreamWire(hold=True, with_reader=False, journal=MemoryJournal())
    wire.sender.answer_all()
    wire.send("a")
    older = copy.deepcopy(wire.journal)
    wire.send("b")
    wire.sender.answer_all()
    wire.journal = older
    wire.sender.crash()
    wire.send("c")
    wire.sender.answer_all()
    assert ranges_of(wire.sender.notices) == [(NoticeKind.JOURNAL_ROLLBACK, ((2, 2),))]
    assert wire.stored() == [b"a", b"b", b"c"]
    assert wire.sender.sender.unconfirmed() == []


def test_a_restarted_sender_without_a_journal_starts_a_new_epoch() -> None:
    """L-3: what was not stored is lost with the process; the new life is not mixed up with the old one."""
    wire = StreamWire(hold=True, with_reader=False)
    wire.sender.answer_all()
    wire.send("a", "b")
    wire.sender.lose_call()
    wire.sender.crash()
    wire.send("c")
    wire.sender.answer_all()
    assert wire.stored() == [b"c"]
    assert wire.sender.sender.unconfirmed() == []


def test_the_backlog_is_bounded_in_messages_and_bytes() -> None:
    """P-5, P-9, V-5: what is not taken is rejected, takes no number, and a prefix is taken."""
    wire = held(backlog=5)
    wire.send(*range(8))
    assert (wire.sender.rejected[-1].reason, wire.sender.rejected[-1].count) == (
        RejectReason.FULL,
        3,
    )
    assert len(wire.accepted) == 5
    wire = held(backlog_bytes=10)
    wire.send(b"x" * 6, b"y" * 6)
    assert wire.accepted == [b"x" * 6]
    assert wire.sender.sender.room_bytes == 4
    wire.sender.answer_all()
    wire.send(b"z" * 50)
    assert wire.accepted[-1] == b"z" * 50, "a message above the whole bound goes alone"
    assert wire.sender.sender.room_bytes == 0


def test_frames_mean_nothing_to_a_stream() -> None:
    """P-8: there is no frame that a store sends."""
    wire = held()
    wire.send(1)
    before = state_of(wire)
    wire.sender.step(lambda: wire.sender.sender.frame(b"", wire.now))
    wire.sender.step(lambda: wire.sender.sender.frame(b"x" * 50, wire.now))
    counters = wire.sender.sender.counters()
    assert counters["malformed"] + counters["version"] == 2
    assert state_of(wire) == before


def test_a_wake_at_any_time_is_harmless() -> None:
    """P-4: early, doubled or without a deadline."""
    wire = held()
    wire.send(1, 2, 3)
    calls = list(wire.sender.calls)
    for _ in range(3):
        wire.sender.wake()
    assert wire.sender.calls == calls
    wire.sender.answer_all()
    wire.sender.wake()
    assert wire.sender.calls == []
