"""The example of lanes runs as it stands and prints what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "lanes.py"


def test_one_refused_card_holds_up_one_customer_only() -> None:
    """Each customer's orders in order, tom's third in the dead letters."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "order: absolute per key, none across keys",
        "ann [0, 4, 8]",
        "bob [1, 5, 9]",
        "eve [2, 6, 10]",
        "tom [7, 11]",
        "['order 3: card refused']",
    ]
