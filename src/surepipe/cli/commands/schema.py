"""``surepipe schema``: the JSON Schema of pipeline files, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surepipe.cli.output import show_json, write_file


def schema(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write it to this file in place of showing it."),
    ] = None,
) -> None:
    """Give the JSON Schema of pipeline files, so that an editor completes and checks them.

    In VS Code with the YAML extension, write it to a file and begin the pipeline with:

    # yaml-language-server: $schema=surepipe.schema.json
    """
    from surepipe.pipelines.schema import file_schema, schema_text

    if out is None:
        show_json(file_schema())
        return
    write_file(out, schema_text())
