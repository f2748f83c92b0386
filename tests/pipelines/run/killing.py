"""Kills ``surepipe run`` in child processes: ``python -m tests.pipelines.run.killing FILE OUT SEED CYCLES``, where
OUT is what the pipeline FILE writes, in the current folder. What follows are options of ``run``.

The children are forked from this process, which has imported everything and started no thread: so each is a whole
process of its own, and starts within milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from random import Random
from threading import Event

import surepipe.cli.app as command
from surepipe.pipelines.run import PlanEngine

LOOK_S = 0.002
PIECE = 5_000
"""Bytes of output after which a run is killed, at the most."""
PRELOADED = PlanEngine
"""Imported here, so that the children need not."""


def child(pipeline: str, *options: str) -> int:
    """A process that runs the pipeline in the current folder."""
    pid = os.fork()
    if pid:
        return pid
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        code = command.run(["run", pipeline, *options])
    finally:
        os._exit(code)


def size_of(path: Path) -> int:
    """Its bytes; 0 when it is not there."""
    return path.stat().st_size if path.exists() else 0


def killed_after(pid: int, out: Path, size: int) -> bool:
    """Kill the process when the file has reached this size; False when it ended before."""
    pause = Event()
    while size_of(out) < size:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended:
            return False
        pause.wait(LOOK_S)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def main() -> None:
    """Kill so many runs, each after a piece of work drawn from the seed, then let one come to its end.

    Writes how many were killed, and the code of the last run.
    """
    pipeline, out, seed, cycles = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    rng, kills, options = Random(seed), 0, sys.argv[5:]
    for _ in range(cycles):
        kills += killed_after(child(pipeline, *options), out, size_of(out) + rng.randint(1, PIECE))
    _, status = os.waitpid(child(pipeline, *options), 0)
    sys.stdout.write(f"{kills} {os.waitstatus_to_exitcode(status)}\n")


if __name__ == "__main__":
    main()
