"""The examples of whole pipelines run as they stand, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "fan_out_in.py": "320 lines: each payment booked once and judged once, each customer in order",
    "webhook.py": "50 orders posted, each in the file once and in order",
    "outbox_to_redis.py": "400 orders booked, each once and in order",
    "from_consumer_group.py": (
        "100 entries handled, 30 by the group and the others by the pipeline, each once"
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_of_a_pipeline_runs_and_prints_what_it_promises(name: str) -> None:
    """As a program of its own, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert PRINTED[name] in done.stdout.splitlines()


def test_three_pipes_over_one_bad_route_keep_what_each_has_said() -> None:
    """A small run; it exits with 0 only when each pipe kept its word."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "three_pipes.py"), "--messages", "300", "--seed", "3"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 repeated, in order" in done.stdout
