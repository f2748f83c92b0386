"""Ranges of indexes as tasks: which task reads which entries of which stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from surepipe.store_api import Identity


@dataclass(frozen=True, slots=True)
class Range:
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
        """How many entries it has."""
        return self.stop - self.start

    def __str__(self) -> str:
        return f"entries {self.start} to {self.stop - 1} of stream {self.name}"


class Task(InputPartition):
    """The ranges that one task reads, one after the other."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def tasks_of(ranges: Sequence[Range], most: int, rows_max: int | None, rows_min: int) -> list[Task]:
    """Tasks for all ranges: a range above ``rows_max`` is cut, several below ``rows_min`` share a task.

    There may be more than ``most`` tasks only because of ``rows_max``; without it no range is cut.
    """
    pieces = [piece for each in ranges for piece in _pieces(each, rows_max)]
    total = sum(piece.count for piece in pieces)
    wanted = max(rows_min, -(-total // most))
    if rows_max is not None:
        wanted = min(wanted, rows_max)
    tasks: list[Task] = []
    group: list[Range] = []
    for piece in pieces:
        if group and sum(each.count for each in group) + piece.count > wanted:
            tasks.append(Task(group))
            group = []
        group.append(piece)
    return [*tasks, Task(group)] if group else tasks


def _pieces(whole: Range, rows_max: int | None) -> list[Range]:
    """The range in parts of equal size, no more than needed."""
    if rows_max is None or whole.count <= rows_max:
        return [whole] if whole.count > 0 else []
    number = -(-whole.count // rows_max)
    cuts = [whole.start + whole.count * n // number for n in range(number + 1)]
    parts = [replace(whole, start=start, stop=stop, anchor=None) for start, stop in pairwise(cuts)]
    return [*parts[:-1], replace(parts[-1], anchor=whole.anchor)]
