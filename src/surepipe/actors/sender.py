"""The actor of a sending end: moves what the intake holds into the machine, and tells it what came of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from surepipe.actors.host import Host, Surroundings
from surepipe.actors.intake import Intake
from surepipe.actors.marks import Ledger
from surepipe.actors.tracing import SenderTrace, after
from surepipe.effects import (
    Accepted,
    Confirmed,
    Effect,
    JournalContents,
    Reject,
    RejectReason,
    Renumbered,
)
from surepipe.errors import Fenced, PipeStopped, StacksDiffer, StoreUnavailable, SurepipeError
from surepipe.machines import SenderMachine

BUILD_AGAIN_US = 200_000


class SendingMachine(SenderMachine, Protocol):
    """What the actor needs of its machine; a ``SenderStack`` is one, and so is one direction of a channel."""

    @property
    def confirms(self) -> bool:
        """True when the machine ever says ``Confirmed``."""
        ...

    def route_is_back(self, now: int) -> list[Effect]:
        """Frames get through again: what is not confirmed may be sent again now."""
        ...

    @property
    def stopped(self) -> str:
        """Why the machine stopped for good; empty while it has not."""
        ...


class SenderActor(Host):
    """One life of a sender. ``stopped`` is called when the machine stops for good, ``drained`` when the
    intake is closed and everything that was taken is confirmed (or sent, where nothing confirms)."""

    def __init__(
        self,
        around: Surroundings,
        intake: Intake,
        build: Callable[[], SendingMachine],
        *,
        stopped: Callable[[SenderActor], None],
        drained: Callable[[], None],
        route_room: Callable[[], int],
        replaced: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(around)
        self.ledger = Ledger()
        self._intake = intake
        self._build = build
        self._stopped = stopped
        self._drained = drained
        self._route_room = route_room
        self._replaced = replaced
        self._machine: SendingMachine | None = None
        self._held: list[bytes] = []
        self._offering: list[bytes] = []
        self._is_closing = False
        self._is_drained = False
        self._is_stopped = False
        self._trace: SenderTrace | None = None
        self.perform_by_type |= {
            Accepted: self.ledger.accepted,
            Reject: self._reject,
            Confirmed: self._confirmed,
            Renumbered: self.ledger.renumbered,
        }

    def traced_by(self, trace: SenderTrace) -> None:
        """Write down what becomes of messages, before anybody else hears of it."""
        self._trace = trace
        performed = self.perform_by_type
        performed[Accepted] = after(trace.accepted, performed[Accepted])
        performed[Reject] = after(trace.rejected, performed[Reject])
        performed[Confirmed] = after(trace.confirmed, performed[Confirmed])
        performed[Renumbered] = after(trace.renumbered, performed[Renumbered])

    def answered(self, ticket: int, outcome: object) -> None:
        """From a clerk: the outcome of a request of this life."""
        if self._trace is not None and isinstance(outcome, JournalContents):
            self._trace.loaded(outcome)
        super().answered(ticket, outcome)

    @property
    def machine(self) -> SendingMachine:
        """The machine of this life."""
        assert self._machine is not None
        return self._machine

    @property
    def is_built(self) -> bool:
        """False while the journal is not answering."""
        return self._machine is not None

    def build(self) -> bool:
        """Build the machine from what the journal holds."""
        try:
            self._machine = self._build()
        except StoreUnavailable:
            self.retry_build_at(self.now() + BUILD_AGAIN_US)
        except Fenced as error:
            assert self._replaced is not None, "only an end with a journal has anything to lose"
            self.over = True
            self._replaced(str(error))
        return self.is_built

    def look_further(self) -> None:
        """Take in what was sent, say how much room is left, and resolve what somebody waits for."""
        machine, intake = self.machine, self._intake
        if self.around.is_route_back:
            self.around.is_route_back = False
            self.perform(machine.route_is_back(self.now()))
        self._take_in()
        if intake.refusal is not None:
            self._close()
        if self.ledger.marks and self.ledger.resolve(machine.unconfirmed()):
            intake.notify()
        # What is never sent again must not meet a full inbox: there the route's room is a bound too.
        room = machine.room if machine.confirms else min(machine.room, self._route_room())
        intake.publish(room, machine.room_bytes, len(self._held))
        if machine.stopped and not self._is_stopped:
            self._is_stopped = True
            self._stopped(self)

    def _take_in(self) -> None:
        items, has_marks = self._intake.drain()
        if has_marks:
            self._offer(self.ledger.offering(items))
            self._intake.notify()
        elif items or self._held:
            self._offer(cast("list[bytes]", items))

    def _offer(self, payloads: list[bytes]) -> None:
        """Offer to the machine. What it has no room for, against expectation, is offered again next time."""
        if self._held:
            payloads = [*self._held, *payloads]
            self._held = []
        if payloads:
            self._offering = payloads
            self.ledger.offered(len(payloads))
            if self._trace is not None:
                self._trace.offered(payloads)
            self.perform(self.machine.send(payloads, self.now()))
            self._offering = []

    def _close(self) -> None:
        if self._intake.drained and not self._held:
            if not self._is_closing:
                self._is_closing = True
                self.perform(self.machine.close(self.now()))
                self._intake.notify()
            if self.machine.idle and not self._is_drained:
                self._is_drained = True
                self._drained()

    # Effects that only senders have.

    def _reject(self, effect: Reject) -> None:
        rest = self._offering[-effect.count :]
        if effect.reason is RejectReason.FULL:
            self._held = rest
            self.ledger.offered(-effect.count)
        else:
            self.ledger.rejected(effect.count, self._rejection(effect))

    def _rejection(self, effect: Reject) -> SurepipeError:
        kind = StacksDiffer if self.mismatch else PipeStopped
        why = f": {self.machine.stopped}" if self.machine.stopped else ""
        return kind(
            f"pipe {self._intake.pipe} did not accept the message ({effect.reason}{why}); it was not sent"
        )

    def _confirmed(self, effect: Confirmed) -> None:
        """Whoever waits is told at the end of the look, from what the machine says is left."""
