"""Conditions of a query that the source takes over: which streams, which partitions, which range of indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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

INDEX_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
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


def wanted_of(filters: Sequence[Filter]) -> tuple[Wanted, list[Filter]]:
    """What the conditions allow, and those that Spark has to apply itself."""
    wanted, rest = Wanted(), list[Filter]()
    for each in filters:
        narrower = _narrowed(wanted, each)
        if narrower is None:
            rest.append(each)
        else:
            wanted = narrower
    return wanted, rest


def _narrowed(wanted: Wanted, condition: Filter) -> Wanted | None:
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


def _of_index(wanted: Wanted, condition: Filter) -> Wanted | None:
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


def _of_streams(wanted: Wanted, streams: set[str]) -> Wanted:
    known = streams if wanted.streams is None else streams & wanted.streams
    return replace(wanted, streams=frozenset(known))


def _of_partitions(wanted: Wanted, partitions: set[int]) -> Wanted:
    known = partitions if wanted.partitions is None else partitions & wanted.partitions
    return replace(wanted, partitions=frozenset(known))


def _between(wanted: Wanted, first: int, last: int) -> Wanted:
    return replace(wanted, first=max(first, wanted.first), last=min(last, wanted.last))
