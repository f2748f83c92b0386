"""The intake of a sender with a journal: a message is accepted when its row is stored.

The journal gives a sender a past. A life begins by taking its number in the journal; then it serves the epochs
that it found there, oldest first, each under its own identities, and only then its own. Between two epochs
stands a barrier: everything of the former is confirmed, and the journal has noted it, before anything of the
next is transmitted. Rows that were never on the wire may be numbered again, in one atomic write.

One write is under way at a time. What is offered meanwhile waits and is stored together in the next one.

The writes and their order, by what would go wrong without each:

1. Life 7 stores the rows of "a" and "b", and only then says that they are accepted. Said first, a crash in
   between would lose two messages that their caller has forgotten.
2. It notes that it begins to transmit (``NoteTransmitted``), and only then sends. So of rows without that note
   it is certain that nobody has seen them.
3. It is killed, or only taken for dead. Life 8 writes its number down first of all (``OpenLife``). From then on
   the journal refuses every row of life 7, which could else accept messages that life 8 has not read and never
   sends.
4. Life 8 finds rows of life 7. With the note they may have been settled, so they go out under their old numbers,
   and a receiver that has them drops the repeats. Without it they are numbered again, in one write
   (``Renumber``): torn in two, a message would be there twice, or not at all.
5. Its own messages wait until all of life 7 is confirmed and that is stored (``ForgetRows``). Sent earlier, they
   could be settled first, and a crash now would bring older ones behind them.
6. The journal does not answer. The write was made or not, and either guess is wrong: taken for failed, the rows
   would come back in the next life though their caller was told to send them again; taken for stored, they may
   be lost. So the same write is repeated until its outcome is known, and its callers wait.
7. How far all is confirmed is told late, to spare writes. A crash then repeats what was confirmed, and receivers
   know repeats. Told early it would lose messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

from surepipe.core.effects import (
    Accepted,
    AppendRows,
    ForgetRows,
    JournalContents,
    NoteTransmitted,
    Notice,
    NoticeKind,
    OpenLife,
    Persist,
    Ranges,
    RejectReason,
    Renumber,
    Renumbered,
    Write,
    WriteFailed,
    WriteFenced,
    WriteStored,
)
from surepipe.core.machine import Randomness
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.core.timing import BackOff
from surepipe.pipes.options import BacklogOptions, LayerOptions, keeper_of
from surepipe.pipes.stack.fencing import life_above, next_life
from surepipe.pipes.stack.intake import Intake, IntakePort
from surepipe.pipes.stack.layers import SenderLayer

# What a journaled intake keeps: stored messages that wait for their turn, and the write under way.


for _write in (OpenLife, AppendRows, NoteTransmitted, ForgetRows, Renumber, Renumbered):
    stateful(_write)


@stateful
@dataclass(slots=True)
class WaitingRows:
    """Stored messages of one epoch that the outermost layer has not taken yet."""

    epoch: int
    first: int
    """Number of the first message that was not taken."""
    payloads: list[bytes] = field(default_factory=list[bytes])
    taken: int = 0
    """How many of ``payloads`` were taken; they are cut off now and then, so that it costs little."""

    def __len__(self) -> int:
        return len(self.payloads) - self.taken

    @property
    def last(self) -> int:
        """Number of the last stored message."""
        return self.first + len(self) - 1

    def waiting(self) -> list[bytes]:
        return self.payloads[self.taken :]

    def give(self, layer: SenderLayer) -> Sequence[bytes]:
        """Let the layer take what it has room for; return what it took."""
        offered = self.payloads[self.taken : self.taken + layer.room]
        return self.skip(layer.send(offered) if offered else 0)

    def skip(self, count: int) -> Sequence[bytes]:
        """The first ``count`` messages wait no more; return them."""
        skipped = self.payloads[self.taken : self.taken + max(count, 0)]
        self.first += len(skipped)
        self.taken += len(skipped)
        if self.taken * 2 >= len(self.payloads):
            del self.payloads[: self.taken]
            self.taken = 0
        return skipped


@stateful
@dataclass(slots=True)
class Writing:
    """The write under way."""

    ticket: int
    write: Write
    attempts: int = 1
    repeat_at: int | None = None
    refused: str | None = None
    """What the journal said, where it refused the write, until that is made again."""


REPEAT = BackOff(100_000, 30_000_000, jitter=0.1)
"""Waits before a write whose outcome is unknown is made again."""
FORGET_EVERY = 1024
"""Confirmed messages after which the journal is told even though other writes wait."""


@stateful
class JournaledIntake(Intake):
    """Accepts by storing a row. After a crash the next life finds what was accepted and not confirmed."""

    TRANSIENT: ClassVar[tuple[str, ...]] = (*Intake.TRANSIENT, "rng", "contents")

    def __init__(
        self,
        port: IntakePort,
        outermost: SenderLayer,
        options: Sequence[LayerOptions],
        life_hint: int,
        *,
        contents: JournalContents,
        rng: Randomness,
    ) -> None:
        life = life_above(contents.last_life, life_hint)
        super().__init__(port, outermost, options[0].message_max_bytes, life)
        bounds = keeper_of(options) or BacklogOptions.model_validate({})
        self.bound = bounds.backlog
        self.bound_bytes = bounds.backlog_bytes
        self.rng = rng
        self.contents = contents
        self.is_open = False
        self.writing: Writing | None = None
        self.unstored: list[bytes] = []
        self.waiting_bytes = 0
        """Of all that no layer has taken: offered, stored, or to be numbered again."""
        self.older: deque[WaitingRows] = deque()
        self.own = WaitingRows(life, 1)
        self.serving = 0
        self.is_noted = False
        self.floor = 0
        self.forgotten = 0
        self.done = RangeSet()
        self.to_renumber: list[WaitingRows] = []
        self.next_life = 0
        """The life under which to number again; 0 when nothing is to be."""
        self.rollback_seen = 0
        self.loaded_count = 0

    # What stands.

    @property
    def epoch(self) -> int:
        """The epoch that the outermost layer is sending."""
        return self.serving or self.life

    @property
    def room(self) -> int:
        """Messages that would be taken now."""
        return max(0, self.bound - self.pending - self.backlog) if not self.stopped else 0

    @property
    def room_bytes(self) -> int:
        """Payload bytes that would be taken now."""
        return max(0, self.bound_bytes - self.waiting_bytes) if not self.stopped else 0

    @property
    def pending(self) -> int:
        """Messages offered whose acceptance is not decided yet."""
        return len(self.unstored) + self._appending

    @property
    def _appending(self) -> int:
        write = self.writing.write if self.writing else None
        return len(write.payloads) if isinstance(write, AppendRows) else 0

    @property
    def backlog(self) -> int:
        """Stored messages that no layer has taken yet."""
        return len(self.own) + sum(map(len, self.older)) + sum(map(len, self.to_renumber))

    @property
    def loaded(self) -> int:
        """Messages that this life found in its journal."""
        return self.loaded_count

    @property
    def _served(self) -> WaitingRows:
        return self.older[0] if self.older and self.serving == self.older[0].epoch else self.own

    @property
    def is_stored(self) -> bool:
        """True when the journal need not be told of anything more that is confirmed."""
        return self.forgotten >= self.floor or bool(self.stopped)

    def unconfirmed(self) -> list[tuple[int, Ranges]]:
        """What was accepted and is not confirmed, oldest epoch first; also while this life is still opening."""
        found: list[tuple[int, Ranges]] = [
            (rows.epoch, ((rows.first, rows.first + len(rows.payloads) - 1),))
            for rows in self.contents.rows
            if rows.payloads
        ]
        for rows in (*self.to_renumber, *self.older, self.own):
            is_served = rows.epoch == self.serving
            ranges = (self.done if is_served else RangeSet()).missing(
                self.floor + 1 if is_served else rows.first, rows.last
            )
            if ranges:
                found.append((rows.epoch, ranges))
        return found

    # The start of a life.

    def start(self) -> None:
        """Take the number of this life in the journal; everything else follows when that is stored."""
        self._tell(self.contents.renumbered)
        self._persist(OpenLife(self.life))

    def _opened(self, contents: JournalContents) -> None:
        self.is_open = True
        self.contents = JournalContents()
        fresh: list[WaitingRows] = []
        for rows in contents.rows:
            loaded = WaitingRows(rows.epoch, rows.first, list(rows.payloads))
            self.loaded_count += len(loaded)
            self.waiting_bytes += sum(map(len, rows.payloads))
            if rows.epoch <= contents.transmitted:
                self.older.append(loaded)
            else:
                fresh.append(loaded)
        if fresh:
            self.to_renumber = fresh
            self.next_life = self.life
        else:
            self._serve_next(new_life=True)

    def _serve_next(self, *, new_life: bool) -> None:
        rows = self.older[0] if self.older else self.own
        self.serving = rows.epoch
        self.floor = self.forgotten = rows.first - 1
        self.done = RangeSet()
        self.begun = True
        if new_life:
            self.port.restart(self.life, rows.epoch, rows.first)
        else:
            self.port.begin(rows.epoch, rows.first)

    # Acceptance.

    def send(self, payloads: Sequence[bytes]) -> None:
        """Take what there is room for; it is accepted, or rejected, when the journal has answered. While that
        refuses another write nothing is taken: it would wait for as long."""
        if self.writing is not None and self.writing.refused is not None:
            self.reject(RejectReason.JOURNAL, len(payloads), self.writing.refused)
            return
        fitting, reason = self.admissible(payloads)
        taken = self._fitting(fitting)
        if taken < len(fitting):
            reason = RejectReason.FULL
        self.unstored.extend(fitting[:taken])
        self.waiting_bytes += sum(map(len, fitting[:taken]))
        self.reject(reason, len(payloads) - taken)

    def _fitting(self, payloads: Sequence[bytes]) -> int:
        payloads = payloads[: self.room]
        if sum(map(len, payloads)) <= self.room_bytes:
            return len(payloads)
        room = self.room_bytes
        return sum(total <= room for total in accumulate(map(len, payloads)))

    def _stored(self, write: AppendRows) -> None:
        count = len(write.payloads)
        self.own.payloads.extend(write.payloads)
        self.port.emit(Accepted(write.epoch, write.first, count))
        self.port.count("accepted", count)
        self.next += count

    def _reject_pending(
        self, reason: RejectReason, appending: Sequence[bytes] = (), detail: str = ""
    ) -> None:
        """Everything offered after what is stored is rejected, so the numbers are free again."""
        dropped = [*appending, *self.unstored]
        self.unstored.clear()
        self.waiting_bytes -= sum(map(len, dropped))
        self.reject(reason, len(dropped), detail)

    # Writes.

    def finish_step(self) -> None:
        """Bring down what there is room for, report what was confirmed, start the next write."""
        if self.active and (self.serving != self.life or self.is_noted):
            while taken := self._served.give(self.outermost):
                self.waiting_bytes -= sum(map(len, taken))
        self.report_confirmed()
        if self.writing is None and not self.stopped:
            write = self._next_write()
            if write is not None:
                self._persist(write)

    def _next_write(self) -> Write | None:
        if not self.is_open:
            return None
        if self.next_life:
            return self._renumbering()
        if self.serving == self.life and not self.is_noted and len(self.own):
            return NoteTransmitted(self.life)
        if self._must_forget:
            return ForgetRows(self.serving, self.floor)
        return self._append() if self.unstored else None

    @property
    def _must_forget(self) -> bool:
        """The journal is told when an older epoch is over, when it lags far behind, at rest, and, as an end may be
        near, once nothing more is taken: what it was not told comes again in the next life."""
        behind = self.floor - self.forgotten
        is_over = self.serving != self.life and self._all_confirmed
        is_at_rest = self._all_confirmed and not self.unstored
        return (
            is_over or behind >= FORGET_EVERY or (behind > 0 and (is_at_rest or self.port.closing))
        )

    @property
    def _all_confirmed(self) -> bool:
        return self.begun and self.floor == self._served.last

    def _append(self) -> Write:
        payloads, self.unstored = self.unstored, []
        return AppendRows(self.life, self.next, payloads)

    def _persist(self, write: Write, attempts: int = 1) -> None:
        self.writing = Writing(self.port.ticket(), write, attempts)
        self.port.emit(Persist(self.writing.ticket, write))

    def answer(self, ticket: int, outcome: object) -> bool:
        """The outcome of the write under way; False when the ticket is none of its own."""
        writing = self.writing
        if writing is None or writing.ticket != ticket or writing.repeat_at is not None:
            return False
        match outcome:
            case WriteStored(again):
                self.writing = None
                if again:
                    detail = "the journal went back, and got these messages again"
                    self.port.emit(Notice(NoticeKind.JOURNAL_ROLLBACK, self.life, again, detail))
                self._done_writing(writing.write)
            case JournalContents() if isinstance(writing.write, OpenLife):
                self.writing = None
                self._tell(outcome.renumbered)
                self._opened(outcome)
            case WriteFenced(by):
                self.writing = None
                appending = writing.write.payloads if isinstance(writing.write, AppendRows) else ()
                self.stop_fenced(by, appending)
            case WriteFailed(reason, closed):
                self._failed(writing, reason, closed=closed)
            case _:
                self._repeat_later(writing)
        return True

    def _done_writing(self, write: Write) -> None:
        match write:
            case OpenLife():
                self._opened(self.contents)
            case AppendRows():
                self._stored(write)
            case NoteTransmitted():
                self.is_noted = True
            case Renumber():
                self._renumbered(write)
            case ForgetRows(epoch, through):
                self._forgotten(epoch, through)
            case _:
                raise AssertionError(f"an intake never writes {write}")

    def _forgotten(self, epoch: int, through: int) -> None:
        if epoch != self.serving:
            return
        self.forgotten = through
        if self.older and epoch == self.older[0].epoch and through == self.older[0].last:
            self.older.popleft()
            self._serve_next(new_life=False)

    def _failed(self, writing: Writing, reason: str, *, closed: bool) -> None:
        """Whoever waits to be accepted is told. Without a journal that is closed this life can only end, unless
        all that it lacks is a note of what is confirmed."""
        write = writing.write
        if isinstance(write, AppendRows):
            self.writing = None
            self._reject_pending(RejectReason.JOURNAL, write.payloads, reason)
            return
        self._reject_pending(RejectReason.JOURNAL, detail=reason)
        detail = f"the journal refused {type(write).__name__}: {reason}"
        if closed and isinstance(write, ForgetRows) and write.epoch == self.life:
            self.writing = None
            self.forgotten = write.through
        elif closed and self.unconfirmed():
            self.stop(NoticeKind.UNANSWERED, f"{detail}; what it holds is for the next life")
        else:
            if writing.attempts == 1:
                self.port.emit(Notice(NoticeKind.UNANSWERED, self.epoch, (), detail))
            writing.refused = reason
            self._repeat_later(writing)

    def _repeat_later(self, writing: Writing) -> None:
        writing.repeat_at = self.port.now + REPEAT.wait(writing.attempts, self.rng)

    @property
    def deadline(self) -> int | None:
        """When the write under way is to be repeated."""
        return self.writing.repeat_at if self.writing else None

    def wake(self) -> None:
        """Repeat a write whose outcome is unknown."""
        writing = self.writing
        if writing and writing.repeat_at is not None and writing.repeat_at <= self.port.now:
            self._persist(writing.write, writing.attempts + 1)

    # What the outermost layer reports.

    def confirmed(self, first: int, last: int) -> None:
        """The outermost layer reports its messages settled."""
        super().confirmed(first, last)
        self._finished(first, last)

    def _finished(self, first: int, last: int) -> None:
        if first == self.floor + 1 and not self.done:
            self.floor = last
            return
        self.done.add(first, last)
        self.floor = self.done.end_of_run(self.floor + 1)
        self.done.discard_below(self.floor + 1)

    def given_up(self, epoch: int, seq: int) -> None:
        """This message is in the dead letters for good: the journal need not keep it."""
        if epoch == self.serving:
            self._finished(seq, seq)

    def reached(self, through: int) -> None:
        """The receiver has settled this epoch up to ``through``: further than the journal knows?"""
        last = self._served.last
        if self.serving != self.life and through > last and self.rollback_seen != self.serving:
            self.rollback_seen = self.serving
            detail = "the receiver settled messages that this journal does not know: it is older"
            ranges = ((last + 1, through),)
            self.port.emit(Notice(NoticeKind.JOURNAL_ROLLBACK, self.serving, ranges, detail))

    def fenced(self, known: int, *, answered: bool) -> None:
        """A receiver refuses: rows of an earlier life belong to whoever came after us now."""
        if self.serving != self.life:
            self.stop_fenced(known)
        else:
            super().fenced(known, answered=answered)

    def raise_life(self, above: int) -> None:
        """Number again everything of our own epoch, under a life above ``above``."""
        if above < self.life or not self.active or self.serving != self.life:
            return  # this was asked of an earlier life
        self.report_confirmed()
        waiting = self.outermost.waiting()
        self.waiting_bytes += sum(map(len, waiting))
        rows = WaitingRows(
            self.life, self.own.first - len(waiting), [*waiting, *self.own.waiting()]
        )
        self.own = WaitingRows(self.life, self.own.last + 1)
        self._renumber([rows], next_life(above, self.life))

    def _renumber(self, rows: list[WaitingRows], life: int) -> None:
        self.to_renumber = rows
        self.next_life = life
        self.begun = False
        self.serving = 0

    def epoch_closed(self, through: int, detail: str) -> None:
        """The receiver has gone past this epoch: what it settled is confirmed, the rest are orphans."""
        if self.serving == self.life:
            super().epoch_closed(through, detail)
            return
        rows = self.older[0]
        self.reached(through)
        last = min(through, rows.last)
        for part in self.done.missing(self.floor + 1, last):
            self.confirmed(*part)
        self.waiting_bytes -= sum(map(len, rows.skip(last - rows.first + 1)))
        self.report_confirmed()
        if self.floor < rows.last:
            self._take_orphans()

    def _take_orphans(self) -> None:
        rows = self.older.popleft()
        taken = self.outermost.waiting()
        first_taken = rows.first - len(taken)
        self.waiting_bytes += sum(map(len, taken))
        orphans = [*taken, *rows.waiting()]
        settled = self.floor + 1 - first_taken
        self.waiting_bytes -= sum(map(len, orphans[:settled]))
        ranges = ((self.floor + 1, rows.last),)
        detail = "never delivered under this identity: they are numbered again"
        self.port.emit(Notice(NoticeKind.ORPHANS, rows.epoch, ranges, detail))
        left = WaitingRows(rows.epoch, self.floor + 1, orphans[settled:])
        self._renumber([left], next_life(self.life, self.life))

    # Numbering again.

    def _renumbering(self) -> Renumber:
        if len(self.own):
            self.to_renumber.append(self.own)
            self.own = WaitingRows(self.life, self.own.last + 1)
        payloads: list[bytes] = []
        moved: list[Renumbered] = []
        for rows in self.to_renumber:
            if len(rows):
                at = len(payloads) + 1
                moved.append(Renumbered(rows.epoch, rows.first, len(rows), self.next_life, at))
            payloads += rows.waiting()
        replaced = tuple(rows.epoch for rows in self.to_renumber)
        return Renumber(self.next_life, payloads, replaced, by=self.life, moved=tuple(moved))

    def _renumbered(self, write: Renumber) -> None:
        self._tell(write.moved)
        self.to_renumber = []
        self.next_life = 0
        self.life = write.epoch
        self.own = WaitingRows(self.life, 1, list(write.payloads))
        self.next = len(write.payloads) + 1
        self.is_noted = False
        self._serve_next(new_life=True)

    def _tell(self, moved: Sequence[Renumbered]) -> None:
        """Also of what an earlier life did not live to tell."""
        for one in moved:
            self.port.emit(one)

    # The end.

    def stop_fenced(self, known: int, appending: Sequence[bytes] = ()) -> None:
        """A newer life is being served or has taken the journal; this one ends here."""
        self._reject_pending(RejectReason.STOPPED, appending)
        why = "another sender of this name began later"
        self.stop(NoticeKind.FENCED, f"{why}: life {known} has taken over from life {self.life}")

    def stop(self, kind: NoticeKind, detail: str) -> None:
        """Reject everything from now on and tell what is unconfirmed."""
        self._reject_pending(RejectReason.STOPPED)
        super().stop(kind, detail)
        if self.writing and not self._appending:
            self.writing = None  # only a decision on what was offered is still owed to somebody
