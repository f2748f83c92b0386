"""What comes out of a plan when nothing goes wrong: what simulated runs are compared with, end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from surepipe.pipelines.simulated.outcome import Outcome, canonical
from surepipe.pipelines.simulated.subject import PlanSubject
from surepipe.simulation.actor_chance import NodeSeeds
from surepipe.simulation.actor_world import ActorWorld, play
from surepipe.simulation.options import Options


def with_expectations(subject: PlanSubject, messages: int) -> PlanSubject:
    """The subject with what each of its sinks has after a run of so many messages without faults.

    A sink whose content differs between two such runs (the stage looks at the clock, say) is not compared.
    """
    if not subject.plan.sinks:
        return subject
    known = subject.references.get(messages)
    if known is None:
        known = subject.references[messages] = _same_in_two_runs(subject, messages)
    return replace(subject, expected=known)


def not_compared(subject: PlanSubject) -> tuple[str, ...]:
    """The sinks whose content nothing was expected of in some run."""
    names = (sink.name for sink in subject.plan.sinks)
    known = subject.references.values()
    return tuple(name for name in names if any(name not in expected for expected in known))


def _same_in_two_runs(subject: PlanSubject, messages: int) -> Mapping[str, Sequence[str]]:
    first = _ends(subject, Options(messages=messages))
    second = _ends(subject, Options(seed=1, messages=messages, gap_us=70_000, handler_us=3_000))
    return {end: found for end, found in first.items() if found == second.get(end)}


def _ends(subject: PlanSubject, options: Options) -> Mapping[str, Sequence[str]]:
    world = played(subject, options)
    outcome = world.outcome
    if world.limit or not isinstance(outcome, Outcome):
        return {}
    return {
        end: [canonical(message) for message in messages]
        for end, messages in outcome.delivered.items()
    }


def played(subject: PlanSubject, options: Options) -> ActorWorld:
    """One run, for what its world knows at the end."""
    world, _ = play(subject, options, NodeSeeds(options))
    return world
