"""Huey on Redis, results off. It takes a task off its list before it runs it, and acknowledges nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
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
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""

    def send(payloads: Sequence[str]) -> None:
        for payload in payloads:
            work(payload)

    yield send
