"""A driver that is killed, Python and JVM, in the middle of its work (spark sp1)."""

from __future__ import annotations

from random import Random

from tests.real.spark_kills import kill_drivers
from tests.real.stage import Tally


def test_a_killed_driver_loses_and_repeats_nothing() -> None:
    """spark sp1: kill -9 twice, in the middle of a sink and of a hop; each message comes out once, in order, and
    a naive sink beside it shows repeats. The stage ``drivers`` of tests.real kills eight times."""
    tally = Tally({"drivers killed": 2, "messages": 16_000, "repeats of the naive sink": 1})
    kill_drivers(Random("two kills"), tally, 2, 16_000)
    tally.check()
