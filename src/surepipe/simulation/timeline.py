"""The time of a run: one heap of what will happen, and the rows of what did.

It takes one event, gives it to its target, and goes on with the next, until nothing is left or a limit is met.
There is one thread and no time but the integer in ``now``.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from heapq import heappop, heappush
from typing import TypeAlias

from surepipe.audit.trace import Row, Rows
from surepipe.simulation.chance.chooser import Chooser
from surepipe.simulation.events import Event, EventTarget, FrameFlight
from surepipe.simulation.options import Options

Entry: TypeAlias = tuple[int, int, int, EventTarget, Event]
"""(time, tie, number, target, event). The number is unique, so targets and events are never compared."""


@lru_cache(maxsize=1 << 16)
def digest_of(payload: bytes) -> str:
    """The 16 digits that stand for a payload in rows."""
    return blake2b(payload, digest_size=8).hexdigest()


def digests_of(payloads: Sequence[bytes]) -> str:
    """Those of several payloads, one after the other."""
    if len(payloads) == 1:
        return digest_of(payloads[0])
    return "".join(map(digest_of, payloads))


def as_detail(facts: Mapping[str, object]) -> str:
    """Facts as a row carries them: JSON with sorted keys."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))


@contextmanager
def collector_at_rest() -> Generator[None]:
    """No search for garbage meanwhile: what a run makes it keeps, so each search would be in vain."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Timeline:
    """Time, order, and the record."""

    def __init__(self, run: str, options: Options, chooser: Chooser) -> None:
        self.run_name = run
        self.options = options
        self.chooser = chooser
        self.now = 0
        self.events = 0
        self.limit = ""
        self.rows = Rows()
        self.cells = self.rows.cells
        self.heap: list[Entry] = []
        self.marks: set[str] = set()
        self.is_draining = False
        self.asked: list[tuple[str, Event]] | None = None
        self.error: Exception | None = None
        self._number = 0
        self._has_ties = chooser.has_ties

    # What will happen.

    def at(self, time_us: int, target: EventTarget, event: Event) -> None:
        """This happens to the target at that time."""
        self._number = number = self._number + 1
        tie = self.chooser.tie(target.name, event) if self._has_ties else 0
        heappush(self.heap, (time_us, tie, number, target, event))

    def run(self) -> None:
        """Take events until none is left, or a limit is met, or nothing but idle deadlines remain."""
        heap = self.heap
        events_max, time_max = self.options.events_max, self.options.time_max_us
        while heap:
            entry = heappop(heap)
            self.now = entry[0]
            if self.is_draining and len(heap) < 16 and self._is_over(entry):
                return
            if self.now > time_max or self.events >= events_max:
                self.limit = "time" if self.now > time_max else "events"
                return
            self.events += 1
            try:
                entry[3].take(entry[4])
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding of this run
                self.raised(entry[3].name, error)
                return

    def _is_over(self, entry: Entry) -> bool:
        """True when nothing but the deadlines of idle nodes is left, and the time of grace has passed."""
        del entry
        return False

    def raised(self, node: str, error: Exception) -> None:
        """Something raised that must not: the run is over, and this is what it found."""
        self.limit = "raised"
        self.error = error
        facts = {"exception": f"{type(error).__name__}: {error}"}
        self.note(node, 0, "crash", detail=as_detail(facts))

    # What happened.

    def note(
        self,
        node: str,
        incarnation: int,
        kind: str,
        cause: str = "",
        detail: str = "",
        **more: object,
    ) -> None:
        """A row that is not on the way of every frame."""
        row = Row(
            self.run_name, node, incarnation, len(self.rows), cause, self.now, kind, detail=detail
        )
        for name, value in more.items():
            setattr(row, name, value)
        self.rows.append(row)

    def tell_frame(
        self,
        node: str,
        incarnation: int,
        kind: str,
        flight: FrameFlight,
        facts: Mapping[str, object],
    ) -> None:
        """A row about what befell a frame."""
        row = (self.run_name, node, incarnation, len(self.cells), flight.cause, self.now, kind)
        self.cells.append((*row, *flight.told[:9], as_detail(facts), ""))

    def mark(self, name: str) -> None:
        """Something worth exercising was exercised."""
        self.marks.add(name)


# The clocks of a node: a monotonic one that drifts, and a wall clock that also jumps.
#
# The world's own time is exact. Machines are told the monotonic clock of their process and nothing else; the
# wall clock shows only in the number that a new life starts from.


MILLION = 1_000_000
DRIFT_PPM_MAX = 200


@dataclass(frozen=True, slots=True)
class MonotonicClock:
    """Runs ``drift_ppm`` millionths too fast (or, below zero, too slow)."""

    drift_ppm: int = 0

    def reading(self, world_us: int) -> int:
        """What it shows at this time of the world."""
        return world_us + world_us * self.drift_ppm // MILLION

    def when(self, reading_us: int) -> int:
        """The first time of the world at which it shows at least this."""
        if not self.drift_ppm:
            return reading_us
        rate = MILLION + self.drift_ppm
        guess = reading_us * MILLION // rate
        while self.reading(guess) >= reading_us > 0 and guess > 0:
            guess -= 1
        while self.reading(guess) < reading_us:
            guess += 1
        return guess


@dataclass(slots=True)
class WallClock:
    """Runs like the world and jumps when told, forwards or back."""

    origin_us: int = 0
    jumps_us: list[int] = field(default_factory=list[int])

    def jump(self, by_us: int) -> None:
        """Step by so much, now."""
        self.jumps_us.append(by_us)

    def reading(self, world_us: int) -> int:
        """What it shows at this time of the world."""
        return self.origin_us + world_us + sum(self.jumps_us)
