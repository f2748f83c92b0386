"""Two processes and a stream between them, in one SQLite file. They need not run at the same time.

    python examples/stream_two_processes.py                         both, one after the other, over a scratch file
    python examples/stream_two_processes.py send orders.db 5        send five orders
    python examples/stream_two_processes.py receive orders.db       take what is there, then stop

Over Redis it is the same: ``RedisStore.from_url(url, pipeline="shop")`` in place of ``SqliteStore(path)``.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from surepipe import StreamReceiver, StreamSender
from surepipe.storage import SqliteStore


def send(path: str, count: int) -> None:
    """The sending program: done when the file has every order."""
    with SqliteStore(path) as store, StreamSender("orders", store=store) as sender:
        sender.send_many({"order": number} for number in range(1, count + 1))
    print(f"sent {count} orders")


def receive(path: str) -> None:
    """The receiving program: goes on where the last one stopped. Without ``finish`` it would wait for more."""
    layers = {"stream": {"start": "earliest"}}
    with (
        SqliteStore(path) as store,
        StreamReceiver("orders", layers, store=store) as receiver,
    ):
        receiver.finish()
        print("received", list(receiver))


def run(*arguments: str) -> None:
    """This very file, as a program of its own."""
    print(">", " ".join(["python", Path(__file__).name, *arguments[:1]]), flush=True)
    subprocess.run([sys.executable, __file__, *arguments], check=True)


match sys.argv[1:]:
    case ["send", path, count]:
        send(path, int(count))
    case ["receive", path]:
        receive(path)
    case _:
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder, "orders.db"))
            run("send", file, "3")
            run("receive", file)
            run("receive", file)
