"""Rates of the message queues in memory, and what `Checked` costs on top of them.

    python -m benchmarks.message_queue               rates in memory, beside their targets
    python -m benchmarks.message_queue --transport   the transports out of a queue, beside the pipes
    python -m benchmarks.message_queue --redis URL   the stored queue, beside a loop of raw commands

Each rate in memory is the best of five rounds; the targets are for a machine with two cores. The ratio is between
a checked and a bare queue doing the same work in turns.
"""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from surepipe.core.effects import Deliver, Effect, Transmit
from surepipe.pipes.message_queue import BoundedQueue, Message, MessageQueue
from surepipe.pipes.message_queue.checked import Checked
from surepipe.queues.message_queue import StreamQueue, Transport
from surepipe.simulation import HopSubject, Options, Subject, run_hop

MESSAGES = 65_536
RUN = 512
WINDOW = 4_096
PAYLOAD = b"x" * 200
ROUNDS = 5

Make = Callable[[], MessageQueue[Message]]
Work = Callable[[MessageQueue[Message]], None]


def plain() -> MessageQueue[Message]:
    """Message objects."""
    return BoundedQueue(MESSAGES)


def increasing() -> MessageQueue[Message]:
    """Runs of bytes, as the pipes use them."""
    return BoundedQueue(MESSAGES, increasing=True)


def sampled(make: Make) -> Make:
    """The same, checked as in production."""
    return lambda: Checked(make(), invariants="sampled")


MADE = [Message(number, PAYLOAD) for number in range(MESSAGES)]
PAYLOADS = [PAYLOAD] * RUN


def enqueue(queue: MessageQueue[Message]) -> None:
    """One by one until full."""
    for message in MADE:
        queue.enqueue(message)


def enqueue_runs(queue: MessageQueue[Message]) -> None:
    """In runs until full."""
    for first in range(0, MESSAGES, RUN):
        queue.enqueue_run(first, PAYLOADS)


def window_of_messages(queue: MessageQueue[Message]) -> None:
    """A full window slides: one message in, the oldest looked at, one confirmed."""
    for message in MADE[:WINDOW]:
        queue.enqueue(message)
    for message in MADE[WINDOW:]:
        queue.delete_all(queue.pick_one().num)
        queue.enqueue(message)


def window_of_runs(queue: MessageQueue[Message]) -> None:
    """A full window slides by runs."""
    for first in range(0, MESSAGES, RUN):
        if first >= WINDOW:
            queue.delete_all(first - WINDOW + RUN - 1)
        queue.enqueue_run(first, PAYLOADS)


def rate(make: Make, work: Work) -> float:
    """Messages in a second, best of the rounds."""
    return max(_once(make, work) for _ in range(ROUNDS))


def _once(make: Make, work: Work) -> float:
    queue = make()
    begin = time.perf_counter()
    work(queue)
    return MESSAGES / (time.perf_counter() - begin)


def ratio(make: Make, work: Work) -> float:
    """How much longer the checked queue takes, both measured in turns."""
    bare, checked = 0.0, 0.0
    for _ in range(ROUNDS):
        bare = max(bare, _once(make, work))
        checked = max(checked, _once(sampled(make), work))
    return bare / checked


# Transports.


TRANSPORTS: tuple[tuple[str, Subject], ...] = (
    ("transport, plain profile", Transport(increasing, "lowest", "discard")),
    ("transport, library profile", Transport(increasing)),
    ("`reliable`", HopSubject("reliable")),
    ("`multi-unconfirmed`", HopSubject("multi-unconfirmed")),
    ("`resend`", HopSubject("resend")),
    ("`sequential-confirm`", HopSubject("sequential-confirm")),
    (
        "library profile, one message to a frame",
        HopSubject(["continuous-index", {"multi-unconfirmed": {"run_max": 1}}]),
    ),
    ("`reliable`, one message to a frame", HopSubject({"reliable": {"run_max": 1}})),
)
SENT = 20_000
AT_ONCE = 100
LOSSES = (0, 10_000, 100_000)
SEEDS = range(9)


def cost(subject: Subject) -> float:
    """Microseconds of processor time for a message through both machines, over a route without faults."""
    sender = subject.sender(life_hint=1, rng=random.Random(1), journal=None)
    receiver = subject.receiver(life=1, rng=random.Random(2), state=None)
    settled, now = 0, 0
    todo: deque[tuple[bool, list[Effect]]] = deque()
    payloads = [PAYLOAD] * AT_ONCE
    began = time.process_time()
    todo.append((False, receiver.wake(now)))
    todo.append((True, sender.wake(now)))
    while settled < SENT:
        if not todo:
            now += 1
            todo.append((True, sender.send(payloads, now) if sender.idle else sender.wake(now)))
            todo.append((False, receiver.wake(now)))
        is_sender, effects = todo.popleft()
        for effect in effects:
            if isinstance(effect, Transmit):
                target = receiver if is_sender else sender
                todo.append((not is_sender, target.frame(effect.frame, now)))
            elif isinstance(effect, Deliver):
                last = effect.first + len(effect.payloads) - 1
                settled += len(effect.payloads)
                through = ((effect.first, last),)
                todo.append((False, receiver.settled(effect.ticket, through, now)))
    return (time.process_time() - began) / SENT * 1e6


def burst(subject: Subject, loss_ppm: int, seed: int) -> tuple[float, float]:
    """Virtual seconds until the last of 1,000 messages is settled, and packets for a message, both ways."""
    options = Options(
        seed=seed,
        messages=1_000,
        delay_us=10_000,
        loss_ppm=loss_ppm,
        batch_max=100,
        chaos_us=3_000_000_000,
    )
    rows = run_hop(subject, options, judge=None).rows
    settled = [row.time_us for row in rows if row.kind == "settled"]
    return max(settled) / 1e6, sum(row.kind == "transmit" for row in rows) / 1_000


def transports() -> None:
    """The table of what transports and pipes cost."""
    print("| | us a message | 0 %: s, packets | 1 % lost | 10 % lost |")
    print("| --- | ---: | ---: | ---: | ---: |")
    costs: dict[str, list[float]] = {name: [] for name, _ in TRANSPORTS}
    for _ in range(ROUNDS):
        for name, subject in TRANSPORTS:
            costs[name].append(cost(subject))
    for name, subject in TRANSPORTS:
        cells = [f"{statistics.median(costs[name]):.1f}"]
        for loss_ppm in LOSSES:
            found = [burst(subject, loss_ppm, seed) for seed in (SEEDS if loss_ppm else (0,))]
            seconds, packets = (statistics.median(each) for each in zip(*found, strict=True))
            cells.append(f"{seconds:.2f} s, {packets:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


# The stored queue.


def stored(url: str) -> None:
    """Messages a second into the stored queue on Redis, in runs of 100 x 200 bytes, beside raw pipelines."""
    redis: Any = importlib.import_module("redis")

    from surepipe.storage import RedisStore  # noqa: PLC0415

    client = redis.Redis.from_url(url)
    total, run = 20_000, [PAYLOAD] * 100
    rates: dict[str, list[float]] = {"stored queue": [], "raw": [], "deleted": []}
    for number in range(ROUNDS):
        name = f"bench-{time.time_ns()}"
        with RedisStore.from_url(url, pipeline=name) as store:
            queue = StreamQueue(store, f"q{number}")
            began = time.perf_counter()
            for first in range(0, total, len(run)):
                queue.enqueue_run(first, run)
            rates["stored queue"].append(total / (time.perf_counter() - began))
            began = time.perf_counter()
            for last in range(99, total, len(run)):
                queue.delete_all(last)
            rates["deleted"].append(total / (time.perf_counter() - began))
        began = time.perf_counter()
        for _ in range(total // len(run)):
            with client.pipeline(transaction=False) as pipeline:
                for payload in run:
                    pipeline.xadd(name, {"p": payload})
                pipeline.execute()
        rates["raw"].append(total / (time.perf_counter() - began))
        client.delete(name, *client.keys(f"*{name}*"))
    for what, found in rates.items():
        print(f"{what:20}{statistics.median(found):12,.0f}/s")


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", action="store_true")
    parser.add_argument("--redis", default="")
    options = parser.parse_args()
    if options.transport:
        transports()
    elif options.redis:
        stored(options.redis)
    else:
        in_memory()


def in_memory() -> None:
    """Print the figures beside their targets."""
    print(f"{'':46}{'measured':>14}  target")
    for name, make, work, target in (
        ("enqueue, plain", plain, enqueue, "500,000 /s"),
        ("enqueue, increasing", increasing, enqueue, "500,000 /s"),
        ("enqueue_run of 512, increasing", increasing, enqueue_runs, "5,000,000 /s"),
        ("window of 4,096 in messages, plain", plain, window_of_messages, ""),
        ("window of 4,096 in messages, increasing", increasing, window_of_messages, ""),
        ("window of 4,096 in runs, increasing", increasing, window_of_runs, ""),
    ):
        print(f"{name:46}{rate(make, work):12,.0f}/s  {target}")
    for name, make, work in (
        ("checked / bare, enqueue, plain", plain, enqueue),
        ("checked / bare, window in messages, plain", plain, window_of_messages),
        ("checked / bare, window in messages, increasing", increasing, window_of_messages),
        ("checked / bare, window in runs, increasing", increasing, window_of_runs),
    ):
        print(f"{name:46}{ratio(make, work):14.1f}  at most 5")


if __name__ == "__main__":
    main()
