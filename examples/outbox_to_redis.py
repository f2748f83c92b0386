"""From one service to another over Redis, with an exactly-once effect in the second one's SQLite.

The shop accepts orders into a journal in its own SQLite file; they travel through a stream in Redis; the warehouse
books each in a transaction of its SQLite file that also stores how far it has come. Whatever
crashes, no booking is lost or repeated: the warehouse is stopped half way here, and started again.

Needs a Redis: name it in REDIS_URL, or have redis-server on the path.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from surepipe.pipelines import assess, loads
from surepipe.pipelines.run import run
from surepipe.pipelines.stages import Context
from surepipe.storage import SqliteStore, SqliteTransaction
from surepipe.testing.servers import local_servers

PIPELINE = """
version: 1
name: outbox
expect:
  delivery: exactly-once
  order: absolute
  tolerates: [process-crash, bad-stage, host-power-loss]
stores:
  shop: {kind: sqlite, path: shop.db}
  road: {kind: redis, url: "${REDIS_URL}", durability: power}
  books: {kind: sqlite, path: books.db}
sources: {orders: {kind: jsonl, path: orders.jsonl, node: shop}}
pipes:
  orders-road:
    from: orders
    node: warehouse
    route: {kind: redis, store: road}
    journal: shop
    state: books
    boundary: committed
sinks: {table: {from: orders-road, kind: python, call: "outbox_to_redis:book"}}
"""
ORDERS = 400
booked_here: list[int] = []


def book(order: Mapping[str, int], context: Context) -> None:
    """The effect: stored together with "this order is done", or not at all."""
    connection = cast("SqliteTransaction", context.transaction).connection
    connection.execute("CREATE TABLE IF NOT EXISTS booked (number INTEGER)")
    connection.execute("INSERT INTO booked VALUES (?)", (order["number"],))
    booked_here.append(order["number"])


def main() -> None:
    """The shop, then the warehouse in two lives."""
    sys.modules.setdefault("outbox_to_redis", sys.modules[__name__])
    with ExitStack() as held:
        if "REDIS_URL" not in os.environ:
            server = held.enter_context(
                local_servers()[0].server(appendonly="yes", appendfsync="always")
            )
            os.environ["REDIS_URL"] = server.url
        os.chdir(held.enter_context(tempfile.TemporaryDirectory()))
        held.callback(os.chdir, "/")
        Path("orders.jsonl").write_text(
            "".join(json.dumps({"number": n}) + "\n" for n in range(ORDERS))
        )
        plan = loads(PIPELINE)
        explanation = assess(plan).ways[0].explanation
        assert explanation is not None
        print(explanation.headline)
        run(plan, "shop")
        run(plan, "warehouse", once=True, stop_when=lambda: len(booked_here) > ORDERS // 2)
        run(plan, "warehouse", once=True)
        with SqliteStore("books.db") as store, store.transaction() as transaction:
            rows = transaction.connection.execute("SELECT number FROM booked").fetchall()
    assert [row[0] for row in rows] == list(range(ORDERS))
    print(f"{len(rows)} orders booked, each once and in order")


if __name__ == "__main__":
    main()
