"""Messages accepted and not transmitted yet: payloads in order, bounded in number and bytes.

A payload larger than the whole byte bound is taken when nothing else is there: it waits alone, instead of
being refused for ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate

from surepipe.pipes.snapshot import stateful


@stateful
class Backlog:
    """Lists of payloads; the first list may have been taken from already, up to ``_offset``."""

    __slots__ = ("_lists", "_offset", "count", "count_max", "size_bytes", "size_max_bytes")

    def __init__(self, count_max: int, size_max_bytes: int) -> None:
        self.count_max = count_max
        self.size_max_bytes = size_max_bytes
        self.count = 0
        self.size_bytes = 0
        self._lists: deque[list[bytes]] = deque()
        self._offset = 0

    def __len__(self) -> int:
        return self.count

    def put(self, payloads: Sequence[bytes], start: int = 0) -> int:
        """Take as many of ``payloads[start:]`` as there is room for, and say how many."""
        taken = list(payloads[start : start + max(self.count_max - self.count, 0)])
        size = sum(map(len, taken))
        room = self.size_max_bytes - self.size_bytes
        if size > room:
            taken, size = prefix_within(taken, room, at_least_one=not self.count)
        if taken:
            self._lists.append(taken)
            self.count += len(taken)
            self.size_bytes += size
        return len(taken)

    def put_owed(self, payloads: Sequence[bytes]) -> int:
        """Take all of these, whatever the bounds say, and say how many they are."""
        if payloads:
            self._lists.append(list(payloads))
            self.count += len(payloads)
            self.size_bytes += sum(map(len, payloads))
        return len(payloads)

    def take(self, count: int, size_bytes: int, *, at_least_one: bool) -> list[bytes]:
        """Remove and return the longest beginning within so many messages and bytes."""
        candidate = self._peek(count)
        size = self.size_bytes if count >= self.count else sum(map(len, candidate))
        if size > size_bytes:
            candidate, size = prefix_within(candidate, size_bytes, at_least_one=at_least_one)
        self._drop(len(candidate))
        self.size_bytes -= size
        return candidate

    def contents(self) -> list[bytes]:
        """Everything that waits, in order."""
        return self._peek(self.count)

    def _peek(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        offset = self._offset
        for payloads in self._lists:
            if len(found) >= count:
                break
            found += payloads[offset : offset + count - len(found)]
            offset = 0
        return found

    def _drop(self, count: int) -> None:
        self.count -= count
        self._offset += count
        while self._lists and self._offset >= len(self._lists[0]):
            self._offset -= len(self._lists.popleft())
        if self._offset >= _COMPACT_AT:
            del self._lists[0][: self._offset]
            self._offset = 0


def prefix_within(
    payloads: list[bytes], size_bytes: int, *, at_least_one: bool
) -> tuple[list[bytes], int]:
    """The longest beginning within so many bytes (or the first message alone), and its bytes."""
    ends = list(accumulate(map(len, payloads)))
    count = bisect_right(ends, size_bytes)
    if not count and at_least_one and payloads:
        count = 1
    return payloads[:count], ends[count - 1] if count else 0


_COMPACT_AT = 4096
"""Payloads already taken that the first list may still refer to before it lets go of them."""
