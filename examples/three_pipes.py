"""Two actors, a route that loses, repeats and reorders, and three pipes between them.

A pykka actor sends numbered orders; another receives them. The route between them drops a fifth of all frames in
both directions, repeats a tenth, and delays each by a time of its own, so that later ones overtake earlier ones.
Each pipe says beforehand what it will deliver over such a route. Afterwards what was delivered is judged, and
compared with what was said.

Run it with ``python -m examples.three_pipes --messages 5000 --seed 7``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import pykka
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from surepipe import FaultyRoute, LocalRoute, Pipe
from surepipe.audit.predicates import PipeVerdict, PropertyOutcome, judge_trace
from surepipe.core.claims import Atom

STACKS: Sequence[tuple[str, str]] = (
    ("strict-monotonic", "numbers messages, drops what comes late, never asks again"),
    ("multi-unconfirmed", "sends again what is not confirmed, keeps no order"),
    ("reliable", "both, and holds what comes early"),
)
# A handful to a frame, short timeouts: so that thousands of frames meet the route's faults in a few seconds.
OPTIONS: dict[str, object] = {"run_max": 8}
RETRY_OPTIONS: dict[str, object] = {**OPTIONS, "rto_initial_s": 0.1, "rto_min_s": 0.02}


class Shop(pykka.ThreadingActor):
    """Sends orders into a pipe. Told a number, it sends so many and replies when all are accepted."""

    use_daemon_thread = True

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self.pipe = pipe

    def on_receive(self, message: int) -> int:
        """Send this many orders, one by one, as an application does."""
        for number in range(1, message + 1):
            self.pipe.send({"order": number})
        return message


class Ledger(pykka.ThreadingActor):
    """Writes down which order came, in the order in which it came."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    def on_receive(self, message: object) -> list[int]:
        """An order to write down; anything else asks for what was written."""
        if isinstance(message, dict):
            self.numbers.append(cast("dict[str, int]", message)["order"])
            return []
        return self.numbers


@dataclass
class Run:
    """One pipe's run and what is to be said of it."""

    kind: str
    said: Pipe
    route: FaultyRoute
    numbers: list[int]
    sent: int

    @property
    def verdict(self) -> PipeVerdict:
        """What was delivered, judged."""
        return judge_trace(self.numbers, self.sent)

    @property
    def lost(self) -> int:
        """Orders that never came."""
        return self.sent - len(set(self.numbers))

    @property
    def repeated(self) -> int:
        """Deliveries of an order that had come before."""
        return len(self.numbers) - len(set(self.numbers))

    @property
    def backwards(self) -> int:
        """Deliveries that came after a later order."""
        top, count = 0, 0
        for number in self.numbers:
            count += number < top
            top = max(top, number)
        return count

    def broken_promises(self) -> list[str]:
        """Atoms that the pipe said it keeps over this route and did not keep."""
        over = self.route.declared.forward
        promised = [atom for atom in Atom if self.said.guarantee.guarantee.holds(atom, over)]
        return [str(atom) for atom in promised if self.verdict.of(atom) is not PropertyOutcome.HELD]


def run(kind: str, messages: int, seed: int, progress: Progress) -> Run:
    """Send the orders through one pipe and collect what came out."""
    route = FaultyRoute(
        LocalRoute(), loss=0.2, duplicate=0.1, reorder=0.2, delay=(0.0, 0.004), seed=seed
    )
    options = OPTIONS if kind == "strict-monotonic" else RETRY_OPTIONS
    bar = progress.add_task(kind, total=messages)
    ledger = Ledger.start()
    # A fifth of all frames is lost on purpose: that confirms are late is no news here.
    with Pipe("orders", {kind: options}, route=route, seed=seed, notices=lambda _: None) as pipe:
        shop = Shop.start(pipe)
        seen = 0

        def receive(order: object) -> None:
            nonlocal seen
            seen += 1
            ledger.tell(order)
            progress.update(bar, completed=min(seen, messages))

        pipe.receive(receive)
        shop.ask(messages)
        pipe.flush(timeout=60)
        shop.stop()
    numbers = cast("list[int]", ledger.ask("numbers"))
    ledger.stop()
    progress.update(bar, completed=messages)
    return Run(kind, pipe, route, numbers, messages)


def show(runs: Sequence[Run], console: Console) -> None:
    """One row per pipe: what it said, what came out."""
    table = Table(title="What each pipe said it would deliver, and what it did")
    table.add_column("pipe", no_wrap=True)
    table.add_column("said beforehand")
    for column in ("lost", "repeated", "backwards"):
        table.add_column(column, justify="right")
    table.add_column("promise")
    for item in runs:
        broken = item.broken_promises()
        table.add_row(
            item.kind,
            str(item.said.guarantee.headline).partition(";")[0],
            *(f"{count:,}" for count in (item.lost, item.repeated, item.backwards)),
            f"[red]broken: {', '.join(broken)}[/]" if broken else "[green]kept[/]",
        )
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the three pipes; 0 when each kept its promise and `reliable` delivered all, once, in order."""
    parser = argparse.ArgumentParser(
        prog="three_pipes", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--messages", type=int, default=2000, help="orders for each pipe (2000)")
    parser.add_argument(
        "--seed", type=int, default=1, help="what the route does follows from it (1)"
    )
    chosen = parser.parse_args(arguments)
    console = Console()
    console.print(
        f"{chosen.messages:,} orders over a route that loses 20 %, repeats 10 % and reorders "
        f"(seed {chosen.seed})"
    )
    for kind, how in STACKS:
        console.print(f"  [bold]{kind}[/]: {how}")
    columns = (
        TextColumn("{task.description:>18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        runs = [run(kind, chosen.messages, chosen.seed, progress) for kind, _ in STACKS]
    show(runs, console)
    reliable = runs[-1]
    console.print(f"\n[bold]{reliable.said}[/]\nsaid: {reliable.said.guarantee.headline}")
    is_whole = reliable.numbers == list(range(1, chosen.messages + 1))
    is_kept = not any(item.broken_promises() for item in runs)
    if is_whole and is_kept:
        console.print("[green]verdict: 0 lost, 0 repeated, in order[/]")
        return 0
    console.print("[red]verdict: a promise was broken[/]")
    return 1


if __name__ == "__main__":
    sys.exit(main())
