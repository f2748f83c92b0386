"""Where an audit finds what was sent and what was delivered, as it is written on a command line.

    sent.jsonl  sent.parquet  traces/        rows of traces; a folder stands for the traces in it
    orders.db#orders                         a stream in a SQLite store
    redis://host:6379/0?pipeline=shop#orders a stream in a Redis store; the pipeline's name is on all of its keys

What stands behind the first ``#`` names the stream, so ``orders.db#orders#3`` is its partition 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from surepipe.audit.predicates import payload_digest
from surepipe.audit.trace_file import PARQUET, TraceFile
from surepipe.core.store_requests import (
    Batch,
    Entries,
    Failed,
    Store,
    StreamInfo,
    Unavailable,
    partition_of,
)
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.storage import RedisStore, SqliteStore

LINES = ".jsonl"
_MAGIC = b"PAR1"
_REDIS = re.compile(r"(redis|rediss|unix)://")


@dataclass(frozen=True, slots=True)
class Traces:
    """Files of trace rows."""

    files: tuple[Path, ...]

    def __str__(self) -> str:
        return ", ".join(str(file) for file in self.files)


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A stream in a store."""

    where: str = field(repr=False)
    """A Redis URL, which may hold a password, or the path of a SQLite file."""
    stream: str
    pipeline: str = ""

    @property
    def is_redis(self) -> bool:
        """True for a stream on a Redis server."""
        return bool(_REDIS.match(self.where))

    def __str__(self) -> str:
        return f"{re.sub(r'//[^/@]*@', '//', self.where)}#{self.stream}"


Place: TypeAlias = Traces | StoredStream


def place_of(text: str) -> Place:
    """The place that is written so. Raises ConfigurationError for one that names nothing."""
    if _REDIS.match(text):
        return _on_redis(text)
    path, _, stream = text.partition("#")
    if stream and not Path(text).exists():
        if not Path(path).is_file():
            raise ConfigurationError(f"{path} can't be read: no such file")
        return StoredStream(path, stream)
    return Traces(_files(Path(text)))


def _on_redis(text: str) -> StoredStream:
    url, _, stream = text.partition("#")
    parts = urlsplit(url)
    queries = dict(parse_qsl(parts.query))
    pipeline = queries.pop("pipeline", "")
    if not stream or not pipeline:
        shown = re.sub(r"//[^/@]*@", "//", text)
        raise ConfigurationError(
            f"{shown} names no stream: write redis://HOST:PORT/DB?pipeline=NAME#STREAM"
        )
    where = urlunsplit((*parts[:3], urlencode(queries), ""))
    return StoredStream(where, stream, pipeline)


def pooled(places: Sequence[Place]) -> tuple[Path, ...]:
    """The trace files of these places, each once."""
    files = [file for place in places if isinstance(place, Traces) for file in place.files]
    return tuple({file.resolve(): file for file in files}.values())


def _files(path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        inside = sorted(one for end in (PARQUET, LINES) for one in path.glob(f"*{end}"))
        if not inside:
            raise ConfigurationError(
                f"{path} holds no trace: no file in it ends in {PARQUET} or {LINES}"
            )
        # The other files are of processes that ended before their first pipe.
        begun = [one for one in inside if one.stat().st_size]
        return tuple(begun or inside)
    if not path.exists():
        raise ConfigurationError(f"{path} can't be read: no such file or folder")
    return (path,)


def check(file: Path) -> None:
    """Look whether this can be a file of trace rows, as far as its ends tell. Raises ConfigurationError."""
    try:
        with file.open("rb") as stream:
            head = stream.read(len(_MAGIC))
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - len(_MAGIC)))
            foot = stream.read()
    except OSError as error:
        raise ConfigurationError(
            f"{file} can't be read: {(error.strerror or '').lower()}"
        ) from None
    if not head:
        raise ConfigurationError(
            f"{file} is empty: a trace begins with a row 'run', which a process writes as its first pipe begins"
        )
    if file.suffix == PARQUET:
        if head != _MAGIC:
            raise ConfigurationError(f"{file} is not Parquet, whatever its name says")
        if foot != _MAGIC:
            raise ConfigurationError(f"{file} is cut off: the end of a Parquet file is missing")
        return
    rows = iter(TraceFile(file))
    try:
        first = next(rows, None)
    except UnicodeDecodeError:
        first = None
    if first is None:
        raise ConfigurationError(f"{file} is no trace: no line of it is a row")


def missing_columns(files: Sequence[Path], found: Sequence[str], required: frozenset[str]) -> None:
    """Refuse tables without the columns of a trace."""
    missing = sorted(required - set(found))
    if missing:
        where = files[0] if len(files) == 1 else f"{files[0].parent}"
        raise ConfigurationError(
            f"{where} is no trace: column {', '.join(missing)} is missing; a trace has those that "
            "surepipe run --trace writes"
        )


# Streams in stores as rows of an audit: by identity, or, where a hop gave new identities, by payload.
#
# A stream is read by runs: what one producer wrote in a row is one row. By payload, message k with the same
# content on one side is message k with it on the other; a hop that changes payloads can't be judged so.


MESSAGES_AT_ONCE = 16_384
BYTES_AT_ONCE = 16 << 20


@dataclass(frozen=True, slots=True)
class StreamRun:
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
        with closing(opened(place)) as store:
            self.extents = _extents(store, place)

    @property
    def is_trimmed(self) -> bool:
        """True when the beginning is gone."""
        return any(extent.earliest > 1 for extent in self.extents)

    def runs(self) -> Iterator[StreamRun]:
        """All of it, partition by partition, in order of the indexes."""
        with closing(opened(self.place)) as store:
            for extent in self.extents:
                yield from _read(store, extent, self.place)


def opened(place: StoredStream) -> RedisStore | SqliteStore:
    """The store of a stream. Raises ConfigurationError where there is no such file."""
    if place.is_redis:
        return RedisStore.from_url(place.where, pipeline=place.pipeline)
    if not Path(place.where).is_file():
        raise ConfigurationError(f"{place.where} can't be read: no such file")
    return SqliteStore(place.where)


def _extents(store: Store, place: StoredStream) -> tuple[Extent, ...]:
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


def _read(store: Store, extent: Extent, place: StoredStream) -> Iterator[StreamRun]:
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
            yield StreamRun(extent.stream, entries)
        index = outcome.next
