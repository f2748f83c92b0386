"""The guarantee algebra: derive what a composition promises, or say why it is refused and what to do.

``derive`` and ``derive_chain`` raise CompositionError whose findings each name code, pipe, layer, cause and
remedies. ``check_claim`` compares a derived guarantee with what somebody expects of it, ``require`` raises when
it is not met. ``warnings`` names what is legal and probably not meant. All are pure: same input, same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from surepipe.core.claims import (
    ALL_FAULTS,
    NO_FAULTS,
    STORE_FAULTS,
    Atom,
    Claim,
    Fault,
    Faults,
    Guarantee,
    atoms_text,
    faults_text,
    in_order,
)
from surepipe.errors import CompositionError
from surepipe.guarantees.derivation import Derived, DerivedChain, evaluate, evaluate_chain, whole
from surepipe.guarantees.hops import Chain, Hop, provided_because
from surepipe.guarantees.problems import (
    Code,
    Finding,
    Obstacle,
    joint_problems,
    other_direction,
    problems,
    stack_mismatch,
)
from surepipe.guarantees.repairs import (
    Edit,
    chain_edits,
    first_group,
    grown,
    process_edits,
    remedies_for,
    search,
    structure_edits,
    whole_chain,
)

PAIRS_UP_TO = 3
"""Hops of the longest chain for which pairs of changes are tried."""


def refusals(hop: Hop) -> tuple[Finding, ...]:
    """Why this hop can't be, with remedies that were tried; empty when it is accepted."""
    found = problems(hop)
    back = other_direction(hop)

    def resolves(changed: Hop) -> bool:
        return len(problems(changed)) < len(found)

    def remedies(finding: Finding) -> tuple[str, ...]:
        concerned = back if back is not None and finding.pipe == back.name else hop
        return finding.remedies or first_group(concerned, remedies_for(finding), resolves)

    return tuple(replace(finding, remedies=remedies(finding)) for finding in found)


@lru_cache(maxsize=256)
def derive(hop: Hop) -> Derived:
    """The guarantee of a hop. Raises CompositionError when it is refused."""
    if found := refusals(hop):
        raise CompositionError(found)
    return evaluate(hop)


def chain_refusals(chain: Chain) -> tuple[Finding, ...]:
    """Why this chain can't be; empty when it is accepted."""
    of_hops = (finding for hop in chain.relayed() for finding in refusals(hop))
    return joint_problems(chain) or tuple(of_hops)


def derive_chain(chain: Chain) -> DerivedChain:
    """The guarantee from the first sender to the last receiver. Raises CompositionError when refused."""
    if found := chain_refusals(chain):
        raise CompositionError(found)
    return evaluate_chain(chain)


def check_claim(derived: Derived | DerivedChain, claim: Claim) -> tuple[Finding, ...]:
    """What of the claim does not hold, one finding for each cause; empty when it is met."""
    linked = derived.hop.linked if isinstance(derived, Derived) else derived.chain.linked
    claim = claim.bound(linked)
    cells: dict[tuple[Obstacle, tuple[Fault, ...]], list[Atom]] = {}
    for atom in Atom:
        if atom in claim.atoms:
            for key in _unmet(derived, atom, claim.tolerates):
                cells.setdefault(key, []).append(atom)
    return tuple(
        _expectation(derived, claim, reason, tuple(atoms), faults)
        for (reason, faults), atoms in cells.items()
    )


def require(derived: Derived | DerivedChain, claim: Claim) -> None:
    """Raise CompositionError unless the claim is met."""
    if found := check_claim(derived, claim):
        raise CompositionError(found)


def warnings(derived: Derived) -> tuple[Finding, ...]:
    """What is legal and probably not meant."""
    return (*_redundant(derived), *_weakened(derived), *_small_buffers(derived.hop))


def remedy_for_fault(derived: Derived | DerivedChain, fault: Fault) -> str | None:
    """What would add this fault to the headline and take nothing from it; None when nothing does.

    A store that is added may itself fail: store faults that no store could have had are not kept.
    """
    if fault is Fault.STORE_ROLLBACK:  # noticed, never tolerated
        return None
    goal = Claim(derived.headline.atoms, frozenset({fault}))
    return _process_remedy(derived, goal, _lasting(derived))


def _unmet(
    derived: Derived | DerivedChain, atom: Atom, wanted: Faults
) -> Iterator[tuple[Obstacle, tuple[Fault, ...]]]:
    """The reasons why an atom falls short, each with the faults it explains."""
    tolerated = derived.guarantee.tolerated(atom)
    if derived.guarantee.holds(atom, wanted):
        return
    if tolerated is None:
        yield derived.reason(atom, None), ()
        return
    reasons: dict[Obstacle, list[Fault]] = {}
    for fault in in_order(wanted - tolerated):
        reasons.setdefault(derived.reason(atom, fault), []).append(fault)
    for reason, faults in reasons.items():
        yield reason, tuple(faults)


def _expectation(
    derived: Derived | DerivedChain,
    claim: Claim,
    reason: Obstacle,
    atoms: tuple[Atom, ...],
    faults: tuple[Fault, ...],
) -> Finding:
    one = len(atoms) == 1
    missing = f"{'does' if one else 'do'} not survive {faults_text(frozenset(faults))}"
    if not faults:
        missing = f"{'is' if one else 'are'} not provided"
    where = f"in pipe {reason.pipe} " if reason.pipe != derived.name else ""
    return Finding(
        Code.EXPECTATION,
        derived.name,
        f"{claim} is expected, and {atoms_text(atoms)} {missing}: {where}{reason.text}",
        _claim_remedies(derived, claim, reason, Claim(frozenset(atoms), frozenset(faults))),
        layer=reason.layer,
        kind=reason.kind,
        atoms=atoms,
        faults=faults,
    )


def _claim_remedies(
    derived: Derived | DerivedChain, claim: Claim, reason: Obstacle, goal: Claim
) -> tuple[str, ...]:
    """Changes that repair this cause and keep what holds of the claim."""
    if not (reason.of_route and isinstance(derived, Derived)):
        kept = Claim(
            claim.atoms | derived.headline.atoms, claim.tolerates | (ALL_FAULTS - STORE_FAULTS)
        )
        remedy = _process_remedy(derived, goal, kept)
        return () if remedy is None else (remedy,)
    return _layer_remedies(derived, goal, claim, route_is_cause=reason.layer is None)


def _layer_remedies(
    derived: Derived, goal: Claim, claim: Claim, *, route_is_cause: bool = False
) -> tuple[str, ...]:
    """Changes of layers that reach the goal, keep the headline, and leave no layer without a use."""
    if derived.hop.parks is not None:
        return ()
    old, lasting = derived.guarantee, _lasting(derived)

    def accept(hop: Hop) -> bool:
        if problems(hop):
            return False
        new = evaluate(hop)
        return (
            _reaches(old, new.guarantee, goal, claim)
            and new.guarantee.meets(lasting)
            and not tuple(_redundant(new))
        )

    return first_group(derived.hop, structure_edits(route_is_cause), accept)


def _process_remedy(derived: Derived | DerivedChain, goal: Claim, kept: Claim) -> str | None:
    """The shortest change of journals, boundaries and stores, with a retry pipe where they need one."""
    old = derived.guarantee
    if isinstance(derived, DerivedChain):

        def accept_chain(chain: Chain) -> bool:
            new = evaluate_chain(chain).guarantee
            return not _chain_problems(chain) and _reaches(old, new, goal, kept)

        # Pairs of changes are tried on short chains only: their number grows with the square of the hops.
        depth = 2 if len(derived.chain.hops) <= PAIRS_UP_TO else 1
        found = search([Edit("", derived.chain)], chain_edits, accept_chain, depth)
        return found or whole_chain(derived.chain, accept_chain)

    def accept(hop: Hop) -> bool:
        return not problems(hop) and _reaches(old, evaluate(hop).guarantee, goal, kept)

    as_it_is = [Edit("", derived.hop)]
    return search(as_it_is, process_edits, accept, depth=3) or search(
        tuple(grown(derived.hop)), process_edits, accept, depth=3
    )


def _lasting(derived: Derived | DerivedChain) -> Claim:
    """The headline without the store faults."""
    headline = derived.headline
    return Claim(headline.atoms, headline.tolerates - STORE_FAULTS)


def _chain_problems(chain: Chain) -> tuple[Finding, ...]:
    of_hops = (finding for hop in chain.relayed() for finding in problems(hop))
    return (*joint_problems(chain), *of_hops)


def _reaches(old: Guarantee, new: Guarantee, goal: Claim, kept: Claim) -> bool:
    return new.meets(goal) and _keeps(old, new, kept)


def _keeps(old: Guarantee, new: Guarantee, claim: Claim) -> bool:
    """True when everything of the claim that held still holds."""
    return all(
        (old.tolerated(atom) is None)
        or new.holds(atom, (old.tolerated(atom) or NO_FAULTS) & claim.tolerates)
        for atom in Atom
        if atom in claim.atoms
    )


def _redundant(derived: Derived) -> Iterator[Finding]:
    """Layers that add no atom and no fault to what is below them. (One layer there must be.)"""
    hop = derived.hop
    if len(hop.layers) == 1:
        return
    for number, layer in enumerate(hop.layers):
        above = whole(hop, hop.layers[number:], derived.parts[number])
        below = whole(hop, hop.layers[number + 1 :], derived.parts[number + 1])
        if above <= below:
            yield Finding(
                Code.REDUNDANT,
                hop.name,
                f"{hop.label(number)} adds nothing to what is below it",
                (f"drop layer {number}",),
                layer=number,
                kind=layer.kind,
            )


def _weakened(derived: Derived) -> Iterator[Finding]:
    """Layers that take from the headline of what is below them, where no layer above gives it back."""
    hop, exhibits, parts = derived.hop, derived.exhibits, derived.parts
    for number, layer in enumerate(hop.layers):
        for atom in Atom:
            had = parts[number + 1].holds(atom, exhibits)
            has = parts[number].holds(atom, exhibits) or parts[0].holds(atom, exhibits)
            if had and not has:
                yield _weakening(derived, number, layer.kind, atom)


def _weakening(derived: Derived, number: int, kind: str, atom: Atom) -> Finding:
    hop, left = derived.hop, derived.parts[number].tolerated(atom)
    fall = "is lost" if left is None else f"falls to {faults_text(left) or 'no fault'}"
    because = provided_because(hop, number, atom)
    goal = Claim(frozenset({atom}), derived.exhibits)
    return Finding(
        Code.WEAKENED,
        hop.name,
        f"{atom} {fall}, because {hop.label(number)} {because}",
        _layer_remedies(derived, goal, goal),
        layer=number,
        kind=kind,
        atoms=(atom,),
    )


def _small_buffers(hop: Hop) -> Iterator[Finding]:
    for number, layer in enumerate(hop.layers):
        held = getattr(layer, "held_max", None)
        below = max((x.span_max for x in hop.layers[number + 1 :]), default=0)
        if isinstance(held, int) and held < below:
            yield Finding(
                Code.SMALL_BUFFER,
                hop.name,
                f"{hop.label(number)} holds {held} messages and its carrier has up to {below} under "
                "way; what finds no room comes again",
                (f"raise receive_window to {below}",),
                layer=number,
                kind=layer.kind,
            )


__all__ = [
    "chain_refusals",
    "check_claim",
    "derive",
    "derive_chain",
    "refusals",
    "remedy_for_fault",
    "require",
    "stack_mismatch",
    "warnings",
]
