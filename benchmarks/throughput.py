"""Messages a second, in one run: a plain pykka tell loop, pipes of every kind in one process, machines alone.

    python benchmarks/throughput.py            a table, in some minutes
    python benchmarks/throughput.py --long     and what 10^4 .. 10^7 messages add to memory
    python benchmarks/throughput.py --quick    a fifth of the messages, for a first look

Both sides get the same: 100 bytes a message, a handler that counts, an actor or pipe that is open before the
clock starts. The clock stops when the last message was handled and, where the pipe confirms, its sender knows.
Every round runs the tell loop and all rows once, one after the other, so that each meets the same neighbours;
*times* compares within a round. ``cpu`` is processor time per message over all threads, which other processes
disturb less.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pykka
from rich.console import Console
from rich.table import Table

from surepipe import Pipe
from surepipe.core.effects import Deliver, Effect, Transmit
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack

PAYLOAD = b"x" * 100
RUN = 512
ROUNDS = 5
COUNT = 500_000
ONE_BY_ONE = 2_000
"""Messages for a pipe that waits for a round trip after each."""

Layers = LayerText | Sequence[LayerText]
KINDS: tuple[Layers, ...] = (
    "reliable",
    "multi-unconfirmed",
    "resend",
    ["continuous-index", "multi-unconfirmed"],
    ["dedupe", "multi-unconfirmed"],
    ["strict-monotonic", "resend"],
    "strict-monotonic",
    "continuous-index",
    "sequential-confirm",
)


@dataclass(frozen=True)
class Figure:
    """What one round of one row took."""

    rate: float
    cpu_us: float


@dataclass(frozen=True)
class Row:
    """A thing to measure: ``run`` takes a number of messages and gives what they took."""

    name: str
    run: Callable[[int], Figure]
    share: float = 1.0
    """The part of the messages of a round that this one gets."""


class Counter:
    """Counts messages down, for the tell loop and for pipes alike."""

    def __init__(self, target: int) -> None:
        self.left = target
        self.done = threading.Event()

    def take(self, message: object) -> None:
        """One message."""
        del message
        self.left -= 1
        if not self.left:
            self.done.set()

    def take_many(self, messages: list[object]) -> None:
        """A batch."""
        self.left -= len(messages)
        if not self.left:
            self.done.set()


class CountingActor(pykka.ThreadingActor):
    """The least that an actor can do with a message: the same counting."""

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.left = counter.left
        self.done = counter.done

    def on_receive(self, message: object) -> None:
        """One message."""
        del message
        self.left -= 1
        if not self.left:
            self.done.set()


class Clock:
    """Wall clock and processor time, from when it was made."""

    def __init__(self) -> None:
        gc.collect()
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def figure(self, count: int) -> Figure:
        """What this many messages took since."""
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return Figure(count / wall, cpu / count * 1e6)


def tell_loop(count: int) -> Figure:
    """One tell for each message."""
    counter = Counter(count)
    ref = CountingActor.start(counter)
    tell = ref.tell
    clock = Clock()
    for _ in range(count):
        tell(PAYLOAD)
    counter.done.wait()
    figure = clock.figure(count)
    ref.stop()
    return figure


Feed = Callable[["Pipe", int], None]


def send_each(message: object) -> Feed:
    """``send`` for each message."""

    def feed(pipe: Pipe, count: int) -> None:
        send = pipe.send
        for _ in range(count):
            send(message)

    return feed


def send_many(pipe: Pipe, count: int) -> None:
    """One ``send_many`` for all messages."""
    pipe.send_many([PAYLOAD] * count)


def through(layers: Layers, feed: Feed, *, batched: bool = False) -> Callable[[int], Figure]:
    """Messages through an open pipe, until all are handled and confirmed."""

    def run(count: int) -> Figure:
        counter = Counter(count + 1)
        with Pipe("bench", layers) as pipe:
            if batched:
                pipe.receive_many(counter.take_many)
            else:
                pipe.receive(counter.take)
            pipe.send(PAYLOAD)
            pipe.flush()
            clock = Clock()
            feed(pipe, count)
            counter.done.wait()
            pipe.flush()
            return clock.figure(count)

    return run


class Machines:
    """Both machines of a pipe, driven directly on one thread, in runs of 512."""

    def __init__(self, layers: Layers) -> None:
        options = parse_layers(layers)
        self.sender = SenderStack("bench", options, rng=random.Random(1), life_hint=1 << 60)
        self.receiver = ReceiverStack("bench", options, rng=random.Random(2))
        self.now = 0
        self.forward: list[object] = []
        self.back: list[object] = []
        self.work: list[Deliver] = []
        self.delivered = 0

    def run(self, count: int) -> Figure:
        """Offer runs while there is room, and move everything until all is delivered."""
        self._received(self.receiver.wake(self.now))
        self._sent(self.sender.wake(self.now))
        payloads = [PAYLOAD] * RUN
        offered = 0
        clock = Clock()
        while self.delivered < count:
            self.now += 1
            if offered < count and (room := min(self.sender.room, RUN, count - offered)):
                self._sent(self.sender.send(payloads[:room], self.now))
                offered += room
            self._move()
        return clock.figure(count)

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


def machines(layers: Layers) -> Callable[[int], Figure]:
    """Machines alone."""
    return lambda count: Machines(layers).run(count)


def name_of(layers: Layers) -> str:
    """The composition, as it is written."""
    return " > ".join(map(str, parse_layers(layers)))


def rows() -> list[Row]:
    """Everything that is measured."""
    found = [
        Row("reliable: send(bytes)", through("reliable", send_each(PAYLOAD))),
        Row("reliable: send(dict), JSON", through("reliable", send_each({"order": 1})), 0.2),
        Row("reliable: send_many", through("reliable", send_many)),
        Row("reliable: send_many, receive_many", through("reliable", send_many, batched=True)),
    ]
    for layers in KINDS[1:]:
        share = ONE_BY_ONE / COUNT if layers == "sequential-confirm" else 1.0
        found.append(Row(f"{name_of(layers)}: send_many", through(layers, send_many), share))
    for layers in KINDS:
        share = 2 * ONE_BY_ONE / COUNT if layers == "sequential-confirm" else 1.0
        found.append(Row(f"machines alone: {name_of(layers)}", machines(layers), share))
    return found


def measure(measured: Sequence[Row], count: int) -> tuple[list[Figure], list[list[Figure]]]:
    """The figures of all rounds: of the tell loop, and of each row."""
    base: list[Figure] = []
    figures: list[list[Figure]] = [[] for _ in measured]
    for _ in range(ROUNDS):
        base.append(tell_loop(count))
        for row, mine in zip(measured, figures, strict=True):
            mine.append(row.run(max(1, round(count * row.share))))
    return base, figures


def speed(console: Console, count: int) -> None:
    """The table of rates."""
    measured = rows()
    base, figures = measure(measured, count)
    table = Table(
        *("what", "best/s", "median/s", "times tell", "cpu us/message", "times, cpu"),
        title=f"{ROUNDS} rounds of {count:,} messages of {len(PAYLOAD)} bytes; medians but for the best",
    )

    def add(name: str, mine: Sequence[Figure]) -> None:
        pairs = list(zip(base, mine, strict=True))
        table.add_row(
            name,
            f"{max(figure.rate for figure in mine):,.0f}",
            f"{statistics.median(figure.rate for figure in mine):,.0f}",
            f"{statistics.median(figure.rate / tell.rate for tell, figure in pairs):.1f}",
            f"{statistics.median(figure.cpu_us for figure in mine):.2f}",
            f"{statistics.median(tell.cpu_us / figure.cpu_us for tell, figure in pairs):.1f}",
        )

    add("pykka: tell", base)
    for row, mine in zip(measured, figures, strict=True):
        add(row.name, mine)
    console.print(table)


def memory(console: Console) -> None:
    """What more and more messages through one pipe add to the process."""
    table = Table("messages so far", "resident MiB at most")
    counter = Counter(10**7)
    with Pipe("bench") as pipe:
        pipe.receive(counter.take)
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
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages")
    wanted = parser.parse_args()
    console = Console(width=120)
    if wanted.long:  # first, as what was measured before would be in the peak
        memory(console)
    speed(console, COUNT // 5 if wanted.quick else COUNT)


if __name__ == "__main__":
    main()
