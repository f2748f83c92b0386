"""Breadth first through all states of a scope: the first violation met is one of the shortest."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from surepipe.simulation.explore.drain import DrainStates, FairDrain
from surepipe.simulation.explore.history import AT_END, Broken
from surepipe.simulation.explore.transitions import ExploredStep, Links, Space, State

# Fewer states for the verdict "holds": what can't do more than a state that is gone into anyway is left out.
#
# Two states may differ in nothing but the faults that are left. The one that has at least as many of every kind
# left covers the other one, which is then not gone into. That is sound for every property that is judged here:
#
# - A budget only ever permits. A step asks whether one is left and takes one away; what happens in the step,
# and which other steps there are, never depends on it. So the covering state can take every step of the covered
# one, and the two states after it differ in nothing but what is left again, in the same direction. - What is
# visible is the same. A safety property looks at the history and at the facts of a step, and the history is
# part of what must be equal. The end of a run is judged by drains, and those begin where no fault is left: the
# drains of both states are one. - Nothing is put off, so no cycle can hide anything: what covers a state was
# met before and is gone into itself.
#
# So a fault that comes to nothing costs nothing: an ignored copy of an identical frame, a lost control frame
# that is followed by the same one, a deadline that passes early in one order of arrivals at different nodes and
# in time in the other. There is one sender, so there is no symmetry of senders to use.
#
# A violation that is met is real. Its length is not told: lengths come from a search that leaves nothing out.


Left: TypeAlias = tuple[int, ...]
"""Faults left, each kind at its place."""
_AllElse: TypeAlias = tuple[tuple[int, ...], Links, int, int, int]


class Covering:
    """States that are gone into, by everything but the faults that are left in them."""

    def __init__(self) -> None:
        self._left: dict[_AllElse, list[Left]] = {}

    def leaves_out(self, state: State) -> bool:
        """Whether a state that was met before covers this one; if none does, this one may cover others."""
        nodes, links, submitted, cut, left, history = state
        met = self._left.setdefault((nodes, links, submitted, cut, history), [])
        if any(self.covers(other, left) for other in met):
            return True
        met.append(left)
        return False

    def covers(self, one: Left, other: Left) -> bool:
        """Whether one has at least as many faults of each kind left as the other."""
        return all(mine >= its for mine, its in zip(one, other, strict=True))


FAIR_EVERY = 100
"""One state in so many is drained fairly as well; the others in the two ways that cost little."""


@dataclass(frozen=True, slots=True)
class FoundViolation:
    """A violation: the steps to it, what is broken, and by which drain (None: by the last step)."""

    steps: tuple[tuple[State, ExploredStep], ...]
    last: State
    broken: Broken
    drain: DrainStates | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """The result of a search: what it has seen, and the violation that ended it."""

    states: int
    transitions: int
    depth: int
    found: FoundViolation | None
    is_complete: bool


class Search:
    """One search; it stops at the first violation of a wanted property."""

    def __init__(self, space: Space) -> None:
        self._space = space
        scope = space.scope
        self._parents: dict[State, tuple[State, ExploredStep] | None] = {}
        self._transitions = 0
        self._covering = Covering() if scope.reduced else None
        self._drains = [DrainStates(space, slow=False), DrainStates(space, slow=True)]
        self._drains_of_some = [*self._drains, FairDrain(space)]
        if not any(name in AT_END for name in scope.properties):
            self._drains = self._drains_of_some = []

    @property
    def reached(self) -> Collection[State]:
        """All states that were gone into, in the order in which they were met."""
        return self._parents.keys()

    def run(self) -> Searched:
        """Search until everything is seen, something is broken, or the scope's limit is reached."""
        first = self._space.first()
        self._parents[first] = None
        found = self._badly_ending(first)
        level, depth = [first], 0
        while level and found is None and len(self._parents) <= self._space.scope.states_max:
            depth += 1
            level, found = self._next_level(level)
        return Searched(len(self._parents), self._transitions, depth, found, not level)

    def _next_level(self, level: list[State]) -> tuple[list[State], FoundViolation | None]:
        parents, following = self._parents, list[State]()
        for state in level:
            for step, after, broken in self._space.successors(state):
                self._transitions += 1
                if broken:
                    path = (*self._path(state), (state, step))
                    return [], FoundViolation(path, after, broken[0])
                if after in parents or (self._covering and self._covering.leaves_out(after)):
                    continue
                parents[after] = (state, step)
                if found := self._badly_ending(after):
                    return [], found
                following.append(after)
        return following, None

    def _badly_ending(self, state: State) -> FoundViolation | None:
        is_one_of_some = len(self._parents) % FAIR_EVERY == 1
        for drain in self._drains_of_some if is_one_of_some else self._drains:
            failure = drain.failure(state)
            if failure is not None:
                return FoundViolation(self._path(state), state, failure, drain)
        return None

    def _path(self, state: State) -> tuple[tuple[State, ExploredStep], ...]:
        steps: list[tuple[State, ExploredStep]] = []
        parent = self._parents[state]
        while parent is not None:
            steps.append(parent)
            parent = self._parents[parent[0]]
        return tuple(reversed(steps))
