"""``surepipe audit``: what the trace of a run proves about its messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.exits import Exit
from surepipe.cli.output import Line, line, show, show_json
from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from surepipe.simulation.audit import Audit


def audit(
    traces: Annotated[
        list[Path],
        typer.Argument(
            help="Traces of one run: one file, or one from each process (sender's and receiver's).",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for machines.")
    ] = False,
) -> None:
    """Say what was lost, repeated or out of order, from the traces that surepipe run --trace wrote.

    What a pipe promised, and the trace can't show, is no success: a trace that was cut short by a kill shows no
    loss, only messages that had not come yet. Run the pipeline to its end with the same --trace, and audit again.
    """
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
    if code is not Exit.HELD:
        raise typer.Exit(code)


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
