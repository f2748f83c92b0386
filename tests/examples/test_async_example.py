"""The example of an asyncio program runs as it stands and prints what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "async_orders.py"


def test_eight_customers_are_served_at_once_and_each_in_order() -> None:
    """All but one order, which is named with the cause."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.replace("\n", "")) == (0, "")
    served = {f"c{n}": [m for m in range(n, 32, 8) if m != 3] for n in range(8)}
    assert done.stdout.splitlines() == [
        *(f"{customer} {numbers}" for customer, numbers in served.items()),
        "not charged: card refused (3 attempts)",
    ]
