"""The runtime of a simulated process: production actors in virtual time, on the one thread of a world.

Each turn of an actor is an event of the world. When the process crashes, its actors take no further turn, its
alarms do not ring, and what still waits is ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pykka

from surepipe.actors.runtime import Actor
from surepipe.simulation.actors.lives import Answer, Life, Waiter
from surepipe.simulation.actors.loops import ProcessCoroutines
from surepipe.simulation.actors.tasks import Crashed
from surepipe.simulation.chance.randomness import Draws
from surepipe.simulation.events import Event

WALL_ORIGIN_MS = 1 << 10


@dataclass(slots=True, eq=False)
class ActorTurn:
    """An actor takes one message."""

    what: str = "turn"


@dataclass(slots=True, eq=False)
class Ringing:
    """An alarm may be due."""

    due: int

    @property
    def what(self) -> str:
        """Alarms of one actor have one place among simultaneous events."""
        return "alarm"


class SimulatedSignal:
    """Lets tasks wait for something that actors do."""

    loop_thread: int | None = None

    def is_for_itself(self) -> bool:
        """Never: in virtual time no loop has a thread."""
        return False

    def __init__(self, life: Life) -> None:
        self._life = life
        self._waiters: list[Waiter] = []

    def add(self, waiter: Waiter) -> None:
        """Call this one from now on."""
        self._waiters.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Not any more."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def wait(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until the predicate holds; False when it doesn't within that much virtual time."""
        return self._life.wait(predicate, _micros(timeout), self)

    def notify(self) -> None:
        """Whoever waits looks again, at an event of its own."""
        for waiter in self._waiters:
            waiter.life.call(waiter)


def _micros(timeout: float | None) -> int | None:
    return None if timeout is None else max(0, round(timeout * 1_000_000))


class TaskLock:
    """Held by one task at a time, which may wait for a store meanwhile. All tasks share a thread, so a lock of
    threads would let each of them in."""

    def __init__(self, signal: SimulatedSignal) -> None:
        self._signal = signal
        self._is_held = False

    def _take(self) -> bool:
        if self._is_held:
            return False
        self._is_held = True
        return True

    def __enter__(self) -> None:
        self._signal.wait(self._take, None)

    def __exit__(self, *error: object) -> None:
        self._is_held = False
        self._signal.notify()


class _Stop:
    """The last message of an actor."""


_STOP = _Stop()


class SimulatedActorFailed(RuntimeError):
    """Stands for an exception that is none of ``Exception``, as on threads."""


class SimulatedActor:
    """A started actor, and its inbox."""

    def __init__(self, life: Life, actor: Actor, name: str) -> None:
        self.name = name
        self.is_alive = True
        self._life = life
        self._world = life.world
        self._actor = actor
        self._inbox: deque[tuple[object, Answer | None]] = deque()
        self._has_turn = False
        self._is_busy = False
        self._ended = SimulatedSignal(life)

    def tell(self, message: object) -> bool:
        """Put a message into the inbox; False when the actor has ended."""
        if not self.is_alive or not self._life.is_alive:
            return False
        self._put(message, None)
        return True

    def _put(self, message: object, answer: Answer | None) -> None:
        self._inbox.append((message, answer))
        self._come_round()

    def _come_round(self) -> None:
        if not self._has_turn and not self._is_busy and self._inbox:
            self._has_turn = True
            self._world.at(self._world.now, self, ActorTurn())

    def ask(self, message: object, timeout: float | None) -> object:
        """Tell and wait for the answer. Raises as pykka does."""
        if not self.is_alive or not self._life.is_alive:
            raise pykka.ActorDeadError(f"{self.name} has ended")
        answer = Answer()
        self._put(message, answer)
        if not self._life.wait(lambda: answer.is_there, _micros(timeout), answer):
            raise pykka.Timeout(f"{timeout} virtual seconds")
        if answer.error is not None:
            raise answer.error
        return answer.value

    def stop(self) -> None:
        """End after what is in the inbox."""
        if self.is_alive:
            self._put(_STOP, None)

    def join(self, timeout: float) -> bool:
        """Wait for its end; True at once inside the actor itself."""
        if self._is_busy and not self._world.tasks.is_hub() and self._task is self._current():
            return True
        return self._ended.wait(lambda: not self.is_alive, timeout)

    # Turns.

    _task: object = None

    def _current(self) -> object:
        return self._world.tasks.current()

    def take(self, event: Event) -> None:
        """From the world: one turn."""
        if not self._life.accepts(self, event):
            return
        self._has_turn = False
        if self.is_alive and self._inbox:
            message, answer = self._inbox.popleft()
            self._is_busy = True
            self._world.tasks.enter(lambda: self._turn(message, answer))

    def _turn(self, message: object, answer: Answer | None) -> None:
        self._task = self._current()
        try:
            if message is _STOP:
                self._end(pykka.ActorDeadError(f"{self.name} has ended"))
            else:
                self._receive(message, answer)
        finally:
            self._is_busy = False
            self._task = None
            if self.is_alive and self._life.is_alive:
                self._come_round()

    def _receive(self, message: object, answer: Answer | None) -> None:
        try:
            value = self._actor.receive(message)
        except BaseException as error:  # noqa: BLE001 - the actor ends by it, as on threads
            if isinstance(error, Crashed) or not self._life.is_alive:
                raise Crashed from None
            failure = error if isinstance(error, Exception) else SimulatedActorFailed(str(error))
            if answer is not None:
                answer.give(None, failure)
            self._end(failure)
            self._actor.died(failure)
            return
        if answer is not None:
            answer.give(value)

    def _end(self, error: BaseException) -> None:
        self.is_alive = False
        for _, answer in self._inbox:
            if answer is not None:
                answer.give(None, error)
        self._inbox.clear()
        self._ended.notify()


class SimulatedAlarm:
    """A deadline in virtual time. One entry in the heap is enough: when it comes too early it moves on."""

    def __init__(self, life: Life, ring: Callable[[], None], name: str) -> None:
        self.name = name
        self._life = life
        self._ring = ring
        self._deadline: int | None = None
        self._queued: int | None = None

    def set(self, deadline: int | None) -> None:
        """Ring at this time; None disarms."""
        self._deadline = deadline
        if deadline is not None and (self._queued is None or deadline < self._queued):
            self._arm(deadline)

    def _arm(self, deadline: int) -> None:
        world = self._life.world
        self._queued = max(deadline, world.now)
        world.at(self._queued, self, Ringing(self._queued))

    def take(self, event: Event) -> None:
        """From the world: it may be time."""
        assert isinstance(event, Ringing)
        if event.due == self._queued:
            self._queued = None
        if not self._life.accepts(self, event) or self._deadline is None:
            return
        if self._deadline > self._life.world.now:
            if self._queued is None:
                self._arm(self._deadline)
            return
        self._deadline = None
        self._life.world.tasks.enter(self._ring)

    def close(self) -> None:
        """Never ring again."""
        self._deadline = None


class SimulatedRuntime:
    """What the actors of one process run on."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._world = life.world
        self._generators = 0
        self._alarms = 0

    def now(self) -> int:
        """Virtual microseconds."""
        return self._world.now

    def wall_ms(self) -> int:
        """What the wall clock of the node showed when its last process started, and a little more for one that
        was replaced. It does not go on within one, so that what is named after it has the same name in a run with
        other delays. However far it was set back, lives of one node tell each other apart by it."""
        node = self._life.node
        is_replaced = self._life.number < node.lives
        begun = max(0, WALL_ORIGIN_MS + node.wall_jumps_us // 1000)
        return begun + node.lives + is_replaced

    def rng(self, seed: int | None) -> Draws:
        """A generator of its own: by the seed of the run unless one is given."""
        if seed is not None:
            return Draws(seed)
        self._generators += 1
        label = f"actors/{self._life.name}/{self._life.number}/{self._generators}"
        return self._world.chooser.source(label)

    def here(self) -> object:
        """The task that asks."""
        return self._world.tasks.current()

    def start(self, actor: Actor, name: str) -> SimulatedActor:
        """Start an actor. Raises Crashed when the process is over."""
        self._life.check()
        return SimulatedActor(self._life, actor, name)

    def alarm(self, ring: Callable[[], None]) -> SimulatedAlarm:
        """A new alarm."""
        self._alarms += 1
        return SimulatedAlarm(self._life, ring, f"{self._life.name} alarm {self._alarms}")

    def signal(self) -> SimulatedSignal:
        """A new signal."""
        return SimulatedSignal(self._life)

    def lock(self) -> TaskLock:
        """A new lock between the tasks of the process."""
        return TaskLock(self.signal())

    def coroutines(self, loop: object = None, thread: int | None = None) -> ProcessCoroutines:
        """They run on the one loop of the process, whose time is that of the world."""
        assert loop is None, "a simulated process has no loop of real time"
        del thread
        return ProcessCoroutines(self._life)
