"""Breadth first through all states of a scope: the first violation met is one of the shortest."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from surepipe.simulation.explore_drain import Drain, FairDrain
from surepipe.simulation.explore_history import AT_END, Broken
from surepipe.simulation.explore_reduction import Covering
from surepipe.simulation.explore_transitions import Space, State, Step

FAIR_EVERY = 100
"""One state in so many is drained fairly as well; the others in the two ways that cost little."""


@dataclass(frozen=True, slots=True)
class Found:
    """A violation: the steps to it, what is broken, and by which drain (None: by the last step)."""

    steps: tuple[tuple[State, Step], ...]
    last: State
    broken: Broken
    drain: Drain | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search has seen, and the violation that ended it."""

    states: int
    transitions: int
    depth: int
    found: Found | None
    is_complete: bool


class Search:
    """One search; it stops at the first violation of a wanted property."""

    def __init__(self, space: Space) -> None:
        self._space = space
        scope = space.scope
        self._parents: dict[State, tuple[State, Step] | None] = {}
        self._transitions = 0
        self._covering = Covering() if scope.reduced else None
        self._drains = [Drain(space, slow=False), Drain(space, slow=True)]
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

    def _next_level(self, level: list[State]) -> tuple[list[State], Found | None]:
        parents, following = self._parents, list[State]()
        for state in level:
            for step, after, broken in self._space.successors(state):
                self._transitions += 1
                if broken:
                    path = (*self._path(state), (state, step))
                    return [], Found(path, after, broken[0])
                if after in parents or (self._covering and self._covering.leaves_out(after)):
                    continue
                parents[after] = (state, step)
                if found := self._badly_ending(after):
                    return [], found
                following.append(after)
        return following, None

    def _badly_ending(self, state: State) -> Found | None:
        is_one_of_some = len(self._parents) % FAIR_EVERY == 1
        for drain in self._drains_of_some if is_one_of_some else self._drains:
            failure = drain.failure(state)
            if failure is not None:
                return Found(self._path(state), state, failure, drain)
        return None

    def _path(self, state: State) -> tuple[tuple[State, Step], ...]:
        steps: list[tuple[State, Step]] = []
        parent = self._parents[state]
        while parent is not None:
            steps.append(parent)
            parent = self._parents[parent[0]]
        return tuple(reversed(steps))
