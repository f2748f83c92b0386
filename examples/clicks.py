"""Clicks by the minute: one pipeline, run on actors and on Spark, and the same numbers from both.

    python examples/clicks.py                        # on SQLite, in a new folder
    python examples/clicks.py redis://localhost:6379 # the streams are on Redis

Clicks wait in a stream. ``clicks.yaml`` looks them up (``enrich``), keeps what can't be understood aside, and
writes Parquet. SQL makes sums by minute of that: Spark's SQL there, SQLite's here. At the end each click is
accounted for.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surepipe.core.store_requests import KEEP_ALL, Created, Store, Stored, StreamInfo
from surepipe.errors import ConfigurationError
from surepipe.pipelines import Plan, loads
from surepipe.pipelines.run import RealEnvironment
from surepipe.pipelines.run import run as run_on_actors
from surepipe.storage.letters import DeadLetterStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = 3_000
BROKEN_EVERY = 500
SECTIONS = {"/": "front", "/news": "news", "/shop": "shop", "/help": "help"}
SUMS = """
    SELECT minute, section, COUNT(*) AS clicks, SUM(milliseconds) AS milliseconds
    FROM clicks GROUP BY minute, section ORDER BY minute, section
"""
Click = Mapping[str, object]
Sums = list[tuple[object, ...]]


class Unknown(Exception):
    """A page that nobody knows."""


def enrich(click: Click) -> dict[str, object]:
    """The click with its minute and its section. Raises Unknown."""
    page, second = str(click["page"]), click["second"]
    if page not in SECTIONS:
        raise Unknown(page)
    assert isinstance(second, int)
    return {**click, "minute": second // 60, "section": SECTIONS[page]}


def clicks() -> Iterator[bytes]:
    """Clicks of half an hour, as payloads; some on a page that is not there."""
    pages = list(SECTIONS)
    for number in range(1, CLICKS + 1):
        page = "/gone" if number % BROKEN_EVERY == 0 else pages[number * number % len(pages)]
        click = {
            "click": number,
            "second": number * 3 // 5,
            "page": page,
            "milliseconds": number % 97,
        }
        yield b"\x1e" + json.dumps(click).encode()


def plan_for(folder: Path, redis: str | None) -> Plan:
    """``clicks.yaml`` for this folder; with its store on Redis when an address is given."""
    os.environ["CLICKS"] = str(folder)
    text = Path(__file__).with_name("clicks.yaml").read_text("utf-8")
    if redis is not None:
        text = text.replace(
            'kind: sqlite, path: "${CLICKS}/clicks.db"',
            f'kind: redis, url: "{redis}", keys: {folder.name}',
        ).replace("kind: sqlite, store", "kind: redis, store")
    return loads(text)


def fill(store: Store) -> None:
    """Put the clicks into their stream."""
    assert isinstance(store.create("clicks", 1, KEEP_ALL), Created)
    assert isinstance(store.append("clicks", "browsers", 1, 1, list(clicks())), Stored)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """What the pipeline wrote."""
    parquet: Any = import_module("pyarrow.parquet")
    rows: list[dict[str, Any]] = parquet.read_table(folder / "rows").to_pylist()
    return rows


def sums_here(folder: Path) -> Sums:
    """Sums by minute, by SQLite."""
    rows = rows_in(folder)
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE clicks (minute, section, milliseconds)")
    found = [(row["minute"], row["section"], row["milliseconds"]) for row in rows]
    database.executemany("INSERT INTO clicks VALUES (?, ?, ?)", found)
    sums = database.execute(SUMS).fetchall()
    database.close()
    return sums


def sums_on_spark(spark: SparkSession, folder: Path) -> Sums:
    """The same by Spark, kept as Parquet."""
    spark.read.parquet(str(folder / "rows")).createOrReplaceTempView("clicks")
    sums = spark.sql(SUMS)
    sums.coalesce(1).write.mode("overwrite").parquet(str(folder / "minutes"))
    return [tuple(row) for row in spark.read.parquet(str(folder / "minutes")).collect()]


def account(store: Store, folder: Path) -> str:
    """Each click is in a row, once, or in a dead letter. Raises AssertionError when one is not."""
    numbers = [row["click"] for row in rows_in(folder)]
    letters = [letter.letter.payload for letter in DeadLetterStream(store, "clicks.dead").all()]
    aside = [json.loads(payload[1:])["click"] for payload in letters]
    info = store.info("clicks")
    assert isinstance(info, StreamInfo)
    assert sorted([*numbers, *aside]) == list(range(1, info.next))
    return f"{info.next - 1} clicks = {len(numbers)} rows + {len(aside)} dead letters"


def on_actors(folder: Path, redis: str | None) -> Sums:
    """Everything on actors."""
    plan = plan_for(folder, redis)
    store = RealEnvironment(plan).store(plan.stores[0])
    fill(store)
    run_on_actors(plan, once=True)
    say(f"on actors: {account(store, folder)}")
    return sums_here(folder)


def on_spark(folder: Path, redis: str | None, spark: SparkSession) -> Sums:
    """Everything on Spark."""
    from surepipe.spark.running import run  # noqa: PLC0415 - part of the extra

    plan = plan_for(folder, redis)
    store = RealEnvironment(plan).store(plan.stores[0])
    fill(store)
    run(plan, spark, checkpoint=folder / "checkpoint", once=True)
    say(f"on Spark:  {account(store, folder)}")
    return sums_on_spark(spark, folder)


def main(folder: Path, redis: str | None = None, spark: SparkSession | None = None) -> bool:
    """Run both and compare; True when Spark could run, and gave the same."""
    for name in ("actors", "spark"):
        (folder / name).mkdir(parents=True)
    here = on_actors(folder / "actors", redis)
    try:
        session = spark or open_spark(folder)
    except ConfigurationError as error:
        say(f"on Spark:  left out. {error}")
        return False
    try:
        there = on_spark(folder / "spark", redis, session)
    finally:
        if spark is None:
            session.stop()
    assert here == there, "the engines do not agree"
    say(f"both have the same {len(here)} sums, such as {here[0]}; they are in {folder}")
    return True


def open_spark(folder: Path) -> SparkSession:
    """A session for two cores. Raises ConfigurationError without Java, or without the extra."""
    from surepipe.spark.session import SparkOptions, open_session  # noqa: PLC0415

    return open_session(SparkOptions(master="local[2]", memory="1g", state_dir=folder / "log"))


def say(text: str) -> None:
    """A line."""
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(Path(tempfile.mkdtemp(prefix="clicks-")), next(iter(sys.argv[1:]), None))
