"""``surepipe simulate`` of stages that end the process they run in: in one line what is known, and code 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from tests.pipelines.simulate.kit import simulated

CRASHES = "import ctypes\ndef price(order):\n    ctypes.string_at(0)\n    return order\n"
ENDS = "import ctypes\nlibrary = ctypes.CDLL(None)\ndef price(order):\n    library._exit(3)\n"


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (CRASHES, r"/shop_stages\.py:3: price crashed the interpreter"),
        (ENDS, r"It ran one of these: --seed \d+(, --seed \d+)?\. "),
    ],
    ids=["crashes", "ends"],
)
def test_a_process_that_a_stage_has_ended_is_told_of(
    tmp_path: Path, stages: str, told: str
) -> None:
    """By the line where the interpreter could say it, else by the schedules (simulation X-22)."""
    done = simulated(tmp_path, stages, "--jobs", "2", "--seeds", "20")
    assert (done.returncode, done.stdout) == (Exit.UNUSABLE, ""), done.stderr
    assert re.search(told, done.stderr)
    assert "nothing is said to hold" in done.stderr
    assert done.stderr.count("\n") == 1
