"""For each fault that a plan does not promise to survive: the shortest schedule that breaks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from surepipe.audit.findings import Violation
from surepipe.core.claims import ROUTE, WORDS, Atom, Fault, in_order
from surepipe.errors import MisuseError
from surepipe.pipelines.simulate.campaign import PlanFailure, run_seeds, shrunk
from surepipe.pipelines.simulate.simulating import Simulation
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.simulation.faults import chosen
from surepipe.simulation.report.story import Step
from surepipe.simulation.report.telling import STOP, tell
from surepipe.simulation.report.words import node_words
from surepipe.simulation.shrink import Shrunk

SEEDS = 60
REPLAYS = 60
NOT_HERE = frozenset({Fault.RELAY_CRASH, Fault.STORE_TRIM, Fault.ROUTE_CORRUPTION})
"""Faults that other ones bring, or that a world of actors does not have."""


@dataclass(frozen=True, slots=True)
class Broken:
    """How a fault breaks the plan, in three lines. ``page``: where one was written."""

    fault: str
    violation: Violation
    lines: tuple[str, ...]
    page: Path | None = None


class _Daring(PlanSubject):
    """The same plan, held to its claims whatever strikes."""

    def facts(self) -> Mapping[str, object]:
        """No fault excuses anything."""
        return {**super().facts(), "faults": []}


def untolerated(subject: PlanSubject) -> Iterator[str]:
    """Faults that break an atom although it is promised at all; as words, where all faults of one kind are
    meant."""
    promises = [subject.promise.tolerates(atom.value) for atom in Atom]
    for word, members in WORDS.items():
        here = in_order(members - NOT_HERE)
        lacking = [
            fault.value
            for fault in here
            if any(known is not None and fault.value not in known for known in promises)
        ]
        is_whole = len(lacking) == len(here) and members != ROUTE
        yield from [word] if is_whole and lacking else lacking


def broken_by(
    simulation: Simulation, fault: str, seeds: Sequence[int] = range(SEEDS)
) -> Broken | None:
    """The shortest schedule with this fault alone; None when none was found that can be repeated."""
    subject = _daring(simulation.subject)
    found = run_seeds(
        subject,
        seeds,
        kinds=chosen([fault]),
        messages=min(simulation.messages, 8),
        stop_at_first=True,
    )
    if found.first is None:
        return None
    failure = _plainest(found.failures)
    try:
        least = shrunk(subject, failure, replays_max=REPLAYS)
    except (
        MisuseError
    ):  # it went another way: a stage keeps what is not set back, which is said of the plan
        return None
    return Broken(fault, least.violation, tuple(_lines(least)))


def _plainest(failures: Mapping[str, PlanFailure]) -> PlanFailure:
    """Loss before repeats, and both before everything else."""
    order = ("P2", "P3", "P4", "P6g", "user")
    return min(
        failures.values(),
        key=lambda one: (
            order.index(one.violation.property) if one.violation.property in order else len(order)
        ),
    )


def _lines(least: Shrunk) -> Iterator[str]:
    """Say what broke, and then each fault that struck, with what its node was doing."""
    yield f"{least.violation.property} {least.violation.name}: {least.violation.sentence}"
    steps = tell(least.result, least.violation).steps
    struck = [place for place, step in enumerate(steps) if step.fault and step.fault != STOP]
    for place in struck[:2]:
        step, before = steps[place], [one for one in steps[:place] if not one.fault]
        own = [one.does for one in before if one.node == step.node]
        last = (own or [_said(one) for one in before])[-1:]
        yield ", after: ".join((_said(step), *last))


def _said(step: Step) -> str:
    return f"{node_words(step.node)} {step.does}"


def _daring(subject: PlanSubject) -> PlanSubject:
    return _Daring(**{name: getattr(subject, name) for name in subject.__dataclass_fields__})
