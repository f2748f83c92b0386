"""Index pipes over a carrier that confirms, with a journal: the sender may crash (pipes L-3, L-4, K-5)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from surepipe.pipes.catalogue import LayerText
from tests.kit.journal import MemoryJournal
from tests.kit.wire import MS, SECOND, Faults, Wire

ROUTE = Faults(loss=0.2, duplication=0.1, fifo=False, delay_us=(MS, 50 * MS))


def rough_wire(kind: str, carrier: str, seed: int) -> Wire:
    """Small or large bounds and four crashes of the sender, by seed."""
    rng = random.Random(seed)
    options: dict[str, object] = {
        "run_max": rng.choice([1, 3, 512]),
        "frame_max_bytes": rng.choice([20, 65536]),
    }
    if kind != "strict-monotonic":
        options["receive_window"] = rng.choice([2, 5, 1024])
    below: dict[str, object] = {
        "window": rng.choice([4, 1024]),
        "backlog": rng.choice([3, 100]),
        "rto_initial_s": 0.1,
        "rto_max_s": 1.0,
    }
    return Wire(
        [{kind: options}, {carrier: below}],
        seed=seed,
        journal=MemoryJournal(),
        crashes=frozenset(("sender", rng.randrange(5, 250)) for _ in range(4)),
        handler_us=rng.choice([0, 5 * MS]),
    )


def keep_sending(wire: Wire, numbers: Iterator[int]) -> None:
    """One message more, when there is room."""
    if wire.sender.room and (number := next(numbers, None)) is not None:
        wire.send(str(number).encode() * wire.rng.choice([1, 9]))


@pytest.mark.parametrize(
    ("kind", "carrier"),
    [
        ("continuous-index", "multi-unconfirmed"),
        ("continuous-index", "resend"),
        ("continuous-index", "sequential-confirm"),
        ("dedupe", "multi-unconfirmed"),
        ("strict-monotonic", "resend"),
        ("strict-monotonic", "reliable"),
    ],
)
@pytest.mark.parametrize("seed", range(6))
def test_sender_crashes_lose_and_repeat_nothing(kind: str, carrier: str, seed: int) -> None:
    """G-5, sender-crash with a journal: four crashes, every route fault: each message once, C = S."""
    wire = rough_wire(kind, carrier, seed)
    numbers = iter(range(60))
    wire.send(b"first")
    wire.run(ROUTE, until_us=300 * SECOND, each_step=lambda: keep_sending(wire, numbers))
    everything = list(range(1, len(wire.accepted) + 1))
    assert sorted(wire.settled) == everything
    assert wire.confirmed == set(everything)
    assert kind == "dedupe" or wire.settled == everything
    assert wire.sender.idle


def test_what_a_dead_life_left_held_leaves_room_for_the_message_all_wait_for() -> None:
    """T-1: window 2; three lives lose message 1 and bring message 2; the fourth brings both."""
    carrier: LayerText = {"multi-unconfirmed": {"window": 2}}
    wire = Wire([{"continuous-index": {"run_max": 1}}, carrier], journal=MemoryJournal())
    wire.send(1)
    wire.send(2)
    for _ in range(3):
        wire.drop()
        wire.transfer()
        wire.drop_all()
        assert wire.receiver.layers[1].gauges()["in_work"] == 1
        wire.crash_sender()
    wire.run(until_us=60 * SECOND)
    assert wire.settled == [1, 2]
    assert wire.confirmed == {1, 2}


@pytest.mark.parametrize("seed", [13, 20])
def test_small_carrier_windows_survive_many_lives(seed: int) -> None:
    """The two seeds at which held messages of dead lives once filled the carrier's window."""
    wire = rough_wire("continuous-index", "multi-unconfirmed", seed)
    numbers = iter(range(60))
    wire.send(b"first")
    wire.run(ROUTE, until_us=300 * SECOND, each_step=lambda: keep_sending(wire, numbers))
    assert wire.settled == list(range(1, len(wire.accepted) + 1))
    assert wire.sender.idle
