"""reliable when its ends die: at every effect, with every combination of journal and receiver state."""

from __future__ import annotations

import random
from typing import Literal

import pytest

from surepipe.core.claims import Atom
from surepipe.pipes.stack.boundary import BoundaryOptions
from tests.kit.journal import MemoryJournal
from tests.kit.wire import MS, Faults, Side, Wire
from tests.pipes.reliable_kit import (
    ALL_ATOMS,
    BEFORE,
    COMMITTED,
    DURABLE,
    EVERYTHING,
    assert_all_confirmed,
    assert_conserved,
    atoms_of,
    bounds_of,
)

VOLATILE = BoundaryOptions()
BOUNDARIES = {
    "volatile": VOLATILE,
    "durable": DURABLE,
    "committed": COMMITTED,
    "before": BEFORE,
}
NO_LOSS_OR_HOLE = frozenset({Atom.NO_LOSS, Atom.GAP_FREE})
NO_REPEAT_OR_RETURN = frozenset({Atom.NO_DUPLICATE, Atom.MONOTONIC})


def promised(side: Side, *, journal: bool, boundary: str) -> frozenset[Atom]:
    """The process part of the guarantee (pipes G-5)."""
    if side == "sender":
        return ALL_ATOMS if journal else NO_REPEAT_OR_RETURN
    return {
        "volatile": NO_LOSS_OR_HOLE,
        "durable": NO_LOSS_OR_HOLE,
        "committed": ALL_ATOMS,
        "before": NO_REPEAT_OR_RETURN,
    }[boundary]


def twenty_messages(
    crashes: frozenset[tuple[Side, int]], boundary: BoundaryOptions, *, journal: bool
) -> Wire:
    """Twenty messages in five batches, in frames of four, without faults of the route."""
    wire = Wire(
        {"reliable": {"run_max": 4}},
        boundary=boundary,
        journal=MemoryJournal() if journal else None,
        crashes=crashes,
    )
    for first in range(1, 21, 4):
        wire.send(*range(first, first + 4))
        wire.exchange()
    wire.run(each_step=lambda: assert_conserved(wire))
    return wire


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_a_crash_after_any_effect_breaks_only_what_the_guarantee_gives_up(
    side: Literal["sender", "receiver"], journal: bool, boundary: str
) -> None:
    """One crash after the k-th effect, for every k; the atoms that G-5 keeps hold (pipes rl2)."""
    broken: set[Atom] = set()
    for effect in range(1, 1000):
        wire = twenty_messages(frozenset({(side, effect)}), BOUNDARIES[boundary], journal=journal)
        if wire.effects_done[side] < effect:
            assert effect > 15, "every effect of the run had its crash"
            break
        atoms = atoms_of(wire)
        assert promised(side, journal=journal, boundary=boundary) <= atoms, f"effect {effect}"
        assert wire.sender.idle, f"effect {effect}"
        broken |= ALL_ATOMS - atoms
    assert broken <= ALL_ATOMS - promised(side, journal=journal, boundary=boundary)
    if side == "sender" and not journal:
        assert Atom.NO_LOSS in broken, "a promise that is not made is seen to be broken"
    if side == "receiver" and boundary in {"volatile", "durable"}:
        assert Atom.NO_DUPLICATE in broken, "a promise that is not made is seen to be broken"


def test_with_journal_and_committed_both_ends_may_crash_in_any_pair_of_moments() -> None:
    """Every third effect of the sender against every second of the receiver: all four atoms (pipes rl2)."""
    for first in range(1, 60, 3):
        for second in range(1, 60, 2):
            crashes: frozenset[tuple[Side, int]] = frozenset(
                {("sender", first), ("receiver", second)}
            )
            assert_all_confirmed(twenty_messages(crashes, COMMITTED, journal=True))


@pytest.mark.parametrize("seed", range(25))
def test_many_crashes_of_both_ends_over_a_bad_route_lose_and_repeat_nothing(seed: int) -> None:
    """Eight crashes each at random effects, all route faults, slow handlers, small windows (pipes rl2)."""
    rng = random.Random(seed)
    crashes: set[tuple[Side, int]] = set()
    for _ in range(8):
        crashes |= {("sender", rng.randint(1, 200)), ("receiver", rng.randint(1, 200))}
    options: dict[str, object] = {
        "run_max": rng.choice([1, 3, 512]),
        "window": rng.choice([2, 8, 1024]),
        "backlog": rng.choice([8, 8192]),
        "initial_credit": rng.choice([1, 64]),
        "receive_window": rng.choice([1, 4, 1024]),
        "receive_window_bytes": rng.choice([5, 10, 1 << 20]),
    }
    wire = Wire(
        {"reliable": options},
        seed=seed,
        boundary=COMMITTED,
        journal=MemoryJournal(),
        crashes=frozenset(crashes),
        handler_us=rng.choice([0, 2 * MS, 3_000 * MS]),
    )
    check, sent = bounds_of(wire), 0

    def step() -> None:
        nonlocal sent
        check()
        count = min(wire.sender.room, rng.randint(0, 3), 60 - sent)
        if count:
            wire.send(*range(sent, sent + count))
            sent += count

    wire.send(b"first")
    wire.run(EVERYTHING, each_step=step, until_us=10**13, steps_max=100_000)
    assert sent == 60
    assert_all_confirmed(wire)


@pytest.mark.parametrize("journal", [False, True])
def test_a_receiver_that_dies_over_and_over_stops_nothing(journal: bool) -> None:
    """A crash every 25 effects for the first 500; in the end everything is delivered (pipes T-9, L-11)."""
    crashes: frozenset[tuple[Side, int]] = frozenset(("receiver", at) for at in range(25, 500, 25))
    wire = Wire(
        {"reliable": {"run_max": 4, "window": 16}},
        boundary=DURABLE,
        journal=MemoryJournal() if journal else None,
        crashes=crashes,
    )
    wire.send(*range(200))
    wire.run(Faults(loss=0.1), each_step=bounds_of(wire))
    assert set(wire.settled) == set(range(1, 201))
    assert wire.confirmed == set(wire.settled)
