"""Rates of the message queues in memory, and what `Checked` costs on top of them.

Run it with ``python benchmarks/message_queue.py``. Each figure is the best of five rounds; the targets are for a
machine with two cores. The ratio is between a checked and a bare queue doing the same work in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from surepipe.pipes.message_queue import BoundedQueue, Message, MessageQueue
from surepipe.pipes.message_queue.checked import Checked

MESSAGES = 65_536
RUN = 512
WINDOW = 4_096
PAYLOAD = b"x" * 200
ROUNDS = 5

Make = Callable[[], MessageQueue[Message]]
Work = Callable[[MessageQueue[Message]], None]


def plain() -> MessageQueue[Message]:
    """Message objects."""
    return BoundedQueue(MESSAGES)


def increasing() -> MessageQueue[Message]:
    """Runs of bytes, as the pipes use them."""
    return BoundedQueue(MESSAGES, increasing=True)


def sampled(make: Make) -> Make:
    """The same, checked as in production."""
    return lambda: Checked(make(), invariants="sampled")


MADE = [Message(number, PAYLOAD) for number in range(MESSAGES)]
PAYLOADS = [PAYLOAD] * RUN


def enqueue(queue: MessageQueue[Message]) -> None:
    """One by one until full."""
    for message in MADE:
        queue.enqueue(message)


def enqueue_runs(queue: MessageQueue[Message]) -> None:
    """In runs until full."""
    for first in range(0, MESSAGES, RUN):
        queue.enqueue_run(first, PAYLOADS)


def window_of_messages(queue: MessageQueue[Message]) -> None:
    """A full window slides: one message in, the oldest looked at, one confirmed."""
    for message in MADE[:WINDOW]:
        queue.enqueue(message)
    for message in MADE[WINDOW:]:
        queue.delete_all(queue.pick_one().num)
        queue.enqueue(message)


def window_of_runs(queue: MessageQueue[Message]) -> None:
    """A full window slides by runs."""
    for first in range(0, MESSAGES, RUN):
        if first >= WINDOW:
            queue.delete_all(first - WINDOW + RUN - 1)
        queue.enqueue_run(first, PAYLOADS)


def rate(make: Make, work: Work) -> float:
    """Messages in a second, best of the rounds."""
    return max(_once(make, work) for _ in range(ROUNDS))


def _once(make: Make, work: Work) -> float:
    queue = make()
    begin = time.perf_counter()
    work(queue)
    return MESSAGES / (time.perf_counter() - begin)


def ratio(make: Make, work: Work) -> float:
    """How much longer the checked queue takes, both measured in turns."""
    bare, checked = 0.0, 0.0
    for _ in range(ROUNDS):
        bare = max(bare, _once(make, work))
        checked = max(checked, _once(sampled(make), work))
    return bare / checked


def main() -> None:
    """Print the figures beside their targets."""
    print(f"{'':46}{'measured':>14}  target")
    for name, make, work, target in (
        ("enqueue, plain", plain, enqueue, "500,000 /s"),
        ("enqueue, increasing", increasing, enqueue, "500,000 /s"),
        ("enqueue_run of 512, increasing", increasing, enqueue_runs, "5,000,000 /s"),
        ("window of 4,096 in messages, plain", plain, window_of_messages, ""),
        ("window of 4,096 in messages, increasing", increasing, window_of_messages, ""),
        ("window of 4,096 in runs, increasing", increasing, window_of_runs, ""),
    ):
        print(f"{name:46}{rate(make, work):12,.0f}/s  {target}")
    for name, make, work in (
        ("checked / bare, enqueue, plain", plain, enqueue),
        ("checked / bare, window in messages, plain", plain, window_of_messages),
        ("checked / bare, window in messages, increasing", increasing, window_of_messages),
        ("checked / bare, window in runs, increasing", increasing, window_of_runs),
    ):
        print(f"{name:46}{ratio(make, work):14.1f}  at most 5")


if __name__ == "__main__":
    main()
