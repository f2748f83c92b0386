"""An incarnation of the receiver, with the handler behind its boundary."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surepipe.effects import (
    Deliver,
)
from surepipe.machines import ReceiverMachine
from surepipe.pipes.desk import Boundary
from surepipe.simulation.events import Handled, HandlerCall
from surepipe.simulation.processes import Process
from surepipe.simulation.world import digests_of

if TYPE_CHECKING:
    from surepipe.simulation.nodes import Node


class ReceiverProcess(Process):
    """An incarnation of the receiver, with the handler behind its boundary."""

    __slots__ = ("crossed", "delivered", "is_handling", "open", "queue", "raising", "receiver")

    def __init__(self, node: Node, number: int, machine: ReceiverMachine) -> None:
        super().__init__(node, number, machine)
        self.receiver = machine
        self.open: dict[int, Deliver] = {}
        self.raising: dict[int, int] = {}
        self.delivered: dict[int, str] = {}
        self.queue: deque[Deliver] = deque()
        self.crossed: set[tuple[str, int, int]] = set()
        self.is_handling = False
        self.acts[Deliver] = self._deliver
        self.takes[Handled] = self._handled

    def _deliver(self, effect: Deliver) -> None:
        count = len(effect.payloads)
        self.delivered[effect.ticket] = f"{self.prefix}{len(self.rows)}"
        self.row(
            "delivered",
            epoch=effect.epoch,
            seq=effect.first,
            count=count,
            attempt=effect.attempt,
            digests=digests_of(effect.payloads),
            pipe=self.node.pipe_of(effect.producer),
        )
        if self.node.boundary is Boundary.BEFORE:
            self._cross_before(effect)
        self.open[effect.ticket] = effect
        self.queue.append(effect)
        if not self.is_handling:
            self._handle_next()

    def _cross_before(self, effect: Deliver) -> None:
        """Here messages are settled when the handler gets them, each for the first time that it does."""
        for seq, payload in enumerate(effect.payloads, effect.first):
            identity = (effect.producer, effect.epoch, seq)
            if identity not in self.crossed:
                self.crossed.add(identity)
                self._tell_settled(effect, seq, (payload,), effect.attempt)

    def _tell_settled(
        self, delivery: Deliver, first: int, payloads: Sequence[bytes], attempt: int
    ) -> None:
        self.row(
            "settled",
            epoch=delivery.epoch,
            seq=first,
            count=len(payloads),
            attempt=attempt,
            digests=digests_of(payloads),
            pipe=self.node.pipe_of(delivery.producer),
        )

    def _handle_next(self) -> None:
        """The handler takes one delivery after the other, as that of an actor does."""
        self.is_handling = bool(self.queue)
        if not self.queue:
            return
        effect = self.queue.popleft()
        count = len(effect.payloads)
        call = self._call_of(effect, count)
        took, raising = self.chooser.handling(call, effect.epoch, effect.first, count)
        if self.node.poison:
            raising = self._poisoned(effect, raising)
        if raising:
            last = effect.first + count - 1
            self.raising[effect.ticket] = max(effect.first, min(raising, last))
        self._return_at(effect, effect.first, took, call)

    def _call_of(self, effect: Deliver, count: int) -> HandlerCall:
        """The call of the handler for a delivery, with the how-many-th of its kind it is."""
        calls, kind = self.node.handled, (effect.epoch, effect.first, count, effect.attempt)
        number = calls[kind] = calls.get(kind, 0) + 1
        return HandlerCall(effect.epoch, effect.first, count, effect.attempt, number)

    def _poisoned(self, effect: Deliver, raising: int) -> int:
        for seq, payload in enumerate(effect.payloads, effect.first):
            if payload in self.node.poison:
                return min(seq, raising) if raising else seq
        return raising

    def _return_at(self, effect: Deliver, first: int, took: int, call: HandlerCall) -> None:
        last = effect.first + len(effect.payloads) - 1
        cause = self.delivered[effect.ticket]
        event = Handled(effect.ticket, effect.epoch, first, last, effect.attempt, call, cause)
        self.world.at(self.world.now + took, self, event)

    def _handled(self, event: Handled) -> None:
        """The handler has come to its end, or to a message for which it raises."""
        delivery = self.open[event.ticket]
        self.cause = event.cause
        raising = self.raising.pop(event.ticket, 0)
        if raising:
            self._raise(event, delivery, raising)
            return
        count = event.last - event.first + 1
        part = self.chooser.part(event, count)
        last = event.first + part - 1
        if part < count:
            self._return_at(delivery, last + 1, 0, event.call)
        else:
            self._close(event.ticket)
        self._cross(event, delivery, last)

    def _close(self, ticket: int) -> None:
        """The handler is done with a delivery and takes the next one."""
        del self.open[ticket]
        del self.delivered[ticket]
        self._handle_next()

    def _cross(self, event: Handled, delivery: Deliver, last: int) -> None:
        """The effects of the handler, then the machine hears of it; the process may end at any message of it."""
        count = last - event.first + 1
        state = self._state_after(event, last)
        effects = self.receiver.settled(event.ticket, ((event.first, last),), self.now())
        trouble = self.trouble_at(event, count + len(effects))
        done = count if trouble is None else trouble.done(count)
        if state is not None and done < count:
            done = 0
        if done and not self._settled(event, delivery, done, state):
            return
        if trouble is None:
            self.perform(effects)
        else:
            self.end_within(trouble.beyond(count), effects)

    def _state_after(self, event: Handled, last: int) -> bytes | None:
        """What goes into one transaction with the effects, where the boundary has those."""
        if self.node.boundary is not Boundary.COMMITTED:
            return None
        return self.receiver.state_after(event.ticket, last)

    def _settled(self, event: Handled, delivery: Deliver, done: int, state: bytes | None) -> bool:
        """So many messages cross the boundary; False when the store refused the transaction, effects and all."""
        keeper = self.node.keeper
        if state is not None and not keeper.commit(self, state):
            is_current = self is self.node.current
            self.node.end(self, "the store refused its transaction")
            if is_current:
                self.node.start_after(self.world.options.timer_us)
            return False
        if self.node.boundary is Boundary.BEFORE:
            return True
        start = event.first - delivery.first
        step = len(self.rows)
        payloads = delivery.payloads[start : start + done]
        self._tell_settled(delivery, event.first, payloads, event.attempt)
        self.cause = f"{self.prefix}{step}"
        if state is not None:
            keeper.tell_committed(self, state)
        return True

    def _raise(self, event: Handled, delivery: Deliver, seq: int) -> None:
        """What stands before ``seq`` has crossed the boundary."""
        self._close(event.ticket)
        self.row("raised", epoch=event.epoch, seq=seq, count=1, attempt=event.attempt)
        self.cause = f"{self.prefix}{len(self.rows) - 1}"
        done = seq - event.first
        if done and not self._settled(event, delivery, done, self._state_after(event, seq - 1)):
            return
        error = ("ValueError", "the handler refused it")
        self.step(event, self.receiver.failed(event.ticket, seq, error, self.now()))
