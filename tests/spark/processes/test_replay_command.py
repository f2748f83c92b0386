"""``surepipe replay`` in a real process: it fails, goes on, and is repeated (spark SP-21)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.actors.codecs import AutoCodec
from surepipe.cli.output import Exit
from surepipe.spark.stores import StorePlace
from tests.cli.replay_kit import EVEN, OUT, shop_in
from tests.packaging.repository import ROOT
from tests.spark.short_java import surroundings
from tests.spark.streams import Streams


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Ten orders."""
    return shop_in(tmp_path, monkeypatch)


def replay(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: one process runs one Spark."""
    return subprocess.run(
        [sys.executable, "-m", "surepipe", "replay", *arguments, "--master", "local[1]"],
        env=surroundings(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


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
