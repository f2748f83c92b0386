"""``make operators MINUTES=10 SEED=1 FILES='pipes/window.py storage'``: how many small changes do tests notice?

Changes one operator, number, condition, call or order in machines and stores, in the memory of a forked child, and
runs the tests that go there, fastest first, until one fails. What is known from an earlier run is not tried again,
unless it survived or its file changed. ``equivalent.toml`` says which survivors change nothing, and why.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.operators.session import CODE, ROOT, Bounds, Operators
from tests.mutants.runner import say

FOLDERS = ("core", "guarantees", "pipes", "queues", "storage")
_MACHINES = (
    *("core", "pipes", "queues", "scenarios", "actors", "faults/test_corpus.py"),
    *("mutants/test_mutants.py", "simulation/test_required_rows.py"),
)
TESTS = {
    "core": (*_MACHINES, "storage"),
    "guarantees": ("guarantees", "pipes", "faults/test_corpus.py"),
    "pipes": _MACHINES,
    "queues": ("queues", "pipes"),
    "storage": (
        *("storage", "scenarios", "actors"),
        *("spark/test_payloads.py", "spark/test_columns.py"),
    ),
}
"""The tests that go through a folder of the source and are quick. Not those that compare digests of whole runs:
they notice any change, and can't say what is wrong with it."""
FLAGS = (
    "-qq",
    "-s",
    "-pno:cacheprovider",
    "-Wignore::pytest.PytestAssertRewriteWarning",
)
REQUIRED = 0.95
KEPT = ROOT / "build" / "operators"


def files_of(chosen: Sequence[str]) -> list[Path]:
    """The files that were named, by themselves or by a folder, relative to the package."""
    found: set[Path] = set()
    for name in chosen or FOLDERS:
        path = CODE / name
        found |= set(path.rglob("*.py")) if path.is_dir() else {path}
    return sorted(found)


def main() -> int:
    """Run, and print the shares; 1 when fewer than required were noticed."""
    parser = argparse.ArgumentParser(prog="make operators")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--most", type=int, default=1_000_000, help="changes at the most")
    parser.add_argument("--depth", type=float, default=20, help="seconds of tests for a change")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="*", help="instead of those that go with the files")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where results are kept")
    parser.add_argument("files", nargs="*", help="files or folders, relative to the package")
    given = parser.parse_args()
    chosen = files_of(given.files)
    touched = {path.relative_to(CODE).parts[0] for path in chosen}
    usual = sorted({f"tests/{folder}" for name in touched for folder in TESTS[name]})
    bounds = Bounds(given.seed, given.minutes, given.most, given.depth)
    operators = Operators(files_of(()), chosen, bounds, given.kept)
    os.chdir(ROOT)
    scratch = tempfile.mkdtemp(prefix="operators-")
    try:
        flags = [*FLAGS, f"--basetemp={scratch}/tests"]
        code = pytest.main([*flags, *(given.tests or usual)], plugins=[operators])
    finally:
        shutil.rmtree(scratch)
    if code != pytest.ExitCode.OK:
        return int(code)
    return report(operators)


def report(operators: Operators) -> int:
    """The table, and whether enough was noticed."""
    counts: Counter[tuple[str, str]] = Counter()
    for change, verdict in operators.verdicts.values():
        for folder in (change.file.split("/")[0], "all"):
            counts[folder, verdict.outcome] += 1
    say(
        f"{counts_of(counts, 'all').total()} of {operators.made} changes tried, seed {operators.bounds.seed}"
    )
    say("| folder | tried | killed | killed by time | survived | equivalent | share killed |")
    say("| --- | --- | --- | --- | --- | --- | --- |")
    for folder in (*FOLDERS, "all"):
        row = counts_of(counts, folder)
        if row.total():
            say(
                f"| {folder} | {row.total()} | {row['killed']} | {row['time']} | {row['survived']} "
                f"| {row['equivalent']} | {share(row):.1%} |"
            )
    return int(share(counts_of(counts, "all")) < REQUIRED)


def counts_of(counts: Counter[tuple[str, str]], folder: str) -> Counter[str]:
    """The row of a folder."""
    return Counter({outcome: n for (one, outcome), n in counts.items() if one == folder})


def share(row: Counter[str]) -> float:
    """Of those that change something, how many were noticed."""
    real = row.total() - row["equivalent"]
    return (row["killed"] + row["time"]) / real if real else 1.0


if __name__ == "__main__":
    sys.exit(main())
