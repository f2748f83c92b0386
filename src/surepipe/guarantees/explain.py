"""What a composition promises, in words: the reason for each atom, and what each missing fault would take."""

from __future__ import annotations

from dataclasses import dataclass

from surepipe.core.claims import (
    NO_FAULTS,
    Atom,
    Claim,
    Fault,
    Faults,
    atoms_text,
    faults_text,
    in_order,
    together,
)
from surepipe.guarantees.composing import remedy_for_fault, warnings
from surepipe.guarantees.derivation import Derived, DerivedChain
from surepipe.guarantees.hops import Hop, composition
from surepipe.guarantees.problems import Finding
from surepipe.pipes.catalogue import kind_of

HOST_WAITS = (
    "it takes from the route what the receiver has room for (`has_room`; actors and channels do), and what the "
    "route can't hold meanwhile is route-loss"
)
"""What keeps a message that is tried again from costing others, where no confirm tells the sender to wait."""


@dataclass(frozen=True, slots=True)
class AtomLine:
    """One atom: what it survives (None: it is not provided), and why."""

    atom: Atom
    survives: Faults | None
    because: str

    def __str__(self) -> str:
        if self.survives is None:
            return f"{self.atom}: not provided, because {self.because}"
        return f"{self.atom}: {self.because}; survives {faults_text(self.survives) or 'no fault'}"


@dataclass(frozen=True, slots=True)
class LackLine:
    """Faults that break the headline, the atoms that they break, and what would help.

    There are several where they strike together; ``fault`` is the first.
    """

    faults: tuple[Fault, ...]
    atoms: tuple[Atom, ...]
    because: str
    remedy: str | None

    @property
    def fault(self) -> Fault:
        return self.faults[0]

    def __str__(self) -> str:
        remedy = f"to add it: {self.remedy}" if self.remedy else "no small change adds it"
        named = faults_text(frozenset(self.faults))
        return f"{named} ({atoms_text(self.atoms)}): {self.because}; {remedy}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that is to be said about an accepted composition."""

    name: str
    composition: str
    headline: Claim
    atoms: tuple[AtomLine, ...]
    lacks: tuple[LackLine, ...]
    warnings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    order: str = ""
    """Which order is kept within a key, and across keys; empty without lanes."""

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.composition}", f"  {self.headline}"]
        lines += [f"  {self.order}"] if self.order else []
        lines += [f"  {atom}" for atom in self.atoms]
        lines += [f"  lacks {lack}" for lack in self.lacks]
        lines += [f"  warning {finding}" for finding in self.warnings]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])


def explain(derived: Derived) -> Explanation:
    """Explain a hop."""
    return Explanation(
        derived.name,
        composition(derived.hop),
        derived.headline,
        tuple(_atom_line(derived, atom) for atom in Atom),
        _lacks(derived),
        warnings(derived),
        _notes(derived),
        derived.order_text,
    )


def explain_chain(derived: DerivedChain) -> Explanation:
    """Explain a chain; each hop can be explained by itself too."""
    hops = " | ".join(composition(hop.hop) for hop in derived.hops)
    return Explanation(
        derived.name,
        hops,
        derived.headline,
        tuple(
            AtomLine(atom, derived.guarantee.tolerated(atom), "what every hop survives")
            for atom in Atom
        ),
        _lacks(derived),
    )


def _atom_line(derived: Derived, atom: Atom) -> AtomLine:
    return AtomLine(atom, derived.guarantee.tolerated(atom), derived.because(atom))


def _lacks(derived: Derived | DerivedChain) -> tuple[LackLine, ...]:
    headline, found = derived.headline, list[LackLine]()
    linked = derived.hop.linked if isinstance(derived, Derived) else derived.chain.linked
    left = frozenset(headline.lacks())
    for fault in headline.lacks():
        if fault in left:
            struck = together(frozenset({fault}), linked)
            found.append(_lack_line(derived, in_order(struck), headline.atoms))
            left -= struck
    return tuple(found)


def _lack_line(
    derived: Derived | DerivedChain, faults: tuple[Fault, ...], headline: frozenset[Atom]
) -> LackLine:
    fault = faults[0]
    broken = tuple(
        atom
        for atom in Atom
        if atom in headline and fault not in (derived.guarantee.tolerated(atom) or NO_FAULTS)
    )
    reasons = dict.fromkeys(derived.reason(atom, fault).text for atom in broken)
    return LackLine(faults, broken, " and ".join(reasons), remedy_for_fault(derived, fault))


def _notes(derived: Derived) -> tuple[str, ...]:
    hop, found = derived.hop, list[str]()
    if not hop.parks and not derived.guarantee.holds(Atom.NO_LOSS, derived.exhibits):
        found.append("no-loss is not provided: confirmed means that a message reached the receiver")
    elif hop.layers and not any(layer.confirms for layer in hop.layers):
        found.append(f"no-loss rests on the host, as nobody sends again: {HOST_WAITS}")
    for number, layer in enumerate(hop.layers):
        found += layer.notes(hop.label(number))
        if hop.lanes and kind_of(layer).sender.one_at_a_time:
            unit = "sends the next frame when all of the last is settled"
            found.append(f"{hop.label(number)} {unit}: one message that fails holds up all keys")
    return (*found, *_declared_levels(hop))


def _declared_levels(hop: Hop) -> tuple[str, ...]:
    return tuple(
        f"level {store.level} of store {store.name} is declared, not probed"
        for store in hop.stores
        if store.declared
    )
