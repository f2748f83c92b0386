"""The stacks that ship, explored: every schedule of small scopes, over the real machines."""

from __future__ import annotations

import pytest

from surepipe.simulation.explore import explore
from surepipe.simulation.explore.result import Explored
from tests.simulation.explore.scopes import Tried, each_run

TRIED = list(each_run())


@pytest.mark.parametrize("tried", TRIED, ids=[tried.id for tried in TRIED])
def test_a_stack_keeps_what_it_provides_in_every_schedule_of_the_scope(tried: Tried) -> None:
    """simulation X-51, X-43: tolerated faults; safety at each step, a fast and a slow drain from each state."""
    explored = explore(tried.stack.subject(), tried.scope)
    assert explored.verdict is Explored.HOLDS, explored.counterexample
