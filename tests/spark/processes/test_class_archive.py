"""A real archive of Java's classes: made when there is none, and taken by the next start (spark SP-23)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from surepipe.spark.java import archive_for, find_java
from tests.packaging.repository import ROOT
from tests.spark.short_java import OPTIONS, surroundings

WITHIN_S = 600
FEW = 5_000
"""Far more than Java takes of its own classes, which are in the archive below."""


def run(*arguments: object, **environment: str) -> None:
    """Run a module in a process of its own. AssertionError unless it ends well."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env=surroundings(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr


def test_a_start_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    """spark SP-23: Java's own account of where each class came from; "top" is the archive above Java's own."""
    if not archive_for(find_java()).is_file():  # ``make spark`` has made it
        run("surepipe.spark.class_archive")
    said = tmp_path / "classes.log"
    options = f"{OPTIONS} -Xlog:class+load=info:file={said}"
    run("tests.spark.quiet_program", tmp_path, JDK_JAVA_OPTIONS=options)
    lines = said.read_text().splitlines()
    assert sum("shared objects file (top)" in line for line in lines) > FEW
