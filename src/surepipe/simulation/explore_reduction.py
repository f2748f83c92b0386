"""Fewer states for the verdict "holds": what can't do more than a state that is gone into anyway is left out.

Two states may differ in nothing but the faults that are left. The one that has at least as many of every kind left
covers the other one, which is then not gone into. That is sound for every property that is judged here:

- A budget only ever permits. A step asks whether one is left and takes one away; what happens in the step, and
  which other steps there are, never depends on it. So the covering state can take every step of the covered one,
  and the two states after it differ in nothing but what is left again, in the same direction.
- What is visible is the same. A safety property looks at the history and at the facts of a step, and the history
  is part of what must be equal. The end of a run is judged by drains, and those begin where no fault is left: the
  drains of both states are one.
- Nothing is put off, so no cycle can hide anything: what covers a state was met before and is gone into itself.

So a fault that comes to nothing costs nothing: an ignored copy of an identical frame, a lost control frame that is
followed by the same one, a deadline that passes early in one order of arrivals at different nodes and in time in
the other. There is one sender, so there is no symmetry of senders to use.

A violation that is met is real. Its length is not told: lengths come from a search that leaves nothing out.
"""

from __future__ import annotations

from typing import TypeAlias

from surepipe.simulation.explore_transitions import Links, State

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
