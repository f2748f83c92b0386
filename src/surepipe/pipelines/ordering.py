"""Parts in the order of their flow: each after what feeds it, otherwise as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


def in_flow(feeders: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The names in that order; those in a circle, and what is fed from it, are left out.

    Feeders that are no names of the mapping don't count.
    """
    number = {name: n for n, name in enumerate(feeders)}
    waits = {name: len({f for f in fed if f in number}) for name, fed in feeders.items()}
    takers: dict[str, list[str]] = {name: [] for name in feeders}
    for name, fed in feeders.items():
        for feeder in dict.fromkeys(fed):
            if feeder in takers:
                takers[feeder].append(name)
    ready = [(number[name], name) for name, count in waits.items() if count == 0]
    ordered: list[str] = []
    while ready:
        _, name = heappop(ready)
        ordered.append(name)
        for taker in takers[name]:
            waits[taker] -= 1
            if waits[taker] == 0:
                heappush(ready, (number[taker], taker))
    return tuple(ordered)


# Where parts run: sources say it, pipes may bring it elsewhere, and stages and sinks run where they are fed.


MAIN_NODE = "main"
"""The process of everything that says nothing else."""


@dataclass(frozen=True, slots=True)
class PartPlace:
    """``node``: where a part runs (of a pipe: its receiver). ``fed_on``: where that is which feeds it."""

    node: str
    fed_on: tuple[str, ...]

    @property
    def sender(self) -> str:
        """Where a pipe's sender runs."""
        return self.fed_on[0] if self.fed_on else self.node


def places_of(parts: Sequence[tuple[str, str, tuple[str, ...], bool]]) -> dict[str, PartPlace]:
    """The place of each part: its name, the node that it names or '', what feeds it, whether it is a pipe.

    There must be no cycle, and no unknown feeder.
    """
    known = {name: (node, feeders, is_pipe) for name, node, feeders, is_pipe in parts}
    places: dict[str, PartPlace] = {}
    for name in in_flow({name: feeders for name, _, feeders, _ in parts}):
        node, feeders, is_pipe = known[name]
        fed_on = tuple(dict.fromkeys(places[feeder].node for feeder in feeders)) or (node,)
        places[name] = PartPlace(node if node and (is_pipe or not feeders) else fed_on[0], fed_on)
    return places
