"""Streams as sources: those of surepipe, in one of its stores. A place is the index that comes next, with the
identity of the entry before it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from redis import Redis
from redis.exceptions import RedisError

from surepipe.actors.codecs import Codec, Undecodable
from surepipe.actors.ends.stores import StackRecords, bare_terms
from surepipe.actors.runtime import Runtime
from surepipe.core.store_requests import (
    KEEP_ALL,
    Batch,
    CommitPosition,
    Created,
    Diverged,
    Empty,
    Exists,
    Failed,
    Identity,
    NoStream,
    OtherStack,
    Owner,
    Store,
    StreamInfo,
    Unavailable,
    said_of,
)
from surepipe.errors import ConfigurationError, StacksDiffer, StoreReset, StoreUnavailable
from surepipe.pipelines.assembly import SourceRow
from surepipe.pipelines.sources.checking import Check, Unfit, as_it_is, refused

logger = logging.getLogger("surepipe")
READ_BYTES = 4 << 20
_CLAIMANT = 1
"""Every process claims as the same: the place is for retention, and who takes rows is decided elsewhere."""


class StreamRows:
    """The entries of a stream. It is a registered reader, so that retention spares what it has still to read.

    ``trims``: nobody else reads the stream, and what was taken goes. ``compared_by``: what was written with
    layers, or another codec, as its writer has noted, is not read.
    """

    def __init__(
        self,
        store: Store,
        stream: str,
        codec: Codec,
        *,
        reader: str,
        start: str | int = "earliest",
        trims: bool = False,
        check: Check = as_it_is,
        keeps: bool = False,
        compared_by: Runtime | None = None,
    ) -> None:
        self._store = store
        self._keeps = keeps
        self._compared_by = compared_by
        self._records: StackRecords | None = None
        self._stream = stream
        self._codec = codec
        self._reader = reader
        self._start = start
        self._trims = trims
        self._check = check
        self._next = 1
        self._anchor: Identity | None = None
        self._incarnation = 0
        self._owner = 0

    def begin(self, after: str) -> None:
        """Find the place. Raises StoreReset when the stream was made anew since."""
        self._incarnation, self._anchor = self._made(), None
        if self._compared_by is not None:
            self._records = StackRecords(
                self._store,
                self._stream,
                self._incarnation,
                bare_terms(self._codec),
                self._compared_by,
            )
        if not after:
            self._next = self._first()
        else:
            incarnation, index, *anchor = after.split(":", 4)  # a producer's name may have a colon
            if int(incarnation) != self._incarnation:
                raise StoreReset(
                    f"stream {self._stream!r} was made anew since it was read: the place in it means nothing now"
                )
            self._next = int(index)
            if anchor:
                epoch, seq, producer = anchor
                self._anchor = Identity(producer, int(epoch), int(seq))
        claimed = self._store.claim(self._stream, self._reader, _CLAIMANT)
        self._owner = claimed.number if isinstance(claimed, Owner) else 0

    def _made(self) -> int:
        info = self._store.info(self._stream)
        if isinstance(info, StreamInfo):
            return info.incarnation
        if isinstance(info, Unavailable):
            raise StoreUnavailable(said_of("stream", self._stream, info))
        made = self._store.create(self._stream, 1, KEEP_ALL)
        if isinstance(made, Created | Exists):
            return made.incarnation
        raise StoreUnavailable(said_of("stream", self._stream, made))

    def _first(self) -> int:
        if isinstance(self._start, int):
            return self._start
        info = self._store.info(self._stream)
        if not isinstance(info, StreamInfo):
            raise StoreUnavailable(said_of("stream", self._stream, info))
        if self._start == "earliest" and info.earliest > 1 and not self._trims:
            logger.warning(
                "stream %r: its entries 1 to %d were removed before %r began to read it: it begins behind them",
                *(self._stream, info.earliest - 1, self._reader),
            )
        return info.earliest if self._start == "earliest" else info.next

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next entries. Raises StoreUnavailable; StoreReset when entries are gone that were not read;
        StacksDiffer at those that were written in another way."""
        outcome: object = self._store.read(
            self._stream,
            self._next,
            rows_max,
            READ_BYTES,
            self._incarnation,
            anchor=self._anchor,
        )
        if self._records is not None and isinstance(outcome, Batch):
            outcome = self._records.compared(self._reader, outcome)
        match outcome:
            case Batch():
                return self._rows(outcome)
            case Empty():
                return []
            case Unavailable():
                raise StoreUnavailable(said_of("stream", self._stream, outcome))
            case OtherStack(reason):
                raise StacksDiffer(reason)
            case Failed():
                raise StoreReset(said_of("stream", self._stream, outcome))
            case Diverged(found):
                raise StoreReset(
                    f"stream {self._stream!r} went back and was written on: entry {self._next - 1} was "
                    f"{self._anchor}, and is {found}. What was written in place of what is gone was not read"
                )
            case _:
                raise StoreReset(
                    f"stream {self._stream!r} has no entry {self._next} to go on with: {outcome}"
                )

    def _rows(self, batch: Batch) -> list[SourceRow]:
        rows: list[SourceRow] = []
        for run in batch.entries:
            for index, payload in enumerate(run.payloads, run.index):
                seq = run.first + index - run.index
                after = f"{self._incarnation}:{index + 1}:{run.epoch}:{seq}:{run.producer}"
                try:
                    rows.append(SourceRow(self._check(self._codec.decode(payload)), after))
                except (Undecodable, Unfit) as error:
                    wrong = f"entry {index} of stream {self._stream!r}: {error}"
                    rows.append(refused(payload, after, wrong, self._keeps))
            self._anchor = Identity(run.producer, run.epoch, run.first + len(run.payloads) - 1)
        self._next = batch.next
        return rows

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """Register the place: for retention only, so nothing is lost when the store does not take it."""
        if not rows or not self._owner:
            return
        following = int(rows[-1].after.split(":")[1])
        store: Store = self._store
        store.commit(
            CommitPosition(
                self._stream,
                self._reader,
                self._owner,
                self._incarnation,
                following,
                previous_tag=self._incarnation,
            )
        )
        if self._trims:
            self._store.trim(self._stream, following)

    def unread(self) -> int:
        """How many entries were not read yet. Raises StoreUnavailable, StoreReset."""
        info = self._store.info(self._stream)
        if isinstance(info, NoStream):
            raise StoreReset(said_of("stream", self._stream, info))
        if not isinstance(info, StreamInfo):
            raise StoreUnavailable(said_of("stream", self._stream, info))
        return max(0, info.next - self._next)

    def close(self) -> None:
        """The store is not ours to close."""


# A Redis stream that others write. A place is the id of the last entry that was read.


_Entry = tuple[bytes, Mapping[bytes, bytes] | None]


class _Client(Protocol):
    """What is used of a client, narrowed."""

    def xrange(self, name: str, min: str, max: str, count: int) -> list[_Entry]: ...

    def xrevrange(self, name: str, max: str, min: str, count: int) -> list[_Entry]: ...

    def close(self) -> None: ...


class RedisEntries:
    """The entries of a stream, each a mapping of its fields. Nothing is written there: no group, no answer."""

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        start: str = "earliest",
        check: Check = as_it_is,
        keeps: bool = False,
    ) -> None:
        self._keeps = keeps
        self._url = url
        self._stream = stream
        self._start = start
        self._check = check
        self._client: _Client | None = None
        self._last = ""

    def begin(self, after: str) -> None:
        """Go on behind an entry. Raises StoreUnavailable, ConfigurationError for a URL that is none."""
        if self._client is None:
            try:
                redis = cast("Any", Redis)  # its types know nothing of its arguments
                client: _Client = redis.from_url(
                    self._url, socket_timeout=5, socket_connect_timeout=5
                )
            except ValueError as error:
                raise ConfigurationError(
                    f"the address of the Redis can't be used: {error}"
                ) from None
            self._client = client
        self._last = after or (self._newest() if self._start == "latest" else "")

    def _newest(self) -> str:
        assert self._client is not None
        try:
            found = self._client.xrevrange(self._stream, "+", "-", 1)
        except RedisError as error:
            raise StoreUnavailable(f"redis stream {self._stream!r}: {error}") from error
        return found[0][0].decode() if found else "0-0"

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next entries. Raises StoreUnavailable."""
        assert self._client is not None
        least = f"({self._last}" if self._last else "-"
        try:
            found = self._client.xrange(self._stream, least, "+", rows_max)
        except RedisError as error:
            raise StoreUnavailable(f"redis stream {self._stream!r}: {error}") from error
        rows = [self._row(id.decode(), fields or {}) for id, fields in found]
        if rows:
            self._last = rows[-1].after
        return rows

    def _row(self, id: str, fields: Mapping[bytes, bytes]) -> SourceRow:
        message = {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in fields.items()
        }
        try:
            return SourceRow(self._check(message), id)
        except Unfit as error:
            wrong = f"entry {id} of redis stream {self._stream!r}: {error}"
            return refused(message, id, wrong, self._keeps)

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """Others decide how long entries stay."""

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
