"""An asyncio program: a journal keeps what was accepted, eight customers are served at once, each in order."""

import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TypedDict, cast

from surepipe import DeadLetters, Pipe
from surepipe.storage import SqliteStore


class Order(TypedDict):
    """A message of this pipe."""

    number: int
    customer: str


done: dict[str, list[int]] = defaultdict(list)


async def charge(message: object) -> None:
    """A call of the bank takes a while, and is refused for one order."""
    order = cast("Order", message)
    await asyncio.sleep(0.01)
    if order["number"] == 3:
        raise PermissionError("card refused")
    done[order["customer"]].append(order["number"])


async def main(folder: Path) -> None:
    letters = DeadLetters()
    with SqliteStore(folder / "orders.db") as store:
        pipe = Pipe(
            "orders",
            journal=store,
            key="customer",
            lanes=8,
            retries=3,
            retry_min_s=0.01,
            dead_letter=letters,
        )
        async with pipe as orders:
            orders.receive(charge)
            for number in range(32):
                await orders.send(Order(number=number, customer=f"c{number % 8}"))
            await orders.flush()
    for customer, numbers in sorted(done.items()):
        print(customer, numbers)
    for letter in letters:
        print("not charged:", letter.error_text, f"({letter.attempts} attempts)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
