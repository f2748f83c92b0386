"""continuous-index: every message in its place; what comes early is held until its turn.

Problem: a carrier that loses nothing but reorders and repeats. The sender numbers; the receiver
hands up the message it expects, holds what comes early, and drops what it has passed.

Assumes that the carrier brings every message at least once, and those that find no room again: over a
bare route that overtakes nothing bounds how early one comes, so that is refused. Promises absolute order under
every fault of the route (``repeats: last``: continuous, ``repeats: all``: gap-free); it loses nothing that
the carrier doesn't lose. A receiver that lost its cursor asks where the epoch starts (Unknown) and
the sender answers (Open): that needs a way back and a carrier that confirms, as over any other
carrier nobody knows what was settled. A hole that stays is reported (Stalled), never skipped.
Catalogue: "Continuous index pipe".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, cast

from pydantic import Field

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.machine import Randomness
from surepipe.core.payloads import part_of, size_of
from surepipe.core.ranges import RangeSet
from surepipe.core.timing import BackOff
from surepipe.pipes.declaration import (
    ABSENT,
    IN_TURN,
    NO_REPEAT,
    N,
    PipeKind,
    Provision,
    row,
    set_to,
)
from surepipe.pipes.kinds.index import IndexReceiver, IndexSender
from surepipe.pipes.options import IndexOptions, Seconds, micros
from surepipe.pipes.stack import fencing
from surepipe.pipes.stack.in_work import InWork, Repeats, count_of
from surepipe.pipes.stack.layers import ReceiverPort, SenderPort, Token
from surepipe.pipes.stack.reorder import Offered, ReorderBuffer
from surepipe.pipes.stack.tokens import WaitingTokens
from surepipe.pipes.wire.frames import (
    MAX_NUMBER,
    Frame,
    Numbered,
    Open,
    RefusedReason,
    Unknown,
)


class ContinuousIndex(IndexOptions):
    """Absolute order over a carrier that loses nothing; holds what comes early."""

    kind: ClassVar[str] = "continuous-index"
    agreed: ClassVar[tuple[str, ...]] = ("repeats",)

    repeats: Literal["none", "last", "all"] = Field(
        default="none", description="which repeats are delivered"
    )
    rto_initial_s: Seconds = Field(
        default=1.0, description="first wait for an answer on the control path"
    )
    rto_max_s: Seconds = Field(
        default=30.0, description="longest wait for an answer on the control path"
    )
    jitter: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1, description="random part of a deadline"
    )

    @property
    def lets_repeats_through(self) -> bool:
        """True where some repeats are delivered."""
        return self.repeats != "none"


class Sender(IndexSender):
    """Numbers and passes down, at most the receiver's window ahead of what is confirmed."""

    def __init__(self, options: ContinuousIndex, port: SenderPort, rng: Randomness) -> None:
        super().__init__(options, port, rng, window=options.held_max)

    def control(self, frame: Frame) -> None:
        """Unknown is answered with Open, if the carrier tells us what is settled."""
        if not isinstance(frame, Unknown) or not self.epoch or not self.port.carrier_confirms:
            super().control(frame)
        elif frame.link:
            self.port.count("unknown_link")
        else:
            self.port.control(
                Open(
                    *(self.port.tag, self.port.layer),
                    *(self.epoch, 0, self.epoch, self.base, self.next),
                    self.port.stack_digest,
                )
            )


class Receiver(IndexReceiver):
    """Fresh (``buffer.expected`` 0: holds and asks) or Running. Never finished.

    ``asked_for`` and ``noticed`` name the hole that was asked for and reported: by its last number,
    0 for the unknown start of a fresh receiver, -1 for none.
    """

    holds_early: ClassVar[bool] = True
    TRANSIENT: ClassVar[tuple[str, ...]] = (
        *IndexReceiver.TRANSIENT,
        *("gap_alarm", "ask_again", "repeats"),
    )

    def __init__(self, options: ContinuousIndex, port: ReceiverPort, rng: Randomness) -> None:
        super().__init__(options, port, rng)
        self.gap_alarm = micros(options.gap_alarm_s)
        self.ask_again = BackOff.of_seconds(
            options.rto_initial_s, options.rto_max_s, options.jitter
        )
        self.repeats = options.repeats
        self.repeated = Repeats()
        self.carrier_epoch = 0
        self._start_epoch(0, 0)

    def _start_epoch(self, epoch: int, expected: int) -> None:
        self.epoch = epoch
        self.buffer = ReorderBuffer(self.options.held_max, self.options.held_max_bytes, expected)
        self.tokens = WaitingTokens()
        self.holding_since = -1
        self.asked_for = -1
        self.noticed = -1
        self.asks = 0
        self.ask_at = 0

    @property
    def is_running(self) -> bool:
        """True when it is known what comes next."""
        return self.buffer.expected > 0

    @property
    def load(self) -> tuple[int, int]:
        others = self.former_bytes + self.repeated.size_bytes
        return self._in_work, self.buffer.size_bytes + others

    @property
    def _in_work(self) -> int:
        return self.buffer.in_work + self.former_count + self.repeated.count

    # From below.

    def accept(self, frame: Numbered, token: Token | None) -> None:
        """Hand up the expected message and all that follow it; hold early ones."""
        if token is not None and token[0] > self.carrier_epoch:
            self._change_carrier(token[0])
        if frame.epoch > self.epoch:
            self._change_epoch(frame.epoch)
        if frame.first == 1 and not self.is_running:
            self._start_at(1)
        again = self._repeat(frame)
        self._renew_bounds(frame if self.takes_whole(token) else None)
        offered = self.buffer.offer(frame.first, frame.payloads, self.port.now)
        self._count(offered, again)
        self._take(offered)
        self._answer(frame, token, offered)
        if not self.is_running:
            self._note_unknown_start()

    def _change_carrier(self, epoch: int) -> None:
        """The carrier's sender has a new life: let go of what its former one brought and is held.

        The messages stay; only their carrier messages are answered. Unanswered they would fill the
        carrier's window, which the message they all wait for, brought by the new life, needs.
        """
        self.carrier_epoch = epoch
        self.refuse_all(self.tokens.pop_older(epoch, self.buffer.expected))

    def _change_epoch(self, epoch: int) -> None:
        """A new life: what is held of the former one is dropped, what is in work stays in work."""
        was_running = self.is_running
        self.refuse_all(self.tokens.pop_overlapping(self.buffer.expected, MAX_NUMBER))
        abandoned = self.buffer.drop_held()
        if abandoned:
            self.port.count("abandoned", abandoned)
        if was_running:
            self.retire(self._in_work_of_this_epoch())
        self.repeated = Repeats()
        self._start_epoch(epoch, 1 if was_running else 0)

    def _in_work_of_this_epoch(self) -> InWork:
        work = InWork(self.tokens)
        work.repeats = self.repeated
        first, last = self.buffer.settled + 1, self.buffer.expected - 1
        size = self.buffer.size_bytes
        for part in self.buffer.settled_above.missing(first, last):
            work.add(*part, size)
            size = 0
        return work

    def _repeat(self, frame: Numbered) -> int:
        """Hand up again what may be repeated, as far as there is room; say how much that was."""
        expected = self.buffer.expected
        last = min(expected - 1, frame.first + len(frame.payloads) - 1)
        first = max(frame.first, expected - 1) if self.repeats == "last" else frame.first
        if self.repeats == "none" or last < max(first, 1):
            return 0
        again = part_of(frame.payloads, first - frame.first, last - frame.first + 1)
        if not self._has_room_to_repeat(again):
            return 0
        self.repeated.add(again)
        self.port.hand_up(self.epoch, first, again)
        return len(again)

    def _has_room_to_repeat(self, again: Sequence[bytes]) -> bool:
        span = max(self.buffer.expected - 1, self.buffer.held.highest()) - self.buffer.settled
        count = span + self.repeated.count + self.former_count + len(again)
        size = self.buffer.size_bytes + self.repeated.size_bytes + self.former_bytes
        size += size_of(again)
        return count <= self.options.held_max and size <= self.options.held_max_bytes

    def _renew_bounds(self, whole: Numbered | None = None) -> None:
        """Limit what may be held: other work takes room, and what must be taken whole keeps its own."""
        others = self.former_count + self.repeated.count
        others_bytes = self.former_bytes + self.repeated.size_bytes
        count, size = self.buffer.held_count + self.buffer.in_work, self.buffer.size_bytes
        if whole is not None and whole.first == self.buffer.expected:
            count = whole.first + len(whole.payloads) - 1 - self.buffer.settled
            size += size_of(whole.payloads)
        self.buffer.held_max = max(count, self.options.held_max - others)
        self.buffer.held_max_bytes = max(size, self.options.held_max_bytes - others_bytes)

    def _count(self, offered: Offered, again: int) -> None:
        """Messages by what became of them; a frame that changed nothing touches one counter."""
        counts = {
            "over_limit": count_of(offered.over_limit) + count_of(offered.evicted),
            "conflict": offered.conflict,
            "duplicate": offered.duplicate + offered.in_work + offered.repeated - again,
        }
        is_ignored = not offered.kept and not again
        for name, amount in counts.items():
            if amount > 0:
                self.port.count(name, amount)
                if is_ignored:
                    return

    def _take(self, offered: Offered) -> None:
        for first, last in offered.evicted:
            self.refuse_all(self.tokens.pop_overlapping(first, last))
        if offered.ready:
            self.port.hand_up(self.epoch, offered.first, offered.ready)

    def _answer(self, frame: Numbered, token: Token | None, offered: Offered) -> None:
        last = frame.first + len(frame.payloads) - 1
        if offered.over_limit:
            self.port.refuse(token)
        elif last <= self.buffer.settled:
            self.port.settle(token)
        elif token is not None and token[0] < self.carrier_epoch and last >= self.buffer.expected:
            self.port.refuse(token)
        else:
            self.tokens.add(frame.first, last, token)

    def control(self, frame: Frame) -> None:
        """Open tells where the epoch starts; nothing else comes on the control path."""
        if not isinstance(frame, Open):
            self.wrong_state()
        elif frame.stack != self.port.stack_digest:
            self.wrong_state()
            self.port.notice(NoticeKind.MISMATCH, 0, (), self.port.differs)
            fencing.turn_away(self.port, frame.link, frame.epoch, self.epoch, RefusedReason.STACK)
        elif frame.epoch < max(self.epoch, 1):
            self.refuse_stale(frame.epoch)
        else:
            self._open(frame)

    def _open(self, frame: Open) -> None:
        if frame.epoch > self.epoch:
            self._change_epoch(frame.epoch)
        expected = max(self.buffer.expected, 1)
        if self.port.durable and frame.base > expected:
            detail = f"the sender knows that everything below {frame.base} is settled"
            missing = ((expected, frame.base - 1),)
            self.port.notice(NoticeKind.STATE_ROLLBACK, self.epoch, missing, detail)
        self._start_at(frame.base)

    def _start_at(self, base: int) -> None:
        """Everything below ``base`` is settled."""
        self._renew_bounds()
        self._take(self.buffer.start_at(base, self.port.now))
        self.settle_all(self.tokens.pop_through(self.buffer.settled))

    # From above.

    def settle_current(self, first: int, last: int) -> None:
        before = self.buffer.in_work
        self.buffer.settle(first, last)
        self._answered(last - first + 1 - (before - self.buffer.in_work))
        self.settle_all(self.tokens.pop_through(self.buffer.settled))

    def refuse_current(self, first: int, last: int) -> None:
        """Step back to the first message that was refused; what is in work above it goes, too."""
        before, expected = self.buffer.in_work, self.buffer.expected
        low = max(first, self.buffer.settled + 1)
        if low <= min(last, expected - 1):
            self.buffer.step_back(low, self.port.now)
            self.refuse_all(self.tokens.pop_overlapping(low, expected - 1))
        self._answered(last - first + 1 - (before - self.buffer.in_work))

    def _answered(self, repeated: int) -> None:
        if repeated > 0:
            self.repeated.answered(repeated)

    # Holes.

    def _note_unknown_start(self) -> None:
        if self.holding_since < 0:
            self.holding_since = self.port.now
            self._ask(0)

    def _hole(self) -> tuple[int, int] | None:
        """The name of the hole that blocks, and since when it does."""
        if not self.is_running:
            return (0, self.holding_since) if self.holding_since >= 0 else None
        holes = self.buffer.holes.holes
        return (holes[0].last, holes[0].since) if holes else None

    @property
    def deadline(self) -> int | None:
        """When a hole is to be reported or asked for."""
        hole = self._hole()
        if hole is None:
            return None
        name, since = hole
        times: list[int] = []
        if self.noticed != name:
            times.append(since + self.gap_alarm)
        if self.port.has_reverse:
            times.append(self.ask_at if self.asked_for == name else since + self.gap_alarm)
        return min(times, default=None)

    def wake(self) -> None:
        """Report a hole that stays, and ask the sender about it."""
        hole = self._hole()
        if hole is None:
            return
        name, since = hole
        now = self.port.now
        is_old = now >= since + self.gap_alarm
        if is_old and self.noticed != name:
            self.noticed = name
            self.port.notice(NoticeKind.STALLED, self.epoch, self._missing(), "a hole stays open")
        if now >= self.ask_at if self.asked_for == name else is_old:
            self._ask(name)

    def _missing(self) -> Ranges:
        """Every number that something above it shows to be missing."""
        if self.is_running:
            return self.buffer.missing
        return self.buffer.held.missing(1, self.buffer.held.highest())

    def _ask(self, hole: int) -> None:
        self.asks = self.asks + 1 if self.asked_for == hole else 1
        self.asked_for = hole
        self.ask_at = self.port.now + self.ask_again.wait(self.asks, self.rng)
        self.port.control(Unknown(self.port.tag, self.port.layer, 0, self.port.incarnation))

    # What survives.

    def cursor(self, epoch: int = 0, also: Ranges = (), _producer: str = "") -> object:
        """The epoch, and the last message up to which all are settled."""
        settled = RangeSet(self.buffer.settled_above)
        for first, last in also if epoch == self.epoch else ():
            settled.add(first, last)
        if not self.is_running:
            return [0, 0]
        return [self.epoch, max(self.buffer.settled, settled.end_of_run(self.buffer.settled + 1))]

    def restore_cursor(self, cursor: object) -> None:
        """Go on above a stored cursor."""
        epoch, settled = cast("tuple[int, int]", cursor)
        if epoch:
            self._start_epoch(epoch, settled + 1)

    def begins_behind(self) -> Sequence[tuple[str, int, int, int]]:
        return [("", self.epoch, 1, self.buffer.settled)] if self.is_running else ()

    def gauges(self) -> dict[str, int]:
        return {"held": self.buffer.held_count, "in_work": self._in_work}


_LOSS = Provision(
    N,
    "never sends again, so it loses what its carrier loses",
    window="receive_window",
    beyond="loses what comes earlier than receive_window can hold and waits for it for ever",
)
_LAST_AGAIN = Provision(ABSENT, "is set to let the last message through again")
_ALL_AGAIN = Provision(ABSENT, "is set to let every repeat through")

PIPE = PipeKind(
    *(ContinuousIndex, Sender, Receiver),
    declares=(
        row(
            ContinuousIndex,
            (_LOSS, NO_REPEAT, IN_TURN, IN_TURN),
            applies=set_to(repeats="none"),
            at_least_once_carrier=True,
        ),
        row(
            ContinuousIndex,
            (_LOSS, _LAST_AGAIN, IN_TURN, IN_TURN),
            when="repeats: last",
            applies=set_to(repeats="last"),
            at_least_once_carrier=True,
        ),
        row(
            ContinuousIndex,
            (_LOSS, _ALL_AGAIN, _ALL_AGAIN, IN_TURN),
            when="repeats: all",
            at_least_once_carrier=True,
        ),
    ),
    advised=1,
)
