"""From a file, or from nothing, to figures."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from surepipe.actors.codecs import choose_codec
from surepipe.cli.benching.built_in import built_in
from surepipe.cli.benching.gauge import Gauge, Passed
from surepipe.cli.benching.harmless import harmless
from surepipe.cli.benching.places import Places
from surepipe.cli.benching.running import Run, nodes_in_flow, run
from surepipe.cli.benching.world import OneByOne, SampleRows
from surepipe.cli.exits import Exit
from surepipe.cli.probing import probed_levels
from surepipe.errors import ConfigurationError
from surepipe.observe.latency import Histogram
from surepipe.pipelines import Plan, assess, read
from surepipe.pipelines.engine.pipes import pipe_name
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stores import MemoryStorePart
from surepipe.pipelines.simulated.rows import messages_of

SAMPLE_ROWS = 1_000
ALONE_MESSAGES = 200
ALONE_PART = 0.2
"""Of the seconds that the run under load may take."""
LOOP_S = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    file: Path | None
    messages: int
    seconds: float
    with_stages: bool = False
    redis: str | None = None
    failures: list[BaseException] = field(default_factory=list[BaseException])
    """What ends it before its time."""


@dataclass(frozen=True, slots=True)
class Took:
    """Times of messages in milliseconds: half of them, and 99 of 100, took at most so long."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class PipeFigures:
    """A pipe under load, and alone. ``took`` is None where nothing went through."""

    part: PipePart
    passed: Passed
    loaded: Took | None
    alone: Took | None


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """What a store was asked in the run under load, as a whole and for each message."""

    name: str
    kind: str
    commands: int
    commits: int
    messages: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One pipeline."""

    plan: Plan
    pipes: Sequence[PipeFigures]
    stores: Sequence[StoreFigures]
    complete: bool

    @property
    def dead(self) -> str:
        """How many messages became dead letters, as the end of a sentence."""
        count = sum(pipe.passed.dead for pipe in self.pipes)
        return f" ({count} failed, and became dead letters)" if count else ""


@dataclass(slots=True)
class Report:
    """All of it. ``loop_per_s``: messages per second of the plain loop."""

    loop_per_s: float = 0.0
    measured: list[Measured] = field(default_factory=list[Measured])

    @property
    def complaints(self) -> list[str]:
        """What did not come to its end."""
        return [
            f"{one.plan.name}: not all that was taken came through in time{one.dead}; its figures are of what did"
            for one in self.measured
            if not one.complete
        ]

    @property
    def code(self) -> Exit:
        """How the command ends."""
        return Exit.NOT_EXERCISED if self.complaints else Exit.HELD


def bench_all(request: Request) -> Report:
    """Measure. Raises ConfigurationError, CompositionError, StoreUnavailable; what was written is removed."""
    plans = built_in(request.redis) if request.file is None else [_of_file(request.file, request)]
    folder = Path() if request.file is None else request.file.parent
    report = Report()
    for plan in plans:
        probed_levels(plan)  # a server that does not answer is told before anything is measured
    with _ended_by_signals(request.failures):
        for plan in plans:
            rows = messages_of(plan, SAMPLE_ROWS, folder)
            report.loop_per_s = max(report.loop_per_s, loop_per_s(next(iter(rows.values()))))
            report.measured.append(_measured(plan, rows, request))
    return report


def _of_file(file: Path, request: Request) -> Plan:
    document = read(file)
    plan = document.plan
    if request.redis is not None:
        raise ConfigurationError(
            "--redis adds to the built-in set, and a file names its own stores"
        )
    if plan.engine.kind == "spark":
        raise ConfigurationError(
            f"{plan.name} is for Spark (engine: spark), and bench measures actors"
        )
    assessment = assess(plan)
    if not assessment.usable:
        raise ConfigurationError(f"{file} can't be run as it is: see surepipe check {file}")
    nodes_in_flow(plan)
    return plan


# The plain loop.


def loop_per_s(rows: Sequence[object]) -> float:
    """Messages per second of a loop that writes each as JSON, reads it, and counts it. The best of three."""
    return max(_one_loop(rows) for _ in range(3))


def _one_loop(rows: Sequence[object]) -> float:
    codec = choose_codec("auto")
    counted, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < LOOP_S:
        for row in rows:
            codec.decode(codec.encode(row))
            counted += 1
    return counted / took


# One pipeline.


def _measured(plan: Plan, rows: Mapping[str, Sequence[object]], request: Request) -> Measured:
    loaded, alone = Gauge(), Gauge()

    def under_load(found: Sequence[object]) -> SampleRows:
        return SampleRows(found, request.messages, request.seconds)

    def one_by_one(found: Sequence[object]) -> SampleRows:
        count = min(ALONE_MESSAGES, request.messages)
        return OneByOne(found, count, request.seconds * ALONE_PART, alone)

    with _copied(plan, request) as (copy, places):
        complete = run(_run(copy, loaded, places, request, _each(rows, under_load)))
        stores = _store_figures(copy, loaded, places)
    with _copied(plan, request) as (copy, places):
        complete &= run(_run(copy, alone, places, request, _each(rows, one_by_one)))
    pipes = [_pipe_figures(plan, pipe, loaded, alone) for pipe in plan.pipes]
    return Measured(plan, pipes, stores, complete)


@contextmanager
def _copied(plan: Plan, request: Request) -> Generator[tuple[Plan, Places]]:
    with Places() as places:
        yield harmless(plan, places, with_stages=request.with_stages), places


def _each(
    rows: Mapping[str, Sequence[object]], source: Callable[[Sequence[object]], SampleRows]
) -> Mapping[str, SampleRows]:
    return {name: source(found) for name, found in rows.items()}


def _run(
    plan: Plan, gauge: Gauge, places: Places, request: Request, sources: Mapping[str, SampleRows]
) -> Run:
    counts = {part.name: places.count_of(part.name) for part in plan.stores}
    doubles = plan.simulate.replace
    return Run(plan, gauge, counts, sources.__getitem__, doubles, request.seconds, request.failures)


def _store_figures(plan: Plan, loaded: Gauge, places: Places) -> list[StoreFigures]:
    """Of stores that are more than memory; a message counts once, however many pipes it takes."""
    messages = max(loaded.of(pipe_name(plan, pipe)).done for pipe in plan.pipes)
    counted = [(part, places.count_of(part.name)) for part in plan.stores]
    return [
        StoreFigures(part.name, part.kind, count.commands, count.commits, messages)
        for part, count in counted
        if not isinstance(part, MemoryStorePart)
    ]


def _pipe_figures(plan: Plan, pipe: PipePart, loaded: Gauge, alone: Gauge) -> PipeFigures:
    name = pipe_name(plan, pipe)
    return PipeFigures(
        pipe,
        loaded.of(name),
        _took(loaded.latencies.settled.get(name)),
        _took(alone.latencies.settled.get(name)),
    )


def _took(histogram: Histogram | None) -> Took | None:
    if histogram is None or not histogram.count:
        return None
    return Took(histogram.quantile_us(0.5) / 1000, histogram.quantile_us(0.99) / 1000)


@contextmanager
def _ended_by_signals(failures: list[BaseException]) -> Generator[None]:
    """SIGTERM ends a bench as Ctrl-C does: what it has written is removed.

    It is noted, too: what is raised while SQLite calls back (it counts commands here) is lost.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        failures.append(KeyboardInterrupt())
        raise failures[-1]

    before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
