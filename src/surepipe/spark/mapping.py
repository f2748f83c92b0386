"""Functions of record batches on DataFrames: the border to Spark's Arrow calls, whose types are open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from surepipe.spark.arrow import RecordBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batches: TypeAlias = Iterator[RecordBatch]


def mapped(frame: DataFrame, function: Callable[[Batches], Batches], schema: str) -> DataFrame:
    """The frame that a function makes of each partition: its record batches in, others out."""
    border: Any = frame
    made: DataFrame = border.mapInArrow(function, schema)
    return made


def collected(frame: DataFrame) -> list[RecordBatch]:
    """Run the frame, and bring its rows to the driver. Raises what Spark raises."""
    border: Any = frame
    batches: list[RecordBatch] = border.toArrow().to_batches()
    return batches
