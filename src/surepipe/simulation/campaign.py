"""Many seeds of one subject: what held, what was violated, and what was not exercised at all.

A campaign says *held* only when nothing was violated, no run met a limit, its canary was caught, and every mark
that it had to see was seen. The first seed that fails is kept as a script, which repeats it without the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from surepipe.simulation.canary import LOST_SEQ, Canary
from surepipe.simulation.drawing import draw_options
from surepipe.simulation.faults import CATALOGUE, FaultKind, Mode
from surepipe.simulation.findings import RunResult, Violation
from surepipe.simulation.hop import JudgeRows, judge_rows, play, result_of, run_hop
from surepipe.simulation.marks import DRAINED, STRUCK, Exercised, exercised
from surepipe.simulation.options import Drain, Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.script import Decision, Script
from surepipe.simulation.seeded import SeededChooser
from surepipe.simulation.subjects import Subject

PAIRS_WANTED_PERCENT = 95
"""Of all pairs of faults that were switched on together, so many must have struck in one run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first run that violated a property."""

    seed: int
    violation: Violation
    script: Script


@dataclass
class CampaignResult:
    """What a campaign found. ``missing`` are the marks it had to see and did not."""

    subject: str
    mode: str
    runs: int = 0
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
        lines += [f"  {one.violation} (seed {one.seed})" for one in self.failures.values()]
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
) -> CampaignResult:
    """Run each seed and judge it.

    ``required`` are the marks that must have been seen; by default all four drains, each kind of fault that the
    options of these seeds switched on, and nearly all pairs of them. ``each`` is told every result.
    """
    promise = promise_of(subject)
    found = CampaignResult(subject.name, str(mode))
    found.canary_caught = judge is not None and catches_canary(judge)
    switched: set[str] = set()
    together: set[tuple[str, str]] = set()
    for seed in seeds:
        options = draw_options(seed, promise, mode=mode, kinds=kinds, messages=messages, base=base)
        world = play(subject, options, SeededChooser(options))
        result = result_of(world, judge)
        on = _switched(options)
        switched |= on
        together |= set(combinations(sorted(on), 2))
        _take(found, seed, options, result)
        if each is not None:
            each(seed, result)
        if stop_at_first and found.violated:
            break
    wanted = {*DRAINED.values(), *(STRUCK[id_] for id_ in switched)}
    chosen = wanted if required is None else set(required)
    unmet = _missing_pairs(found, together) if required is None else ()
    found.missing = (*sorted(chosen - found.marks.keys()), *unmet)
    return found


def _switched(options: Options) -> set[str]:
    return {kind.id for kind in CATALOGUE if kind.is_on(options) and kind.ranges}


def _take(found: CampaignResult, seed: int, options: Options, result: RunResult) -> None:
    found.runs += 1
    found.events += result.events
    found.digests.append(result.digest)
    if result.limit:
        found.limits[result.limit] += 1
    seen = _exercised(options, result)
    found.marks.update(seen.marks | result.marks)
    found.pairs |= seen.pairs()
    for violation in result.violations:
        found.violated[violation.property] += 1
        found.failures.setdefault(violation.property, Failure(seed, violation, result.script))


def _exercised(options: Options, result: RunResult) -> Exercised:
    faults = {kind_of(decision) for decision in result.script.decisions if decision.fault}
    faults |= {kind for kind, many in (("F22", options.flood), ("F24", options.too_large)) if many}
    return exercised(result.rows, faults, Drain(options.drain).value)


def kind_of(decision: Decision) -> str:
    """The kind of the catalogue that a decision is; of zombies there are two."""
    if decision.verb != "zombie":
        return decision.fault
    return "F28s" if decision.authority == "faults/sender" else "F28r"


def _missing_pairs(found: CampaignResult, possible: set[tuple[str, str]]) -> tuple[str, ...]:
    """Too few pairs of faults in one run: which of them never met."""
    unseen = sorted(possible - found.pairs)
    if len(unseen) * 100 <= len(possible) * (100 - PAIRS_WANTED_PERCENT):
        return ()
    return tuple(f"{first} with {second}" for first, second in unseen)


def catches_canary(judge: JudgeRows) -> bool:
    """Whether the judge notices a pipe that loses a message in silence."""
    result = run_hop(Canary(), Options(messages=2 * LOST_SEQ), judge=judge)
    return result.violates("P2") is not None
