"""A client of a simulated network: what two of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surepipe.core.effects import Addressed, Call, Effect, Transmit, WakeAt
from surepipe.queues.rmq.client import ClientMachine
from tests.queues.rmq.log_network import require_rung


class WireClient:
    """Performs the effects of a ``ClientMachine`` in a network with virtual time."""

    machine: ClientMachine

    def __init__(self, net: Any, name: str) -> None:
        self.net, self.name, self.address = net, name, name
        self.sent = 0
        """How many submits it has sent."""
        self._deadline: int | None = None

    def step(self, act: Callable[[ClientMachine], list[Effect]]) -> None:
        """One event of the machine, and what follows from it."""
        self._perform(act(self.machine))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(Addressed(peer, bytes() as data)):
                    self.sent += b"submit" in data[:20]
                    self.net.send(self, peer, data)
                case WakeAt(deadline):
                    self._deadline = deadline
                    if deadline is not None:
                        self.net.at(
                            max(deadline, self.net.now),
                            lambda at=deadline: self._wake(at),
                        )
                case Call(ticket, request):
                    self._call(ticket, request)
                case _:
                    raise AssertionError(effect)

    def _call(self, ticket: int, request: object) -> None:
        """Who keeps a journal has a store that answers."""
        raise AssertionError((ticket, request))

    def _wake(self, deadline: int) -> None:
        if deadline == self._deadline:
            self._deadline = None
            self.step(lambda machine: machine.wake(self.net.now))
            require_rung(self.machine, self._deadline)
