"""JSON Lines and Parquet give back the rows of a trace, and so its digest (X-30 to X-32)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.audit.trace import FORMAT, RollingDigest, Row
from surepipe.audit.trace_file import TraceFile, digest_of_trace, line_of, row_of, write_trace
from surepipe.errors import ConfigurationError
from tests.audit.properties.kit import history

NUMBERS = st.integers(0, 2**63 - 1)
ROWS = st.builds(
    Row,
    run=st.text(),
    node=st.text(),
    incarnation=NUMBERS,
    step=NUMBERS,
    cause=st.text(),
    time_us=NUMBERS,
    kind=st.text(),
    pipe=st.text(),
    epoch=NUMBERS,
    seq=NUMBERS,
    count=NUMBERS,
    digests=st.text("0123456789abcdef"),
    detail=st.text(),
)
HISTORY = "accept 1-3; settle 1-3; confirm 1-3; wake sender; crash sender; end"


@given(ROWS)
def test_a_row_is_what_its_line_says(row: Row) -> None:
    """Any row, through JSON and back; a line is one line, with sorted keys (X-32)."""
    line = line_of(row)
    assert row_of(json.loads(line)) == row
    assert "\n" not in line
    assert list(json.loads(line)) == sorted(json.loads(line))


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet"])
def test_a_digest_recomputed_from_a_file_is_that_of_the_run(tmp_path: Path, name: str) -> None:
    """The rolling digest of the rows as they came, and of the rows as they were read (X-32)."""
    rows, rolling = history(HISTORY), RollingDigest()
    for row in rows:
        rolling.add(row)
    write_trace(rows, tmp_path / name)
    assert list(TraceFile(tmp_path / name)) == rows
    assert digest_of_trace(TraceFile(tmp_path / name)) == rolling.hex()


def test_the_name_of_a_run_is_no_part_of_its_digest() -> None:
    """Two runs of one script are the same run (X-32)."""
    rows, others = history(HISTORY), history(HISTORY)
    for row in others:
        row.run = "another"
    assert digest_of_trace(rows) == digest_of_trace(others)
    others[2].count = 2
    assert digest_of_trace(rows) != digest_of_trace(others)


def test_columns_that_a_reader_does_not_know_are_left_out(tmp_path: Path) -> None:
    """And rows of kinds that it doesn't know are passed on: they have their steps (X-31)."""
    path = tmp_path / "trace.jsonl"
    lines = [json.loads(line_of(row)) for row in history(HISTORY)]
    lines[1]["kind"], lines[2]["colour"] = "dreamt", "blue"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    rows = list(TraceFile(path))
    assert [row.kind for row in rows[:3]] == ["run", "dreamt", "settled"]
    assert len(rows) == len(lines)


def test_a_trace_of_a_newer_format_is_refused_in_one_line(tmp_path: Path) -> None:
    """Before any row is judged (X-31)."""
    path = tmp_path / "trace.jsonl"
    write_trace(history(HISTORY, format=FORMAT + 1), path)
    with pytest.raises(ConfigurationError, match=f"format {FORMAT + 1} .* reads {FORMAT}") as told:
        list(TraceFile(path))
    assert "\n" not in str(told.value)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    """A JSON Lines file of something else."""
    path = tmp_path / "orders.jsonl"
    path.write_text('{"order": 1}\n')
    with pytest.raises(ConfigurationError, match="is no trace"):
        list(TraceFile(path))


def test_a_torn_line_is_left_out_and_counted(tmp_path: Path) -> None:
    """As a kill in the middle of a write leaves it; each reading counts anew (XT-13)."""
    path = tmp_path / "trace.jsonl"
    write_trace(history(HISTORY), path)
    path.write_bytes(path.read_bytes()[:-9])
    trace = TraceFile(path)
    assert len(list(trace)) == len(list(trace)) == len(history(HISTORY)) - 1
    assert trace.torn == 1


@pytest.mark.parametrize("columns", [{"step": "1"}, {"kind": 7}, {"count": True}, {"epoch": 1.5}])
def test_a_column_that_holds_what_it_can_not_is_no_row(columns: dict[str, object]) -> None:
    """Integers stay integers: no floats, no truth values (X-32)."""
    with pytest.raises(ValueError, match=f"column {next(iter(columns))} of a trace holds"):
        row_of(columns)


def test_parquet_without_pyarrow_is_refused_with_the_name_of_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine where it is not installed; JSON Lines need nothing."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match="need pyarrow: pip install"):
        write_trace(history(HISTORY), tmp_path / "trace.parquet")
