"""A process that hosts a machine: the four steps of every host, and an end after any effect.

A process performs the effects of an event in order and may end after any of them; then all of it is gone, but for
what it wrote into a store and the frames that it has put on a link.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, cast

from surepipe.audit.trace import LOOKED_AGAIN
from surepipe.core.effects import (
    Accepted,
    Call,
    Confirmed,
    DeadLetter,
    Deliver,
    Effect,
    Notice,
    NoticeKind,
    Persist,
    Reject,
    RejectReason,
    Renumbered,
    Transmit,
    WakeAt,
)
from surepipe.core.machine import CommittedMachine, Machine, ReceiverMachine, SenderMachine
from surepipe.errors import Fenced
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.chance.chooser import Trouble
from surepipe.simulation.events import (
    Event,
    FrameFlight,
    Handled,
    HandlerCall,
    Happening,
    OfEnd,
    StoreAnswer,
    Submit,
    Wake,
)
from surepipe.simulation.network import Link
from surepipe.simulation.promises import promise_of
from surepipe.simulation.stores.contents import WorldKeeper
from surepipe.simulation.subjects import Subject
from surepipe.simulation.timeline import MonotonicClock, Timeline, WallClock, as_detail, digests_of


def _idle() -> None:
    pass


def _happen(event: Happening) -> None:
    event.act()


def _above_zero(counters: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counters.items() if count}


class Process:
    """One life of a machine."""

    # Slots: beyond thirty attributes a dictionary finds them slower, and each is asked for at every event.
    __slots__ = (
        *("acts", "cause", "chooser", "clock", "deadline", "has_drift", "is_alive", "is_away"),
        *("cells", "end", "is_plain", "is_watched", "machine", "may_end", "name", "node", "number"),
        *("pipe", "prefix", "run_name", "takes", "transmit", "waiting", "woken_at", "world"),
    )

    def __init__(self, end: EndOfNode, number: int, machine: Machine) -> None:
        self.end = end
        self.node = end.node
        self.name = end.name
        self.pipe = end.pipe
        self.world = end.world
        self.cells = end.world.cells
        self.run_name = end.world.run_name
        self.chooser = end.world.chooser
        self.clock = end.clock
        self.has_drift = bool(end.clock.drift_ppm)
        self.number = number
        self.prefix = f"{end.name}/{number}/"
        self.machine = machine
        self.is_watched = end.is_watched
        self.may_end = self.world.asked is not None or self.chooser.may_ever_trouble(end.node.name)
        self.transmit = end.out.transmit
        self.is_plain = not (self.may_end or self.is_watched)
        """Nothing but its machine decides what it does: then a step is its effects and nothing else."""
        self.is_alive = True
        self.is_away = False
        self.waiting: list[Event] = []
        self.deadline: int | None = None
        self.woken_at: int | None = None
        self.cause = ""
        self.acts: dict[type, Callable[[Any], None]] = {
            Transmit: self._transmit,
            WakeAt: self._wake_at,
            Call: self._call,
            Persist: self._persist,
            DeadLetter: self._dead_letter,
            Notice: self._notice,
        }
        self.takes: dict[type, Callable[[Any], None]] = {
            FrameFlight: self._arrive,
            Happening: _happen,
            Wake: self._wake,
            StoreAnswer: self._answer,
        }

    @property
    def has_stopped(self) -> bool:
        """Whether its machine takes and gives nothing more, as another one was put in its place."""
        return bool(getattr(self.machine, "stopped", ""))

    def now(self) -> int:
        """What the clock of this process shows."""
        now = self.world.now
        return self.clock.reading(now) if self.has_drift else now

    # Events.

    def take(self, event: Event) -> None:
        """The first of the four steps: one event."""
        if self.is_away:
            self.waiting.append(event)
        elif self.is_alive:
            self.takes[type(event)](event)

    def start(self) -> None:
        """The first wake."""
        self.step(Happening(f"start {self.number}", _idle), self.machine.wake(self.now()))

    def _arrive(self, flight: FrameFlight) -> None:
        now = self.world.now
        step = len(self.cells)
        spoken = (self.run_name, self.name, self.number, step, flight.cause, now, "arrived")
        self.cells.append(spoken + flight.told)
        self.cause = f"{self.prefix}{step}"
        if self.has_drift:
            now = self.clock.reading(now)
        effects = self.machine.frame(flight.frame, now)
        if self.is_plain:
            acts = self.acts
            for effect in effects:
                acts[type(effect)](effect)
        else:
            self.step(flight, effects)

    def _wake(self, event: Wake) -> None:
        now = self.world.now
        if self.woken_at == event.due:
            self.woken_at = None
        if self.deadline is None:
            self.world.events -= 1
        elif (due := self.clock.when(self.deadline)) > now:
            self._wake_early(event, due)
        else:
            self.deadline = None
            self.end.wakes += 1
            event.number = self.end.wakes
            self.begin("wake")
            self.step(event, self.machine.wake(self.now()))

    def _wake_early(self, event: Wake, due: int) -> None:
        """The deadline has moved on since this was arranged; perturbed, the machine is woken all the same."""
        self._arm(due)
        where = f"{self.name}: before {due}"
        if self.world.options.perturb and self.chooser.perturb("early-wake", where):
            self.end.wakes += 1
            event.number = self.end.wakes
            self.begin("wake")
            self.step(event, self.machine.wake(self.now()))
        else:
            self.world.events -= 1

    def _answer(self, event: StoreAnswer) -> None:
        facts = {"call": event.call, "outcome": type(event.outcome).__name__}
        self.begin("answer", detail=as_detail(facts))
        self.step(event, self.machine.answer(event.ticket, event.outcome, self.now()))

    # The third step: perform the effects in order, or as many as the process lives to do.

    def step(self, event: Event, effects: Sequence[Effect]) -> None:
        """Perform what the machine answered to an event, or as much as the process lives to do."""
        trouble = self.trouble_at(event, len(effects)) if self.may_end else None
        if trouble is not None:
            self.end_within(trouble, effects)
            return
        self.perform(effects)

    def trouble_at(self, event: Event, points: int) -> Trouble | None:
        """What befalls the process at this event. A zombie has had its share."""
        if not self.may_end:
            return None
        world, node = self.world, self.node.name
        if node != self.name:
            event = OfEnd(self.name, event)
        if world.asked is not None:
            world.asked.append((node, event))
        if self.chooser.may_trouble(node) and self is self.end.current:
            return self.chooser.trouble(node, event, points)
        return None

    def perform(self, effects: Sequence[Effect]) -> None:
        """The third step of a host: the effects, in order."""
        acts = self.acts
        for effect in effects:
            acts[type(effect)](effect)
        if self.is_watched:
            self.tell_state()

    def tell_state(self) -> None:
        """Its last row of the step says how the machine stands now; a store may have had the last word."""
        rows, machine = self.world.rows, self.machine
        at = len(rows.cells) - 1
        while rows.cells[at][1:3] != (self.name, self.number):
            at -= 1
        *_, detail, state = rows.cells[at]
        if self.world.options.gauges:
            facts = {"gauges": dict(machine.gauges()), "counters": _above_zero(machine.counters())}
            known = cast("dict[str, object]", json.loads(detail or "{}"))
            detail = as_detail({**known, **facts})
        if self.world.options.states:
            exported = repr(machine.export()).encode()
            state = blake2b(exported, digest_size=16).hexdigest()
        rows.amend(at, detail, state)

    def end_within(self, trouble: Trouble, effects: Sequence[Effect]) -> None:
        """Perform what was still done. A pause falls between two events, so it leaves no effect out."""
        done = effects[: max(0, trouble.point)] if trouble.is_end else effects
        for effect in done:
            self.acts[type(effect)](effect)
        if trouble.is_end:
            self.unperformed(effects[len(done) :])
        elif self.is_watched:
            self.tell_state()
        self.node.befall(self.node.life_of(self), trouble)

    def unperformed(self, effects: Sequence[Effect]) -> None:
        """What the machine has decided and the world never saw."""

    def _transmit(self, effect: Transmit) -> None:
        self.transmit(effect.frame, self.number, self.cause)

    def _wake_at(self, effect: WakeAt) -> None:
        self.deadline = effect.deadline
        if effect.deadline is not None:
            due = self.clock.when(effect.deadline) if self.has_drift else effect.deadline
            self._arm(due)

    def _arm(self, due: int) -> None:
        """One entry in the heap is enough: when it comes too early it moves on to the deadline."""
        due = max(due, self.world.now)
        if self.woken_at is None or due < self.woken_at:
            self.woken_at = due
            self.world.at(due, self, Wake(self.end.wakes + 1, due))

    def _notice(self, effect: Notice) -> None:
        facts: dict[str, object] = {"notice": str(effect.kind), "text": effect.detail}
        if self.world.options.gauges and effect.ranges:
            facts["ranges"] = effect.ranges
        self.row("notice", epoch=effect.epoch, detail=as_detail(facts))
        if effect.kind is NoticeKind.FENCED:
            self.node.stopped(self)

    def _call(self, effect: Call) -> None:
        self.end.keeper.call(self, effect)

    def _persist(self, effect: Persist) -> None:
        self.end.keeper.persist(self, effect)

    def _dead_letter(self, effect: DeadLetter) -> None:
        self.end.keeper.letter(self, effect)

    def renumber(self, epoch: int, first: int, count: int, new_epoch: int, new_first: int) -> None:
        """These messages are known by a new identity, whoever hears of it."""
        new = as_detail({"epoch": new_epoch, "seq": new_first})
        self.row("renumbered", epoch=epoch, seq=first, count=count, detail=new)
        self.end.renumber(epoch, first, count, new_epoch, new_first)

    # Rows.

    def row(  # noqa: PLR0917 - with keywords it would take half as long again
        self,
        kind: str,
        epoch: int = 0,
        seq: int = 0,
        count: int = 0,
        attempt: int = 0,
        digests: str = "",
        detail: str = "",
        pipe: str = "",
    ) -> None:
        """A row of this process, caused by the row that its step began with."""
        cells, now = self.cells, self.world.now
        spoken = (self.run_name, self.name, self.number, len(cells), self.cause, now, kind)
        told = (pipe or self.pipe, epoch, seq, count, "", "", attempt, 0, digests, detail, "")
        cells.append(spoken + told)

    def begin(self, kind: str, count: int = 0, detail: str = "") -> None:
        """The row that a step begins with: what follows has it for its cause."""
        self.cause = ""
        self.row(kind, 0, 0, count, 0, "", detail)
        self.cause = f"{self.prefix}{len(self.cells) - 1}"


# A life of the sender, with the application that offers it messages.


@dataclass(slots=True)
class HandOver:
    """Messages that came out of one pipe and go into the next one of the same node."""

    left: int
    then: Callable[[], None]

    def one_is_safe(self) -> None:
        """One more of them needs its former pipe no longer."""
        self.left -= 1
        if self.left == 0:
            self.then()


class SenderProcess(Process):
    """A life of the sender, with the application that offers it messages."""

    __slots__ = ("handed", "offered", "sender", "unsafe")

    def __init__(self, end: EndOfNode, number: int, machine: SenderMachine) -> None:
        super().__init__(end, number, machine)
        self.sender = machine
        self.offered: deque[bytes] = deque()
        self.handed: dict[bytes, HandOver] = {}
        """Messages that another end of this node has given it, until they are accepted."""
        self.unsafe: dict[tuple[int, int], HandOver] = {}
        """Those of them that are accepted and not confirmed, where only what is confirmed is safe."""
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

    def hand_over(self, payloads: Sequence[bytes], then: Callable[[], None]) -> None:
        """Messages that a handler of this node sends on; ``then`` is called when all of them are safe."""
        hand_over = HandOver(len(payloads), then)
        self.handed |= dict.fromkeys(payloads, hand_over)
        self.end.offers += 1
        self.world.at(self.world.now, self, Submit(5000 + self.end.offers, payloads))

    def _accepted(self, effect: Accepted) -> None:
        taken = [self.offered.popleft() for _ in range(effect.count)]
        self.end.accept(self, effect.epoch, effect.first, taken)
        if self.handed:
            for seq, payload in enumerate(taken, effect.first):
                self._took(payload, effect.epoch, seq)

    def _took(self, payload: bytes, epoch: int, seq: int) -> None:
        hand_over = self.handed.pop(payload, None)
        if hand_over is None:
            return
        if self.end.keeps_accepted:
            hand_over.one_is_safe()
        else:
            self.unsafe[epoch, seq] = hand_over

    def _reject(self, effect: Reject) -> None:
        refused = [self.offered.pop() for _ in range(effect.count)][::-1]
        reason = as_detail({"reason": str(effect.reason)})
        self.row("rejected", count=effect.count, digests=digests_of(refused), detail=reason)
        if self.end.is_fed:
            self.end.offers += 1
            later = Submit(5000 + self.end.offers, refused)
            self.world.at(self.world.now + self.world.options.timer_us, self, later)
        elif effect.reason in (RejectReason.FULL, RejectReason.JOURNAL):
            self.end.offer_again(refused)

    def _confirmed(self, effect: Confirmed) -> None:
        for first, last in effect.ranges:
            self.row("confirmed", effect.epoch, first, last - first + 1)
            for seq in range(first, last + 1) if self.unsafe else ():
                hand_over = self.unsafe.pop((effect.epoch, seq), None)
                if hand_over is not None:
                    hand_over.one_is_safe()

    def _renumbered(self, effect: Renumbered) -> None:
        for offset in range(effect.count) if self.unsafe else ():
            hand_over = self.unsafe.pop((effect.epoch, effect.first + offset), None)
            if hand_over is not None:
                self.unsafe[effect.new_epoch, effect.new_first + offset] = hand_over
        if not self.end.keeper.has_journal:
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


# An incarnation of the receiver, with the handler behind its boundary.


class ReceiverProcess(Process):
    """An incarnation of the receiver, with the handler behind its boundary."""

    __slots__ = (
        *("crossed", "in_doubt", "is_committed", "is_handling", "queue", "receiver"),
        *("handed_out_through", "taken_back_through"),
    )

    def __init__(self, end: EndOfNode, number: int, machine: ReceiverMachine) -> None:
        super().__init__(end, number, machine)
        self.receiver = machine
        self.queue: deque[tuple[Deliver, str]] = deque()
        """Deliveries that wait for the handler, each with the name of its row."""
        self.crossed: set[tuple[str, int, int]] = set()
        self.is_committed = end.boundary is Boundary.COMMITTED
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
            self.end.pipe_of(effect.producer) if effect.producer else "",
        )
        if self.end.boundary is Boundary.BEFORE:
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
            self.end.pipe_of(delivery.producer) if delivery.producer else "",
        )

    def _handle(self, delivery: Deliver, cause: str) -> None:
        """The handler takes one delivery after the other, as that of an actor does."""
        self.is_handling = True
        first, count = delivery.first, len(delivery.payloads)
        calls, kind = self.end.handled, (delivery.epoch, first, count, delivery.attempt)
        number = calls[kind] = calls.get(kind, 0) + 1
        call = HandlerCall(delivery, number, cause)
        took, raising = self.chooser.handling(self._named(call), delivery.epoch, first, count)
        if self.end.poison:
            raising = self._poisoned(delivery, raising)
        if raising:
            call.raising = max(first, min(raising, first + count - 1))
        self.world.at(self.world.now + took, self, Handled(call, first, first + count - 1))

    def _named(self, event: Event) -> Event:
        """By a name that no call of another handler has; that of a pair is the only one."""
        return event if self.name == "receiver" else OfEnd(self.name, event)

    def _poisoned(self, effect: Deliver, raising: int) -> int:
        for seq, payload in enumerate(effect.payloads, effect.first):
            if payload in self.end.poison:
                return min(seq, raising) if raising else seq
        return raising

    def _handled(self, event: Handled) -> None:
        """The handler has come to its end, or to a message for which it raises."""
        call = event.call
        self.cause = call.cause
        if call.delivery.ticket <= self.taken_back_through:
            self._close()
            return
        if self.end.onward is not None and call.sent_on < event.first:
            self._send_on(self.end.onward, event)
            return
        if call.raising:
            self._raise(event, call)
            return
        count = event.last - event.first + 1
        part = self.chooser.part(self._named(event), count) if count > 1 else 1
        last = event.first + part - 1
        if part < count:
            rest = Handled(call, last + 1, event.last)
            self.world.at(self.world.now, self, rest)
        else:
            self._close()
        self._cross(event, call.delivery, last)

    def _send_on(self, onward: EndOfNode, event: Handled) -> None:
        """The handler gives its messages to the next pipe, and goes on when they are safe there. Of those that it
        raises for, and of what comes behind them, it gives nothing."""
        call, delivery = event.call, event.call.delivery
        call.sent_on = event.last
        last = call.raising - 1 if call.raising else event.last
        payloads = delivery.payloads[event.first - delivery.first : last + 1 - delivery.first]
        if not payloads:
            self._handled(event)
            return
        world, life = self.world, self.node.life_of(self)
        sender = next(one for one in life if one.end is onward)
        assert isinstance(sender, SenderProcess)
        sender.hand_over(payloads, lambda: world.at(world.now, self, event))

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
        is_first = self.is_committed and not self.in_doubt and not self.end.keeper.can_commit
        if is_first:
            self.in_doubt = True
            self._look_later()
        return self.in_doubt

    def _look_later(self) -> None:
        again = Happening(f"look again as {self.number}", lambda: self._look_again(again))
        self.world.at(self.world.now + self.world.options.timer_us, self, again)

    def _look_again(self, event: Happening) -> None:
        keeper = self.end.keeper
        if not keeper.can_commit:
            self._look_later()
            return
        try:
            keeper.renew_state(self)
        except Fenced:
            self.node.refused(self, "another receiver has the state")
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
        end = self.end
        if state is not None and not end.keeper.commit(self, state):
            again = self.world.options.timer_us
            self.node.refused(self, "the store refused its transaction", again)
            return False
        if end.boundary is Boundary.BEFORE:
            return True
        start = first - delivery.first
        self._tell_settled(
            delivery, first, delivery.payloads[start : start + done], delivery.attempt
        )
        self.cause = f"{self.prefix}{len(self.cells) - 1}"
        if state is not None:
            end.keeper.tell_committed(self, state)
        return True

    def _raise(self, event: Handled, call: HandlerCall) -> None:
        """What stands before the message for which it raises has crossed the boundary."""
        delivery, seq = call.delivery, call.raising
        self._close()
        pipe = self.end.pipe_of(delivery.producer) if delivery.producer else ""
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


OFFER_TO_ZOMBIE = "offer-to-zombie"
"""The perturbation by which the application of a replaced sender goes on with its work."""
OFFERS_AGAIN = 64
"""An application gives up after so many refusals."""


class NodeOfEnds(Protocol):
    """The node of an end, as its process knows it."""

    world: Timeline
    name: str
    lives: int
    clock: MonotonicClock
    wall: WallClock

    def life_of(self, process: Process, /) -> MachineLife:
        """The life of the node that it belongs to."""
        ...

    def befall(self, life: MachineLife, trouble: Trouble, /) -> None:
        """Let this happen to a life."""
        ...

    def stopped(self, process: Process, /) -> None:
        """Its machine has ended by itself."""
        ...

    def refused(self, process: Process, why: str, after_us: int | None = None, /) -> None:
        """It may not go on; another life begins, after this time."""
        ...


class EndOfNode:
    """One end of a pipe on a node: an address on links, and the process that listens there now.

    Its keeper has what outlives a process.
    """

    def __init__(
        self,
        node: NodeOfEnds,
        subject: Subject,
        name: str,
        pipe: str,
        keeper: WorldKeeper,
        *,
        is_sender: bool,
    ) -> None:
        self.node = node
        self.world = world = node.world
        self.subject = subject
        self.name = name
        self.is_sender = is_sender
        self.pipe = pipe
        self.keeper = keeper
        self.clock = node.clock
        self.highest_epoch = 0
        self.boundary = subject.boundary
        self.message_max_bytes = promise_of(subject).message_max_bytes
        self.poison: frozenset[bytes] = frozenset()
        self.wakes = 0
        self.current: Process | None = None
        self.zombies: Sequence[Process] = ()
        self.kept_offers: list[Submit] = []
        self.accepted: set[tuple[int, int]] = set()
        self.offers = 0
        self.calls: dict[str, int] = {}
        self.handled: dict[tuple[int, int, int, int], int] = {}
        self.is_watched = world.options.gauges or world.options.states
        self.out: Link
        self.heard: Link
        self.onward: EndOfNode | None = None
        """Where the handler of this receiver gives its messages: the sender of the next pipe on this node."""
        self.is_fed = False
        """Of a sender: another end of this node gives it all that it sends."""
        self.keeps_accepted = self.keeper.has_journal
        """Of a sender: whether what it has accepted is safe, or only what is confirmed."""

    # Events.

    def take(self, event: Event) -> None:
        """Frames and offers go to the process that is there now."""
        process = self.current
        if process is None or process.is_away or self.zombies:
            self._take_as_it_is(event)
        else:
            process.takes[type(event)](event)

    def _take_as_it_is(self, event: Event) -> None:
        """Nobody is there, or there are several, or one sleeps."""
        if isinstance(event, Happening):
            event.act()
            return
        if self.zombies and isinstance(event, FrameFlight):
            self._tell_zombies(event)
        if self.zombies and isinstance(event, Submit) and self._is_for_zombie(event):
            self.zombies[-1].take(event)
        elif self.current is not None:
            self.current.take(event)
        elif isinstance(event, Submit):
            self.kept_offers.append(event)
        elif isinstance(event, FrameFlight) and not self.zombies:
            self._miss(event)

    def _tell_zombies(self, flight: FrameFlight) -> None:
        """What replaced a process and what it replaced listen at the same address: each hears every frame."""
        for number, zombie in enumerate(self.zombies, 1):
            if self.current is None and number == 1:
                zombie.take(flight)
            else:
                zombie.take(self.heard.copied(flight, flight.copy + 100 * number, "F28"))

    def _is_for_zombie(self, offer: Submit) -> bool:
        """The application of a replaced process does not know either that it was replaced."""
        world = self.world
        return world.options.perturb and world.chooser.perturb(OFFER_TO_ZOMBIE, offer.what)

    def _miss(self, flight: FrameFlight) -> None:
        facts = {"frame": flight.kind, "reason": "node down"}
        self.world.tell_frame(self.name, self.node.lives, "lost", flight, facts)

    def named(self, call: str) -> str:
        """A name that comes up once: with the how-many-th it is."""
        number = self.calls[call] = self.calls.get(call, 0) + 1
        return call if number == 1 else f"{call} #{number}"

    # Lives of the node.

    def new_process(self, life: int) -> Process:
        """The machine of this end in a new life. Raises StoreUnavailable."""
        world = self.world
        rng = world.chooser.source(f"ids/{self.name}/{life}")
        if not self.is_sender:
            state = self.keeper.load_state(life)
            receiver = self.subject.receiver(life=life, rng=rng, state=state)
            return ReceiverProcess(self, life, receiver)
        sender = self.subject.sender(
            life_hint=self._life_hint(life), rng=rng, journal=self.keeper.load_journal()
        )
        return SenderProcess(self, life, sender)

    def _life_hint(self, life: int) -> int:
        """What the wall clock gives: above all former lives, unless somebody has set the clock."""
        wall = self.node.wall
        wall.jump(self.world.chooser.wall_step(self.name, life))
        if not self.world.options.wall_steps:
            self.highest_epoch += 1
            return self.highest_epoch
        return wall.reading(self.world.now) // 1_000_000 * 1_000 + life

    def begin(self, process: Process) -> None:
        """The new process starts, and gets what was offered while nobody was there."""
        if process.is_alive:
            process.begin("start", detail='{"confirms":"stored"}' if self.keeper.streamed else "")
            self.keeper.started(process)
            process.start()
        self.offer_kept()

    def ended(self, process: Process, why: str, fault: str = "", after: int = 0) -> None:
        """The process is over; what it had in memory is gone."""
        facts: dict[str, object] = {"text": why}
        if fault:
            facts |= {"fault": fault, "after": after}
        process.row("crash", detail=as_detail(facts))
        process.is_alive = False
        process.deadline = None
        process.unperformed([])
        self.kept_offers += [event for event in process.waiting if isinstance(event, Submit)]
        process.waiting.clear()

    def offer_kept(self) -> None:
        """What waited for a process is offered again."""
        offers, self.kept_offers = self.kept_offers, []
        for offer in offers:
            self.world.at(self.world.now, self, offer)

    # The application of a sender.

    def accept(
        self,
        process: Process,
        epoch: int,
        first: int,
        payloads: Sequence[bytes],
        *,
        is_loaded: bool = False,
    ) -> None:
        """The sender counted these messages as taken. Loaded from a journal, they may be known by now.

        What a successor has loaded is told all the same by the process that stored it, when it hears that it did.
        """
        self.highest_epoch = max(self.highest_epoch, epoch)
        start = 0
        if is_loaded:
            start = next(
                (at for at in range(len(payloads)) if (epoch, first + at) not in self.accepted),
                len(payloads),
            )
        new = payloads[start:]
        if self.keeper.has_journal:
            self.accepted.update((epoch, first + at) for at in range(start, len(payloads)))
        if new:
            facts: dict[str, object] = {"loaded": True} if is_loaded else {}
            if (longest := max(map(len, new))) > self.message_max_bytes:
                facts["bytes"] = longest
            detail = as_detail(facts) if facts else ""
            process.row("accepted", epoch, first + start, len(new), 0, digests_of(new), detail)

    def renumber(self, epoch: int, first: int, count: int, new_epoch: int, new_first: int) -> None:
        """An accepted message stays accepted under its new identity."""
        self.highest_epoch = max(self.highest_epoch, new_epoch)
        for offset in range(count):
            if (epoch, first + offset) in self.accepted:
                self.accepted.add((new_epoch, new_first + offset))

    def offer_again(self, payloads: Sequence[bytes]) -> None:
        """What was rejected for lack of room is offered again, later, as a message of its own."""
        self.offers += 1
        if self.offers > OFFERS_AGAIN:
            return
        again = [payload + b"'" for payload in payloads]
        wait = self.world.options.timer_us << min(6, self.offers // 8)
        self.world.at(self.world.now + wait, self, Submit(1000 + self.offers, again))

    def pipe_of(self, producer: str) -> str:
        """The pipe as rows name it: with the producer where several write into one stream."""
        return f"{self.pipe}@{producer}" if producer and producer != self.pipe else self.pipe


MachineLife: TypeAlias = tuple[Process, ...]
"""The processes of all ends of a node in one life of it."""
