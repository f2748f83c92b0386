"""Runs of messages that wait for something, and since when."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

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
