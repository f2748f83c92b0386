"""The receiving half of the stream pipe: one reader of a stream, whose place is its committed position."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import ClassVar, cast

from surepipe.effects import NoticeKind, Ranges
from surepipe.errors import ConfigurationError
from surepipe.machines import Randomness
from surepipe.pipes.frames import Frame
from surepipe.pipes.layers import ReceiverLayer, ReceiverPort, Token
from surepipe.pipes.options import StreamOptions, micros
from surepipe.pipes.snapshot import stateful
from surepipe.pipes.stream_calls import WARN_AFTER, Asked, StoreCalls
from surepipe.pipes.stream_cursor import commit_in, cursor_of, incarnation_in, is_cursor
from surepipe.pipes.stream_work import StreamWork, split
from surepipe.store_api import (
    Absent,
    Ahead,
    Batch,
    ClaimReader,
    CommitPosition,
    Committed,
    DescribeStream,
    Empty,
    Entries,
    Failed,
    Fenced,
    GetPosition,
    IdentifyEntry,
    Identity,
    Kept,
    NoPosition,
    Owner,
    Position,
    ReadFrom,
    Reset,
    StoreRequest,
    StreamInfo,
    Trimmed,
    WaitForMore,
)

IDLE_WAIT_US = 5_000_000
"""How long one wait for more entries lasts. Its answer is a hint; without it the reader looks for itself."""


@stateful
class Phase(Enum):
    """What the reader does. From CLAIMING to WAITING one question is open; COMMITTING goes on beside them."""

    NEW = "new"
    CLAIMING = "claiming"
    FINDING = "finding"
    LOOKING = "looking"
    VERIFYING = "verifying"
    READING = "reading"
    WAITING = "waiting"
    DELIVERING = "delivering"
    STOPPED = "stopped"


@stateful
class Receiver(ReceiverLayer):
    """Claims the reader, finds its place, then reads, hands up, and commits what is settled.

    Claiming, Finding (the stored position), Looking (how the stream stands) and Verifying (is the entry before
    the position still the same) lead to Reading. An outage leads back to Looking: the store may have gone back.
    Stopped: fenced by a later owner, or by a policy.
    """

    TRANSIENT: ClassVar[tuple[str, ...]] = ("port", "options", "rng", "calls", "stream", "reader")

    def __init__(self, options: StreamOptions, port: ReceiverPort, rng: Randomness) -> None:
        if options.start is None:
            raise ConfigurationError(
                f"stream pipe {port.pipe!r} does not say where a reader without a position begins: "
                "set start to earliest, latest or an index"
            )
        self.options: StreamOptions = options
        self.port = port
        self.rng = rng
        self.calls = StoreCalls(options, port, rng)
        self.stream = options.stream or port.pipe
        self.reader = options.reader or port.pipe
        self.phase = Phase.NEW
        self.question: Asked | None = None
        self.owner = 0
        self.incarnation = 0
        self.tag = 0
        self.previous_tag: int | None = None
        self.work = StreamWork()
        self.rest: deque[Entries] = deque()
        self.stream_end = 1
        self.committed = 0
        self.is_moved = False
        self.committing: Asked | None = None
        self.commit_at: int | None = None
        self.restored: list[object] | None = None
        self.rewinding = False
        self.look_again = False
        self.failures = 0
        self.refusals = 0
        self.closing = False

    # Frames: a store sends none.

    def data(self, frame: Frame, token: Token | None) -> None:
        """No data comes over the route."""
        del frame
        self.wrong_state()
        self.port.refuse(token)

    def wrong_state(self) -> None:
        """Count a frame that has no meaning here."""
        self.port.count("wrong_state")

    # Asking.

    def _ask(self, phase: Phase, request: StoreRequest, failures: int = 0) -> None:
        """Go into a phase with its question, at once or after the pause for so many failures."""
        self.phase = phase
        ask = self.calls.ask
        self.question = self.calls.ask_after(request, failures) if failures else ask(request)

    def _look(self, failures: int = 0) -> None:
        self.look_again = False
        self._ask(Phase.LOOKING, DescribeStream(self.stream), failures)

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
        return ReadFrom(self.stream, self.work.next, *bounds, self.incarnation)

    def answer(self, ticket: int, outcome: object) -> None:
        """The outcome of a commit, or of the open question."""
        if self.committing and self.committing.ticket == ticket:
            self._on_commit(self.committing, outcome)
            return
        question = self.question
        assert question is not None, f"the answer {ticket} was not asked for"
        self.question = None
        if isinstance(outcome, Failed):
            self._stop(NoticeKind.STALLED, (), outcome.reason)
            return
        _ANSWERS[self.phase](self, outcome)
        if self.question is None and self.phase in _ASKING and not self.closing:
            self._on_no_outcome(question)

    def _on_no_outcome(self, question: Asked) -> None:
        """Unavailable: a read starts over by looking at the stream, anything else is asked again."""
        self._note_failure("the store is unavailable")
        if self.phase is Phase.READING:
            self._look(self.failures)
        else:
            self.question = question
            self.calls.put_off(question, self.failures)

    def _note_failure(self, detail: str) -> None:
        self.failures += 1
        if self.failures == WARN_AFTER:
            place = self.work.next
            self.port.notice(NoticeKind.UNANSWERED, 0, ((place, place),), detail)

    # Claiming and locating.

    def _on_owner(self, outcome: object) -> None:
        if isinstance(outcome, Owner):
            self.owner = outcome.number
            self._ask(Phase.FINDING, GetPosition(self.stream, self.reader))

    def _on_position(self, outcome: object) -> None:
        if isinstance(outcome, Position):
            self._resume_from(outcome)
        elif isinstance(outcome, NoPosition):
            if self.restored:
                self._resume_from_cursor(self.restored)
            self._look()

    def _resume_from(self, position: Position) -> None:
        self.committed = position.next
        if self.restored and self._is_as_far(self.restored, position):
            self._resume_from_cursor(self.restored)
            self._look()
            return
        incarnation = position.tag
        if position.state:
            cursor = self.port.restore_above(position.state)
            if not is_cursor(cursor):
                detail = f"the position of reader {self.reader!r} holds the state of another stack"
                self._stop(NoticeKind.DIVERGED, (), detail)
                return
            incarnation = incarnation_in(cursor)
        self.tag, self.incarnation = position.tag, incarnation
        self.work.start_at(position.next, position.anchor)
        self._look()

    @staticmethod
    def _is_as_far(cursor: list[object], position: Position) -> bool:
        commit = commit_in(cursor, b"")
        return commit.tag == position.tag and commit.next >= position.next

    def _resume_from_cursor(self, cursor: list[object]) -> None:
        commit = commit_in(cursor, b"")
        self.tag, self.previous_tag = commit.tag, commit.previous_tag
        self.incarnation = incarnation_in(cursor)
        self.work.start_at(commit.next, commit.anchor)
        self.is_moved = commit.next != self.committed

    def _on_info(self, outcome: object) -> None:
        if not isinstance(outcome, StreamInfo):
            return
        self.stream_end = outcome.next
        if self.rewinding:
            self._rewind(outcome)
        elif not self.incarnation:
            self._start(outcome)
        elif outcome.incarnation != self.incarnation:
            self._on_reset(outcome.incarnation)
        elif outcome.next < self.work.next:
            self._on_ahead(outcome.next)
        elif outcome.earliest < self.work.next:
            self._ask(Phase.VERIFYING, IdentifyEntry(self.stream, self.work.next - 1))
        else:
            self._resume()

    def _start(self, info: StreamInfo) -> None:
        """No position yet: the start policy. The place is committed before anything is read, so that a
        crash before the first commit neither starts later (latest) nor lets entries be trimmed."""
        named = {"earliest": info.earliest, "latest": info.next}
        start = self.options.start
        index = start if isinstance(start, int) else named[str(start)]
        if index > info.next:
            self._wait_for(index)
            return
        self.tag = self.incarnation = info.incarnation
        self._move_to(index)

    def _move_to(self, index: int) -> None:
        self.work.start_at(index, None)
        self.is_moved = True
        self._ask(Phase.VERIFYING, IdentifyEntry(self.stream, index - 1))

    def _on_identity(self, outcome: object) -> None:
        anchor = self.work.anchor
        if anchor is None and isinstance(outcome, Identity | Absent):
            self.work.anchor = outcome if isinstance(outcome, Identity) else None
            self._resume()
        elif outcome == anchor or isinstance(outcome, Trimmed):
            self._resume()
        elif isinstance(outcome, Absent | Identity):
            place = self.work.next - 1
            detail = f"entry {place} of stream {self.stream!r} was {anchor}, and is {outcome}"
            self._on_diverged(((place, place),), detail)

    def _resume(self) -> None:
        self.phase = Phase.DELIVERING
        if self.is_moved:
            self._commit()
        self._go_on()

    # Policies. Each gives its notice with the exact range of indexes first.

    def _on_trimmed(self, earliest: int) -> None:
        place = self.work.next
        detail = f"entries of stream {self.stream!r} were trimmed before reader {self.reader!r}"
        self.port.notice(NoticeKind.TRIMMED, 0, ((place, earliest - 1),), detail)
        if self.options.on_trimmed == "stop":
            self._halt()
        else:
            self._move_to(earliest)

    def _on_reset(self, incarnation: int) -> None:
        passed = ((1, self.work.next - 1),) if self.work.next > 1 else ()
        detail = f"stream {self.stream!r} was made anew ({incarnation}, before {self.incarnation})"
        self.port.notice(NoticeKind.RESET, 0, passed, detail)
        self._rewind_or_halt(self.options.on_reset)

    def _on_ahead(self, end: int) -> None:
        gone = ((end, self.work.next - 1),)
        self._on_diverged(gone, f"stream {self.stream!r} went back to {end}")

    def _on_diverged(self, ranges: Ranges, detail: str) -> None:
        self.port.notice(NoticeKind.DIVERGED, 0, ranges, detail)
        self._rewind_or_halt(self.options.on_diverged)

    def _rewind_or_halt(self, policy: str) -> None:
        if policy == "stop":
            self._halt()
        else:
            self.rewinding = True
            self._look()

    def _rewind(self, info: StreamInfo) -> None:
        """Back to the earliest entry. Under its old tag a position never goes back, so it gets a new one."""
        self.rewinding = False
        self.previous_tag = self.tag if self.previous_tag is None else self.previous_tag
        is_new = info.incarnation != self.incarnation
        self.tag = info.incarnation if is_new else self.rng.getrandbits(62) + 1
        self.incarnation = info.incarnation
        self.committed = 0
        self._move_to(info.earliest)

    def _stop(self, kind: NoticeKind, ranges: Ranges, detail: str) -> None:
        self.port.notice(kind, 0, ranges, detail)
        self._halt()

    def _halt(self) -> None:
        """Ask nothing more. What is in work may still be answered; it is not committed."""
        for asked in (self.question, self.committing):
            if asked:
                self.calls.forget(asked)
        self.question = self.committing = self.commit_at = None
        self.rest.clear()
        self.phase = Phase.STOPPED

    # Reading and handing up.

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
                if not self._is_timed and self.work.next > self.committed:
                    self._commit()
            case Trimmed(earliest):
                self._on_trimmed(earliest)
            case Reset(incarnation):
                self._on_reset(incarnation)
            case Ahead(end):
                self._on_ahead(end)
            case _:
                return

    def _wait_for(self, index: int) -> None:
        """Let the store say when it is worth while to look again; if it doesn't, look all the same."""
        self._ask(Phase.WAITING, WaitForMore(self.stream, index, IDLE_WAIT_US))
        assert self.question
        self.question.repeat_at += IDLE_WAIT_US

    def _on_hint(self, outcome: object) -> None:
        del outcome
        if not self.incarnation:
            self._look()  # the stream was too short to start at the index that was given
            return
        self.phase = Phase.DELIVERING
        self._go_on()

    def _go_on(self) -> None:
        """Hand up, commit and read, as far as what is in work and what is being committed allow."""
        while self.phase is Phase.DELIVERING and not self.work.unanswered:
            if self.work.has_refused:
                self._step_back()
            if self.committing is None and self._is_commit_due():
                self._commit()
            if self.committing and (self.is_moved or not self._is_timed):
                return
            if not self.rest:
                self._read()
                return
            self._hand_up()

    def _hand_up(self) -> None:
        while self.rest and self.work.may_take(self.rest[0]) and (room := self._room()):
            entries = self.rest.popleft()
            if len(entries.payloads) > room:
                entries, later = split(entries, room)
                self.rest.appendleft(later)
            for part in self.work.take(entries):
                self.port.hand_up(part.epoch, part.first, part.payloads)

    def _room(self) -> int:
        """How many more may be handed up before the next commit."""
        every = self._commit_every
        if every is None or self.port.durable:
            return self.options.read_max
        return max(0, every - (self.work.end - self.committed))

    def settled(self, epoch: int, first: int, last: int) -> None:
        """The layer above answers these messages: settled."""
        if self.work.settle(epoch, first, last):
            self.refusals = 0
            if self._is_timed and self.commit_at is None and self.phase is not Phase.STOPPED:
                self.commit_at = self.port.now + self._commit_within_us
        self._go_on()

    def refused(self, epoch: int, first: int, last: int) -> None:
        """The layer above answers these messages: refused. They are read again."""
        self.work.refuse(epoch, first, last)
        self._go_on()

    def _step_back(self) -> None:
        """Read again from the first that is not settled, after a pause; what is settled is skipped."""
        self.rest.clear()
        self.work.drop_runs()
        self.refusals += 1
        if self.refusals == WARN_AFTER:
            place = self.work.next
            detail = f"entry {place} was refused {self.refusals} times"
            self.port.notice(NoticeKind.STALLED, 0, ((place, place),), detail)

    # Committing.

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
        return micros(self.options.commit) if isinstance(self.options.commit, float) else 0

    def _is_commit_due(self) -> bool:
        """Between deliveries. With a durable state the host stores it, and the position with it."""
        if self.port.durable or self._is_timed or self.work.next <= self.committed:
            return False
        every = self._commit_every
        return not self.rest if every is None else self.work.next - self.committed >= every

    def _commit(self) -> None:
        self.commit_at = None
        if self.committing:  # of a place that is left by now
            self.calls.forget(self.committing)
        self.committing = self.calls.ask(commit_in(self._cursor(0, ()), self.port.state()))

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
            case Fenced(by):
                uncommitted = ((request.next, self.work.next - 1),)
                ranges = uncommitted if request.next < self.work.next else ()
                self._stop(NoticeKind.FENCED, ranges, f"owner {by} reads as {self.reader!r} now")
            case Failed(reason):
                self._stop(NoticeKind.STALLED, (), reason)
            case _:
                self.look_again = True
                self._note_failure("the store of positions is unavailable")
                self.calls.put_off(asked, self.failures)

    # Time.

    def wake(self) -> None:
        """Start, ask again what was not answered, commit what is due."""
        if self.phase is Phase.NEW:
            self._ask(Phase.CLAIMING, self._claim_request())
            return
        if self.question and self.calls.is_due(self.question):
            self._repeat(self.question)
        if self.committing and self.calls.is_due(self.committing):
            self.calls.repeat(self.committing)
        if self.commit_at is not None and self.commit_at <= self.port.now and not self.committing:
            self._commit()

    def _claim_request(self) -> ClaimReader:
        claimant = self.rng.getrandbits(62) + 1
        return ClaimReader(self.stream, self.reader, claimant)

    def _repeat(self, question: Asked) -> None:
        if isinstance(question.request, WaitForMore):
            self.calls.forget(question)
            self.question = None
            _ANSWERS[self.phase](self, None)
        else:
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
        has_place = self.phase not in (Phase.NEW, Phase.STOPPED) and self.incarnation
        if has_place and self.work.next > self.committed and not self.committing:
            self._commit()

    def cursor(self, epoch: int = 0, also: Ranges = ()) -> object:
        """The position, with everything that ``commit_of`` needs to commit it."""
        return self._cursor(epoch, also)

    def _cursor(self, epoch: int, also: Ranges) -> list[object]:
        index, anchor = self.work.position_with(epoch, also)
        return cursor_of(
            CommitPosition(
                *(self.stream, self.reader, self.owner, self.tag, index),
                *(anchor, b"", self.previous_tag),
            ),
            self.incarnation,
        )

    def restore_cursor(self, cursor: object) -> None:
        """A stored position that may be further than the committed one."""
        self.restored = cast("list[object]", cursor)

    def gauges(self) -> dict[str, int]:
        """Entries in work, and those still to be read."""
        held = sum(len(entries.payloads) for entries in self.rest)
        in_work = self.work.unanswered
        return {"held": held, "in_work": in_work, "lag": max(0, self.stream_end - self.work.next)}


_ANSWERS = {
    Phase.CLAIMING: Receiver._on_owner,
    Phase.FINDING: Receiver._on_position,
    Phase.LOOKING: Receiver._on_info,
    Phase.VERIFYING: Receiver._on_identity,
    Phase.READING: Receiver._on_read,
    Phase.WAITING: Receiver._on_hint,
}
_ASKING = (Phase.CLAIMING, Phase.FINDING, Phase.LOOKING, Phase.VERIFYING, Phase.READING)
