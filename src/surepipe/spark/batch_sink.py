"""A function of the user's as the end of a query: it gets each micro-batch, and which entries that is, by index.

    def load(batch, ranges):
        warehouse.replace(batch.toPandas(), key=ranges[0].key)

    rows.writeStream.foreachBatch(BatchSink(load, idempotent=True)).option("checkpointLocation", folder).start()

Spark calls it again for a batch that a crash interrupted, with the same entries, as long as the checkpoint lives.
A lost checkpoint cuts batches in other places. So nothing here can make it once: the ranges let the function do
that, and it says whether it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from surepipe.errors import ConfigurationError
from surepipe.pipelines.engine_limits import AT_LEAST_ONCE, ONCE_BY_INDEX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


GROUP = ("stream", "partition", "life")
NEEDED = (*GROUP, "index")


@dataclass(frozen=True, slots=True)
class IdentityRange:
    """Entries of one stream in a batch: ``count`` rows, whose indexes lie between ``first`` and ``last``."""

    stream: str
    partition: int
    life: int
    first: int
    last: int
    count: int

    @property
    def key(self) -> str:
        """One text for the range: the same for a batch that is done again."""
        return f"{self.stream}/{self.partition}@{self.life}:{self.first}-{self.last}"


BatchCall: TypeAlias = "Callable[[DataFrame, Sequence[IdentityRange]], object]"


class BatchSink:
    """What ``foreachBatch`` takes. ``idempotent`` is the caller's word: a repeated batch has no second effect.

    The function is called in the driver, one batch after the other; a batch without rows is not handed to it. What
    it raises ends the query, and the next run begins with that batch. Rows need the source's columns ``NEEDED``.
    """

    def __init__(self, call: BatchCall, *, idempotent: bool) -> None:
        self.idempotent = idempotent
        self._call = call

    @property
    def delivery(self) -> str:
        """How often the effect of an entry happens, in the words of ``check``."""
        return ONCE_BY_INDEX if self.idempotent else AT_LEAST_ONCE

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Hand over a batch. Raises ConfigurationError for rows without identity, and what the function raises."""
        del number  # it begins anew with the checkpoint, and is no identity
        missing = [name for name in NEEDED if name not in batch.columns]
        if missing:
            raise ConfigurationError(
                f"a batch without the columns {', '.join(missing)} has no identities: keep those of the source "
                "through the query"
            )
        batch.persist()
        try:
            ranges = ranges_of(batch)
            if ranges:
                self._call(batch, ranges)
        finally:
            batch.unpersist()


def ranges_of(batch: DataFrame) -> list[IdentityRange]:
    """Which entries the rows are of, stream by stream."""
    from pyspark.sql import functions as made  # noqa: PLC0415

    rows = batch.groupBy(*GROUP).agg(
        made.min("index").alias("first"),
        made.max("index").alias("last"),
        made.count("index").alias("rows"),
    )
    return sorted(
        (
            IdentityRange(
                *(row["stream"], row["partition"], row["life"]),
                *(row["first"], row["last"], row["rows"]),
            )
            for row in rows.collect()
        ),
        key=lambda one: (one.stream, one.partition, one.life),
    )
