"""Events of a book for its subscribers: told after the change is stored, in the process that stored it (B-68).

``id`` of an event about a message is what its handler gave, else its address.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from surepipe.core.records import record
from surepipe.queues.book.config import Vector


class Reason(StrEnum):
    """Why a message is parked, or what its handler said of it."""

    OVERWEIGHT = "overweight"
    POISON = "poison"
    REJECTED = "rejected"
    SWEPT = "swept"
    BAD_FORMAT = "bad-format"
    CORRUPT = "corrupt"
    UNSUPPORTED = "unsupported"
    DEPTH = "depth"
    ERROR = "error"


class Flow(StrEnum):
    """Whether whoever feeds an origin should wait."""

    SUSPEND = "suspend"
    RESUME = "resume"


@record
class Footprint:
    """How much a queue holds. ``messages`` and ``bytes`` are unprocessed, parked ones included."""

    pages: int
    ready_pages: int
    messages: int
    bytes: int
    parked: int


NO_FOOTPRINT = Footprint(0, 0, 0, 0, 0)


@record
class QueueChanged:
    """Messages came, or were processed."""

    origin: str
    footprint: Footprint


@record
class Processed:
    """A handler is done with the message."""

    id: str
    origin: str
    address: str
    cost: Vector
    success: bool


@record
class Failed:
    """A handler rejected the message or raised; ``attempt`` counts from 1."""

    id: str
    origin: str
    address: str
    reason: Reason
    attempt: int
    detail: str = ""


@record
class Parked:
    """The message waits for a person."""

    id: str
    origin: str
    address: str
    reason: Reason
    cost: Vector


@record
class PageReaped:
    """A page of parked messages was removed."""

    origin: str
    page: int
    messages: int
    bytes: int


@record
class Discarded:
    """A person gave the message up."""

    id: str
    origin: str
    address: str
    note: str


@record
class Requeued:
    """The message is at the tail of a queue again, under a new address."""

    id: str
    origin: str
    address: str
    new_origin: str
    new_address: str


@record
class Signal:
    """The queue has reached a threshold of ready pages: its feeder should wait, or may go on."""

    origin: str
    state: Flow


BookEvent: TypeAlias = (
    QueueChanged | Processed | Failed | Parked | PageReaped | Discarded | Requeued | Signal
)
