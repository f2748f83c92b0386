"""Spark over surepipe's streams, beside Spark's own sources and tasks written by hand: one run, medians.

    python -m benchmarks.spark                        about six minutes at most on an idle machine
    python -m benchmarks.spark --messages 1000000 --rounds 3 --cores 2 --seconds 120

Messages of 100 bytes lie in a Redis stream for each core, in pages as surepipe writes them, and fewer of them
(``--single``) in single entries. Read to nothing: the surepipe source; the store's own client, one process per
core, without Spark; rows that Spark makes up (``spark.range``), and the same rows in Parquet; XRANGE in tasks of
``mapInArrow``. Redis to Redis: the surepipe source and sink; XRANGE and pipelined XADD in such tasks, which repeat
what a crash leaves half done. Each is run once to warm up, then rounds alternate while there is time.

Growth: the source over ``--longest`` messages and over a tenth of them, and a replay, which calls a function for
each message, over a tenth and a hundredth. The time that more messages take is shown by itself, too: a query takes
some tenths of a second before its first message, and a rate over few messages is mostly that.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from surepipe.spark.arrow import INTEGER, RecordBatch, batch_of_rows, schema_of
from surepipe.spark.filters import Wanted
from surepipe.spark.following import Follower
from surepipe.spark.places import StorePlace
from surepipe.spark.reading import READ_BYTES, READ_ROWS
from surepipe.spark.replaying import replay
from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.source_options import SourceOptions
from surepipe.store_api import KEEP_ALL
from surepipe.testing.servers import local_servers

SIZE = 100
RUN = 10_000
COUNT = schema_of([("n", INTEGER)])
Contest = tuple[int, Callable[[], float]]
"""How many messages; runs once, and says how many seconds it took."""


def same(message: object) -> object:
    """The stage of the replay."""
    return message


def timed(work: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Sizes:
    """How many messages there are."""

    messages: int
    single: int
    longest: int


class Bench:
    """One server, one session, and the data."""

    def __init__(
        self, spark: SparkSession, url: str, sizes: Sizes, cores: int, folder: Path
    ) -> None:
        self.spark, self.url, self.sizes, self.cores = spark, url, sizes, cores
        self.folder = folder
        self.place = StorePlace(url, pipeline="bench")
        self.client = cast("Any", redis.Redis).from_url(url)
        self.rounds = 0
        self.streams = [f"in{n}" for n in range(cores)]
        for name in self.streams:
            self._fill(name, sizes.messages // cores)
            self._fill_single(f"single:{name}", sizes.single // cores)
        self._fill("long", sizes.longest)
        self._fill("brief", sizes.longest // 10)
        self._fill("briefer", sizes.longest // 100)
        self._source(*self.streams).write.mode("overwrite").parquet(str(folder / "rows"))

    def _fill(self, name: str, count: int) -> None:
        self.place.store().create(name, 1, KEEP_ALL)
        for first in range(1, count + 1, RUN):
            payloads = [b"%0100d" % n for n in range(first, min(first + RUN, count + 1))]
            self.place.store().append(name, "maker", 1, first, payloads)

    def _fill_single(self, key: str, count: int) -> None:
        for first in range(1, count + 1, RUN):
            pipe = self.client.pipeline(transaction=False)
            for n in range(first, min(first + RUN, count + 1)):
                pipe.xadd(key, {"b": b"%0100d" % n})
            pipe.execute()

    def _forget(self, *names: str) -> None:
        """Give the memory of what was written back."""
        keys = cast("Any", self.place.store()).keys
        self.client.delete(*(key for name in names for key in (*keys.of_stream(name), name)))

    def _source(self, *names: str) -> DataFrame:
        options = {**self.place.options(), "streams": ",".join(names), "tasks": str(self.cores)}
        return self.spark.read.format("surepipe").options(**options).load()

    def _names(self) -> DataFrame:
        create: Callable[..., DataFrame] = getattr(self.spark, "createDataFrame")  # noqa: B009
        return create([(name,) for name in self.streams], "name string")

    # To nothing.

    def source(self) -> float:
        """All columns, through pages."""
        return self._to_nothing(self._source(*self.streams))

    def source_payload(self) -> float:
        """The index and the payload only."""
        options = {**self.place.options(), "streams": ",".join(self.streams)}
        reader = self.spark.read.format("surepipe").schema("`index` bigint, payload binary")
        return self._to_nothing(reader.options(**options, tasks=str(self.cores)).load())

    @staticmethod
    def _to_nothing(frame: DataFrame) -> float:
        return timed(frame.write.format("noop").mode("overwrite").save)

    def client_alone(self) -> float:
        """The store's own reads, one process per core."""
        context = multiprocessing.get_context("fork")
        arguments = [(self.place, name) for name in self.streams]
        with context.Pool(self.cores) as pool:
            return timed(lambda: pool.starmap(read_all, arguments, chunksize=1))

    def rate(self) -> float:
        """Rows that Spark makes up by itself."""
        frame = self.spark.range(0, self.sizes.messages, 1, self.cores)
        made = frame.withColumn(
            "payload", F.encode(F.lpad(F.col("id").cast("string"), SIZE, "0"), "utf-8")
        )
        return self._to_nothing(made)

    def files(self) -> float:
        """The same rows in Parquet."""
        return self._to_nothing(self.spark.read.parquet(str(self.folder / "rows")))

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
        assert getattr(info, "next", 0) == self.sizes.messages // self.cores * self.cores + 1, info
        self._forget(out)
        return took

    def hand_written(self) -> float:
        """XRANGE and pipelined XADD in Python tasks, without identity."""
        self.rounds += 1
        frame = self._names()
        copy = ranging(self.url, into=f"copy{self.rounds}:")
        took = timed(mapped(frame.repartition(self.cores), copy).collect)
        self._forget(*(f"copy{self.rounds}:{name}" for name in self.streams))
        return took

    # Growth.

    def read_one(self, name: str) -> float:
        """One stream, cut into a task per core."""
        return self._to_nothing(self._source(name))

    def replayed(self, name: str) -> float:
        """One stream through a function into another one."""
        self.rounds += 1
        out = f"replayed{self.rounds}"
        took = timed(lambda: replay(self.spark, self.place, name, out, "benchmarks.spark:same"))
        self._forget(out)
        return took


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
        batch = place.store().read_pages(name, index, READ_ROWS, READ_BYTES, whole.incarnation)
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


def contests_of(bench: Bench) -> dict[str, Contest]:
    """What is compared."""
    all_of, single = bench.sizes.messages, bench.sizes.single
    return {
        "source to noop, all columns": (all_of, bench.source),
        "source to noop, index and payload": (all_of, bench.source_payload),
        "client alone, a process per core": (all_of, bench.client_alone),
        "Spark's range to noop": (all_of, bench.rate),
        "Spark's Parquet source to noop": (all_of, bench.files),
        "XRANGE of single entries": (single, bench.single_entries),
        "Redis to Redis, by identity": (all_of, bench.by_identity),
        "Redis to Redis, XRANGE and XADD": (single, bench.hand_written),
    }


def growth_of(bench: Bench) -> dict[str, Contest]:
    """Pairs of a few messages, and ten times as many."""
    most = bench.sizes.longest
    return {
        "source, a tenth": (most // 10, lambda: bench.read_one("brief")),
        "source, all": (most, lambda: bench.read_one("long")),
        "replay, a hundredth": (most // 100, lambda: bench.replayed("briefer")),
        "replay, a tenth": (most // 10, lambda: bench.replayed("brief")),
    }


def rounds_of(contests: Mapping[str, Contest], rounds: int, until: float) -> dict[str, list[float]]:
    """Seconds of each contest in each round, after one to warm up. One round is always done; then time counts."""
    took: dict[str, list[float]] = {name: [] for name in contests}
    for each in range(rounds + 1):
        if each > 1 and time.monotonic() > until:
            break
        for name, (_, run) in contests.items():
            seconds = run()
            if each:
                took[name].append(seconds)
    return took


def show(contests: Mapping[str, Contest], took: Mapping[str, list[float]]) -> dict[str, float]:
    """Print, and give, messages a second."""
    rates = {name: contests[name][0] / statistics.median(took[name]) for name in contests}
    for name, rate in rates.items():
        print(
            f"{rate / 1e6:8.2f} M/s  {name} ({contests[name][0]} messages, {len(took[name])} rounds)"
        )
    return rates


def show_growth(contests: Mapping[str, Contest], took: Mapping[str, list[float]]) -> None:
    """The rate of what the larger one of a pair has more."""
    names = list(contests)
    for few, many in zip(names[::2], names[1::2], strict=True):
        more = statistics.median(took[many]) - statistics.median(took[few])
        rate = (contests[many][0] - contests[few][0]) / more
        print(f"{rate / 1e6:8.2f} M/s  {many}, beyond {few}: without the start")


def main() -> None:
    """Run all, and print messages a second."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--single", type=int, default=200_000)
    parser.add_argument("--longest", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--seconds", type=float, default=300, help="begin no round after so many")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    sizes = Sizes(options.messages, options.single, options.longest)
    with tempfile.TemporaryDirectory() as folder, local_servers()[0].server() as server:
        master = f"local[{options.cores}]"
        session = open_session(
            SparkOptions(master=master, memory="2g", state_dir=Path(folder) / "spark")
        )
        bench = Bench(session, server.url, sizes, options.cores, Path(folder))
        contests, growth = contests_of(bench), growth_of(bench)
        # Growth first and once or twice: with its long stream it is what takes the time.
        grown = rounds_of(growth, min(options.rounds, 2), until - options.seconds * 2 / 3)
        took = rounds_of(contests, options.rounds, until)
        session.stop()
        print(f"messages of {SIZE} bytes, {options.cores} cores, load {os.getloadavg()[0]:.1f}")
        found = show(contests, took) | show(growth, grown)
        show_growth(growth, grown)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
