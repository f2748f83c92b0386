"""Taskiq on a Redis stream: acknowledged when executed, one task at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from taskiq_redis import RedisStreamBroker

from benchmarks.peers.handling import URL, handler

broker = RedisStreamBroker(
    url=os.environ[URL],
    queue_name="peers",
    consumer_id="0",  # the default skips what was sent before the first worker came
    idle_timeout=5000,
    unacknowledged_lock_timeout=5,
)
handle = handler()


@broker.task(task_name="work")
async def work(payload: str) -> None:
    """One message."""
    handle(payload)


@contextmanager
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""

    async def send_all(payloads: Sequence[str]) -> None:
        for payload in payloads:
            await work.kiq(payload)

    with asyncio.Runner() as runner:
        runner.run(broker.startup())
        yield lambda payloads: runner.run(send_all(payloads))
        runner.run(broker.shutdown())
