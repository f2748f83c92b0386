"""One node of an exploration: states of a machine by number, and what each event does to each of them.

The number of states that one machine can be in is small beside the number of states of the whole. So each state of
a node is kept once, under a number, and each event is given to the real machine once for each of these states;
after that its effects are known. Everything here is what a host does: perform effects in order, answer what asks
for an answer, crash after k of them.

Time stands still until a deadline passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from surepipe.core.effects import (
    Accepted,
    Call,
    Confirmed,
    DeadLetter,
    Deliver,
    Effect,
    Notice,
    Persist,
    Reject,
    Renumbered,
    Transmit,
    WakeAt,
    WriteStored,
)
from surepipe.core.machine import Machine, ReceiverMachine, SenderMachine
from surepipe.errors import ConfigurationError
from surepipe.simulation.explore.forgetting import forgotten
from surepipe.simulation.explore.numbers import (
    BASE,
    Names,
    ValueNumbers,
    moved,
    number_in,
    payload_of,
)
from surepipe.simulation.explore.parts import ExploredPart, Kept, without_stamp

Out: TypeAlias = tuple[object, ...]
"""What an effect did to the world: ``("send", frame number)`` or a fact, named by its first item."""
Event: TypeAlias = tuple[object, ...]
"""``("submit", numbers)``, ``("arrive", frame number)``, ``("wake",)`` or ``("answer", which)``."""
Waiting: TypeAlias = tuple[object, ...]
"""``("settle", Deliver)`` or ``("answer", ticket, outcome)``: what the node will be told."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """Everything about a node that decides what it does next.

    ``kept`` is what its store holds, ``birth`` what it held when this incarnation was built. ``due`` is the armed
    deadline. ``offered`` are messages submitted and not yet accepted or rejected, ``waiting`` what the node will
    be told.
    """

    life: int
    state: object
    drawn: int
    due: int | None
    kept: Kept
    birth: Kept
    offered: tuple[int, ...] = ()
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class Reaction:
    """What an event does: everything put out, in order, and the number of the state after it."""

    outs: tuple[Out, ...]
    after: int


@dataclass(frozen=True, slots=True)
class _Point:
    """How far the effects of an event were performed."""

    outs: int
    kept: Kept


class ExploredNode:
    """All states of one part that were reached, and what events do to them."""

    def __init__(
        self,
        part: ExploredPart,
        place: int,
        frames: ValueNumbers,
        *,
        apart: bool,
        exact: bool,
        forgets: bool,
    ) -> None:
        self.part = part
        self.name = part.name
        self._frames = frames
        self._apart = apart
        self._form = forgotten if forgets else _as_it_is
        self._names = Names(place)
        self._states = ValueNumbers(exact=exact)
        self._machines: dict[tuple[int, str], Machine] = {}
        self._reactions: dict[tuple[int, Event], Reaction] = {}
        self._aged: dict[tuple[int, int], int] = {}
        self._delays: dict[int, int | None] = {}
        self._points: dict[tuple[int, Event], tuple[_Point, ...]] = {}
        self._crashes: dict[tuple[int, Event | None, str], tuple[Reaction, ...]] = {}

    def __len__(self) -> int:
        return len(self._states)

    def state(self, number: int) -> NodeState:
        """The state under this number."""
        return cast("NodeState", self._states[number])

    def delay(self, number: int) -> int | None:
        """How far away the deadline is in this state, in microseconds; None when none is armed."""
        known = self._delays.get(number, 0)
        if known == 0:
            due = self.state(number).due
            known = self._delays[number] = None if due is None else max(due - BASE, 1)
        return known

    def machine(self, number: int) -> Machine:
        """A machine in this state, to ask it something; the next call of this node changes it."""
        return self._loaded(self.state(number))

    def begin(self) -> Reaction:
        """The first incarnation starts."""
        return self._born(1, self.part.first_kept, ())

    def react(self, number: int, event: Event) -> Reaction:
        """Give an event to the machine in this state."""
        known = self._reactions.get((number, event))
        if known is None:
            known = self._reactions[number, event] = self._react(number, event)
        return known

    def crash(self, number: int, event: Event | None, fault: str) -> tuple[Reaction, ...]:
        """Every way in which this fault may end the node: between events, or within one.

        Within an event it may strike after each number of effects (with the fault that is *before*: after none).
        The new incarnation starts in the same step.
        """
        key = (number, event, fault)
        known = self._crashes.get(key)
        if known is None:
            known = self._crashes[key] = self._crash(number, event, fault)
        return known

    def replacement(self, number: int, fault: str) -> Reaction:
        """A new incarnation starts, whatever becomes of this one."""
        before = self.state(number)
        key = (number, None, fault)
        if key not in self._crashes:
            self._crashes[key] = self._restarts(before, before.kept, (), fault, number)
        return self._crashes[key][0]

    def aged(self, number: int, by: int) -> int:
        """The same state after so many microseconds in which nothing happened to it."""
        known = self._aged.get((number, by))
        if known is None:
            state = self.state(number)
            due = None if state.due is None else max(state.due - by, BASE)
            older = replace(state, state=self._form(moved(state.state, -by)), due=due)
            known = self._aged[number, by] = self._states.of(older)
        return known

    # Events.

    def _react(self, number: int, event: Event) -> Reaction:
        before = self.state(number)
        machine = self._loaded(before)
        work = _Work(self, machine, before)
        work.take(event)
        self._points[number, event] = tuple(work.points)
        return Reaction(tuple(work.outs), self._store(machine, work))

    def _crash(self, number: int, event: Event | None, fault: str) -> tuple[Reaction, ...]:
        before = self.state(number)
        if event is None:
            return self._restarts(before, before.kept, (), fault, number)
        outs = self.react(number, event).outs
        points = self._points[number, event]
        is_before = fault in self.part.crashes.before
        found: dict[tuple[tuple[Out, ...], int], Reaction] = {}
        for point in points[:1] if is_before else points[1:]:
            for way in self._restarts(before, point.kept, outs[: point.outs], fault, number):
                found.setdefault((way.outs, way.after), way)
        return tuple(found.values())

    def _restarts(
        self, before: NodeState, kept: Kept, outs: tuple[Out, ...], fault: str, number: int
    ) -> tuple[Reaction, ...]:
        survivors = self.part.survivors(fault, self.machine(number), kept)
        crashed = (*outs, ("crash", fault))
        return tuple(self._born(before.life + 1, left, crashed) for left in survivors)

    def _born(self, life: int, kept: Kept, outs: tuple[Out, ...]) -> Reaction:
        self._names.life, self._names.drawn = life, 0
        machine = self.part.build(life, self._names, kept)
        work = _Work(self, machine, NodeState(life, None, 0, None, kept, kept))
        work.take(("start",))
        return Reaction((*outs, *work.outs), self._store(machine, work))

    # Machines and states.

    def _loaded(self, state: NodeState) -> Machine:
        key = (state.life, repr(state.birth))
        machine = self._machines.get(key)
        if machine is None:
            self._names.life, self._names.drawn = state.life, 0
            machine = self._machines[key] = self.part.build(state.life, self._names, state.birth)
        self.part.restore(machine, state.state)
        self._names.life, self._names.drawn = state.life, state.drawn
        return machine

    def _store(self, machine: Machine, work: _Work) -> int:
        state = self.part.export(machine)
        due = work.due
        if work.now != BASE:
            state = moved(state, BASE - work.now)
            due = None if due is None else due + BASE - work.now
        return self._states.of(
            replace(
                work.before,
                state=self._form(state),
                drawn=self._names.drawn,
                due=due,
                kept=work.kept,
                offered=tuple(work.offered),
                waiting=tuple(work.waiting),
            )
        )

    def frame(self, number: int) -> object:
        """The frame under this number."""
        return self._frames[number]

    def number_of(self, frame: object) -> int:
        """The number of a frame."""
        return self._frames.of(frame)

    @property
    def is_apart(self) -> bool:
        """Whether answers are events of their own."""
        return self._apart


def _as_it_is(state: object) -> object:
    return state


class _Work:
    """The handling of one event by one machine: the effects, in order, and what they lead to at once."""

    def __init__(self, node: ExploredNode, machine: Machine, before: NodeState) -> None:
        self.node = node
        self.machine = machine
        self.before = before
        self.now = BASE
        self.due = before.due
        self.kept = before.kept
        self.offered = deque(before.offered)
        self.waiting: list[Waiting] = list(before.waiting)
        self.outs: list[Out] = []
        self.points = [_Point(0, before.kept)]

    def take(self, event: Event) -> None:
        """Give the event, perform what comes back, and unless answers wait, answer until there is nothing left."""
        self._perform(self._give(event))
        while self.waiting and not self.node.is_apart:
            self._perform(self._answer(self.waiting.pop(0)))

    def _give(self, event: Event) -> list[Effect]:
        match event[0]:
            case "start":
                return self.machine.wake(self.now)
            case "submit":
                return self._submit(cast("tuple[int, ...]", event[1]))
            case "arrive":
                return self.machine.frame(self.node.frame(cast("int", event[1])), self.now)
            case "wake":
                assert self.due is not None, "a node without a deadline can't be woken"
                self.now, self.due = max(self.now, self.due), None
                return self.machine.wake(self.now)
            case _:
                return self._answer(self.waiting.pop(cast("int", event[1])))

    def _submit(self, numbers: tuple[int, ...]) -> list[Effect]:
        self.offered.extend(numbers)
        sender = cast("SenderMachine", self.machine)
        return sender.send([payload_of(number) for number in numbers], self.now)

    def _answer(self, waiting: Waiting) -> list[Effect]:
        if waiting[0] == "answer":
            return self.machine.answer(cast("int", waiting[1]), waiting[2], self.now)
        delivery = cast("Deliver", waiting[1])
        if self.node.is_apart:
            self._cross(delivery)
        last = delivery.first + len(delivery.payloads) - 1
        receiver = cast("ReceiverMachine", self.machine)
        return receiver.settled(delivery.ticket, ((delivery.first, last),), self.now)

    def _cross(self, delivery: Deliver) -> None:
        """The messages cross the boundary: each is a place where a crash may fall."""
        for seq, payload in enumerate(delivery.payloads, delivery.first):
            self.outs.append(("settled", delivery.epoch, seq, number_in(payload)))
            self._passed()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            _PERFORM[type(effect)](self, effect)
            self._passed()

    def _passed(self) -> None:
        point = _Point(len(self.outs), self.kept)
        if point != self.points[-1]:
            self.points.append(point)

    # Effects.

    def transmit(self, effect: Transmit) -> None:
        """A frame goes out."""
        self.outs.append(("send", self.node.number_of(without_stamp(effect.frame))))

    def accepted(self, effect: Accepted) -> None:
        """Messages were taken."""
        for seq in range(effect.first, effect.first + effect.count):
            self.outs.append(("accepted", effect.epoch, seq, self.offered.popleft()))

    def rejected(self, effect: Reject) -> None:
        """Messages were not taken: those offered last."""
        gone = [self.offered.pop() for _ in range(effect.count)]
        self.outs.append(("rejected", str(effect.reason), *reversed(gone)))

    def confirmed(self, effect: Confirmed) -> None:
        """The sender knows of settled messages."""
        for first, last in effect.ranges:
            for seq in range(first, last + 1):
                self.outs.append(("confirmed", effect.epoch, seq))

    def renumbered(self, effect: Renumbered) -> None:
        """Messages have new identities."""
        for offset in range(effect.count):
            new = (effect.new_epoch, effect.new_first + offset)
            self.outs.append(("renumbered", effect.epoch, effect.first + offset, *new))

    def deliver(self, effect: Deliver) -> None:
        """Messages come to the boundary, and cross it at once unless answers wait."""
        if not self.node.is_apart:
            self._cross(effect)
        self.waiting.append(("settle", effect))

    def persist(self, effect: Persist) -> None:
        """A write is done; its outcome will be told."""
        self.kept, outcome = self.node.part.write(self.kept, effect.write)
        self.waiting.append(("answer", effect.ticket, outcome))

    def dead(self, effect: DeadLetter) -> None:
        """A letter is stored."""
        letter = effect.letter
        self.outs.append(("dead", letter.epoch, letter.seq, number_in(letter.payload)))
        self.waiting.append(("answer", effect.ticket, WriteStored()))

    def wake_at(self, effect: WakeAt) -> None:
        """The deadline is armed anew."""
        self.due = effect.deadline

    def notice(self, effect: Notice) -> None:
        """People are told."""
        self.outs.append(("notice", str(effect.kind)))

    def call(self, effect: Call) -> None:
        """Only frames lead to stores here. Raises ConfigurationError."""
        raise ConfigurationError(f"exploration has no store that answers {effect.request!r}")


_PERFORM: Mapping[type, Callable[[_Work, Effect], None]] = cast(
    "Mapping[type, Callable[[_Work, Effect], None]]",
    {
        Transmit: _Work.transmit,
        Accepted: _Work.accepted,
        Reject: _Work.rejected,
        Confirmed: _Work.confirmed,
        Renumbered: _Work.renumbered,
        Deliver: _Work.deliver,
        Persist: _Work.persist,
        DeadLetter: _Work.dead,
        WakeAt: _Work.wake_at,
        Notice: _Work.notice,
        Call: _Work.call,
    },
)
