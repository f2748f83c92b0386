"""An incarnation of the receiver, with the handler behind its boundary."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surepipe.effects import Deliver
from surepipe.errors import Fenced
from surepipe.machines import CommittedMachine, ReceiverMachine
from surepipe.pipes.desk import Boundary
from surepipe.simulation.events import Handled, HandlerCall, Happening
from surepipe.simulation.processes import Process
from surepipe.simulation.trace import LOOKED_AGAIN
from surepipe.simulation.world import as_detail, digests_of

if TYPE_CHECKING:
    from surepipe.simulation.nodes import Node


class ReceiverProcess(Process):
    """An incarnation of the receiver, with the handler behind its boundary."""

    __slots__ = (
        *("crossed", "in_doubt", "is_committed", "is_handling", "queue", "receiver"),
        *("handed_out_through", "taken_back_through"),
    )

    def __init__(self, node: Node, number: int, machine: ReceiverMachine) -> None:
        super().__init__(node, number, machine)
        self.receiver = machine
        self.queue: deque[tuple[Deliver, str]] = deque()
        """Deliveries that wait for the handler, each with the name of its row."""
        self.crossed: set[tuple[str, int, int]] = set()
        self.is_committed = node.boundary is Boundary.COMMITTED
        self.is_handling = False
        self.in_doubt = False
        """A transaction met a store that is away: nothing else is committed until it is known what is stored."""
        self.handed_out_through = self.taken_back_through = 0
        """Tickets. What is taken back is handed out again under others."""
        self.acts[Deliver] = self._deliver
        self.takes[Handled] = self._handled

    def _deliver(self, effect: Deliver) -> None:
        payloads = effect.payloads
        self.handed_out_through = effect.ticket
        told = f"{self.prefix}{len(self.cells)}"
        self.row(
            "delivered",
            effect.epoch,
            effect.first,
            len(payloads),
            effect.attempt,
            digests_of(payloads),
            "",
            self.node.pipe_of(effect.producer) if effect.producer else "",
        )
        if self.node.boundary is Boundary.BEFORE:
            self._cross_before(effect)
        if self.is_handling:
            self.queue.append((effect, told))
        else:
            self._handle(effect, told)

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
            delivery.epoch,
            first,
            len(payloads),
            attempt,
            digests_of(payloads),
            "",
            self.node.pipe_of(delivery.producer) if delivery.producer else "",
        )

    def _handle(self, delivery: Deliver, cause: str) -> None:
        """The handler takes one delivery after the other, as that of an actor does."""
        self.is_handling = True
        first, count = delivery.first, len(delivery.payloads)
        calls, kind = self.node.handled, (delivery.epoch, first, count, delivery.attempt)
        number = calls[kind] = calls.get(kind, 0) + 1
        call = HandlerCall(delivery, number, cause)
        took, raising = self.chooser.handling(call, delivery.epoch, first, count)
        if self.node.poison:
            raising = self._poisoned(delivery, raising)
        if raising:
            call.raising = max(first, min(raising, first + count - 1))
        self.world.at(self.world.now + took, self, Handled(call, first, first + count - 1))

    def _poisoned(self, effect: Deliver, raising: int) -> int:
        for seq, payload in enumerate(effect.payloads, effect.first):
            if payload in self.node.poison:
                return min(seq, raising) if raising else seq
        return raising

    def _handled(self, event: Handled) -> None:
        """The handler has come to its end, or to a message for which it raises."""
        call = event.call
        self.cause = call.cause
        if call.delivery.ticket <= self.taken_back_through:
            self._close()
            return
        if call.raising:
            self._raise(event, call)
            return
        count = event.last - event.first + 1
        part = self.chooser.part(event, count) if count > 1 else 1
        last = event.first + part - 1
        if part < count:
            rest = Handled(call, last + 1, event.last)
            self.world.at(self.world.now, self, rest)
        else:
            self._close()
        self._cross(event, call.delivery, last)

    def _close(self) -> None:
        """The handler is done with a delivery and takes the next one."""
        self.is_handling = False
        if self.queue:
            self._handle(*self.queue.popleft())

    def _cross(self, event: Handled, delivery: Deliver, last: int) -> None:
        """The effects of the handler, then the machine hears of it; the process may end at any message of it."""
        count = last - event.first + 1
        ticket = delivery.ticket
        if self._is_put_off():
            return
        state = self._state_after(ticket, last)
        effects = self.receiver.settled(ticket, ((event.first, last),), self.now())
        trouble = self.trouble_at(event, count + len(effects)) if self.may_end else None
        done = count if trouble is None else trouble.done(count)
        if state is not None and done < count:
            done = 0
        if done and not self._settled(event.first, delivery, done, state):
            return
        if trouble is None:
            self.perform(effects)
        else:
            self.end_within(trouble.beyond(count), effects)

    def _is_put_off(self) -> bool:
        """True when nothing of a transaction is stored. The receiver keeps what it has, in its order, and looks
        again; until then nothing else is committed."""
        is_first = self.is_committed and not self.in_doubt and not self.node.keeper.can_commit
        if is_first:
            self.in_doubt = True
            self._look_later()
        return self.in_doubt

    def _look_later(self) -> None:
        again = Happening(f"look again as {self.number}", lambda: self._look_again(again))
        self.world.at(self.world.now + self.world.options.timer_us, self, again)

    def _look_again(self, event: Happening) -> None:
        keeper = self.node.keeper
        if not keeper.can_commit:
            self._look_later()
            return
        try:
            keeper.renew_state(self)
        except Fenced:
            self.node.end(self, "another receiver has the state")
            return
        self.in_doubt = False
        self.taken_back_through = self.handed_out_through
        self.queue.clear()
        self.begin("answer", detail=as_detail({"call": LOOKED_AGAIN, "outcome": "Owner"}))
        assert isinstance(self.receiver, CommittedMachine)
        self.step(event, self.receiver.again(self.now()))

    def _state_after(self, ticket: int, last: int) -> bytes | None:
        """What goes into one transaction with the effects, where the boundary has those."""
        return self.receiver.state_after(ticket, last) if self.is_committed else None

    def _settled(self, first: int, delivery: Deliver, done: int, state: bytes | None) -> bool:
        """So many messages cross the boundary; False when the store refused the transaction, effects and all."""
        node = self.node
        if state is not None and not node.keeper.commit(self, state):
            is_current = self is node.current
            node.end(self, "the store refused its transaction")
            if is_current:
                node.start_after(self.world.options.timer_us)
            return False
        if node.boundary is Boundary.BEFORE:
            return True
        start = first - delivery.first
        self._tell_settled(
            delivery, first, delivery.payloads[start : start + done], delivery.attempt
        )
        self.cause = f"{self.prefix}{len(self.cells) - 1}"
        if state is not None:
            node.keeper.tell_committed(self, state)
        return True

    def _raise(self, event: Handled, call: HandlerCall) -> None:
        """What stands before the message for which it raises has crossed the boundary."""
        delivery, seq = call.delivery, call.raising
        self._close()
        pipe = self.node.pipe_of(delivery.producer) if delivery.producer else ""
        self.row("raised", delivery.epoch, seq, 1, delivery.attempt, pipe=pipe)
        self.cause = f"{self.prefix}{len(self.cells) - 1}"
        ticket, done = delivery.ticket, seq - event.first
        if done and self._is_put_off():
            return
        if done:
            state = self._state_after(ticket, seq - 1)
            if not self._settled(event.first, delivery, done, state):
                return
        error = ("ValueError", "the handler refused it")
        self.step(event, self.receiver.failed(ticket, seq, error, self.now()))
