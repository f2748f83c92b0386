"""The process that sends: ``python -m benchmarks.peers.producing MODULE [COUNT]``.

Without a count it measures, and prints what it found as one line of JSON. With one it waits for a file ``go``,
sends so many messages, and then one that asks for nothing each second: some systems look for what a dead worker
left behind only while there is traffic. The module has ``producer()``, a context manager that gives a function
that sends payloads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

from benchmarks.peers.handling import FOLDER, URL, message, put
from benchmarks.peers.server import client_of

Send: TypeAlias = Callable[[Sequence[str]], None]

CHUNK = 500
COUNT_MAX = 400_000
PATIENCE_S = 90.0
SECONDS = "SUREPIPE_PEERS_SECONDS"
_NOT_COUNTED = {"cmdstat_info", "cmdstat_config|get", "cmdstat_client|setinfo"}


def commands(client: Any) -> int:
    """How many commands the server has executed, those inside scripts included."""
    stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
    return sum(found["calls"] for name, found in stats.items() if name not in _NOT_COUNTED)


def send_series(send: Send, count: int) -> None:
    """Messages 1 to ``count``."""
    for first in range(1, count + 1, CHUNK):
        stop = min(first + CHUNK, count + 1)
        send([message(number, count) for number in range(first, stop)])


def wake_worker(send: Send, folder: Path) -> None:
    """Return when a worker has handled a first message."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        send([message(0, 0)])
        for _ in range(50):
            if (folder / "warm").exists():
                return
            time.sleep(0.02)
    raise SystemExit("no worker came")


def wait_until_done(folder: Path) -> float:
    """When the last message was handled."""
    path = folder / "done"
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if path.exists():
            handled = float(path.read_text())
            path.unlink()
            return handled
        time.sleep(0.005)
    raise SystemExit("not all messages were handled")


def timed(send: Send, folder: Path, count: int) -> float:
    """Seconds from the first send to the last message handled."""
    begun = time.monotonic()
    send_series(send, count)
    return wait_until_done(folder) - begun


def measure(send: Send, folder: Path, seconds: float) -> dict[str, float]:
    """Series that grow until one takes long enough to say how many messages fill the time; then that one."""
    wake_worker(send, folder)
    count, took = 200, timed(send, folder, 200)
    while took < min(0.4, seconds) and count < COUNT_MAX:
        count = min(COUNT_MAX, count * (8 if took < 0.1 else 3))
        took = timed(send, folder, count)
    count = max(100, min(COUNT_MAX, round(count / took * seconds)))
    client = client_of(os.environ[URL])
    before = commands(client)
    took = timed(send, folder, count)
    executed = commands(client) - before
    return {
        "messages": count,
        "seconds": took,
        "rate": count / took,
        "commands_per_message": executed / count,
    }


def send_and_go_on(send: Send, folder: Path, count: int) -> None:
    """Until this process is ended."""
    wake_worker(send, folder)
    while not (folder / "go").exists():
        time.sleep(0.01)
    send_series(send, count)
    put(folder / "sent", "")
    while True:
        time.sleep(1)
        send([message(0, 0)])


def main() -> None:
    module: Any = import_module(sys.argv[1])
    folder = Path(os.environ[FOLDER])
    producer = cast("AbstractContextManager[Send]", module.producer())
    with producer as send:
        if len(sys.argv) > 2:
            send_and_go_on(send, folder, int(sys.argv[2]))
        print(json.dumps(measure(send, folder, float(os.environ.get(SECONDS, "5")))), flush=True)


if __name__ == "__main__":
    main()
