"""Nodes of a world: which life runs there now, and what is done when that one ends.

A node has one or more ends of pipes. They are machines of one life: they start, crash, sleep and are replaced
together. What outlives a life is with the keepers of its ends. A life that was replaced while it slept is a
zombie: when it wakes, it and its successor listen at the same addresses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from surepipe.core.machine import Machine
from surepipe.errors import StoreUnavailable
from surepipe.pipes.stream.position import Phase
from surepipe.simulation.chance.chooser import Trouble, fault_of
from surepipe.simulation.events import Event, FrameFlight, Happening, Submit
from surepipe.simulation.network import Link
from surepipe.simulation.processes import Process, ReceiverProcess, SenderProcess
from surepipe.simulation.promises import promise_of
from surepipe.simulation.stores.contents import WorldKeeper
from surepipe.simulation.subjects import Subject
from surepipe.simulation.timeline import Timeline, as_detail, digests_of

# The clocks of a node: a monotonic one that drifts, and a wall clock that also jumps.
#
# The world's own time is exact. Machines are told the monotonic clock of their process and nothing else; the
# wall clock shows only in the number that a new life starts from.


MILLION = 1_000_000
DRIFT_PPM_MAX = 200


@dataclass(frozen=True, slots=True)
class MonotonicClock:
    """Runs ``drift_ppm`` millionths too fast (or, below zero, too slow)."""

    drift_ppm: int = 0

    def reading(self, world_us: int) -> int:
        """What it shows at this time of the world."""
        return world_us + world_us * self.drift_ppm // MILLION

    def when(self, reading_us: int) -> int:
        """The first time of the world at which it shows at least this."""
        if not self.drift_ppm:
            return reading_us
        rate = MILLION + self.drift_ppm
        guess = reading_us * MILLION // rate
        while self.reading(guess) >= reading_us > 0 and guess > 0:
            guess -= 1
        while self.reading(guess) < reading_us:
            guess += 1
        return guess


@dataclass(slots=True)
class WallClock:
    """Runs like the world and jumps when told, forwards or back."""

    origin_us: int = 0
    jumps_us: list[int] = field(default_factory=list[int])

    def jump(self, by_us: int) -> None:
        """Step by so much, now."""
        self.jumps_us.append(by_us)

    def reading(self, world_us: int) -> int:
        """What it shows at this time of the world."""
        return self.origin_us + world_us + sum(self.jumps_us)


WALL_ORIGIN_US = 1_000_000 * 1_000_000
OFFER_TO_ZOMBIE = "offer-to-zombie"
"""The perturbation by which the application of a replaced sender goes on with its work."""
OFFERS_AGAIN = 64
"""An application gives up after so many refusals."""


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


class EndOfNode:
    """One end of a pipe on a node: an address on links, and the process that listens there now.

    Its keeper has what outlives a process.
    """

    def __init__(
        self,
        node: MachineNode,
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


class MachineNode(SimulatedNode[MachineLife]):
    """A node whose ends are machines."""

    def __init__(self, world: Timeline, name: str) -> None:
        super().__init__(world, name)
        self.ends: list[EndOfNode] = []
        self.clock = MonotonicClock(world.options.drift_ppm)
        self.wall = WallClock(WALL_ORIGIN_US)
        self.had_zombies = self.is_healed = False
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
        """The life that the process belongs to; alone, where that is over."""
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

    def replaced(self, life: MachineLife) -> None:
        """A zombie may write above its successor, which has to be started once more after that."""
        super().replaced(life)
        self.had_zombies = True

    def heal(self) -> None:
        """Everything that was away is back, and nothing that was replaced goes on."""
        self.is_healed = True
        for zombie in list(self.zombies):
            self.end(zombie, "ended for good")
        if self.had_zombies and self.current and any(one.has_stopped for one in self.current):
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

        1. The clock goes back, and a process that replaces another takes a lower life than that had.
        2. The replaced one wakes, opens its higher life, and is ended for good.
        3. The only process left hears of it at its next write, and stops.
        """
        life = self.current
        if self.had_zombies and self.is_healed and life is not None and process in life:
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
