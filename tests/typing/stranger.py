"""The public API as a user of the wheel writes it: type-checked, never run."""

from __future__ import annotations

from typing import assert_type

import surepipe
from surepipe.storage import DeadLetterStream, SqliteStore, SqliteTransaction

assert_type(surepipe.__version__, str)


def book(order: object, transaction: SqliteTransaction) -> None:
    """A handler with a transaction."""
    transaction.connection.execute("INSERT INTO bookings VALUES (?)", (order,))


def outbox(store: SqliteStore) -> None:
    """Journal, state, effects and letters in one store."""
    with surepipe.Pipe(
        "orders", journal=store, state=store, boundary="committed", retries=3, dead_letter=store
    ) as pipe:
        pipe.receive(book)
        pipe.send({"order": 1}, until="confirmed")
        assert_type(pipe.replay(DeadLetterStream(store, "orders/dead")).exactly_once, bool)


def stream(store: SqliteStore) -> None:
    """The two ends of a stream pipe."""
    with surepipe.StreamSender("orders", store=store) as sender:
        sender.send(1)
    with surepipe.StreamReceiver("orders", {"stream": {"start": "earliest"}}, store=store) as end:
        end.receive(print)
        assert_type(end.catch_up(timeout=1), bool)


def lanes() -> None:
    """Order within a key."""
    with surepipe.Pipe("orders", key=lambda order: order["customer"], lanes=8) as pipe:
        pipe.receive(print)
        assert_type([lease.held_s for lease in pipe.leases()], list[float])
        assert_type(pipe.guarantee.of_one_key.order_text, str)
