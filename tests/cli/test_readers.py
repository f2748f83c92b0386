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


def test_a_stream_that_no_pipe_goes_through_is_refused(surepipe: Command) -> None:
    """With those that there are."""
    refused = surepipe("readers", "shop.yaml", "main/other")
    assert refused.code == Exit.UNUSABLE
    assert "its pipes go through main/shop/intake" in refused.err
