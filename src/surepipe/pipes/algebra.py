"""The guarantee algebra: derive what a composition promises, or say why it is refused and what to do.

``derive`` and ``derive_chain`` raise CompositionError whose findings each name code, pipe, layer, cause and
remedies. ``check_claim`` compares a derived guarantee with what somebody expects of it, ``require`` raises when
it is not met. ``warnings`` names what is legal and probably not meant. All are pure: same input, same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from surepipe.errors import CompositionError
from surepipe.pipes.declarations import declaration_of
from surepipe.pipes.derivation import Derived, DerivedChain, evaluate, evaluate_chain, whole
from surepipe.pipes.findings import Code, Finding, Reason
from surepipe.pipes.guarantees import (
    NO_FAULTS,
    Atom,
    Claim,
    Fault,
    Faults,
    Guarantee,
    atoms_text,
    faults_text,
    in_order,
)
from surepipe.pipes.hops import Chain, Hop, window_of
from surepipe.pipes.problems import joint_problems, problems
from surepipe.pipes.repairs import (
    Edit,
    chain_edits,
    first_group,
    process_edits,
    remedies_for,
    search,
    structure_edits,
)


def refusals(hop: Hop) -> tuple[Finding, ...]:
    """Why this hop can't be, with remedies that were tried; empty when it is accepted."""
    found = problems(hop)

    def resolves(changed: Hop) -> bool:
        return len(problems(changed)) < len(found)

    return tuple(
        replace(
            finding,
            remedies=finding.remedies or first_group(hop, remedies_for(finding), resolves),
        )
        for finding in found
    )


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
    cells: dict[tuple[Reason, tuple[Fault, ...]], list[Atom]] = {}
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
    """What would add this fault to the headline and take nothing from it; None when nothing does."""
    headline = derived.headline
    wanted = Claim(headline.atoms, headline.tolerates | {fault})
    return _process_remedy(derived, wanted)


def _unmet(
    derived: Derived | DerivedChain, atom: Atom, wanted: Faults
) -> Iterator[tuple[Reason, tuple[Fault, ...]]]:
    """The reasons why an atom falls short, each with the faults it explains."""
    tolerated = derived.guarantee.tolerated(atom)
    if tolerated is None:
        yield derived.reason(atom, None), ()
        return
    reasons: dict[Reason, list[Fault]] = {}
    for fault in in_order(wanted - tolerated):
        reasons.setdefault(derived.reason(atom, fault), []).append(fault)
    for reason, faults in reasons.items():
        yield reason, tuple(faults)


def _expectation(
    derived: Derived | DerivedChain,
    claim: Claim,
    reason: Reason,
    atoms: tuple[Atom, ...],
    faults: tuple[Fault, ...],
) -> Finding:
    one = len(atoms) == 1
    missing = f"{'does' if one else 'do'} not survive {', '.join(faults)}"
    if not faults:
        missing = f"{'is' if one else 'are'} not provided"
    where = f"in pipe {reason.pipe} " if reason.pipe != derived.name else ""
    return Finding(
        Code.EXPECTATION,
        derived.name,
        f"{claim} is expected, and {atoms_text(atoms)} {missing}: {where}{reason.text}",
        _claim_remedies(derived, claim, reason, atoms, frozenset(faults)),
        layer=reason.layer,
        kind=reason.kind,
        atoms=atoms,
        faults=faults,
    )


def _claim_remedies(
    derived: Derived | DerivedChain,
    claim: Claim,
    reason: Reason,
    atoms: tuple[Atom, ...],
    faults: Faults,
) -> tuple[str, ...]:
    """Changes that repair this cause, keep what holds of the claim, and keep the headline."""
    goal = Claim(frozenset(atoms), faults)
    if isinstance(derived, Derived) and reason.of_route:
        return _layer_remedies(derived, claim, goal)
    remedy = _process_remedy(derived, goal, claim)
    if remedy is None and isinstance(derived, Derived):
        return _layer_remedies(derived, claim, goal)
    return () if remedy is None else (remedy,)


def _layer_remedies(derived: Derived, claim: Claim, goal: Claim) -> tuple[str, ...]:
    headline = derived.headline
    kept = Claim(headline.atoms, headline.tolerates)

    def accept(hop: Hop) -> bool:
        if problems(hop):
            return False
        new = evaluate(hop)
        return (
            new.guarantee.meets(goal)
            and new.guarantee.meets(kept)
            and _keeps(derived.guarantee, new.guarantee, claim)
            and not tuple(_redundant(new))
        )

    found = first_group(derived.hop, structure_edits(), accept)
    return _one_for_each_layer(found)


def _one_for_each_layer(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Of several replacements of one layer, the first."""
    chosen: dict[str, str] = {}
    for text in texts:
        chosen.setdefault(text.rpartition(" by ")[0] or text.split(" ")[0], text)
    return tuple(chosen.values())


def _process_remedy(
    derived: Derived | DerivedChain, goal: Claim, claim: Claim | None = None
) -> str | None:
    old, kept = derived.guarantee, claim or derived.headline
    if isinstance(derived, DerivedChain):

        def accept_chain(chain: Chain) -> bool:
            return not _chain_problems(chain) and _reaches(
                old, evaluate_chain(chain).guarantee, goal, kept
            )

        return search(derived.chain, chain_edits, accept_chain, depth=2)

    def accept(hop: Hop) -> bool:
        return not problems(hop) and _reaches(old, evaluate(hop).guarantee, goal, kept)

    return search(derived.hop, process_edits, accept, depth=3)


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
    """Layers that add no atom and no fault to what is below them."""
    hop = derived.hop
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
    because = declaration_of(hop.layers[number]).provides[atom].because
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
        below = max((window_of(x) for x in hop.layers[number + 1 :]), default=0)
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
    "Edit",
    "chain_refusals",
    "check_claim",
    "derive",
    "derive_chain",
    "refusals",
    "remedy_for_fault",
    "require",
    "warnings",
]
