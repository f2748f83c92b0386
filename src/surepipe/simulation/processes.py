"""A process that hosts a machine: the four steps of every host, and an end after any effect.

A process performs the effects of an event in order and may end after any of them; then all of it is gone, but for
what it wrote into a store and the frames that it has put on a link.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

from surepipe.effects import (
    Call,
    DeadLetter,
    Effect,
    Notice,
    NoticeKind,
    Persist,
    Transmit,
    WakeAt,
)
from surepipe.machines import Machine
from surepipe.simulation.chooser import Trouble
from surepipe.simulation.events import Answer, Event, Flight, Happening, Wake
from surepipe.simulation.world import as_detail

if TYPE_CHECKING:
    from surepipe.simulation.nodes import Node


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
        *("cells", "is_plain", "is_watched", "machine", "may_end", "name", "node", "number"),
        *("pipe", "prefix", "run_name", "takes", "transmit", "waiting", "woken_at", "world"),
    )

    def __init__(self, node: Node, number: int, machine: Machine) -> None:
        self.node = node
        self.name = node.name
        self.pipe = node.pipe
        self.world = node.world
        self.cells = node.world.cells
        self.run_name = node.world.run_name
        self.chooser = node.world.chooser
        self.clock = node.clock
        self.has_drift = bool(node.clock.drift_ppm)
        self.number = number
        self.prefix = f"{node.name}/{number}/"
        self.machine = machine
        self.is_watched = node.is_watched
        self.may_end = self.world.asked is not None or self.chooser.may_ever_trouble(node.name)
        self.transmit = node.out.transmit
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
            Flight: self._arrive,
            Happening: _happen,
            Wake: self._wake,
            Answer: self._answer,
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

    def _arrive(self, flight: Flight) -> None:
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
            self.node.wakes += 1
            event.number = self.node.wakes
            self.begin("wake")
            self.step(event, self.machine.wake(self.now()))

    def _wake_early(self, event: Wake, due: int) -> None:
        """The deadline has moved on since this was arranged; perturbed, the machine is woken all the same."""
        self._arm(due)
        where = f"{self.name}: before {due}"
        if self.world.options.perturb and self.chooser.perturb("early-wake", where):
            self.node.wakes += 1
            event.number = self.node.wakes
            self.begin("wake")
            self.step(event, self.machine.wake(self.now()))
        else:
            self.world.events -= 1

    def _answer(self, event: Answer) -> None:
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
        world = self.world
        if world.asked is not None:
            world.asked.append((self.name, event))
        if self.chooser.may_trouble(self.name) and self is self.node.current:
            return self.chooser.trouble(self.name, event, points)
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
        self.node.befall(self, trouble)

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
            self.world.at(due, self, Wake(self.node.wakes + 1, due))

    def _notice(self, effect: Notice) -> None:
        facts: dict[str, object] = {"notice": str(effect.kind), "text": effect.detail}
        if self.world.options.gauges and effect.ranges:
            facts["ranges"] = effect.ranges
        self.row("notice", epoch=effect.epoch, detail=as_detail(facts))
        if effect.kind is NoticeKind.FENCED:
            self.node.stopped(self)

    def _call(self, effect: Call) -> None:
        self.node.keeper.call(self, effect)

    def _persist(self, effect: Persist) -> None:
        self.node.keeper.persist(self, effect)

    def _dead_letter(self, effect: DeadLetter) -> None:
        self.node.keeper.letter(self, effect)

    def renumber(self, epoch: int, first: int, count: int, new_epoch: int, new_first: int) -> None:
        """These messages are known by a new identity, whoever hears of it."""
        new = as_detail({"epoch": new_epoch, "seq": new_first})
        self.row("renumbered", epoch=epoch, seq=first, count=count, detail=new)
        self.node.renumber(epoch, first, count, new_epoch, new_first)

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
