from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from surepipe.actors.codecs import choose_codec, payloads_of, read_json
from surepipe.core.store_requests import KEEP_ALL
from surepipe.errors import ConfigurationError, MisuseError, StoreReset
from surepipe.pipelines.assembly import EndsByItself, Source, SourceRow
from surepipe.pipelines.sources import live
from surepipe.pipelines.sources.checking import fitting
from surepipe.pipelines.sources.files import CsvFile, JsonlFile, ParquetFile
from surepipe.pipelines.sources.live import Called, Lines
from surepipe.pipelines.sources.streams import StreamRows
from surepipe.storage.memory import MemoryStore

PATIENCE_S = 30.0


class Order(BaseModel):
    """What a source may demand."""

    n: int


def rows_of(source: Source, after: str = "", at_once: int = 2) -> list[SourceRow]:
    """All rows behind a place."""
    source.begin(after)
    found: list[SourceRow] = []
    while (rows := source.read(at_once)) or (rows is not None and waits(source)):
        found += rows
    return found


def waits(source: Source) -> bool:
    """True for a source that has more to give though it has nothing now."""
    return isinstance(source, EndsByItself)


def messages(rows: Sequence[SourceRow]) -> list[object]:
    """What the rows hold."""
    return [row.message for row in rows]


def file_sources(folder: Path) -> Iterator[Source]:
    """The same four rows in each kind of file."""
    jsonl, table, parquet = folder / "a.jsonl", folder / "a.csv", folder / "a.parquet"
    jsonl.write_text('{"n":"1"}\n\n{"n":"2"}\n{"n":"3"}\n{"n":"4"}')
    table.write_text("n\n1\n2\n3\n4\n")
    arrow: Any = import_module("pyarrow")
    import_module("pyarrow.parquet")
    arrow.parquet.write_table(arrow.table({"n": ["1", "2", "3", "4"]}), parquet)
    yield JsonlFile(jsonl)
    yield CsvFile(table)
    yield ParquetFile(parquet)


@pytest.mark.parametrize("kind", range(3), ids=["jsonl", "csv", "parquet"])
def test_a_file_goes_on_behind_every_place(tmp_path: Path, kind: int) -> None:
    """Each row's place gives exactly the rows behind it."""
    source = list(file_sources(tmp_path))[kind]
    rows = rows_of(source)
    assert messages(rows) == [{"n": str(n)} for n in range(1, 5)]
    for count, row in enumerate(rows, 1):
        assert messages(rows_of(source, row.after)) == messages(rows)[count:]
    source.close()


ODD_LINES = st.sampled_from(
    [
        '{"n": 1}',
        "",
        "  ",
        "2",
        "NaN",
        "1e999",
        '{"a": 1, "a": 2}',
        '"\\ud800"',
        "no",
        "7\r",
        " 8 ",
        "9" * 400,
    ]
)


@given(st.lists(ODD_LINES, max_size=12), st.booleans(), st.integers(1, 5))
def test_runs_of_rows_are_the_rows_that_are_read_one_by_one(
    lines: list[str], is_whole: bool, at_once: int
) -> None:
    """Messages, places and what is wrong: whatever stands between, and wherever a run is cut."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_text("\n".join(lines) + ("\n" if is_whole else ""))
        source = JsonlFile(path, keeps=True)
        with closing(source):
            wanted = rows_of(source, at_once=1)
            source.begin("")
            found: list[SourceRow] = []
            while True:
                run = source.read_run(at_once)
                rows = run.rows if run is not None else source.read(1)
                if not rows:
                    break
                if run is not None and run.texts is not None:
                    assert [read_json(text) for text in run.texts] == list(run.messages)
                found += rows
            assert repr(found) == repr(wanted)  # NaN equals nothing
            for row in found:
                source.begin(row.after)  # every place can be gone on from


def test_a_run_of_rows_is_not_given_of_a_file_that_was_cut(tmp_path: Path) -> None:
    """What was read may be of the old lines and the new ones; ``read`` looks at that."""
    path = tmp_path / "a.jsonl"
    path.write_text("1\n")
    source = JsonlFile(path, follow=True)
    with closing(source):
        source.begin("")
        first = source.read_run(9)
        assert first is not None
        assert list(first.messages) == [1]
        path.write_text("3\n")
        assert source.read_run(9) is None
        source.read(9)  # which sees that another file begins
        again = source.read_run(9)
        assert again is not None
        assert list(again.messages) == [3]


def test_json_that_was_read_is_sent_on_as_the_codec_would_write_it() -> None:
    """But for blanks: so a number that is too large for a float is refused as before, and bytes stay apart."""
    codec = choose_codec("auto")
    texts = [b'{"a" : 1}', b"[1, 2]", b'"e"', b"9" * 400, b'"5e1234"', b"7"]
    values = [read_json(text) for text in texts]
    payloads = payloads_of(codec, values, texts, 1000)
    assert payloads is not None
    assert [codec.decode(payload) for payload in payloads] == values
    assert payloads_of(codec, values, texts, 400) is None
    assert payloads_of(choose_codec("bytes"), values, texts, 1000) is None
    for text in (b"1e999", b"[1.5E+400]", b"9" * 309 + b".0", b'{"a": -1e0309}'):
        with pytest.raises(MisuseError, match="nothing was accepted"):
            payloads_of(codec, [read_json(text)], [text], 1000)


@pytest.mark.parametrize("kind", range(2), ids=["jsonl", "csv"])
def test_a_file_that_was_cut_is_not_taken_for_the_same(tmp_path: Path, kind: int) -> None:
    """A place behind its end is an error that says what to do."""
    source = list(file_sources(tmp_path))[kind]
    with (
        closing(source),
        pytest.raises(ConfigurationError, match="it is another file, or was cut"),
    ):
        source.begin("1000")


def test_a_followed_file_gives_whole_lines_only(tmp_path: Path) -> None:
    """Half a line waits for its other half; without follow it is the last line."""
    path = tmp_path / "a.jsonl"
    path.write_text("1\n2")
    source = JsonlFile(path, follow=True)
    source.begin("")
    assert messages(source.read(9) or []) == [1]
    assert source.read(9) == []
    with path.open("a") as file:
        file.write("2\n3\n")
    assert messages(source.read(9) or []) == [22, 3]
    source.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"n": "x"}\n', "byte 0: no Order: n: "),
        ("{\n", "byte 0: no JSON: "),
        ('{"n": 1}\n\xff\n', "byte 9: no JSON: "),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path: Path, text: str, said: str) -> None:
    """With its byte and why, and without its value."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with (
        closing(JsonlFile(path, check=fitting(Order, "test:Order"))) as source,
        pytest.raises(ConfigurationError, match=r"a\.jsonl, ") as caught,
    ):
        rows_of(source)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["a,b\n1\n", "a,b\n1,2,3\n", 'a\n"x\n'])
def test_a_csv_row_of_another_shape_is_named(tmp_path: Path, text: str) -> None:
    """Too few fields, too many, a quote that does not end."""
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"a\.csv, line "):
        rows_of(CsvFile(path))


def test_a_function_is_called_again_and_what_was_accepted_is_passed_over() -> None:
    """Only where it is declared repeatable; else a new run is a new row of messages."""
    again = Called("calls", lambda: iter("abc"), repeatable=True)
    assert messages(rows_of(again, "2")) == ["c"]
    new = Called("calls", lambda: iter("abc"), repeatable=False)
    assert messages(rows_of(new, "2")) == ["a", "b", "c"]
    with pytest.raises(ConfigurationError, match="gave str, which is no row of messages"):
        Called("calls", lambda: "abc", repeatable=False).begin("")


def test_a_function_that_waits_for_its_next_message_does_not_keep_the_one_before() -> None:
    """A generator that asks somebody now and then. It is told to stop between two messages, and its ``finally``
    runs; one that stands still is left there."""
    go, ended = threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        try:
            yield 1
            go.wait()
            yield 2
            yield 3
        finally:
            ended.set()

    source = Called("slow", slow, repeatable=False)
    source.begin("")
    assert messages(first_rows(source)) == [1]
    assert source.read(512) == []
    go.set()
    assert messages(first_rows(source)) in ([2], [2, 3])
    source.close()
    assert ended.wait(PATIENCE_S)


def test_a_function_that_never_gives_its_next_message_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``close`` comes back while the function waits, which ends with the process (here: by the test)."""
    monkeypatch.setattr(live, "CLOSE_S", 0.0)
    never = threading.Event()

    def stuck() -> Iterator[int]:
        yield 1
        never.wait()

    source = Called("stuck", stuck, repeatable=False)
    source.begin("")
    assert messages(first_rows(source)) == [1]
    source.close()
    never.set()


def test_a_function_is_begun_anew_and_standard_input_goes_on() -> None:
    """``begin`` is called again when what reads has died: nothing comes twice, or in two orders."""
    calls: list[int] = []

    def counted() -> Iterator[int]:
        calls.append(len(calls))
        yield from range(3)

    source = Called("calls", counted, repeatable=False)
    source.begin("")
    assert messages(rows_of(source)) == [0, 1, 2]
    assert calls == [0, 1]
    lines = Lines(io.BytesIO(b"1\n2\n3\n"), is_json=True)
    lines.begin("")
    assert messages(rows_of(lines)) == [1, 2, 3]


def test_a_very_long_line_of_standard_input_is_one_message(tmp_path: Path) -> None:
    """Read from the file below, piece by piece; the last line needs no end."""
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * 3_000_000 + b"\n\n" + b"y" * 70_000)
    with path.open("rb") as file:
        got = messages(rows_of(Lines(file, is_json=False)))
    assert [(len(str(one)), str(one)[:1]) for one in got] == [(3_000_000, "x"), (70_000, "y")]


def test_lines_of_standard_input_are_json_or_text() -> None:
    """Empty lines are passed over."""
    text = b'{"n": 1}\n\n2\n'
    assert messages(rows_of(Lines(io.BytesIO(text), is_json=True))) == [{"n": 1}, 2]
    assert messages(rows_of(Lines(io.BytesIO(text), is_json=False))) == ['{"n": 1}', "2"]


def test_a_stream_goes_on_behind_a_place_and_spares_what_is_not_read() -> None:
    """The reader is registered; a stream that was made anew is not taken for the same."""
    store, codec = MemoryStore(), choose_codec("auto")
    store.create("orders", 1, KEEP_ALL)
    store.append("orders", "p", 1, 1, [codec.encode(n) for n in range(5)])
    source = StreamRows(store, "orders", codec, reader="mine")
    rows = rows_of(source)
    assert messages(rows) == list(range(5))
    source.taken(rows[:3])
    assert messages(rows_of(source, rows[2].after)) == [3, 4]
    info: Any = store.info("orders")
    assert [(one.reader, one.next) for one in info.readers] == [("mine", 4)]
    assert (
        messages(rows_of(StreamRows(store, "orders", codec, reader="late", start="latest"))) == []
    )
    with pytest.raises(StoreReset, match="made anew"):
        source.begin("1:3")


def test_a_stream_whose_beginning_is_gone_is_read_from_its_earliest_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, when it begins without a place."""
    store, codec = MemoryStore(), choose_codec("auto")
    store.create("orders", 1, KEEP_ALL)
    store.append("orders", "p", 1, 1, [codec.encode(n) for n in range(5)])
    store.trim("orders", 4)
    source = StreamRows(store, "orders", codec, reader="mine")
    rows = rows_of(source)
    assert messages(rows) == [3, 4]
    assert messages(rows_of(source, rows[0].after)) == [4]
    (said,) = caplog.messages
    assert "'orders': its entries 1 to 3 were removed before 'mine' began" in said


@pytest.mark.parametrize("running", [True, False])
def test_a_stream_that_went_back_and_was_written_on_is_not_read_on(*, running: bool) -> None:
    """By the one that waits, and by one that begins behind a stored place: two rows in place of two that are gone,
    and one more. Places of earlier versions have no writer and are read on."""
    store, codec = MemoryStore(), choose_codec("auto")
    store.create("orders", 1, KEEP_ALL)
    store.append("orders", "p", 1, 1, [codec.encode(1)])
    older = store.snapshot()
    store.append("orders", "p", 1, 2, [codec.encode(2), codec.encode(3)])
    source = StreamRows(store, "orders", codec, reader="mine")
    rows = rows_of(source)
    assert messages(rows) == [1, 2, 3]
    store.roll_back(older)
    store.append("orders", "p:1", 5, 1, [codec.encode(n) for n in (4, 5, 6)])
    with pytest.raises(
        StoreReset, match=r"entry 3 was message 3 of 'p' .*, and is message 2 of 'p:1' .epoch 5"
    ):
        source.read(9) if running else rows_of(source, rows[-1].after)
    assert messages(rows_of(source, rows[-1].after.rsplit(":", 3)[0])) == [6]
    assert messages(rows_of(source, rows_of(source)[-1].after)) == []


def test_rows_of_a_stream_that_nobody_else_reads_are_trimmed() -> None:
    """So an outbox does not grow."""
    store, codec = MemoryStore(), choose_codec("auto")
    store.create("box", 1, KEEP_ALL)
    for n in range(4):
        store.append("box", "p", 1, n + 1, [codec.encode(n)])
    source = StreamRows(store, "box", codec, reader="feed", trims=True)
    source.taken(rows_of(source))
    info: Any = store.info("box")
    assert info.earliest >= 4


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """The second would silently take the place of the first."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,a\n1,2,3\n")
    with pytest.raises(ConfigurationError, match=r"a\.csv: the header has 'a' twice"):
        rows_of(CsvFile(path))


def _failing() -> Iterator[object]:
    yield 1
    raise SystemExit(3)


def test_rows_before_a_wrong_one_are_given_before_it_is_told_of(tmp_path: Path) -> None:
    """Of a table, of a function, and of standard input, which nobody can read again."""
    table = tmp_path / "a.csv"
    table.write_text("n\n1\n2,3\n")
    sources: list[tuple[Source, str]] = [
        (CsvFile(table), "not as many fields"),
        (Called("lines", _failing, repeatable=False), "failed: it raised SystemExit: 3"),
        (Lines(io.BytesIO(b"1\nx\n"), is_json=True), "line 2: Expecting value"),
    ]
    for source, said in sources:
        source.begin("")
        assert len(first_rows(source)) == 1
        with pytest.raises(ConfigurationError, match=said):
            source.read(9)


def first_rows(source: Source) -> Sequence[SourceRow]:
    """What comes first; standard input is read by a thread."""
    while not (rows := source.read(9)):
        assert rows is not None
    return rows


class Fails(BaseModel):
    """A model that fails in its own code."""

    n: int

    @field_validator("n")
    @classmethod
    def fail(cls, n: int) -> int:
        """Fails."""
        raise KeyError(n)


def test_a_model_that_fails_by_itself_refuses_the_message(tmp_path: Path) -> None:
    """With its place, and what it raised."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n')
    with (
        closing(JsonlFile(path, check=fitting(Fails, "test:Fails"))) as source,
        pytest.raises(ConfigurationError, match=r"byte 0: test:Fails failed: KeyError: 1"),
    ):
        rows_of(source)


def read_by(read: Any, text: bytes) -> object:
    """What it reads, or that it is no JSON."""
    try:
        return repr(read(text))  # so that 1 is not 1.0, and NaN is NaN
    except (ValueError, RecursionError):
        return "no JSON"


PIECES = st.sampled_from(
    [
        *(
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            '"',
            "\\",
            '"a"',
            "1",
            "-0",
            "0.1",
            "1e400",
            "01",
            "\x01",
            "\ufeff",
        ),
        *(
            "NaN",
            "-Infinity",
            "null",
            "true",
            '"\\ud800"',
            '"\\u00e4"',
            "123456789012345678901234567890",
            "1E5",
        ),
    ]
)


@given(st.lists(PIECES).map("".join).map(str.encode) | st.binary())
def test_lines_are_read_as_by_the_standard_library(text: bytes) -> None:
    """Equal values, and the same texts refused."""
    assert read_by(read_json, text) == read_by(json.loads, text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "[" * 500 + "]" * 500,
        "5e-324",
        "1.7976931348623157e308",
        "-0.0",
        "[NaN]",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-be"])
def test_a_line_that_the_fast_reader_refuses_is_read_all_the_same(text: str, encoding: str) -> None:
    """Twice the same key, depth, edges of floats; marks of byte order."""
    assert read_by(read_json, text.encode(encoding)) == read_by(json.loads, text.encode(encoding))
