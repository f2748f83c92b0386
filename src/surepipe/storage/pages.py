"""Pages as a store keeps them, for readers in bulk: many messages in one object, not yet taken apart."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias, overload

from surepipe.core.store_requests import Ahead, Diverged, Empty, Failed, Reset, Trimmed, Unavailable


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
        return len(self.body) - self.start


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Pages without a hole. The first may begin below the index that was asked for, the last may end beyond the
    bounds: the reader cuts them. ``end`` is the next index that an append will get."""

    pages: Sequence[RawPage]
    end: int


PagesOutcome: TypeAlias = (
    RawBatch | Empty | Trimmed | Reset | Ahead | Diverged | Failed | Unavailable
)


# Payloads that lie one after the other in one buffer, for writers in bulk: no object for each of them.
#
# A store takes them as it takes any run. One that keeps pages cuts them out of the buffer as they are, and what
# it stores is the same to the byte as from a list of the same payloads.


class Packed(Sequence[bytes]):
    """A run of payloads in one buffer. A slice of it is one, too, and copies nothing."""

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Packed: ...
    @abstractmethod
    def __getitem__(self, at: int | slice) -> bytes | Packed: ...

    @property
    @abstractmethod
    def body(self) -> memoryview:
        """All payloads, one after the other."""

    @abstractmethod
    def lengths(self, width: int) -> bytes:
        """The length of each, as unsigned little-endian numbers of so many bytes, into which they must fit."""

    @abstractmethod
    def extremes(self) -> tuple[int, int]:
        """The length of the shortest and of the longest. There is one payload at least."""

    @abstractmethod
    def fitting(self, start: int, limit: int) -> int:
        """Up to where payloads from the ``start``-th on fit into so many bytes; one always does."""


def cuts(payloads: Sequence[bytes], limit: int) -> Iterator[tuple[int, int]]:
    """Where each page begins and stops when it holds so many bytes at most, or one longer payload."""
    ends = [] if isinstance(payloads, Packed) else list(accumulate(map(len, payloads), initial=0))
    start = 0
    while start < len(payloads):
        if isinstance(payloads, Packed):
            stop = payloads.fitting(start, limit)
        else:
            stop = max(start + 1, bisect_right(ends, ends[start] + limit) - 1)
        yield start, stop
        start = stop


def size_of(payloads: Sequence[bytes]) -> int:
    """The length of all payloads."""
    return len(payloads.body) if isinstance(payloads, Packed) else sum(map(len, payloads))
