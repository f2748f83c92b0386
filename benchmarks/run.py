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

HERE = Path(__file__).parent
PARTS: tuple[tuple[str, bool], ...] = (
    ("message_queue.py", False),
    ("throughput.py", True),
    ("stores.py", True),
    ("redis_stream.py", False),
    ("fuzz_codec.py", False),
)
"""Each script, and whether it knows ``--long``."""


def main(arguments: list[str]) -> int:
    """Run every part; the exit code is that of the first one that failed, after all were run."""
    worst = 0
    for script, knows_long in PARTS:
        options = [option for option in arguments if knows_long or option != "--long"]
        print(f"== {script} {' '.join(options)}".rstrip(), flush=True)
        done = subprocess.run(
            [sys.executable, HERE / script, *options], cwd=HERE.parent, check=False
        )
        worst = worst or done.returncode
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
