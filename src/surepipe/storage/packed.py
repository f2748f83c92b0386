"""Payloads that lie one after the other in one buffer, for writers in bulk: no object for each of them.

A store takes them as it takes any run. One that keeps pages cuts them out of the buffer as they are, and what it
stores is the same to the byte as from a list of the same payloads.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload


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
