"""Requests as arguments of scripts, and replies of scripts as outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from surepipe.core.store_requests import (
    FORGOTTEN,
    STATE_MAX_BYTES,
    Absent,
    Ahead,
    AppendOutcome,
    AppendRun,
    Batch,
    Changed,
    CommitOutcome,
    CommitPosition,
    Committed,
    Created,
    CreateOutcome,
    Diverged,
    Empty,
    Entries,
    Exists,
    Failed,
    FencedOut,
    FoundValues,
    Full,
    Gap,
    Held,
    Identity,
    Kept,
    Mismatch,
    NoPosition,
    Owner,
    Position,
    ProducerInfo,
    ProducerOpened,
    ReaderInfo,
    ReadFrom,
    Reset,
    Retention,
    Stored,
    StoreOutcome,
    StreamDropped,
    StreamInfo,
    Trimmed,
    difference_of,
    missing,
)
from surepipe.storage.complaints import tell_removed
from surepipe.storage.pages import RawBatch, RawPage
from surepipe.storage.redis.keys import field_of
from surepipe.storage.redis.link import Reply
from surepipe.storage.redis.pages import measures_of, paged, unpaged

Argument: TypeAlias = bytes | str | int
Replies: TypeAlias = Sequence[Reply]


# Arguments.


def run_arguments(run: AppendRun) -> list[Argument]:
    """What ``take_run`` takes."""
    pages = list(paged(run.first, run.payloads))
    size = sum(page.size for page in pages)
    head: list[Argument] = [
        run.producer,
        run.epoch,
        run.first,
        len(run.payloads),
        size,
        len(pages),
    ]
    for page in pages:
        head += (page.first, page.count, page.size, page.body)
    return head


def commit_arguments(request: CommitPosition, expected_next: int | None = None) -> list[Argument]:
    """What ``take_commit`` takes."""
    anchor = request.anchor
    producer = anchor.producer.encode() if anchor else b""
    place = f"{anchor.epoch} {anchor.seq}" if anchor else "- 0"
    rest = f"{request.owner} {place} {len(producer)}\n".encode() + producer + request.state
    return [
        field_of(request.stream, request.reader),
        request.reader,
        request.owner,
        request.tag,
        request.next,
        rest,
        "" if request.previous_tag is None else request.previous_tag,
        "" if expected_next is None else expected_next,
        request.revision,
    ]


def too_long(request: CommitPosition) -> Failed | None:
    """S-10: a state has a bound."""
    size = len(request.state)
    if size <= STATE_MAX_BYTES:
        return None
    return Failed(f"a state of {size} bytes is above {STATE_MAX_BYTES}")


def retention_arguments(retention: Retention) -> list[Argument]:
    """Bounds as decimal text, empty where there is none."""
    bounds: list[Argument] = [
        "" if bound is None else bound for bound in (retention.max_bytes, retention.max_age_us)
    ]
    return [*bounds, int(retention.force)]


def rest_of(run: AppendRun, last: int) -> AppendRun:
    """What of the run comes after ``last``."""
    return replace(run, first=last + 1, payloads=run.payloads[last + 1 - run.first :])


# Outcomes.


def damaged(key: object) -> Failed:
    """For keys that do not fit together."""
    name = bytes_of(key).decode() if isinstance(key, bytes) else str(key)
    return Failed(
        f"key {name!r} does not fit its stream: somebody removed or changed keys by hand;"
        " restore a backup, or delete all keys of the stream"
    )


def bytes_of(reply: object) -> bytes:
    """A reply that must be bytes."""
    assert isinstance(reply, bytes), reply
    return reply


def number_of(reply: object) -> int:
    """A reply that must be a number, as such or as text."""
    assert isinstance(reply, int | bytes), reply
    return int(reply)


def text_of(reply: object) -> str:
    """A reply that must be text."""
    return bytes_of(reply).decode()


def list_of(reply: object) -> list[Reply]:
    """A reply that must be a list."""
    assert isinstance(reply, list), reply
    return cast("list[Reply]", reply)


def append_outcome(reply: Replies, stream: str) -> AppendOutcome:
    """The outcome of one append."""
    match reply[0]:
        case b"stored":
            new = number_of(reply[2])
            index = number_of(reply[3]) if new else None
            removed = _range_of(reply[4:])
            tell_removed(stream, removed)
            return Stored(number_of(reply[1]), new, index, removed)
        case b"gap":
            return Gap(number_of(reply[1]))
        case b"fenced":
            return FencedOut(number_of(reply[1]))
        case b"full":
            return Full(
                text_of(reply[1]), text_of(reply[2]), number_of(reply[3]), number_of(reply[4])
            )
        case _:
            return missing(stream)


def commit_outcome(reply: Replies) -> CommitOutcome:
    """The outcome of one commit."""
    match reply[0]:
        case b"committed":
            return Committed()
        case b"fenced":
            return FencedOut(number_of(reply[1]))
        case _:
            position = position_of(bytes_of(reply[1]))
            if isinstance(position, Position):
                return Kept(position)
            return Failed("the position is not where the hop expects it: the reader has none")


def position_of(value: bytes) -> Position | NoPosition:
    """A stored position (positions.lua)."""
    head, _, rest = value.partition(b"\n")
    if not head:
        return NoPosition()
    _, _, tag, next_index, revision, committed_by, epoch, seq, length = head.split(b" ")
    if tag == b"-":
        return NoPosition()
    producer = rest[: int(length)]
    anchor = None if epoch == b"-" else Identity(producer.decode(), int(epoch), int(seq))
    state = rest[int(length) :]
    return Position(int(tag), int(next_index), anchor, state, int(committed_by), int(revision))


def create_outcome(reply: Replies, partitions: int, retention: Retention) -> CreateOutcome:
    """Created, or how the stream that is there differs."""
    if reply[0] == b"created":
        return Created(number_of(reply[1]))
    known_partitions = number_of(reply[2])
    max_bytes, max_age = (int(bytes_of(bound)) if bound else None for bound in reply[3:5])
    known = Retention(max_bytes, max_age, reply[5] == b"1")
    what = difference_of((known_partitions, known), (partitions, retention))
    return Mismatch(what) if what else Exists(number_of(reply[1]))


def opened_outcome(reply: Replies) -> ProducerOpened:
    """The stored state of the epoch, and what is lost of it."""
    incarnation, last = map(number_of, reply[1:3])
    return ProducerOpened(incarnation, last, _range_of(reply[3:5]), _range_of(reply[5:]))


def _range_of(reply: Replies) -> tuple[int, int] | None:
    """First and last; 0 stands for none."""
    first, last = map(number_of, reply) if reply else (0, 0)
    return (first, last) if first else None


def identity_of(reply: Replies) -> Identity:
    """Who wrote an entry."""
    return Identity(text_of(reply[1]), number_of(reply[2]), number_of(reply[3]))


def trimmed_outcome(reply: Replies) -> Trimmed:
    """The remaining entries, and the readers that were passed."""
    return Trimmed(number_of(reply[1]), tuple(map(text_of, list_of(reply[2]))))


SIMPLE: dict[bytes, Callable[[Replies], StoreOutcome]] = {
    b"opened": opened_outcome,
    b"fenced": lambda reply: FencedOut(number_of(reply[1])),
    b"identity": identity_of,
    b"absent": lambda _: Absent(),
    b"empty": lambda reply: Empty(number_of(reply[1])),
    b"ahead": lambda reply: Ahead(number_of(reply[1])),
    b"diverged": lambda reply: Diverged(identity_of(reply)),
    b"reset": lambda reply: Reset(number_of(reply[1])),
    b"held": lambda reply: Held(text_of(reply[1]), number_of(reply[2])),
    b"owner": lambda reply: Owner(number_of(reply[1])),
    b"none": lambda _: NoPosition(),
    b"position": lambda reply: position_of(bytes_of(reply[1])),
    b"dropped": lambda _: StreamDropped(),
    b"changed": lambda _: Changed(),
    b"values": lambda reply: FoundValues([value_of(each) for each in list_of(reply[1])]),
}
"""Replies that say all by themselves."""


def value_of(reply: object) -> bytes | None:
    """A value of a table, or none."""
    return None if reply is None else bytes_of(reply)


def batch_of(reply: Replies, request: ReadFrom) -> Batch | Failed:
    """The pages of a reply, cut to what was asked for."""
    try:
        entries = list(_cut(map(_entries_of, list_of(reply[2])), request))
    except ValueError as error:
        return Failed(f"stream {request.stream!r}: {error}")
    last = entries[-1]
    return Batch(tuple(entries), last.index + len(last.payloads), number_of(reply[1]))


def _entries_of(page: Reply) -> Entries:
    entry_id, fields = list_of(page)
    _, producer, _, epoch, _, first, _, count, _, _, _, _, _, body = list_of(fields)
    index = int(bytes_of(entry_id).partition(b"-")[0])
    payloads = unpaged(bytes_of(body), number_of(count))
    return Entries(index, text_of(producer), number_of(epoch), number_of(first), payloads)


def raw_batch_of(reply: Replies, stream: str) -> RawBatch | Failed:
    """The pages of a reply, as they are."""
    try:
        return RawBatch(tuple(map(raw_page_of, list_of(reply[2]))), number_of(reply[1]))
    except ValueError as error:
        return Failed(f"stream {stream!r}: {error}")


def raw_page_of(page: Reply) -> RawPage:
    """One entry of a stream, as it is. ValueError for a body that is no page."""
    entry_id, fields = list_of(page)
    _, producer, _, epoch, _, first, _, count, _, at_us, _, _, _, stored = list_of(fields)
    index = int(bytes_of(entry_id).partition(b"-")[0])
    number, body = number_of(count), bytes_of(stored)
    width, lengths, start = measures_of(body, number)
    return RawPage(
        index=index,
        producer=text_of(producer),
        epoch=number_of(epoch),
        first=number_of(first),
        count=number,
        at_us=number_of(at_us),
        width=width,
        lengths=lengths,
        body=body,
        start=start,
    )


def _cut(pages: Iterable[Entries], request: ReadFrom) -> Iterable[Entries]:
    """The longest run from the index on within both bounds, one message at least."""
    messages, size, found = request.max_messages, request.max_bytes, False
    for page in pages:
        start = max(0, request.index - page.index)
        wanted = page.payloads[start : start + messages]
        count = _fitting(wanted, size) or (0 if found else 1)
        if count:
            found = True
            yield _part(page, start, count)
        messages -= count
        size -= sum(map(len, wanted[:count]))
        if start + count < len(page.payloads) or messages <= 0:
            return


def _part(page: Entries, start: int, count: int) -> Entries:
    if count == len(page.payloads):
        return page
    return Entries(
        page.index + start,
        page.producer,
        page.epoch,
        page.first + start,
        page.payloads[start : start + count],
    )


def _fitting(payloads: Sequence[bytes], size: int) -> int:
    """How many of the first payloads fit into so many bytes."""
    if sum(map(len, payloads)) <= size:
        return len(payloads)
    for count, payload in enumerate(payloads):
        size -= len(payload)
        if size < 0:
            return count
    return len(payloads)


def stream_info(reply: Replies) -> StreamInfo:
    """The head and the producers of a stream, as a record."""
    head, producers = pairs_of(reply[1]), pairs_of(reply[2])
    end = int(head[b"next"])
    positions = {
        name[2:].decode(): min(int(value), end)
        for name, value in head.items()
        if name.startswith(b"r:") and int(value) < FORGOTTEN
    }
    return StreamInfo(
        incarnation=int(head[b"incarnation"]),
        earliest=int(head[b"earliest"]),
        next=end,
        bytes=int(head[b"total"]) - int(head[b"cut"]),
        producers=tuple(
            ProducerInfo(name.decode(), *map(int, value.split()))
            for name, value in sorted(producers.items())
        ),
        readers=tuple(
            ReaderInfo(name, place, end - place) for name, place in sorted(positions.items())
        ),
    )


def pairs_of(reply: Reply) -> dict[bytes, bytes]:
    """Fields and values that came by turns."""
    flat = [bytes_of(part) for part in list_of(reply)]
    return dict(zip(flat[::2], flat[1::2], strict=True))
