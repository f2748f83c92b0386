"""The page about tests: the file of tests with real pipes passes as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.kit import programs_in

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
BLOCKS = programs_in(PAGE)


def test_the_tests_of_a_service_pass(tmp_path: Path) -> None:
    """Both of them, and Python warns of nothing."""
    (tmp_path / "test_service.py").write_text(BLOCKS[-1])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout
