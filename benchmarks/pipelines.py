"""What a message costs in a pipeline of a YAML file, run by the command as users run it, beside a plain loop.

    python -m benchmarks.pipelines [--messages 50000] [--rounds 3] [--beside ../other/.venv/bin/surepipe]
    python -m benchmarks.pipelines --latency
    python -m benchmarks.pipelines --redis           one process and two; needs redis-server
    python -m benchmarks.pipelines --picture docs/pictures/performance/cost-of-guarantees.svg

Orders of 150 bytes go from JSON lines through a stage and a filter into JSON lines: once each, in a process of its
own, all ways in turns. Rates and the processor's time leave out what the same run takes with ten orders (Python
and its imports). ``--latency``: orders are added to a followed file, a thousand a second, and the stage looks how
old each is. ``--picture`` draws what a guarantee costs; with ``--latency`` the age at several rates, too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from surepipe.drawing.svg import Area, Picture, Rectangle, Shape, Words, write_svg

FEW = 10
STAGES = """
import asyncio, time

def price(order):
    order["total"] = order["quantity"] * order["price"]
    return order

def prices(orders):
    return [price(order) for order in orders]

def some(order):
    return order["quantity"] != 3

async def ask(order):
    await asyncio.sleep(0.01)
    return order

ages = []

def age(order):
    if "at" not in order:
        open("ready", "w").close()
        return order
    ages.append(time.time() - order["at"])
    if order["last"]:
        found = sorted(ages[200:])
        half, most = found[len(found) // 2], found[len(found) * 99 // 100]
        open("ages.part", "w").write(f"{half * 1000:.1f} {most * 1000:.1f}")
        import os
        os.replace("ages.part", "ages")
    return order
"""
PLAIN = """
import json, stages
with open("in.jsonl") as lines, open("out.jsonl", "w") as out:
    for line in lines:
        order = stages.price(json.loads(line))
        if stages.some(order):
            out.write(json.dumps(order) + "\\n")
"""
HEAD = "version: 1\nname: orders\nstores: {main: {kind: sqlite, path: main.db}}\n"
FROM_FILE = "sources: {orders: {kind: jsonl, path: in.jsonl}}\n"
PER_MESSAGE = (
    'stages:\n  priced: {from: last, call: "stages:price"}\n  some: {from: priced, filter: "stages:some"}\n'
    "sinks: {out: {from: some, kind: jsonl, path: out.jsonl}}\n"
)
IN_BATCHES = (
    'stages:\n  together: {from: last, batch: {max: 512}}\n  priced: {from: together, flat_map: "stages:prices"}\n'
    "sinks: {out: {from: priced, kind: jsonl, path: out.jsonl}}\n"
)
WAITING = (
    'stages: {asked: {from: last, call: "stages:ask"}}\n'
    "sinks: {out: {from: asked, kind: jsonl, path: out.jsonl}}\n"
)
COMMITTED = "  last: {from: orders, journal: main, state: main, boundary: committed}\n"
TWO = (
    "  first: {from: orders, journal: main, state: main, boundary: committed}\n"
    "  last: {from: first, route: {kind: sqlite, store: main}, state: main, boundary: committed}\n"
)
PROCESSED = "  last: {from: orders, journal: main, state: main, boundary: processed}\n"


def lanes(count: int) -> str:
    """So many customers at once."""
    return f"  last: {{from: orders, journal: main, key: customer, lanes: {count}}}\n"


@dataclass(frozen=True)
class Way:
    """A pipeline. ``share``: of the messages, for one that takes long."""

    name: str
    text: str
    share: float = 1.0


POWER = HEAD.replace("path: main.db", "path: main.db, durability: power")
GUARANTEES = (
    Way(
        "no store",
        "version: 1\nname: orders\n" + FROM_FILE + "pipes: {last: {from: orders}}\n" + PER_MESSAGE,
    ),
    Way("processed", HEAD + FROM_FILE + "pipes:\n" + PROCESSED + PER_MESSAGE),
    Way("committed", HEAD + FROM_FILE + "pipes:\n" + COMMITTED + PER_MESSAGE),
    Way("committed, power", POWER + FROM_FILE + "pipes:\n" + COMMITTED + PER_MESSAGE),
)
WAYS = (
    Way("committed, one pipe", HEAD + FROM_FILE + "pipes:\n" + COMMITTED + PER_MESSAGE),
    Way("committed, two pipes", HEAD + FROM_FILE + "pipes:\n" + TWO + PER_MESSAGE),
    Way("processed", HEAD + FROM_FILE + "pipes:\n" + PROCESSED + PER_MESSAGE),
    Way(
        "no store",
        "version: 1\nname: orders\n" + FROM_FILE + "pipes: {last: {from: orders}}\n" + PER_MESSAGE,
    ),
    Way("committed, batches of 512", HEAD + FROM_FILE + "pipes:\n" + COMMITTED + IN_BATCHES),
    Way("4 lanes", HEAD + FROM_FILE + "pipes:\n" + lanes(4) + PER_MESSAGE, 0.2),
    Way("16 lanes", HEAD + FROM_FILE + "pipes:\n" + lanes(16) + PER_MESSAGE, 0.2),
    Way(
        "16 lanes, async stage of 10 ms", HEAD + FROM_FILE + "pipes:\n" + lanes(16) + WAITING, 0.05
    ),
    Way(
        "256 lanes, async stage of 10 ms", HEAD + FROM_FILE + "pipes:\n" + lanes(256) + WAITING, 0.2
    ),
)
ON_REDIS = (
    "version: 1\nname: orders\nstores: {bus: {kind: redis, url: 'redis://127.0.0.1:PORT/0'}}\n"
    "sources: {orders: {kind: jsonl, path: in.jsonl, node: reads}}\n"
    "pipes: {last: {from: orders, node: NODE, route: {kind: redis, store: bus}, state: bus}}\n"
    + PER_MESSAGE
)
FOLLOWED = (
    HEAD + "sources: {orders: {kind: jsonl, path: in.jsonl, follow: true}}\n"
    "pipes:\n" + COMMITTED + 'stages: {seen: {from: last, call: "stages:age"}}\n'
)


@dataclass(frozen=True)
class Cost:
    """Seconds on the wall and of the processor."""

    wall: float
    cpu: float


def ran(command: Sequence[str], folder: Path) -> Cost:
    """The command, in this folder. Raises CalledProcessError with what it printed."""
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
    done.check_returncode()
    wall = time.perf_counter() - start
    spent = after.children_user + after.children_system
    return Cost(wall, spent - before.children_user - before.children_system)


def write_orders(folder: Path, count: int) -> None:
    """The source, and the functions."""
    (folder / "stages.py").write_text(STAGES)
    with (folder / "in.jsonl").open("w") as file:
        for number in range(count):
            order = {
                "id": number,
                "customer": f"c{number % 1000:04}",
                "item": f"article-{number % 97:03}",
            }
            order |= {"quantity": number % 7 + 1, "price": number % 1000 / 10, "note": "x" * 50}
            file.write(json.dumps(order) + "\n")


def cost_of(command: Sequence[str], way: Way | None, count: int) -> Cost:
    """One run in a folder of its own."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_orders(folder, count)
        if way is not None:
            (folder / "plan.yaml").write_text(way.text)
        return ran(command, folder)


def rates(commands: dict[str, Sequence[str]], messages: int, rounds: int, only: str = "") -> Table:
    """All ways with this in their names in turns, ``rounds`` times."""
    table = Table("", *(f"{name}: messages/s, us of the processor each" for name in commands))
    plain = (sys.executable, "-c", PLAIN)
    ways: list[Way | None] = [None, *(way for way in WAYS if only in way.name)]
    found: dict[tuple[str, str], list[Cost]] = {}
    for _ in range(rounds):
        for way in ways:
            count = max(FEW * 2, round(messages * (way.share if way else 1.0)))
            for name, command in commands.items():
                mine = plain if way is None else command
                few, many = cost_of(mine, way, FEW), cost_of(mine, way, count)
                cost = Cost((many.wall - few.wall) / count, (many.cpu - few.cpu) / count)
                found.setdefault((name, way.name if way else ""), []).append(cost)
    for way in ways:
        cells = [_median(found[name, way.name if way else ""]) for name in commands]
        table.add_row(way.name if way else "a plain loop, json", *cells)
    return table


@contextmanager
def redis() -> Generator[int]:
    """A server of its own, with nothing in it: its port."""
    with socket.socket() as free, TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        options = ("--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder)
        server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 30
            while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < end:
                time.sleep(0.05)
            yield port
        finally:
            server.terminate()
            server.wait(30)


def over_redis(command: str, count: int, *, apart: bool) -> Cost:
    """A stream of Redis between the source and the stages: all in one process, or the stages in one of their own,
    until the last line is written."""
    with TemporaryDirectory() as name, redis() as port:
        folder = Path(name)
        write_orders(folder, count)
        text = ON_REDIS.replace("PORT", str(port)).replace("NODE", "works" if apart else "reads")
        (folder / "plan.yaml").write_text(text)
        if not apart:
            return ran((command, "run", "plan.yaml", "--once"), folder)
        run = (command, "run", "plan.yaml", "--node")
        start, before = time.perf_counter(), os.times()
        works = subprocess.Popen((*run, "works"), cwd=folder, stdout=subprocess.DEVNULL)
        reads = subprocess.Popen((*run, "reads", "--once"), cwd=folder, stdout=subprocess.DEVNULL)
        wanted = sum(number % 7 != 2 for number in range(count))
        out = folder / "out.jsonl"
        while (not out.exists() or _lines_in(out) < wanted) and time.perf_counter() < start + 300:
            time.sleep(0.02)
        wall = time.perf_counter() - start
        works.send_signal(signal.SIGTERM)
        reads.wait(60)
        works.wait(60)
        after = os.times()
        spent = after.children_user + after.children_system
        return Cost(wall, spent - before.children_user - before.children_system)


def _lines_in(path: Path) -> int:
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))


def redis_rates(commands: dict[str, str], messages: int, rounds: int) -> Table:
    """One process and two, in turns."""
    table = Table("", *(f"{name}: messages/s, us of the processor each" for name in commands))
    found: dict[tuple[str, bool], list[Cost]] = {}
    for _ in range(rounds):
        for apart in (False, True):
            for name, command in commands.items():
                few = over_redis(command, FEW, apart=apart)
                many = over_redis(command, messages, apart=apart)
                cost = Cost((many.wall - few.wall) / messages, (many.cpu - few.cpu) / messages)
                found.setdefault((name, apart), []).append(cost)
    for apart in (False, True):
        cells = [_median(found[name, apart]) for name in commands]
        table.add_row("Redis, two processes" if apart else "Redis, one process", *cells)
    return table


def _median(costs: Sequence[Cost]) -> str:
    wall, cpu = median(one.wall for one in costs), median(one.cpu for one in costs)
    return f"{1 / wall:,.0f}, {cpu * 1_000_000:.1f}"


def latency(command: str, messages: int = 3_000, rate: int = 1_000) -> tuple[float, float]:
    """The age in ms of orders as they come to the stage, so many a second: p50 and p99."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stages.py").write_text(STAGES)
        (folder / "plan.yaml").write_text(FOLLOWED)
        (folder / "in.jsonl").touch()
        with (folder / "in.jsonl").open("ab", buffering=0) as file:
            running = subprocess.Popen(
                (command, "run", "plan.yaml"), cwd=folder, stdout=subprocess.DEVNULL
            )
            file.write(b"{}\n")
            while not (folder / "ready").exists():  # until it follows
                time.sleep(0.1)
            start = time.perf_counter()
            for number in range(messages):
                time.sleep(max(0.0, start + number / rate - time.perf_counter()))
                order = {"at": time.time(), "last": number == messages - 1}
                file.write(json.dumps(order).encode() + b"\n")
            end = time.perf_counter() + 30
            while not (folder / "ages").exists() and time.perf_counter() < end:
                time.sleep(0.1)
            running.send_signal(signal.SIGTERM)
            running.wait(60)
        half, most = (folder / "ages").read_text().split()
        return float(half), float(most)


# The picture.


LEFT, WIDE, ROW = 190.0, 340.0, 34.0
RATES = (250, 500, 1_000, 2_000, 4_000)


def bars(
    top: float, title: str, note: str, found: Sequence[tuple[str, float, str]]
) -> tuple[list[Shape], list[Words]]:
    """A bar for each, as long as its number."""
    most = max(number for _, number, _ in found)
    shapes: list[Shape] = []
    words = [Words((24, top), title, "title"), Words((24, top + 22), note)]
    for place, (name, number, said) in enumerate(found):
        y = top + 44 + place * ROW
        end = LEFT + WIDE * number / most
        shapes.append(Area(Rectangle(LEFT, y, end, y + 20), "bar", round=3))
        words += [
            Words((LEFT - 10, y + 15), name, "small", "end"),
            Words((end + 8, y + 15), said, "small"),
        ]
    return shapes, words


def draw(command: str, messages: int, rounds: int, rates: Sequence[int]) -> str:
    """What guarantees cost, and how old messages are at these rates."""
    costs: list[tuple[str, float, str]] = []
    run = (command, "run", "plan.yaml", "--once")
    for way in GUARANTEES:
        runs = [(cost_of(run, way, FEW), cost_of(run, way, messages)) for _ in range(rounds)]
        each = median(many.cpu - few.cpu for few, many in runs) / messages * 1_000_000
        rate = messages / median(many.wall - few.wall for few, many in runs)
        costs.append((way.name, each, f"{each:.1f} us; {rate:,.0f} a second"))
    ages = [latency(command, max(1_000, rate * 2), rate) for rate in rates]
    old = [
        (f"{rate:,} a second", half, f"{half:.1f} ms; 99 of 100: {most:.1f} ms")
        for rate, (half, most) in zip(rates, ages, strict=True)
    ]
    return drawn(costs, old)


def drawn(costs: Sequence[tuple[str, float, str]], old: Sequence[tuple[str, float, str]]) -> str:
    """The picture of these."""
    said = "the processor's time, which waiting for a disk is none of; a file to a file, one pipe"
    shapes, words = bars(40, "What a message costs", said, costs)
    height = 40 + 44 + len(costs) * ROW + 20
    if old:
        said = "committed, half of them, by the rate"
        more = bars(height + 20, "How old it is when the stage has it", said, old)
        shapes, words = [*shapes, *more[0]], [*words, *more[1]]
        height += 20 + 44 + len(old) * ROW
    picture = Picture(
        760,
        height,
        "What guarantees cost in a pipeline",
        "; ".join(f"{name}: {said}" for name, _, said in (*costs, *old)),
        tuple(shapes),
        tuple(words),
    )
    return write_svg(picture, "cost", " .bar{fill:var(--line);stroke:none}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="What a message costs in a pipeline.")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", help="the command of another tree, run in the same turns")
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--redis", action="store_true")
    parser.add_argument("--only", default="", help="the ways with this in their names")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    own = str(Path(sys.executable).with_name("surepipe"))
    commands = {"before": given.beside} if given.beside else {}
    commands["now"] = own
    console = Console(width=140)
    if given.latency and given.picture is None:
        for name, command in [*commands.items()] * given.rounds:
            half, most = latency(command)
            console.print(f"{name}: p50 {half} ms, p99 {most} ms")
    elif given.redis:
        console.print(redis_rates(commands, given.messages, given.rounds))
    elif given.picture is not None:
        given.picture.write_text(
            draw(own, given.messages, given.rounds, RATES if given.latency else ()),
            encoding="utf-8",
        )
    else:
        runs: dict[str, Sequence[str]] = {
            name: (command, "run", "plan.yaml", "--once") for name, command in commands.items()
        }
        console.print(rates(runs, given.messages, given.rounds, given.only))


if __name__ == "__main__":
    main()
