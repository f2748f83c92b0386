"""What the SQLite store costs beside plain sqlite3 in the same durability, and how it grows.

    python benchmarks/stores.py            half a minute
    python benchmarks/stores.py --long     up to ten million messages
    python benchmarks/stores.py --letters  what giving a message up costs

Each figure is the median of rounds in which the systems take turns, so that a slow moment of the disk hits all of
them. The raw loops do nothing but insert and commit: no identities, no index that is given out, no way to read a
part of a batch. ``rows`` is one row per message, ``blob`` one row per batch, which is the least that SQLite can
do.
"""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from surepipe import DeadLetterStream, Pipe
from surepipe.core.store_requests import KEEP_ALL, AppendRun, Batch, Level, Stored, Transaction
from surepipe.pipes.stack.delivery import DeliveryBase
from surepipe.storage.sqlite.file import CHECKPOINT_PAGES
from surepipe.storage.sqlite.store import SqliteStore

RUN = 500
PAYLOADS = [bytes([65 + n % 26]) * 100 for n in range(RUN)]
ROUNDS = 7
BATCHES = 60
THREADS = 4
AIM = 0.7

Work = Callable[[], None]


def rate(work: Work, messages: int) -> float:
    """Messages per second of one round."""
    begun = time.perf_counter()
    work()
    return messages / (time.perf_counter() - begun)


def in_turns(works: dict[str, tuple[Work, int]]) -> dict[str, float]:
    """The median rate of each."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, (work, messages) in works.items():
            found[name].append(rate(work, messages))
    return {name: median(rates) for name, rates in found.items()}


# The raw loops.


def open_raw(path: Path, level: Level, table: str) -> sqlite3.Connection:
    """A connection with the settings of the store."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={'FULL' if level is Level.POWER else 'NORMAL'}")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    connection.execute(table)
    return connection


def raw_rows(connection: sqlite3.Connection) -> None:
    """A row per message, a commit per batch."""
    execute = connection.execute
    for _ in range(BATCHES):
        execute("BEGIN IMMEDIATE")
        for payload in PAYLOADS:
            execute("INSERT INTO messages (body) VALUES (?)", (payload,))
        execute("COMMIT")


def raw_blob(connection: sqlite3.Connection) -> None:
    """A row per batch, a commit per batch."""
    for _ in range(BATCHES):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO batches (body) VALUES (?)", (b"".join(PAYLOADS),))
        connection.execute("COMMIT")


# The store.


class Producer:
    """Appends runs, one after the other."""

    def __init__(self, store: SqliteStore, name: str = "p") -> None:
        self.store = store
        self.name = name
        self.next = 1

    def append(self, batches: int = BATCHES) -> None:
        """So many runs."""
        for _ in range(batches):
            outcome = self.store.append("s", self.name, 1, self.next, PAYLOADS)
            assert isinstance(outcome, Stored), outcome
            self.next += RUN


def append_in_threads(producers: Sequence[Producer]) -> None:
    """Each producer on a thread of its own."""
    threads = [threading.Thread(target=producer.append) for producer in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read_from(store: SqliteStore, index: int, stop: int) -> None:
    """Everything from an index on, in batches of 500."""
    while index < stop:
        batch = store.read("s", index, RUN, 1 << 20)
        assert isinstance(batch, Batch), batch
        index = batch.next


# The tables.


def beside_raw(folder: Path, level: Level) -> None:
    """Rates of one level."""
    rows = open_raw(
        folder / "rows.db", level, "CREATE TABLE messages (n INTEGER PRIMARY KEY, body)"
    )
    blob = open_raw(folder / "blob.db", level, "CREATE TABLE batches (n INTEGER PRIMARY KEY, body)")
    with (
        SqliteStore(folder / "ours.db", level=level) as store,
        SqliteStore(folder / "threads.db", level=level) as shared,
    ):
        store.create("s", 1, KEEP_ALL)
        shared.create("s", 1, KEEP_ALL)
        producer = Producer(store)
        several = [Producer(shared, f"p{n}") for n in range(THREADS)]
        count = BATCHES * RUN
        found = in_turns(
            {
                "raw rows": (partial(raw_rows, rows), count),
                "raw blob": (partial(raw_blob, blob), count),
                "surepipe": (producer.append, count),
                f"surepipe, {THREADS} threads": (
                    partial(append_in_threads, several),
                    count * THREADS,
                ),
                "surepipe, read": (partial(read_from, store, 1, count + 1), count),
            }
        )
    rows.close()
    blob.close()
    print(f"\nlevel {level}: batches of {RUN} x {len(PAYLOADS[0])} bytes, one commit each")
    for name, per_second in found.items():
        ratio = per_second / found["raw blob"]
        print(f"  {name:22} {per_second:12,.0f} messages/s   {ratio:6.2f} of raw blob")
    for raw in ("raw rows", "raw blob"):
        reached = found["surepipe"] / found[raw]
        print(
            f"  aim: {AIM} of {raw}; reached: {reached:.2f}{'' if reached >= AIM else '  MISSED'}"
        )


def growth(folder: Path, sizes: Sequence[int]) -> None:
    """What a message costs when so many are there already."""
    print("\ngrowth, level process: up to 50 batches written, and read in the middle, at each size")
    print(
        f"  {'messages':>12} {'append us/msg':>14} {'read us/msg':>12} {'file bytes/msg':>15} {'memory MB':>10}"
    )
    with SqliteStore(folder / "growth.db", level=Level.PROCESS) as store:
        store.create("s", 1, KEEP_ALL)
        producer = Producer(store)
        for size in sizes:
            producer.append((size - producer.next) // RUN)
            count = min(50 * RUN, size // 2)
            appended = 1e6 / rate(partial(producer.append, count // RUN), count)
            middle = producer.next // 2
            read = 1e6 / rate(partial(read_from, store, middle - count, middle), count)
            per_message = sum(file.stat().st_size for file in folder.iterdir()) / producer.next
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"  {size:12,} {appended:14.2f} {read:12.2f} {per_message:15.1f} {memory:10.0f}")
        behind = min(1_000_000, producer.next - 1)
        caught_up = rate(partial(read_from, store, producer.next - behind, producer.next), behind)
        print(f"  a reader {behind:,} messages behind catches up at {caught_up:,.0f} messages/s")


# What a message costs that fails for good (decision 0040).

LETTERS = 300


def given_up(folder: Path, letters: int, *, every: int, decides_first: bool) -> float:
    """Messages per second of a pipe whose handler fails for one message in ``every``; 0: for none.

    Journal, state, effects and letters are in one file. Not ``decides_first``: the letter is written at once, and
    the state once it is stored, as it was before; a crash in between could leave a letter of what is processed.
    """

    def handle(number: object, transaction: Transaction) -> None:
        transaction.append(AppendRun("effects", f"of {number}", 1, 1, [b"done"]))
        if every and isinstance(number, int) and number % every == 0:
            raise ValueError("for good")

    path = folder / f"letters-{every}-{decides_first}-{time.monotonic_ns()}.db"
    usual = DeliveryBase._decides_first  # pyright: ignore[reportPrivateUsage]
    if not decides_first:
        DeliveryBase._decides_first = property(lambda _: False)  # type: ignore[assignment] # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    try:
        with SqliteStore(path, level=Level.POWER) as store:
            store.create("effects", 1, KEEP_ALL)
            place = DeadLetterStream(store, "dead")
            with Pipe(
                *("orders", "reliable"),
                journal=store,
                state=store,
                boundary="committed",
                retries=1,
                dead_letter=place,
            ) as pipe:
                begun = time.perf_counter()
                pipe.receive(handle)
                pipe.send_many(range(1, letters + 1))
                pipe.flush(120)
                return letters / (time.perf_counter() - begun)
    finally:
        DeliveryBase._decides_first = usual  # type: ignore[method-assign]


def cost_of_letters(folder: Path) -> None:
    """The median of rounds in turns."""
    print("messages per second, reliable, committed, everything in one SQLite file, level power")
    for every, what in ((1, "all fail for good"), (10, "one in ten fails"), (0, "none fails")):
        found = {True: list[float](), False: list[float]()}
        for _ in range(ROUNDS):
            for decides_first, rates in found.items():
                rates.append(given_up(folder, LETTERS, every=every, decides_first=decides_first))
        now, before = (median(found[key]) for key in (True, False))
        print(f"  {what:18} {now:8,.0f}; without the first write {before:8,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--long", action="store_true", help="grow to ten million messages")
    parser.add_argument("--letters", action="store_true", help="only the cost of dead letters")
    sizes = [10**4, 10**5, 10**6, 10**7]
    given = parser.parse_args()
    chosen = sizes if given.long else sizes[:3]
    print(f"SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores")
    if given.letters:
        with tempfile.TemporaryDirectory() as folder:
            cost_of_letters(Path(folder))
        return
    for level in (Level.POWER, Level.PROCESS):
        with tempfile.TemporaryDirectory() as folder:
            beside_raw(Path(folder), level)
    with tempfile.TemporaryDirectory() as folder:
        growth(Path(folder), chosen)


if __name__ == "__main__":
    main()
