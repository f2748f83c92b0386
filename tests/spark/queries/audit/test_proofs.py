"""Stored proofs, verified on Spark: the verdicts are those of one process (ibc IB-131)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from surepipe.audit.proofs import verify_files, verify_rows, write_proofs
from surepipe.errors import ConfigurationError
from surepipe.spark.proofs import verified_proofs, verify_on_spark
from tests.kit.proofs import stored_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_says_of_each_proof_what_one_process_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    """IB-131: counts and examples of files, and each verdict beside its row."""
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    rows = [stored_rows(Random(number), 80)[0] for number in range(3)]
    for file, each in zip(files, rows, strict=True):
        write_proofs(each, file)
    found, here = verify_on_spark(spark, files), verify_files(files, workers=1)
    assert (found.rows, found.shown, found.not_shown) == (here.rows, here.shown, here.not_shown)
    assert found.not_shown > 10
    assert len(found.examples) == 10
    frame = verified_proofs(spark.read.parquet(files[0].as_uri()))
    verdicts = {
        (bytes(row["proof"]), bytes(row["root"]), tuple(bytes(v or b"") for v in row["values"])): (
            row["verdicts"]
        )
        for row in frame.collect()
    }
    for row, verdict in zip(rows[0], verify_rows(rows[0]), strict=True):
        assert verdicts[row.proof, row.root, tuple(v or b"" for v in row.values)] == verdict


def test_spark_refuses_what_is_no_file_of_proofs(spark: SparkSession, tmp_path: Path) -> None:
    """IB-131: one that isn't there, or has other columns."""
    spark.range(3).write.parquet((tmp_path / "other").as_uri())
    for file, why in ((tmp_path / "none", "can't be verified"), (tmp_path / "other", "missing")):
        with pytest.raises(ConfigurationError, match=why):
            verify_on_spark(spark, [file])
