"""The intake of a sender with a journal: what is accepted, when, and what the journal's answers mean."""

from __future__ import annotations

import random

import pytest

from surepipe.core.effects import (
    Accepted,
    AppendRows,
    Confirmed,
    Effect,
    ForgetRows,
    JournalContents,
    JournalRows,
    NoteTransmitted,
    Notice,
    NoticeKind,
    OpenLife,
    Persist,
    Reject,
    RejectReason,
    Renumber,
    Transmit,
    WakeAt,
    Write,
    WriteFailed,
    WriteFenced,
    WriteStored,
    WriteUnknown,
)
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.assembled import SenderStack
from surepipe.pipes.stack.journal import JournaledIntake
from surepipe.pipes.wire.frames import Confirm, Data, Open, Opened, Refused, RefusedReason
from tests.kit.journal import MemoryJournal
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.reliable_kit import (
    COMMITTED,
    TwinWire,
    assert_all_confirmed,
    assert_conserved,
    data,
    noticed,
    opens,
)

LIFE = 1 << 20


class Host:
    """A sender without a receiver, and its journal answered by hand."""

    def __init__(
        self, contents: JournalContents | None = None, options: dict[str, object] | None = None
    ) -> None:
        self.machine = SenderStack(
            "pipe",
            parse_layers({"reliable": options or {}}),
            rng=random.Random(1),
            life_hint=LIFE,
            journal=contents or JournalContents(),
        )
        self.now = 0
        self.effects: list[Effect] = []
        self.asked: list[Persist] = []
        self.take(self.machine.wake(0))

    def take(self, effects: list[Effect]) -> list[Effect]:
        """Note what the machine wants written."""
        self.effects += effects
        self.asked += [effect for effect in effects if isinstance(effect, Persist)]
        return effects

    def send(self, *payloads: bytes) -> list[Effect]:
        """Offer messages."""
        return self.take(self.machine.send(payloads, self.now))

    def answer(self, outcome: object) -> list[Effect]:
        """Answer the oldest write that is not answered."""
        return self.take(self.machine.answer(self.asked.pop(0).ticket, outcome, self.now))

    def wait(self) -> None:
        """Let time pass until something is to be written."""
        while not self.asked:
            armed = [effect.deadline for effect in self.effects if isinstance(effect, WakeAt)][-1]
            assert armed is not None
            self.now = armed
            self.take(self.machine.wake(self.now))

    def settle(self, through: int) -> list[Effect]:
        """Let the receiver take the latest offer, and settle so many messages."""
        offer = [
            effect.frame
            for effect in self.effects
            if isinstance(effect, Transmit) and isinstance(effect.frame, Open)
        ][-1]
        place = (offer.pipe, 0, offer.link, 1, offer.epoch)
        self.take(self.machine.frame(Opened(*place, 1, 0, 1 << 30, closed=False), self.now))
        confirm = Confirm(*place, through, (), (), 1 << 30, 0)
        return self.take(self.machine.frame(confirm, self.now))

    @property
    def writing(self) -> Write:
        """The one write that is under way."""
        assert len(self.asked) == 1
        return self.asked[0].write


def of(effects: list[Effect], kind: type[Effect]) -> list[Effect]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def ready() -> Host:
    """A host whose life number is stored."""
    host = Host()
    host.answer(WriteStored())
    return host


# P-6.


def test_a_message_is_neither_accepted_nor_rejected_before_its_row_is_stored() -> None:
    """Offered, written, answered: Accepted comes with the answer (pipes P-6)."""
    host = ready()
    effects = host.send(b"a", b"b")
    assert not of(effects, Accepted)
    assert not of(effects, Reject)
    assert host.machine.gauges()["backlog"] == 0
    assert not host.machine.idle
    assert host.writing == AppendRows(LIFE, 1, [b"a", b"b"])
    assert Accepted(LIFE, 1, 2) in host.answer(WriteStored())


def test_what_is_offered_while_a_write_is_under_way_is_stored_together_in_the_next() -> None:
    """Three offers during one write: one AppendRows for all of them (group commit)."""
    host = ready()
    host.send(b"a")
    for payload in (b"b", b"c", b"d"):
        assert not of(host.send(payload), Persist)
    effects = host.answer(WriteStored())
    assert Accepted(LIFE, 1, 1) in effects
    host.answer(WriteStored())
    assert [p.write for p in of(host.effects, Persist)][-1] == AppendRows(  # type: ignore[union-attr]
        LIFE, 2, [b"b", b"c", b"d"]
    )


def test_a_write_of_unknown_outcome_is_repeated_with_the_same_identity_until_it_is_known() -> None:
    """Unknown four times, with growing pauses; then stored: accepted once (pipes P-6)."""
    host = ready()
    host.send(b"a", b"b")
    first = host.writing
    pauses: list[int] = []
    for _ in range(4):
        started = host.now
        assert not of(host.answer(WriteUnknown()), Accepted)
        host.wait()
        pauses.append(host.now - started)
        assert host.writing == first
    assert pauses == sorted(pauses)
    assert 90 * MS <= pauses[0] <= 110 * MS
    effects = host.answer(WriteStored())
    assert of(effects, Accepted) == [Accepted(LIFE, 1, 2)]


def test_a_write_that_was_done_although_its_outcome_was_unknown_is_stored_once() -> None:
    """The journal does the write, the answer gets lost, the repeat finds it there (pipes P-6, S-5)."""
    wire = Wire("reliable", journal=MemoryJournal(), auto_answer=False)
    wire.answer(*wire.unanswered.pop(0))
    wire.send(1, 2)
    side, ticket, _ = wire.unanswered.pop(0)
    wire.answer(side, ticket, WriteUnknown())
    wire.auto_answer = True
    wire.run()
    assert_all_confirmed(wire)


def test_a_definite_failure_rejects_those_messages_and_all_offered_after_them() -> None:
    """Failed while three more wait: five rejected, and the numbers are given out again (pipes P-6, P-5)."""
    host = ready()
    host.send(b"a", b"b")
    host.send(b"c", b"d", b"e")
    effects = host.answer(WriteFailed("disk full"))
    assert of(effects, Reject) == [Reject(RejectReason.JOURNAL, 5, "disk full")]
    assert host.machine.counters()["rejected"] == 5
    host.send(b"f")
    assert host.writing == AppendRows(LIFE, 1, [b"f"])
    assert Accepted(LIFE, 1, 1) in host.answer(WriteStored())


def test_a_failure_after_something_was_accepted_frees_only_the_numbers_behind_it() -> None:
    """1 accepted, 2..3 rejected, the next is 2 (pipes P-5, P-6)."""
    host = ready()
    host.send(b"a")
    host.answer(WriteStored())
    while not isinstance(host.asked[0].write, NoteTransmitted):
        host.answer(WriteStored())
    host.send(b"b", b"c")
    host.answer(WriteStored())
    host.answer(WriteFailed("disk full"))
    host.send(b"d")
    assert host.writing == AppendRows(LIFE, 2, [b"d"])


@pytest.mark.parametrize("kind", [OpenLife, NoteTransmitted, ForgetRows, Renumber])
def test_what_is_offered_while_another_write_is_refused_is_rejected_with_what_the_journal_said(
    kind: type[Write],
) -> None:
    """pipes P-6: before the refusal and after it; when the write is made at last, messages are taken again."""
    host = _ready_for(kind)
    host.send(b"a")
    assert of(host.answer(WriteFailed("read-only")), Reject) == [
        Reject(RejectReason.JOURNAL, 1, "read-only")
    ]
    assert of(host.send(b"b"), Reject) == [Reject(RejectReason.JOURNAL, 1, "read-only")]
    host.wait()
    host.send(b"c")
    for _ in range(4):
        if of(host.answer(WriteStored()), Accepted):
            return
    raise AssertionError("never accepted")


@pytest.mark.parametrize("kind", [OpenLife, NoteTransmitted, ForgetRows, Renumber])
def test_a_closed_journal_ends_a_sender_that_can_do_nothing_for_its_messages_without_it(
    kind: type[Write],
) -> None:
    """pipes P-6: the write would be repeated for ever. What is not confirmed is named; the journal keeps it."""
    host = _ready_for(kind)
    open_before = host.machine.unconfirmed()
    assert open_before
    effects = host.answer(WriteFailed("it is closed", closed=True))
    [notice] = of(effects, Notice)
    assert isinstance(notice, Notice)
    assert notice.kind is NoticeKind.UNANSWERED
    assert [(notice.epoch, notice.ranges)] == open_before
    assert "it is closed" in host.machine.stopped
    assert of(host.send(b"a"), Reject) == [Reject(RejectReason.STOPPED, 1)]


def _ready_for(kind: type[Write]) -> Host:
    """A sender with an unconfirmed message, whose write under way is of this kind."""
    rows = (JournalRows(3, 1, [b"old"]),)
    host = Host(JournalContents(3, rows, transmitted=3 if kind is ForgetRows else 0))
    if kind is not OpenLife:
        host.answer(WriteStored())
    if kind is NoteTransmitted:
        host.answer(WriteStored())
    if kind is ForgetRows:
        host.send(b"own")
        host.answer(WriteStored())
        host.settle(1)
    assert isinstance(host.writing, kind)
    return host


def test_a_closed_journal_is_told_nothing_of_what_is_confirmed_and_its_sender_goes_on() -> None:
    """All that this life had accepted is confirmed; only what is offered now is rejected."""
    host = ready()
    host.send(b"a")
    host.answer(WriteStored())
    host.answer(WriteStored())
    host.settle(1)
    assert isinstance(host.writing, ForgetRows)
    effects = host.answer(WriteFailed("it is closed", closed=True))
    assert not of(effects, Notice)
    host.send(b"b")
    assert of(host.answer(WriteFailed("it is closed", closed=True)), Reject) == [
        Reject(RejectReason.JOURNAL, 1, "it is closed")
    ]
    assert not host.machine.stopped


@pytest.mark.parametrize("kind", [OpenLife, NoteTransmitted, ForgetRows, Renumber])
def test_other_writes_that_fail_are_told_of_once_and_tried_again(kind: type[Write]) -> None:
    """Nothing is transmitted meanwhile; when the journal works again everything goes on."""
    journal = MemoryJournal()
    if kind is Renumber:
        journal.write(OpenLife(7))
        journal.write(AppendRows(7, 1, [b"old"]))
    wire = Wire("reliable", journal=journal, auto_answer=False)
    wire.send(1)
    failures = 0
    for _ in range(200):
        wire.exchange()
        if not wire.unanswered:
            wire.advance(200 * MS)
            continue
        side, ticket, outcome = wire.unanswered.pop(0)
        if failures < 3 and isinstance(_write_of(wire), kind):
            failures += 1
            outcome = WriteFailed("read-only")
        wire.answer(side, ticket, outcome)
    assert failures == 3
    assert len(noticed(wire, NoticeKind.UNANSWERED)) == 1
    assert_all_confirmed(wire)


def _write_of(wire: Wire) -> Write | None:
    intake = wire.sender.intake
    assert isinstance(intake, JournaledIntake)
    return intake.writing.write if intake.writing else None


def test_a_late_or_second_answer_of_a_write_is_counted_and_changes_nothing() -> None:
    """The ticket of a repeated write is void (pipes P-3)."""
    host = ready()
    host.send(b"a")
    ticket = host.asked[0].ticket
    host.answer(WriteUnknown())
    before = host.machine.counters()["late_answer"]
    assert not of(host.machine.answer(ticket, WriteStored(), host.now), Accepted)
    assert not of(host.machine.answer(999, WriteStored(), host.now), Accepted)
    assert host.machine.counters()["late_answer"] == before + 2


def test_a_fenced_write_ends_this_sender_and_decides_what_was_offered() -> None:
    """Fenced: everything pending is rejected as stopped, one notice, nothing more (pipes L-2, L-7)."""
    host = ready()
    host.send(b"a", b"b")
    host.send(b"c")
    effects = host.answer(WriteFenced(LIFE + 5))
    assert of(effects, Reject) == [Reject(RejectReason.STOPPED, 3)]
    assert [n.kind for n in of(effects, Notice)] == [NoticeKind.FENCED]  # type: ignore[union-attr]
    assert of(host.send(b"d"), Reject) == [Reject(RejectReason.STOPPED, 1)]


def test_a_life_that_was_taken_by_another_does_not_start() -> None:
    """OpenLife fenced: the rows that were read may be old, so nothing is sent (pipes L-2)."""
    host = Host(JournalContents(3, (JournalRows(3, 1, [b"a"]),), transmitted=3))
    effects = host.answer(WriteFenced(LIFE + 1))
    assert not of(effects, Transmit)
    assert [n.kind for n in of(effects, Notice)] == [NoticeKind.FENCED]  # type: ignore[union-attr]


def test_an_append_under_way_when_the_receiver_fences_is_still_decided() -> None:
    """Stopped by the receiver; the journal stores the row: it is accepted, the next life sends it."""
    wire = Wire("reliable", journal=MemoryJournal())
    wire.send(1)
    wire.run()
    wire.auto_answer = False
    wire.send(2)
    wire.sender.intake.stop_fenced(9)
    side, ticket, _ = wire.unanswered.pop(0)
    wire.answer(side, ticket, WriteUnknown())
    assert wire.deadline["sender"] is not None
    wire.advance(SECOND)
    wire.answer(*wire.unanswered.pop(0))
    assert wire.accepted == [b"1", b"2"]
    wire.auto_answer = True
    wire.crash_sender()
    wire.run()
    assert_all_confirmed(wire)


def test_a_life_that_still_opens_knows_what_is_unconfirmed_and_tells_of_its_journal() -> None:
    """pipes L-1, O-3: the rows as they were read, each epoch with its range; a refusal names the new life."""
    rows = (JournalRows(3, 2, [b"a", b"b"]), JournalRows(5, 1, [b"c"]))
    host = Host(JournalContents(5, rows, transmitted=5))
    assert host.machine.unconfirmed() == [(3, ((2, 3),)), (5, ((1, 1),))]
    [notice] = of(host.answer(WriteFailed("read-only")), Notice)
    assert isinstance(notice, Notice)
    assert (notice.kind, notice.epoch) == (NoticeKind.UNANSWERED, LIFE)


def test_older_epochs_are_served_oldest_first() -> None:
    """pipes L-4: two epochs were transmitted and are unconfirmed; the first offer is of the older one."""
    rows = (JournalRows(3, 2, [b"a", b"b"]), JournalRows(5, 1, [b"c"]))
    host = Host(JournalContents(5, rows, transmitted=5))
    [offer] = [e.frame for e in host.answer(WriteStored()) if isinstance(e, Transmit)]
    assert isinstance(offer, Open)
    assert (offer.epoch, offer.base) == (3, 2)


def test_an_answer_to_an_offer_that_was_given_up_is_counted_and_changes_nothing() -> None:
    """pipes P-8, L-4: the older epoch is closed and settled; while the journal forgets it, more answers come."""
    host = Host(JournalContents(3, (JournalRows(3, 1, [b"a"]),), transmitted=3))
    [offer] = [e.frame for e in host.answer(WriteStored()) if isinstance(e, Transmit)]
    assert isinstance(offer, Open)
    closed = Opened(offer.pipe, 0, offer.link, 77, 3, 2, 1, 1, closed=True)
    effects = host.take(host.machine.frame(closed, host.now))
    assert Confirmed(3, ((1, 1),)) in effects
    assert host.writing == ForgetRows(3, 1)
    refused = Refused(offer.pipe, 0, offer.link, 3, RefusedReason.FENCED, 9)
    for count, frame in enumerate((closed, refused), 1):
        assert host.take(host.machine.frame(frame, host.now)) == []
        assert host.machine.counters()["wrong_state"] == count


def test_the_contents_read_under_the_new_life_replace_what_was_read_before() -> None:
    """OpenLife answered with JournalContents: a former life may have written until then (pipes L-2)."""
    host = Host()
    contents = JournalContents(3, (JournalRows(3, 4, [b"late"]),), transmitted=3)
    effects = host.answer(contents)
    assert host.machine.unconfirmed() == [(3, ((4, 4),))]
    assert of(effects, Transmit)
    assert host.machine.gauges()["loaded"] == 1


# Room and bounds.


def test_what_is_not_stored_yet_counts_and_the_bound_holds() -> None:
    """A backlog of 4: the fifth is rejected as full, also after the rows are stored (pipes P-9, V-5)."""
    host = Host(options={"backlog": 4, "window": 2})
    assert host.machine.room == 4
    effects = host.send(b"a", b"b", b"c", b"d", b"e")
    assert of(effects, Reject) == [Reject(RejectReason.FULL, 1)]
    assert host.machine.room == 0
    host.answer(WriteStored())
    host.answer(WriteStored())
    assert host.machine.room == 0
    assert of(host.send(b"f"), Reject) == [Reject(RejectReason.FULL, 1)]


def test_what_a_channel_puts_into_the_outermost_layer_waits_for_the_journal_too() -> None:
    """pipes P-9, C-5: the layer has room for all, and the journal has not stored the four that it may hold."""
    host = Host(options={"backlog": 4, "window": 20})
    host.answer(WriteStored())
    assert host.machine.has_room_inside(0)
    host.send(b"a", b"b", b"c", b"d")
    assert not host.machine.has_room_inside(0)


def test_the_bound_in_bytes_holds() -> None:
    """10 bytes: 4 + 4 fit, the third is rejected, and a smaller one would fit (pipes P-9)."""
    host = Host(options={"backlog_bytes": 10})
    assert of(host.send(b"aaaa", b"bbbb", b"cccc"), Reject) == [Reject(RejectReason.FULL, 1)]
    assert host.machine.room_bytes == 2
    assert of(host.send(b"dd", b"e"), Reject) == [Reject(RejectReason.FULL, 1)]
    assert host.machine.room_bytes == 0


def test_a_too_large_message_is_rejected_with_what_follows_it() -> None:
    """The prefix is taken (pipes P-5, P-9)."""
    host = Host(options={"message_max_bytes": 3})
    effects = host.send(b"aaa", b"bbbb", b"c")
    assert of(effects, Reject) == [Reject(RejectReason.TOO_LARGE, 2)]
    assert host.machine.intake.pending == 1


def test_a_loaded_journal_takes_the_room_until_it_is_sent() -> None:
    """Rows beyond the backlog are kept, fed as room frees, and no new ones are taken meanwhile."""
    rows = [b"%d" % number for number in range(20)]
    contents = JournalContents(3, (JournalRows(3, 1, rows),), transmitted=3)
    host = Host(contents, {"backlog": 8, "window": 4})
    assert of(host.send(b"early"), Reject) == []
    host.answer(WriteStored())
    assert host.machine.gauges()["backlog"] == 20
    assert host.machine.gauges()["loaded"] == 20
    assert host.machine.room == 0


# What the journal is told.


def test_the_journal_is_told_in_batches_while_other_writes_wait_and_at_once_when_idle() -> None:
    """Far fewer ForgetRows than batches confirmed; at rest it holds nothing (pipes L-6)."""
    journal = MemoryJournal()
    forgets = 0
    wire = Wire({"reliable": {"run_max": 10}}, journal=journal)
    last = journal.confirmed

    def count() -> None:
        nonlocal forgets, last
        forgets += journal.confirmed != last
        last = journal.confirmed

    sent = 0

    def step() -> None:
        nonlocal sent
        count()
        if sent < 3_000 and wire.sender.room >= 10:
            wire.send(*range(sent, sent + 10))
            sent += 10

    wire.run(Faults(delay_us=(5 * MS, 5 * MS)), each_step=step)
    assert not journal.rows
    assert 1 <= forgets <= 30
    assert_all_confirmed(wire)


def test_a_pipe_that_takes_no_more_tells_its_journal_at_once_what_is_confirmed() -> None:
    """One of three is never confirmed, and the pipe is closed: the next life finds that one alone (pipes L-6)."""
    host = ready()
    host.send(b"a", b"b", b"c")
    host.answer(WriteStored())
    host.answer(WriteStored())
    host.settle(2)
    assert host.asked == []
    host.take(host.machine.close(host.now))
    assert host.writing == ForgetRows(LIFE, 2)


def test_every_step_conserves_messages_over_lives_with_and_without_loss() -> None:
    """Loaded + accepted = confirmed + in flight + backlog + given up, in each life (pipes O-2)."""
    for seed in range(10):
        wire = Wire(
            {"reliable": {"run_max": 2, "window": 6, "backlog": 12}},
            seed=seed,
            boundary=COMMITTED,
            journal=MemoryJournal(),
            crashes=frozenset(("sender", at) for at in range(20, 200, 20)),
        )
        sent = 0

        def step(wire: Wire = wire) -> None:
            nonlocal sent
            assert_conserved(wire)
            count = min(4, wire.sender.room, 80 - sent)
            if count:
                wire.send(*range(sent, sent + count))
                sent += count

        wire.send(b"first")
        wire.run(Faults(loss=0.2, delay_us=(MS, 30 * MS), fifo=False), each_step=step)
        assert sent == 80
        assert_all_confirmed(wire)


# Unknown and failing outcomes by seed.


@pytest.mark.parametrize("seed", range(20))
def test_a_journal_that_answers_late_or_unclearly_loses_and_repeats_nothing(seed: int) -> None:
    """Answers delayed, unknown, and crashes between a write and its answer (pipes P-6, store-outage)."""
    rng = random.Random(seed)
    wire = Wire(
        {"reliable": {"run_max": 3}}, seed=seed, boundary=COMMITTED, journal=MemoryJournal()
    )
    wire.auto_answer = False
    sent = 0
    for _ in range(400):
        if sent < 60 and rng.random() < 0.3:
            wire.send(*range(sent, sent + 3))
            sent += 3
        if wire.unanswered and rng.random() < 0.6:
            side, ticket, outcome = wire.unanswered.pop(0)
            unclear = side == "sender" and rng.random() < 0.3
            wire.answer(side, ticket, WriteUnknown() if unclear else outcome)
        if rng.random() < 0.02:
            wire.unanswered = [item for item in wire.unanswered if item[0] != "sender"]
            wire.crash_sender()
        if rng.random() < 0.5:
            wire.transfer(rng.randint(0, len(wire.to_receiver)))
            wire.transfer(0, back=len(wire.to_sender))
        wire.advance(rng.choice([0, 20 * MS, 300 * MS]))
        assert_conserved(wire)
    finish(wire)
    assert_all_confirmed(wire)


def finish(wire: Wire) -> None:
    """From now on every write is answered; run to the end."""
    wire.auto_answer = True
    while wire.unanswered:
        wire.answer(*wire.unanswered.pop(0))
    wire.run()


# State as a value.


def test_restored_machines_give_the_same_effects_at_every_point_of_a_run() -> None:
    """Before each input both ends are exported, and a twin takes the same input (pipes P-11, P-12)."""
    wire = TwinWire(
        {"reliable": {"run_max": 2, "window": 6}},
        boundary=COMMITTED,
        journal=MemoryJournal(),
        crashes=frozenset({("receiver", 30)}),
    )
    wire.send(*range(4))
    wire.drop_all()
    wire.crash_sender()
    for first in range(4, 40, 4):
        wire.send(*range(first, first + 4))
        wire.transfer(1, back=0) if wire.to_receiver else wire.exchange()
    wire.run(Faults(loss=0.1, delay_us=(MS, 20 * MS), fifo=False))
    assert wire.compared >= 100
    assert_all_confirmed(wire)


def test_the_same_seed_gives_the_same_frames_notices_and_rows() -> None:
    """Two runs with crashes and faults, byte for byte (pipes P-12)."""

    def run(seed: int) -> tuple[object, ...]:
        wire = Wire(
            {"reliable": {"run_max": 2}},
            seed=seed,
            journal=MemoryJournal(),
            crashes=frozenset({("sender", 30), ("receiver", 40)}),
        )
        wire.send(*range(40))
        wire.run(Faults(loss=0.2, duplication=0.2, delay_us=(MS, 50 * MS), fifo=False))
        return wire.sent, wire.sent_back, wire.times, wire.settled, wire.notices, wire.now

    assert run(5) == run(5)
    assert run(5) != run(6)


# Giving up, and layers below.


def test_a_message_given_up_leaves_the_journal_when_its_letter_is_stored() -> None:
    """multi-unconfirmed gives up on a dead route: the rows go with the letters (pipes T-10)."""
    journal = MemoryJournal()
    wire = Wire({"multi-unconfirmed": {"give_up_after_s": 3.0}}, journal=journal)
    wire.send(1, 2, 3)
    wire.run(Faults(loss=1.0), until_us=100 * SECOND)
    assert [letter.seq for letter in wire.letters] == [1, 2, 3]
    assert not journal.rows
    assert wire.sender.idle


@pytest.mark.parametrize(
    "layers",
    [
        ["continuous-index", {"multi-unconfirmed": {"run_max": 2, "window": 8}}],
        ["sequential-confirm"],
        ["strict-monotonic", {"resend": {"run_max": 4}}],
    ],
)
def test_every_outermost_layer_can_have_a_journal(layers: list[object]) -> None:
    """A sender crash after each effect; nothing accepted is lost (pipes K-5, L-3)."""
    for effect in range(1, 200):
        wire = Wire(
            layers,  # type: ignore[arg-type]
            boundary=COMMITTED,
            journal=MemoryJournal(),
            crashes=frozenset({("sender", effect)}),
        )
        for first in range(0, 16, 4):
            wire.send(*range(first, first + 4))
            wire.exchange()
        wire.run(each_step=lambda wire=wire: assert_conserved(wire))  # type: ignore[misc]
        assert wire.settled == list(range(1, len(wire.accepted) + 1)), f"effect {effect}"
        if wire.effects_done["sender"] < effect:
            break


def test_confirmed_tells_the_epoch_of_the_messages_also_across_the_barrier() -> None:
    """The old epoch's Confirmed comes before the new epoch's, each under its own number (pipes L-4)."""
    host = Host(JournalContents(3, (JournalRows(3, 1, [b"a"]),), transmitted=3))
    host.send(b"b")
    host.answer(WriteStored())
    machine, tag = host.machine, host.machine.tag
    opened = next(f for e in host.effects if isinstance(e, Transmit) for f in [e.frame])
    assert (opened.epoch, opened.base) == (3, 1)  # type: ignore[attr-defined]
    answer = Opened(tag, 0, opened.link, 77, 3, 2, 1, 100, closed=False)  # type: ignore[attr-defined]
    effects = host.take(machine.frame(answer, host.now))
    assert Confirmed(3, ((1, 1),)) in effects
    assert not [e for e in effects if isinstance(e, Transmit) and isinstance(e.frame, Data)]


def test_nothing_of_the_own_epoch_leaves_while_the_older_is_open() -> None:
    """Rows accepted meanwhile wait, are counted, and follow when the journal has noted it (pipes L-4)."""
    wire = Wire("reliable", journal=MemoryJournal())
    wire.exchange()
    wire.send(1, 2)
    wire.drop_all()
    wire.crash_sender()
    wire.send(3, 4, 5)
    assert len(wire.accepted) == 5
    assert wire.sender.gauges()["backlog"] == 5
    wire.transfer()
    wire.transfer()
    assert {frame.epoch for frame in data(wire)} == {LIFE}
    assert opens(wire)[-1].epoch == LIFE
    wire.run()
    assert_all_confirmed(wire)
