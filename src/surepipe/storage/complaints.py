"""Tells people why a store does not do what it is asked: once, and again at long intervals as long as it goes on.

Whoever asked is told each time, and asks again; a line of the log for each of that would bury everything else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("surepipe")
AGAIN_S = 60.0


class Complaints:
    """Limits how often one store complains of the same thing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: gives seconds."""
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._lock = threading.Lock()

    def hear(self, detail: str) -> None:
        """The store could not do something, for this reason. From any thread."""
        with self._lock:
            now = self._clock()
            if now < self._quiet_until.get(detail, now):
                return
            self._quiet_until[detail] = now + AGAIN_S
        logger.warning(
            "a store can't do what it is asked; that waits and is tried again: %s", detail
        )


def tell_removed(stream: str, removed: tuple[int, int] | None) -> None:
    """Somebody took entries out of a stream. A store tells it once, so the log has it, whoever asked."""
    if removed is not None:
        logger.warning(
            "somebody else removed entries %d..%d (by index) of stream %r, or some of them",
            *removed,
            stream,
        )
