"""What each worker does with a message. It is the same for every system, and needs only the standard library.

A message is 100 characters: its number in ten digits, the number of the last one of its series in ten digits, and
filling. Number 0 only asks whether a worker is there. What is done with the others depends on the environment:

- ``speed``: count, and write down the time when all of a series have been handled;
- ``record``: append the number to a file, which is the effect, after a millisecond of work. The worker may be told
  to stand still in the middle of one message, so that it can be killed there.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Payload: TypeAlias = str | bytes

DIGITS = 10
SIZE = 100
LINE = DIGITS + 1
WORK_S = 0.001
FOLDER = "SUREPIPE_PEERS_FOLDER"
MODE = "SUREPIPE_PEERS_MODE"
STOP = "SUREPIPE_PEERS_STOP"
URL = "SUREPIPE_PEERS_URL"


def message(number: int, last: int) -> str:
    """One message of a series."""
    return f"{number:0{DIGITS}}{last:0{DIGITS}}".ljust(SIZE, "x")


def put(path: Path, text: str) -> None:
    """Write a small file so that nobody sees half of it."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


class Counting:
    """Counts the messages of a series, in any order; ``done`` tells when the last of them was handled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.target = 0
        self.lock = threading.Lock()

    def __call__(self, payload: Payload) -> None:
        """Handle one message."""
        is_last = payload[:DIGITS] == payload[DIGITS : 2 * DIGITS]
        if is_last and not int(payload[:DIGITS]):
            put(self.folder / "warm", "")
            return
        with self.lock:
            if is_last:
                self.target = int(payload[:DIGITS])
            self.count += 1
            if self.count == self.target:
                self.count = self.target = 0
                put(self.folder / "done", repr(time.monotonic()))


class Recording:
    """Appends each number to ``effects``; stands still where it is told to, once ``reached`` is written.

    ``stop`` is a moment and a count, such as ``after:737``: in the handler of the 737th message, after its effect.
    ``running`` does not stand still: it only says when it is time.
    """

    def __init__(self, folder: Path, stop: str) -> None:
        self.folder = folder
        self.moment, _, at = stop.partition(":")
        self.at = int(at or 0)
        self.counter = itertools.count(1)
        self.file = os.open(folder / "effects", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def __call__(self, payload: Payload) -> None:
        """Handle one message."""
        number = int(payload[:DIGITS])
        if not number:
            put(self.folder / "warm", "")
            return
        time.sleep(WORK_S)
        count = next(self.counter)
        self._pass("before", count)
        os.write(self.file, b"%0*d\n" % (DIGITS, number))
        self._pass("after", count)
        self._pass("running", count)

    def _pass(self, moment: str, count: int) -> None:
        if count != self.at or self.moment != moment:
            return
        put(self.folder / "reached", "")
        if moment != "running":
            threading.Event().wait()


def told_to_end() -> Callable[[], bool]:
    """Whether SIGTERM came, for the workers that are written here; the others do the same in their own way."""
    told = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        del number, frame
        told.set()

    signal.signal(signal.SIGTERM, on_signal)
    return told.is_set


def handler() -> Callable[[Payload], None]:
    """What the environment asks for."""
    folder = Path(os.environ[FOLDER])
    if os.environ[MODE] == "speed":
        return Counting(folder)
    return Recording(folder, os.environ.get(STOP, ""))
