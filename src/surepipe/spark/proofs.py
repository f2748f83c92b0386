"""Stored proofs, verified on Spark: the verdicts of ``surepipe.audit.proofs`` on more than one machine.

Executors need what the extra ``ibc`` brings. A row is one of a file of stored proofs: root, proof, space, keys,
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from surepipe.audit.proofs import (
    COLUMNS,
    ProofAudit,
    audited,
    check_columns,
    row_of,
    verify_rows,
)
from surepipe.spark.audit import name_of, refused
from surepipe.spark.columns import BINARIES, FLAGS, INT64, Batches, array, batch_of_columns, mapped

_ROWS = "root binary, proof binary, space binary, keys array<binary>, values array<binary>"
_FOUND = (
    "rows bigint, shown bigint, not_shown bigint, "
    "roots array<binary>, spaces array<binary>, not_shown_keys array<binary>"
)


def verified_proofs(rows: DataFrame) -> DataFrame:
    """The rows, and ``verdicts``: for each key of a row whether its proof shows it."""
    return mapped(rows.select(*COLUMNS), _verified, f"{_ROWS}, verdicts array<boolean>")


def _verified(batches: Batches) -> Batches:
    for batch in batches:
        verdicts = list(verify_rows([row_of(row) for row in batch.to_pylist()]))
        columns = {name: batch.column(name) for name in COLUMNS}
        yield batch_of_columns({**columns, "verdicts": array(verdicts, FLAGS)})


def verify_on_spark(session: SparkSession, files: Sequence[Path]) -> ProofAudit:
    """Verify all proofs of some files, which executors must be able to read.

    Raises ConfigurationError for what is no file of proofs.
    """
    try:
        read = session.read.parquet(*map(name_of, files))
        check_columns(files[0], read.columns)
        rows = mapped(read.select(*COLUMNS), _audited, _FOUND).collect()
    except (PySparkException, Py4JError) as error:
        raise refused("the proofs can't be verified", error) from error
    parts = [
        ProofAudit(row[0], row[1], row[2], tuple(zip(*_bytes_of(row[3:]), strict=True)))
        for row in rows
    ]
    return reduce(ProofAudit.__add__, parts, ProofAudit())


def _bytes_of(columns: Sequence[Sequence[bytearray]]) -> list[list[bytes]]:
    return [[bytes(each) for each in column] for column in columns]


def _audited(batches: Batches) -> Batches:
    for batch in batches:
        found = audited([row_of(row) for row in batch.to_pylist()])
        roots, spaces, keys = ([each[part] for each in found.examples] for part in range(3))
        yield batch_of_columns(
            {
                "rows": array([found.rows], INT64),
                "shown": array([found.shown], INT64),
                "not_shown": array([found.not_shown], INT64),
                "roots": array([roots], BINARIES),
                "spaces": array([spaces], BINARIES),
                "not_shown_keys": array([keys], BINARIES),
            }
        )
