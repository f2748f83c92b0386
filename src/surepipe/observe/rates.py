"""Rates from counters that only rise, over the last seconds: never since the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

Counts: TypeAlias = Mapping[str, Mapping[str, int]]
"""By part, by name."""


class Rates:
    """Increase per second since the last sample that is at least ``over_s`` old, or else since the first.

    The first sample is ``before``. What a sample does not have was 0 then. When nobody has looked for ``stale_s``
    the rates are not known: an average over an hour would pass for what happens now.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        before: Counts,
        over_s: float = 5.0,
        gap_s: float = 0.5,
        stale_s: float = 15.0,
    ) -> None:
        self._clock = clock
        self._over_s = over_s
        self._gap_s = gap_s
        self._stale_s = stale_s
        self._samples: deque[tuple[float, Counts]] = deque([(clock(), _copied(before))])

    def look(self, counts: Counts) -> tuple[float, dict[str, dict[str, float]]]:
        """Over how many seconds, and what rose by how much a second, by part and name."""
        now = self._clock()
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._over_s:
            self._samples.popleft()
        if now - self._samples[0][0] > self._stale_s:
            self._samples = deque([(now, _copied(counts))])
        since, before = self._samples[0]
        if now - self._samples[-1][0] >= self._gap_s:
            self._samples.append((now, _copied(counts)))
        took = now - since
        if took <= 0:
            return 0.0, {}
        return took, {
            part: _risen(before.get(part, {}), found, took) for part, found in counts.items()
        }


def _copied(counts: Counts) -> Counts:
    return {part: dict(found) for part, found in counts.items()}


def _risen(before: Mapping[str, int], found: Mapping[str, int], took: float) -> dict[str, float]:
    """A number that fell was begun again."""
    return {
        name: round(max(0, count - before.get(name, 0)) / took, 1) for name, count in found.items()
    }
