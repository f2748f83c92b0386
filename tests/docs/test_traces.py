"""docs/traces.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "traces.md"


def test_the_example_of_the_page_prints_what_stands_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run as it stands, in a folder of its own; the handler's lines are left out."""
    program, printed = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, str(PAGE), "exec"), {})
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("{")]
    assert lines == printed.splitlines()
