"""What a plan says about its parts, for a status: names, what feeds what, where it runs, what it guarantees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from surepipe.observe.latency import Latencies
from surepipe.observe.rates import Counts
from surepipe.observe.status import Flow, Part
from surepipe.observe.watch import Watch
from surepipe.pipelines.assessing import Assessment, Verdict
from surepipe.pipelines.links import link
from surepipe.pipelines.placing import MAIN_NODE
from surepipe.pipelines.plan import Plan

SPARK = "spark"
"""The engine, its node, and the part that the numbers of its query belong to."""


def watch(
    assessment: Assessment,
    counters: Callable[[], Counts],
    latencies: Latencies | None = None,
    *,
    node: str = MAIN_NODE,
    clock: Callable[[], float] = time.monotonic,
) -> Watch:
    """Watch a plan that runs; ``counters`` gives what was counted, by name of the part."""
    plan = assessment.plan
    return Watch(
        plan.name,
        parts_of(assessment),
        counters,
        latencies,
        node=node,
        traced_as=lambda name: full_name(plan, name),
        clock=clock,
    )


def full_name(plan: Plan, name: str) -> str:
    """What a part is called among those of other pipelines: in traces and metrics."""
    return f"{plan.name}/{name}"


def parts_of(assessment: Assessment) -> tuple[Part, ...]:
    """The parts, each after what feeds it. On Spark all are at its driver, and the query counts beside them."""
    on_spark = assessment.engine == SPARK
    parts = tuple(_parts(assessment))
    if not on_spark:
        return parts
    here = tuple(part.model_copy(update={"node": SPARK}) for part in parts)
    return (*here, Part(name=SPARK, role="engine", node=SPARK))


def _parts(assessment: Assessment) -> Iterator[Part]:
    plan = assessment.plan
    verdicts = {verdict.name: verdict for verdict in assessment.pipes}
    places = plan.places
    return (
        Part(
            name=part.name,
            role=link(part).role,
            feeders=plan.feeders(part.name),
            node=places[part.name].node,
            flow=Flow() if part.name in verdicts else None,
            guarantee=_guarantee(verdicts.get(part.name)),
            tolerates=_tolerates(verdicts.get(part.name)),
            stores=tuple(sorted({use.store for use in link(part).stores})),
        )
        for part in plan.order
    )


def _guarantee(verdict: Verdict | None) -> str:
    if verdict is None or verdict.explanation is None:
        return ""
    claim = verdict.per_key or verdict.explanation.headline
    return f"{claim.delivery}, {claim.order}{' per key' if verdict.per_key else ''}"


def _tolerates(verdict: Verdict | None) -> tuple[str, ...]:
    if verdict is None or verdict.explanation is None:
        return ()
    return tuple(sorted(str(fault) for fault in verdict.explanation.headline.tolerates))
