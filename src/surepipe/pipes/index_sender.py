"""The sending half of the index pipes: number the messages, pass them down at once, keep no timer.

There is no buffer here for what the carrier has no room for: ``send`` takes only what the carrier
takes. Over a carrier that confirms, the payloads are kept until the carrier reports their frame
confirmed, because a receiver that refuses this epoch makes the stack number them again. Over one
that does not, what was passed down is gone, and nothing is ever unconfirmed.

``Confirmed`` means what the carrier's confirm means: settled at the receiver's end of the carrier.
Where the receiving half drops a message on purpose, as strict-monotonic does with one that was
overtaken, it still settles it to the carrier: then ``Confirmed`` says "it has arrived".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from surepipe.effects import NoticeKind, Ranges
from surepipe.machines import Randomness
from surepipe.pipes.frames import Frame, Numbered, Refused, RefusedReason
from surepipe.pipes.layers import UNBOUNDED, SenderLayer, SenderPort
from surepipe.pipes.options import IndexOptions
from surepipe.pipes.payloads import NOTHING, Payloads, size_of, sized
from surepipe.pipes.ranges import RangeSet


class IndexSender(SenderLayer):
    """Numbers and passes down. It has one state; it is never finished.

    ``window`` bounds the span of what is unconfirmed, where the receiver holds messages back: more
    would only be refused there and come again after a timeout. None where nothing is held.
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
        """What the carrier has not reported confirmed; nothing over a carrier that never reports."""
        if not self.port.carrier_confirms:
            return ()
        return self.done.missing(self.base, self.next - 1)

    def gauges(self) -> dict[str, int]:
        """What stands now."""
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
        count = min(self.options.run_max, self._room_in_window)
        run = payloads.part(start, start + count)
        room = min(self.options.frame_max_bytes, self.window_bytes - self.passed_bytes)
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
        elif frame.reason is RefusedReason.STACK:
            self.port.stop(self.port.differs, NoticeKind.MISMATCH)
        elif frame.reason is not RefusedReason.FENCED:
            detail = f"the receiver refused epoch {self.epoch}: {frame.reason.name}"
            self.port.stop(detail, NoticeKind.MISMATCH)
        elif frame.known <= self.epoch:
            self.port.count("impossible")
        else:
            self.port.fenced(frame.known, answered=self.answered)


FRAME_BYTES = 64
"""What a frame of one message needs besides its payload, rounded up."""
