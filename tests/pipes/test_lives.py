"""Lives, epochs and restarts of a pipe, rule by rule (pipes L-1 to L-11)."""

from __future__ import annotations

import random
from itertools import product

import pytest

from surepipe.core.effects import (
    AppendRows,
    JournalContents,
    JournalRows,
    NoteTransmitted,
    NoticeKind,
    OpenLife,
    Persist,
    Reject,
    RejectReason,
    Renumber,
    Renumbered,
    WriteFenced,
    WriteStored,
)
from surepipe.errors import CompositionError
from surepipe.guarantees import derive, hops
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.kinds.reliable import CLOSED_MAX
from surepipe.pipes.stack.agreement import stack_digest
from surepipe.pipes.stack.assembled import SenderStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.wire.frames import Data, Open, Opened, Refused, RefusedReason, Unknown
from tests.kit.journal import MemoryJournal
from tests.kit.wire import SECOND, Faults, Wire
from tests.pipes.reliable_kit import (
    COMMITTED,
    DURABLE,
    assert_all_confirmed,
    counted,
    data,
    noticed,
    openeds,
    opens,
    talk,
)

RELIABLE = parse_layers("reliable")


def sender(hint: int, contents: JournalContents | None = None) -> SenderStack:
    """A sender on its own."""
    return SenderStack("pipe", RELIABLE, rng=random.Random(hint), life_hint=hint, journal=contents)


def open_frame(wire: Wire, life: int, epoch: int, *, base: int = 1, link: int = 0) -> Open:
    """An Open as a sender of this pipe would write it."""
    digest = stack_digest(RELIABLE)
    return Open(wire.receiver.tag, 0, life, link or life * 100 + epoch, epoch, base, base, digest)


def data_frame(wire: Wire, opened: Open, first: int, *payloads: bytes, base: int = 1) -> Data:
    """A Data frame of the link that this Open made."""
    return Data(
        wire.receiver.tag, 0, opened.link, opened.epoch, first, base, 1, False, list(payloads)
    )


def arrive_from_a_stranger(wire: Wire, opened: Open, count: int) -> None:
    """Another sender opens an epoch and has so many messages settled; the wire keeps no trace of it."""
    wire.accepted.append(b"x")
    wire.positions.update({(opened.epoch, seq): 1 for seq in range(1, count + 1)})
    wire.arrive(opened)
    wire.arrive(data_frame(wire, opened, 1, *[b"x"] * count))
    wire.drop_all()
    wire.accepted.clear()
    wire.positions.clear()
    wire.settled.clear()


def journaled(
    boundary: BoundaryOptions | None = None, options: dict[str, object] | None = None
) -> Wire:
    """A pipe with a journal."""
    return Wire(
        {"reliable": options or {}},
        boundary=boundary or BoundaryOptions(),
        journal=MemoryJournal(),
    )


def lives_of(wire: Wire) -> list[tuple[int, int, int]]:
    """(life, epoch, base) of the Opens, each link once."""
    links: dict[int, tuple[int, int, int]] = {}
    for frame in opens(wire):
        links.setdefault(frame.link, (frame.life, frame.epoch, frame.base))
    return list(links.values())


# L-1, L-2: the number of a life.


@pytest.mark.parametrize(("hint", "last", "life"), [(70, 5, 70), (3, 90, 94), (90, 90, 181)])
def test_a_life_number_is_above_the_journals_and_not_below_the_hint(
    hint: int, last: int, life: int
) -> None:
    """The hint, or when the clock went back above the last by what was drawn by chance (pipes L-1)."""
    effects = sender(hint, JournalContents(last_life=last)).wake(0)
    assert [e.write for e in effects if isinstance(e, Persist)] == [OpenLife(life)]


@pytest.mark.parametrize("late", [0, 1])
def test_two_lives_that_read_one_journal_at_once_never_share_a_number(late: int) -> None:
    """1. The clock is set back. 2. A life reads the journal and hangs. 3. Its successor reads the same. 4. Each of
    them writes its number, the late one last: one of the two is refused from then on (pipes L-1, L-2)."""
    journal = MemoryJournal(life=90)
    hints = (3, 4)
    opening = [
        write.write
        for hint in hints
        for write in sender(hint, journal.contents()).wake(0)
        if isinstance(write, Persist)
    ]
    lives = [open_.life for open_ in opening if isinstance(open_, OpenLife)]
    order = (1 - late, late)
    outcomes = [journal.write(opening[at]) for at in order]
    writes = [journal.write(AppendRows(lives[at], 1, [b"x"])) for at in order]
    assert len(set(lives)) == 2
    assert outcomes[0] == WriteStored()
    assert writes.count(WriteStored()) == 1
    assert writes.count(WriteFenced(max(lives))) == 1


def test_nothing_is_transmitted_before_the_journal_has_the_life_number() -> None:
    """The answer to OpenLife is held back: no frame until it comes (pipes L-2)."""
    wire = Wire("reliable", journal=MemoryJournal(), auto_answer=False)
    wire.send(1)
    wire.advance(5 * SECOND)
    assert not wire.sent
    wire.answer(*wire.unanswered.pop(0))
    assert [frame.life for frame in opens(wire)] == [1 << 20]


def test_a_former_life_can_not_write_to_the_journal_any_more() -> None:
    """The old sender's append is fenced, its messages are rejected, it stops (pipes L-2, L-7)."""
    wire = journaled()
    wire.exchange()
    old = wire.sender
    wire.crash_sender()
    persists = [e for e in old.send([b"late"], wire.now) if isinstance(e, Persist)]
    assert wire.journal is not None
    outcome = wire.journal.write(persists[0].write)
    effects = old.answer(persists[0].ticket, outcome, wire.now)
    assert Reject(RejectReason.STOPPED, 1) in effects
    assert Reject(RejectReason.STOPPED, 1) in old.send([b"later"], wire.now)
    assert old.room == 0


# L-3, L-4, L-6: what a new life sends, and in which order.


def test_without_a_journal_a_new_life_starts_with_nothing() -> None:
    """Five lost in the backlog, five more: only those arrive, in an epoch of their own (pipes L-3)."""
    wire = Wire("reliable")
    wire.send(*range(5))
    wire.crash_sender()
    wire.send(*range(5))
    wire.run()
    assert wire.settled == [6, 7, 8, 9, 10]


def test_with_a_journal_the_older_epoch_goes_first_under_its_own_identities() -> None:
    """Frames lost, sender restarted, more sent: epoch by epoch, numbers unchanged (pipes L-3)."""
    wire = journaled()
    wire.exchange()
    wire.send(1, 2, 3)
    wire.drop_all()
    wire.crash_sender()
    wire.send(4, 5)
    wire.run()
    first, second = 1 << 20, 2 << 20
    assert lives_of(wire) == [(first, first, 1), (second, first, 1), (second, second, 1)]
    sent = [(f.epoch, f.first, len(f.payloads)) for f in data(wire)]
    assert sent == [(first, 1, 3), (first, 1, 3), (second, 1, 2)]
    assert_all_confirmed(wire)


def test_the_next_epoch_waits_until_the_journal_has_noted_the_end_of_the_former() -> None:
    """All of the old epoch confirmed, ForgetRows unanswered: no Open of the new one (pipes L-4)."""
    wire = journaled()
    wire.exchange()
    wire.send(1, 2)
    wire.drop_all()
    wire.crash_sender()
    wire.send(3)
    wire.auto_answer = False
    wire.exchange()
    assert wire.confirmed == {1, 2}
    wire.advance(5 * SECOND)
    old = 1 << 20
    assert {frame.epoch for frame in opens(wire)} == {old}
    held = [answer for answer in wire.unanswered if answer[0] == "sender"]
    assert held
    wire.auto_answer = True
    wire.answer(*held[0])
    wire.run()
    assert [frame.epoch for frame in opens(wire)][-1] == 2 << 20
    assert_all_confirmed(wire)


def test_the_journal_is_told_what_is_confirmed_late_but_never_early() -> None:
    """At each step the position in the journal is at most what is confirmed (pipes L-6)."""
    wire = journaled(options={"run_max": 3, "window": 8})
    journal = wire.journal
    assert journal is not None

    def check() -> None:
        epoch, through = journal.confirmed
        if epoch:
            assert {wire.positions[epoch, seq] for seq in range(1, through + 1)} <= wire.confirmed

    wire.send(*range(50))
    wire.run(each_step=check)
    assert journal.confirmed == (1 << 20, 50)
    assert not journal.rows


# L-5: numbering again.


def test_rows_of_an_epoch_never_transmitted_are_numbered_again_in_one_write() -> None:
    """Stored, not noted as transmitted, crash: the next life takes them as its own 1..3 (pipes L-5)."""
    journal = MemoryJournal()
    journal.write(OpenLife(7))
    journal.write(AppendRows(7, 1, [b"a", b"b", b"c"]))
    wire = Wire("reliable", journal=journal)
    wire.send(b"d")
    wire.run()
    assert {(f.epoch, f.first) for f in data(wire)} <= {(1 << 20, 1), (1 << 20, 4)}
    assert wire.settled == [1, 2, 3, 4]
    assert [wire.accepted[p - 1] for p in wire.settled] == [b"a", b"b", b"c", b"d"]
    assert_all_confirmed(wire)


def test_an_epoch_is_noted_as_transmitted_before_its_first_message_leaves() -> None:
    """NoteTransmitted unanswered: no Data; a crash then numbers again, later ones don't (pipes L-5)."""
    wire = Wire("reliable", journal=MemoryJournal(), auto_answer=False)
    wire.answer(*wire.unanswered.pop(0))
    wire.exchange()
    wire.send(1)
    wire.answer(*wire.unanswered.pop(0))
    wire.advance(SECOND)
    assert wire.accepted == [b"1"]
    assert not data(wire)
    wire.answer(*wire.unanswered.pop(0))
    assert len(data(wire)) == 1


def test_only_the_epochs_after_the_last_transmitted_one_are_numbered_again() -> None:
    """Epoch 5 was transmitted, epoch 6 was not: 5 keeps its numbers, 6 becomes ours (pipes L-5)."""
    contents = JournalContents(
        6, (JournalRows(5, 3, [b"c"]), JournalRows(6, 1, [b"d", b"e"])), transmitted=5
    )
    machine = sender(100, contents)
    effects = machine.wake(0)
    ticket = next(e.ticket for e in effects if isinstance(e, Persist))
    effects = machine.answer(ticket, _stored(), 0)
    writes = [e.write for e in effects if isinstance(e, Persist)]
    moved = Renumbered(6, 1, 2, 100, 1)
    assert writes == [Renumber(100, [b"d", b"e"], (6,), by=100, moved=(moved,))]
    assert machine.unconfirmed() == [(6, ((1, 2),)), (5, ((3, 3),))]


def _stored() -> object:
    return MemoryJournal().write(NoteTransmitted(1))


def test_an_own_epoch_that_is_in_use_is_left_for_a_higher_one() -> None:
    """Opened says expected 4 for an epoch in which nothing was sent yet: numbered again (pipes L-5)."""
    wire = Wire("reliable")
    mine = opens(wire)[0]
    wire.drop_all()
    stranger = open_frame(wire, mine.life, mine.epoch)
    arrive_from_a_stranger(wire, stranger, 3)
    wire.send(1, 2)
    wire.run()
    assert lives_of(wire) == [(mine.life, mine.epoch, 1), (mine.life + 1, mine.epoch + 1, 1)]
    assert wire.settled == [1, 2]
    assert wire.confirmed == {1, 2}


# L-7: fences.


def test_a_sender_refused_before_it_was_ever_answered_takes_a_higher_life() -> None:
    """The receiver serves a life far above (the clock went back): ours goes above it (pipes L-7)."""
    for journal in (None, MemoryJournal()):
        wire = Wire("reliable", journal=journal)
        wire.arrive(open_frame(wire, 9 << 20, 9 << 20))
        wire.to_sender.clear()
        wire.send(1, 2, 3)
        wire.run()
        assert lives_of(wire)[-1][0] == (9 << 20) + 1
        assert_all_confirmed(wire)
        assert wire.receiver.counters()["fenced"] == 1
        if journal:
            assert journal.life == (9 << 20) + 1


def test_of_two_senders_alive_the_older_is_stopped_and_names_what_is_unconfirmed() -> None:
    """The newer one links; the older one's Data is Unknown, its Open is Refused, it stops (pipes rl7)."""
    wire = Wire("reliable")
    wire.send(1, 2)
    wire.run()
    old, old_epoch = wire.sender, 1 << 20
    wire.crash_sender()
    wire.send(5, 6)
    wire.run()
    effects = talk(wire, old, old.send([b"3", b"4"], wire.now))
    assert [e for e in effects if isinstance(e, Persist)] == []
    notices = [e for e in effects if getattr(e, "kind", None) is NoticeKind.FENCED]
    assert [(n.epoch, n.ranges) for n in notices] == [(old_epoch, ((3, 4),))]  # type: ignore[union-attr]
    assert Reject(RejectReason.STOPPED, 1) in old.send([b"x"], wire.now)
    assert old.wake(wire.now + 100 * SECOND) == []
    assert wire.settled == [1, 2, 3, 4]
    wire.send(7)
    wire.run()
    assert wire.settled == [1, 2, 3, 4, 5]


def test_with_a_journal_the_newer_sender_takes_over_what_the_older_had_not_got_confirmed() -> None:
    """The zombie still sends what the journal holds; it all arrives once (pipes rl7, L-2)."""
    wire = journaled(COMMITTED)
    wire.send(1, 2)
    wire.run()
    wire.send(3, 4)
    wire.to_receiver.clear()
    old = wire.sender
    wire.crash_sender()
    wire.send(5)
    wire.exchange()
    wire.advance(2 * SECOND)
    talk(wire, old, old.wake(wire.now))
    wire.run()
    assert_all_confirmed(wire)
    assert noticed(wire, NoticeKind.FENCED) == []


def test_a_sender_refused_while_it_sends_an_older_epoch_stops() -> None:
    """Rows of an earlier life, and the receiver knows a higher life: somebody else has them (pipes L-7)."""
    wire = journaled()
    wire.send(1)
    wire.drop_all()
    wire.crash_sender()
    wire.arrive(open_frame(wire, 9 << 20, 9 << 20))
    wire.exchange()
    assert noticed(wire, NoticeKind.FENCED)[0] == (1 << 20, ((1, 1),))
    wire.send(2)
    assert wire.rejected[-1] == Reject(RejectReason.STOPPED, 1)
    assert wire.deadline["sender"] is None


def test_frames_from_below_are_refused_with_the_highest_life_known() -> None:
    """Open of life 5 after life 9: Refused(fenced, 9), counted, nothing else changes (pipes L-7)."""
    wire = Wire("reliable")
    wire.drop_all()
    wire.arrive(open_frame(wire, 9 << 20, 9 << 20))
    wire.to_sender.clear()
    wire.arrive(open_frame(wire, 5, 5))
    refused = wire.to_sender.pop()
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.known) == (RefusedReason.FENCED, 9 << 20)
    assert wire.receiver.counters()["fenced"] == 1


# L-8: closed epochs and orphans.


def test_rows_from_before_a_life_without_journal_are_delivered_as_orphans() -> None:
    """Journal, no journal, journal: the old rows get new numbers and arrive (pipes rl8)."""
    wire = journaled()
    journal, wire_journal_life = wire.journal, 1 << 20
    wire.send(1, 2)
    wire.run()
    wire.send(3, 4, 5)
    wire.drop_all()
    wire.journal = None
    wire.crash_sender()
    wire.send(6)
    wire.run()
    assert wire.settled == [1, 2, 6]
    wire.journal = journal
    wire.crash_sender()
    wire.send(7)
    wire.run()
    assert noticed(wire, NoticeKind.ORPHANS) == [(wire_journal_life, ((3, 5),))]
    assert wire.settled == [1, 2, 6, 3, 4, 5, 7]
    assert wire.confirmed == set(range(1, 8))
    assert not wire.journal or not wire.journal.rows


def test_orphans_go_before_what_this_life_accepted_meanwhile() -> None:
    """Accepted while the old epoch is asked about: numbered behind the orphans (pipes L-5, L-8)."""
    wire = journaled()
    journal = wire.journal
    wire.send(1)
    wire.drop_all()
    wire.journal = None
    wire.crash_sender()
    wire.run()
    wire.journal = journal
    wire.crash_sender()
    wire.send(2, 3)
    assert len(wire.accepted) == 3
    wire.run()
    assert wire.settled == [1, 2, 3]
    assert_all_confirmed(wire)


def test_the_part_of_a_closed_epoch_that_was_settled_is_confirmed_and_not_sent_again() -> None:
    """Settled 1..2 of 1..4, confirms lost, another life between: orphans are 3..4 (pipes L-8)."""
    wire = journaled(options={"run_max": 2})
    journal = wire.journal
    wire.exchange()
    wire.send(1, 2, 3, 4)
    wire.transfer(1, back=0)
    wire.drop_all()
    wire.journal = None
    wire.crash_sender()
    wire.run()
    wire.journal = journal
    wire.crash_sender()
    wire.run()
    assert noticed(wire, NoticeKind.ORPHANS) == [(1 << 20, ((3, 4),))]
    assert_all_confirmed(wire)


@pytest.mark.parametrize(("boundary", "cum"), [(BoundaryOptions(), 6), (DURABLE, 0)])
def test_an_epoch_that_was_never_seen_is_closed_at_its_base_or_at_nothing(
    boundary: BoundaryOptions, cum: int
) -> None:
    """Volatile: below base it may have been settled by a former incarnation; durable: 0 (pipes L-8)."""
    wire = Wire("reliable", boundary=boundary)
    wire.drop_all()
    wire.arrive(open_frame(wire, 20, 20))
    wire.arrive(open_frame(wire, 21, 15, base=7))
    opened = openeds(wire)[-1]
    assert (opened.closed, opened.cum, opened.expected) == (True, cum, cum + 1)


def test_the_ends_of_eight_former_epochs_are_remembered_and_no_more() -> None:
    """Epochs 10..20: the last eight former ones answer closed, older ones unknown-epoch (pipes L-8)."""
    wire = Wire("reliable")
    wire.drop_all()
    for epoch in range(10, 21):
        opened = open_frame(wire, epoch, epoch)
        arrive_from_a_stranger(wire, opened, 1)
    for epoch in range(10, 20):
        wire.to_sender.clear()
        wire.arrive(open_frame(wire, 30, epoch))
        answer = wire.to_sender.pop()
        if epoch < 20 - CLOSED_MAX:
            assert isinstance(answer, Refused)
            assert answer.reason is RefusedReason.UNKNOWN_EPOCH
        else:
            assert isinstance(answer, Opened)
            assert (answer.closed, answer.cum) == (True, 1)


def test_a_sender_whose_epoch_is_not_remembered_stops() -> None:
    """Refused(unknown-epoch) for the rows of an old life: Fenced with the ranges (pipes L-8)."""
    wire = journaled()
    wire.send(1, 2)
    wire.drop_all()
    wire.crash_sender()
    link = opens(wire)[-1].link
    wire.arrive_back(
        Refused(wire.receiver.tag, 0, link, 1 << 20, RefusedReason.UNKNOWN_EPOCH, 5 << 20)
    )
    assert noticed(wire, NoticeKind.FENCED)[0] == (1 << 20, ((1, 2),))


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (RefusedReason.STACK, NoticeKind.MISMATCH),
        (RefusedReason.VERSION, NoticeKind.MISMATCH),
        (RefusedReason.UNKNOWN_EPOCH, NoticeKind.FENCED),
    ],
)
@pytest.mark.parametrize(
    "kind", ["reliable", "sequential-confirm", "continuous-index", "strict-monotonic", "dedupe"]
)
def test_whatever_a_sender_is_refused_for_stops_it_and_it_says_so(
    kind: str, reason: RefusedReason, told: NoticeKind
) -> None:
    """L-7, F-5: one rule for all kinds; nobody would ever take what a sender goes on to send after that."""
    wire = Wire(kind)
    wire.send(1)
    epoch, link = wire.sender.intake.epoch, getattr(wire.sender.layers[0], "link", 0)
    wire.arrive_back(Refused(wire.receiver.tag, 0, link, epoch, reason, epoch + 5))
    assert [notice.kind for _, notice in wire.notices] == [told]
    wire.send(2)
    assert [reject.reason for reject in wire.rejected] == ["stopped"]


@pytest.mark.parametrize("kind", ["reliable", "sequential-confirm", "continuous-index"])
def test_a_refusal_in_favour_of_a_life_that_is_not_newer_changes_nothing(kind: str) -> None:
    """L-7, P-8: a receiver refuses only for a higher life, so this one speaks of nothing that can be."""
    wire = Wire(kind)
    wire.send(1)
    epoch, link = wire.sender.intake.epoch, getattr(wire.sender.layers[0], "link", 0)
    before = wire.sender.intake.life
    wire.arrive_back(Refused(wire.receiver.tag, 0, link, epoch, RefusedReason.FENCED, epoch))
    assert wire.sender.counters()["impossible"] == 1
    assert (wire.sender.intake.life, wire.notices) == (before, [])
    wire.run()
    assert wire.settled == [1]


# L-9: changing epochs.


def test_what_is_in_work_is_settled_before_a_higher_epoch_is_opened() -> None:
    """A slow handler holds 1..2; the Open of the next life is answered when it returns (pipes L-9)."""
    wire = Wire("reliable", auto_settle=False)
    wire.exchange()
    wire.send(1, 2)
    wire.exchange()
    wire.crash_sender()
    wire.send(3)
    answered = len(openeds(wire))
    wire.exchange()
    wire.advance(3 * SECOND)
    wire.exchange()
    assert len(openeds(wire)) == answered
    wire.settle()
    wire.exchange()
    assert len(openeds(wire)) == answered + 1
    wire.settle()
    assert wire.settled == [1, 2, 3]


def test_held_messages_of_a_lower_epoch_are_dropped_and_counted() -> None:
    """2 is held while 1 is lost; the next life starts: 2 is never delivered (pipes L-9)."""
    wire = Wire({"reliable": {"run_max": 1}})
    wire.exchange()
    wire.send(1, 2)
    wire.drop()
    wire.exchange()
    assert wire.receiver.gauges()["held"] == 1
    wire.crash_sender()
    wire.send(3)
    wire.run()
    assert wire.settled == [3]
    assert wire.receiver.counters()["abandoned"] == 1


def test_held_messages_of_a_link_are_dropped_when_the_epoch_gets_a_new_link() -> None:
    """2 is held; a new link of the same epoch: 2 is dropped, and sent again (pipes L-9)."""
    wire = Wire({"reliable": {"run_max": 1}})
    wire.exchange()
    wire.send(1, 2)
    wire.drop()
    wire.exchange()
    unknown = Unknown(wire.receiver.tag, 0, opens(wire)[0].link, wire.receiver.incarnation)
    wire.arrive_back(unknown)
    wire.exchange()
    assert wire.receiver.counters()["abandoned"] == 1
    wire.run()
    assert_all_confirmed(wire)


# L-10: one side is older than the other.


def test_a_receiver_state_older_than_the_sender_knows_is_told_and_stops_nothing() -> None:
    """State set back from 6 to 3: StateRollback 4..6, then everything goes on (pipes rl5)."""
    wire = Wire("reliable", boundary=COMMITTED)
    wire.send(1, 2, 3)
    wire.run()
    older = wire.saved_state
    wire.send(4, 5, 6)
    wire.run()
    wire.saved_state = older
    wire.crash_receiver()
    wire.send(7, 8)
    wire.run()
    assert noticed(wire, NoticeKind.STATE_ROLLBACK) == [(1 << 20, ((4, 6),))]
    assert_all_confirmed(wire)


def test_a_receiver_state_that_is_gone_is_told_too() -> None:
    """State set back to nothing, the extreme case of a rollback (pipes L-10)."""
    wire = Wire("reliable", boundary=COMMITTED)
    wire.send(1, 2, 3)
    wire.run()
    wire.saved_state = None
    wire.crash_receiver()
    wire.send(4)
    wire.run()
    assert noticed(wire, NoticeKind.STATE_ROLLBACK) == [(1 << 20, ((1, 3),))]
    assert_all_confirmed(wire)


def test_a_volatile_receiver_takes_the_senders_base_without_a_word() -> None:
    """Restarted: everything below base is settled, no notice (pipes L-10)."""
    wire = Wire("reliable")
    wire.send(1, 2, 3)
    wire.run()
    wire.crash_receiver()
    wire.send(4)
    wire.run()
    assert not wire.notices
    assert_all_confirmed(wire)


def test_a_journal_set_back_loses_nothing_that_is_accepted_afterwards() -> None:
    """Snapshot with 1..5 stored, 6..9 settled after it: JournalRollback 6..9 (pipes rl4)."""
    wire = journaled(COMMITTED)
    assert wire.journal is not None
    wire.exchange()
    wire.send(1, 2, 3, 4, 5)
    snapshot = wire.journal.copy()
    wire.send(6, 7, 8, 9)
    wire.run()
    wire.journal = snapshot
    wire.crash_sender()
    wire.send(10, 11)
    wire.run()
    assert noticed(wire, NoticeKind.JOURNAL_ROLLBACK) == [(1 << 20, ((6, 9),))]
    assert_all_confirmed(wire)


def test_a_journal_set_back_behind_a_later_life_tells_what_it_does_not_know() -> None:
    """Life 2 ran after the snapshot of life 1's rows; life 3 hears closed at 5 of 3 (pipes rl4, L-10)."""
    wire = journaled(COMMITTED)
    assert wire.journal is not None
    wire.exchange()
    wire.send(1, 2, 3)
    snapshot = wire.journal.copy()
    wire.send(4, 5)
    wire.run()
    wire.crash_sender()
    wire.send(6)
    wire.run()
    wire.journal = snapshot
    wire.crash_sender()
    wire.send(7)
    wire.run()
    assert noticed(wire, NoticeKind.JOURNAL_ROLLBACK) == [(1 << 20, ((4, 5),))]
    assert noticed(wire, NoticeKind.ORPHANS) == []
    assert_all_confirmed(wire)


def test_a_journal_that_is_larger_than_what_fits_the_backlog_is_fed_as_room_frees() -> None:
    """100 rows, a backlog of 8 and a window of 4; the receiver had settled 60 of them (pipes L-3)."""
    wire = journaled(COMMITTED, {"backlog": 200, "window": 100, "initial_credit": 100})
    wire.exchange()
    wire.send(*range(100))
    while len(wire.settled) < 100 and wire.to_receiver:
        wire.transfer(1, back=0)
        wire.to_sender.clear()
    wire.layers = {"reliable": {"backlog": 8, "window": 4, "run_max": 3}}
    wire.crash_sender()
    wire.run()
    assert not noticed(wire, NoticeKind.JOURNAL_ROLLBACK)
    assert_all_confirmed(wire)


# L-11: incarnations.


def test_hints_of_a_former_incarnation_are_void_and_what_it_settled_stays_settled() -> None:
    """1..2 settled, 4 held, receiver restarted: 4 is sent again, 1..2 are not (pipes L-11)."""
    wire = Wire({"reliable": {"run_max": 1}}, boundary=COMMITTED)
    wire.exchange()
    wire.send(1, 2)
    wire.run()
    wire.send(3, 4)
    wire.drop()
    wire.exchange()
    before = len(data(wire))
    wire.crash_receiver()
    wire.run()
    again = [frame.first for frame in data(wire)[before:]]
    assert 1 not in again
    assert 2 not in again
    assert 4 in again
    assert_all_confirmed(wire)
    assert counted(wire.receiver)["settled"] == 2


def test_the_journal_forgets_lazily_and_in_order_over_lives() -> None:
    """Each ForgetRows names a later place than the one before (pipes L-6)."""
    journal = MemoryJournal()
    told: list[tuple[int, int]] = []
    wire = Wire({"reliable": {"run_max": 2}}, journal=journal)
    for life in range(4):
        wire.send(*range(life * 10, life * 10 + 10))
        wire.exchange()
        told.append(journal.confirmed)
        wire.send(b"lost")
        wire.drop_all()
        wire.crash_sender()
    wire.run()
    assert told == sorted(told)
    assert_all_confirmed(wire)


KINDS = (
    *("resend", "multi-unconfirmed", "sequential-confirm", "reliable"),
    *("strict-monotonic", "continuous-index", "dedupe"),
)
A_DAY = 86_400_000 << 20
"""How much lower lives are numbered when the clock is set back by a day."""


def composable() -> list[tuple[str, ...]]:
    """Every stack of up to three layers that the algebra lets pass, outermost layer first."""
    stacks = [kinds for depth in (1, 2, 3) for kinds in product(KINDS, repeat=depth)]
    return [kinds for kinds in stacks if _is_sound(kinds)]


def _is_sound(kinds: tuple[str, ...]) -> bool:
    try:
        derive(hops.Hop("pipe", parse_layers(kinds)))
    except CompositionError:
        return False
    return True


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_after_a_clock_was_set_back_a_day_the_new_sender_goes_on(depth: int, loss: float) -> None:
    """pipes L-7, clock-step: the carrier's answers are not the index pipe's. Three messages, a restart with a
    life of yesterday, three more: nobody stops, and over what sends again all three come."""
    stuck: list[str] = []
    for kinds in composable():
        if len(kinds) != depth:
            continue
        wire = Wire(kinds, seed=depth)
        wire.life_hint = 2 * A_DAY
        wire.crash_sender()
        wire.send(1, 2, 3)
        wire.run(Faults(loss=loss))
        wire.life_hint -= A_DAY
        wire.crash_sender()
        for number in (4, 5, 6):
            wire.send(number)
            wire.run(Faults(loss=loss))
        new = {wire.accepted[place - 1] for place in wire.settled} & {b"4", b"5", b"6"}
        if wire.sender.stopped or (wire.sender.confirms and len(new) < len("456")):
            stuck.append(f"{' over '.join(kinds)}: {wire.sender.stopped or sorted(new)}")
    assert not stuck
