"""The hops that the declared guarantees are tried on: each pipe alone, its options, and the usual stacks."""

from __future__ import annotations

from surepipe.pipes.algebra.hops import LOCAL, LOSSY_ROUTE, Hop, Level, Route, Store
from surepipe.pipes.desk import Boundary
from surepipe.pipes.options import LayerOptions, parse_layers

# A few messages to a frame and short waits: so that frames, timeouts and faults meet often.
_INDEX = {"run_max": 2}
_RETRY = {"run_max": 2, "window": 16, "rto_initial_s": 0.2, "rto_max_s": 2.0}
_SAFE = Store("safe", Level.POWER)


def layer(kind: str, **options: object) -> LayerOptions:
    """One layer with the common options of these tests."""
    usual = _INDEX if kind in ("strict-monotonic", "continuous-index", "dedupe") else _RETRY
    if kind == "sequential-confirm":
        usual = {**usual, "run_max": 1}
    return parse_layers({kind: {**usual, **options}})[0]


def hop(name: str, *layers: LayerOptions, route: Route = LOSSY_ROUTE) -> Hop:
    """A volatile hop with the boundary ``processed``."""
    return Hop(name, layers, route)


def durable(name: str, *layers: LayerOptions, boundary: Boundary, journal: bool = True) -> Hop:
    """A hop whose ends survive: a journal at the sender, a state at the receiver."""
    return Hop(
        name,
        layers,
        LOSSY_ROUTE,
        boundary=boundary,
        journal=_SAFE if journal else None,
        receiver_state=_SAFE,
        sink=_SAFE if boundary is Boundary.COMMITTED else None,
    )


RESEND, MULTI = layer("resend"), layer("multi-unconfirmed")
SEQUENTIAL, RELIABLE = layer("sequential-confirm"), layer("reliable")
STRICT, CONTINUOUS = layer("strict-monotonic"), layer("continuous-index")
DEDUPE = layer("dedupe")

HOPS = {
    each.name: each
    for each in (
        hop("resend", RESEND),
        hop("resend(run_max=1)", layer("resend", run_max=1)),
        hop("multi-unconfirmed", MULTI),
        hop("sequential-confirm", SEQUENTIAL),
        hop("sequential-confirm(forward)", layer("sequential-confirm", repeats="forward")),
        hop("strict-monotonic", STRICT),
        hop("strict-monotonic(relaxed)", layer("strict-monotonic", relaxed=True)),
        hop("dedupe", DEDUPE),
        hop("reliable", RELIABLE),
        hop("continuous-index/local", CONTINUOUS, route=LOCAL),
        hop("continuous-index > multi-unconfirmed", CONTINUOUS, MULTI),
        hop("continuous-index > resend", CONTINUOUS, RESEND),
        hop("strict-monotonic > resend", STRICT, RESEND),
        hop("strict-monotonic > multi-unconfirmed", STRICT, MULTI),
        hop("resend(run_max=1) > strict-monotonic", layer("resend", run_max=1), STRICT),
        hop("dedupe > multi-unconfirmed", DEDUPE, MULTI),
        durable("reliable, committed", RELIABLE, boundary=Boundary.COMMITTED),
        durable("reliable, durable, processed", RELIABLE, boundary=Boundary.PROCESSED),
        durable(
            "reliable, committed, no journal", RELIABLE, boundary=Boundary.COMMITTED, journal=False
        ),
        durable("sequential-confirm, committed", SEQUENTIAL, boundary=Boundary.COMMITTED),
        durable("strict-monotonic, before", STRICT, boundary=Boundary.BEFORE, journal=False),
        durable(
            "continuous-index > multi-unconfirmed, committed",
            CONTINUOUS,
            MULTI,
            boundary=Boundary.COMMITTED,
        ),
    )
}
