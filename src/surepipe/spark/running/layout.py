"""Lays a plan out on Spark: what its one query reads, the targets of that, and the driver's own work.

An *input* is a stream that the query reads: one for each pipe, and one for each source that is a stream already.
What comes of its messages goes to *targets*: the streams of the next pipes, and the sinks. Sources of all other
kinds are read by the driver, with the same feeds as on actors, into the streams of the pipes that they feed.

A layout is a plain value: tasks get it pickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from surepipe.core.store_requests import KEEP_ALL, Retention
from surepipe.errors import ConfigurationError
from surepipe.pipelines.models.pipes import PipePart, StoreRoutePart
from surepipe.pipelines.models.sources import StreamSource
from surepipe.pipelines.models.stages import (
    AnySink,
    CsvSink,
    JsonlSink,
    ParquetSink,
    PythonSink,
    StreamSink,
)
from surepipe.pipelines.models.stores import MemoryStorePart, SqliteStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.pipes import retention_of, stream_name
from surepipe.pipelines.settings import Setting
from surepipe.pipelines.structure import MAIN_NODE
from surepipe.spark.stores import StorePlace
from surepipe.storage.redis.link import RedisLimits

SPARK_NODE = "spark"
"""The node on which a layout's plan has all that tasks do."""

TargetKind: TypeAlias = Literal["stream", "task", "driver"]
"""Who writes a target: a task into a stream, a task through the sink's own code, or the driver."""


@dataclass(frozen=True, slots=True)
class StreamInStore:
    """A stream in a store, and how it is made when it is not there."""

    store: str
    name: str
    retention: Retention = KEEP_ALL


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages of an input go: the pipe or sink of this name."""

    name: str
    kind: TargetKind
    stream: StreamInStore | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """A stream that the query reads. ``part``: the pipe or source that it belongs to."""

    part: str
    stream: StreamInStore
    start: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SparkLayout:
    """A plan as Spark runs it. ``places``: how any process opens a store, by the store's name."""

    plan: Plan
    places: dict[str, StorePlace]
    inputs: tuple[Input, ...]
    targets: dict[str, Target]

    def input_of(self, part: str) -> Input:
        """The input that belongs to a part. Raises KeyError."""
        return next(one for one in self.inputs if one.part == part)

    @property
    def streams(self) -> tuple[StreamInStore, ...]:
        """Every stream that is read or written."""
        written = (target.stream for target in self.targets.values() if target.stream is not None)
        return tuple(dict.fromkeys([*(one.stream for one in self.inputs), *written]))

    @property
    def has_feeds(self) -> bool:
        """True when the driver has sources to read."""
        return MAIN_NODE in self.plan.nodes

    def home_of(self, part: str) -> str:
        """The store that keeps how far the ends of an input are: that of the pipe's state, else its stream's."""
        found = self.plan.part(part)
        state = found.state if isinstance(found, PipePart) else None
        return state or self.input_of(part).stream.store


def lay_out(plan: Plan) -> SparkLayout:
    """The layout of a plan that ``check --engine spark`` does not refuse.

    Raises ConfigurationError for a store that tasks can't reach.
    """
    plan = _with_paths(_on_two_nodes(plan))
    inputs = tuple(_inputs(plan))
    names = dict.fromkeys(name for one in inputs for name in one.targets)
    targets = {name: _target(plan, name) for name in names}
    return SparkLayout(plan, _places(plan), inputs, targets)


def _on_two_nodes(plan: Plan) -> Plan:
    """The plan with its feeds on one node and all else on another.

    A source that is a stream is read by Spark; but where it is mixed with others before the first pipe, whoever
    feeds that pipe must have both, and that is the driver.
    """
    pipes = tuple(pipe.model_copy(update={"node": SPARK_NODE}) for pipe in plan.pipes)
    at_driver = tuple(source.model_copy(update={"node": None}) for source in plan.sources)
    parted = tuple(
        source.model_copy(update={"node": SPARK_NODE})
        if isinstance(source, StreamSource) and source.model is None
        else source
        for source in at_driver
    )
    try:
        return replace(plan, pipes=pipes, sources=parted)
    except ConfigurationError:
        return replace(plan, pipes=pipes, sources=at_driver)


def _with_paths(plan: Plan) -> Plan:
    """The paths of sinks as they are here and now: tasks have another environment, and perhaps another folder."""
    sinks = tuple(
        sink.model_copy(update={"path": Setting(str(Path(sink.path.reveal()).absolute()))})
        if isinstance(sink, ParquetSink | JsonlSink | CsvSink)
        else sink
        for sink in plan.sinks
    )
    return replace(plan, sinks=sinks)


def _inputs(plan: Plan) -> Iterator[Input]:
    for source in plan.sources:
        if isinstance(source, StreamSource) and source.node == SPARK_NODE:
            stream = StreamInStore(source.store, source.stream)
            yield Input(source.name, stream, str(source.start), _ends_of(plan, source.name))
    for pipe in plan.pipes:
        yield Input(pipe.name, stream_of(plan, pipe), "earliest", _ends_of(plan, pipe.name))


def _ends_of(plan: Plan, start: str) -> tuple[str, ...]:
    """The names of the next pipes and sinks."""
    ends = (part for part in plan.reach(start) if isinstance(part, PipePart | AnySink))
    return tuple(part.name for part in ends)


def stream_of(plan: Plan, pipe: PipePart) -> StreamInStore:
    """The stream of a pipe."""
    assert isinstance(pipe.route, StoreRoutePart), "others are refused"
    return StreamInStore(pipe.route.store, stream_name(plan, pipe), retention_of(pipe))


def _target(plan: Plan, name: str) -> Target:
    part = plan.part(name)
    match part:
        case PipePart():
            return Target(name, "stream", stream_of(plan, part))
        case StreamSink():
            return Target(name, "stream", StreamInStore(part.store, part.stream))
        case JsonlSink() | CsvSink():
            return Target(name, "driver")
        case ParquetSink() | PythonSink():
            return Target(name, "task")
        case _:
            raise ConfigurationError(f"{name} can't be written by Spark")


def _places(plan: Plan) -> dict[str, StorePlace]:
    places: dict[str, StorePlace] = {}
    for part in plan.stores:
        if isinstance(part, MemoryStorePart):
            continue  # refused where something uses it
        if isinstance(part, SqliteStorePart):
            path = Path(part.path.reveal()).absolute()
            places[part.name] = StorePlace(str(path), level=part.durability)
        else:
            places[part.name] = StorePlace(
                part.url.reveal(),
                pipeline=part.keys or plan.name,
                spread=part.spread,
                level=part.durability,
                replicas=part.replicas,
                answer_s=part.answer_within_s or RedisLimits().answer_s,
            )
    return places
