"""The twenty worked compositions: what each derives to, or the exact words of its refusal (pipes al1 to al20)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surepipe.core.claims import Atom, Fault, Guarantee
from surepipe.core.store_requests import Level
from surepipe.guarantees import check_claim, derive, derive_chain
from surepipe.guarantees.hops import LOCAL, TCP, Chain, DeclaredStore
from surepipe.guarantees.problems import Code
from surepipe.pipes.stack.boundary import Boundary
from tests.pipes.hops_kit import (
    CARRIER_SEQUENTIAL,
    ONE_WAY,
    POWER,
    PROCESS,
    claim,
    committed,
    headline,
    hop,
    lacks,
    layers_of,
    only_refusal,
    stream_hop,
    warned,
)

AS_FIRST = ["sender-crash", "receiver-crash", "sender-zombie", "receiver-zombie", "power-loss"]
NUMBERED_BY_A_CLOCK = [*AS_FIRST, "clock-step"]
"""Without a journal and a greeting, the clock alone says which sender is the older one."""
FIRST = hop("reliable")


def test_al1_reliable_alone_lacks_what_needs_a_memory_beyond_the_process() -> None:
    """reliable / lossy."""
    assert headline(FIRST) == "exactly-once, absolute"
    assert lacks(FIRST) == AS_FIRST
    assert warned(FIRST) == []


def test_al2_a_journal_adds_the_crash_and_the_zombie_of_the_sender() -> None:
    """al1 with a SQLite journal of level process; a store brings store-rollback with it."""
    second = replace(FIRST, journal=PROCESS)
    assert headline(second) == "exactly-once, absolute"
    assert lacks(second) == ["receiver-crash", "receiver-zombie", "power-loss", "store-rollback"]


def test_al3_with_effect_and_cursor_in_one_transaction_only_a_rollback_is_left() -> None:
    """al2 at level power, receiver state and sink in one store, boundary committed."""
    third = committed(FIRST, POWER)
    assert headline(third) == "exactly-once, absolute"
    assert lacks(third) == ["store-rollback"]


def test_al4_the_stack_of_two_promises_what_reliable_does() -> None:
    """continuous-index > multi-unconfirmed / lossy: as al1, but for a clock that goes back."""
    stack = hop("continuous-index", "multi-unconfirmed")
    kept = [replace(one, journal=PROCESS) for one in (stack, FIRST)]
    assert derive(kept[0]).guarantee == derive(kept[1]).guarantee
    assert (lacks(stack), lacks(FIRST)) == (NUMBERED_BY_A_CLOCK, AS_FIRST)
    assert warned(stack) == []


def test_al5_an_order_pipe_inside_a_retry_pipe_is_refused() -> None:
    """multi-unconfirmed > continuous-index / lossy."""
    assert only_refusal(hop("multi-unconfirmed", "continuous-index")) == (
        "unmet-carrier: pipe orders: layer 1 (continuous-index) requires an at-least-once carrier, "
        "and route lossy loses messages under route-loss, route-outage, route-corruption. "
        "Layer 0 (multi-unconfirmed) stands above it, and order pipes go outside of retry pipes: "
        "swap layers 0 and 1."
    )


def test_al6_strict_monotonic_is_enough_over_resend() -> None:
    """strict-monotonic > resend / lossy: as al4."""
    stack = hop("strict-monotonic", "resend")
    assert headline(stack) == "exactly-once, absolute"
    assert lacks(stack) == NUMBERED_BY_A_CLOCK
    assert warned(stack) == []


SEVENTH = hop("strict-monotonic", "multi-unconfirmed")


def test_al7_strict_monotonic_over_an_unordered_carrier_throws_its_work_away() -> None:
    """strict-monotonic > multi-unconfirmed / lossy: accepted with a warning."""
    assert headline(SEVENTH) == "at-most-once, strict"
    (weakened,) = warned(SEVENTH)
    assert str(weakened) == (
        "weakened: pipe orders: no-loss falls to route-duplication, route-delay, because layer 0 "
        "(strict-monotonic) drops what comes late, and its carrier may deliver out of order or "
        "with gaps. Replace layer 0 by continuous-index, or replace layer 1 by resend."
    )


def test_al8_expecting_no_loss_of_it_is_refused() -> None:
    """al7 with expect: at-least-once, route-loss."""
    (finding,) = check_claim(derive(SEVENTH), claim("at-least-once; tolerates route-loss"))
    assert str(finding) == (
        "expectation: pipe orders: at-least-once, none; tolerates route-loss is expected, and "
        "no-loss does not survive route-loss: layer 0 (strict-monotonic) drops what comes late, "
        "and its carrier may deliver out of order or with gaps. "
        "Replace layer 0 by continuous-index, or replace layer 1 by resend."
    )
    assert (finding.code, finding.layer, finding.kind) == (Code.EXPECTATION, 0, "strict-monotonic")


NINTH = hop("strict-monotonic", route=ONE_WAY)


def test_al9_strict_monotonic_needs_no_way_back() -> None:
    """strict-monotonic / one-way lossy."""
    assert headline(NINTH) == "at-most-once, strict"
    assert lacks(NINTH) == ["receiver-crash", "receiver-zombie", "power-loss", "clock-step"]


def test_al10_a_cursor_stored_before_delivery_adds_the_receiver() -> None:
    """al9 with receiver state of level process and boundary before; a replaced receiver may hand over late."""
    tenth = replace(NINTH, receiver_state=PROCESS, boundary=Boundary.BEFORE)
    assert headline(tenth) == "at-most-once, strict"
    assert lacks(tenth) == ["receiver-zombie", "power-loss", "store-rollback", "clock-step"]


def test_al11_in_one_process_continuous_index_is_exact_until_something_crashes() -> None:
    """continuous-index / local."""
    local = hop("continuous-index", route=LOCAL)
    assert headline(local) == "exactly-once, absolute"
    assert lacks(local) == AS_FIRST
    assert warned(local) == []


def test_al12_a_tcp_route_is_no_at_least_once_carrier() -> None:
    """continuous-index / tcp."""
    assert only_refusal(hop("continuous-index", route=TCP)) == (
        "unmet-carrier: pipe orders: layer 0 (continuous-index) requires an at-least-once carrier, "
        "and route tcp loses messages under route-loss, route-outage. "
        "Put multi-unconfirmed below layer 0, or put resend below layer 0, or use reliable."
    )


THIRTEENTH = hop(CARRIER_SEQUENTIAL, "multi-unconfirmed")


def test_al13_confirms_that_nobody_sends_again_must_not_be_lost() -> None:
    """sequential-confirm(retry: carrier) > multi-unconfirmed / lossy."""
    assert only_refusal(THIRTEENTH) == (
        "unprotected-confirms: pipe orders: layer 0 (sequential-confirm) never sends again by "
        "itself, and its confirms return over route lossy, which may lose them: one lost confirm "
        "would stop it for good. Carry the confirms on a channel, or set retry: own."
    )


def test_al14_a_channel_carries_them() -> None:
    """al13 over a channel of multi-unconfirmed: as al4."""
    stack = replace(THIRTEENTH, channel_back=layers_of("multi-unconfirmed"))
    assert headline(stack) == "exactly-once, absolute"
    assert lacks(stack) == NUMBERED_BY_A_CLOCK


@pytest.mark.parametrize(
    ("resend", "promised"),
    [
        ({"resend": {"run_max": 1}}, "at-least-once, continuous"),
        ("resend", "at-least-once, gap-free"),
    ],
)
def test_al15_an_index_pipe_inside_is_legal_when_it_does_not_wait(
    resend: str | dict[str, dict[str, object]], promised: str
) -> None:
    """resend > strict-monotonic / lossy; it warns that the outer layer undoes no-duplicate."""
    stack = hop(resend, "strict-monotonic")
    assert headline(stack) == promised
    assert str(warned(stack)[0]) == (
        "weakened: pipe orders: no-duplicate is lost, because layer 0 (resend) delivers a message "
        "again when its confirm was lost. Swap layers 0 and 1."
    )


def test_al16_dedupe_gives_exactly_once_without_an_order() -> None:
    """dedupe > multi-unconfirmed / lossy: lacks as al4."""
    stack = hop("dedupe", "multi-unconfirmed")
    assert headline(stack) == "exactly-once, none"
    assert lacks(stack) == NUMBERED_BY_A_CLOCK
    assert warned(stack) == []


def test_al17_reliable_needs_a_way_back() -> None:
    """reliable / one-way."""
    assert only_refusal(hop("reliable", route=ONE_WAY)) == (
        "one-way: pipe orders: layer 0 (reliable) needs a way back for confirms, and route one-way "
        "lossy is one-way. Give the route a way back, or use strict-monotonic (at-most-once)."
    )


def test_al18_a_redis_that_keeps_nothing_does_not_survive_its_crash() -> None:
    """stream on Redis without persistence, expect: exactly-once, store-crash."""
    stream = stream_hop(DeclaredStore("main", Level.NONE, "redis"))
    (finding,) = check_claim(derive(stream), claim("exactly-once; tolerates store-crash"))
    assert str(finding) == (
        "expectation: pipe orders: exactly-once, none; tolerates store-crash is expected, and "
        "no-loss and no-duplicate do not survive store-crash: store main has level none. "
        "For store main, set appendonly yes and appendfsync always, or use SQLite."
    )


def test_al19_a_limit_of_retries_needs_a_place_for_what_fails() -> None:
    """reliable, retries: 5, no dead letters."""
    assert only_refusal(replace(FIRST, retries=5)) == (
        "no-dead-letter: pipe orders: after 5 retries there is no place to put the message, so the "
        "limit would lose it. Name dead_letter, or drop retries."
    )


@pytest.mark.parametrize(
    ("hand_over", "lacking"),
    [
        (Boundary.HANDED, set(Atom)),
        (Boundary.PROCESSED, {Atom.NO_DUPLICATE, Atom.MONOTONIC}),
        (Boundary.COMMITTED, set[Atom]()),
    ],
)
def test_al20_a_relay_survives_its_crash_as_its_hand_over_does(
    hand_over: Boundary, lacking: set[Atom]
) -> None:
    """al3, then reliable with its journal in the same store."""
    chain = twentieth(hand_over)
    assert lacking == without(derive_chain(chain).guarantee, Fault.RELAY_CRASH)


def test_al20_the_refusal_names_the_pipe_and_the_hand_over_to_choose() -> None:
    """The weak hop is named, in the words of its boundary."""
    found = check_claim(
        derive_chain(twentieth(Boundary.PROCESSED)), claim("exactly-once; tolerates relay-crash")
    )
    assert [str(finding) for finding in found] == [
        (
            "expectation: pipe flow: exactly-once, none; tolerates relay-crash is expected, and "
            "no-duplicate does not survive relay-crash: in pipe intake with boundary processed, what "
            "was settled and not confirmed is delivered again. Hand over from intake to onward "
            "committed, with the state of one and the journal of the other in one store."
        )
    ]


def twentieth(hand_over: Boundary) -> Chain:
    """al3 and a second hop behind it."""
    first = replace(committed(FIRST, POWER), name="intake")
    onward = replace(FIRST, name="onward", journal=POWER)
    return Chain("flow", (first, onward), (hand_over,))


def without(guarantee: Guarantee, fault: Fault) -> set[Atom]:
    """The atoms that don't survive a fault."""
    return {atom for atom in Atom if not guarantee.holds(atom, frozenset({fault}))}
