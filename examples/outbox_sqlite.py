"""An outbox with an exactly-once effect, all in one SQLite file.

Orders are accepted into a journal and booked by a handler that writes through the transaction it is given. The
receiver is killed half way, and the program then starts again over the same file: each order is booked once.
"""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from surepipe import Pipe
from surepipe.storage import SqliteStore, SqliteTransaction

ORDERS = 200


def book(order: object, transaction: SqliteTransaction) -> None:
    """The effect. It is stored together with "this order is done", or not at all."""
    transaction.connection.execute("INSERT INTO bookings VALUES (?)", (order,))


def run(path: Path, orders: range, *, crash: bool) -> None:
    """One run of the program: its pipe goes on where the one before stopped."""
    with (
        SqliteStore(path) as store,
        Pipe("orders", journal=store, state=store, boundary="committed") as pipe,
    ):
        pipe.receive(book)
        pipe.send_many(
            orders
        )  # returns when the journal has them: from here on nothing can lose them
        if crash:
            pipe.receiver.crash()
        else:
            print(pipe.guarantee.headline)


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "shop.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookings (number INTEGER)")
    run(path, range(ORDERS // 2), crash=True)
    run(path, range(ORDERS // 2, ORDERS), crash=False)
    with closing(sqlite3.connect(path)) as connection:
        booked = [row[0] for row in connection.execute("SELECT number FROM bookings")]
assert booked == list(range(ORDERS))
print(f"{len(booked)} orders booked, each once and in order, with a crash in between")
