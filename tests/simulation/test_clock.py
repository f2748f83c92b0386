"""The clocks of a node."""

from __future__ import annotations

import pytest

from surepipe.simulation.timeline import MonotonicClock, WallClock


@pytest.mark.parametrize("drift_ppm", [0, 1, 37, 200, -1, -200])
def test_a_deadline_comes_when_the_clock_shows_it_and_not_before(drift_ppm: int) -> None:
    """simulation X-6: the first moment of the world at which the reading is there, for many deadlines."""
    clock = MonotonicClock(drift_ppm)
    for reading in [1, 2, 999, 1_000_000, 123_456_789, 3_600_000_000]:
        when = clock.when(reading)
        assert clock.reading(when) >= reading
        assert clock.reading(when - 1) < reading


def test_a_fast_clock_shows_more_than_the_world() -> None:
    """simulation X-6: two hundred millionths of an hour."""
    assert MonotonicClock(200).reading(3_600_000_000) == 3_600_720_000
    assert MonotonicClock(0).reading(5) == 5


def test_a_wall_clock_jumps_and_runs_on() -> None:
    """simulation X-6: forwards, then back."""
    clock = WallClock(1000)
    clock.jump(500)
    assert clock.reading(10) == 1510
    clock.jump(-2000)
    assert clock.reading(20) == -480
