"""A route whose round trip never changes leaves no variation to wait for: the margin has a floor."""

from __future__ import annotations

from surepipe.pipes.retry.window import RoundTrips
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.subjects import HopSubject
from tests.simulation.kit import of_kind

MS = 1_000


def test_a_steady_round_trip_keeps_a_margin_above_the_jitter() -> None:
    """pipes T-2: after 200 equal samples a deadline that is a fifth early still lies behind the answer."""
    trips = RoundTrips(initial=1_000 * MS, least=10 * MS, most=30_000 * MS, confirm_delay=0)
    for _ in range(200):
        trips.sample(800 * MS)
    assert trips.variation < 8 * MS
    assert trips.rto * 8 // 10 >= 800 * MS


def test_nothing_is_sent_twice_over_a_long_and_steady_route() -> None:
    """simulation P9, XT-15: 60 messages one after the other, answers in 800 ms: one transmission each."""
    subject = HopSubject({"reliable": {"confirm_delay_s": 0.001, "run_max": 1}}, name="steady")
    options = Options(messages=60, gap_us=900 * MS, delay_us=400 * MS, chaos_us=60_000 * MS)
    for seed in range(4):
        result = run_hop(subject, Options.of({**options.plain(), "seed": seed}))
        again = [row for row in of_kind(result.rows, "transmit") if row.count and row.attempt > 1]
        assert not [row for row in again if '"data"' in row.detail]
        assert not result.violations
