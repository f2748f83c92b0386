"""What lanes cost a handler that does nothing, and what they give to one that waits: with and without, in one run.

    python benchmarks/lanes.py            three tables, in about half a minute
    python benchmarks/lanes.py --quick    a fifth of the messages

The same messages go through ``Pipe`` with the default layer, with lanes and without, one after the other in each
round; *times* compares within a round. *cheap* counts messages; *waiting* sleeps a millisecond for each, as a
handler that asks a database does. Keys come in turn, or all are one and the same, which no lane can help.
The last table is the wait of one message that fails once (``retry_min_s=0.05``) for its second attempt, while 50
keys have 4,000 others.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from rich.console import Console
from rich.table import Table

from surepipe import Pipe

ROUNDS = 3
WAIT_S = 0.001
Make = Callable[[str], Pipe]


def first_bytes(message: bytes) -> bytes:
    """The key of a message."""
    return message[:4]


@dataclass(frozen=True)
class Row:
    """One way to set up the pipe, and how many keys the messages have."""

    name: str
    keys: int
    make: Make


def plain(name: str) -> Pipe:
    return Pipe(name)


def with_lanes(lanes: int) -> Make:
    return lambda name: Pipe(name, key=first_bytes, lanes=lanes)


CHEAP = (
    Row("no lanes", 1_000, plain),
    Row("1 lane, 1000 keys", 1_000, with_lanes(1)),
    Row("4 lanes, 1000 keys", 1_000, with_lanes(4)),
    Row("16 lanes, 1000 keys", 1_000, with_lanes(16)),
    Row("4 lanes, 1 key", 1, with_lanes(4)),
)
WAITING = (
    Row("no lanes", 100, plain),
    Row("4 lanes, 100 keys", 100, with_lanes(4)),
    Row("16 lanes, 100 keys", 100, with_lanes(16)),
    Row("16 lanes, 4 keys", 4, with_lanes(16)),
)


def rate_of(row: Row, count: int, wait_s: float) -> float:
    """Messages a second, from the first send until the last is confirmed."""
    messages = [f"{number % row.keys:04}{'x' * 96}".encode() for number in range(count)]
    handled, lock = [0], threading.Lock()

    def handle(message: bytes) -> None:
        del message
        if wait_s:
            time.sleep(wait_s)
        with lock:
            handled[0] += 1

    with row.make("bench") as pipe:
        pipe.receive(handle)  # type: ignore[arg-type]  # the messages of this pipe are bytes
        start = time.perf_counter()
        pipe.send_many(messages)
        pipe.flush(120)
        seconds = time.perf_counter() - start
    assert handled[0] == count
    return count / seconds


def measured(rows: Sequence[Row], count: int, wait_s: float) -> list[list[float]]:
    """A list of rates for each round, all rows in each."""
    return [[rate_of(row, count, wait_s) for row in rows] for _ in range(ROUNDS)]


def show(title: str, rows: Sequence[Row], rounds: list[list[float]]) -> None:
    """Medians, and how a row compares with the first within a round."""
    table = Table("", "messages/s", "times", title=title)
    for at, row in enumerate(rows):
        rate = statistics.median(map(itemgetter(at), rounds))
        times = statistics.median(each[at] / each[0] for each in rounds)
        table.add_row(row.name, f"{rate:,.0f}", f"{times:.2f}")
    Console().print(table)


def second_attempt_s(lanes: int, wait_s: float, count: int) -> float:
    """How long after its first attempt a message gets its second, in the middle of all others."""
    attempts: list[float] = []

    def handle(message: object) -> None:
        if message == 10:
            attempts.append(time.perf_counter())
            if len(attempts) == 1:
                raise ValueError("once")
        if wait_s:
            time.sleep(wait_s)

    make = partial(Pipe, retry_min_s=0.05)
    pipe = make("bench", key=lambda message: message % 50, lanes=lanes) if lanes else make("bench")
    with pipe:
        pipe.receive(handle)
        for number in range(count):
            pipe.send(number)
        pipe.flush()
    return attempts[1] - attempts[0]


def show_retries(count: int) -> None:
    """The wait for a second attempt, by the number of lanes and by how long a handler takes."""
    waits = (0.0, 0.001, 0.005)
    table = Table(title="seconds to the second attempt")
    table.add_column("lanes")
    for wait_s in waits:
        table.add_column(f"handler {wait_s * 1000:.0f} ms", justify="right")
    for lanes in (0, 1, 4, 8):
        took = [f"{second_attempt_s(lanes, wait_s, count):.2f}" for wait_s in waits]
        table.add_row(str(lanes or "none"), *took)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages")
    part = 5 if parser.parse_args().quick else 1
    show("cheap handler", CHEAP, measured(CHEAP, 100_000 // part, 0))
    show("handler that waits 1 ms", WAITING, measured(WAITING, 2_000 // part, WAIT_S))
    show_retries(4_000 // part)


if __name__ == "__main__":
    main()
