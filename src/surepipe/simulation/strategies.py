"""Hypothesis strategies: stacks, messages, and schedules of faults that it can make smaller.

    from hypothesis import given
    from surepipe.simulation.strategies import messages, schedules
    from surepipe.testing.once import simulate_once

    @given(schedules(faults=["process-crash", "bad-stage"]), messages())
    def test_no_customer_is_charged_twice(schedule, orders):
        simulate_once(build, schedule, messages=orders)

A campaign of seeds looks at more runs in the same time, and reports with a picture. Hypothesis looks where
messages and options matter as much as faults, and shortens all of them together. It does not come with surepipe.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from surepipe.errors import CompositionError, ConfigurationError
from surepipe.guarantees import derive
from surepipe.pipes.catalogue import KINDS
from surepipe.simulation.faults import (
    ALWAYS,
    CATALOGUE,
    FaultKind,
    OptionRange,
    chosen,
    words_of_faults,
)
from surepipe.simulation.options import DRAINS, Options, Tie
from surepipe.simulation.promises import Promise, hop_of
from surepipe.simulation.subjects import HopSubject

DEPTH_MAX = 4
_SEEDS = st.integers(0, 2**32 - 1)
_SHAPES = ("at-once", "bursts", "trickle", "batches")


def stacks(*, depth_max: int = 3) -> st.SearchStrategy[tuple[str, ...]]:
    """Layers of a pipe, outermost first, that the checker accepts. Raises ValueError for a depth out of 1 to 4."""
    if not 1 <= depth_max <= DEPTH_MAX:
        raise ValueError(f"depth_max is {depth_max}: stacks are 1 to {DEPTH_MAX} layers deep")
    names = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=depth_max)
    return names.map(tuple).filter(_is_accepted)


def _is_accepted(names: tuple[str, ...]) -> bool:
    try:
        derive(hop_of(HopSubject(names)))
    except (CompositionError, ConfigurationError):  # a stream can only be innermost
        return False
    return True


def messages(
    each: st.SearchStrategy[object] | None = None, *, least: int = 1, most: int = 12
) -> st.SearchStrategy[list[object]]:
    """Messages of a run, no two alike; what ``each`` gives, or small JSON objects with an ``id``."""
    if each is not None:
        return st.lists(each, min_size=least, max_size=most, unique_by=repr)
    return st.integers(least, most).map(_counted)


def _counted(count: int) -> list[object]:
    return [{"id": number} for number in range(count)]


@st.composite
def schedules(
    draw: st.DrawFn,
    promise: Promise | None = None,
    *,
    faults: str | Collection[str] = "claim",
    most: int = 12,
) -> Options:
    """The options of a run: which faults, how much of each, which seed decides when. The least one is calm.

    ``faults``: by the words of `expect`, kind or id (a list, or a text with commas), or ``claim`` for all that one
    atom of ``promise`` tolerates. ``most`` bounds the messages. Raises ConfigurationError for a word that is no
    fault, and MisuseError for what is no words.
    """
    promise = promise or Promise()
    kinds = [kind for kind in _kinds(draw, promise, words_of_faults(faults)) if kind.ranges]
    on = draw(st.lists(st.sampled_from(kinds), unique=True)) if kinds else []
    values = {
        one.option: draw(_within(one, promise.timer_us)) for kind in on for one in kind.ranges
    }
    return replace(_workload(draw, promise, most), **values)  # type: ignore[arg-type]


def _kinds(draw: st.DrawFn, promise: Promise, words: Sequence[str]) -> Sequence[FaultKind]:
    if words != ("claim",):
        return chosen(words)
    tolerated = [set(names) | {ALWAYS} for names in promise.claim.values()] or [{ALWAYS}]
    covered = draw(st.sampled_from(tolerated))
    stores = {*promise.stores, *(["any"] if promise.stores else [])}
    return [
        kind
        for kind in CATALOGUE
        if covered.issuperset({*kind.names} - {"relay-crash"})
        and (not kind.needs or kind.needs in stores)
    ]


def _within(one: OptionRange, timer_us: int) -> st.SearchStrategy[int]:
    unit = timer_us if one.in_timeouts else 1
    low, high = max(1, one.low * unit // 10), one.high * unit // 10
    return st.integers(low, max(low, high))


def _workload(draw: st.DrawFn, promise: Promise, most: int) -> Options:
    timer = promise.timer_us
    return Options(
        seed=draw(_SEEDS),
        timer_us=timer,
        messages=draw(st.integers(1, most)),
        shape=draw(st.sampled_from(_SHAPES)),
        gap_us=draw(st.sampled_from((0, timer // 20, timer // 4))),
        batch_max=draw(st.sampled_from((1, 4))),
        tie=draw(st.sampled_from(tuple(Tie))),
        drain=draw(st.sampled_from(DRAINS)),
        delay_us=draw(st.sampled_from((max(1, timer // 1000), timer // 10))),
        handler_us=draw(st.sampled_from((0, timer // 10))),
        chaos_us=4 * timer,
    )
