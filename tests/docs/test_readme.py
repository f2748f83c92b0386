"""What the README shows was done, and its example is a program that runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_of_the_readme_runs_and_prints_every_order_in_order(tmp_path: Path) -> None:
    """The second Python block, in a process and a folder of its own; the first is the stage of an example."""
    stage, block = BLOCK.findall((ROOT / "README.md").read_text())
    assert stage in (ROOT / "examples" / "invoices" / "invoices.py").read_text()
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{{'order': {number}}}" for number in range(1_000)]


def test_the_first_screen_shows_what_the_commands_print_today() -> None:
    """The stage, the command that breaks it, its picture, and what `check` says: each is done again."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.front_door", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_install_line_names_an_extra_that_has_all_that_users_may_want() -> None:
    """`all` is every extra but those for working on surepipe itself."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (everything,) = extras.pop("all")
    for_users = sorted(set(extras) - {"test", "dev"})
    named = everything.removeprefix("surepipe[").removesuffix("]").split(",")
    assert sorted(named) == for_users
    assert "pip install '.[all]'" in (ROOT / "README.md").read_text()


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
