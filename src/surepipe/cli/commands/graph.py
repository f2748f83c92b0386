"""``surepipe graph``: a picture of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surepipe.cli.output import Exit, complain, write_file


def graph(
    file: Annotated[Path, typer.Argument(help="The pipeline, a YAML file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write to this file in place of showing it.", show_default=False
        ),
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Text for Graphviz in place of SVG.")] = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Text for Mermaid in place of SVG.")
    ] = False,
) -> None:
    """Draw a pipeline: what feeds what, the layers of each pipe, what it guarantees, the stores.

    Gives SVG that stands by itself and suits light and dark pages: surepipe graph pipeline.yaml -o pipeline.svg
    """
    from surepipe.drawing.flow import dot_of, mermaid_of, svg_of
    from surepipe.pipelines import load
    from surepipe.pipelines.diagram import diagram_of

    if dot and mermaid:
        complain("--dot and --mermaid are two pictures: ask for one")
        raise typer.Exit(Exit.UNUSABLE)
    make = dot_of if dot else mermaid_of if mermaid else svg_of
    picture = make(diagram_of(load(file)))
    if out is None:
        typer.echo(picture, nl=False)
        return
    write_file(out, picture)
