"""Whether reduced exploration says what exploration says, on every scope of the golden file; all of them with

python -m tests.simulation.explore.reduction
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from surepipe.simulation.explore import explore
from surepipe.simulation.explore.forgetting import forgotten
from surepipe.simulation.explore.parts import Arrangement, arrangement_of
from surepipe.simulation.explore.result import Exploration, Explored
from surepipe.simulation.explore.scope import Scope
from surepipe.simulation.explore.search import Search
from surepipe.simulation.explore.transitions import Space, State
from surepipe.simulation.subjects import Subject
from tests.faults.plain_golden import Measured, golden, measured

AGREED_BELOW = 100_000
"""States that the scope has without reduction."""


def below(states: int) -> Iterator[Measured]:
    """The cells of the golden file with fewer states than this."""
    return (cell for cell in measured() if golden_states(cell) < states)


def golden_states(cell: Measured) -> int:
    """How many states the unreduced search saw."""
    return cast("int", golden()[cell.id]["states"])


def reduced(cell: Measured) -> Exploration:
    """The cell explored with reduction."""
    return explore(cell.subject, replace(cell.scope(), reduced=True))


def expected(cell: Measured) -> Explored:
    """What reduction must say, by what the unreduced search said."""
    return Explored.FOUND if "property" in golden()[cell.id] else Explored.HOLDS


def not_covered(subject: Subject | Arrangement, scope: Scope) -> list[State]:
    """States of the unreduced search that no state of the reduced one can stand for.

    Both searches are of one space, so that states have the same numbers in both.
    """
    space = Space(arrangement_of(subject), scope)
    whole = Search(space)
    whole.run()
    space.scope = replace(scope, reduced=True)
    fewer = Search(space)
    fewer.run()
    lefts: dict[tuple[object, ...], list[tuple[int, ...]]] = {}
    for state in fewer.reached:
        lefts.setdefault((*state[:4], state[5]), []).append(state[4])
    return [
        state
        for state in whole.reached
        if not any(
            all(mine >= its for mine, its in zip(left, state[4], strict=True))
            for left in lefts.get((*state[:4], state[5]), [])
        )
    ]


def futures(subject: Subject | Arrangement, scope: Scope, *, forgets: bool) -> set[object]:
    """The states of a search that leaves nothing out, told without what makes no difference to what comes.

    With ``forgets``, machines go on from states that have forgotten it already.
    """
    space = Space(arrangement_of(subject), replace(scope, reduced=forgets))
    space.scope = replace(scope, reduced=False)
    search = Search(space)
    search.run()
    return {_told(space, state) for state in search.reached}


def _told(space: Space, state: State) -> object:
    """A state in values, as its numbers differ from space to space."""
    known = [space.node_at(place).state(number) for place, number in enumerate(state[0])]
    nodes = [repr(replace(one, state=forgotten(one.state))) for one in known]
    links = [[repr(space.frames[frame]) for frame in link] for link in state[1]]
    if not space.scope.keeps_order:
        links = [sorted(link) for link in links]
    return (repr(nodes), repr(links), *state[2:5], repr(space.histories[state[5]]))


def main() -> int:
    """Explore all of them with reduction; 1 when one verdict differs."""
    disagree, whole, fewer = 0, 0, 0
    for cell in below(AGREED_BELOW):
        explored = reduced(cell)
        whole, fewer = whole + golden_states(cell), fewer + explored.states
        if explored.verdict is not expected(cell):
            disagree += 1
            sys.stdout.write(f"{cell.id}: {explored.verdict}, and unreduced {expected(cell)}\n")
    sys.stdout.write(f"{disagree} disagree; {fewer} states instead of {whole}\n")
    return min(disagree, 1)


if __name__ == "__main__":
    raise SystemExit(main())
