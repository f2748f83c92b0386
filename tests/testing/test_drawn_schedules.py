"""Handlers under schedules that hypothesis draws, as a user writes it.

These stand apart from other tests: before and after each run it is looked at what all modules hold that this one
imports, so what they import is paid for in every example.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, Verbosity, find, given, settings

from surepipe.pipelines.simulate.simulating import SimulationFailed
from surepipe.pipelines.stages import Context
from surepipe.simulation import Options, Outside
from surepipe.simulation.strategies import messages, schedules
from surepipe.testing.once import simulate_once

SAME = settings(
    derandomize=True,
    database=None,
    deadline=None,
    verbosity=Verbosity.quiet,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
"""No chance, and nothing kept between sessions."""
FEW = settings(SAME, max_examples=15)


def _bank(*, with_key: bool) -> Callable[[], object]:
    def build() -> object:
        bank = Outside("bank")

        def charge(order: dict[str, int], context: Context) -> None:
            bank.do("charge", order["id"], key=context.id if with_key else None)

        def check(run: object) -> bool:
            return run is not None and set(bank.count("charge").values()) <= {1}

        return charge, check

    return build


FAULTS = schedules(faults=["receiver-crash", "handler-failure"], most=4)


@FEW
@given(FAULTS, messages(most=4))
def test_a_handler_with_a_key_holds_under_drawn_schedules(
    schedule: Options, orders: list[object]
) -> None:
    """The documented example: no customer is charged twice (simulation X-71)."""
    assert simulate_once(_bank(with_key=True), schedule, messages=orders).runs == 1


def test_a_handler_without_a_key_is_found_out() -> None:
    """Some schedule charges twice, and the report says so (simulation X-71)."""

    def charges_twice(schedule: Options) -> bool:
        try:
            simulate_once(_bank(with_key=False), schedule, messages=[{"id": n} for n in range(4)])
        except SimulationFailed as failure:
            return "happened twice" in str(failure)
        return False

    quick = settings(SAME, phases=[Phase.generate], max_examples=300)
    assert charges_twice(find(FAULTS, charges_twice, settings=quick))
