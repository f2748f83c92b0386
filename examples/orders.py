"""The stages of ``orders.yaml``: functions of a message, which need nothing of surepipe to be tested."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, PositiveInt

CENTS = {"bread": 320, "butter": 280, "coffee": 890, "milk": 140, "tea": 510}
LARGE_CENTS = 2_000


class Order(BaseModel):
    """A line of the file."""

    order: int
    customer: str
    article: str
    count: PositiveInt


class NoPrice(Exception):
    """The article is not in the list. Trying again does not help until the list is longer."""


def price(order: Mapping[str, object]) -> dict[str, object]:
    """The order with what it costs."""
    article, count = str(order["article"]), order["count"]
    if article not in CENTS:
        raise NoPrice(article)
    assert isinstance(count, int)
    return {**order, "cents": CENTS[article] * count}


def is_large(order: Mapping[str, object]) -> bool:
    """Orders that accounting wants to see."""
    cents = order["cents"]
    return isinstance(cents, int) and cents >= LARGE_CENTS


class Run(Protocol):
    """A finished run of a simulation, as far as it is looked at here."""

    @property
    def delivered(self) -> Mapping[str, Sequence[object]]:
        """Of each sink, what is in it."""
        ...


def adds_up(run: Run) -> bool:
    """For a simulation: no order twice."""
    orders = list(map(str, run.delivered["out"]))
    return len(orders) == len(set(orders))


def main() -> None:
    """Price the orders of the example without any pipe, for comparison."""
    for line in (Path(__file__).parent / "data" / "orders.jsonl").read_text().splitlines():
        order = Order.model_validate_json(line).model_dump()
        try:
            print(json.dumps(price(order)))
        except NoPrice as error:
            print(f"no price for {error}: this becomes a dead letter")


if __name__ == "__main__":
    main()
