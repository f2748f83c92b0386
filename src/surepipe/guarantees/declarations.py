"""What each kind of layer requires of its carrier and makes of it: one row for each way to set it up.

The algebra folds these rows from the route upwards, findings and explanations quote their sentences, and the
tables of patterns.md are printed from them. A row maps the *route part* of a guarantee (for each atom, the
route faults it survives) of the carrier to that of the layer. Crashes and stores are no matter of single
layers; ``process_part`` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from surepipe.guarantees.claims import ROUTE, Atom, Fault, Faults, Guarantee
from surepipe.guarantees.hops import Hop, Route, confirms_return
from surepipe.pipes.options import (
    ContinuousIndexOptions,
    DedupeOptions,
    LayerOptions,
    MultiUnconfirmedOptions,
    ReliableOptions,
    ResendOptions,
    SequentialConfirmOptions,
    StreamOptions,
    StrictMonotonicOptions,
    entry_layer,
)


class Reverse(IntEnum):
    """How frames get back from the receiver; each one includes those before it."""

    NONE = 0
    FAIR = 1
    AT_LEAST_ONCE = 2

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Term:
    """An atom of a layer as a function of its carrier's route part; None is: not provided."""

    text: str
    value: Callable[[Guarantee], Faults | None]


@dataclass(frozen=True, slots=True)
class Provision:
    """What becomes of one atom, and the reason in words that follow "the layer ..."."""

    term: Term
    because: str

    @property
    def own(self) -> bool:
        """True when the layer gives the atom by itself, whatever its carrier is."""
        return self.term is _ALL


@dataclass(frozen=True, slots=True)
class Declaration:
    """One row: a kind, with the options under which the row applies."""

    kind: str
    when: str
    applies: Callable[[LayerOptions], bool]
    provides: Mapping[Atom, Provision]
    reverse: Reverse = Reverse.NONE
    at_least_once_carrier: bool = False

    @property
    def requires(self) -> str:
        """What the layer needs from below, in words."""
        needs = ["an at-least-once carrier"] if self.at_least_once_carrier else []
        if self.reverse is not Reverse.NONE:
            needs.append(f"a reverse path, {self.reverse}")
        return " and ".join(needs) or "nothing"

    def apply(self, carrier: Guarantee) -> Guarantee:
        """The route part of this layer over that carrier."""
        return Guarantee.of(
            {atom: provision.term.value(carrier) for atom, provision in self.provides.items()}
        )

    def row(self) -> tuple[str, ...]:
        """Kind, options, requirement and the terms of the four atoms, as text."""
        return (self.kind, self.when, self.requires, *(self.provides[a].term.text for a in Atom))


def _both(a: Faults | None, b: Faults | None) -> Faults | None:
    return None if a is None or b is None else a & b


def _larger(monotonic: Faults | None, gap_free: Faults | None) -> Faults | None:
    """Without repeats, gap-free implies monotonic: whichever of the two tells more."""
    if monotonic is None:
        return gap_free
    return gap_free if gap_free is not None and monotonic <= gap_free else monotonic


_ALL = Term("ROUTE", lambda _: ROUTE)
_ABSENT = Term("–", lambda _: None)
_N = Term("n", lambda carrier: carrier.no_loss)
_M = Term("m", lambda carrier: carrier.monotonic)
_G = Term("g", lambda carrier: carrier.gap_free)
_N_AND_G = Term("n ∩ g", lambda carrier: _both(carrier.no_loss, carrier.gap_free))
_M_OR_G = Term(
    "the larger of m and g", lambda carrier: _larger(carrier.monotonic, carrier.gap_free)
)

_RESENDS = Provision(_ALL, "sends again until the receiver has confirmed")
_REPEATS = Provision(_ABSENT, "delivers a message again when its confirm was lost")
_PASSES_LOSS = Provision(_N, "never sends again, so it loses what its carrier loses")
_NO_REPEAT = Provision(_ALL, "drops what it has passed on before, by identity")
_ONE_UNIT = Provision(_ALL, "sends nothing new before the former frame is confirmed")
_IN_TURN = Provision(_ALL, "passes on what comes next and nothing else")
_ONE_IN_FLIGHT = Provision(
    _M, "repeats single messages, so that a late copy of one is all that goes back"
)
_RUNS_REPEAT = Provision(_ABSENT, "repeats whole runs, so that a run that comes twice goes back")
_NEVER_BACK = Provision(_ALL, "drops what comes behind the highest it has passed on")


def _row(
    model: type[LayerOptions],
    provides: tuple[Provision, Provision, Provision, Provision],
    *,
    when: str = "",
    applies: Callable[[LayerOptions], bool] = lambda _: True,
    reverse: Reverse = Reverse.NONE,
    at_least_once_carrier: bool = False,
) -> Declaration:
    return Declaration(
        kind=model.kind,
        when=when,
        applies=lambda layer: isinstance(layer, model) and applies(layer),
        provides=dict(zip(Atom, provides, strict=True)),
        reverse=reverse,
        at_least_once_carrier=at_least_once_carrier,
    )


def _is(name: str, value: object) -> Callable[[LayerOptions], bool]:
    return lambda layer: getattr(layer, name) == value


def _is_sequential(retry: str, repeats: str, run_max: int | None) -> Callable[[LayerOptions], bool]:
    def applies(layer: LayerOptions) -> bool:
        return (
            isinstance(layer, SequentialConfirmOptions)
            and (layer.retry, layer.repeats) == (retry, repeats)
            and run_max in (None, layer.run_max)
        )

    return applies


def _sequential(
    repeats: str,
    provides: tuple[Provision, Provision, Provision, Provision],
    when: str = "",
    run_max: int | None = None,
) -> list[Declaration]:
    """Two rows of sequential-confirm, which differ in who sends again."""
    return [
        _row(
            SequentialConfirmOptions,
            provides,
            when=f"retry: {retry}{when}",
            applies=_is_sequential(retry, repeats, run_max),
            reverse=reverse,
            at_least_once_carrier=retry == "carrier",
        )
        for retry, reverse in (("own", Reverse.FAIR), ("carrier", Reverse.AT_LEAST_ONCE))
    ]


_SEQUENTIAL_REPEATS = Provision(_ABSENT, "is set to forward repeats")
_EXACT = (_RESENDS, _NO_REPEAT, _IN_TURN, _IN_TURN)
_STRICT_LOSS = Provision(
    _N_AND_G, "drops what comes late, and its carrier may deliver out of order or with gaps"
)
_STRICT_GAPS = Provision(_G, "waits for nothing, so that a gap of its carrier stays a gap")

DECLARATIONS: tuple[Declaration, ...] = (
    _row(
        ResendOptions,
        (_RESENDS, _REPEATS, _ONE_IN_FLIGHT, _ONE_UNIT),
        when="run_max: 1",
        applies=_is("run_max", 1),
        reverse=Reverse.FAIR,
    ),
    _row(ResendOptions, (_RESENDS, _REPEATS, _RUNS_REPEAT, _ONE_UNIT), reverse=Reverse.FAIR),
    _row(
        MultiUnconfirmedOptions,
        (
            _RESENDS,
            _REPEATS,
            Provision(_ABSENT, "delivers as frames arrive, re-sent ones late"),
            Provision(_N_AND_G, "delivers as frames arrive, past those that are still missing"),
        ),
        reverse=Reverse.FAIR,
    ),
    *_sequential("none", _EXACT),
    *_sequential(
        "forward",
        (_RESENDS, _SEQUENTIAL_REPEATS, _ONE_IN_FLIGHT, _ONE_UNIT),
        ", repeats: forward, run_max: 1",
        run_max=1,
    ),
    *_sequential(
        "forward",
        (_RESENDS, _SEQUENTIAL_REPEATS, _RUNS_REPEAT, _ONE_UNIT),
        ", repeats: forward",
    ),
    _row(
        StrictMonotonicOptions,
        (_STRICT_LOSS, _NO_REPEAT, _NEVER_BACK, _STRICT_GAPS),
        applies=_is("relaxed", False),
    ),
    _row(
        StrictMonotonicOptions,
        (
            _STRICT_LOSS,
            Provision(_ABSENT, "is set to let the last message through again"),
            _NEVER_BACK,
            _STRICT_GAPS,
        ),
        when="relaxed: true",
        applies=_is("relaxed", True),
    ),
    _row(
        ContinuousIndexOptions,
        (_PASSES_LOSS, _NO_REPEAT, _IN_TURN, _IN_TURN),
        applies=_is("repeats", "none"),
        at_least_once_carrier=True,
    ),
    _row(
        ContinuousIndexOptions,
        (
            _PASSES_LOSS,
            Provision(_ABSENT, "is set to let the last message through again"),
            _IN_TURN,
            _IN_TURN,
        ),
        when="repeats: last",
        applies=_is("repeats", "last"),
        at_least_once_carrier=True,
    ),
    _row(
        ContinuousIndexOptions,
        (
            _PASSES_LOSS,
            Provision(_ABSENT, "is set to let every repeat through"),
            Provision(_ABSENT, "is set to let every repeat through"),
            _IN_TURN,
        ),
        when="repeats: all",
        applies=_is("repeats", "all"),
        at_least_once_carrier=True,
    ),
    _row(
        DedupeOptions,
        (
            _PASSES_LOSS,
            _NO_REPEAT,
            Provision(_M_OR_G, "keeps the order of first arrivals, whatever that is"),
            Provision(_G, "keeps the order of first arrivals, whatever that is"),
        ),
    ),
    _row(ReliableOptions, _EXACT, reverse=Reverse.FAIR),
    _row(
        StreamOptions,
        (
            Provision(_ALL, "appends again until the store has the message"),
            Provision(_ALL, "appends by identity, so that a repeat is stored once"),
            Provision(_ALL, "reads the store in the order of its indexes"),
            Provision(_ALL, "reads the store in the order of its indexes"),
        ),
        reverse=Reverse.FAIR,
    ),
)


def declaration_of(layer: LayerOptions) -> Declaration:
    """The row that applies to a layer."""
    return next(row for row in DECLARATIONS if row.applies(layer))


# The route part of a guarantee: a fold of the layers' declarations, from the route upwards.


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
