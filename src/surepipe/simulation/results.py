"""The result of a run, and the means to run its script again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from surepipe.audit.findings import Violation
from surepipe.audit.trace import Row
from surepipe.simulation.chance.script import Script


@dataclass(frozen=True, slots=True)
class RunResult:
    """One finished run.

    ``script`` holds exactly the decisions that took effect, so it repeats this run. ``stale`` is the first
    decision of the given script that found nothing to act on, None when each did. ``limit`` names the limit
    that ended the run, empty when it became quiescent. ``events`` is how many events the world took.
    ``asked`` holds the names of the events in the order in which they were taken, as far as they are known:
    where else a crash could have been decided.
    """

    script: Script
    rows: Sequence[Row]
    violations: tuple[Violation, ...]
    digest: str
    events: int
    marks: frozenset[str] = frozenset()
    stale: str | None = None
    limit: str = ""
    asked: tuple[str, ...] = ()

    def violates(self, property_id: str) -> Violation | None:
        """The first violation of this property."""
        return next((v for v in self.violations if v.property == property_id), None)


class Replayer(Protocol):
    """Runs a script; what the shrinker, the report and ``--replay`` are given."""

    def __call__(self, script: Script, /) -> RunResult:
        """Repeat the run that the script tells of."""
        ...


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A violation that is ready to be shown to people.

    ``guarantee`` is the derived claim in words, ``covered`` whether it tolerates every fault used, ``advice``
    what ``check`` says to add (empty: nothing), ``replay`` the command that repeats it. ``nearest`` is the
    shrunk script with one decision fewer, which holds.
    """

    title: str
    violation: Violation
    result: RunResult
    decisions_before: int
    guarantee: str
    covered: bool
    advice: str
    replay: str
    nearest: RunResult | None = None
    without: str = ""
    message: str = ""
    """the message that it is about, as text"""
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """of each stage: the file and line of its function"""
    usual: Mapping[tuple[str, int, int], Mapping[tuple[str, str], str]] = field(
        default_factory=dict[tuple[str, int, int], Mapping[tuple[str, str], str]]
    )
    """of this message, and of those that come of the same one of a source, by pipe, epoch and number: what each
    stage answers for which piece of it when nothing goes wrong"""
    usual_of_all: Mapping[tuple[str, int, int], Mapping[tuple[str, str], str]] = field(
        default_factory=dict[tuple[str, int, int], Mapping[tuple[str, str], str]]
    )
    """the same of all messages"""
    varying: frozenset[str] = frozenset()
    """stages that answer otherwise in each run, even when nothing goes wrong"""
    raised_anyway: frozenset[int] = frozenset()
    """steps at which a stage raises what it raises for that message when nothing goes wrong, too"""
