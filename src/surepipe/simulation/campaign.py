"""Many seeds of one subject: what held, what was violated, and what was not exercised at all.

A campaign says *held* only when nothing was violated, no run met a limit, its canary was caught, and every mark
that it had to see was seen. The first seed that fails is kept as a script, which repeats it without the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from surepipe.simulation.canary import LOST_SEQ, Canary
from surepipe.simulation.causal import causal_scripts, plain_run
from surepipe.simulation.drawing import draw_options
from surepipe.simulation.faults import CATALOGUE, FaultKind, Mode, kind_of
from surepipe.simulation.findings import RunResult, Violation
from surepipe.simulation.hop import JudgeRows, judge_rows, play, replay, result_of, run_hop
from surepipe.simulation.marks import Exercised, exercised
from surepipe.simulation.options import DRAINS, Drain, Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.script import Script
from surepipe.simulation.seeded import SeededChooser
from surepipe.simulation.subjects import Subject
from surepipe.simulation.wanted import Wanted

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
    wanted = Wanted(promise)
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
