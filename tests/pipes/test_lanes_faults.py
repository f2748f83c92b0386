"""Lanes over routes with faults, handlers that fail and receivers that crash, by seed."""

from __future__ import annotations

import pytest

from surepipe.audit.predicates import OrderJudge
from surepipe.pipes.stack.boundary import BoundaryOptions
from tests.kit.wire import MS, Faults
from tests.pipes.lanes_kit import LaneWire

QUICK = {"window": 24, "run_max": 3, "rto_initial_s": 0.2, "rto_max_s": 1.0}
INDEX = {"run_max": 3, "receive_window": 64}
ORDERED: dict[str, object] = {
    "reliable": {"reliable": QUICK},
    "continuous-index > multi-unconfirmed": [
        {"continuous-index": INDEX},
        {"multi-unconfirmed": QUICK},
    ],
    "strict-monotonic > resend": [{"strict-monotonic": INDEX}, {"resend": {**QUICK, "run_max": 4}}],
    "sequential-confirm": {"sequential-confirm": {**QUICK, "run_max": 4}},
}
UNORDERED: dict[str, object] = {
    "multi-unconfirmed": {"multi-unconfirmed": QUICK},
    "dedupe > multi-unconfirmed": [{"dedupe": {"run_max": 3}}, {"multi-unconfirmed": QUICK}],
}
ROUTE = Faults(loss=0.15, duplication=0.15, delay_us=(1 * MS, 40 * MS), fifo=False)
LETTERS = BoundaryOptions(lanes=3, retries=3, dead_letters=True, retry_min_s=0.05, retry_max_s=0.2)
COUNT = 70


def tortured(layers: object, seed: int, crashes: int = 0) -> LaneWire:
    """Seventy messages of six keys, drawn; some fail once or twice, one of them for ever."""
    wire = LaneWire(layers, LETTERS, seed=seed)
    draw = wire.rng.choice
    texts = [f"{draw('aabbcdef')}:{number}".encode() for number in range(COUNT)]
    wire.poison = {text: draw([1, 2]) for text in texts if wire.rng.random() < 0.1}
    wire.poison[texts[5]] = -1
    wire.send(*texts)
    wire.torture(seed, ROUTE, crashes=crashes)
    return wire


def is_complete(wire: LaneWire) -> bool:
    """Each accepted message was settled or is a letter, and its sender knows."""
    letters = {wire.positions[letter.epoch, letter.seq] for letter in wire.letters}
    everything = set(range(1, len(wire.accepted) + 1))
    return set(wire.settled) | letters == everything == wire.confirmed


def letters_in(wire: LaneWire) -> set[int]:
    """The positions that ended as dead letters."""
    return {wire.positions[letter.epoch, letter.seq] for letter in wire.letters}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ORDERED)
def test_each_key_is_in_order_and_exactly_once_and_nothing_is_lost(name: str, seed: int) -> None:
    """Strictly growing within each key, each position once, all confirmed (pipes D-2, G-3)."""
    wire = tortured(ORDERED[name], seed)
    assert is_complete(wire), f"seed {seed}"
    assert len(wire.settled) == len(set(wire.settled))
    for key in wire.all_keys():
        own = [at for at in wire.settled if wire.texts([at])[0].startswith(f"{key}:")]
        assert own == sorted(own), f"seed {seed}, key {key}"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", [*ORDERED, *UNORDERED])
def test_no_key_passes_itself_and_nothing_is_lost_though_the_receiver_crashes(
    name: str, seed: int
) -> None:
    """Up to four crashes: within each incarnation a key is in order; over all of them it is gap-free (letters
    count as settled), with repeats; where the pipe itself keeps no order, only nothing is lost (pipes G-5)."""
    wire = tortured({**ORDERED, **UNORDERED}[name], seed, crashes=4)
    assert is_complete(wire), f"seed {seed}"
    if name in UNORDERED:
        return
    letters = letters_in(wire)
    for key in wire.all_keys():
        judge = OrderJudge()
        own = [
            at
            for at in range(1, len(wire.accepted) + 1)
            if wire.texts([at])[0].startswith(f"{key}:")
        ]
        numbers = {at: count for count, at in enumerate([a for a in own if a not in letters], 1)}
        for life in wire.per_life:
            mine = [at for at in life if at in own]
            assert mine == sorted(mine), f"seed {seed}, key {key}"
            for at in mine:
                if at in numbers:
                    judge.step(numbers[at])
        assert "gap-free" not in judge.violations, f"seed {seed}, key {key}"


@pytest.mark.parametrize("name", UNORDERED)
def test_over_pipes_without_order_a_key_is_handled_in_the_order_of_delivery(name: str) -> None:
    """Within a key handlers never run side by side and no delivery passes another."""
    wire = tortured(UNORDERED[name], 3)
    assert is_complete(wire)
    if name.startswith("dedupe"):
        assert len(wire.settled) == len(set(wire.settled))


def test_a_seed_replays_the_identical_run() -> None:
    """Same settlements, same frames (pipes P-12)."""
    one, other = (tortured(ORDERED["reliable"], 4, crashes=2) for _ in range(2))
    assert one.settled == other.settled
    assert one.sent == other.sent
    assert one.sent_back == other.sent_back
