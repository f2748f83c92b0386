"""strict-monotonic: never a repeat, never backwards (pipes 8.4, sm1 to sm5)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.wire.frames import Numbered, Refused, RefusedReason, tag_of
from tests.kit.runs import arrive_in_order, counted, epoch_of, run, strictly_rises, wire_with
from tests.kit.wire import MS, SECOND, Faults, Wire

OVER_RESEND: list[LayerText] = ["strict-monotonic", "resend"]
SMALL: LayerText = {"strict-monotonic": {"receive_window": 4}}


def open_runs(wire: Wire) -> list[tuple[int, int]]:
    """First and last message of each delivery that the handler has, oldest first."""
    return [(d.first, d.first + len(d.payloads) - 1) for d in wire.open.values()]


def test_overtaken_and_repeated_messages_are_dropped_and_counted() -> None:
    """sm1: 1 2 2 4 3 4 5 gives 1 2 4 5; one hole, three behind."""
    wire = wire_with(5, "strict-monotonic")
    arrive_in_order(wire, 1, 2, 2, 4, 3, 4, 5)
    assert wire.settled == [1, 2, 4, 5]
    assert counted(wire) == {"missing": 1, "behind": 3}


def test_a_restarted_sender_is_not_taken_for_a_repeat() -> None:
    """sm2: five messages, a new life, five more: all ten."""
    wire = wire_with(5, "strict-monotonic")
    wire.transfer()
    wire.crash_sender()
    wire.send(6, 7, 8, 9, 10)
    wire.transfer()
    assert wire.settled == list(range(1, 11))
    assert counted(wire) == {}


def test_frames_of_an_old_epoch_are_dropped_after_a_new_one() -> None:
    """sm3: late frames of the first life; counted, and their sender is told (pipes L-7)."""
    wire = wire_with(5, "strict-monotonic")
    old, late = epoch_of(wire), [wire.drop() for _ in range(5)]
    wire.crash_sender()
    wire.send(6)
    wire.transfer()
    for frame in late:
        wire.arrive(frame)
    assert wire.settled == [6]
    assert counted(wire) == {"stale_epoch": 5}
    refusal = Refused(tag_of("pipe"), 0, 0, old, RefusedReason.FENCED, epoch_of(wire))
    assert wire.to_sender == [refusal] * 5


def test_nobody_is_told_on_a_one_way_route() -> None:
    """A late frame of the first life without a reverse path: counted, nothing goes back."""
    wire = Wire("strict-monotonic", reverse=False)
    wire.send(1)
    late = wire.drop()
    wire.crash_sender()
    wire.send(2)
    wire.transfer()
    wire.arrive(late)
    assert counted(wire) == {"stale_epoch": 1}
    assert wire.sent_back == []


@pytest.mark.parametrize("seed", range(20))
def test_shuffled_messages_come_out_strictly_rising(seed: int) -> None:
    """sm4: a hundred frames in random order, some twice: strict, at least one, counts exact."""
    wire = wire_with(100, "strict-monotonic")
    arrive_in_order(wire, *random.Random(seed).choices(range(1, 101), k=150))
    assert wire.settled
    assert strictly_rises(wire.settled)
    span = wire.settled[-1] - wire.settled[0] + 1
    assert counted(wire)["behind"] == 150 - len(wire.settled)
    assert counted(wire)["missing"] == span - len(wire.settled)


def test_a_run_that_reaches_above_the_cursor_is_delivered_from_there() -> None:
    """sm5: a run 3..8 with the cursor at 5: 6 7 8, once; a copy of it changes nothing."""
    wire = wire_with(8, "strict-monotonic")
    wire.arrive(run(wire, 1, 5))
    wire.arrive(run(wire, 3, 8))
    assert [(d.first, len(d.payloads)) for d in wire.delivered] == [(1, 5), (6, 3)]
    assert counted(wire) == {"behind": 3}
    wire.arrive(run(wire, 3, 8))
    assert wire.settled == [1, 2, 3, 4, 5, 6, 7, 8]
    assert counted(wire) == {"behind": 3 + 6}


def test_a_fresh_receiver_takes_whatever_comes_first() -> None:
    """Nothing is known of what came before, so nothing is counted missing."""
    wire = wire_with(9, "strict-monotonic")
    wire.arrive(run(wire, 7, 8))
    assert wire.settled == [7, 8]
    assert counted(wire) == {}


def test_relaxed_lets_the_last_message_through_again() -> None:
    """A-13: 1 2 2 4 3 4 5, and a run that begins with the last one: repeats of the last only."""
    wire = wire_with(7, {"strict-monotonic": {"relaxed": True}})
    arrive_in_order(wire, 1, 2, 2, 4, 3, 4, 5)
    wire.arrive(run(wire, 4, 7))
    assert wire.settled == [1, 2, 2, 4, 4, 5, 5, 6, 7]
    assert counted(wire) == {"missing": 1, "behind": 2}


@pytest.mark.parametrize("seed", range(20))
def test_relaxed_never_goes_back(seed: int) -> None:
    """Random order with repeats, a slow handler: monotonic, and in work stays bounded (V-5)."""
    layer: LayerText = {"strict-monotonic": {"relaxed": True, "receive_window": 3}}
    wire = Wire(layer, seed=seed, handler_us=3 * MS)
    for number in range(60):
        wire.send(number)
    faults = Faults(duplication=0.5, fifo=False, delay_us=(0, 20 * MS), copy_delay_us=(0, 5 * MS))

    def bounded() -> None:
        assert wire.receiver.gauges()["in_work"] <= 3

    wire.run(faults, each_step=bounded)
    assert wire.settled
    assert all(a <= b for a, b in pairwise(wire.settled))


# Bounds (pipes P-9, P-13).


def test_at_most_one_delivery_is_outstanding() -> None:
    """P-13: a second run waits behind the first, and leaves when that is settled."""
    wire = wire_with(4, "strict-monotonic", auto_settle=False)
    wire.arrive(run(wire, 1, 2))
    wire.arrive(run(wire, 3, 4))
    assert open_runs(wire) == [(1, 2)]
    wire.settle(1)
    assert open_runs(wire) == [(2, 2)]
    wire.settle()
    assert open_runs(wire) == [(3, 4)]


def test_what_exceeds_the_window_on_a_raw_route_is_dropped_and_counted() -> None:
    """V-5: window 4, six messages while nothing is settled; what follows shows the hole."""
    wire = wire_with(8, SMALL, auto_settle=False)
    wire.arrive(run(wire, 1, 3))
    wire.arrive(run(wire, 4, 6))
    wire.arrive(run(wire, 7, 7))
    assert counted(wire) == {"over_limit": 3}
    assert wire.receiver.gauges()["in_work"] == 4
    wire.settle()
    wire.settle()
    wire.arrive(run(wire, 8, 8))
    wire.settle()
    assert wire.settled == [1, 2, 3, 4, 8]
    assert counted(wire) == {"over_limit": 3, "missing": 3}


def test_bytes_in_work_are_bounded_and_one_large_message_passes_alone() -> None:
    """P-9: bytes count until their run is settled; a message above the bound is taken alone."""
    layer: LayerText = {"strict-monotonic": {"receive_window_bytes": 10}}
    wire = Wire(layer, auto_settle=False)
    wire.send(b"x" * 6, b"x" * 6)
    wire.send(b"x" * 20)
    wire.transfer()
    assert open_runs(wire) == [(1, 1)]
    assert counted(wire) == {"over_limit": 2}
    wire.settle()
    wire.arrive(run(wire, 3, 3))
    assert open_runs(wire) == [(3, 3)]


def test_over_a_carrier_what_exceeds_the_window_comes_again() -> None:
    """K-2: refused frames are brought again; nothing that has room overtakes them (al6)."""
    layers: list[LayerText] = [{"strict-monotonic": {"receive_window_bytes": 50}}, "resend"]
    wire = Wire(layers)
    sizes = [40, 30, 5, 45, 1, 60, 2, 3]
    for number, size in enumerate(sizes):
        wire.send(bytes([number]) * size)
    wire.handler_us = 5 * MS
    wire.run()
    assert wire.settled == list(range(1, 9))
    assert wire.confirmed == set(range(1, 9))
    assert counted(wire)["over_limit"] > 0
    assert "missing" not in counted(wire)


# Stacks (pipes K-1, K-2, K-8).


@pytest.mark.parametrize("seed", range(10))
def test_over_resend_it_is_absolute_and_loses_nothing(seed: int) -> None:
    """al6: every fault of the route together; exactly-once, absolute, C = S."""
    wire = Wire(OVER_RESEND, seed=seed)
    for number in range(0, 60, 3):
        wire.send(number, number + 1, number + 2)
    wire.run(Faults(loss=0.2, duplication=0.2, fifo=False, delay_us=(MS, 100 * MS)))
    assert wire.settled == list(range(1, 61))
    assert wire.confirmed == set(range(1, 61))
    assert wire.sender.idle


@pytest.mark.parametrize("seed", range(10))
def test_over_an_unordered_carrier_confirmed_means_arrived(seed: int) -> None:
    """K-8, al7: what was overtaken is settled to the carrier at once, so everything is confirmed."""
    wire = Wire(["strict-monotonic", "multi-unconfirmed"], seed=seed)
    for number in range(100):
        wire.send(number)
    wire.run(Faults(loss=0.2, fifo=False, delay_us=(MS, 50 * MS)))
    assert strictly_rises(wire.settled)
    assert len(wire.settled) < 100
    assert wire.confirmed == set(range(1, 101))
    assert wire.receiver.gauges()["in_work"] == 0


def test_a_copy_of_a_message_in_work_is_answered_with_the_first() -> None:
    """K-2: the same message in two carrier frames; none is confirmed before it is settled."""
    wire = Wire(["strict-monotonic", "multi-unconfirmed"], auto_settle=False)
    wire.send(1)
    first = wire.to_receiver[0]
    wire.advance(2 * SECOND)  # the carrier sends again
    assert len(wire.to_receiver) > 1
    wire.exchange()
    assert wire.confirmed == set()
    wire.settle()
    wire.run()
    assert wire.confirmed == {1}
    wire.arrive(first)
    wire.run()
    assert wire.settled == [1]


def test_a_message_refused_by_the_boundary_comes_again() -> None:
    """K-2: the host refuses 2..3 of 1..3; the cursor steps back and the carrier brings them."""
    wire = Wire(OVER_RESEND, auto_settle=False)
    wire.send(1, 2, 3)
    wire.transfer()
    ticket = next(iter(wire.open))
    wire.settle(1)
    wire.refuse(2)
    assert ticket not in wire.open
    wire.auto_settle = True
    wire.run()
    assert wire.settled == [1, 2, 3]
    assert wire.confirmed == {1, 2, 3}


# Restarts (pipes 8.4, L-9).


def test_a_volatile_receiver_starts_afresh() -> None:
    """Its cursor is gone, so what comes next is taken, even a repeat."""
    wire = wire_with(3, "strict-monotonic")
    wire.transfer(2)
    wire.crash_receiver()
    wire.arrive(run(wire, 1, 1))
    wire.transfer()
    assert wire.settled == [1, 2, 1, 3]


def test_a_durable_cursor_is_stored_before_delivery() -> None:
    """Boundary `before`: never a repeat, at most the batch under way is lost in a crash."""
    before = BoundaryOptions(boundary=Boundary.BEFORE, durable=True)
    wire = Wire("strict-monotonic", boundary=before, auto_settle=False)
    wire.send(1, 2)
    wire.send(3)
    frames = list(wire.to_receiver)
    wire.transfer(1)
    assert wire.saved_state is not None
    wire.crash_receiver()
    wire.auto_settle = True
    for frame in frames:
        wire.arrive(frame)
    assert wire.settled == [3]
    assert counted(wire) == {"behind": 2}


@pytest.mark.parametrize("seed", range(10))
def test_with_boundary_before_nothing_is_ever_repeated(seed: int) -> None:
    """al10: crashes of the receiver at random effects, copies and reordering: strict."""
    rng = random.Random(seed)
    wire = Wire(
        "strict-monotonic",
        seed=seed,
        boundary=BoundaryOptions(boundary=Boundary.BEFORE, durable=True),
        crashes=frozenset(("receiver", rng.randrange(1, 200)) for _ in range(20)),
    )
    for number in range(100):
        wire.send(number)
    wire.run(Faults(duplication=0.3, fifo=False, delay_us=(MS, 10 * MS)))
    assert strictly_rises(wire.settled)


def test_messages_in_work_when_a_new_life_starts_are_settled_first() -> None:
    """L-9: the former epoch's delivery stays open, the new epoch's waits for it."""
    wire = wire_with(2, "strict-monotonic", auto_settle=False)
    wire.transfer()
    wire.crash_sender()
    wire.send(3)
    wire.transfer()
    assert len(wire.open) == 1
    wire.settle()
    wire.settle()
    wire.settle()
    assert wire.settled == [1, 2, 3]
    assert wire.receiver.gauges()["in_work"] == 0


# Values (pipes P-8, P-11, P-12).


def test_frames_of_other_kinds_are_counted() -> None:
    """P-8: an epoch of 0 and control frames have no meaning here; nothing else changes."""
    wire = wire_with(2, "strict-monotonic")
    before = wire.receiver.export()
    wire.arrive(Numbered(tag_of("pipe"), 0, 0, 1, [b"x"]))
    assert counted(wire) == {"stale_epoch": 1}
    assert str(before) != str(wire.receiver.export())  # the counter
    wire.arrive(Refused(tag_of("pipe"), 0, 0, 1, RefusedReason.FENCED, 9))
    assert counted(wire) == {"stale_epoch": 1, "wrong_state": 1}
    wire.transfer()
    assert wire.settled == [1, 2]


def test_a_restored_receiver_goes_on_with_the_same_effects() -> None:
    """P-11: exported with a message in work, restored into a fresh stack."""
    wire = wire_with(5, SMALL, auto_settle=False)
    wire.transfer(3)
    twin = wire_with(5, SMALL, auto_settle=False)
    twin.receiver.restore(wire.receiver.export())
    ticket, delivery = next(iter(wire.open.items()))
    frame = wire.to_receiver[1]
    for stack in (wire.receiver, twin.receiver):
        stack.settled(ticket, ((delivery.first, delivery.first),), 5)
    assert wire.receiver.frame(frame, 6) == twin.receiver.frame(frame, 6)
    assert wire.receiver.export() == twin.receiver.export()


def test_the_same_seed_gives_the_same_frames() -> None:
    """P-12: two runs over a faulty route, every frame either way compared."""
    wires = [Wire(OVER_RESEND, seed=3) for _ in range(2)]
    for wire in wires:
        wire.send(*range(50))
        wire.run(Faults(loss=0.3, duplication=0.2))
    assert wires[0].sent == wires[1].sent
    assert wires[0].sent_back == wires[1].sent_back
    assert wires[0].times == wires[1].times
