"""What an audit in bulk says: per channel the four atoms, the numbers behind them, examples, and the sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.trace import Row
from surepipe.audit.trace_audit import (
    STANDINGS,
    Judged,
    MessageCounts,
    Standing,
    judged_per_key,
    told_together,
)
from surepipe.core.claims import Atom

WORDS: Mapping[str, str] = {
    "lost": "never came out",
    "repeated": "came out again",
    "late": "came out after a later message",
    "gap": "passed over",
}
BREAKS: Mapping[Atom, str] = {
    Atom.NO_LOSS: "lost",
    Atom.NO_DUPLICATE: "repeated",
    Atom.MONOTONIC: "late",
    Atom.GAP_FREE: "gap",
}
"""The examples that show how an atom failed."""


@dataclass(frozen=True, slots=True)
class Example:
    """Messages low..high of a channel, and what befell them; positions count from 1 in the order of acceptance."""

    what: str
    low: int
    high: int
    epoch: int
    seq: int
    """The identity of the first of them."""
    time_us: int = 0
    """Of a gap: when it was opened. 0: not told."""

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    def __str__(self) -> str:
        one = (
            f"#{self.low}"
            if self.low == self.high
            else f"#{self.low} to #{self.high} ({self.width})"
        )
        return f"{one} {WORDS[self.what]}; from epoch {self.epoch}, seq {self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFigures(MessageCounts):
    """What the logs of one channel say in sum. ``foreign``: came out and was never accepted, as far as is known;
    ``untold`` are those of which the sent log is known not to hold everything."""

    channel: str
    foreign: int
    outcomes: Mapping[Atom, PropertyOutcome]
    promised: frozenset[Atom]
    """The atoms that the channel is held to."""
    why: str = ""
    """Why something can't be told, or what else is known."""
    examples: tuple[Example, ...] = ()
    is_chosen: bool = False
    """Somebody has said what the channel is held to."""

    @property
    def badness(self) -> tuple[int, int, int, int]:
        """Orders channels from bad to worse: loss counts most, then foreign messages, repeats, disorder."""
        return (self.lost, self.foreign, self.repeated, self.out_of_order + self.passed_over)

    @property
    def violated(self) -> frozenset[Atom]:
        """The atoms that are known not to hold."""
        return frozenset(
            atom for atom, known in self.outcomes.items() if known is PropertyOutcome.VIOLATED
        )

    @property
    def is_broken(self) -> bool:
        """True when something that was promised does not hold."""
        return any(one.standing is Standing.BROKEN for one in self.judged())

    @property
    def is_held(self) -> bool:
        """True when everything that was promised is known to hold."""
        return all(one.standing is Standing.HELD for one in self.judged())

    def judged(self) -> Iterator[Judged]:
        """Every promise. That nothing comes out which was never accepted, is always one."""
        integrity = Standing.HELD
        why = self.why
        if self.foreign and not self.is_unreadable:
            integrity, why = Standing.BROKEN, f"{self.foreign} came out that were never accepted"
        elif self.untold or self.foreign or self.is_unreadable:
            integrity = Standing.UNJUDGED
        yield Judged(
            self.channel, "integrity", integrity, why if integrity is not Standing.HELD else ""
        )
        for atom in Atom:
            if atom in self.promised or (atom is Atom.NO_LOSS and self.is_open):
                standing = STANDINGS[self.outcomes[atom]]
                if standing is Standing.HELD and self._may_go_on:
                    standing = Standing.UNJUDGED
                cases = [str(case) for case in self.examples if case.what == BREAKS[atom]]
                if (
                    atom is Atom.MONOTONIC and not cases
                ):  # it was behind a later one that it came again
                    cases = [str(case) for case in self.examples if case.what == "repeated"]
                because = self.why if standing is Standing.UNJUDGED else "".join(cases[:1])
                yield Judged(
                    self.channel, str(atom), standing, "" if standing is Standing.HELD else because
                )

        if self.late_in_key is not None and not self.is_chosen:
            unknown = self.outcomes[Atom.MONOTONIC] is PropertyOutcome.UNDECIDED
            yield judged_per_key(self.channel, self.late_in_key, self.why if unknown else "")

    @property
    def broken_promises(self) -> frozenset[Atom]:
        """The atoms that are promised and don't hold."""
        return self.violated & self.promised

    @property
    def is_open(self) -> bool:
        """Whether the fate of some messages is still unknown, whatever is promised."""
        return self.waiting > 0 and not self.is_chosen

    @property
    def _may_go_on(self) -> bool:
        """Whether what is asked for may still break: what is to come may come twice, or late. Who asks for no loss
        too is told so there."""
        return self.is_chosen and self.outcomes[Atom.NO_LOSS] is PropertyOutcome.UNDECIDED

    @property
    def is_unreadable(self) -> bool:
        """Rows of it are missing: nothing can be told."""
        return all(known is PropertyOutcome.UNDECIDED for known in self.outcomes.values())


@dataclass(frozen=True, slots=True)
class AuditMoment:
    """Counts of a stretch of time: messages that came out, were passed over, or came out late or again."""

    since_us: int
    until_us: int
    came: int
    passed_over: int
    again: int


@dataclass(frozen=True)
class BulkAudit:
    """The verdict over all channels."""

    channels: tuple[ChannelFigures, ...]
    engine: str
    sent: str
    delivered: str
    broken: tuple[str, ...] = ()
    """Where rows of a trace are missing: then nothing can be told of messages."""
    torn: int = 0
    at_rest: bool = True
    """False: more may come, so what is missing is in flight."""
    moments: tuple[AuditMoment, ...] = field(default=())
    facts: tuple[Row, ...] = field(default=(), compare=False, repr=False)
    """The rows that speak of runs, nodes, sources and sinks."""

    def channel(self, name: str) -> ChannelFigures:
        return next(one for one in self.channels if one.channel == name)

    def total(self, name: str) -> int:
        numbers = [getattr(one, name) for one in self.channels]
        return max(numbers, default=0) if name == "widest" else sum(numbers)

    @property
    def is_broken(self) -> bool:
        """True when something promised is known not to hold."""
        return not self.broken and any(one.is_broken for one in self.channels)

    @property
    def is_held(self) -> bool:
        """True when there is something to judge, and everything promised is known to hold."""
        return not self.broken and bool(self.channels) and all(c.is_held for c in self.channels)

    def judged(self) -> Iterator[Judged]:
        for one in self.channels:
            yield from one.judged()

    def worst(self, most: int) -> list[ChannelFigures]:
        """The channels in which something that was promised went wrong, worst first."""
        wrong = [one for one in self.channels if one.is_broken]
        return sorted(wrong, key=lambda one: (*(-n for n in one.badness), one.channel))[:most]

    def lines(self, most: int = 20) -> Iterator[str]:
        """The verdict as text: the worst channels in full, then how many are as they should be."""
        yield from (f"broken trace: {text}" for text in self.broken)
        if self.torn:
            yield f"{self.torn} torn lines were left out: a process was killed while it wrote"
        worst = self.worst(most)
        for one in worst:
            yield from _lines(one)
        left = [one for one in self.channels if one not in worst]
        told = [*told_together((one.channel, (_in_short(one),)) for one in left)]
        room = max(0, most - len(worst))
        for _, texts in told[:room]:
            yield from texts
        if hidden := sum(count for count, _ in told[room:]):
            yield f"and {hidden} channels more"


def _in_short(one: ChannelFigures) -> str:
    again = f"; {one.repeated} came again: that they don't is not promised here"
    return f"{one.sum}{again if one.repeated else ''}" + (f" ({one.why})" if one.why else "")


def _lines(one: ChannelFigures) -> Iterator[str]:
    yield f"{one.channel}: {one.sum}"
    yield (
        f"  {one.repeated} repeated, {one.out_of_order} out of order, {one.gaps} gaps (widest {one.widest})"
    )
    if one.foreign:
        yield f"  integrity: broken: {one.foreign} came out that were never accepted"
    for atom in Atom:
        known = one.outcomes[atom]
        if atom not in one.promised and not (atom is Atom.NO_LOSS and one.is_open):
            yield f"  {atom}: not promised here"
            continue
        because = f", because {one.why}" if known is PropertyOutcome.UNDECIDED and one.why else ""
        yield f"  {atom}: {STANDINGS[known]}{because}"
        for case in one.examples:
            if case.what == BREAKS[atom] and known is PropertyOutcome.VIOLATED:
                yield f"    {case}"
    if one.why and PropertyOutcome.UNDECIDED not in one.outcomes.values():
        yield f"  {one.why}"
