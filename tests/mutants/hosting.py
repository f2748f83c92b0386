"""PL-28 to PL-30: errors that any machine may have: its clock, its overflow, and how layers are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from surepipe.core.effects import Effect, JournalContents, Ranges, WakeAt
from surepipe.core.machine import Randomness, SenderMachine
from surepipe.pipes.kinds import multi_unconfirmed
from surepipe.simulation.promises import Promise, promise_of
from surepipe.simulation.subjects import HopSubject
from tests.mutants.mutant import Believed, Mutant, mutated
from tests.mutants.retrying import RM, RS

TIGHT = HopSubject(
    {"multi-unconfirmed": {"run_max": 2, "window": 4, "backlog": 6}},
    name="multi-unconfirmed, tight",
)
INSIDE_OUT = HopSubject(
    ["resend", {"continuous-index": {"run_max": 1}}], name="resend over continuous-index"
)

SET_BACK_US = 1_800_000_000
SET_AT_US = 1_000_000


class OnWallClock:
    """PL-28: a sender whose timers go by a clock that somebody sets back by half an hour.

    It never lets time run backwards: it waits until the clock is again where it was.
    """

    def __init__(self, sender: SenderMachine) -> None:
        self.sender = sender
        self.last = 0

    def _wall(self, now: int) -> int:
        shown = now - SET_BACK_US if now >= SET_AT_US else now
        self.last = max(self.last, shown)
        return self.last

    def _back(self, effects: list[Effect], now: int) -> list[Effect]:
        return [
            WakeAt(effect.deadline + SET_BACK_US)
            if isinstance(effect, WakeAt) and effect.deadline is not None and now >= SET_AT_US
            else effect
            for effect in effects
        ]

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """As the machine inside, at another time."""
        return self._back(self.sender.send(payloads, self._wall(now)), now)

    def wake(self, now: int) -> list[Effect]:
        """As the machine inside, at another time."""
        return self._back(self.sender.wake(self._wall(now)), now)

    def frame(self, frame: object, now: int) -> list[Effect]:
        """As the machine inside, at another time."""
        return self._back(self.sender.frame(frame, self._wall(now)), now)

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """As the machine inside, at another time."""
        return self._back(self.sender.answer(ticket, outcome, self._wall(now)), now)

    def close(self, now: int) -> list[Effect]:
        """As the machine inside, at another time."""
        return self._back(self.sender.close(self._wall(now)), now)

    @property
    def room(self) -> int:
        """As the machine inside."""
        return self.sender.room

    @property
    def room_bytes(self) -> int:
        """As the machine inside."""
        return self.sender.room_bytes

    @property
    def idle(self) -> bool:
        """As the machine inside."""
        return self.sender.idle

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """As the machine inside."""
        return self.sender.unconfirmed()

    def counters(self) -> Mapping[str, int]:
        """As the machine inside."""
        return self.sender.counters()

    def gauges(self) -> Mapping[str, int]:
        """As the machine inside."""
        return self.sender.gauges()

    def export(self) -> object:
        """As the machine inside."""
        return self.sender.export()


@dataclass(frozen=True)
class WallClocked(Believed):
    """A hop whose sender goes by the wall clock."""

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None
    ) -> SenderMachine:
        """The sender, behind the wrong clock."""
        return OnWallClock(super().sender(life_hint=life_hint, rng=rng, journal=journal))


class DropsOldest(multi_unconfirmed.Sender):
    """PL-29: what does not fit pushes out what has waited longest."""

    def send(self, payloads: Sequence[bytes]) -> int:
        """Take all of it."""
        taken = super().send(payloads)
        while taken < len(payloads):
            lost = self.backlog.take(1, 1 << 30, at_least_one=True)
            self.done.add(self.next, self.next + len(lost) - 1)
            self.queue.enqueue_run(self.next, lost)
            self.queue.delete_all(self.next)
            self.next += len(lost)
            taken += super().send(payloads[taken : taken + 1])
        self._advance_base()
        return taken


@dataclass(frozen=True)
class Misled(Believed):
    """A stack that a loader should have refused.

    One loss stops it for good: it never comes to rest, which is P12 and not P2 to a judge that waits for the end.
    """

    def promise(self) -> Promise:
        """The order and delivery of the model."""
        return replace(promise_of(self.model), patterns={}, bounds={}, timer_us=1_000_000)


HOSTING: tuple[Mutant, ...] = (
    Mutant("PL-28-RS", "timers on the wall clock", ("P9", "P12"), WallClocked(RS, RS), RS),
    Mutant("PL-28-RM", "timers on the wall clock", ("P9", "P12"), WallClocked(RM, RM), RM),
    Mutant("PL-29", "overflow drops the oldest", ("P13",), mutated(TIGHT, DropsOldest), TIGHT),
    Mutant(
        "PL-30", "numbering inside the retry accepted", ("P2", "P12"), Misled(INSIDE_OUT, RS), RS
    ),
)
