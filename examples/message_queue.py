"""A queue of unconfirmed messages, its contract checked at every call.

Run it with ``python examples/message_queue.py``.
"""

from __future__ import annotations

from surepipe.errors import ContractViolation
from surepipe.queues.message_queue import BoundedQueue, Checked, Message


def main() -> None:
    """Fill the queue until it says wait, confirm the oldest message, and go on."""
    queue = Checked(BoundedQueue(capacity=2))
    orders = [Message(1, b"bread"), Message(2, b"milk"), Message(3, b"tea")]

    for order in orders:
        if accepted := queue.enqueue(order):
            print(f"sent {order.num}")
        else:
            print(f"order {order.num} must wait: {accepted.reason}")

    oldest = queue.pick_one()
    print(f"no confirm yet, so {oldest.num} ({oldest.payload.decode()}) is sent again")

    confirmed = queue.delete_all(oldest.num)
    print(f"confirmed up to {oldest.num}: {confirmed} message less, {len(queue)} left")

    queue.enqueue(orders[2])
    try:
        queue.enqueue(orders[2])
    except ContractViolation as fault:
        print(f"refused as our own fault: {fault}")
    print(f"still waiting for a confirm: {list(queue.snapshot())}")


if __name__ == "__main__":
    main()
