"""``surepipe top``: what a running pipeline does, in a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from surepipe.cli.output import Exit, complain


def top(
    where: Annotated[
        str,
        typer.Argument(
            metavar="[WHERE]",
            help="Where the pipeline serves its page: a port, host:port, or a URL.",
        ),
    ] = "8470",
    *,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Look once; the status as one JSON document.")
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
) -> None:
    """Show what a running pipeline does: its pipes, how fast they are, and what waits.

    The pipeline runs with `surepipe run FILE --web`. On a terminal the table is renewed until Ctrl-C or until the
    pipeline ends; elsewhere it is shown once.
    """
    import sys

    from surepipe.cli.looking import Silent, address_of, look, show_once, show_renewed
    from surepipe.cli.output import show_json

    address = address_of(where)
    try:
        status = look(address)
    except Silent as error:
        complain(str(error))
        raise typer.Exit(Exit.UNUSABLE) from None
    if as_json:
        show_json(status.model_dump(mode="json", by_alias=True))
    elif once or not sys.stdout.isatty():
        show_once(status)
    else:
        show_renewed(status, address, every)
