"""The abstract queue of unconfirmed messages: its contract, its queues in memory, and its proofs.

    queue = Checked(BoundedQueue(capacity=2))
    if not (accepted := queue.enqueue(Message(1, b"payload"))):
        print("wait:", accepted.reason)

`MessageQueueRules` is imported when it is first asked for: it needs hypothesis, and nothing else
here does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surepipe.pipes.message_queue import (
    MAX_NUMBER,
    BoundedQueue,
    Enqueued,
    Message,
    MessageForm,
    MessageQueue,
    OrderedQueue,
    RefusalReason,
    Run,
)
from surepipe.pipes.message_queue.checked import Checked, Invariants
from surepipe.queues.message_queue.explore import ExploredQueue, explore

if TYPE_CHECKING:
    from surepipe.queues.message_queue.rules import MessageQueueRules


__all__ = [
    "MAX_NUMBER",
    "BoundedQueue",
    "Checked",
    "Enqueued",
    "ExploredQueue",
    "Invariants",
    "Message",
    "MessageForm",
    "MessageQueue",
    "MessageQueueRules",
    "OrderedQueue",
    "RefusalReason",
    "Run",
    "explore",
]


def __getattr__(name: str) -> object:
    if name != "MessageQueueRules":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from surepipe.queues.message_queue.rules import MessageQueueRules  # noqa: PLC0415

    return MessageQueueRules
