"""``surepipe readers`` lists who reads the streams of a plan, and forgets one."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.actors import StreamReceiver
from surepipe.cli.output import Exit
from surepipe.storage import SqliteStore
from tests.cli.kit import Command

FILE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: in.jsonl}}
pipes: {intake: {from: lines, route: {kind: sqlite, store: main}}}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surepipe: Command) -> None:
    """A pipeline that has run over two rows, and a view of its stream that was closed."""
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)
    Path("in.jsonl").write_text("1\n2\n")
    assert surepipe("run", "shop.yaml", "--once").code == Exit.HELD
    layer = {"stream": {"start": "earliest", "reader": "tab-1"}}
    with (
        SqliteStore("shop.db") as store,
        StreamReceiver("shop/intake", layer, store=store),
    ):
        pass


def test_the_list_says_who_is_behind_and_one_of_them_is_forgotten(surepipe: Command) -> None:
    """By name, with what each has still to read; then the view is gone."""
    assert surepipe("readers", "shop.yaml").out.splitlines() == [
        "main/shop/intake  2 readers",
        "  shop/intake: 0 to read, from 3 on",
        "  tab-1: 2 to read, from 1 on",
    ]
    forgotten = surepipe("readers", "shop.yaml", "main/shop/intake", "--forget", "tab-1", "--json")
    assert forgotten.json == {"main/shop/intake": [{"reader": "shop/intake", "next": 3, "lag": 0}]}
    again = surepipe("readers", "shop.yaml", "--forget", "tab-1")
    assert again.code == Exit.UNUSABLE
    assert "has no reader 'tab-1'; it has 'shop/intake'" in again.err


def read(message: object) -> None:
    """A handler."""


def test_readers_whose_places_are_in_other_stores_are_listed_as_that(surepipe: Command) -> None:
    """They have left word in the store of the stream; one of them comes twice, and is told once."""
    with SqliteStore("shop.db") as store, SqliteStore("other.db") as other:
        for reader in ("counts", "archive", "counts"):
            layer = {"stream": {"start": "earliest", "reader": reader}}
            with StreamReceiver("shop/intake", layer, store=store, state=other) as receiver:
                receiver.receive(read)
                assert receiver.catch_up(20)
    listed = surepipe("readers", "shop.db#shop/intake")
    assert listed.out.splitlines() == [
        "shop.db#shop/intake  4 readers",
        "  shop/intake: 0 to read, from 3 on",
        "  tab-1: 2 to read, from 1 on",
        "  archive: its place is kept elsewhere",
        "  counts: its place is kept elsewhere",
    ]
    in_json = surepipe("readers", "shop.yaml", "--json").json
    assert in_json["main/shop/intake"][-1] == {"reader": "counts", "next": None, "lag": None}
    refused = surepipe("readers", "shop.db#shop/intake", "--forget", "counts")
    assert refused.code == Exit.UNUSABLE
    assert "the place of 'counts' is kept elsewhere" in refused.err


def test_a_stream_that_no_pipe_goes_through_is_refused(surepipe: Command) -> None:
    """With those that there are."""
    refused = surepipe("readers", "shop.yaml", "main/other")
    assert refused.code == Exit.UNUSABLE
    assert "its pipes go through main/shop/intake" in refused.err


NAMED = """\
version: 1
name: mails
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: in.jsonl}}
pipes:
  send:
    from: lines
    route: {kind: sqlite, store: main}
    layers: [{stream: {stream: events, reader: mail, start: earliest}}]
sinks: {out: {from: send, kind: jsonl, path: out.jsonl}}
"""


def test_a_stream_that_its_layer_names_is_found_under_that_name(surepipe: Command) -> None:
    """Also before anything went through: that is no loss."""
    Path("mails.yaml").write_text(NAMED)
    assert surepipe("readers", "mails.yaml").out.splitlines() == [
        "main/events  not there: nothing has gone through yet"
    ]
    assert surepipe("readers", "mails.yaml", "--json").json == {"main/events": []}
    early = surepipe("readers", "mails.yaml", "--forget", "mail")
    assert early.code == Exit.UNUSABLE
    assert "nothing has gone through yet, so it has no reader 'mail'" in early.err
    assert surepipe("run", "mails.yaml", "--once").code == Exit.HELD
    assert surepipe("readers", "mails.yaml", "main/events").out.splitlines() == [
        "main/events  1 reader",
        "  mail: 0 to read, from 3 on",
    ]
    forgotten = surepipe("readers", "mails.yaml", "--forget", "mail", "--json")
    assert forgotten.json == {"main/events": []}


def test_any_stream_is_reached_by_its_store(surepipe: Command) -> None:
    """No plan names it: a Python program made it."""
    layer = {"stream": {"start": "earliest", "reader": "tab-1"}}
    with SqliteStore("other.db") as store, StreamReceiver("audit", layer, store=store):
        pass
    assert surepipe("readers", "other.db#audit").out.splitlines() == [
        "other.db#audit  1 reader",
        "  tab-1: 0 to read, from 1 on",
    ]
    forgotten = surepipe("readers", "other.db#audit", "--forget", "tab-1", "--json")
    assert forgotten.json == {"other.db#audit": []}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["shop.db#other"], "shop.db#other: there is no such stream"),
        (["redis://host/0"], "names no stream: write redis://HOST:PORT/DB?pipeline=NAME#STREAM"),
        (["shop.yaml#audit"], "file is not a database"),
        (["none.db#audit"], "none.db can't be read: no such file"),
        (["shop.db#shop/intake", "main/shop/intake"], "names a stream already"),
    ],
)
def test_a_place_that_has_no_stream_is_refused(
    surepipe: Command, arguments: list[str], why: str
) -> None:
    """And no file is made by looking."""
    refused = surepipe("readers", *arguments)
    assert refused.code == Exit.UNUSABLE
    assert why in refused.err
    assert not Path("none.db").exists()


def test_a_book_has_no_readers_to_list(surepipe: Command) -> None:
    """What is done stands in the book itself."""
    book = "{from: lines, key: 'test:key', route: {kind: book, store: main}}"
    Path("book.yaml").write_text(
        FILE.replace("{from: lines, route: {kind: sqlite, store: main}}", book)
    )
    refused = surepipe("readers", "book.yaml")
    assert refused.code == Exit.UNUSABLE
    assert "has no pipe that goes through a stream of a store" in refused.err
