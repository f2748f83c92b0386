"""The runtime of production: each actor is a pykka actor with a thread, and one timer thread serves them all.

pykka's seams are used as they are meant: the inbox is the C queue of the standard library, the loop keeps hold of
its thread so that it can be joined, and every actor stands in ``pykka.ActorRegistry`` while it lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from random import Random, SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import pykka

from surepipe.actors.consuming.coroutines import SHARED_LOOP, LoopCoroutines, patient, standing_here
from surepipe.actors.runtime import Actor
from surepipe.actors.supervision import Killed, end_as_told
from surepipe.errors import MisuseError

if TYPE_CHECKING:
    from pykka._actor import ActorInbox


# Deadlines: a heap of alarms, and the one thread that rings those of a whole process.
#
# An alarm is usually moved a little later, again and again, and rarely rings. So moving it later leaves its
# entry in the heap alone: the entry is pushed on when its time comes. Only moving an alarm earlier adds an
# entry.


_SLACK = 64
logger = logging.getLogger("surepipe")


class HeapAlarm:
    """An alarm as the heap knows it. ``queued`` is the time of its one valid entry."""

    __slots__ = ("deadline", "queued", "ring")

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.deadline: int | None = None
        self.queued: int | None = None


class AlarmHeap:
    """Which alarm rings next. Not safe for threads."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, HeapAlarm]] = []
        self._pushed = 0
        self._armed = 0

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, alarm: HeapAlarm, deadline: int | None) -> bool:
        """Arm or disarm; True when the next ring may be earlier than before."""
        self._armed += (deadline is not None) - (alarm.deadline is not None)
        alarm.deadline = deadline
        if deadline is None or (alarm.queued is not None and alarm.queued <= deadline):
            return False
        self._push(alarm, deadline)
        if len(self._entries) > 2 * self._armed + _SLACK:
            self._compact()
        return self._entries[0][2] is alarm

    def next(self) -> int | None:
        """The time of the next ring, exactly; None when no alarm is armed."""
        entries = self._entries
        while entries:
            queued, _, alarm = entries[0]
            if alarm.queued == queued and alarm.deadline == queued:
                return queued
            heapq.heappop(entries)
            if alarm.queued == queued:
                alarm.queued = None
                if alarm.deadline is not None:
                    self._push(alarm, alarm.deadline)
        return None

    def pop_due(self, now: int) -> list[HeapAlarm]:
        """Disarm and give every alarm whose time has come, earliest first."""
        due: list[HeapAlarm] = []
        while (at := self.next()) is not None and at <= now:
            alarm = heapq.heappop(self._entries)[2]
            alarm.queued = alarm.deadline = None
            self._armed -= 1
            due.append(alarm)
        return due

    def _push(self, alarm: HeapAlarm, at: int) -> None:
        self._pushed += 1
        alarm.queued = at
        heapq.heappush(self._entries, (at, self._pushed, alarm))

    def _compact(self) -> None:
        """Drop the entries that mean nothing any more: they outnumber the others."""
        self._entries = [entry for entry in self._entries if entry[2].queued == entry[0]]
        heapq.heapify(self._entries)


class TimerThread:
    """Rings the alarms of a process. It runs while somebody holds an alarm, and ends with the last one."""

    def __init__(self) -> None:
        self._heap = AlarmHeap()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._held = 0
        self._thread: threading.Thread | None = None

    def alarm(self, ring: Callable[[], None]) -> ThreadAlarm:
        """A new alarm, disarmed; ``ring`` is called on the timer's thread."""
        with self._lock:
            self._held += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="surepipe-timer", daemon=True
                )
                self._thread.start()
        return ThreadAlarm(self, ring)

    def set(self, alarm: HeapAlarm, deadline: int | None) -> None:
        with self._lock:
            if self._heap.set(alarm, deadline):
                self._changed.notify()

    def release(self, alarm: HeapAlarm) -> None:
        """An alarm is given back; the thread ends with the last one."""
        with self._lock:
            self._heap.set(alarm, None)
            self._held -= 1
            if self._held:
                return
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            for alarm in due:
                try:
                    alarm.ring()
                except Exception:
                    logger.exception("an alarm raised; the others are not its business")

    def _wait(self) -> list[HeapAlarm] | None:
        """The alarms that are due, once there are any; None when this thread is not wanted any more."""
        with self._lock:
            while self._thread is threading.current_thread():
                now = time.monotonic_ns() // 1000
                due = self._heap.pop_due(now)
                if due:
                    return due
                at = self._heap.next()
                self._changed.wait(None if at is None else (at - now) / 1_000_000)
            return None


class ThreadAlarm(HeapAlarm):
    """An alarm on the timer thread."""

    __slots__ = ("_open", "_timer")

    def __init__(self, timer: TimerThread, ring: Callable[[], None]) -> None:
        super().__init__(ring)
        self._timer = timer
        self._open = True

    def set(self, deadline: int | None) -> None:
        """Ring at this time; None disarms."""
        self._timer.set(self, deadline if self._open else None)

    def close(self) -> None:
        """Give the alarm back; a second call does nothing."""
        if self._open:
            self._open = False
            self._timer.release(self)


JOIN_FOREVER_S = 365 * 86_400.0


class ActorFailed(RuntimeError):
    """Stands for an exception that is none of ``Exception``: pykka would end every actor for it."""


class ThreadShell(pykka.ThreadingActor):
    """The pykka actor around one of ours. Its thread is a daemon: a forgotten pipe doesn't hang the exit."""

    use_daemon_thread = True

    def __init__(self, actor: Actor, name: str) -> None:
        super().__init__()
        self.actor = actor
        self.thread = threading.Thread(target=self._actor_loop, name=name, daemon=True)

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        return inbox

    def begin(self) -> None:
        """Register the actor and start its thread, as ``Actor.start`` does for one that it makes."""
        pykka.ActorRegistry.register(self.actor_ref)
        self._start_actor_loop()

    def _start_actor_loop(self) -> None:
        self.thread.start()

    def on_receive(self, message: object) -> object:
        try:
            return self.actor.receive(message)
        except Killed as killed:
            end_as_told(self, self.actor, killed)
            return None
        except Exception:
            raise
        except BaseException as error:
            raise ActorFailed(f"{type(error).__name__} in {self.thread.name}") from error

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
        return self.thread.name


class RunningThread:
    """A started actor and its thread."""

    def __init__(self, ref: pykka.ActorRef[Any], thread: threading.Thread) -> None:
        self._ref = ref
        self._thread = thread

    def tell(self, message: object) -> bool:
        """Put a message into the inbox; False when the actor has ended."""
        try:
            self._ref.tell(message)
        except pykka.ActorDeadError:
            return False
        return True

    def ask(self, message: object, timeout: float | None) -> object:
        """Tell and wait for the answer."""
        answer: object = self._ref.ask(message, timeout=timeout)
        return answer

    def stop(self) -> None:
        """End after what is in the inbox."""
        self._ref.stop(block=False)

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread; True at once on that very thread, which can't wait for itself."""
        if self._thread is threading.current_thread():
            return True
        self._thread.join(min(max(timeout, 0.0), JOIN_FOREVER_S))
        return not self._thread.is_alive()


Predicate: TypeAlias = Callable[[], bool]


class ThreadSignal:
    """A condition that costs nothing to notify while nobody waits.

    The waiter counts itself before it looks at the predicate, and whoever notifies has changed what the
    predicate looks at before: one of the two sees the other.
    """

    def __init__(self) -> None:
        self.loop_thread: int | None = None
        self._condition = threading.Condition()
        self._waiting = 0
        self._tasks: dict[asyncio.AbstractEventLoop, dict[asyncio.Event, Predicate]] = {}
        self._looking: set[asyncio.AbstractEventLoop] = set()
        """The loops that have been asked to look, and have not begun to."""

    def wait(self, predicate: Predicate, timeout: float | None) -> bool:
        """Wait until the predicate holds; False when it doesn't in time. Raises MisuseError on the thread of a
        loop that handlers need."""
        code = patient()
        if code is not None:
            return code.wait(lambda: self._wait_in_task(predicate, timeout))
        if self.is_for_itself() and not predicate():
            raise MisuseError(
                "this would block the event loop that handlers run on, and so wait for itself: await the same of "
                "the async face (async with Pipe(...) as pipe), or call it with asyncio.to_thread"
            )
        with self._condition:
            self._waiting += 1
            try:
                limit = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
                return self._condition.wait_for(predicate, limit)
            finally:
                self._waiting -= 1

    def is_for_itself(self) -> bool:
        """On the thread of a loop that handlers need, outside of a task that waits in its place."""
        if asyncio._get_running_loop() is None or patient() is not None:
            return False
        return threading.get_ident() in (self.loop_thread, SHARED_LOOP.thread)

    def notify(self) -> None:
        if self._waiting:
            with self._condition:
                self._condition.notify_all()
                for loop in self._tasks.keys() - self._looking:
                    self._looking.add(loop)
                    with contextlib.suppress(
                        RuntimeError
                    ):  # it is closed, its waiters gone with it
                        loop.call_soon_threadsafe(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """On this loop: wake the tasks that have what they wait for. To wake each of thousands for every change
        would take all of the loop's time."""
        with self._condition:
            self._looking.discard(loop)
            tasks = list(self._tasks.get(loop, {}).items())
        for changed, predicate in tasks:
            if _may_hold(predicate):
                changed.set()

    async def _wait_in_task(self, predicate: Predicate, timeout: float | None) -> bool:
        """As ``wait``, without the thread."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        with self._condition:
            self._waiting += 1
            self._tasks.setdefault(loop, {})[changed] = predicate
        try:
            async with asyncio.timeout(timeout):
                while not predicate():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            return predicate()
        finally:
            with self._condition:
                self._waiting -= 1
                del self._tasks[loop][changed]
                if not self._tasks[loop]:
                    del self._tasks[loop]
        return True


def _may_hold(predicate: Predicate) -> bool:
    try:
        return predicate()
    except Exception:  # noqa: BLE001 - the task that waits asks again, and raises it
        return True


class ThreadRuntime:
    """Actors on threads. One instance, ``THREADS``, serves a whole process."""

    def __init__(self) -> None:
        self._timer = TimerThread()

    def begin_anew(self) -> None:
        """In the child of a fork: the timer's thread is the parent's, and rings nothing here."""
        self._timer = TimerThread()

    def now(self) -> int:
        return time.monotonic_ns() // 1000

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def rng(self, seed: int | None) -> Random:
        return Random(SystemRandom().getrandbits(128) if seed is None else seed)

    def here(self) -> object:
        return standing_here()

    def start(self, actor: Actor, name: str) -> RunningThread:
        """Start an actor on a thread of this name."""
        shell = ThreadShell(actor, name)
        shell.begin()
        return RunningThread(shell.actor_ref, shell.thread)

    def alarm(self, ring: Callable[[], None]) -> ThreadAlarm:
        """A new alarm on the timer thread."""
        return self._timer.alarm(ring)

    def signal(self) -> ThreadSignal:
        return ThreadSignal()

    def lock(self) -> contextlib.AbstractContextManager[object]:
        return threading.RLock()

    def coroutines(
        self, loop: asyncio.AbstractEventLoop | None = None, thread: int | None = None
    ) -> LoopCoroutines:
        """On this loop, or on the one that the process shares."""
        return LoopCoroutines(loop, thread)


THREADS = ThreadRuntime()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.begin_anew)
