"""Nodes whose processes run production actors: their lives, and everything that may end one.

A process touches what is outside of it at many points: a frame is put on a link, a store is called, a user's
function is entered. Each touch has a name, and the process may end before it or after it. Then all its actors are
gone with what waited for them; what it had put on links and into stores stays. The node starts another life later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from greenlet import greenlet

from surepipe.simulation.actors.tasks import Crashed, Tasks
from surepipe.simulation.chance.chooser import Chooser, Trouble
from surepipe.simulation.chance.randomness import Draws
from surepipe.simulation.events import Event, EventTarget, Happening, Touch
from surepipe.simulation.network import Network
from surepipe.simulation.nodes import MachineNode, SimulatedNode
from surepipe.simulation.options import Options
from surepipe.simulation.timeline import Timeline, as_detail

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Waiter:
    """A task that waits until something holds, or a time has come."""

    life: Life
    task: greenlet
    predicate: Callable[[], bool]
    until: int | None
    is_called: bool = False
    is_over: bool = False
    answer: bool = False

    @property
    def what(self) -> str:
        """All waits of a node have one place among simultaneous events."""
        return "goes on"


class Waiting(Protocol):
    """Where waiters are called from."""

    def add(self, waiter: Waiter) -> None:
        """Call this one when something may have changed."""
        ...

    def remove(self, waiter: Waiter) -> None:
        """Not any more."""
        ...


class Answer:
    """What a task waits for: another one gives it."""

    def __init__(self) -> None:
        self.is_there = False
        self.value: object = None
        self.error: BaseException | None = None
        self.waiters: list[Waiter] = []

    def add(self, waiter: Waiter) -> None:
        """Call this one from now on."""
        self.waiters.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Not any more."""
        self.waiters.remove(waiter)

    def give(self, value: object, error: BaseException | None = None) -> None:
        """It is there, or what was raised instead."""
        self.is_there, self.value, self.error = True, value, error
        for waiter in self.waiters:
            waiter.life.call(waiter)


class Coroutines(Protocol):
    """The coroutines of one process."""

    def bury(self) -> None:
        """The process is over: end them. A second call does nothing."""
        ...

    def stuck_at(self) -> Sequence[tuple[str, int]]:
        """The files and lines at which a call waits though nothing of this process will happen by itself any more;
        nothing where none does."""
        ...


class Life:
    """One process of a node, from its start to its end or its crash."""

    def __init__(self, node: ActorNode, number: int) -> None:
        self.node = node
        self.world = node.world
        self.number = number
        self.name = node.name
        self.is_alive = True
        self.is_away = False
        self.incarnations: dict[str, int] = {}
        """Of each end that runs here: the how-many-th of its kind."""
        self.coroutines: Coroutines | None = None
        """Those of its event loop, where it has begun one."""
        self._asleep: list[tuple[EventTarget, Event]] = []
        self._waiters: dict[Waiter, None] = {}

    # What is outside.

    def check(self) -> None:
        """Raises Crashed when this process is over."""
        if not self.is_alive:
            raise Crashed

    def at(self, what: str, act: Callable[[], T]) -> T:
        """Touch what is outside. The process may end before that, or after it: then Crashed is raised."""
        trouble = self.trouble_at(what)
        if trouble is None:
            return act()
        if trouble.is_end and trouble.point < 0:
            self.meet(trouble)
        result = act()
        self.meet(trouble)
        return result

    def trouble_at(self, what: str) -> Trouble | None:
        """What befalls the process at this touch. A process that was replaced has had its share."""
        if not self.is_alive:
            raise Crashed
        world, node = self.world, self.node
        touch = Touch(node.named(what), is_within_call=world.speaks is self)
        if world.asked is not None:
            world.asked.append((node.name, touch))
        if world.chooser.may_trouble(node.name) and node.current is self:
            return world.chooser.trouble(node.name, touch, 0)
        return None

    def meet(self, trouble: Trouble) -> None:
        """It befalls the process now. Raises Crashed when that is its end."""
        self.check()
        self.node.befall(self, trouble)
        self.check()

    # Waiting.

    def wait(
        self, predicate: Callable[[], bool], timeout_us: int | None, where: Waiting | None = None
    ) -> bool:
        """From a task: let the world go on until the predicate holds; False after this time."""
        if predicate():
            return True
        self.check()
        world = self.world
        until = None if timeout_us is None else world.now + timeout_us
        waiter = Waiter(self, world.tasks.current(), predicate, until)
        self._waiters[waiter] = None
        if where is not None:
            where.add(waiter)
        if until is not None:
            world.at(until, self, waiter)
        speech = world.speech
        world.speaks, world.speaking = None, ""
        try:
            world.tasks.wait()
        finally:
            world.speech = speech
            waiter.is_over = True
            self._waiters.pop(waiter, None)
            if where is not None:
                where.remove(waiter)
        return waiter.answer

    def sleep(self, for_us: int) -> None:
        """From a task: let so much time pass."""
        self.wait(_never, max(0, for_us))

    def call(self, waiter: Waiter) -> None:
        """What a waiter waits for may have come."""
        if not waiter.is_called and not waiter.is_over:
            waiter.is_called = True
            self.world.at(self.world.now, self, waiter)

    def take(self, event: Event) -> None:
        """A wait may be over, or something of this process happens."""
        if not self.accepts(self, event):
            return
        if isinstance(event, Waiter):
            self._look_at(event)
        else:
            assert isinstance(event, Happening)
            event.act()

    def _look_at(self, waiter: Waiter) -> None:
        waiter.is_called = False
        if waiter.is_over:
            return
        waiter.answer = waiter.predicate()
        if waiter.answer or (waiter.until is not None and self.world.now >= waiter.until):
            waiter.is_over = True
            self.world.tasks.resume(waiter.task)

    def accepts(self, target: EventTarget, event: Event) -> bool:
        """False when the process is over, and while it stands still: then the event comes afterwards."""
        if self.is_away and self.is_alive:
            self._asleep.append((target, event))
            return False
        return self.is_alive

    # The end.

    def end(self) -> None:
        """Nothing of this process happens any more. Its tasks are ended as soon as the hub can do that."""
        self.is_alive = False
        world = self.world
        world.at(world.now, world, Happening("burial", self.bury))

    def bury(self) -> None:
        """From the hub: end the tasks that wait."""
        for waiter in list(self._waiters):
            if not waiter.is_over:
                waiter.is_over = True
                self.world.tasks.end(waiter.task)
        self._waiters.clear()
        if self.coroutines is not None:
            self.coroutines.bury()

    def pause(self) -> None:
        """From the next event on, everything waits."""
        self.is_away = True

    def resume(self) -> None:
        """What waited comes as a burst."""
        self.is_away = False
        asleep, self._asleep = self._asleep, []
        for target, event in asleep:
            self.world.at(self.world.now, target, event)


Speech: TypeAlias = tuple[Life | None, str, tuple[str, int]]
"""Whose user's code runs: the process, the stage, and the message that it handles."""
NOBODY: Speech = None, "", ("", 0)


class ActorWorld(Timeline, ABC):
    """A world as its processes know it: nodes, links, tasks, and whose user's code runs now."""

    name = "world"

    def __init__(self, run: str, options: Options, chooser: Chooser) -> None:
        super().__init__(run, options, chooser)
        self.tasks = Tasks()
        self.speaks: Life | None = None
        """The process whose user's code runs now."""
        self.remembers: Callable[[Life], None] = _forget
        """Told which process it is whenever that begins or goes on: each has its own memory."""
        self.speaking = ""
        """The stage that it runs in."""
        self.handling: tuple[str, int] = ("", 0)
        """The message that it handles, and which call of all calls this is."""
        self.of_batches: Collection[str] = ()
        """The stages behind a batch: what is asked for there tells of all that is in it."""
        self.in_company: Collection[str] = ()
        """Stages behind batches: what they handle has the identity of the first message of its batch."""
        self.entered = 0
        """How often user's code was called."""
        self.calling: dict[int, tuple[str, int]] = {}
        """The calls that go on, by their numbers: the stage, and since when."""
        self.ended_well: set[int] = set()
        """Those that were through with their message."""
        self.reaching_out: set[str] = set()
        """The stages that have done something outside so far."""
        self.refused: set[int] = set()
        """The calls that are to fail where they do something outside."""
        self.waited: Counter[str] = Counter()
        """Microseconds that calls of each stage took: its own waits, in virtual time."""
        self.nodes: dict[str, MachineNode | ActorNode] = {}
        self.network = Network(self)
        self.begun: list[Life] = []
        """The processes that have an event loop."""
        self.streams: dict[str, None] = {}
        """Those that carry the messages of pipes: rows tell what is in them."""
        self.chances: dict[str, Draws] = {}
        self.incarnations: dict[str, int] = {}
        self.letters: dict[tuple[str, int, int], None] = {}
        """Dead letters that some store has."""

    @property
    def speech(self) -> Speech:
        """Whose user's code runs now. Who is set here goes on, with the memory of its process."""
        return self.speaks, self.speaking, self.handling

    @speech.setter
    def speech(self, speech: Speech) -> None:
        self.speaks, self.speaking, self.handling = speech
        if self.speaks is not None:
            self.remembers(self.speaks)

    @property
    @abstractmethod
    def faults(self) -> tuple[str, ...]:
        """The names of what may befall this run."""

    @abstractmethod
    def take(self, event: Event) -> None:
        """It happens to the world itself."""

    @abstractmethod
    def node_is_done(self) -> None:
        """The program of a node has returned."""

    @abstractmethod
    def cut_power(self, for_us: int) -> None:
        """All processes and all stores end at once."""

    def reach_out(self) -> bool:
        """The call that goes on does something outside; whether it fails there, before that is done."""
        self.reaching_out.add(self.speaking)
        number = self.handling[1]
        is_refused = number in self.refused
        self.refused.discard(number)
        return is_refused

    def called(self, stage: str) -> int:
        """A call begins; gives its number."""
        self.entered += 1
        self.calling[self.entered] = stage, self.now
        return self.entered

    def returned(self, number: int) -> None:
        """It is over, however it ended."""
        stage, since = self.calling.pop(number)
        self.waited[stage] += self.now - since

    def kept_by(self) -> tuple[str, int] | None:
        """The stage that waited longest, and for how long, in a run that met a limit since stages waited for most
        of it: nothing is known of a run that had no time left."""
        if self.limit not in ("time", "events"):
            return None
        waited = Counter(self.waited)
        for stage, since in self.calling.values():
            waited[stage] += self.now - since
        return waited.most_common(1)[0] if waited.total() * 2 > self.now else None

    def row_of(self, life: Life, end: str, kind: str, **columns: object) -> None:
        """A row of an end of a pipe in this process."""
        self.note(end, life.incarnations.get(end, life.number), kind, **columns)  # type: ignore[arg-type]

    def effect(self, where: str, text: str, key: str = "") -> None:
        """Something happened in the world outside. ``key``: by which it is to be known again: another one is
        another run."""
        facts = {"text": text, "key": key} if key else {"text": text}
        self.note(where, 1, "effect", detail=as_detail(facts))


def _forget(life: Life) -> None:
    """Processes without a memory of their own."""
    del life


class ActorNode(SimulatedNode[Life]):
    """A process of a deployment: which program it runs, and which life of it runs now.

    ``sends`` and ``receives`` say which ends of pipes it has. The program returns when all its work is done.
    """

    world: ActorWorld

    def __init__(
        self,
        world: ActorWorld,
        name: str,
        program: Callable[[Life], None],
        *,
        sends: bool,
        receives: bool,
    ) -> None:
        super().__init__(world, name)
        self.program = program
        self.sends = sends
        self.receives = receives
        self.wall_jumps_us = 0
        self._touches: dict[str, int] = {}
        self.on_power = world.cut_power

    @property
    def is_unfinished(self) -> bool:
        """Whether its program has still to return."""
        return not self.is_done

    @property
    def is_at_rest(self) -> bool:
        """Whether its program has returned."""
        return self.is_done

    def named(self, what: str) -> str:
        """A touch by a name that comes up once: with the how-many-th it is."""
        number = self._touches[what] = self._touches.get(what, 0) + 1
        return what if number == 1 else f"{what} #{number}"

    def begin(self) -> None:
        """Its first life is an event as each later one."""
        self.start_after(0)

    def start(self) -> None:
        """A new process."""
        if self.current is not None or self.is_done:
            return
        self.lives += 1
        self.wall_jumps_us += self.world.chooser.wall_step(self.name, self.lives)
        life = Life(self, self.lives)
        self.current = life
        self.world.tasks.enter(lambda: self._run(life))

    def _run(self, life: Life) -> None:
        """The program, in a task. What it raises is a defect of what is simulated, and the run's finding."""
        self.program(life)
        if life.is_alive:
            life.end()
            if life is self.current:
                self.current = None
                self.is_done = True
                self.world.node_is_done()

    def end(self, life: Life, why: str, trouble: Trouble | None = None, fault: str = "") -> None:
        """This life is over; what it had in memory is gone."""
        del trouble
        for end in life.incarnations:
            code = fault or ("F8" if end.endswith("/sender") else "F10")
            self.world.row_of(life, end, "crash", detail=as_detail({"text": why, "fault": code}))
        life.end()
        self.leave(life)

    def pause(self, life: Life) -> None:
        """It stands still."""
        for end in life.incarnations:
            self.world.row_of(life, end, "pause", detail=as_detail({"fault": "F28"}))
        life.pause()

    def resume(self, life: Life) -> None:
        """What waited comes as a burst."""
        if life.is_alive and life.is_away:
            for end in life.incarnations:
                self.world.row_of(life, end, "resume")
            life.resume()

    def heal(self) -> None:
        """Whoever was away is back, and nothing that was replaced goes on."""
        for zombie in list(self.zombies):
            self.end(zombie, "ended for good", fault="F28")
        if self.current is not None:
            self.resume(self.current)
        elif not self.is_done:
            self.start()

    def bury(self) -> None:
        """Whatever still waits is ended."""
        for life in [*self.zombies, *([self.current] if self.current else [])]:
            life.is_alive = False
            life.bury()


def _never() -> bool:
    return False
