"""continuous-index: bounds, refusals, repeats, values, cost (pipes P-8 to P-12, K-2, A-14)."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from surepipe.core.effects import Deliver, NoticeKind
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.wire.frames import Numbered, Unknown, tag_of
from tests.kit.runs import (
    arrive_in_order,
    counted,
    epoch_of,
    opening,
    run,
    wire_with,
)
from tests.kit.wire import MS, SECOND, Faults, Wire

KIND = "continuous-index"
STACK: list[LayerText] = [KIND, "multi-unconfirmed"]
QUICK: list[LayerText] = [
    {KIND: {"gap_alarm_s": 1.0}},
    {"multi-unconfirmed": {"rto_initial_s": 0.1, "rto_max_s": 0.5}},
]
ROUTE = Faults(loss=0.2, duplication=0.2, fifo=False, delay_us=(MS, 50 * MS))


def test_what_is_above_the_window_is_refused_and_comes_again() -> None:
    """P-9, K-2: a sender with a wider window than its receiver; nothing is lost, nothing stalls."""
    sender: list[LayerText] = [KIND, "multi-unconfirmed"]
    receiver: list[LayerText] = [{KIND: {"receive_window": 3}}, "multi-unconfirmed"]
    wire = Wire(sender, receiver_layers=receiver, handler_us=2 * MS)
    for number in range(1, 31):
        wire.send(number)
    wire.run(Faults(fifo=False, delay_us=(MS, 20 * MS)))
    assert wire.settled == list(range(1, 31))
    assert counted(wire)["over_limit"] > 0


def test_what_is_above_the_window_of_a_bare_wire_is_gone_and_waited_for() -> None:
    """decision 0063: 6 overtakes four, and the window holds four; that is why the algebra refuses it there."""
    wire = wire_with(7, {KIND: {"receive_window": 4}})
    arrive_in_order(wire, 1, 6, 2, 3, 4, 5, 7)
    assert wire.settled == [1, 2, 3, 4, 5]
    assert counted(wire) == {"over_limit": 1}
    wire.run()
    assert wire.settled == [1, 2, 3, 4, 5]


def test_a_message_that_does_not_fit_the_bytes_comes_again() -> None:
    """P-9 in bytes: early messages give way to the expected one; all arrive."""
    receiver: list[LayerText] = [{KIND: {"receive_window_bytes": 100}}, "multi-unconfirmed"]
    wire = Wire(STACK, receiver_layers=receiver, handler_us=MS)
    for number in range(1, 31):
        wire.send(bytes([number]) * (7 * number))
    wire.run(Faults(fifo=False, delay_us=(MS, 20 * MS)))
    assert wire.settled == list(range(1, 31))
    assert wire.confirmed == set(range(1, 31))


def test_messages_refused_by_the_boundary_come_again_in_order() -> None:
    """K-2: the host gives back 2..4 while 5 is held; the cursor steps back to 2."""
    wire = Wire(STACK, auto_settle=False)
    for number in range(1, 6):
        wire.send(number)
    arrive_in_order(wire, 1, 2, 3, 5)
    wire.settle()
    wire.refuse(2)
    assert wire.settled == [1]
    wire.auto_settle = True
    wire.run()
    assert wire.settled == [1, 2, 3, 4, 5]
    assert wire.confirmed == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("repeats", "settled"),
    [("none", [1, 2, 3, 4, 5]), ("last", [1, 2, 2, 3, 4, 4, 5]), ("all", [1, 2, 2, 3, 4, 4, 2, 5])],
)
def test_repeats_can_be_let_through(repeats: str, settled: list[int]) -> None:
    """A-14: 1 2 2 4 3 4 2 5 with each choice; `last` is continuous, `all` gap-free."""
    wire = wire_with(5, {KIND: {"repeats": repeats}})
    arrive_in_order(wire, 1, 2, 2, 4, 3, 4, 2, 5)
    assert wire.settled == settled
    assert counted(wire).get("duplicate", 0) == 8 - len(settled)


def test_a_hole_that_stays_is_told_once_whatever_becomes_of_those_above_it() -> None:
    """2 and 4 are missing, and a second later that is told; then 4 comes, and 2 is still the same hole."""
    wire = wire_with(5, {KIND: {"gap_alarm_s": 1.0}})
    late = wire.to_receiver[3]
    arrive_in_order(wire, 1, 3, 5)
    wire.advance(SECOND)
    wire.arrive(late)
    wire.advance(5 * SECOND)
    stalled = [notice.ranges for _, notice in wire.notices if notice.kind == NoticeKind.STALLED]
    assert stalled == [((2, 2), (4, 4))]


@pytest.mark.parametrize(
    ("repeats", "settled"), [("none", [1, 2]), ("last", [1, 1, 2]), ("all", [1, 1, 2])]
)
def test_the_very_first_message_can_be_let_through_again(repeats: str, settled: list[int]) -> None:
    """A-14: 1 1 2 with each choice."""
    wire = wire_with(2, {KIND: {"repeats": repeats}})
    arrive_in_order(wire, 1, 1, 2)
    assert wire.settled == settled


def test_repeats_are_let_through_as_long_as_all_that_is_in_work_fits_the_window() -> None:
    """A-14, V-5: three messages and one repeat fill a window of four; a second one has no room and is dropped."""
    layers: LayerText = {KIND: {"repeats": "all", "receive_window": 4}}
    for repeats in ((3,), (3, 3)):
        wire = wire_with(3, layers, auto_settle=False)
        arrive_in_order(wire, 1, 2, 3, *repeats)
        assert wire.receiver.gauges()["in_work"] == 4
        assert wire.receiver.counters()["duplicate"] == len(repeats) - 1


def test_a_repeat_that_is_refused_makes_room_as_its_message_does() -> None:
    """A-14, K-2: 1 to 3 and a repeat of 3 are in work; 2 and all that follows goes back: only 1 is in work."""
    wire = wire_with(3, {KIND: {"repeats": "all", "receive_window": 4}}, auto_settle=False)
    arrive_in_order(wire, 1, 2, 3, 3)
    [layer] = wire.receiver.layers
    epoch = epoch_of(wire)
    for first, last in ((2, 3), (3, 3)):
        layer.refused(epoch, first, last)
    assert layer.gauges() == {"held": 0, "in_work": 1}


@pytest.mark.parametrize("repeats", ["last", "all"])
@pytest.mark.parametrize("seed", range(10))
def test_repeats_in_work_are_bounded_and_all_answered(repeats: str, seed: int) -> None:
    """V-5 with a slow handler, copies and shuffle: window 4; continuous or gap-free; C = S."""
    layers: list[LayerText] = [
        {KIND: {"repeats": repeats, "receive_window": 4}},
        {"multi-unconfirmed": {"rto_initial_s": 0.1}},
    ]
    wire = Wire(layers, seed=seed, handler_us=30 * MS)
    offered = iter(range(1, 30))

    def offer_and_check() -> None:
        if wire.sender.room and (number := next(offered, None)):
            wire.send(number)
        gauges = wire.receiver.gauges()
        assert gauges["held"] + gauges["in_work"] <= 4

    wire.send(0)
    wire.run(replace(ROUTE, duplication=0.5), each_step=offer_and_check)
    assert set(wire.settled) == set(range(1, 31))
    assert wire.confirmed == set(range(1, 31))
    highest = 0
    for position in wire.settled:
        assert position <= highest + 1
        assert repeats == "all" or position >= highest
        highest = max(highest, position)
    assert wire.receiver.gauges()["in_work"] == 0


# Values and cost (pipes P-8, P-10, P-11, P-12).


def operations_to_drain(messages: int, run_max: int) -> int:
    """Calls (of Python and C functions) made to hold so many messages behind one hole and drain."""
    layer: LayerText = {KIND: {"receive_window": messages + 1, "run_max": run_max}}
    wire = Wire(layer, auto_settle=False)
    wire.send(0)
    wire.send(*range(messages))
    lost, *frames = wire.to_receiver
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    for frame in frames:
        wire.receiver.frame(frame, 0)
    effects = wire.receiver.frame(lost, 0)
    sys.setprofile(None)
    delivery = next(effect for effect in effects if isinstance(effect, Deliver))
    assert delivery.first == 1
    assert wire.receiver.gauges() == {"held": 0, "in_work": messages + 1}
    return calls


@pytest.mark.parametrize(("messages", "run_max"), [(100_000, 100), (4_000, 1)])
def test_messages_behind_one_hole_drain_in_linear_time(messages: int, run_max: int) -> None:
    """P-10: ten times the messages take at most ten times the calls, and those go by frame."""
    few, many = (operations_to_drain(count, run_max) for count in (messages // 10, messages))
    assert many <= 11 * few
    assert many <= 150 * messages // run_max


def test_frames_that_mean_nothing_here_touch_one_counter() -> None:
    """P-8: each of them once, in Running; the next message is delivered as if nothing had been."""
    wire = wire_with(3, STACK)
    wire.transfer(1)
    for frame, counter in (
        (run_of_layer(wire, epoch=0), "stale_epoch"),
        (Unknown(tag_of("pipe"), 0, 0, 1), "wrong_state"),
        (opening(wire, base=1, stack=1), "wrong_state"),
        (opening(wire, base=1, epoch=1), "stale_epoch"),
    ):
        before = wire.receiver.counters()
        if isinstance(frame, Numbered):
            wire.receiver.layers[0].data(frame, None)
        else:
            wire.arrive(frame)
        after = wire.receiver.counters()
        assert {k: after[k] - before[k] for k in after if after[k] != before[k]} == {counter: 1}
    wire.exchange()
    assert wire.settled == [1, 2, 3]


def run_of_layer(wire: Wire, epoch: int) -> Numbered:
    """A run of another epoch."""
    return replace(run(wire, 1, 1), epoch=epoch)


def test_a_restored_receiver_goes_on_with_the_same_effects() -> None:
    """P-11: exported with a hole, a held run and a message in work, restored into a fresh stack."""
    wire = wire_with(6, KIND, auto_settle=False)
    twin = wire_with(6, KIND, auto_settle=False)
    for frame in (run(wire, 1, 2), run(wire, 4, 5)):
        wire.arrive(frame)
    twin.receiver.restore(wire.receiver.export())
    ticket = next(iter(wire.open))
    for stack in (wire.receiver, twin.receiver):
        stack.settled(ticket, ((1, 2),), 5)
    assert wire.receiver.frame(run(wire, 3, 3), 6) == twin.receiver.frame(run(wire, 3, 3), 6)
    assert wire.receiver.export() == twin.receiver.export()


def test_a_restored_sender_goes_on_with_the_same_effects() -> None:
    """P-11: exported with unconfirmed messages; both answer a Confirm of the carrier the same way."""
    wires = [Wire(STACK, seed=5) for _ in range(2)]
    for wire in wires:
        wire.send(1, 2)
        wire.send(3)
    wire, twin = wires
    wire.transfer()
    confirm = wire.to_sender[0] if wire.to_sender else None
    twin.sender.restore(wire.sender.export())
    wire.advance(20 * MS)
    confirm = confirm or wire.to_sender[0]
    now = wire.now
    assert wire.sender.frame(confirm, now) == twin.sender.frame(confirm, now)
    assert wire.sender.unconfirmed() == twin.sender.unconfirmed()
    assert wire.sender.send([b"x"], now) == twin.sender.send([b"x"], now)


def test_the_same_seed_gives_the_same_frames() -> None:
    """P-12: two runs over a faulty route with a restart, every frame either way compared."""
    wires = [Wire(STACK, seed=3, crashes=frozenset({("receiver", 9)})) for _ in range(2)]
    for wire in wires:
        for number in range(50):
            wire.send(number)
        wire.run(ROUTE, until_us=60 * SECOND)
    assert wires[0].sent == wires[1].sent
    assert wires[0].sent_back == wires[1].sent_back
    assert wires[0].times == wires[1].times
