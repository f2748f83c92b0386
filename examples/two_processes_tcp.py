"""Two programs over TCP with mutual TLS: one takes orders, the other ships them and is killed half way.

    python examples/two_processes_tcp.py

The shipper keeps its state and the effects of its work in one SQLite file, and commits both in one transaction. So
the kill repeats nothing and loses nothing, although the connection breaks with it.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import sqlite3
import tempfile
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

from surepipe import MutualTls, PipeReceiver, PipeSender, TcpRoute
from surepipe.core.store_requests import Transaction
from surepipe.storage import SqliteStore, SqliteTransaction
from surepipe.testing.certificates import Authority

LAYERS = {
    "reliable": {"rto_max_s": 1}
}  # the first attempt after an outage is never further away than this
ORDERS = 2_000
KILL_AT = 700


def ship(port: int, folder: Path, tls: MutualTls, kill_at: int, told: Connection) -> None:
    """The other program: a row for each order, in the transaction that moves the receiver's state."""

    def handle(order: object, transaction: Transaction) -> None:
        assert isinstance(transaction, SqliteTransaction)
        transaction.connection.execute("INSERT INTO shipped VALUES (?)", (order,))
        if order == kill_at:
            signal.raise_signal(signal.SIGKILL)  # the effect is not committed yet

    route = TcpRoute.listen(f"127.0.0.1:{port}", security=tls)
    with (
        closing(SqliteStore(folder / "shipped.db")) as store,
        PipeReceiver("orders", LAYERS, route=route, state=store, boundary="committed") as receiver,
    ):
        receiver.receive(handle)
        told.send("ready")
        signal.pause()


def main() -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = Authority(folder, "shop")
        ours, theirs = (
            MutualTls(files.cert, files.key, authority.ca)
            for files in (authority.sign("counter"), authority.sign("shipping"))
        )
        with closing(sqlite3.connect(folder / "shipped.db")) as file:
            file.execute("CREATE TABLE shipped (number INTEGER)")
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port: int = free.getsockname()[1]

        told, tell = context.Pipe(duplex=False)
        first = context.Process(target=ship, args=(port, folder, theirs, KILL_AT, tell))
        first.start()
        with (
            closing(SqliteStore(folder / "counter.db")) as journal,
            PipeSender(
                "orders",
                LAYERS,
                route=TcpRoute.connect(f"127.0.0.1:{port}", security=ours),
                journal=journal,
            ) as sender,
        ):
            print(sender.guarantee)
            sender.send_many(range(1, ORDERS + 1))
            first.join()
            print(f"the shipping program was killed at order {KILL_AT}: exit code {first.exitcode}")
            second = context.Process(target=ship, args=(port, folder, theirs, 0, tell))
            second.start()
            sender.flush(60)
        second.terminate()
        second.join()
        told.close()
        with closing(sqlite3.connect(folder / "shipped.db")) as file:
            shipped = [row[0] for row in file.execute("SELECT number FROM shipped ORDER BY rowid")]
        assert shipped == list(range(1, ORDERS + 1)), "lost, repeated or out of order"
        print(f"{len(shipped)} orders shipped: 0 lost, 0 repeated, in order")


if __name__ == "__main__":
    main()
