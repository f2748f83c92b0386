"""Asks SPIN what the explorer was asked, and compares: ``python -m tests.spin.run [COLUMN...]``.

A column is a pattern of the tables, such as ``RS`` or ``CI over RM``; without one all are asked. Each model is
built once, in a folder that is removed again; each question is one run of what was built. Exit status: 0 when both
say the same everywhere, 1 when they don't, 2 for a column that there is not, and 4 when SPIN or a C compiler is
missing in CI (``CI=true``). On a laptop that is only said.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.spin.questions import MODELS, Question, questions
from tests.spin.verdicts import Answer, summary, verdict_in

FOLDER = Path(__file__).parent
NEEDED = ("spin", "gcc")
PASSED, DISAGREED, NO_COLUMN, CANNOT_RUN = 0, 1, 2, 4
RUN_S = 120

COMPILE = ("gcc", "-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=2048", "-o", "pan", "pan.c")
"""No partial order reduction: a model is one process, so there is nothing to reduce."""
VERIFY = ("./pan", "-m20000", "-w18")


class Workshop:
    """Builds each model once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[str, Path] = {}

    def ask(self, question: Question) -> Answer:
        """One run of the verifier. Raises NoVerdictError, CalledProcessError or TimeoutExpired."""
        where = self._built.get(question.model) or self._build(question.model)
        said = subprocess.run(
            VERIFY,
            cwd=where,
            env={**os.environ, **question.settings},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        return Answer(question, verdict_in(said.stdout))

    def _build(self, model: str) -> Path:
        where = self._folder / model
        where.mkdir()
        for source in FOLDER.glob("*.pml"):
            shutil.copy(source, where)
        for command in (("spin", "-a", f"{model}.pml"), COMPILE):
            subprocess.run(command, cwd=where, stdout=subprocess.DEVNULL, timeout=RUN_S, check=True)
        self._built[model] = where
        return where


def missing(find: Callable[[str], str | None] = shutil.which) -> str:
    """The commands that are needed and not there."""
    return ", ".join(command for command in NEEDED if find(command) is None)


def chosen(columns: Sequence[str]) -> list[Question]:
    """The questions of these columns, of all without one. Raises ValueError for a column that there is not."""
    for column in columns:
        if column not in MODELS:
            raise ValueError(f"there is no column {column!r}; there are {', '.join(MODELS)}")
    return [question for question in questions() if not columns or question.column in columns]


def ask_all(asked: Sequence[Question]) -> int:
    """Ask and print; the exit status."""
    began, answers = time.monotonic(), list[Answer]()
    with tempfile.TemporaryDirectory(prefix="surepipe-spin-") as folder:
        workshop = Workshop(Path(folder))
        for question in asked:
            answers.append(workshop.ask(question))
            _print(str(answers[-1]))
    text, is_well = summary(answers)
    _print(f"{text}; {time.monotonic() - began:.1f} s")
    return PASSED if is_well else DISAGREED


def main(
    arguments: Sequence[str] | None = None, find: Callable[[str], str | None] = shutil.which
) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.spin.run", description=__doc__)
    parser.add_argument("column", nargs="*", help=f"one of {', '.join(MODELS)}")
    try:
        asked = chosen(parser.parse_args(arguments).column)
    except ValueError as error:
        _print(str(error))
        return NO_COLUMN
    if absent := missing(find):
        _print(f"CANNOT RUN spin: {absent} not found (Debian packages spin, gcc)")
        return CANNOT_RUN if os.environ.get("CI") == "true" else PASSED
    return ask_all(asked)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
