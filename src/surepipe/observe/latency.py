"""How long messages take, from accepted to settled and to confirmed, as histograms of bounded size."""

from __future__ import annotations

import threading
from bisect import bisect_left

from surepipe.actors.tracing import Columns
from surepipe.observe.spells import Spells

BOUNDS_US: tuple[int, ...] = tuple(step * 10**power for power in range(2, 8) for step in (1, 2, 5))
"""From 0.1 ms to 50 s, in steps of 1, 2, 5."""


class Histogram:
    """Counts of messages by how long they took.

    ``counts[i]`` took at most ``BOUNDS_US[i]``; the last took longer.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_US) + 1)
        self.count = 0
        self.sum_us = 0

    def add(self, took_us: int, messages: int) -> None:
        """So many messages took so long."""
        self.counts[bisect_left(BOUNDS_US, took_us)] += messages
        self.count += messages
        self.sum_us += took_us * messages

    def quantile_us(self, part: float) -> int:
        """The bound under which this part of all messages lies (0 for none); beyond the last bound, that one."""
        rank = part * self.count
        seen = 0
        for bound, count in zip(BOUNDS_US, self.counts, strict=False):
            seen += count
            if seen >= rank and seen:
                return bound
        return BOUNDS_US[-1] if self.count else 0


class Latencies:
    """Measures each pipe that has it as its ``trace``, where both ends run in this process.

    ``settled[pipe]`` and ``confirmed[pipe]`` are histograms. Costs a few microseconds for each run of messages,
    nothing for each message.
    """

    with_digests = False

    def __init__(self, runs_max: int = 65_536) -> None:
        self.settled: dict[str, Histogram] = {}
        self.confirmed: dict[str, Histogram] = {}
        self._lock = threading.Lock()
        self._unsettled = Spells(runs_max)
        self._unconfirmed = Spells(runs_max)

    def write(self, columns: Columns) -> None:
        """Take a row of the trace."""
        kind = columns["kind"]
        if kind not in ("accepted", "settled", "confirmed"):
            return
        pipe, epoch = str(columns["pipe"]), int(columns.get("epoch", 0))
        first, count = int(columns["seq"]), int(columns["count"])
        now = int(columns["time_us"])
        with self._lock:
            if kind == "accepted":
                self._unsettled.begin((pipe, epoch), first, count, now)
                self._unconfirmed.begin((pipe, epoch), first, count, now)
            else:
                is_settled = kind == "settled"
                spells = self._unsettled if is_settled else self._unconfirmed
                found = self.settled if is_settled else self.confirmed
                for messages, since in spells.end((pipe, epoch), first, count):
                    found.setdefault(pipe, Histogram()).add(max(0, now - since), messages)
