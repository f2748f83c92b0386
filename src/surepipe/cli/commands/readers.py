"""``surepipe readers``: who reads the streams of a plan, and how to keep nothing for one that never comes back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from surepipe.cli.output import Exit, complain, line, show, show_json

if TYPE_CHECKING:
    from surepipe.core.store_requests import Store
    from surepipe.pipelines import Plan

Readers: TypeAlias = list[dict[str, object]]


def readers(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE|STORE#STREAM",
            help="The pipeline, a YAML file. Or any stream, also of a Python program: STORE.db#STREAM, "
            "redis://HOST:PORT/DB?pipeline=NAME#STREAM.",
            show_default=False,
        ),
    ],
    stream: Annotated[
        str | None,
        typer.Argument(
            metavar="[STORE/STREAM]",
            help="One stream, as the list names it; all that pipes of the file go through when not given.",
            show_default=False,
        ),
    ] = None,
    forget: Annotated[
        str | None,
        typer.Option(
            metavar="READER", help="Keep nothing for this reader any more.", show_default=False
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for machines.")
    ] = False,
) -> None:
    """List who reads the streams of a pipeline: where each reader is, and how many entries are before it.

    A stream with a retention keeps entries until the last of them has read them, so one that is never started
    again holds it up: --forget READER keeps nothing for it any more. Its place is kept: started again it goes on
    there, or is told what it has missed. One that is still at work stops.

    surepipe readers pipeline.yaml     all streams that its pipes go through

    surepipe readers shop.db#orders    the stream of a Pipe or StreamSender "orders" with the store shop.db
    """
    found = (
        _of_stream(place, stream, forget)
        if "://" in place or ("#" in place and not Path(place).exists())
        else _of_plan(Path(place), stream, forget)
    )
    if as_json:
        show_json({name: listed or [] for name, listed in found.items()})
        return
    for name, listed in found.items():
        show([line((name, "head"), f"  {_count(listed)}")])
        show(line(f"{one['reader']}: {_where(one)}", indent=2) for one in listed or ())


def _where(reader: dict[str, object]) -> str:
    if reader["next"] is None:
        return "its place is kept elsewhere"
    return f"{reader['lag']} to read, from {reader['next']} on"


def _count(listed: Readers | None) -> str:
    if listed is None:
        return "not there: nothing has gone through yet"
    return "1 reader" if len(listed) == 1 else f"{len(listed)} readers"


def _of_plan(file: Path, stream: str | None, forget: str | None) -> dict[str, Readers | None]:
    """Who reads the streams of a plan."""
    from surepipe.pipelines import load

    plan = load(file)
    streams = _streams(plan, stream)
    if forget is not None and len(streams) != 1:
        complain(f"{plan.name} has the streams {', '.join(streams)}: say which, before --forget")
        raise typer.Exit(Exit.UNUSABLE)
    found: dict[str, Readers | None] = {}
    for name in streams:
        with _opened(plan, name) as (store, at):
            found[name] = _read(name, store, at, forget)
    return found


def _of_stream(text: str, within: str | None, forget: str | None) -> dict[str, Readers | None]:
    """Who reads a stream that is named by its store."""
    from surepipe.audit.bulk import StoredStream, place_of
    from surepipe.audit.bulk.logs import opened

    if within is not None:
        complain(f"{text} names a stream already: leave {within} out")
        raise typer.Exit(Exit.UNUSABLE)
    place = place_of(text)
    assert isinstance(place, StoredStream), "a name with # that is no file"
    with closing(opened(place)) as store:
        found = _read(str(place), store, place.stream, forget)
    if found is None:
        complain(f"{place}: there is no such stream")
        raise typer.Exit(Exit.UNUSABLE)
    return {str(place): found}


def _read(name: str, store: Store, stream: str, forget: str | None) -> Readers | None:
    """The readers of a stream when one was forgotten, if that was asked for; None where there is no stream."""
    from surepipe.core.store_requests import NoStream
    from surepipe.storage import forget_reader, readers_of
    from surepipe.storage.positions import readers_elsewhere

    if isinstance(store.info(stream), NoStream):
        if forget is None:
            return None
        complain(f"{name}: nothing has gone through yet, so it has no reader {forget!r}")
        raise typer.Exit(Exit.UNUSABLE)
    elsewhere = readers_elsewhere(store, stream)
    try:
        if forget is not None:
            forget_reader(store, stream, forget)
        listed = readers_of(store, stream)
    except LookupError as error:
        is_there = f"; the place of {forget!r} is kept elsewhere" if forget in elsewhere else ""
        complain(f"{name}: {error.args[0]}{is_there}")
        raise typer.Exit(Exit.UNUSABLE) from error
    here: Readers = [{"reader": one.reader, "next": one.next, "lag": one.lag} for one in listed]
    names = {one.reader for one in listed}
    there = [one for one in elsewhere if one not in names]
    return here + [{"reader": one, "next": None, "lag": None} for one in there]


def _streams(plan: Plan, chosen: str | None) -> list[str]:
    """The streams that pipes go through, or the one that was asked for. A book's log has no readers: what is done
    stands in the book."""
    from surepipe.pipelines.run.pipes import stream_name

    through = [pipe for pipe in plan.pipes if pipe.stream_store is not None and pipe.book is None]
    names = (f"{pipe.stream_store}/{stream_name(plan, pipe)}" for pipe in through)
    known = list(dict.fromkeys(names))
    if chosen is None and known:
        return known
    if chosen in known:
        return [chosen]
    why = (
        f"has no stream {chosen!r}: its pipes go through {', '.join(known)}"
        if known
        else "has no pipe that goes through a stream of a store"
    )
    complain(f"{plan.name} {why}; of any other stream, surepipe readers STORE.db#STREAM")
    raise typer.Exit(Exit.UNUSABLE)


@contextmanager
def _opened(plan: Plan, name: str) -> Generator[tuple[Store, str]]:
    """The store of a stream, which is opened for that, and the name of the stream in it."""
    from surepipe.pipelines.run import RealEnvironment
    from surepipe.pipelines.run.running import close_store

    store_name, _, stream = name.partition("/")
    store = RealEnvironment(plan).existing_store(plan.store(store_name))
    try:
        yield store, stream
    finally:
        close_store(store)
