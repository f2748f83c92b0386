"""``surepipe readers``: who reads the streams of a plan, and how to keep nothing for one that never comes back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.output import Exit, complain, line, show, show_json

if TYPE_CHECKING:
    from surepipe.core.store_requests import Store
    from surepipe.pipelines import Plan


def readers(
    file: Annotated[Path, typer.Argument(help="The pipeline, a YAML file.", show_default=False)],
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
    """
    from surepipe.pipelines import load
    from surepipe.storage import forget_reader, readers_of

    plan = load(file)
    streams = _streams(plan, stream)
    if forget is not None and len(streams) != 1:
        complain(f"{plan.name} has the streams {', '.join(streams)}: say which, before --forget")
        raise typer.Exit(Exit.UNUSABLE)
    found: dict[str, list[dict[str, object]]] = {}
    for name in streams:
        with _opened(plan, name) as (store, at):
            try:
                if forget is not None:
                    forget_reader(store, at, forget)
                found[name] = [
                    {"reader": one.reader, "next": one.next, "lag": one.lag}
                    for one in readers_of(store, at)
                ]
            except LookupError as error:
                complain(f"{name}: {error.args[0]}")
                raise typer.Exit(Exit.UNUSABLE) from error
    if as_json:
        show_json(found)
        return
    for name, listed in found.items():
        show(
            [line((name, "head"), f"  {len(listed)} {'reader' if len(listed) == 1 else 'readers'}")]
        )
        show(
            line(f"{one['reader']}: {one['lag']} to read, from {one['next']} on", indent=2)
            for one in listed
        )


def _streams(plan: Plan, chosen: str | None) -> list[str]:
    """The streams that pipes go through, or the one that was asked for."""
    from surepipe.pipelines.run.pipes import pipe_name

    known = [
        f"{pipe.stream_store}/{pipe_name(plan, pipe)}"
        for pipe in plan.pipes
        if pipe.stream_store is not None
    ]
    if chosen is None and known:
        return known
    if chosen in known:
        return [chosen]
    has = f"has no stream {chosen!r}: its pipes go through {', '.join(known)}"
    complain(f"{plan.name} {has if known else 'has no pipe that goes through a stream of a store'}")
    raise typer.Exit(Exit.UNUSABLE)


@contextmanager
def _opened(plan: Plan, name: str) -> Generator[tuple[Store, str]]:
    """The store of a stream, which is opened for that, and the name of the stream in it."""
    from surepipe.pipelines.run import RealEnvironment
    from surepipe.pipelines.run.running import close_store

    store_name, _, stream = name.partition("/")
    store = RealEnvironment(plan).store(plan.store(store_name))
    try:
        yield store, stream
    finally:
        close_store(store)
