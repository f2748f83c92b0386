"""Rates from counters that only rise, over the last seconds: never since the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

Counts: TypeAlias = Mapping[str, Mapping[str, int]]
"""By part, by name."""


class CounterRates:
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


# Numbers for people who look at them while they change: short, so that what stands beside them stays there.


UNKNOWN = "\u2013"


def compact(number: float | None) -> str:
    """At most five signs: 7, 9,999, 12.3k, 456k, 7.89M. A dash where nothing is known."""
    if number is None:
        return UNKNOWN
    if number < 9_999.5:
        return f"{number:,.1f}" if 0 < number < 9.95 and number != int(number) else f"{number:,.0f}"
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        shown = number / size
        if shown < 999.5:
            return f"{shown:.{0 if shown >= 99.95 else 1}f}{unit}"
    return "many"


def seconds(number: float | None) -> str:
    """A time: 0.4 s, 12 s, 3 min, 5 h."""
    if number is None:
        return UNKNOWN
    for limit, size, unit in (
        (9.95, 1, "s"),
        (99.5, 1, "s"),
        (5_970, 60, "min"),
        (172_800, 3_600, "h"),
    ):
        if number < limit:
            return f"{number / size:.{1 if limit < 10 else 0}f} {unit}"
    return f"{number / 86_400:.0f} days"


def milliseconds(number: float) -> str:
    """A short time: 0.5 ms, 20 ms, 5.0 s."""
    if number >= 1000:
        return seconds(number / 1000)
    return f"{number:g} ms"


# Which of the numbers that pipes and engines give are gauges.


GAUGES = frozenset(
    {
        *("backlog", "backlog_bytes", "held", "held_bytes", "in_flight", "in_flight_bytes"),
        *("in_work", "in_work_bytes", "lag", "loaded", "oldest_unconfirmed_us", "rto_us"),
        *("lanes", "lanes_busy"),
        *("rows_per_s", "batch_us", "state_rows", "state_bytes"),
    }
)
"""What may fall as well as rise; everything else that is counted only rises."""
