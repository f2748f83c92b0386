"""When a run kept its promises: the one implementation that tests, simulator and audit judge with.

Accepted messages are numbered 1, 2, 3 ... in the order of acceptance, over all lives of a sender: a message's
*position*. A trace is the positions in the order in which the receiving side settled them. A position is
found by identity (epoch, seq), never by payload.

``OrderJudge`` reads a trace in one pass with a handful of integers. ``Judge`` sits above it and takes what
hosts record: accepted, settled, confirmed; it keeps a digest for each message and ranges of what is settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from surepipe.core.claims import Atom
from surepipe.core.ranges import RangeSet


class JudgedProperty(StrEnum):
    """A property that is judged: one of the four atoms, or a rule that must hold under every fault."""

    NO_LOSS = Atom.NO_LOSS.value
    NO_DUPLICATE = Atom.NO_DUPLICATE.value
    MONOTONIC = Atom.MONOTONIC.value
    GAP_FREE = Atom.GAP_FREE.value
    INTEGRITY = "integrity"
    CONFIRM_SOUND = "confirm-sound"
    ALL_CONFIRMED = "all-confirmed"


class PropertyOutcome(StrEnum):
    """What is known of a property."""

    HELD = "held"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class PredicateViolation:
    """The first place where a property failed.

    ``place`` counts the settled messages from 1 (for confirm-sound and at the end: how many there were by
    then); ``position`` is the message concerned, 0 when it was never accepted.
    """

    broken: JudgedProperty
    place: int
    position: int
    detail: str = ""

    def __str__(self) -> str:
        text = f"{self.broken} violated at place {self.place}, position {self.position}"
        return f"{text}: {self.detail}" if self.detail else text


@dataclass(frozen=True, slots=True)
class PipeVerdict:
    """What is known of each property, and the first violation of each, earliest first."""

    outcomes: Mapping[JudgedProperty, PropertyOutcome]
    violations: tuple[PredicateViolation, ...] = ()

    @property
    def first(self) -> PredicateViolation | None:
        return self.violations[0] if self.violations else None

    def of(self, atom: Atom | JudgedProperty) -> PropertyOutcome:
        """What is known of one property."""
        return self.outcomes[JudgedProperty(atom.value)]

    def held(self, *atoms: Atom | JudgedProperty) -> bool:
        """True when each of these is known to hold."""
        return all(self.of(atom) is PropertyOutcome.HELD for atom in atoms)

    def where(self, atom: Atom | JudgedProperty) -> PredicateViolation | None:
        """The first violation of one property."""
        return next((v for v in self.violations if v.broken == atom.value), None)


class OrderJudge:
    """Monotonic, gap-free and no-duplicate of a trace, in one pass and constant memory.

    While the trace was gap-free everything up to its highest position has occurred, and while it was
    monotonic a repeat can only be of the highest one. After both have failed a repeat can't be told from a
    late first arrival: no-duplicate is then undecided, unless the caller knows (``repeated``).
    """

    def __init__(self) -> None:
        self.count = 0
        self.highest = 0
        self.violations: dict[JudgedProperty, PredicateViolation] = {}
        self._unsure = False

    def step(self, position: int, *, repeated: bool | None = None) -> None:
        """The next settled position; ``repeated`` tells whether it occurred before, where that is known."""
        self.count += 1
        if repeated is None:
            repeated = self._is_repeat(position)
        if position < self.highest:
            self._fail(JudgedProperty.MONOTONIC, position)
        if position > self.highest + 1:
            self._fail(JudgedProperty.GAP_FREE, position)
        if repeated:
            self._fail(JudgedProperty.NO_DUPLICATE, position)
        self.highest = max(self.highest, position)

    def run(self, first: int, last: int) -> None:
        """The same for first..last in a row, at once when all of them are new."""
        if first == self.highest + 1:
            self.count += last - self.highest
            self.highest = last
            return
        if first > self.highest:
            self.step(first)
            self.count += last - first
            self.highest = last
            return
        for position in range(first, last + 1):
            self.step(position)

    def outcome(self, broken: JudgedProperty) -> PropertyOutcome:
        """What is known of monotonic, gap-free or no-duplicate so far."""
        if broken in self.violations:
            return PropertyOutcome.VIOLATED
        if broken is JudgedProperty.NO_DUPLICATE and self._unsure:
            return PropertyOutcome.UNDECIDED
        return PropertyOutcome.HELD

    def _is_repeat(self, position: int) -> bool:
        if position >= self.highest:
            return position == self.highest
        if JudgedProperty.GAP_FREE not in self.violations:
            return True
        self._unsure = True
        return False

    def _fail(self, broken: JudgedProperty, position: int) -> None:
        self.violations.setdefault(broken, PredicateViolation(broken, self.count, position))


ORDER_PROPERTIES = (JudgedProperty.NO_DUPLICATE, JudgedProperty.MONOTONIC, JudgedProperty.GAP_FREE)


def judge_trace(trace: Iterable[int], accepted: int | None = None) -> PipeVerdict:
    """Judge a whole trace of positions; with ``accepted`` also whether all of 1..accepted occurred."""
    judge, seen = OrderJudge(), RangeSet()
    for position in trace:
        judge.step(position, repeated=position in seen)
        seen.add(position, position)
    outcomes = {broken: judge.outcome(broken) for broken in ORDER_PROPERTIES}
    violations = dict(judge.violations)
    if accepted is not None:
        _judge_loss(seen, accepted, judge.count, outcomes, violations)
    return _verdict(outcomes, violations)


def payload_digest(payload: bytes) -> str:
    """16 hexadecimal digits that stand for a payload in a trace."""
    return blake2b(payload, digest_size=8).hexdigest()


def _judge_loss(
    seen: RangeSet,
    accepted: int,
    count: int,
    outcomes: dict[JudgedProperty, PropertyOutcome],
    violations: dict[JudgedProperty, PredicateViolation],
) -> None:
    missing = seen.missing(1, accepted)
    outcomes[JudgedProperty.NO_LOSS] = PropertyOutcome.VIOLATED if missing else PropertyOutcome.HELD
    if missing:
        violations[JudgedProperty.NO_LOSS] = PredicateViolation(
            JudgedProperty.NO_LOSS, count, missing[0][0], f"never settled: {missing}"
        )


def _verdict(
    outcomes: Mapping[JudgedProperty, PropertyOutcome],
    violations: Mapping[JudgedProperty, PredicateViolation],
) -> PipeVerdict:
    return PipeVerdict(outcomes, tuple(sorted(violations.values(), key=lambda v: v.place)))
