"""Simulated runs of one file, on several processes; what comes of them does not depend on how many these are.

Seeds are dealt out in pieces, and the answers are given in the order of the seeds. Each process reads the file
anew, so nothing that a stage keeps gets from one to the other.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import active_children, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from surepipe.core.callables import is_users
from surepipe.pipelines.loading import load
from surepipe.pipelines.simulate.breaking import Broken, broken_by
from surepipe.pipelines.simulate.campaign import CannotSimulate, PlanResult
from surepipe.pipelines.simulate.simulating import Simulation, simulation_of_plan
from surepipe.pipelines.simulate.written import take_over

A = TypeVar("A")
T = TypeVar("T")
PIECE = 10
"""Seeds that one process takes at a time: some tenths of a second."""
AHEAD = 4
"""Pieces that each process is given before they are wanted. Those that nobody wants any more are still run."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make the simulation of a file."""

    file: Path
    messages: int | None
    faults: str

    def simulation(self) -> Simulation:
        """Make it. Raises what reading the file and its stages raises."""
        return simulation_of_plan(load(self.file), messages=self.messages, faults=self.faults)


def cores() -> int:
    """How many processes can work at once here."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class Crew:
    """Runs simulations, here or on processes. Made by ``crew``."""

    def __init__(self, recipe: Recipe, pool: ProcessPoolExecutor | None, jobs: int = 1) -> None:
        self._recipe = recipe
        self._pool = pool
        self._ahead = AHEAD * jobs
        self._own: Simulation | None = None

    def campaign(self, seeds: Sequence[int]) -> Iterator[PlanResult]:
        """Run all seeds, piece by piece, in their order. A piece ends at its first failure; so should the caller.

        Raises CannotSimulate, of the first piece in order that can't be.
        """
        pieces = (seeds[start : start + PIECE] for start in range(0, len(seeds), PIECE))
        return self._each(_campaign, pieces, self._ahead)

    def broken(self, faults: Iterable[str]) -> Iterator[Broken | None]:
        """For each fault the shortest schedule that breaks the plan, in their order."""
        named = list(faults)
        return self._each(_broken, named, len(named))

    def _each(
        self, work: Callable[[Simulation, A], T], items: Iterable[A], ahead: int
    ) -> Iterator[T]:
        """The answers in order; so many are asked for before they are wanted."""
        pool = self._pool
        if pool is None:
            return (work(self._here(), item) for item in items)
        return _in_order((pool.submit(_work, work, item) for item in items), ahead)

    def _here(self) -> Simulation:
        if self._own is None:
            self._own = self._recipe.simulation()
        return self._own


@contextmanager
def crew(recipe: Recipe, jobs: int) -> Generator[Crew]:
    """As many processes as ``jobs`` says; none but this one for 1. They are gone when the block ends, however it
    ends: what they are at then is of no use to anybody. Raises CannotSimulate where a stage has ended one."""
    if jobs == 1:
        yield Crew(recipe, None)
        return
    with TemporaryDirectory(prefix="surepipe-") as folder, _processes(recipe, jobs, folder) as pool:
        try:
            yield Crew(recipe, pool, jobs)
        except BrokenProcessPool:
            raise CannotSimulate(_last_words(Path(folder))) from None


@contextmanager
def _processes(recipe: Recipe, jobs: int, folder: str) -> Generator[ProcessPoolExecutor]:
    how = "fork" if sys.platform == "linux" else "spawn"
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context(how), initializer=_begin, initargs=(recipe, folder)
    )
    others = set(active_children())
    try:
        yield pool
    finally:
        for process in set(active_children()) - others:
            process.terminate()
        pool.shutdown(wait=True)


def _in_order(futures: Iterator[Future[T]], ahead: int) -> Iterator[T]:
    """None is ever taken back: Python 3.11 complains of that when processes end before their work is done."""
    asked = deque(islice(futures, ahead))
    while asked:
        first = asked.popleft()
        asked.extend(islice(futures, 1))
        yield first.result()


# What is known of a process that a stage has ended: what it was at, and where, if the interpreter could say so.

_FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')
_AT, _WHERE = "at", "where"


def _last_words(folder: Path) -> str:
    for trace in sorted(folder.glob(f"*.{_WHERE}")):
        for file, line, function in _FRAME.findall(trace.read_text(errors="replace")):
            if is_users(file):
                return f"{file}:{line}: {function} crashed the interpreter, so nothing is said to hold: {_TO_DO}"
    at = ", ".join(sorted(path.read_text() for path in folder.glob(f"*.{_AT}")))
    return (
        "a process that ran schedules was ended, by a library that a stage calls or from outside (for want of "
        f"memory, say), so nothing is said to hold. It ran one of these: {at or 'the first'}. Try each by "
        f"itself; if a stage did it, {_TO_DO}"
    )


_TO_DO = "call it with this message by itself, or give it a double (simulate: replace)"


# In the processes.

_recipe: list[Recipe] = []
_simulation: list[Simulation] = []
_notes: list[Path] = []


def _begin(recipe: Recipe, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who dealt out the work
    take_over()
    mine = Path(folder) / f"{os.getpid()}"
    _notes[:] = [mine.with_suffix(f".{_AT}")]
    faulthandler.enable(mine.with_suffix(f".{_WHERE}").open("w"))
    _recipe[:] = [recipe]
    _simulation.clear()


def _work(work: Callable[[Simulation, A], T], item: A) -> T:
    if not _simulation:
        _simulation.append(_recipe[0].simulation())
    return work(_simulation[0], item)


def _campaign(simulation: Simulation, seeds: Sequence[int]) -> PlanResult:
    return simulation.campaign(_noted(seeds), stop_at_first=True)


def _noted(seeds: Iterable[int]) -> Iterator[int]:
    for seed in seeds:
        _note(f"--seed {seed}")
        yield seed


def _broken(simulation: Simulation, fault: str) -> Broken | None:
    _note(f"--faults {fault}")
    return broken_by(simulation, fault)


def _note(at: str) -> None:
    """Leave word of what this process is at, unless it is the one who would read it."""
    for path in _notes:
        path.write_text(at)
