"""The picture of a plan: its parts as boxes, the ways of its messages as arrows, its stores below them."""

from __future__ import annotations

from collections.abc import Iterator

from surepipe.drawing.flow import Diagram, FlowArrow, PartBox
from surepipe.pipelines.assessing import Assessment, Verdict, assess
from surepipe.pipelines.links import Node, link
from surepipe.pipelines.models.pipes import BookRoutePart, PipePart
from surepipe.pipelines.models.sources import (
    AnySource,
    HttpSource,
    PythonSource,
    RedisStreamSource,
    SourceBase,
    StdinSource,
    StreamSource,
)
from surepipe.pipelines.models.stages import (
    AnySink,
    HttpSink,
    PythonSink,
    RmqSink,
    StagePart,
    StdoutSink,
    StreamSink,
    Trying,
)
from surepipe.pipelines.models.stores import AnyStore, MemoryStorePart, SqliteStorePart
from surepipe.pipelines.plan import Plan


def diagram_of(plan: Plan, assessment: Assessment | None = None) -> Diagram:
    """The picture of a plan, with what its pipes guarantee. ``assessment``: where that is known already."""
    assessment = assessment or assess(plan, engine="actors")
    nodes = tuple(_box(part, assessment) for part in plan.order)
    used = dict.fromkeys(use.store for part in plan.parts for use in link(part).stores)
    stores = tuple(_store(plan.store(name)) for name in used)
    return Diagram(plan.name, (*nodes, *stores), tuple(_arrows(plan)))


def _box(part: Node, assessment: Assessment) -> PartBox:
    if isinstance(part, PipePart):
        verdict = next(one for one in assessment.pipes if one.name == part.name)
        return PartBox("pipe", part.name, tuple(_pipe_lines(part, verdict)), bool(verdict.refused))
    if isinstance(part, StagePart):
        return PartBox(
            "stage", part.name, (f"{part.kind} {part.does}" if part.batch is None else part.does,)
        )
    if isinstance(part, SourceBase):
        return PartBox("source", part.name, (_source_line(part),))
    return PartBox("sink", part.name, (_sink_line(part),))


def _pipe_lines(part: PipePart, verdict: Verdict) -> Iterator[str]:
    if part.book is not None:
        yield from _book_lines(part.book)
    else:
        yield from (str(layer) for layer in part.stack)
    lanes = f", lanes: {part.lanes}" if part.lanes is not None else ""
    yield f"over {part.route.kind}{lanes}"
    if verdict.explanation is None:
        yield "refused: see surepipe check"
        return
    headline = verdict.per_key or verdict.explanation.headline
    per_key = " per key" if verdict.per_key else ""
    yield f"{headline.delivery}, {headline.order}{per_key}"


def _book_lines(book: BookRoutePart) -> Iterator[str]:
    """The budget, and how it is shared."""
    budget = "no budget" if book.budget is None else f"{book.budget.budget} in {book.period_s:g} s"
    yield f"{budget}, {book.policy}"
    if book.parking:
        yield f"parks: {', '.join(name.removeprefix('on_') for name in book.parking)}"


def _source_line(part: AnySource) -> str:
    if isinstance(part, PythonSource):
        return part.call
    if isinstance(part, StreamSource | RedisStreamSource):
        return f"{part.kind} {part.store}/{part.stream}"
    if isinstance(part, HttpSource):
        return f"http {part.listen}"
    return part.kind if isinstance(part, StdinSource) else f"{part.kind} {part.path}"


def _sink_line(part: AnySink) -> str:
    if isinstance(part, PythonSink):
        return part.call
    if isinstance(part, StreamSink):
        return f"stream {part.store}/{part.stream}"
    if isinstance(part, HttpSink):
        return f"http {part.url}"
    if isinstance(part, RmqSink):
        return f"rmq {part.cluster}, until {part.until}"
    return part.kind if isinstance(part, StdoutSink) else f"{part.kind} {part.path}"


def _store(part: AnyStore) -> PartBox:
    if isinstance(part, MemoryStorePart):
        return PartBox("store", f"store:{part.name}", ("memory",))
    place = part.path if isinstance(part, SqliteStorePart) else part.url
    return PartBox("store", f"store:{part.name}", (f"{part.kind} {place}",))


def _arrows(plan: Plan) -> Iterator[FlowArrow]:
    for part in plan.order:
        for feeder in plan.feeders(part.name):
            yield FlowArrow(feeder, part.name)
    for part in plan.order:
        labels: dict[str, list[str]] = {}
        for use in link(part).stores:
            word = str(use.path[0]) if use.path[0] in ("journal", "state") else "stream"
            if use.what == "dead_letter" and use.path[0] == "route":
                yield FlowArrow(part.name, f"store:{use.store}", "dead", use.stream)
            elif use.path[0] != "dead_letter":
                labels.setdefault(use.store, []).append(word)
        for store, words in labels.items():
            yield FlowArrow(part.name, f"store:{store}", "uses", ", ".join(words))
        if isinstance(part, Trying) and part.dead_letter is not None:
            store, _, stream = part.dead_letter.partition("/")
            yield FlowArrow(part.name, f"store:{store}", "dead", stream)
