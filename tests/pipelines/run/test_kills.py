from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import cast

import pytest

from surepipe.actors.codecs import choose_codec
from surepipe.cli.output import Exit
from surepipe.core.store_requests import Batch
from surepipe.pipelines import assess, load
from surepipe.storage.sqlite.store import SqliteStore
from surepipe.testing.servers import RedisServer

ORDERS = 14_000
FAR_ORDERS = 8_000
FAR_CYCLES = 8
CYCLES = 20
FEW_CYCLES = 6
BOOK_ORDERS = 600
ROOT = Path(__file__).parents[3]


def write_orders(folder: Path, count: int) -> None:
    """The file that the example reads, longer."""
    articles = ("bread", "tea", "milk", "coffee")
    orders = [
        {"order": n, "customer": f"c{n % 17}", "article": articles[n % 4], "count": n % 5 + 1}
        for n in range(1, count + 1)
    ]
    path = folder / "examples" / "data" / "orders.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(order) + "\n" for order in orders))


def stream_of(path: Path, name: str) -> list[dict[str, object]]:
    """All messages of a stream."""
    codec, found, index = choose_codec("auto"), list[object](), 1
    with SqliteStore(path) as store:
        while isinstance(batch := store.read(name, index, 10_000, 1 << 24), Batch):
            found += [codec.decode(data) for run in batch.entries for data in run.payloads]
            index = batch.next
    return cast("list[dict[str, object]]", found)


def killed(folder: Path, pipeline: Path, out: str, cycles: int, *options: str) -> None:
    """Run the pipeline in this folder, killed so many times, and then to its end."""
    command = [sys.executable, "-m", "tests.pipelines.run.killing"]
    told = subprocess.run(
        [*command, str(pipeline), out, "11", str(cycles), *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    kills, code = map(int, told.stdout.split())
    assert code == 0, (folder / "log.txt").read_text()
    assert kills > cycles // 2  # a quick machine may come to the end before all of them


def numbers(path: Path) -> list[int]:
    """The orders in a file, as they stand there."""
    return [json.loads(line)["order"] for line in path.read_text().splitlines()]


def test_killed_twenty_times_the_orders_are_in_file_and_stream_once_and_in_order(
    tmp_path: Path,
) -> None:
    """SIGKILL after a seeded piece of work, and a last run to the end (the orders pipeline, embedded store)."""
    write_orders(tmp_path, ORDERS)
    killed(tmp_path, ROOT / "examples" / "orders.yaml", "out/orders.jsonl", CYCLES)
    out = tmp_path / "out" / "orders.jsonl"
    assert numbers(out) == list(range(1, ORDERS + 1))
    written = [json.loads(line) for line in out.read_text().splitlines()]
    large = [order["order"] for order in written if order["cents"] >= 2_000]
    booked = stream_of(tmp_path / ".surepipe" / "orders.db", "orders.large")
    assert [order["order"] for order in booked] == large


ON_REDIS = """\
version: 1
name: far
expect: {delivery: exactly-once, order: absolute, tolerates: process-crash}
stores: {main: {kind: redis, url: "${SHOP_REDIS}"}}
sources: {lines: {kind: jsonl, path: examples/data/orders.jsonl}}
pipes:
  intake: {from: lines, journal: main, state: main, boundary: committed}
  next: {from: work, route: {kind: redis, store: main}, state: main, boundary: committed}
stages: {work: {from: intake, call: "tests.pipelines.run.test_kills:as_it_is"}}
sinks: {out: {from: next, kind: jsonl, path: far.jsonl}}
"""


def as_it_is(order: dict[str, object]) -> dict[str, object]:
    """A stage that leaves the order alone."""
    return order


def test_killed_again_and_again_on_redis_the_audit_of_all_lives_finds_nothing_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable_redis: RedisServer
) -> None:
    """One trace of all lives: held, nothing lost or repeated, in order; and the file says the same."""
    monkeypatch.setenv("SHOP_REDIS", durable_redis.url)
    write_orders(tmp_path, FAR_ORDERS)
    path, trace = tmp_path / "far.yaml", tmp_path / "trace.jsonl"
    path.write_text(ON_REDIS)
    killed(tmp_path, path, "far.jsonl", FAR_CYCLES, "--trace", str(trace))
    assert numbers(tmp_path / "far.jsonl") == list(range(1, FAR_ORDERS + 1))
    audited = subprocess.run(
        [sys.executable, "-m", "surepipe", "audit", "--plan", "far.yaml", str(trace)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert audited.returncode == Exit.HELD, audited.stdout[-2000:] + audited.stderr
    held = [line for line in audited.stdout.splitlines() if line.startswith("held: ")]
    pipes, ways = held[:2], held[2:]
    assert [line.split(": ")[1] for line in pipes] == ["far/intake", "far/next@far/intake"]
    assert all("no-loss, no-duplicate, monotonic, gap-free" in line for line in pipes)
    assert ways == [
        f"held: into {part}: no-loss, no-duplicate" for part in ("intake", "next", "out")
    ]


TRAP = """\
version: 1
name: trap
expect: {delivery: exactly-once, tolerates: [sender-crash, receiver-crash, handler-failure]}
stores: {main: {kind: sqlite, path: trap.db}}
sources: {lines: {kind: jsonl, path: examples/data/orders.jsonl}}
pipes:
  intake: {from: lines, journal: main, state: main}
  next: {from: work, journal: main, state: main, boundary: committed}
stages: {work: {from: intake, call: "tests.pipelines.run.test_kills:as_it_is"}}
sinks: {out: {from: next, kind: jsonl, path: trap.jsonl}}
"""


def test_a_process_is_killed_whole_whichever_end_was_named(tmp_path: Path) -> None:
    """Both ends of each pipe are named, and the process is the relay, too: what it had settled is there again.

    So `check` must not say that the expectation is held; it names the word, and with its remedy nothing repeats.
    """
    orders = 1_000
    write_orders(tmp_path, orders)
    path = tmp_path / "trap.yaml"
    path.write_text(TRAP)
    assessment = assess(load(path))
    (unmet,) = assessment.ways[0].unmet
    assert "no-duplicate does not survive process-crash" in unmet.why
    path.write_text(TRAP.replace("expect:", "# expect:"))
    killed(tmp_path, path, "trap.jsonl", FEW_CYCLES)
    found = numbers(tmp_path / "trap.jsonl")
    assert set(found) == set(range(1, orders + 1))
    assert len(found) > orders


CHAIN = """\
version: 1
name: chain
expect: {delivery: exactly-once, order: absolute, tolerates: process-crash}
stores: {main: {kind: sqlite, path: chain.db}}
sources: {lines: {kind: jsonl, path: examples/data/orders.jsonl}}
stages:
  both: {from: lines, flat-map: "tests.pipelines.run.test_kills:both"}
  again: {from: first, flat-map: "tests.pipelines.run.test_kills:both"}
pipes:
  first: {from: both, journal: main, state: main, boundary: committed}
  second: {from: again, journal: main, state: main, boundary: committed}
  third: {from: again, route: {kind: sqlite, store: main}, state: main, boundary: committed}
sinks:
  second_out: {from: second, kind: jsonl, path: second.jsonl}
  third_out: {from: third, kind: jsonl, path: third.jsonl}
"""


def both(order: dict[str, int]) -> list[dict[str, int]]:
    """The order, and its opposite."""
    return [{"order": order["order"]}, {"order": -order["order"]}]


def test_killed_on_the_way_from_pipe_to_pipe_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    """Stages that split before the first pipe and behind it; what follows has a journal, or a stream."""
    write_orders(tmp_path, 2_000)
    path = tmp_path / "chain.yaml"
    path.write_text(CHAIN)
    killed(tmp_path, path, "third.jsonl", 8)
    expected = [sign * n for n in range(1, 2_001) for sign in (1, -1, -1, 1)]
    assert numbers(tmp_path / "second.jsonl") == expected
    assert numbers(tmp_path / "third.jsonl") == expected


THROUGH_A_BOOK = """\
version: 1
name: tenants
stores: {main: {kind: sqlite, path: main.db, durability: process}}
sources: {lines: {kind: jsonl, path: examples/data/orders.jsonl, key: customer}}
pipes:
  calls: {from: lines, lanes: 3, route: {kind: book, store: main, commit_messages: 20, lease_s: 5}}
sinks:
  seen: {from: calls, kind: jsonl, path: seen.jsonl}
  out: {from: calls, kind: stream, store: main, stream: out}
"""


def test_killed_again_and_again_a_book_has_each_message_once_in_the_order_of_its_key(
    tmp_path: Path,
) -> None:
    """SIGKILL of the process that fills and serves it, which begins anew under its name. The stream has each once;
    a file has those again that were handled and not stored."""
    write_orders(tmp_path, BOOK_ORDERS)
    pipeline = tmp_path / "book.yaml"
    pipeline.write_text(THROUGH_A_BOOK)
    killed(tmp_path, pipeline, "seen.jsonl", FEW_CYCLES, "--once")
    out = stream_of(tmp_path / "main.db", "out")
    by_customer: dict[object, list[int]] = {}
    for order in out:
        by_customer.setdefault(order["customer"], []).append(cast("int", order["order"]))
    assert sorted(chain(*by_customer.values())) == list(range(1, BOOK_ORDERS + 1))
    assert all(mine == sorted(mine) for mine in by_customer.values())
    assert set(numbers(tmp_path / "seen.jsonl")) == set(range(1, BOOK_ORDERS + 1))
