"""The common parts of the index pipes: senders that number, receivers whose epochs end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.machine import Randomness
from surepipe.core.payloads import NOTHING, Payloads, size_of, sized
from surepipe.core.ranges import RangeSet
from surepipe.pipes.options import IndexOptions
from surepipe.pipes.stack import fencing
from surepipe.pipes.stack.in_work import InWork
from surepipe.pipes.stack.layers import (
    UNBOUNDED,
    ReceiverLayer,
    ReceiverPort,
    SenderLayer,
    SenderPort,
    Token,
)
from surepipe.pipes.wire.frames import Frame, Numbered, Refused


class IndexSender(SenderLayer):
    """Numbers and passes down. It has one state; it is never finished.

    ``window`` bounds the span of what is unconfirmed, where the receiver holds messages back: more
    would only be refused there and come again after a timeout. None where nothing is held. No run is
    larger than what a receiver with these options takes at once: the rest of it would come again, or be lost.
    """

    TRANSIENT: ClassVar[tuple[str, ...]] = (*SenderLayer.TRANSIENT, "window", "window_bytes")

    def __init__(
        self,
        options: IndexOptions,
        port: SenderPort,
        rng: Randomness,
        *,
        window: int | None = None,
    ) -> None:
        self.options = options
        self.port = port
        self.rng = rng
        is_bounded = window is not None and port.carrier_confirms
        self.window = window if is_bounded and window else UNBOUNDED
        self.window_bytes = options.held_max_bytes if is_bounded else UNBOUNDED
        self.frames_passed = 0
        self._reset(0, 1)

    def _reset(self, epoch: int, base: int) -> None:
        self.epoch = epoch
        self.base = base
        self.next = base
        self.answered = self.taken = False
        self.done = RangeSet()
        self.passed: dict[int, tuple[int, Sequence[bytes]]] = {}
        self.passed_bytes = 0

    # What the stack asks.

    @property
    def room(self) -> int:
        """Messages that would be taken now, in full frames."""
        if not self.epoch:
            return 0
        by_carrier = min(self.port.carrier_room * self.options.run_max, UNBOUNDED)
        by_bytes = self.window_bytes - self.passed_bytes if self.passed else 1
        return min(by_carrier, self._room_in_window) if by_bytes > 0 else 0

    @property
    def room_bytes(self) -> int:
        """Payload bytes that would be taken now."""
        if not self.epoch:
            return 0
        carrier = self.port.carrier_room_bytes - FRAME_BYTES
        return max(0, min(carrier, self.window_bytes - self.passed_bytes))

    @property
    def _room_in_window(self) -> int:
        return max(0, self.base + self.window - self.next)

    @property
    def in_flight(self) -> int:
        """Messages passed down and not confirmed; 0 where nothing confirms."""
        return self.next - self.base - self.done.count() if self.port.carrier_confirms else 0

    def carrier_restarted(self) -> None:
        """The carrier numbers from 1 again."""
        self.frames_passed = 0

    def begin(self, epoch: int, base: int) -> None:
        """Number from ``base`` in this epoch; what is left of the former one is dropped."""
        self._reset(epoch, base)

    def waiting(self) -> list[bytes]:
        """Payloads of everything unconfirmed, in order."""
        return [payload for _, payloads in self.passed.values() for payload in payloads]

    def unconfirmed(self) -> Ranges:
        """Messages that the carrier has not confirmed; none over a carrier that never confirms."""
        if not self.port.carrier_confirms:
            return ()
        return self.done.missing(self.base, self.next - 1)

    def gauges(self) -> dict[str, int]:
        return {"in_flight": self.in_flight}

    # Sending.

    def send(self, payloads: Sequence[bytes]) -> int:
        """Cut runs and pass them down, as far as the carrier and the receiver's window go."""
        taken, offered = 0, sized(payloads)
        while taken < len(offered):
            run = self._pass_down(self._next_run(offered, taken))
            if not run:
                break
            taken += len(run)
        return taken

    def _next_run(self, payloads: Payloads, start: int) -> Payloads:
        options = self.options
        count = min(options.run_max, options.held_max, self._room_in_window)
        run = payloads.part(start, start + count)
        whole = min(options.frame_max_bytes, options.held_max_bytes)
        room = min(whole, self.window_bytes - self.passed_bytes)
        if run.size_bytes > room:
            is_alone = not self.passed
            fits_window = bool(run) and len(run[0]) <= self.window_bytes - self.passed_bytes
            run = run.within(room, at_least_one=is_alone or fits_window)
        return run

    def _pass_down(self, run: Payloads) -> Payloads:
        """Give the run to the carrier, a shorter one if that is all it takes; return what it took."""
        while run and self.epoch and self.port.carrier_room > 0:
            frame = Numbered(self.port.tag, self.port.layer, self.epoch, self.next, run)
            if self.port.pass_down(frame):
                self._note_passed(run)
                return run
            run = run.part(0, len(run) // 2)
        return NOTHING

    def _note_passed(self, run: Payloads) -> None:
        self.frames_passed += 1
        self.port.count("transmitted", len(run))
        if self.port.carrier_confirms:
            self.passed[self.frames_passed] = (self.next, run)
            self.passed_bytes += run.size_bytes
            self.next += len(run)
        else:
            self.next += len(run)
            self.base = self.next

    # Answers.

    def carried(self, first: int, last: int) -> None:
        """These frames are confirmed, so their messages are; each is reported once."""
        for number in range(first, last + 1):
            passed = self.passed.pop(number, None)
            if passed is not None:
                self._confirm(*passed)

    def _confirm(self, first: int, run: Sequence[bytes]) -> None:
        self.answered = self.taken = True
        self.passed_bytes -= size_of(run)
        last = first + len(run) - 1
        self.done.add(first, last)
        self.base = self.done.end_of_run(self.base) + 1
        self.done.discard_below(self.base)
        self.port.confirmed(first, last)

    def control(self, frame: Frame) -> None:
        """Only Refused has a meaning here; continuous-index answers Unknown, too."""
        if not isinstance(frame, Refused) or not self.epoch:
            self.port.count("wrong_state")
        elif frame.epoch != self.epoch:
            self.port.count("stale_epoch")
        else:
            fencing.obey(self.port, frame, self.epoch, answered=self.answered)


FRAME_BYTES = 64
"""What a frame of one message needs besides its payload, rounded up."""


# What the receiving halves of the index pipes have in common: epochs that end, and answers.
#
# A higher epoch is a new life of the sender. What is in work of the former epoch stays in work and is answered
# under its own numbers. Frames of a lower epoch come from a former life: they are refused, and who sent them is
# told so, where there is a way back.


class IndexReceiver(ReceiverLayer):
    """Sorts frames by epoch. ``epoch`` is the one being received, 0 before the first."""

    def __init__(self, options: IndexOptions, port: ReceiverPort, rng: Randomness) -> None:
        self.options: IndexOptions = options
        self.port = port
        self.rng = rng
        self.epoch = 0
        self.former: dict[int, InWork] = {}

    # What each pipe decides.

    @abstractmethod
    def accept(self, frame: Numbered, token: Token | None) -> None:
        """A run of this epoch or a higher one."""

    @abstractmethod
    def settle_current(self, first: int, last: int) -> None:
        """The layer above settled messages of this epoch."""

    @abstractmethod
    def refuse_current(self, first: int, last: int) -> None:
        """The layer above refused messages of this epoch."""

    @property
    @abstractmethod
    def load(self) -> tuple[int, int]:
        """Messages in work, and the bytes of what is held or in work."""

    @property
    def newest_epoch(self) -> int:
        """Anything below it comes from a former life."""
        return self.epoch

    # From below.

    def takes_whole(self, token: Token | None) -> bool:
        """Whether all of what comes now is taken, because nobody would bring the rest of it again.

        So it is where there was room for a run as this end would send it, and where nothing is in work. The other
        end may send longer ones: what is in work is above its bounds by one run at the most then.
        """
        if token is not None:
            return False
        count, size = self.load
        options = self.options
        largest = max(options.frame_max_bytes, options.message_max_bytes)
        return not count or (
            count + options.run_max <= options.held_max and size + largest <= options.held_max_bytes
        )

    def data(self, frame: Frame, token: Token | None) -> None:
        """A frame that belongs to this layer."""
        if not isinstance(frame, Numbered):
            self.wrong_state()
            self.port.refuse(token)
        elif frame.epoch < max(self.newest_epoch, 1):
            self.refuse_stale(frame.epoch)
            self._answer_stale(frame, token)
        elif self._comes_too_soon(frame.epoch):
            self.port.count("over_limit", len(frame.payloads))
            self.port.refuse(token)
        else:
            self.accept(frame, token)

    def _comes_too_soon(self, epoch: int) -> bool:
        """1. A stream brings 1 of one life and 2 of the next, and both are in work. 2. The place is stored:
        the life of 2 is the present one. 3. The receiver crashes, or 1 is refused. 4. The stream brings 1
        again, under its old number: it would pass for one of a replaced sender, and be lost. So a life
        begins when the former one is settled.
        """
        return self.port.carrier_is_stream and 0 < self.epoch < epoch and self.load[0] > 0

    def refuse_stale(self, epoch: int) -> None:
        """Count a frame of a former life, and tell its sender who is served now."""
        self.port.count("stale_epoch")
        fencing.turn_away(self.port, 0, epoch, self.newest_epoch)

    def _answer_stale(self, frame: Numbered, token: Token | None) -> None:
        if not self.port.carrier_is_stream:
            self.port.refuse(token)
            return
        last = frame.first + len(frame.payloads) - 1
        detail = (
            f"a message of epoch {frame.epoch} came out of the stream after {self.newest_epoch}"
        )
        self.port.notice(NoticeKind.FENCED, frame.epoch, ((frame.first, last),), detail)
        self.port.settle(token)

    def wrong_state(self) -> None:
        """Count a frame that an index pipe never gets."""
        self.port.count("wrong_state")

    # From above.

    def settled(self, epoch: int, first: int, last: int, _producer: str = "") -> None:
        """Messages crossed the boundary: answer the carrier's messages that waited for them."""
        if epoch == self.epoch:
            self.settle_current(first, last)
        elif epoch in self.former:
            self.settle_all(self.former[epoch].settle(first, last))
            self._forget_if_answered(epoch)

    def refused(self, epoch: int, first: int, last: int, _producer: str = "") -> None:
        """Messages were not taken: pass that on. Of a former epoch nothing can come again."""
        if epoch == self.epoch:
            self.refuse_current(first, last)
        elif epoch in self.former:
            self.refuse_all(self.former[epoch].refuse(first, last))
            self._forget_if_answered(epoch)

    def _forget_if_answered(self, epoch: int) -> None:
        if not self.former[epoch]:
            del self.former[epoch]

    def retire(self, work: InWork) -> None:
        """What is in work of this epoch will be answered while another one is current."""
        if work:
            self.former[self.epoch] = work

    # For the carrier.

    def settle_all(self, tokens: Iterable[Token]) -> None:
        """Answer these messages of the carrier: settled."""
        for token in tokens:
            self.port.settle(token)

    def refuse_all(self, tokens: Iterable[Token]) -> None:
        """Answer these messages of the carrier: refused."""
        for token in tokens:
            self.port.refuse(token)

    # Bounds.

    @property
    def former_count(self) -> int:
        """Messages of former epochs in work."""
        return sum(work.count for work in self.former.values())

    @property
    def former_bytes(self) -> int:
        """Their bytes."""
        return sum(work.size_bytes for work in self.former.values())
