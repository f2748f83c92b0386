"""What somebody writes by hand on Redis Streams: pipelined XADD, XREADGROUP, XACK, in batches of 500.

It is the yardstick of the table. Acknowledgements go out together with the next read, in one round trip. A worker
that starts takes up first what an earlier one of its name had read and not acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import redis

from benchmarks.peers.handling import URL, handler, told_to_end
from benchmarks.peers.server import client_of

STREAM, GROUP, WORKER = "peers:stream", "peers", "worker"
BATCH = 500


def declare(client: Any) -> None:
    """Make stream and group, if they are not there."""
    with suppress(redis.ResponseError):
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)


@contextmanager
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""
    client = client_of(os.environ[URL])
    declare(client)

    def send(payloads: Sequence[str]) -> None:
        pipeline = client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(STREAM, {b"m": payload})
        pipeline.execute()

    yield send


def work() -> None:
    """Handle messages until told to end."""
    ends = told_to_end()
    client = client_of(os.environ[URL])
    declare(client)
    handle = handler()
    start = "0"
    handled: list[bytes] = []
    while not ends():
        pipeline = client.pipeline(transaction=False)
        if handled:
            pipeline.xack(STREAM, GROUP, *handled)
        pipeline.xreadgroup(GROUP, WORKER, {STREAM: start}, count=BATCH, block=1000)
        entries = entries_of(pipeline.execute()[-1])
        if not entries:
            start = ">"
        for _, fields in entries:
            handle(fields[b"m"])
        handled = [identity for identity, _ in entries]
    if handled:
        client.xack(STREAM, GROUP, *handled)


def entries_of(reply: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of the one stream that was read; clients differ in how they wrap them."""
    if not reply:
        return []
    found = reply[STREAM.encode()] if hasattr(reply, "items") else reply[0][1]
    return found[0] if found and isinstance(found[0], list) else found


if __name__ == "__main__":
    work()
