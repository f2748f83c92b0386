"""What a stream store does, as SQL on one connection. The caller has begun a transaction and ends it."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, takewhile

from surepipe.core.store_requests import (
    Absent,
    Ahead,
    AppendOutcome,
    AppendRun,
    Batch,
    Changed,
    Created,
    Diverged,
    DropOutcome,
    DropStream,
    Empty,
    Entries,
    Exists,
    Failed,
    FencedOut,
    Full,
    Gap,
    Held,
    IdentifyOutcome,
    Identity,
    InfoOutcome,
    Mismatch,
    OpenOutcome,
    ProducerInfo,
    ProducerOpened,
    ReaderInfo,
    ReadFrom,
    ReadOutcome,
    Reset,
    Retention,
    Stored,
    StreamDropped,
    StreamInfo,
    Trimmed,
    TrimOutcome,
    difference_of,
    missing,
    one_of_several,
    partition_of,
)
from surepipe.storage.complaints import tell_removed
from surepipe.storage.pages import Packed, PagesOutcome, RawBatch, RawPage, cuts
from surepipe.storage.positions import furthest_behind, registered

# Pages: runs of messages as rows, each a body of joined payloads and their lengths.


PAGE_MAX_BYTES = 64 * 1024
"""A longer run takes several pages. A longer message has one of its own."""


@dataclass(frozen=True, slots=True)
class SqlitePage:
    """Payloads as one row holds them. Payloads of one length need no list of lengths."""

    count: int
    size_bytes: int
    lengths: bytes | None
    body: bytes


def pages_of(payloads: Sequence[bytes]) -> list[SqlitePage]:
    """The payloads in order, in as few pages as fit."""
    if isinstance(payloads, Packed):
        return [_packed_page(payloads[a:b]) for a, b in cuts(payloads, PAGE_MAX_BYTES)]
    body = b"".join(payloads)
    if len(body) <= PAGE_MAX_BYTES:
        return [_page(payloads, body)]
    parts = [payloads[start:stop] for start, stop in cuts(payloads, PAGE_MAX_BYTES)]
    return [_page(part, b"".join(part)) for part in parts]


def _page(payloads: Sequence[bytes], body: bytes) -> SqlitePage:
    count = len(payloads)
    is_even = len(set(map(len, payloads))) == 1
    packed = None if is_even else struct.pack(f"<{count}I", *map(len, payloads))
    return SqlitePage(count, len(body), packed, body)


def _packed_page(payloads: Packed) -> SqlitePage:
    shortest, longest = payloads.extremes()
    body = payloads.body.tobytes()
    lengths = None if shortest == longest else payloads.lengths(4)
    return SqlitePage(len(payloads), len(body), lengths, body)


def payloads_of(page: SqlitePage) -> list[bytes]:
    """The payloads of a page."""
    if page.lengths is None:
        length = page.size_bytes // page.count
        if not length:
            return [b""] * page.count
        return [page.body[at : at + length] for at in range(0, page.size_bytes, length)]
    lengths = struct.unpack(f"<{page.count}I", page.lengths)
    return [page.body[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]


# The rows of streams, and what may be removed from them. The caller has begun a transaction and ends it.


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


def page_start(connection: sqlite3.Connection, stream: StreamRow, index: int) -> int:
    """The first index of the page that holds ``index``; of the next page when none does."""
    (start,) = connection.execute(
        "SELECT max(first_index) FROM surepipe_pages WHERE stream = ? AND first_index <= ?",
        (stream.id, index),
    ).fetchone()
    return index if start is None else int(start)


def _places(connection: sqlite3.Connection, stream: StreamRow) -> list[tuple[str, int]]:
    """All that ever had a position, sorted by name, and the index that it says."""
    query = (
        "SELECT reader, next FROM surepipe_positions"
        " WHERE stream = ? AND next IS NOT NULL ORDER BY reader"
    )
    return connection.execute(query, (stream.name,)).fetchall()


def readers_of(connection: sqlite3.Connection, stream: StreamRow) -> list[tuple[str, int]]:
    """The readers for whom entries are kept, sorted by name, and their next index."""
    return registered(_places(connection, stream), stream.next)


def make_room(
    connection: sqlite3.Connection, stream: StreamRow, size: int, now_us: int
) -> tuple[StreamRow, Full | None]:
    """Let old pages go; also returns the bound that would be broken all the same, and by whom."""
    reader, unread = furthest_behind(_places(connection, stream), stream.next)
    keep = stream.next if stream.retention.force else unread - 1
    while (
        (oldest := _oldest_page(connection, stream, 0))
        and oldest.end <= keep
        and _broken(stream, oldest, stream.size_bytes, size, now_us)
    ):
        stream = _remove_below(connection, stream, oldest.end)
    if stream.retention.force:
        return stream, None
    # Read pages that stay as anchors are no reason to refuse new messages for ever.
    oldest = _oldest_page(connection, stream, unread)
    kept = _bytes_from(connection, stream, unread)
    bound = _broken(stream, oldest, kept, size, now_us)
    full = Full(bound, reader, unread, stream.next - unread)
    return stream, full if bound else None


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


# Making and forgetting.


def create(
    connection: sqlite3.Connection,
    stream: str,
    partitions: int,
    retention: Retention,
    incarnation: int,
) -> Created | Exists | Mismatch:
    """Make a stream, or look whether the one that is there was made in the same way."""
    known = find(connection, stream) or find(connection, partition_of(stream, 0))
    if known is not None:
        what = difference_of((known.partitions, known.retention), (partitions, retention))
        return Mismatch(what) if what else Exists(known.incarnation)
    numbers = range(partitions)
    names = [stream] if partitions == 1 else [partition_of(stream, n) for n in numbers]
    connection.executemany(
        "INSERT INTO surepipe_streams"
        " (name, incarnation, partitions, max_bytes, max_age_us, forced, earliest, next, bytes)"
        " VALUES (?, ?, ?, ?, ?, ?, 1, 1, 0)",
        [
            (
                name,
                incarnation,
                partitions,
                retention.max_bytes,
                retention.max_age_us,
                retention.force,
            )
            for name in names
        ],
    )
    return Created(incarnation)


def change_retention(
    connection: sqlite3.Connection, stream: str, retention: Retention
) -> Changed | Failed:
    """Let all partitions of a stream have another retention. Removes nothing."""
    partitions = _partitions(connection, stream)
    known = find(connection, partitions[0][1]) if partitions else None
    if known is None:
        return missing(stream)
    if known.partitions != len(partitions):
        return one_of_several(stream)
    connection.executemany(
        "UPDATE surepipe_streams SET max_bytes = ?, max_age_us = ?, forced = ? WHERE id = ?",
        [
            (retention.max_bytes, retention.max_age_us, retention.force, number)
            for number, _ in partitions
        ],
    )
    return Changed()


def delete(connection: sqlite3.Connection, stream: str) -> None:
    """Forget a stream with all its partitions, but not the positions of its readers."""
    for number, _ in _partitions(connection, stream):
        for table in ("pages", "producers", "removals", "streams"):
            column = "id" if table == "streams" else "stream"
            connection.execute(f"DELETE FROM surepipe_{table} WHERE {column} = ?", (number,))


def _partitions(connection: sqlite3.Connection, stream: str) -> list[tuple[int, str]]:
    """Number and name of each."""
    rows = connection.execute("SELECT id, name FROM surepipe_streams").fetchall()
    return [(n, name) for n, name in rows if name == stream or name.startswith(f"{stream}#")]


def drop(connection: sqlite3.Connection, request: DropStream) -> DropOutcome:
    """Forget a stream with everything, unless a producer has a higher epoch."""
    partitions = _partitions(connection, request.stream)
    if not partitions:
        return Absent()
    query = "SELECT max(epoch) FROM surepipe_producers WHERE stream = ?"
    epochs = [connection.execute(query, (number,)).fetchone()[0] for number, _ in partitions]
    highest = max((epoch for epoch in epochs if epoch is not None), default=0)
    if request.epoch < highest:
        return FencedOut(highest)
    delete(connection, request.stream)
    for _, name in partitions:
        connection.execute("DELETE FROM surepipe_positions WHERE stream = ?", (name,))
    return StreamDropped()


# Writing.


def _known_producer(
    connection: sqlite3.Connection, stream: StreamRow, producer: str
) -> tuple[int, int] | None:
    """Epoch and last seq."""
    query = "SELECT epoch, last FROM surepipe_producers WHERE stream = ? AND name = ?"
    known: tuple[int, int] | None = connection.execute(query, (stream.id, producer)).fetchone()
    return known


def _remember_producer(
    connection: sqlite3.Connection, stream: StreamRow, producer: str, epoch: int, last: int
) -> None:
    connection.execute(
        "INSERT INTO surepipe_producers VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET epoch = excluded.epoch, last = excluded.last",
        (stream.id, producer, epoch, last),
    )


def open_producer(
    connection: sqlite3.Connection, name: str, producer: str, epoch: int, base: int
) -> OpenOutcome:
    """Take the epoch, and say what was stored of it."""
    stream = find(connection, name)
    if stream is None:
        return missing(name)
    known = _known_producer(connection, stream, producer)
    known_epoch, last = known or (epoch, base - 1)
    if epoch < known_epoch:
        return FencedOut(known_epoch)
    if epoch > known_epoch:
        last = 0
    lost = (last + 1, base - 1) if last < base - 1 else None
    last = max(last, base - 1)
    if known != (epoch, last):
        _remember_producer(connection, stream, producer, epoch, last)
    removed = _told_before(connection, stream, producer, epoch, (1, last))
    return ProducerOpened(stream.incarnation, last, lost, removed)


def append(connection: sqlite3.Connection, run: AppendRun, now_us: int) -> AppendOutcome:
    """Append what is new of the run."""
    stream = find(connection, run.stream)
    if stream is None:
        return missing(run.stream)
    epoch, last = _known_producer(connection, stream, run.producer) or (run.epoch, 0)
    if run.epoch < epoch:
        return FencedOut(epoch)
    if run.epoch > epoch:
        last = 0
    if run.first > last + 1:
        return Gap(last + 1)
    known = last + 1 - run.first
    new = run.payloads[known:] if known else run.payloads
    if not new:
        written = (run.first, run.last)
        told = _told_before(connection, stream, run.producer, run.epoch, written)
        return Stored(last, 0, None, told)
    pages = pages_of(new)
    if stream.retention.max_bytes is not None or stream.retention.max_age_us is not None:
        size = sum(page.size_bytes for page in pages)
        stream, full = make_room(connection, stream, size, now_us)
        if full is not None:
            return full
    removed = _removed_by_others(connection, stream)
    _store(connection, stream, run, pages, now_us)
    if removed is not None:
        tell_removed(run.stream, removed)
        connection.execute(
            "INSERT OR REPLACE INTO surepipe_removals VALUES (?, ?, ?, ?, ?, ?)",
            (stream.id, *removed, run.producer, run.epoch, run.last),
        )
        connection.execute(
            "UPDATE surepipe_streams SET (earliest, bytes) ="
            " (SELECT min(first_index), sum(bytes) FROM surepipe_pages WHERE stream = :stream)"
            " WHERE id = :stream",
            {"stream": stream.id},
        )
    return Stored(run.last, len(new), stream.next, removed)


def _store(
    connection: sqlite3.Connection,
    stream: StreamRow,
    run: AppendRun,
    pages: list[SqlitePage],
    now_us: int,
) -> None:
    index, size = stream.next, stream.size_bytes
    seq = run.last + 1 - sum(page.count for page in pages)
    for page in pages:
        connection.execute(
            "INSERT INTO surepipe_pages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                stream.id,
                index,
                run.producer,
                run.epoch,
                seq,
                page.count,
                page.size_bytes,
                now_us,
                page.lengths,
                page.body,
            ),
        )
        index, seq, size = index + page.count, seq + page.count, size + page.size_bytes
    connection.execute(
        "UPDATE surepipe_streams SET next = ?, bytes = ? WHERE id = ?", (index, size, stream.id)
    )
    _remember_producer(connection, stream, run.producer, run.epoch, run.last)


# Reading.


def next_index(connection: sqlite3.Connection, name: str) -> int | Failed:
    """The index that the next append will get."""
    query = "SELECT next FROM surepipe_streams WHERE name = ?"
    row = connection.execute(query, (name,)).fetchone()
    return int(row[0]) if row else missing(name)


def _readable(
    connection: sqlite3.Connection, request: ReadFrom
) -> StreamRow | Empty | Trimmed | Reset | Ahead | Diverged | Failed:
    """The stream, when there is an entry at the index."""
    stream = find(connection, request.stream)
    if stream is None:
        return missing(request.stream)
    if request.incarnation not in (None, stream.incarnation):
        return Reset(stream.incarnation)
    if request.index < stream.earliest:
        return Trimmed(stream.earliest)
    if request.index > stream.next:
        return Ahead(stream.next)
    if request.anchor is not None:
        found = _identity_at(connection, stream, request.index - 1)
        if found not in (None, request.anchor):
            return Diverged(found)
    return Empty(stream.next) if request.index == stream.next else stream


def read(connection: sqlite3.Connection, request: ReadFrom) -> ReadOutcome:
    """Entries from an index on."""
    stream = _readable(connection, request)
    if not isinstance(stream, StreamRow):
        return stream
    entries = _cut(connection, stream, request.index, request.max_messages, request.max_bytes)
    if not entries:
        return _trimmed_by_others(connection, stream, request.index)
    last = entries[-1]
    return Batch(tuple(entries), last.index + len(last.payloads), stream.next)


def _trimmed_by_others(connection: sqlite3.Connection, stream: StreamRow, index: int) -> Trimmed:
    """There is no page with this index, though there was one: what is gone reaches to the next page."""
    (following,) = connection.execute(
        "SELECT min(first_index) FROM surepipe_pages WHERE stream = ? AND first_index >= ?",
        (stream.id, index),
    ).fetchone()
    return Trimmed(stream.next if following is None else int(following))


def _removed_by_others(connection: sqlite3.Connection, stream: StreamRow) -> tuple[int, int] | None:
    """The first and last index of what is missing at either end; a hole in between is met by who reads there."""
    first, last = connection.execute(
        "SELECT (SELECT min(first_index) FROM surepipe_pages WHERE stream = :stream),"
        " (SELECT first_index + count FROM surepipe_pages WHERE stream = :stream"
        " ORDER BY first_index DESC LIMIT 1)",
        {"stream": stream.id},
    ).fetchone()
    if stream.earliest == stream.next or (first, last) == (stream.earliest, stream.next):
        return None
    if first is None:
        return stream.earliest, stream.next - 1
    gone_first = stream.earliest if first > stream.earliest else last
    return gone_first, stream.next - 1 if last < stream.next else first - 1


def _told_before(
    connection: sqlite3.Connection,
    stream: StreamRow,
    producer: str,
    epoch: int,
    written: tuple[int, int],
) -> tuple[int, int] | None:
    """What a run of this producer was told that somebody else had removed, when it ended among these messages."""
    query = (
        "SELECT first, last FROM surepipe_removals"
        " WHERE stream = ? AND producer = ? AND epoch = ? AND seq BETWEEN ? AND ?"
    )
    told: tuple[int, int] | None = connection.execute(
        query, (stream.id, producer, epoch, *written)
    ).fetchone()
    return told


def _without_a_hole(index: int, pages: Iterator[Entries]) -> Iterator[Entries]:
    """From the page with this index on, as far as one follows the other; nothing where there is none."""
    at = index

    def follows(page: Entries) -> bool:
        nonlocal at
        is_next = page.index <= at < page.index + len(page.payloads)
        at = page.index + len(page.payloads)
        return is_next

    return takewhile(follows, pages)


def read_pages(connection: sqlite3.Connection, request: ReadFrom) -> PagesOutcome:
    """Pages from an index on, not taken apart, until both bounds are reached; one at least."""
    stream = _readable(connection, request)
    if not isinstance(stream, StreamRow):
        return stream
    rows = connection.execute(
        "SELECT first_index, producer, epoch, first_seq, count, stored_us, lengths, body"
        " FROM surepipe_pages WHERE stream = ? AND first_index >= ? ORDER BY first_index",
        (stream.id, page_start(connection, stream, request.index)),
    )
    pages: list[RawPage] = []
    stop, left, at = request.index + request.max_messages, request.max_bytes, request.index
    for index, producer, epoch, first, count, at_us, lengths, body in rows:
        if not index <= at < index + count:
            break
        at = index + count
        width = 0 if lengths is None else 4
        sizes = memoryview(lengths or b"")
        pages.append(RawPage(index, producer, epoch, first, count, at_us, width, sizes, body, 0))
        left -= len(body)
        if index + count >= stop or left <= 0:
            break
    if not pages:
        return _trimmed_by_others(connection, stream, request.index)
    return RawBatch(tuple(pages), stream.next)


def _pages_from(connection: sqlite3.Connection, stream: StreamRow, index: int) -> Iterator[Entries]:
    rows = connection.execute(
        "SELECT first_index, producer, epoch, first_seq, count, bytes, lengths, body"
        " FROM surepipe_pages WHERE stream = ? AND first_index >= ? ORDER BY first_index",
        (stream.id, page_start(connection, stream, index)),
    )
    for at, producer, epoch, first, count, size, lengths, body in rows:
        payloads = payloads_of(SqlitePage(count, size, lengths, body))
        yield Entries(at, producer, epoch, first, payloads)


def _cut(
    connection: sqlite3.Connection, stream: StreamRow, index: int, messages: int, size: int
) -> list[Entries]:
    """The longest run of entries within both bounds, one at least."""
    found: list[Entries] = []
    for page in _without_a_hole(index, _pages_from(connection, stream, index)):
        start = max(0, index - page.index)
        wanted = page.payloads[start : start + max(1, messages)]
        count = _fitting(wanted, size) or (0 if found else 1)
        if count:
            payloads = wanted if count == len(wanted) else wanted[:count]
            at, first = page.index + start, page.first + start
            found.append(Entries(at, page.producer, page.epoch, first, payloads))
        messages -= count
        size -= sum(map(len, wanted[:count]))
        if start + count < len(page.payloads) or messages <= 0 or size <= 0:
            break
    return found


def _fitting(payloads: Sequence[bytes], size: int) -> int:
    """How many of the first payloads fit into so many bytes."""
    if sum(map(len, payloads)) <= size:
        return len(payloads)
    for count, payload in enumerate(payloads):
        size -= len(payload)
        if size < 0:
            return count
    return len(payloads)


def identify(connection: sqlite3.Connection, name: str, index: int) -> IdentifyOutcome:
    """Who wrote the entry at an index."""
    stream = find(connection, name)
    if stream is None:
        return missing(name)
    if not 1 <= index < stream.next:
        return Absent()
    if index < stream.earliest:
        return Trimmed(stream.earliest)
    found = _identity_at(connection, stream, index)
    return Trimmed(index + 1) if found is None else found


def _identity_at(connection: sqlite3.Connection, stream: StreamRow, index: int) -> Identity | None:
    """Who wrote the entry; None when it is gone, as after somebody else has removed it."""
    row = connection.execute(
        "SELECT first_index, producer, epoch, first_seq, count FROM surepipe_pages"
        " WHERE stream = ? AND first_index <= ? ORDER BY first_index DESC LIMIT 1",
        (stream.id, index),
    ).fetchone()
    if row is None:
        return None
    start, producer, epoch, first, count = row
    return Identity(producer, epoch, first + index - start) if index < start + count else None


def info(connection: sqlite3.Connection, name: str) -> InfoOutcome:
    """The whole record."""
    stream = find(connection, name)
    if stream is None:
        return missing(name)
    producers = connection.execute(
        "SELECT name, epoch, last FROM surepipe_producers WHERE stream = ? ORDER BY name",
        (stream.id,),
    )
    return StreamInfo(
        stream.incarnation,
        stream.earliest,
        stream.next,
        stream.size_bytes,
        tuple(ProducerInfo(*row) for row in producers),
        tuple(
            ReaderInfo(reader, at, stream.next - at)
            for reader, at in readers_of(connection, stream)
        ),
    )
