"""What a micro-batch of Spark costs, over how much of a stream lies before it.

    python -m benchmarks.spark_batches                       10^4 to 10^7 messages, about two minutes
    python -m benchmarks.spark_batches --history 10000 1000000 --batches 20

The last messages of each stream go through source and sink of surepipe, in batches of ``--rows``. Streams take
turns; a row says the median time of a batch, and what of it was spent on asking how far the stream goes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from surepipe.core.store_requests import KEEP_ALL
from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.stores import StorePlace
from surepipe.testing.servers import local_servers

RUN = 10_000
Progress = Mapping[str, Any]


def fill(place: StorePlace, name: str, count: int) -> None:
    """A stream of so many messages of 100 bytes."""
    place.store().create(name, 1, KEEP_ALL)
    for first in range(1, count + 1, RUN):
        payloads = [b"%0100d" % n for n in range(first, min(first + RUN, count + 1))]
        place.store().append(name, "maker", 1, first, payloads)


def batches_of(
    spark: SparkSession, place: StorePlace, count: int, rows: Sequence[int], folder: Path
) -> list[Progress]:
    """The progress of each batch of a query over the end of a stream: so many, of so many rows."""
    batches, each = rows
    name, out = f"of{count}", folder.name
    start = max(1, count + 1 - batches * each)
    place.store().create(out, 1, KEEP_ALL)
    reader = spark.readStream.format("surepipe").options(**place.options(), stream=name)
    frame = reader.options(start=str(start), max_rows=str(each), tasks="2").load()
    writer = frame.writeStream.format("surepipe").options(**place.options(), stream=out)
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(folder))
    query = writer.start()
    query.awaitTermination()
    found = [cast("Progress", one) for one in query.recentProgress]
    return [one for one in found if one["numInputRows"]]


def medians(batches: Sequence[Progress]) -> tuple[float, float]:
    """Milliseconds of a batch, and of the question for the end of the stream. The first one starts workers."""
    later = [one["durationMs"] for one in batches[1:]]
    whole = statistics.median(one["triggerExecution"] for one in later)
    return whole, statistics.median(one.get("latestOffset", 0) for one in later)


def main() -> None:
    """Run all, and print a row for each history."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--history", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    cores = os.cpu_count() or 2
    with tempfile.TemporaryDirectory() as root, local_servers()[0].server() as server:
        folder = Path(root)
        spark = open_session(
            SparkOptions(master=f"local[{cores}]", memory="2g", state_dir=folder / "s")
        )
        place = StorePlace(server.url, pipeline="bench")
        for count in options.history:
            fill(place, f"of{count}", count)
        found: dict[int, list[Progress]] = {count: [] for count in options.history}
        for turn in range(options.rounds + 1):
            for count in options.history:
                where, rows = folder / f"c{turn}-{count}", (options.batches, options.rows)
                batches = batches_of(spark, place, count, rows, where)
                if turn:  # the first one warms up
                    found[count] += batches[1:]
                print(f"turn {turn}: {count} messages: {len(batches)} batches", file=sys.stderr)
        spark.stop()
    print(f"{'messages':>12}{'ms a batch':>12}{'of it the end':>16}{'batches':>10}")
    for count, batches in found.items():
        whole, asking = medians(batches)
        print(f"{count:>12,}{whole:>12.0f}{asking:>16.0f}{len(batches):>10}")


if __name__ == "__main__":
    main()
