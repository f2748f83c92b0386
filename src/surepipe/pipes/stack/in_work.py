"""What a receiver has handed up and has no answer for, of one epoch.

Kept as ranges, with the carrier's messages that wait for them: a carrier message is answered
*settled* when nothing of its run is in work any more, and *refused* when part of it was refused.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from surepipe.core.effects import Ranges
from surepipe.core.payloads import size_of
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.pipes.stack.layers import Token
from surepipe.pipes.stack.tokens import WaitingTokens


@stateful
class Repeats:
    """Messages handed up once more although they had been before: how many answers that makes."""

    __slots__ = ("count", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0

    def add(self, payloads: Sequence[bytes]) -> None:
        """These were handed up again."""
        self.count += len(payloads)
        self.size_bytes += size_of(payloads)

    def answered(self, count: int) -> None:
        """So many answers came in that belong to no message handed up for the first time."""
        self.count = max(0, self.count - count)
        if not self.count:
            self.size_bytes = 0


@stateful
class InWork:
    """The messages in work, their bytes, and who waits for them."""

    __slots__ = ("_run_bytes", "_runs", "ranges", "repeats", "tokens")

    def __init__(self, tokens: WaitingTokens | None = None) -> None:
        self.ranges = RangeSet()
        self.repeats = Repeats()
        self.tokens = tokens or WaitingTokens()
        self._runs: list[tuple[int, int, int]] = []
        self._run_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.ranges) or self.repeats.count > 0

    @property
    def count(self) -> int:
        """Answers that are due."""
        return self.ranges.count() + self.repeats.count

    @property
    def size_bytes(self) -> int:
        return self._run_bytes + self.repeats.size_bytes

    def add(self, first: int, last: int, size_bytes: int) -> None:
        """These messages, none of them in work, were handed up."""
        self.ranges.add(first, last)
        insort(self._runs, (first, last, size_bytes))
        self._run_bytes += size_bytes

    def answer_for(self, first: int, last: int, token: Token) -> bool:
        """Let the token wait for its run; False when nothing of the run is in work."""
        is_waiting = bool(self.ranges.within(first, last))
        if is_waiting:
            self.tokens.add(first, last, token)
        return is_waiting

    def settle(self, first: int, last: int) -> list[Token]:
        """The layer above settled these: the tokens that waited for nothing else."""
        self._answered(first, last)
        if not self.ranges:
            return self.tokens.pop_all()
        lowest = self.ranges.lowest(1)[0][0]
        freed = self.tokens.pop_through(lowest - 1)
        if last > lowest:
            freed += self.tokens.pop_outside(self.ranges)
        return freed

    def refuse(self, first: int, last: int) -> list[Token]:
        """These will not be kept: the tokens that waited for any of them."""
        self._answered(first, last)
        return self.tokens.pop_overlapping(first, last)

    def _answered(self, first: int, last: int) -> None:
        known = count_of(self.ranges.within(first, last))
        self.ranges.discard(first, last)
        self.repeats.answered(last - first + 1 - known)
        if known:
            self._forget_runs(first, last)

    def _forget_runs(self, first: int, last: int) -> None:
        """The bytes of a run are in work until its last message is answered."""
        start = max(0, bisect_left(self._runs, (first,)) - 1)
        end = bisect_left(self._runs, (last + 1,))
        touched = self._runs[start:end]
        kept = [run for run in touched if self.ranges.within(run[0], run[1])]
        self._run_bytes -= sum(run[2] for run in touched) - sum(run[2] for run in kept)
        self._runs[start:end] = kept


def count_of(ranges: Ranges) -> int:
    """How many numbers the ranges hold."""
    return sum(last - first + 1 for first, last in ranges)
