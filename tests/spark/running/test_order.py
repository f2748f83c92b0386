"""Behind the shuffle: everything of a target is there, in order, or the query ends (spark SP-10, sp3)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.errors import StoreReset
from surepipe.pipelines.stages import About
from surepipe.spark import sink
from surepipe.spark.running import query as writing
from surepipe.spark.running.layout import lay_out
from surepipe.spark.running.query import TargetWriters, end_rows, partitions_of, parts_of, rows_of
from surepipe.spark.running.rows import AnyRow, Made, RowPart, RowsToWrite, part_of, parts_for
from tests.spark.running.kit import Folder
from tests.spark.running.test_runs import SHOP


def row(first: int, last: int, *made: tuple[int, bytes]) -> AnyRow:
    """What messages ``first`` to ``last`` of the input priced gave for the stream: index and payload of each."""
    (part,) = parts_for(first, last, [(index, payload, None) for index, payload in made])
    rows = RowsToWrite()
    rows.part("results", "priced", 1, part)
    return next(rows_of([rows.take()]))


def told(parts: Iterable[RowPart]) -> list[tuple[int, int, list[bytes]]]:
    """First, last, and all that they gave."""
    return [
        (one.outputs.from_index, one.outputs.to_index - 1, [*one.outputs.payloads]) for one in parts
    ]


def test_parts_are_complete() -> None:
    """Two tasks read 1..3 and 4..9; message 2 gave nothing, 3 gave two, and 4..9 nothing at all."""
    rows = [row(1, 3, (1, b"a"), (3, b"b"), (3, b"")), row(4, 9)]
    (part,) = parts_of(rows, "results")
    assert told([part]) == [(1, 9, [b"a", b"b", b""])]
    assert [int(index) for index in part.outputs.indexes] == [1, 3, 3]


def test_rows_that_are_missing_end_the_query() -> None:
    """spark sp3: never silently short, whatever a shuffle loses."""
    with pytest.raises(StoreReset, match="messages 4 to 4 are missing"):
        list(parts_of([row(1, 3, (1, b"a")), row(5, 9)], "results"))


def test_large_parts_are_not_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """spark SP-10: a part that fills half of a transaction is written before the next one is looked at."""
    monkeypatch.setattr(writing, "CHUNK_MESSAGES", 4)
    rows = [row(1, 1, (1, b"a")), row(2, 2, (2, b"b")), row(3, 4, (3, b"c")), row(5, 5)]
    assert told(parts_of(rows, "results")) == [(1, 2, [b"a", b"b"]), (3, 5, [b"c"])]


MADE = st.lists(st.lists(st.binary(max_size=5), max_size=3), min_size=1, max_size=12)


@given(made=MADE, first=st.integers(1, 1 << 40), is_told=st.booleans(), most=st.integers(1, 9))
def test_what_messages_gave_is_the_same_behind_the_shuffle(
    made: list[list[bytes]], first: int, is_told: bool, most: int
) -> None:
    """spark SP-9, SP-10: none, one or several of each message, cut into rows of at most so many; the numbers
    within a message and the names of messages, too."""
    found: list[Made] = [
        (index, payload, About("pipe", 2, index, "pro\N{SNOWMAN}", part) if is_told else None)
        for index, payloads in enumerate(made, first)
        for part, payload in enumerate(payloads)
    ]
    last, rows = first + len(made) - 1, RowsToWrite()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "CHUNK_MESSAGES", most)
        for part in parts_for(first, last, found):
            rows.part("out", "in", 7, part)
    behind = [*rows_of([rows.take()])]
    (whole,) = parts_of(behind, "out")
    assert told([whole]) == [(first, last, [payload for _, payload, _ in found])]
    assert [int(index) for index in whole.outputs.indexes] == [index for index, _, _ in found]
    if is_told:
        wanted = [(one[0], one[2].part, one[1], one[2]) for one in found if one[2]]
        assert end_rows(whole) == wanted
    if most == 1:  # a row for each message that gave something, and the rest in the last one
        assert len(behind) <= max(1, sum(map(bool, made)) + 1)
        assert all(len({*part_of(one).outputs.indexes}) <= 1 for one in behind)


def test_a_range_that_was_skipped_is_refused_by_the_stream(tmp_path: Path) -> None:
    """spark SP-9: 1..3 were written, 5..6 come: raised, nothing appended; 4..6 then go in, 2..6 add nothing."""
    folder = Folder(tmp_path, SHOP)
    layout = lay_out(folder.plan)
    for stream in layout.streams:
        layout.places["main"].store().create(stream.name, 1, stream.retention)

    def write(one: AnyRow) -> None:
        list(TargetWriters(layout).take([one]))

    write(row(1, 3, (1, b"a"), (3, b"c")))
    with pytest.raises(StoreReset, match="begins at entry 5, and entries up to 3"):
        write(row(5, 6, (5, b"e")))
    write(row(4, 6, (5, b"e")))
    write(row(2, 6, (3, b"c"), (5, b"e")))
    info = layout.places["main"].store().info("results")
    assert getattr(info, "next", None) == 4


def test_writers_have_no_more_partitions_than_they_can_fill(tmp_path: Path) -> None:
    """spark SP-10: five ways from an input to a target, and the counts; not the two hundred that a cluster has."""
    layout = lay_out(Folder(tmp_path, SHOP).plan)
    assert (partitions_of(layout, 200), partitions_of(layout, 2)) == (12, 2)
