"""RangeSet behaves as a set of numbers, whatever the order of operations."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.ranges import RangeSet

spans = st.tuples(st.integers(1, 40), st.integers(0, 8)).map(lambda s: (s[0], s[0] + s[1]))
operations = st.lists(st.tuples(st.sampled_from(["add", "discard"]), spans), max_size=30)


def model_of(steps: list[tuple[str, tuple[int, int]]]) -> tuple[RangeSet, set[int]]:
    """The same operations on both."""
    ranges, numbers = RangeSet(), set[int]()
    for verb, (first, last) in steps:
        span = set(range(first, last + 1))
        if verb == "add":
            ranges.add(first, last)
            numbers |= span
        else:
            ranges.discard(first, last)
            numbers -= span
    return ranges, numbers


@given(operations)
def test_it_holds_exactly_the_numbers_that_were_put_in(
    steps: list[tuple[str, tuple[int, int]]],
) -> None:
    """Every question is answered as by a plain set."""
    ranges, numbers = model_of(steps)
    assert {n for first, last in ranges for n in range(first, last + 1)} == numbers
    assert ranges.count() == len(numbers)
    assert ranges.highest() == max(numbers, default=0)
    assert bool(ranges) == bool(numbers)
    assert all((n in ranges) == (n in numbers) for n in range(50))


@given(operations)
def test_ranges_are_disjoint_increasing_and_never_touch(
    steps: list[tuple[str, tuple[int, int]]],
) -> None:
    """So the number of ranges is the number of holes and no more."""
    listed = list(model_of(steps)[0])
    assert all(first <= last for first, last in listed)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(listed))


@given(operations, spans)
def test_windows_of_it_split_into_present_and_missing(
    steps: list[tuple[str, tuple[int, int]]], window: tuple[int, int]
) -> None:
    """``within`` and ``missing`` are complements, ``covers`` and ``end_of_run`` agree with them."""
    ranges, numbers = model_of(steps)
    first, last = window
    present = {n for a, b in ranges.within(first, last) for n in range(a, b + 1)}
    missing = {n for a, b in ranges.missing(first, last) for n in range(a, b + 1)}
    assert present == numbers & set(range(first, last + 1))
    assert missing == set(range(first, last + 1)) - numbers
    assert ranges.covers(first, last) == (not missing)
    end = first - 1
    while end + 1 in numbers:
        end += 1
    assert ranges.end_of_run(first) == end


def test_dropping_what_lies_below_a_bound_splits_a_range() -> None:
    """1-5 and 8-9 without everything below 4."""
    ranges = RangeSet([(1, 5), (8, 9)])
    ranges.discard_below(4)
    assert list(ranges) == [(4, 5), (8, 9)]
    assert ranges.lowest(1) == ((4, 5),)


def test_an_empty_window_holds_nothing() -> None:
    """A span whose end lies before its start is empty for every operation."""
    ranges = RangeSet([(1, 5)])
    ranges.add(4, 3)
    ranges.discard(4, 3)
    assert ranges.within(4, 3) == ()
    assert ranges.missing(4, 3) == ()
    assert list(ranges) == [(1, 5)]
