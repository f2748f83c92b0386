"""Spark over surepipe's streams, beside Spark's own sources and a hand-written loop: one run, medians.

    python -m benchmarks.spark                        some minutes
    python -m benchmarks.spark --messages 1000000 --rounds 3 --cores 2

Messages of 100 bytes lie in a Redis stream, in pages as surepipe writes them and in single entries. Read to
nothing: the surepipe source; the store's own client, one process per core, without Spark; Spark's rate source and
its file source over the same rows in Parquet; ``foreachBatch`` over XRANGE. Redis to Redis: the surepipe source
and sink; ``foreachBatch`` over pipelined XRANGE and XADD, which repeats what a crash leaves half done. Each is run
once to warm up, then rounds alternate.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from surepipe.spark.arrow import INTEGER, RecordBatch, batch_of_rows, schema_of
from surepipe.spark.columns import COLUMNS
from surepipe.spark.filters import Wanted
from surepipe.spark.following import Follower
from surepipe.spark.places import StorePlace
from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.source_options import SourceOptions
from surepipe.store_api import KEEP_ALL
from surepipe.testing.servers import local_servers

SIZE = 100
RUN = 10_000
COUNT = schema_of([("n", INTEGER)])
Contest = Callable[[], float]
"""Runs once; the seconds that it took."""


def timed(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Bench:
    """One server, one session, and the data."""

    def __init__(
        self, spark: SparkSession, url: str, messages: int, cores: int, folder: Path
    ) -> None:
        self.spark, self.url, self.messages, self.cores = spark, url, messages, cores
        self.folder = folder
        self.place = StorePlace(url, pipeline="bench")
        self.client = cast("Any", redis.Redis).from_url(url)
        self.rounds = 0
        self.streams = [f"in{n}" for n in range(cores)]
        self._fill()

    def _fill(self) -> None:
        share = self.messages // self.cores
        for name in self.streams:
            self.place.store().create(name, 1, KEEP_ALL)
            for first in range(1, share + 1, RUN):
                payloads = [b"%0100d" % n for n in range(first, min(first + RUN, share + 1))]
                self.place.store().append(name, "maker", 1, first, payloads)
                pipe = self.client.pipeline(transaction=False)
                for payload in payloads:
                    pipe.xadd(f"single:{name}", {"b": payload})
                pipe.execute()
        self._source(*self.streams).write.mode("overwrite").parquet(str(self.folder / "rows"))

    def _source(self, *names: str) -> DataFrame:
        options = {**self.place.options(), "streams": ",".join(names), "tasks": str(self.cores)}
        return self.spark.read.format("surepipe").options(**options).load()

    def _names(self) -> DataFrame:
        create: Callable[..., DataFrame] = getattr(self.spark, "createDataFrame")  # noqa: B009
        return create([(name,) for name in self.streams], "name string")

    # To nothing.

    def source(self, columns: tuple[str, ...] = COLUMNS) -> float:
        """All columns, through pages."""
        options = {**self.place.options(), "streams": ",".join(self.streams)}
        kinds = {field.name: field.dataType for field in self._source(*self.streams).schema}
        schema = ", ".join(f"`{name}` {kinds[name].simpleString()}" for name in columns)
        frame = self.spark.read.format("surepipe").schema(schema).options(**options).load()
        return timed(frame.write.format("noop").mode("overwrite").save)

    def source_payload(self) -> float:
        """The index and the payload only."""
        return self.source(("index", "payload"))

    def client_alone(self) -> float:
        """The store's own reads, one process per core."""
        context = multiprocessing.get_context("fork")
        arguments = [(self.place, name) for name in self.streams]
        with context.Pool(self.cores) as pool:
            return timed(lambda: pool.starmap(read_all, arguments, chunksize=1))

    def rate(self) -> float:
        """Rows that Spark makes up by itself."""
        frame = self.spark.range(0, self.messages, 1, self.cores)
        made = frame.withColumn(
            "payload", F.encode(F.lpad(F.col("id").cast("string"), SIZE, "0"), "utf-8")
        )
        return timed(made.write.format("noop").mode("overwrite").save)

    def files(self) -> float:
        """The same rows in Parquet."""
        frame = self.spark.read.parquet(str(self.folder / "rows"))
        return timed(frame.write.format("noop").mode("overwrite").save)

    def single_entries(self) -> float:
        """XRANGE of single entries in Python tasks."""
        frame = self._names()
        read = ranging(self.url, into=None)
        return timed(mapped(frame.repartition(self.cores), read).collect)

    # Redis to Redis.

    def by_identity(self) -> float:
        """Source and sink of surepipe, streaming to the end."""
        self.rounds += 1
        out, checkpoint = f"out{self.rounds}", str(self.folder / f"c{self.rounds}")
        self.place.store().create(out, 1, KEEP_ALL)
        options = {**self.place.options(), "streams": ",".join(self.streams)}
        frame = self.spark.readStream.format("surepipe").options(**options).load()
        writer = frame.writeStream.format("surepipe").options(**self.place.options(), stream=out)
        started = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        took = timed(lambda: started.start().awaitTermination())
        info = self.place.store().info(out)
        assert getattr(info, "next", 0) == self.messages // self.cores * self.cores + 1, info
        return took

    def hand_written(self) -> float:
        """XRANGE and pipelined XADD in Python tasks, without identity."""
        self.rounds += 1
        frame = self._names()
        copy = ranging(self.url, into=f"copy{self.rounds}:")
        return timed(mapped(frame.repartition(self.cores), copy).collect)


def mapped(frame: DataFrame, function: object) -> DataFrame:
    """The frame behind a function of Arrow batches that counts; getattr, because it has no types."""
    apply: Callable[..., DataFrame] = getattr(frame, "mapInArrow")  # noqa: B009
    return apply(function, "n bigint")


def read_all(place: StorePlace, name: str) -> int:
    """Every page of a stream."""
    options = SourceOptions.of({**place.options(), "stream": name})
    (whole,) = Follower(options).whole(Wanted())
    index = 1
    while index < whole.stop:
        batch = place.store().read_pages(name, index, 65_536, 8 << 20)
        index = cast("Any", batch).pages[-1].stop
    return index


def ranging(url: str, into: str | None) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    """What somebody writes by hand: ranges of 1000 entries, copied when ``into`` is given."""

    def run(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        client = cast("Any", redis.Redis).from_url(url)
        for batch in batches:
            for name in map(str, batch["name"].to_pylist()):
                count, last = 0, "-"
                while entries := client.xrange(f"single:{name}", last, "+", count=1000):
                    last = b"(" + entries[-1][0]
                    count += len(entries)
                    if into is not None:
                        pipe = client.pipeline(transaction=False)
                        for _, fields in entries:
                            pipe.xadd(into + name, fields)
                        pipe.execute()
                yield batch_of_rows([{"n": count}], COUNT)

    return run


def main() -> None:
    """Run all, and print messages a second."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, local_servers()[0].server() as server:
        master = f"local[{options.cores}]"
        session = open_session(
            SparkOptions(master=master, memory="2g", state_dir=Path(folder) / "spark")
        )
        bench = Bench(session, server.url, options.messages, options.cores, Path(folder))
        contests: dict[str, Contest] = {
            "source to noop, all columns": bench.source,
            "source to noop, index and payload": bench.source_payload,
            "client alone, a process per core": bench.client_alone,
            "Spark's range source to noop": bench.rate,
            "Spark's Parquet source to noop": bench.files,
            "XRANGE of single entries": bench.single_entries,
            "Redis to Redis, by identity": bench.by_identity,
            "Redis to Redis, XRANGE and XADD": bench.hand_written,
        }
        took: dict[str, list[float]] = {name: [] for name in contests}
        for each in range(options.rounds + 1):
            for name, contest in contests.items():
                seconds = contest()
                if each:
                    took[name].append(seconds)
        session.stop()
        print(
            f"{options.messages} messages of {SIZE} bytes, {options.cores} cores, {options.rounds} rounds"
        )
        found = {
            name: options.messages / statistics.median(rounds) for name, rounds in took.items()
        }
        for name, rate in found.items():
            print(f"{rate / 1e6:8.2f} M/s  {name}")
        print(json.dumps(found))


if __name__ == "__main__":
    main()
