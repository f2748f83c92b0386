"""Stored proofs, verified again: rows, files, all cores, and the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import duckdb
import pytest

from surepipe.audit import proofs
from surepipe.audit.proofs import (
    COLUMNS,
    ProofAudit,
    StoredProof,
    row_of,
    verify_files,
    verify_rows,
    write_proofs,
)
from surepipe.cli.output import Exit
from surepipe.errors import ConfigurationError
from surepipe.queues.ibc.ics23 import STORE_SPECS, verify_chained
from surepipe.queues.ibc.proof import ProofError
from surepipe.queues.ibc.wire import decode_chain
from tests.cli.kit import Command
from tests.kit.proofs import stored_rows


@pytest.fixture
def surepipe(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, in this process."""
    return Command(capsys)


def alone(row: StoredProof, place: int) -> bool:
    """The verdict on one key of a row by itself."""
    try:
        chain = decode_chain(row.proof)
    except ProofError:
        return False
    path, value = (row.space, row.keys[place]), row.values[place]
    return verify_chained(STORE_SPECS, row.root, chain, path, value)


def test_each_key_gets_the_verdict_that_it_has_alone() -> None:
    """IB-131: of good and bad rows; one that is cut short, or lacks a part, shows nothing and stops nothing."""
    rows, wrong = stored_rows(Random(1), 150)
    verdicts = list(verify_rows(rows))
    for row, verdict in zip(rows, verdicts, strict=True):
        assert verdict == [alone(row, place) for place in range(len(row.keys))]
    assert sum(not each for verdict in verdicts for each in verdict) == wrong > 10
    good = next(row for row, verdict in zip(rows, verdicts, strict=True) if verdict == [True])
    empty = dict.fromkeys(COLUMNS)
    assert list(
        verify_rows(
            [
                replace(good, values=()),
                replace(good, keys=(*good.keys, b"more")),
                replace(good, space=b""),
                row_of(empty),
                good,
            ]
        )
    ) == [[False], [True, False], [False], [], [True]]


def test_files_are_verified_on_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IB-131: several files, several groups of rows, and as many processes: the sum is the same."""
    monkeypatch.setattr(proofs, "ROWS_OF_A_GROUP", 40)
    counted, wrong = 0, 0
    for number in range(2):
        rows, bad = stored_rows(Random(number), 90)
        write_proofs(rows, tmp_path / f"{number}.parquet")
        counted, wrong = counted + sum(len(row.keys) for row in rows), wrong + bad
    files = sorted(tmp_path.iterdir())
    found = verify_files(files, workers=3)
    assert found == verify_files(files, workers=1)
    assert (found.rows, found.shown, found.not_shown) == (180, counted - wrong, wrong)
    assert len(found.examples) == 10


def test_the_command_says_what_is_not_shown(surepipe: Command, tmp_path: Path) -> None:
    """IB-131: its code, its text and its JSON; an empty file shows nothing."""
    good = [row for row in stored_rows(Random(2), 30)[0] if all(next(verify_rows([row])))]
    bad = replace(good[0], root=bytes(32))
    for name, rows in (("good", good), ("bad", [*good, bad]), ("empty", [])):
        write_proofs(rows, tmp_path / f"{name}.parquet")
    keys = sum(len(row.keys) for row in good)
    answer = surepipe("audit", "--proofs", str(tmp_path / "good.parquet"))
    assert answer.code == Exit.HELD
    assert f"{len(good)} stored proofs of {keys} keys: {keys} are shown" in answer.out
    answer = surepipe("audit", "--proofs", str(tmp_path / "bad.parquet"), "--json")
    assert answer.code == Exit.VIOLATED
    assert f'"not_shown": {len(bad.keys)}' in answer.out
    assert bad.keys[0].hex() in answer.out
    answer = surepipe("audit", "--proofs", str(tmp_path / "bad.parquet"))
    assert "are not shown by their proofs" in answer.out
    answer = surepipe("audit", "--proofs", str(tmp_path / "empty.parquet"))
    assert answer.code == Exit.NOT_EXERCISED


def test_what_is_no_file_of_proofs_is_refused(tmp_path: Path) -> None:
    """IB-131: one that isn't there, isn't Parquet, or has other columns; the text says which."""
    text, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    text.write_text("no table")
    duckdb.sql(f"copy (select 1 as root) to '{other}' (format parquet)")
    for file, why in (
        (tmp_path / "none.parquet", "can't be read"),
        (text, "can't be read"),
        (other, "column proof, space, keys, values is missing"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            verify_files([file])
    assert verify_files([]) == ProofAudit()
