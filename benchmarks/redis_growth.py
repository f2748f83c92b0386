"""What a message costs on Redis when many are there already, and how fast a reader far behind catches up.

    python -m benchmarks.redis_stream --long

100-byte messages in runs of 500, without an append-only file, so that the disk is not what is measured.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from typing import Any, cast

import redis
from rich.console import Console
from rich.table import Table

from surepipe import StreamReceiver
from surepipe.core.store_requests import KEEP_ALL, Batch, Stored
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import local_servers

RUN = 500
PAYLOADS = [bytes([65 + n % 26]) * 100 for n in range(RUN)]
READ_BYTES = 1 << 20
SAMPLE = 25_000
BEHIND = 1_000_000
SIZES = (10**4, 10**5, 10**6, 10**7)


def append(store: RedisStore, first: int, messages: int) -> int:
    """So many messages, from this seq on; returns the seq after them."""
    for seq in range(first, first + messages, RUN):
        outcome = store.append("s", "p", 1, seq, PAYLOADS)
        assert isinstance(outcome, Stored), outcome
    return first + messages


def read(store: RedisStore, index: int, messages: int) -> None:
    """So many messages, from this index on."""
    stop = index + messages
    while index < stop:
        batch = store.read("s", index, RUN, READ_BYTES)
        assert isinstance(batch, Batch), batch
        index = batch.next


def us_per_message(begun: float, messages: int) -> float:
    """Since then."""
    return (time.perf_counter() - begun) / messages * 1e6


def catch_up(url: str, pipeline: str, index: int, messages: int) -> float:
    """Messages per second of a whole receiver that begins so far behind, its position committed as it goes."""
    store = RedisStore.from_url(url, pipeline=pipeline)
    layers = {"stream": {"start": index}}
    seen = 0

    def handle(batch: list[object]) -> None:
        nonlocal seen
        seen += len(batch)

    begun = time.perf_counter()
    with StreamReceiver("s", layers, store=store, codec="bytes") as receiver:
        receiver.receive_many(handle)
        assert receiver.catch_up(120)
        ended = time.perf_counter()
    store.close()
    assert seen == messages, seen
    return messages / (ended - begun)


def growth(console: Console, sizes: Sequence[int] = SIZES) -> None:
    """The table, and the reader that is far behind."""
    table = Table(
        *("messages", "append us/msg", "read us/msg", "server bytes/msg", "client MB"),
        title="growth on Redis, no append-only file",
    )
    with local_servers()[0].server(appendonly="no", save="") as server:
        client = cast("Any", redis.Redis.from_url(server.url, protocol=2))  # pyright: ignore[reportUnknownMemberType]
        store = RedisStore.from_url(server.url, pipeline="growth")
        store.create("s", 1, KEEP_ALL)
        seq = 1
        empty = int(client.info("memory")["used_memory"])
        for size in sizes:
            count = min(SAMPLE, size // 2)
            seq = append(store, seq, size - seq + 1 - count)
            begun = time.perf_counter()
            seq = append(store, seq, count)
            appended = us_per_message(begun, count)
            begun = time.perf_counter()
            read(store, seq // 2, count)
            got = us_per_message(begun, count)
            used = int(client.info("memory")["used_memory"]) - empty
            own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            table.add_row(
                f"{size:,}", f"{appended:.2f}", f"{got:.2f}", f"{used / size:.1f}", f"{own:.0f}"
            )
        behind = min(BEHIND, seq - 1)
        begun = time.perf_counter()
        read(store, seq - behind, behind)
        by_store = behind / (time.perf_counter() - begun)
        by_pipe = catch_up(server.url, "growth", seq - behind, behind)
        store.close()
        client.close()
    console.print(table)
    console.print(
        f"a reader {behind:,} messages behind catches up at {by_store:,.0f} messages/s by calls of the store, "
        f"at {by_pipe:,.0f} messages/s as a StreamReceiver"
    )
