"""Rows that are pages: read, changed by a function of messages, and written, as messages are."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.errors import ConfigurationError, MisuseError
from surepipe.spark import pages
from surepipe.spark.columns import INTEGER, RecordBatch, batch_of_rows, mapped, schema_of
from surepipe.spark.pages import MADE, PAGES, SCHEMA, messages_of, over_messages, pages_of
from surepipe.spark.shipping import keep_what_is_loaded
from surepipe.spark.sink import NEEDED, SinkOptions, StreamWriter, TaskWritten
from surepipe.spark.source import STRUCT, SurepipeSource, arrow_schema
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE = arrow_schema(STRUCT)
COUNTED = ("once", "garbage", "twice")
COLUMNS = ", ".join(f"{name} bigint" for name in COUNTED)
MESSAGES = schema_of([BASE.field(name) for name in NEEDED])
NOTHING: Sequence[bytes | None] = [None]
OUTPUTS = st.lists(st.lists(st.binary(max_size=9), max_size=3), min_size=1, max_size=12)


def messages(first: int, outputs: Sequence[Sequence[bytes]]) -> RecordBatch:
    """Rows of one stream: what was made of each entry from ``first`` on; null where nothing was."""
    rows = [
        {"stream": "a", "partition": 2, "index": index, "life": 7, "payload": payload}
        for index, made in enumerate(outputs, first)
        for payload in (made or NOTHING)
    ]
    return batch_of_rows(rows, MESSAGES)


def read(streams: Streams, kind: str, name: str, **options: object) -> Iterator[RecordBatch]:
    """What the source gives of a stream."""
    source = SurepipeSource(streams.options(name, rows=kind, **options))
    reader = source.reader(source.schema())
    for partition in reader.partitions():
        yield from reader.read(partition)


def write(streams: Streams, kind: str, *batches: RecordBatch) -> tuple[int, int]:
    """Write as one task; what was new, and what was skipped."""
    options = SinkOptions.of({**streams.place.options(), "stream": "out", "rows": kind})
    done = StreamWriter(options).write(iter(batches))
    assert isinstance(done, TaskWritten)
    return done.new, done.skipped


def rows_of(batches: Iterable[RecordBatch]) -> list[dict[str, Any]]:
    """All rows."""
    return [row for batch in batches for row in batch.to_pylist()]


def changed(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """A function of messages: of three entries the first gives none, the second one, the third two."""
    for batch in batches:
        rows = [
            {name: row[name] for name in NEEDED} | {"payload": payload}
            for row in batch.to_pylist()
            for payload in outputs_of(row) or NOTHING
        ]
        yield batch_of_rows(rows, MESSAGES)


def outputs_of(row: dict[str, Any]) -> list[bytes]:
    """What the function makes of a message."""
    payload: bytes | None = row["payload"]
    if payload is None or row["index"] % 3 == 0:
        return []
    return [payload] if row["index"] % 3 == 1 else [b"1", payload]


def test_pages_hold_the_messages_that_the_source_gives_one_by_one(any_streams: Streams) -> None:
    """All columns, over three appends, cut at the front; spark SP-5."""
    any_streams.create("in").fill("in", 2500)
    wanted = rows_of(read(any_streams, "messages", "in", start=17))
    found = [*read(any_streams, "pages", "in", start=17)]
    for batch in found:
        batch.validate(full=True)
    assert [row["count"] for row in rows_of(found)] == [984, 1000, 500]
    assert rows_of(messages_of(iter(found))) == wanted
    some = [*messages_of(iter(found), ("payload", "index"))]
    assert {tuple(batch.schema.names) for batch in some} == {("payload", "index")}


def test_pages_and_messages_leave_the_same_behind(any_streams: Streams) -> None:
    """One sink takes rows of either kind, and each skips what the other has written; spark SP-9."""
    any_streams.create("in", "out").fill("in", 2500)
    whole = [*read(any_streams, "pages", "in")]
    assert write(any_streams, "pages", whole[0].slice(0, 1)) == (1000, 0)
    assert write(any_streams, "messages", *read(any_streams, "messages", "in")) == (1500, 1000)
    assert write(any_streams, "pages", *whole) == (0, 2500)
    assert any_streams.read("out") == any_streams.read("in")


def test_a_page_of_which_a_part_is_written_adds_the_rest(any_streams: Streams) -> None:
    """Entries with none, one and two outputs; the position stands in the middle of a page; spark SP-9."""
    any_streams.create("out")
    outputs = [[], [b"1"], [b"2x", b"2y"], [], [b"4"]]
    assert write(any_streams, "messages", messages(5, outputs[:3])) == (3, 0)
    assert write(any_streams, "pages", pages_of(messages(5, outputs))) == (1, 3)
    assert any_streams.read("out") == [b"1", b"2x", b"2y", b"4"]


def test_a_function_of_messages_gives_the_same_over_pages(
    any_streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None, one and two outputs of an entry, and the function twice; spark SP-9, SP-13."""
    monkeypatch.setattr(pages, "GROUP_BYTES", 5000)
    any_streams.create("in", "out", "other").fill("in", 2500)
    once = rows_of(changed(read(any_streams, "messages", "in")))
    over = over_messages(changed)
    made = [*over(read(any_streams, "pages", "in"))]
    assert len(made) > 2
    assert {tuple(one.schema.names) for one in made} == {MADE}
    assert rows_of(messages_of(iter(made), NEEDED)) == once
    wanted = [row["payload"] for row in once if row["payload"] is not None]
    assert write(any_streams, "pages", *made) == (len(wanted), 0)
    assert any_streams.read("out") == wanted
    again = [*over(iter(made))]
    found = [row["payload"] for row in rows_of(messages_of(iter(again))) if row["payload"]]
    assert found == [payload for row in once for payload in outputs_of(row)]


@given(outputs=OUTPUTS, first=st.integers(1, 2**40))
def test_messages_made_pages_are_the_same_messages_again(
    outputs: list[list[bytes]], first: int
) -> None:
    """Any numbers of outputs, of any lengths, also empty ones; spark SP-9."""
    before = messages(first, outputs)
    page = pages_of(before)
    page.validate(full=True)
    assert page.num_rows == 1
    (after,) = messages_of(iter([page]), NEEDED)
    after.validate(full=True)
    assert after.to_pylist() == before.to_pylist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": 1},
        {"body": b"abc"},
        {"lengths": b"\1\0\0\0"},
        {"made_of": b"\0\0\0\0"},
        {"made_of": b"\0\0\0\0\2\0\0\0"},
    ],
)
def test_pages_whose_columns_do_not_fit_are_refused(
    streams: Streams, wrong: dict[str, object]
) -> None:
    """Nothing is appended."""
    streams.create("out")
    (row,) = pages_of(messages(3, [[b"a"], [b"b"]])).to_pylist()
    page = batch_of_rows([row | wrong], SCHEMA)
    with pytest.raises(MisuseError, match="entries from 3 on does not fit"):
        write(streams, "pages", page)
    with pytest.raises(MisuseError, match="entries from 3 on does not fit"):
        list(messages_of(iter([page])))
    assert streams.read("out") == []


def test_pages_out_of_order_are_refused(streams: Streams) -> None:
    """A page is missing, in the sink; a message is missing, where pages are made; spark SP-10."""
    streams.create("out")
    first, third = (pages_of(messages(index, [[b"x"], [b"y"]])) for index in (1, 5))
    with pytest.raises(MisuseError, match="a row of entry 5 of a/2 follows one of entry 2"):
        write(streams, "pages", first, third)
    assert streams.read("out") == []
    gap = batch_of_rows(messages(1, [[b"x"]] * 3).to_pylist()[::2], MESSAGES)
    with pytest.raises(MisuseError, match="a row of entry 3 of a/2 follows one of entry 1"):
        pages_of(gap)


def test_columns_of_pages_are_checked(streams: Streams) -> None:
    """Messages for a sink of pages, and a column that pages do not have."""
    sink = SurepipeSource({**streams.place.options(), "stream": "out", "rows": "pages"})
    with pytest.raises(ConfigurationError, match=r"lack count, lengths, body.*rows are pages"):
        sink.streamWriter(STRUCT, overwrite=False)
    source = SurepipeSource(streams.options("in", rows="pages"))
    with pytest.raises(ConfigurationError, match="no column 'key'"):
        source.reader(STRUCT)
    with pytest.raises(ConfigurationError, match="rows is 'page': write messages or pages"):
        SurepipeSource(streams.options("in", rows="page")).schema()


def test_spark_moves_pages_and_every_message_arrives_once(
    spark: SparkSession, any_streams: Streams, tmp_path: Path
) -> None:
    """Source, a function of messages, and sink; then a run without the checkpoint; spark SP-5, SP-9, sp4."""
    any_streams.create("in", "out").fill("in", 5000)
    options = any_streams.options("in", rows="pages")
    made = over_messages(changed)
    for checkpoint in ("first", "second"):
        frame = spark.readStream.format("surepipe").options(**options).load()
        query = (
            mapped(frame, made, PAGES)
            .writeStream.format("surepipe")
            .options(**any_streams.place.options(), stream="out", rows="pages")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    rows = rows_of(changed(read(any_streams, "messages", "in")))
    assert any_streams.read("out") == [row["payload"] for row in rows if row["payload"] is not None]


def test_spark_reads_all_columns_of_pages(spark: SparkSession, streams: Streams) -> None:
    """With a condition on entries, which cuts a page; spark SP-5, SP-8."""
    streams.create("in").fill("in", 2500)
    frame = spark.read.format("surepipe").options(**streams.options("in", rows="pages")).load()
    rows = frame.where("index > 990").collect()
    assert [(row["index"], row["count"]) for row in rows] == [(991, 10), (1001, 1000), (2001, 500)]
    assert bytes(rows[0]["body"][:11]) == b"in-991in-99"
    assert {row["made_of"] for row in rows} == {None}
    assert {(row["producer"], row["seq"] - row["index"]) for row in rows} == {("maker", 0)}


def frozen(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """How much a worker no longer looks at for garbage, once told and twice."""
    keep_what_is_loaded()
    counts = {"once": gc.get_freeze_count(), "garbage": len(gc.get_objects())}
    keep_what_is_loaded()
    counts["twice"] = gc.get_freeze_count()
    for _ in batches:
        yield batch_of_rows([counts], schema_of([(name, INTEGER) for name in COUNTED]))


def test_what_a_worker_has_loaded_is_no_work_after_each_task(spark: SparkSession) -> None:
    """spark SP-8: it is put aside once; the process of the user is left as it is."""
    (row,) = mapped(spark.range(0, 1, 1, 1), frozen, COLUMNS).collect()
    assert row["once"] == row["twice"] > 10_000 > row["garbage"]
    here = gc.get_freeze_count()
    keep_what_is_loaded()
    assert gc.get_freeze_count() == here
