"""The event loop of a simulated process: its coroutines in virtual time, on the one thread of a world."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from surepipe.actors.consuming.coroutines import Outcome, awaiting, outcome_of
from surepipe.errors import MisuseError
from surepipe.simulation.actors.lives import NOBODY, Answer, Life, Speech
from surepipe.simulation.actors.tasks import Crashed
from surepipe.simulation.events import Event


@dataclass(slots=True, eq=False)
class LoopTurn:
    """Tasks of an event loop may go on."""

    due: int

    @property
    def what(self) -> str:
        """All turns of a loop have one place among simultaneous events."""
        return "loop"


SPEECH: ContextVar[Speech] = ContextVar("surepipe_speech", default=NOBODY)
"""Of each task and callback of a loop: the call of user's code that has begun it."""
AT_ONCE = 16
"""So often all tasks of a loop go on before time does: what spins until another message comes lets that come."""
SPIN_US = 100_000
"""So long is a turn of what spins on and on, at most: each is twice as long as the one before."""


class NumberedTask(asyncio.Task[Any]):
    """Tasks are kept in sets, by asyncio too, and cancelled in their order: here that is not one of addresses."""

    def __init__(self, number: int, call: Any, **named: Any) -> None:
        self.number = number
        super().__init__(call, **named)

    def __hash__(self) -> int:
        return self.number


class _NoFiles:
    """All that a loop in virtual time waits for is an event of the world."""

    def select(self, timeout: float | None) -> list[object]:
        """Nothing is ready, at once."""
        del timeout
        return []


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of a simulated process: one for all its calls, as a real process has one. So they may wait
    for each other, by a lock or a queue, and tasks that a call begins go on when it is over.

    Each turn of it is an event of the world, or of the task that waits for a call. What blocks in a coroutine (a
    sleep of threads, a transaction) holds up all others, as it does in a real process.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, life: Life) -> None:
        super().__init__()
        self.name = f"{life.name} loop"
        self._life = life
        self._world = life.world
        self._selector = _NoFiles()
        self._thread_id: int | None = threading.get_ident()
        self._clock_resolution = 1e-6
        self._queued: int | None = None
        self._is_in_turn = False
        self._spins_us = 0
        self._tasks_begun = 0
        self._begun: WeakKeyDictionary[asyncio.Future[Any], Speech] = WeakKeyDictionary()
        self._calls: dict[asyncio.Task[Any], None] = {}
        """Those that somebody waits for outside of the loop."""
        life.coroutines = self
        life.world.begun.append(life)

    def time(self) -> float:
        """Virtual seconds."""
        return self._world.now / 1_000_000

    # What it is to do.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """In its next turn."""
        handle = super().call_soon(self._step, callback, *args, context=context)
        self._come_round(self._world.now)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """When that time has come."""
        handle = super().call_at(when, self._step, callback, *args, context=context)
        self._come_round(self._world.now)
        return handle

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        """A task, known by its number, and by the call that begins it."""
        self._tasks_begun += 1
        if self.get_task_factory() is None:
            named["name"] = named.get("name") or f"Task-{self._tasks_begun}"
            task: asyncio.Task[Any] = NumberedTask(self._tasks_begun, coro, loop=self, **named)
        else:
            task = super().create_task(coro, **named)
        self._begun[task] = (named.get("context") or copy_context()).get(SPEECH, NOBODY)
        return task

    def _come_round(self, earliest: int) -> None:
        """Ask the world for the next turn."""
        due = self._due()
        if self._is_in_turn or due is None or not self._life.is_alive:
            return
        due = max(due, earliest)
        if self._queued is None or due < self._queued:
            self._queued = due
            self._world.at(due, self, LoopTurn(due))

    def _due(self) -> int | None:
        if self._ready:
            return self._world.now
        first = next(iter(self._scheduled), None)
        return None if first is None else max(self._world.now, round(first.when() * 1_000_000))

    # Turns.

    def take(self, event: Event) -> None:
        """From the world: a turn."""
        assert isinstance(event, LoopTurn)
        if not self._life.accepts(self, event):
            return
        if event.due == self._queued:
            self._queued = None
        self._world.tasks.enter(self._turn)

    def _turn(self) -> None:
        """All that can go on does. Where somebody blocks in the middle of a turn, that is not over yet."""
        if self._is_in_turn:
            return
        self._is_in_turn = True
        asyncio._set_running_loop(self)
        try:
            for _ in range(AT_ONCE):
                if self._life.is_alive and self._due() == self._world.now:
                    self._run_once()
        finally:
            asyncio._set_running_loop(None)
            self._is_in_turn = False
        self._life.check()
        self._spins_us = min(2 * self._spins_us + 1, SPIN_US) if self._ready else 0
        self._come_round(self._world.now + self._spins_us)

    def _run_once(self) -> None:
        try:
            super()._run_once()  # type: ignore[misc]
        except SystemExit as error:  # ends only the task that raised it
            self.call_exception_handler({"message": "a task wants to end", "exception": error})

    def _step(self, callback: Callable[..., object], *args: Any) -> None:
        """One callback, as a part of the call that has asked for it."""
        if not self._life.is_alive:
            return
        world = self._world
        before, world.speech = world.speech, SPEECH.get()
        try:
            callback(*args)
        finally:
            world.speech = before

    def _process_events(self, event_list: object) -> None:
        del event_list

    def _write_to_self(self) -> None:
        pass

    # Calls.

    def wait(self, call: Awaitable[object]) -> object:
        """From a task of the world: run it to its end. Raises what it raises, and Crashed."""
        if asyncio._get_running_loop() is not None:
            raise MisuseError(
                "a coroutine can't be waited for on the thread of its own loop: await it"
            )
        answer, context = Answer(), copy_context()
        context.run(SPEECH.set, self._world.speech)
        task = self.create_task(outcome_of(awaiting, call), context=context)
        self._calls[task] = None
        task.add_done_callback(lambda done: self._give(answer, done))
        self._turn()
        self._life.wait(lambda: answer.is_there, None, answer)
        if answer.error is not None:
            raise answer.error
        return answer.value

    def _give(self, answer: Answer, task: asyncio.Task[Outcome]) -> None:
        del self._calls[task]
        answer.give(*((None, asyncio.CancelledError()) if task.cancelled() else task.result()))

    def begun_by_this_call(self) -> Iterator[asyncio.Task[Any]]:
        """From a task: those of the same call that still run, without the one that asks."""
        here = SPEECH.get()
        for task in self._unfinished():
            if self._begun[task] == here and task is not asyncio.current_task(self):
                yield task

    def put_off_by_this_call(self) -> Iterator[Callable[..., object]]:
        """From a task: what its call has told the loop to call later (``call_later``), and is not called yet."""
        here = SPEECH.get()
        for timer in self._scheduled:
            known: Any = timer  # what it was given no stub of Python's tells
            if not timer.cancelled() and known._context.get(SPEECH, NOBODY) == here:
                yield known._args[0]

    def stage_of(self, future: asyncio.Future[Any] | None) -> str:
        """The stage that has begun this task; empty for what is none."""
        return NOBODY[1] if future is None else self._begun.get(future, NOBODY)[1]

    def _unfinished(self) -> list[asyncio.Task[Any]]:
        begun = list(self._begun)
        return [task for task in begun if isinstance(task, asyncio.Task) and not task.done()]

    def stuck_at(self) -> Sequence[tuple[str, int]]:
        """Where the first call waits (file and line of each coroutine in it) if nothing here goes on by itself."""
        is_idle = not self._ready and all(timer.cancelled() for timer in self._scheduled)
        call = next(iter(self._calls), None) if is_idle else None
        return () if call is None else tuple(_frames_of(call.get_coro()))

    def bury(self) -> None:
        """A process that ends runs nothing more. Coroutines are ended where they wait, as tasks are: else Python
        would do it when it comes upon them, with the memory of whoever runs then."""
        if self.is_closed():
            return
        world, before = self._world, self._world.speech
        for task in self._unfinished():
            world.speech = self._begun[task]
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _end(task.get_coro())
        world.speech = before
        self._thread_id = None
        self.close()


def _frames_of(coroutine: Any) -> Iterator[tuple[str, int]]:
    """File and line of a coroutine that waits, and of those that it waits for."""
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        coroutine = coroutine.cr_await


def _end(coroutine: Any) -> None:
    with suppress(Exception, Crashed, asyncio.CancelledError, GeneratorExit):
        try:
            coroutine.throw(Crashed())
        finally:
            coroutine.close()


class ProcessCoroutines:
    """Coroutines of a simulated process: each runs on its loop, and the task that waits for it lets time pass."""

    loop = thread = None

    def __init__(self, life: Life) -> None:
        self._life = life

    def wait(self, call: Awaitable[object]) -> object:
        """Run it to its end. Raises what it raises."""
        loop = self._life.coroutines
        return (loop if isinstance(loop, ProcessLoop) else ProcessLoop(self._life)).wait(call)

    def cancel(self) -> bool:
        """Whoever closes a pipe does not wait for its handler in virtual time."""
        return False

    def close(self) -> None:
        """The loop ends with its process."""
