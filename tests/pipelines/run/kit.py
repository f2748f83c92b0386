"""Runs a pipeline in this process, in the current folder, with functions of the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from surepipe.actors.notices import PipeNotice
from surepipe.pipelines import Plan, loads
from surepipe.pipelines.run import PlanEngine, RealEnvironment

DONE_S = 30.0
STORE = "stores: {main: {kind: sqlite, path: main.db, durability: process}}\n"


def plan_of(text: str, *, stores: str = STORE) -> Plan:
    """A plan; version, name and a store stand before the text."""
    return loads(f"version: 1\nname: shop\n{stores}{text}")


class Bench(RealEnvironment):
    """A real world whose functions are those of the test, under `test:name`."""

    def __init__(self, plan: Plan, **functions: Callable[..., object]) -> None:
        self.failures: list[BaseException] = []
        self.notices: list[PipeNotice] = []
        super().__init__(plan, notices=self.notices.append, stopped=self.failures.append)
        self.functions = functions

    def function(self, path: str) -> Callable[..., object]:
        """The test's function."""
        return self.functions[path.partition(":")[2]]


def run(
    plan: Plan, node: str = "main", **functions: Callable[..., object]
) -> Mapping[str, Mapping[str, int]]:
    """Run until all is through, and give what was counted. Raises what stopped a source."""
    bench = Bench(plan, **functions)
    engine = PlanEngine(plan, node, bench, once=True)
    engine.start()
    try:
        finish(engine, bench)
    finally:
        engine.close(5.0)
    return engine.counters()


def finish(engine: PlanEngine, bench: Bench) -> None:
    """Wait until all is through. Raises what stopped a source; AssertionError when it takes too long."""
    end = bench.clock.monotonic() + DONE_S
    while not engine.look():
        if bench.failures:
            raise bench.failures[0]
        assert bench.clock.monotonic() < end, engine.counters()
        engine.wait(0.01)


def until(engine: PlanEngine, is_so: Callable[[], bool]) -> None:
    """Wait until something holds of a running engine. AssertionError when it takes too long."""
    clock = Bench(engine.plan).clock
    end = clock.monotonic() + DONE_S
    while not is_so():
        assert clock.monotonic() < end, engine.counters()
        engine.wait(0.01)


def write_lines(path: str, messages: Iterable[object]) -> None:
    """A file of JSON lines."""
    Path(path).write_text("".join(json.dumps(message) + "\n" for message in messages))


def read_lines(path: str) -> list[Any]:
    """What such a file holds."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]
