"""sequential-confirm: one message at a time, each confirmed before the next.

The simplest absolute order: every message once, in order, none left out, over any route with a fair way back.
The receiver keeps a cursor, the last message that it let through; what stands at or below it is a repeat. A
round trip carries one message (``run_max`` of them at the most), so ``reliable`` is nearly always the better
choice.

``retry: own`` sends again until the confirm arrives. ``retry: carrier`` leaves that to what is below, both for
the message and for its confirm: then a lost frame stops the pipe, and nothing but a notice tells of it.
``repeats: forward`` lets repeats through, in order: nothing is lost or overtaken, but messages may come twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, cast

from pydantic import Field, model_validator

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.machine import Randomness
from surepipe.core.ranges import RangeSet
from surepipe.pipes.declaration import (
    ABSENT,
    EXACT,
    ONE_IN_FLIGHT,
    ONE_UNIT,
    RESENDS,
    RUNS_REPEAT,
    Declaration,
    PipeKind,
    Provision,
    Reverse,
    row,
    set_to,
)
from surepipe.pipes.options import Messages, RetryOptions
from surepipe.pipes.retry.confirming import ConfirmingReceiver, EpochSession
from surepipe.pipes.retry.engine import RetrySender
from surepipe.pipes.retry.flights import NEVER, Flight
from surepipe.pipes.stack import fencing
from surepipe.pipes.stack.layers import ReceiverPort, SenderPort, Token
from surepipe.pipes.wire.frames import Data, Frame, Probe, Refused


class SequentialConfirm(RetryOptions):
    """One message at a time, each confirmed before the next."""

    kind: ClassVar[str] = "sequential-confirm"
    is_cursor: ClassVar[bool] = True
    agreed: ClassVar[tuple[str, ...]] = ("repeats", "retry")

    run_max: Messages = Field(default=1, description="messages in one frame at the most")
    retry: Literal["own", "carrier"] = Field(
        default="own", description="who sends again: this layer, or what is below"
    )
    repeats: Literal["none", "forward"] = Field(
        default="none", description="what happens to a repeat"
    )

    @model_validator(mode="after")
    def _a_unit_fits(self) -> SequentialConfirm:
        """Nobody would send the rest of a unit again, where only the carrier repeats."""
        if self.retry == "carrier" and min(self.run_max, self.window) > self.held_max:
            raise ValueError(
                f"a unit of {min(self.run_max, self.window)} messages exceeds the receive_window of "
                f"{self.held_max}, and with retry: carrier what has no room is not sent again; "
                "lower run_max"
            )
        if self.retry == "carrier" and self.frame_max_bytes > self.held_max_bytes:
            raise ValueError(
                f"a unit of frame_max_bytes ({self.frame_max_bytes}) exceeds the receive_window_bytes of "
                f"{self.held_max_bytes}, and with retry: carrier what has no room is not sent again; "
                "lower frame_max_bytes"
            )
        return self

    @property
    def span_max(self) -> int:
        """One frame is on the way."""
        return self.run_max

    @property
    def waits_for_carried_confirms(self) -> bool:
        """True where the carrier repeats: a confirm that is lost comes no second time."""
        return self.retry == "carrier"

    @property
    def lets_repeats_through(self) -> bool:
        """True where repeats are forwarded."""
        return self.repeats != "none"

    def notes(self, label: str) -> Iterator[str]:
        yield f"{label} sends one frame per round trip; reliable does not"


class Sender(RetrySender):
    """Idle, or Waiting for one unit. Ends when a newer life is served (Fenced)."""

    one_at_a_time: ClassVar[bool] = True

    def __init__(self, options: RetryOptions, port: SenderPort, rng: Randomness) -> None:
        assert isinstance(options, SequentialConfirm)
        self.carrier_repeats = options.retry == "carrier"
        super().__init__(options, port, rng)

    def other_control(self, frame: Frame) -> None:
        if not isinstance(frame, Refused):
            self.port.count("wrong_state")
        elif frame.link != self.link:
            self.port.count("stale_link")
        elif frame.epoch != self.epoch:
            self.port.count("stale_epoch")
        else:
            fencing.obey(self.port, frame, self.epoch, answered=self.answered)

    def next_deadline(self, waits: int) -> int:
        """Where the carrier repeats there is no deadline, only the time after which silence is reported."""
        return (
            self.port.now + self.rto_max if self.carrier_repeats else super().next_deadline(waits)
        )

    def _reset(self, epoch: int, base: int) -> None:
        super()._reset(epoch, base)
        self.is_turned_away = False

    def _pass_down(self, flight: Flight, payloads: Sequence[bytes], *, ask: bool) -> bool:
        """What the carrier had no room for it can't repeat, so it is offered again until it is taken."""
        is_taken = super()._pass_down(flight, payloads, ask=ask)
        self.is_turned_away = self.carrier_repeats and not is_taken
        return is_taken

    def carried(self, first: int, last: int) -> None:
        """The carrier has room again."""
        self._offer_again()
        super().carried(first, last)

    def _offer_again(self) -> None:
        if self.is_turned_away and self.base < self.next:
            [unit] = self.flights.carve(self.base, self.next - 1)
            self._pass_down(unit, self.payloads_of(unit), ask=True)
            self.flights.put_back([unit])

    def met_incarnation(self, incarnation: int) -> None:
        """Another receiver answers. Where the carrier repeats, it will bring the unit to that one too."""
        if self.carrier_repeats:
            self.forget_hints()
        else:
            super().met_incarnation(incarnation)

    def other_end_restarted(self) -> None:
        """What the former receiver was to confirm, and had settled to its carrier, nobody else repeats."""
        if self.carrier_repeats and self.next > self.base:
            [unit] = self.flights.carve(self.base, self.next - 1)
            self.flights.put_back([self.transmit_again(unit, self.payloads_of(unit), ask=True)])

    def route_is_back(self) -> None:
        """Where the carrier repeats, it hears of it too."""
        if not self.carrier_repeats:
            super().route_is_back()

    def look_at_due(self, now: int) -> None:
        """The unit is unanswered: send it again, or where the carrier does that, tell of it once."""
        if not self.carrier_repeats:
            super().look_at_due(now)
        elif self.is_expired(self.flights.runs[0], RangeSet(self.held)):
            self.stop_undeliverable()
        else:
            self._report_silence()

    def _report_silence(self) -> None:
        self._offer_again()
        [unit] = self.flights.carve(self.base, self.next - 1)
        if not unit.warned:
            unit.warned = True
            detail = (
                f"no answer for {self.port.now - unit.sent} us; the carrier repeats, not this layer"
            )
            self.tell_silence(((unit.first, unit.last),), detail)
        end = unit.since + self.give_up_after
        again = self.next_deadline(1) if self.is_turned_away else NEVER
        unit.deadline = min(again, end) if end > self.port.now else again
        self.flights.put_back([unit])


class Receiver(ConfirmingReceiver):
    """Fresh, or serving one epoch. Remembers what it settled there, and refuses every lower epoch."""

    ordered: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    def __init__(self, options: RetryOptions, port: ReceiverPort, rng: Randomness) -> None:
        assert isinstance(options, SequentialConfirm)
        self.forwards_repeats = options.repeats == "forward"
        self.sends_again = options.retry == "own"
        super().__init__(options, port, rng)
        self.epoch = 0

    def data(self, frame: Frame, token: Token | None) -> None:
        """A unit: hand up what is above the cursor."""
        if isinstance(frame, Data) and frame.epoch < self.epoch:
            self._refuse_sender(frame)
            self._answer_lower(token)
        else:
            super().data(frame, token)

    def control(self, frame: Frame) -> None:
        """A Probe, which a lower epoch gets no answer to but a refusal."""
        if isinstance(frame, Probe) and frame.epoch < self.epoch:
            self._refuse_sender(frame)
        else:
            super().control(frame)

    def _answer_lower(self, token: Token | None) -> None:
        if self.sends_again:
            self.port.settle(token)
        else:
            self.port.refuse(token)

    def _refuse_sender(self, frame: Data | Probe) -> None:
        self.port.count("fenced")
        fencing.turn_away(self.port, frame.link, frame.epoch, self.epoch)

    def fault(self, frame: Data | Probe) -> str:
        """A sender that waits for each confirm never sends anything but its oldest unconfirmed unit."""
        is_ahead = isinstance(frame, Data) and frame.first != frame.base
        return "impossible" if is_ahead else super().fault(frame)

    def session(self, epoch: int, link: int, base: int) -> EpochSession | None:
        """The session of this epoch, which is the highest seen; the former one lives until it is answered."""
        known = self.sessions.get(epoch)
        expected = known.cum + 1 if known else 1
        session = super().session(epoch, link, base)
        if session is None:
            return None
        if base > expected and self.epoch and self.port.durable:
            lost = ((expected, base - 1),)
            detail = "the sender knows these as settled, the stored state does not"
            self.port.notice(NoticeKind.STATE_ROLLBACK, epoch, lost, detail)
        if epoch > self.epoch:
            former, self.epoch = self.epoch, epoch
            if former in self.sessions:
                self.forget_if_done(former, self.sessions[former])
        return session

    def wanted(self, session: EpochSession, first: int, last: int) -> Ranges:
        """Messages that are neither in work nor settled; with ``repeats: forward``, settled ones too."""
        if self.forwards_repeats:
            return super().wanted(session, first, last)
        repeats = session.count_settled(first, last)
        if repeats:
            self.port.count("duplicate", repeats)
        return tuple(
            part
            for gap in session.settled.missing(max(first, session.cum + 1), last)
            for part in session.in_work.ranges.missing(*gap)
        )

    def forget_if_done(self, epoch: int, session: EpochSession) -> None:
        """A lower epoch is forgotten when nothing of it is in work."""
        if epoch < self.epoch and not session.in_work:
            del self.sessions[epoch]

    # What survives.

    def cursor(self, epoch: int = 0, also: Ranges = (), _producer: str = "") -> object:
        """The epoch served, and what of it is settled."""
        session = self.sessions.get(self.epoch)
        if session is None:
            return None
        settled = RangeSet([(1, session.cum), *session.settled])
        for first, last in also if epoch == self.epoch else ():
            settled.add(first, last)
        return [self.epoch, [list(part) for part in settled]]

    def restore_cursor(self, cursor: object) -> None:
        """Go on behind what was settled."""
        if cursor is None:
            return
        epoch, settled = cast("tuple[int, list[list[int]]]", cursor)
        session = super().session(epoch, 0, 1)
        assert session is not None, "a fresh receiver has room for its first session"
        for first, last in settled:
            session.settle(first, last)
        self.epoch = epoch

    def begins_behind(self) -> Sequence[tuple[str, int, int, int]]:
        session = self.sessions.get(self.epoch)
        return [("", self.epoch, 1, session.cum)] if session else ()


_FORWARDS = Provision(ABSENT, "is set to forward repeats")


def _rows(when: str, provides: tuple[Provision, ...], **options: object) -> list[Declaration]:
    """Two rows, which differ in who sends again."""
    no_loss, no_duplicate, monotonic, gap_free = provides
    return [
        row(
            SequentialConfirm,
            (no_loss, no_duplicate, monotonic, gap_free),
            when=f"retry: {retry}{when}",
            applies=set_to(retry=retry, **options),
            reverse=reverse,
            at_least_once_carrier=retry == "carrier",
        )
        for retry, reverse in (("own", Reverse.FAIR), ("carrier", Reverse.AT_LEAST_ONCE))
    ]


PIPE = PipeKind(
    *(SequentialConfirm, Sender, Receiver),
    declares=(
        *_rows("", EXACT, repeats="none"),
        *_rows(
            ", repeats: forward, run_max: 1",
            (RESENDS, _FORWARDS, ONE_IN_FLIGHT, ONE_UNIT),
            repeats="forward",
            run_max=1,
        ),
        *_rows(
            ", repeats: forward",
            (RESENDS, _FORWARDS, RUNS_REPEAT, ONE_UNIT),
            repeats="forward",
        ),
    ),
)
