"""``surepipe replay``: a range of a stream once more through a function, into another stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.output import Exit, complain, line, show, show_json
from surepipe.errors import ConfigurationError, SurepipeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from surepipe.spark.replaying import ReplayedStream, ReplayWanted
    from surepipe.spark.stores import StorePlace


def replay(
    stream: Annotated[
        str,
        typer.Argument(
            metavar="STORE#STREAM",
            help="What is replayed: STORE.db#STREAM, or redis://HOST:PORT/DB?pipeline=NAME#STREAM.",
            show_default=False,
        ),
    ],
    through: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Takes a message, returns what is written for it; None: nothing.",
            show_default=False,
        ),
    ],
    into: Annotated[
        str,
        typer.Option(
            metavar="STORE#STREAM",
            help="Where it is written; made when it is not there.",
            show_default=False,
        ),
    ],
    *,
    first: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="N", min=1, help="The first index; else the first there is."
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--to", metavar="N", min=1, help="The last index; else the last there is now."
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            help="Names the replay. One of the same name goes on; a new name writes everything once more. "
            "MODULE:FUNCTION when not given.",
            show_default=False,
        ),
    ] = "",
    master: Annotated[str, typer.Option(metavar="URL", help="Where Spark runs.")] = "local[*]",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for machines.")
    ] = False,
) -> None:
    """Send a range of a stream through a function into another stream, on Spark: to correct what was wrong.

    Each entry is written effectively once, by its index, and in order. When it is stopped, killed or fails, give
    the same command again: it goes on behind what is written. For example: surepipe replay shop.db#orders --from 1
    --to 5000 --through shop.orders:price --into shop.db#orders.repriced
    """
    from surepipe.spark.session import SparkOptions, check_start, open_session, require_extra

    require_extra()
    from surepipe.spark.replaying import ReplayWanted, check
    from surepipe.spark.running.run import own_code

    source, target = _place(stream, is_made=False), _place(into, is_made=True)
    wanted = ReplayWanted(*source, *target, through, first, last)
    check(wanted)
    options = SparkOptions(master=master, app_name="surepipe replay", ship=own_code([through]))
    check_start(options)
    session = open_session(options)
    try:
        found = _replayed(session, wanted, name or through)
    finally:
        session.stop()
    _tell(found, into, as_json=as_json)


def _place(text: str, *, is_made: bool) -> tuple[StorePlace, str]:
    """The store and the stream. A file that is written into may not be there yet."""
    from surepipe.audit.bulk import StoredStream, place_of
    from surepipe.spark.stores import StorePlace

    path, _, stream = text.partition("#")
    if is_made and path and stream and "://" not in path:
        return StorePlace(path), stream
    found = place_of(text)
    if not isinstance(found, StoredStream):
        raise ConfigurationError(
            f"{text} names no stream: write STORE.db#STREAM, or redis://HOST:PORT/DB?pipeline=NAME#STREAM"
        )
    return StorePlace(found.where, pipeline=found.pipeline), found.stream


def _replayed(session: SparkSession, wanted: ReplayWanted, name: str) -> ReplayedStream:
    """Raises typer.Exit when the function fails, and SurepipeError for everything else."""
    from surepipe.spark.replaying import replay as replay_on_spark
    from surepipe.spark.shipping import failure_of, raised_in_task

    try:
        return replay_on_spark(
            session,
            wanted.place,
            wanted.stream,
            wanted.into,
            wanted.call,
            name=name,
            first=wanted.first,
            last=wanted.last,
            into_place=wanted.target,
        )
    except SurepipeError:
        raise
    except Exception as error:
        ours, said = failure_of(error), raised_in_task(error)
        if ours is not None:
            raise ours from error
        if said is None:
            raise
        complain(
            f"{wanted.call} raised {said}; correct it, and give the same command again: it goes on behind what is "
            "written"
        )
        raise typer.Exit(Exit.UNUSABLE) from None


def _tell(found: ReplayedStream, into: str, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "exit": 0,
                "first": found.first,
                "last": found.last,
                "read": found.entries,
                "written": found.written,
            }
        )
        return
    asked = f"{found.first} to {found.last}"
    if not found.entries:
        show([line(f"nothing to do: {asked} are through; --name NEW writes them once more")])
        return
    read = f"read {found.entries} of {asked}"
    show([line(f"{read}, wrote {found.written} into {_shown(into)}")])


def _shown(text: str) -> str:
    from surepipe.pipelines.problems import mask

    return mask(text)
