"""Whether the stores of a run answer: each is asked a small question every second, on a thread of its own.

What a pipe knows of its store may be minutes old when the store hangs, and looks like nothing to do. So those who
look at a run are told how long a store has been silent, and when it answers again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from surepipe.core.store_requests import InfoOutcome, Unavailable
from surepipe.errors import StoreUnavailable
from surepipe.observe.numbers import seconds
from surepipe.observe.status import StoreSeen

logger = logging.getLogger("surepipe")
EVERY_S = 1.0
SILENT_S = 2.0
"""A store that has not answered for so long is called silent; until then it is only slow."""
_QUESTION = "surepipe-health"
"""No stream has this name: a store that says so has answered."""


class HealthQuestion(Protocol):
    """What is asked of a store."""

    def info(self, stream: str) -> InfoOutcome:
        """How a stream stands."""
        ...


class StoreHealth:
    """What is known of one store. ``ask`` may block for as long as the store does; ``seen`` never does.

    ``tell`` is called once when the store has fallen silent, and once when it answers again. ``waits_s``: for how
    long it has given a pipe no answer. A store may answer a question while it takes nothing, such as a file that
    another process writes to, so it is silent until it answers both.
    """

    def __init__(
        self,
        name: str,
        store: HealthQuestion,
        tell: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
        waits_s: Callable[[], float] = float,
    ) -> None:
        self.name = name
        self._store = store
        self._tell = tell
        self._clock = clock
        self._waits_s = waits_s
        self._lock = threading.Lock()
        self._answered = clock()
        self._says = ""
        self._is_silent = False

    def ask(self) -> None:
        """Ask now, and keep what became of it."""
        try:
            outcome = self._store.info(_QUESTION)
            says = outcome.detail if isinstance(outcome, Unavailable) else ""
        except StoreUnavailable as error:
            says = str(error)
        with self._lock:
            self._says = says
            was_silent = self._is_silent and not says
            silent_s = self._clock() - self._answered
            if not says:
                self._answered, self._is_silent = self._clock(), False
        if was_silent:
            self._tell(self.name, f"answers again, after {seconds(silent_s)}")

    def look(self) -> None:
        """Notice that an answer is overdue, though nobody has said so: who asked still waits."""
        with self._lock:
            has_fallen_silent = not self._is_silent and self._silence() >= SILENT_S
            self._is_silent |= has_fallen_silent
            because = f": {self._says}" if self._says else ""
        if has_fallen_silent:
            self._tell(self.name, f"does not answer{because}")

    def seen(self) -> StoreSeen:
        """What is known now. From any thread."""
        waits_s = self._waits_s()
        with self._lock:
            silence = max(self._silence(), waits_s)
            silent_s = round(silence, 1) if silence >= SILENT_S else None
            return StoreSeen(name=self.name, silent_s=silent_s, says=self._says)

    def _silence(self) -> float:
        return self._clock() - self._answered


class StoreWatch:
    """Asks these stores while it is open. A store that hangs holds up its own thread only.

    ``silent_s`` tells which stores give pipes no answer, and for how long.
    """

    def __init__(
        self,
        stores: Mapping[str, HealthQuestion],
        tell: Callable[[str, str], object],
        silent_s: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        def waits_s(name: str) -> float:
            return silent_s().get(name, 0.0)

        self._health = [
            StoreHealth(name, store, tell, waits_s=partial(waits_s, name))
            for name, store in stores.items()
        ]
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_asking, args=(each,), name=name, daemon=True)
            for each in self._health
            for name in [f"surepipe-health-{each.name}"]
        ]
        self._threads.append(
            threading.Thread(target=self._keep_looking, name="surepipe-health", daemon=True)
        )
        for thread in self._threads:
            thread.start()

    def seen(self) -> tuple[StoreSeen, ...]:
        """What is known of each. From any thread."""
        return tuple(each.seen() for each in self._health)

    def close(self) -> None:
        """Ask no more. A thread that a store holds up ends when the store lets it go."""
        self._over.set()
        self._threads[-1].join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _keep_asking(self, health: StoreHealth) -> None:
        while not self._over.wait(EVERY_S):
            health.ask()

    def _keep_looking(self) -> None:
        while not self._over.wait(EVERY_S):
            for health in self._health:
                health.look()
