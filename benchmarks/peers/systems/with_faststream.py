"""FastStream on a Redis stream with a group: pipelined publishing, batches of 500 acknowledged after the handler.

A second subscriber of the same group takes over what was left unacknowledged for five seconds, as documented.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from faststream import AckPolicy, FastStream
from faststream.redis import RedisBroker, StreamSub

from benchmarks.peers.handling import URL, handler

STREAM, GROUP, BATCH, LEFT_MS = "peers", "peers", 500, 5000
broker = RedisBroker(os.environ[URL], logger=None)
app = FastStream(broker)
handle = handler()


@broker.subscriber(
    stream=StreamSub(STREAM, group=GROUP, consumer="worker", batch=True, max_records=BATCH),
    ack_policy=AckPolicy.ACK,
)
async def work(payloads: list[str]) -> None:
    """A batch of messages."""
    for payload in payloads:
        handle(payload)


@broker.subscriber(
    stream=StreamSub(STREAM, group=GROUP, consumer="heir", min_idle_time=LEFT_MS),
    ack_policy=AckPolicy.ACK,
)
async def take_over(payload: str) -> None:
    """A message that a worker left."""
    handle(payload)


@contextmanager
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""

    with asyncio.Runner() as runner:
        client = runner.run(broker.connect())

        async def send_all(payloads: Sequence[str]) -> None:
            async with client.pipeline(transaction=False) as pipe:
                for payload in payloads:
                    await broker.publish(payload, stream=STREAM, pipeline=pipe)
                await pipe.execute()

        yield lambda payloads: runner.run(send_all(payloads))
        runner.run(broker.stop())
