"""Spark judges as the process does, and as the predicates do (spark SP-18, sp9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.audit.bulk import BulkAudit, DuckEngine, Question, judge, place_of
from surepipe.audit.trace_file import write_trace
from surepipe.errors import ConfigurationError
from surepipe.spark.audit import SparkEngine
from tests.audit.judges import assert_as_predicates, assert_as_row_by_row
from tests.audit.planted import planted_traces, write_narrow


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
