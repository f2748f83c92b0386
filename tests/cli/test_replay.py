"""``surepipe replay``: what is refused before Spark starts, and a replay in a real process (spark SP-21)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.actors.codecs import AutoCodec
from surepipe.cli.exits import Exit
from surepipe.spark.places import StorePlace
from surepipe.store_api import Stored
from tests.cli.kit import Command
from tests.packaging.repository import ROOT
from tests.spark.streams import Streams

FUNCTIONS = """
def even(order):
    return order if order["n"] % 2 == 0 else None

def small(order):
    if order["n"] > 5:
        raise ValueError(f"{order['n']} is too much")
    return order
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Ten orders in shop.db, in a folder that is the current one and has functions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "replayed_by", raising=False)
    (tmp_path / "replayed_by.py").write_text(FUNCTIONS)
    streams = Streams(StorePlace(str(tmp_path / "shop.db"), level="process")).create("orders")
    payloads = [AutoCodec().encode({"n": number}) for number in range(1, 11)]
    assert isinstance(streams.store.append("orders", "shop", 1, 1, payloads), Stored)
    return streams.create("parted", partitions=2).create("empty")


EVEN = ["--through", "replayed_by:even"]
OUT = ["--into", "out.db#even"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shop.db", *EVEN, *OUT], "shop.db names no stream: write STORE.db#STREAM"),
        (["gone.db#orders", *EVEN, *OUT], "gone.db can't be read: no such file"),
        (["shop.db#gone", *EVEN, *OUT], "stream 'gone' does not exist"),
        (["shop.db#empty", *EVEN, *OUT], "stream empty has no entries"),
        (["shop.db#parted", *EVEN, *OUT], "stream 'parted' does not exist"),
        (["shop.db#orders", *EVEN, *OUT, "--to", "11"], "has entries 1 to 10, and 1 to 11 are wanted"),
        (["shop.db#orders", *EVEN, "--into", "shop.db#orders"], "can't be replayed into itself"),
        (["shop.db#orders", "--through", "replayed_by:odd", *OUT], "replayed_by has no 'odd'"),
        (["shop.db#orders", "--through", "gone:odd", *OUT], "gone can't be imported"),
        (["shop.db#orders", *EVEN, *OUT, "--master", "mesos://x"], "is none that Spark knows"),
        (["shop.db#orders", *EVEN, *OUT, "--master", "spark://127.0.0.1:1"], "no master of Spark answers"),
    ],
)  # fmt: skip
def test_what_can_not_be_replayed_is_one_line_and_nothing_is_made(
    surepipe: Command, shop: Streams, arguments: list[str], said: str
) -> None:
    """spark SP-21: stream, range, function, target, master; exit code 2, no Spark, no file."""
    del shop
    before = sorted(one.name for one in Path.cwd().iterdir())
    answer = surepipe("replay", *arguments)
    assert (answer.code, answer.err.count("\n")) == (Exit.UNUSABLE, 1), answer.err
    assert said in answer.err
    assert {*before, "__pycache__"} == {*(one.name for one in Path.cwd().iterdir()), "__pycache__"}


def replay(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: one process runs one Spark."""
    return subprocess.run(
        [sys.executable, "-m", "surepipe", "replay", *arguments, "--master", "local[1]"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


@pytest.mark.xdist_group("spark")
def test_a_replay_that_failed_goes_on_and_a_repeat_writes_nothing(shop: Streams) -> None:
    """spark SP-21: the function raises at 6, which is told in a line; corrected, the same command with the same
    name writes 2 to 8 once."""
    del shop
    range_of = ["shop.db#orders", "--from", "2", "--to", "8", *OUT, "--name", "again"]
    failed = replay(*range_of, "--through", "replayed_by:small")
    assert (failed.returncode, failed.stdout) == (Exit.UNUSABLE, "")
    assert failed.stderr.count("\n") == 1
    assert "replayed_by:small raised ValueError: 6 is too much" in failed.stderr
    through = replay(*range_of, *EVEN, "--json")
    assert through.returncode == Exit.HELD, through.stderr
    assert json.loads(through.stdout) == {"exit": 0, "first": 2, "last": 8, "read": 7, "written": 4}
    found = Streams(StorePlace(str(Path.cwd() / "out.db"))).read("even")
    assert [AutoCodec().decode(one) for one in found] == [{"n": n} for n in (2, 4, 6, 8)]
