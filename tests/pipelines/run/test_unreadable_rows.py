"""Rows that can't be read go to the dead letters of their source, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import Level
from surepipe.errors import ConfigurationError
from surepipe.pipelines import PipelineErrors, Plan
from surepipe.pipelines.engine_limits import spark_refusals
from surepipe.storage.letters import DeadLetterStream, StoredLetter
from surepipe.storage.sqlite.store import SqliteStore
from tests.cli.kit import Command
from tests.pipelines.run.kit import plan_of, read_lines, run

pytestmark = pytest.mark.usefixtures("folder")


class Order(BaseModel):
    """What a source demands."""

    n: int


def plan(source: str, pipe: str = "p") -> Plan:
    """From this source, through a journal, into a file."""
    return plan_of(
        f"sources: {{a: {{dead_letter: main/unread, {source}}}}}\n"
        f"pipes: {{{pipe}: {{from: a, journal: main, state: main, boundary: committed}}}}\n"
        f"sinks: {{out: {{kind: jsonl, from: {pipe}, path: out.jsonl}}}}\n"
    )


def letters() -> list[StoredLetter]:
    """What lies in the stream."""
    with SqliteStore(Path("main.db"), level=Level.PROCESS) as store:
        return list(DeadLetterStream(store, "unread").all())


CSV = "kind: csv, path: in.csv, model: 'test:order'"
FILES = {
    "csv": ("kind: csv, path: in.csv", "n\n1\n2,2\n3\n", b"2,2\n", "in.csv, line 3: not as many"),
    "csv, no UTF-8": (
        "kind: csv, path: in.csv",
        "n\n1\n\udcff\n3\n",
        b"\xff\n",
        "line 3: no UTF-8",
    ),
    "csv, a quote": ("kind: csv, path: in.csv", 'n\n1\n"2\n3\n', b'"2\n', "line 3: unexpected end"),
    "csv, a model": (CSV, "n\n1\nx\n3\n", b"x\n", "line 3: no Order: n: "),
    "jsonl": (
        "kind: jsonl, path: in.csv, follow: true",
        '{"n":"1"}\n{\n{"n":"3"}\n',
        b"{\n",
        "in.csv, line 2, byte 10: no JSON",
    ),
}


@pytest.mark.parametrize("title", FILES)
def test_a_row_that_can_not_be_read_is_a_letter_with_its_place(title: str) -> None:
    """Those around it go through, it is stored once, and a run that reads everything again adds none."""
    source, text, payload, said = FILES[title]
    Path("in.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    counters = run(plan(source), order=Order)
    assert [str(row["n"]) for row in read_lines("out.jsonl")] == ["1", "3"]
    ((found,),) = (letters(),)
    assert (found.letter.payload, found.letter.pipe) == (payload, "shop/a")
    assert found.letter.error_type == "UnreadableRow"
    assert said in found.letter.error_text
    assert counters["a"]["dead_lettered"] == 1
    run(plan(source), order=Order)
    run(
        plan(source, pipe="other"), order=Order
    )  # its place is unknown, as after a crash before it was stored
    assert len(letters()) == 1


def test_letters_are_in_the_order_of_their_rows_and_the_last_row_may_be_one() -> None:
    """What was put aside is passed: a second run does not read it again."""
    Path("in.jsonl").write_text("x\n1\ny\ny\n2\nz\n")
    first = run(plan("kind: jsonl, path: in.jsonl"))
    assert read_lines("out.jsonl") == [1, 2]
    assert [one.letter.payload for one in letters()] == [b"x\n", b"y\n", b"y\n", b"z\n"]
    assert first["a"]["taken"] == 6
    again = run(plan("kind: jsonl, path: in.jsonl"))
    assert again.get("a", {}).get("taken", 0) == 0


def test_a_line_that_is_too_long_is_put_aside_as_a_whole() -> None:
    """Its end would be a message of its own."""
    with Path("in.jsonl").open("wb") as file:
        file.write(b"1\n" + b" " * (17 << 20) + b"2\n3\n")
    run(plan("kind: jsonl, path: in.jsonl"))
    assert read_lines("out.jsonl") == [1, 3]
    (found,) = letters()
    assert "a line of more than 16777216 bytes" in found.letter.error_text
    assert len(found.letter.payload) == 64 << 10


def test_without_dead_letters_such_a_row_stops_the_run() -> None:
    """As before: after those in front of it went through."""
    Path("in.csv").write_text("n\n1\n2,2\n3\n")
    stopped = plan_of(
        "sources: {a: {kind: csv, path: in.csv}}\n"
        "pipes: {p: {from: a, journal: main, state: main, boundary: committed}}\n"
        "sinks: {out: {kind: jsonl, from: p, path: out.jsonl}}\n"
    )
    with pytest.raises(ConfigurationError, match="line 3: not as many fields"):
        run(stopped)


def test_messages_of_a_function_are_letters_of_each_run() -> None:
    """What can't be read again is another message the next time, though it has the same number."""
    given = iter(([{"n": 1}, {"n": "x"}], [{"n": 2}, {"n": "x"}]))
    source = "kind: python, call: 'test:give', model: 'test:order'"
    for _ in range(2):
        run(plan(source), order=Order, give=lambda: next(given))
    assert [one.letter.payload for one in letters()] == [b'{"n": "x"}'] * 2


def test_what_a_stage_before_the_first_pipe_gives_up_is_a_letter_of_each_run() -> None:
    """The same where a stage refuses it, and no place is kept, or a crash came before it was (pipes D-2)."""
    given = iter(([1, -1], [2, -2], [3]))

    def positive(message: int) -> int:
        if message < 0:
            raise ValueError(f"{message} is below 0")
        return message

    found = plan_of(
        "sources: {a: {kind: python, call: 'test:give'}}\n"
        "stages: {s: {from: a, call: 'test:positive', retries: 1, dead_letter: main/unread}}\n"
        "pipes: {p: {from: s}}\n"
        "sinks: {out: {kind: jsonl, from: p, path: out.jsonl}}\n"
    )
    for _ in range(3):
        run(found, positive=positive, give=lambda: next(given))
    assert read_lines("out.jsonl") == [1, 2, 3]
    assert [AutoCodec().decode(one.letter.payload) for one in letters()] == [-1, -2]


def test_the_stream_must_be_in_a_store_and_http_has_none() -> None:
    """``check`` says so at the word; who posts gets an answer instead."""
    with pytest.raises(PipelineErrors, match="dead_letter 'nowhere' is no store"):
        plan_of(
            "sources: {a: {kind: jsonl, path: a, dead_letter: nowhere/x}}\npipes: {p: {from: a}}\n"
            "sinks: {out: {kind: stdout, from: p}}\n"
        )
    with pytest.raises(PipelineErrors, match="'dead_letter' is no key of source a"):
        plan("kind: http, listen: '127.0.0.1:0'")


def test_spark_says_that_it_puts_nothing_aside() -> None:
    """Before it runs."""
    assert any(
        "leave dead_letter out" in one for one in spark_refusals(plan("kind: jsonl, path: a"))
    )


def test_the_list_of_dead_letters_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    """With the place of the row."""
    surepipe = Command(capsys)
    Path("in.jsonl").write_text("1\n{\n")
    text = (
        "version: 1\nname: shop\nstores: {main: {kind: sqlite, path: main.db}}\n"
        "sources: {a: {kind: jsonl, path: in.jsonl, dead_letter: main/unread}}\n"
        "pipes: {p: {from: a, journal: main, state: main, boundary: committed}}\n"
        "sinks: {out: {kind: jsonl, from: p, path: out.jsonl}}\n"
    )
    Path("shop.yaml").write_text(text)
    assert surepipe("run", "shop.yaml", "--once").code == 0
    listed = surepipe("dlq", "list", "shop.yaml").out
    assert "main/unread  1 letter" in listed
    assert "in.jsonl, line 2, byte 2: no JSON" in listed
