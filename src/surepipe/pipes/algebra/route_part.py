"""The route part of a guarantee: a fold of the layers' declarations, from the route upwards."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.pipes.algebra.declarations import Reverse, declaration_of
from surepipe.pipes.algebra.guarantees import ROUTE, Atom, Fault, Faults, Guarantee
from surepipe.pipes.algebra.hops import Hop, Route, confirms_return
from surepipe.pipes.options import LayerOptions, StreamOptions, entry_layer

_BARE: dict[Atom, Faults] = {
    Atom.NO_LOSS: frozenset({Fault.ROUTE_DUPLICATION, Fault.ROUTE_REORDERING, Fault.ROUTE_DELAY}),
    Atom.NO_DUPLICATE: ROUTE - {Fault.ROUTE_DUPLICATION},
    Atom.MONOTONIC: ROUTE - {Fault.ROUTE_DUPLICATION, Fault.ROUTE_REORDERING},
    Atom.GAP_FREE: frozenset({Fault.ROUTE_DUPLICATION, Fault.ROUTE_DELAY}),
}
"""What each atom survives without any layer: a fault that doesn't touch it."""


def bare(route: Route) -> Guarantee:
    """The guarantee of a route alone: it also survives whatever the route does not exhibit."""
    return Guarantee.of({atom: faults | (ROUTE - route.forward) for atom, faults in _BARE.items()})


def route_parts(layers: Sequence[LayerOptions], route: Route) -> tuple[Guarantee, ...]:
    """What stands above each layer, outermost first; the last one is the bare route."""
    parts = [bare(route)]
    for layer in reversed(layers):
        parts.append(declaration_of(layer).apply(parts[-1]))
    return tuple(reversed(parts))


def reverse_path(hop: Hop, number: int) -> Reverse:
    """How frames of this layer get back."""
    above_stream = any(isinstance(below, StreamOptions) for below in hop.layers[number + 1 :])
    if hop.route.one_way or above_stream:
        return Reverse.NONE
    if confirms_return(hop.route):
        return Reverse.AT_LEAST_ONCE
    if hop.channel_back is not None and _brings_confirms(hop.channel_back, hop.route.reversed()):
        return Reverse.AT_LEAST_ONCE
    return Reverse.FAIR


def _brings_confirms(layers: Sequence[LayerOptions], route: Route) -> bool:
    """Whether confirms that enter this stack arrive, whatever the route does.

    They enter below every layer that itself waits for carried confirms: two such stacks carry each other's.
    """
    entry = entry_layer(layers)
    return entry is not None and route_parts(layers[entry:], route)[0].no_loss == ROUTE
