"""What it costs to look at a pipe: each way of looking beside none, in turns, in one run.

    python -m benchmarks.observing            half a minute

One pipe over a local route, both ends in this process. ``many``: messages are sent in lists, so runs are long;
``single``: each by a call of its own. What counts is the processor time of the whole process for a message; a
ratio of 1.00 costs nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import TypeAlias

from opentelemetry.sdk.trace import TracerProvider

from surepipe import Pipe
from surepipe.actors.tracing import TraceSink
from surepipe.observe import Latencies
from surepipe.observe.spans import Spans
from surepipe.observe.watch import Watch, pipes_of

MESSAGES = {"many": 400_000, "single": 60_000}
ROUNDS = 7
WAYS = (
    "none",
    "latencies",
    "latencies, and a status 10 times a second",
    "spans of 1 in 1000",
    "spans of 1 in 100",
)
Made: TypeAlias = tuple[TraceSink | None, Latencies | None]


def made(way: str) -> Made:
    """What a pipe gets as its trace."""
    if way == "none":
        return None, None
    if way.startswith("latencies"):
        latencies = Latencies()
        return latencies, latencies
    every = int(way.rpartition(" ")[2])
    return Spans(TracerProvider().get_tracer("bench"), every=every), None


def nothing(message: object) -> None:
    """The handler."""
    del message


def run(load: str, way: str) -> float:
    """Microseconds of processor time for a message, from the first sent to the last confirmed."""
    count = MESSAGES[load]
    trace, latencies = made(way)
    with ExitStack() as held:
        pipe = held.enter_context(Pipe("bench", trace=trace))
        pipe.receive(nothing)
        ask: Callable[[], object] = nothing_to_ask
        if way.endswith("second"):
            watch = Watch("b", pipes_of([pipe]), lambda: {"bench": pipe.counters()}, latencies)
            ask = watch.status
        return sent(pipe, load, count, ask)


def nothing_to_ask() -> None:
    """Nobody looks."""


def sent(pipe: Pipe, load: str, count: int, ask: Callable[[], object]) -> float:
    """Send, and look every tenth of a second."""
    began, asked = time.process_time(), time.perf_counter()
    step = 1_000 if load == "many" else 100
    payloads = [b"0123456789"] * step
    for _ in range(count // step):
        if load == "many":
            pipe.send_many(payloads)
        else:
            for payload in payloads:
                pipe.send(payload)
        now = time.perf_counter()
        if now - asked > 0.1:
            asked = now
            ask()
    pipe.flush(60)
    return (time.process_time() - began) * 1_000_000 / count


def main() -> int:
    """Print a table for each load."""
    for load, count in MESSAGES.items():
        rounds = [{way: run(load, way) for way in WAYS} for _ in range(ROUNDS)]
        print(f"{load}: {count} messages, {ROUNDS} rounds")
        for way in WAYS:
            cost = median(one[way] for one in rounds)
            ratio = median(one[way] / one["none"] for one in rounds)
            print(f"  {way:<42} {cost:6.2f} us a message   ratio {ratio:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
