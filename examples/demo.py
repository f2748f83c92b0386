"""The orders pipeline over a bad route, killed half way, started again, and audited.

A process runs ``orders.yaml`` on its embedded store: orders are read from a file, priced, and written to
another. The route of its pipe drops a fifth of all frames in both directions, repeats a tenth, and lets later ones
overtake earlier ones. When half of the orders are written the process is killed with SIGKILL, and another one is
started in its place. Before, it is said what the pipeline guarantees, computed from the file; afterwards the file
and the trace are audited.

Run it with ``make demo``, or ``python -m examples.demo --orders 20000 --seed 7``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from surepipe import FaultyRoute, LocalRoute
from surepipe.actors import Route
from surepipe.audit.trace_audit import audit
from surepipe.audit.trace_file import TraceFile, TraceRecorder
from surepipe.pipelines import Plan, assess, load
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.run import RealEnvironment, run
from surepipe.pipes.catalogue import parse_layers

ROOT = Path(__file__).parents[1]
PIPELINE = ROOT / "examples" / "orders.yaml"
ORDERS, OUT, TRACE = (
    Path("examples/data/orders.jsonl"),
    Path("out/orders.jsonl"),
    Path("trace.jsonl"),
)
ARTICLES = ("bread", "butter", "coffee", "milk", "tea")
LOOK_S = 0.01


def the_plan() -> Plan:
    """The file, with a handful of orders to a frame: so that thousands of frames meet the route's faults."""
    plan = load(PIPELINE)
    layers = parse_layers(
        [
            "continuous-index",
            {"multi-unconfirmed": {"run_max": 8, "rto_initial_s": 0.1, "rto_min_s": 0.02}},
        ]
    )
    return replace(
        plan, pipes=tuple(pipe.model_copy(update={"layers": layers}) for pipe in plan.pipes)
    )


class BadRoad(RealEnvironment):
    """The world of a process, with a bad route in it."""

    faults_seed = 1

    def route(self, pipe: PipePart, sends: bool, receives: bool) -> Route | None:
        """A route that loses, repeats and reorders."""
        del pipe, sends, receives
        return FaultyRoute(
            LocalRoute(),
            loss=0.2,
            duplicate=0.1,
            reorder=0.2,
            delay=(0.0, 0.004),
            seed=self.faults_seed,
        )


def run_pipeline(seed: int) -> None:
    """One life of the process, in the current folder: it goes on where the one before was killed."""
    plan = the_plan()
    with TraceRecorder(TRACE) as trace:
        world = BadRoad(plan, trace=trace, notices=lambda _: None)
        world.faults_seed = seed
        run(plan, environment=world)


# What is shown.


def started(folder: Path, seed: int) -> subprocess.Popen[bytes]:
    """The pipeline in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--process", str(folder), "--seed", str(seed)],
        cwd=ROOT,
    )


def written(folder: Path) -> int:
    """Lines of the output so far."""
    path = folder / OUT
    return path.read_bytes().count(b"\n") if path.exists() else 0


def watched(
    process: subprocess.Popen[bytes], folder: Path, progress: Progress, title: str, lines: int
) -> bool:
    """Show how far it comes; True when it has written so many lines before it ended."""
    bar = progress.add_task(title, total=progress.tasks[0].total if progress.tasks else lines * 2)
    pause = Event()
    while process.poll() is None:
        count = written(folder)
        progress.update(bar, completed=count)
        if count >= lines:
            return True
        pause.wait(LOOK_S)
    progress.update(bar, completed=written(folder))
    return False


def make_orders(folder: Path, count: int, seed: int) -> None:
    """The file that the pipeline reads."""
    rng = Random(seed)
    path = folder / ORDERS
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for number in range(1, count + 1):
            article, pieces = rng.choice(ARTICLES), rng.randint(1, 9)
            order = {"order": number, "customer": f"c{number % 20}", "article": article}
            file.write(json.dumps({**order, "count": pieces}) + "\n")


def verdict(folder: Path, count: int, console: Console) -> bool:
    """Audit what is in the file, and what the trace tells of the pipe."""
    numbers = [json.loads(line)["order"] for line in (folder / OUT).read_text().splitlines()]
    lost = count - len(set(numbers))
    repeated = len(numbers) - len(set(numbers))
    in_order = numbers == sorted(numbers)
    console.print(f"\n[bold]in {OUT}[/]: {len(numbers):,} of {count:,} orders")
    result = audit(TraceFile(folder / TRACE))
    console.print("[bold]in the trace[/], by surepipe audit:")
    for line in result.lines():
        console.print(f"  {line}", highlight=False)
    is_right = not lost and not repeated and in_order and not result.violated(promised=True)
    told = f"{lost} lost, {repeated} repeated, {'in order' if in_order else 'out of order'}"
    console.print(f"[{'green' if is_right else 'red'}]verdict: {told}[/]")
    return is_right


def show(count: int, seed: int, folder: Path) -> int:
    """The whole demonstration; 0 when nothing was lost, repeated or reordered."""
    console = Console()
    make_orders(folder, count, seed)
    console.print(
        f"{count:,} orders over a route that loses 20 %, repeats 10 % and reorders (seed {seed})\n"
        "the file says, and surepipe check computes:"
    )
    for way in assess(the_plan()).ways:
        assert way.explanation is not None
        console.print(f"  [bold]{way.name}[/]: {way.explanation.headline}", highlight=False)
    columns = (
        TextColumn("{task.description:>16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        first = started(folder, seed)
        was_alive = watched(first, folder, progress, "first life", count // 2)
        first.send_signal(signal.SIGKILL)
        first.wait()
        half = written(folder)
        second = started(folder, seed + 1)
        watched(second, folder, progress, "second life", count + 1)
    if not was_alive or second.returncode:
        console.print("[red]the pipeline ended before it could be killed, or failed[/]")
        return 1
    console.print(f"killed (SIGKILL) with {half:,} orders written, then started again")
    return 0 if verdict(folder, count, console) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Show it, or be the process that is killed."""
    parser = argparse.ArgumentParser(prog="demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--orders", type=int, default=4000, help="how many orders (4000)")
    parser.add_argument(
        "--seed", type=int, default=1, help="what the route does follows from it (1)"
    )
    parser.add_argument("--process", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.process is not None:
        os.chdir(chosen.process)
        run_pipeline(chosen.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return show(chosen.orders, chosen.seed, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
