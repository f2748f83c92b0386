"""The gate of determinism: drawn runs of every subject, in two processes with different hash seeds.

    python -m tests.simulation.gate 500

Says for each subject that the digests agree, or which seed and which row are the first that differ (exit 4).
"""

from __future__ import annotations

import os
import subprocess
import sys

from surepipe.simulation.drawing import draw_options
from surepipe.simulation.faults import Mode
from surepipe.simulation.hop import run_hop
from surepipe.simulation.promises import promise_of
from tests.simulation.test_replay import SUBJECTS, digests

NOT_DETERMINISTIC = 4


def told(hash_seed: str, *arguments: str) -> list[str]:
    """What this module says in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.simulation.gate", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.splitlines()


def rows_of(number: int, seed: int) -> list[str]:
    """The rows of one run, a line each."""
    subject = SUBJECTS[number]
    options = draw_options(seed, promise_of(subject), mode=Mode.BREAK)
    return [repr(row) for row in run_hop(subject, options, judge=None).rows]


def agree(number: int, seeds: int) -> bool:
    """Whether two processes give one subject the same runs; if not, say where they part."""
    name = SUBJECTS[number].name
    one, other = (told(hash_seed, "digests", str(number), str(seeds)) for hash_seed in "12")
    if one == other:
        sys.stdout.write(f"{name}: {seeds} seeds agree\n")
        return True
    seed = next(seed for seed in range(seeds) if one[seed] != other[seed])
    rows = (told(hash_seed, "rows", str(number), str(seed)) for hash_seed in "12")
    pairs = zip(*rows, strict=False)
    step, pair = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
    sys.stdout.write(f"{name}: seed {seed} differs at step {step}:\n  {pair[0]}\n  {pair[1]}\n")
    return False


def main(arguments: list[str]) -> int:
    """Compare all subjects; or, asked by itself, print what is to be compared."""
    if arguments[:1] == ["digests"]:
        sys.stdout.write("\n".join(digests(SUBJECTS[int(arguments[1])], int(arguments[2]))))
        return 0
    if arguments[:1] == ["rows"]:
        sys.stdout.write("\n".join(rows_of(int(arguments[1]), int(arguments[2]))))
        return 0
    seeds = int(arguments[0]) if arguments else 500
    agreed = [agree(number, seeds) for number in range(len(SUBJECTS))]
    return 0 if all(agreed) else NOT_DETERMINISTIC


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
