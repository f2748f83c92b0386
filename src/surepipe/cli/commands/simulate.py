"""``surepipe simulate``: a pipeline under many fault schedules, with the shortest one that breaks it."""

from __future__ import annotations

import faulthandler
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.output import (
    Exit,
    complain,
    line,
    show,
    show_json,
    standard_output_apart,
)
from surepipe.errors import MisuseError, SurepipeError

if TYPE_CHECKING:
    from surepipe.cli.simulating import Findings

SCHEDULES = 100


def simulate(
    file: Annotated[Path, typer.Argument(help="The pipeline, a YAML file.", show_default=False)],
    *,
    seeds: Annotated[
        int | None,
        typer.Option(
            help=f"How many schedules to try; {SCHEDULES} when not given.",
            min=1,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Try this one schedule.", min=0, show_default=False)
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="claim|break|none|NAME,...",
            help="Which faults: those that are promised to be survived, and then some beyond; or only these, in "
            "the words of expect, such as process-crash,network.",
            show_default=False,
        ),
    ] = None,
    messages: Annotated[
        int | None, typer.Option(help="Messages of a run: 40, or what the file says.", min=1)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes.", min=0.01)
    ] = None,
    explore: Annotated[
        bool,
        typer.Option("--explore", help="Try every schedule of a small scope of each pipe too."),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="How many processes share the work; all cores when not given.", min=1, max=1024
        ),
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(metavar="SCRIPT", help="Repeat the run of this script.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where pages and scripts go.")] = Path(
        ".surepipe/simulate"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for machines.")
    ] = False,
) -> None:
    """Try a pipeline, its own stages included, under 100 fault schedules (--seeds), in virtual time.

    Nothing is opened and nothing outside of --out is written: sources give the first rows of their files, sinks
    and stores are records. Says what held, and for each fault that is not promised to be survived the shortest
    schedule that breaks the pipeline.
    """
    from surepipe.cli.simulating import Findings, SimulateRequest, simulate_file
    from surepipe.pipelines.simulate.crew import cores
    from surepipe.pipelines.simulate.written import taken_over

    if not faulthandler.is_enabled():
        faulthandler.enable(2)  # a stage may call what crashes the interpreter: then say where
    with standard_output_apart() as ours, taken_over():
        try:
            request = SimulateRequest(
                file,
                seeds=_schedules(seed, seeds),
                faults=faults,
                messages=messages,
                seconds=None if minutes is None else minutes * 60,
                explores=explore,
                jobs=jobs or cores(),
                replay=replay,
                out=out,
                tell=None if as_json else lambda text: show([line(text)], ours),
            )
            found = simulate_file(request)
        except SurepipeError as error:
            if as_json:
                show_json(Findings(Exit.UNUSABLE, complaint=str(error)).as_document(), ours)
            raise
    if as_json:
        show_json(found.as_document())
    else:
        show(found.as_lines())
    _end(found)


def _schedules(seed: int | None, seeds: int | None) -> Sequence[int]:
    """Raises MisuseError for both."""
    if seed is None:
        return range(SCHEDULES if seeds is None else seeds)
    if seeds is not None:
        raise MisuseError("give --seed (that one schedule) or --seeds (so many), not both")
    return [seed]


def _end(found: Findings) -> None:
    if found.complaint:
        complain(found.complaint)
    if found.code is not Exit.HELD:
        raise typer.Exit(found.code)
