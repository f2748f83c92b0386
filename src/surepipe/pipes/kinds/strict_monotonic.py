"""strict-monotonic: never a repeat, never backwards; what is overtaken is lost.

Problem: a route that repeats and reorders, and an application for which a late or repeated message
is worse than none. The sender numbers; the receiver lets through what is above its cursor, and moves
the cursor. No timer, no buffer, no way back needed.

Assumes nothing of the channel. Promises strict order under every fault of the route (with
``relaxed``: monotonic, as the last message may come through again). Does not promise that a message
arrives: one that was overtaken is dropped and counted ``behind``, a hole is counted ``missing``.
Catalogue: "Strict monotonic index pipe".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from pydantic import Field

from surepipe.core.effects import Ranges
from surepipe.core.machine import Randomness
from surepipe.core.payloads import part_of, size_of
from surepipe.core.ranges import RangeSet
from surepipe.pipes.declaration import (
    ABSENT,
    N_AND_G,
    NEVER_BACK,
    NO_REPEAT,
    G,
    PipeKind,
    Provision,
    row,
    set_to,
)
from surepipe.pipes.kinds.index import IndexReceiver, IndexSender
from surepipe.pipes.options import IndexOptions
from surepipe.pipes.retry.backlog import prefix_within
from surepipe.pipes.stack.in_work import InWork
from surepipe.pipes.stack.layers import ReceiverPort, SenderPort, Token
from surepipe.pipes.wire.frames import Numbered


class StrictMonotonic(IndexOptions):
    """Never a repeat, never backwards; loses what is overtaken."""

    kind: ClassVar[str] = "strict-monotonic"
    agreed: ClassVar[tuple[str, ...]] = ("relaxed",)

    relaxed: bool = Field(default=False, description="let the last message through again")

    @property
    def lets_repeats_through(self) -> bool:
        """True where it is relaxed."""
        return self.relaxed


class Sender(IndexSender):
    """Numbers and passes down; nothing bounds it but the carrier."""

    def __init__(self, options: StrictMonotonic, port: SenderPort, rng: Randomness) -> None:
        super().__init__(options, port, rng)


class Receiver(IndexReceiver):
    """Fresh (``epoch`` 0: takes whatever comes first) or Running(epoch, cursor). Never finished.

    ``wanted`` is the lowest message that was refused for want of room and will be brought again:
    while something is in work, nothing may overtake it.
    """

    TRANSIENT: ClassVar[tuple[str, ...]] = (*IndexReceiver.TRANSIENT, "relaxed")

    def __init__(self, options: StrictMonotonic, port: ReceiverPort, rng: Randomness) -> None:
        super().__init__(options, port, rng)
        self.relaxed = options.relaxed
        self.cursor_at = 0
        self.work = InWork()
        self.wanted = (0, 0)

    def accept(self, frame: Numbered, token: Token | None) -> None:
        """Let through what is above the cursor, as far as there is room."""
        first, last = frame.first, frame.first + len(frame.payloads) - 1
        is_new = frame.epoch > self.epoch
        cursor = first - 1 if is_new else self.cursor_at
        start = max(first, cursor + 1)
        again = self._again(frame, cursor) if not is_new else ()
        if start > last and not again:
            self.port.count("behind", len(frame.payloads))
            self._answer_when_done(first, last, token)
            return
        fresh = self._fitting(frame, start, token, len(again))
        if start <= last and not fresh:
            self._refuse_rest(frame.epoch, start, last, token)
            return
        if is_new:
            self._adopt(frame.epoch, cursor)
        self._count("missing", start - self.cursor_at - 1 if fresh else 0)
        self._count("behind", min(start, last + 1) - first - len(again))
        self._hand_up(start, fresh, again)
        if self.cursor_at < last:
            self._refuse_rest(frame.epoch, self.cursor_at + 1, last, token)
        else:
            self._answer_when_done(first, last, token)

    def _again(self, frame: Numbered, cursor: int) -> Sequence[bytes]:
        """The last message, if it is repeated here and may be."""
        at = cursor - frame.first
        has_room = self._in_work < self.options.held_max
        if self.relaxed and has_room and 0 <= at < len(frame.payloads):
            return frame.payloads[at : at + 1]
        return ()

    def _fitting(
        self, frame: Numbered, start: int, token: Token | None, also: int
    ) -> Sequence[bytes]:
        """What may be handed up of the run from ``start`` on."""
        in_work = self._in_work
        epoch, seq = self.wanted
        if token is not None and in_work and frame.epoch == epoch and start > seq:
            return ()
        room = max(0, self.options.held_max - in_work - also)
        room_bytes = self.options.held_max_bytes - self.load[1]
        at = start - frame.first
        if self.takes_whole(token):
            return part_of(frame.payloads, at, len(frame.payloads))
        fresh = part_of(frame.payloads, at, min(at + room, len(frame.payloads)))
        if size_of(fresh) > room_bytes:
            fresh, _ = prefix_within(list(fresh), room_bytes, at_least_one=not in_work)
        return fresh

    @property
    def load(self) -> tuple[int, int]:
        return self._in_work, self.work.size_bytes + self.former_bytes

    @property
    def _in_work(self) -> int:
        return self.work.count + self.former_count

    def _adopt(self, epoch: int, cursor: int) -> None:
        self.retire(self.work)
        self.work = InWork()
        self.epoch = epoch
        self.cursor_at = cursor

    def _hand_up(self, start: int, fresh: Sequence[bytes], again: Sequence[bytes]) -> None:
        if again:
            self.work.repeats.add(again)
            self.port.hand_up(self.epoch, self.cursor_at, again)
        if fresh:
            self.cursor_at = start + len(fresh) - 1
            self.work.add(start, self.cursor_at, size_of(fresh))
            self.port.hand_up(self.epoch, start, fresh)

    def _refuse_rest(self, epoch: int, first: int, last: int, token: Token | None) -> None:
        """No room: the carrier brings it again. On the raw route it is gone."""
        self.port.count("over_limit", last - first + 1)
        self.port.refuse(token)
        if token is not None and (self.wanted[0] != epoch or first < self.wanted[1]):
            self.wanted = (epoch, first)

    def _answer_when_done(self, first: int, last: int, token: Token | None) -> None:
        """Settled at once what is settled or was overtaken; later what is in work."""
        if self.wanted[0] == self.epoch and self.wanted[1] <= self.cursor_at:
            self.wanted = (0, 0)
        if token is not None and not self.work.answer_for(first, last, token):
            self.port.settle(token)

    def _count(self, name: str, amount: int) -> None:
        if amount > 0:
            self.port.count(name, amount)

    # From above.

    def settle_current(self, first: int, last: int) -> None:
        self.settle_all(self.work.settle(first, last))

    def refuse_current(self, first: int, last: int) -> None:
        """Step back to the first message that was refused; what is in work above it goes, too."""
        in_work = self.work.ranges.within(first, last)
        if not in_work:
            self.settle_all(self.work.settle(first, last))
            return
        low = in_work[0][0]
        tokens = self.work.refuse(low, max(last, self.work.ranges.highest()))
        self.cursor_at = low - 1
        self.wanted = (self.epoch, low) if tokens else self.wanted
        self.refuse_all(tokens)

    # What survives.

    def cursor(self, epoch: int = 0, also: Ranges = (), _producer: str = "") -> object:
        """The epoch, and the last message below which nothing is in work."""
        in_work = RangeSet(self.work.ranges)
        for first, last in also if epoch == self.epoch else ():
            in_work.discard(first, last)
        lowest = in_work.lowest(1)
        return [self.epoch, lowest[0][0] - 1 if lowest else self.cursor_at]

    def restore_cursor(self, cursor: object) -> None:
        """Go on above a stored cursor."""
        self.epoch, self.cursor_at = cast("tuple[int, int]", cursor)

    def begins_behind(self) -> Sequence[tuple[str, int, int, int]]:
        return [("", self.epoch, 1, self.cursor_at)]

    def gauges(self) -> dict[str, int]:
        return {"held": 0, "in_work": self._in_work}


_LOSS = Provision(
    N_AND_G, "drops what comes late, and its carrier may deliver out of order or with gaps"
)
_GAPS = Provision(G, "waits for nothing, so that a gap of its carrier stays a gap")
_LAST_AGAIN = Provision(ABSENT, "is set to let the last message through again")

PIPE = PipeKind(
    *(StrictMonotonic, Sender, Receiver),
    declares=(
        row(
            StrictMonotonic,
            (_LOSS, NO_REPEAT, NEVER_BACK, _GAPS),
            applies=set_to(relaxed=False),
        ),
        row(StrictMonotonic, (_LOSS, _LAST_AGAIN, NEVER_BACK, _GAPS), when="relaxed: true"),
    ),
    advised=4,
)
