from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.repository import ROOT

SKIPPING = """
import pytest

def test_needs_a_server():
    pytest.skip("no server")

def test_passes():
    pass
"""


@pytest.mark.parametrize(("ci", "verdict"), [("true", 1), ("", 0)])
def test_a_skipped_test_fails_the_run_in_continuous_integration_only(
    ci: str, verdict: int, tmp_path: Path
) -> None:
    """Runs a suite with one skip under our conftest, with and without CI=true."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == verdict, done.stdout
    assert ("CI accepts no skipped test" in done.stdout) == bool(verdict)
