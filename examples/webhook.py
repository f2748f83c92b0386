"""A web hook in, a file out: whoever posts gets 200 when the message can't be lost any more.

A server takes orders by POST into a journal, and a file has each order once. The pipeline runs in a thread here,
so that the program can be its own client.
"""

import json
import os
import socket
import tempfile
import threading
import urllib.request
from pathlib import Path

from surepipe.pipelines import loads
from surepipe.pipelines.run import run

PIPELINE = """
version: 1
name: hook
stores: {main: {kind: sqlite, path: hook.db}}
sources: {orders: {kind: http, listen: "127.0.0.1:${HOOK_PORT}", path: /orders}}
pipes: {intake: {from: orders, journal: main, state: main, boundary: committed}}
sinks: {out: {from: intake, kind: jsonl, path: orders.jsonl}}
"""
ORDERS = 50


def post(port: int, order: object) -> int:
    """Send an order and wait until it is accepted."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/orders", json.dumps(order).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        status: int = answer.status
        return status


def wait_for(port: int, patience: threading.Event) -> None:
    """Until somebody listens there."""
    while True:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        patience.wait(0.01)


def main() -> None:
    """Serve, post, stop, and look at the file."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as one:
        os.chdir(folder)
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        one.close()
        os.environ["HOOK_PORT"] = str(port)
        enough = threading.Event()
        plan = loads(PIPELINE)
        server = threading.Thread(target=lambda: run(plan, stop_when=enough.is_set))
        server.start()
        wait_for(port, threading.Event())
        answers = [post(port, {"order": number}) for number in range(ORDERS)]
        enough.set()
        server.join()
        lines = [json.loads(line) for line in Path("orders.jsonl").read_text().splitlines()]
        os.chdir("/")
    assert answers == [200] * ORDERS
    assert lines == [{"order": number} for number in range(ORDERS)]
    print(f"{len(lines)} orders posted, each in the file once and in order")


if __name__ == "__main__":
    main()
