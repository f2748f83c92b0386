"""What the trace of a run tells: how many messages are through each pipe, how quickly, and how long each took."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from surepipe.actors.tracing import Columns
from surepipe.observe.latency import Latencies

FINE_BOUNDS_US = tuple(dict.fromkeys(round(10 * 1.05**step) for step in range(330)))
"""From 10 us to more than a minute, each bound a twentieth above the one before."""
_DONE = frozenset({"settled", "dead"})


@dataclass(slots=True)
class Passed:
    """Messages of one pipe, and the times of the first that was accepted and the last that was done.

    Done is what was settled, and what became a dead letter. What a pipe gets in the transaction of the one before
    it is stored and not accepted: such a pipe begins with the first message of the run.
    """

    accepted: int = 0
    done: int = 0
    dead: int = 0
    first_us: int = 0
    last_us: int = 0

    @property
    def per_s(self) -> float:
        """Messages per second; 0 where nothing was measured."""
        took_us = self.last_us - self.first_us
        return self.done * 1_000_000 / took_us if took_us > 0 else 0.0

    @property
    def under_way(self) -> int:
        """Accepted, and not done."""
        return max(0, self.accepted - self.done)


class Gauge:
    """A trace's sink. ``latencies`` has how long messages took, under the full names of pipes."""

    with_digests = False

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pipes: dict[str, Passed] = {}
        self._began_us: int | None = None
        self.latencies = Latencies(bounds_us=FINE_BOUNDS_US)

    def write(self, columns: Columns) -> None:
        """Take a row of the trace."""
        self.latencies.write(columns)
        kind = str(columns["kind"])
        if kind == "accepted" or kind in _DONE:
            pipe = str(columns["pipe"]).partition("@")[0]
            with self._changed:
                self._count(pipe, kind, int(columns["count"]), int(columns["time_us"]))
                self._changed.notify_all()

    def _count(self, pipe: str, kind: str, messages: int, now_us: int) -> None:
        if self._began_us is None:
            self._began_us = now_us
        if pipe not in self._pipes:
            first_us = now_us if kind == "accepted" else self._began_us
            self._pipes[pipe] = Passed(first_us=first_us, last_us=first_us)
        passed = self._pipes[pipe]
        if kind == "accepted":
            passed.accepted += messages
            return
        passed.done += messages
        passed.dead += messages if kind == "dead" else 0
        passed.last_us = now_us

    def of(self, pipe: str) -> Passed:
        """A pipe by its full name, as it stands now."""
        with self._changed:
            return self._pipes.get(pipe) or Passed()

    @property
    def done(self) -> int:
        """Messages that came through a pipe, of all pipes."""
        with self._changed:
            return self._done()

    def wait_until_idle(self, done_before: int, timeout_s: float) -> bool:
        """Wait until a message more is through, and none under way; False when that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle(done_before), timeout_s)

    def _is_idle(self, done_before: int) -> bool:
        is_empty = not any(passed.under_way for passed in self._pipes.values())
        return is_empty and self._done() > done_before

    def _done(self) -> int:
        return sum(passed.done for passed in self._pipes.values())
