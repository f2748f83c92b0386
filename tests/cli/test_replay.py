"""``surepipe replay``: what is refused before Spark starts (spark SP-21)."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from tests.cli.kit import Command
from tests.cli.replay_kit import EVEN, OUT, shop_in
from tests.spark.streams import Streams


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Ten orders."""
    return shop_in(tmp_path, monkeypatch)


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
