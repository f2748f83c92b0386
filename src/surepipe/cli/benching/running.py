"""One run of a harmless plan: all its nodes in this process, until everything is through or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from surepipe.cli.benching.counting import StoreCount
from surepipe.cli.benching.gauge import Gauge
from surepipe.cli.benching.world import LOOK_S, BenchWorld
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import Source
from surepipe.pipelines.engine import Engine
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.ordering import in_flow
from surepipe.pipelines.plan import Plan

DRAIN_S = 10.0
"""How long messages that were taken may need after the last was."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run needs beside its plan."""

    plan: Plan
    gauge: Gauge
    counts: Mapping[str, StoreCount]
    source: Callable[[str], Source]
    doubles: Mapping[str, str]
    seconds: float
    failures: list[BaseException]
    """What ends it before its time: parts that can't go on are noted here, and whoever stops it."""


def run(wanted: Run) -> bool:
    """Run until all is through; False when the time was over before. Raises what starting and sources raise."""
    engines = [
        Engine(wanted.plan, node, _world(wanted), once=True, until_idle=True)
        for node in nodes_in_flow(wanted.plan)
    ]
    started: list[Engine] = []
    is_through = False
    try:
        for engine in reversed(engines):  # those who listen at the end of the flow first
            engine.start()
            started.append(engine)
        end = time.monotonic() + wanted.seconds + DRAIN_S
        is_through = all(_is_through(engine, end, wanted.failures) for engine in engines)
    finally:
        for engine in engines:
            if engine in started:
                engine.close(DRAIN_S if is_through else 0.5)
    return is_through


def _world(wanted: Run) -> BenchWorld:
    return BenchWorld(
        wanted.plan,
        gauge=wanted.gauge,
        counts=wanted.counts,
        sources=wanted.source,
        doubles=wanted.doubles,
        stopped=wanted.failures.append,
    )


def _is_through(engine: Engine, end: float, failures: list[BaseException]) -> bool:
    while not engine.look():
        if failures:
            raise failures[0]
        if time.monotonic() >= end:
            return False
        engine.wait(LOOK_S / 5)
    return True


def nodes_in_flow(plan: Plan) -> tuple[str, ...]:
    """The nodes, each after those that send to it. Raises ConfigurationError where messages come back to one."""
    feeders: dict[str, list[str]] = {node: [] for node in plan.nodes}
    for name, place in plan.places.items():
        if isinstance(plan.part(name), PipePart) and place.sender != place.node:
            feeders[place.node].append(place.sender)
    ordered = in_flow(feeders)
    if len(ordered) < len(feeders):
        circle = " and ".join(node for node in feeders if node not in ordered)
        raise ConfigurationError(
            f"{plan.name} can't be measured as a whole, since messages come back to a node ({circle}): "
            "bench a file with one direction of it"
        )
    return ordered
