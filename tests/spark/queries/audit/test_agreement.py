"""Spark judges as the process does, and as the predicates do (spark SP-18, sp9)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from surepipe.audit.bulk import BulkAudit, DuckEngine, Question, judge, place_of
from surepipe.audit.trace_audit import Standing
from surepipe.audit.trace_file import write_trace
from surepipe.core.claims import Atom
from surepipe.errors import ConfigurationError
from surepipe.spark.audit import SparkEngine
from tests.audit import shapes
from tests.audit.judges import assert_as_predicates, assert_as_row_by_row
from tests.audit.planted import planted_traces, told_late, write_narrow


def test_four_judges_agree_on_two_hundred_traces_with_planted_faults(
    engine: SparkEngine, tmp_path: Path
) -> None:
    """Spark, DuckDB, the audit row by row and the predicates: every number, outcome and example (sp9)."""
    channels, rows = planted_traces(200, seed=20261121, holes=True)
    path = tmp_path / "planted.parquet"
    write_trace(rows, path)
    question = Question(place_of(str(path)), place_of(str(path)))
    found, local = judge(engine, question), judge(DuckEngine(), question)
    assert found.channels == local.channels
    assert_as_row_by_row(found, rows)
    assert_as_predicates(found, channels)
    assert _kinds(found) == {"lost", "repeated", "late", "gap"}


@pytest.mark.parametrize("draw", [shapes.drawn, shapes.drawn_apart])
def test_spark_accounts_for_the_parts_of_a_plan_as_the_process_does(
    draw: Callable[[int], shapes.Shape],
    engine: SparkEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of whole plans, and the same with one error at a time: every promise of every part stands alike."""
    monkeypatch.chdir(tmp_path)
    shape, told = draw(1), tmp_path / "told.jsonl"
    rows, plan, rng = shapes.rows_of(shapes.ran(shape, tmp_path)), shape.plan, random.Random(1)
    plants = (shapes.settled_removed, shapes.settled_doubled, shapes.seq_removed)
    changed = [(plant, planted) for plant in plants if (planted := plant(rows, rng))]
    assert len(changed) == len(plants)
    for plant, planted in ((None, rows), *changed):
        some = rows if plant is None else shapes.renumbered(planted)
        found, on_spark = shapes.in_bulk(some, plan, told, engine=engine)
        local, here = shapes.in_bulk(some, plan, told)
        assert (found.channels, on_spark) == (local.channels, here), plant
        is_broken = any(one.standing is not Standing.HELD for one in on_spark)
        assert plant is None or is_broken or plant is shapes.settled_doubled, plant


@pytest.mark.parametrize(("story", "broken"), [("late", False), ("told in time and late", True)])
def test_spark_counts_a_row_that_comes_late_where_its_message_was_passed(
    story: str, broken: bool, engine: SparkEngine, tmp_path: Path
) -> None:
    """As the process does; what was told before stays a repeat."""
    rows, told = told_late((1, 1, 3), story), tmp_path / "told.jsonl"
    found, local = (
        shapes.figures_in_bulk(rows, told, frozenset(Atom), one) for one in (engine, None)
    )
    assert found.channels == local.channels
    assert bool(found.channels[0].violated) == broken


def _kinds(found: BulkAudit) -> set[str]:
    return {case.what for one in found.channels for case in one.examples}


def test_what_is_no_trace_is_refused_in_the_same_words(engine: SparkEngine, tmp_path: Path) -> None:
    """Not Parquet, a missing column: one line from either engine."""
    false, narrow = tmp_path / "false.parquet", tmp_path / "narrow.parquet"
    false.write_bytes(b"PAR1, and the same at its end PAR1")
    write_narrow(narrow)
    for path, words in (
        (false, "false.parquet can't be read: "),
        (narrow, "column count, epoch, "),
    ):
        for one in (engine, DuckEngine()):
            with pytest.raises(ConfigurationError, match=words):
                one.traces([path])
