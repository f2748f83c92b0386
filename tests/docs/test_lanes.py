"""The page about lanes: its programs run as they stand, and what it quotes is what is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.actors import Pipe, StepRuntime

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lanes.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


PROGRAMS: dict[str, str] = dict(zip(("lanes", "both"), BLOCK.findall(PAGE), strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_of_the_page_run(tmp_path: Path, program: str) -> None:
    """Each ends with an assertion of its own."""
    assert _said(tmp_path, PROGRAMS[program]) == ""


def test_what_comes_again_in_a_lane_is_booked_once(tmp_path: Path) -> None:
    """Each handler fails once behind its append, as a crash would have it. A result that is named by the clock
    is there twice."""
    stored = "    if not isinstance(outcome, Stored):"
    fails = f"    assert order in tried or tried.append(order)\n{stored}"
    again = "tried = []\n" + PROGRAMS["both"].replace(stored, fails, 1)
    assert _said(tmp_path / "named", again) == ""
    drawn = again.replace("f\"order/{order['id']}\"", "str(time.time_ns())")
    assert _said(tmp_path / "drawn", drawn).endswith("AssertionError\n")


def _said(folder: Path, program: str) -> str:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr


def test_the_page_quotes_the_guarantee() -> None:
    """The last part of what a pipe with lanes prints."""
    with Pipe("orders", key="customer", runtime=StepRuntime()) as pipe:
        assert f"    {str(pipe.guarantee).rpartition('; ')[2]}\n" in PAGE
