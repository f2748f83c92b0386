"""Streams of a store, with the verbs that tests of Spark need."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.core.store_requests import (
    KEEP_ALL,
    Batch,
    Created,
    Retention,
    Stored,
    StreamInfo,
    Trimmed,
)
from surepipe.spark.stores import StorePlace
from surepipe.storage import SqliteStore


class Streams:
    """The streams of one store."""

    def __init__(self, place: StorePlace) -> None:
        self.place = place
        self.store = place.store()
        self._sent: dict[str, int] = {}

    def create(self, *names: str, retention: Retention = KEEP_ALL, partitions: int = 1) -> Streams:
        """Make streams."""
        for name in names:
            assert isinstance(self.store.create(name, partitions, retention), Created)
        return self

    def fill(self, name: str, count: int, page: int = 1000) -> None:
        """Append the messages name-1, name-2 ... in pages of so many; a repeat goes on counting."""
        first = self._sent.get(name, 0) + 1
        stop = first + count
        while first < stop:
            payloads = [f"{name}-{n}".encode() for n in range(first, min(first + page, stop))]
            assert isinstance(self.store.append(name, "maker", 1, first, payloads), Stored)
            first += len(payloads)
        self._sent[name] = stop - 1

    def read(self, name: str) -> list[bytes]:
        """All payloads that are there."""
        found: list[bytes] = []
        index = self.info(name).earliest
        while isinstance(batch := self.store.read(name, index, 100_000, 1 << 26), Batch):
            found += [payload for entries in batch.entries for payload in entries.payloads]
            index = batch.next
        return found

    def trim(self, name: str, before: int) -> int:
        """Forget entries; the earliest that is left."""
        outcome = self.store.trim(name, before)
        assert isinstance(outcome, Trimmed)
        return outcome.earliest

    def info(self, name: str) -> StreamInfo:
        """How a stream stands."""
        outcome = self.store.info(name)
        assert isinstance(outcome, StreamInfo)
        return outcome

    def remake(self, name: str, count: int) -> None:
        """Delete a stream, make it anew, and fill it."""
        assert isinstance(self.store, SqliteStore)
        self.store.delete(name)
        self._sent.pop(name, None)
        self.create(name)
        self.fill(name, count)

    def options(self, *names: str, **further: object) -> dict[str, str]:
        """Options of the data source for these streams."""
        given = {name: str(value) for name, value in further.items()}
        return {**self.place.options(), "streams": ",".join(names), **given}


def numbers(payloads: Sequence[bytes]) -> list[int]:
    """The numbers at the end of messages."""
    return [int(payload.rpartition(b"-")[2]) for payload in payloads]
