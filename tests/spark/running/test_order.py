"""Behind the shuffle: everything of a target is there, in order, or the query ends (spark SP-10, sp3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from surepipe.errors import StoreReset
from surepipe.spark.running.layout import lay_out
from surepipe.spark.running.query import partitions_of
from surepipe.spark.running.rows import LAST_PART
from surepipe.spark.running.writing import AnyRow, Part, Writer, parts_of
from tests.spark.running.kit import Folder
from tests.spark.running.test_runs import SHOP


def output(index: int, part: int = 0) -> AnyRow:
    """An output of message ``index`` of the input priced."""
    return ("results", "priced", 1, index, part, None, b"%d.%d" % (index, part), None)


def seen(first: int, last: int) -> AnyRow:
    """These messages are through."""
    return ("results", "priced", 1, last, LAST_PART, first, None, None)


def ranges(parts: Sequence[Part]) -> list[tuple[int, int, int]]:
    """First, last, and how many outputs."""
    return [(part.first, part.last, len(part.rows)) for part in parts]


def test_parts_are_complete() -> None:
    """Two tasks read 1..3 and 4..9; message 2 gave nothing, 3 gave two, and 4..9 nothing at all."""
    rows = [output(1), output(3), output(3, 1), seen(1, 3), seen(4, 9)]
    assert ranges(list(parts_of(rows, "results"))) == [(1, 9, 3)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([output(1), seen(1, 3), seen(5, 9)], "messages 4 to 4 are missing"),
        ([seen(1, 3), output(4)], "nobody says that message 4 is complete"),
    ],
)
def test_rows_that_are_missing_end_the_query(rows: list[AnyRow], said: str) -> None:
    """spark sp3: never silently short, whatever a shuffle loses."""
    with pytest.raises(StoreReset, match=said):
        list(parts_of(rows, "results"))


def test_a_range_that_was_skipped_is_refused_by_the_stream(tmp_path: Path) -> None:
    """spark SP-9: 1..3 were written, 5..6 come: raised, nothing appended; 4..6 then go in, 2..6 add nothing."""
    folder = Folder(tmp_path, SHOP)
    layout = lay_out(folder.plan)
    for stream in layout.streams:
        layout.places["main"].store().create(stream.name, 1, stream.retention)

    def write(*rows: AnyRow) -> None:
        list(Writer(layout).take(rows))

    write(output(1), output(3), seen(1, 3))
    with pytest.raises(StoreReset, match="begins at entry 5, and entries up to 3"):
        write(output(5), seen(5, 6))
    write(output(5), seen(4, 6))
    write(output(3), output(5), seen(2, 6))
    info = layout.places["main"].store().info("results")
    assert getattr(info, "next", None) == 4


def test_writers_have_no_more_partitions_than_they_can_fill(tmp_path: Path) -> None:
    """spark SP-10: five ways from an input to a target, and the counts; not the two hundred that a cluster has."""
    layout = lay_out(Folder(tmp_path, SHOP).plan)
    assert (partitions_of(layout, 200), partitions_of(layout, 2)) == (12, 2)
