"""``surepipe bench``: how fast pipes are on this machine, without touching anything of yours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surepipe.cli.output import Exit, complain, show, show_json


def bench(
    file: Annotated[
        Path | None,
        typer.Argument(help="The pipeline, a YAML file; a built-in set when not given."),
    ] = None,
    *,
    messages: Annotated[
        int, typer.Option(help="Messages of each source at the most.", min=1, max=100_000_000)
    ] = 20_000,
    seconds: Annotated[
        float,
        typer.Option(help="Seconds in which messages are taken, for each pipeline.", min=0.1),
    ] = 5.0,
    stages: Annotated[
        bool,
        typer.Option(
            "--stages",
            help="Enter the functions of the file too (doubles of simulate: replace where it names them). "
            "Without it messages pass stages unchanged.",
        ),
    ] = False,
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Add pipes over this Redis to the built-in set.", show_default=False
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for machines.")
    ] = False,
) -> None:
    """Measure pipes on this machine: messages per second, how long one takes, what stores do for it.

    Your data stays as it is: rows are only read, sinks are replaced by counting, and stores by temporary ones of
    the same kind (a file beside the real one; keys of their own in the same Redis), which are removed at the end.
    All nodes run in this process, and links over TCP on 127.0.0.1.

    Beside the pipes a plain loop is measured, which writes each message as JSON, reads it and counts it: nothing
    here can be faster, so "of loop" can be compared between machines. "Under load" is with all messages at once;
    most of it is waiting. "Alone" is with one message under way at a time.
    """
    from surepipe.cli.benching.bench import BenchRequest, as_document, as_lines, bench_all

    report = bench_all(BenchRequest(file, messages, seconds, with_stages=stages, redis=redis))
    if as_json:
        show_json(as_document(report))
    else:
        show(as_lines(report))
    for complaint in report.complaints:
        complain(complaint)
    if report.code is not Exit.HELD:
        raise typer.Exit(report.code)
