"""What Spark can't do, said before anything starts. Spark is for volume; latency stays with actors."""

from __future__ import annotations

from collections.abc import Iterator

from surepipe.pipelines.models.pipes import PipePart, StoreRoute, TcpRoute
from surepipe.pipelines.models.sources import HttpSource, PythonSource, StdinSource
from surepipe.pipelines.models.stages import HttpSink, StagePart, StdoutSink
from surepipe.pipelines.models.stores import MemoryStorePart
from surepipe.pipelines.plan import Plan

TRIGGER_MIN_S = 0.2
KINDS = frozenset({"stream", "strict-monotonic", "continuous-index", "dedupe"})
"""Layers whose receivers run as keyed operators, or whose stream Spark reads by index."""


def spark_refusals(plan: Plan) -> Iterator[str]:
    """Everything in a plan that the engine spark refuses, each with what to do instead."""
    for source in plan.sources:
        if isinstance(source, HttpSource | StdinSource | PythonSource):
            yield (
                f"source {source.name}: Spark reads what can be read again, and {source.kind} can't; "
                "let a pipeline on actors put its messages into a stream, and read that"
            )
    for pipe in plan.pipes:
        yield from _of_pipe(plan, pipe)
    for stage in plan.stages:
        yield from _of_stage(stage)
    for sink in plan.sinks:
        if isinstance(sink, StdoutSink | HttpSink):
            yield (
                f"sink {sink.name}: tasks of Spark are tried again and {sink.kind} would see that; write into "
                "a stream, and let a pipeline on actors take it from there"
            )
    if plan.engine.trigger_s is not None and plan.engine.trigger_s < TRIGGER_MIN_S:
        yield (
            f"engine: a trigger of {plan.engine.trigger_s} s is shorter than a micro-batch takes "
            f"({TRIGGER_MIN_S} s and more); use actors where latency counts"
        )


def _of_pipe(plan: Plan, pipe: PipePart) -> Iterator[str]:
    route = pipe.route
    if isinstance(route, TcpRoute):
        yield f"pipe {pipe.name}: Spark has no TCP route; carry it through a store of kind redis"
    elif not isinstance(route, StoreRoute):
        yield (
            f"pipe {pipe.name}: a local route is within one process, and Spark's tasks are in many; carry it "
            "through a store of kind redis, or sqlite on one machine"
        )
    elif isinstance(plan.store(route.store), MemoryStorePart):
        yield f"pipe {pipe.name}: store {route.store} is in memory, where Spark's tasks can't reach it; use redis"
    if pipe.boundary in ("handed", "before"):
        yield (
            f"pipe {pipe.name}: Spark tries a batch again until it is written, so boundary {pipe.boundary} "
            "can't be kept; use processed or committed"
        )
    for number, layer in enumerate(pipe.stack):
        if isinstance(route, StoreRoute) and layer.kind not in KINDS:
            yield (
                f"pipe {pipe.name}: layer {number} ({layer.kind}) sends again by a clock of its own, which a "
                "micro-batch has not; the stream below it repeats by itself, so drop it"
            )


def _of_stage(stage: StagePart) -> Iterator[str]:
    if stage.time_limit_s is not None:
        yield (
            f"stage {stage.name}: a time limit for one message can't be kept inside a batch of Spark; drop "
            "time_limit_s"
        )
