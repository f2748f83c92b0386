"""The examples with stores run as they stand, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "outbox_sqlite.py": "200 orders booked, each once and in order, with a crash in between",
    "stream_two_processes.py": "received [{'order': 1}, {'order': 2}, {'order': 3}]",
    "dead_letters.py": "1 letter replayed, exactly once",
    "book.py": "by hand: done",
    "tenants.py": "66 calls made, 1 given up",
    "two_processes_tcp.py": "2000 orders shipped: 0 lost, 0 repeated, in order",
    "patterns/stream.py": "the receiver got: ['bread', 'milk', 'tea']",
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_and_prints_what_it_promises(name: str) -> None:
    """As a program of its own, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert PRINTED[name] in done.stdout.splitlines()


def test_the_receiving_program_begins_where_the_last_one_stopped() -> None:
    """The second receiver of the two-process example gets nothing."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "stream_two_processes.py")],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "received []"
