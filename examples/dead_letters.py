"""A message that fails again and again: it becomes a letter, the rest goes on, and later it is replayed."""

import tempfile
from pathlib import Path

from surepipe import Pipe
from surepipe.storage import DeadLetterStream, SqliteStore

IN_STOCK = {"bread", "milk"}
sold: list[object] = []


def sell(item: object) -> None:
    """Fails for what is not there."""
    if item not in IN_STOCK:
        raise LookupError(f"no {item} in stock")
    sold.append(item)


with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder, "shop.db")) as store:
    with Pipe("orders", journal=store, retries=3, retry_min_s=0.02, dead_letter=store) as pipe:
        pipe.receive(sell)
        pipe.send_many(["bread", "tea", "milk"])

    letters = DeadLetterStream(store, "orders/dead")
    for stored in letters.all():
        print(stored.letter.attempts, "attempts,", stored.letter.error_text)
    print("sold:", sold)

    IN_STOCK.add("tea")
    with Pipe("orders", journal=store) as pipe:
        pipe.receive(sell)
        print(pipe.replay(letters))
        print(pipe.replay(letters))
    print("sold:", sold)
