"""What a judge says of a run: which property was broken, by which message, at which step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from surepipe.simulation.script import Script
from surepipe.simulation.trace import Row


@dataclass(frozen=True, slots=True)
class Violation:
    """One property, broken. ``position`` is the message by its place among all accepted ones of its pipe, 0 for
    none.

    ``step`` is the row at which the property is first false; at the end of a run the row ``end``.
    ``sentence`` says it to a person, with the message's number.
    """

    property: str
    name: str
    step: int
    sentence: str
    pipe: str = ""
    epoch: int = 0
    seq: int = 0
    position: int = 0
    end: str = ""
    """the end of a pipeline at which it was found, at the end of a run"""
    content: str = ""
    """what did not come there, or too often, as text"""

    def __str__(self) -> str:
        return f"{self.property} {self.name} violated at step {self.step}: {self.sentence}"


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
    usual: Mapping[str, str] = field(default_factory=dict[str, str])
    """of each stage: what it answers for this message when nothing goes wrong"""
