"""Short ways to write the hops that the algebra's tests are about."""

from __future__ import annotations

from dataclasses import replace

from surepipe.core.claims import Claim, Fault
from surepipe.core.store_requests import Level
from surepipe.guarantees import derive, refusals, warnings
from surepipe.guarantees.hops import LOSSY_ROUTE, DeclaredRoute, DeclaredStore, Hop, one_way
from surepipe.guarantees.problems import Code, Finding
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.boundary import Boundary

PROCESS = DeclaredStore("main", Level.PROCESS)
POWER = DeclaredStore("main", Level.POWER)
ELSEWHERE = DeclaredStore("other", Level.POWER)
MEMORY = DeclaredStore("scratch", Level.NONE, "memory")
ONE_WAY = one_way(LOSSY_ROUTE)
_REORDERING = frozenset({Fault.ROUTE_REORDERING})
OVERTAKES = DeclaredRoute("overtakes", _REORDERING, _REORDERING)
"""It loses nothing, and brings messages in any order."""
CARRIER_SEQUENTIAL: LayerText = {"sequential-confirm": {"retry": "carrier"}}
STREAM: LayerText = {"stream": {"start": "earliest"}}


def hop(*layers: LayerText, route: DeclaredRoute = LOSSY_ROUTE) -> Hop:
    """A pipe called orders with these layers and nothing around them."""
    return Hop("orders", parse_layers(layers), route)


def layers_of(*layers: LayerText) -> tuple[LayerOptions, ...]:
    """Just the layers."""
    return parse_layers(layers)


def stream_hop(
    store: DeclaredStore = POWER, *above: LayerText, boundary: Boundary = Boundary.PROCESSED
) -> Hop:
    """A pipe through a stream that this store keeps."""
    layers = parse_layers([*above, STREAM])
    return Hop("orders", layers, LOSSY_ROUTE, stream=store, boundary=boundary)


def committed(plain: Hop, store: DeclaredStore = POWER) -> Hop:
    """Journal, receiver state and sink in one store, and the boundary that makes of it."""
    return replace(
        plain, journal=store, receiver_state=store, sink=store, boundary=Boundary.COMMITTED
    )


def headline(accepted: Hop) -> str:
    """The two names of what a hop promises."""
    claim = derive(accepted).headline
    return f"{claim.delivery}, {claim.order}"


def lacks(accepted: Hop) -> list[str]:
    """The faults that the headline doesn't tolerate."""
    return [fault.value for fault in derive(accepted).headline.lacks()]


def only_refusal(refused: Hop) -> str:
    """The text of the one finding against a hop."""
    (finding,) = refusals(refused)
    return str(finding)


def codes(refused: Hop) -> list[Code]:
    """The codes of all findings against a hop."""
    return [finding.code for finding in refusals(refused)]


def warned(accepted: Hop) -> list[Finding]:
    """The warnings about a hop that is accepted."""
    return list(warnings(derive(accepted)))


def claim(text: str) -> Claim:
    """A claim, as people write it."""
    return Claim.parse(text)
