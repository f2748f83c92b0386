"""The example of layers as values runs as it stands and prints what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "typed_layers.py"


def test_layers_may_be_written_as_values() -> None:
    """The stack prints as its composition, delivers in order and once, and refuses a window of nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "orders: continuous-index > multi-unconfirmed(run_max=64, window=512) / local",
        "in order, each once: True",
        "layer (multi-unconfirmed): option 'window' is 0: it must be greater than or equal to 1",
    ]
