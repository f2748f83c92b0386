"""Chance in simulated runs: one generator for each authority, the same numbers everywhere and for ever."""

from __future__ import annotations

import ast
from collections import Counter
from hashlib import blake2b
from pathlib import Path

import pytest

import surepipe
from surepipe.simulation.chance.randomness import draws

PINNED = {
    1: "9a452613101df079",
    4711: "9bbd75267599e4d2",
    2**64 - 1: "d37d3f58286447ef",
}


@pytest.mark.parametrize(("seed", "expected"), PINNED.items())
def test_the_first_thousand_draws_of_a_seed_never_change(seed: int, expected: str) -> None:
    """simulation X-10: through every helper, digested."""
    source = draws(seed, "network/a>b")
    drawn: list[object] = []
    for _ in range(200):
        drawn += [source.below(1000), source.between(-5, 5), source.happens(300_000)]
        drawn += [source.pick("abcdef"), source.spread(1, 10_000)]
    assert blake2b(repr(drawn).encode(), digest_size=8).hexdigest() == expected


def test_authorities_draw_independently() -> None:
    """simulation X-9: a hundred draws of one leave the others where they were."""
    alone = [draws(7, "workload").below(10**9) for _ in range(3)]
    faults = draws(7, "faults")
    for _ in range(100):
        faults.below(10)
    again = [draws(7, "workload").below(10**9) for _ in range(3)]
    assert alone == again
    assert draws(7, "faults").below(10**9) != draws(7, "workload").below(10**9)
    assert draws(7, "faults").below(10**9) != draws(8, "faults").below(10**9)


def test_below_reaches_each_number_equally_often() -> None:
    """simulation X-10: 7,000 draws of seven numbers, each within five standard deviations."""
    source = draws(3, "x")
    counts = Counter(source.below(7) for _ in range(7000))
    assert sorted(counts) == list(range(7))
    assert all(850 < count < 1150 for count in counts.values())


def test_what_never_or_always_happens_draws_nothing() -> None:
    """simulation X-9: so switching a fault off moves no other draw of its authority."""
    one, other = draws(3, "x"), draws(3, "x")
    assert not one.happens(0)
    assert one.happens(1_000_000)
    assert one.below(1) == 0
    assert one.below(10**9) == other.below(10**9)


def test_a_shuffle_keeps_the_items_and_leaves_the_argument_alone() -> None:
    """Another order of the same; a spread stays within its bounds."""
    source, items = draws(3, "x"), list(range(20))
    mixed = source.shuffled(items)
    assert items == list(range(20))
    assert mixed != items
    assert sorted(mixed) == items
    spread = [source.spread(5, 5000) for _ in range(500)]
    assert min(spread) >= 5
    assert max(spread) <= 5000
    assert sum(value < 100 for value in spread) > 100


def test_the_helper_uses_nothing_but_getrandbits() -> None:
    """simulation X-10: by the names that its module calls on itself."""
    source = Path(surepipe.__file__).parent / "simulation" / "chance" / "randomness.py"
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    }
    assert called == {"getrandbits", "below", "happens", "between"}
