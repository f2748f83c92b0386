"""Spark over surepipe's streams, beside Spark's own sources and tasks written by hand: one run, medians.

    python -m benchmarks.spark                        about six minutes at most on an idle machine
    python -m benchmarks.spark --messages 1000000 --rounds 3 --cores 2 --seconds 120
    python -m benchmarks.spark --only pages,floor     contests with one of these words in their name

Messages of 100 bytes lie in a Redis stream for each core, in pages as surepipe writes them, and fewer of them
(``--single``) in single entries. Read to nothing: the surepipe source, a row for a message and a row for a page;
the store's own client, one process per core, without Spark; a Python data source that has its rows ready, which is
the floor of all such sources; rows that Spark makes up (``spark.range`` and the source ``rate-micro-batch``), and
the same rows in Parquet, as a table and as a stream of files; XRANGE in tasks of ``mapInArrow``. Redis to Redis:
the surepipe source and sink, by rows and by pages, and by pages with a function between; ``foreachBatch`` over
XRANGE and pipelined XADD, which repeats what a crash leaves half done. A pipeline of a YAML file, as ``surepipe
run --engine spark`` runs it: a stream, one pipe or three, each with a function of Python behind it, a stream
(``--single`` orders of 100 bytes of JSON). The way into the first pipe is a hop, and so is each pipe. Each is run
once to warm up, then rounds alternate while there is time. Beside each rate stand the processor seconds that a
million messages took.

Growth (``--growth``): the source over ``--longest`` messages and over a fiftieth, and the same of a replay, which
calls a function for each message (so ``--longest 50000000`` takes ten minutes). What more messages take is shown
by itself, too: a query takes some tenths of a second before its first message, and a rate over few messages is
mostly that.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.processors import KINDS, used
from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import KEEP_ALL
from surepipe.pipelines import loads
from surepipe.spark.columns import (
    INTEGER,
    PageCut,
    RangeFacts,
    RecordBatch,
    Schema,
    batch_of_rows,
    record_batch,
    schema_of,
)
from surepipe.spark.following import Follower
from surepipe.spark.pages import PAGES, over_messages
from surepipe.spark.replaying import replay
from surepipe.spark.running import run as run_plan
from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.sink import NEEDED
from surepipe.spark.source import READ_BYTES, READ_ROWS, arrow_schema
from surepipe.spark.source_options import SourceOptions, WantedEntries
from surepipe.spark.stores import StorePlace
from surepipe.storage.pages import RawPage
from surepipe.testing.servers import local_servers

SIZE = 100
RUN = 10_000
READY_ROWS = 62_500
GROWTH = 50
"""How many times as many messages the larger of two growing things has."""
CHAIN = 3
"""So many pipes one behind the other has the longer one of two pipelines."""
COUNT = schema_of([("n", INTEGER)])
TWO_COLUMNS = "`index` bigint, payload binary"


@dataclass(frozen=True)
class Contest:
    """How many messages. ``run`` says how many seconds it took; nobody looks at what ``prepare`` takes before."""

    count: int
    run: Callable[[], float]
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Took:
    """What a round took: seconds on the clock, and processor seconds by kind of process."""

    seconds: float
    used: Mapping[str, float]


def same(message: object) -> object:
    """The stage of the replay."""
    return message


def priced(order: dict[str, int]) -> dict[str, int]:
    """The stage of a pipeline of a file."""
    order["total"] = order["quantity"] * order["price"]
    return order


def chain(url: str, pipes: int, run: int) -> str:
    """The text of a pipeline: so many pipes one behind the other, and a stage behind each. What is named by the
    run is new in it."""
    parts: dict[str, dict[str, str]] = {"pipes": {}, "stages": {}}
    last = f"orders{run}"
    for number in range(pipes):
        of_pipe = f"pipe{run}-{number}"
        parts["pipes"][of_pipe] = f"{{from: {last}, route: {{kind: redis, store: bus}}}}"
        last = f"stage{number}"
        parts["stages"][last] = f'{{from: {of_pipe}, call: "benchmarks.spark:priced"}}'
    middle = "\n".join(
        f"{section}:\n" + "\n".join(f"  {name}: {text}" for name, text in found.items())
        for section, found in parts.items()
    )
    return (
        f"version: 1\nname: bench\nstores: {{bus: {{kind: redis, url: '{url}'}}}}\n"
        f"sources: {{orders{run}: {{kind: stream, store: bus, stream: orders{run}}}}}\n"
        f"{middle}\nsinks: {{out: {{from: {last}, kind: stream, store: bus, stream: priced{run}}}}}\n"
    )


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
    longest: int = 0

    @property
    def growing(self) -> dict[str, int]:
        """Streams for the growth of time with messages."""
        if not self.longest:
            return {}
        return {"long": self.longest, "brief": self.longest // GROWTH}


class ReadyReader(DataSourceReader):
    """Gives one prepared record batch again and again: what any source in Python costs at least."""

    def __init__(self, schema: Schema, batches: int, tasks: int) -> None:
        self.schema, self.batches, self.tasks = schema, batches, tasks

    def partitions(self) -> list[InputPartition]:
        """As many as there are cores."""
        return [InputPartition(number) for number in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The batches of a task."""
        del partition
        body, lengths = b"x" * (READY_ROWS * SIZE), memoryview(b"")
        page = RawPage(1, "maker", 1, 1, READY_ROWS, 0, 0, lengths, body, 0)
        ready = record_batch([PageCut(page, 0, READY_ROWS)], RangeFacts("in", 0, 1), self.schema)
        for _ in range(self.batches // self.tasks):
            yield ready


class ReadySource(DataSource):
    """The format "ready"."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "ready"

    def reader(self, schema: StructType) -> ReadyReader:
        """For ``spark.read``."""
        return ReadyReader(
            arrow_schema(schema), int(self.options["batches"]), int(self.options["tasks"])
        )


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
        for name, count in sizes.growing.items():
            self._fill(name, count)
        self.spark.dataSource.register(ReadySource)
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

    def _fill_orders(self, name: str, count: int) -> None:
        encode = AutoCodec().encode
        self.place.store().create(name, 1, KEEP_ALL)
        for first in range(1, count + 1, RUN):
            payloads = [
                encode({"id": n, "quantity": n % 7 + 1, "price": n % 1000, "note": "x" * 48})
                for n in range(first, min(first + RUN, count + 1))
            ]
            self.place.store().append(name, "maker", 1, first, payloads)

    def _forget(self, *names: str) -> None:
        """Give the memory of what was written back."""
        keys = cast("Any", self.place.store()).keys
        self.client.delete(*(key for name in names for key in (*keys.of_stream(name), name)))

    def _source(self, *names: str) -> DataFrame:
        options = {**self.place.options(), "streams": ",".join(names), "tasks": str(self.cores)}
        return self.spark.read.format("surepipe").options(**options).load()

    # To nothing.

    def source(self) -> float:
        """All columns, through pages."""
        return self._to_nothing(self._source(*self.streams))

    def source_payload(self) -> float:
        """The index and the payload only."""
        options = {**self.place.options(), "streams": ",".join(self.streams)}
        reader = self.spark.read.format("surepipe").schema(TWO_COLUMNS)
        return self._to_nothing(reader.options(**options, tasks=str(self.cores)).load())

    def source_pages(self) -> float:
        """All columns of pages."""
        options = {**self.place.options(), "streams": ",".join(self.streams), "rows": "pages"}
        reader = self.spark.read.format("surepipe").options(**options, tasks=str(self.cores))
        return self._to_nothing(reader.load())

    def floor(self) -> float:
        """The index and the payload of rows that lie ready in Python."""
        batches = str(self.sizes.messages // READY_ROWS)
        reader = self.spark.read.format("ready").schema(TWO_COLUMNS)
        return self._to_nothing(reader.options(batches=batches, tasks=str(self.cores)).load())

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

    def rate_stream(self) -> float:
        """Spark's source of rates, as a stream of one batch."""
        reader = self.spark.readStream.format("rate-micro-batch")
        rows = {"rowsPerBatch": self.sizes.messages, "numPartitions": self.cores}
        return self._streamed(reader.options(**rows).load(), "noop")

    def file_stream(self) -> float:
        """Spark's source of files, as a stream."""
        rows = str(self.folder / "rows")
        schema = self.spark.read.parquet(rows).schema
        return self._streamed(self.spark.readStream.schema(schema).parquet(rows), "noop")

    def _streamed(self, frame: DataFrame, kind: str, **options: str) -> float:
        """To the end of what is there."""
        self.rounds += 1
        writer = frame.writeStream.format(kind).options(**options).trigger(availableNow=True)
        started = writer.option("checkpointLocation", str(self.folder / f"c{self.rounds}"))
        return timed(lambda: started.start().awaitTermination())

    def single_entries(self) -> float:
        """XRANGE of single entries in Python tasks."""
        frame = self.spark.range(0, self.cores, 1, self.cores)
        return timed(mapped(frame, ranging(self.url, self.streams, into=None)).collect)

    # Redis to Redis.

    def by_identity(self, rows: str = "messages", function: object = None) -> float:
        """Source and sink of surepipe, streaming to the end."""
        out = f"out{self.rounds}"
        self.place.store().create(out, 1, KEEP_ALL)
        options = {**self.place.options(), "rows": rows}
        reader = self.spark.readStream.format("surepipe").options(**options)
        frame = reader.option("streams", ",".join(self.streams)).load()
        if function:
            frame = mapped(frame, function, PAGES)
        took = self._streamed(frame, "surepipe", **options, stream=out)
        info = self.place.store().info(out)
        assert getattr(info, "next", 0) == self.sizes.messages // self.cores * self.cores + 1, info
        self._forget(out)
        return took

    def hand_written(self) -> float:
        """XRANGE and pipelined XADD in the tasks of each batch, without identity."""
        copied: list[int] = []
        into, streams, url = f"copy{self.rounds}:", self.streams, self.url

        def copy(batch: DataFrame, number: int) -> None:
            del number
            found = mapped(batch.select("value"), ranging(url, streams, into)).collect()
            copied.append(sum(row["n"] for row in found))

        reader = self.spark.readStream.format("rate-micro-batch")
        rows = {"rowsPerBatch": self.cores, "numPartitions": self.cores}
        frame = reader.options(**rows).load()
        self.rounds += 1
        writer = frame.writeStream.foreachBatch(copy).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.folder / f"c{self.rounds}"))
        took = timed(lambda: writer.start().awaitTermination())
        assert sum(copied) == self.sizes.single // self.cores * self.cores, copied
        self._forget(*(f"{into}{name}" for name in self.streams))
        return took

    def new_orders(self) -> None:
        """What the next pipeline of a file reads."""
        self.rounds += 1
        self._fill_orders(f"orders{self.rounds}", self.sizes.single)

    def of_file(self, pipes: int) -> float:
        """A pipeline of a YAML file, to the end of its source, which it trims behind itself."""
        plan, out = loads(chain(self.url, pipes, self.rounds)), f"priced{self.rounds}"
        points = self.folder / f"c{self.rounds}"
        took = timed(lambda: run_plan(plan, self.spark, checkpoint=points, once=True))
        info = self.place.store().info(out)
        assert getattr(info, "next", 0) == self.sizes.single + 1, info
        between = (f"bench/pipe{self.rounds}-{number}" for number in range(pipes))
        self._forget(f"orders{self.rounds}", out, *between)
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


def mapped(frame: DataFrame, function: object, schema: str = "n bigint") -> DataFrame:
    """The frame behind a function of Arrow batches; getattr, because it has no types."""
    apply: Callable[..., DataFrame] = getattr(frame, "mapInArrow")  # noqa: B009
    return apply(function, schema)


def unchanged(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """A function of messages that only has them pass."""
    return batches


def read_all(place: StorePlace, name: str) -> int:
    """Every page of a stream."""
    options = SourceOptions.of({**place.options(), "stream": name})
    (whole,) = Follower(options).whole(WantedEntries())
    index = 1
    while index < whole.stop:
        batch = place.store().read_pages(name, index, READ_ROWS, READ_BYTES, whole.incarnation)
        index = cast("Any", batch).pages[-1].stop
    return index


def ranging(
    url: str, streams: Sequence[str], into: str | None
) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    """What somebody writes by hand: ranges of 1000 entries of the n-th stream, copied when ``into`` is given."""

    def run(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        client = cast("Any", redis.Redis).from_url(url)
        for batch in batches:
            for number in cast("list[int]", batch.column(0).to_pylist()):
                name, count, last = streams[number % len(streams)], 0, "-"
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
    over = over_messages(unchanged, NEEDED)
    of_all: dict[str, Callable[[], float]] = {
        "source to noop, all columns": bench.source,
        "source to noop, index and payload": bench.source_payload,
        "source to noop, pages": bench.source_pages,
        "floor of a Python source to noop, index and payload": bench.floor,
        "client alone, a process per core": bench.client_alone,
        "Spark's range to noop": bench.rate,
        "Spark's rate source to noop": bench.rate_stream,
        "Spark's Parquet table to noop": bench.files,
        "Spark's file source to noop": bench.file_stream,
        "Redis to Redis, by identity": bench.by_identity,
        "Redis to Redis, by identity, pages": lambda: bench.by_identity("pages"),
        "Redis to Redis, by identity, pages, a function between": (
            lambda: bench.by_identity("pages", over)
        ),
    }
    chain_of = f"a file's pipeline, {CHAIN} pipes with a stage each: {CHAIN + 1} hops"
    return {name: Contest(all_of, run) for name, run in of_all.items()} | {
        "XRANGE of single entries": Contest(single, bench.single_entries),
        "Redis to Redis, foreachBatch of XRANGE and XADD": Contest(single, bench.hand_written),
        "a file's pipeline, a pipe with a stage: 2 hops": Contest(
            single, lambda: bench.of_file(1), bench.new_orders
        ),
        chain_of: Contest(single, lambda: bench.of_file(CHAIN), bench.new_orders),
    }


def growth_of(bench: Bench) -> dict[str, Contest]:
    """Pairs of a few messages, and many times as many."""
    most = bench.sizes.longest
    few = most // GROWTH
    return {
        "source, few": Contest(few, lambda: bench.read_one("brief")),
        "source, many": Contest(most, lambda: bench.read_one("long")),
        "replay, few": Contest(few, lambda: bench.replayed("brief")),
        "replay, many": Contest(most, lambda: bench.replayed("long")),
    }


def rounds_of(contests: Mapping[str, Contest], rounds: int, until: float) -> dict[str, list[Took]]:
    """What each contest took in each round, after one to warm up, which leaves out what only has more of the same.
    One round is always done; then time counts."""
    took: dict[str, list[Took]] = {name: [] for name in contests}
    for each in range(rounds + 1):
        if each > 1 and time.monotonic() > until:
            break
        for name, contest in contests.items():
            if not each and name.endswith(", many"):
                continue
            contest.prepare()
            before = used()
            seconds = contest.run()
            after = used()
            spent = {kind: after[kind] - before[kind] for kind in KINDS}
            told = ", ".join(f"{kind} {spent[kind]:.2f}" for kind in KINDS)
            print(f"round {each}: {seconds:.2f} s ({told}): {name}", file=sys.stderr, flush=True)
            if each:
                took[name].append(Took(seconds, spent))
    return took


def median_of(took: Sequence[Took]) -> float:
    """Of the seconds on the clock."""
    return statistics.median(one.seconds for one in took)


def show(contests: Mapping[str, Contest], took: Mapping[str, Sequence[Took]]) -> dict[str, float]:
    """Print, and give, messages a second; beside it the processor seconds that a million of them took."""
    rates = {name: contests[name].count / median_of(took[name]) for name in contests}
    print(
        f"{'M/s':>8}" + "".join(f"{kind:>8}" for kind in KINDS) + "   processor seconds a million"
    )
    for name, rate in rates.items():
        count = contests[name].count
        spent = [statistics.median(one.used[kind] for one in took[name]) for kind in KINDS]
        each = "".join(f"{seconds / count * 1e6:8.2f}" for seconds in spent)
        print(f"{rate / 1e6:8.2f}{each}   {name} ({count} messages, {len(took[name])} rounds)")
    return rates


def show_growth(contests: Mapping[str, Contest], took: Mapping[str, Sequence[Took]]) -> None:
    """The rate of what the larger one of a pair has more."""
    names = list(contests)
    for few, many in zip(names[::2], names[1::2], strict=True):
        more = median_of(took[many]) - median_of(took[few])
        rate = (contests[many].count - contests[few].count) / more
        growth = median_of(took[many]) / median_of(took[few]) / GROWTH
        print(
            f"{rate / 1e6:8.2f} M/s  {many}, beyond {few}: without the start; growth {growth:.2f}"
        )


def chosen(contests: Mapping[str, Contest], words: str) -> dict[str, Contest]:
    """Those with one of the words in their name."""
    wanted = [word for word in words.split(",") if word]
    return {
        name: contest
        for name, contest in contests.items()
        if not wanted or any(word in name for word in wanted)
    }


def main() -> None:
    """Run all, and print messages a second."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--single", type=int, default=200_000)
    parser.add_argument("--longest", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--seconds", type=float, default=240, help="begin no round after so many")
    parser.add_argument("--only", default="", help="words in the names of contests, with commas")
    parser.add_argument("--growth", action="store_true", help="in place of the contests")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    sizes = Sizes(options.messages, options.single, options.longest if options.growth else 0)
    with tempfile.TemporaryDirectory() as folder, local_servers()[0].server() as server:
        master = f"local[{options.cores}]"
        session = open_session(
            SparkOptions(master=master, memory="2g", state_dir=Path(folder) / "spark")
        )
        bench = Bench(session, server.url, sizes, options.cores, Path(folder))
        contests = chosen((growth_of if options.growth else contests_of)(bench), options.only)
        took = rounds_of(contests, options.rounds, until)
        session.stop()
        print(f"messages of {SIZE} bytes, {options.cores} cores, load {os.getloadavg()[0]:.1f}")
        found = show(contests, took)
        if options.growth:
            show_growth(contests, took)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
