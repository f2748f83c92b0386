"""``surepipe check`` and ``run`` with the engine spark, as far as they get without Spark (spark SP-2, SP-3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.cli.exits import Exit
from tests.cli.kit import Command
from tests.pipelines.files import pipe, pipeline

SINK = "sinks: {out: {from: price, kind: stream, store: main, stream: prices}}"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file shop.yaml in a folder that is the current one, through a stream in SQLite."""
    monkeypatch.chdir(tmp_path)
    path = Path("shop.yaml")
    route = pipe("route: {kind: sqlite, store: main}, boundary: committed")
    path.write_text(pipeline(pipes=route, sinks=SINK))
    return path


def test_check_never_calls_it_exactly_once_on_spark(surepipe: Command, shop: Path) -> None:
    """spark SP-1, SP-3: effectively once, by index, and what Spark costs; on actors the word is the algebra's."""
    on_spark = surepipe("check", shop, "--engine", "spark")
    assert on_spark.code == Exit.HELD
    assert "delivers     effectively once, by index, absolute order" in on_spark.out
    assert "exactly-once" not in on_spark.out
    assert "Spark is for volume: about 6 s to the first job" in on_spark.out
    assert "delivers     exactly-once, absolute order" in surepipe("check", shop).out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "flink"], "engine is 'flink': write actors or spark"),
        (["--master", "local[2]"], "--master and --checkpoint are for the engine spark"),
        (["--engine", "spark", "--node", "main"], "Spark's driver runs all nodes"),
        (["--engine", "spark", "--trace", "t.jsonl"], "a run on Spark records no trace"),
        (["--engine", "spark", "--otel", "10"], "a run on Spark sends no spans"),
    ],
)
def test_options_that_do_not_fit_the_engine_are_refused(
    surepipe: Command, shop: Path, options: list[str], said: str
) -> None:
    """spark SP-2: one line, and nothing is made."""
    answer = surepipe("run", shop, *options)
    assert answer.code == Exit.UNUSABLE
    assert said in answer.err
    assert [one.name for one in Path.cwd().iterdir()] == ["shop.yaml"]


def test_a_run_on_spark_is_refused_with_the_reasons_of_check(surepipe: Command, shop: Path) -> None:
    """spark SP-2: a local route, before anything starts."""
    sink = "sinks: {out: {from: price, kind: stdout}}"
    shop.write_text(pipeline(stores="", pipes=pipe("layers: reliable"), sinks=sink))
    answer = surepipe("run", shop, "--engine", "spark")
    assert answer.code == Exit.UNUSABLE
    assert "engine spark: pipe intake: a local route is within one process" in answer.err
