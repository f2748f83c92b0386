"""How long a few messages wait behind a flood: one queue for all, and the two policies of the book.

    python -m benchmarks.fairness            the figures (deterministic; two minutes)
    python -m benchmarks.fairness --draw     and docs/pictures/book/fairness.svg

1,000 origins share a book that serves 1,000 messages a second, a tenth of it every tenth of a second. One origin
enqueues 10^6 messages at the beginning; the others 600 a second together, at times drawn at random. Time is
virtual: the k-th message of a call ends k thousandths of a second after its beginning.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from surepipe.drawing.svg import PathShape, Picture, Point, Shape, Words, write_svg
from surepipe.queues.book import BookConfig, BookMessage, BookQueue, Budget, Context
from surepipe.storage import MemoryStore

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "book" / "fairness.svg"
ORIGINS, FLOOD = 1_000, 1_000_000
RATE, PERIOD_US = 1_000, 100_000
TRICKLE = 600
"""Messages a second of all origins but one."""
SECONDS = 60
QUANTUM, LARGEST = 10, 1
DAY_US = 86_400_000_000


@dataclass
class Waits:
    """What the messages of the quiet origins met: waits and bounds in seconds."""

    name: str
    waits: list[float] = field(default_factory=list[float])
    bounds: list[float] = field(default_factory=list[float])
    visits: int = 0
    served: int = 0

    @property
    def later(self) -> int:
        """How many waited longer than their bound."""
        return sum(wait > bound for wait, bound in zip(self.waits, self.bounds, strict=True))


@dataclass
class Bench:
    """One book in virtual time. With ``is_one_queue`` all origins share a queue.

    Several ``processes`` share the rate, and have all claimed what they serve at once: each makes its call from
    within the first handler of the one before.
    """

    name: str
    policy: Literal["drr", "rotate"]
    is_one_queue: bool = False
    processes: int = 1

    def __post_init__(self) -> None:
        self.now = 0
        self.done = [0] * self.processes
        self.pending: dict[str, deque[tuple[int, float]]] = defaultdict(deque)
        self.ready = 0
        """Queues of quiet origins that are not empty,"""
        self.ahead = 0
        """and what they may run in one turn each."""
        self.found = Waits(self.name)
        config = BookConfig(
            policy=self.policy,
            quantum=QUANTUM,
            page_bytes=1 << 16,
            suspend_pages=None,
            resume_pages=None,
            refuse_pages=None,
            checkpoint_bytes=1 << 30,
        )
        store = MemoryStore()
        self.books = [
            BookQueue.inline(
                "fair",
                store=store,
                processor=partial(self.handle, number),
                config=config,
                worker=f"w{number}",
                clock=lambda: DAY_US + self.now,
                monotonic=lambda: self.now,
                rng=random.Random(number + 1),
            )
            for number in range(self.processes)
        ]
        self.book = self.books[0]

    def handle(self, process: int, message: BookMessage, _context: Context) -> None:
        """The message ends here."""
        if not self.done[process] and process + 1 < self.processes:
            self.serve(process + 1)
        self.done[process] += 1
        origin = message.payload.decode()
        if origin == "loud":
            return
        ends = self.now + self.done[process] * self.processes * 1_000_000 // RATE
        came, bound = self.pending[origin].popleft()
        self.ahead -= len(self.pending[origin]) < QUANTUM + LARGEST
        self.ready -= not self.pending[origin]
        self.found.waits.append((ends - came) / 1e6)
        self.found.bounds.append(bound)

    def arrive(self, batch: Sequence[tuple[int, str]]) -> None:
        """Messages of quiet origins; each with the longest that it may wait, if its queue is empty."""
        for at, origin in batch:
            queue = self.pending[origin]
            queue.append((at, math.inf if queue else self.bound()))
            self.ready += len(queue) == 1
            self.ahead += len(queue) <= QUANTUM + LARGEST
        self.book.enqueue_batch(
            [("all" if self.is_one_queue else name, name.encode()) for _, name in batch]
        )

    def bound(self) -> float:
        """Of a message that finds its queue empty (docs/book.md). The loud queue is ready as well."""
        if self.policy == "rotate":
            return (self.ready + 2) * PERIOD_US / 1e6
        slices = (self.processes - 1) * LARGEST * self.book.config.commit_messages
        return (self.ahead + QUANTUM + LARGEST + LARGEST + slices) / RATE + PERIOD_US / 1e6

    def run(self, flood: int = FLOOD, seconds: int = SECONDS) -> Waits:
        """The flood, then the trickle, until all of the trickle is served."""
        loud = "all" if self.is_one_queue else "loud"
        for _ in range(flood // 10_000):
            self.book.enqueue_many(loud, [b"loud"] * 10_000)
        for batch in arrivals(seconds):
            self.now += PERIOD_US
            self.arrive(batch)
            self.serve()
        while any(self.pending.values()):
            self.now += PERIOD_US
            self.serve()
        return self.found

    def serve(self, process: int = 0) -> None:
        """A call with this process's part of the budget of one period."""
        self.done[process] = 0
        budget = Budget(messages=RATE * PERIOD_US // 1_000_000 // self.processes)
        answer = self.books[process].service(budget)
        self.found.visits += answer.visits
        self.found.served += answer.ran


def arrivals(seconds: int) -> list[list[tuple[int, str]]]:
    """What comes in each period, by time."""
    chance = random.Random(7)
    periods: list[list[tuple[int, str]]] = []
    for number in range(seconds * 1_000_000 // PERIOD_US):
        count = TRICKLE * PERIOD_US // 1_000_000
        times = sorted(number * PERIOD_US + chance.randrange(PERIOD_US) for _ in range(count))
        periods.append([(at, f"o{chance.randrange(1, ORIGINS)}") for at in times])
    return periods


# The picture.


WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 730, 92, 340
LEAST, MOST = -3.0, 3.4
"""Powers of ten of a second, from the left to the right."""
RULES = """
 .drr{stroke:var(--good);stroke-width:3} .rotate{stroke:var(--blue);stroke-width:2.5;stroke-dasharray:7 4}
 .one{stroke:var(--bad);stroke-width:2.5;stroke-dasharray:2 4} .bound{stroke:var(--ink);stroke-dasharray:9 3}
 .grid{stroke:var(--line);stroke-width:1}
 text.drr{fill:var(--good);stroke:none} text.rotate{fill:var(--blue);stroke:none}
 text.one{fill:var(--bad);stroke:none}
"""


def place(seconds: float, share: float) -> Point:
    """Where a wait and a share of the messages stand."""
    across = (math.log10(max(seconds, 1e-3)) - LEAST) / (MOST - LEAST)
    return LEFT + across * (RIGHT - LEFT), BOTTOM - share * (BOTTOM - TOP)


def curve(waits: Sequence[float], style: str) -> PathShape:
    """The share of messages that waited no longer."""
    ordered = sorted(waits)
    last = len(ordered) - 1
    steps = [round(last * at / 200) for at in range(201)]
    points = [place(ordered[at], (at + 1) / len(ordered)) for at in steps]
    start = (points[0][0], float(BOTTOM))
    end = (float(RIGHT), points[-1][1])
    return PathShape((start, *points, end), style)


def draw(found: Sequence[Waits]) -> str:
    """All curves over one axis, and the bound."""
    shapes: list[Shape] = []
    words = [
        Words((24, 34), "How long a quiet customer waits behind 1,000,000 messages", "title"),
        Words((24, 58), "share of messages that waited no longer than …", "note"),
    ]
    for power, name in ((-3, "1 ms"), (-2, "10 ms"), (-1, "0.1 s"), (0, "1 s"), (1, "10 s")):
        words.append(Words((place(10.0**power, 0)[0], BOTTOM + 20), name, "small", "middle"))
        shapes.append(PathShape((place(10.0**power, 0), place(10.0**power, 1)), "grid"))
    for power, name in ((2, "100 s"), (3, "1,000 s")):
        words.append(Words((place(10.0**power, 0)[0], BOTTOM + 20), name, "small", "middle"))
        shapes.append(PathShape((place(10.0**power, 0), place(10.0**power, 1)), "grid"))
    for share in (0, 0.5, 1):
        y = place(1, share)[1]
        shapes.append(PathShape(((LEFT, y), (RIGHT, y)), "grid"))
        words.append(Words((LEFT - 8, y + 4), f"{share:.0%}", "small", "end"))
    drr = found[0]
    bound = percentile([each for each in drr.bounds if each < math.inf], 99)
    at = place(bound, 0)[0]
    shapes.append(PathShape(((at, TOP - 10), (at, BOTTOM)), "bound"))
    words.append(Words((at + 6, TOP - 6), f"bound of drr: {bound:.2f} s", "small"))
    styles = ("drr", "rotate", "one")
    heights = (0.62, 0.4, 0.5)
    for each, style, height in zip(found, styles, heights, strict=True):
        shapes.append(curve(each.waits, style))
        middle = place(percentile(each.waits, 100 * height), height)
        is_left = style != "rotate"
        x = middle[0] - 10 if is_left else middle[0] + 14
        words.append(Words((x, middle[1]), each.name, style, "end" if is_left else "start"))
    description = (
        "Distribution of waits of the messages of 999 quiet origins beside one that floods, as curves over a "
        "logarithmic axis: "
        + "; ".join(f"{each.name}: p99 {percentile(each.waits, 99):.3g} s" for each in found)
        + f"; the bound of deficit round robin is {bound:.3g} s."
    )
    picture = Picture(
        WIDTH,
        HEIGHT,
        "Fairness of the book, measured",
        description,
        tuple(shapes),
        (
            *words,
            Words((LEFT, HEIGHT - 14), "wait, from arrival to the end of the handler", "small"),
        ),
    )
    return write_svg(picture, "fairness", RULES)


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that so many of a hundred do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)]


def main() -> None:
    """Measure, print and perhaps draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args()
    found: list[Waits] = []
    for bench in (
        Bench("deficit round robin", "drr"),
        Bench("rotate", "rotate"),
        Bench("one queue for all", "drr", is_one_queue=True),
        Bench("drr, 2 processes", "drr", processes=2),
        Bench("drr, 4 processes", "drr", processes=4),
    ):
        name, is_one, waits = bench.name, bench.is_one_queue, bench.run()
        found.append(waits)
        print(
            f"{name:22} p50 {statistics.median(waits.waits):9.3f} s  p99 {percentile(waits.waits, 99):9.3f} s  "
            f"worst {max(waits.waits):9.3f} s  {waits.visits / waits.served:.2f} visits a message",
            flush=True,
        )
        if not is_one:
            known = [bound for bound in waits.bounds if bound < math.inf]
            share = max(w / b for w, b in zip(waits.waits, waits.bounds, strict=True))
            print(
                f"{'':22} bound p99 {percentile(known, 99):.3f} s; the longest wait is {share:.2f} of its bound; "
                f"later than it {waits.later} of {len(known):,}",
                flush=True,
            )
    if options.draw:
        PICTURE.write_text(draw(found[:3]), encoding="utf-8")


if __name__ == "__main__":
    main()
