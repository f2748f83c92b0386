"""Rows that reach the sink: where runs begin, what has a payload, and when a task appends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surepipe.errors import MisuseError
from surepipe.spark import columns as arrow
from surepipe.spark.columns import BufferPayloads, RecordBatch, batch_of_rows, schema_of
from surepipe.spark.sink import (
    CHUNK_MESSAGES,
    NEEDED,
    Origin,
    OriginRows,
    SinkOptions,
    StreamWriter,
    runs_of,
)
from surepipe.spark.source import STRUCT, arrow_schema
from tests.spark.streams import Streams

Row = tuple[str, int, int, int, bytes | None]
BASE = arrow_schema(STRUCT)
SCHEMA = schema_of([BASE.field(name) for name in NEEDED])


def batch(*rows: Row) -> RecordBatch:
    """Rows of stream, partition, index, life, payload."""
    return batch_of_rows([dict(zip(NEEDED, row, strict=True)) for row in rows], SCHEMA)


def shown(rows: OriginRows) -> tuple[Origin, list[int], list[int], list[bytes]]:
    """A run as plain values."""
    return rows.origin, rows.indexes.tolist(), rows.made_of.tolist(), list(rows.payloads)


def test_a_run_ends_where_stream_partition_or_life_changes() -> None:
    """Each alone, and back again; payloads of several lengths, none, and an empty one."""
    rows: list[Row] = [
        ("a", 0, 1, 7, b"one"),
        ("a", 0, 2, 7, None),
        ("a", 0, 2, 7, b""),
        ("b", 0, 3, 7, b"four"),
        ("b", 1, 4, 7, None),
        ("b", 1, 5, 8, b"six"),
        ("a", 0, 9, 7, b"seven"),
    ]
    assert [shown(each) for each in runs_of(batch(*rows))] == [
        (Origin("a", 0, 7), [1, 2, 2], [1, 2], [b"one", b""]),
        (Origin("b", 0, 7), [3], [3], [b"four"]),
        (Origin("b", 1, 7), [4], [], []),
        (Origin("b", 1, 8), [5], [5], [b"six"]),
        (Origin("a", 0, 7), [9], [9], [b"seven"]),
    ]


def test_a_batch_without_rows_has_no_runs() -> None:
    """Spark sends such batches for partitions that a filter left empty."""
    assert list(runs_of(batch())) == []


@pytest.mark.parametrize("kind", [arrow.BINARY, arrow.LARGE_BINARY])
def test_part_of_a_column_gives_its_own_bytes(kind: object) -> None:
    """A slice shares its buffers with the whole, and Spark may use either width."""
    whole = arrow.array([b"a", b"bcd", b"", b"e", b"fg"], type=kind)
    assert list(BufferPayloads.of_column(whole)) == [b"a", b"bcd", b"", b"e", b"fg"]
    assert list(BufferPayloads.of_column(whole.slice(1, 3))) == [b"bcd", b"", b"e"]
    assert list(BufferPayloads.of_column(whole.slice(5, 0))) == []


@pytest.mark.parametrize("name", ["stream", "partition", "index", "life"])
def test_a_row_that_does_not_say_what_it_was_made_of_is_refused(name: str) -> None:
    """An outer join leaves such rows."""
    row = {**dict(zip(NEEDED, ("a", 0, 1, 7, b"x"), strict=True)), name: None}
    with pytest.raises(MisuseError, match=f"a row without {name} reaches the sink"):
        list(runs_of(batch_of_rows([row], SCHEMA)))


def test_small_batches_are_appended_together(streams: Streams) -> None:
    """Five batches of three tenths of a chunk: nothing until the chunk is full, then all but the last entry."""
    streams.create("out")
    size = CHUNK_MESSAGES * 3 // 10
    lengths: list[int] = []

    def batches() -> Iterator[RecordBatch]:
        for first in range(1, 5 * size, size):
            lengths.append(streams.info("out").next - 1)
            yield batch(*(("a", 0, n, 7, b"%d" % n) for n in range(first, first + size)))

    options = SinkOptions.of({**streams.place.options(), "stream": "out"})
    done = StreamWriter(options).write(batches())
    assert lengths == [0, 0, 0, 0, 4 * size - 1]
    assert vars(done) == {"new": 5 * size, "skipped": 0}
    assert streams.read("out") == [b"%d" % n for n in range(1, 5 * size + 1)]
