"""Guarantees and claims are plain values: compared, met, read and printed the same everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.claims import (
    ALL_FAULTS,
    DELIVERY_NAMES,
    MEANING,
    ORDER_NAMES,
    PROCESS_CRASH,
    ROUTE,
    WORD_MEANING,
    WORDS,
    Atom,
    Claim,
    Fault,
    Guarantee,
    atoms_text,
    faults_text,
    faults_told,
    in_order,
    parse_faults,
    word_of,
)
from surepipe.errors import ConfigurationError

fault_sets = st.frozensets(st.sampled_from(list(Fault)))
guarantees = st.builds(Guarantee, *(st.none() | fault_sets for _ in Atom))
claims = st.builds(Claim, st.frozensets(st.sampled_from(list(Atom))), fault_sets)


def test_there_are_eighteen_faults_and_each_has_a_meaning() -> None:
    """The set is closed (V-7)."""
    assert len(Fault) == 18
    assert list(MEANING) == list(Fault)
    assert all(MEANING.values())


def test_every_fault_is_behind_one_word_of_people() -> None:
    """One vocabulary: the words cover all faults, none twice, and each says what happens."""
    behind = [fault for members in WORDS.values() for fault in members]
    assert sorted(behind) == sorted(Fault)
    assert list(WORDS) == list(WORD_MEANING)
    assert [word_of(fault) for fault in in_order(PROCESS_CRASH)] == ["process-crash"] * 3


def test_the_word_network_is_the_six_faults_of_routes() -> None:
    """G-2: ROUTE; an earlier word for it is read as well."""
    assert parse_faults(["network"]) == parse_faults(["route"]) == ROUTE
    assert [fault.value for fault in in_order(ROUTE)] == [
        "route-loss",
        "route-duplication",
        "route-reordering",
        "route-delay",
        "route-outage",
        "route-corruption",
    ]


@pytest.mark.parametrize(
    ("name", "atoms"),
    [
        ("best-effort", ""),
        ("at-most-once", "no-duplicate"),
        ("at-least-once", "no-loss"),
        ("exactly-once", "no-loss and no-duplicate"),
    ],
)
def test_a_delivery_name_is_a_set_of_atoms(name: str, atoms: str) -> None:
    """V-3, left half."""
    assert atoms_text(Claim.named(name).atoms) == atoms


@pytest.mark.parametrize(
    ("name", "atoms"),
    [
        ("none", ""),
        ("monotonic", "monotonic"),
        ("strict", "no-duplicate and monotonic"),
        ("gap-free", "gap-free"),
        ("continuous", "monotonic and gap-free"),
        ("absolute", "no-duplicate, monotonic and gap-free"),
    ],
)
def test_an_order_name_is_a_set_of_atoms(name: str, atoms: str) -> None:
    """V-3, right half."""
    assert atoms_text(Claim.named(order=name).atoms) == atoms


def test_names_that_mean_the_same_make_equal_claims() -> None:
    """at-least-once with absolute is exactly-once with absolute (V-3)."""
    weaker = Claim.named("at-least-once", "absolute", ["route"])
    assert weaker == Claim.named("exactly-once", "absolute", ["route"])
    assert str(weaker) == "exactly-once, absolute; tolerates network"


def test_every_set_of_atoms_has_a_pair_of_names() -> None:
    """Reading the names of a claim gives the claim back, for all 16 sets."""
    for size in range(5):
        for atoms in combinations(Atom, size):
            claim = Claim(frozenset(atoms))
            assert Claim.named(claim.delivery, claim.order) == claim


@given(claims)
def test_a_claim_is_read_as_it_is_written(claim: Claim) -> None:
    """Claim.parse and str are each other's reverse."""
    assert Claim.parse(str(claim)) == claim


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("", "best-effort, none"),
        ("absolute", "at-most-once, absolute"),
        ("at-least-once; tolerates route-loss", "at-least-once, none; tolerates route-loss"),
        ("exactly-once absolute; route, sender-crash", ("exactly-once, absolute; tolerates "
         "sender-crash route")),
    ],
)  # fmt: skip
def test_parts_of_a_claim_may_be_left_out(text: str, same_as: str) -> None:
    """Nothing said means nothing expected."""
    assert Claim.parse(text) == Claim.parse(same_as)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exactly-one", "'exactly-one' is no delivery or order: did you mean 'exactly-once'?"),
        ("; tolerates route-los", "'route-los' is no fault: did you mean 'route-loss'?"),
    ],
)
def test_an_unknown_word_is_named_with_the_nearest_known_one(text: str, message: str) -> None:
    """A typing error in a claim is refused, never ignored."""
    with pytest.raises(ConfigurationError) as error:
        Claim.parse(text)
    assert str(error.value) == message


def test_an_unknown_word_without_neighbours_lists_what_is_known() -> None:
    """The whole closed set is short enough to print."""
    with pytest.raises(ConfigurationError) as error:
        Claim.named("zzz")
    assert str(error.value) == "'zzz' is no delivery: known are " + ", ".join(DELIVERY_NAMES)


@given(claims, claims)
def test_claims_are_ordered_by_inclusion(a: Claim, b: Claim) -> None:
    """A claim is weaker when it has fewer atoms and fewer faults (V-3, G-1)."""
    joined = Claim(a.atoms | b.atoms, a.tolerates | b.tolerates)
    assert a <= joined
    assert b <= joined
    assert (a <= b <= a) == (a == b)


@given(guarantees, claims, claims)
def test_who_meets_a_claim_meets_every_weaker_one(
    guarantee: Guarantee, claim: Claim, other: Claim
) -> None:
    """G-1: each atom is present and tolerates all that is asked."""
    weaker = Claim(claim.atoms & other.atoms, claim.tolerates & other.tolerates)
    if guarantee.meets(claim):
        assert guarantee.meets(weaker)


@given(guarantees, guarantees, claims)
def test_the_meet_of_two_guarantees_promises_what_both_promise(
    a: Guarantee, b: Guarantee, claim: Claim
) -> None:
    """Chains are made of this (G-7). For single atoms it is exact."""
    both = a & b
    assert both <= a
    assert both <= b
    if both.meets(claim):
        assert a.meets(claim)
        assert b.meets(claim)
    for atom in (Atom.NO_LOSS, Atom.NO_DUPLICATE, Atom.GAP_FREE):
        each = [one.holds(atom, claim.tolerates) for one in (a, b)]
        assert both.holds(atom, claim.tolerates) == all(each)


@given(guarantees, fault_sets)
def test_a_headline_is_met_and_nothing_stronger_is(
    guarantee: Guarantee, exhibits: frozenset[Fault]
) -> None:
    """G-8: every other claim that survives the route is included in it, or tolerates less."""
    atoms = frozenset(atom for atom in Atom if guarantee.holds(atom, exhibits))
    headline = guarantee.headline(exhibits)
    assert headline.atoms == atoms
    assert guarantee.meets(headline)
    if Atom.MONOTONIC not in atoms:
        for fault in headline.lacks():
            assert not guarantee.meets(Claim(headline.atoms, headline.tolerates | {fault}))


def test_monotonic_follows_wherever_gap_free_and_no_duplicate_hold() -> None:
    """V-3: absolute is a prefix. Each of the two without the other is not enough."""
    both = Guarantee(no_duplicate=ROUTE, gap_free=ROUTE)
    assert both.holds(Atom.MONOTONIC, ROUTE)
    assert both.meets(Claim.named(order="absolute", tolerates=["route"]))
    assert both.headline(ROUTE) == Claim.named("at-most-once", "absolute", ["route"])
    for part in (Guarantee(no_duplicate=ROUTE), Guarantee(gap_free=ROUTE)):
        assert not part.holds(Atom.MONOTONIC, frozenset())


def test_an_absent_atom_holds_under_nothing_and_an_empty_set_under_no_fault() -> None:
    """Absent is weaker than present without a tolerated fault (G-1)."""
    absent, bare = Guarantee(), Guarantee(no_loss=frozenset())
    assert absent <= bare
    assert not bare <= absent
    assert bare.holds(Atom.NO_LOSS, frozenset())
    assert not absent.holds(Atom.NO_LOSS, frozenset())
    assert (str(bare), str(absent)) == ("no-loss: no fault", "nothing")


def test_sets_print_in_one_order_with_groups_in_place_of_their_members() -> None:
    """However the set was built."""
    backwards = frozenset(reversed(Fault))
    assert faults_text(backwards).startswith("network, process-crash, process-replaced, bad-stage")
    assert faults_text(ROUTE - {Fault.ROUTE_LOSS}).startswith("route-duplication, route-reordering")
    assert parse_faults(faults_text(ALL_FAULTS).split(", ")) == ALL_FAULTS
    assert faults_told(ROUTE | {Fault.SENDER_CRASH}) == "network, process-crash (sender-crash)"


def test_what_strikes_together_is_survived_together_or_not_at_all() -> None:
    """kill -9 asks nobody which end of a process was meant."""
    half = Guarantee(no_loss=ROUTE | PROCESS_CRASH, no_duplicate=ROUTE | {Fault.SENDER_CRASH})
    assert half.bound([PROCESS_CRASH]) == Guarantee(ROUTE | PROCESS_CRASH, ROUTE)
    assert half.bound([]) == half
    named = Claim.named("exactly-once", tolerates=["sender-crash", "network"])
    assert named.bound([PROCESS_CRASH]).tolerates == ROUTE | PROCESS_CRASH
    assert (
        str(named.bound([PROCESS_CRASH])) == "exactly-once, none; tolerates network, process-crash"
    )


def test_printing_does_not_depend_on_hashes() -> None:
    """Two processes with different hash seeds print the same text."""
    program = (
        "from surepipe.core.claims import *\n"
        "print(Claim(frozenset(Atom), ALL_FAULTS), Guarantee(ROUTE, ALL_FAULTS, None, LOSSY))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_the_names_are_those_that_people_write() -> None:
    """The vocabulary of claims is closed."""
    assert DELIVERY_NAMES == ("best-effort", "at-most-once", "at-least-once", "exactly-once")
    assert ORDER_NAMES == ("none", "monotonic", "strict", "gap-free", "continuous", "absolute")
