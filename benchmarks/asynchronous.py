"""Coroutine handlers and stages, and the async face: how long 40 waits of 50 ms take, and what a message costs.

    python -m benchmarks.asynchronous

An older surepipe without an async face is measured as far as it goes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import surepipe
from surepipe import Pipe
from surepipe.pipelines import load
from surepipe.pipelines.run import run

WAITS, WAIT_S, COUNT, ROUNDS = 40, 0.05, 50_000, 5
HAS_FACE = hasattr(surepipe, "AsyncPipe")
PAYLOAD = b"x" * 100
most_threads = 0


def seen_threads() -> None:
    """Note how many threads there are now."""
    global most_threads  # noqa: PLW0603 - the one figure that handlers note
    most_threads = max(most_threads, threading.active_count())


async def waits(message: object) -> object:
    seen_threads()
    await asyncio.sleep(WAIT_S)
    return message


def plain(message: object) -> object:
    return message


async def nothing(message: object) -> None:
    del message


def handled(lanes: int) -> None:
    """40 messages through a handler."""
    given = {"key": str, "lanes": lanes} if lanes else {}
    with Pipe("waits", **given) as pipe:  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - two kinds of value
        pipe.receive(waits)
        pipe.send_many(range(WAITS))
        pipe.flush()


async def rests(message: object) -> object:
    """What an answer over a network takes."""
    seen_threads()
    await asyncio.sleep(0.01)
    return message


def staged(lanes: int, stage: str, count: int, *, sink: bool = True) -> None:
    """Messages through a stage of a pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.jsonl").write_text("".join(f"{n}\n" for n in range(count)))
        how = f", lanes: {lanes}, key: benchmarks.asynchronous:plain" if lanes else ""
        Path(folder, "p.yaml").write_text(
            f"version: 1\nname: p\nsources: {{lines: {{kind: jsonl, path: {folder}/in.jsonl}}}}\n"
            f"pipes: {{intake: {{from: lines{how}}}}}\n"
            f"stages: {{last: {{from: intake, {stage}}}}}\n"
            + (f"sinks: {{out: {{from: last, kind: jsonl, path: {folder}/out.jsonl}}}}\n" * sink)
        )
        run(load(Path(folder, "p.yaml")))


def rate_of(body: Callable[[], object]) -> str:
    """Messages a second, and processor time of one; medians of some rounds."""
    rates: list[float] = []
    costs: list[float] = []
    for _ in range(ROUNDS):
        begun, worked = time.perf_counter(), time.process_time()
        body()
        rates.append(COUNT / (time.perf_counter() - begun))
        costs.append((time.process_time() - worked) / COUNT * 1_000_000)
    return f"{statistics.median(rates):,.0f} | {statistics.median(costs):.2f}"


def by_threads(handler: Callable[[object], object]) -> None:
    with Pipe("rate") as pipe:
        pipe.receive(handler)
        pipe.send_many([PAYLOAD] * COUNT)
        pipe.flush()


async def by_face(handler: Callable[[object], object], *, singly: bool) -> None:
    async with Pipe("rate") as pipe:
        pipe.receive(handler)
        if singly:
            for _ in range(COUNT):
                await pipe.send(PAYLOAD)
        else:
            await pipe.send_many([PAYLOAD] * COUNT)
        await pipe.flush()


def table(name: str, body: Callable[[], object]) -> None:
    """A row: how long it took, and with how many threads at the most."""
    global most_threads  # noqa: PLW0603
    most_threads = 0
    begun = time.perf_counter()
    body()
    threads = f"{most_threads}" if most_threads else "no body was run"
    print(f"| {name} | {time.perf_counter() - begun:.2f} | {threads} |")


def main() -> None:
    sys.path.insert(0, os.getcwd())
    print(f"| {WAITS} waits of {WAIT_S * 1000:.0f} ms | seconds | threads |\n| --- | ---: | ---: |")
    stage = "call: benchmarks.asynchronous:waits"
    for lanes in (0, 8, WAITS):
        how = f"{lanes} lanes" if lanes else "one after the other"
        table(f"coroutine handler, {how}", lambda lanes=lanes: handled(lanes))  # type: ignore[misc] # pyright: ignore[reportUnknownLambdaType]
        table(f"async stage, {how}", lambda lanes=lanes: staged(lanes, stage, WAITS))  # type: ignore[misc] # pyright: ignore[reportUnknownLambdaType]
    started = threading.Thread.start
    starts = 0

    def counted(thread: threading.Thread) -> None:
        nonlocal starts
        starts += 1
        started(thread)

    threading.Thread.start = counted  # type: ignore[method-assign, assignment]
    worked = time.process_time()
    staged(0, "call: benchmarks.asynchronous:plain, time_limit_s: 60", 5_000)
    took = time.process_time() - worked
    threading.Thread.start = started  # type: ignore[method-assign]
    print(
        f"\n5,000 messages, plain stage with time_limit_s: {took:.2f} s of the processor, {starts} threads"
    )
    print("\n| | messages/s | processor us per message |\n| --- | ---: | ---: |")
    print(f"| `send_many`, plain handler | {rate_of(lambda: by_threads(plain))} |")
    if HAS_FACE:
        print(f"| `send_many`, coroutine handler | {rate_of(lambda: by_threads(nothing))} |")
        for singly, name in ((False, "`await send_many`"), (True, "`await send`")):
            rate = rate_of(lambda: asyncio.run(by_face(nothing, singly=singly)))  # noqa: B023
            print(f"| {name}, coroutine handler on the same loop | {rate} |")


if __name__ == "__main__":
    from benchmarks import asynchronous  # the module that stages are imported from

    asynchronous.main()
