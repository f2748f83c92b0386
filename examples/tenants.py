"""Calls to the APIs of many tenants: twenty units in each tenth of a second, fair, with the giants set aside."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from surepipe import ServedBook
from surepipe.queues.book import BookConfig, BookMessage, Budget, Context, Cost

called: list[str] = []


async def call_api(message: BookMessage, context: Context) -> None:
    """The call itself would be here. What is staged is stored with the end of the message, or not at all."""
    context.put(f"{message.origin}/last", message.payload)
    called.append(message.origin)


def cost(payload: bytes) -> Cost:
    """Units of the rate limit: one, and one more for each thousand bytes."""
    return Cost(units=1 + len(payload) // 1_000)


def show(book: ServedBook) -> None:
    """The ring, its head first: who waits, and for how much."""
    for origin in book.ring():
        foot = book.footprint(origin)
        print(f"  {origin:8} {foot.messages - foot.parked:4} wait, {foot.parked} parked")


config = BookConfig(
    quantum=2,
    period_s=0.1,
    period_budget=Budget(units=20),
    idle_budget=None,  # so the budget is one for all processes of the book
    max_message_cost=Budget(units=5),
)

with (
    tempfile.TemporaryDirectory() as folder,
    ServedBook(
        "calls",
        store=f"sqlite:///{Path(folder) / 'calls.db'}",
        processor=call_api,
        cost=cost,
        config=config,
        workers=4,
        start=False,
    ) as calls,
):
    calls.enqueue_many("loud", [b"get /items"] * 60)
    for tenant in ("ada", "bob", "cyd"):
        calls.enqueue_many(tenant, [b"get /me"] * 2)
    calls.enqueue("giant", b"x" * 50_000)
    calls.set_weight("ada", 2)
    print("the ring:")
    show(calls)
    calls.start()
    calls.wait_until_idle(timeout=30)
    shares = Counter(called[:20])
    quiet = sum(shares[tenant] for tenant in ("ada", "bob", "cyd"))
    print(f"{quiet} of the first 20 calls were for the 6 messages of quiet tenants")
    for parked in calls.parked():
        print(f"{parked.origin} is parked: {parked.reason.value}, it costs {parked.cost[2]} units")
        calls.discard(parked.address, "too large for this API")
    print(f"{calls.totals()['done']} calls made, {calls.totals()['discarded']} given up")
