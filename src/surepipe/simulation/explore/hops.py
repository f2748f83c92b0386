"""The pipes of a plan, explored one by one: each with a sender and a receiver that only count what comes out.

What a pipe promises is what the algebra derives for it over a route that exhibits every fault. Its atoms are tried
under each kind of fault that they tolerate, and then under every two kinds, one of each: single faults are a weak
test, and all together are too many schedules to be finished. There is no clock here, so the work is bounded by the
number of states; what was finished before the bound was reached is told scope by scope. The search is reduced, and
what it finds is searched again for the shortest schedule.

What stands between two pipes takes no part: a stage counts as the identity, and chains follow from their pipes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from surepipe.core.claims import Atom, Fault, Faults
from surepipe.guarantees.derivation import evaluate
from surepipe.guarantees.hops import LOSSY_ROUTE, Hop, one_way
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.explore import explore
from surepipe.simulation.explore.result import Exploration, Explored
from surepipe.simulation.explore.scope import Scope
from surepipe.simulation.subjects import HopSubject, Subject

NOT_EXPLORED = "not explored"
STATES_MAX = 60_000
"""About a minute of one core."""
OUTAGE_WAKES = 3
"""Deadlines that pass in time where all links may be cut: a sender that counts attempts has no end of states."""
OUT_OF_ORDER_MAX = 2
"""Messages over links that don't keep the order: with three the schedules are too many."""

TRIED: Mapping[Fault, tuple[str, ...]] = {
    Fault.ROUTE_LOSS: ("F1", "F2"),
    Fault.ROUTE_DUPLICATION: ("F3",),
    Fault.ROUTE_REORDERING: ("F4",),
    Fault.ROUTE_DELAY: ("F5",),
    Fault.ROUTE_OUTAGE: ("F6",),
    Fault.SENDER_CRASH: ("F8",),
    Fault.RECEIVER_CRASH: ("F10", "F11"),
}
"""Faults of a claim that exploration can bring about, and by which of its own."""

_PROPERTIES: Mapping[Atom, tuple[str, ...]] = {
    Atom.NO_LOSS: ("P2",),
    Atom.NO_DUPLICATE: ("P3",),
    Atom.MONOTONIC: ("P4",),
    Atom.GAP_FREE: ("P6g",),
}


@dataclass(frozen=True, slots=True)
class HopExplored:
    """What exploration says of one pipe.

    ``tried`` are the scopes and what came of each. ``left_out`` are parts of the promise that were not tried, in
    words; where nothing could be tried at all, ``tried`` is empty.
    """

    hop: str
    tried: tuple[tuple[Scope, Exploration], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """``holds``, ``violated``, ``bounded, not exhausted``, or ``not explored``."""
        verdicts = {explored.verdict for _, explored in self.tried}
        if Explored.FOUND in verdicts:
            return str(Explored.VIOLATED)
        for verdict in (Explored.VIOLATED, Explored.BOUNDED, Explored.HOLDS):
            if verdict in verdicts:
                return str(verdict)
        return NOT_EXPLORED

    @property
    def states(self) -> int:
        """How many states were seen in all."""
        return sum(explored.states for _, explored in self.tried)

    @property
    def counterexample(self) -> Exploration | None:
        """The exploration that found a violation."""
        return next((found for _, found in self.tried if found.counterexample is not None), None)

    def __str__(self) -> str:
        lines = [f"{self.hop}: {self.verdict} ({self.states} states)"]
        lines += [f"  {scope}: {explored.verdict}" for scope, explored in self.tried]
        lines += [f"  not tried: {what}" for what in self.left_out]
        return "\n".join(lines)


def explore_hops(
    hops: Sequence[Hop],
    *,
    messages: int = 3,
    states_max: int = STATES_MAX,
    subject: Callable[[Hop], Subject] | None = None,
) -> tuple[HopExplored, ...]:
    """Explore each of these pipes, with about ``states_max`` states in all.

    What one pipe leaves over is there for the next; a pipe ends at its first violation. The same arguments give
    the same answer. ``subject`` builds the machines of a pipe, those that ship without it.
    """
    found: list[HopExplored] = []
    for number, hop in enumerate(hops):
        left = states_max - sum(one.states for one in found)
        machines = (subject or subject_of)(hop) if hop.stream is None else None
        found.append(_explored(hop, machines, messages, left // (len(hops) - number)))
    return tuple(found)


def _explored(hop: Hop, subject: Subject | None, messages: int, states_max: int) -> HopExplored:
    left_out = tuple(_left_out(hop))
    if subject is None:
        return HopExplored(hop.name, left_out=left_out)
    scopes = list(_scopes(hop, messages))
    tried: list[tuple[Scope, Exploration]] = []
    for number, scope in enumerate(scopes):
        left = states_max - sum(explored.states for _, explored in tried)
        limit = max(left // (len(scopes) - number), 1)
        tried.append(reduced_first(subject, replace(scope, states_max=limit)))
        if tried[-1][1].verdict in (Explored.FOUND, Explored.VIOLATED):
            break
    return HopExplored(hop.name, tuple(tried), left_out)


def reduced_first(subject: Subject, scope: Scope) -> tuple[Scope, Exploration]:
    """With reduction; what it finds is searched for again without, and stays found where that takes too long."""
    fewer = replace(scope, reduced=True)
    explored = explore(subject, fewer)
    if explored.verdict is Explored.FOUND:
        whole = replace(scope, states_max=max(scope.states_max, STATES_MAX))
        shortest = explore(subject, whole)
        if shortest.counterexample is not None:
            return whole, shortest
    return fewer, explored


def subject_of(hop: Hop) -> HopSubject:
    """The machines of a pipe, with timers that don't adapt, so that a state says all about what comes."""
    layers = [_with_fixed_timers(layer) for layer in hop.layers]
    return HopSubject(
        layers,
        boundary=Boundary.PROCESSED if _is_committed(hop) else hop.boundary,
        durable=hop.receiver_state is not None and not _is_committed(hop),
        reverse=not hop.route.one_way,
        name=hop.name,
    )


def _with_fixed_timers(layer: LayerOptions) -> LayerOptions:
    first: object = getattr(layer, "rto_initial_s", None)
    fixed = {"rto_min_s": first, "rto_max_s": first, "jitter": 0.0}
    known = {name: value for name, value in fixed.items() if hasattr(layer, name)}
    return layer.model_copy(update=known)


def _scopes(hop: Hop, messages: int) -> Iterator[Scope]:
    """Each kind of fault, for all atoms that tolerate it, then every two. Few messages where they overtake."""
    kept: dict[tuple[Fault, ...], list[str]] = {}
    for atom, faults in evaluate(_plain(hop)).guarantee.items():
        for many in range(3):
            for together in combinations(_tried(hop, faults), many):
                kept.setdefault(together, []).extend(_PROPERTIES[atom])
    for together in sorted(kept, key=len):
        names = [name for kind in together for name in TRIED[kind]]
        overtakes = Fault.ROUTE_REORDERING in together
        yield Scope(
            messages=min(messages, OUT_OF_ORDER_MAX) if overtakes else messages,
            order="any" if overtakes else "fifo",
            faults=dict.fromkeys(names, 1),
            properties=("P1", *kept[together]),
            wakes=OUTAGE_WAKES if Fault.ROUTE_OUTAGE in together else None,
        )


def _plain(hop: Hop) -> Hop:
    """The pipe over a route that exhibits everything, without what is not tried."""
    route = one_way(LOSSY_ROUTE) if hop.route.one_way else LOSSY_ROUTE
    return replace(hop, route=route, lanes=0)


def _tried(hop: Hop, tolerated: Faults) -> tuple[Fault, ...]:
    left_out = _untried_crashes(hop)
    return tuple(kind for kind in TRIED if kind in tolerated and kind not in left_out)


def _untried_crashes(hop: Hop) -> Mapping[Fault, str]:
    """Crashes after which an end goes on from what a store here can't keep."""
    found: dict[Fault, str] = {}
    if hop.journal is not None:
        found[Fault.SENDER_CRASH] = "crashes of the sender, which its journal survives"
    if _is_committed(hop):
        found[Fault.RECEIVER_CRASH] = (
            "crashes of the receiver, whose cursor is committed with effects"
        )
    return found


def _is_committed(hop: Hop) -> bool:
    return hop.boundary is Boundary.COMMITTED


def _left_out(hop: Hop) -> Iterator[str]:
    if hop.stream is not None:
        yield "all of it: what a stream keeps is in a store, and exploration has none"
    yield from _untried_crashes(hop).values()
    if hop.lanes:
        yield "lanes: messages are handled one after the other here"
    if hop.retries is not None or hop.dead_letters is not None:
        yield "handlers that fail, and dead letters"
