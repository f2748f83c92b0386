"""Fills the first screen of README.md: ``python -m tools.front_door``; with ``--check`` it only compares.

What stands there was done: the example's stage, the command that breaks it, what that prints, its picture, and
what `check` says. A block stands between ``<!-- shown: NAME -->`` and ``<!-- /shown -->``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "README.md"
PICTURE = ROOT / "docs" / "pictures" / "readme" / "invoice-numbers.svg"
EXAMPLE = ROOT / "examples" / "invoices"
SIMULATE = ("simulate", "pipeline.yaml", "--faults", "process-crash")
CHECK = ("check", "pipeline.yaml")
MENDED = ("next(numbers)", 'order["order"]')
_BLOCK = re.compile(r"(<!-- shown: ([\w-]+) -->\n).*?(<!-- /shown -->)", re.DOTALL)
_SVG = re.compile(r"<svg .*?</svg>", re.DOTALL)


def run_in(folder: Path, *arguments: str) -> str:
    """What the command prints, in a folder that has the example."""
    done = subprocess.run(
        [sys.executable, "-m", "surepipe", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "110", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.stdout


@cache
def done() -> Mapping[str, str]:
    """Everything that is shown, by name; the picture under its own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "invoices"
        shutil.copytree(
            EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", ".surepipe", "out")
        )
        stage = folder / "invoices.py"
        source = stage.read_text(encoding="utf-8")
        broken = run_in(folder, *SIMULATE)
        (page,) = (folder / ".surepipe" / "simulate").glob("*.html")
        found = _SVG.search(page.read_text(encoding="utf-8"))
        assert found is not None, "the page shows how it breaks"
        checked = run_in(folder, *CHECK)
        stage.write_text(source.replace(*MENDED), encoding="utf-8")
        mended = run_in(folder, *SIMULATE)
    return {
        "stage": fenced("python", source.partition("from typing import Any\n\n")[2].strip()),
        "simulate": console(SIMULATE, _until(broken, "Guarantee of this pipe")),
        "check": console(CHECK, _from(checked, "end to end")),
        "mended": console(SIMULATE, [line for line in mended.splitlines() if "held" in line][-1:]),
        "picture": found.group() + "\n",
    }


def _until(text: str, end: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith(end):
            break
        yield line


def _from(text: str, start: str) -> Iterator[str]:
    lines = iter(text.splitlines())
    yield next(line for line in lines if line.startswith(start))
    yield from lines


def fenced(kind: str, text: str) -> str:
    """A block of code."""
    return f"```{kind}\n{text}\n```\n"


def console(command: tuple[str, ...], lines: Iterable[str]) -> str:
    """A command and what it prints."""
    return fenced("console", "\n".join([f"$ surepipe {' '.join(command)}", *lines]))


def filled(page: str) -> str:
    """The page with all blocks as they are now."""
    return _BLOCK.sub(lambda found: found[1] + done()[found[2]] + found[3], page)


def main() -> int:
    """1 when something is not what it should be."""
    page = PAGE.read_text(encoding="utf-8")
    wanted = {PAGE: filled(page), PICTURE: done()["picture"]}
    stale = [
        path
        for path, text in wanted.items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale: python -m tools.front_door\n")
        return bool(stale)
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
