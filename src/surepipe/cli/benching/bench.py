"""From a file, or from nothing, to figures."""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from surepipe.actors.codecs import choose_codec
from surepipe.cli.benching.counting import Gauge, PipeTimes, StoreCount
from surepipe.cli.benching.harmless import (
    LOOK_S,
    BenchWorld,
    OneByOne,
    SampleRows,
    TemporaryPlaces,
    harmless,
)
from surepipe.cli.engines import probed_levels
from surepipe.cli.output import Exit, Line, line
from surepipe.errors import ConfigurationError
from surepipe.observe.latency import Histogram
from surepipe.observe.status import UNKNOWN, compact
from surepipe.pipelines import assess, loads, read
from surepipe.pipelines.assembly import Source
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stores import MemoryStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run import PlanEngine
from surepipe.pipelines.run.pipes import pipe_name
from surepipe.pipelines.simulate.sources_and_sinks import given_by
from surepipe.pipelines.structure import in_flow

# One run of a harmless plan: all its nodes in this process, until everything is through or the time is over.


DRAIN_S = 10.0
"""How long messages that were taken may need after the last was."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """What a run needs beside its plan."""

    plan: Plan
    gauge: Gauge
    counts: Mapping[str, StoreCount]
    source: Callable[[str], Source]
    doubles: Mapping[str, str]
    seconds: float
    failures: list[BaseException]
    """What ends it before its time: parts that can't go on are noted here, and whoever stops it."""


def run(wanted: BenchRun) -> bool:
    """Run until all is through; False when the time was over before. Raises what starting and sources raise."""
    engines = [
        PlanEngine(wanted.plan, node, _world(wanted), once=True, until_idle=True)
        for node in nodes_in_flow(wanted.plan)
    ]
    started: list[PlanEngine] = []
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


def _world(wanted: BenchRun) -> BenchWorld:
    return BenchWorld(
        wanted.plan,
        gauge=wanted.gauge,
        counts=wanted.counts,
        sources=wanted.source,
        doubles=wanted.doubles,
        stopped=wanted.failures.append,
    )


def _is_through(engine: PlanEngine, end: float, failures: list[BaseException]) -> bool:
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


# The pipelines that are measured when no file is given: the usual choices, from the quickest to the safest.


_PIPES = {
    "memory": "layers: [reliable]",
    "ordered": "layers: [continuous-index, {multi-unconfirmed: {window: 512}}]",
    "tcp": 'node: other, route: {kind: tcp, address: "127.0.0.1:1", secret: "${BENCH_KEY}"}',
    "sqlite-stream": "route: {kind: sqlite, store: file}, state: file",
    "sqlite-committed": "journal: file, state: file, boundary: committed",
}
_OVER_REDIS = {
    "redis-stream": "route: {kind: redis, store: server}, state: server",
    "redis-committed": "journal: server, state: server, boundary: committed",
}
_FILE = "{kind: sqlite, path: surepipe-bench.db}"


def built_in(redis_url: str | None) -> list[Plan]:
    """The plans; those over a Redis where one is named. Their SQLite files lie in the current folder."""
    pipes = _PIPES | (_OVER_REDIS if redis_url is not None else {})
    return [_plan(name, said, redis_url) for name, said in pipes.items()]


def _plan(name: str, said: str, redis_url: str | None) -> Plan:
    stores: dict[str, str] = {}
    if "file" in said:
        stores["file"] = _FILE
    if "server" in said and redis_url is not None:
        url = redis_url.replace("$", "$$").replace("'", "''")
        stores["server"] = f"{{kind: redis, url: '{url}'}}"
    written = "".join(f"  {store}: {text}\n" for store, text in stores.items())
    return loads(
        f"version: 1\nname: {name}\n"
        + (f"stores:\n{written}" if written else "")
        + "sources: {rows: {kind: stdin}}\n"
        f"pipes: {{{name}: {{from: rows, {said}}}}}\n"
        f"sinks: {{out: {{from: {name}, kind: stdout}}}}\n",
        f"built-in {name}",
    )


SAMPLE_ROWS = 1_000
ALONE_MESSAGES = 200
ALONE_PART = 0.2
"""Of the seconds that the run under load may take."""
LOOP_S = 0.1


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What is asked for."""

    file: Path | None
    messages: int
    seconds: float
    with_stages: bool = False
    redis: str | None = None
    failures: list[BaseException] = field(default_factory=list[BaseException])
    """What ends it before its time."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Times of messages in milliseconds: half of them, and 99 of 100, took at most so long."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class PipeFigures:
    """A pipe under load, and alone. ``took`` is None where nothing went through."""

    part: PipePart
    passed: PipeTimes
    loaded: MeasuredTimes | None
    alone: MeasuredTimes | None


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
        return Exit.NOT_EXERCISED if self.complaints else Exit.HELD


def bench_all(request: BenchRequest) -> Report:
    """Measure. Raises ConfigurationError, CompositionError, StoreUnavailable; what was written is removed."""
    plans = built_in(request.redis) if request.file is None else [_of_file(request.file, request)]
    report = Report()
    for plan in plans:
        probed_levels(plan)  # a server that does not answer is told before anything is measured
    with _ended_by_signals(request.failures):
        for plan in plans:
            given = given_by(plan, SAMPLE_ROWS)
            rows = {name: one.messages for name, one in given.items()}
            report.loop_per_s = max(report.loop_per_s, loop_per_s(next(iter(rows.values()))))
            report.measured.append(_measured(plan, rows, request))
    return report


def _of_file(file: Path, request: BenchRequest) -> Plan:
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


def _measured(plan: Plan, rows: Mapping[str, Sequence[object]], request: BenchRequest) -> Measured:
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
def _copied(plan: Plan, request: BenchRequest) -> Generator[tuple[Plan, TemporaryPlaces]]:
    with TemporaryPlaces() as places:
        yield harmless(plan, places, with_stages=request.with_stages), places


def _each(
    rows: Mapping[str, Sequence[object]], source: Callable[[Sequence[object]], SampleRows]
) -> Mapping[str, SampleRows]:
    return {name: source(found) for name, found in rows.items()}


def _run(
    plan: Plan,
    gauge: Gauge,
    places: TemporaryPlaces,
    request: BenchRequest,
    sources: Mapping[str, SampleRows],
) -> BenchRun:
    counts = {part.name: places.count_of(part.name) for part in plan.stores}
    doubles = plan.simulate.replace
    return BenchRun(
        plan, gauge, counts, sources.__getitem__, doubles, request.seconds, request.failures
    )


def _store_figures(plan: Plan, loaded: Gauge, places: TemporaryPlaces) -> list[StoreFigures]:
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


def _took(histogram: Histogram | None) -> MeasuredTimes | None:
    if histogram is None or not histogram.count:
        return None
    return MeasuredTimes(histogram.quantile_us(0.5) / 1000, histogram.quantile_us(0.99) / 1000)


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


# The figures as lines for people and as a document for machines.


_HEADS = ("pipe", "messages/s", "of loop", "under load p50 / p99", "alone p50 / p99")
_STORE_HEADS = ("store", "kind", "commands a message", "messages a commit")


def as_lines(report: Report) -> Iterator[Line]:
    """A line about the loop, one table of the pipes, one of the stores."""
    yield line(
        ("plain loop", "head"),
        f"  {compact(report.loop_per_s)} messages/s: JSON written, read, counted; no pipe",
    )
    yield line()
    pipes = [
        (_named(one, pipe.part.name), *_cells(pipe, report.loop_per_s))
        for one in report.measured
        for pipe in one.pipes
    ]
    yield from _table(_HEADS, pipes, left=1)
    stores = [
        (_named(one, store.name), *_store_cells(store))
        for one in report.measured
        for store in one.stores
    ]
    if stores:
        yield line()
        yield from _table(_STORE_HEADS, stores, left=2)


def _named(one: Measured, part: str) -> str:
    return part if part == one.plan.name else f"{one.plan.name}/{part}"


def _cells(pipe: PipeFigures, loop_per_s: float) -> tuple[str, ...]:
    rate = pipe.passed.per_s
    ratio = f"1/{compact(loop_per_s / rate)}" if rate else UNKNOWN
    return compact(rate or None), ratio, _times(pipe.loaded), _times(pipe.alone)


def _store_cells(store: StoreFigures) -> tuple[str, ...]:
    per_message = f"{store.commands / store.messages:.3f}" if store.messages else UNKNOWN
    per_commit = compact(store.messages / store.commits) if store.commits else UNKNOWN
    return store.kind, per_message, per_commit


def _times(took: MeasuredTimes | None) -> str:
    return UNKNOWN if took is None else f"{took.p50_ms:.2f} / {took.p99_ms:.2f} ms"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> Iterator[Line]:
    """Columns as wide as their widest cell; the first ``left`` ones begin at the left."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for number, row in enumerate((heads, *rows)):
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        text = "  ".join(cells).rstrip()
        yield line((text, "dim")) if number == 0 else line(text)


def as_document(report: Report) -> dict[str, object]:
    """The figures for machines. What was not measured is null."""
    return {
        "exit": int(report.code),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "loop_per_s": round(report.loop_per_s),
        "pipelines": [_pipeline(one, report.loop_per_s) for one in report.measured],
    }


def _pipeline(one: Measured, loop_per_s: float) -> dict[str, object]:
    return {
        "name": one.plan.name,
        "complete": one.complete,
        "pipes": [_pipe(pipe, loop_per_s) for pipe in one.pipes],
        "stores": [_store(store) for store in one.stores],
    }


def _pipe(pipe: PipeFigures, loop_per_s: float) -> dict[str, object]:
    rate = pipe.passed.per_s
    return {
        "name": pipe.part.name,
        "route": pipe.part.route.kind,
        "boundary": pipe.part.boundary,
        "messages": pipe.passed.done,
        "per_s": round(rate, 1),
        "of_loop": round(rate / loop_per_s, 6),
        "under_load_ms": _milliseconds(pipe.loaded),
        "alone_ms": _milliseconds(pipe.alone),
    }


def _milliseconds(took: MeasuredTimes | None) -> dict[str, float] | None:
    return None if took is None else {"p50": took.p50_ms, "p99": took.p99_ms}


def _store(store: StoreFigures) -> dict[str, object]:
    per_message = store.commands / store.messages if store.messages else None
    return {
        "name": store.name,
        "kind": store.kind,
        "commands": store.commands,
        "commits": store.commits if store.kind == "sqlite" else None,
        "commands_per_message": None if per_message is None else round(per_message, 4),
    }
