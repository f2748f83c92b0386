"""What a desk with lanes keeps: messages, deliveries of one key, and the window that bounds both."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from surepipe.effects import Key
from surepipe.pipes.snapshot import stateful


@dataclass(frozen=True, slots=True)
class Window:
    """How much may be received before the oldest message that is not settled is: the bounds of the layer below.

    ``spans``: it counts everything from there on, and not only what is not settled.
    """

    count: int
    size_bytes: int
    spans: bool


@stateful
@dataclass(slots=True)
class Message:
    """One message that waits or is in work."""

    epoch: int
    seq: int
    payload: bytes
    producer: str


@stateful
@dataclass(slots=True)
class LaneTicket:
    """One delivery: messages of one key, in order; ``open`` are the numbers that have no answer yet."""

    key: Key
    messages: list[Message]
    open: list[int]
    attempt: int = 1

    @property
    def epoch(self) -> int:
        """That of all its messages."""
        return self.messages[0].epoch

    def places(self, first: int, last: int) -> tuple[int, int]:
        """Where first..last begins and ends in what is open."""
        return bisect_left(self.open, first), bisect_right(self.open, last)


def total_bytes(messages: Iterable[Message]) -> int:
    """Payload bytes of these messages."""
    return sum(len(message.payload) for message in messages)
