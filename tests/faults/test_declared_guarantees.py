"""Every declared guarantee is tried both ways: what is tolerated holds, what is not is shown to break.

pipes G-10. A tolerated set holds under all its faults together, over seeds. A fault that an atom does not
tolerate breaks it in some run; where none was found the declaration is cautious, and stands in ``CAUTIOUS``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surepipe.pipes.algebra import derive
from surepipe.pipes.algebra.guarantees import ROUTE, Atom, Fault, Faults
from surepipe.pipes.predicates import Outcome
from tests.faults.hops import HOPS
from tests.faults.ordeal import INJECTED, Ordeal

BEYOND_ROUTE: Faults = frozenset(Fault) - ROUTE
SEEDS_THAT_HOLD = 25
SEEDS_TO_BREAK = 400

CAUTIOUS: frozenset[tuple[str, Atom, Fault]] = frozenset()
"""Declared as not tolerated, and never seen to break."""


def tolerated(name: str) -> Iterator[tuple[Atom, Faults]]:
    """The atoms that a hop provides with the faults of each that a run can inject."""
    hop = HOPS[name]
    for atom, faults in derive(hop).guarantee.items():
        yield atom, faults & INJECTED & (hop.route.forward | BEYOND_ROUTE)


def lacking() -> list[tuple[str, Atom, Fault]]:
    """Each provided atom with each fault that breaks it, by the algebra."""
    return [
        (name, atom, fault)
        for name, hop in HOPS.items()
        for atom, faults in derive(hop).guarantee.items()
        for fault in Fault
        if fault in INJECTED and not derive(hop).guarantee.holds(atom, frozenset({fault}))
        if fault not in faults
    ]


@pytest.mark.parametrize("name", HOPS)
def test_what_is_tolerated_holds_under_all_of_it_together(name: str) -> None:
    """pipes G-1, G-10: for each atom, runs with every fault that it tolerates."""
    for atom, faults in tolerated(name):
        for seed in range(SEEDS_THAT_HOLD):
            ordeal = Ordeal(HOPS[name], faults, seed)
            verdict = ordeal.run()
            assert verdict.of(atom) is Outcome.HELD, f"{ordeal}: {verdict.where(atom)}"
            assert ordeal.is_quiescent or atom is not Atom.NO_LOSS, f"{ordeal}: never quiet"


@pytest.mark.parametrize(
    ("name", "atom", "fault"), lacking(), ids=lambda value: str(value).replace(" ", "")
)
def test_what_is_not_tolerated_is_shown_to_break(name: str, atom: Atom, fault: Fault) -> None:
    """pipes G-1, G-10: with this fault beside those that it tolerates, some run breaks the atom."""
    faults = dict(tolerated(name))[atom] | {fault}
    breaks = any(
        Ordeal(HOPS[name], faults, seed).run().of(atom) is Outcome.VIOLATED
        for seed in range(SEEDS_TO_BREAK)
    )
    assert breaks != ((name, atom, fault) in CAUTIOUS)


def test_the_cautious_declarations_are_few() -> None:
    """pipes G-10: at most five."""
    assert len(CAUTIOUS) <= 5
    assert set(lacking()) >= CAUTIOUS
