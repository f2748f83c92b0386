"""The book: enqueueing and service, over every store, and what the number of queues costs.

    python -m benchmarks.book [--redis redis://...]

Handlers do nothing, messages have 200 bytes (100 for the packing). Each figure is the median of several runs. In
memory the processor's time is taken, as nothing is waited for; elsewhere that of the clock on the wall.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
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


def book_of(store: Any, name: str) -> BookQueue:
    return BookQueue.inline(name, store=store, processor=nothing, config=OPEN)


def rates(
    store: Any, name: str, total: int, queues: int, batch: int = 100
) -> tuple[float, float, float]:
    """Messages per second enqueued and served, and requests per message served."""
    book = book_of(store, name)
    payload = b"x" * 200
    clock = time.process_time if isinstance(store, MemoryStore) else time.perf_counter
    began = clock()
    if queues == 1:
        for _ in range(total // batch):
            book.enqueue_many("A", [payload] * batch)
    else:
        for start in range(0, total, batch):
            book.enqueue_batch([(f"o{(start + n) % queues}", payload) for n in range(batch)])
    enqueued = clock() - began
    before = book.store_requests
    began = clock()
    ran = 0
    while ran < total:
        ran += book.service().ran
    served = clock() - began
    return total / enqueued, total / served, (book.store_requests - before) / total


def memory_rates(total: int, queues: int, run: int) -> tuple[float, float, float]:
    return rates(MemoryStore(), f"b{run}", total, queues)


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
    for queues in (10, 1_000):
        found = median(partial(memory_rates, total, queues))
        line(f"memory, {queues:,} queues", found)
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
    for queues in (100, 1_000, 100_000):
        print(f"one message in and one out, {queues:,} queues ready: {one_among(queues):.0f} us")
    packing()


if __name__ == "__main__":
    main()
