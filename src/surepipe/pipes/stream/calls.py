"""Store calls that are asked again until they are answered, under the same ticket."""

from __future__ import annotations

from dataclasses import dataclass

from surepipe.core.machine import Randomness
from surepipe.core.snapshot import stateful
from surepipe.core.store_requests import (
    AppendRun,
    ClaimReader,
    CommitPosition,
    DescribeStream,
    Entries,
    GetPosition,
    IdentifyEntry,
    Identity,
    OpenProducer,
    ReadFrom,
    StoreRequest,
    WaitForMore,
)
from surepipe.core.timing import BackOff
from surepipe.pipes.stack.layers import Port
from surepipe.pipes.stream.options import Stream

for _part_of_a_state in (
    *(AppendRun, ClaimReader, CommitPosition, DescribeStream, Entries, GetPosition),
    *(IdentifyEntry, Identity, OpenProducer, ReadFrom, WaitForMore),
):
    stateful(_part_of_a_state)

WARN_AFTER = 5
"""Failures in a row after which people are told."""


@stateful
@dataclass(slots=True)
class Asked:
    """A request on its way, or (ticket 0) one that will be made at ``repeat_at``."""

    request: StoreRequest
    ticket: int
    attempts: int
    repeat_at: int


class StoreCalls:
    """Asks, and asks again with doubling waits. Keeps no state of its own."""

    def __init__(self, options: Stream, port: Port, rng: Randomness) -> None:
        self.port = port
        self.rng = rng
        most_s = max(options.rto_max_s, options.rto_initial_s)
        self.patience = BackOff.of_seconds(options.rto_initial_s, most_s, options.jitter)
        self.pauses = BackOff.of_seconds(options.rto_min_s, most_s, options.jitter)

    def ask(self, request: StoreRequest) -> Asked:
        asked = Asked(request, 0, 0, 0)
        self.repeat(asked)
        return asked

    def ask_after(self, request: StoreRequest, failures: int) -> Asked:
        """Ask after the pause that follows so many failures."""
        return Asked(request, 0, 0, self.port.now + self.pause(failures))

    def repeat(self, asked: Asked) -> None:
        """Ask for the first time, or again, and set the time by which an answer is missed."""
        asked.attempts += 1
        asked.repeat_at = self.port.now + self._patience(asked.attempts)
        if asked.ticket:
            self.port.call_again(asked.ticket, asked.request)
        else:
            asked.ticket = self.port.call(asked.request)

    def is_due(self, asked: Asked) -> bool:
        """True when it is time to ask (again)."""
        return asked.repeat_at <= self.port.now

    def put_off(self, asked: Asked, failures: int) -> None:
        """The store could not say: ask again after a pause."""
        asked.repeat_at = self.port.now + self.pause(failures)

    def forget(self, asked: Asked) -> None:
        """Its answer matters no more."""
        if asked.ticket:
            self.port.forget(asked.ticket)

    def pause(self, failures: int) -> int:
        """How long to leave the store alone after so many failures in a row."""
        return self.pauses.wait(failures, self.rng)

    def _patience(self, attempts: int) -> int:
        return self.patience.wait(attempts, self.rng)
