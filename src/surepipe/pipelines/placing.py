"""Where parts run: sources say it, pipes may bring it elsewhere, and stages and sinks run where they are fed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surepipe.pipelines.ordering import in_flow

MAIN_NODE = "main"
"""The process of everything that says nothing else."""


@dataclass(frozen=True, slots=True)
class Place:
    """``node``: where a part runs (of a pipe: its receiver). ``fed_on``: where that is which feeds it."""

    node: str
    fed_on: tuple[str, ...]

    @property
    def sender(self) -> str:
        """Where a pipe's sender runs."""
        return self.fed_on[0] if self.fed_on else self.node


def places_of(parts: Sequence[tuple[str, str, tuple[str, ...], bool]]) -> dict[str, Place]:
    """The place of each part: its name, the node that it names or '', what feeds it, whether it is a pipe.

    There must be no cycle, and no unknown feeder.
    """
    known = {name: (node, feeders, is_pipe) for name, node, feeders, is_pipe in parts}
    places: dict[str, Place] = {}
    for name in in_flow({name: feeders for name, _, feeders, _ in parts}):
        node, feeders, is_pipe = known[name]
        fed_on = tuple(dict.fromkeys(places[feeder].node for feeder in feeders)) or (node,)
        places[name] = Place(node if node and (is_pipe or not feeders) else fed_on[0], fed_on)
    return places
