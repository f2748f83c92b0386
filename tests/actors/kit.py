"""Small helpers of the tests of actors."""

from __future__ import annotations

import threading
from collections.abc import Callable

from surepipe.actors.notices import PipeNotice
from surepipe.actors.runtime import Runtime

PATIENCE_S = 8.0
"""How long a test on threads waits for what must happen before it fails loudly."""


def await_that(runtime: Runtime, predicate: Callable[[], bool], what: str) -> None:
    """Wait until the predicate holds, looking every millisecond of the runtime's time."""
    signal = runtime.signal()

    def look_again() -> None:
        signal.notify()
        alarm.set(runtime.now() + 1_000)

    alarm = runtime.alarm(look_again)
    look_again()
    try:
        assert signal.wait(predicate, PATIENCE_S), f"never happened: {what}"
    finally:
        alarm.close()


class Gate:
    """A handler that stops at chosen messages until it is let through. For threads."""

    def __init__(self, *stops: object) -> None:
        self.stops = set(stops)
        self.seen: list[object] = []
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, message: object) -> None:
        if message in self.stops:
            self.reached.set()
            assert self.opened.wait(PATIENCE_S), "the gate was never opened"
        self.seen.append(message)

    def await_reached(self) -> None:
        """Wait until the handler stands at the gate."""
        assert self.reached.wait(PATIENCE_S), "the handler never came to the gate"


class Failing:
    """A handler that raises the given number of times for each chosen message."""

    def __init__(self, **failures: int) -> None:
        self.left = failures
        self.calls: list[object] = []
        self.done: list[object] = []

    def __call__(self, message: object) -> None:
        self.calls.append(message)
        name = str(message)
        if self.left.get(name, 0):
            self.left[name] -= 1
            raise ValueError(f"no {name} today")
        self.done.append(message)


class Noted:
    """A notices callback that keeps them."""

    def __init__(self) -> None:
        self.notices: list[PipeNotice] = []

    def __call__(self, notice: PipeNotice) -> None:
        self.notices.append(notice)

    def kinds(self) -> list[str]:
        """The kinds, in order."""
        return [str(notice.kind) for notice in self.notices]
