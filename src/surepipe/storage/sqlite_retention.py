"""The rows of streams, and what may be removed from them. The caller has begun a transaction and ends it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from surepipe.store_api import Failed, Held, Retention, Trimmed, TrimOutcome


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream as its row says."""

    id: int
    name: str
    incarnation: int
    partitions: int
    retention: Retention
    earliest: int
    next: int
    size_bytes: int


def find(connection: sqlite3.Connection, name: str) -> StreamRow | None:
    """The row of a stream; None when there is no such stream."""
    row = connection.execute(
        "SELECT id, incarnation, partitions, max_bytes, max_age_us, forced, earliest, next, bytes"
        " FROM surepipe_streams WHERE name = ?",
        (name,),
    ).fetchone()
    if row is None:
        return None
    number, incarnation, partitions, max_bytes, max_age_us, forced, earliest, following, size = row
    retention = Retention(max_bytes, max_age_us, bool(forced))
    return StreamRow(number, name, incarnation, partitions, retention, earliest, following, size)


def missing(stream: str) -> Failed:
    """The answer of all calls but ``create``."""
    return Failed(f"stream {stream!r} does not exist; create it first")


def page_start(connection: sqlite3.Connection, stream: StreamRow, index: int) -> int:
    """The first index of the page that holds ``index``; of the next page when none does."""
    (start,) = connection.execute(
        "SELECT max(first_index) FROM surepipe_pages WHERE stream = ? AND first_index <= ?",
        (stream.id, index),
    ).fetchone()
    return index if start is None else int(start)


def readers_of(connection: sqlite3.Connection, stream: StreamRow) -> list[tuple[str, int]]:
    """The readers that have a position, sorted by name, and their next index."""
    rows = connection.execute(
        "SELECT reader, next FROM surepipe_positions"
        " WHERE stream = ? AND next IS NOT NULL ORDER BY reader",
        (stream.name,),
    )
    return [(reader, min(following, stream.next)) for reader, following in rows]


def make_room(
    connection: sqlite3.Connection, stream: StreamRow, size: int, now_us: int
) -> tuple[StreamRow, str]:
    """Let old pages go; also returns the bound that would be broken all the same."""
    readers = readers_of(connection, stream)
    unread = min((following for _, following in readers), default=stream.next + 1)
    keep = stream.next if stream.retention.force else unread - 1
    while (
        (oldest := _oldest_page(connection, stream, 0))
        and oldest.end <= keep
        and _broken(stream, oldest, stream.size_bytes, size, now_us)
    ):
        stream = _remove_below(connection, stream, oldest.end)
    if stream.retention.force:
        return stream, ""
    # Read pages that stay as anchors are no reason to refuse new messages for ever.
    oldest = _oldest_page(connection, stream, unread)
    kept = _bytes_from(connection, stream, unread)
    return stream, _broken(stream, oldest, kept, size, now_us)


@dataclass(frozen=True, slots=True)
class _OldPage:
    end: int
    stored_us: int


def _oldest_page(connection: sqlite3.Connection, stream: StreamRow, index: int) -> _OldPage | None:
    """The first page with an entry at ``index`` or behind it."""
    row = connection.execute(
        "SELECT first_index + count, stored_us FROM surepipe_pages"
        " WHERE stream = ? AND first_index >= ? ORDER BY first_index LIMIT 1",
        (stream.id, page_start(connection, stream, index)),
    ).fetchone()
    return _OldPage(*row) if row and row[0] > index else None


def _broken(stream: StreamRow, oldest: _OldPage | None, kept: int, size: int, now_us: int) -> str:
    """The bound that so many kept bytes, the oldest page, and so many new bytes break together."""
    limit, age = stream.retention.max_bytes, stream.retention.max_age_us
    if limit is not None and kept and kept + size > limit:
        return f"max_bytes={limit}"
    if age is not None and oldest and now_us - oldest.stored_us > age:
        return f"max_age_us={age}"
    return ""


def _bytes_from(connection: sqlite3.Connection, stream: StreamRow, index: int) -> int:
    """Bytes of the pages that hold entries from an index on."""
    if index <= stream.earliest:
        return stream.size_bytes
    if index >= stream.next:
        return 0
    (size,) = connection.execute(
        "SELECT coalesce(sum(bytes), 0) FROM surepipe_pages WHERE stream = ? AND first_index >= ?",
        (stream.id, page_start(connection, stream, index)),
    ).fetchone()
    return int(size)


def _remove_below(connection: sqlite3.Connection, stream: StreamRow, before: int) -> StreamRow:
    """Remove whole pages below ``before``."""
    start = stream.next if before >= stream.next else page_start(connection, stream, before)
    if start <= stream.earliest:
        return stream
    removed = (stream.id, start)
    where = "FROM surepipe_pages WHERE stream = ? AND first_index < ?"
    (size,) = connection.execute(f"SELECT coalesce(sum(bytes), 0) {where}", removed).fetchone()
    connection.execute(f"DELETE {where}", removed)
    connection.execute(
        "UPDATE surepipe_streams SET earliest = ?, bytes = bytes - ? WHERE id = ?",
        (start, size, stream.id),
    )
    return replace(stream, earliest=start, size_bytes=stream.size_bytes - size)


def trim(connection: sqlite3.Connection, name: str, before: int) -> TrimOutcome:
    """Forget entries below ``before``, in whole pages."""
    stream = find(connection, name)
    if stream is None:
        return missing(name)
    readers = readers_of(connection, stream)
    behind = [(reader, at) for reader, at in readers if at < min(before, stream.next)]
    if stream.retention.force:
        earliest = _remove_below(connection, stream, before).earliest
        return Trimmed(earliest, tuple(reader for reader, at in behind if at < earliest))
    if behind:
        return Held(*min(behind, key=lambda reader: reader[1]))
    before = min([before, *(at - 1 for _, at in readers)])
    return Trimmed(_remove_below(connection, stream, before).earliest)
