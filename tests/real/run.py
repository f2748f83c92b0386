"""Runs the stages of real processes: ``python -m tests.real.run [STAGE...]``.

A stage or a group of them by name, all without one. Each ends with one line: what ran, how much, what it does not
exercise, the three slowest. In CI (``CI=true``) a stage that can't run fails, unless ``.ci/waived`` names it; on a
laptop it is passed over. Either way a block at the end says so. A count below the stage's minimum fails.

``--seed N`` repeats the schedule of a run (not its interleaving), ``--times N`` runs everything N times with
seeds N apart, ``--jobs N`` runs so many stages at once, each as a process. A stage that is not through after
``--within S`` seconds hangs: it says where each of its threads is, and fails.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryFile

from tests.real.stage import Stage
from tests.real.stages import STAGES
from tests.real.waivers import Waiver, read_waivers

ROOT = Path(__file__).parents[2]
WAIVED = ROOT / ".ci" / "waived"
SEED = 20250101
PASSED, FAILED, CANNOT_RUN = 0, 1, 4
WITHIN_S = 900.0
"""Far more than any stage takes."""


@dataclass(frozen=True)
class Result:
    """How one stage went, and what is printed about it."""

    stage: Stage
    status: int
    text: str


def run_stage(stage: Stage, seed: int) -> Result:
    """Run one stage here and now."""
    if missing := stage.needs():
        return Result(stage, CANNOT_RUN, f"CANNOT RUN {stage.name}: {missing}")
    tally, began = stage.tally(), time.monotonic()
    try:
        stage.run(Random(f"{stage.name} {seed}"), tally)
        tally.check()
    except Exception:  # noqa: BLE001 - whatever it was, the other stages run too
        return Result(
            stage,
            FAILED,
            f"FAILED {stage.name} with seed {seed}: so far {tally}\n{traceback.format_exc()}",
        )
    omits = f"; not exercised: {stage.omits}" if stage.omits else ""
    took = time.monotonic() - began
    memory = f"{_largest_mb()} MB"
    return Result(
        stage, PASSED, f"{stage.name}: {tally}{omits}; {took:.1f} s; {memory}; seed {seed}"
    )


def _largest_mb() -> int:
    """The most memory that this process, or one of those that it has ended, held at once."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(one).ru_maxrss for one in whose) // 1024


def run_watched(stage: Stage, seed: int, within_s: float = WITHIN_S) -> Result:
    """Run one stage, and end this process with a word about each thread when it takes longer than that."""
    faulthandler.dump_traceback_later(within_s, exit=True, file=sys.stdout)
    try:
        return run_stage(stage, seed)
    finally:
        faulthandler.cancel_dump_traceback_later()


def run_apart(stage: Stage, seed: int, within_s: float = WITHIN_S) -> Result:
    """Run one stage in a process of its own; what it leaves behind ends with it."""
    command = [sys.executable, "-m", "tests.real.run", "--bare", "--seed", str(seed)]
    with TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [*command, "--within", str(within_s), stage.name],
            cwd=ROOT,
            stdout=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait()
        finally:
            with suppress(ProcessLookupError):  # nothing was left behind
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return Result(stage, status, output.read().rstrip())


def chosen(names: Sequence[str], stages: Sequence[Stage] = STAGES) -> list[Stage]:
    """The stages of these names and groups, in their order. Raises ValueError for a name that is neither."""
    known = known_names(stages)
    for name in names:
        if name not in known:
            raise ValueError(f"there is no stage {name!r}; there are {', '.join(known)}")
    return [stage for stage in stages if not names or {stage.name, stage.group} & set(names)]


def alone(name: str, stages: Sequence[Stage] = STAGES) -> Stage:
    """The stage of this very name: a group may be called as one of its stages is."""
    (stage,) = [stage for stage in stages if stage.name == name]
    return stage


def known_names(stages: Sequence[Stage] = STAGES) -> list[str]:
    """Stages and groups."""
    return sorted({stage.name for stage in stages} | {stage.group for stage in stages})


def closing_block(
    results: Sequence[Result], waivers: Sequence[Waiver], *, in_ci: bool
) -> tuple[str, bool]:
    """What is said at the end about what did not run and what need not, and whether all is well."""
    absent = [result for result in results if result.status == CANNOT_RUN]
    waived = {waiver.stage for waiver in waivers}
    unforgiven = [
        result
        for result in absent
        if in_ci and not {result.stage.name, result.stage.group} & waived
    ]
    failed = [result for result in results if result.status not in (PASSED, CANNOT_RUN)]
    lines = [f"  {result.text}" for result in absent]
    lines += [f"  waived: {waiver}" for waiver in waivers]
    text = "\n".join(["", "NOT SHOWN BY THIS RUN", *lines]) if lines else ""
    return text, not failed and not unforgiven


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    options = _parser().parse_args(arguments)
    if options.bare:
        logging.getLogger("surepipe").setLevel(logging.CRITICAL)  # it would tell of every fault
        result = run_watched(alone(*options.stage), options.seed, options.within)
        _print(result.text)
        return result.status
    waivers = read_waivers(WAIVED, known_names())
    results = _run_all(chosen(options.stage), options)
    text, is_well = closing_block(results, waivers, in_ci=os.environ.get("CI") == "true")
    if text:
        _print(text)
    return PASSED if is_well else FAILED


def _run_all(stages: Sequence[Stage], options: argparse.Namespace) -> list[Result]:
    """Started in order; each is printed when it is through."""
    seeds = range(options.seed, options.seed + options.times)

    def run(job: tuple[int, Stage]) -> Result:
        result = run_apart(job[1], job[0], options.within)
        _print(result.text)
        return result

    with ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(run, [(seed, stage) for seed in seeds for stage in stages]))


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.real.run", description=__doc__)
    parser.add_argument("stage", nargs="*", help=f"one of {', '.join(known_names())}")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--within", type=float, default=WITHIN_S, metavar="S")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
