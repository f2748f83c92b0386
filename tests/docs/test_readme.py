"""The README's example is a program: it runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_of_the_readme_runs_and_prints_every_order_in_order(tmp_path: Path) -> None:
    """Each Python block, in a process and a folder of its own."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    assert len(blocks) == 1
    done = subprocess.run(
        [sys.executable, "-c", blocks[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{{'order': {number}}}" for number in range(1_000)]


def test_the_demo_keeps_every_promise() -> None:
    """A small run of what `make demo` shows: killed half way; it exits with 0 only when the audit is clean."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--orders", "1200", "--seed", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 repeated, in order" in done.stdout
