"""The page about asyncio: each of its programs runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.kit import programs_in

PAGE = (Path(__file__).parents[2] / "docs" / "async.md").read_text()
BLOCKS = programs_in(PAGE)


@pytest.mark.parametrize("number", range(10))
def test_a_program_of_the_page_runs(tmp_path: Path, number: int) -> None:
    """It ends with an assertion of its own, and Python warns of nothing."""
    assert len(BLOCKS) == 10
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
