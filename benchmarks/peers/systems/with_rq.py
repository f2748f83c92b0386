"""RQ: its simple worker, which does not fork; jobs in bulk, retried when their worker died.

Results are kept for a minute. With ``result_ttl=0`` a job whose first worker died raises inside RQ 3.0.0 each time
it has succeeded, because the record of the first execution is gone, and is repeated until no retry is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from redis import Redis
from rq import Queue, Retry

from benchmarks.peers.handling import URL, handler

JOB_TIMEOUT_S = 1  # a worker that dies is noticed a minute after this
handle = handler()


def work(payload: str) -> None:
    """One message."""
    handle(payload)


@contextmanager
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""
    queue = Queue("peers", connection=Redis.from_url(os.environ[URL]))

    def send(payloads: Sequence[str]) -> None:
        queue.enqueue_many(
            [
                Queue.prepare_data(
                    work,
                    (payload,),
                    result_ttl=60,
                    timeout=JOB_TIMEOUT_S,
                    retry=Retry(max=3),
                    description="peers",
                )
                for payload in payloads
            ]
        )

    yield send
