"""dedupe: no repeats, no order (pipes 8.6, de1 to de3)."""

from __future__ import annotations

import random

import pytest

from surepipe.core.effects import Ranges
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.wire.frames import Numbered, Open, Refused, RefusedReason, tag_of
from tests.kit.runs import arrive_in_order, counted, epoch_of, run, wire_with
from tests.kit.wire import MS, SECOND, Faults, Wire

KIND = "dedupe"
STACK: list[LayerText] = [KIND, "multi-unconfirmed"]
ROUTE = Faults(loss=0.2, duplication=0.3, fifo=False, delay_us=(MS, 50 * MS))
PIPE = tag_of("pipe")


def in_work(wire: Wire) -> int:
    """Messages handed up and not settled."""
    return wire.receiver.gauges()["in_work"]


def settle_all(wire: Wire) -> None:
    """Every handler returns."""
    while wire.open:
        wire.settle()


@pytest.mark.parametrize("seed", range(20))
def test_over_multi_unconfirmed_it_is_exactly_once(seed: int) -> None:
    """de1, al16: copies, loss and reordering: each message once, in any order, C = S."""
    wire = Wire(STACK, seed=seed)
    for number in range(0, 300, 3):
        wire.send(number, number + 1, number + 2)
    wire.run(ROUTE, until_us=300 * SECOND)
    assert sorted(wire.settled) == list(range(1, 301))
    assert wire.confirmed == set(range(1, 301))
    assert wire.settled != sorted(wire.settled)
    assert in_work(wire) == 0


def test_a_million_messages_with_repeats_are_remembered_as_ranges() -> None:
    """de2: runs of 500, 1 % repeated later: each once, and the state stays a handful of ranges."""
    rng = random.Random(1)
    receiver = ReceiverStack("pipe", parse_layers(KIND), rng=rng)
    receiver.wake(0)
    payloads = [b"x"] * 500
    frames = [Numbered(PIPE, 0, 1, first, payloads) for first in range(1, 1_000_000, 500)]
    order = [*frames]
    for _ in range(len(frames) // 100):
        at = rng.randrange(len(frames))
        order.insert(at + rng.randrange(1, 20), frames[at])
    largest = 0
    for frame in order:
        for effect in receiver.frame(frame, 0):
            ticket = getattr(effect, "ticket", None)
            if ticket is not None:
                receiver.settled(ticket, ((frame.first, frame.first + 499),), 0)
        largest = max(largest, len(str(receiver.layers[0].cursor())))
    counters = receiver.counters()
    assert counters["settled"] == 1_000_000
    assert counters["duplicate"] + counters["too_old"] == 500 * (len(order) - len(frames))
    assert largest < 100


def test_a_message_in_work_is_not_lost_when_a_copy_arrived() -> None:
    """de3: in work, a copy arrives, the receiver crashes: the copy was not confirmed, so it comes again."""
    wire = Wire(STACK, auto_settle=False)
    wire.send(1)
    wire.repeat()
    wire.exchange()
    wire.advance(3 * SECOND)
    wire.exchange()
    assert wire.confirmed == set()
    assert in_work(wire) == 1
    wire.crash_receiver()
    wire.auto_settle = True
    wire.run(until_us=60 * SECOND)
    assert wire.settled == [1]
    assert wire.confirmed == {1}


def test_what_is_remembered_spans_the_window_only() -> None:
    """8.6: every other message arrives, the first one is settled last: ranges above the floor only."""
    wire = wire_with(200, {KIND: {"dedupe_window": 10}}, auto_settle=False)
    wire.arrive(run(wire, 1, 1))
    first = next(iter(wire.open))
    for number in range(3, 201, 2):
        wire.arrive(run(wire, number, number))
        newest = list(wire.open)[-1]
        wire.receiver.settled(newest, ((number, number),), 0)
    epoch = epoch_of(wire)
    kept = [[number, number] for number in range(191, 200, 2)]
    assert wire.receiver.layers[0].cursor() == [epoch, 199, kept]
    wire.receiver.settled(first, ((1, 1),), 0)
    assert wire.receiver.layers[0].cursor() == [epoch, 199, kept]
    assert in_work(wire) == 0


def test_the_oldest_message_above_the_floor_is_remembered() -> None:
    """8.6: window 10 and 12 as the highest: of 3 a copy is dropped, and 2 counts as seen."""
    wire = wire_with(12, {KIND: {"dedupe_window": 10}})
    for number in (12, 3, 3, 2):
        wire.arrive(run(wire, number, number))
    assert wire.settled == [12, 3]
    assert counted(wire) == {"duplicate": 1, "too_old": 1}


def test_repeats_are_dropped_in_any_order() -> None:
    """1 2 2 4 3 4 5: each once, as they come."""
    wire = wire_with(5, KIND)
    arrive_in_order(wire, 1, 2, 2, 4, 3, 4, 5)
    assert wire.settled == [1, 2, 4, 3, 5]
    assert counted(wire) == {"duplicate": 2}


def test_only_the_unseen_parts_of_a_run_are_delivered() -> None:
    """Settled 1..2 and 5, in work 7: of the run 1..9 the parts 3..4, 6 and 8..9."""
    wire = wire_with(9, KIND, auto_settle=False)
    for first, last in ((1, 2), (5, 5)):
        wire.arrive(run(wire, first, last))
        wire.settle()
    wire.arrive(run(wire, 7, 7))
    wire.arrive(run(wire, 1, 9))
    open_runs = [(d.first, d.first + len(d.payloads) - 1) for d in wire.open.values()]
    assert open_runs == [(7, 7), (3, 4), (6, 6), (8, 9)]
    settle_all(wire)
    wire.arrive(run(wire, 1, 9))
    assert sorted(wire.settled) == list(range(1, 10))
    assert counted(wire) == {"duplicate": 4 + 9}


def test_a_copy_of_what_is_in_work_counts_as_such() -> None:
    """8.6: seen and in work; it waits for the answer of the first."""
    wire = wire_with(2, KIND, auto_settle=False)
    wire.arrive(run(wire, 1, 2))
    wire.arrive(run(wire, 2, 2))
    assert counted(wire) == {"in_work": 1}
    assert len(wire.delivered) == 1


def test_what_is_far_below_the_highest_counts_as_seen() -> None:
    """8.6: `dedupe_window` 4, highest 9: the floor is 5; message 5 is too old, 6 is not."""
    wire = wire_with(9, {KIND: {"dedupe_window": 4}})
    wire.arrive(run(wire, 9, 9))
    wire.arrive(run(wire, 5, 5))
    wire.arrive(run(wire, 6, 6))
    assert wire.settled == [9, 6]
    assert counted(wire) == {"too_old": 1}


def test_a_message_in_work_below_the_floor_keeps_its_place() -> None:
    """K-2: a copy of it still waits for its answer, however far the floor has risen."""
    wire = wire_with(9, {KIND: {"dedupe_window": 4}}, auto_settle=False)
    wire.arrive(run(wire, 1, 1))
    wire.arrive(run(wire, 9, 9))
    wire.arrive(run(wire, 1, 1))
    assert counted(wire) == {"in_work": 1}
    settle_all(wire)
    wire.arrive(run(wire, 1, 1))
    assert wire.settled == [1, 9]
    assert counted(wire) == {"in_work": 1, "too_old": 1}


# Bounds (pipes P-9, V-5).


def test_what_exceeds_the_window_is_left_out() -> None:
    """V-5: window 4: of a run of five behind one in work three are delivered; the rest when it comes again."""
    wire = wire_with(6, {KIND: {"receive_window": 4}}, auto_settle=False)
    wire.arrive(run(wire, 1, 1))
    wire.arrive(run(wire, 2, 6))
    assert in_work(wire) == 4
    assert counted(wire) == {"over_limit": 2}
    settle_all(wire)
    wire.arrive(run(wire, 2, 6))
    settle_all(wire)
    assert wire.settled == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("seed", range(10))
def test_a_small_window_over_a_wide_carrier_never_stalls(seed: int) -> None:
    """V-5, K-2: a receiver with window 3 and few bytes under a wide sender, a slow handler."""
    receiver: list[LayerText] = [
        {KIND: {"receive_window": 3, "receive_window_bytes": 40}},
        "multi-unconfirmed",
    ]
    wire = Wire(STACK, receiver_layers=receiver, seed=seed, handler_us=3 * MS)
    for number in range(1, 31):
        wire.send(bytes([number]) * number)

    def bounded() -> None:
        assert in_work(wire) <= 3

    wire.run(ROUTE, each_step=bounded, until_us=600 * SECOND)
    assert sorted(wire.settled) == list(range(1, 31))
    assert wire.confirmed == set(range(1, 31))
    assert counted(wire)["over_limit"] > 0


def test_messages_refused_by_the_boundary_come_again() -> None:
    """K-2: the host gives back 2..3; they were not seen after all."""
    wire = Wire(STACK, auto_settle=False)
    wire.send(1, 2, 3)
    wire.transfer()
    wire.settle(1)
    wire.refuse(2)
    assert in_work(wire) == 0
    wire.auto_settle = True
    wire.run(until_us=60 * SECOND)
    assert wire.settled == [1, 2, 3]
    assert wire.confirmed == {1, 2, 3}


# Epochs (pipes L-9).


def test_a_new_epoch_waits_until_the_former_one_is_settled() -> None:
    """L-9: deliveries overlap here, so the new epoch's are kept until nothing old is in work."""
    wire = wire_with(2, KIND, auto_settle=False)
    wire.transfer()
    wire.crash_sender()
    wire.send(3)
    wire.send(4)
    wire.transfer()
    assert wire.receiver.gauges() == {"held": 2, "in_work": 2}
    wire.settle()
    assert len(wire.delivered) == 2
    wire.settle()
    assert len(wire.delivered) == 4
    settle_all(wire)
    assert wire.settled == [1, 2, 3, 4]
    assert wire.receiver.gauges() == {"held": 0, "in_work": 0}


def test_old_frames_are_refused_while_the_new_epoch_waits() -> None:
    """L-7, L-9: a frame of the former life comes when the next one is already known."""
    wire = wire_with(2, KIND, auto_settle=False)
    old, late = epoch_of(wire), wire.drop(1)
    wire.transfer()
    wire.crash_sender()
    wire.send(3)
    wire.transfer()
    wire.arrive(late)
    assert counted(wire) == {"stale_epoch": 1}
    assert wire.to_sender == [Refused(PIPE, 0, 0, old, RefusedReason.FENCED, epoch_of(wire))]
    settle_all(wire)
    assert wire.settled == [1, 3]


def test_a_third_epoch_takes_the_place_of_the_one_that_waits() -> None:
    """L-9: two restarts while a message is in work: what was kept of the second is abandoned."""
    wire = wire_with(1, KIND, auto_settle=False)
    wire.transfer()
    for number in (2, 3):
        wire.crash_sender()
        wire.send(number)
        wire.transfer()
    assert counted(wire) == {"abandoned": 1}
    settle_all(wire)
    assert wire.settled == [1, 3]


def test_what_waits_of_a_new_epoch_is_bounded() -> None:
    """V-5: window 3 with one in work: two are kept, the third is over the limit."""
    wire = wire_with(1, {KIND: {"receive_window": 3}}, auto_settle=False)
    wire.transfer()
    wire.crash_sender()
    for number in (2, 3, 4):
        wire.send(number)
    wire.transfer()
    assert wire.receiver.gauges() == {"held": 2, "in_work": 1}
    assert counted(wire) == {"over_limit": 1}


@pytest.mark.parametrize("seed", range(10))
def test_sender_restarts_repeat_nothing(seed: int) -> None:
    """8.6: three lives over a faulty route: each message at most once, the last life's all of them."""
    rng = random.Random(seed)
    crashes = frozenset(("sender", rng.randrange(5, 120)) for _ in range(2))
    wire = Wire(STACK, seed=seed, handler_us=MS, crashes=crashes)  # type: ignore[arg-type]  # literals
    for number in range(60):
        wire.send(number)
    wire.run(ROUTE, until_us=300 * SECOND)
    wire.send(*range(100, 120))
    wire.run(ROUTE, until_us=600 * SECOND)
    assert len(set(wire.settled)) == len(wire.settled)
    assert set(wire.settled) >= set(range(len(wire.accepted) - 19, len(wire.accepted) + 1))


# What survives a restart.


@pytest.mark.parametrize("boundary", [Boundary.BEFORE, Boundary.COMMITTED])
@pytest.mark.parametrize("seed", range(10))
def test_with_a_durable_state_nothing_is_repeated(boundary: Boundary, seed: int) -> None:
    """8.6: the ranges are stored; the receiver crashes at random effects over a faulty route."""
    rng = random.Random(seed)
    wire = Wire(
        STACK,
        seed=seed,
        boundary=BoundaryOptions(boundary=boundary, durable=True),
        crashes=frozenset(("receiver", rng.randrange(1, 150)) for _ in range(5)),
    )
    for number in range(1, 61):
        wire.send(number)
    wire.run(ROUTE, until_us=300 * SECOND)
    assert len(set(wire.settled)) == len(wire.settled)
    assert wire.confirmed == set(range(1, 61))
    if boundary is Boundary.COMMITTED:
        assert set(wire.settled) == set(range(1, 61))


def test_the_stored_ranges_are_those_settled_and_those_being_settled() -> None:
    """The cursor is a JSON value: epoch, highest number, ranges above the floor."""
    wire = wire_with(9, KIND, auto_settle=False)
    for first, last in ((1, 2), (5, 5), (8, 9)):
        wire.arrive(run(wire, first, last))
    wire.settle()
    also: Ranges = ((8, 8),)
    epoch = epoch_of(wire)
    assert wire.receiver.layers[0].cursor(epoch, also) == [epoch, 9, [[1, 2], [8, 8]]]
    assert wire.receiver.layers[0].cursor(epoch + 1, also) == [epoch, 9, [[1, 2]]]


# Values (pipes P-8, P-11, P-12).


def test_frames_of_other_kinds_are_counted() -> None:
    """P-8: an epoch of 0 and control frames have no meaning here."""
    wire = wire_with(1, KIND)
    wire.arrive(Numbered(PIPE, 0, 0, 1, [b"x"]))
    assert counted(wire) == {"stale_epoch": 1}
    wire.arrive(Open(PIPE, 0, 1, 1, 1, 1, 1, 1))
    assert counted(wire) == {"stale_epoch": 1, "wrong_state": 1}
    wire.transfer()
    assert wire.settled == [1]


def test_a_restored_receiver_goes_on_with_the_same_effects() -> None:
    """P-11: exported with a message in work and a new epoch waiting, restored into a fresh stack."""
    wires = [wire_with(3, KIND, auto_settle=False) for _ in range(2)]
    for wire in wires:
        old = run(wire, 1, 2)
        wire.drop_all()
        wire.crash_sender()
        wire.send(4)
        if wire is wires[0]:
            wire.arrive(old)
            wire.transfer()
    wire, twin = wires
    twin.receiver.restore(wire.receiver.export())
    ticket = next(iter(wire.open))
    for stack in (wire.receiver, twin.receiver):
        stack.settled(ticket, ((2, 2),), 5)
    settled = [stack.settled(ticket, ((1, 1),), 6) for stack in (wire.receiver, twin.receiver)]
    assert settled[0] == settled[1] != []
    assert wire.receiver.export() == twin.receiver.export()


def test_the_same_seed_gives_the_same_frames() -> None:
    """P-12: two runs over a faulty route, every frame either way compared."""
    wires = [Wire(STACK, seed=3, handler_us=MS) for _ in range(2)]
    for wire in wires:
        for number in range(50):
            wire.send(number)
        wire.run(ROUTE, until_us=60 * SECOND)
    assert wires[0].sent == wires[1].sent
    assert wires[0].sent_back == wires[1].sent_back
    assert wires[0].times == wires[1].times
