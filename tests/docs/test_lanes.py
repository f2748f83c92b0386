"""The page about lanes: its program runs as it stands, and what it quotes is what is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from surepipe.actors import Pipe, StepRuntime

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lanes.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    """It ends with an assertion of its own."""
    (block,) = BLOCK.findall(PAGE)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_quotes_the_guarantee() -> None:
    """The last part of what a pipe with lanes prints."""
    with Pipe("orders", key="customer", runtime=StepRuntime()) as pipe:
        assert f"    {str(pipe.guarantee).rpartition('; ')[2]}\n" in PAGE
