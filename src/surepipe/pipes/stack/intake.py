"""The top of a sender's stack: what stands between the application's messages and the outermost layer.

``Intake`` is the plain one: acceptance is a place in the layer's buffers. With a journal, acceptance is a
stored row; that intake is in ``journal``. Both number messages after acceptance, so a rejected message leaves
no trace, and both count in the same order as the outermost layer, which is how identities agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from surepipe.core.effects import (
    Accepted,
    Confirmed,
    Effect,
    Notice,
    NoticeKind,
    Ranges,
    Reject,
    RejectReason,
    Renumbered,
)
from surepipe.core.payloads import Payloads, sized
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.pipes.stack.fencing import next_life
from surepipe.pipes.stack.layers import SenderLayer


class IntakePort(Protocol):
    """What an intake may ask of its stack."""

    @property
    def now(self) -> int:
        """Monotonic microseconds of the step that is running."""
        ...

    @property
    def closing(self) -> bool:
        """True once no more is offered."""
        ...

    def emit(self, effect: Effect) -> None:
        """Add to the effects of this step."""
        ...

    @property
    def effects(self) -> list[Effect]:
        """The effects of this step so far."""
        ...

    def count(self, name: str, amount: int = 1) -> None: ...

    def ticket(self) -> int:
        """A new number for a Persist or DeadLetter that this intake emits."""
        ...

    def begin(self, epoch: int, base: int) -> None:
        """Start an epoch in the outermost layer (and keep the layers below as they are)."""
        ...

    def restart(self, life: int, epoch: int, base: int) -> None:
        """Start a new life in all layers below; the outermost begins ``epoch`` at ``base``."""
        ...


@stateful
class Intake:
    """Accepts into the outermost layer's buffers. Volatile: what is accepted is lost with the process."""

    TRANSIENT: ClassVar[tuple[str, ...]] = ("port", "outermost", "message_max_bytes")

    def __init__(
        self, port: IntakePort, outermost: SenderLayer, message_max_bytes: int, life: int
    ) -> None:
        self.port = port
        self.outermost = outermost
        self.message_max_bytes = message_max_bytes
        self.life = life
        self.next = 1
        self.begun = False
        self.stopped = ""
        self.renumbered: list[bytes] = []
        self.newly_confirmed = RangeSet()

    @property
    def room(self) -> int:
        """Messages that would be taken now."""
        return 0 if self.stopped or self.renumbered else self.outermost.room

    @property
    def room_bytes(self) -> int:
        """Payload bytes that would be taken now."""
        return 0 if self.stopped or self.renumbered else self.outermost.room_bytes

    @property
    def active(self) -> bool:
        """False before the first epoch has begun and after the end: then no layer may act."""
        return self.begun and not self.stopped

    @property
    def backlog(self) -> int:
        """Accepted messages that no layer has taken yet."""
        return len(self.renumbered)

    @property
    def loaded(self) -> int:
        """Messages that this life found in its journal."""
        return 0

    @property
    def pending(self) -> int:
        """Messages offered whose acceptance is not decided yet."""
        return 0

    @property
    def deadline(self) -> int | None:
        """When this intake wants to be woken."""
        return None

    def start(self) -> None:
        """Begin the epoch of this life."""
        self.begun = True
        self.port.restart(self.life, self.life, 1)

    def send(self, payloads: Sequence[bytes]) -> None:
        """Take a prefix of the messages, reject the rest with one reason."""
        fitting, reason = self.admissible(payloads)
        effects = self.port.effects
        emitted = len(effects)
        taken = self.outermost.send(fitting) if fitting and not self.renumbered else 0
        if taken:
            # Before what transmits them: a message is accepted before it can be settled.
            effects.insert(emitted, Accepted(self.life, self.next, taken))
            self.port.count("accepted", taken)
            self.next += taken
        if taken < len(fitting):
            reason = RejectReason.FULL
        if taken < len(payloads):
            self.reject(reason, len(payloads) - taken)

    def admissible(self, payloads: Sequence[bytes]) -> tuple[Sequence[bytes], RejectReason]:
        """The prefix that may be offered at all, and why not the rest."""
        if self.stopped:
            return (), RejectReason.STOPPED
        run = payloads if isinstance(payloads, Payloads) else sized(payloads)
        if run.longest <= self.message_max_bytes:
            return run, RejectReason.FULL
        for small, payload in enumerate(run):
            if len(payload) > self.message_max_bytes:
                return run.part(0, small), RejectReason.TOO_LARGE
        return run, RejectReason.FULL

    def reject(self, reason: RejectReason, count: int, detail: str = "") -> None:
        """Tell the host that the last ``count`` messages offered were not taken."""
        if count:
            self.port.emit(Reject(reason, count, detail))
            self.port.count("rejected", count)

    def confirmed(self, first: int, last: int) -> None:
        """The outermost layer reports its messages settled."""
        self.newly_confirmed.add(first, last)
        self.port.count("confirmed", last - first + 1)

    def given_up(self, epoch: int, seq: int) -> None:
        """This message is in the dead letters for good."""

    def reached(self, through: int) -> None:
        """The receiver has settled this epoch up to ``through``, which may be more than was sent in this life."""

    def finish_step(self) -> None:
        """Bring down what waits for room, and report what was confirmed in this step."""
        if self.renumbered and self.active:
            del self.renumbered[: self.outermost.send(self.renumbered)]
        if self.newly_confirmed:
            self.report_confirmed()

    def report_confirmed(self) -> None:
        """Tell what was confirmed since the last report, in one effect."""
        if self.newly_confirmed:
            self.port.effects.append(Confirmed(self.epoch, tuple(self.newly_confirmed)))
            self.newly_confirmed = RangeSet()

    @property
    def epoch(self) -> int:
        """The epoch that the outermost layer is sending."""
        return self.life

    def answer(self, ticket: int, outcome: object) -> bool:
        """The outcome of a write of this intake; False when the ticket is none of its own."""
        del ticket, outcome
        return False

    def wake(self) -> None:
        """A deadline may have passed."""

    def fenced(self, known: int, *, answered: bool) -> None:
        """The receiver refuses this epoch: go on under a higher one if it never accepted ours."""
        if answered:
            self.stop_fenced(known)
        else:
            self.raise_life(known)

    def raise_life(self, above: int) -> None:
        """Number again everything that waits, under a life above ``above``."""
        if above < self.life:
            return  # this was asked of an earlier life
        self.report_confirmed()
        waiting = [*self.outermost.waiting(), *self.renumbered]
        former, first = self.life, self.next - len(waiting)
        self.life, self.next = next_life(above, self.life), 1 + len(waiting)
        if waiting:
            self.port.emit(Renumbered(former, first, len(waiting), self.life, 1))
        self.renumbered = waiting
        self.port.restart(self.life, self.life, 1)

    def epoch_closed(self, through: int, detail: str) -> None:
        """Our own epoch is closed at the receiver: somebody newer was served."""
        del through
        self.stop(NoticeKind.FENCED, detail)

    def stop_fenced(self, known: int) -> None:
        """A newer life is being served; this one ends here."""
        self.stop(NoticeKind.FENCED, f"the receiver serves life {known}")

    def stop(self, kind: NoticeKind, detail: str) -> None:
        """Reject everything from now on and tell what is unconfirmed."""
        if not self.stopped:
            self.report_confirmed()
            self.stopped = detail
            for epoch, ranges in self.unconfirmed() or [(self.epoch, ())]:
                self.port.emit(Notice(kind, epoch, ranges, detail))

    @property
    def is_stored(self) -> bool:
        """True when what is confirmed is noted wherever that is kept."""
        return True

    def unconfirmed(self) -> list[tuple[int, Ranges]]:
        """What was accepted and is not confirmed, oldest epoch first."""
        ranges = self.outermost.unconfirmed()
        if self.renumbered:
            more = RangeSet(ranges)
            more.add(self.next - len(self.renumbered), self.next - 1)
            ranges = tuple(more)
        return [(self.life, ranges)] if ranges else []
