"""How a run is told to stop, and that it then ends in bounded time, whatever its parts do.

The first signal asks for a drain: what was taken is finished, for so many seconds at the most. The second one
stops at once. A handler of signals may come between any two steps of the main thread, so it takes no lock: it
counts, and writes a byte into a pipe. A thread that reads the pipe ends the process when the main thread does not
get that done: a stage that never returns may hold what an orderly end needs. That is no worse than a kill, which a
run survives.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from surepipe.cli.exits import Exit

DRAIN_S = 30.0
CLOSE_S = 2.0
"""What an orderly end may take after a drain that was cut off, and after a second signal."""
GRACE_S = 4.0
"""After which more time, counted from the end of the drain, the process ends in any case."""


class Stopping:
    """Counts signals, and knows by when the run is to be over."""

    def __init__(
        self, drain_s: float = DRAIN_S, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.signals = 0
        self._drain_s = drain_s
        self._clock = clock
        self._asked_at: float | None = None
        self._hurried_at: float | None = None
        self._wake = -1

    @property
    def is_asked(self) -> bool:
        """True once somebody wants the run to stop."""
        return self.signals > 0

    @property
    def is_over(self) -> bool:
        """True when what is not through by now is to be left."""
        end = self._end()
        return end is not None and self._clock() >= end

    def _end(self) -> float | None:
        """When the drain is over; None while nobody wants an end."""
        if self._asked_at is None:
            return None
        end = self._asked_at + self._drain_s
        return end if self._hurried_at is None else min(end, self._hurried_at)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.signals += 1
        if self.signals == 1:
            self._asked_at = self._clock()
        elif self._hurried_at is None:
            self._hurried_at = self._clock()
        os.write(self._wake, b"!")

    @contextmanager
    def heard(self, last_words: Callable[[], None]) -> Generator[None]:
        """While this is open SIGINT and SIGTERM are heard here, and not one of them is in vain.

        ``last_words`` is called, from another thread, just before the process is ended for not ending by itself.
        """
        reading, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        thread = threading.Thread(
            target=self._watch, args=(reading, last_words), name="surepipe-stop", daemon=True
        )
        thread.start()
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, self._interrupted) for kind in kinds]
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)
            os.close(self._wake)  # the thread reads the end of the pipe, and ends
            thread.join()
            os.close(reading)

    def _watch(self, reading: int, last_words: Callable[[], None]) -> None:
        while True:
            end = self._end()
            left = None if end is None else max(0.0, end + GRACE_S - self._clock())
            ready, _, _ = select.select([reading], [], [], left)
            if not ready:
                _said(last_words)
                os._exit(Exit.INTERRUPTED)
            if not os.read(reading, 64):
                return


def _said(last_words: Callable[[], None]) -> None:
    """Nobody may be reading what is written there: that must not hold up the end."""
    speaker = threading.Thread(target=last_words, daemon=True)
    speaker.start()
    speaker.join(0.5)
