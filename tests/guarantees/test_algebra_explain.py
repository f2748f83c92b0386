"""An accepted composition in words: a reason for each atom, a way to each missing fault (pipes G-8)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.claims import Atom, Fault
from surepipe.core.store_requests import Level
from surepipe.guarantees import derive, derive_chain, refusals, remedy_for_fault
from surepipe.guarantees.explain import explain, explain_chain
from surepipe.guarantees.hops import LOCAL, Chain, DeclaredStore
from surepipe.pipes.stack.boundary import Boundary
from tests.pipes.hops_kit import ONE_WAY, POWER, PROCESS, committed, hop, layers_of, stream_hop

IN_ONE_STORE = "with the state of one and the journal of the other in one store"


def test_the_explanation_of_the_usual_stack() -> None:
    """Composition, headline, four atoms with their layer, six lacks with their remedy."""
    text = str(explain(derive(hop("continuous-index", "multi-unconfirmed"))))
    everything_else = "store-outage, store-crash, store-rollback, store-trim"
    lossless = f"network, receiver-crash, relay-crash, receiver-zombie, bad-stage, {everything_else}, clock-step"
    ordered = f"network, sender-crash, relay-crash, bad-stage, {everything_else}"
    journal = "without a journal, accepted messages that are not confirmed end with the sender"
    anew = "without a journal, a replaced sender that was never answered numbers its messages anew"
    again = "with boundary processed, what was settled and not confirmed is delivered again"
    commit = "use boundary committed with receiver state and sink in one store"
    in_turn = "layer 0 (continuous-index) passes on what comes next and nothing else"
    assert text.splitlines() == [
        "orders: continuous-index > multi-unconfirmed / lossy",
        f"  exactly-once, absolute; tolerates network, relay-crash, bad-stage, {everything_else}",
        (
            "  no-loss: layer 1 (multi-unconfirmed) sends again until the receiver has confirmed; "
            f"survives {lossless}"
        ),
        (
            "  no-duplicate: layer 0 (continuous-index) drops what it has passed on before, by "
            f"identity; survives {ordered}"
        ),
        f"  monotonic: {in_turn}; survives {ordered}",
        f"  gap-free: {in_turn}; survives {lossless}",
        f"  lacks sender-crash (no-loss and gap-free): {journal}; to add it: name a journal",
        f"  lacks receiver-crash (no-duplicate and monotonic): {again}; to add it: {commit}",
        (
            "  lacks sender-zombie (no-loss, no-duplicate, monotonic and gap-free): "
            f"{journal} and {anew}; to add it: name a journal"
        ),
        f"  lacks receiver-zombie (no-duplicate and monotonic): {again}; to add it: {commit}",
        (
            f"  lacks host-power-loss (no-loss, no-duplicate, monotonic and gap-free): {journal} and {again}; "
            f"to add it: name a journal and {commit} and for the new store, set synchronous to FULL"
        ),
        (
            "  lacks clock-step (no-duplicate and monotonic): without a journal, a sender that starts with its "
            "clock set back passes for the older one; to add it: name a journal"
        ),
    ]


def test_an_atom_that_is_not_provided_says_so() -> None:
    """With the layer that gives it up; a route that has it says so too."""
    lines = str(explain(derive(hop("multi-unconfirmed")))).splitlines()
    assert (
        "  no-duplicate: not provided, because layer 0 (multi-unconfirmed) delivers a message again "
        "when its confirm was lost" in lines
    )
    local = explain(derive(hop("continuous-index", route=LOCAL)))
    assert local.atoms[0].because == "as route local has it"


def test_every_missing_fault_of_the_best_pipe_is_a_rollback_that_nothing_adds() -> None:
    """al3: one line."""
    (lack,) = explain(derive(committed(hop("reliable")))).lacks
    assert (lack.fault, lack.atoms, lack.remedy) == (Fault.STORE_ROLLBACK, tuple(Atom), None)
    assert str(lack).endswith("noticed and not repaired; no small change adds it")


def test_where_nothing_keeps_messages_confirmed_is_explained() -> None:
    """K-8."""
    explained = explain(derive(hop("strict-monotonic", route=ONE_WAY)))
    assert explained.notes == (
        "no-loss is not provided: confirmed means that a message reached the receiver",
    )


@pytest.mark.parametrize("kind", ["strict-monotonic", "continuous-index", "dedupe"])
def test_where_nobody_sends_again_no_loss_names_its_host(kind: str) -> None:
    """decision 0034: a message tried again costs no other while the host leaves what comes on the route."""
    [note] = explain(derive(hop(kind, route=LOCAL))).notes
    assert note.startswith(
        "no-loss rests on the host, as nobody sends again: it takes from the route what"
    )
    assert not explain(derive(hop(kind, "resend", route=LOCAL))).notes[1:]
    assert "rests on the host" not in str(explain(derive(hop(kind, "resend", route=LOCAL))))


def test_sequential_confirm_points_to_reliable() -> None:
    """8.3: kept for completeness."""
    assert explain(derive(hop("sequential-confirm"))).notes == (
        "layer 0 (sequential-confirm) sends one frame per round trip; reliable does not",
    )


def test_retained_messages_and_declared_levels_are_told() -> None:
    """G-6 retain, R-7 declared levels."""
    store = DeclaredStore("main", Level.POWER, "redis", declared=True)
    retaining = layers_of({"stream": {"start": "earliest", "retain": 100}})
    assert explain(derive(replace(stream_hop(store), layers=retaining))).notes == (
        "store-rollback: up to 100 messages are appended again",
        "level power of store main is declared, not probed",
    )


def test_warnings_are_part_of_the_explanation() -> None:
    """At the end, before the notes."""
    explained = explain(derive(hop("strict-monotonic", "multi-unconfirmed")))
    assert len(explained.warnings) == 1
    assert "  warning weakened: pipe orders: no-loss falls" in str(explained)


def test_a_chain_is_explained_by_its_weak_hop() -> None:
    """relay-crash, with the hand-over that would add it."""
    onward = replace(committed(hop("reliable")), name="onward")
    chain = Chain("flow", (replace(onward, name="intake"), onward), (Boundary.PROCESSED,))
    explained = explain_chain(derive_chain(chain))
    assert explained.composition == "reliable / lossy | reliable / lossy"
    relay = explained.lacks[0]
    assert (relay.fault, relay.atoms) == (Fault.RELAY_CRASH, (Atom.NO_DUPLICATE, Atom.MONOTONIC))
    assert relay.remedy == f"hand over from intake to onward committed, {IN_ONE_STORE}"


@pytest.mark.parametrize(
    ("hand_overs", "changed"),
    [
        ("processed processed", ["hop0 to hop1", "hop1 to hop2"]),
        ("committed committed processed", ["hop2 to hop3"]),
        ("committed processed processed", []),
    ],
)
def test_two_changes_at_once_are_advised_for_three_hops_and_one_for_any(
    hand_overs: str, changed: list[str]
) -> None:
    """G-8: each relay that is not committed needs a change; of four hops two together are not looked for."""
    kinds = tuple(map(Boundary, hand_overs.split()))
    hops = [replace(committed(hop("reliable")), name=f"hop{n}") for n in range(len(kinds) + 1)]
    chain = derive_chain(Chain("flow", tuple(hops), kinds))
    advice = " and ".join(f"hand over from {two} committed, {IN_ONE_STORE}" for two in changed)
    assert remedy_for_fault(chain, Fault.RELAY_CRASH) == (advice or None)


def test_three_changes_at_once_are_not_looked_for() -> None:
    """G-8: two stores to be raised are advised; with the hand-over between them they would be three."""
    local = committed(hop("reliable"), PROCESS)
    hops = (replace(local, name="intake"), replace(local, name="onward"))
    two, three = (
        derive_chain(Chain("flow", hops, (kind,)))
        for kind in (Boundary.COMMITTED, Boundary.PROCESSED)
    )
    assert remedy_for_fault(two, Fault.POWER_LOSS) == (
        "in pipe intake, for store main, set synchronous to FULL and in pipe onward, for store main, "
        "set synchronous to FULL"
    )
    assert remedy_for_fault(three, Fault.POWER_LOSS) is None


@given(
    st.lists(
        st.sampled_from(["resend", "multi-unconfirmed", "strict-monotonic", "dedupe", "reliable"]),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([None, POWER]),
)
def test_every_lack_names_atoms_and_a_reason(
    layers: list[str], journal: DeclaredStore | None
) -> None:
    """Nothing is left unexplained."""
    whole = replace(hop(*layers), journal=journal)
    if refusals(whole):
        return
    explained = explain(derive(whole))
    for lack in explained.lacks:
        assert lack.atoms
        assert lack.because
        assert "nothing stands against it" not in lack.because
