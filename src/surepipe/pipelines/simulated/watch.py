"""Notices a call of a user's function that does not come back, by the real clock.

Virtual time stands still while a stage is called, so a stage that loops for ever, or waits for a lock that nobody
gives back, would let a simulation hang without a word. A thread looks now and then whether the same call still
runs; after so long it says where, and lets the call raise. A call that waits inside of the interpreter can't be
made to raise: what it waits for is at least told on standard error.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeAlias

HANGS_AFTER_S = 5.0
"""So long may one call take, in real time."""
_LOOKS = 4
"""so often within that time"""

Progress: TypeAlias = Callable[[], object]
"""Equal as long as the same call runs; None while no user's code does."""
Told: TypeAlias = Callable[[FrameType], str]
"""Called once with the frame in which a call hangs; gives the words for it."""

_monotonic = time.monotonic
_frames: Callable[[], dict[int, FrameType]] = vars(sys)["_current_frames"]


class _Watch:
    """One thread that looks at the thread it was made in."""

    def __init__(
        self, progress: Progress, told: Told, error: type[BaseException], limit_s: float
    ) -> None:
        self._progress = progress
        self._told = told
        self._error = error
        self._limit_s = limit_s
        self._watched = threading.get_ident()
        self._is_over = threading.Event()
        self._said = ""
        self._has_sent = False
        self._thread = threading.Thread(target=self._look, name="surepipe-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing is raised from here on."""
        self._is_over.set()
        self._thread.join()
        if self._has_sent:
            self._let_out()

    def _let_out(self) -> None:
        """Raise here what the call has not raised yet.

        Taking it back would not do: Python would go on asking every thread at every step whether an error waits
        for it, and under a tracer (a debugger, a measurement of coverage) 3.11 then never gets past the next call.
        """
        with suppress(self._error):
            _raise_in(self._watched, self._error)
            while True:  # Python raises at a step backwards, if not before
                pass

    def _look(self) -> None:
        seen, since = self._progress(), _monotonic()
        while not self._is_over.wait(self._limit_s / _LOOKS):
            now, found = _monotonic(), self._progress()
            if found is None or found != seen:
                seen, since = found, now
            elif now - since >= self._limit_s:
                since = now
                self._interrupt()

    def _interrupt(self) -> None:
        if self._said:  # it caught what was raised, or waits where nothing can be
            sys.stderr.write(f"surepipe: {self._said}; it does not let itself be interrupted\n")
        else:
            self._said = self._told(_frames()[self._watched])
        self._has_sent = True
        _raise_in(self._watched, self._error)


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """The thread raises this at its next step, instead of another that it has not raised yet."""
    target = ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), target)


@contextmanager
def watched(
    progress: Progress, told: Told, error: type[BaseException], limit_s: float | None = None
) -> Generator[None]:
    """While this lasts, a call in this thread that makes no progress for so long raises ``error``."""
    watch = _Watch(progress, told, error, HANGS_AFTER_S if limit_s is None else limit_s)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
