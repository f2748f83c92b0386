"""What a sender waits for when its store is busy with somebody else, or does not answer at all.

    python -m benchmarks.busy_stores                 a minute and a half; needs redis-server

One file: a receiver in a process of its own books a backlog in transactions (boundary ``committed``, 1 ms of work
a message); beside it a sender with journal and stream in the same file sends, and a stranger writes to a table of
its own by plain sqlite3. Hung: a sender with its journal in SQLite and its stream on a Redis that is stopped by
SIGSTOP meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from surepipe import PipeFull, StreamReceiver, StreamSender
from surepipe.errors import StoreUnavailable
from surepipe.storage import RedisStore, SqliteStore, SqliteTransaction

BACKLOG = 60_000
WORK_S = 0.001
PAUSE_S = 0.005


def book(path: str) -> None:
    """The receiver: books until its standard input ends, then says how many it has booked."""
    booked = 0

    def handle(message: object, transaction: SqliteTransaction) -> None:
        nonlocal booked
        time.sleep(WORK_S)
        transaction.connection.execute("INSERT INTO bookings VALUES (?)", (str(message),))
        booked += 1

    with (
        SqliteStore(path) as store,
        StreamReceiver(
            "orders", {"stream": {"start": "earliest"}}, store=store, boundary="committed"
        ) as receiver,
    ):
        receiver.receive(handle)
        print("ready", flush=True)
        sys.stdin.read()
        print(booked, flush=True)
        os._exit(0)


def timed(act: Callable[[], object], seconds: float) -> tuple[list[float], int]:
    """Do it again and again; the times in milliseconds, sorted, and how often it was refused."""
    times: list[float] = []
    refused = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        try:
            act()
        except (sqlite3.OperationalError, PipeFull):
            refused += 1
        times.append(1e3 * (time.perf_counter() - began))
        time.sleep(PAUSE_S)
    return sorted(times), refused


def show(what: str, times: list[float], refused: int) -> None:
    """One line of figures."""
    p50, p99 = (times[int(part * (len(times) - 1))] for part in (0.5, 0.99))
    print(
        f"  {what:36} {len(times):6} calls, {refused} refused; "
        f"p50 {p50:.1f}, p99 {p99:.1f}, max {times[-1]:.1f} ms",
        flush=True,
    )


def one_file(folder: Path, seconds: float) -> None:
    """Sender, stranger and receiver on one file."""
    path = str(folder / "shop.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookings (message)")
        connection.execute("CREATE TABLE visits (at)")
    connection.close()
    with SqliteStore(path) as store, StreamSender("orders", store=store) as sender:
        sender.send_many(range(BACKLOG))
    receiver = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.busy_stores", "--book", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert receiver.stdin
    assert receiver.stdout
    receiver.stdout.readline()
    began = time.perf_counter()
    with SqliteStore(path) as store:
        sender, refused = _opened(store)
        print(
            f"  opened after {1e3 * (time.perf_counter() - began):.1f} ms, refused {refused} times"
        )
        visits = threading.Thread(target=visit, args=(path, seconds))
        visits.start()
        show("a sender's send", *timed(lambda: sender.send("late"), seconds))
        visits.join()
        receiver.stdin.close()
        booked = int(receiver.stdout.readline())
        print(f"  the receiver booked {booked / (time.perf_counter() - began):,.0f} a second")
        receiver.kill()
        receiver.wait()
        sender.close(30)


def _opened(store: SqliteStore) -> tuple[StreamSender, int]:
    for refused in itertools.count():
        try:
            return StreamSender("orders", store=store, journal=store), refused
        except StoreUnavailable:
            continue
    raise AssertionError


def visit(path: str, seconds: float) -> None:
    """The stranger."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=5)
    found = timed(lambda: connection.execute("INSERT INTO visits VALUES (1)"), seconds)
    connection.close()
    show("a stranger's insert, timeout 5 s", *found)


def hung_store(folder: Path, seconds: float) -> None:
    """A journal in SQLite before a stream on a server that stands still."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--dir", str(folder), "--save", ""]
    durable = ["--appendonly", "yes", "--appendfsync", "always"]
    server = subprocess.Popen(["redis-server", *options, *durable], stdout=subprocess.DEVNULL)
    stream = RedisStore.from_url(f"redis://127.0.0.1:{port}/0", pipeline="orders")
    try:
        while not _answers(port):
            time.sleep(0.05)
        with SqliteStore(folder / "journal.db") as journal:
            sender = StreamSender("orders", store=stream, journal=journal)
            send = _sends(sender, seconds)
            show("a sender's send, Redis answers", *timed(send, seconds))
            server.send_signal(signal.SIGSTOP)
            show("a sender's send, Redis stands still", *timed(send, seconds))
            server.send_signal(signal.SIGCONT)
            began = time.perf_counter()
            sender.flush(60)
            print(f"  all confirmed {time.perf_counter() - began:.2f} s after it went on")
            sender.close(30)
    finally:
        server.send_signal(signal.SIGCONT)
        server.terminate()
        server.wait()
        stream.close()


def _sends(sender: StreamSender, seconds: float) -> Callable[[], None]:
    return lambda: sender.send("order", timeout=seconds)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--book", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.book:
        book(options.book)
        return
    for what, measure in (("one file", one_file), ("a hung store", hung_store)):
        print(what)
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), options.seconds)


if __name__ == "__main__":
    main()
