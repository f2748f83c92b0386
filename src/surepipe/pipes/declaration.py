"""What a kind of pipe is: its options, the two halves of its layer, and what it requires and provides.

A declaration is one row for each way to set a kind up. The algebra folds these rows from the route upwards,
findings and explanations quote their sentences, and the tables of patterns.md are printed from them. A row maps
the *route part* of a guarantee (for each atom, the route faults it survives) of the carrier to that of the layer.
Crashes and stores are no matter of single layers; ``guarantees/derivation.py`` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from surepipe.core.claims import ROUTE, Atom, Fault, Faults, Guarantee
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.layers import ReceiverLayer, SenderLayer


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
    """The effect of a layer on one atom, and the reason in words that follow "the layer ...".

    ``window``: the option up to which it puts right what overtakes, and ``beyond``, what it does with the rest.
    Where the route overtakes and no layer below bounds by how much, it does not survive that (decision 0063).
    """

    term: Term
    because: str
    window: str = ""
    beyond: str = ""

    def value(self, carrier: Guarantee, *, within_window: bool) -> Faults | None:
        """What the atom survives; ``within_window``: whether no message comes earlier or later than that."""
        survived = self.term.value(carrier)
        if survived is None or within_window or not self.window:
            return survived
        return survived - {Fault.ROUTE_REORDERING}

    @property
    def text(self) -> str:
        """The term, as tables have it."""
        return f"{self.term.text} within {self.window}" if self.window else self.term.text

    @property
    def own(self) -> bool:
        """True when the layer gives the atom by itself, whatever its carrier is."""
        return self.term is ALL


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
        carrier = "an at-least-once carrier"
        if self.provides[Atom.NO_LOSS].window:
            carrier += ", which confirms if the route overtakes"
        needs = [carrier] if self.at_least_once_carrier else []
        if self.reverse is not Reverse.NONE:
            needs.append(f"a reverse path, {self.reverse}")
        return " and ".join(needs) or "nothing"

    def apply(self, carrier: Guarantee, *, within_window: bool = True) -> Guarantee:
        """The route part of this layer over that carrier."""
        return Guarantee.of(
            {
                atom: provision.value(carrier, within_window=within_window)
                for atom, provision in self.provides.items()
            }
        )

    def row(self) -> tuple[str, ...]:
        """Kind, options, requirement and the terms of the four atoms, as text."""
        return (self.kind, self.when, self.requires, *(self.provides[a].text for a in Atom))


def _both(a: Faults | None, b: Faults | None) -> Faults | None:
    return None if a is None or b is None else a & b


def _larger(monotonic: Faults | None, gap_free: Faults | None) -> Faults | None:
    """Without repeats, gap-free implies monotonic: whichever of the two tells more."""
    if monotonic is None:
        return gap_free
    return gap_free if gap_free is not None and monotonic <= gap_free else monotonic


ALL = Term("ROUTE", lambda _: ROUTE)
ABSENT = Term("–", lambda _: None)
N = Term("n", lambda carrier: carrier.no_loss)
M = Term("m", lambda carrier: carrier.monotonic)
G = Term("g", lambda carrier: carrier.gap_free)
N_AND_G = Term("n ∩ g", lambda carrier: _both(carrier.no_loss, carrier.gap_free))
M_OR_G = Term("the larger of m and g", lambda carrier: _larger(carrier.monotonic, carrier.gap_free))

RESENDS = Provision(ALL, "sends again until the receiver has confirmed")
REPEATS = Provision(ABSENT, "delivers a message again when its confirm was lost")
NO_REPEAT = Provision(ALL, "drops what it has passed on before, by identity")
ONE_UNIT = Provision(ALL, "sends nothing new before the former frame is confirmed")
IN_TURN = Provision(ALL, "passes on what comes next and nothing else")
ONE_IN_FLIGHT = Provision(
    M, "repeats single messages, so that a late copy of one is all that goes back"
)
RUNS_REPEAT = Provision(ABSENT, "repeats whole runs, so that a run that comes twice goes back")
NEVER_BACK = Provision(ALL, "drops what comes behind the highest it has passed on")


EXACT = (RESENDS, NO_REPEAT, IN_TURN, IN_TURN)
"""The whole of it: exactly-once in absolute order, whatever the route does."""


def row(
    model: type[LayerOptions],
    provides: tuple[Provision, Provision, Provision, Provision],
    *,
    when: str = "",
    applies: Callable[[LayerOptions], bool] = lambda _: True,
    reverse: Reverse = Reverse.NONE,
    at_least_once_carrier: bool = False,
) -> Declaration:
    """One row: no-loss, no-duplicate, monotonic, gap-free, in this order. ``when`` names the options it is for."""
    return Declaration(
        kind=model.kind,
        when=when,
        applies=applies,
        provides=dict(zip(Atom, provides, strict=True)),
        reverse=reverse,
        at_least_once_carrier=at_least_once_carrier,
    )


def set_to(**options: object) -> Callable[[LayerOptions], bool]:
    """Whether a layer has just these values."""
    return lambda layer: all(getattr(layer, name) == value for name, value in options.items())


@dataclass(frozen=True, slots=True)
class PipeKind:
    """A pipe, as the catalogue has it.

    ``declares``: of the rows, the first that applies to a layer is its declaration; the last applies to all.
    ``advised``: its rank among the pipes that ``check`` proposes to put into a stack; 0: it is never proposed.
    """

    options: type[LayerOptions]
    sender: type[SenderLayer]
    receiver: type[ReceiverLayer]
    declares: tuple[Declaration, ...]
    advised: int = 0

    @property
    def name(self) -> str:
        return self.options.kind

    def declaration(self, layer: LayerOptions) -> Declaration:
        """The row that applies to a layer of this kind."""
        return next(one for one in self.declares if one.applies(layer))
