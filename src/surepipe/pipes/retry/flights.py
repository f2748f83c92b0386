"""What is on the way: the transmitted and unconfirmed messages of a sender, and a record of each run of them.

The messages themselves are in an increasing message queue. The records say when a run was last sent and when its
patience ends; they cover exactly the span that is transmitted and not confirmed, in order and without overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import cast

from surepipe.core.snapshot import stateful
from surepipe.pipes.message_queue import BoundedQueue, Message

NEVER = 2**62
"""A time that does not come."""

STAMPS_MAX = 8
"""Transmissions of one run that are remembered, so that a late answer still measures the route."""

FEW = 32
"""Runs that are put back one by one, because to sort a long list for them would cost more."""

UNBOUNDED_BYTES = 2**62


@stateful
class Transmitted(BoundedQueue[Message]):
    """The payloads that were transmitted and are not confirmed.

    Bounded by the window in messages. Bytes are bounded by the sender: a message larger than the byte
    window must still travel, alone.
    """

    __slots__ = ()

    def __init__(self, window: int) -> None:
        super().__init__(window, UNBOUNDED_BYTES, increasing=True)

    def to_state(self) -> object:
        """The members as one value: the number of the first, and the payloads."""
        payloads = [payload for run in self.pick_runs(len(self)) for payload in run.payloads]
        return [self.capacity, self.high, payloads]

    @classmethod
    def from_state(cls, state: object) -> Transmitted:
        """The queue that ``to_state`` described. What was removed from it stays out."""
        capacity, high, payloads = cast("tuple[int, int, list[bytes]]", state)
        made = cls(capacity)
        if payloads:
            made.enqueue_run(high - len(payloads) + 1, payloads)
        elif high >= 0:
            made.enqueue_run(high, [b""])
            made.delete_all(high)
        return made


@stateful
@dataclass(slots=True)
class Flight:
    """One run on the way. ``attempts`` counts its transmissions, ``waits`` how often patience was armed.

    ``carried_as``: which message of the carrier brings it, until the carrier says that it has arrived; else 0.
    """

    first: int
    last: int
    since: int
    sent: int
    deadline: int
    attempts: int = 1
    waits: int = 1
    warned: bool = False
    carried_as: int = 0
    stamps: list[int] = field(default_factory=list[int])

    def part(self, first: int, last: int) -> Flight:
        """The same record for a part of the run."""
        return replace(self, first=first, last=last, stamps=list(self.stamps))

    def goes_with(self, following: Flight) -> bool:
        """True when both may become one run: neighbours with the same history."""
        return (
            self.last + 1 == following.first
            and self.waits == following.waits
            and self.warned == following.warned
        )


@stateful
class Flights:
    """The records, by number. ``due_at`` is at most the earliest deadline, so an early look is harmless."""

    __slots__ = ("due_at", "runs")

    def __init__(self) -> None:
        self.runs: list[Flight] = []
        self.due_at = NEVER

    def __len__(self) -> int:
        return len(self.runs)

    def add(self, flight: Flight) -> None:
        """A run above all others was transmitted."""
        self.runs.append(flight)
        self.due_at = min(self.due_at, flight.deadline)

    def put_back(self, flights: Iterable[Flight]) -> None:
        """Runs that were taken out, or parts of them, in their new condition."""
        returned = list(flights)
        if len(returned) <= FEW:
            for flight in returned:
                insort(self.runs, flight, key=_first)
        else:
            self.runs.extend(returned)
            self.runs.sort(key=_first)
        if returned:
            self.due_at = min(self.due_at, *(flight.deadline for flight in returned))

    def drop_below(self, base: int) -> list[Flight]:
        """Everything below ``base`` is done with: the runs that end below it."""
        count = 0
        for flight in self.runs:
            if flight.last >= base:
                flight.first = max(flight.first, base)
                break
            count += 1
        dropped = self.runs[:count]
        del self.runs[:count]
        if not self.runs:
            self.due_at = NEVER
        return dropped

    def take_due(self, now: int) -> list[Flight]:
        """Take out the runs whose patience has ended; put them back in the same step."""
        due = [flight for flight in self.runs if flight.deadline <= now]
        self.runs = [flight for flight in self.runs if flight.deadline > now]
        self.due_at = min((flight.deadline for flight in self.runs), default=NEVER)
        return due

    def overlapping(self, first: int, last: int) -> list[Flight]:
        """The runs that have a part in first..last."""
        at = bisect_left(self.runs, first, key=_last)
        end = bisect_right(self.runs, last, key=_first)
        return self.runs[at:end]

    def carve(self, first: int, last: int) -> list[Flight]:
        """Take out what lies in first..last, cutting runs that reach beyond it."""
        at = bisect_left(self.runs, first, key=_last)
        touched = self.overlapping(first, last)
        carved: list[Flight] = []
        left: list[Flight] = []
        for flight in touched:
            if flight.first < first:
                left.append(flight.part(flight.first, first - 1))
            if flight.last > last:
                left.append(flight.part(last + 1, flight.last))
            carved.append(flight.part(max(flight.first, first), min(flight.last, last)))
        self.runs[at : at + len(touched)] = left
        if not self.runs:
            self.due_at = NEVER
        return carved

    def hasten(self, now: int) -> None:
        """All runs are due now, and patience begins anew."""
        for flight in self.runs:
            flight.deadline = now
            flight.waits = 0
        if self.runs:
            self.due_at = now


def _first(flight: Flight) -> int:
    return flight.first


def _last(flight: Flight) -> int:
    return flight.last
