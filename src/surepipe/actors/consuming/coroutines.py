"""Coroutines in handlers: what a handler may be, which loop its coroutines run on, and who waits for them.

A handler may be a plain function, a coroutine function, or anything that returns an awaitable. What it returns is
looked at every time: an awaitable is run before its message counts as handled, and a generator, whose body nobody
would ever run, is the failure of the message.

Coroutines run on a loop: the one of the caller, where the pipe is used in ``async with``, or one that the process
starts for the first coroutine and ends with the last pipe that had any. In virtual time there is no loop of
threads; there each coroutine runs in the turn of the actor that waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import itertools
import logging
import os
import select
import selectors
import sys
import threading
import weakref
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from enum import Enum
from functools import partial
from types import FunctionType, MethodType, coroutine
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import pykka
from greenlet import getcurrent, greenlet

from surepipe.errors import (
    ConfigurationError,
    MisuseError,
    PipeClosed,
    PipeStopped,
    SurepipeError,
    a_or_an,
)

logger = logging.getLogger("surepipe")
T = TypeVar("T")
Wait: TypeAlias = Callable[[Awaitable[object]], object]
"""Runs an awaitable to its end and gives what it gives. Raises what it raises."""
SETTLED_MAX = 1000
BREATH = 64
"""So many messages a task may take or send without a pause before others on its loop get a turn."""
CANCEL_S = 1.0
"""How long a handler that is cancelled has to end."""
LOOK_S = 1.0
"""How often a thread that waits for a loop looks whether that is still there."""
SHORT_S = 0.1
"""A wait below this is one whose rounding shows."""
SELECT_MAX = 1024
"""Descriptors from here on are none that ``select`` takes."""


@contextlib.contextmanager
def _block() -> Generator[None]:
    yield


@contextlib.asynccontextmanager
async def _async_block() -> AsyncGenerator[None]:
    yield


async def _rows() -> AsyncGenerator[None]:
    yield


def _closing() -> type:
    call = _rows().aclose()
    call.close()  # which nobody awaits
    return type(call)


_CLOSING = _closing()
_BLOCKS: tuple[type, ...] = (type(_block()), type(_async_block()))
"""What a call of a ``contextmanager`` gives: its body runs in a ``with`` statement only."""
_LAZY = (Generator, AsyncGenerator, map, filter, zip, itertools.starmap, *_BLOCKS)
_SEVERAL: tuple[type, ...] = (list, tuple, set, frozenset)
_UNCALLED: tuple[type, ...] = (FunctionType, MethodType, partial)
_NEVER_SETTLED = (*_SEVERAL, *_UNCALLED)
"""Each of these is looked at, as its type does not tell what it holds."""


# What a handler may be.


class HandlerKind(Enum):
    """What a call of a function gives, as far as the function itself tells."""

    PLAIN = "a function"
    COROUTINE = "a coroutine function"
    GENERATOR = "a generator function"
    ASYNC_GENERATOR = "an async generator function"

    @property
    def is_async(self) -> bool:
        """True when a call runs nothing, and wants to be awaited or iterated on a loop."""
        return self in (HandlerKind.COROUTINE, HandlerKind.ASYNC_GENERATOR)

    @property
    def is_generator(self) -> bool:
        """True when a call runs nothing until somebody iterates."""
        return self in (HandlerKind.GENERATOR, HandlerKind.ASYNC_GENERATOR)


def kind_of(function: Callable[..., object]) -> HandlerKind:
    """What a call of this gives: seen through partials and bound methods, of an object by its ``__call__``.

    This decides for pipes, for stages of pipelines, and for their simulation.
    """
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    body: Callable[..., object] = function
    if not inspect.isroutine(function) and not inspect.isclass(function):
        body = cast("Callable[..., object]", getattr(function, "__call__", function))  # noqa: B004
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(body):
        return HandlerKind.COROUTINE
    if inspect.isasyncgenfunction(body):
        return HandlerKind.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(body):
        return HandlerKind.GENERATOR
    return HandlerKind.PLAIN


def require_handler(function: Callable[..., object]) -> None:
    """Raises MisuseError for what can't be a handler, whatever it is given."""
    if not callable(cast("object", function)):
        raise MisuseError(
            f"a handler is a function, and this is {a_or_an(type(function).__name__)}"
        )
    kind = kind_of(function)
    if kind.is_generator:
        name = getattr(function, "__name__", type(function).__name__)
        raise MisuseError(
            f"{name} is {kind.value}: a call of it runs nothing, so every message would be lost. Write a function "
            "without yield; for many results send each of them on, or use a flat-map stage"
        )


def require_plain(what: str, function: object, why: str) -> None:
    """Raises ConfigurationError for a function whose call would run nothing, where nobody waits for it."""
    if callable(function) and (kind := kind_of(function)) is not HandlerKind.PLAIN:
        raise ConfigurationError(f"{what} is {kind.value}: {why}")


SETTLED: set[type] = {dict, str, bytes, int, float, bool, type(None)}
"""Types of results that are nothing to be run: to ask costs more than many a handler, so answers are kept."""


def finish(result: object, wait: Wait) -> object:
    """What a handler's result comes to: an awaitable is run. Raises what that raises, and MisuseError for what
    nobody would ever run."""
    found = refuse_unrun(awaited(result, wait))
    keep_settled(result, found)
    return found


def keep_settled(result: object, found: object) -> None:
    """Remember the type of a result that came to this, and was looked at."""
    kind = type(result)
    if found is result and not issubclass(kind, _NEVER_SETTLED) and len(SETTLED) < SETTLED_MAX:
        SETTLED.add(kind)


def awaited(result: object, wait: Wait) -> object:
    """Like ``finish``, but leaves a generator to the caller, who runs it."""
    while True:
        if type(result) in SETTLED:
            return result
        if inspect.isawaitable(result):
            result = wait(cast("Awaitable[object]", result))
        elif isinstance(result, Future):
            result = cast("Future[object]", result).result()
        else:
            return result


async def finished(result: object) -> object:
    """As ``finish``, on a loop."""
    while True:
        if inspect.isawaitable(result):
            result = await result
        elif isinstance(result, Future):
            result = await asyncio.wrap_future(cast("Future[object]", result))
        else:
            return refuse_unrun(result)


def unrun_in(result: object) -> str:
    """What in this result nobody has run: the type of a coroutine or generator, or a coroutine function that was
    not called; or ''. A list or set may hold some."""
    if type(result) in SETTLED:
        return ""
    kind_name = type(result).__name__
    if isinstance(result, _LAZY) or inspect.isawaitable(result):
        return kind_name
    if isinstance(result, _UNCALLED):
        kind = kind_of(cast("Callable[..., object]", result))
        name = kind.value.removeprefix("a ").removeprefix("an ")
        return "" if kind is HandlerKind.PLAIN else f"{name} that was not called"
    if isinstance(result, _SEVERAL):
        if SETTLED.issuperset(map(type, cast("list[object]", result))):
            return ""
        for one in cast("list[object]", result):
            if found := unrun_in(one) if not isinstance(one, _SEVERAL) else "":
                return found
    return ""


def refuse_unrun(result: object) -> object:
    """Raises MisuseError for what nobody would ever run."""
    if what := unrun_in(result):
        _close_all(result)
        raise MisuseError(
            f"what came back is {a_or_an(what)}, whose body nobody would run: run it in the function (a generator "
            "by a loop, coroutines in an asyncio.TaskGroup)"
        )
    return result


def _close_all(result: object) -> None:
    """Python need not warn of these: they are named already."""
    for one in cast("list[object]", result) if isinstance(result, _SEVERAL) else [result]:
        if inspect.iscoroutine(one):
            one.close()


def nobody_waits(call: Awaitable[object]) -> object:
    """Stands where coroutines can't be waited for."""
    if inspect.iscoroutine(call):
        call.close()
    raise MisuseError("nobody waits for a coroutine here: write a plain function")


# Where coroutines run.


class Coroutines(Protocol):
    """Runs the coroutines of one receiver."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop, started if need be; None in virtual time, where each runs in the turn that waits for it."""
        ...

    @property
    def thread(self) -> int | None:
        """The thread of the loop, while it has one."""
        ...

    def wait(self, call: Awaitable[object]) -> object:
        """Run it to its end, from a thread that may wait. Raises what it raises, and LoopEnded."""
        ...

    def cancel(self) -> bool:
        """Cancel what threads wait for now, and begin nothing more. True when there is some that can end while the
        caller waits."""
        ...

    def close(self) -> None:
        """Nothing more will be run. A second call does nothing."""
        ...


class LoopEnded(PipeStopped):
    """The loop that coroutines were to run on is closed."""


def _loop_ended() -> LoopEnded:
    return LoopEnded(
        "the event loop that its handler runs on is closed: close the pipe before the loop ends, which "
        "'async with' does"
    )


if sys.platform == "linux":

    class PromptSelector(selectors.EpollSelector):
        """Ends a short wait when it is over. epoll counts whole milliseconds and rounds up: half a millisecond is
        a twentieth of what a lane does that waits for 10 ms. ``select`` counts microseconds, and sees an epoll."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """What is ready. Descriptors that ``select`` can't take are left to epoll."""
            if timeout is not None and 0 < timeout < SHORT_S and self.fileno() < SELECT_MAX:
                if not select.select((self.fileno(),), (), (), timeout)[0]:
                    return []
                timeout = 0
            return super().select(timeout)

    def _new_loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(PromptSelector())

else:
    _new_loop = asyncio.new_event_loop


class SharedLoop:
    """The loop of a process for handlers that are coroutines: it starts with the first user, ends with the last.

    It has a thread of its own. What blocks it holds up the coroutines of all pipes, so a coroutine waits by
    ``await`` only.
    """

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> asyncio.AbstractEventLoop:
        """The loop. Each ``enter`` needs a ``leave``."""
        with self._lock:
            self._users += 1
            if self._loop is None:
                loop = self._loop = _new_loop()
                self._thread = threading.Thread(
                    target=_run_for_ever, args=(loop,), name="surepipe-coroutines", daemon=True
                )
                self._thread.start()
            return self._loop

    def leave(self) -> None:
        """One user fewer; the thread ends with the last, and cancels what it has left."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(5.0)

    @property
    def thread(self) -> int | None:
        """The thread's number; None while there is none."""
        return None if self._thread is None else self._thread.ident


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """Until somebody calls ``stop``. An exit that some task raises ends only that task."""
    while True:
        try:
            loop.run_forever()
            break
        except (SystemExit, KeyboardInterrupt) as error:
            loop.call_exception_handler(
                {"message": "a task of a handler wanted to end the process", "exception": error}
            )
    left = [task for task in asyncio.all_tasks(loop) if not _closes_a_generator(task)]
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_S))
    loop.run_until_complete(close_generators(loop))
    loop.close()


async def close_generators(loop: asyncio.AbstractEventLoop) -> None:
    """Those that a handler left in the middle: what they hold until a ``finally`` is given back, before their loop
    is closed."""
    closing = [task for task in asyncio.all_tasks(loop) if _closes_a_generator(task)]
    closing.append(loop.create_task(loop.shutdown_asyncgens()))
    await asyncio.wait(closing, timeout=CANCEL_S)


def _closes_a_generator(task: asyncio.Task[Any]) -> bool:
    """What Python begins where nobody holds the generator any more."""
    return isinstance(task.get_coro(), _CLOSING)


SHARED_LOOP = SharedLoop()


class LoopCoroutines:
    """Coroutines on a loop of threads: the caller's own, or the shared one."""

    def __init__(
        self, own: asyncio.AbstractEventLoop | None = None, thread: int | None = None
    ) -> None:
        self._loop = own
        self._thread = thread
        self._is_own = own is not None
        self._lock = threading.Lock()
        self._waiting: set[int] = set()
        """The threads that wait for a coroutine."""
        self._is_cut_off = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop. Raises LoopEnded."""
        with self._lock:
            if self._loop is None:
                self._loop = SHARED_LOOP.enter()
        if self._loop.is_closed():
            raise _loop_ended()
        return self._loop

    @property
    def thread(self) -> int | None:
        """The thread that the loop runs on."""
        return self._thread if self._is_own else SHARED_LOOP.thread

    def wait(self, call: Awaitable[object]) -> object:
        """Run it there; this thread waits, or the task that stands in its place."""
        outcome = outcome_of(awaiting, call, standing_here())
        code = patient()
        if code is not None and asyncio._get_running_loop() is self.loop:
            # A task of its own, as from a thread: it may cancel itself, and what is around it goes on.
            context = (
                contextvars.copy_context()
            )  # that of this code: the task that waits has another
            result, failure = code.wait(lambda: _begin(outcome, context))
            if failure is not None:
                raise failure
            return result
        try:
            with self._lock:  # so that who cancels has seen this thread, or is seen here
                self._waiting.add(threading.get_ident())
                is_cut_off = self._is_cut_off
            if is_cut_off:  # of a function that was busy with something else until now
                _forget(outcome, call)
                raise asyncio.CancelledError
            return self._wait_in_thread(call, outcome)
        finally:
            self._waiting.discard(threading.get_ident())

    def _wait_in_thread(
        self, call: Awaitable[object], outcome: Coroutine[Any, Any, Outcome]
    ) -> object:
        try:
            if self.thread == threading.get_ident() and asyncio._get_running_loop() is not None:
                raise MisuseError(
                    "a coroutine can't be waited for on the thread of its own loop: await it"
                )
            loop = self.loop
            future = asyncio.run_coroutine_threadsafe(outcome, loop)
        except (RuntimeError, SurepipeError) as error:
            _forget(outcome, call)
            raise (_loop_ended() if isinstance(error, RuntimeError) else error) from None
        result, failure = _result_of(future, loop)
        if isinstance(failure, asyncio.CancelledError) and loop.is_closed():
            raise _loop_ended()
        if failure is not None:
            raise failure
        return result

    def cancel(self) -> bool:
        with self._lock:
            self._is_cut_off = True
            loop, waiting = self._loop, self._waiting.copy()
        if loop is None or not waiting:
            return False

        def end() -> None:
            for task, thread in _WAITING_FOR.copy().items():
                if thread in waiting:
                    task.cancel()

        with contextlib.suppress(RuntimeError):  # it is closed, and its tasks are gone
            # Behind a turn of the loop: one that was just put there has begun then, and is known.
            loop.call_soon_threadsafe(loop.call_soon, end)
        return asyncio._get_running_loop() is not loop

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and not self._is_own:
            SHARED_LOOP.leave()


def _forget(outcome: Coroutine[Any, Any, Outcome], call: Awaitable[object]) -> None:
    """Nobody will run this call."""
    outcome.close()
    if inspect.iscoroutine(call):
        call.close()


def _result_of(
    future: Future[tuple[object, BaseException | None]], loop: asyncio.AbstractEventLoop
) -> tuple[object, BaseException | None]:
    """A loop that is closed forgets what was put into it: nobody else would say so."""
    while True:
        try:
            return future.result(LOOK_S)
        except TimeoutError:
            if loop.is_closed():
                raise _loop_ended() from None
        except CancelledError:
            return None, asyncio.CancelledError()


Outcome: TypeAlias = tuple[object, BaseException | None]
"""What a call gave, or what it raised."""

_WAITING_FOR: dict[asyncio.Task[Any], object] = {}
"""The tasks that calls of handlers run in, and for each the task or thread that waits for it."""


def standing_here() -> object:
    """The thread that asks, or its task where a loop runs; in a call of a handler whoever waits for its end."""
    if asyncio._get_running_loop() is None:
        return threading.get_ident()
    task = asyncio.current_task()
    return task if task is None else _WAITING_FOR.get(task, task)


async def outcome_of(
    function: Callable[[T], Awaitable[object]], argument: T, waiting: object = None
) -> Outcome:
    """Call it and await it, in a task of its own. Whatever it raises is its failure: an exit must not end the
    loop, a cancellation reaches whoever waits as what it is, and a GeneratorExit is not the end of the loop, as
    nobody throws that into the one who waits."""
    task = asyncio.current_task()
    assert task is not None
    _WAITING_FOR[task] = waiting
    try:
        return await function(argument), None
    except BaseException as error:  # noqa: BLE001 - raised again, or noted, where somebody waits
        return None, error
    finally:
        del _WAITING_FOR[task]


async def awaiting(call: Awaitable[object]) -> object:
    """What it gives, whatever kind of awaitable it is."""
    return await call


async def own_outcome(function: Callable[[T], Awaitable[object]], argument: T) -> Outcome:
    """Like ``outcome_of``, in a task of its own: cancelling the call spares the waiting task, so a handler may
    cancel the task that it runs in. Raises CancelledError where the task that waits is cancelled."""
    task = _begin(outcome_of(function, argument, asyncio.current_task()))
    try:
        if task.done():  # others on the loop get a turn
            await asyncio.sleep(0)
        result, failure = await task
    except asyncio.CancelledError as error:
        result, failure = None, error
    if must_end():  # a handler may have swallowed it
        raise asyncio.CancelledError
    return result, failure


async def outcome_here(function: Callable[[T], Awaitable[object]], argument: T) -> Outcome:
    """The same in the task that waits, for code that has no reason to cancel it. Raises CancelledError where that
    task is cancelled."""
    result: object = None
    failure: BaseException | None = None
    try:
        result = await function(argument)
    except BaseException as error:  # noqa: BLE001 - noted where somebody waits
        failure = error
    if must_end():
        raise asyncio.CancelledError
    return result, failure


def _begin(
    call: Coroutine[Any, Any, Outcome], context: contextvars.Context | None = None
) -> asyncio.Task[Outcome]:
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):  # a call that waits for nothing is done at once
        return asyncio.Task(call, loop=loop, eager_start=True, context=context)
    return loop.create_task(call, context=context)


@coroutine
def apart(call: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await this in a copy of the context, and in this very task: what it sets there is seen by itself alone, as
    if it had a task of its own, which costs more."""
    run = contextvars.copy_context().run
    try:
        asked = run(call.send, None)
        while True:
            try:
                answer = yield asked
            except GeneratorExit:
                run(call.close)
                raise
            except BaseException as error:  # noqa: BLE001 - raised again there
                asked = run(call.throw, error)
            else:
                asked = run(call.send, answer)
    except StopIteration as done:
        return cast("T", done.value)


async def look_at_cancellation(task: asyncio.Task[Any]) -> bool:
    """In a call of a handler that was cancelled, and that returned all the same. Raises CancelledError where it
    has not met the cancellation yet, as asyncio does for a task that returns with one; what it has caught is
    over. False when whoever waits for the call is to end, so nothing more is to be begun."""
    await asyncio.sleep(0)
    while task.cancelling():
        task.uncancel()
    waiting = _WAITING_FOR.get(task)
    return not (isinstance(waiting, asyncio.Task) and waiting.cancelling())


async def within(
    call: Awaitable[object], limit_s: float, late: Callable[[], BaseException]
) -> object:
    """What it gives within this time. Then it is cancelled, and ``late()`` is raised once it has ended, or after
    as long again: what clings to life is left alone."""
    task = asyncio.ensure_future(outcome_of(awaiting, call, standing_here()))
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
    except BaseException:
        task.cancel()
        raise
    if done:
        result, failure = task.result()
        if failure is not None:
            raise failure
        return result
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=limit_s)
    if not done:
        logger.warning(
            "a coroutine that is late does not end though it was cancelled: it is left alone"
        )
    raise late()


@contextlib.contextmanager
def outside_of_loops() -> Generator[None]:
    """While this lasts no loop runs in this thread, so another one may: that of this code goes on afterwards."""
    around = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(around)


class TurnCoroutines:
    """Coroutines in virtual time. ``sleep`` lets so many microseconds pass, or None: until something happens."""

    loop = thread = None

    def __init__(self, now: Callable[[], int], sleep: Callable[[int | None], object]) -> None:
        self._now = now
        self._sleep = sleep

    def wait(self, call: Awaitable[object]) -> object:
        """Run it on a loop of its own, whose time is virtual."""
        loop = VirtualLoop(self._now, self._sleep)
        with outside_of_loops(), contextlib.closing(loop):
            result, error = loop.run_until_complete(outcome_of(awaiting, call))
            loop.run_until_complete(close_generators(loop))
        if error is not None:
            raise error
        return result

    def cancel(self) -> bool:
        """Nobody waits longer than a turn."""
        return False

    def close(self) -> None:
        """Nothing is kept."""


class _Selector:
    """What a loop in virtual time waits on: nothing but time."""

    def __init__(self, sleep: Callable[[int | None], object]) -> None:
        self._sleep = sleep

    def select(self, timeout: float | None) -> list[object]:
        """Let virtual time pass, and others run."""
        if timeout is None or timeout > 0:
            with outside_of_loops():
                self._sleep(None if timeout is None else round(timeout * 1_000_000) + 1)
        return []


class VirtualLoop(BaseEventLoop):
    """Its time is that of a simulation."""

    def __init__(self, now: Callable[[], int], sleep: Callable[[int | None], object]) -> None:
        super().__init__()
        self._now = now
        self._selector = _Selector(sleep)

    def time(self) -> float:
        return self._now() / 1_000_000

    def _process_events(self, event_list: object) -> None:
        del event_list

    def _write_to_self(self) -> None:
        pass


# Actors whose turns are coroutines.


class TaskActor(Protocol):
    """An actor whose turns are coroutines: as ``runtime.Actor``, and it may wait in a turn without a thread."""

    async def receive(self, message: object) -> object: ...

    def died(self, error: BaseException) -> None:
        """The actor ended by this error. The last call it gets."""
        ...


class _Stop:
    """The last message of an actor."""


_STOP = _Stop()


class RunningTask:
    """An actor in a task of a loop, with a copy of this context. Raises LoopEnded where the loop is closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        actor: TaskActor,
        name: str,
        context: contextvars.Context,
    ) -> None:
        self._loop = loop
        self._actor = actor
        self._name = name
        self._context = context
        self._inbox: deque[tuple[object, Future[object] | None]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ended = threading.Event()
        self._is_at_work = False
        self._is_told_to_stop = False
        self._is_cancelled = False
        try:
            loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            raise _loop_ended() from None

    def _begin(self) -> None:
        context = self._context.copy()
        self._task = self._loop.create_task(self._live(), name=self._name, context=context)

    async def _live(self) -> None:
        try:
            while await self._take_all():
                await self._wake.wait()
                self._wake.clear()
        except BaseException as error:
            self._ended.set()
            if not (self._is_cancelled or isinstance(error, GeneratorExit)):
                self._actor.died(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._ended.set()
            self._give_up()

    async def _take_all(self) -> bool:
        """False when it was told to stop."""
        while self._inbox:
            message, asking = self._inbox.popleft()
            if isinstance(message, _Stop):
                return False
            self._is_at_work = True
            try:
                answer = await self._actor.receive(message)
            finally:
                self._is_at_work = False
            if asking is not None:
                asking.set_result(answer)
        return True

    def _give_up(self) -> None:
        while self._inbox:
            _, asking = self._inbox.popleft()
            if asking is not None:
                asking.set_exception(pykka.ActorDeadError(f"{self._name} has ended"))

    def tell(self, message: object) -> bool:
        """Put a message into the inbox; False when the actor has ended, or its loop has."""
        return self._put(message, None)

    def _put(self, message: object, asking: Future[object] | None) -> bool:
        if self._ended.is_set():
            return False
        self._inbox.append((message, asking))
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake.set)
        return self.look_after()

    def look_after(self) -> bool:
        """True while its loop is there. A loop that is closed takes its tasks with it, some without a word."""
        if not self._loop.is_closed():
            return True
        if not self._ended.is_set():
            self._ended.set()
            self._actor.died(_loop_ended())
        return False

    def ask(self, message: object, timeout: float | None) -> object:
        """Tell and wait for the answer."""
        asking: Future[object] = Future()
        if not self._put(message, asking):
            raise pykka.ActorDeadError(f"{self._name} has ended")
        try:
            return asking.result(timeout)
        except TimeoutError:
            raise pykka.Timeout(f"{timeout} seconds") from None

    def stop(self) -> None:
        """End after what is in the inbox."""
        self._is_told_to_stop = True
        if not self._put(_STOP, None):
            self._ended.set()

    def join(self, timeout: float) -> bool:
        """Wait for its end. The loop itself can't wait for its own task: there it is as good as ended when it was
        told to stop, and is at nothing."""
        if asyncio._get_running_loop() is self._loop:
            return self._ended.is_set() or (self._is_told_to_stop and not self._is_at_work)
        return self._ended.wait(timeout)

    def cancel(self) -> None:
        """End now, in the middle of a turn: what it was at is not done."""
        self._is_cancelled = True

        def end() -> None:
            if self._task is not None:
                self._task.cancel()

        if not self._ended.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(end)


def is_loop_of(thread: int | None) -> bool:
    """On this thread, whose loop runs, and outside of a task that waits in its place."""
    is_there = thread == threading.get_ident() and asyncio._get_running_loop() is not None
    return is_there and patient() is None


def must_end() -> bool:
    """In a task: somebody wants it to end, and that was no handler."""
    task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
    return task is not None and task.cancelling() > 0


# Code that waits as threads do, inside a task.


class Patient(greenlet):
    """Code that runs inside a task: where it would block the thread, the task waits in its place."""

    def wait(self, how: Callable[[], Awaitable[T]]) -> T:
        """From this code: let the task wait so."""
        assert self.parent is not None
        return cast("T", self.parent.switch(how))


def patient() -> Patient | None:
    """The code that runs now, if it is of this kind."""
    current = getcurrent()
    return current if isinstance(current, Patient) else None


async def in_task(work: Callable[[], T]) -> T:
    """Run this in the current task. A cancellation is raised where the code waits, whose ``finally`` runs."""
    code = Patient(work)
    code.gr_context = contextvars.copy_context()
    asked: Any = code.switch()
    while not code.dead:
        try:
            answer = await asked()
        except BaseException as error:  # noqa: BLE001 - raised again there
            asked = code.throw(error)
        else:
            asked = code.switch(answer)
    return cast("T", asked)


def _nobody() -> None:
    return None


class _Breath(threading.local):
    """The task of this thread's loop that made the last call, and so many of them without another one between."""

    task: Callable[[], object] = staticmethod(_nobody)
    calls = 0

    def is_due(self) -> bool:
        """A call of the current task: True when that has made so many that others should have a turn. A task of
        one call keeps its place among others of that kind."""
        task = asyncio.current_task()
        if task is None or self.task() is not task:
            self.task, self.calls = weakref.ref(task) if task is not None else _nobody, 0
        self.calls = (self.calls + 1) % BREATH
        return not self.calls


_BREATH = _Breath()


async def in_turn(work: Callable[[], T]) -> T:
    """As ``in_task``, for what a task may call again and again and never has to wait for. Others get their turn
    before anything happens that a cancellation would undo."""
    await breathe()
    return await in_task(work)


async def breathe() -> None:
    """Now and then others on the loop get a turn."""
    if _BREATH.is_due():
        await asyncio.sleep(0)


def let_others_run() -> None:
    """For code that is long at work without waiting: in a task, others on its loop get a turn."""
    if (code := patient()) is not None:
        code.wait(lambda: asyncio.sleep(0))


async def in_thread(work: Callable[[], T]) -> T:
    """Run this on a thread of its own, which goes on when the caller is cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            # Whoever closed a pipe meanwhile has said what is lost.
            if error is not None and not isinstance(error, PipeClosed):
                logger.warning(
                    "ended after its caller was cancelled, with %s: %s", type(error).__name__, error
                )
        elif error is None:
            future.set_result(cast("T", result))
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - raised again where somebody waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, result, error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name="surepipe-async", daemon=True)
    thread.start()
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # it has nothing left to do
