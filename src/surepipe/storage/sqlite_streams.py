"""What a stream store does, as SQL on one connection. The caller has begun a transaction and ends it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import takewhile

from surepipe.storage.complaints import tell_removed
from surepipe.storage.raw_pages import PagesOutcome, RawBatch, RawPage
from surepipe.storage.sqlite_pages import Page, pages_of, payloads_of
from surepipe.storage.sqlite_retention import (
    StreamRow,
    find,
    make_room,
    missing,
    page_start,
    readers_of,
)
from surepipe.store_api import (
    Absent,
    Ahead,
    AppendOutcome,
    AppendRun,
    Batch,
    Created,
    Empty,
    Entries,
    Exists,
    Failed,
    Fenced,
    Full,
    Gap,
    IdentifyOutcome,
    Identity,
    InfoOutcome,
    Mismatch,
    Opened,
    OpenOutcome,
    ProducerInfo,
    ReaderInfo,
    ReadFrom,
    ReadOutcome,
    Reset,
    Retention,
    Stored,
    StreamInfo,
    Trimmed,
    partition_of,
)

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
        what = _difference(known, partitions, retention)
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


def _difference(known: StreamRow, partitions: int, retention: Retention) -> str:
    if known.partitions != partitions:
        return f"it has {known.partitions} partitions, not {partitions}"
    if known.retention != retention:
        return f"its retention is {known.retention}, not {retention}"
    return ""


def delete(connection: sqlite3.Connection, stream: str) -> None:
    """Forget a stream with all its partitions, but not the positions of its readers."""
    rows = connection.execute("SELECT id, name FROM surepipe_streams").fetchall()
    for number, name in rows:
        if name == stream or name.startswith(f"{stream}#"):
            connection.execute("DELETE FROM surepipe_pages WHERE stream = ?", (number,))
            connection.execute("DELETE FROM surepipe_producers WHERE stream = ?", (number,))
            connection.execute("DELETE FROM surepipe_streams WHERE id = ?", (number,))


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
        return Fenced(known_epoch)
    if epoch > known_epoch:
        last = 0
    lost = (last + 1, base - 1) if last < base - 1 else None
    last = max(last, base - 1)
    if known != (epoch, last):
        _remember_producer(connection, stream, producer, epoch, last)
    return Opened(stream.incarnation, last, lost)


def append(connection: sqlite3.Connection, run: AppendRun, now_us: int) -> AppendOutcome:
    """Append what is new of the run."""
    stream = find(connection, run.stream)
    if stream is None:
        return missing(run.stream)
    epoch, last = _known_producer(connection, stream, run.producer) or (run.epoch, 0)
    if run.epoch < epoch:
        return Fenced(epoch)
    if run.epoch > epoch:
        last = 0
    if run.first > last + 1:
        return Gap(last + 1)
    known = last + 1 - run.first
    new = run.payloads[known:] if known else run.payloads
    if not new:
        return Stored(last, 0, None)
    pages = pages_of(new)
    if stream.retention.max_bytes is not None or stream.retention.max_age_us is not None:
        size = sum(page.size_bytes for page in pages)
        stream, bound = make_room(connection, stream, size, now_us)
        if bound:
            return Full(bound)
    removed = _removed_by_others(connection, stream)
    _store(connection, stream, run, pages, now_us)
    if removed is not None:  # it is told once
        tell_removed(run.stream, removed)
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
    pages: list[Page],
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
) -> StreamRow | Empty | Trimmed | Reset | Ahead | Failed:
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
        payloads = payloads_of(Page(count, size, lengths, body))
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
    row = connection.execute(
        "SELECT first_index, producer, epoch, first_seq FROM surepipe_pages"
        " WHERE stream = ? AND first_index = ? AND first_index + count > ?",
        (stream.id, page_start(connection, stream, index), index),
    ).fetchone()
    if row is None:  # somebody else has removed it
        return Trimmed(index + 1)
    start, producer, epoch, first = row
    return Identity(producer, epoch, first + index - start)


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
