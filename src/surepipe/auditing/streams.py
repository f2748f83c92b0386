"""Streams in stores as rows of an audit: by identity, or, where a hop gave new identities, by payload.

A stream is read by runs: what one producer wrote in a row is one row. By payload, message k with the same
content on one side is message k with it on the other; a hop that changes payloads can't be judged so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from surepipe.auditing.places import StoredStream
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.pipes.predicates import payload_digest
from surepipe.storage import RedisStore, SqliteStore
from surepipe.store_api import (
    Batch,
    Entries,
    Failed,
    Store,
    StreamInfo,
    Unavailable,
    partition_of,
)

MESSAGES_AT_ONCE = 16_384
BYTES_AT_ONCE = 16 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """Messages of one producer at consecutive indexes of a stream, or of one of its partitions."""

    stream: str
    entries: Entries

    @property
    def channel(self) -> str:
        """The name that traces have for these messages."""
        return channel_of(self.stream, self.entries.producer)

    @property
    def last(self) -> int:
        """The seq of the last of them."""
        return self.entries.first + len(self.entries.payloads) - 1

    def digests(self) -> Iterator[tuple[int, str]]:
        """Index and digest of the payload of each."""
        for offset, payload in enumerate(self.entries.payloads):
            yield self.entries.index + offset, payload_digest(payload)


@dataclass(frozen=True, slots=True)
class Extent:
    """The indexes that a stream has now."""

    stream: str
    earliest: int
    next: int


def channel_of(stream: str, producer: str) -> str:
    """How traces name what a producer has in a stream, or in a partition of one."""
    return f"{stream}@{producer}"


class StreamLog:
    """A stream as it stands when this is made; what is appended later is not part of it.

    Raises ConfigurationError for a stream that is not there, StoreUnavailable when the store does not answer.
    """

    def __init__(self, place: StoredStream) -> None:
        self.place = place
        with closing(_opened(place)) as store:
            self.extents = _extents(store, place)

    @property
    def is_trimmed(self) -> bool:
        """True when the beginning is gone."""
        return any(extent.earliest > 1 for extent in self.extents)

    def runs(self) -> Iterator[Run]:
        """All of it, partition by partition, in order of the indexes."""
        with closing(_opened(self.place)) as store:
            for extent in self.extents:
                yield from _read(store, extent, self.place)


def _opened(place: StoredStream) -> RedisStore | SqliteStore:
    if place.is_redis:
        return RedisStore.from_url(place.where, pipeline=place.pipeline)
    if not Path(place.where).is_file():
        raise ConfigurationError(f"{place.where} can't be read: no such file")
    return SqliteStore(place.where)


def _extents(store: Store, place: StoredStream) -> tuple[Extent, ...]:
    """The stream, or its partitions."""
    names = [place.stream, partition_of(place.stream, 0)]
    for name in names:
        outcome = store.info(name)
        if isinstance(outcome, Unavailable):
            raise StoreUnavailable(f"{place} can't be read: {outcome.detail}")
        if isinstance(outcome, StreamInfo):
            found = [Extent(name, outcome.earliest, outcome.next)]
            while name == names[1]:
                more = store.info(partition_of(place.stream, len(found)))
                if not isinstance(more, StreamInfo):
                    break
                found.append(
                    Extent(partition_of(place.stream, len(found)), more.earliest, more.next)
                )
            return tuple(found)
    raise ConfigurationError(f"{place} can't be read: there is no such stream in the store")


def _read(store: Store, extent: Extent, place: StoredStream) -> Iterator[Run]:
    index = extent.earliest
    while index < extent.next:
        most = min(MESSAGES_AT_ONCE, extent.next - index)
        outcome = store.read(extent.stream, index, most, BYTES_AT_ONCE)
        if isinstance(outcome, Unavailable):
            raise StoreUnavailable(f"{place} can't be read: {outcome.detail}")
        if not isinstance(outcome, Batch):
            why = outcome.reason if isinstance(outcome, Failed) else f"{outcome}"
            raise ConfigurationError(f"{place} changed at index {index} while it was read: {why}")
        for entries in outcome.entries:
            yield Run(extent.stream, entries)
        index = outcome.next
