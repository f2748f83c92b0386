"""The examples of asyncio programs run as they stand and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed_by(name: str, told: str = "") -> list[str]:
    """The lines of an example that ends well and warns of nothing but this."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    warned = done.stderr.strip()
    assert told in warned
    assert len(warned.splitlines()) == (1 if told else 0), warned
    return done.stdout.splitlines()


def test_eight_customers_are_served_at_once_and_each_in_order() -> None:
    """All but one order, which is named with the cause."""
    served = {f"c{n}": [m for m in range(n, 32, 8) if m != 3] for n in range(8)}
    assert printed_by(
        "async_orders.py", "card refused (async_orders.py:28). It is in the dead letters"
    ) == [
        *(f"{customer} {numbers}" for customer, numbers in served.items()),
        "not charged: card refused (3 attempts)",
    ]


def test_tenants_are_served_on_the_loop_of_the_program_and_a_throttled_one_waits() -> None:
    """book-edges B-97, B-99: nothing is lost of the tenant that was put off, and nobody waits for it."""
    assert printed_by("async_tenants.py") == [
        "the last call for ada: b'PUT /me'",
        *("ada 2", "bob 2", "cyd 2", "loud 50"),
    ]
