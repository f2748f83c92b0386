"""The pipes of a plan under every schedule of a small scope, the faults that they promise to survive included."""

from __future__ import annotations

from surepipe.pipelines.as_hops import hop_of
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulated.subject import require_pipes
from surepipe.simulation.explore_hops import STATES_MAX, HopExplored, explore_hops

MESSAGES = 3


def explore_plan_hops(
    plan: Plan, *, messages: int = MESSAGES, states_max: int = STATES_MAX
) -> tuple[HopExplored, ...]:
    """Explore each pipe of a plan, its stages taken for the identity.

    With the states that are the default this takes at most about a minute; a pipe whose schedules are more is
    ``bounded, not exhausted``. ``str`` of each answer is its report: the verdict, scope by scope, and what was not
    tried. The same plan gives the same answer. Raises ConfigurationError for a plan without pipes.
    """
    require_pipes(plan)
    hops = [hop_of(plan, pipe, {}) for pipe in plan.pipes]
    return explore_hops(hops, messages=messages, states_max=states_max)
