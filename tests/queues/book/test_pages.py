"""Pages: packing, the cursor, and the bytes of a page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.store_requests import PutValues, Together
from surepipe.queues.book import BookConfig, BookMessage, BookQueue, Context, Page, PageCorrupt
from surepipe.queues.book.page import HEADER_BYTES, fitting, packed
from surepipe.storage import MemoryStore


def nothing(_message: BookMessage, _context: Context) -> None:
    """A handler without work."""


def test_a_full_page_takes_not_even_an_empty_message() -> None:
    """BQ-1: forty bytes, thirty-five of payload."""
    page = Page(40)
    assert page.try_append(b"x" * 35)
    assert not page.try_append(b"")
    assert (page.size, page.remaining, page.first_index, page.first) == (40, 1, 0, 0)


def test_a_page_is_complete_after_the_last_mark() -> None:
    """BQ-3, B-7: even slots are skipped, odd ones processed, then the even ones are marked."""
    page = Page(40)
    while page.try_append(b"four"):
        pass
    assert page.slots == 4
    for slot in range(page.slots):
        page.advance(bool(slot % 2))
    assert page.peek() is None
    assert (page.remaining, page.remaining_bytes) == (2, 8)
    assert [page.mark(slot) for slot in (0, 0, 1)] == [True, False, False]
    assert page.remaining == 1
    assert page.mark(2)
    assert (page.remaining, page.remaining_bytes) == (0, 0)


@pytest.mark.parametrize(("size", "per_page"), [(200, 319), (4, 7_281), (100, 624)])
def test_messages_are_packed(size: int, per_page: int) -> None:
    """B-9, B-10: as many as fit, enqueued singly or in batches; of 100 bytes at least 95 of 100 are payload."""
    for batch in (1, 100):
        total = 2 * per_page + 10 if size == 4 else 10_000
        book = BookQueue.inline(
            "b",
            store=MemoryStore(),
            processor=nothing,
            config=BookConfig(refuse_pages=None, checkpoint_bytes=1 << 30),
        )
        for start in range(0, total, batch):
            book.enqueue_many("A", [b"x" * size] * min(batch, total - start))
        pages = book.ledger.books["A"].pages
        assert pages[0].slots == per_page
        assert len(pages) == -(-total // per_page)
        if size >= 100:
            assert per_page * size / 65_536 >= 0.95


class RowsCounted(MemoryStore):
    """Counts the rows that checkpoints write."""

    rows = 0

    def ask(self, request: Any) -> Any:
        if isinstance(request, Together):
            values = [each for each in request.requests if isinstance(each, PutValues)]
            self.rows += sum(len(each.pairs) for each in values)
        return super().ask(request)


def test_checkpoints_cost_as_much_for_many_queues_as_for_few() -> None:
    """B-10: each message for another queue; a checkpoint waits until it is worth its rows."""
    store = RowsCounted()
    config = BookConfig(refuse_pages=None, checkpoint_bytes=1 << 16, max_origins=1 << 14)
    book = BookQueue.inline("b", store=store, processor=nothing, config=config)
    queues, rounds, calls = 8_000, 8, 100
    for start in range(0, queues * rounds, calls):
        book.enqueue_batch([(f"o{(start + n) % queues}", b"x" * 20) for n in range(calls)])
    assert 0 < store.rows <= queues * rounds
    again = BookQueue.inline("b", store=store, processor=nothing, config=config)
    assert again.ledger.totals["queued"] == queues * rounds


def test_flags_and_cursor_are_in_the_bytes() -> None:
    """B-2, B-6, B-8: what is read back is the same page."""
    page = Page(64)
    for word in (b"a", b"", b"ccc", b"d"):
        assert page.try_append(word)
    page.advance(False)
    page.advance(True)
    assert page.mark(3)
    again = Page.decode(page.encode())
    assert again.encode() == page.encode()
    assert [again.read(slot) for slot in range(5)] == [page.read(slot) for slot in range(5)]
    assert (
        (again.remaining, again.remaining_bytes) == (page.remaining, page.remaining_bytes) == (2, 4)
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_a_page_or_refused(data: bytes) -> None:
    """Nothing but PageCorrupt comes out, and what is taken is written again as it was."""
    try:
        page = Page.decode(data)
    except PageCorrupt:
        return
    assert page.encode()[16:] == data[16:] or page.parked or page.done or page.first_index


@given(st.lists(st.binary(max_size=20), max_size=12), st.integers(0, 12), st.data())
def test_a_changed_byte_is_another_page_or_none(
    words: list[bytes], passed: int, data: st.DataObject
) -> None:
    """The lengths must add up, and the cursor must be at the beginning of a message."""
    page = Page(400)
    for word in words:
        assert page.try_append(word)
    for _ in range(min(passed, len(words))):
        page.advance(data.draw(st.booleans()))
    encoded = bytearray(page.encode())
    assert Page.decode(bytes(encoded)).encode() == bytes(encoded)
    encoded.append(0)
    with pytest.raises(PageCorrupt):
        Page.decode(bytes(encoded))


@given(st.lists(st.binary(max_size=9), max_size=20), st.integers(0, 200))
def test_as_many_as_fit_are_cut_off(words: list[bytes], room: int) -> None:
    """A run of packed messages is cut between two of them."""
    chunk = packed(words)
    count, behind = fitting(chunk, 0, room)
    assert behind == sum(HEADER_BYTES + len(word) for word in words[:count]) <= room
    assert count == len(words) or behind + HEADER_BYTES + len(words[count]) > room


def test_messages_behind_those_that_left_the_memory_are_the_right_ones() -> None:
    """B-8: 1. A page is stored, and loaded without its bytes. 2. More messages come. 3. The cursor is at the first
    of those: the next messages are they, and none is passed over."""
    page = Page(100)
    page.try_append(b"11")
    page.stored(0, page.size)
    page.unload()
    page.try_append(b"14")
    page.try_append(b"17")
    page.pass_to(1, 7)
    assert page.upcoming(7, 2) == [b"14", b"17"]
    assert page.upcoming(7, 1) == [b"14"]
    page.load(b"\x02\0\0\0\x0011")
    assert page.upcoming(0, 3) == [b"11", b"14", b"17"]
