from __future__ import annotations

import json

import pytest

from surepipe.core.store_requests import CommitPosition, Retention
from surepipe.errors import ConfigurationError, Fenced, StoreReset
from surepipe.spark import source as reading
from surepipe.spark.source import STRUCT, arrow_schema
from surepipe.spark.source_options import SourceOptions
from surepipe.storage import SqliteStore
from tests.spark.micro_batches import MicroBatches
from tests.spark.streams import Streams, numbers

FORCED = Retention(max_bytes=1 << 40, force=True)


def test_batches_follow_each_other_without_a_gap_or_a_repeat(any_streams: Streams) -> None:
    """Three streams that grow between batches; rows of one stream come in order; spark SP-5."""
    any_streams.create("a", "b", "c")
    query = MicroBatches(any_streams.options("a", "b", "c"))
    seen: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for counts in ((500, 0, 3), (0, 0, 0), (1, 700, 0), (2, 2, 2)):
        for name, count in zip("abc", counts, strict=True):
            any_streams.fill(name, count, page=100)
        for row in query.batch() or []:
            seen[row["stream"]].append(row["index"])
    assert seen == {"a": [*range(1, 504)], "b": [*range(1, 703)], "c": [*range(1, 6)]}


def test_a_limit_of_rows_is_kept_and_overruled_when_all_is_asked_for(streams: Streams) -> None:
    """10 rows a batch over two streams; ReadAllAvailable takes the rest at once; spark SP-5."""
    streams.create("a", "b")
    streams.fill("a", 100)
    streams.fill("b", 7)
    query = MicroBatches(streams.options("a", "b", max_rows=10))
    sizes = [len(query.batch() or []) for _ in range(3)]
    assert sizes == [10, 10, 10]
    rest = query.rows(query.begin(), query.everything())
    assert len(rest) == 107 - 30


def test_a_run_to_the_end_ends_at_what_was_there_when_it_began(any_streams: Streams) -> None:
    """Entries come meanwhile, and a stream too; neither is read; spark SP-5."""
    any_streams.create("a")
    any_streams.fill("a", 50)
    query = MicroBatches(any_streams.options("a", "b", max_rows=20, on_missing="wait"))
    query.reader.prepareForTriggerAvailableNow()
    first = query.batch() or []
    any_streams.fill("a", 50)
    any_streams.create("b")
    any_streams.fill("b", 5)
    assert numbers([row["payload"] for row in first] + query.payloads()) == [*range(1, 51)]
    assert sorted(query.again().payloads()) == sorted(
        [b"a-%d" % n for n in range(51, 101)] + [b"b-%d" % n for n in range(1, 6)]
    )


def test_a_stream_added_later_begins_where_its_start_says(any_streams: Streams) -> None:
    """Two are added to the options on the same checkpoint, one with start=latest; spark SP-5."""
    any_streams.create("a", "b", "c")
    for name in "abc":
        any_streams.fill(name, 10)
    query = MicroBatches(any_streams.options("a"))
    assert len(query.payloads()) == 10
    wider = query.again(streams="a,b")
    assert numbers(wider.payloads()) == [*range(1, 11)]
    widest = wider.again(streams="a,b,c", start="latest")
    assert widest.payloads() == []
    any_streams.fill("c", 2)
    assert numbers(widest.payloads()) == [11, 12]
    narrow = widest.again(streams="c")
    any_streams.fill("a", 1)
    assert narrow.payloads() == []
    assert narrow.again(streams="a,b,c").payloads() == [b"a-11"]


def test_partitions_of_a_stream_are_found_and_named(any_streams: Streams) -> None:
    """A stream of three partitions is read whole by its name; spark SP-5."""
    any_streams.create("orders", partitions=3)
    for partition in range(3):
        any_streams.fill(f"orders#{partition}", 4 + partition)
    query = MicroBatches(any_streams.options("orders"))
    rows = query.batch() or []
    assert {(row["stream"], row["partition"]) for row in rows} == {("orders", n) for n in range(3)}
    assert [sum(1 for row in rows if row["partition"] == n) for n in range(3)] == [4, 5, 6]
    assert list(json.loads(query.begin())) == ["orders/0", "orders/1", "orders/2"]


@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", [1, 2, 3]), ("latest", []), ("3", [3])]
)
def test_a_fresh_query_begins_where_start_says(
    any_streams: Streams, start: str, expected: list[int]
) -> None:
    """Three entries and each kind of start."""
    any_streams.create("a")
    any_streams.fill("a", 3)
    assert numbers(MicroBatches(any_streams.options("a", start=start)).payloads()) == expected


def test_a_start_that_is_not_there_yet_is_refused(streams: Streams) -> None:
    """Entry 9 of a stream of three."""
    streams.create("a")
    streams.fill("a", 3)
    with pytest.raises(ConfigurationError, match="start is 9, and stream a has no entry 8 yet"):
        MicroBatches(streams.options("a", start=9)).begin()


def test_a_fresh_query_over_a_trimmed_stream_never_begins_in_the_middle_in_silence(
    any_streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    """Entries 1 to 20 are gone: refused with the range; skipped, with a warning, when told; spark SP-6, sp5."""
    any_streams.create("a", retention=FORCED)
    any_streams.fill("a", 30, page=10)
    assert any_streams.trim("a", 21) == 21
    with pytest.raises(StoreReset, match=r"entries 1 to 20 of stream a are trimmed.*say start=21"):
        MicroBatches(any_streams.options("a")).begin()
    skipping = MicroBatches(any_streams.options("a", on_trimmed="skip"))
    assert numbers(skipping.payloads()) == [*range(21, 31)]
    assert "entries 1 to 20 of stream a are trimmed, and are skipped" in caplog.text
    assert len(MicroBatches(any_streams.options("a", start=21)).payloads()) == 10


def test_entries_trimmed_under_the_query_stop_it_with_the_exact_range(any_streams: Streams) -> None:
    """They go between two batches; spark SP-6, sp5."""
    any_streams.create("a", retention=FORCED)
    any_streams.fill("a", 10, page=5)
    query = MicroBatches(any_streams.options("a"))
    assert len(query.payloads()) == 10
    any_streams.fill("a", 20, page=5)
    any_streams.trim("a", 21)
    with pytest.raises(StoreReset, match="entries 11 to 20 of stream a are trimmed"):
        query.batch()
    assert numbers(query.again(on_trimmed="skip").payloads()) == [*range(21, 31)]


def test_entries_trimmed_between_planning_and_reading_stop_the_task(
    any_streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch is planned for 1 to 30, then 1 to 20 go; spark SP-6, sp5."""
    any_streams.create("a", retention=FORCED)
    any_streams.fill("a", 30, page=10)
    query = MicroBatches(any_streams.options("a"))
    start, end = query.begin(), query.everything()
    any_streams.trim("a", 21)
    with pytest.raises(StoreReset, match="entries 1 to 20 of stream a were trimmed before"):
        query.rows(start, end)
    skipping = query.again(on_trimmed="skip")
    assert [row["index"] for row in skipping.rows(start, end)] == [*range(21, 31)]
    assert "entries 1 to 20 of stream a were trimmed before they were read, and are skipped" in (
        caplog.text
    )


def test_a_stream_made_anew_stops_the_query_or_is_read_from_its_beginning(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted, created again, and longer than before: its indexes mean something else; spark SP-6, sp5."""
    streams.create("a")
    streams.fill("a", 10)
    query = MicroBatches(streams.options("a"))
    (old,) = {row["life"] for row in query.batch() or []}
    streams.remake("a", 15)
    with pytest.raises(StoreReset, match=r"stream a: it was made anew .* up to entry 10"):
        query.batch()
    again = query.again(on_reset="earliest")
    assert again.batch() == []
    rows = again.batch() or []
    assert [row["index"] for row in rows] == [*range(1, 16)]
    assert {row["life"] for row in rows} == {streams.info("a").incarnation} != {old}
    assert "it is read again from its earliest entry" in caplog.text


def test_a_stream_made_anew_between_planning_and_reading_stops_the_task(streams: Streams) -> None:
    """The range is named; told to go on, the task gives nothing of it; spark SP-6, sp5."""
    streams.create("a")
    streams.fill("a", 10)
    query = MicroBatches(streams.options("a"))
    start, end = query.begin(), query.everything()
    tasks = query.reader.partitions(json.loads(start), json.loads(end))
    streams.remake("a", 20)
    with pytest.raises(StoreReset, match=r"entries 1 to 10 of stream a can't be read.*made anew"):
        list(query.reader.read(tasks[0]))
    going_on = query.again(on_reset="earliest")
    assert [*going_on.reader.read(tasks[0])] == []
    assert going_on.rows(start, end) == []


@pytest.mark.parametrize("grown", [5, 12, 30])
def test_a_store_that_went_back_stops_the_query_even_when_it_grew_again(
    streams: Streams, grown: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Set back to 5 entries after 12 were read, then other messages to below, at and above 12; spark SP-6, sp5."""
    assert isinstance(streams.store, SqliteStore)
    streams.create("a")
    streams.fill("a", 5)
    copy = streams.store.snapshot()
    streams.fill("a", 7)
    query = MicroBatches(streams.options("a"))
    assert len(query.payloads()) == 12
    streams.store.roll_back(copy)
    if grown > 5:
        streams.store.append("a", "another", 1, 1, [b"other-%d" % n for n in range(grown - 5)])
    wanted = "were read and are not there" if grown < 12 else "went back and grew again"
    with pytest.raises(StoreReset, match=wanted):
        query.batch()
    again = query.again(on_diverged="earliest")
    life = streams.info("a").incarnation
    rows = [row for _ in range(2) for row in again.batch() or []]
    assert [row["index"] for row in rows] == [*range(1, grown + 1)]
    assert {row["life"] for row in rows} == {life + 1}, "a sink must not take them for known ones"
    assert "the store went back" in caplog.text


def test_a_store_that_goes_back_between_planning_and_reading_stops_the_task(
    streams: Streams,
) -> None:
    """Short, and of the same length with other entries; spark SP-6, sp5."""
    assert isinstance(streams.store, SqliteStore)
    streams.create("a")
    streams.fill("a", 5)
    copy = streams.store.snapshot()
    streams.fill("a", 5)
    query = MicroBatches(streams.options("a"))
    start, end = query.begin(), query.everything()
    streams.store.roll_back(copy)
    with pytest.raises(
        StoreReset, match="entries 6 to 10 of stream a can't be read: the store went"
    ):
        query.rows(start, end)
    streams.store.append("a", "another", 1, 1, [b"other"] * 5)
    with pytest.raises(StoreReset, match=r"entry 10 of stream a is .*another.* went back and grew"):
        query.rows(start, end)


def test_a_hole_in_the_store_stops_the_query_with_its_range(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody removes a page by hand; spark SP-6."""
    assert isinstance(streams.store, SqliteStore)
    streams.create("a")
    streams.fill("a", 30, page=10)
    with streams.store.transaction() as transaction:
        name = "SELECT count(*) FROM surepipe_pages"
        assert transaction.connection.execute(name).fetchone() == (3,)
    _remove_page(streams.store.path, 11)
    query = MicroBatches(streams.options("a"))
    start, end = query.begin(), query.everything()
    with pytest.raises(StoreReset, match="entries 11 to 20 of stream a are missing in the middle"):
        query.rows(start, end)
    rows = query.again(on_hole="skip").rows(start, end)
    assert [row["index"] for row in rows] == [*range(1, 11), *range(21, 31)]
    assert "entries 11 to 20 of stream a are missing" in caplog.text


def _remove_page(path: str, first_index: int) -> None:
    import sqlite3  # noqa: PLC0415 - only here somebody goes behind the store's back

    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DELETE FROM surepipe_pages WHERE first_index = ?", (first_index,))
    connection.close()


def test_a_missing_stream_is_an_error_unless_the_query_waits_for_it(any_streams: Streams) -> None:
    """The message names the stream; told to wait, the query reads it when it is made."""
    with pytest.raises(ConfigurationError, match="stream 'later' does not exist"):
        MicroBatches(any_streams.options("later")).begin()
    query = MicroBatches(any_streams.options("later", on_missing="wait"))
    assert query.batch() is None
    any_streams.create("later")
    any_streams.fill("later", 3)
    assert numbers(query.payloads()) == [1, 2, 3]


def test_a_named_reader_keeps_what_the_query_has_still_to_read(any_streams: Streams) -> None:
    """The stream's bound would let entries go, and the reader's position does not; spark SP-7."""
    any_streams.create("a", retention=Retention(max_bytes=1000))
    any_streams.fill("a", 50, page=5)
    query = MicroBatches(any_streams.options("a", reader="query", max_rows=20))
    query.batch()
    assert [(r.reader, r.next) for r in any_streams.info("a").readers] == [("query", 1)]
    query.batch()
    assert [(r.reader, r.next) for r in any_streams.info("a").readers] == [("query", 21)]
    any_streams.fill("a", 60, page=5)
    assert any_streams.info("a").earliest <= 20
    assert numbers(query.payloads()) == [*range(41, 111)]


def test_a_lost_checkpoint_goes_on_at_the_readers_position(any_streams: Streams) -> None:
    """It trails one batch, so the last batches come again, and nothing is left out; spark SP-7, sp4."""
    any_streams.create("a")
    any_streams.fill("a", 100)
    query = MicroBatches(any_streams.options("a", reader="query", max_rows=10))
    for _ in range(5):
        query.batch()
    anew = MicroBatches(any_streams.options("a", reader="query"))
    assert numbers(anew.payloads()) == [*range(41, 101)]


def test_a_second_query_of_one_reader_ends_the_first(any_streams: Streams) -> None:
    """The first one's next commit is fenced, with a word on what to do."""
    any_streams.create("a")
    any_streams.fill("a", 100)
    first = MicroBatches(any_streams.options("a", reader="query", max_rows=10))
    first.batch()
    second = MicroBatches(any_streams.options("a", reader="query", max_rows=10))
    second.batch()
    with pytest.raises(Fenced, match="another query has taken over reader 'query' of stream a"):
        first.batch()
    assert second.batch() is not None


def test_trimming_stays_behind_the_query_and_behind_other_readers(any_streams: Streams) -> None:
    """Half of the entries go when nobody else reads, none below another reader; spark SP-7."""
    any_streams.create("a")
    any_streams.fill("a", 100, page=10)
    query = MicroBatches(any_streams.options("a", trim="true", max_rows=30))
    query.batch()
    assert any_streams.info("a").earliest == 1
    query.batch()
    assert 21 <= any_streams.info("a").earliest <= 30
    owner = any_streams.store.claim("a", "other", 1 << 61)
    life = any_streams.info("a").incarnation
    number: int = getattr(owner, "number", 0)
    any_streams.store.commit(CommitPosition("a", "other", number, life, 35))
    query.batch()
    assert any_streams.info("a").earliest <= 34


def test_a_task_reads_in_batches_of_bounded_size(
    any_streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound of 100 rows and pages of 30; the rows are dense all the same."""
    monkeypatch.setattr(reading, "READ_ROWS", 100)
    any_streams.create("a")
    any_streams.fill("a", 1000, page=30)
    query = MicroBatches(any_streams.options("a", start=17))
    (task,) = query.reader.partitions(json.loads(query.begin()), json.loads(query.everything()))
    batches = [*query.reader.read(task)]
    assert len(batches) >= 9
    assert max(batch.num_rows for batch in batches) <= 130
    assert [n for batch in batches for n in batch["index"].to_pylist()] == [*range(17, 1001)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": ""}, "no stream is named"),
        ({"streams": "a,a"}, "names one twice"),
        ({"streams": "[1"}, "no list in JSON"),
        ({"stream": "a", "start": "0"}, "option start is '0': write earliest, latest or an index"),
        ({"stream": "a", "onTrimmed": "skip"}, r"option 'ontrimmed' .*did you mean 'on_trimmed'"),
        ({"stream": "a", "on_reset": "skip"}, "option on_reset is 'skip': write stop or earliest"),
        ({"stream": "a", "max_rows": "0"}, "option max_rows is '0': write a whole number from 1"),
        ({"stream": "a", "trim": "yes"}, "option trim is 'yes': write true or false"),
        ({"stream": "a", "answer_s": "soon"}, "an option of the store is no number"),
        ({"stream": "a", "store": ""}, "option store is missing"),
        ({"stream": "a", "store": "redis://localhost"}, "needs the pipeline's name"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_what_to_write(
    options: dict[str, str], message: str
) -> None:
    """Each wrong option in turn."""
    with pytest.raises(ConfigurationError, match=message):
        SourceOptions.of({"store": "a.db", **options})


def test_a_schema_of_the_callers_own_picks_columns_and_nothing_else() -> None:
    """Two columns in another order; an unknown one and one of another type are refused."""
    two = STRUCT.fromJson({"fields": [STRUCT["payload"].jsonValue(), STRUCT["index"].jsonValue()]})
    assert arrow_schema(two).names == ["payload", "index"]
    renamed = STRUCT["payload"].jsonValue() | {"name": "payloads"}
    with pytest.raises(ConfigurationError, match="no column 'payloads': did you mean 'payload'"):
        arrow_schema(STRUCT.fromJson({"fields": [renamed]}))
    retyped = STRUCT["payload"].jsonValue() | {"type": "string"}
    with pytest.raises(ConfigurationError, match=r"column payload .* is a binary, not a string"):
        arrow_schema(STRUCT.fromJson({"fields": [retyped]}))
