"""Parts in the order of their flow: each after what feeds it, otherwise as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
