"""Dramatiq on Redis: acknowledged after the actor, one process with one thread, messages prefetched."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.handling import MODE, URL, handler

# The speed table has the defaults. For the kill table a dead worker is noticed as soon as can be: by default after
# a minute, in one of a thousand commands.
SOON = {"heartbeat_timeout": 5000, "maintenance_chance": 1_000_000}

broker = RedisBroker(url=os.environ[URL], **(SOON if os.environ[MODE] == "record" else {}))
dramatiq.set_broker(broker)
handle = handler()


@dramatiq.actor
def work(payload: str) -> None:
    """One message."""
    handle(payload)


@contextmanager
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""

    def send(payloads: Sequence[str]) -> None:
        for payload in payloads:
            work.send(payload)

    yield send
