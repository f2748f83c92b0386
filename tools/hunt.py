"""Looks for runs that break a promise, under seeds that nobody has tried: ``make hunt MINUTES=60 SEED=1``.

Goes over all subjects again and again, in claim mode and in break mode, until the time is up. What is found is
shrunk and kept in ``tests/corpus``, where every test run repeats it; a line says how to repeat it alone:

    python -m tools.hunt --replay tests/corpus/NAME.json
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from surepipe.simulation.campaign import Failure, catches_canary
from surepipe.simulation.chance.script import load, save
from surepipe.simulation.faults import Mode, draw_options
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.shrink import shrink
from surepipe.simulation.subjects import HopSubject
from surepipe.simulation.world import judge_rows
from tests.faults.quarry import QUARRY

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "corpus"
PER_TURN = 4
MODES = (Mode.CLAIM, Mode.CLAIM, Mode.BREAK)
REPLAYS_MAX = 200


def options_of(subject: HopSubject, seed: int) -> Options:
    """The options of a seed: the mode and the size of the run follow from it, too."""
    base = Options(gauges=seed % 8 == 0, events_max=60_000)
    messages = (12, 24, 40)[seed % 5 % 3]
    return draw_options(
        seed, promise_of(subject), mode=MODES[seed % 3], messages=messages, base=base
    )


def turn(subject: HopSubject, seed: int, corpus: Path) -> int:
    """A few seeds of one subject; how many runs broke a promise."""
    found = 0
    for one in range(seed, seed + PER_TURN):
        result = run_hop(subject, options_of(subject, one))
        if result.violations:
            found += 1
            keep(subject, Failure(one, result.violations[0], result.script), corpus)
    return found


def keep(subject: HopSubject, failure: Failure, corpus: Path) -> None:
    """Shrink a run and file it, once for each subject and property."""
    broken = failure.violation
    name = f"{subject.name}-{broken.property}".replace(",", "").replace(" ", "_")
    path = corpus / f"{name}.json"
    say(f"{subject.name}, {failure.origin}: {broken}")
    if path.exists():
        return
    shrunk = shrink(
        failure.script,
        lambda script: replay(subject, script),
        broken.property,
        replays_max=REPLAYS_MAX,
    )
    save(shrunk.script, path)
    say(f"  {len(shrunk.script.decisions)} decisions; python -m tools.hunt --replay {path}")


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def replayed(path: Path) -> int:
    """Repeat one script and say what it breaks; 1 when it breaks something."""
    script = load(path)
    subject = next(one for one in QUARRY if one.name == script.subject)
    result = replay(subject, script)
    if result.stale is not None:
        say(f"stale: {result.stale}")
    for row in result.rows:
        about = f"e{row.epoch} {row.seq}+{row.count} {row.detail}"
        say(f"{row.step:5} {row.time_us:>12} {row.node:9} {row.kind:10} {about}")
    for violation in result.violations:
        say(str(violation))
    return 1 if result.violations else 0


def hunt(minutes: float, seed: int, corpus: Path, words: list[str]) -> int:
    """Until the time is up; how many runs broke a promise."""
    assert catches_canary(judge_rows), "the canary was not caught: this hunt would see nothing"
    subjects = [one for one in QUARRY if all(word in one.name for word in words)]
    end = time.monotonic() + 60 * minutes
    runs = found = 0
    while time.monotonic() < end:
        for subject in subjects:
            found += turn(subject, seed, corpus)
            runs += PER_TURN
            if time.monotonic() >= end:
                break
        seed += PER_TURN
    say(f"{runs} runs of {len(subjects)} subjects up to seed {seed}: {found} broke a promise")
    return found


def main() -> int:
    """1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1_000_000)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--replay", type=Path)
    parser.add_argument("words", nargs="*", help="only subjects whose names hold these words")
    given = parser.parse_args()
    if given.replay:
        return replayed(given.replay)
    return 1 if hunt(given.minutes, given.seed, given.corpus, given.words) else 0


if __name__ == "__main__":
    sys.exit(main())
