"""Pages as a store keeps them, for readers in bulk: many messages in one object, not yet taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from surepipe.store_api import Ahead, Empty, Failed, Reset, Trimmed, Unavailable


@dataclass(frozen=True, slots=True)
class RawPage:
    """A run of ``count`` entries of one producer and epoch, indexes from ``index`` and seqs from ``first`` on.

    The payloads lie one after the other in ``body`` from ``start`` on. ``lengths`` holds their lengths as unsigned
    little-endian numbers of ``width`` bytes; a width of 0 means that all are equally long, and no lengths.
    """

    index: int
    producer: str
    epoch: int
    first: int
    count: int
    at_us: int
    """When it was appended, in microseconds of the wall clock since 1970."""
    width: int
    lengths: memoryview
    body: bytes
    start: int

    @property
    def stop(self) -> int:
        """The index after its last entry."""
        return self.index + self.count

    @property
    def payload_bytes(self) -> int:
        """The length of all payloads."""
        return len(self.body) - self.start


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Pages without a hole. The first may begin below the index that was asked for, the last may end beyond the
    bounds: the reader cuts them. ``end`` is the next index that an append will get."""

    pages: Sequence[RawPage]
    end: int


PagesOutcome: TypeAlias = RawBatch | Empty | Trimmed | Reset | Ahead | Failed | Unavailable
