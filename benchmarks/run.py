"""All measurements that need no peers, one after the other: what ``make bench`` runs.

    python benchmarks/run.py            some minutes
    python benchmarks/run.py --long     also how cost and memory grow to 10^7 messages

Figures are ratios within one run where that is possible, because machines differ. ``benchmarks/RESULTS.md`` keeps
those of one machine; ``make peers`` compares with six task queues.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS: tuple[tuple[str, bool], ...] = (
    ("message_queue", False),
    ("throughput", True),
    ("stores", True),
    ("redis_stream", False),
    ("fuzz_codec", False),
    ("ibc", True),
)
"""Each module, and whether it knows ``--long``."""


def main(arguments: list[str]) -> int:
    """Run every part; the exit code is that of the first one that failed, after all were run."""
    worst = 0
    for script, knows_long in PARTS:
        options = [option for option in arguments if knows_long or option != "--long"]
        print(f"== {script} {' '.join(options)}".rstrip(), flush=True)
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{script}", *options], cwd=ROOT, check=False
        )
        worst = worst or done.returncode
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
