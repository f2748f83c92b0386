"""What the engine actors refuse of a plan that adds up otherwise: said by ``check``, and not first by ``run``."""

from __future__ import annotations

from collections.abc import Iterator

from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.sources import SourceBase
from surepipe.pipelines.models.stages import StagePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.structure import Issue
from surepipe.pipes.desk import Boundary


def actor_refusals(plan: Plan) -> Iterator[Issue]:
    """Everything that a node could not be assembled from, each with what to do instead."""
    for sink in plan.sinks:
        homes = homes_before(plan, sink.name)
        if len(homes) > 1 and homes != {None}:
            yield Issue(
                ("sinks", sink.name, "from"),
                f"sink {sink.name} is fed by pipes that commit to different stores, or not at all: give them one "
                "state and one boundary, or give the sink one pipe",
            )
    for pipe in plan.pipes:
        if pipe.lanes is not None and len(words := key_words(plan, pipe)) > 1:
            said = ", ".join(sorted(word or "no key" for word in words))
            yield Issue(
                ("pipes", pipe.name, "lanes"),
                f"pipe {pipe.name}: what feeds it has different keys ({said}): write a key on the pipe",
            )


def pipes_before(plan: Plan, name: str) -> set[str]:
    """The pipes whose receivers a part belongs to."""
    found: set[str] = set()
    for feeder in plan.feeders(name):
        part = plan.part(feeder)
        found |= {feeder} if isinstance(part, PipePart) else pipes_before(plan, feeder)
    return found


def homes_before(plan: Plan, name: str) -> set[str | None]:
    """The stores that the pipes before a part commit to; None for one that commits nothing."""
    pipes = [plan.pipe(one) for one in pipes_before(plan, name)]
    return {home_of(pipe) if pipe.settled is Boundary.COMMITTED else None for pipe in pipes}


def home_of(pipe: PipePart) -> str | None:
    """The store of a receiver's state, which its transactions belong to."""
    return pipe.state or pipe.stream_store


def key_words(plan: Plan, part: Node) -> set[str | None]:
    """The keys that are in force behind a part: its own, else those of what feeds it."""
    own = part.key_by if isinstance(part, StagePart) else getattr(part, "key", None)
    if isinstance(own, str) or isinstance(part, SourceBase):
        return {own if isinstance(own, str) else None}
    words: set[str | None] = set()
    for name in plan.feeders(part.name):
        words |= key_words(plan, plan.part(name))
    return words
