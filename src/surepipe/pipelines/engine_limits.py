"""What the engine actors refuse of a plan that adds up otherwise: said by ``check``, and not first by ``run``."""

from __future__ import annotations

from collections.abc import Iterator

from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import (
    BookRoutePart,
    PipePart,
    StoreRoutePart,
    TcpRoutePart,
)
from surepipe.pipelines.models.sources import (
    CsvSource,
    JsonlSource,
    ParquetSource,
    RedisStreamSource,
    SourceBase,
    StreamSource,
)
from surepipe.pipelines.models.stages import (
    AnySink,
    CsvSink,
    JsonlSink,
    ParquetSink,
    PythonSink,
    StagePart,
    StreamSink,
    Trying,
)
from surepipe.pipelines.models.stores import MemoryStorePart, RedisStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.structure import Issue
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.options import Stream


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
        if pipe.workers and len(words := key_words(plan, pipe)) > 1:
            said = ", ".join(sorted(word or "no key" for word in words))
            yield Issue(
                ("pipes", pipe.name, "lanes" if pipe.lanes is not None else "route"),
                f"pipe {pipe.name}: what feeds it has different keys ({said}): write a key on the pipe",
            )
        if pipe.book is not None:
            yield from _of_book(plan, pipe, pipe.book)


def _of_book(plan: Plan, pipe: PipePart, book: BookRoutePart) -> Iterator[Issue]:
    """What a book can't be, or can't give to what follows it."""
    here, store = ("pipes", pipe.name, "route", "store"), plan.store(book.store)
    place = plan.places[pipe.name]
    if isinstance(store, RedisStorePart) and store.spread == "stream":
        yield Issue(
            here,
            f"pipe {pipe.name}: a book writes its log and what belongs to it in one transaction, and store "
            f"{store.name} spreads its keys (spread: stream): use spread: pipeline, or another store",
        )
    if isinstance(store, MemoryStorePart) and place.sender != place.node:
        yield Issue(
            here,
            f"pipe {pipe.name}: node {place.sender} fills the book and node {place.node} serves it, and store "
            f"{store.name} is in the memory of one process: use sqlite or redis",
        )
    for part in plan.reach(pipe.name):
        if isinstance(part, Trying):
            counted = [
                word for word in ("retries", "dead_letter") if getattr(part, word) is not None
            ]
            counted += [
                word for word in ("retry_min_s", "retry_max_s") if word in part.model_fields_set
            ]
            if counted:
                section = "stages" if isinstance(part, StagePart) else "sinks"
                yield Issue(
                    (section, part.name, counted[0]),
                    f"{part.name} follows the book of pipe {pipe.name}, which counts attempts and keeps what "
                    f"failed: write retries and on_poison in its route, and leave {' and '.join(counted)} out",
                )
        if isinstance(part, StagePart) and part.batch is not None:
            yield Issue(
                ("stages", part.name, "batch"),
                f"{part.name} gathers messages, and the book of pipe {pipe.name} hands out one at a time: put "
                "another pipe between",
            )


def homes_before(plan: Plan, name: str) -> set[str | None]:
    """The stores that the pipes before a part commit to; None for one that commits nothing."""
    pipes = [plan.pipe(one) for one in plan.pipes_before(name)]
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


# What Spark can't do, said before anything starts. Spark is for volume; latency stays with actors.


TRIGGER_MIN_S = 0.2
ONCE_BY_INDEX = "effectively once, by index"
"""What Spark's sinks make of at-least-once: never called exactly-once delivery."""
AT_LEAST_ONCE = "at least once"
"""What is left to a function that is called again and does not say that it recognises repeats."""


_READ_BY_SPARK = (JsonlSource, CsvSource, ParquetSource, RedisStreamSource, StreamSource)
_WRITTEN_BY_SPARK = (JsonlSink, CsvSink, ParquetSink, PythonSink, StreamSink)
"""A kind that is not named here is refused, so a new one needs no line to be safe."""


def spark_refusals(plan: Plan) -> Iterator[str]:
    """Everything in a plan that the engine spark refuses, each with what to do instead."""
    for source in plan.sources:
        if not isinstance(source, _READ_BY_SPARK):
            yield (
                f"source {source.name}: Spark reads what can be read again, files and streams, and no "
                f"{source.kind}; let a pipeline on actors put its messages into a stream, and read that"
            )
        elif source.dead_letter is not None:
            yield (
                f"source {source.name}: Spark puts no row aside that can't be read; leave dead_letter out, or let "
                "a pipeline on actors read the source"
            )
        elif isinstance(source, CsvSource) and source.follow:
            yield f"source {source.name}: Spark reads a CSV file as it is; leave follow out, or use actors"
    for pipe in plan.pipes:
        yield from _of_pipe(plan, pipe)
    for stage in plan.stages:
        yield from _of_stage(stage)
    for sink in plan.sinks:
        if not isinstance(sink, _WRITTEN_BY_SPARK):
            yield (
                f"sink {sink.name}: tasks of Spark are tried again and {sink.kind} would see that; write into "
                "a stream, and let a pipeline on actors take it from there"
            )
        if isinstance(sink, StreamSink) and isinstance(plan.store(sink.store), MemoryStorePart):
            yield f"sink {sink.name}: store {sink.store} is in memory, out of reach of Spark's tasks; use redis"
        elif isinstance(sink, StreamSink) and _is_spread(plan, sink.store):
            yield f"sink {sink.name}: {_spread_says(sink.store)}"
    if plan.engine.trigger_s is not None and plan.engine.trigger_s < TRIGGER_MIN_S:
        yield (
            f"engine: a trigger of {plan.engine.trigger_s} s is shorter than a micro-batch takes "
            f"({TRIGGER_MIN_S} s and more); use actors where latency counts"
        )


def delivery_on_spark(delivery: str) -> str:
    """A word of the algebra, as it is said of a pipeline on Spark."""
    return ONCE_BY_INDEX if delivery == "exactly-once" else delivery


def spark_notes(plan: Plan) -> Iterator[str]:
    """What is to be known of a plan on Spark: how often each end gets a message, and what Spark costs."""
    for sink in plan.sinks:
        yield f"sink {sink.name}: {_of_sink(plan, sink)}"
    for stage in plan.stages:
        if stage.call is not None:
            yield (
                f"stage {stage.name}: what it returns is written {ONCE_BY_INDEX}; its own effects happen at least "
                "once, as Spark tries tasks again"
            )
    yield (
        "Spark is for volume: about 6 s to the first job, 0.2 to 0.7 s for each micro-batch, about 1.5 GB for the "
        "query; where latency counts, use actors"
    )


def _of_sink(plan: Plan, sink: AnySink) -> str:
    if not isinstance(sink, PythonSink):
        return f"{ONCE_BY_INDEX}; a batch that is done again adds nothing"
    if sink.idempotent:
        return f"{ONCE_BY_INDEX}, as it is declared idempotent: it may be called again"
    pipes = [part for part in plan.pipes if sink in plan.reach(part.name)]
    if pipes and all(pipe.boundary == "committed" for pipe in pipes):
        return f"{ONCE_BY_INDEX}, for what it writes in its transaction"
    return (
        f"{AT_LEAST_ONCE}: the message that a crash interrupts comes again, with the same identity"
    )


def _of_pipe(plan: Plan, pipe: PipePart) -> Iterator[str]:
    route = pipe.route
    if isinstance(route, BookRoutePart):
        yield (
            f"pipe {pipe.name}: a book hands out one message after the other within a budget, and Spark reads "
            "many at once: use actors, or a route of kind redis"
        )
        return
    if pipe.ibc is not None:
        yield (
            f"pipe {pipe.name}: a party executes one block after the other, and Spark's tasks are many: use "
            "actors, and let Spark read the stream behind it"
        )
        return
    if isinstance(route, TcpRoutePart):
        yield f"pipe {pipe.name}: Spark has no TCP route; carry it through a store of kind redis"
    elif not isinstance(route, StoreRoutePart):
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
    if isinstance(route, StoreRoutePart) and _is_spread(plan, route.store):
        yield f"pipe {pipe.name}: {_spread_says(route.store)}"
    for number, layer in enumerate(pipe.stack):
        if isinstance(route, StoreRoutePart) and not isinstance(layer, Stream):
            yield (
                f"pipe {pipe.name}: layer {number} ({layer.kind}) has nothing to do here: Spark reads the stream "
                "below it by index, which is once and in order already; drop it"
            )


def _is_spread(plan: Plan, name: str) -> bool:
    store = plan.store(name)
    return isinstance(store, RedisStorePart) and store.spread == "stream"


def _spread_says(store: str) -> str:
    return (
        f"store {store} spreads its keys (spread: stream), and Spark writes messages and their place in one "
        "transaction; use spread: pipeline"
    )


def _of_stage(stage: StagePart) -> Iterator[str]:
    if stage.time_limit_s is not None:
        yield (
            f"stage {stage.name}: a time limit for one message can't be kept inside a batch of Spark; drop "
            "time_limit_s"
        )
