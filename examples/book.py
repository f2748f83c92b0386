"""Calls to the APIs of many tenants: fair, within a budget, with what is too heavy set aside."""

from __future__ import annotations

import tempfile
from pathlib import Path

from surepipe.queues.book import BookConfig, BookMessage, BookQueue, Budget, Context, Cost
from surepipe.storage import SqliteStore


def call_api(message: BookMessage, context: Context) -> None:
    """The call itself would be here. What is staged is stored with the end of the message, or not at all."""
    context.append("calls", f"{message.origin}: {message.payload.decode()}".encode())


def cost(payload: bytes) -> Cost:
    """Units of the tenant's rate limit: one, and one more for each ten bytes."""
    return Cost(units=1 + len(payload) // 10)


config = BookConfig(
    quantum=2, period_budget=Budget(units=100), idle_budget=None, max_message_cost=Budget(units=20)
)

with (
    tempfile.TemporaryDirectory() as folder,
    SqliteStore(Path(folder) / "calls.db") as store,
    BookQueue.inline("calls", store=store, processor=call_api, cost=cost, config=config) as book,
):
    book.enqueue_many("loud", [b"get /items"] * 1_000)
    book.enqueue("quiet", b"get /me")
    book.enqueue("giant", b"x" * 500)
    ran = book.service(Budget(units=10)).ran
    print(f"{ran} calls made, {book.footprint('quiet').messages} of the quiet tenant wait")
    for parked in book.parked():
        print(f"{parked.origin} is parked: {parked.reason.value}, it costs {parked.cost[2]} units")
        print("by hand:", book.execute(parked.address).why.value)
