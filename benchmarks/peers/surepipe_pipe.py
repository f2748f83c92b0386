"""Surepipe's row: the stream pipe over the Redis store, as an application uses it.

Everything is as it comes, except that at most 500 messages are read at once, as in the hand-written loop. Messages
are settled when their handler has returned, and the position is committed for each batch that was read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from benchmarks.peers.handling import URL, handler, told_to_end
from surepipe.actors.ends.remote import StreamReceiver, StreamSender
from surepipe.pipes.catalogue import LayerText
from surepipe.storage.redis.store import RedisStore

PIPE = "peers"
LAYERS: LayerText = {"stream": {"start": "earliest", "read_max": 500}}


def connect() -> RedisStore:
    """The store of the pipe."""
    return RedisStore.from_url(os.environ[URL], pipeline=PIPE)


@contextmanager
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""
    store = connect()
    with StreamSender(PIPE, store=store) as sender:

        def send(payloads: Sequence[str]) -> None:
            sender.send_many([payload.encode() for payload in payloads])

        yield send
    store.close()


def work() -> None:
    """Handle messages until told to end."""
    ends = told_to_end()
    store = connect()
    handle = handler()

    def handle_many(messages: Sequence[object]) -> None:
        for message in messages:
            assert isinstance(message, bytes)
            handle(message)

    with StreamReceiver(PIPE, LAYERS, store=store) as receiver:
        receiver.receive_many(handle_many)
        while not ends():
            time.sleep(0.05)
    store.close()


if __name__ == "__main__":
    work()
