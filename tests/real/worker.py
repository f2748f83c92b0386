"""A worker: a process that speaks JSON Lines and plays one part after the other, until it is told to or killed.

It reads an order (a line) from stdin, forks, and lets the child play the part; so a worker that is killed two
hundred times starts Python once. The child says what it does on stdout, each line whole or not at all, and
reads ``{"do": "stop"}`` itself. When it has ended the parent says how.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from typing import cast

from tests.real.parts import PARTS

Order = dict[str, object]


def lines() -> Iterator[Order]:
    """Orders from stdin, byte by byte: none may wait in a buffer when a child takes over."""
    held = b""
    while byte := os.read(0, 1):
        held += byte
        if byte == b"\n":
            yield cast("Order", json.loads(held))
            held = b""


def say(**what: object) -> None:
    """One line, short enough for the pipe to take it as a whole."""
    os.write(1, json.dumps(what).encode() + b"\n")


class Cue:
    """Whether the part shall end."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        next(lines(), None)
        self.stop.set()


def play(order: Order) -> None:
    """In the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1)
    say(say="started", pid=os.getpid())
    PARTS[str(order["part"])](order, say, Cue().stop)


def child_for(order: Order) -> int:
    """Fork; returns how the child ended: its exit status, or the negative number of a signal."""
    child = os.fork()
    if not child:
        status = 1
        try:
            play(order)
            status = 0
        except BaseException:  # noqa: BLE001 - the controller shows it
            say(say="failed", why=traceback.format_exc()[-3000:])
        os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    """One child after the other until stdin ends."""
    for order in lines():
        if order["do"] == "play":
            say(say="ended", status=child_for(order))


if __name__ == "__main__":
    main()
