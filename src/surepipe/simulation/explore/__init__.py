"""Every schedule of a small scope, over the real machines: the shortest counterexample, or none within the scope.

A scope says how many messages there are and how often each fault may strike. Starting from two freshly built ends,
every order of submits, arrivals, losses, copies, wakes and crashes is tried, breadth first. Each state is reached
once; of each it is asked whether the last step broke a property, and whether the run can still end well.

    explored = explore(HopSubject("resend"), Scope(messages=2, faults={"F1": 1}, properties=("P2",)))
    assert explored.holds
"""

from __future__ import annotations

from surepipe.errors import ConfigurationError
from surepipe.simulation.explore.parts import Arrangement, arrangement_of
from surepipe.simulation.explore.result import Exploration, result_of
from surepipe.simulation.explore.scope import EXPLORED_FAULTS, ON_LINKS, Scope
from surepipe.simulation.explore.search import Search
from surepipe.simulation.explore.transitions import Space
from surepipe.simulation.subjects import Subject


def explore(subject: Subject | Arrangement, scope: Scope | None = None) -> Exploration:
    """Try every schedule of ``scope`` on ``subject``.

    The same arguments give the same answer, state counts included. Raises ConfigurationError when the subject
    can't be explored: its machines can't be set back to a state, or they call a store that nobody here plays; and
    when the scope has a fault that can strike nobody, for then its verdict would say nothing about that fault.
    """
    scope, arrangement = scope or Scope(), arrangement_of(subject)
    _refuse_idle_faults(arrangement, scope)
    space = Space(arrangement, scope)
    return result_of(space, Search(space).run())


def _refuse_idle_faults(arrangement: Arrangement, scope: Scope) -> None:
    suffered = [name for part in arrangement.parts for name in part.crashes.names]
    for fault, times in scope.faults.items():
        if times and fault not in ON_LINKS and fault not in suffered:
            raise ConfigurationError(
                f"nothing in {arrangement.name} can suffer {fault} ({EXPLORED_FAULTS[fault]}); take it out"
            )
