"""What a stage is: something that needs things, counts what it did, and fails below its minimum."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random


class TooLittle(AssertionError):
    """A stage ran and did less than it must: a pass of it would mean nothing."""


@dataclass
class Tally:
    """What a stage did, how often, and how long each thing took. Threads may share it."""

    minimum: Mapping[str, int] = field(default_factory=dict[str, int])
    counts: Counter[str] = field(default_factory=Counter[str])
    slowest: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    notes: list[str] = field(default_factory=list[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str, count: int = 1) -> None:
        """So many more of this."""
        with self._lock:
            self.counts[what] += count

    def note(self, text: str) -> None:
        """Something to say in the stage's line, once."""
        if text not in self.notes:
            self.notes.append(text)

    @contextmanager
    def timed(self, name: str) -> Generator[None]:
        """Note how long the block took; the three longest are kept."""
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            with self._lock:
                self.slowest = sorted([*self.slowest, (took, name)], reverse=True)[:3]

    def check(self) -> None:
        """Raises TooLittle for what stayed below its minimum."""
        short = [
            f"{what}: {self.counts[what]} of {least}"
            for what, least in self.minimum.items()
            if self.counts[what] < least
        ]
        if short:
            raise TooLittle("below the minimum: " + ", ".join(short))

    def __str__(self) -> str:
        text = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        slowest = ", ".join(f"{name} {took:.2f} s" for took, name in self.slowest)
        return "; ".join([text, *self.notes]) + (f"; slowest: {slowest}" if slowest else "")


@dataclass(frozen=True)
class Stage:
    """``needs`` says what is missing here, empty when nothing is. ``run`` raises when something is wrong.

    ``minimum`` is what it must reach; ``omits`` says what it does not exercise.
    """

    name: str
    group: str
    run: Callable[[Random, Tally], None]
    minimum: Mapping[str, int]
    needs: Callable[[], str]
    omits: str = ""

    def tally(self) -> Tally:
        """An empty one, with the stage's minimum."""
        return Tally(self.minimum)
