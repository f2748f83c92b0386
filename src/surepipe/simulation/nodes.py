"""Nodes of a world: each runs a life at a time, and begins the next when that one ends.

A node has one or more ends of pipes. They are machines of one life: they start, crash, sleep and are replaced
together. What outlives a life is with the keepers of its ends. A life that was replaced while it slept is a
zombie: when it wakes, it and its successor listen at the same addresses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from surepipe.core.machine import Machine
from surepipe.errors import StoreUnavailable
from surepipe.pipes.stream.position import Phase
from surepipe.simulation.chance.chooser import Trouble, fault_of
from surepipe.simulation.events import Event, Happening
from surepipe.simulation.processes import EndOfNode, MachineLife, Process
from surepipe.simulation.stores.contents import WorldKeeper
from surepipe.simulation.subjects import Subject
from surepipe.simulation.timeline import MonotonicClock, Timeline, WallClock, as_detail

WALL_ORIGIN_US = 1_000_000 * 1_000_000


def _nothing(*_: object) -> None:
    """Where nobody has to be told."""


L = TypeVar("L")


class SimulatedNode(ABC, Generic[L]):
    """A node of a world by name: the life that runs there now, and what befalls it."""

    is_done = False
    """Its program has returned; machines have none."""

    def __init__(self, world: Timeline, name: str) -> None:
        self.world = world
        self.name = name
        self.lives: int = 0
        self.current: L | None = None
        self.zombies: list[L] = []
        self.on_power: Callable[[int], None] = _nothing

    @property
    def relays(self) -> bool:
        """Whether it sends only what it was given, and is given again what it forgets."""
        return False

    @property
    def begins_last(self) -> bool:
        """Whether others are to be there before it."""
        return False

    @property
    def is_unfinished(self) -> bool:
        """Whether it has a program that has still to return."""
        return False

    @property
    @abstractmethod
    def is_at_rest(self) -> bool:
        """Whether nothing is left to do for it."""

    @property
    def holds(self) -> bool:
        """Whether it holds messages that wait for others."""
        return False

    def take(self, event: Event) -> None:
        """A start, a return."""
        assert isinstance(event, Happening)
        event.act()

    @abstractmethod
    def begin(self) -> None:
        """The run begins."""

    @abstractmethod
    def start(self) -> None:
        """A new life, unless there is one."""

    @abstractmethod
    def end(self, life: L, why: str, trouble: Trouble | None = None, fault: str = "") -> None:
        """This life is over; what it had in memory is gone."""

    @abstractmethod
    def pause(self, life: L) -> None:
        """It sleeps."""

    @abstractmethod
    def resume(self, life: L) -> None:
        """It wakes, if it is there and sleeps."""

    @abstractmethod
    def heal(self) -> None:
        """Everything that was away is back, and nothing that was replaced goes on."""

    def bury(self) -> None:
        """The run is over."""

    def standing(self) -> Mapping[str, object]:
        """How its ends stand when the run is over."""
        return {}

    def seat(self, current: L | None) -> None:
        """This is the life that runs now."""
        self.current = current

    def leave(self, life: L) -> None:
        """This one runs no more."""
        if life in self.zombies:
            self.zombies.remove(life)
        self.seat(None if self.current is life else self.current)

    def start_after(self, delay_us: int) -> None:
        """The next life comes after this time."""
        at = self.world.now + delay_us
        self.world.at(at, self, Happening(f"life {self.lives + 1}", self.start))

    def befall(self, life: L, trouble: Trouble) -> None:
        """A crash, a pause, or a replacement while the old life only sleeps."""
        if trouble.verb == "power":
            self.on_power(trouble.for_us)
            return
        if trouble.is_end:
            self.end(life, "memory lost", trouble)
            self.start_after(trouble.for_us)
            return
        self.pause(life)
        back = Happening("resume", lambda: self.resume(life))
        self.world.at(self.world.now + trouble.for_us, self, back)
        if trouble.verb == "zombie" and self.current is life:
            self.replaced(life)
            self.start_after(trouble.for_us // 2)

    def replaced(self, life: L) -> None:
        """Another life will be started while this one sleeps."""
        self.zombies.append(life)
        self.seat(None)

    def cut_power(self, for_us: int) -> None:
        """All lives end at once, and another one starts after this time."""
        for life in [*([self.current] if self.current is not None else []), *self.zombies]:
            self.end(life, "power cut", fault="F31")
        if not self.is_done:
            self.start_after(for_us)


class MachineNode(SimulatedNode[MachineLife]):
    """A node whose ends are machines."""

    def __init__(self, world: Timeline, name: str) -> None:
        super().__init__(world, name)
        self.ends: list[EndOfNode] = []
        self.clock = MonotonicClock(world.options.drift_ppm)
        self.wall = WallClock(WALL_ORIGIN_US)
        self.is_healed = False
        self.on_mailbox: Callable[[EndOfNode, str], None] = _nothing

    @property
    def sends(self) -> bool:
        """Whether it has the sending end of a pipe."""
        return any(end.is_sender for end in self.ends)

    @property
    def receives(self) -> bool:
        """Whether it has the receiving end of a pipe."""
        return not all(end.is_sender for end in self.ends)

    @property
    def relays(self) -> bool:
        """Whether it sends only what it was given."""
        return self.receives and all(end.is_fed for end in self.ends if end.is_sender)

    @property
    def begins_last(self) -> bool:
        """Whoever receives is there first."""
        return self.sends

    @property
    def is_at_rest(self) -> bool:
        """Whether no machine here waits for anything."""
        return all(end.current is not None and _at_rest(end.current.machine) for end in self.ends)

    @property
    def holds(self) -> bool:
        """Whether a machine here holds messages that wait for others."""
        return any(end.current and end.current.machine.gauges().get("held") for end in self.ends)

    def add_end(
        self, subject: Subject, pipe: str, keeper: WorldKeeper, *, is_sender: bool, name: str
    ) -> EndOfNode:
        """One more end of a pipe; the only end of a node may bear its name."""
        end = EndOfNode(self, subject, name, pipe, keeper, is_sender=is_sender)
        self.ends.append(end)
        return end

    def standing(self) -> Mapping[str, object]:
        """How each of its ends stands, as the last row of a run says it."""
        return {end.name: self._standing(end) for end in self.ends}

    def _standing(self, end: EndOfNode) -> dict[str, object]:
        """How an end stands; without gauges where its machine can't even say them, which is a finding as well."""
        process = end.current
        if process is None:
            return {"deadline": None, "gauges": {}, "idle": False}
        try:
            gauges = dict(process.machine.gauges())
        except Exception as error:  # noqa: BLE001 - whatever it is, the run must end with its rows
            gauges = {}
            if self.world.limit != "raised":
                self.world.raised(end.name, error)
        return {
            "deadline": process.deadline,
            "gauges": gauges,
            "idle": bool(getattr(process.machine, "idle", True)),
            "waiting": len(end.kept_offers),
        }

    def seat(self, current: MachineLife | None) -> None:
        """Each end knows which process listens at its address."""
        super().seat(current)
        for place, end in enumerate(self.ends):
            end.current = current[place] if current is not None else None
            end.zombies = [zombie[place] for zombie in self.zombies]

    def life_of(self, process: Process) -> MachineLife:
        """The life of a process; the process alone, if that life is over."""
        lives = [*self.zombies, *([self.current] if self.current else [])]
        return next((life for life in lives if process in life), (process,))

    def begin(self) -> None:
        """Its first life."""
        self.start()

    def start(self) -> None:
        """A new life, with what the former ones left in stores."""
        if self.current is not None:
            return
        self.lives += 1
        try:
            life = tuple(end.new_process(self.lives) for end in self.ends)
        except StoreUnavailable:
            self.lives -= 1
            self.start_after(self.world.options.timer_us)
            return
        self.seat(life)
        for end, process in zip(self.ends, life, strict=True):
            end.begin(process)

    def end(
        self, life: MachineLife, why: str, trouble: Trouble | None = None, fault: str = ""
    ) -> None:
        """This life is over; what it had in memory is gone."""
        for process in life:
            if process.is_alive:
                code = fault
                if trouble is not None:
                    code = fault_of(trouble.verb, is_sender=process.end.is_sender)
                process.end.ended(process, why, code, trouble.point if trouble else 0)
        self.leave(life)
        if trouble is not None and trouble.verb == "mailbox":
            for end in self.ends:
                self.on_mailbox(end, "F26")

    def pause(self, life: MachineLife) -> None:
        """All its processes sleep."""
        for process in life:
            process.row("pause", detail=as_detail({"fault": "F28"}))
            process.is_away = True

    def resume(self, life: MachineLife) -> None:
        """What waited comes as a burst."""
        for process in life:
            if not process.is_alive or not process.is_away:
                continue
            process.is_away = False
            process.begin("resume")
            waiting, process.waiting = process.waiting, []
            for event in waiting:
                process.take(event)

    def heal(self) -> None:
        """Everything that was away is back, and nothing that was replaced goes on."""
        self.is_healed = True
        for zombie in list(self.zombies):
            self.end(zombie, "ended for good")
        if self.lives > 1 and self.current and any(one.has_stopped for one in self.current):
            self._end_stopped(self.current)
        if self.current is None:
            self.start()
        else:
            for end in self.ends:
                if end.kept_offers:
                    end.offer_kept()
        if self.current is not None:
            self.resume(self.current)

    def stopped(self, process: Process) -> None:
        """It heard that another one has its place. Where that is over, whoever looks after it starts the next one.

        1. The clock goes back, and a process that comes after another takes a lower life than that had.
        2. The former one wakes, opens its higher life, and is ended for good; or it has crashed, and what it had
        asked of a store is done only now. 3. The only process left hears of it at its next write, and stops.
        """
        life = self.current
        if self.lives > 1 and self.is_healed and life is not None and process in life:
            last = Happening(f"life {process.number} has stopped", lambda: self._restart(life))
            self.world.at(self.world.now, self, last)

    def _restart(self, life: MachineLife) -> None:
        if self.current is life:
            self._end_stopped(life)
            self.start()

    def _end_stopped(self, life: MachineLife) -> None:
        self.end(life, "stopped by the one that it had replaced")

    def refused(self, process: Process, why: str, after_us: int | None = None) -> None:
        """A store has refused what the process must have: its life is over, and another one may start."""
        life = self.life_of(process)
        is_current = life is self.current
        self.end(life, why)
        if is_current and after_us is not None:
            self.start_after(after_us)


_ASKING = frozenset(Phase) - {Phase.WAITING, Phase.DELIVERING, Phase.STOPPED}
"""A reader that waits for an answer of its store, and does not know yet what there is."""


def _at_rest(machine: Machine) -> bool:
    """Whether a machine waits for nothing; nor may inner layers of a stack, which have confirms of their own, nor
    a reader, which has nothing in work while its store does not answer, and perhaps more to read; nor
    may its commit be open, as it looks again for what there is when that was not answered at first."""
    layers = getattr(machine, "layers", ())
    if not getattr(machine, "idle", True) or machine.gauges().get("lag"):
        return False
    return not any(
        getattr(layer, "in_flight", 0)
        or getattr(layer, "phase", None) in _ASKING
        or getattr(layer, "committing", None)
        for layer in layers
    )
