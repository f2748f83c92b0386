"""What an ordered receiver keeps until its turn has come: hold, drain, settle.

``settled < in work < expected <= held``: everything up to ``settled`` has crossed the boundary, what follows up to
``expected - 1`` was handed up and is in work, and runs above ``expected`` wait for the hole below them to be
filled. Held and in work together never exceed the bounds, in messages (by span) and in bytes. The next expected
message always has room: when bytes are short, what is held furthest above gives way to it and must come again.

Per run received there is one chunk in a sorted list; no message has an object of its own. Draining is one loop
over the chunks that follow each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import ne

from surepipe.core.effects import Ranges
from surepipe.core.payloads import part_of, size_of
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.pipes.retry.flights import NEVER
from surepipe.pipes.retry.holes import Holes


@dataclass(slots=True)
class Offered:
    """What became of an offered run. The counts are of messages; ``ready`` is to be handed up now."""

    first: int = 0
    """The number of the first message in ``ready``."""
    ready: Sequence[bytes] = ()
    duplicate: int = 0
    """Settled before."""
    in_work: int = 0
    """Handed up before and not settled yet."""
    repeated: int = 0
    """Held before, with the same payload."""
    conflict: int = 0
    """Held before, with another payload; the first copy is kept."""
    kept: Ranges = ()
    """The parts that were new and are held or ready now."""
    over_limit: Ranges = ()
    """The parts for which there is no room; they must come again."""
    opened: bool = False
    """A new hole showed."""
    evicted: Ranges = ()
    """Held before, and given up to make room; they must come again."""
    is_plain: bool = False
    """All of it was expected, is ready, and nothing else happened."""


@stateful
class ReorderBuffer:
    """Runs of one epoch, put in order. ``expected`` is 0 until ``start_at``: then all is held.

    The caller hands up what ``offer`` and ``start_at`` return as ready, and says when it is settled (``settle``)
    or refused (``step_back``). ``holes`` knows what is missing and since when; a hole is due to be reported when
    ``nack_after`` later frames stand behind it or after ``nack_delay``.
    """

    __slots__ = (
        *("held_max", "held_max_bytes", "expected", "settled", "held", "holes"),
        *("_done", "_firsts", "_chunks", "_held_bytes", "_working", "_working_bytes"),
    )

    def __init__(
        self,
        held_max: int,
        held_max_bytes: int,
        expected: int = 0,
        *,
        nack_after: int = NEVER,
        nack_delay: int = NEVER,
    ) -> None:
        self.held_max = held_max
        self.held_max_bytes = held_max_bytes
        self.expected = expected
        self.settled = max(0, expected - 1)
        self.held = RangeSet()
        self.holes = Holes(self.settled + 1, nack_after, nack_delay)
        self._done = RangeSet()
        self._firsts: list[int] = []
        self._chunks: list[Sequence[bytes]] = []
        self._held_bytes = 0
        self._working: deque[tuple[int, int]] = deque()
        self._working_bytes = 0

    # Questions.

    @property
    def limit(self) -> int:
        """The highest number there is room for. It never falls."""
        if self.expected:
            return self.settled + self.held_max
        return (self._firsts[0] if self._firsts else 1) + self.held_max - 1

    @property
    def in_work(self) -> int:
        """Messages handed up and not settled."""
        return self.expected - 1 - self.settled - self._done.count() if self.expected else 0

    @property
    def held_count(self) -> int:
        """Messages received that wait for an earlier one."""
        return self.held.count()

    @property
    def size_bytes(self) -> int:
        """Payload bytes held and in work (a run in work counts whole until its last message is settled)."""
        return self._held_bytes + self._working_bytes

    @property
    def settled_above(self) -> RangeSet:
        """The settled messages above ``settled``, behind one that is still in work."""
        return self._done

    @property
    def missing(self) -> Ranges:
        """What was not received although something behind it was."""
        return tuple((hole.first, hole.last) for hole in self.holes.holes)

    @property
    def stuck_since(self) -> int | None:
        """When the hole at ``expected`` was first seen; None when nothing shows a hole."""
        return self.holes.holes[0].since if self.holes.holes else None

    # What comes in.

    def offer(self, first: int, payloads: Sequence[bytes], now: int) -> Offered:
        """Take what is new and has room, and return what may be handed up because of it."""
        last = first + len(payloads) - 1
        if first == self.expected and not self._firsts and last <= self.settled + self.held_max:
            size = size_of(payloads)
            if self._working_bytes + size <= self.held_max_bytes:
                self.holes.arrived(first, last, now)
                self.expected = last + 1
                self._working.append((last, size))
                self._working_bytes += size
                return Offered(first, payloads, kept=((first, last),), is_plain=True)
        return self._offer_parts(first, last, payloads, now)

    def _offer_parts(self, first: int, last: int, payloads: Sequence[bytes], now: int) -> Offered:
        offered = Offered()
        offered.duplicate = max(0, min(last, self.settled) - first + 1)
        offered.in_work = max(0, min(last, self.expected - 1) - max(first, self.settled + 1) + 1)
        start = max(first, self.expected)
        if start > last:
            return offered
        end = max(start - 1, min(last, self._limit_for(start)))
        fresh = self.held.missing(start, end)
        self._compare(offered, first, start, end, payloads)
        kept: list[tuple[int, int]] = []
        for part in fresh:
            ours = part_of(payloads, part[0] - first, part[1] - first + 1)
            if not self._keep(part, ours, offered, kept, now):
                break
        offered.kept = tuple(kept)
        room_end = kept[-1][1] if kept else start - 1
        offered.over_limit = self._left_out(fresh, room_end, end, last)
        if offered.over_limit and self.expected:
            self.holes.shown(min(offered.over_limit[0][0] - 1, self.limit), now)
        self._drain(offered)
        return offered

    def _limit_for(self, start: int) -> int:
        if self.expected:
            return self.limit
        # Nothing tells yet where this epoch starts: any span of the permitted length will do.
        if self.held.highest() - start >= self.held_max:
            return start - 1
        lowest = min(start, self._firsts[0]) if self._firsts else start
        return lowest + self.held_max - 1

    def _compare(
        self, offered: Offered, first: int, start: int, end: int, payloads: Sequence[bytes]
    ) -> None:
        for held_first, high in self.held.within(start, end):
            low = held_first
            at = bisect_right(self._firsts, low) - 1
            while low <= high:
                chunk_first, chunk = self._firsts[at], self._chunks[at]
                stop = min(high, chunk_first + len(chunk) - 1)
                ours = payloads[low - first : stop - first + 1]
                theirs = chunk[low - chunk_first : stop - chunk_first + 1]
                differing = sum(map(ne, ours, theirs))
                offered.conflict += differing
                offered.repeated += len(ours) - differing
                low, at = stop + 1, at + 1

    def _keep(
        self,
        part: tuple[int, int],
        payloads: Sequence[bytes],
        offered: Offered,
        kept: list[tuple[int, int]],
        now: int,
    ) -> bool:
        """Hold the part, or as much of its beginning as has room; True when it was all."""
        first, last = part
        size = size_of(payloads)
        if self.size_bytes + size > self.held_max_bytes:
            if first == self.expected:
                self._evict_for(first, size, offered, now)
            payloads = self._fitting(first, payloads)
            size = size_of(payloads)
        if payloads:
            end = first + len(payloads) - 1
            at = bisect_left(self._firsts, first)
            self._firsts.insert(at, first)
            self._chunks.insert(at, payloads)
            self._held_bytes += size
            self.held.add(first, end)
            if self.expected and self.holes.arrived(first, end, now):
                offered.opened = True
            kept.append((first, end))
            return end == last
        return False

    def _fitting(self, first: int, payloads: Sequence[bytes]) -> Sequence[bytes]:
        room = self.held_max_bytes - self.size_bytes
        count = bisect_right(list(accumulate(map(len, payloads))), room)
        if count == 0 and first == self.expected and not self.size_bytes:
            count = 1  # one message larger than the whole bound: it passes alone
        return payloads[:count]

    def _evict_for(self, first: int, size: int, offered: Offered, now: int) -> None:
        """Give up what is held furthest above ``first``, as far as bytes are short."""
        lowest_evicted = 0
        while self._firsts and self._firsts[-1] > first:
            if self.size_bytes + size <= self.held_max_bytes:
                break
            lowest_evicted = self._evict_last()
        if lowest_evicted:
            self._forget_from(lowest_evicted, offered, now)

    def _evict_last(self) -> int:
        self._held_bytes -= size_of(self._chunks.pop())
        return self._firsts.pop()

    def _forget_from(self, first: int, offered: Offered, now: int) -> None:
        offered.evicted = self.held.within(first, self.held.highest())
        for part in offered.evicted:
            self.held.discard(*part)
            if self.expected:
                self.holes.reopen(*part, now)

    def _left_out(self, fresh: Ranges, room_end: int, end: int, last: int) -> Ranges:
        left = [(max(a, room_end + 1), b) for a, b in fresh if b > room_end]
        if last > end:
            if left and left[-1][1] == end:
                left[-1] = (left[-1][0], last)
            else:
                left.append((end + 1, last))
        return tuple(left)

    # What goes up.

    def _drain(self, offered: Offered) -> None:
        if not self.expected or not self._firsts or self._firsts[0] != self.expected:
            return
        end = self.held.end_of_run(self.expected)
        stop = bisect_right(self._firsts, end)
        chunks = self._chunks[:stop]
        offered.first = self.expected
        if stop == 1:
            offered.ready = chunks[0]
        else:
            ready: list[bytes] = []
            for chunk in chunks:
                ready.extend(chunk)
            offered.ready = ready
        del self._firsts[:stop], self._chunks[:stop]
        self.held.discard_below(end + 1)
        size = size_of(offered.ready)
        self._held_bytes -= size
        self._hand_up(end, size)

    def _hand_up(self, last: int, size: int) -> None:
        self.expected = last + 1
        self._working.append((last, size))
        self._working_bytes += size

    def start_at(self, expected: int, now: int) -> Offered:
        """Everything below ``expected`` is settled elsewhere: go on from there. Never goes back.

        Held messages below it are forgotten as settled; ``evicted`` names those that are too far above.
        """
        offered = Offered()
        if expected <= self.expected:
            return offered
        was_started, self.expected = bool(self.expected), expected
        self._settle_through(max(self.settled, expected - 1))
        self._drop_held_below(expected)
        self.holes.raise_base(expected)
        if not was_started:
            for part in self.held:
                self.holes.arrived(*part, now)
        self._evict_above_limit(offered, now)
        self._drain(offered)
        return offered

    def _drop_held_below(self, bound: int) -> None:
        while self._firsts and self._firsts[0] < bound:
            first, chunk = self._firsts[0], self._chunks[0]
            if first + len(chunk) <= bound:
                self._held_bytes -= size_of(chunk)
                del self._firsts[0], self._chunks[0]
            else:
                self._held_bytes -= sum(map(len, chunk[: bound - first]))
                self._firsts[0], self._chunks[0] = bound, chunk[bound - first :]
        self.held.discard_below(bound)

    def _evict_above_limit(self, offered: Offered, now: int) -> None:
        highest = self.held.highest()
        lowest_evicted = highest + 1
        while self._firsts and self._firsts[-1] + len(self._chunks[-1]) - 1 > self.limit:
            lowest_evicted = self._evict_last()
        if lowest_evicted <= highest:
            self._forget_from(lowest_evicted, offered, now)

    # What comes back.

    def settle(self, first: int, last: int) -> None:
        """These messages in work have crossed the boundary."""
        first, last = max(first, self.settled + 1), min(last, self.expected - 1)
        if first > last:
            return
        if first > self.settled + 1:
            self._done.add(first, last)
            return
        self._settle_through(last)

    def _settle_through(self, last: int) -> None:
        if self._done:
            last = max(last, self._done.end_of_run(last + 1))
            self._done.discard_below(last + 1)
        self.settled = last
        while self._working and self._working[0][0] <= last:
            self._working_bytes -= self._working.popleft()[1]

    def step_back(self, first: int, now: int) -> None:
        """What is in work from ``first`` on was refused: it is expected again, as if never received."""
        if not self.settled < first < self.expected:
            return
        self.holes.reopen(first, self.expected - 1, now)
        self._done.discard(first, self.expected - 1)
        self.expected = first
        left: tuple[int, int] | None = None
        while self._working and self._working[-1][0] >= first:
            left = self._working.pop()
            self._working_bytes -= left[1]
        before = self._working[-1][0] if self._working else self.settled
        if left and before < first - 1:
            self._working.append((first - 1, left[1]))
            self._working_bytes += left[1]

    def drop_held(self) -> int:
        """Forget what is held; return how many messages that were. What is in work stays."""
        dropped = self.held.count()
        self.held = RangeSet()
        self._firsts.clear()
        self._chunks.clear()
        self._held_bytes = 0
        self.holes.forget_from(max(1, self.expected))
        return dropped
