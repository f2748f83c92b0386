"""Supervision: a stable address for an actor that may die, and a new life for it when it does.

pykka has neither. A message to an actor that is dying is lost without a word, and that is how it is treated
here: as something a crash loses, which the protocol of the machines repairs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pykka

from surepipe.actors.consuming.coroutines import LoopEnded, RunningTask
from surepipe.actors.runtime import Actor, Running, Runtime
from surepipe.core.timing import BackOff
from surepipe.errors import described, so_often

logger = logging.getLogger("surepipe")


class Start:
    """The first message of every life: build the machine and wake it."""


class Kill:
    """End by an exception, as a defect would. For fault injection and tests."""


class Killed(RuntimeError):
    """What a ``Kill`` raises."""


def end_as_told(shell: pykka.Actor, actor: Actor, killed: Killed) -> None:
    """End an actor at once, as an error would. It is no defect, so pykka must not log it as one."""
    pykka.ActorRegistry.unregister(shell.actor_ref)
    shell.actor_stopped.set()
    actor.died(killed)


START = Start()
KILL = Kill()


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often, and after which waits, an actor gets another life. Times are seconds.

    The waits double from ``wait_min_s`` to ``wait_max_s`` and start over after a quiet ``within_s``. More than
    ``restarts_max`` deaths within ``within_s`` end it for good.
    """

    restarts_max: int = 5
    within_s: float = 60.0
    wait_min_s: float = 0.05
    wait_max_s: float = 5.0


class ActorKeeper:
    """Keeps one actor alive at one address.

    ``make`` builds the actor of the next life, or starts it itself (in a task of a loop). ``gone`` is called when
    it will not be restarted any more.
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        make: Callable[[], Actor | RunningTask],
        gone: Callable[[str], None],
        policy: RestartPolicy | None = None,
    ) -> None:
        self.name = name
        self.restarts = 0
        self._runtime = runtime
        self._make = make
        self._gone = gone
        self._policy = policy or RestartPolicy()
        self._lock = threading.Lock()
        self._running: Running | None = None
        self._threads: list[Running] = []
        self._stopped = False
        self._deaths: list[int] = []
        self._alarm = runtime.alarm(self._live)

    def start(self) -> None:
        self._live()

    @property
    def is_alive(self) -> bool:
        """False between two lives and after the last."""
        return self._running is not None

    def tell(self, message: object) -> bool:
        """Tell whoever lives here now; False when nobody does."""
        running = self._running
        return running is not None and running.tell(message)

    def ask(self, message: object, timeout: float | None) -> object:
        """Ask whoever lives here now; LookupError when nobody does."""
        running = self._running
        if running is None:
            raise LookupError(f"{self.name} is between two lives")
        return running.ask(message, timeout)

    def died(self, error: BaseException) -> None:
        """The actor that lived here has died: plan its next life, or give up."""
        with self._lock:
            if self._stopped:
                return
            self._running = None
            now = self._runtime.now()
            since = now - round(self._policy.within_s * 1_000_000)
            self._deaths = [*(at for at in self._deaths if at > since), now]
            deaths = len(self._deaths)
            is_over = isinstance(error, LoopEnded)  # another life would find its loop closed, too
            self._stopped = gives_up = is_over or deaths > self._policy.restarts_max
            if not gives_up:
                self.restarts += 1
                self._alarm.set(now + self._wait(deaths))
        # The first death of a defect tells where it was. What comes again says nothing new, and a cancellation not
        # where it comes from; a kill is no defect.
        is_news = deaths == 1 and not isinstance(error, (Killed, asyncio.CancelledError))
        logger.log(
            logging.DEBUG if isinstance(error, Killed) else logging.WARNING,
            "%s died of %s, death %d",
            *(self.name, described(error), deaths),
            exc_info=error if is_news else None,
        )
        if gives_up:
            self._gone(
                f"{self.name} died {so_often(deaths)} within {self._policy.within_s:g} s, "
                f"the last time of {described(error)}"
            )

    def _wait(self, deaths: int) -> int:
        return BackOff.of_seconds(self._policy.wait_min_s, self._policy.wait_max_s).calm(deaths)

    def _live(self) -> None:
        try:
            running = self._begin()
        except LoopEnded as error:
            with self._lock:
                self._stopped = True
            self._gone(f"{self.name} can't go on: {error}")
            return
        if running is not None:
            running.tell(START)

    def _begin(self) -> Running | None:
        """Begin a life, under the lock that ``stop`` takes. Without it:

        1. The keeper looks whether it is stopped, and it is not.
        2. ``stop`` finds nobody alive, as this is between two lives, and returns.
        3. The life begins. Nobody will ever end its thread.
        """
        with self._lock:
            if self._stopped:
                return None
            try:
                made = self._make()
                running = (
                    made if isinstance(made, RunningTask) else self._runtime.start(made, self.name)
                )
            except RuntimeError as error:  # the system has no thread for us now
                if not self._threads:
                    raise
                logger.warning("%s can't be started again yet: %s", self.name, error)
                wait = round(self._policy.wait_max_s * 1_000_000)
                self._alarm.set(self._runtime.now() + wait)
                return None
            self._threads = [*(old for old in self._threads if not old.join(0.0)), running]
            self._running = running
            return running

    def renew(self, wait_s: float) -> None:
        """The actor that lives here has come to its end in good order: begin the next life after a while."""
        with self._lock:
            if self._stopped:
                return
            running, self._running = self._running, None
            self._alarm.set(self._runtime.now() + round(wait_s * 1_000_000))
        if running is not None:
            running.stop()

    def retire(self) -> None:
        """No further life after this one."""
        with self._lock:
            self._stopped = True
            self._alarm.set(None)

    def stop(self) -> None:
        """End the actor after what it has in its inbox; no further life. A second call does nothing."""
        self.retire()
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    @property
    def _tasks(self) -> list[RunningTask]:
        return [life for life in self._threads if isinstance(life, RunningTask)]

    def cancel(self) -> bool:
        """End what lives here in a task of a loop, in the middle of its turn; False where nothing does."""
        tasks = self._tasks
        for task in tasks:
            task.cancel()
        return bool(tasks)

    def look_after(self) -> None:
        """See whether what lives here in a task still has its loop."""
        for task in self._tasks:
            task.look_after()

    def join(self, timeout: float) -> bool:
        """Wait for the end of every life that was begun here; False when one goes on."""
        end = self._runtime.now() + round(timeout * 1_000_000)
        left = [
            running
            for running in self._threads
            if not running.join(max(0, end - self._runtime.now()) / 1_000_000)
        ]
        self._alarm.close()
        return not left
