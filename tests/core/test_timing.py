"""Waits double, stay within their limit, and draw their jitter from the given generator only."""

from __future__ import annotations

import random

from surepipe.core.timing import BackOff, backoff, below, doubled


def test_waits_double_up_to_the_limit() -> None:
    """pipes T-2: the wait after attempt n is the first one times 2 ** (n - 1)."""
    assert [doubled(100, 1_000, attempts) for attempts in range(1, 7)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]


def test_a_very_high_attempt_does_not_build_a_huge_number() -> None:
    """The shift is bounded, so a pipe that tries for years computes small integers."""
    assert doubled(1, 30_000_000, 10**9) == 30_000_000


def test_jitter_stays_within_its_share_and_uses_all_of_it() -> None:
    """pipes T-2: a wait times 1 + uniform(-0.1, +0.1)."""
    rng = random.Random(5)
    drawn = [backoff(1_000, 30_000_000, 1, 0.1, rng) for _ in range(5_000)]
    assert min(drawn) == 900
    assert max(drawn) == 1_100


def test_no_jitter_draws_nothing() -> None:
    """So a pipe without jitter leaves its generator as it was."""
    rng = random.Random(5)
    state = rng.getstate()
    assert backoff(1_000, 30_000_000, 1, 0.0, rng) == 1_000
    assert rng.getstate() == state


def test_equal_seeds_give_equal_waits() -> None:
    """pipes P-12."""
    first, second = random.Random(9), random.Random(9)
    waits = [backoff(100_000, 30_000_000, n, 0.1, first) for n in range(1, 20)]
    assert waits == [backoff(100_000, 30_000_000, n, 0.1, second) for n in range(1, 20)]


def test_draws_are_uniform_below_their_bound() -> None:
    """Each of 5 values within 4 sigma of its share of 10,000 draws."""
    rng = random.Random(3)
    counts = [0] * 5
    for _ in range(10_000):
        counts[below(rng, 5)] += 1
    assert all(abs(count - 2_000) < 4 * 40 for count in counts)
    assert below(rng, 1) == 0


def test_a_back_off_doubles_up_to_its_bound_and_never_waits_less_than_a_microsecond() -> None:
    """T-2: 1, 2, 4 ... without the random part; with it within so much of that; zero seconds are a microsecond."""
    waits = BackOff.of_seconds(1.0, 5.0, 0.1)
    assert [waits.calm(n) for n in range(1, 5)] == [1_000_000, 2_000_000, 4_000_000, 5_000_000]
    assert waits.calm(10_000) == 5_000_000
    drawn = [waits.wait(3, random.Random(seed)) for seed in range(50)]
    assert 3_600_000 <= min(drawn) < 4_000_000 < max(drawn) <= 4_400_000
    assert BackOff(0, 0).wait(1, random.Random(1)) == 1
