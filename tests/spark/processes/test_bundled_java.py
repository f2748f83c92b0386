from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from surepipe.spark.java import find_java
from tests.packaging.repository import ROOT
from tests.spark.short_java import surroundings

WITHIN_S = 600


def run(module: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this folder in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.spark.{module}", *map(str, arguments)],
        cwd=ROOT,
        env=surroundings(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )


def test_a_start_on_the_bundled_java_is_quiet_and_its_log_is_in_the_named_file(
    tmp_path: Path,
) -> None:
    """Nothing on either output, and a log; Spark finds the source by itself, too; spark SP-12, SP-22, SP-23."""
    bundled = find_java({"PATH": ""})
    done = run("quiet_program", tmp_path, JAVA_HOME=str(bundled.path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "spark.log").is_file()
