"""The receiving half of the stream pipe: one reader of a stream, whose place is its committed position."""

from __future__ import annotations

from typing import cast

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.snapshot import stateful
from surepipe.core.store_requests import (
    Ahead,
    Batch,
    CommitPosition,
    Committed,
    Diverged,
    Empty,
    Failed,
    FencedOut,
    Kept,
    OtherStack,
    ReadFrom,
    Reset,
    Trimmed,
    WaitForMore,
)
from surepipe.pipes.options import micros
from surepipe.pipes.stack.layers import Token
from surepipe.pipes.stream.calls import WARN_AFTER, Asked
from surepipe.pipes.stream.position import Phase, StreamPlace, commit_of
from surepipe.pipes.stream.work import split
from surepipe.pipes.wire.frames import Frame

# A read of slow messages may take an hour: a crash repeats what was settled since the last commit.
BATCH_WITHIN_US = 1_000_000


@stateful
class Receiver(StreamPlace):
    """Reads from its place on, hands up, and commits what is settled.

    One question to the store is open at any time, or none while entries are in work. A commit may go on beside
    it; what is read meanwhile is handed up when the commit is done. After an outage the place is checked before
    anything is handed up: the store may have gone back. With lanes it reads on while entries are in work, as far
    as ``read_max`` ahead of the oldest that is not settled.
    """

    # Frames: a store sends none.

    def data(self, frame: Frame, token: Token | None) -> None:
        """No data comes over the route."""
        del frame
        self.wrong_state()
        self.port.refuse(token)

    def wrong_state(self) -> None:
        """Count a frame that has no meaning here."""
        self.port.count("wrong_state")

    # Answers.

    def answer(self, ticket: int, outcome: object) -> None:
        """The outcome of a commit, or of the open question."""
        if self.committing and self.committing.ticket == ticket:
            self._on_commit(self.committing, outcome)
            return
        question = self.question
        assert question is not None, f"the answer {ticket} was not asked for"
        self.question = None
        if isinstance(outcome, OtherStack):
            self._on_other_stack(outcome.reason)
            return
        if isinstance(outcome, Failed):
            self._stop(NoticeKind.STALLED, self._not_reached(), outcome.reason)
            return
        self._take(outcome)
        if self._is_still_open():
            self._on_no_outcome(question)

    def _on_other_stack(self, why: str) -> None:
        """Stop before it. What comes before it is settled and committed first, and then it is met again."""
        if not self._is_drained():
            return
        if self.port.durable or (self.work.next <= self.committed and not self.committing):
            self._stop(NoticeKind.MISMATCH, (), why)
            return
        self.draining = True
        self.phase = Phase.DELIVERING
        if not self.committing:
            self._commit()

    def _not_reached(self) -> Ranges:
        """What is known to be in the stream, by index, and was not settled."""
        start, end = self.work.next, self.stream_end
        return ((start, end - 1),) if self.incarnation and start < end else ()

    def _is_still_open(self) -> bool:
        """True when the outcome led to no other phase and to no new question."""
        return self.question is None and self.phase in _ASKING and not self.closing

    def _on_no_outcome(self, question: Asked) -> None:
        """Unavailable: a read starts over by looking at the stream, anything else is asked again."""
        self._note_failure("the store is unavailable")
        if self.phase is Phase.READING:
            self._look(self.failures)
        else:
            self.question = question
            self.calls.put_off(question, self.failures)

    def _take(self, outcome: object) -> None:
        """The open question was answered; what the phase does not know is no answer."""
        take = {
            Phase.CLAIMING: self._on_owner,
            Phase.FINDING: self._on_position,
            Phase.LOOKING: self._on_info,
            Phase.VERIFYING: self._on_identity,
            Phase.READING: self._on_read,
            Phase.WAITING: self._on_hint,
        }
        take[self.phase](outcome)

    # Reading and handing up.

    def _read(self) -> None:
        if self.closing:
            self.question = None
        elif self.look_again:
            self._look()
        else:
            self._ask(Phase.READING, self._read_request(), self.refusals)

    def _read_request(self) -> ReadFrom:
        options = self.options
        bounds = (options.read_max, options.read_max_bytes)
        # A store that went back and was written on while the reader waited looks as if nothing had happened,
        # but for the entry that was read last.
        return ReadFrom(self.stream, self.work.end, *bounds, self.incarnation, self.work.last)

    def _on_read(self, outcome: object) -> None:
        match outcome:
            case Batch(entries, _, end):
                self.failures = 0
                self.stream_end = end
                self.rest.extend(entries)
                self.phase = Phase.DELIVERING
                self._go_on()
            case Empty(end):
                self.failures = 0
                self.stream_end = end
                self._wait_for(end)
                if (
                    self.work.has_refused
                ):  # the last answer may have come while the read was under way
                    self._stop_waiting()
                    self._go_on()
                if not self._is_timed and self.work.next > self.committed and not self.committing:
                    self._commit()
            case Trimmed(earliest):
                self._on_trimmed(earliest)
            case Reset(incarnation):
                self._on_reset(incarnation)
            case Ahead(end):
                self._on_ahead(end)
            case Diverged(found):
                self._on_other(self.work.end - 1, self.work.last, found)
            case _:
                return

    def _on_hint(self, outcome: object) -> None:
        del outcome
        if not self.incarnation:
            self._look()  # the stream was too short to start at the index that was given
            return
        self.phase = Phase.DELIVERING
        self._go_on()

    def _go_on(self) -> None:
        """Hand up, commit and read, as far as what is in work and what is being committed allow."""
        while self.phase is Phase.DELIVERING and not self._must_wait():
            if self.work.has_refused:
                self._step_back()
                continue
            if self.committing is None and self._is_commit_due():
                self._commit()
            if self.committing and (self.is_moved or self.draining or self._holds_back):
                if self._holds_back and not (self.is_moved or self.rest or self.draining):
                    self._read()
                return
            if self.draining:
                self.draining = False
                self.rest.clear()
                self._look()
                return
            if not self.rest:
                self._read()
                return
            self._hand_up()

    def _must_wait(self) -> bool:
        """True while nothing more may be read or handed up, because of what is in work."""
        work = self.work
        if not work.unanswered:
            return False
        return not self.port.has_lanes or work.has_refused or self.draining or not self._room()

    def _hand_up(self) -> None:
        while self.rest and (room := self._room()):
            entries = self.rest.popleft()
            if len(entries.payloads) > room:
                entries, later = split(entries, room)
                self.rest.appendleft(later)
            for part in self.work.take(entries):
                self.port.hand_up(part.epoch, part.first, part.payloads, part.producer)

    def _room(self) -> int:
        """How many more may be handed up before the next commit."""
        if self.port.has_lanes:
            return max(0, self.options.read_max - (self.work.end - self.work.next))
        every = self._commit_every
        if every is None or self.port.durable:
            return self.options.read_max
        return max(0, every - (self.work.end - self.committed))

    def settled(self, epoch: int, first: int, last: int, producer: str = "") -> None:
        """The layer above answers these messages: settled."""
        if self.work.settle((producer, epoch), first, last):
            self.refusals = 0
            self.meets_strangers = False
            if (
                self._commit_within_us
                and self.commit_at is None
                and self.phase is not Phase.STOPPED
            ):
                self.commit_at = self.port.now + self._commit_within_us
            if self.port.has_lanes and self.committing is None and self._is_commit_due():
                self._commit()
        if self.work.has_refused:
            self._stop_waiting()
        self._go_on()

    def refused(self, epoch: int, first: int, last: int, producer: str = "") -> None:
        """The layer above answers these messages: refused. They are read again."""
        self.work.refuse((producer, epoch), first, last)
        self._stop_waiting()
        self._go_on()

    def not_for_us(self, token: Token) -> None:
        """An entry stays as it is, and what is behind it waits: nobody else will tell who wrote it."""
        self.meets_strangers = True
        super().not_for_us(token)

    def _stop_waiting(self) -> None:
        """With lanes entries may be refused while the reader waits for more: these come first."""
        if self.phase is Phase.WAITING and self.question and not self.work.unanswered:
            self.calls.forget(self.question)
            self.question = None
            self.phase = Phase.DELIVERING

    def _step_back(self) -> None:
        """Read again from the first that is not settled, after a pause; what is settled is skipped."""
        self.rest.clear()
        self.work.drop_runs()
        self.refusals += 1
        if self.refusals == WARN_AFTER:
            place = self.work.next
            if self.meets_strangers:
                self._stop(
                    NoticeKind.MISMATCH,
                    ((place, place),),
                    f"entry {place} of stream {self.stream!r} is no message of the layers above it: who wrote it "
                    "has none (a sink, Spark), or others. Read it with the layers of its writer. Nothing is lost: "
                    "this reader has not passed it",
                )
                return
            detail = f"entry {place} was refused {self.refusals} times"
            self.port.notice(NoticeKind.STALLED, 0, ((place, place),), detail)

    # Committing.

    @property
    def _holds_back(self) -> bool:
        """True when nothing is handed up while a commit is under way; the next entries are read meanwhile."""
        return not (self._is_timed or self.port.has_lanes)

    @property
    def _commit_every(self) -> int | None:
        commit = self.options.commit
        if commit == "message":
            return 1
        return commit if isinstance(commit, int) else None

    @property
    def _is_timed(self) -> bool:
        return isinstance(self.options.commit, float) and not self.port.durable

    @property
    def _commit_within_us(self) -> int:
        """How long what is settled may wait for a commit; 0 where another event says when."""
        if self._is_timed:
            return micros(cast("float", self.options.commit))
        return 0 if self.port.durable or self.options.commit != "batch" else BATCH_WITHIN_US

    def _is_commit_due(self) -> bool:
        """Between deliveries. With a durable state the host stores it, and the position with it."""
        if self.port.durable or self._is_timed or self.work.next <= self.committed:
            return False
        if self.phase is Phase.STOPPED:
            return False
        every = self._commit_every
        if every is None and self.port.has_lanes:
            is_far = 2 * (self.work.next - self.committed) >= self.options.read_max
            return is_far or not self.work.unanswered
        return not self.rest if every is None else self.work.next - self.committed >= every

    def _commit(self) -> None:
        self.commit_at = None
        if self.committing:  # of a place that is left by now
            self.calls.forget(self.committing)
        self.committing = self.calls.ask(commit_of(self.port.state()))

    def _on_commit(self, asked: Asked, outcome: object) -> None:
        request = cast("CommitPosition", asked.request)
        match outcome:
            case Kept(position) if position.tag != request.tag:
                detail = f"reader {self.reader!r} has a position with another tag by now"
                self._stop(NoticeKind.DIVERGED, (), detail)
            case Committed() | Kept():
                self.committing = None
                self.committed = request.next
                self.is_moved = False
                self.previous_tag = None if self.tag == request.tag else self.previous_tag
                self._go_on()
            case FencedOut(by):
                start = request.next if self.is_moved else self.committed
                ranges = ((start, self.work.next - 1),) if start < self.work.next else ()
                self._stop(
                    NoticeKind.FENCED,
                    ranges,
                    f"another receiver began later, and reads as {self.reader!r} now, or the reader was forgotten "
                    f"(claim {by})",
                )
            case OtherStack(reason):
                self._stop(NoticeKind.MISMATCH, (), reason)
            case Failed(reason):
                self._stop(NoticeKind.STALLED, (), reason)
            case _:
                self.look_again = True
                if self._holds_back:
                    self._forget_read_ahead()
                # Positions may have a store of their own: reads that are answered say nothing of it.
                self.calls.put_off(asked, asked.attempts)

    def _forget_read_ahead(self) -> None:
        """Nothing that was read beside a commit that failed is handed up: the place is checked first."""
        self.rest.clear()
        if self.question and self.phase in (Phase.READING, Phase.WAITING):
            self.calls.forget(self.question)
            self.question = None
            self.phase = Phase.DELIVERING

    # Time.

    def wake(self) -> None:
        """Start, ask again what was not answered, commit what is due."""
        if self.phase is Phase.NEW:
            self._claim()
            return
        if self.question and self.calls.is_due(self.question):
            self._repeat(self.question)
        if self.committing and self.calls.is_due(self.committing):
            if self.committing.attempts == WARN_AFTER:
                self._tell_of_outage(
                    f"the store of positions did not take the place in {WARN_AFTER} attempts"
                )
            self.calls.repeat(self.committing)
        if self.commit_at is not None and self.commit_at <= self.port.now and not self.committing:
            self._commit()

    def _repeat(self, question: Asked) -> None:
        if isinstance(question.request, WaitForMore):
            self.calls.forget(question)
            self.question = None
            self._take(None)
            return
        if question.attempts == WARN_AFTER and self.failures < WARN_AFTER:
            self._tell_of_outage(f"{WARN_AFTER} calls were not answered")
        self.calls.repeat(question)

    @property
    def deadline(self) -> int | None:
        """When to ask again, or to commit."""
        times = [asked.repeat_at for asked in (self.question, self.committing) if asked]
        if self.commit_at is not None and not self.committing:
            times.append(self.commit_at)
        return min(times, default=None)

    # The end, and what survives it.

    def finish(self) -> None:
        """Commit what is settled; read nothing more."""
        self.closing = True
        if self.question:
            self.calls.forget(self.question)
            self.question = None
        if not (self.is_stored or self.committing):
            self._commit()

    @property
    def is_stored(self) -> bool:
        """True when the place behind what is settled is committed, or there is none."""
        has_place = self.phase not in (Phase.NEW, Phase.STOPPED) and bool(self.incarnation)
        return not has_place or (self.work.next <= self.committed and not self.committing)

    def gauges(self) -> dict[str, int]:
        """Entries in work, and those still to be read."""
        held = sum(len(entries.payloads) for entries in self.rest)
        in_work = self.work.unanswered
        return {"held": held, "in_work": in_work, "lag": max(0, self.stream_end - self.work.next)}


_ASKING = (Phase.CLAIMING, Phase.FINDING, Phase.LOOKING, Phase.VERIFYING, Phase.READING)
