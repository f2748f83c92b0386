"""The states of a whole exploration, and every step that leads from one to the next."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from surepipe.core.machine import SenderMachine
from surepipe.simulation.explore.history import Broken, Histories
from surepipe.simulation.explore.nodes import Event, ExploredNode, Out, Reaction
from surepipe.simulation.explore.numbers import ValueNumbers
from surepipe.simulation.explore.parts import Arrangement, carries_messages
from surepipe.simulation.explore.scope import WAKE, Scope

Links: TypeAlias = tuple[tuple[int, ...], ...]
State: TypeAlias = tuple[tuple[int, ...], Links, int, int, tuple[int, ...], int]
"""Node states, frames on each link, messages submitted, links that are cut, faults left, history: by number.

Where nodes may be replaced while they go on, the old ones have places behind the others; ``NOBODY`` is an empty
one.
"""

SENDER = 0
CARRIER = 1
"""Who gets the messages of the sender: the receiver, or a store between them."""
NOBODY = -1
CUT_FOR_NOW = 1 << 62
_CUTS = ("F6", "F7a", "F7b", "F18")
_FACTS = ("accepted", "settled", "confirmed", "renumbered", "dead", "crash")


# A named tuple, since one is made for each transition: a frozen data class costs three times as much.
class ExploredStep(NamedTuple):
    """One transition: ``verb`` says what happens, ``place`` to which node, ``link`` and ``frame`` to which frame.

    ``event`` is what the node is given; ``fault`` the id of the fault that this is, if any; ``way`` tells apart
    the ways in which a crash may go.
    """

    verb: str
    place: int = -1
    link: int = -1
    frame: int = -1
    event: Event | None = None
    fault: str = ""
    way: int = 0


Successor: TypeAlias = tuple[ExploredStep, State, tuple[Broken, ...]]


@dataclass(frozen=True, slots=True)
class _Effect:
    """A reaction as the world sees it: frames by link, and facts."""

    after: int
    sends: tuple[tuple[int, int], ...]
    facts: tuple[Out, ...]


class Space:
    """The states of one subject within one scope."""

    def __init__(self, arrangement: Arrangement, scope: Scope) -> None:
        self.arrangement = arrangement
        self.scope = scope
        self.frames = ValueNumbers(exact=scope.exact)
        self.nodes = [
            ExploredNode(
                part,
                place,
                self.frames,
                apart=scope.apart,
                exact=scope.exact,
                forgets=scope.reduced,
            )
            for place, part in enumerate(arrangement.parts)
        ]
        self.histories = Histories(scope.properties, after_crash=scope.after_crash)
        self.fault_names = tuple(sorted(scope.budget))
        self._fault_places = {name: place for place, name in enumerate(self.fault_names)}
        self._keeps_order = scope.keeps_order
        self._timely = "" if scope.wakes is None else WAKE
        self._count = len(self.nodes)
        places = range(self._count)
        self.links = [(a, b) for a in places for b in places if a != b]
        self._link_of: dict[tuple[int, int], int] = {}
        self._loss_of: dict[int, str] = {}
        self._effects: dict[tuple[int, int, Event | None, str], tuple[_Effect, ...]] = {}
        self._submits: dict[tuple[int, int], Event | None] = {}

    def first(self) -> State:
        """Every part has started; nothing else has happened."""
        links: Links = ((),) * len(self.links)
        begun = [self._effect_of(place, node.begin()) for place, node in enumerate(self.nodes)]
        for effect in begun:
            links = self._sent(links, effect.sends, 0)
        nodes = tuple(effect.after for effect in begun)
        if "F28" in self._fault_places:
            nodes += (NOBODY,) * self._count
        left = tuple(self.scope.budget[name] for name in self.fault_names)
        return (nodes, links, 0, 0, left, self.histories.first)

    # All successors.

    def successors(self, state: State) -> Iterator[Successor]:
        """Every step that may come next, with the state it leads to and what it breaks."""
        for step in self._steps(state):
            yield (step, *self.taken(state, step))

    def _steps(self, state: State) -> Iterator[ExploredStep]:
        yield from self._submitted(state)
        yield from self._arrivals(state)
        yield from self._wakes(state)
        if self.scope.apart:
            yield from self._answers(state)
        yield from self._frame_faults(state)
        yield from self._crashes(state)
        yield from self._cuts(state)

    def _submitted(self, state: State) -> Iterator[ExploredStep]:
        event = self.submit_event(state)
        if event is not None:
            yield ExploredStep("submit", SENDER, event=event)
            if "submit" in self.scope.crash_inside:
                yield from self._crashes_within(state, ExploredStep("crash", SENDER, event=event))
        if len(state[0]) > self._count and state[0][self._count] != NOBODY:
            event = self.submit_event(state, self._count)
            if event is not None:
                yield ExploredStep("submit", self._count, event=event)

    def submit_event(self, state: State, place: int = SENDER) -> Event | None:
        """The next submit to this sender, None when all is submitted or it has no room."""
        key = (state[0][place], state[2])
        if key not in self._submits:
            self._submits[key] = self._next_submit(*key)
        return self._submits[key]

    def _next_submit(self, number: int, submitted: int) -> Event | None:
        node = self.nodes[SENDER]
        left = self.scope.messages - submitted
        room = cast("SenderMachine", node.machine(number)).room if left else 0
        count = min(self.scope.batch, left, room - len(node.state(number).offered))
        if count <= 0:
            return None
        return ("submit", tuple(range(submitted + 1, submitted + count + 1)))

    def _arrivals(self, state: State) -> Iterator[ExploredStep]:
        for link, frames in enumerate(state[1]):
            if not frames:
                continue
            for frame in frames[:1] if self._keeps_order else _distinct(frames):
                event: Event = ("arrive", frame)
                for place in self._who_gets(state, self.links[link][1]):
                    yield ExploredStep("arrive", place, link, frame, event)
                    if place != SENDER or "arrive" in self.scope.crash_inside:
                        crash = ExploredStep("crash", place, link, frame, event)
                        yield from self._crashes_within(state, crash)

    def _who_gets(self, state: State, target: int) -> Sequence[int]:
        old = target + self._count
        if len(state[0]) > old and state[0][old] != NOBODY:
            return (target, old)
        return (target,)

    def _wakes(self, state: State) -> Iterator[ExploredStep]:
        dues = [self.due(place, number) for place, number in enumerate(state[0])]
        first = min((due for due in dues if due is not None), default=0)
        is_quiet = self._is_quiet(state)
        for place, due in enumerate(dues):
            if due is None or (is_quiet and due > first):
                continue
            fault = self._timely if is_quiet or due <= self.scope.prompt_us else "F5"
            if fault and not self._has(state, fault):
                continue
            yield ExploredStep("wake", place, event=("wake",), fault=fault)
            if place != SENDER or "wake" in self.scope.crash_inside:
                yield from self._crashes_within(
                    state, ExploredStep("crash", place, event=("wake",))
                )

    def _answers(self, state: State) -> Iterator[ExploredStep]:
        for place, number in enumerate(state[0]):
            waiting = self.node_at(place).state(number).waiting if number != NOBODY else ()
            for which in range(len(waiting)):
                event: Event = ("answer", which)
                yield ExploredStep("answer", place, event=event)
                if place != SENDER or "answer" in self.scope.crash_inside:
                    yield from self._crashes_within(
                        state, ExploredStep("crash", place, event=event)
                    )

    def _frame_faults(self, state: State) -> Iterator[ExploredStep]:
        has_copies, has_emptying = self._has(state, "F3"), self._has(state, "F26")
        for link, frames in enumerate(state[1]):
            if not frames:
                continue
            place = self.links[link][1]
            for frame in _distinct(frames):
                fault = self._loss(frame)
                if self._has(state, fault):
                    yield ExploredStep("lose", place, link, frame, fault=fault)
                if has_copies:
                    yield ExploredStep("copy", place, link, frame, fault="F3")
            if has_emptying:
                yield ExploredStep("empty", place, link, fault="F26")

    def _loss(self, frame: int) -> str:
        known = self._loss_of.get(frame)
        if known is None:
            known = self._loss_of[frame] = "F1" if carries_messages(self.frames[frame]) else "F2"
        return known

    def _crashes(self, state: State) -> Iterator[ExploredStep]:
        for place, node in enumerate(self.nodes):
            crashes = node.part.crashes
            for fault in crashes.between:
                if self._has(state, fault):
                    yield from self._ways(state, ExploredStep("crash", place, fault=fault))
            if self._has(state, crashes.zombie) and state[0][place + self._count] == NOBODY:
                yield ExploredStep("replace", place, fault=crashes.zombie)

    def _crashes_within(self, state: State, crash: ExploredStep) -> Iterator[ExploredStep]:
        if crash.place >= self._count:
            return
        crashes = self.nodes[crash.place].part.crashes
        if crash.frame >= 0:
            for fault in crashes.before:
                if self._has(state, fault):
                    yield from self._ways(state, crash._replace(fault=fault))
        for fault in crashes.inside:
            if self._has(state, fault):
                yield from self._ways(state, crash._replace(fault=fault))

    def _ways(self, state: State, crash: ExploredStep) -> Iterator[ExploredStep]:
        number = state[0][crash.place]
        for way in range(len(self._effects_of(crash.place, number, crash.event, crash.fault))):
            yield crash._replace(way=way) if way else crash

    def _cuts(self, state: State) -> Iterator[ExploredStep]:
        if state[3]:
            if state[3] & CUT_FOR_NOW:
                yield ExploredStep("heal")
            return
        for fault in _CUTS:
            if self._has(state, fault):
                yield ExploredStep("cut", fault=fault)

    # One step.

    def taken(self, state: State, step: ExploredStep) -> tuple[State, tuple[Broken, ...]]:
        """The state after this step, and the properties it breaks."""
        nodes, links, submitted, cut, left, history = state
        verb = step.verb
        if step.fault:
            left = self._less(left, step.fault)
        if step.event is None and verb not in ("crash", "replace"):
            cut, links = self._on_links(cut, links, step)
            return (nodes, links, submitted, cut, left, history), ()
        place = step.place
        effect = self.effect(state, step)
        if step.link >= 0:
            links = _without(links, step.link, step.frame)
        if verb == "submit":
            submitted += len(cast("tuple[int, ...]", cast("Event", step.event)[1]))
        elif verb == "wake" and self._is_quiet(state):
            nodes = self._older(nodes, place)
        elif verb == "replace":
            old = place + self._count
            nodes = (*nodes[:old], nodes[place], *nodes[old + 1 :])
        if effect.sends:
            links = self._sent(links, effect.sends, cut)
        nodes = (*nodes[:place], effect.after, *nodes[place + 1 :])
        broken: tuple[Broken, ...] = ()
        if effect.facts:
            history, broken = self.histories.after(history, effect.facts)
        return (nodes, links, submitted, cut, left, history), broken

    def _is_quiet(self, state: State) -> bool:
        """True when nothing is on the way: no frame, and no answer."""
        if any(state[1]):
            return False
        return not self.scope.apart or not any(
            number != NOBODY and self.node_at(place).state(number).waiting
            for place, number in enumerate(state[0])
        )

    def _older(self, nodes: tuple[int, ...], woken: int) -> tuple[int, ...]:
        """When all is quiet, time passes for all until the deadline of one."""
        by = self.due(woken, nodes[woken])
        return nodes if by is None else self._aged(nodes, by, (woken,))

    def passed(self, state: State, woken: Mapping[int, int | None]) -> State:
        """The same after deadlines passed together, so far away at these nodes: time passed for the others too."""
        return (
            self._aged(state[0], max(filter(None, woken.values()), default=0), woken),
            *state[1:],
        )

    def _aged(self, nodes: tuple[int, ...], by: int, woken: Collection[int]) -> tuple[int, ...]:
        if by <= 1:
            return nodes
        return tuple(
            number if number == NOBODY or place in woken else self.node_at(place).aged(number, by)
            for place, number in enumerate(nodes)
        )

    def _on_links(self, cut: int, links: Links, step: ExploredStep) -> tuple[int, Links]:
        """What happens to links alone."""
        if step.verb == "lose":
            return cut, _without(links, step.link, step.frame)
        if step.verb == "copy":
            return cut, self._sent(links, ((step.link, step.frame),), 0)
        if step.verb == "empty":
            return cut, (*links[: step.link], (), *links[step.link + 1 :])
        if step.verb == "heal":
            return 0, links
        ends = self._cut_by(step.fault)
        for link in ends:
            cut |= 1 << link
        if step.fault in ("F6", "F18"):
            cut |= CUT_FOR_NOW
        places = range(len(links))
        return cut, tuple(() if place in ends else links[place] for place in places)

    def _cut_by(self, fault: str) -> list[int]:
        if fault == "F6":
            return list(range(len(self.links)))
        if fault == "F18":
            out = [n for n, node in enumerate(self.nodes) if node.part.crashes.outage == fault]
            return [
                number for number, ends in enumerate(self.links) if ends[0] in out or ends[1] in out
            ]
        target = CARRIER if fault == "F7a" else SENDER
        return [number for number, ends in enumerate(self.links) if ends[1] == target]

    def effect(self, state: State, step: ExploredStep) -> _Effect:
        """What the node does in this step."""
        fault = step.fault if step.verb in ("crash", "replace") else ""
        number = state[0][step.place]
        return self._effects_of(step.place, number, step.event, fault)[step.way]

    def reaction(self, state: State, step: ExploredStep) -> Reaction:
        """The same, with everything that came out in its order."""
        node, number = self.node_at(step.place), state[0][step.place]
        if step.verb == "replace":
            return node.replacement(number, step.fault)
        if step.verb == "crash":
            return node.crash(number, step.event, step.fault)[step.way]
        assert step.event is not None, f"{step.verb} gives a node nothing"
        return node.react(number, step.event)

    def node_at(self, place: int) -> ExploredNode:
        """The node at a place; behind the others stand the replaced ones."""
        return self.nodes[place % self._count]

    def due(self, place: int, number: int) -> int | None:
        """How far away the deadline of a node is, in microseconds; None when none is armed."""
        return None if number == NOBODY else self.nodes[place % self._count].delay(number)

    def healed(self, state: State) -> State:
        """Faults are over: none is left, what heals is healed, and replaced nodes have ended."""
        nodes, links, submitted, cut, _, history = state
        lasting = 0 if cut & CUT_FOR_NOW else cut
        return (nodes[: self._count], links, submitted, lasting, (), history)

    # Details.

    def _effects_of(
        self, place: int, number: int, event: Event | None, fault: str
    ) -> tuple[_Effect, ...]:
        key = (place % self._count, number, event, fault)
        known = self._effects.get(key)
        if known is None:
            node = self.node_at(place)
            reactions: tuple[Reaction, ...]
            if fault and fault == node.part.crashes.zombie:
                reactions = (node.replacement(number, fault),)
            elif fault:
                reactions = node.crash(number, event, fault)
            else:
                reactions = (node.react(number, cast("Event", event)),)
            known = tuple(self._effect_of(key[0], reaction) for reaction in reactions)
            self._effects[key] = known
        return known

    def _effect_of(self, place: int, reaction: Reaction) -> _Effect:
        frames = [cast("int", out[1]) for out in reaction.outs if out[0] == "send"]
        sends = tuple((self._link(place, frame), frame) for frame in frames)
        facts = tuple(out for out in reaction.outs if out[0] in _FACTS)
        return _Effect(reaction.after, sends, facts)

    def _link(self, source: int, frame: int) -> int:
        known = self._link_of.get((source, frame))
        if known is None:
            target = self.arrangement.goes_to(source, self.frames[frame])
            known = self._link_of[source, frame] = self.links.index((source, target))
        return known

    def _sent(self, links: Links, sends: tuple[tuple[int, int], ...], cut: int) -> Links:
        changed = list(links)
        for link, frame in sends:
            if not cut >> link & 1:
                frames = (*changed[link], frame)
                changed[link] = frames if self._keeps_order else tuple(sorted(frames))
        return tuple(changed)

    def _has(self, state: State, fault: str) -> bool:
        place = self._fault_places.get(fault)
        return place is not None and state[4][place] > 0

    def _less(self, left: tuple[int, ...], fault: str) -> tuple[int, ...]:
        place = self._fault_places[fault]
        return (*left[:place], left[place] - 1, *left[place + 1 :])


def _distinct(frames: tuple[int, ...]) -> Sequence[int]:
    return frames if len(frames) < 2 else tuple(dict.fromkeys(frames))


def _without(links: Links, link: int, frame: int) -> Links:
    frames = links[link]
    place = frames.index(frame)
    return (*links[:link], (*frames[:place], *frames[place + 1 :]), *links[link + 1 :])
