from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.store_requests import Identity
from surepipe.errors import ConfigurationError
from surepipe.spark.following import shared_out
from surepipe.spark.ranges import (
    EntryRange,
    ReadingPlace,
    from_json,
    key_of,
    stream_of,
    tasks_of,
    to_json,
)

PLACES = st.builds(
    ReadingPlace,
    st.integers(1, 2**53),
    st.integers(1, 2**62),
    st.integers(1, 2**62),
    st.none() | st.builds(Identity, st.text(max_size=5), st.integers(0, 9), st.integers(1, 2**53)),
)
OFFSETS = st.dictionaries(
    st.builds(key_of, st.text(min_size=1, max_size=5), st.integers(0, 9)), PLACES, max_size=5
)


@given(offsets=OFFSETS)
def test_equal_offsets_are_equal_texts(offsets: dict[str, ReadingPlace]) -> None:
    """Spark compares texts, so neither the order of keys nor a way through JSON may matter; spark SP-5."""
    text = json.dumps(to_json(offsets))
    assert json.dumps(to_json({key: offsets[key] for key in reversed(offsets)})) == text
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


def test_a_key_is_the_stream_and_the_partition_whatever_the_streams_name() -> None:
    """Names with slashes come back whole."""
    assert stream_of(key_of("a/b/c", 12)) == ("a/b/c", 12)


@pytest.mark.parametrize("broken", [{"orders/0": 5}, {"orders/0": {"next": "x"}}, {"o": None}])
def test_offsets_of_another_query_are_refused(broken: dict[str, object]) -> None:
    """What stands in the checkpoint was not written by this source."""
    with pytest.raises(ConfigurationError, match="belongs to another query"):
        from_json(broken)


def a_range(name: str, start: int, stop: int) -> EntryRange:
    """A range of a stream."""
    return EntryRange(name, name, 0, start, stop, 7, 7, Identity("p", 1, stop - 1))


@given(
    counts=st.lists(st.integers(0, 500), max_size=12),
    most=st.integers(1, 6),
    rows_max=st.none() | st.integers(1, 100),
    rows_min=st.integers(0, 50),
)
def test_tasks_cover_every_entry_once_in_order(
    counts: list[int], most: int, rows_max: int | None, rows_min: int
) -> None:
    """Any ranges and bounds; without a bound for a task no stream is cut; spark SP-5."""
    ranges = [a_range(f"s{n}", 1, 1 + count) for n, count in enumerate(counts)]
    pieces = [piece for task in tasks_of(ranges, most, rows_max, rows_min) for piece in task.ranges]
    covered = [(piece.name, index) for piece in pieces for index in range(piece.start, piece.stop)]
    assert covered == [(each.name, index) for each in ranges for index in range(1, each.stop)]
    if rows_max is None:
        assert len(pieces) == sum(1 for count in counts if count)
    else:
        assert all(piece.count <= rows_max for piece in pieces)
    for piece in pieces:
        whole = a_range(piece.name, 1, 1 + counts[int(piece.name[1:])])
        assert (piece.anchor == whole.anchor) == (piece.stop == whole.stop)


def test_small_streams_share_a_task_and_large_ones_have_their_own() -> None:
    """Ten streams of 10 entries and one of 1000, in tasks of 100 at least."""
    ranges = [a_range(f"s{n}", 1, 11) for n in range(10)] + [a_range("large", 1, 1001)]
    assert [len(task.ranges) for task in tasks_of(ranges, 8, None, 100)] == [10, 1]


@given(
    lags=st.dictionaries(st.text(max_size=3), st.integers(0, 1000), max_size=6),
    rows_max=st.none() | st.integers(1, 2000),
)
def test_a_limit_is_used_up_and_shared_out(lags: dict[str, int], rows_max: int | None) -> None:
    """No stream gets more than it has, all get the limit if there is as much, none starves; spark SP-5."""
    shares = shared_out(lags, rows_max)
    total = sum(lags.values())
    assert sum(shares.values()) == (total if rows_max is None else min(rows_max, total))
    assert all(shares[key] <= lag for key, lag in lags.items())
    cut = [shares[key] for key, lag in lags.items() if shares[key] < lag]
    assert not cut or max(cut) - min(cut) <= 1
