"""The runtime of tests: the same actors on one thread, in virtual time, in an order drawn from a seed.

A step lets one actor take one message. While any inbox holds something, time stands still; when all are empty,
time jumps to the next alarm. What would block a thread (a full pipe, ``flush``, a future) runs the scheduler
instead. The same seed gives the same order of steps.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import pykka

from surepipe.actors.consuming.coroutines import TurnCoroutines
from surepipe.actors.runtime import Actor
from surepipe.actors.supervision import Killed, end_as_told
from surepipe.actors.threads import AlarmHeap, HeapAlarm
from surepipe.core.timing import below
from surepipe.errors import MisuseError

if TYPE_CHECKING:
    from pykka._actor import ActorInbox
    from pykka._envelope import Envelope
    from pykka._types import OptExcInfo


_START_OF_TIME_MS = 1_750_000_000_000


class _Rest(BaseException):
    """Ends pykka's loop after one message."""


class ListInbox:
    """An inbox that gives one message for each turn of its actor."""

    def __init__(self) -> None:
        self.envelopes: deque[Envelope[Any]] = deque()
        self.has_turn = True

    def put(self, envelope: Envelope[Any], /) -> None:
        self.envelopes.append(envelope)

    def get(self) -> Envelope[Any]:
        """The oldest message, once for each turn."""
        if not self.has_turn:
            raise _Rest
        self.has_turn = False
        return self.envelopes.popleft()

    def empty(self) -> bool:
        """True when no message waits."""
        self.has_turn = True  # the only caller empties the inbox of a stopped actor
        return not self.envelopes


class StepFuture(pykka.Future[Any]):
    """A future whose ``get`` runs the scheduler until somebody has set it."""

    def __init__(self, runtime: StepRuntime | None = None) -> None:
        super().__init__()
        self._runtime = runtime
        self._value: tuple[object, BaseException | None] | None = None

    def get(self, *, timeout: float | None = None) -> Any:
        """The value, or the exception; raises pykka.Timeout after that much virtual time."""
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        assert self._runtime is not None
        if not self._runtime.run_until(lambda: self._value is not None, timeout):
            raise pykka.Timeout(f"{timeout} virtual seconds")
        assert self._value is not None
        value, error = self._value
        if error is not None:
            raise error
        return value

    def set(self, value: object = None) -> None:
        self._value = (value, None)

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Set an exception; without one, that which is being handled."""
        if exc_info is None:
            exc_info = sys.exc_info()
        self._value = (None, exc_info[1])


class StepShell(pykka.Actor):
    """The pykka actor around one of ours, for one runtime: each derives its own class, whose futures run it."""

    def __init__(self, actor: Actor, name: str) -> None:
        super().__init__()
        self.actor = actor
        self.name = name

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        return ListInbox()

    def _start_actor_loop(self) -> None:
        self._actor_loop_setup()

    @property
    def envelopes(self) -> deque[Envelope[Any]]:
        inbox = self.actor_inbox
        assert isinstance(inbox, ListInbox)
        return inbox.envelopes

    def step(self) -> None:
        """Let pykka's own loop take one message."""
        inbox = self.actor_inbox
        assert isinstance(inbox, ListInbox)
        inbox.has_turn = True
        try:
            self._actor_loop_running()
        except _Rest:
            return
        self._actor_loop_teardown()

    def on_receive(self, message: object) -> object:
        try:
            return self.actor.receive(message)
        except Killed as killed:
            end_as_told(self, self.actor, killed)
            return None

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Pass the end on; pykka has logged it."""
        del exception_type, traceback
        assert exception_value is not None
        self.actor.died(exception_value)

    def __str__(self) -> str:
        return self.name


class RunningStep:
    """A started actor."""

    def __init__(self, runtime: StepRuntime, ref: pykka.ActorRef[Any]) -> None:
        self._runtime = runtime
        self._ref = ref

    def tell(self, message: object) -> bool:
        """Put a message into the inbox; False when the actor has ended."""
        try:
            self._ref.tell(message)
        except pykka.ActorDeadError:
            return False
        return True

    def ask(self, message: object, timeout: float | None) -> object:
        """Tell, and run the scheduler until it is answered."""
        answer: object = self._ref.ask(message, timeout=timeout)
        return answer

    def stop(self) -> None:
        """End after what is in the inbox."""
        self._ref.stop(block=False)

    def join(self, timeout: float) -> bool:
        """Run the scheduler until the actor has ended."""
        return self._runtime.run_until(lambda: not self._ref.is_alive(), timeout)


class StepAlarm(HeapAlarm):
    """An alarm in virtual time."""

    __slots__ = ("_heap", "_open")

    def __init__(self, heap: AlarmHeap, ring: Callable[[], None]) -> None:
        super().__init__(ring)
        self._heap = heap
        self._open = True

    def set(self, deadline: int | None) -> None:
        """Ring at this time; None disarms."""
        self._heap.set(self, deadline if self._open else None)

    def close(self) -> None:
        self._open = False
        self._heap.set(self, None)


class StepSignal:
    """Waiting is running the scheduler."""

    loop_thread: int | None = None

    def is_for_itself(self) -> bool:
        """Never: in virtual time no loop has a thread."""
        return False

    def __init__(self, runtime: StepRuntime) -> None:
        self._runtime = runtime

    def wait(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Run until the predicate holds; False when it doesn't within that much virtual time."""
        return self._runtime.run_until(predicate, timeout)

    def notify(self) -> None:
        """Nothing to do: whoever waits looks after each step."""


class StepRuntime:
    """Actors on the caller's thread. ``trace`` names the actor of each step, in order.

    An actor that waits inside a step (a handler that sends into a full pipe) lets the others run; it is not
    entered again itself.
    """

    def __init__(self, seed: int = 1) -> None:
        self.trace: list[str] = []
        self._now = 0
        self._order = Random(seed)
        self._seeds = Random(~seed)
        self._heap = AlarmHeap()
        self._shells: list[StepShell] = []
        self._inside: list[StepShell] = []
        seam = {"_create_future": staticmethod(lambda: StepFuture(self))}
        self._shell_class = cast("type[StepShell]", type("StepShell", (StepShell,), seam))

    def now(self) -> int:
        """Virtual microseconds since the runtime was made."""
        return self._now

    def wall_ms(self) -> int:
        return _START_OF_TIME_MS + self._now // 1000

    def rng(self, seed: int | None) -> Random:
        """A generator of its own, drawn from the runtime's seed unless one is given."""
        return Random(self._seeds.getrandbits(64) if seed is None else seed)

    def here(self) -> int:
        return threading.get_ident()

    def start(self, actor: Actor, name: str) -> RunningStep:
        """Start an actor; it runs when the scheduler does."""
        shell = self._shell_class(actor, name)
        pykka.ActorRegistry.register(shell.actor_ref)
        self._shells.append(shell)
        return RunningStep(self, shell.actor_ref)

    def alarm(self, ring: Callable[[], None]) -> StepAlarm:
        return StepAlarm(self._heap, ring)

    def signal(self) -> StepSignal:
        return StepSignal(self)

    def lock(self) -> AbstractContextManager[object]:
        """One that one thread never waits for."""
        return threading.RLock()

    def coroutines(
        self, loop: asyncio.AbstractEventLoop | None = None, thread: int | None = None
    ) -> TurnCoroutines:
        """Each runs in the turn of the actor that waits for it. Raises MisuseError for a loop of real time."""
        del thread
        if loop is not None:
            raise MisuseError(
                "a StepRuntime has virtual time, and the running loop has not: use the pipe without async with"
            )
        return TurnCoroutines(self.now, self._let_pass)

    def _let_pass(self, us: int | None) -> None:
        """Let so much time pass, or, with None, one thing happen."""
        if us is not None:
            self.advance(us / 1_000_000)
        elif not self.step() and not self._jump(None):
            raise MisuseError("a coroutine waits for ever: nothing is left that could happen")

    def step(self) -> bool:
        """Let one actor take one message; False when no actor can."""
        ready = list(self._ready())
        if not ready:
            return False
        shell = ready[below(self._order, len(ready))]
        self.trace.append(shell.name)
        self._inside.append(shell)
        try:
            shell.step()
        finally:
            self._inside.pop()
        if shell.actor_stopped.is_set():
            self._shells.remove(shell)
        return True

    def _ready(self) -> Iterator[StepShell]:
        return (shell for shell in self._shells if shell.envelopes and shell not in self._inside)

    def run_until(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Run until the predicate holds. False after ``timeout`` virtual seconds.

        Raises MisuseError when nothing is left to happen and no timeout was given: it would wait for ever.
        """
        end = None if timeout is None else self._now + round(timeout * 1_000_000)
        while not predicate():
            if not self.step() and not self._jump(end):
                if end is None:
                    raise MisuseError("this waits for ever: nothing is left that could happen")
                return predicate()
        return True

    def run_until_idle(self, steps_max: int = 1_000_000) -> None:
        """Run until all inboxes are empty and no alarm is armed.

        Raises AssertionError after ``steps_max`` steps: something repeats for ever.
        """
        for _ in range(steps_max):
            if not self.step() and not self._jump(None):
                return
        raise AssertionError(f"still running after {steps_max} steps, at {self._now} us")

    def advance(self, seconds: float) -> None:
        """Let this much virtual time pass, and everything happen that falls into it."""
        self.run_until(lambda: False, seconds)

    def _jump(self, end: int | None) -> bool:
        """Go to the next alarm and ring; False when there is none up to ``end``."""
        at = self._heap.next()
        if at is None or (end is not None and at > end):
            self._now = self._now if end is None else max(self._now, end)
            return False
        self._now = max(self._now, at)
        for alarm in self._heap.pop_due(self._now):
            alarm.ring()
        return True
