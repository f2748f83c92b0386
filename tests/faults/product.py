"""The cells of the product: each pipe and stack, with its options, each atom that it provides, and each fault.

A cell says what the algebra derives: the atom survives the fault, or it does not. The simulator is asked whether
that is so. Where it does not survive, a run that shows it is kept as a script (``product_golden`` writes them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from surepipe.audit.settings import ATOMS
from surepipe.core.claims import ROUTE, Atom, Fault, Faults, Guarantee
from surepipe.core.store_requests import Level
from surepipe.guarantees import derive
from surepipe.guarantees.hops import LOCAL, DeclaredRoute
from surepipe.pipes.catalogue import KINDS, LayerText
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.simulation.chance.script import Script
from surepipe.simulation.faults import CATALOGUE, FaultKind, kind_of, names_of
from surepipe.simulation.options import Options
from surepipe.simulation.promises import Promise, hop_of, promise_of
from surepipe.simulation.subjects import HopSubject

KEPT = Path(__file__).parent.parent / "golden" / "product"
"""Scripts of runs that show what is not tolerated."""

RETRY: Mapping[str, object] = {"run_max": 2, "window": 16, "rto_initial_s": 0.2, "rto_max_s": 2.0}
INDEX: Mapping[str, object] = {"run_max": 2}
STREAM: Mapping[str, object] = {
    "run_max": 2,
    "rto_initial_s": 0.2,
    "rto_max_s": 2.0,
    "start": "earliest",
    "read_max": 4,
}


@dataclass(frozen=True)
class RoutedHop(HopSubject):
    """A hop over a route with fewer faults than any may have."""

    route: DeclaredRoute = LOCAL

    def promise(self) -> Promise:
        """What the algebra derives over that route."""
        plain = HopSubject(self.layers, self.boundary, self.journaled, self.durable)
        claim = {
            atom.value: tuple(fault.value for fault in Fault if fault in faults - unknown_to(self))
            for atom, faults in guarantee_of(self).items()
        }
        return replace(promise_of(plain), claim=claim)


def layer(kind: str, **options: object) -> LayerText:
    """One layer with a few messages to a frame and short waits: so that frames, timeouts and faults meet often."""
    usual = INDEX if KINDS[kind].is_index else STREAM if kind == "stream" else RETRY
    one = {"run_max": 1} if kind == "sequential-confirm" else {}
    return {kind: {**usual, **one, **options}}


def hop(name: str, *layers: LayerText, **more: object) -> HopSubject:
    """A subject with this name."""
    return HopSubject(list(layers), name=name, **more)  # type: ignore[arg-type]


MULTI, RESEND = layer("multi-unconfirmed"), layer("resend")
CONTINUOUS, STRICT, DEDUPE = layer("continuous-index"), layer("strict-monotonic"), layer("dedupe")
RELIABLE, SEQUENTIAL = layer("reliable"), layer("sequential-confirm")
LETTERS = BoundaryOptions(retries=2, dead_letters=True)
COMMITTED = {"boundary": Boundary.COMMITTED, "durable": True}

SUBJECTS: Sequence[HopSubject] = (
    hop("resend", RESEND),
    hop("resend, one to a frame", layer("resend", run_max=1)),
    hop("multi-unconfirmed", MULTI),
    hop("sequential-confirm", SEQUENTIAL),
    hop("sequential-confirm, forwarding repeats", layer("sequential-confirm", repeats="forward")),
    hop("strict-monotonic", STRICT),
    hop("strict-monotonic, relaxed", layer("strict-monotonic", relaxed=True)),
    hop("dedupe", layer("dedupe", dedupe_window=4)),
    hop("reliable", RELIABLE),
    RoutedHop([CONTINUOUS], name="continuous-index, local route"),
    hop("continuous-index over multi-unconfirmed", CONTINUOUS, MULTI),
    hop("continuous-index over resend", CONTINUOUS, RESEND),
    hop("strict-monotonic over resend", STRICT, RESEND),
    hop("strict-monotonic over multi-unconfirmed", STRICT, MULTI),
    hop("resend over strict-monotonic", layer("resend", run_max=1), STRICT),
    hop("dedupe over multi-unconfirmed", DEDUPE, MULTI),
    hop("reliable, journal", RELIABLE, journaled=True),
    hop("reliable, committed, journal", RELIABLE, journaled=True, **COMMITTED),
    hop("reliable, stored state, journal", RELIABLE, journaled=True, durable=True),
    hop("reliable, committed", RELIABLE, **COMMITTED),
    hop("sequential-confirm, committed, journal", SEQUENTIAL, journaled=True, **COMMITTED),
    hop("strict-monotonic, before", STRICT, boundary=Boundary.BEFORE, durable=True),
    hop(
        "continuous-index over multi-unconfirmed, committed, journal",
        *(CONTINUOUS, MULTI),
        journaled=True,
        **COMMITTED,
    ),
    hop("stream", layer("stream")),
    hop("stream, journal", layer("stream"), journaled=True),
    hop("stream, committed, journal", layer("stream"), journaled=True, **COMMITTED),
    hop("stream, store syncs now and then", layer("stream"), level=Level.INTERVAL),
    hop("stream, letters", layer("stream"), options=LETTERS),
)
BY_NAME: Mapping[str, HopSubject] = {subject.name: subject for subject in SUBJECTS}

NEVER_ALONE = frozenset({Fault.RELAY_CRASH})
"""They need a second hop."""


@dataclass(frozen=True)
class Cell:
    """A subject, an atom that it provides, and a fault."""

    subject: HopSubject
    atom: Atom
    fault: Fault
    is_tolerated: bool

    @property
    def id(self) -> str:
        """The name of the cell, and of the file that shows it."""
        return f"{self.subject.name} - {self.atom} - {self.fault}".replace(",", "").replace(
            " ", "_"
        )

    @property
    def judged(self) -> str:
        """What the atom is judged by."""
        return ATOMS[self.atom]

    @property
    def path(self) -> Path:
        """Where the run is kept that shows it."""
        return KEPT / f"{self.id}.json"


def guarantee_of(subject: HopSubject) -> Guarantee:
    """What the algebra derives."""
    found = hop_of(subject)
    if isinstance(subject, RoutedHop):
        found = replace(found, route=subject.route)
    return derive(found).guarantee


def kinds_for(subject: HopSubject, *faults: Fault) -> list[FaultKind]:
    """The kinds of the catalogue with which any of these faults occurs in a run of this subject."""
    stores = promise_of(subject).stores
    return [
        kind
        for kind in CATALOGUE
        if kind.ranges
        and set(kind.names) & set(faults)
        and (not kind.needs or (bool(stores) if kind.needs == "any" else kind.needs in stores))
    ]


def kinds_within(subject: HopSubject, faults: Faults) -> list[FaultKind]:
    """The kinds that bring none but these faults: the end of a receiver is that of a relay too, in other hops."""
    known = faults | NEVER_ALONE
    return [
        kind
        for kind in kinds_for(subject, *(faults - NEVER_ALONE - unknown_to(subject)))
        if known.issuperset(kind.names)
    ]


def survived_with(cell: Cell) -> Faults:
    """What a run of this cell may have: its own fault, and what its atom survives of what can occur."""
    survived = guarantee_of(cell.subject).tolerated(cell.atom) or frozenset[Fault]()
    return survived - unknown_to(cell.subject) | {cell.fault}


def has_its_faults(cell: Cell, script: Script) -> bool:
    """Whether a run by this script has the fault of the cell, and beside it only what its atom survives.

    What the options alone would allow has not occurred; yet it is told as if it might have, so it counts too.
    """
    ids = [kind_of(decision) for decision in script.decisions if decision.fault]
    possible_too = set(names_of(Options.of(script.options), ids))
    return (
        cell.fault in names_of(Options(), ids) and survived_with(cell) | NEVER_ALONE >= possible_too
    )


def possible(subject: HopSubject) -> Iterator[Fault]:
    """The faults that can occur in a run of it."""
    for fault in Fault:
        if fault not in NEVER_ALONE | unknown_to(subject) and kinds_for(subject, fault):
            yield fault


def unknown_to(subject: HopSubject) -> Faults:
    """What its route never does; the algebra has nothing to say about it."""
    if isinstance(subject, RoutedHop):
        return ROUTE - subject.route.forward
    return frozenset()


def cells() -> Iterator[Cell]:
    """All of them."""
    for subject in SUBJECTS:
        guarantee = guarantee_of(subject)
        for atom in (atom for atom, _ in guarantee.items()):
            for fault in possible(subject):
                yield Cell(subject, atom, fault, guarantee.holds(atom, frozenset({fault})))


CELLS: Sequence[Cell] = tuple(cells())
BROKEN: Sequence[Cell] = tuple(cell for cell in CELLS if not cell.is_tolerated)
