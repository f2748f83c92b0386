"""Huey on Redis, results off. It takes a task from its list before the task runs, and has nothing to acknowledge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from huey import RedisHuey

from benchmarks.peers.handling import URL, handler

huey = RedisHuey("peers", url=os.environ[URL], results=False)
handle = handler()


@huey.task()
def work(payload: str) -> None:
    """One message."""
    handle(payload)


@contextmanager
def producer() -> Iterator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""

    def send(payloads: Sequence[str]) -> None:
        for payload in payloads:
            work(payload)

    yield send
