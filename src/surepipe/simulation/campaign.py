"""Runs many seeds of one subject, and says what held, what was violated, and what was not exercised at all.

A campaign says *held* only when nothing was violated, no run met a limit, its canary was caught, and every mark
that it had to see was seen. The first seed that fails is kept as a script, which repeats it without the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from surepipe.audit.findings import Violation
from surepipe.core.effects import Cause, Deliver, Effect, JournalContents, Ranges
from surepipe.core.machine import Randomness, ReceiverMachine, SenderMachine
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.simulation.causal import causal_scripts, plain_run
from surepipe.simulation.chance.script import Script
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.exercised import (
    CONFIRM_LOST,
    CRASH_AFTER,
    CRASH_SETTLED,
    CROSSED,
    DEAD_LETTER,
    DRAINED,
    HELD,
    LATE_COPY,
    MATTERED,
    REJECTED_FULL,
    ROLLED_BACK,
    STRUCK,
    ZOMBIE,
    Exercised,
    exercised,
)
from surepipe.simulation.faults import BY_ID, CATALOGUE, FaultKind, Mode, draw_options, kind_of
from surepipe.simulation.hop import play, replay, run_hop
from surepipe.simulation.options import DRAINS, Drain, Options
from surepipe.simulation.promises import Promise, promise_of
from surepipe.simulation.results import RunResult
from surepipe.simulation.subjects import HopSubject, Subject
from surepipe.simulation.world import JudgeRows, judge_rows, result_of

# The canary: a pipe that loses message 7 in silence. A campaign in which nobody notices has judged nothing.


LOST_SEQ = 7


class Losing:
    """A receiver that says *settled* for one message and hands it to nobody."""

    def __init__(self, receiver: ReceiverMachine) -> None:
        self.receiver = receiver

    def wake(self, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.wake(now), now)

    def frame(self, frame: object, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.frame(frame, now), now)

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.answer(ticket, outcome, now), now)

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.settled(ticket, ranges, now), now)

    def failed(
        self, ticket: int, seq: int, error: Cause, now: int, *, final: bool = False
    ) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.failed(ticket, seq, error, now, final=final), now)

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """As the machine inside, without the message."""
        return self._without(self.receiver.refused(ticket, ranges, now), now)

    def close(self, now: int) -> list[Effect]:
        """As the machine inside."""
        return self.receiver.close(now)

    def state_after(self, ticket: int, through: int) -> bytes:
        """As the machine inside."""
        return self.receiver.state_after(ticket, through)

    def counters(self) -> Mapping[str, int]:
        """As the machine inside."""
        return self.receiver.counters()

    def gauges(self) -> Mapping[str, int]:
        """As the machine inside."""
        return self.receiver.gauges()

    def export(self) -> object:
        """As the machine inside."""
        return self.receiver.export()

    def _without(self, effects: list[Effect], now: int) -> list[Effect]:
        kept: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Deliver) and effect.first == LOST_SEQ:
                ranges: Ranges = ((LOST_SEQ, LOST_SEQ),)
                kept += self._without(self.receiver.settled(effect.ticket, ranges, now), now)
            else:
                kept.append(effect)
        return kept


@dataclass(frozen=True)
class Canary:
    """A hop of ``reliable`` that loses a message, and promises what ``reliable`` promises."""

    name: str = "canary"
    pipe: str = "pipe"
    boundary: Boundary = Boundary.PROCESSED
    journaled: bool = False
    durable: bool = False

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None
    ) -> SenderMachine:
        """An honest sender."""
        return _HONEST.sender(life_hint=life_hint, rng=rng, journal=journal)

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverMachine:
        """A receiver that loses one message."""
        return Losing(_HONEST.receiver(life=life, rng=rng, state=state))

    def promise(self) -> Promise:
        """The promise of the pipe that it imitates."""
        return promise_of(_HONEST)


_HONEST = HopSubject("reliable", options=BoundaryOptions(deliver_max=1))


# What a campaign must have exercised, by what the options of its seeds switched on.


PAIRS_WANTED_PERCENT = 95
"""Of all pairs of faults that were switched on together, so many must have struck in one run."""

LEADS_TO: Mapping[str, tuple[str, ...]] = {
    "F1": (HELD,),
    "F2": (CONFIRM_LOST, CROSSED),
    "F3": (LATE_COPY,),
    "F8": CRASH_AFTER,
    "F10": (CRASH_SETTLED,),
    "F17": (ROLLED_BACK,),
    "F20": (DEAD_LETTER,),
    "F22": (REJECTED_FULL,),
    "F28s": (ZOMBIE,),
    "F28r": (ZOMBIE,),
}
"""What must have come of a kind of fault that was switched on, beyond that something depended on it."""

_OF_FRAMES = frozenset({"F1", "F2", "F3", "F4", "F5", "F6", "F25", "F27"})
_OF_CONTROL = frozenset({"F2", "F27"})
_UNNOTICED = frozenset({"F3"})
"""What a receiver that answers nothing drops without a word."""


class WantedFaults:
    """Collects what the options of a campaign's seeds make possible."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.switched: set[str] = set()
        self.together: set[tuple[str, str]] = set()
        self.offered = 0

    def see(self, options: Options) -> None:
        """The options of one more seed."""
        on = sorted(
            kind.id for kind in CATALOGUE if kind.is_on(options) and self._can_strike(kind.id)
        )
        self.switched.update(on)
        self.together.update(combinations(on, 2))
        self.offered = max(self.offered, options.messages + options.flood)

    def _can_strike(self, id_: str) -> bool:
        """Frames are there only without a stream, and control frames where a sender is answered."""
        kind, has_stream = BY_ID[id_], "stream" in self.promise.stores
        if not kind.ranges or id_ == "F17":
            return bool(kind.ranges) and has_stream
        if id_ in _OF_CONTROL and not self.promise.confirms:
            return False
        return not (has_stream and id_ in _OF_FRAMES)

    def marks(self) -> frozenset[str]:
        """All that must have been seen."""
        named = {STRUCK[id_] for id_ in self.switched}
        named |= {MATTERED[id_] for id_ in self.switched if self._can_matter(id_)}
        named |= {
            mark
            for id_ in self.switched
            for mark in LEADS_TO.get(id_, ())
            if self._can_matter(id_) and self._fits(mark)
        }
        return frozenset(named | set(DRAINED.values()))

    def _can_matter(self, id_: str) -> bool:
        if id_ in _UNNOTICED and not self.promise.confirms:
            return False
        return id_ != "F22" or self.promise.bounds.get("backlog", 1 << 30) < self.offered

    def _fits(self, mark: str) -> bool:
        """Whether this pipe can come into the situation at all."""
        if mark in (CONFIRM_LOST, CROSSED, CRASH_SETTLED):
            return self.promise.confirms and "stream" not in self.promise.stores
        if mark == HELD and self.promise.window < 3:
            return False
        if mark == DEAD_LETTER:
            return self.promise.retries is not None
        return mark not in (LATE_COPY, HELD) or self.promise.confirms

    def missing(self, seen: Collection[str], pairs: Collection[tuple[str, str]]) -> tuple[str, ...]:
        """The marks that never fired, and, where too few pairs of faults have met, those that did not."""
        unseen = sorted(self.together - set(pairs))
        if len(unseen) * 100 <= len(self.together) * (100 - PAIRS_WANTED_PERCENT):
            unseen = []
        unmet = tuple(f"{first} with {second}" for first, second in unseen)
        return (*sorted(self.marks() - set(seen)), *unmet)


DRAINED_ALL_WAYS = 8
"""One seed in so many is drained all four ways, the others by lot."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first run that violated a property. A negative seed: the how-many-th causal script."""

    seed: int
    violation: Violation
    script: Script

    @property
    def origin(self) -> str:
        """What it came from, in words."""
        return f"seed {self.seed}" if self.seed >= 0 else f"causal script {-self.seed}"


@dataclass
class CampaignResult:
    """What a campaign found. ``missing`` are the marks it had to see and did not."""

    subject: str
    mode: str
    runs: int = 0
    causal_runs: int = 0
    """scripts against what one delivery depends on, before any seed"""
    events: int = 0
    limits: Counter[str] = field(default_factory=Counter[str])
    violated: Counter[str] = field(default_factory=Counter[str])
    failures: dict[str, Failure] = field(default_factory=dict[str, Failure])
    marks: Counter[str] = field(default_factory=Counter[str])
    pairs: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    digests: list[str] = field(default_factory=list[str])
    missing: tuple[str, ...] = ()
    canary_caught: bool = False

    @property
    def verdict(self) -> str:
        """``violated``, ``not exercised``, or ``held``."""
        if self.violated or self.limits:
            return "violated"
        return "not exercised" if self.missing or not self.canary_caught else "held"

    @property
    def first(self) -> Failure | None:
        """The failure with the lowest seed."""
        return min(self.failures.values(), key=lambda failure: failure.seed, default=None)

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.verdict} in {self.runs} runs ({self.mode})"]
        lines += [f"  {one.violation} ({one.origin})" for one in self.failures.values()]
        lines += [f"  {count} runs met the limit {limit}" for limit, count in self.limits.items()]
        if self.missing:
            lines.append(f"  not exercised: {', '.join(self.missing)}")
        if not self.canary_caught:
            lines.append("  the canary was not caught")
        return "\n".join(lines)


def campaign(
    subject: Subject,
    seeds: Iterable[int],
    *,
    mode: str = Mode.CLAIM,
    kinds: Sequence[FaultKind] = (),
    messages: int = 40,
    base: Options | None = None,
    judge: JudgeRows | None = judge_rows,
    required: Collection[str] | None = None,
    stop_at_first: bool = False,
    each: Callable[[int, RunResult], None] | None = None,
    causal: bool = True,
) -> CampaignResult:
    """Run each seed and judge it.

    Before the seeds come the scripts against what one delivery depends on (``causal``; not in mode ``none``). One
    seed in ``DRAINED_ALL_WAYS`` is run once for each of the four drains, which are equal up to the end of chaos;
    the others are drained by lot. ``required`` are the marks that must have been seen; by default all four drains,
    each kind of fault that the options of these seeds switched on, that something depended on it, what it has to
    lead to, and nearly all pairs of kinds. ``each`` is told the result of every seed.
    """
    promise = promise_of(subject)
    found = CampaignResult(subject.name, str(mode))
    found.canary_caught = judge is not None and catches_canary(judge)
    if causal and mode != Mode.NONE:
        _run_causal(found, subject, kinds, judge)
    wanted = WantedFaults(promise)
    for seed in seeds:
        if stop_at_first and found.violated:
            break
        options = draw_options(seed, promise, mode=mode, kinds=kinds, messages=messages, base=base)
        wanted.see(options)
        result = result_of(play(subject, options, SeededChooser(options)), judge)
        _take(found, seed, options, result)
        if each is not None:
            each(seed, result)
        if seed % DRAINED_ALL_WAYS == 0:
            for drain in DRAINS:
                if drain != options.drain:
                    other = replace(options, drain=drain)
                    _take(found, seed, other, run_hop(subject, other, judge=judge))
    if required is None:
        found.missing = wanted.missing(found.marks.keys(), found.pairs)
    else:
        found.missing = tuple(sorted(set(required) - found.marks.keys()))
    return found


def _run_causal(
    found: CampaignResult, subject: Subject, kinds: Sequence[FaultKind], judge: JudgeRows | None
) -> None:
    """The judge holds each script to what is claimed under its faults, so they may be of any kind."""
    allowed = {kind.id for kind in kinds or CATALOGUE}
    for number, script in enumerate(causal_scripts(plain_run(subject)), 1):
        if all(decision.fault in allowed for decision in script.decisions):
            found.causal_runs += 1
            _note_failures(found, -number, replay(subject, script, judge=judge))


def _take(found: CampaignResult, seed: int, options: Options, result: RunResult) -> None:
    found.runs += 1
    found.events += result.events
    found.digests.append(result.digest)
    if result.limit:
        found.limits[result.limit] += 1
    seen = _exercised(options, result)
    found.marks.update(seen.marks | result.marks)
    found.pairs |= seen.pairs()
    _note_failures(found, seed, result)


def _note_failures(found: CampaignResult, seed: int, result: RunResult) -> None:
    for violation in result.violations:
        found.violated[violation.property] += 1
        found.failures.setdefault(violation.property, Failure(seed, violation, result.script))


def _exercised(options: Options, result: RunResult) -> Exercised:
    faults = {kind_of(decision) for decision in result.script.decisions if decision.fault}
    faults |= {kind for kind, many in (("F22", options.flood), ("F24", options.too_large)) if many}
    return exercised(result.rows, faults, Drain(options.drain).value, result.script.decisions)


def catches_canary(judge: JudgeRows) -> bool:
    """Whether the judge notices a pipe that loses a message in silence."""
    result = run_hop(Canary(), Options(messages=2 * LOST_SEQ), judge=judge)
    return result.violates("P2") is not None
