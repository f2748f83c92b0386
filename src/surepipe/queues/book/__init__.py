"""Many queues by origin, kept as pages in one store, served fairly within a budget."""

from __future__ import annotations

from surepipe.queues.book.answers import (
    Accepted,
    BadAddress,
    ContextClosed,
    Done,
    EnqueueRefused,
    EnqueueUnknown,
    InWork,
    Later,
    Manual,
    Outcome,
    Parked,
    Producer,
    Reaped,
    Reentrant,
    Refused,
    RefusedBecause,
    Rejected,
    Serviced,
    Stopped,
    TooHeavy,
    Why,
)
from surepipe.queues.book.config import BookConfig, Budget, Cost, Overheads
from surepipe.queues.book.events import Footprint, Reason
from surepipe.queues.book.invariants import check_invariants
from surepipe.queues.book.page import Page, PageCorrupt, Slot
from surepipe.queues.book.queue import BookMessage, BookQueue, Context
from surepipe.queues.book.ring import Ring

__all__ = [
    "Accepted", "BadAddress", "BookConfig", "BookMessage", "BookQueue", "Budget", "Context",
    "ContextClosed", "Cost", "Done", "EnqueueRefused", "EnqueueUnknown", "Footprint", "InWork",
    "Later", "Manual", "Outcome", "Overheads", "Page", "PageCorrupt", "Parked", "Producer", "Reaped",
    "Reason", "Reentrant", "Refused", "RefusedBecause", "Rejected", "Ring", "Serviced", "Slot", "Stopped",
    "TooHeavy", "Why", "check_invariants",
]  # fmt: skip
