"""``surepipe audit``: what the trace of a run proves about its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.exits import Exit
from surepipe.cli.output import Line, line, show, show_json
from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from surepipe.simulation.audit import Audit


class EngineName(StrEnum):
    """What judges."""

    AUTO = "auto"
    TRACE = "trace"
    LOCAL = "local"
    SPARK = "spark"


class MatchName(StrEnum):
    """How two streams are compared."""

    PAYLOAD = "payload"
    IDENTITY = "identity"


def audit(  # noqa: PLR0917 - the options of a command
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="SENT [DELIVERED]",
            help="Traces (JSON Lines or Parquet; one file, one from each process, or a folder), or streams: "
            "STORE.db#STREAM, redis://HOST:PORT/DB?pipeline=NAME#STREAM.",
            show_default=False,
        ),
    ],
    engine: Annotated[
        EngineName,
        typer.Option(
            help="trace: row by row, payloads and confirms too. local: in bulk, in this process. spark: in bulk, "
            "on --master. auto: trace for files; local for folders, streams and --page."
        ),
    ] = EngineName.AUTO,
    master: Annotated[
        str, typer.Option(help="Where Spark runs, with --engine spark.")
    ] = "local[*]",
    expect: Annotated[
        str,
        typer.Option(
            help="Hold every channel to these: no-loss, no-duplicate, monotonic, gap-free, with commas. Else to "
            "what the traces claim; for streams, to all four.",
            show_default=False,
        ),
    ] = "",
    match: Annotated[
        MatchName,
        typer.Option(help="Compare two streams by payload, or by producer, epoch and seq."),
    ] = MatchName.PAYLOAD,
    at_rest: Annotated[
        bool,
        typer.Option("--at-rest", help="Nothing more will come: what is missing is lost."),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(help="Write the verdict as a page, one HTML file.", show_default=False),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for machines.")
    ] = False,
) -> None:
    """Say what was lost, repeated or out of order: from traces that surepipe run --trace wrote, or from streams.

    What a pipe promised, and the trace can't show, is no success: a trace that was cut short by a kill shows no
    loss, only messages that had not come yet. Run the pipeline to its end with the same --trace, and audit again.
    """
    from surepipe.cli.auditing import Wish, audit_in_bulk, is_bulk

    asks_for_bulk = is_bulk(places) or page is not None or at_rest or bool(expect)
    if engine is EngineName.TRACE and asks_for_bulk:
        raise ConfigurationError(
            "--engine trace reads files of traces, and knows no --page, --at-rest or --expect: use --engine local"
        )
    if engine in (EngineName.LOCAL, EngineName.SPARK) or asks_for_bulk:
        chosen = "spark" if engine is EngineName.SPARK else "local"
        wish = Wish(places, chosen, master, expect, str(match), at_rest, page, as_json)
        _leave(audit_in_bulk(wish))
        return
    _audit_rows(places, as_json=as_json)


def _leave(code: Exit) -> None:
    if code is not Exit.HELD:
        raise typer.Exit(code)


def _audit_rows(traces: Sequence[str], *, as_json: bool) -> None:
    from surepipe.simulation.audit import audit as judged
    from surepipe.simulation.trace_file import TraceFile

    try:
        result = judged(*(TraceFile(path) for path in traces))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{error.filename} can't be read: {reason}") from error
    code = _code(result)
    if as_json:
        show_json(_document(result, code))
    else:
        show(_lines(result, code))
    _leave(code)


def _code(result: Audit) -> Exit:
    if result.violated(promised=True):
        return Exit.VIOLATED
    return Exit.HELD if result.held and result.pipes else Exit.NOT_EXERCISED


def _lines(result: Audit, code: Exit) -> Iterator[Line]:
    for text in result.lines():
        style = "bad" if "violated" in text else "head" if not text.startswith(" ") else ""
        yield line((text.strip(), style) if style else text.strip(), indent=_indent(text))
    yield line("")
    said = {Exit.HELD: "held: ", Exit.VIOLATED: "violated: "}.get(code, "can't tell: ")
    yield line((said, "good" if code is Exit.HELD else "bad"), _sum(result))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _sum(result: Audit) -> str:
    lost = sum(pipe.lost for pipe in result.pipes)
    repeated = sum(pipe.repeated for pipe in result.pipes)
    disorder = sum(pipe.out_of_order for pipe in result.pipes)
    waiting = sum(pipe.waiting for pipe in result.pipes)
    order = "in order" if not disorder else f"{disorder} out of order"
    late = f", {waiting} not settled yet" if waiting else ""
    return f"{lost} lost, {repeated} repeated, {order}{late}"


def _document(result: Audit, code: Exit) -> dict[str, object]:
    return {
        "exit": int(code),
        "ended": result.ended,
        "torn": result.torn,
        "broken": list(result.broken),
        "pipes": [
            {
                "pipe": pipe.pipe,
                "accepted": pipe.accepted,
                "settled": pipe.settled,
                "dead": pipe.dead,
                "waiting": pipe.waiting,
                "lost": pipe.lost,
                "repeated": pipe.repeated,
                "out_of_order": pipe.out_of_order,
                "properties": [
                    {
                        "id": one.id,
                        "name": one.name,
                        "outcome": str(one.outcome),
                        "promised": one.id in pipe.promised,
                        "count": one.count,
                        "why": one.why,
                    }
                    for one in pipe.findings
                ],
            }
            for pipe in result.pipes
        ],
    }
