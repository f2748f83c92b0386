"""docs/observability.md says what there is, and its programs run."""

from __future__ import annotations

import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

from surepipe.cli.commands.run import run
from surepipe.observe.status import Part, PipeFlow, Status
from tests.docs.kit import programs_in

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")


def test_the_programs_of_the_page_run() -> None:
    """One after the other, in one process."""
    programs = programs_in(PAGE)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(programs)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    served = r"http://127\.0\.0\.1:\d+"
    assert re.fullmatch(rf"{served}/status\.json\n{served}/metrics\n", done.stdout)


def test_the_page_names_every_number_of_a_pipe_and_no_other() -> None:
    """The rows of the table about flow."""
    table = PAGE.partition("| in `flow` | is |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([a-z_0-9]+)`", table))
    assert named == {*PipeFlow.model_fields, "count", "p50_ms", "p99_ms"}


@pytest.mark.parametrize("option", ["web", "web_port", "metrics", "otel", "log"])
def test_the_page_names_every_option_of_run_for_looking(option: str) -> None:
    """As the command has them."""
    assert option in signature(run).parameters
    assert f"`--{option.replace('_', '-')}" in PAGE


def test_the_keys_of_the_status_that_the_page_names_are_there() -> None:
    """Of the whole, and of a part."""
    for word in ("parts", "notices", "rates_over_s"):
        assert word in Status.model_fields
        assert f"`{word}`" in PAGE
    for word in ("guarantee", "tolerates", "counts", "per_s", "flow"):
        assert word in Part.model_fields
        assert f"`{word}`" in PAGE


def test_the_picture_of_the_page_is_there() -> None:
    """A PNG of moderate size."""
    (name,) = re.findall(r"!\[.*?\]\((.*?)\)", PAGE)
    picture = (ROOT / "docs" / name).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000
