"""What somebody writes by hand on Redis Streams: pipelined XADD, XREADGROUP, XACK, in batches of 500.

It is the yardstick of the table. Acknowledgements go out together with the next read, in one round trip. A worker
that starts takes up first what an earlier one of its name had read and not acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import redis

from benchmarks.peers.handling import URL, handler

STREAM, GROUP, WORKER = "peers:stream", "peers", "worker"
BATCH = 500


def connect() -> Any:
    """A client with hiredis, as redis-py takes it when it is installed."""
    return redis.Redis.from_url(os.environ[URL])


def declare(client: Any) -> None:
    """Make stream and group, if they are not there."""
    with suppress(redis.ResponseError):
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)


@contextmanager
def producer() -> Iterator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""
    client = connect()
    declare(client)

    def send(payloads: Sequence[str]) -> None:
        pipeline = client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(STREAM, {b"m": payload})
        pipeline.execute()

    yield send


def work() -> None:
    """Handle messages until this process is ended."""
    client = connect()
    declare(client)
    handle = handler()
    start = "0"
    handled: list[bytes] = []
    while True:
        pipeline = client.pipeline(transaction=False)
        if handled:
            pipeline.xack(STREAM, GROUP, *handled)
        pipeline.xreadgroup(GROUP, WORKER, {STREAM: start}, count=BATCH, block=1000)
        reply = pipeline.execute()[-1]
        streams = reply.items() if isinstance(reply, dict) else reply
        entries = [entry for _, found in streams or () for entry in entries_of(found)]
        if not entries:
            start = ">"
        for _, fields in entries:
            handle(fields[b"m"])
        handled = [identity for identity, _ in entries]


def entries_of(found: Any) -> Any:
    """The entries of one stream; newer clients wrap them once more."""
    return found[0] if found and isinstance(found[0], list) else found


if __name__ == "__main__":
    work()
