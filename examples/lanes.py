"""Orders of one customer stay in order, those of different customers are handled side by side.

A card that is refused holds up its own customer until the attempts are used up; nobody else waits.
"""

import threading
from collections import defaultdict

from pydantic import BaseModel

from surepipe import DeadLetters, Pipe


class Order(BaseModel):
    """A message of this pipe."""

    number: int
    customer: str


done: dict[str, list[int]] = defaultdict(list)
lock = threading.Lock()  # the handler is called on several threads


def charge(order: object) -> None:
    """Fails for one order."""
    assert isinstance(order, Order)
    if order.number == 3:
        raise PermissionError("card refused")
    with lock:
        done[order.customer].append(order.number)


letters = DeadLetters()
with Pipe(
    "orders",
    codec=Order,
    key="customer",
    lanes=4,
    retries=3,
    retry_min_s=0.02,
    dead_letter=letters,
) as pipe:
    pipe.receive(charge)
    for number in range(12):
        pipe.send(Order(number=number, customer=("ann", "bob", "eve", "tom")[number % 4]))
    pipe.flush(timeout=10)
    print(str(pipe.guarantee).rpartition("; ")[2])

for customer in sorted(done):
    print(customer, done[customer])
print([f"order {letter.seq - 1}: {letter.error_text}" for letter in letters])
