"""The rows that go from the stages to the writers, through one shuffle. A row is a page.

It holds all that messages ``first`` to ``last`` of an input gave for a target, also where that is nothing. What
they gave lies one after the other in ``body``; ``lengths`` and ``made_of`` have a number of eight bytes for each:
how long it is, and the index of its message. ``life`` is that of the input's stream. ``told`` is JSON: which
message each one is, for ends that ask; streams need no more than its index. What parts counted has its own row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias, cast

import numpy as np

from surepipe.pipelines.stages import About
from surepipe.spark.columns import (
    BINARY,
    INT64,
    STRING,
    BufferPayloads,
    RecordBatch,
    array,
    batch_of,
    schema_of,
)
from surepipe.spark.sink import Outputs, cut

SCHEMA = (
    "target string, input string, life long, first long, last long, "
    "made_of binary, lengths binary, body binary, told string"
)
FIELDS = (
    ("target", STRING),
    ("input", STRING),
    ("life", INT64),
    ("first", INT64),
    ("last", INT64),
    ("made_of", BINARY),
    ("lengths", BINARY),
    ("body", BINARY),
    ("told", STRING),
)
GROUP = ("target", "input", "life")
ORDER = (*GROUP, "first")
COUNTS = "#"
"""Stands for a target where counts are sent."""
LETTERS = "letters:"
"""Before the name of a stream of dead letters, where those are counted that were stored in it."""

AnyRow: TypeAlias = tuple[str, str, int, int, int, bytes, bytes, bytes, str]
Counted: TypeAlias = Mapping[str, Mapping[str, int]]
"""By part, and by what was counted."""
Made: TypeAlias = tuple[int, bytes, About | None]
"""Something for a target: the index of its message, its payload, and which message it is where the target asks."""
_WIDTH = 8


@dataclass(frozen=True, slots=True)
class RowPart:
    """All that some messages gave for a target. ``abouts``: which ones, where the target asks."""

    outputs: Outputs
    abouts: Sequence[About] = ()

    @classmethod
    def joined(cls, parts: Sequence[RowPart]) -> RowPart:
        """Parts that follow each other, as one."""
        if len(parts) == 1:
            return parts[0]
        all_ = [one.outputs for one in parts]
        indexes = np.concatenate([np.asarray(one.indexes, np.int64) for one in all_])
        payloads = BufferPayloads.joined([BufferPayloads.of(one.payloads) for one in all_])
        outputs = Outputs(all_[0].from_index, all_[-1].to_index, indexes, payloads)
        return cls(outputs, [*chain.from_iterable(one.abouts for one in parts)])


def parts_for(first: int, last: int, made: Sequence[Made]) -> Iterator[RowPart]:
    """The results of messages ``first`` to ``last`` for one target, in parts that fit a transaction."""
    abouts = [about for *_, about in made if about is not None]
    whole = Outputs(first, last + 1, [one[0] for one in made], [one[1] for one in made])
    start = 0
    for outputs in cut(whole):
        stop = start + len(outputs.payloads)
        yield RowPart(outputs, abouts[start:stop])
        start = stop


@dataclass(slots=True)
class RowsToWrite:
    """Rows, until they become a record batch."""

    rows: list[AnyRow] = field(default_factory=list[AnyRow])

    def part(self, target: str, input_: str, life: int, part: RowPart) -> None:
        outputs, payloads = part.outputs, BufferPayloads.of(part.outputs.payloads)
        self.rows.append(
            (
                *(target, input_, life, outputs.from_index, outputs.to_index - 1),
                *(np.asarray(outputs.indexes, np.int64).tobytes(), payloads.lengths(_WIDTH)),
                *(payloads.body.tobytes(), json.dumps([*map(_fields, part.abouts)])),
            )
        )

    def counts(self, counted: Counted) -> None:
        self.rows.append((COUNTS, "", 0, 0, 0, b"", b"", b"", json.dumps(counted)))

    def take(self) -> RecordBatch:
        """All of them as a record batch; none are left."""
        columns = [[row[number] for row in self.rows] for number in range(len(FIELDS))]
        self.rows.clear()
        arrays = [
            array(column, type=kind) for column, (_, kind) in zip(columns, FIELDS, strict=True)
        ]
        return batch_of(arrays, schema_of(FIELDS))


def part_of(row: AnyRow) -> RowPart:
    """The messages in a row."""
    *_, first, last, made_of, lengths, body, told = row
    payloads = BufferPayloads.of_lengths(np.frombuffer(lengths, np.int64), memoryview(body))
    outputs = Outputs(first, last + 1, np.frombuffer(made_of, np.int64), payloads)
    return RowPart(outputs, [About(*fields) for fields in json.loads(told)])


def counts_of(row: AnyRow) -> Counted:
    """The counts in a row."""
    return cast("Counted", json.loads(row[-1]))


def _fields(about: About) -> tuple[str, int, int, str, int, str]:
    return about.pipe, about.epoch, about.seq, about.producer, about.part, about.branch
