"""The clocks of a node: a monotonic one that drifts, and a wall clock that also jumps.

The world's own time is exact. Machines are told the monotonic clock of their process and nothing else; the wall
clock shows only in the number that a new life starts from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
