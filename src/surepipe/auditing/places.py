"""Where an audit finds what was sent and what was delivered, as it is written on a command line.

    sent.jsonl  sent.parquet  traces/        rows of traces; a folder stands for the traces in it
    orders.db#orders                         a stream in a SQLite store
    redis://host:6379/0?pipeline=shop#orders a stream in a Redis store; the pipeline's name is on all of its keys

What stands behind the first ``#`` names the stream, so ``orders.db#orders#3`` is its partition 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from surepipe.errors import ConfigurationError
from surepipe.simulation.trace_file import PARQUET, TraceFile

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
        return tuple(inside)
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
        raise ConfigurationError(f"{file} is empty: a trace begins with a row 'run'")
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
