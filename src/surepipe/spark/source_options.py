"""Options of the data source. Spark gives texts; they are read once and checked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from surepipe.errors import ConfigurationError
from surepipe.spark.stores import StorePlace

Start: TypeAlias = Literal["earliest", "latest"] | int
TASK_ROWS_MIN = 20_000
"""Streams with fewer rows than this share a task."""
TASKS = 8

PLACE_OPTIONS = ("store", "pipeline", "spread", "level", "replicas", "answer_s")
_OWN = (
    "streams", "stream", "start", "on_trimmed", "on_reset", "on_diverged", "on_hole", "on_missing", "reader",
    "trim", "max_rows", "max_rows_per_task", "tasks", "rows",
)  # fmt: skip
SPARKS_OPTIONS = ("path", "paths")
"""What Spark adds by itself."""
ROWS = ("messages", "pages")
"""What a row is."""
_CHOICES = {
    "on_trimmed": ("stop", "skip"),
    "on_reset": ("stop", "earliest"),
    "on_diverged": ("stop", "earliest"),
    "on_hole": ("stop", "skip"),
    "on_missing": ("stop", "wait"),
    "rows": ROWS,
}
"""The first one is meant when an option is not given."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The streams to read, where to begin, and what to do when entries are gone."""

    place: StorePlace
    streams: tuple[str, ...]
    start: Start = "earliest"
    """Where a stream begins that the query has not read yet: earliest, latest or an index."""
    on_trimmed: str = "stop"
    on_reset: str = "stop"
    on_diverged: str = "stop"
    on_hole: str = "stop"
    on_missing: str = "stop"
    rows: str = "messages"
    reader: str | None = None
    """The name under which the query's position is kept in the store."""
    trim: bool = False
    max_rows: int | None = None
    max_rows_per_task: int | None = None
    tasks: int = TASKS

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read Spark's options. Raises ConfigurationError that names the option and what to write."""
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in (*PLACE_OPTIONS, *_OWN, *SPARKS_OPTIONS):
                raise ConfigurationError(
                    f"option {name!r} of the surepipe source is unknown: {nearest(name, (*PLACE_OPTIONS, *_OWN))}"
                )
        return cls(
            place=StorePlace.of_options(given),
            streams=_streams(given),
            start=_start(given.get("start", "earliest")),
            **{name: choice(given, name) for name in _CHOICES},
            reader=given.get("reader") or None,
            trim=_flag(given, "trim"),
            max_rows=_count(given, "max_rows"),
            max_rows_per_task=_count(given, "max_rows_per_task"),
            tasks=_count(given, "tasks") or TASKS,
        )


def _streams(options: Mapping[str, str]) -> tuple[str, ...]:
    if one := options.get("stream"):
        return (one,)
    text = options.get("streams", "")
    if text.startswith("["):
        try:
            names = cast("list[object]", json.loads(text))
        except ValueError as error:
            raise ConfigurationError(f"option streams is no list in JSON: {error}") from None
        streams = tuple(str(name) for name in names)
    else:
        streams = tuple(name.strip() for name in text.split(",") if name.strip())
    if not streams:
        raise ConfigurationError(
            "no stream is named: give stream=orders, or streams=orders,clicks (or a list in JSON)"
        )
    if len(set(streams)) < len(streams):
        raise ConfigurationError(f"option streams names one twice: {text}")
    return tuple(sorted(streams))


def _start(text: str) -> Start:
    if text in ("earliest", "latest"):
        return cast("Start", text)
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigurationError(f"option start is {text!r}: write earliest, latest or an index from 1")


def choice(options: Mapping[str, str], name: str) -> str:
    """An option that is one of a few words. Raises ConfigurationError."""
    value = options.get(name, _CHOICES[name][0])
    if value not in _CHOICES[name]:
        raise ConfigurationError(f"option {name} is {value!r}: write {' or '.join(_CHOICES[name])}")
    return value


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise ConfigurationError(f"option {name} is {value!r}: write true or false")
    return value == "true"


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"option {name} is {text!r}: write a whole number from 1")
    return int(text)


def nearest(word: str, known: Sequence[str]) -> str:
    """The word that was probably meant, else all that are known."""
    close = difflib.get_close_matches(word.lower(), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"


# Conditions of a query that the source takes over: which streams, which partitions, which range of indexes.


INDEX_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WantedEntries:
    """The entries that all conditions allow."""

    first: int = 1
    last: int = INDEX_MAX
    streams: frozenset[str] | None = None
    partitions: frozenset[int] | None = None

    def has(self, stream: str, partition: int) -> bool:
        """Whether any entry of this partition may be wanted."""
        return (self.streams is None or stream in self.streams) and (
            self.partitions is None or partition in self.partitions
        )


def wanted_of(filters: Sequence[Filter]) -> tuple[WantedEntries, list[Filter]]:
    """The range that the conditions allow, and the conditions left for Spark to apply."""
    wanted, rest = WantedEntries(), list[Filter]()
    for each in filters:
        narrower = _narrowed(wanted, each)
        if narrower is None:
            rest.append(each)
        else:
            wanted = narrower
    return wanted, rest


def _narrowed(wanted: WantedEntries, condition: Filter) -> WantedEntries | None:
    match condition:
        case IsNotNull(("stream" | "partition" | "index",)):
            return wanted  # they never are
        case EqualTo(("stream",), str(stream)):
            return _of_streams(wanted, {stream})
        case In(("stream",), streams):
            return _of_streams(wanted, set(streams))
        case EqualTo(("partition",), int(partition)):
            return _of_partitions(wanted, {partition})
        case In(("partition",), partitions):
            return _of_partitions(wanted, set(partitions))
        case _:
            return _of_index(wanted, condition)


def _of_index(wanted: WantedEntries, condition: Filter) -> WantedEntries | None:
    match condition:
        case EqualTo(("index",), int(index)):
            return _between(wanted, index, index)
        case GreaterThan(("index",), int(index)):
            return _between(wanted, index + 1, INDEX_MAX)
        case GreaterThanOrEqual(("index",), int(index)):
            return _between(wanted, index, INDEX_MAX)
        case LessThan(("index",), int(index)):
            return _between(wanted, 1, index - 1)
        case LessThanOrEqual(("index",), int(index)):
            return _between(wanted, 1, index)
        case _:
            return None


def _of_streams(wanted: WantedEntries, streams: set[str]) -> WantedEntries:
    known = streams if wanted.streams is None else streams & wanted.streams
    return replace(wanted, streams=frozenset(known))


def _of_partitions(wanted: WantedEntries, partitions: set[int]) -> WantedEntries:
    known = partitions if wanted.partitions is None else partitions & wanted.partitions
    return replace(wanted, partitions=frozenset(known))


def _between(wanted: WantedEntries, first: int, last: int) -> WantedEntries:
    return replace(wanted, first=max(first, wanted.first), last=min(last, wanted.last))
