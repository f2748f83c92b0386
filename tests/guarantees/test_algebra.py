"""The rules of the algebra: route part, process part, stores, chains, headline (pipes G-1 to G-8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.claims import ROUTE, Atom, Claim, Fault, Faults, Guarantee
from surepipe.core.store_requests import Level
from surepipe.errors import CompositionError, ConfigurationError
from surepipe.guarantees import (
    chain_refusals,
    check_claim,
    derive,
    derive_chain,
    refusals,
    remedy_for_fault,
    require,
)
from surepipe.guarantees.derivation import Derived, evaluate, evaluate_chain
from surepipe.guarantees.hops import (
    LOCAL,
    LOSSY_ROUTE,
    TCP,
    Chain,
    DeclaredRoute,
    DeclaredStore,
    Hop,
    bare,
    composition,
)
from surepipe.guarantees.problems import Code
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.options import LayerOptions
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
    committed,
    headline,
    hop,
    lacks,
    layers_of,
    stream_hop,
)

N, U, M, G = Atom
LOSS, DUPLICATION, REORDERING = Fault.ROUTE_LOSS, Fault.ROUTE_DUPLICATION, Fault.ROUTE_REORDERING
DELAY, OUTAGE, CORRUPTION = Fault.ROUTE_DELAY, Fault.ROUTE_OUTAGE, Fault.ROUTE_CORRUPTION


def tolerated(accepted: Hop, atom: Atom) -> Faults:
    """What an atom of an accepted hop survives; it must be provided."""
    faults = derive(accepted).guarantee.tolerated(atom)
    assert faults is not None
    return faults


def survivors(accepted: Hop, fault: Fault) -> set[Atom]:
    """The atoms of a hop that survive one fault."""
    return derived_survivors(derive(accepted), fault)


def derived_survivors(derived: Derived, fault: Fault) -> set[Atom]:
    """The same of what may be refused for another reason."""
    guarantee = derived.guarantee
    return {atom for atom in Atom if guarantee.holds(atom, frozenset({fault}))}


# G-2: routes


def test_a_bare_lossy_route_keeps_what_each_fault_does_not_touch() -> None:
    """G-2, the four sets."""
    assert bare(LOSSY_ROUTE) == Guarantee(
        no_loss=frozenset({DUPLICATION, REORDERING, DELAY}),
        no_duplicate=ROUTE - {DUPLICATION},
        monotonic=frozenset({LOSS, OUTAGE, CORRUPTION, DELAY}),
        gap_free=frozenset({DUPLICATION, DELAY}),
    )


def test_a_route_also_survives_whatever_it_never_does() -> None:
    """G-2: local exhibits nothing; tcp loses, reorders across reconnects, delays and breaks."""
    assert bare(LOCAL) == Guarantee(ROUTE, ROUTE, ROUTE, ROUTE)
    assert bare(TCP).no_loss == ROUTE - {LOSS, OUTAGE}
    assert bare(TCP).no_duplicate == ROUTE
    assert bare(TCP).gap_free == frozenset({DUPLICATION, DELAY, CORRUPTION})


def test_an_undeclared_route_is_taken_for_one_that_does_everything() -> None:
    """G-2."""
    assert DeclaredRoute("mine") == replace(LOSSY_ROUTE, name="mine")


@pytest.mark.parametrize("kind", ["continuous-index", "dedupe"])
def test_a_window_survives_overtaking_as_far_as_its_carrier_bounds_it(kind: str) -> None:
    """decision 0063: by what confirms, or by a route that keeps the order."""
    for carrier in ("multi-unconfirmed", "resend", "reliable"):
        below = derive(hop(kind, carrier, route=OVERTAKES)).guarantee
        assert below.holds(Atom.NO_LOSS, frozenset({REORDERING}))
    above_stream = derive(stream_hop(POWER, kind)).guarantee
    assert above_stream.holds(Atom.NO_LOSS, frozenset({REORDERING}))
    assert derive(hop(kind, route=LOCAL)).guarantee.holds(Atom.NO_LOSS, frozenset({REORDERING}))


def test_no_loss_of_dedupe_alone_names_the_window_that_overtaking_exceeds() -> None:
    """decision 0063: its headline says at-most-once, and who expects more is told why and what helps."""
    alone = derive(hop("dedupe", route=OVERTAKES))
    assert str(alone.headline).startswith("at-most-once, none")
    (finding,) = check_claim(alone, claim("exactly-once; tolerates route-reordering"))
    assert finding.why == (
        "exactly-once, none; tolerates route-reordering is expected, and no-loss does not survive "
        "route-reordering: layer 0 (dedupe) takes what comes more than dedupe_window late for a repeat, and "
        "nothing bounds by how much messages overtake on route overtakes"
    )
    assert finding.remedies


# G-1, G-3: claims and the fold


def test_a_claim_is_met_when_every_atom_survives_all_of_it() -> None:
    """G-1: met claims give no finding and pass require."""
    derived = derive(hop("reliable"))
    met = claim("exactly-once, absolute; tolerates route, handler-failure, clock-step")
    assert check_claim(derived, met) == ()
    require(derived, met)


def test_an_unmet_claim_is_refused_with_its_findings() -> None:
    """G-1, G-9: CompositionError carries what check_claim says."""
    derived, expected = derive(hop("resend")), claim("exactly-once; tolerates sender-crash")
    with pytest.raises(CompositionError) as error:
        require(derived, expected)
    assert error.value.findings == check_claim(derived, expected)
    assert len(error.value.findings) == 2


def test_parts_are_folded_from_the_route_upwards() -> None:
    """G-3: what stands above each layer of a stack of three is kept for explanations."""
    derived = derive(hop("dedupe", "strict-monotonic", "resend"))
    assert len(derived.parts) == 4
    assert derived.parts[3] == bare(LOSSY_ROUTE)
    assert derived.parts[2] == Guarantee(ROUTE, None, None, ROUTE)
    assert derived.parts[1] == derived.parts[0] == Guarantee(ROUTE, ROUTE, ROUTE, ROUTE)


def test_resend_in_single_messages_keeps_the_order_of_a_fifo_route() -> None:
    """8.1: continuous over FIFO with run_max 1, gap-free with more."""
    fifo = DeclaredRoute("fifo", frozenset({LOSS}), frozenset({LOSS}))
    assert headline(hop({"resend": {"run_max": 1}}, route=fifo)) == "at-least-once, continuous"
    assert headline(hop("resend", route=fifo)) == "at-least-once, gap-free"


def test_reliable_equals_the_stack_that_it_fuses_under_all_options() -> None:
    """8.7: same guarantee with and without journal, state and boundary; but reliable greets, so where the clock
    alone numbers lives it keeps out late frames of a higher one."""
    step = frozenset({Fault.CLOCK_STEP})
    for journal, state, boundary in product(
        (None, PROCESS), (None, POWER), (Boundary.PROCESSED, Boundary.HANDED)
    ):
        one, two = (
            derive(replace(plain, journal=journal, receiver_state=state, boundary=boundary))
            for plain in (hop("reliable"), hop("continuous-index", "multi-unconfirmed"))
        )
        for atom, faults in one.guarantee.items():
            lacked = step if journal is None and atom in (U, M) else frozenset[Fault]()
            assert two.guarantee.tolerated(atom) == faults - lacked


# G-5: the process part


def test_a_sender_crash_needs_a_journal_for_what_must_not_be_lost() -> None:
    """G-5: U and M survive it always, N and G with a journal."""
    assert survivors(hop("reliable"), Fault.SENDER_CRASH) == {U, M}
    journal = replace(hop("reliable"), journal=PROCESS)
    assert survivors(journal, Fault.SENDER_CRASH) == {N, U, M, G}


def test_a_crash_is_a_loss_of_what_is_in_flight() -> None:
    """G-5: without route-loss in N and G, no journal and no boundary helps them."""
    strict = replace(hop("strict-monotonic"), journal=PROCESS)
    assert derived_survivors(evaluate(strict), Fault.SENDER_CRASH) == {U, M}
    on_a_route_that_loses_nothing = replace(strict, route=LOCAL)
    assert derived_survivors(evaluate(on_a_route_that_loses_nothing), Fault.SENDER_CRASH) == {U, M}


def test_a_failing_handler_is_the_boundary_s_own_business() -> None:
    """G-5, D-1: nothing in flight is at stake; an unordered pipe lets later messages pass a failed one."""
    assert survivors(hop("strict-monotonic"), Fault.HANDLER_FAILURE) == {N, U, M, G}
    assert survivors(hop("dedupe", route=LOCAL), Fault.HANDLER_FAILURE) == {N, U}


def test_a_journal_repeats_what_only_an_ordered_cursor_drops() -> None:
    """G-5, L-6: its position lags, so older messages come again; resend lets them through."""
    resend = replace(hop({"resend": {"run_max": 1}}, route=LOCAL), journal=PROCESS)
    assert survivors(resend, Fault.SENDER_CRASH) == {N, G}
    assert survivors(replace(resend, journal=None), Fault.SENDER_CRASH) == {M}
    reliable = replace(hop("reliable"), journal=PROCESS)
    assert survivors(reliable, Fault.SENDER_CRASH) == {N, U, M, G}


def test_a_zombie_sender_is_refused_by_a_cursor() -> None:
    """G-5: U and M need a cursor pipe and a journal that fences it, N and G what a crash needs."""
    bare_resend = replace(hop({"resend": {"run_max": 1}}, route=LOCAL), journal=PROCESS)
    assert survivors(bare_resend, Fault.SENDER_ZOMBIE) == {N, G}
    with_cursor = hop("strict-monotonic", "resend")
    assert survivors(with_cursor, Fault.SENDER_ZOMBIE) == set()
    fenced = replace(with_cursor, journal=PROCESS)
    assert survivors(fenced, Fault.SENDER_ZOMBIE) == {N, U, M, G}


def test_a_zombie_that_hears_nothing_numbers_nothing_anew() -> None:
    """G-5, L-7: over a one-way route no refusal comes back, so an old sender stays in its old epoch."""
    assert survivors(hop("strict-monotonic", route=ONE_WAY), Fault.SENDER_ZOMBIE) == {U, M}


@pytest.mark.parametrize(
    ("boundary", "expected"),
    [
        (Boundary.HANDED, set[Atom]()),
        (Boundary.BEFORE, {U, M}),
        (Boundary.PROCESSED, {N, G}),
        (Boundary.COMMITTED, {N, U, M, G}),
    ],
)
def test_the_boundary_decides_what_survives_a_receiver_crash(
    boundary: Boundary, expected: set[Atom]
) -> None:
    """G-5, and K-3 row by row; zombies of the receiver go with it, but that one hands over late what it stored."""
    durable = replace(hop("reliable"), receiver_state=POWER, sink=POWER, boundary=boundary)
    assert survivors(durable, Fault.RECEIVER_CRASH) == expected
    late = {M} if boundary is Boundary.BEFORE else set[Atom]()
    assert survivors(durable, Fault.RECEIVER_ZOMBIE) == expected - late


KEEPS_ORDER = DeclaredRoute("wire", ROUTE - {DUPLICATION, REORDERING})


def test_a_receiver_crash_repeats_nothing_that_is_sent_once_and_comes_in_order() -> None:
    """G-10: with a route that repeats or overtakes, a layer that sends again or a journal it may come again."""
    for kind in ("dedupe", "strict-monotonic"):
        assert {U, M} <= survivors(hop(kind, route=KEEPS_ORDER), Fault.RECEIVER_CRASH)
        assert U not in survivors(hop(kind), Fault.RECEIVER_CRASH)
        assert U not in survivors(hop(kind, "resend", route=KEEPS_ORDER), Fault.RECEIVER_CRASH)
        kept = evaluate(replace(hop(kind, route=KEEPS_ORDER), journal=PROCESS))
        assert U not in derived_survivors(kept, Fault.RECEIVER_CRASH)
    assert M in survivors(hop("dedupe"), Fault.RECEIVER_CRASH)
    assert M not in survivors(hop("strict-monotonic"), Fault.RECEIVER_CRASH)


def test_a_receiver_crash_puts_nothing_out_of_order_that_is_sent_one_at_a_time() -> None:
    """G-10: all copies of a message are on their way before the next one; a zombie keeps one in its hands."""
    single = hop({"resend": {"run_max": 1}})
    assert M in survivors(single, Fault.RECEIVER_CRASH)
    assert M in survivors(single, Fault.POWER_LOSS)
    assert M not in survivors(single, Fault.RECEIVER_ZOMBIE)
    assert M not in survivors(hop("sequential-confirm"), Fault.RECEIVER_CRASH)
    assert M in survivors(hop("sequential-confirm", route=KEEPS_ORDER), Fault.RECEIVER_CRASH)
    assert M not in survivors(hop("reliable", route=KEEPS_ORDER), Fault.RECEIVER_CRASH)


@pytest.mark.parametrize(
    ("above", "kept"),
    [
        ((), {N}),
        (("strict-monotonic",), set[Atom]()),
        (("dedupe", "strict-monotonic"), set[Atom]()),
        (("dedupe",), {N}),
        (("strict-monotonic", "sequential-confirm"), {N, G}),
        (("reliable", "strict-monotonic"), {N, G}),
    ],
)
def test_order_that_a_window_has_from_its_carrier_ends_with_a_receiver(
    above: tuple[LayerText, ...], kept: set[Atom]
) -> None:
    """G-5: what drops older messages loses by that, unless one above sends again or one below waits for each."""
    stack = hop(*above, "multi-unconfirmed", "resend")
    assert survivors(stack, Fault.RECEIVER_CRASH) & {N, G} == kept


def test_what_has_its_order_from_below_a_window_goes_back_after_a_receiver_crash() -> None:
    """G-5: dedupe keeps the order of its carrier, and strict-monotonic one of its own; repeats come to neither."""
    for above, kept in ("dedupe", {U}), ("strict-monotonic", {U, M}):
        stack = committed(hop(above, "multi-unconfirmed", "resend"))
        assert survivors(stack, Fault.RECEIVER_CRASH) & {U, M} == kept
    ordered = committed(hop("dedupe", "strict-monotonic", "multi-unconfirmed", "resend"))
    assert M in survivors(ordered, Fault.RECEIVER_CRASH)


def test_a_pipe_that_stops_for_good_leaves_no_gap() -> None:
    """G-10: continuous-index waits for what a crash took; a journal's next life would go on behind it."""
    stopped = hop("continuous-index", route=LOCAL)
    assert survivors(stopped, Fault.RECEIVER_CRASH) == {U, M, G}
    assert survivors(stopped, Fault.RECEIVER_ZOMBIE) == {G}
    kept = evaluate(replace(stopped, journal=PROCESS))
    assert G not in derived_survivors(kept, Fault.RECEIVER_CRASH)
    assert G not in survivors(hop("dedupe", route=LOCAL), Fault.RECEIVER_CRASH)


def test_without_a_layer_that_sends_again_a_receiver_crash_loses() -> None:
    """G-5: some layer must be a retry pipe, or a stream."""
    durable = replace(hop("continuous-index", route=LOCAL), receiver_state=POWER)
    assert N not in survivors(durable, Fault.RECEIVER_CRASH)
    assert N in survivors(stream_hop(), Fault.RECEIVER_CRASH)


def test_a_continuous_index_receiver_must_be_told_where_to_go_on() -> None:
    """G-5: by a durable cursor, a stream below, or a confirming carrier with a control path."""
    untold = hop("resend", "continuous-index", route=LOCAL)
    assert N not in survivors(untold, Fault.RECEIVER_CRASH)
    durable = replace(untold, receiver_state=PROCESS)
    assert N in survivors(durable, Fault.RECEIVER_CRASH)
    assert N in survivors(hop("continuous-index", "resend"), Fault.RECEIVER_CRASH)
    assert N in survivors(stream_hop(POWER, "continuous-index"), Fault.RECEIVER_CRASH)


@pytest.mark.parametrize(
    ("boundary", "expected"),
    [
        (Boundary.HANDED, {U, M}),
        (Boundary.BEFORE, {U, M}),
        (Boundary.PROCESSED, {N, U, M, G}),
        (Boundary.COMMITTED, {N, U, M, G}),
    ],
)
def test_a_failing_handler_loses_what_was_settled_before_it_ran(
    boundary: Boundary, expected: set[Atom]
) -> None:
    """G-5."""
    durable = replace(hop("reliable"), receiver_state=POWER, sink=POWER, boundary=boundary)
    assert survivors(durable, Fault.HANDLER_FAILURE) == expected


def test_the_wall_clock_matters_to_nothing() -> None:
    """G-5: clock-step is always tolerated."""
    assert survivors(hop("strict-monotonic"), Fault.CLOCK_STEP) == {N, U, M, G}


# G-6: stores


def test_without_a_store_no_store_can_fail() -> None:
    """G-6: all store faults are tolerated, power-loss is not."""
    tolerates = tolerated(hop("reliable"), N)
    assert {
        Fault.STORE_OUTAGE,
        Fault.STORE_CRASH,
        Fault.STORE_ROLLBACK,
        Fault.STORE_TRIM,
    } <= tolerates
    assert Fault.POWER_LOSS not in tolerates


@pytest.mark.parametrize(
    ("level", "crash", "power"),
    [
        (Level.NONE, False, False),
        (Level.INTERVAL, False, False),
        (Level.PROCESS, True, False),
        (Level.POWER, True, True),
    ],
)
def test_the_level_of_a_store_decides_which_ends_it_survives(
    level: Level, crash: bool, power: bool
) -> None:
    """G-6: everything in one Redis of this level."""
    durable = committed(hop("reliable"), DeclaredStore("main", level, "redis"))
    assert (survivors(durable, Fault.STORE_CRASH) == set(Atom)) is crash
    assert (survivors(durable, Fault.POWER_LOSS) == set(Atom)) is power
    assert survivors(durable, Fault.STORE_OUTAGE) == set(Atom)
    assert survivors(durable, Fault.STORE_ROLLBACK) == set()


@pytest.mark.parametrize("role", ["journal", "receiver_state", "dead_letters", "stream"])
def test_the_weakest_of_all_stores_counts(role: str) -> None:
    """G-6: stream, journal, receiver state and dead letters."""
    weak = DeclaredStore("weak", Level.NONE, "redis")
    strong = replace(stream_hop(), journal=POWER, receiver_state=POWER, dead_letters=POWER)
    weakened = {
        "journal": replace(strong, journal=weak),
        "receiver_state": replace(strong, receiver_state=weak),
        "dead_letters": replace(strong, dead_letters=weak),
        "stream": replace(strong, stream=weak),
    }
    assert Fault.STORE_CRASH in tolerated(strong, N)
    assert Fault.STORE_CRASH not in tolerated(weakened[role], N)


def test_a_retention_that_may_pass_a_reader_breaks_every_atom() -> None:
    """G-6: store-trim is tolerated unless trimming is forced."""
    assert Fault.STORE_TRIM in tolerated(stream_hop(), N)
    assert Fault.STORE_TRIM not in tolerated(replace(stream_hop(), forced_trim=True), N)


def test_power_loss_needs_both_crashes_and_every_level() -> None:
    """G-6: leaving out any one part of al3 loses it."""
    whole = committed(hop("reliable"))
    assert survivors(whole, Fault.POWER_LOSS) == set(Atom)
    for part in (
        replace(whole, journal=None),
        replace(whole, boundary=Boundary.PROCESSED),
        committed(hop("reliable"), PROCESS),
    ):
        assert survivors(part, Fault.POWER_LOSS) != set(Atom)


def test_a_stream_in_memory_ends_with_the_process() -> None:
    """Nothing survives the end of either end when it holds the stream itself."""
    volatile = replace(stream_hop(MEMORY), journal=POWER)
    assert survivors(volatile, Fault.SENDER_CRASH) == set()
    assert survivors(volatile, Fault.RECEIVER_CRASH) == set()
    assert survivors(volatile, Fault.HANDLER_FAILURE) == set(Atom)


def test_letters_in_memory_end_with_the_process_that_wrote_them() -> None:
    """A letter is the end of its message, so with the process goes what nobody sends again (G-6)."""
    whole = replace(committed(hop("reliable")), retries=3, dead_letters=POWER)
    volatile = replace(whole, dead_letters=MEMORY)
    gone = {Atom.NO_LOSS, Atom.GAP_FREE}
    for fault in (Fault.RECEIVER_CRASH, Fault.RECEIVER_ZOMBIE):
        assert survivors(whole, fault) == set(Atom)
        assert survivors(volatile, fault) == set(Atom) - gone
    assert survivors(volatile, Fault.SENDER_CRASH) == set(Atom)
    given_up = {"multi-unconfirmed": {"give_up_after_s": 60}}
    sending = replace(hop(given_up), journal=POWER, dead_letters=MEMORY)
    assert Atom.NO_LOSS not in survivors(sending, Fault.SENDER_CRASH)
    assert Atom.NO_LOSS in survivors(replace(sending, dead_letters=POWER), Fault.SENDER_CRASH)


# G-4: reverse paths, channels


def test_confirms_over_a_route_that_loses_nothing_are_protected() -> None:
    """G-4: at-least-once if the reverse direction exhibits no loss, outage or corruption."""
    assert headline(hop(CARRIER_SEQUENTIAL, route=OVERTAKES)) == "exactly-once, absolute"
    for fault in (LOSS, OUTAGE, CORRUPTION):
        route = DeclaredRoute("back", frozenset(), frozenset({fault}))
        assert [f.code for f in refusals(hop(CARRIER_SEQUENTIAL, route=route))] == [
            Code.UNPROTECTED_CONFIRMS
        ]


@pytest.mark.parametrize("back", ["multi-unconfirmed", "resend", "reliable"])
def test_a_channel_is_an_at_least_once_way_back(back: LayerText) -> None:
    """G-4, C-1: when the opposite stack loses nothing."""
    plain = hop(CARRIER_SEQUENTIAL, "multi-unconfirmed")
    assert refusals(replace(plain, channel_back=layers_of(back))) == ()


def test_a_channel_whose_way_back_loses_protects_nothing() -> None:
    """G-4: the opposite stack must have n = ROUTE."""
    plain = hop(CARRIER_SEQUENTIAL, "multi-unconfirmed")
    found = refusals(replace(plain, channel_back=layers_of("strict-monotonic")))
    assert [finding.code for finding in found] == [Code.UNPROTECTED_CONFIRMS]


def test_two_stacks_may_carry_the_confirms_of_each_other() -> None:
    """G-4, C-1: confirms enter the opposite stack below the layer that waits for confirms itself, so neither
    needs the other's order: what matters is the opposite stack from that layer on."""
    half = layers_of(CARRIER_SEQUENTIAL, "multi-unconfirmed")
    both = Hop("orders", half, channel_back=half)
    assert refusals(both) == ()
    assert headline(both) == "exactly-once, absolute"
    nested = layers_of(CARRIER_SEQUENTIAL, CARRIER_SEQUENTIAL, "resend")
    assert refusals(replace(both, channel_back=nested)) == ()


@pytest.mark.parametrize(
    ("back", "codes"),
    [
        (layers_of(CARRIER_SEQUENTIAL), ["unprotected-confirms", "unmet-carrier"]),
        (
            layers_of(CARRIER_SEQUENTIAL, "strict-monotonic"),
            ["unprotected-confirms", "unmet-carrier"],
        ),
        (layers_of("strict-monotonic", "multi-unconfirmed"), ["unprotected-confirms"]),
    ],
    ids=["nothing carries them", "what carries them loses", "the entry loses what is overtaken"],
)
def test_the_way_in_for_confirms_must_lose_nothing(
    back: tuple[LayerOptions, ...], codes: list[str]
) -> None:
    """G-4: the opposite stack is judged from the layer on where confirms enter, and by itself as well."""
    half = layers_of(CARRIER_SEQUENTIAL, "multi-unconfirmed")
    found = refusals(Hop("orders", half, channel_back=back))
    assert [(finding.pipe, str(finding.code)) for finding in found] == [
        ("orders" if code == "unprotected-confirms" else "orders/back", code) for code in codes
    ]


def test_the_other_half_of_a_channel_must_stand_by_itself() -> None:
    """C-1: what is wrong with the way back is told as of the way back."""
    there = layers_of("reliable")
    found = refusals(Hop("orders", there, channel_back=layers_of("continuous-index")))
    assert [(finding.pipe, finding.code) for finding in found] == [
        ("orders/back", Code.UNMET_CARRIER)
    ]


# G-7: chains


def flow(*hops: Hop, hand_over: Boundary = Boundary.PROCESSED) -> Chain:
    """These hops in a row, all handed over alike."""
    named = tuple(replace(each, name=f"hop{n}") for n, each in enumerate(hops))
    return Chain("flow", named, (hand_over,) * (len(hops) - 1))


def test_a_chain_promises_what_all_its_hops_do() -> None:
    """G-7: exactly-once and then at-least-once is at-least-once."""
    chain = derive_chain(flow(hop("reliable"), hop("resend")))
    assert chain.guarantee.no_duplicate is None
    assert chain.headline.delivery == "at-least-once"
    assert chain.headline.order == "gap-free"


def test_the_reason_of_a_chain_names_the_hop_that_a_fault_concerns() -> None:
    """G-7, G-10: the first hop may lose at its sender's crash; route loss breaks the second, and no other."""
    chain = evaluate_chain(flow(replace(hop("reliable"), journal=POWER), hop("continuous-index")))
    assert chain.reason(Atom.NO_LOSS, Fault.ROUTE_LOSS).pipe == "hop1"
    assert chain.reason(Atom.NO_LOSS, Fault.SENDER_CRASH).pipe == "flow", "it survives that"
    assert chain.reason(Atom.NO_LOSS, Fault.RELAY_CRASH).pipe == "flow"


def test_the_ends_of_a_chain_crash_under_their_own_names() -> None:
    """G-7: sender-crash is the first hop's, receiver-crash the last one's, what is between is relay-crash."""
    journalled = replace(hop("reliable"), journal=POWER)
    first = derive_chain(flow(journalled, hop("reliable"))).guarantee
    assert first.holds(N, frozenset({Fault.SENDER_CRASH, Fault.RELAY_CRASH}))
    last = derive_chain(flow(hop("reliable"), committed(hop("reliable")))).guarantee
    assert last.holds(U, frozenset({Fault.RECEIVER_CRASH}))
    assert not last.holds(U, frozenset({Fault.RELAY_CRASH}))
    assert not last.holds(N, frozenset({Fault.SENDER_CRASH}))


def test_a_committed_hand_over_needs_both_records_in_one_store() -> None:
    """G-7: cursor and the next hop's journal (or stream) in one transaction."""
    first = replace(hop("reliable"), receiver_state=POWER)
    same, other = (replace(hop("reliable"), journal=store) for store in (POWER, ELSEWHERE))
    derive_chain(flow(first, same, hand_over=Boundary.COMMITTED))
    derive_chain(flow(first, stream_hop(POWER), hand_over=Boundary.COMMITTED))
    for second in (other, hop("reliable"), stream_hop(ELSEWHERE)):
        found = chain_refusals(flow(first, second, hand_over=Boundary.COMMITTED))
        assert [finding.code for finding in found] == [Code.SPLIT_STORE]


def test_a_hand_over_before_delivery_is_refused() -> None:
    """G-7 knows handed, processed and committed."""
    with pytest.raises(CompositionError) as error:
        derive_chain(flow(hop("reliable"), hop("reliable"), hand_over=Boundary.BEFORE))
    assert str(error.value) == (
        "boundary: pipe hop0: hand-over before moves the cursor before the next hop has the "
        "message. Hand over committed, processed or handed."
    )


def test_three_hops_are_as_weak_as_their_weakest_relay() -> None:
    """G-7: every inner receiver must survive its crash."""
    first = replace(hop("reliable"), receiver_state=POWER, journal=POWER)
    middle = replace(first, sink=POWER)
    chain = flow(first, middle, committed(hop("reliable")), hand_over=Boundary.COMMITTED)
    relay = frozenset({Fault.RELAY_CRASH})
    assert derive_chain(chain).guarantee.holds(U, relay)
    mixed = replace(chain, hand_over=(Boundary.COMMITTED, Boundary.PROCESSED))
    assert not derive_chain(mixed).guarantee.holds(U, relay)
    assert derive_chain(mixed).guarantee.holds(N, relay)


def test_a_chain_counts_its_hand_overs() -> None:
    """One between every two hops."""
    with pytest.raises(ConfigurationError, match="2 hops and 0 hand-overs"):
        Chain("flow", (hop("reliable"), hop("resend")), ())


# G-8 and beyond: properties of everything that is accepted

KINDS_WITH_OPTIONS: tuple[LayerText, ...] = (
    "resend",
    {"resend": {"run_max": 1}},
    "multi-unconfirmed",
    "sequential-confirm",
    CARRIER_SEQUENTIAL,
    {"sequential-confirm": {"repeats": "forward"}},
    "strict-monotonic",
    {"strict-monotonic": {"relaxed": True}},
    "continuous-index",
    {"continuous-index": {"repeats": "last"}},
    {"continuous-index": {"repeats": "all"}},
    "dedupe",
    "reliable",
    STREAM,
)
stores = st.sampled_from(
    [
        None,
        PROCESS,
        POWER,
        DeclaredStore("redis", Level.NONE, "redis"),
        DeclaredStore("redis", Level.POWER, "redis"),
    ]
)


@st.composite
def any_hop(draw: st.DrawFn) -> Hop:
    """Any stack of up to four layers with anything around it."""
    layers: tuple[LayerOptions, ...] = layers_of(
        *draw(st.lists(st.sampled_from(KINDS_WITH_OPTIONS), min_size=1, max_size=4))
    )
    return Hop(
        "orders",
        layers,
        draw(st.sampled_from([LOCAL, TCP, LOSSY_ROUTE, ONE_WAY])),
        boundary=draw(st.sampled_from(Boundary)),
        journal=draw(stores),
        receiver_state=draw(stores),
        sink=draw(stores),
        stream=draw(st.sampled_from([POWER, PROCESS, DeclaredStore("redis", Level.NONE, "redis")])),
        forced_trim=draw(st.booleans()),
    )


@given(any_hop())
def test_gap_free_without_repeats_is_monotonic(anything: Hop) -> None:
    """V-3: what is derived is consistent; only dedupe, which is cautious there, needs the rule, and a clock that
    goes back, which takes nothing without a crash."""
    guarantee = evaluate(anything).guarantee
    if any(layer.kind == "dedupe" for layer in anything.layers):
        return
    if guarantee.gap_free is not None and guarantee.no_duplicate is not None:
        assert guarantee.monotonic is not None
        both = guarantee.gap_free & guarantee.no_duplicate
        assert both - guarantee.monotonic <= {Fault.CLOCK_STEP}
        assert Fault.CLOCK_STEP in guarantee.monotonic or Fault.SENDER_CRASH not in both


def test_dedupe_over_a_bare_route_that_repeats_is_in_order() -> None:
    """G-10 names the cell as cautious: its M says no, and its G and U together say yes."""
    guarantee = derive(hop("dedupe")).guarantee
    assert DUPLICATION not in tolerated(hop("dedupe"), M)
    assert guarantee.holds(M, frozenset({DUPLICATION, DELAY}))
    assert not guarantee.holds(M, frozenset({DUPLICATION, LOSS}))


@given(any_hop())
def test_what_is_derived_meets_its_own_headline(anything: Hop) -> None:
    """G-8."""
    derived = evaluate(anything)
    assert derived.guarantee.meets(derived.headline)
    assert derived.headline.tolerates >= derived.hop.route.forward


@given(any_hop())
def test_what_is_refused_says_why_and_what_is_accepted_says_nothing(anything: Hop) -> None:
    """G-9: refusing and accepting are one decision."""
    found = refusals(anything)
    for finding in found:
        assert finding.why
        assert not finding.code.is_warning
        assert "None" not in str(finding)
    if not found:
        assert derive(anything) == evaluate(anything)


@given(any_hop())
def test_what_is_missing_has_a_reason_and_a_remedy(anything: Hop) -> None:
    """G-8: for every fault that the headline lacks, what would add it; a rollback is never tolerated. Where
    nothing comes back, no layer can confirm, so there is no journal to help after a clock was set back."""
    if refusals(anything):
        return
    derived = derive(anything)
    for fault in derived.headline.lacks():
        if fault is Fault.CLOCK_STEP and anything.route.one_way:
            continue
        assert (remedy_for_fault(derived, fault) is None) == (fault is Fault.STORE_ROLLBACK)


@given(any_hop())
def test_a_journal_takes_nothing_but_the_absence_of_stores(anything: Hop) -> None:
    """A journal at level power never weakens an atom; store faults aside, order after a sender's crash where
    nothing outermost restrains it, and what a receiver that crashed has forgotten, where only the journal
    brings it again."""
    without, with_journal = (replace(anything, journal=j) for j in (None, POWER))
    old, new = evaluate(without).guarantee, evaluate(with_journal).guarantee
    for atom, faults in old.items():
        aside = {Fault.STORE_ROLLBACK}
        if atom is M and _repeats(anything):
            aside |= ENDS_OF_SENDERS
        if atom is not N and not any(layer.is_retry for layer in anything.layers):
            aside |= ENDS_OF_RECEIVERS
        assert new.holds(atom, faults - aside)


def test_what_only_a_journal_brings_again_repeats_for_a_receiver_that_forgot() -> None:
    """Whoever sends nothing again loses by a receiver's crash, and repeats nothing."""
    for journal, repeats in ((None, False), (POWER, True)):
        kept = evaluate(replace(hop("strict-monotonic", route=LOCAL), journal=journal))
        assert (U not in derived_survivors(kept, Fault.RECEIVER_CRASH)) is repeats


ENDS_OF_RECEIVERS = frozenset({Fault.RECEIVER_CRASH, Fault.RECEIVER_ZOMBIE, Fault.POWER_LOSS})
ENDS_OF_SENDERS = frozenset({Fault.SENDER_CRASH, Fault.SENDER_ZOMBIE, Fault.POWER_LOSS})


def _repeats(hop: Hop) -> bool:
    outermost = hop.layers[0]
    unordered = outermost.kind in ("resend", "multi-unconfirmed", "dedupe")
    return unordered or getattr(outermost, "repeats", "") == "forward"


@given(any_hop(), any_hop(), st.sampled_from([Boundary.HANDED, Boundary.PROCESSED]))
def test_a_chain_is_never_stronger_than_its_hops_on_the_route(
    first: Hop, second: Hop, hand_over: Boundary
) -> None:
    """G-7: under route faults the chain is exactly the intersection."""
    chain = flow(first, second, hand_over=hand_over)
    if chain_refusals(chain):
        return
    guarantee = derive_chain(chain).guarantee
    parts = [evaluate(each).guarantee for each in chain.hops]
    for atom in Atom:
        assert guarantee.holds(atom, ROUTE) == all(part.holds(atom, ROUTE) for part in parts)


def test_deriving_is_a_pure_function() -> None:
    """Equal hops give equal results and equal text, however often."""
    stack = hop("strict-monotonic", "multi-unconfirmed")
    assert derive(stack) == derive(replace(stack))
    assert str(derive(stack).guarantee) == str(derive(replace(stack)).guarantee)


def test_a_stack_prints_as_its_composition() -> None:
    """K-9."""
    stack = hop("continuous-index", {"multi-unconfirmed": {"window": 512}}, route=TCP)
    assert composition(stack) == "continuous-index > multi-unconfirmed(window=512) / tcp"


def test_a_hop_without_layers_or_without_the_store_of_its_stream_can_not_be_written() -> None:
    """ConfigurationError at once, before any algebra."""
    with pytest.raises(ConfigurationError, match="has no layers"):
        Hop("orders", ())
    with pytest.raises(ConfigurationError, match="say which store keeps it"):
        hop(STREAM)


def test_a_lossless_claim_of_the_headline_is_what_lacks_says() -> None:
    """G-8: lacks is the complement of what the headline tolerates."""
    derived = derive(hop("reliable"))
    assert {Fault(name) for name in lacks(hop("reliable"))} == set(
        Fault
    ) - derived.headline.tolerates
    assert derived.headline == Claim(frozenset(Atom), derived.headline.tolerates)
