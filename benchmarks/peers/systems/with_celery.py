"""Celery on Redis: acknowledged after the task, results ignored, many short tasks prefetched, one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from celery import Celery

from benchmarks.peers.handling import URL, handler

app = Celery("peers", broker=os.environ[URL])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 5,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
)
handle = handler()


@app.task(name="peers.work")
def work(payload: str) -> None:
    """One message."""
    handle(payload)


@contextmanager
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads, all over one connection."""
    with app.producer_or_acquire() as connection:

        def send(payloads: Sequence[str]) -> None:
            for payload in payloads:
                work.apply_async((payload,), producer=connection)

        yield send
