"""Packed payloads: a run like any other, and the same bytes in a store as from a list of the same payloads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.store_requests import Stored
from surepipe.spark import columns as arrow
from surepipe.spark.columns import BufferPayloads
from surepipe.storage.pages import RawBatch
from surepipe.storage.redis import pages as redis_pages
from surepipe.storage.sqlite import streams as sqlite_pages
from tests.spark.streams import Streams

FEW = st.lists(st.binary(max_size=400), min_size=1, max_size=30)
EVEN = st.tuples(st.binary(max_size=40), st.integers(1, 30)).map(lambda one: [one[0]] * one[1])
LONG = st.lists(
    st.sampled_from([0, 1, 255, 256, 20_000, 65_535, 65_536, 70_000]), min_size=1, max_size=9
)
RUNS = FEW | EVEN | LONG.map(lambda sizes: [bytes([n]) * size for n, size in enumerate(sizes)])


@given(payloads=RUNS, first=st.integers(1, 2**40))
def test_pages_of_packed_payloads_are_those_of_a_list(payloads: list[bytes], first: int) -> None:
    """Each width of lengths, equal ones, and payloads at and above a page's bound; spark SP-9."""
    packed = BufferPayloads.of(payloads)
    assert [*redis_pages.paged(first, packed)] == [*redis_pages.paged(first, payloads)]
    assert sqlite_pages.pages_of(packed) == sqlite_pages.pages_of(payloads)


@given(payloads=RUNS, start=st.integers(-5, 35), stop=st.integers(-5, 35))
def test_packed_payloads_are_a_sequence_of_bytes(
    payloads: list[bytes], start: int, stop: int
) -> None:
    """Made of a list, of a part of an Arrow column, and of parts put together."""
    column = arrow.array([b"before", *payloads], type=arrow.BINARY).slice(1, len(payloads))
    whole = BufferPayloads.of_column(column)
    for packed in (
        whole,
        BufferPayloads.of(payloads),
        BufferPayloads.joined([whole[:2], whole[2:]]),
    ):
        assert list(packed) == payloads
        assert list(packed[start:stop]) == payloads[start:stop]
        assert packed[-1] == payloads[-1]
        with pytest.raises(IndexError):
            packed[len(payloads)]


def test_a_store_holds_the_same_pages_from_either(any_streams: Streams) -> None:
    """Runs of which nothing, a part and everything is stored already; bodies, lengths and answers; spark SP-9."""
    payloads = [bytes([n % 250]) * (n % 700) for n in range(900)]
    any_streams.create("listed", "packed")
    store = any_streams.store
    for first, stop in ((0, 300), (200, 900), (100, 500)):
        listed = store.append("listed", "maker", 1, first + 1, payloads[first:stop])
        packed = store.append(
            "packed", "maker", 1, first + 1, BufferPayloads.of(payloads)[first:stop]
        )
        assert isinstance(listed, Stored)
        assert packed == listed
    assert any_streams.read("packed") == payloads
    pages = {name: pages_of(any_streams, name) for name in ("listed", "packed")}
    assert len(pages["listed"]) > 4
    assert pages["packed"] == pages["listed"]


def pages_of(streams: Streams, name: str) -> list[tuple[int, int, int, int, bytes, bytes]]:
    """All of a stream's pages, as they are stored, but for the time."""
    found = streams.store.read_pages(name, 1, 1_000_000, 1 << 26)
    assert isinstance(found, RawBatch)
    return [
        (page.index, page.first, page.count, page.width, bytes(page.lengths), page.body)
        for page in found.pages
    ]
