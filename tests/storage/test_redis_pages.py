"""Pages of the Redis store: what goes in comes out, in few bytes, and damage is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.storage.redis.pages import PAGE_MAX_BYTES, paged, unpaged

PAYLOADS = st.lists(
    st.one_of(
        st.binary(max_size=40), st.sampled_from([b"", b"x" * 255, b"y" * 256, b"z" * 70_000])
    ),
    max_size=40,
)


@given(
    first=st.integers(1, 2**40), payloads=PAYLOADS, limit=st.sampled_from([1, 100, PAGE_MAX_BYTES])
)
def test_the_pages_of_a_run_hold_it_in_order(first: int, payloads: list[bytes], limit: int) -> None:
    """R-3: consecutive seqs, within the limit unless one message is above it, everything as it was."""
    expected, seq = list(payloads), first
    for page in paged(first, payloads, limit):
        assert page.first == seq
        assert page.count == 1 or page.size <= limit
        found = unpaged(page.body, page.count)
        assert found == expected[: page.count]
        assert page.size == sum(map(len, found))
        expected, seq = expected[page.count :], seq + page.count
    assert expected == []


@pytest.mark.parametrize(
    ("payloads", "overhead"),
    [
        *(([b"x" * 100] * 500, 5), ([b"x" * n for n in range(100)], 101)),
        *(([b"", b"x" * size], overhead) for size, overhead in ((255, 3), (256, 5))),
        *(([b"", b"x" * size], overhead) for size, overhead in ((65_535, 5), (65_536, 9))),
    ],
)
def test_a_message_costs_at_most_as_many_bytes_as_its_length_needs(
    payloads: list[bytes], overhead: int
) -> None:
    """Nothing per message when all are equal, else one, two or four bytes."""
    (page,) = paged(1, payloads)
    assert len(page.body) - page.size == overhead


@given(payloads=PAYLOADS.filter(bool), cut=st.integers(1, 10), more=st.binary(max_size=3))
def test_a_damaged_page_is_an_error_and_never_other_messages(
    payloads: list[bytes], cut: int, more: bytes
) -> None:
    """A body cut short, made longer, or of an unknown kind."""
    page = next(paged(1, payloads))
    for body in (page.body[:-cut], page.body + b"!" + more, b"\x09" + page.body[1:], b""):
        with pytest.raises(ValueError, match="page"):
            unpaged(body, page.count)
