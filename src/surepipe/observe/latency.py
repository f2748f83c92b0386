"""How long messages take, from accepted to settled and to confirmed, as histograms of bounded size."""

from __future__ import annotations

import json
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from surepipe.actors.tracing import Columns

# Runs of messages that wait for something, and since when.


Key = tuple[str, int]
"""A pipe and an epoch."""


@dataclass(slots=True)
class _Runs:
    """The runs of one epoch: where each begins, in order, and for each its end and since when it waits."""

    starts: list[int] = field(default_factory=list[int])
    ends: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def add(self, first: int, last: int, since: int) -> None:
        if not self.starts or first > self.starts[-1]:
            self.starts.append(first)
        else:
            insort(self.starts, first)
        self.ends[first] = (last, since)

    def touched_by(self, first: int, last: int) -> list[int]:
        """Where the runs begin that share a message with these."""
        low = bisect_left(self.starts, first)
        if low and self.ends[self.starts[low - 1]][0] >= first:
            low -= 1
        return self.starts[low : bisect_right(self.starts, last)]

    def pop(self, begin: int) -> tuple[int, int]:
        del self.starts[bisect_left(self.starts, begin)]
        return self.ends.pop(begin)


class Spells:
    """Since when messages wait.

    A run is one entry, whatever its length. With more than ``runs_max`` of them the oldest of the oldest epoch is
    forgotten, and counted in ``forgotten``.
    """

    def __init__(self, runs_max: int = 65_536) -> None:
        self._runs_max = runs_max
        self._runs: dict[Key, _Runs] = {}
        self.waiting = 0
        self.forgotten = 0

    def begin(self, key: Key, first: int, count: int, now: int) -> None:
        """These messages wait from now on. If one of them waits already, nothing is changed."""
        last = first + count - 1
        runs = self._runs.setdefault(key, _Runs())
        if runs.touched_by(first, last):
            return
        self._add(runs, first, last, now)
        if self.waiting > self._runs_max:
            self._forget_oldest()

    def end(self, key: Key, first: int, count: int) -> Iterator[tuple[int, int]]:
        """These wait no more: how many of them waited since when. Those that nobody knows are left out."""
        runs = self._runs.get(key)
        if runs is None:
            return
        last = first + count - 1
        for begin in runs.touched_by(first, last):
            end, since = runs.pop(begin)
            self.waiting -= 1
            self._add(runs, begin, first - 1, since)
            self._add(runs, last + 1, end, since)
            yield min(end, last) - max(begin, first) + 1, since
        if not runs.starts:
            del self._runs[key]

    def move(self, key: Key, first: int, count: int, new_key: Key, new_first: int) -> None:
        """These have another identity from now on, and go on waiting since they did."""
        at = new_first
        for messages, since in list(self.end(key, first, count)):
            self.begin(new_key, at, messages, since)
            at += messages

    def _add(self, runs: _Runs, first: int, last: int, since: int) -> None:
        if first <= last:
            runs.add(first, last, since)
            self.waiting += 1

    def _forget_oldest(self) -> None:
        key = next(iter(self._runs))
        runs = self._runs[key]
        runs.pop(runs.starts[0])
        self.waiting -= 1
        self.forgotten += 1
        if not runs.starts:
            del self._runs[key]


_KINDS = frozenset({"accepted", "settled", "confirmed", "renumbered", "dead"})

BOUNDS_US: tuple[int, ...] = tuple(step * 10**power for power in range(2, 8) for step in (1, 2, 5))
"""From 0.1 ms to 50 s, in steps of 1, 2, 5."""


class Histogram:
    """Counts of messages by how long they took.

    ``counts[i]`` took at most ``bounds_us[i]``; the last took longer.
    """

    def __init__(self, bounds_us: tuple[int, ...] = BOUNDS_US) -> None:
        self.bounds_us = bounds_us
        self.counts = [0] * (len(bounds_us) + 1)
        self.count = 0
        self.sum_us = 0

    def add(self, took_us: int, messages: int) -> None:
        """So many messages took so long."""
        self.counts[bisect_left(self.bounds_us, took_us)] += messages
        self.count += messages
        self.sum_us += took_us * messages

    def since(self, before: Histogram) -> Histogram:
        """What was added after ``before``, an older copy of this one."""
        new = Histogram(self.bounds_us)
        new.counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        new.count, new.sum_us = self.count - before.count, self.sum_us - before.sum_us
        return new

    def quantile_us(self, part: float) -> int:
        """The bound under which this part of all messages lies (0 for none); beyond the last bound, that one."""
        rank = part * self.count
        seen = 0
        for bound, count in zip(self.bounds_us, self.counts, strict=False):
            seen += count
            if seen >= rank and seen:
                return bound
        return self.bounds_us[-1] if self.count else 0


class _Run(NamedTuple):
    """Consecutive messages, and when something became of them."""

    key: Key
    first: int
    messages: int
    now: int


class Latencies:
    """Measures each pipe that has it as its ``trace``, where both ends run in this process.

    ``settled[pipe]`` and ``confirmed[pipe]`` are histograms. Costs a few microseconds for each run of messages,
    nothing for each message. ``bounds_us``: those of the histograms, rising.
    """

    with_digests = False

    def __init__(self, runs_max: int = 65_536, *, bounds_us: tuple[int, ...] = BOUNDS_US) -> None:
        self._bounds_us = bounds_us
        self._settled: dict[str, Histogram] = {}
        self._confirmed: dict[str, Histogram] = {}
        self._stored: set[str] = set()
        self._lock = threading.Lock()
        self._unsettled = Spells(runs_max)
        self._unconfirmed = Spells(runs_max)

    @property
    def settled(self) -> dict[str, Histogram]:
        """From accepted to settled, by pipe: a copy that stands still."""
        with self._lock:
            return deepcopy(self._settled)

    @property
    def confirmed(self) -> dict[str, Histogram]:
        """From accepted to confirmed, by pipe: a copy that stands still."""
        with self._lock:
            return deepcopy(self._confirmed)

    def write(self, columns: Columns) -> None:
        """Take a row of the trace."""
        kind = columns["kind"]
        if kind == "start":
            self._note_promise(columns)
        if kind not in _KINDS:
            return
        run = _Run(
            (str(columns["pipe"]), int(columns.get("epoch", 0))),
            int(columns["seq"]),
            int(columns["count"]),
            int(columns["time_us"]),
        )
        with self._lock:
            if kind == "accepted":
                self._unsettled.begin(*run)
                self._unconfirmed.begin(*run)
            elif kind == "settled":
                self._measure(self._unsettled, self._settled, run)
            elif kind == "dead":
                _drop(self._unsettled, run)
            elif kind == "confirmed":
                self._confirm(run)
            else:
                self._renumber(run, columns)

    def _note_promise(self, columns: Columns) -> None:
        facts: dict[str, Any] = json.loads(str(columns.get("detail") or "{}"))
        if facts.get("confirms") == "stored":
            self._stored.add(str(columns["pipe"]))

    def _confirm(self, run: _Run) -> None:
        """What is confirmed was settled, if not here then in another process; but not where a store confirms."""
        self._measure(self._unconfirmed, self._confirmed, run)
        pipe, _ = run.key
        if pipe not in self._stored:
            _drop(self._unsettled, run)

    def _measure(self, spells: Spells, found: dict[str, Histogram], run: _Run) -> None:
        """All producers of a stream are measured together."""
        pipe, _ = run.key
        name = pipe.partition("@")[0] if pipe in self._stored else pipe
        for messages, since in spells.end(run.key, run.first, run.messages):
            found.setdefault(name, Histogram(self._bounds_us)).add(
                max(0, run.now - since), messages
            )

    def _renumber(self, run: _Run, columns: Columns) -> None:
        new: dict[str, int] = json.loads(str(columns["detail"]))
        pipe, _ = run.key
        for spells in (self._unsettled, self._unconfirmed):
            spells.move(run.key, run.first, run.messages, (pipe, new["epoch"]), new["seq"])


def _drop(spells: Spells, run: _Run) -> None:
    for _ in spells.end(run.key, run.first, run.messages):
        pass
