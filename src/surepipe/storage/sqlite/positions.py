"""What an index store does, as SQL on one connection. The caller has begun a transaction and ends it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from surepipe.core.store_requests import (
    STATE_MAX_BYTES,
    CommitOutcome,
    CommitPosition,
    Committed,
    Failed,
    FencedOut,
    Identity,
    Kept,
    NoPosition,
    Owner,
    Position,
)
from surepipe.storage.positions import may_replace


@dataclass(frozen=True, slots=True)
class _Reader:
    """Who owns a reader, and where it stands."""

    owner: int = 0
    claimant: int | None = None
    position: Position | None = None


def _find(connection: sqlite3.Connection, stream: str, reader: str) -> _Reader:
    row = connection.execute(
        "SELECT owner, claimant, tag, next, anchor_producer, anchor_epoch, anchor_seq, state,"
        " committed_by, revision FROM surepipe_positions WHERE stream = ? AND reader = ?",
        (stream, reader),
    ).fetchone()
    if row is None:
        return _Reader()
    owner, claimant, tag, following, producer, epoch, seq, state, committed_by, revision = row
    if following is None:
        return _Reader(owner, claimant)
    anchor = None if producer is None else Identity(producer, epoch, seq)
    position = Position(tag, following, anchor, state, committed_by, revision)
    return _Reader(owner, claimant, position)


def claim(
    connection: sqlite3.Connection, stream: str, reader: str, claimant: int
) -> Owner | FencedOut:
    """Take the reader over, or learn again that it is taken."""
    known = _find(connection, stream, reader)
    if known.claimant is not None and claimant < known.claimant:
        return FencedOut(known.claimant)
    if known.claimant == claimant:
        return Owner(known.owner)
    connection.execute(
        "INSERT INTO surepipe_positions (stream, reader, owner, claimant) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET owner = excluded.owner, claimant = excluded.claimant",
        (stream, reader, known.owner + 1, claimant),
    )
    return Owner(known.owner + 1)


def get(connection: sqlite3.Connection, stream: str, reader: str) -> NoPosition | Position:
    """The stored position."""
    return _find(connection, stream, reader).position or NoPosition()


def commit(connection: sqlite3.Connection, request: CommitPosition) -> CommitOutcome:
    """Store the position, if its owner and what is stored allow it."""
    known = _find(connection, request.stream, request.reader)
    if request.owner < known.owner:
        return FencedOut(known.owner)
    if len(request.state) > STATE_MAX_BYTES:
        return Failed(f"a state of {len(request.state)} bytes is above {STATE_MAX_BYTES}")
    if known.position and not may_replace(known.position, request):
        return Kept(known.position)
    _store(connection, request)
    return Committed()


def _store(connection: sqlite3.Connection, request: CommitPosition) -> None:
    anchor = request.anchor
    who = (anchor.producer, anchor.epoch, anchor.seq) if anchor else (None, None, None)
    connection.execute(
        "INSERT INTO surepipe_positions (stream, reader, owner, tag, next, anchor_producer, anchor_epoch,"
        " anchor_seq, state, committed_by, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET owner = excluded.owner, tag = excluded.tag, next = excluded.next,"
        " anchor_producer = excluded.anchor_producer, anchor_epoch = excluded.anchor_epoch,"
        " anchor_seq = excluded.anchor_seq, state = excluded.state, committed_by = excluded.committed_by,"
        " revision = excluded.revision",
        (
            request.stream,
            request.reader,
            request.owner,
            request.tag,
            request.next,
            *who,
            bytes(request.state),
            request.owner,
            request.revision,
        ),
    )
