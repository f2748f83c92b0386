"""The engine of audits on Spark, set for small tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from surepipe.spark.audit import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOR_SMALL_TABLES = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
"""Compiling each query would cost several times its run."""


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[SparkEngine]:
    """Spark, set for small tables while the test runs."""
    before = {name: spark.conf.get(name) for name in _FOR_SMALL_TABLES}
    for name, value in _FOR_SMALL_TABLES.items():
        spark.conf.set(name, value)
    engine = SparkEngine(spark)
    yield engine
    engine.close()
    for name, old in before.items():
        spark.conf.set(name, old or "true")
