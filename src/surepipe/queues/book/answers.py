"""Answers of handlers to a book, and of a book to its callers."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from surepipe.core.records import record
from surepipe.errors import MisuseError, StoreUnavailable, SurepipeError, named
from surepipe.queues.book.config import Cost, Vector
from surepipe.queues.book.events import Footprint, Reason

ERROR_SHOWN = 200
"""Characters of an error that are kept beside its message, and told."""

# Outcomes: what a handler returns (B-33).


@record
class Done:
    """The message is processed, and everything staged for it counts, with ``success=False`` too."""

    success: bool = True
    id: str | None = None


REJECTIONS = {
    "BAD_FORMAT": Reason.BAD_FORMAT,
    "CORRUPT": Reason.CORRUPT,
    "UNSUPPORTED": Reason.UNSUPPORTED,
    "DEPTH": Reason.DEPTH,
}


@record
class Rejected:
    """No attempt will ever succeed: BAD_FORMAT, CORRUPT, UNSUPPORTED or DEPTH. What was staged is undone."""

    reason: str

    def __post_init__(self) -> None:
        if self.reason not in REJECTIONS:
            raise MisuseError(f"Rejected({self.reason!r}): the reasons are {', '.join(REJECTIONS)}")


@record
class TooHeavy:
    """Handling it turned out to cost so much; it is dealt with as if that had been declared."""

    cost: Cost


@record
class Later:
    """Not now: the queue waits with this message for so long at least, and others go on."""

    after_s: float = 0.0


@record
class Raised:
    """The handler failed: type and text of its error."""

    kind: str
    text: str
    traceback: str = ""
    depth: bool = False
    """True for a RecursionError."""
    is_late: bool = False
    """The handler has not returned yet, so nothing else of its queue may run."""

    @property
    def said(self) -> str:
        """Type and text, as far as a person reads it."""
        return named(self.kind, self.text)[:ERROR_SHOWN]


Outcome: TypeAlias = Done | Rejected | TooHeavy | Later
"""What a handler may return beside None, which is ``Done()``."""
AnyOutcome: TypeAlias = Done | Rejected | TooHeavy | Later | Raised
DONE = Done()


@record
class InWork:
    """What a handler has now: the message (``number`` counts those of its queue's ``generation``), how many follow
    it at once, and for how long. ``is_late``: it took longer than ``time_limit_s``, and nobody waits for it."""

    origin: str
    generation: int
    number: int
    following: int
    attempt: int
    held_s: float
    is_late: bool = False


# Enqueueing.


@record
class Producer:
    """Who enqueues, by identity: the messages of the call are ``first``, ``first + 1`` ... of this epoch.

    ``base`` is the number that the epoch starts at, for a book that never heard of the producer.
    """

    id: str
    epoch: int
    first: int
    base: int = 1


@record
class Accepted:
    """The messages are stored. ``first`` and ``last`` are their addresses; ``duplicates`` were stored before."""

    count: int
    first: str = ""
    last: str = ""
    duplicates: int = 0
    suspended: bool = False


class RefusedBecause(StrEnum):
    """Why nothing of a call was stored."""

    FULL = "full"
    ORIGINS = "origins"
    FENCED = "fenced"
    GAP = "gap"


@record
class Refused:
    """Nothing of the call was stored. ``expected``: the producer's next number (GAP), or its epoch (FENCED)."""

    reason: RefusedBecause
    origin: str
    footprint: Footprint
    expected: int = 0


class EnqueueRefused(SurepipeError):
    """The messages were not stored; ``refused`` says why. The caller still has them."""

    def __init__(self, refused: Refused) -> None:
        self.refused = refused
        why = {
            RefusedBecause.FULL: f"holds {refused.footprint.ready_pages} pages that wait: serve them, "
            "enqueue with wait_s, or raise refuse_pages",
            RefusedBecause.ORIGINS: "would be one origin too many: raise max_origins, or use fewer",
            RefusedBecause.GAP: f"misses messages before these: the next number is {refused.expected}",
            RefusedBecause.FENCED: f"is fed by a later epoch of this producer, {refused.expected}",
        }[refused.reason]
        super().__init__(f"nothing was enqueued: the queue of {refused.origin!r} {why}")


class Undecided(StoreUnavailable):
    """The store gave no answer to a write, which is done or not: ``admitted`` of the book finds out."""

    def __init__(self, said: str, write: object) -> None:
        super().__init__(said)
        self.write = write


class EnqueueUnknown(StoreUnavailable):
    """The store did not answer: all messages of the call are stored, or none.

    ``again()`` asks for what is stored of this very call, and stores it if nothing is: never twice. It answers and
    raises as the call itself.
    """

    def __init__(self, text: str, again: Callable[[], Accepted | Refused]) -> None:
        self.again = again
        super().__init__(f"{text}; error.again() goes on with this call, and stores nothing twice")


# Service.


class Stopped(StrEnum):
    """Why a call to ``service`` ended."""

    EMPTY = "empty"
    IDLE = "idle"
    BUDGET = "budget"
    TOO_SMALL = "too-small"
    STOPPING = "stopping"


@record
class Serviced:
    """What one call did. ``consumed``: messages, bytes, units and microseconds."""

    consumed: Vector
    ran: int
    parked: int
    visits: int
    stopped: Stopped


# By hand.


class Why(StrEnum):
    """What came of an operation on one message."""

    DONE = "done"
    REJECTED = "rejected"
    PAUSED = "paused"
    NOT_FOUND = "not-found"
    STILL_QUEUED = "still-queued"
    ALREADY_PROCESSED = "already-processed"
    BUSY = "busy"
    OVER_BUDGET = "over-budget"
    NOT_NOW = "not-now"
    NOT_REAPABLE = "not-reapable"
    FULL = "full"


@record
class Manual:
    """``ok`` when the message is dealt with. ``address``: of the message; after a requeue, its new one. ``error``:
    what a handler that failed has raised."""

    ok: bool
    why: Why
    cost: Vector
    address: str
    error: str = ""


@record
class Parked:
    """A message that waits for a person, as ``parked`` lists it. ``since``: wall-clock microseconds (0: swept).
    ``error``: what its last attempt raised, or why it was rejected."""

    address: str
    origin: str
    reason: Reason
    cost: Vector
    attempts: int
    bytes: int
    since: int
    error: str = ""


@record
class Reaped:
    """What became of a page of parked messages."""

    ok: bool
    why: Why
    page: int
    messages: int = 0
    bytes: int = 0


# Misuse.


class Reentrant(MisuseError):
    """A handler called its own book other than through its context; nothing was changed."""


class ContextClosed(MisuseError):
    """The context was used after its handler had returned; nothing was staged."""


class BadAddress(MisuseError):
    """This is no address of a message of this book."""
