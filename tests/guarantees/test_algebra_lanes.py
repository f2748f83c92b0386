"""What lanes take from a guarantee, what they leave to each key, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surepipe.core.claims import Atom, Claim, Fault
from surepipe.errors import CompositionError
from surepipe.guarantees import check_claim, derive, derive_chain, require
from surepipe.guarantees.explain import explain
from surepipe.guarantees.hops import LOCAL, Chain
from surepipe.guarantees.problems import Code
from surepipe.pipes.stack.boundary import Boundary
from tests.pipes.hops_kit import PROCESS, committed, hop, only_refusal, stream_hop

LANES = replace(hop("reliable"), lanes=4)


def test_lanes_keep_delivery_and_give_up_order_across_keys() -> None:
    """N and U as without lanes; M and G are gone, and hold for each key by itself (pipes G-1)."""
    with_lanes, without = derive(LANES), derive(hop("reliable"))
    for atom in (Atom.NO_LOSS, Atom.NO_DUPLICATE):
        assert with_lanes.guarantee.tolerated(atom) == without.guarantee.tolerated(atom)
    for atom in (Atom.MONOTONIC, Atom.GAP_FREE):
        assert with_lanes.guarantee.tolerated(atom) is None
    assert (with_lanes.headline.delivery, with_lanes.headline.order) == ("exactly-once", "none")
    assert with_lanes.of_one_key.guarantee == without.guarantee
    assert without.of_one_key is without


def test_the_text_says_which_order_is_kept_where() -> None:
    """In str and in the explanation, under the headline; nothing without lanes."""
    said = "order: absolute per key, none across keys"
    assert str(derive(LANES)).endswith(f"; {said}")
    lines = str(explain(derive(LANES))).splitlines()
    assert lines[2] == f"  {said}"
    assert (
        "  gap-free: not provided, because with 4 lanes, messages of different keys pass each other; "
        "gap-free holds within each key" in lines
    )
    assert "per key" not in str(explain(derive(hop("reliable"))))


@pytest.mark.parametrize(
    ("layers", "within"),
    [
        (("resend",), "gap-free"),
        (("strict-monotonic", "multi-unconfirmed"), "strict"),
        (("dedupe", "multi-unconfirmed"), "none"),
        (("continuous-index", "multi-unconfirmed"), "absolute"),
    ],
)
def test_within_a_key_the_order_is_that_of_the_stack(layers: tuple[str, ...], within: str) -> None:
    """A stack without order keeps none within a key either."""
    text = derive(replace(hop(*layers), lanes=2)).order_text
    assert text == (
        "order: none" if within == "none" else f"order: {within} per key, none across keys"
    )


def test_order_across_keys_is_refused_with_the_remedy() -> None:
    """One finding for both atoms of the order; without lanes the claim is met (pipes G-9)."""
    claim = Claim.parse("exactly-once, absolute; tolerates route")
    found = check_claim(derive(LANES), claim)
    assert {finding.code for finding in found} == {Code.EXPECTATION}
    assert {atom for finding in found for atom in finding.atoms} == {Atom.MONOTONIC, Atom.GAP_FREE}
    for finding in found:
        assert "messages of different keys pass each other" in finding.why
        assert finding.remedies == ("drop lanes",)
    with pytest.raises(CompositionError, match="Drop lanes"):
        require(derive(LANES), claim)
    require(derive(LANES).of_one_key, claim)
    require(derive(LANES), Claim.parse("exactly-once; tolerates route"))


def test_order_that_the_stack_has_not_is_not_blamed_on_lanes() -> None:
    """multi-unconfirmed keeps none: the layer is named."""
    (finding,) = check_claim(
        derive(replace(hop("multi-unconfirmed"), lanes=2)), Claim.parse("monotonic")
    )
    assert "layer 0 (multi-unconfirmed)" in finding.why
    assert "lanes" not in finding.why


@pytest.mark.parametrize("boundary", [Boundary.HANDED, Boundary.BEFORE, Boundary.COMMITTED])
def test_boundaries_that_settle_in_an_order_of_their_own_are_refused(boundary: Boundary) -> None:
    """With the reason of each, and two ways out."""
    refused = replace(committed(hop("reliable"), PROCESS), boundary=boundary, lanes=2)
    text = only_refusal(refused)
    assert text.startswith("boundary: pipe orders: lanes settle messages in any order, and with")
    assert text.endswith("Drop lanes, or use boundary processed.")


def test_what_lanes_stand_in_the_way_of_is_part_of_the_remedy() -> None:
    """A receiver crash without repeats takes boundary committed, which takes a pipe without lanes."""
    lack = next(lack for lack in explain(derive(LANES)).lacks if lack.fault is Fault.RECEIVER_CRASH)
    assert lack.remedy == (
        "drop lanes and use boundary committed with receiver state and sink in one store"
    )


def test_a_chain_with_a_hop_of_lanes_keeps_no_order() -> None:
    """The intersection of its hops (pipes G-7)."""
    second = replace(hop("reliable", route=LOCAL), name="second")
    chain = Chain("chain", (LANES, second), (Boundary.PROCESSED,))
    assert derive_chain(chain).headline.order == "none"
    assert derive_chain(chain).headline.delivery == "exactly-once"


def test_layers_that_send_one_frame_at_a_time_say_what_lanes_can_not_help() -> None:
    """resend and sequential-confirm wait for the whole frame."""
    notes = explain(derive(replace(hop("resend"), lanes=2))).notes
    assert any("one message that fails holds up all keys" in note for note in notes)
    assert not any("holds up" in note for note in explain(derive(LANES)).notes)


def test_a_stream_with_lanes_keeps_what_it_keeps() -> None:
    """Exactly once but for a receiver crash; absolute within a key."""
    derived = derive(replace(stream_hop(), lanes=8))
    assert derived.order_text == "order: absolute per key, none across keys"
    assert Fault.RECEIVER_CRASH in (derived.guarantee.no_loss or ())
