"""The abstract queue of unconfirmed messages: its contract, its queues in memory, and its proofs.

    queue = Checked(BoundedQueue(capacity=2))
    if not (accepted := queue.enqueue(Message(1, b"payload"))):
        print("wait:", accepted.reason)

`MessageQueueRules` and `StreamQueue` are imported when they are first asked for: the one needs
hypothesis, the other is no machine and brings the stores with it.
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
from surepipe.queues.message_queue.transport import Transport

if TYPE_CHECKING:
    from surepipe.queues.message_queue.rules import MessageQueueRules
    from surepipe.storage.message_queue import StreamQueue


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
    "StreamQueue",
    "Transport",
    "explore",
]


def __getattr__(name: str) -> object:
    if name == "MessageQueueRules":
        from surepipe.queues.message_queue.rules import MessageQueueRules  # noqa: PLC0415

        return MessageQueueRules
    if name == "StreamQueue":
        from surepipe.storage.message_queue import StreamQueue  # noqa: PLC0415

        return StreamQueue
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
