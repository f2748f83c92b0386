"""The store below the pipe, alone: a stream in runs of 500, the position committed after the handler.

Append, read, handle, commit, by calls of the store. ``surepipe_pipe`` is the same through the pipe; what lies
between the two rows is what actors, machines and codecs cost.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from benchmarks.peers.handling import URL, handler, told_to_end
from surepipe.core.store_requests import (
    KEEP_ALL,
    Batch,
    CommitPosition,
    Committed,
    Created,
    Empty,
    Exists,
    NoPosition,
    Owner,
    Position,
    ProducerOpened,
    Stored,
)
from surepipe.storage.redis.store import RedisStore

STREAM, READER = "peers", "worker"
RUN = 500
BYTES_MAX = 1 << 20


def connect() -> RedisStore:
    """A store with its stream."""
    store = RedisStore.from_url(os.environ[URL], pipeline="peers")
    made = store.create(STREAM, 1, KEEP_ALL)
    assert isinstance(made, Created | Exists), made
    return store


@contextmanager
def producer() -> Generator[Callable[[Sequence[str]], None]]:
    """A function that sends payloads."""
    store = connect()
    name = secrets.token_hex(4)
    opened = store.open_producer(STREAM, name, 1, 1)
    assert isinstance(opened, ProducerOpened), opened
    following = opened.last + 1

    def send(payloads: Sequence[str]) -> None:
        nonlocal following
        run = [payload.encode() for payload in payloads]
        stored = store.append(STREAM, name, 1, following, run)
        assert isinstance(stored, Stored), stored
        following += len(run)

    yield send
    store.close()


def work() -> None:
    """Handle messages until told to end."""
    ends = told_to_end()
    store = connect()
    handle = handler()
    owner = store.claim(STREAM, READER, secrets.randbits(60))
    assert isinstance(owner, Owner), owner
    index = first_index(store)
    while not ends():
        batch = store.read(STREAM, index, RUN, BYTES_MAX)
        if isinstance(batch, Empty):
            store.wait(STREAM, index, 1_000_000)
            continue
        assert isinstance(batch, Batch), batch
        for entries in batch.entries:
            for payload in entries.payloads:
                handle(payload)
        index = batch.next
        done = store.commit(CommitPosition(STREAM, READER, owner.number, 1, index))
        assert isinstance(done, Committed), done


def first_index(store: RedisStore) -> int:
    """Where an earlier worker came to."""
    found = store.get(STREAM, READER)
    assert isinstance(found, NoPosition | Position), found
    return found.next if isinstance(found, Position) else 1


if __name__ == "__main__":
    work()
