"""The queue of messages that were sent to one receiver and are not confirmed yet.

The contract (``contract``), its monitor (``checked``) and its implementations in memory (``queues``).
"""

from __future__ import annotations

from surepipe.pipes.message_queue.checked import Checked, Invariants
from surepipe.pipes.message_queue.queues import (
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

__all__ = [
    "MAX_NUMBER",
    "BoundedQueue",
    "Checked",
    "Enqueued",
    "Invariants",
    "Message",
    "MessageForm",
    "MessageQueue",
    "OrderedQueue",
    "RefusalReason",
    "Run",
]
