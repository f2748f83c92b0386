"""PL-1 to PL-9: errors of pipes that send again (RS: resend, RM: multi-unconfirmed)."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.core.effects import Effect, Ranges
from surepipe.pipes.kinds import dedupe, multi_unconfirmed, resend
from surepipe.pipes.options import RetryOptions
from surepipe.pipes.retry.backlog import Backlog
from surepipe.pipes.retry.confirming import EpochSession
from surepipe.pipes.retry.flights import Flight
from surepipe.pipes.wire.frames import Confirm, Data, Nack
from surepipe.simulation.subjects import HopSubject
from tests.mutants.mutant import Mutant, TicketedReceiver, claimed, mutated
from tests.plain import multi_unconfirmed as plain_multi
from tests.plain.base import Data as PlainData
from tests.plain.base import PlainSubject

RETRY = {"run_max": 2, "window": 8}
RS = HopSubject({"resend": RETRY}, name="resend")
RM = HopSubject({"multi-unconfirmed": RETRY}, name="multi-unconfirmed")
DEDUPED = HopSubject(
    [{"dedupe": {"run_max": 2}}, {"multi-unconfirmed": RETRY}], name="dedupe over multi-unconfirmed"
)


def settle_all(session: EpochSession, frame: Data, now: int) -> None:
    """Take a frame for settled, though nobody has seen its messages."""
    last = frame.first + len(frame.payloads) - 1
    session.settle(frame.first, last)
    session.clock.settle(now, len(frame.payloads), session.cum)
    session.clock.hurry(now)


class ConfirmsFirstRS(resend.Receiver):
    """PL-1."""

    def _hand_up(self, session: EpochSession, frame: Data, last: int) -> tuple[int, int]:
        taken = super()._hand_up(session, frame, last)
        settle_all(session, frame, self.port.now)
        return taken


class ConfirmsFirstRM(multi_unconfirmed.Receiver):
    """PL-1."""

    def _hand_up(self, session: EpochSession, frame: Data, last: int) -> tuple[int, int]:
        taken = super()._hand_up(session, frame, last)
        settle_all(session, frame, self.port.now)
        return taken


class AnyConfirmClears(resend.Sender):
    """PL-2: the number in the confirm is not looked at."""

    def _is_acceptable(self, frame: Confirm | Nack, highest: int) -> bool:
        del frame, highest
        return True

    def take_facts(self, cum: int, done: Ranges) -> bool:
        """Whatever is on the way is settled."""
        del cum, done
        return super().take_facts(self.next - 1, ())


ATTEMPTS = 3


class GivesUpRS(resend.Sender):
    """PL-3: after some attempts a message is forgotten, and nobody told."""

    def _send_again(self, lost: list[Flight], *, is_timeout: bool = True) -> list[Flight]:
        for flight in lost:
            if flight.attempts > ATTEMPTS:
                self.done.add(flight.first, flight.last)
        left = [flight for flight in lost if flight.attempts <= ATTEMPTS]
        return super()._send_again(left, is_timeout=is_timeout)


class GivesUpRM(multi_unconfirmed.Sender):
    """PL-3."""

    def _send_again(self, lost: list[Flight], *, is_timeout: bool = True) -> list[Flight]:
        for flight in lost:
            if flight.attempts > ATTEMPTS:
                self.done.add(flight.first, flight.last)
        left = [flight for flight in lost if flight.attempts <= ATTEMPTS]
        return super()._send_again(left, is_timeout=is_timeout)


class DropsBacklog(resend.Sender):
    """PL-4: when patience ends, what waits behind is dropped."""

    def look_at_due(self, now: int) -> None:
        """Send again, and nothing else."""
        self.backlog = Backlog(self.options.backlog, self.options.backlog_bytes)
        super().look_at_due(now)


class CoversMore(multi_unconfirmed.Sender):
    """PL-5: a confirm of number n is taken for all up to n."""

    def take_facts(self, cum: int, done: Ranges) -> bool:
        """All up to the highest."""
        return super().take_facts(max([cum, *(last for _, last in done)]), ())


class ReportsHighest(multi_unconfirmed.Receiver):
    """PL-5: says the highest that it has settled, and not up to where there is no gap."""

    def settled(self, epoch: int, first: int, last: int, _producer: str = "") -> None:
        """All below counts too."""
        super().settled(epoch, first, last)
        session = self.sessions[epoch]
        session.settle(min(session.cum + 1, last), last)


class RemovesOldest(multi_unconfirmed.Sender):
    """PL-6: whatever a confirm says, the oldest is done."""

    def take_facts(self, cum: int, done: Ranges) -> bool:
        """The oldest, and what it says."""
        news = super().take_facts(cum, done)
        is_waiting = news and self.base < self.next
        return super().take_facts(self.base, ()) if is_waiting else news


class WiderRM(multi_unconfirmed.Sender):
    """PL-7: one more than the window is on the way."""

    def _reset(self, epoch: int, base: int) -> None:
        self.span = self.options.window + 1
        super()._reset(epoch, base)


class WiderRS(resend.Sender):
    """PL-7: one more than the unit is on the way."""

    def _reset(self, epoch: int, base: int) -> None:
        self.span = self.options.window + 1
        super()._reset(epoch, base)

    def _next_run(self, frames: int) -> Sequence[bytes]:  # type: ignore[override]
        former, self.options = self.options, wider(self.options)
        try:
            return super()._next_run(frames)
        finally:
            self.options = former


def wider(options: RetryOptions) -> RetryOptions:
    """The same with one message more in a unit."""
    return options.model_copy(update={"run_max": options.window + 1})


BITS = 4
"""The number of the mutant wraps at 4 bits: a campaign sends tens of messages, not tens of thousands."""


class WrapsRM(plain_multi.Sender):
    """PL-8: numbers begin again."""

    def take(self, data: PlainData, now: int) -> list[Effect]:
        """The next number is cut to its lowest bits."""
        self.next &= (1 << BITS) - 1
        return super().take(data, now)


class ForgetsRM(dedupe.Receiver):
    """PL-9: remembers the last two numbers, while copies of older ones may still come."""

    def settle_current(self, first: int, last: int) -> None:
        """Remember less."""
        super().settle_current(first, last)
        self.done.discard_below(self.highest - 1)

    @property
    def floor(self) -> int:
        """Nothing else counts as seen."""
        return 0


PLAIN_RM = claimed(
    PlainSubject("plain multi-unconfirmed", plain_multi.Sender, TicketedReceiver),
    *("route-loss", "route-duplication", "route-reordering", "route-delay", "route-outage"),
    atoms=("no-loss",),
)
WRAPPING_RM = claimed(
    PlainSubject("plain multi-unconfirmed, wrapping", WrapsRM, TicketedReceiver),
    *PLAIN_RM.claim["no-loss"],
    atoms=("no-loss",),
)

RETRYING: tuple[Mutant, ...] = (
    Mutant(
        "PL-1-RS", "confirms before it hands over", ("P8", "P2"), mutated(RS, ConfirmsFirstRS), RS
    ),
    Mutant(
        "PL-1-RM", "confirms before it hands over", ("P8", "P2"), mutated(RM, ConfirmsFirstRM), RM
    ),
    Mutant(
        "PL-2", "any confirm clears the current message", ("P2",), mutated(RS, AnyConfirmClears), RS
    ),
    Mutant("PL-3-RS", "gives up in silence", ("P2", "P13"), mutated(RS, GivesUpRS), RS),
    Mutant("PL-3-RM", "gives up in silence", ("P2", "P13"), mutated(RM, GivesUpRM), RM),
    Mutant("PL-4", "drops the backlog while it waits", ("P2",), mutated(RS, DropsBacklog), RS),
    Mutant(
        "PL-5-sender", "a confirm of n covers all up to n", ("P2",), mutated(RM, CoversMore), RM
    ),
    Mutant(
        "PL-5-receiver", "reports the highest as gap-free", ("P2",), mutated(RM, ReportsHighest), RM
    ),
    Mutant("PL-6", "any confirm removes the oldest", ("P2",), mutated(RM, RemovesOldest), RM),
    Mutant("PL-7-RS", "one message more than the window", ("P19", "P13"), mutated(RS, WiderRS), RS),
    Mutant("PL-7-RM", "one message more than the window", ("P19", "P13"), mutated(RM, WiderRM), RM),
    Mutant("PL-8", f"numbers wrap (at {BITS} bits)", ("P2", "P17"), WRAPPING_RM, PLAIN_RM),
    Mutant(
        "PL-9",
        "remembers fewer numbers than may come again",
        ("P3",),
        mutated(DEDUPED, ForgetsRM),
        DEDUPED,
    ),
)
