"""Stages of test pipelines. Tasks import them, so they stand in a module of their own."""

from __future__ import annotations

import json
from pathlib import Path

from surepipe.pipelines.stages import Context

Order = dict[str, int]


class NoPrice(Exception):
    """An order that can't be priced."""


def price(order: Order, context: Context) -> Order:
    """Twice its number, drawn and named by its identity; every 50th fails for good."""
    if order["n"] % 50 == 7:
        raise NoPrice(f"order {order['n']}")
    return {**order, "price": 2 * order["n"], "draw": context.random.getrandbits(16)}


def is_even(order: Order) -> bool:
    """Half of them."""
    return order["n"] % 2 == 0


def copies(order: Order) -> list[Order]:
    """None, one or two of it."""
    return [{**order, "copy": number} for number in range(order["n"] % 3)]


class Sums:
    """A stage with a memory."""

    def __call__(self, order: Order) -> Order:
        """The order."""
        return order


def fails_twice(order: Order) -> Order:
    """Number 3 fails at its first two attempts, which a file beside it counts."""
    if order["n"] == 3:
        _count_and_raise(Path(str(order["folder"])) / "attempts", 2)
    return order


def book(order: Order) -> None:
    """A line in a file; number 5 fails for good."""
    if order["n"] == 5:
        raise NoPrice("no book for 5")
    with (Path(str(order["folder"])) / "booked.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(order["n"]) + "\n")


def _count_and_raise(path: Path, times: int) -> None:
    seen = path.stat().st_size if path.exists() else 0
    if seen < times:
        with path.open("a", encoding="utf-8") as file:
            file.write("x")
        raise NoPrice(f"attempt {seen + 1}")


def even_or_none(order: Order) -> Order | None:
    """Half of them; nothing for the others."""
    return order if order["n"] % 2 == 0 else None


def hold(order: Order) -> Order:
    """Number 60 tells whoever reads the pipe ``begun`` that it is here, and waits for a word in ``go``."""
    if order["n"] == 60:
        Path("begun").write_text("here", encoding="utf-8")
        Path("go").read_text(encoding="utf-8")
    return order
