"""Every declared guarantee is tried both ways: what is tolerated holds, what is not is shown to break.

pipes G-10. A tolerated set holds under all its faults together, over seeds. A fault that an atom does not
tolerate breaks it in some run; where none was found the declaration is cautious, and stands in ``CAUTIOUS``
under a note that says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product
from typing import TypeAlias

import pytest

from surepipe.pipes.algebra import derive
from surepipe.pipes.algebra.guarantees import ROUTE, Atom, Fault, Faults
from surepipe.pipes.predicates import Outcome
from tests.faults.hops import HOPS
from tests.faults.ordeal import INJECTED, Ordeal

Cell: TypeAlias = tuple[str, Atom, Fault]

BEYOND_ROUTE: Faults = frozenset(Fault) - ROUTE
SEEDS_THAT_HOLD = 10
SEEDS_TO_BREAK = 200


def cells(names: Iterable[str], atoms: Iterable[Atom], *faults: Fault) -> frozenset[Cell]:
    """Each of these hops with each of these atoms and faults."""
    return frozenset(product(names, atoms, faults))


RESTRAINING = (Atom.NO_DUPLICATE, Atom.MONOTONIC)

CAUTIOUS: Mapping[str, frozenset[Cell]] = {
    "power-loss, reliable without stores: both ends forget at once, so nobody sends again what was settled, and "
    "a receiver that starts afresh takes no data of a link that it did not make itself": cells(
        ["reliable"], RESTRAINING, Fault.POWER_LOSS
    ),
    "receiver-crash and power-loss, order and repeats, index pipes on a bare route that neither repeats nor "
    "overtakes: what is sent once and in order can be lost by a crash, but not come again or too late": (
        cells(["dedupe"], [Atom.MONOTONIC], Fault.RECEIVER_CRASH, Fault.POWER_LOSS)
        | cells(["continuous-index/local"], RESTRAINING, Fault.RECEIVER_CRASH, Fault.POWER_LOSS)
    ),
    "sender-zombie without a journal: a replaced sender numbers anew only what it still keeps, and index pipes on "
    "a bare route keep nothing, while reliable sends nothing before it was answered, so nothing comes again": (
        cells(["reliable", "strict-monotonic"], [Atom.NO_DUPLICATE], Fault.SENDER_ZOMBIE)
        | cells(["dedupe", "continuous-index/local"], RESTRAINING, Fault.SENDER_ZOMBIE)
    ),
    "receiver-crash and power-loss, monotonic, one message at a time: all copies of a message left before it was "
    "confirmed, so on a route that keeps order they arrive before the next one, whoever has forgotten what": (
        cells(
            ["resend(run_max=1)", "sequential-confirm(forward)"],
            [Atom.MONOTONIC],
            *(Fault.RECEIVER_CRASH, Fault.POWER_LOSS),
        )
    ),
    "receiver-crash and receiver-zombie, gap-free, continuous-index without a carrier that confirms: the new "
    "receiver is never told where to go on, so it loses everything and passes nothing on, which is no gap": (
        cells(
            ["continuous-index/local"],
            [Atom.GAP_FREE],
            *(Fault.RECEIVER_CRASH, Fault.RECEIVER_ZOMBIE),
        )
    ),
}
"""Declared as not tolerated and never seen to break: each note says why, and for which declarations."""

NOT_REACHED: frozenset[Cell] = cells(
    (
        *("continuous-index > multi-unconfirmed", "strict-monotonic > multi-unconfirmed"),
        *("continuous-index > resend", "strict-monotonic > resend", "dedupe > multi-unconfirmed"),
    ),
    [Atom.NO_DUPLICATE],
    Fault.SENDER_ZOMBIE,
) | cells(["dedupe > multi-unconfirmed"], [Atom.MONOTONIC], Fault.SENDER_ZOMBIE)
"""Open: neither shown to break by these ordeals, nor known to be caution.

A refusal would have to reach a replaced sender all of whose confirms were lost.
"""

ALL_CAUTIOUS: frozenset[Cell] = frozenset(chain.from_iterable(CAUTIOUS.values()))

VOLATILE = [name for name, hop in HOPS.items() if not hop.stores]
"""What a store adds is how much is tolerated; how a pipe breaks without is seen on these."""


def tolerated(name: str) -> Iterator[tuple[Atom, Faults]]:
    """The atoms that a hop provides with the faults of each that a run can inject."""
    hop = HOPS[name]
    for atom, faults in derive(hop).guarantee.items():
        yield atom, faults & INJECTED & (hop.route.forward | BEYOND_ROUTE)


def lacking() -> list[Cell]:
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


@pytest.mark.parametrize("name", VOLATILE)
def test_what_is_not_tolerated_is_shown_to_break(name: str) -> None:
    """pipes G-1, G-10: with one more fault beside those that an atom tolerates, some run breaks the atom."""
    unbroken = [
        (atom, fault)
        for hop, atom, fault in lacking()
        if hop == name
        if (name, atom, fault) not in ALL_CAUTIOUS | NOT_REACHED
        if not breaks(name, atom, fault)
    ]
    assert unbroken == []


def breaks(name: str, atom: Atom, fault: Fault) -> bool:
    """Whether some seed breaks the atom."""
    faults = dict(tolerated(name))[atom] | {fault}
    ordeals = (Ordeal(HOPS[name], faults, seed, focus=fault) for seed in range(SEEDS_TO_BREAK))
    return any(ordeal.run().of(atom) is Outcome.VIOLATED for ordeal in ordeals)


def test_what_is_declared_with_caution_is_declared_and_few() -> None:
    """pipes G-10: at most five notes, each about faults that are declared as not tolerated."""
    assert len(CAUTIOUS) <= 5
    assert set(lacking()) >= ALL_CAUTIOUS | NOT_REACHED
