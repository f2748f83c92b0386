"""How fast a world turns: events a second, and runs of 200 messages with a tenth of all frames lost.

    python -m benchmarks.simulation

Plain patterns, one message to a frame, show the world itself; ``reliable`` shows it with the machines that ship.
Judged: with the one judge over all rows. CPU time of one core.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

from surepipe.simulation import HopSubject, Options, Subject, run_hop
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.hop import play
from surepipe.simulation.world import digest_of_rows, judge_rows
from tests.plain.multi_unconfirmed import MULTI_UNCONFIRMED
from tests.plain.resend import RESEND

SECONDS = 3.0
LOSSY = Options(messages=200, loss_ppm=100_000, confirm_loss_ppm=100_000, chaos_us=3_000_000_000)


def measured(subject: Subject, options: Options, act: Callable[[Subject, Options], int]) -> str:
    """Runs and events a second, over seeds 1, 2, 3 ..."""
    start = time.process_time()
    runs = events = 0
    while time.process_time() - start < SECONDS:
        runs += 1
        events += act(subject, replace(options, seed=runs))
    took = time.process_time() - start
    return f"{runs / took:8.0f} runs/s {events / took:10,.0f} events/s"


def played(subject: Subject, options: Options) -> int:
    """The world alone."""
    return play(subject, options, SeededChooser(options)).events


def digested(subject: Subject, options: Options) -> int:
    """The world, and the digest of its rows."""
    world = play(subject, options, SeededChooser(options))
    digest_of_rows(world.rows)
    return world.events


def judged(subject: Subject, options: Options) -> int:
    """The world and the judge."""
    world = play(subject, options, SeededChooser(options))
    judge_rows(world.rows)
    return world.events


def whole(subject: Subject, options: Options) -> int:
    """A run as a campaign makes it: played, judged, digested, its decisions named."""
    return run_hop(subject, options).events


def main() -> None:
    """Print a table."""
    batches = {"run_max": 16, "window": 64}
    subjects: dict[str, Subject] = {
        "plain re-send": RESEND,
        "plain multi-unconfirmed": MULTI_UNCONFIRMED,
        "reliable, runs of 16": HopSubject({"reliable": batches}),
        "reliable, runs of 1": HopSubject({"reliable": {"run_max": 1, "window": 64}}),
    }
    sys.stdout.write(f"{SECONDS:.0f} s of CPU each, {LOSSY.messages} messages, 10 % loss\n")
    for name, subject in subjects.items():
        for act in (played, digested, judged, whole):
            line = measured(subject, LOSSY, act)
            sys.stdout.write(f"{name:26} {act.__name__:9} {line}\n")


if __name__ == "__main__":
    main()
