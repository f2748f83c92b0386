"""A Python for executors that has third-party packages and not this checkout: shipping is really tested."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

OURS = ("surepipe", "__editable__", "_editable", "_surepipe")


def hidden_python(folder: Path) -> Path:
    """A program that runs this interpreter without its site-packages, with a folder of links to all but ours.

    The interpreter's own ``-S`` leaves out the .pth files, by which an editable install is found.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for part in Path(spec.origin).parents[1].iterdir():
        if part.suffix != ".pth" and not part.name.lower().startswith(OURS):
            (packages / part.name).symlink_to(part)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o755)
    return program
