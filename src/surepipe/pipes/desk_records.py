"""What the desk keeps: tickets, failures, what waits to be tried again, writes and letters under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from surepipe.effects import Cause, Effect, Letter, Ranges
from surepipe.pipes.ranges import RangeSet
from surepipe.pipes.snapshot import stateful


class DeskPort(Protocol):
    """What the desk may ask of its stack."""

    @property
    def now(self) -> int:
        """Monotonic microseconds of the step that is running."""
        ...

    def emit(self, effect: Effect) -> None:
        """Add to the effects of this step."""
        ...

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        ...

    def ticket(self) -> int:
        """A new number for a Deliver, Persist or DeadLetter."""
        ...

    def settle_outermost(self, epoch: int, first: int, last: int) -> None:
        """Answer the outermost layer: settled."""
        ...

    def refuse_outermost(self, epoch: int, first: int, last: int) -> None:
        """Answer the outermost layer: refused."""
        ...

    def producer_of(self, epoch: int) -> str:
        """Who wrote the messages of this epoch that are in work, where that is part of their identity."""
        ...

    def state(self, epoch: int, also: Ranges) -> bytes:
        """The state as it is when ``also`` is settled in the outermost layer."""
        ...


stateful(Letter)


@stateful
@dataclass(slots=True)
class Ticket:
    """One Deliver that the host has not answered in full."""

    epoch: int
    first: int
    payloads: Sequence[bytes]
    history: Failure | None
    open: RangeSet
    producer: str = ""

    def payload(self, seq: int) -> bytes:
        """The payload of one message of the ticket."""
        return self.payloads[seq - self.first]


@stateful
@dataclass(slots=True)
class Failure:
    """What is known of a message that failed."""

    attempts: int
    first_us: int
    last_us: int
    error: Cause = ("", "")


@stateful
@dataclass(slots=True)
class Delayed:
    """Messages that will be delivered at ``due``; ``history`` is that of the first of them."""

    due: int
    epoch: int
    first: int
    payloads: Sequence[bytes]
    history: Failure
    producer: str = ""


@stateful
@dataclass(slots=True)
class Saving:
    """A state write under way, and what happens when it is stored. ``letters``: by ticket, those that are written
    then."""

    ticket: int
    epoch: int
    ranges: RangeSet
    deliver: Ticket | None = None
    letters: tuple[int, ...] = ()
    attempts: int = 1
    repeat_at: int | None = None


@stateful
@dataclass(slots=True)
class Posting:
    """A dead letter under way. Not ``is_decided``: the state does not say yet that it will be."""

    letter: Letter
    attempts: int = 1
    repeat_at: int | None = None
    is_decided: bool = True


@stateful
@dataclass(slots=True)
class Queued:
    """Messages that wait for their delivery. ``is_stored``: the cursor behind them is stored already."""

    epoch: int
    first: int
    payloads: list[bytes] = field(default_factory=list[bytes])
    producer: str = ""
    is_stored: bool = False
