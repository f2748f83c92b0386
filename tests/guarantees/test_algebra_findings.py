"""Refusals and warnings: what is found, in which words, and that what they advise helps (pipes G-9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surepipe.core.claims import Atom, Fault
from surepipe.core.store_requests import Level
from surepipe.errors import CompositionError
from surepipe.guarantees import check_claim, derive, refusals, stack_mismatch
from surepipe.guarantees.hops import LOCAL, TCP, DeclaredStore, Hop
from surepipe.guarantees.problems import Code, Finding
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.stack.boundary import Boundary
from tests.pipes.hops_kit import (
    CARRIER_SEQUENTIAL,
    ELSEWHERE,
    MEMORY,
    ONE_WAY,
    OVERTAKES,
    POWER,
    PROCESS,
    STREAM,
    claim,
    codes,
    committed,
    hop,
    layers_of,
    only_refusal,
    stream_hop,
    warned,
)


def test_codes_and_warnings_are_the_closed_set() -> None:
    """G-9 lists eleven codes and three warnings."""
    assert [code.value for code in Code if not code.is_warning] == [
        "unmet-carrier",
        "one-way",
        "unprotected-confirms",
        "expectation",
        "boundary",
        "split-store",
        "volatile-store",
        "no-dead-letter",
        "no-start-policy",
        "bounds",
        "stack-mismatch",
    ]
    assert [c.value for c in Code if c.is_warning] == ["redundant", "weakened", "small-buffer"]


def test_a_refusal_has_its_parts_as_data() -> None:
    """G-9: code, pipe, layer number and kind, the faults that break the requirement."""
    (finding,) = refusals(hop("multi-unconfirmed", "continuous-index"))
    assert (finding.code, finding.pipe) == (Code.UNMET_CARRIER, "orders")
    assert (finding.layer, finding.kind) == (1, "continuous-index")
    assert finding.faults == (Fault.ROUTE_LOSS, Fault.ROUTE_OUTAGE, Fault.ROUTE_CORRUPTION)


def test_deriving_a_refused_hop_raises_all_its_findings() -> None:
    """One error, one line for each reason, the innermost layer first."""
    bad = replace(hop("reliable", "continuous-index"), retries=1, journal=MEMORY)
    with pytest.raises(CompositionError) as error:
        derive(bad)
    assert error.value.findings == refusals(bad)
    assert codes(bad) == [Code.UNMET_CARRIER, Code.VOLATILE_STORE, Code.NO_DEAD_LETTER]
    assert len(str(error.value).splitlines()) == 3


# unmet-carrier


def test_what_loses_may_be_a_layer_and_not_the_route() -> None:
    """The carrier that is named is the layer directly below."""
    stack = hop("continuous-index", "strict-monotonic", "multi-unconfirmed")
    assert only_refusal(stack) == (
        "unmet-carrier: pipe orders: layer 0 (continuous-index) requires an at-least-once carrier, "
        "and layer 1 (strict-monotonic) over route lossy loses messages under route-loss, "
        "route-reordering, route-outage, route-corruption. "
        "Put multi-unconfirmed below layer 0, or put resend below layer 0, or use reliable."
    )


def test_a_window_alone_on_a_route_that_overtakes_is_refused() -> None:
    """decision 0063: what comes earlier than the window holds is lost, and waited for."""
    assert only_refusal(hop("continuous-index", route=OVERTAKES)) == (
        "unmet-carrier: pipe orders: layer 0 (continuous-index) loses what comes earlier than receive_window can "
        "hold and waits for it for ever, and nothing bounds by how much messages overtake on route overtakes. "
        "Put multi-unconfirmed below layer 0, or put resend below layer 0, or use reliable."
    )
    within = only_refusal(hop("multi-unconfirmed", "continuous-index", route=OVERTAKES))
    assert within.startswith(
        "unmet-carrier: pipe orders: layer 1 (continuous-index) loses what comes earlier"
    )
    below = only_refusal(hop("continuous-index", "dedupe", route=OVERTAKES))
    assert "layer 1 (dedupe) over route overtakes loses messages under route-reordering" in below


def test_carried_confirms_need_a_carrier_that_loses_nothing_too() -> None:
    """8.3: retry: carrier requires both directions."""
    assert codes(hop(CARRIER_SEQUENTIAL)) == [Code.UNMET_CARRIER, Code.UNPROTECTED_CONFIRMS]


def test_nothing_carries_a_stream_but_its_store() -> None:
    """8.8: a stream layer makes store calls, so it must be innermost."""
    layers = layers_of("dedupe", STREAM, "resend")
    assert only_refusal(Hop("orders", layers, stream=POWER)) == (
        "unmet-carrier: pipe orders: layer 1 (stream) speaks to its store and to no pipe, so "
        "layer 2 (resend) can't carry it. Drop what is below layer 1."
    )


def test_over_a_one_way_route_only_strict_monotonic_is_left() -> None:
    """No retry pipe can be put below, so none is advised."""
    assert only_refusal(hop("continuous-index", route=ONE_WAY)).endswith(
        "Use strict-monotonic (at-most-once)."
    )


# one-way


@pytest.mark.parametrize("kind", ["resend", "multi-unconfirmed", "sequential-confirm", "reliable"])
def test_every_retry_pipe_needs_a_way_back(kind: str) -> None:
    """G-4: none for a one-way route."""
    assert codes(hop(kind, route=ONE_WAY)) == [Code.ONE_WAY]
    assert refusals(hop(kind)) == ()


@pytest.mark.parametrize("kind", ["strict-monotonic", "dedupe"])
def test_order_pipes_need_none(kind: str) -> None:
    """8.4, 8.6: they require nothing."""
    assert refusals(hop(kind, route=ONE_WAY)) == ()


def test_above_a_stream_nothing_comes_back() -> None:
    """G-4: a retry pipe over a stream has no reverse path; the stream repeats by itself."""
    assert only_refusal(stream_hop(POWER, "reliable")) == (
        "one-way: pipe orders: layer 0 (reliable) needs a way back for confirms, and over layer 1 "
        "(stream) nothing comes back. Drop layer 0, since the stream below repeats by itself."
    )
    assert refusals(stream_hop(POWER, "continuous-index")) == ()


# boundary, split-store, volatile-store


@pytest.mark.parametrize("boundary", [Boundary.BEFORE, Boundary.COMMITTED])
def test_a_boundary_that_stores_a_cursor_needs_a_layer_that_has_one(boundary: Boundary) -> None:
    """K-6."""
    durable = replace(hop("multi-unconfirmed"), receiver_state=POWER, sink=POWER)
    assert only_refusal(replace(durable, boundary=boundary)) == (
        f"boundary: pipe orders: boundary {boundary} stores the cursor of the outermost layer, and "
        "layer 0 (multi-unconfirmed) has none. Put an index pipe (such as continuous-index) "
        "outermost, or use boundary processed."
    )
    above = layers_of("continuous-index", "multi-unconfirmed")
    assert refusals(replace(durable, boundary=boundary, layers=above)) == ()


def test_a_boundary_that_stores_a_cursor_needs_a_store() -> None:
    """K-3: before."""
    assert only_refusal(replace(hop("reliable"), boundary=Boundary.BEFORE)) == (
        "boundary: pipe orders: boundary before stores the receiver's cursor, and there is no store "
        "for it. Name a store for the receiver state, or use boundary processed."
    )


def test_a_stream_keeps_its_cursor_beside_the_stream() -> None:
    """8.8: the reader's position; so a sink in the same store is enough for committed."""
    assert refusals(stream_hop(boundary=Boundary.BEFORE)) == ()
    assert refusals(replace(stream_hop(boundary=Boundary.COMMITTED), sink=POWER)) == ()


@pytest.mark.parametrize(
    ("state", "sink", "where"),
    [
        (POWER, ELSEWHERE, "in store other"),
        (POWER, None, "in no store of ours"),
        (
            DeclaredStore("main", Level.POWER, "redis", transactional=False),
            DeclaredStore("main", Level.POWER, "redis", transactional=False),
            "in another slot of the same store",
        ),
    ],
)
def test_committed_needs_effect_and_cursor_in_one_transaction(
    state: DeclaredStore, sink: DeclaredStore | None, where: str
) -> None:
    """K-6: one SQLite file, one Redis slot."""
    split = replace(hop("reliable"), boundary=Boundary.COMMITTED, receiver_state=state, sink=sink)
    assert only_refusal(split) == (
        "split-store: pipe orders: boundary committed writes effect and cursor in one transaction, "
        f"and the receiver state is in store main while the sink is {where}. Keep both in one "
        "store (one SQLite file, one Redis slot), or use boundary processed."
    )


def test_a_journal_in_memory_is_none() -> None:
    """G-6: neither is a receiver state; a Redis without persistence outlives the process and may be."""
    assert only_refusal(replace(hop("reliable"), journal=MEMORY)) == (
        "volatile-store: pipe orders: the journal is in store scratch, which has level none and "
        "ends with the process that it should outlive. Keep the journal in SQLite or another store "
        "that outlives the process."
    )
    assert codes(replace(hop("reliable"), receiver_state=MEMORY)) == [Code.VOLATILE_STORE]
    redis = DeclaredStore("main", Level.NONE, "redis")
    assert refusals(replace(hop("reliable"), journal=redis, receiver_state=redis)) == ()


def test_a_journal_needs_somebody_who_confirms() -> None:
    """L-4: a later life waits until all of the older ones is confirmed, so it would wait for ever."""
    assert only_refusal(replace(hop("dedupe", route=LOCAL), journal=POWER)) == (
        "one-way: pipe orders: the journal keeps each message until it is confirmed, and no layer confirms: "
        "nothing would ever leave it, and the next sender would send nothing of its own. Put multi-unconfirmed "
        "below layer 0, or put resend below layer 0, or drop the journal."
    )
    assert refusals(replace(hop("dedupe", "resend", route=LOCAL), journal=POWER)) == ()
    assert refusals(replace(stream_hop(), journal=POWER)) == ()
    one_way = replace(hop("strict-monotonic", route=ONE_WAY), journal=POWER)
    assert only_refusal(one_way).endswith("send nothing of its own. Drop the journal.")


# no-dead-letter, no-start-policy, bounds, stack-mismatch


def test_a_place_for_dead_letters_makes_a_limit_of_retries_legal() -> None:
    """D-2: without retries none is needed."""
    assert refusals(replace(hop("reliable"), retries=5, dead_letters=PROCESS)) == ()
    assert refusals(replace(hop("reliable"), dead_letters=PROCESS)) == ()
    assert codes(replace(hop("reliable"), retries=0)) == [Code.NO_DEAD_LETTER]


def test_giving_up_needs_a_place_for_what_is_given_up() -> None:
    """T-10: multi-unconfirmed goes on without the message; the other pipes stop and give all back."""
    giving_up = hop({"multi-unconfirmed": {"give_up_after_s": 5.0}})
    assert codes(giving_up) == [Code.NO_DEAD_LETTER]
    assert codes(replace(giving_up, dead_letters=POWER)) == []
    assert codes(hop({"reliable": {"give_up_after_s": 5.0}})) == []


def test_a_reader_without_a_position_must_be_told_where_to_begin() -> None:
    """8.8: the start policy must be given."""
    assert only_refusal(Hop("orders", layers_of("stream"), stream=POWER)) == (
        "no-start-policy: pipe orders: layer 0 (stream) does not say where a reader without a "
        "position begins. Set start to earliest, latest or an index."
    )


def test_dedupe_must_remember_all_that_may_be_under_way() -> None:
    """8.6: the carrier's window is at most dedupe_window, through layers in between too."""
    wide: LayerText = {"multi-unconfirmed": {"window": 100_000}}
    assert only_refusal(hop("dedupe", "strict-monotonic", wide)) == (
        "bounds: pipe orders: layer 0 (dedupe) remembers 65536 messages and its carrier has up to "
        "100000 under way, so it would take a late first arrival for a repeat. Raise dedupe_window "
        "to 100000, or lower the window of layer 2 (multi-unconfirmed) to 65536."
    )
    assert refusals(hop({"dedupe": {"dedupe_window": 100_000}}, wide)) == ()
    assert refusals(hop("dedupe", {"multi-unconfirmed": {"window": 65_536}})) == ()


def test_both_ends_of_a_pipe_are_built_of_the_same_layers() -> None:
    """F-5: a receiver with another stack refuses; check says so before."""
    sender = hop("continuous-index", "multi-unconfirmed", route=TCP)
    other = hop("continuous-index", "resend", route=TCP)
    assert stack_mismatch(sender, sender) == ()
    (finding,) = stack_mismatch(sender, other)
    assert str(finding) == (
        "stack-mismatch: pipe orders: the sender is continuous-index > multi-unconfirmed / tcp and "
        "the receiver continuous-index > resend / tcp; they differ from layer 1 on. Write the same "
        "layers with the same options at both ends."
    )
    (shorter,) = stack_mismatch(sender, hop("continuous-index", route=TCP))
    assert shorter.layer == 1


# expectation


def expected(derived_of: Hop, text: str) -> list[str]:
    """The findings when this is expected, from the sentence of the cause on."""
    found = check_claim(derive(derived_of), claim(text))
    assert all(finding.code is Code.EXPECTATION for finding in found)
    return [str(finding).partition(" is expected, and ")[2] for finding in found]


def test_a_missing_atom_is_explained_by_the_layer_that_gives_it_up() -> None:
    """resend repeats; reliable in its place would not."""
    assert expected(hop("resend"), "exactly-once") == [
        (
            "no-duplicate is not provided: layer 0 (resend) delivers a message again when its confirm "
            "was lost. Replace layer 0 by reliable."
        )
    ]


def test_what_the_route_breaks_is_laid_to_the_route() -> None:
    """No layer dropped what the route never had."""
    assert expected(hop("dedupe"), "at-least-once; tolerates route-loss") == [
        (
            "no-loss does not survive route-loss: route lossy exhibits route-loss. "
            "Replace layer 0 by reliable."
        )
    ]


def test_each_cause_has_its_own_finding() -> None:
    """A journal for one, a boundary for the other."""
    wanted = "exactly-once, absolute; tolerates sender-crash, receiver-crash"
    assert expected(hop("reliable"), wanted) == [
        (
            "no-loss and gap-free do not survive sender-crash: without a journal, accepted messages "
            "that are not confirmed end with the sender. Name a journal."
        ),
        (
            "no-duplicate and monotonic do not survive receiver-crash: with boundary processed, what "
            "was settled and not confirmed is delivered again. Use boundary committed with receiver "
            "state and sink in one store."
        ),
    ]


def test_a_remedy_may_take_several_steps() -> None:
    """power-loss from al1: found by trying; both remedies together are al3, which survives it."""
    first, second = expected(hop("reliable"), "exactly-once; tolerates power-loss")
    assert first.endswith("Name a journal and for the new store, set synchronous to FULL.")
    assert second.endswith(
        "Use boundary committed with receiver state and sink in one store and for the new store, "
        "set synchronous to FULL."
    )
    assert derive(committed(hop("reliable"))).guarantee.meets(
        claim("exactly-once; tolerates power-loss")
    )


def test_a_forced_trim_is_dropped_where_it_is_the_cause() -> None:
    """G-6 store-trim."""
    assert expected(
        replace(stream_hop(), forced_trim=True), "at-least-once; tolerates store-trim"
    ) == [
        (
            "no-loss does not survive store-trim: the retention of store main may pass a reader. "
            "Drop retention.force."
        )
    ]


def test_for_a_rollback_no_remedy_is_made_up() -> None:
    """G-6: never tolerated."""
    journalled = replace(hop("reliable"), journal=POWER)
    assert expected(journalled, "at-least-once; tolerates store-rollback") == [
        (
            "no-loss does not survive store-rollback: a store that goes back forgets what it "
            "acknowledged, which is noticed and not repaired."
        )
    ]


def test_a_zombie_needs_a_cursor_pipe() -> None:
    """G-5: resend alone has none."""
    single = hop({"resend": {"run_max": 1}}, route=LOCAL)
    assert expected(single, "monotonic; tolerates sender-zombie")[0].startswith(
        "monotonic does not survive sender-zombie: no layer has a cursor that would refuse a "
        "replaced sender."
    )


# warnings


def texts(found: list[Finding]) -> list[str]:
    """The findings as text."""
    return [str(finding) for finding in found]


def test_a_layer_that_adds_nothing_is_redundant() -> None:
    """G-9: no atom and no fault."""
    assert texts(warned(hop("dedupe", "reliable"))) == [
        "redundant: pipe orders: layer 0 (dedupe) adds nothing to what is below it. Drop layer 0."
    ]
    assert [w.code for w in warned(hop("continuous-index", "strict-monotonic", "resend"))] == [
        Code.REDUNDANT
    ]


@pytest.mark.parametrize(
    "layers",
    [
        ("reliable",),
        ("continuous-index", "multi-unconfirmed"),
        ("continuous-index", "resend"),
        ("strict-monotonic", "resend"),
        ("dedupe", "multi-unconfirmed"),
        ("strict-monotonic",),
        ("sequential-confirm",),
        ("multi-unconfirmed",),
    ],
)
def test_what_people_should_write_is_not_warned_about(layers: tuple[LayerText, ...]) -> None:
    """What an inner layer gives up and an outer one gives back is no weakening."""
    assert warned(hop(*layers)) == []


def test_a_retry_pipe_over_a_perfect_route_takes_more_than_it_gives() -> None:
    """local loses nothing, so multi-unconfirmed only gives up its order there."""
    found = warned(hop("multi-unconfirmed", route=LOCAL))
    assert [(w.code, w.atoms) for w in found] == [
        (Code.WEAKENED, (Atom.NO_DUPLICATE,)),
        (Code.WEAKENED, (Atom.MONOTONIC,)),
    ]
    assert all(w.remedies == ("replace layer 0 by continuous-index",) for w in found)


def test_a_buffer_below_the_carrier_s_window_is_small() -> None:
    """G-9; ci8 shows that it is slow and not wrong."""
    stack = hop({"continuous-index": {"receive_window": 2}}, {"multi-unconfirmed": {"window": 16}})
    assert texts(warned(stack)) == [
        (
            "small-buffer: pipe orders: layer 0 (continuous-index) holds 2 messages and its carrier has "
            "up to 16 under way; what finds no room comes again. Raise receive_window to 16."
        )
    ]
    enough = hop(
        {"continuous-index": {"receive_window": 16}}, {"multi-unconfirmed": {"window": 16}}
    )
    assert warned(enough) == []


def test_a_layer_that_is_not_the_outermost_must_not_give_messages_up() -> None:
    """bounds: T-10: a frame that is given up would be a hole of which the layers above know nothing."""
    patient: LayerText = {"multi-unconfirmed": {"give_up_after_s": 60.0}}
    for layers in ((patient,), (patient, "reliable")):
        assert refusals(replace(hop(*layers), dead_letters=POWER)) == ()
    assert str(only(hop("continuous-index", patient))) == (
        "bounds: pipe orders: layer 1 (multi-unconfirmed) gives a frame up after 60.0 s, which leaves a hole "
        "that no layer above it knows of. Drop give_up_after_s of layer 1."
    )
    assert only(hop("reliable", patient)).remedies == (
        "move give_up_after_s to layer 0 (reliable)",
        "drop give_up_after_s of layer 1",
    )


def test_an_outermost_window_must_not_be_wider_than_its_receiver() -> None:
    """bounds: in bytes; as many at both ends are enough, and an index pipe above it makes up for fewer."""
    finding = only(hop(sized_window(1_001, received=1_000)))
    assert str(finding) == (
        "bounds: pipe orders: layer 0 (multi-unconfirmed) may have 1001 bytes under way and its receiver has "
        "room for 1000, so small messages would pass a large one that found no room. Raise "
        "receive_window_bytes to 1001, or lower window_bytes to 1000."
    )
    assert (finding.layer, finding.kind) == (0, "multi-unconfirmed")
    assert refusals(hop(sized_window(1_000, received=1_000))) == ()
    assert refusals(hop("continuous-index", sized_window(1_001, received=1_000))) == ()


def sized_window(sent: int, *, received: int) -> LayerText:
    """A window of so many bytes at either end."""
    return {"multi-unconfirmed": {"window_bytes": sent, "receive_window_bytes": received}}


def only(refused: Hop) -> Finding:
    """The one finding against a hop."""
    (finding,) = refusals(refused)
    return finding
