"""The programs of the kill tests over TCP: a sender with a journal, a receiver whose effects and state are one."""

from __future__ import annotations

import signal
from contextlib import closing
from multiprocessing.connection import Connection

from surepipe import Listener, PipeReceiver, PipeSender, SharedKey, TcpRoute
from surepipe.actors.channels.channel import ChannelFace
from surepipe.core.store_requests import Transaction
from surepipe.storage import Level, SqliteStore, SqliteTransaction

KEY = SharedKey("both processes of the kill tests know this")
LAYERS = {"reliable": {"rto_initial_s": 0.1, "rto_min_s": 0.02, "rto_max_s": 0.3}}
EFFECTS = "effects"


def send(port: int, journal: str, life: int, reports: Connection) -> None:
    """Send messages that are like no others, and report each when it was accepted, until killed."""
    route = TcpRoute.connect(f"127.0.0.1:{port}", security=KEY)
    with (
        closing(SqliteStore(journal, level=Level.PROCESS)) as store,
        PipeSender("orders", LAYERS, route=route, journal=store) as sender,
    ):
        number = 0
        while True:
            sender.send([life, number])
            reports.send([life, number])
            number += 1


def receive(port: int, effects: str, reports: Connection) -> None:
    """Make an effect of each message in the transaction that moves the receiver's state."""
    route = TcpRoute.listen(f"127.0.0.1:{port}", security=KEY)
    with (
        closing(SqliteStore(effects, level=Level.PROCESS)) as store,
        PipeReceiver("orders", LAYERS, route=route, state=store, boundary="committed") as receiver,
    ):
        receiver.receive(put_row)
        reports.send("ready")
        signal.pause()


def listen(port: int, reports: Connection) -> None:
    """Report when a channel comes in, in the middle of its handshake, and each message."""
    route = TcpRoute.listen(f"127.0.0.1:{port}", security=KEY)

    def accept(channel: ChannelFace) -> None:
        channel.receive(reports.send)
        reports.send("coming in")

    with Listener(route, names=["orders"], accept=accept, layers=LAYERS):
        signal.pause()


def put_row(message: object, transaction: Transaction) -> None:
    """The effect of a message: a row."""
    assert isinstance(transaction, SqliteTransaction)
    transaction.connection.execute(f"CREATE TABLE IF NOT EXISTS {EFFECTS} (message TEXT)")
    transaction.connection.execute(f"INSERT INTO {EFFECTS} VALUES (?)", (repr(message),))
