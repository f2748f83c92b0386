"""What must hold of a book at every moment (BI-1 to BI-19), whatever was done to it before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surepipe.errors import ContractBroken
from surepipe.queues.book.ledger import Book, Ledger
from surepipe.queues.book.page import HEADER, HEADER_BYTES, Page, PageCorrupt

if TYPE_CHECKING:
    from surepipe.queues.book.queue import BookQueue


def check_invariants(book: BookQueue | Ledger) -> None:
    """Raises ContractBroken with everything that does not hold."""
    ledger = book if isinstance(book, Ledger) else book.ledger
    broken = [*_of_ring(ledger), *_of_totals(ledger), *_of_leases(ledger)]
    for each in ledger.books.values():
        broken += [f"{each.origin!r}: {problem}" for problem in _of_book(ledger, each)]
    if broken:
        raise ContractBroken("\n".join(broken))


def _of_ring(ledger: Ledger) -> Iterator[str]:
    order = ledger.ring.order()
    ready = {book.origin for book in ledger.books.values() if book.is_ready}
    if set(order) != ready:
        yield f"BI-2: the ring holds {sorted(order)}, ready are {sorted(ready)}"
    if len(set(order)) != len(order):
        yield f"BI-3: the ring {order} does not visit every queue once"
    if (ledger.ring.head is None) != (not order):
        yield f"BI-3: the head is {ledger.ring.head!r} in a ring of {len(order)}"
    for origin in order:
        following = ledger.ring.after(origin)
        if following is None or ledger.ring.before(following) != origin:
            yield f"BI-3: previous is not the inverse of next at {origin!r}"


def _of_totals(ledger: Ledger) -> Iterator[str]:
    totals = ledger.totals
    held = sum(book.messages for book in ledger.books.values())
    ended = sum(totals[name] for name in ("done", "rejected", "discarded", "reaped", "requeued"))
    if totals["enqueued"] != ended + held:
        yield f"BI-11: {totals['enqueued']} enqueued, {ended} ended and {held} held"
    ahead = sum(
        book.pages[number].slots - book.pages[number].first_index
        for book in ledger.books.values()
        for number in range(book.begin, book.end)
        if number in book.pages
    )
    if totals["queued"] != ahead:
        yield f"BI-11: queued is {totals['queued']}, the windows hold {ahead}"


def _of_leases(ledger: Ledger) -> Iterator[str]:
    held = {
        (book.lease.worker, book.origin) for book in ledger.books.values() if book.lease is not None
    }
    listed = {(worker, origin) for worker, origins in ledger.leased.items() for origin in origins}
    if held != listed:
        yield f"BI-13: leases {sorted(held)}, listed {sorted(listed)}"
    for book in ledger.books.values():
        if book.lease is not None and not 0 < book.lease.token <= ledger.index:
            yield f"BI-13: {book.origin!r} has token {book.lease.token} after entry {ledger.index}"


def _of_book(  # noqa: PLR0912 - one line per invariant
    ledger: Ledger, book: Book
) -> Iterator[str]:
    config = ledger.config
    if not 0 <= book.begin <= book.end or any(number >= book.end for number in book.pages):
        yield f"BI-1: window {book.begin}..{book.end}, pages {sorted(book.pages)}"
    if book.end - book.begin > len(book.pages):
        yield f"BI-4: {len(book.pages)} pages for a window of {book.end - book.begin}"
    missing = [number for number in range(book.begin, book.end) if number not in book.pages]
    if missing:
        yield f"BI-1: pages {missing} of the window are missing"
        return
    messages = sum(page.remaining for page in book.pages.values())
    size = sum(page.remaining_bytes for page in book.pages.values())
    if (book.messages, book.bytes) != (messages, size):
        yield f"BI-6: counts {book.messages} messages of {book.bytes} bytes, its pages hold {messages} of {size}"
    if not 0 <= book.footprint.parked <= book.messages:
        yield f"BI-6: {book.footprint.parked} of {book.messages} messages parked"
    for number, page in book.pages.items():
        yield from (f"page {number}: {problem}" for problem in _of_page(book, number, page))
    for number in range(book.begin, book.end - 1):
        one, other = book.pages[number], book.pages[number + 1]
        if one.is_loaded and other.is_loaded:
            first = HEADER.unpack_from(other.heap, 0)[0]
            if one.room_for(HEADER_BYTES + first):
                yield f"BI-9: the first message of page {number + 1} would fit into page {number}"
    listed = {(number, slot) for number, page in book.pages.items() for slot in page.parked}
    if listed != set(book.parked):
        yield f"BI-10: parked are {sorted(book.parked)}, the pages say {sorted(listed)}"
    if book.blocked is not None and not book.is_ready:
        yield "BI-10: blocked without a message at the cursor"
    ready = book.end - book.begin
    if config.resume_pages is not None and config.suspend_pages is not None:
        if book.suspended and ready <= config.resume_pages:
            yield f"BI-14: suspended with {ready} ready pages"
        if not book.suspended and ready >= config.suspend_pages:
            yield f"BI-14: not suspended with {ready} ready pages"
    if book.deficit < 0 or (not book.is_ready and (book.deficit or book.turn_open)):
        yield f"BI-15: deficit {book.deficit}, turn open: {book.turn_open}, ready: {book.is_ready}"
    if book.attempts > config.retries or (book.attempts and not book.is_ready):
        yield f"BI-16: {book.attempts} attempts of {config.retries}, ready: {book.is_ready}"
    if ledger.generations.get(book.generation) != book.origin:
        yield f"BI-18: generation {book.generation} leads to {ledger.generations.get(book.generation)!r}"
    is_plain = book.weight == 1 and not book.paused and book.lease is None
    if not book.messages and is_plain and book.origin not in ledger.idle:
        yield "BI-19: it is empty, has no settings of its own and is not on its way out"
    if book.origin in ledger.idle and book.messages:
        yield "BI-19: it is listed as idle and holds messages"


def _of_page(book: Book, number: int, page: Page) -> Iterator[str]:
    in_window = number >= book.begin
    if page.remaining <= 0:
        yield f"BI-5: {page.remaining} messages remain in a stored page"
    if in_window and number > book.begin and page.first_index:
        yield f"BI-7: the cursor is at {page.first_index}"
    if in_window and (page.done or any(slot >= page.first_index for slot in page.parked)):
        yield "BI-7: a message ahead of the cursor has a flag"
    if page.size > page.page_bytes:
        yield f"BI-8: {page.size} bytes of at most {page.page_bytes}"
    if not page.is_loaded:
        return
    try:
        parsed = Page.decode(page.encode())
    except PageCorrupt as error:
        yield f"BI-8: {error}"
        return
    if (parsed.slots, parsed.remaining, parsed.remaining_bytes) != (
        page.slots,
        page.remaining,
        page.remaining_bytes,
    ):
        yield (
            f"BI-8: the heap has {parsed.slots} messages, {parsed.remaining} unprocessed; told are "
            f"{page.slots}, {page.remaining}"
        )
