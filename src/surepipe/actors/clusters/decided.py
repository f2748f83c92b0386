"""The stream in which a node of a replicated queue keeps what was decided, for pipelines and programs to read.

    stores: {prices: {kind: sqlite, path: prices/n1-decided.db}}
    sources: {decided: {kind: stream, store: prices, stream: decided}}

It has a store of its own and a thread of its own: one that is full or hangs keeps no node from voting.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import cast

from surepipe.actors.codecs import AutoCodec
from surepipe.actors.store_calls import Asking
from surepipe.core.store_requests import Created, Exists, Retention, Store, Unavailable
from surepipe.errors import StoreUnavailable, described
from surepipe.queues.rmq.feed import AppendDecided, DecidedMessage, MissedEpoch, OpenFeed
from surepipe.storage.positions import note_read

STREAM = "decided"
KEPT = Retention(max_age_us=7 * 24 * 3_600_000_000)
"""A week, also if nobody reads it, and longer what a reader that has begun has still to read."""


class DecidedStream:
    """Answers what a node asks of its stream."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._codec = AutoCodec()

    def call(self, request: OpenFeed | AppendDecided) -> object:
        """The store's outcome. Nothing is raised for a store that is away."""
        producer = request.part.hex()
        if isinstance(request, OpenFeed):
            made = self._store.create(STREAM, 1, KEPT)
            if not isinstance(made, Created | Exists):
                return made
            try:
                note_read(self._store, STREAM)
            except StoreUnavailable as error:
                return Unavailable(str(error))
            return self._store.open_producer(STREAM, producer, request.epoch, 1)
        payloads = [self._codec.encode(told(each)) for each in request.rows]
        return self._store.append(STREAM, producer, request.epoch, request.first, payloads)


def told(row: DecidedMessage | MissedEpoch) -> dict[str, object]:
    """A row as readers get it."""
    if isinstance(row, MissedEpoch):
        return {"outcome": "missed", "epoch": row.epoch}
    return {
        "outcome": "done" if row.is_done else "refused",
        "id": row.id.hex(),
        "key": value_of(row.key),
        "submitter": row.submitter,
        "body": None if row.body is None else value_of(row.body),
        "value": value_of(row.result) if row.is_done else None,
        "reason": row.reason or None,
        "epoch": row.epoch,
        "position": row.position,
        "time_ms": row.time_ms,
    }


def value_of(data: bytes) -> object:
    """Bytes as a reader likes them: a JSON object or list as such, text as text, all else as base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
    if text[:1] in ("{", "["):
        try:
            return cast("object", json.loads(text, parse_constant=_no_number))
        except (ValueError, RecursionError):
            return text
    return text


def _no_number(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


class FeedWriter:
    """An actor that writes the stream of one node."""

    def __init__(self, stream: DecidedStream, died: Callable[[str], object]) -> None:
        self._stream, self._died = stream, died

    def receive(self, message: object) -> None:
        host, ticket, request = cast("tuple[Asking, int, OpenFeed | AppendDecided]", message)
        host.answered(ticket, self._stream.call(request))

    def died(self, error: BaseException) -> None:
        self._died(described(error))
