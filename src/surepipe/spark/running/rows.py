"""The rows that go from the stages to the writers, through one shuffle.

``output``: a message for a target, ``part`` counting what came of one message. ``seen``: all messages ``first`` to
``index`` of an input are through, so that what comes of them is complete, also where that is nothing; it sorts
behind their outputs. ``life`` is that of the input's stream. ``count``: what parts counted.

``about`` names the message for ends that are told; streams need no more than its index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from surepipe.pipelines.assembly import About
from surepipe.spark.arrow import (
    BINARY,
    INT32,
    INT64,
    STRING,
    RecordBatch,
    array,
    batch_of,
    schema_of,
)

SCHEMA = "target string, input string, life long, index long, part int, first long, payload binary, about string"
FIELDS = (
    ("target", STRING),
    ("input", STRING),
    ("life", INT64),
    ("index", INT64),
    ("part", INT32),
    ("first", INT64),
    ("payload", BINARY),
    ("about", STRING),
)
GROUP = ("target", "input", "life")
ORDER = (*GROUP, "index", "part")
LAST_PART = 2**31 - 1
ALL = "*"
"""Stands for a target where all of an input is meant."""
COUNTS = "#"
"""Stands for a target where counts are sent."""


LETTERS = "letters:"
"""Before the name of a stream of dead letters, where those are counted that were stored in it."""


@dataclass(slots=True)
class Rows:
    """Rows as columns, until they become a record batch."""

    columns: list[list[object]] = field(default_factory=lambda: [[] for _ in FIELDS])

    def __len__(self) -> int:
        return len(self.columns[0])

    def output(
        self,
        target: str,
        come_from: tuple[str, int, int],
        part: int,
        payload: bytes,
        about: About | None,
    ) -> None:
        """A message for a target, and which message of which input and life it was made of."""
        told = None if about is None else about_to_text(about)
        self._add(target, *come_from, part, None, payload, told)

    def seen(self, target: str, input_: str, life: int, first: int, last: int) -> None:
        """These messages of an input are through."""
        self._add(target, input_, life, last, LAST_PART, first, None, None)

    def count(self, part: str, what: str, count: int) -> None:
        """So many of this at a part."""
        self._add(COUNTS, part, 0, count, 0, None, what.encode(), None)

    def counts(self, counted: Mapping[str, Mapping[str, int]]) -> None:
        """All of these."""
        for part, counts in counted.items():
            for what, count in counts.items():
                self.count(part, what, count)

    def copy(self, row: Iterable[object]) -> None:
        """A row as it is."""
        self._add(*row)

    def _add(self, *values: object) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def mark(self) -> int:
        """How many rows there are."""
        return len(self)

    def back_to(self, mark: int) -> None:
        """Forget those behind."""
        for column in self.columns:
            del column[mark:]

    def take(self) -> RecordBatch:
        """All of them as a record batch; none are left."""
        arrays = [
            array(column, type=kind) for column, (_, kind) in zip(self.columns, FIELDS, strict=True)
        ]
        self.columns = [[] for _ in FIELDS]
        return batch_of(arrays, schema_of(FIELDS))


def about_to_text(about: About) -> str:
    """Which message it is, as a text."""
    return json.dumps([about.pipe, about.epoch, about.seq, about.producer, about.part])


def about_of_text(text: str) -> About:
    """The message that a text names."""
    pipe, epoch, seq, producer, part = json.loads(text)
    return About(pipe, epoch, seq, producer, part)
