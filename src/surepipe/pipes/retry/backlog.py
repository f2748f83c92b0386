"""Messages accepted and not transmitted yet: payloads in order, bounded in number and bytes.

A payload larger than the whole byte bound is taken when nothing else is there: it waits alone, instead of
being refused for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from surepipe.core.payloads import NOTHING, Payloads, joined, sized
from surepipe.core.snapshot import stateful


@stateful
class Backlog:
    """Runs of payloads; the first run may have been taken from already, up to ``_offset``."""

    __slots__ = ("_offset", "_runs", "count", "count_max", "size_bytes", "size_max_bytes")

    def __init__(self, count_max: int, size_max_bytes: int) -> None:
        self.count_max = count_max
        self.size_max_bytes = size_max_bytes
        self.count = 0
        self.size_bytes = 0
        self._runs: deque[Payloads] = deque()
        self._offset = 0

    def __len__(self) -> int:
        return self.count

    def put(self, payloads: Sequence[bytes], start: int = 0) -> int:
        """Take as many of ``payloads[start:]`` as there is room for, and say how many."""
        end = min(start + max(self.count_max - self.count, 0), len(payloads))
        run = payloads if isinstance(payloads, Payloads) else sized(payloads)
        if end - start < len(run):
            run = run.part(start, end)
        room = self.size_max_bytes - self.size_bytes
        if run.size_bytes > room:
            run = run.within(room, at_least_one=not self.count)
        if run:
            self._runs.append(run)
            self.count += len(run)
            self.size_bytes += run.size_bytes
        return len(run)

    def _add(self, run: Payloads) -> None:
        self._runs.append(run)
        self.count += len(run)
        self.size_bytes += run.size_bytes

    def put_owed(self, payloads: Sequence[bytes]) -> int:
        """Take all of these, whatever the bounds say, and say how many they are."""
        if payloads:
            self._add(sized(payloads))
        return len(payloads)

    def take(self, count: int, size_bytes: int, *, at_least_one: bool) -> Payloads:
        """Remove and return the longest beginning within so many messages and bytes."""
        first = self._runs[0] if self._runs else NOTHING
        is_whole = not self._offset and len(first) <= count and first.size_bytes <= size_bytes
        if first and is_whole and (len(self._runs) == 1 or len(first) == count):
            self._runs.popleft()
            self.count -= len(first)
            self.size_bytes -= first.size_bytes
            return first
        run = self._peek(count)
        if run.size_bytes > size_bytes:
            run = run.within(size_bytes, at_least_one=at_least_one)
        self._drop(len(run))
        self.size_bytes -= run.size_bytes
        return run

    def contents(self) -> Payloads:
        return self._peek(self.count)

    def _peek(self, count: int) -> Payloads:
        parts: list[Payloads] = []
        offset = self._offset
        for run in self._runs:
            if count <= 0:
                break
            is_whole = not offset and len(run) <= count
            parts.append(run if is_whole else run.part(offset, offset + count))
            count -= len(parts[-1])
            offset = 0
        return joined(parts)

    def _drop(self, count: int) -> None:
        self.count -= count
        self._offset += count
        while self._runs and self._offset >= len(self._runs[0]):
            self._offset -= len(self._runs.popleft())
        if self._offset >= _COMPACT_AT:
            self._runs[0] = self._runs[0].part(self._offset, len(self._runs[0]))
            self._offset = 0


def prefix_within(
    payloads: Sequence[bytes], size_bytes: int, *, at_least_one: bool
) -> tuple[list[bytes], int]:
    """The longest beginning within so many bytes (or the first message alone), and its bytes."""
    taken = sized(payloads).within(size_bytes, at_least_one=at_least_one)
    return taken, taken.size_bytes


_COMPACT_AT = 4096
"""Payloads already taken that the first run may still refer to before it lets go of them."""
