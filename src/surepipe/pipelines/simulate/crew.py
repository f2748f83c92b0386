"""Simulated runs of one file, on several processes; what comes of them does not depend on how many these are.

Seeds are dealt out in pieces, and the answers are given in the order of the seeds. Each process reads the file
anew, so nothing that a stage keeps gets from one to the other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TypeVar

from surepipe.pipelines.loading import load
from surepipe.pipelines.simulate.breaking import Broken, broken_by
from surepipe.pipelines.simulate.campaign import PlanResult
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
        return simulation_of_plan(
            load(self.file), folder=self.file.parent, messages=self.messages, faults=self.faults
        )


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
        pieces = [seeds[start : start + PIECE] for start in range(0, len(seeds), PIECE)]
        return self._each(_campaign, pieces, self._ahead)

    def broken(self, faults: Iterable[str]) -> Iterator[Broken | None]:
        """For each fault the shortest schedule that breaks the plan, in their order."""
        named = list(faults)
        return self._each(_broken, named, len(named))

    def _each(
        self, work: Callable[[Simulation, A], T], items: Sequence[A], ahead: int
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
    ends: what they are at then is of no use to anybody."""
    if jobs == 1:
        yield Crew(recipe, None)
        return
    how = "fork" if sys.platform == "linux" else "spawn"
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context(how), initializer=_begin, initargs=(recipe,)
    )
    others = set(active_children())
    try:
        yield Crew(recipe, pool, jobs)
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


# In the processes.

_recipe: list[Recipe] = []
_simulation: list[Simulation] = []


def _begin(recipe: Recipe) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who dealt out the work
    take_over()
    _recipe[:] = [recipe]
    _simulation.clear()


def _work(work: Callable[[Simulation, A], T], item: A) -> T:
    if not _simulation:
        _simulation.append(_recipe[0].simulation())
    return work(_simulation[0], item)


def _campaign(simulation: Simulation, seeds: Sequence[int]) -> PlanResult:
    return simulation.campaign(seeds, stop_at_first=True)


def _broken(simulation: Simulation, fault: str) -> Broken | None:
    return broken_by(simulation, fault)
