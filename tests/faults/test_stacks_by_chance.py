"""Stacks put together by chance: what the algebra derives for them is what their runs keep."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from surepipe.audit.properties import judge
from surepipe.audit.settings import ATOMS
from surepipe.errors import CompositionError
from surepipe.guarantees import derive
from surepipe.simulation.chance.randomness import draws
from surepipe.simulation.faults import Mode, draw_options
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import DRAINS, Drain, Options
from surepipe.simulation.promises import hop_of, promise_of
from surepipe.simulation.subjects import HopSubject
from tests.faults.product import hop, layer

STACKS = 200
PARTS = 4
SEEDS = 1
KINDS = (
    *("resend", "multi-unconfirmed", "sequential-confirm", "reliable"),
    *("strict-monotonic", "continuous-index", "dedupe"),
)
RETRIES = KINDS[:4]
JUDGED = frozenset({"P1", *ATOMS.values(), "P11", "P12", "P13"})


def stack_of(number: int) -> HopSubject:
    """A stack of one to four layers, with or without a journal; bounds small enough to be met."""
    source = draws(number, "stack")
    kinds = [source.pick(KINDS) for _ in range(source.between(1, 4))]
    layers = [layer(kind, run_max=source.pick((1, 2))) for kind in kinds]
    name = f"{number}: {' over '.join(kinds)}"
    return hop(name, *layers, journaled=bool(source.getrandbits(1)))


def broken(subject: HopSubject, seed: int) -> list[str]:
    """What a run breaks although it has only faults that it is said to survive."""
    return judged(subject, draw_options(seed, promise_of(subject), mode=Mode.CLAIM, messages=24))


def judged(subject: HopSubject, options: Options) -> list[str]:
    """What a run breaks."""
    rows = run_hop(subject, options, judge=None).rows
    return [
        f"{subject.name}, seed {options.seed}: {found}"
        for found in judge(rows)
        if found.property in JUDGED
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


@pytest.mark.parametrize("drain", DRAINS)
def test_two_layers_that_send_again_keep_pace_in_every_drain(drain: Drain) -> None:
    """simulation X-38 O1 and O2, P12: without any fault, 60 messages at once and new ones later."""
    late: list[str] = []
    for upper, lower in product(RETRIES, repeat=2):
        subject = hop(f"{upper} over {lower}", layer(upper, run_max=1), layer(lower, run_max=1))
        options = draw_options(1, promise_of(subject), mode=Mode.NONE, messages=60)
        late += judged(subject, replace(options, drain=drain, chaos_us=0, load_messages=24))
    assert not late
