"""The programs that the kill tests run as processes of their own: a sender and a receiver over one store."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

from surepipe import Pipe, StreamReceiver, StreamSender
from surepipe.core.store_requests import Transaction
from surepipe.storage import Level, RedisStore, RedisTransaction, SqliteStore, SqliteTransaction

NAME = "orders"
LAYERS = {"stream": {"start": "earliest", "rto_min_s": 0.01, "rto_initial_s": 0.2}}
QUICK = {"reliable": {"rto_min_s": 0.01, "rto_initial_s": 0.2}}
EFFECTS = "effects"


def open_store(where: str) -> SqliteStore | RedisStore:
    """The store that both processes share: a file, or a server by its URL."""
    if where.startswith("redis://"):
        return RedisStore.from_url(where, pipeline="kills")
    return SqliteStore(where, level=Level.PROCESS)


def send(where: str, life: int, reports: Connection) -> None:
    """Send messages that are like no others, and report each when it was accepted, until killed."""
    with (
        closing(open_store(where)) as store,
        StreamSender(NAME, LAYERS, store=store, journal=store) as sender,
    ):
        number = 0
        while True:
            sender.send([life, number])
            reports.send([life, number])
            number += 1


def receive_committed(where: str, reports: Connection) -> None:
    """Make an effect of each message, in the transaction that moves the position."""
    with (
        closing(open_store(where)) as store,
        StreamReceiver(NAME, LAYERS, store=store, boundary="committed") as receiver,
    ):
        take_effects(receiver, store)
        reports.send("ready")
        signal.pause()


def send_and_receive(where: str, life: int, reports: Connection) -> None:
    """Both ends in one process: send messages that are like no others, and make an effect of each."""
    with (
        closing(open_store(where)) as store,
        Pipe(NAME, QUICK, journal=store, state=store, boundary="committed") as pipe,
    ):
        take_effects(pipe, store)
        number = 0
        while True:
            pipe.send([life, number])
            reports.send([life, number])
            number += 1


def send_without_journal(where: str, reports: Connection) -> None:
    """Accept messages that nobody handles, and say when it is done."""
    with closing(open_store(where)) as store, Pipe(NAME, QUICK, state=store) as pipe:
        pipe.send_many(range(50))
        reports.send(str(pipe.guarantee.headline))
        signal.pause()


def take_effects(receiver: StreamReceiver | Pipe, store: SqliteStore | RedisStore) -> None:
    """Let the receiver put what arrives among the effects of the store."""
    if isinstance(store, SqliteStore):
        receiver.receive(_put_row)
    else:
        receiver.receive_many(_pusher(store.keys.own(EFFECTS)))


def _put_row(message: object, transaction: Transaction) -> None:
    assert isinstance(transaction, SqliteTransaction)
    transaction.connection.execute("INSERT INTO effects VALUES (?)", (str(message),))


def _pusher(key: str) -> Callable[[list[object], Transaction], None]:
    def push(messages: list[object], transaction: Transaction) -> None:
        assert isinstance(transaction, RedisTransaction)
        transaction.also("RPUSH", key, *map(str, messages), keys=[key])

    return push


def receive_processed(where: str, file: str, stop_at: int, reports: Connection) -> None:
    """Write each message to a file, at boundary ``processed``; stand still after so many."""
    handled = 0

    def handle(message: object) -> None:
        nonlocal handled
        with Path(file).open("a") as lines:
            lines.write(f"{message}\n")
        handled += 1
        if handled == stop_at:
            reports.send("standing")
            signal.pause()

    with (
        closing(open_store(where)) as store,
        StreamReceiver(NAME, LAYERS, store=store) as receiver,
    ):
        receiver.receive(handle)
        signal.pause()
