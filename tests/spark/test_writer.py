from __future__ import annotations

from collections.abc import Sequence

import pytest

from surepipe.errors import ConfigurationError, MisuseError, StoreReset
from surepipe.spark.columns import RecordBatch, batch_of_rows, schema_of
from surepipe.spark.sink import NEEDED, SinkOptions, StreamWriter, TaskWritten, check_schema
from surepipe.spark.source import STRUCT, SurepipeSource, arrow_schema
from tests.spark.streams import Streams

Output = tuple[str, int, bytes | None]
BASE = arrow_schema(STRUCT)
SCHEMA = schema_of([BASE.field(name) for name in (*NEEDED, "producer")])


def batch(rows: Sequence[Output]) -> RecordBatch:
    """Rows as they reach the sink, with a column that it does not know."""
    names = ("stream", "index", "payload")
    full = [{**dict(zip(names, row, strict=True)), "partition": 0, "life": 7} for row in rows]
    return batch_of_rows(full, SCHEMA)


def write(streams: Streams, *batches: Sequence[Output]) -> tuple[int, int]:
    """Write as one task; what was new and what was skipped."""
    options = SinkOptions.of({**streams.place.options(), "stream": "out"})
    done = StreamWriter(options).write(iter([batch(rows) for rows in batches]))
    assert isinstance(done, TaskWritten)
    return done.new, done.skipped


def test_rows_are_appended_in_order_and_a_repeat_changes_nothing(any_streams: Streams) -> None:
    """One entry without output, one with three that lie in two Arrow batches; spark SP-9."""
    any_streams.create("out")
    rows: list[Output] = [("a", 1, b"1"), ("a", 2, None), ("a", 3, b"3x"), ("a", 3, b"3y")]
    rest: list[Output] = [("a", 3, b"3z"), ("a", 4, b"4"), ("b", 8, b"8")]
    assert write(any_streams, rows, rest) == (6, 0)
    assert write(any_streams, rows + rest) == (0, 6)
    assert write(any_streams, [], rows, [], rest) == (0, 6)
    assert any_streams.read("out") == [b"1", b"3x", b"3y", b"3z", b"4", b"8"]


def test_a_task_that_begins_earlier_or_ends_later_adds_only_what_is_new(
    any_streams: Streams,
) -> None:
    """Another split of the same entries; spark SP-9."""
    any_streams.create("out")
    write(any_streams, [("a", n, b"%d" % n) for n in range(1, 6)])
    assert write(any_streams, [("a", n, b"%d" % n) for n in range(3, 9)]) == (3, 3)
    assert any_streams.read("out") == [b"%d" % n for n in range(1, 9)]


@pytest.mark.parametrize("rows", [[1, 3], [2, 1], [1, 2, 2, 1], [5, 9]])
def test_rows_that_a_shuffle_or_a_filter_left_are_refused(
    streams: Streams, rows: list[int]
) -> None:
    """A missing index and a falling one; nothing is appended; spark SP-10, sp3."""
    streams.create("out")
    with pytest.raises(MisuseError, match="rows reach the sink in order and without a gap"):
        write(streams, [("a", n, b"x") for n in rows])
    assert streams.read("out") == []


def test_a_task_behind_the_sinks_position_is_refused(streams: Streams) -> None:
    """Entries 4 and 5 never came; spark SP-9."""
    streams.create("out")
    write(streams, [("a", n, b"x") for n in range(1, 4)])
    with pytest.raises(StoreReset, match="begins at entry 6, and entries up to 3 was written"):
        write(streams, [("a", 6, b"x")])


def test_rows_that_do_not_say_what_they_were_made_of_are_refused() -> None:
    """Two columns are missing; a payload that is text."""
    fields = [STRUCT[name].jsonValue() for name in ("stream", "partition", "payload")]
    with pytest.raises(ConfigurationError, match="rows for the surepipe sink lack index, life"):
        check_schema(STRUCT.fromJson({"fields": fields}))
    text = [{**field.jsonValue(), "type": "string"} for field in STRUCT.fields]
    with pytest.raises(ConfigurationError, match="payload is a string: cast it to binary"):
        check_schema(STRUCT.fromJson({"fields": text}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "not told where to append"),
        ({"stream": "out", "streams": "a"}, "'streams' of the surepipe sink is unknown"),
    ],
)
def test_options_of_the_sink_are_checked(options: dict[str, str], message: str) -> None:
    """No stream, and an option of the source."""
    with pytest.raises(ConfigurationError, match=message):
        SinkOptions.of({"store": "a.db", **options})


def test_a_stream_can_not_be_overwritten() -> None:
    """Spark's mode overwrite, and complete."""
    source = SurepipeSource({"store": "a.db", "stream": "out"})
    with pytest.raises(ConfigurationError, match="write in mode append"):
        source.writer(schema=STRUCT, overwrite=True)
    assert source.writer(schema=STRUCT, overwrite=False).options.stream == "out"
