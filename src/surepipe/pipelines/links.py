"""Resolves the names in parts: what feeds them, which stores they use, and mistakes in each part alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from surepipe.pipelines.models.pipes import (
    BookRoutePart,
    LocalRoutePart,
    PipePart,
    StoreRoutePart,
    TcpRoutePart,
)
from surepipe.pipelines.models.sources import (
    AnySource,
    ReadSource,
    RedisStreamSource,
    SourceBase,
    StreamSource,
)
from surepipe.pipelines.models.stages import AnySink, SinkBase, StagePart, StreamSink, Trying
from surepipe.pipelines.models.stores import AnyStore
from surepipe.pipelines.settings import Setting
from surepipe.pipelines.structure import MAIN_NODE, Path, PlanLink, StoreUse
from surepipe.pipes.stream.options import stream_layer

_ONE_MACHINE = ("localhost", "127.0.0.1", "::1", "[::1]")
Node: TypeAlias = AnySource | PipePart | StagePart | AnySink


def link(part: Node | AnyStore) -> PlanLink:
    """What the structure of a pipeline needs to know of a part."""
    if isinstance(part, PipePart):
        return PlanLink(
            "pipe",
            part.name,
            "book" if part.book is not None else "",
            part.from_,
            tuple(_pipe_stores(part)),
            says=tuple(_pipe_says(part)),
            node=part.node or "",
            has_key=part.key is not None,
            needs_key=part.workers > 0,
            crosses=not (isinstance(part.route, LocalRoutePart) or part.route.kind == "memory"),
        )
    if isinstance(part, StagePart):
        return PlanLink(
            "stage",
            part.name,
            part.kind,
            part.from_,
            tuple(_letters(part)),
            may_end=part.may_end,
            has_key=part.key_by is not None,
        )
    if isinstance(part, SinkBase):
        stores = tuple(_letters(part))
        if isinstance(part, StreamSink):
            stores = (StoreUse(("store",), part.store, stream=part.stream), *stores)
        return PlanLink("sink", part.name, part.kind, part.from_, stores, file=_file(part))
    if isinstance(part, SourceBase):
        return PlanLink(
            "source",
            part.name,
            part.kind,
            stores=tuple(_source_stores(part)),
            node=part.node or MAIN_NODE,
            has_key=part.key is not None,
            file=_file(part),
        )
    return PlanLink("store", part.name, part.kind, file=_file(part))


def _file(part: Node | AnyStore) -> str:
    """The file of a part, as it is written; '' for one that has none."""
    path = getattr(part, "path", None)
    return path.written if isinstance(path, Setting) else ""


def unreadable(
    section_role: str, name: str, feeders: tuple[str, ...], stores: tuple[StoreUse, ...]
) -> PlanLink:
    """A part of which only its name, and perhaps what feeds it and which stores it names, is known."""
    return PlanLink(section_role, name, "", feeders, stores, known=False)


def _source_stores(part: SourceBase) -> Iterator[StoreUse]:
    if isinstance(part, StreamSource):
        yield StoreUse(("store",), part.store)
    if isinstance(part, RedisStreamSource):
        yield StoreUse(("store",), part.store, ("redis",))
    if isinstance(part, ReadSource):
        yield from _letters(part)


def _letters(part: Trying | ReadSource) -> Iterator[StoreUse]:
    if part.dead_letter is not None:
        store, _, stream = part.dead_letter.partition("/")
        yield StoreUse(("dead_letter",), store, what="dead_letter", stream=stream)


def _pipe_stores(part: PipePart) -> Iterator[StoreUse]:
    if isinstance(part.route, StoreRoutePart):
        carried = stream_layer(part.stack).stream or ""
        yield StoreUse(
            *(("route", "store"), part.route.store, (part.route.kind,), "the route's store"),
            stream=carried,
        )
    if isinstance(part.route, BookRoutePart):
        yield StoreUse(("route", "store"), part.route.store, what="the book's store")
    if (between := part.ibc) is not None:
        for side, party in (("sends", between.sends), ("receives", between.receives)):
            what = f"the store of {party.party}"
            yield StoreUse(("route", side, "store"), party.store, what=what)
        if between.dead_letter is not None:
            store, _, stream = between.dead_letter.partition("/")
            yield StoreUse(("route", "dead_letter"), store, what="dead_letter", stream=stream)
    if part.journal is not None:
        yield StoreUse(("journal",), part.journal, what="journal")
    if part.state is not None:
        yield StoreUse(("state",), part.state, what="state")


def _pipe_says(part: PipePart) -> Iterator[tuple[Path, str]]:
    route = part.route
    if isinstance(route, BookRoutePart):
        yield from _book_says(part)
        return
    if part.ibc is not None:
        yield from _ibc_says(part)
        return
    if part.has_stream and not isinstance(route, StoreRoutePart):
        yield (
            ("layers",),
            "a stream layer keeps its messages in a store: write route: {kind: sqlite, store: NAME}",
        )
    if isinstance(route, StoreRoutePart) and not part.has_stream:
        yield (
            ("layers",),
            (
                f"a route through a {route.kind} store needs a stream layer, which keeps the messages there: "
                "write [{stream: {start: earliest}}], or drop layers; other layers go over tcp"
            ),
        )
    if isinstance(route, TcpRoutePart) and route.secret is None and route.tls is None:
        host = route.address.written.rpartition(":")[0]
        if host not in _ONE_MACHINE and not route.address.variables:
            yield (
                ("route", "address"),
                f"{route.address} may be reached from other machines: write secret: ${{NAME}}, or tls",
            )


def _ibc_says(part: PipePart) -> Iterator[tuple[Path, str]]:
    """What stands beside a route between parties and has nothing to do there, and names that can't be."""
    if part.layers:
        yield (
            ("layers",),
            "two parties number and prove their messages by themselves: leave layers out",
        )
    assert part.ibc is not None
    own, other = part.ibc.sends, part.ibc.receives
    for word, store, side in (("journal", part.journal, own), ("state", part.state, other)):
        if store is not None and store == (other if side is own else own).store:
            yield (
                (word,),
                f"{word} is kept by {side.party}, in no store of the other side: write {side.store}",
            )
    if len(part.name) < 2:
        yield (
            ("route",),
            f"the connection is called as the pipe, and {part.name!r} is too short: give it two letters",
        )


_OF_A_BOOK = {
    "layers": "a book keeps, numbers and orders its messages by itself",
    "journal": "what a book has accepted is stored already",
    "state": "how far a book is served stands in the book",
}


def _book_says(part: PipePart) -> Iterator[tuple[Path, str]]:
    """What stands beside a book and has nothing to do there."""
    for word, why in _OF_A_BOOK.items():
        if getattr(part, word):
            yield (word,), f"{why}: leave {word} out"
    if part.boundary != "processed":
        yield (
            ("boundary",),
            (
                f"a book settles a message when what follows has processed it, and boundary is {part.boundary}: "
                "leave it out; for effects that happen once, let a stream sink or a pipe take them, and commit "
                "behind that"
            ),
        )
