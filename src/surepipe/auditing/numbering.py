"""Which position each message has: pieces of the sent log, numbered in the order of acceptance.

Within an epoch numbers follow acceptance, and a later life has a higher epoch; so positions follow (epoch, seq).
What was renumbered keeps its position under its new identity. A submit whose outcome nobody knew has a position
if it came out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.pipes.ranges import RangeSet
from surepipe.simulation.properties.places import Positions
from surepipe.simulation.properties.settings import facts_of, number
from surepipe.simulation.trace import Kind, Row

SPANS_MAX = 4_096
"""With more pieces than this, messages are looked up one by one."""


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive messages at consecutive positions: (epoch, low) stands at ``base``."""

    channel: str
    number: int
    epoch: int
    low: int
    high: int
    base: int


@dataclass
class SentLog:
    """What was accepted, by channel and epoch."""

    accepted: dict[str, dict[int, RangeSet]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(RangeSet))
    )
    unknown: dict[str, dict[int, RangeSet]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(RangeSet))
    )
    moves: list[Row] = field(default_factory=list[Row])

    def take_breaks(
        self,
        breaks: Iterable[tuple[str, int, int, int | None]],
        ends: Mapping[tuple[str, int], int],
    ) -> None:
        """Pieces, from where each begins and where the one before it ended (None for the first of its epoch)."""
        open_at: dict[tuple[str, int], int] = {}
        for channel, epoch, low, before in breaks:
            if before is not None:
                self.accepted[channel][epoch].add(open_at[channel, epoch], before)
            open_at[channel, epoch] = low
        for (channel, epoch), low in open_at.items():
            self.accepted[channel][epoch].add(low, ends[channel, epoch])

    def take_facts(self, rows: Sequence[Row]) -> None:
        """Submits without a known outcome, and what was renumbered."""
        self.moves = [row for row in rows if row.kind == Kind.RENUMBERED and not row.layer]
        for row in rows:
            if row.kind == Kind.UNKNOWN and row.epoch:
                self.unknown[row.pipe][row.epoch].add(row.seq, row.last)
        for channel, epochs in self.unknown.items():
            for epoch, ranges in epochs.items():
                for low, high in list(self.accepted[channel][epoch]):
                    ranges.discard(low, high)

    def came_out_after_all(self, runs: Iterable[tuple[str, int, int, int]]) -> None:
        """These came out, and among them may be submits whose outcome was unknown."""
        for channel, epoch, low, high in runs:
            ranges = self.unknown[channel][epoch]
            for first, last in ranges.within(low, high):
                self.accepted[channel][epoch].add(first, last)
                ranges.discard(first, last)

    def open_submits(self, channel: str) -> int:
        """How many submits of a channel have no known outcome and did not come out."""
        return sum(ranges.count() for ranges in self.unknown.get(channel, {}).values())


@dataclass(frozen=True)
class Numbered:
    """All channels by number, how many messages each was sent, and the spans of all."""

    channels: tuple[str, ...]
    sent: tuple[int, ...]
    spans: tuple[Span, ...]

    def identity(self, channel: int, position: int) -> tuple[int, int]:
        """(epoch, seq) of the message at this position."""
        for span in self.spans:
            if span.number == channel and span.base <= position <= span.base + span.high - span.low:
                return span.epoch, span.low + position - span.base
        return 0, 0


def numbered(log: SentLog, came_out: Iterable[str] = ()) -> Numbered:
    """Positions for everything in the log; channels that only came out have a number, too."""
    channels = sorted({name for name, epochs in log.accepted.items() if epochs} | set(came_out))
    spans: list[Span] = []
    sent: list[int] = []
    for at, channel in enumerate(channels):
        moves = [row for row in log.moves if row.pipe == channel]
        positions, pieces = _positions(log.accepted[channel], moves)
        sent.append(positions.count)
        for epoch in sorted(pieces):
            for low, high in pieces[epoch]:
                spans += [
                    Span(channel, at, epoch, seq, seq + count - 1, position)
                    for seq, position, count in positions.find(epoch, low, high - low + 1)
                    if position
                ]
    return Numbered(tuple(channels), tuple(sent), tuple(spans))


def _positions(
    accepted: Mapping[int, RangeSet], moves: Sequence[Row]
) -> tuple[Positions, dict[int, RangeSet]]:
    """Messages go to higher epochs only, so what comes into an epoch has its positions when its turn comes."""
    pieces = defaultdict(RangeSet, {epoch: RangeSet(ranges) for epoch, ranges in accepted.items()})
    moved: dict[int, list[tuple[Row, int]]] = defaultdict(list)
    for row in moves:
        epoch, seq = _target(row)
        moved[epoch].append((row, seq))
        pieces[epoch].add(seq, seq + row.count - 1)
    positions = Positions()
    for epoch in sorted(pieces):
        for row, seq in moved[epoch]:
            positions.move(row.epoch, row.seq, row.count, epoch, seq)
        for low, high in accepted.get(epoch, ()):
            positions.add(epoch, low, high - low + 1)
    return positions, pieces


def _target(row: Row) -> tuple[int, int]:
    facts = facts_of(row)
    return number(facts.get("epoch")) or 0, number(facts.get("seq")) or 0
