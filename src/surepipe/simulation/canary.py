"""The canary: a pipe that loses message 7 in silence. A campaign in which nobody notices has judged nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from surepipe.effects import Cause, Deliver, Effect, JournalContents, Ranges
from surepipe.machines import Randomness, ReceiverMachine, SenderMachine
from surepipe.pipes.desk import Boundary, BoundaryOptions
from surepipe.simulation.promises import Promise, promise_of
from surepipe.simulation.subjects import HopSubject

LOST_SEQ = 7


class Losing:
    """A receiver that says *settled* for one message and hands it to nobody."""

    def __init__(self, receiver: ReceiverMachine) -> None:
        self.receiver = receiver

    def wake(self, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.wake(now), now)

    def frame(self, frame: object, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.frame(frame, now), now)

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.answer(ticket, outcome, now), now)

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.settled(ticket, ranges, now), now)

    def failed(
        self, ticket: int, seq: int, error: Cause, now: int, *, final: bool = False
    ) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.failed(ticket, seq, error, now, final=final), now)

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.refused(ticket, ranges, now), now)

    def close(self, now: int) -> list[Effect]:
        """As the machine inside."""
        return self.receiver.close(now)

    def state_after(self, ticket: int, through: int) -> bytes:
        """As the machine inside."""
        return self.receiver.state_after(ticket, through)

    def counters(self) -> Mapping[str, int]:
        """As the machine inside."""
        return self.receiver.counters()

    def gauges(self) -> Mapping[str, int]:
        """As the machine inside."""
        return self.receiver.gauges()

    def export(self) -> object:
        """As the machine inside."""
        return self.receiver.export()

    def _without(self, effects: list[Effect], now: int) -> list[Effect]:
        kept: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Deliver) and effect.first == LOST_SEQ:
                ranges: Ranges = ((LOST_SEQ, LOST_SEQ),)
                kept += self._without(self.receiver.settled(effect.ticket, ranges, now), now)
            else:
                kept.append(effect)
        return kept


@dataclass(frozen=True)
class Canary:
    """A hop of ``reliable`` that loses a message, and promises what ``reliable`` promises."""

    name: str = "canary"
    pipe: str = "pipe"
    boundary: Boundary = Boundary.PROCESSED
    journaled: bool = False
    durable: bool = False

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None
    ) -> SenderMachine:
        """An honest sender."""
        return _HONEST.sender(life_hint=life_hint, rng=rng, journal=journal)

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverMachine:
        """A receiver that loses one message."""
        return Losing(_HONEST.receiver(life=life, rng=rng, state=state))

    def promise(self) -> Promise:
        """That of the pipe that it pretends to be."""
        return promise_of(_HONEST)


_HONEST = HopSubject("reliable", options=BoundaryOptions(deliver_max=1))
