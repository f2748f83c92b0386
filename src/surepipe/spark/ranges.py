"""Ranges of indexes as tasks: each reads some entries of one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias, cast

from pyspark.sql.datasource import InputPartition

from surepipe.core.store_requests import Identity
from surepipe.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class EntryRange:
    """The entries ``start`` up to, not including, ``stop`` of one stream."""

    name: str
    """What the store calls it: the stream, or the partition of one."""
    stream: str
    partition: int
    start: int
    stop: int
    incarnation: int
    life: int
    anchor: Identity | None = None
    """Who wrote the entry ``stop - 1``, when the batch was planned; None: nobody knows."""

    @property
    def count(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"entries {self.start} to {self.stop - 1} of stream {self.name}"


class Task(InputPartition):
    """The ranges that one task reads, one after the other."""

    def __init__(self, ranges: Sequence[EntryRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def tasks_of(
    ranges: Sequence[EntryRange], most: int, rows_max: int | None, rows_min: int
) -> list[Task]:
    """Tasks for all ranges: a range above ``rows_max`` is cut, several below ``rows_min`` share a task.

    There may be more than ``most`` tasks only because of ``rows_max``; without it no range is cut.
    """
    pieces = [piece for each in ranges for piece in _pieces(each, rows_max)]
    total = sum(piece.count for piece in pieces)
    wanted = max(rows_min, -(-total // most))
    if rows_max is not None:
        wanted = min(wanted, rows_max)
    tasks: list[Task] = []
    group: list[EntryRange] = []
    for piece in pieces:
        if group and sum(each.count for each in group) + piece.count > wanted:
            tasks.append(Task(group))
            group = []
        group.append(piece)
    return [*tasks, Task(group)] if group else tasks


def _pieces(whole: EntryRange, rows_max: int | None) -> list[EntryRange]:
    """The range in parts of equal size, no more than needed."""
    if rows_max is None or whole.count <= rows_max:
        return [whole] if whole.count > 0 else []
    number = -(-whole.count // rows_max)
    cuts = [whole.start + whole.count * n // number for n in range(number + 1)]
    parts = [replace(whole, start=start, stop=stop, anchor=None) for start, stop in pairwise(cuts)]
    return [*parts[:-1], replace(parts[-1], anchor=whole.anchor)]


# How far a query has read each stream: what Spark keeps in its checkpoint, as JSON.
#
# {"clicks/0": {"next": 501, "incarnation": 77, "life": 77, "producer": "web", "epoch": 1, "seq": 500}}
#
# A key is the stream and the partition (0 for a stream of one). Spark compares offsets as texts, so keys and
# fields have one order. The last three fields are the anchor, the identity of the entry before ``next``; they
# are not there when nobody knows it.


Json: TypeAlias = dict[str, dict[str, int | str]]


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """Where reading a stream goes on: at index ``next`` of this incarnation."""

    next: int
    incarnation: int
    life: int
    """Counts indexes' lives: the incarnation, raised by one each time that the store went back under the query."""
    anchor: Identity | None = None

    def at(self, following: int, anchor: Identity | None) -> ReadingPlace:
        """The same life of the stream, further on."""
        return replace(self, next=following, anchor=anchor)


Offsets: TypeAlias = dict[str, ReadingPlace]


def key_of(stream: str, partition: int) -> str:
    """The key of a partition of a stream."""
    return f"{stream}/{partition}"


def stream_of(key: str) -> tuple[str, int]:
    """The stream and the partition of a key."""
    stream, _, partition = key.rpartition("/")
    return stream, int(partition)


def to_json(offsets: Mapping[str, ReadingPlace]) -> Json:
    """What Spark writes into its checkpoint."""
    return {key: _place_to_json(offsets[key]) for key in sorted(offsets)}


def _place_to_json(place: ReadingPlace) -> dict[str, int | str]:
    found: dict[str, int | str] = {
        "next": place.next,
        "incarnation": place.incarnation,
        "life": place.life,
    }
    if place.anchor:
        found |= {
            "producer": place.anchor.producer,
            "epoch": place.anchor.epoch,
            "seq": place.anchor.seq,
        }
    return found


def from_json(offsets: Mapping[str, object]) -> Offsets:
    """What Spark gives back. Raises ConfigurationError for what ``to_json`` did not make."""
    try:
        return {
            key: _place_from_json(cast("Mapping[str, int | str]", offsets[key])) for key in offsets
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint holds no offsets of the surepipe source ({offsets!r}, {error!r}): it belongs to "
            "another query; name another folder"
        ) from None


def _place_from_json(fields: Mapping[str, int | str]) -> ReadingPlace:
    anchor = None
    if "producer" in fields:
        anchor = Identity(str(fields["producer"]), int(fields["epoch"]), int(fields["seq"]))
    return ReadingPlace(
        int(fields["next"]), int(fields["incarnation"]), int(fields["life"]), anchor
    )
