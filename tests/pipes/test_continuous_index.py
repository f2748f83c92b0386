"""continuous-index: every message in its place (pipes 8.5, ci1 to ci8)."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from surepipe.core.effects import NoticeKind
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.wire.frames import Confirm, Data
from tests.kit.runs import (
    arrive_in_order,
    counted,
    held,
    run,
    unknowns,
    wire_with,
    with_payload,
)
from tests.kit.wire import MS, SECOND, Faults, Side, Wire

KIND = "continuous-index"
STACK: list[LayerText] = [KIND, "multi-unconfirmed"]
QUICK: list[LayerText] = [
    {KIND: {"gap_alarm_s": 1.0}},
    {"multi-unconfirmed": {"rto_initial_s": 0.1, "rto_max_s": 0.5}},
]
ROUTE = Faults(loss=0.2, duplication=0.2, fifo=False, delay_us=(MS, 50 * MS))


def test_early_messages_are_held_and_repeats_dropped() -> None:
    """ci1: 1 2 2 4 3 4 5 gives 1 2 3 4 5."""
    wire = wire_with(5, KIND)
    arrive_in_order(wire, 1, 2, 2, 4, 3, 4, 5)
    assert wire.settled == [1, 2, 3, 4, 5]
    assert counted(wire) == {"duplicate": 2}
    assert held(wire) == 0


@pytest.mark.parametrize("seed", range(20))
def test_over_multi_unconfirmed_it_is_absolute_and_loses_nothing(seed: int) -> None:
    """ci2: 20 % loss each way, shuffle, copies; 300 messages; C = S (al4)."""
    wire = Wire(STACK, seed=seed)
    for number in range(0, 300, 3):
        wire.send(number, number + 1, number + 2)
    wire.run(ROUTE, until_us=60 * SECOND)
    assert wire.settled == list(range(1, 301))
    assert wire.confirmed == set(range(1, 301))
    assert wire.sender.idle


def test_a_lost_frame_on_a_bare_route_is_reported_with_its_range() -> None:
    """ci3: frames 3 and 4 lost, a thousand more: Stalled(3..4) once, and no more than the window held."""
    wire = Wire({KIND: {"receive_window": 16}})
    for number in range(1, 1001):
        wire.send(number)
    del wire.to_receiver[2:4]
    wire.run(Faults(), until_us=600 * SECOND)
    assert wire.settled == [1, 2]
    stalled = [notice for _, notice in wire.notices]
    assert [(n.kind, n.ranges) for n in stalled] == [(NoticeKind.STALLED, ((3, 4),))]
    assert held(wire) == 14
    assert counted(wire)["over_limit"] == 1000 - 2 - 16


def test_a_stalled_receiver_asks_with_growing_pauses() -> None:
    """T-2: Unknown after the gap alarm, then after about 1, 2, 4 ... up to 30 seconds."""
    wire = wire_with(2, KIND)
    wire.arrive(run(wire, 1, 1))
    wire.send(3)
    wire.arrive(run(wire, 3, 3))
    wire.drop_all()
    times: list[int] = []
    for _ in range(3000):
        before = unknowns(wire)
        wire.advance(100 * MS)
        times += [wire.now] * (unknowns(wire) - before)
    pauses = [b - a for a, b in pairwise(times)]
    assert 5 * SECOND <= times[0] <= 5 * SECOND + 100 * MS
    expected = [1, 2, 4, 8, 16, 30, 30, 30]
    for pause, wanted in zip(pauses, expected, strict=False):
        assert 0.9 * wanted * SECOND - 100 * MS <= pause <= 1.1 * wanted * SECOND + 100 * MS
    assert len(pauses) >= len(expected)


def run_of_twenty(crashes: frozenset[tuple[Side, int]]) -> Wire:
    """Twenty messages in runs of two, with these crashes."""
    wire = Wire(QUICK, crashes=crashes)
    for number in range(1, 21, 2):
        wire.send(number, number + 1)
    wire.run(Faults(delay_us=(MS, 2 * MS), fifo=False), until_us=60 * SECOND)
    return wire


def test_a_receiver_restart_at_every_step_loses_nothing() -> None:
    """ci4: crashed after each of its effects in turn over multi-unconfirmed: N, G, no stall."""
    effects = run_of_twenty(frozenset()).effects_done["receiver"]
    assert effects > 20
    for step in range(1, effects + 1):
        wire = run_of_twenty(frozenset({("receiver", step)}))
        assert set(wire.settled) == set(range(1, 21)), step
        assert wire.confirmed == set(range(1, 21)), step
        highest = 0
        for position in wire.settled:
            assert position <= highest + 1, step
            highest = max(highest, position)
        assert wire.now < 60 * SECOND, step


@pytest.mark.parametrize("seed", range(20))
def test_receiver_restarts_on_a_faulty_route_lose_nothing(seed: int) -> None:
    """ci4 with loss, copies, shuffle and five restarts at random effects: N and G."""
    rng = random.Random(seed)
    crashes = frozenset(("receiver", rng.randrange(1, 120)) for _ in range(5))
    wire = Wire(QUICK, seed=seed, crashes=crashes)  # type: ignore[arg-type]  # literals
    for number in range(1, 61):
        wire.send(number)
    wire.run(ROUTE, until_us=60 * SECOND)
    assert set(wire.settled) == set(range(1, 61))
    assert wire.confirmed == set(range(1, 61))


def test_a_new_life_without_journal_starts_a_new_epoch() -> None:
    """ci5: 4 and 5 of the old life are held; the new epoch is delivered, nothing of the old buffer."""
    wire = wire_with(5, KIND)
    arrive_in_order(wire, 1, 2, 4, 5)
    assert held(wire) == 2
    wire.crash_sender()
    wire.send(6, 7)
    wire.transfer()
    assert wire.settled == [1, 2, 6, 7]
    assert held(wire) == 0
    assert counted(wire) == {"abandoned": 2}


def test_the_first_copy_of_a_held_message_wins() -> None:
    """ci6: held 4, later another payload as 4: first kept, `conflict` 1."""
    wire = wire_with(4, KIND)
    wire.arrive(run(wire, 1, 1))
    wire.arrive(run(wire, 4, 4))
    wire.arrive(with_payload(run(wire, 4, 4), b"something else"))
    assert counted(wire) == {"conflict": 1}
    wire.arrive(run(wire, 2, 3))
    assert wire.settled == [1, 2, 3, 4]


def test_copies_of_a_held_message_are_settled_with_it() -> None:
    """ci7: message 2 held, its copy in another carrier frame: both confirmed when it is settled."""
    wire = Wire(["continuous-index", "multi-unconfirmed"])
    wire.send(1)
    wire.send(2)
    lost = wire.drop()
    wire.transfer(1)
    wire.drop_all()
    twin = inner_copy(wire)
    wire.arrive(twin)
    assert wire.receiver.gauges()["held"] == 1
    assert confirmed_below(wire) == set()
    wire.arrive(lost)
    wire.advance(20 * MS)
    assert wire.settled == [1, 2]
    assert confirmed_below(wire) == {1, 2, 3}


def inner_copy(wire: Wire) -> Data:
    """The last carrier frame's message once more, as the carrier's next message."""
    last = wire.sent[-1]
    assert isinstance(last, Data)
    return replace(last, first=last.first + 1, stamp=last.stamp + 1)


def confirmed_below(wire: Wire) -> set[int]:
    """The carrier's messages that its receiver has confirmed so far."""
    confirmed: set[int] = set()
    for frame in wire.sent_back:
        if isinstance(frame, Confirm):
            confirmed |= set(range(1, frame.cum + 1))
            confirmed |= {n for a, b in frame.done for n in range(a, b + 1)}
    return confirmed


@pytest.mark.parametrize("seed", range(20))
def test_a_small_window_over_a_wide_carrier_never_stalls(seed: int) -> None:
    """ci8: `receive_window` 2 under a carrier window of 16, loss, receiver restarts."""
    rng = random.Random(seed)
    layers: list[LayerText] = [
        {KIND: {"receive_window": 2, "gap_alarm_s": 1.0}},
        {"multi-unconfirmed": {"window": 16, "rto_initial_s": 0.1, "rto_max_s": 0.5}},
    ]
    crashes = frozenset(("receiver", rng.randrange(1, 150)) for _ in range(4))
    wire = Wire(layers, seed=seed, crashes=crashes)  # type: ignore[arg-type]  # literals
    offered = iter(range(1, 41))

    def offer_and_check() -> None:
        if wire.sender.room and (number := next(offered, None)):
            wire.send(number)
        gauges = wire.receiver.gauges()
        assert gauges["held"] + gauges["in_work"] <= 2

    wire.send(0)
    wire.run(ROUTE, each_step=offer_and_check, until_us=60 * SECOND)
    assert wire.rejected == []
    assert set(wire.settled) == set(range(1, 42))
    assert wire.confirmed == set(range(1, 42))
