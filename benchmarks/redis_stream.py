"""The Redis store beside a hand-written loop of pipelined XADD, XREADGROUP and XACK: same server, same run.

    python -m benchmarks.redis_stream                 about a minute
    python -m benchmarks.redis_stream --messages 1000000 --fsync always
    python -m benchmarks.redis_stream --pipe          the whole pipe (StreamSender, StreamReceiver), too
    python -m benchmarks.redis_stream --long          how it grows, up to ten million messages: a minute or two

A producer process and a consumer process, 100-byte messages in batches of 500. What counts is from the first
send until the consumer has the last message and has confirmed it. Then 1000 messages a second, one by one, three
seconds in each of five runs: how long from send to receipt, as the median of the runs. Rounds alternate between
the contestants, so that a slow moment of the machine hits all of them.

A contestant is two functions: ``produce`` sends batches; ``consume`` says that it is ready, then hands over
batches, and confirms each, until it is told that it was the last. To add one, add it to ``CONTESTANTS``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import redis
from rich.console import Console
from rich.table import Table

from benchmarks.redis_growth import growth
from surepipe import StreamReceiver, StreamSender
from surepipe.core.store_requests import (
    KEEP_ALL,
    Batch,
    CommitPosition,
    Committed,
    Owner,
    Stored,
    StreamInfo,
)
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import NONE_FOUND, local_servers

RUN = 500
SIZE = 100
READ_BYTES = 1 << 20
LATENCY_PER_S = 1_000
LATENCY_ROUNDS = 5
GIVES_UP_AFTER_S = 120.0

Batches = Iterable[list[bytes]]
Produce = Callable[[str, str, Batches], None]
Handle = Callable[[list[bytes]], bool]
"""Takes a batch; True when more is to come."""
Consume = Callable[[str, str, Callable[[], None], Handle], None]


# The store.


def produce_by_store(url: str, name: str, batches: Batches) -> None:
    """Append by identity."""
    store = RedisStore.from_url(url, pipeline=name)
    store.create("s", 1, KEEP_ALL)
    first = 1
    for batch in batches:
        outcome = store.append("s", "p", 1, first, batch)
        assert isinstance(outcome, Stored), outcome
        first = outcome.last + 1
    store.close()


def consume_by_store(url: str, name: str, ready: Callable[[], None], handle: Handle) -> None:
    """Read, and commit the position after each batch."""
    store = RedisStore.from_url(url, pipeline=name)
    store.create("s", 1, KEEP_ALL)
    owner, info = store.claim("s", "r", 1), store.info("s")
    assert isinstance(owner, Owner)
    assert isinstance(info, StreamInfo)
    ready()
    index, more = 1, True
    while more:
        outcome = store.read("s", index, RUN, READ_BYTES)
        if not isinstance(outcome, Batch):
            store.wait("s", index, 1_000_000)
            continue
        more = handle([payload for entries in outcome.entries for payload in entries.payloads])
        index = outcome.next
        commit = CommitPosition("s", "r", owner.number, info.incarnation, index)
        assert store.commit(commit) == Committed()
    store.close()


# The pipe.


LAYER = {"stream": {"start": "earliest"}}


def produce_by_pipe(url: str, name: str, batches: Batches) -> None:
    """Send each batch; the end waits until the store has all."""
    store = RedisStore.from_url(url, pipeline=name)
    with StreamSender("s", LAYER, store=store, codec="bytes") as sender:
        for batch in batches:
            sender.send_many(batch)
    store.close()


def consume_by_pipe(url: str, name: str, ready: Callable[[], None], handle: Handle) -> None:
    """At least once: the position is committed behind the handler. Closing commits the last one."""
    store = RedisStore.from_url(url, pipeline=name)
    ended = threading.Event()

    def take(batch: list[object]) -> None:
        if not handle(cast("list[bytes]", batch)):
            ended.set()

    with StreamReceiver("s", LAYER, store=store, codec="bytes") as receiver:
        receiver.receive_many(take)
        receiver.catch_up(GIVES_UP_AFTER_S)
        ready()
        assert ended.wait(GIVES_UP_AFTER_S), "not all came"
    store.close()


# The hand-written loop.


def client_of(url: str) -> Any:
    """redis-py with hiredis, as it comes."""
    return cast("Any", redis.Redis.from_url(url, protocol=2))  # pyright: ignore[reportUnknownMemberType]


def produce_by_hand(url: str, name: str, batches: Batches) -> None:
    """One XADD per message, a pipeline per batch."""
    client = client_of(url)
    for batch in batches:
        pipeline = client.pipeline(transaction=False)
        for payload in batch:
            pipeline.xadd(name, {"b": payload})
        pipeline.execute()
    client.close()


def consume_by_hand(url: str, name: str, ready: Callable[[], None], handle: Handle) -> None:
    """XREADGROUP of a batch, XACK of a batch."""
    client = client_of(url)
    client.xgroup_create(name, "g", id="0", mkstream=True)
    ready()
    more = True
    while more:
        found = client.xreadgroup("g", "c", {name: ">"}, count=RUN, block=1_000)
        if not found:
            continue
        entries = found[0][1]
        more = handle([fields[b"b"] for _, fields in entries])
        client.xack(name, "g", *(entry_id for entry_id, _ in entries))
    client.close()


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to get messages from one process to another."""

    name: str
    produce: Produce
    consume: Consume


OURS = Contestant("surepipe store", produce_by_store, consume_by_store)
BY_HAND = Contestant("XADD / XREADGROUP / XACK", produce_by_hand, consume_by_hand)
PIPE = Contestant("surepipe pipe", produce_by_pipe, consume_by_pipe)
CONTESTANTS = (OURS, BY_HAND)


# Two processes.


def full_speed(messages: int) -> Iterator[list[bytes]]:
    """Batches as fast as they are taken."""
    payload = b"x" * SIZE
    for start in range(0, messages, RUN):
        yield [payload] * min(RUN, messages - start)


def one_by_one(messages: int) -> Iterator[list[bytes]]:
    """A message each millisecond, with the time at which it was due; all that are due by now go together."""
    begun = time.monotonic_ns()
    every = 1_000_000_000 // LATENCY_PER_S
    sent = 0
    while sent < messages:
        while (left := begun + sent * every - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)
        due = min(messages, (time.monotonic_ns() - begun) // every + 1)
        yield [
            (begun + number * every).to_bytes(8, "big") + b"x" * (SIZE - 8)
            for number in range(sent, due)
        ]
        sent = due


@dataclass(frozen=True, slots=True)
class Task:
    """What both processes of one run know."""

    contestant: Contestant
    url: str
    name: str
    messages: int
    one_by_one: bool


def producer(task: Task, control: Connection) -> None:
    """The sending process: begins when it is told to, and says when that was."""
    batches = one_by_one if task.one_by_one else full_speed
    control.recv()
    control.send(time.monotonic_ns())
    task.contestant.produce(task.url, task.name, batches(task.messages))


def consumer(task: Task, control: Connection) -> None:
    """The receiving process: says when it is ready, and when all is confirmed."""
    late_us: list[float] = []
    left = task.messages

    def handle(batch: list[bytes]) -> bool:
        nonlocal left
        now = time.monotonic_ns()
        if task.one_by_one:
            late_us.extend((now - int.from_bytes(payload[:8], "big")) / 1_000 for payload in batch)
        left -= len(batch)
        return left > 0

    task.contestant.consume(task.url, task.name, lambda: control.send("ready"), handle)
    control.send((time.monotonic_ns(), late_us))


@dataclass(frozen=True, slots=True)
class Run:
    """How one run went."""

    rate: float
    commands: float
    late_us: list[float]


def run(contestant: Contestant, url: str, messages: int, slow: bool) -> Run:
    """One run: two new processes, a new stream, and the server's own count of commands."""
    task = Task(contestant, url, f"bench-{secrets.token_hex(4)}", messages, slow)
    spawn = multiprocessing.get_context("spawn")
    to_consumer, of_consumer = spawn.Pipe()
    to_producer, of_producer = spawn.Pipe()
    processes = [
        spawn.Process(target=consumer, args=(task, of_consumer)),
        spawn.Process(target=producer, args=(task, of_producer)),
    ]
    for process in processes:
        process.start()
    answer(to_consumer)
    before = commands_of(url)
    to_producer.send("go")
    begun = cast("int", answer(to_producer))
    ended, late_us = cast("tuple[int, list[float]]", answer(to_consumer))
    after = commands_of(url)
    for process in processes:
        process.join(GIVES_UP_AFTER_S)
    client = client_of(url)
    client.flushall()
    client.close()
    return Run(messages / ((ended - begun) / 1e9), (after - before) / messages, late_us)


def answer(control: Connection) -> object:
    """What a process says; an end when it says nothing for too long."""
    if not control.poll(GIVES_UP_AFTER_S):
        raise SystemExit("a process of the benchmark does not answer")
    return control.recv()


def commands_of(url: str) -> int:
    """All commands that the server executed so far, those inside scripts too."""
    client = client_of(url)
    count = int(client.info("stats")["total_commands_processed"])
    client.close()
    return count


# The table.


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared, and how."""

    contestants: Sequence[Contestant]
    messages: int
    rounds: int


def report(console: Console, fsync: str, url: str, setting: Setting) -> None:
    """All contestants with one setting of the server."""
    contestants, messages, rounds = setting.contestants, setting.messages, setting.rounds
    fast: dict[str, list[Run]] = {contestant.name: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            fast[contestant.name].append(run(contestant, url, messages, slow=False))
    slow: dict[str, list[Run]] = {contestant.name: [] for contestant in contestants}
    for _ in range(LATENCY_ROUNDS):
        for contestant in contestants:
            slow[contestant.name].append(run(contestant, url, 3 * LATENCY_PER_S, slow=True))
    rates = {name: statistics.median(one.rate for one in runs) for name, runs in fast.items()}
    title = f"appendfsync {fsync}: {messages:,} messages of {SIZE} bytes, median of {rounds} rounds"
    columns = ["", "messages/s", "ratio", "commands/message", "p50 ms", "p99 ms", "p99 of each run"]
    table = Table(*columns, title=title)
    for name, runs in fast.items():
        p50, p99 = (percentiles(slow[name], percent) for percent in (50, 99))
        table.add_row(
            name,
            f"{rates[name]:,.0f}",
            f"{rates[name] / rates[BY_HAND.name]:.2f}",
            f"{statistics.median(one.commands for one in runs):.4f}",
            f"{statistics.median(p50):.2f}",
            f"{statistics.median(p99):.2f}",
            " ".join(f"{one:.1f}" for one in p99),
        )
    console.print(table)


def percentiles(runs: Sequence[Run], percent: int) -> list[float]:
    """This percentile of the latencies of each run, in ms, sorted."""
    return sorted(sorted(one.late_us)[len(one.late_us) * percent // 100] / 1_000 for one in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fsync", nargs="*", default=["everysec", "always"])
    parser.add_argument("--pipe", action="store_true", help="the whole pipe, too")
    parser.add_argument("--long", action="store_true", help="grow to ten million messages instead")
    options = parser.parse_args()
    if not (sources := local_servers()):
        raise SystemExit(NONE_FOUND)
    console = Console()
    if options.long:
        growth(console)
        return
    contestants = (PIPE, *CONTESTANTS) if options.pipe else CONTESTANTS
    setting = Setting(contestants, options.messages, options.rounds)
    for fsync in options.fsync:
        with sources[0].server(appendonly="yes", appendfsync=fsync) as server:
            console.print(sources[0].name)
            report(console, fsync, server.url, setting)


if __name__ == "__main__":
    main()
