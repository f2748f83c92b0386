"""Stacks put together by chance: what the algebra derives for them is what their runs keep."""

from __future__ import annotations

from collections import Counter

import pytest

from surepipe.errors import CompositionError
from surepipe.pipes.algebra import derive
from surepipe.simulation.drawing import draw_options
from surepipe.simulation.faults import Mode
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import hop_of, promise_of
from surepipe.simulation.properties import judge
from surepipe.simulation.properties.settings import ATOMS
from surepipe.simulation.randomness import draws
from surepipe.simulation.subjects import HopSubject
from tests.faults.product import hop, layer

STACKS = 200
PARTS = 4
SEEDS = 1
BRIEF = Options(events_max=3_000)
"""A stack that sends again at every level is stopped before it has come to rest; what came out is judged."""
KINDS = (
    *("resend", "multi-unconfirmed", "sequential-confirm", "reliable"),
    *("strict-monotonic", "continuous-index", "dedupe"),
)
JUDGED = frozenset({"P1", *ATOMS.values()})


def stack_of(number: int) -> HopSubject:
    """A stack of one to four layers, with or without a journal; bounds small enough to be met."""
    source = draws(number, "stack")
    kinds = [source.pick(KINDS) for _ in range(source.between(1, 4))]
    layers = [layer(kind, run_max=source.pick((1, 2))) for kind in kinds]
    name = f"{number}: {' over '.join(kinds)}"
    return hop(name, *layers, journaled=bool(source.getrandbits(1)))


def broken(subject: HopSubject, seed: int) -> list[str]:
    """The atoms that a run breaks although it has only faults that they are said to survive."""
    options = draw_options(seed, promise_of(subject), mode=Mode.CLAIM, messages=4, base=BRIEF)
    rows = run_hop(subject, options, judge=None).rows
    return [
        f"{subject.name}, seed {seed}: {found}" for found in judge(rows) if found.property in JUDGED
    ]


@pytest.mark.parametrize("part", range(PARTS))
def test_a_stack_keeps_what_is_derived_for_it(part: int) -> None:
    """simulation X-44, P15: what is refused is not run; the rest is held to its atoms."""
    outcomes: Counter[bool] = Counter()
    lies: list[str] = []
    for number in range(part, STACKS, PARTS):
        subject = stack_of(number)
        try:
            derive(hop_of(subject))
        except CompositionError:
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        lies += [lie for seed in range(SEEDS) for lie in broken(subject, number * SEEDS + seed)]
    assert not lies
    assert outcomes[True] >= STACKS // PARTS // 3
