"""The example runs and says what it should."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "message_queue.py"


def test_the_example_shows_a_wait_a_resend_and_a_confirm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run as a program, its output read."""
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "order 3 must wait: FULL"
    assert lines[3] == "no confirm yet, so 1 (bread) is sent again"
    assert lines[4] == "confirmed up to 1: 1 message less, 1 left"
    assert lines[-1] == "still waiting for a confirm: [2, 3]"
