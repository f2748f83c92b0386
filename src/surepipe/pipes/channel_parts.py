"""What an end of a channel keeps: frames that wait for it to open, and which messages are its own.

Confirms that must not be lost are messages of the opposite stack. Where they enter its outermost layer they take
numbers among those of the application: each message there begins with a mark that tells the two apart, and
nothing about the channel's own is ever told to the application. So its numbers may have holes on a channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from surepipe.effects import (
    Accepted,
    Confirmed,
    Deliver,
    Effect,
    JournalContents,
    Notice,
    NoticeKind,
    Ranges,
    Reject,
    Renumbered,
    Transmit,
)
from surepipe.pipes.frames import Confirm, Data, Numbered, Probe
from surepipe.pipes.ranges import RangeSet
from surepipe.pipes.snapshot import stateful

MESSAGE, CONFIRM = b"\x00", b"\x01"

for _kept in (Deliver, Numbered, Data, Probe, Confirm):
    stateful(_kept)


@stateful
class HeldFrames:
    """Frames made before the channel is open, in order; a later transmission of the same takes its place."""

    __slots__ = ("frames", "messages", "size_bytes")

    def __init__(self) -> None:
        self.frames: dict[tuple[object, ...], object] = {}
        self.messages = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.frames)

    def add(self, frame: object) -> None:
        """Keep a frame."""
        what = (type(frame).__name__, *(getattr(frame, name, 0) for name in _SAME))
        self._count(self.frames.get(what), -1)
        self.frames[what] = frame
        self._count(frame, 1)

    def take_all(self) -> list[Effect]:
        """Transmit everything."""
        frames = list(self.frames.values())
        self.frames.clear()
        self.messages = self.size_bytes = 0
        return [Transmit(frame) for frame in frames]

    def _count(self, frame: object, sign: int) -> None:
        payloads: Sequence[bytes] = getattr(frame, "payloads", ())
        self.messages += sign * len(payloads)
        self.size_bytes += sign * sum(map(len, payloads))


_SAME = ("layer", "epoch", "first")
_OF_MESSAGES = (NoticeKind.FENCED, NoticeKind.UNDELIVERABLE, NoticeKind.ORPHANS)


@stateful
class OwnMessages:
    """Which of the messages offered and accepted are the channel's own; tells the host of the others only."""

    __slots__ = ("numbers", "offered", "refused")

    def __init__(self) -> None:
        self.offered: deque[list[int]] = deque()
        """Offers not decided yet, in order: whether they are our own (1 or 0), and how many."""
        self.numbers: dict[int, RangeSet] = {}
        """Our own among the accepted and unconfirmed, by epoch."""
        self.refused = 0
        """Own messages that were not accepted after all."""

    def load(self, contents: JournalContents) -> None:
        """Find our own among the rows of a journal."""
        for rows in contents.rows:
            for seq, payload in enumerate(rows.payloads, rows.first):
                if payload[:1] == CONFIRM:
                    self._of(rows.epoch).add(seq, seq)

    def offer(self, count: int, *, own: bool) -> None:
        """So many messages are offered to the stack now."""
        if count:
            self.offered.append([int(own), count])

    def told(self, effect: Effect) -> Iterable[Effect]:
        """What of an effect of the sending stack the host is told."""
        match effect:
            case Accepted(epoch, first, count):
                return self._accepted(epoch, first, count)
            case Reject(_, count):
                others = self._rejected(count)
                return [replace(effect, count=others)] if others else []
            case Confirmed(epoch, ranges):
                told = self.without(epoch, ranges)
                for first, last in ranges:
                    self._of(epoch).discard(first, last)
                self._forget_if_empty(epoch)
                return [Confirmed(epoch, told)] if told else []
            case Renumbered():
                return self._renumbered(effect)
            case Notice(kind, epoch, ranges) if kind in _OF_MESSAGES:
                return [replace(effect, ranges=self.without(epoch, ranges))]
            case _:
                return [effect]

    def without(self, epoch: int, ranges: Ranges) -> Ranges:
        """These numbers of the sending stack without our own."""
        own = self.numbers.get(epoch)
        if own is None:
            return ranges
        return tuple(part for first, last in ranges for part in own.missing(first, last))

    def _accepted(self, epoch: int, first: int, count: int) -> Iterator[Effect]:
        for is_own, number in self._decided(count, self.offered.popleft, self.offered.appendleft):
            if is_own:
                self._of(epoch).add(first, first + number - 1)
            else:
                yield Accepted(epoch, first, number)
            first += number

    def _rejected(self, count: int) -> int:
        """Rejected are always the last that were offered; says how many of them are the application's."""
        others = 0
        for is_own, number in self._decided(count, self.offered.pop, self.offered.append):
            if is_own:
                self.refused += number
            else:
                others += number
        return others

    def _decided(
        self, count: int, take: Callable[[], list[int]], put_back: Callable[[list[int]], None]
    ) -> Iterator[tuple[int, int]]:
        while count:
            is_own, number = take()
            if number > count:
                put_back([is_own, number - count])
            number = min(number, count)
            count -= number
            yield is_own, number

    def _renumbered(self, effect: Renumbered) -> Iterator[Effect]:
        last = effect.first + effect.count - 1
        shift = effect.new_first - effect.first
        for first, end in self._of(effect.epoch).within(effect.first, last):
            self._of(effect.new_epoch).add(first + shift, end + shift)
        for first, end in self.without(effect.epoch, ((effect.first, last),)):
            count = end - first + 1
            yield replace(effect, first=first, count=count, new_first=first + shift)
        self._of(effect.epoch).discard(effect.first, last)
        self._forget_if_empty(effect.epoch)

    def _of(self, epoch: int) -> RangeSet:
        return self.numbers.setdefault(epoch, RangeSet())

    def _forget_if_empty(self, epoch: int) -> None:
        if not self.numbers.get(epoch):
            self.numbers.pop(epoch, None)
