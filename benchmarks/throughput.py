"""Messages a second, in one run: a plain pykka tell loop, pipes of every kind in one process, machines alone.

    python benchmarks/throughput.py            a table, in about a minute
    python benchmarks/throughput.py --long     and what 10^4 .. 10^7 messages add to memory

Every figure is the best of three whole runs: from the first ``send`` until the last message is confirmed and its
handler has returned, threads started and joined. Each has runs of the tell loop in between, to compare with under
the same load. ``cpu`` is processor time per message over all threads, which other processes disturb less.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pykka
from rich.console import Console
from rich.table import Table

from surepipe import Pipe
from surepipe.effects import Deliver, Effect, Transmit
from surepipe.pipes.options import LayerText, parse_layers
from surepipe.pipes.stack import ReceiverStack, SenderStack

PAYLOAD = b"x" * 100
RUN = 512
ROUNDS = 3
WIDE: LayerText = {
    "reliable": {
        "run_max": 4096,
        "window": 8192,
        "backlog": 16_384,
        "frame_max_bytes": 1024 * 1024,
    }
}
KINDS: tuple[tuple[str, LayerText | list[LayerText], int], ...] = (
    ("reliable", "reliable", 200_000),
    ("multi-unconfirmed", "multi-unconfirmed", 200_000),
    ("resend", "resend", 200_000),
    (
        "continuous-index > multi-unconfirmed",
        ["continuous-index", "multi-unconfirmed"],
        200_000,
    ),
    ("dedupe > multi-unconfirmed", ["dedupe", "multi-unconfirmed"], 200_000),
    ("strict-monotonic", "strict-monotonic", 200_000),
    ("continuous-index", "continuous-index", 200_000),
    ("sequential-confirm", "sequential-confirm", 3_000),
)


@dataclass(frozen=True)
class Figure:
    """The best of some rounds."""

    rate: float
    cpu_us: float

    def better(self, other: Figure) -> Figure:
        """The higher rate and the lower cost."""
        return Figure(max(self.rate, other.rate), min(self.cpu_us, other.cpu_us))


class Counting(pykka.ThreadingActor):
    """Counts what it is told, the least that an actor can do."""

    def __init__(self, target: int, done: threading.Event) -> None:
        super().__init__()
        self.left = target
        self.done = done

    def on_receive(self, message: object) -> None:
        """Count a message."""
        del message
        self.left -= 1
        if not self.left:
            self.done.set()


def best(run: Callable[[int], None], count: int) -> tuple[Figure, Figure]:
    """Rounds of the tell loop and of this, in turn; the best of each.

    In turn, so that both meet the same neighbours on a machine that is shared.
    """
    base, figure = Figure(0, float("inf")), Figure(0, float("inf"))
    for _ in range(ROUNDS):
        base = base.better(measure(tell_loop, 30_000))
        figure = figure.better(measure(run, count))
    return base, figure


def measure(run: Callable[[int], None], count: int) -> Figure:
    """One round."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    run(count)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Figure(count / wall, cpu / count * 1e6)


def tell_loop(count: int) -> None:
    """One tell for each message."""
    done = threading.Event()
    ref = Counting.start(count, done)
    for _ in range(count):
        ref.tell(PAYLOAD)
    done.wait()
    ref.stop()


class Handler:
    """A Python handler that counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, message: object) -> None:
        """Count a message."""
        del message
        self.count += 1

    def many(self, messages: list[object]) -> None:
        """Count a batch."""
        self.count += len(messages)


def send_each(layers: LayerText | Sequence[LayerText], message: object) -> Callable[[int], None]:
    """``send`` for each message."""

    def run(count: int) -> None:
        handler = Handler()
        with Pipe("bench", layers) as pipe:
            pipe.receive(handler)
            send = pipe.send
            for _ in range(count):
                send(message)
        assert handler.count == count

    return run


def send_many(layers: LayerText | Sequence[LayerText], *, batched: bool) -> Callable[[int], None]:
    """One ``send_many`` for all."""

    def run(count: int) -> None:
        handler = Handler()
        with Pipe("bench", layers) as pipe:
            if batched:
                pipe.receive_many(handler.many)
            else:
                pipe.receive(handler)
            pipe.send_many([PAYLOAD] * count)
        assert handler.count == count

    return run


class Machines:
    """Both machines of a pipe, driven directly on one thread."""

    def __init__(self, layers: LayerText | Sequence[LayerText]) -> None:
        options = parse_layers(layers)
        self.sender = SenderStack("bench", options, rng=random.Random(1), life_hint=1 << 60)
        self.receiver = ReceiverStack("bench", options, rng=random.Random(2))
        self.now = 0
        self.forward: list[object] = []
        self.back: list[object] = []
        self.work: list[Deliver] = []
        self.delivered = 0

    def run(self, count: int) -> None:
        """Offer runs while there is room, and move everything until all is delivered."""
        self._received(self.receiver.wake(self.now))
        self._sent(self.sender.wake(self.now))
        payloads = [PAYLOAD] * RUN
        offered = 0
        while self.delivered < count:
            self.now += 1
            if offered < count and (room := min(self.sender.room, RUN, count - offered)):
                self._sent(self.sender.send(payloads[:room], self.now))
                offered += room
            self._move()

    def _move(self) -> None:
        forward, self.forward = self.forward, []
        for frame in forward:
            self._received(self.receiver.frame(frame, self.now))
        work, self.work = self.work, []
        for delivery in work:
            last = delivery.first + len(delivery.payloads) - 1
            settled = ((delivery.first, last),)
            self._received(self.receiver.settled(delivery.ticket, settled, self.now))
        back, self.back = self.back, []
        for frame in back:
            self._sent(self.sender.frame(frame, self.now))
        if not (forward or work or back):
            self.now += 10_000
            self._received(self.receiver.wake(self.now))
            self._sent(self.sender.wake(self.now))

    def _sent(self, effects: list[Effect]) -> None:
        self.forward += [effect.frame for effect in effects if isinstance(effect, Transmit)]

    def _received(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Transmit):
                self.back.append(effect.frame)
            elif isinstance(effect, Deliver):
                self.delivered += len(effect.payloads)
                self.work.append(effect)


def machines(layers: LayerText | Sequence[LayerText]) -> Callable[[int], None]:
    """Machines alone."""
    return lambda count: Machines(layers).run(count)


def speed(console: Console) -> None:
    """The table of rates."""
    table = Table("what", "messages/s", "tell loop/s", "times", "cpu us/message", "times, cpu")

    def row(name: str, run: Callable[[int], None], count: int) -> None:
        base, figure = best(run, count)
        table.add_row(
            name,
            f"{figure.rate:,.0f}",
            f"{base.rate:,.0f}",
            f"{figure.rate / base.rate:.1f}",
            f"{figure.cpu_us:.2f}",
            f"{base.cpu_us / figure.cpu_us:.1f}",
        )

    row("reliable: send(bytes)", send_each("reliable", PAYLOAD), 200_000)
    row("reliable: send(dict), JSON", send_each("reliable", {"order": 1}), 50_000)
    row("reliable: send_many", send_many("reliable", batched=False), 400_000)
    row("reliable: send_many, receive_many", send_many("reliable", batched=True), 400_000)
    row("reliable, runs of 4096: send_many", send_many(WIDE, batched=False), 400_000)
    for name, layers, count in KINDS[1:]:
        row(f"{name}: send_many", send_many(layers, batched=False), count)
    for name, layers, count in KINDS:
        if name not in ("continuous-index", "strict-monotonic"):
            row(f"machines alone: {name}", machines(layers), 2 * count)
    console.print(table)


def memory(console: Console) -> None:
    """What more and more messages through one pipe add to the process."""
    table = Table("messages so far", "resident MiB at most")
    handler = Handler()
    with Pipe("bench") as pipe:
        pipe.receive(handler)
        sent = 0
        for target in (10**4, 10**5, 10**6, 10**7):
            pipe.send_many(PAYLOAD for _ in range(target - sent))
            sent = target
            pipe.flush()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            table.add_row(f"{target:,}", f"{peak:.1f}")
    console.print(table)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--long", action="store_true", help="measure memory too, some minutes")
    wanted = parser.parse_args()
    console = Console(width=110)
    speed(console)
    if wanted.long:
        memory(console)


if __name__ == "__main__":
    main()
