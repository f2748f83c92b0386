"""Each invariant of a book is found broken when it is, under its number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from surepipe.errors import ContractBroken
from surepipe.queues.book import check_invariants
from surepipe.queues.book.ledger import Book, Lease, Ledger
from surepipe.storage import MemoryStore
from tests.kit.book import BookUnderTest, changed_config


def _claimed_later(ledger: Ledger, book: Book) -> None:
    book.lease = Lease("w", 10_000, (1, 0))
    ledger.leased["w"] = {book.origin}


Break = Callable[[Ledger, Book, Book, Book], Any]
CONFIG = changed_config(page_bytes=16, suspend_pages=3, resume_pages=1, refuse_pages=9)
BREAKS: dict[str, Break] = {
    "BI-1 a page of the window is gone": lambda _l, a, _b, _c: a.pages.pop(1),
    "BI-1 a page lies behind the window": lambda _l, a, _b, _c: setattr(a, "end", 2),
    "BI-2 a ready queue is in no ring": lambda ledger, _a, _b, _c: ledger.ring.unknit("A"),
    "BI-2 an empty queue is in the ring": lambda ledger, _a, _b, _c: ledger.ring.knit("C"),
    "BI-3 the ring leads back elsewhere": lambda ledger, _a, _b, _c: ledger.ring._previous.update(  # pyright: ignore[reportPrivateUsage] - planted
        A="A"
    ),
    "BI-4 a window has no pages": lambda _l, _a, b, _c: b.pages.clear(),
    "BI-5 a page without a message is kept": lambda _l, a, _b, _c: a.pages[0].settle(0, 10),
    "BI-6 a message is counted twice": lambda _l, a, _b, _c: setattr(a, "messages", a.messages + 1),
    "BI-6 bytes are counted that are gone": lambda _l, _a, b, _c: setattr(b, "bytes", b.bytes + 1),
    "BI-7 a cursor stands in a later page": lambda _l, a, _b, _c: a.pages[2].pass_to(1, 15),
    "BI-7 what is ahead is processed": lambda _l, _a, b, _c: b.pages[2].settle(1, 2),
    "BI-8 a heap is cut off": lambda _l, _a, b, _c: b.pages[2].heap.pop(),
    "BI-8 a page is too full": lambda _l, _a, b, _c: setattr(b.pages[2], "page_bytes", 4),
    "BI-9 a page was left too early": lambda _l, a, _b, _c: setattr(a.pages[1], "page_bytes", 99),
    "BI-10 what is parked is listed nowhere": lambda _l, a, _b, _c: a.parked.clear(),
    "BI-11 a message came to no end": lambda ledger, _a, _b, _c: ledger.totals.update(done=4),
    "BI-11 queued are others": lambda ledger, _a, _b, _c: ledger.totals.update(queued=5),
    "BI-13 a claim is listed nowhere": lambda _l, a, _b, _c: setattr(
        a, "lease", Lease("w", 1, (1, 0))
    ),
    "BI-13 a claim has no entry": lambda ledger, a, _b, _c: _claimed_later(ledger, a),
    "BI-14 it is told to wait for nothing": lambda _l, _a, b, _c: setattr(b, "suspended", True),
    "BI-15 a deficit is a debt": lambda _l, a, _b, _c: setattr(a, "deficit", -1),
    "BI-15 an empty queue saves": lambda _l, _a, _b, c: setattr(c, "deficit", 1),
    "BI-16 it is tried too often": lambda _l, a, _b, _c: setattr(a, "attempts", 99),
    "BI-18 a generation leads elsewhere": lambda ledger, a, _b, _c: ledger.generations.update(
        {a.generation: "B"}
    ),
    "BI-19 an empty queue stays": lambda ledger, _a, _b, _c: ledger.idle.clear(),
    "BI-19 a queue that holds messages goes": lambda ledger, _a, _b, _c: ledger.idle.update(A=0),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_invariant_is_told_by_its_number(what: str) -> None:
    """BI-1 to BI-11, BI-13 to BI-16, BI-18, BI-19: A has a stale page with a parked message and two
    pages ahead, B two messages, C none."""
    book = BookUnderTest(MemoryStore(), CONFIG)
    book.put(A="weight=500", B="b b1 b2 b3", C="c")
    book.svc()
    book.put(A="a-message5 a-message6", B="b4 b5")
    ledger = book.book.ledger
    BREAKS[what](ledger, *(ledger.books[origin] for origin in "ABC"))
    with pytest.raises(ContractBroken, match=f"{what.split(maxsplit=1)[0]}:"):
        check_invariants(book.book)
