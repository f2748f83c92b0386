"""``surepipe init``: a small pipeline that works, with a test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from surepipe.cli.exits import Exit
from surepipe.cli.output import complain, line, show


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to write it; made when it is not there.")
    ] = Path(),
) -> None:
    """Write a small pipeline to begin with: the file, a stage, some data, a test, and the schema for editors.

    Writes over nothing: when one of the files is there already, none is written.
    """
    from surepipe.cli.starter import starter_files

    files = starter_files(_name_of(folder))
    there = [path for path in files if (folder / path).exists()]
    if there:
        complain(
            f"{folder / there[0]} is there already, and nothing was written: name another folder"
        )
        raise typer.Exit(Exit.UNUSABLE)
    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        complain(f"{error.filename} can't be written: {(error.strerror or '').lower()}")
        raise typer.Exit(Exit.UNUSABLE) from None
    _tell(folder, list(files))


def _name_of(folder: Path) -> str:
    """The folder's name, as far as a pipeline may have it."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-_")
    return name[:40] if name[:1].isalpha() else "orders"


def _tell(folder: Path, files: list[str]) -> None:
    enter = "" if folder == Path() else f"cd {folder} && "
    show(
        [
            *(line(f"wrote {folder / path}") for path in files),
            line(""),
            line(("next  ", "dim"), f"{enter}surepipe check pipeline.yaml"),
            line(("      ", "dim"), "surepipe run pipeline.yaml"),
            line(("      ", "dim"), "surepipe graph pipeline.yaml -o pipeline.svg"),
            line(("      ", "dim"), "python -m pytest"),
            line(("      ", "dim"), "surepipe simulate pipeline.yaml"),
        ]
    )
