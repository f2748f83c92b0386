"""The book: enqueueing and service, over every store, and what the number of queues costs.

    python -m benchmarks.book [--redis redis://...]

Handlers do nothing, messages have 200 bytes (100 for the packing). Each figure is the median of several runs. In
memory the processor's time is taken, as nothing is waited for; elsewhere that of the clock on the wall.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from surepipe.queues.book import BookConfig, BookMessage, BookQueue, Budget, Context
from surepipe.storage import MemoryStore, SqliteStore

OPEN = BookConfig(
    refuse_pages=None, suspend_pages=None, resume_pages=None, max_origins=1 << 20, quantum=1_000
)
RUNS = 3


def nothing(_message: BookMessage, _context: Context) -> None:
    """A handler without work."""


def book_of(store: Any, name: str, config: BookConfig = OPEN) -> BookQueue:
    return BookQueue.inline(name, store=store, processor=nothing, config=config)


def rates(
    store: Any, name: str, total: int, queues: int, batch: int = 100, *, mixed: bool = True
) -> tuple[float, float, float]:
    """Messages per second enqueued and served, and requests per message served. Each call names as many queues as
    it can (``mixed``), or one, while each queue holds a message already."""
    book = book_of(store, name)
    payload = b"x" * 200
    held = 0 if queues == 1 or mixed else queues
    for start in range(0, held, batch):
        book.enqueue_batch(
            [(f"o{each}", payload) for each in range(start, min(held, start + batch))]
        )
    clock = time.process_time if isinstance(store, MemoryStore) else time.perf_counter
    began = clock()
    if queues == 1 or not mixed:
        for number in range(total // batch):
            book.enqueue_many(f"o{number * 7_919 % queues}", [payload] * batch)
    else:
        for start in range(0, total, batch):
            book.enqueue_batch([(f"o{(start + n) % queues}", payload) for n in range(batch)])
    enqueued = clock() - began
    before = book.store_requests
    began = clock()
    ran = 0
    while ran < total + held:
        ran += book.service().ran
    served = clock() - began
    return total / enqueued, ran / served, (book.store_requests - before) / ran


def memory_rates(total: int, queues: int, mixed: bool, run: int) -> tuple[float, float, float]:
    return rates(MemoryStore(), f"b{run}", total, queues, mixed=mixed)


def raw_rate(url: str, total: int, run: int) -> tuple[float, float, float]:
    """Messages per second by hand: added in pipelines of 100, one to an entry; read and deleted by hundreds."""
    redis: Any = importlib.import_module("redis")
    client, name = redis.Redis.from_url(url), f"raw-{time.time_ns()}-{run}"
    began = time.perf_counter()
    for _ in range(total // 100):
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(100):
                pipeline.xadd(name, {"p": b"x" * 200})
            pipeline.execute()
    added = time.perf_counter() - began
    began, last, requests = time.perf_counter(), "-", 0
    while found := client.xrange(name, min=last, count=100):
        client.xdel(name, *(index for index, _ in found))
        last, requests = f"({found[-1][0].decode()}", requests + 2
    return total / added, total / (time.perf_counter() - began), requests / total


def next_message(page_bytes: int) -> float:
    """Microseconds of a call that serves one message of a page of this size, full of small messages."""
    config = replace(OPEN, page_bytes=page_bytes, checkpoint_bytes=1 << 30)
    book = book_of(MemoryStore(), "next", config)
    book.enqueue_many("A", [b"four"] * (page_bytes // 9 - 2_000))
    book.enqueue_many("A", [b"four"] * 2_000)
    began = time.process_time()
    for _ in range(1_000):
        book.service(Budget(messages=1))
    return (time.process_time() - began) / 1_000 * 1e6


def median(make: Callable[[int], tuple[float, float, float]]) -> tuple[float, float, float]:
    found = [make(run) for run in range(RUNS)]
    one, two, three = zip(*found, strict=True)
    return statistics.median(one), statistics.median(two), statistics.median(three)


def line(what: str, found: tuple[float, float, float]) -> None:
    print(f"{what:42} {found[0]:>10,.0f} {found[1]:>10,.0f} {found[2]:>10.3f}", flush=True)


def one_among(queues: int) -> float:
    """Microseconds to enqueue one message and serve one, while so many other queues are ready."""
    book = book_of(MemoryStore(), "among")
    for start in range(0, queues, 100):
        book.enqueue_batch([(f"o{start + n}", b"x" * 200) for n in range(100)])
    rounds = 2_000
    began = time.process_time()
    for number in range(rounds):
        book.enqueue(f"o{number % queues}", b"x" * 200)
        book.service(Budget(messages=1))
    return (time.process_time() - began) / rounds * 1e6


def packing() -> None:
    """Payload bytes in a hundred bytes of full pages, for messages of 100 bytes enqueued one by one."""
    book = book_of(MemoryStore(), "packing")
    for _ in range(10_000):
        book.enqueue("A", b"x" * 100)
    pages = list(book.ledger.books["A"].pages.values())[:-1]
    full = sum(page.slots for page in pages) * 100 / (len(pages) * OPEN.page_bytes)
    print(f"packing of 100-byte messages: {full:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", default="")
    parser.add_argument("--total", type=int, default=100_000)
    options = parser.parse_args()
    print(f"python {sys.version.split()[0]}; {RUNS} runs each, medians")
    print(f"{'':42} {'enqueued/s':>10} {'served/s':>10} {'requests':>10}")
    total = options.total
    line("memory, 1 queue", median(lambda run: rates(MemoryStore(), f"b{run}", total, 1)))
    for queues in (10, 1_000, 100_000):
        found = median(partial(memory_rates, total, queues, False))
        line(f"memory, {queues:,} queues, one a call", found)
    for queues in (10, 1_000, 10_000):
        found = median(partial(memory_rates, total, queues, True))
        line(f"memory, {queues:,} queues, mixed", found)
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "b.db") as store:
        line("sqlite, 1 queue", median(lambda run: rates(store, f"b{run}", total, 1)))
        line("sqlite, 1,000 queues", median(lambda run: rates(store, f"c{run}", total // 5, 1_000)))
    if options.redis:
        from surepipe.storage import RedisStore  # noqa: PLC0415 - needs its client

        name = f"bench-{time.time_ns()}"
        with RedisStore.from_url(options.redis, pipeline=name) as redis:
            line("redis, 1 queue", median(lambda run: rates(redis, f"b{run}", total, 1)))
            found = median(lambda run: rates(redis, f"c{run}", total // 5, 1_000))
            line("redis, 1,000 queues", found)
        line("redis by hand", median(lambda run: raw_rate(options.redis, total, run)))
    for queues in (10, 1_000, 100_000):
        print(f"one message in and one out, {queues:,} queues ready: {one_among(queues):.0f} us")
    for page_bytes in (32_768, 1 << 18, 1 << 20):
        found_us = statistics.median(next_message(page_bytes) for _ in range(RUNS))
        print(f"the next message of a page of {page_bytes:,} bytes: {found_us:.0f} us")
    packing()


if __name__ == "__main__":
    main()
