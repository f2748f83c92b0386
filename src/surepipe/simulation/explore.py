"""Every schedule of a small scope, over the real machines: the shortest counterexample, or none within the scope.

A scope says how many messages there are and how often each fault may strike. Starting from two freshly built ends,
every order of submits, arrivals, losses, copies, wakes and crashes is tried, breadth first. Each state is reached
once; of each it is asked whether the last step broke a property, and whether the run can still end well.

    explored = explore(HopSubject("resend"), Scope(messages=2, faults={"F1": 1}, properties=("P2",)))
    assert explored.holds
"""

from __future__ import annotations

from surepipe.simulation.explore_parts import Arrangement, arrangement_of
from surepipe.simulation.explore_result import Exploration, result_of
from surepipe.simulation.explore_scope import Scope
from surepipe.simulation.explore_search import Search
from surepipe.simulation.explore_transitions import Space
from surepipe.simulation.subjects import Subject


def explore(subject: Subject | Arrangement, scope: Scope | None = None) -> Exploration:
    """Try every schedule of ``scope`` on ``subject``.

    The same arguments give the same answer, state counts included. Raises ConfigurationError when the subject
    can't be explored: its machines can't be set back to a state, or they call a store that nobody here plays.
    """
    space = Space(arrangement_of(subject), scope or Scope())
    return result_of(space, Search(space).run())
