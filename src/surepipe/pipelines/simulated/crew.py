"""Simulated runs of one file, on several processes; what comes of them does not depend on how many these are.

Seeds are dealt out in pieces, and the answers are given in the order of the seeds. Each process reads the file
anew, so nothing that a stage keeps gets from one to the other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TypeVar

from surepipe.pipelines.loading import load
from surepipe.pipelines.simulated.breaking import Broken, broken_by
from surepipe.pipelines.simulated.campaign import PlanResult
from surepipe.pipelines.simulated.simulate import Simulation, simulation_of_plan

A = TypeVar("A")
T = TypeVar("T")
PIECE = 10
"""Seeds that one process takes at a time: some tenths of a second."""


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

    def __init__(self, recipe: Recipe, pool: ProcessPoolExecutor | None) -> None:
        self._recipe = recipe
        self._pool = pool
        self._own: Simulation | None = None

    def campaign(self, seeds: Sequence[int]) -> Iterator[PlanResult]:
        """Run all seeds, piece by piece, in their order. A piece ends at its first failure; so should the caller.

        Raises CannotSimulate, of the first piece in order that can't be.
        """
        pieces = [seeds[start : start + PIECE] for start in range(0, len(seeds), PIECE)]
        return self._each(_campaign, pieces)

    def broken(self, faults: Iterable[str]) -> Iterator[Broken | None]:
        """For each fault the shortest schedule that breaks the plan, in their order."""
        return self._each(_broken, list(faults))

    def _each(self, work: Callable[[Simulation, A], T], items: Sequence[A]) -> Iterator[T]:
        if self._pool is None:
            return (work(self._here(), item) for item in items)
        return _in_order([self._pool.submit(_work, work, item) for item in items])

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
        yield Crew(recipe, pool)
    finally:
        for process in set(active_children()) - others:
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(futures: Sequence[Future[T]]) -> Iterator[T]:
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


# In the processes.

_recipe: list[Recipe] = []
_simulation: list[Simulation] = []


def _begin(recipe: Recipe) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who dealt out the work
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
