"""SQL over a stream that is followed: repeats are dropped, and sums made by minute (spark SP-13, SP-14)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from surepipe.core.store_requests import Stored
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN = 60 * 28_000_000
"""In seconds. At the zero of Unix time there is no watermark yet, and what comes then counts as late."""
PARSED = "get_json_object(CAST(payload AS string), '$.{}')"
SUMS = """
    SELECT window.start AS minute, page, count(*) AS clicks
    FROM clicks GROUP BY window(at, '1 minute'), page
"""


def clicks() -> list[dict[str, int | str]]:
    """Ten minutes of them, a third twice, a few seconds late; and one that comes an hour later."""
    made: list[dict[str, int | str]] = []
    for number in range(90):
        click: dict[str, int | str] = {
            "id": number,
            "second": BEGIN + number * 7 - number % 3,
            "page": f"/{number % 2}",
        }
        made += [click] * (2 if number % 3 == 0 else 1)
    return [*made, {"id": 90, "second": BEGIN + 4500, "page": "/end"}]


def sums_by_minute(rows: DataFrame) -> DataFrame:
    """What a user writes: each click once, and sums by minute and page."""
    parsed = rows.selectExpr(
        f"{PARSED.format('id')} AS id",
        f"timestamp_seconds(CAST({PARSED.format('second')} AS long)) AS at",
        f"{PARSED.format('page')} AS page",
    )
    once = parsed.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["id"])
    once.createOrReplaceTempView("clicks")
    return rows.sparkSession.sql(SUMS)


def test_repeats_are_dropped_and_sums_are_made_by_minute(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """All minutes but the last one are behind the watermark at the end, and each click counts once in them."""
    payloads = [json.dumps(click).encode() for click in clicks()]
    assert isinstance(streams.create("in").store.append("in", "web", 1, 1, payloads), Stored)
    rows = spark.readStream.format("surepipe").options(**streams.options("in")).load()
    found: Counter[tuple[int, str]] = Counter()

    def keep(batch: DataFrame, number: int) -> None:
        del number
        for row in batch.selectExpr("unix_seconds(minute) AS second", "page", "clicks").collect():
            found[row["second"] // 60, row["page"]] += row["clicks"]

    query = (
        sums_by_minute(rows)
        .writeStream.option("checkpointLocation", str(tmp_path / "points"))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    assert query.awaitTermination(120)
    wanted = {click["id"]: (int(click["second"]) // 60, str(click["page"])) for click in clicks()}
    del wanted[90]
    assert found == Counter(wanted.values())
