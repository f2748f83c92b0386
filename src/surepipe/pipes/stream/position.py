"""Where a stream's reader stands: how it claims its name, finds its position, and checks that it still means
the same entries. What it does with the entries is in ``stream_receiver``.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, TypeGuard, cast

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.machine import Randomness
from surepipe.core.snapshot import stateful
from surepipe.core.store_requests import (
    Absent,
    ClaimReader,
    CommitPosition,
    DescribeStream,
    Entries,
    FencedOut,
    GetPosition,
    IdentifyEntry,
    Identity,
    NoPosition,
    Owner,
    Position,
    StoreRequest,
    StreamInfo,
    Trimmed,
    WaitForMore,
)
from surepipe.errors import ConfigurationError
from surepipe.pipes.stack.layers import ReceiverLayer, ReceiverPort
from surepipe.pipes.stream.calls import WARN_AFTER, Asked, StoreCalls
from surepipe.pipes.stream.options import Stream
from surepipe.pipes.stream.work import StreamWork

# The cursor of a stream's reader: a JSON list of what its commit takes, and the stream's incarnation.


_LENGTH = 9


def cursor_of(request: CommitPosition, incarnation: int) -> list[object]:
    """The cursor that stands for this commit. The state is not part of it: the cursor is part of the state."""
    anchor = request.anchor
    return [
        *(request.stream, request.reader, request.owner, request.tag, request.next),
        [anchor.producer, anchor.epoch, anchor.seq] if anchor else None,
        *(request.previous_tag, request.revision, incarnation),
    ]


def is_cursor(value: object) -> TypeGuard[list[object]]:
    """True for what ``cursor_of`` made."""
    return isinstance(value, list) and len(cast("list[object]", value)) == _LENGTH


def incarnation_in(cursor: list[object]) -> int:
    """The incarnation of the stream that was read."""
    return cast("int", cursor[-1])


def commit_in(cursor: list[object], state: bytes) -> CommitPosition:
    """The commit that a cursor stands for, with this state."""
    stream, reader, owner, tag, index, anchor, previous_tag, revision, _ = cast(
        "tuple[str, str, int, int, int, list[object] | None, int | None, int, int]", cursor
    )
    found = Identity(*cast("tuple[str, int, int]", anchor)) if anchor else None
    return CommitPosition(stream, reader, owner, tag, index, found, state, previous_tag, revision)


def commit_of(state: bytes) -> CommitPosition:
    """The commit that stores the state of a stack over a stream: its position, with the state in it.

    A host that stores states itself (boundary ``before``, ``committed``, or a durable ``processed``) makes this
    request of each ``SaveState`` and of ``state_after``, and executes it, in the transaction of the effect where
    the boundary is ``committed``. Committed means stored; Fenced means that a later owner reads now.
    Raises ValueError for a state of a stack without a stream.
    """
    cursors = cast("list[object]", json.loads(state))
    innermost = cursors[-1] if cursors else None
    if not is_cursor(innermost):
        raise ValueError("this state has no position in a stream: its stack does not end in one")
    return commit_in(innermost, state)


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


class StreamPlace(ReceiverLayer):
    """Claims the reader and finds its place; what changes the place (a policy, an outage) comes back here.

    Claiming, Finding (the stored position), Looking (how the stream stands) and Verifying (is the entry before
    the position still the same) lead to Delivering. Stopped: fenced by a later owner, or by a policy.
    """

    TRANSIENT: ClassVar[tuple[str, ...]] = (
        *("port", "options", "rng", "calls", "stream", "reader"),
        "why_stopped",
    )

    def __init__(self, options: Stream, port: ReceiverPort, rng: Randomness) -> None:
        if options.start is None:
            raise ConfigurationError(
                f"stream pipe {port.pipe!r} does not say where a reader without a position begins: "
                "set start to earliest, latest or an index"
            )
        self.options: Stream = options
        self.port = port
        self.rng = rng
        self.calls = StoreCalls(options, port, rng)
        self.stream = options.stream or port.pipe
        self.reader = options.reader or port.pipe
        self.phase = Phase.NEW
        self.why_stopped = ""
        self.question: Asked | None = None
        self.verified: tuple[int, Identity | None] = (0, None)
        self.owner = 0
        self.revision = 0
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
        self.draining = False
        """Something is wrong with the stream: what is in work is answered before it is looked into."""
        self.failures = 0
        self.refusals = 0
        self.meets_strangers = False
        """True when what was refused is no message of the layers above."""
        self.closing = False

    @property
    def has_begun(self) -> bool:
        """True once the store has the place where it goes on: from then on nothing that comes is passed over, nor
        trimmed before it was read. Also where it waits for the index that it was told to start at."""
        is_early = self.phase is Phase.WAITING and not self.incarnation
        return is_early or (self.incarnation > 0 and not self.is_moved)

    # What the rest of the receiver does.

    @abstractmethod
    def _commit(self) -> None:
        """Commit the place as it is now."""

    @abstractmethod
    def _go_on(self) -> None:
        """Deliver and read, from the place as it is now."""

    # Asking.

    def _ask(self, phase: Phase, request: StoreRequest, failures: int = 0) -> None:
        """Go into a phase with its question, at once or after the pause for so many failures."""
        self.phase = phase
        ask = self.calls.ask
        self.question = self.calls.ask_after(request, failures) if failures else ask(request)

    def _look(self, failures: int = 0) -> None:
        self.look_again = False
        self._ask(Phase.LOOKING, DescribeStream(self.stream), failures)

    def _wait_for(self, index: int) -> None:
        """Let the store say when it is worth while to look again; if it doesn't, look all the same."""
        self._ask(Phase.WAITING, WaitForMore(self.stream, index, IDLE_WAIT_US))
        assert self.question
        self.question.repeat_at += IDLE_WAIT_US

    def _note_failure(self, detail: str) -> None:
        self.failures += 1
        if self.failures == WARN_AFTER:
            self._tell_of_outage(detail)

    def _tell_of_outage(self, detail: str) -> None:
        place = self.work.next
        self.port.notice(NoticeKind.UNANSWERED, 0, ((place, place),), detail)

    # Claiming and locating.

    def _claim(self) -> None:
        self._ask(Phase.CLAIMING, ClaimReader(self.stream, self.reader, self.port.life))

    def _on_owner(self, outcome: object) -> None:
        if isinstance(outcome, Owner):
            self.owner = outcome.number
            self._ask(Phase.FINDING, GetPosition(self.stream, self.reader))
        elif isinstance(outcome, FencedOut):
            detail = f"a life that began later reads as {self.reader!r} now"
            self._stop(NoticeKind.FENCED, (), detail)

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
                detail = (
                    f"the position of reader {self.reader!r} holds the state of another stack: give it the layers "
                    "that it had, or another name"
                )
                self._stop(NoticeKind.DIVERGED, (), detail)
                return
            incarnation = incarnation_in(cursor)
        self.tag, self.incarnation = position.tag, incarnation
        self.work.start_at(position.place, position.anchor)
        if position.is_forgotten:
            self._register_again()
        self._look()

    def _register_again(self) -> None:
        """Somebody had this reader forgotten: it goes on at its place, which is committed first. Under its old tag
        a position never goes back, so it gets a new one."""
        self.previous_tag, self.committed = self.tag, 0
        self.tag = self.rng.getrandbits(62) + 1
        self.is_moved = True

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
        elif outcome.next < self.work.end:
            self._on_ahead(outcome.next)
        elif self.is_moved and outcome.earliest > self.work.next:
            self._on_trimmed(
                outcome.earliest
            )  # before the place is committed, where nothing is kept
        elif outcome.earliest < self.work.next:
            self._verify()
        else:
            self._resume()

    def _start(self, info: StreamInfo) -> None:
        """No position yet: the start policy. The place is committed before anything is read, so that a
        crash before the first commit neither starts later (latest) nor lets entries be trimmed."""
        named = {"earliest": info.earliest, "latest": info.next}
        start = self.options.start
        index = start if isinstance(start, int) else named[str(start)]
        if index > info.next:
            self._wait_for(info.next)
            return
        self.tag = self.incarnation = info.incarnation
        if start == "earliest" and index > 1:
            self._tell_where_it_begins(index)
        self._move_to(index)

    def _tell_where_it_begins(self, earliest: int) -> None:
        """What was removed before a reader came is told to it as well: perhaps it was to read that."""
        detail = (
            f"reader {self.reader!r} begins at entry {earliest}, the earliest of stream {self.stream!r}: those "
            "before it were removed (by retention, say) before it was registered"
        )
        self.port.notice(NoticeKind.TRIMMED, 0, ((1, earliest - 1),), detail)

    def _move_to(self, index: int) -> None:
        self.work.start_at(index, None)
        self.is_moved = True
        self._verify()

    def _verify(self) -> None:
        """Ask for the anchor. With lanes the place may have gone on when the answer comes."""
        before = self.work.next - 1
        self.verified = (before, self.work.anchor)
        self._ask(Phase.VERIFYING, IdentifyEntry(self.stream, before))

    def _on_identity(self, outcome: object) -> None:
        place, anchor = self.verified
        if anchor is None and isinstance(outcome, Identity | Absent):
            if place == self.work.next - 1:
                self.work.anchor = outcome if isinstance(outcome, Identity) else None
            self._resume()
        elif outcome == anchor or isinstance(outcome, Trimmed):
            self._resume()
        elif isinstance(outcome, Absent | Identity):
            self._on_other(place, anchor, outcome)

    def _resume(self) -> None:
        self.phase = Phase.DELIVERING
        if self.is_moved:
            self._commit()
        self._go_on()

    # Policies. Each gives its notice with the exact range of indexes first, when nothing is in work any more:
    # only then it is certain which entries were passed.

    def _is_drained(self) -> bool:
        """False while entries are in work: nothing is read until they are answered, and then all is looked at."""
        if self.work.unanswered:
            self.draining = True
            self.phase = Phase.DELIVERING
        return not self.draining

    def _on_trimmed(self, earliest: int) -> None:
        if not self._is_drained():
            return
        place = self.work.next
        detail = (
            f"entries of stream {self.stream!r} are gone that reader {self.reader!r} has not read: trimmed (by "
            "force, or as its place is kept in another store, for which no retention waits), or removed by "
            "somebody else"
        )
        self.port.notice(NoticeKind.TRIMMED, 0, ((place, earliest - 1),), detail)
        if self.options.on_trimmed == "stop":
            self._halt(f"{detail}. on_trimmed: skip goes on behind them")
        else:
            self._move_to(earliest)

    def _on_reset(self, incarnation: int) -> None:
        if not self._is_drained():
            return
        passed = ((1, self.work.next - 1),) if self.work.next > 1 else ()
        detail = f"stream {self.stream!r} was made anew ({incarnation}, before {self.incarnation})"
        self.port.notice(NoticeKind.RESET, 0, passed, detail)
        self._rewind_or_halt("on_reset", detail)

    def _on_ahead(self, end: int) -> None:
        gone = ((end, self.work.next - 1),)
        self._on_diverged(gone, f"stream {self.stream!r} went back to {end}")

    def _on_other(self, place: int, anchor: Identity | None, found: object) -> None:
        detail = f"entry {place} of stream {self.stream!r} was {anchor}, and is {found}"
        self._on_diverged(((place, place),), detail)

    def _on_diverged(self, ranges: Ranges, detail: str) -> None:
        if not self._is_drained():
            return
        self.port.notice(NoticeKind.DIVERGED, 0, ranges, detail)
        self._rewind_or_halt("on_diverged", detail)

    def _rewind_or_halt(self, option: str, why: str) -> None:
        if getattr(self.options, option) == "stop":
            self._halt(f"{why}. {option}: earliest reads what is there now from its beginning")
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
        self._halt(detail)

    def _halt(self, why: str) -> None:
        """Ask nothing more. What is in work may still be answered; it is not committed."""
        self.why_stopped = why
        for asked in (self.question, self.committing):
            if asked:
                self.calls.forget(asked)
        self.question = self.committing = self.commit_at = None
        self.rest.clear()
        self.phase = Phase.STOPPED

    # What survives a crash.

    def cursor(self, epoch: int = 0, also: Ranges = (), producer: str = "") -> object:
        """The position, with everything that ``commit_of`` needs to commit it.

        Each one that is asked for is a newer state. It has a revision of its own, so that a commit of an older
        one, which a store may execute late, can't replace it where both have the same index.
        """
        self.revision += 1
        index, anchor = self.work.position_with((producer, epoch), also)
        return cursor_of(
            CommitPosition(
                *(self.stream, self.reader, self.owner, self.tag, index),
                *(anchor, b"", self.previous_tag, self.revision),
            ),
            self.incarnation,
        )

    def restore_cursor(self, cursor: object) -> None:
        """A stored position that may be further than the committed one."""
        self.restored = cast("list[object]", cursor)

    def begins_behind(self) -> Sequence[tuple[str, int, int, int]]:
        anchor = self.work.anchor
        return [(anchor.producer, anchor.epoch, 1, anchor.seq)] if anchor else ()
