"""One simulated run of a pipeline or a handler, under options that somebody else draws: Hypothesis, say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from surepipe.pipelines.simulate.simulating import (
    NotExercised,
    Simulated,
    SimulationFailed,
    simulation_of,
)
from surepipe.simulation.options import Options

__all__ = ["NotExercised", "Simulated", "SimulationFailed", "simulate_once"]


def simulate_once(
    what: object,
    schedule: Options,
    *,
    messages: int | Sequence[object] | Mapping[str, Sequence[object]] | None = None,
    check: Callable[..., object] | None = None,
) -> Simulated:
    """Run a pipeline's file, a plan, or a builder of a handler once, judged like every simulated run.

    The same arguments give the same run. Raises SimulationFailed, whose text tells of this run as it is: whoever
    drew the schedule makes it shorter. Raises ConfigurationError for what can't be simulated.
    """
    return simulation_of(what, messages=messages, check=check).once(schedule)
