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


async def take(order: object) -> None:
    """A handler that is a coroutine."""
    del order


async def book_later(order: object, transaction: SqliteTransaction) -> None:
    """One with a transaction."""
    transaction.connection.execute("INSERT INTO bookings VALUES (?)", (order,))


async def answer(message: object, reply: surepipe.Reply) -> None:
    """One that answers."""
    await reply.send(message)


async def asynchronous(store: SqliteStore) -> None:
    """The async faces."""
    async with surepipe.Pipe("orders", key="customer", lanes=8) as pipe:
        assert_type(pipe, surepipe.AsyncPipe)
        pipe.receive(take)
        await pipe.send({"order": 1}, timeout=1)
        assert_type(await pipe.send_many([1, 2]), int)
        await pipe.flush()
        assert_type(pipe.sync.guarantee.of_one_key.order_text, str)
        assert_type([message async for message in pipe], list[object])
    async with surepipe.Pipe("orders", state=store, boundary="committed") as pipe:
        pipe.receive(book_later)
    async with surepipe.StreamSender("orders", store=store) as sender:
        assert_type(sender, surepipe.AsyncSender)
        replayed = await sender.replay(DeadLetterStream(store, "orders/dead"))
        assert_type(replayed.exactly_once, bool)
    async with surepipe.StreamReceiver("orders", "stream", store=store) as reader:
        assert_type(await reader.catch_up(timeout=1), bool)
        await reader.finish()
    async with surepipe.Channel("rpc", route=surepipe.LocalRoute()) as channel:
        channel.receive(answer)
        assert_type(await channel.wait_up(), bool)


def layers_as_values() -> None:
    """Values, names and mappings in one list; the stores and the errors beside the pipe."""
    layers = [surepipe.ContinuousIndex(), surepipe.MultiUnconfirmed(window=512)]
    assert_type(layers[1].run_max, int)
    surepipe.Pipe("orders", layers, store=None, journal=surepipe.SqliteStore("orders.db"))
    mixed: list[surepipe.LayerText] = ["continuous-index", {"resend": {"run_max": 1}}]
    surepipe.PipeSender("orders", mixed, route=surepipe.LocalRoute(), frames_max=16)
    try:
        surepipe.Pipe("orders", surepipe.Reliable())
    except (surepipe.StoreUnavailable, surepipe.Fenced, surepipe.StoreReset) as error:
        assert_type(str(error), str)
