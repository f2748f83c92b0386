"""A life of the sender, with the application that offers it messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surepipe.effects import (
    Accepted,
    Confirmed,
    Effect,
    Reject,
    RejectReason,
    Renumbered,
)
from surepipe.machines import SenderMachine
from surepipe.simulation.events import Submit
from surepipe.simulation.processes import Process
from surepipe.simulation.world import as_detail, digests_of

if TYPE_CHECKING:
    from surepipe.simulation.nodes import Node


class SenderProcess(Process):
    """A life of the sender, with the application that offers it messages."""

    __slots__ = ("offered", "sender")

    def __init__(self, node: Node, number: int, machine: SenderMachine) -> None:
        super().__init__(node, number, machine)
        self.sender = machine
        self.offered: deque[bytes] = deque()
        self.acts |= {
            Accepted: self._accepted,
            Reject: self._reject,
            Confirmed: self._confirmed,
            Renumbered: self._renumbered,
        }
        self.takes[Submit] = self._submit

    def _submit(self, event: Submit) -> None:
        self.begin("submit", len(event.payloads), f'{{"name":"{event.what}"}}')
        self.offered.extend(event.payloads)
        self.step(event, self.sender.send(event.payloads, self.now()))

    def _accepted(self, effect: Accepted) -> None:
        taken = [self.offered.popleft() for _ in range(effect.count)]
        self.node.accept(self, effect.epoch, effect.first, taken)

    def _reject(self, effect: Reject) -> None:
        refused = [self.offered.pop() for _ in range(effect.count)][::-1]
        reason = as_detail({"reason": str(effect.reason)})
        self.row("rejected", count=effect.count, digests=digests_of(refused), detail=reason)
        if effect.reason in (RejectReason.FULL, RejectReason.JOURNAL):
            self.node.offer_again(refused)

    def _confirmed(self, effect: Confirmed) -> None:
        for first, last in effect.ranges:
            self.row("confirmed", effect.epoch, first, last - first + 1)

    def _renumbered(self, effect: Renumbered) -> None:
        if not self.node.keeper.has_journal:
            self.renumber(
                effect.epoch, effect.first, effect.count, effect.new_epoch, effect.new_first
            )

    def unperformed(self, effects: Sequence[Effect]) -> None:
        """What was offered and not answered: taken or not, the application can't know."""
        if not self.offered:
            return
        offered = list(self.offered)
        self.offered.clear()
        for effect in effects:
            if isinstance(effect, Accepted):
                taken, offered = offered[: effect.count], offered[effect.count :]
                self._unknown(effect.epoch, effect.first, taken)
        self._unknown(0, 0, offered)

    def _unknown(self, epoch: int, first: int, payloads: list[bytes]) -> None:
        if payloads:
            self.row(
                "unknown", epoch=epoch, seq=first, count=len(payloads), digests=digests_of(payloads)
            )
