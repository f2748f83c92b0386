"""The simulated store is asked what real ones are asked, at random, and must answer the same (simulation X-16).

More than ten thousand sequences of questions in all, each on a stream of its own, with a restart of the store in
the middle of it. What the random questions leave out, since real stores differ there, ``store_questions`` says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from surepipe.core.store_requests import (
    Committed,
    Created,
    Kept,
    Level,
    Store,
    StoreOutcome,
    StoreRequest,
)
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.storage.memory import MemoryStore
from surepipe.testing.servers import RedisServer
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.kit.store_questions import RETENTIONS, Questions, comparable
from tests.storage.sqlite_bench import SqliteBench

pytestmark = pytest.mark.long

STEPS = 8
BATCH = 250
MEMORY_SEQUENCES = 7_000
SQLITE_SEQUENCES = 2_500
REDIS_SEQUENCES = 500
"""For each server version."""


@dataclass
class Pair:
    """A real store, and a simulated one with the same clock and the same incarnations."""

    bench: MemoryBench | SqliteBench | RedisBench
    level: Level

    def __post_init__(self) -> None:
        self._incarnation = 0
        self.simulated = SimulatedStore(
            declared=self.level, clock=self._now, new_incarnation=lambda: self._incarnation
        )

    def _now(self) -> int:
        bench = self.bench
        return bench.time.now if isinstance(bench, SqliteBench) else bench.now

    @property
    def real(self) -> Store:
        """As it is after the last restart."""
        return self.bench.store

    def begin(self, number: int, *, again: bool = False) -> Questions:
        """A new stream in both, and what will be asked of it."""
        longest, retention = RETENTIONS[number % len(RETENTIONS)]
        name = f"s{number}"
        created = self.real.create(name, 1, retention)
        assert isinstance(created, Created)
        self._incarnation = created.incarnation
        assert self.simulated.create(name, 1, retention) == created
        seed = number + 1_000_000 * again
        return Questions(random.Random(seed), longest, retention, stream=name)

    def ask(self, questions: Questions, steps: int) -> None:
        """So many questions; the message says where the answers part."""
        for step in range(steps):
            question = questions.draw()
            found, expected = question(self.real), question(self.simulated)
            assert comparable(found) == comparable(expected), f"{questions.stream}, step {step}"
            self.bench.advance(100)


def compare(pair: Pair, numbers: Sequence[int], restart: Callable[[], None]) -> None:
    """Half of each sequence, then a restart of both stores, then the other half of each."""
    sequences = [pair.begin(number) for number in numbers]
    for questions in sequences:
        pair.ask(questions, STEPS // 2)
    restart()
    pair.simulated.crash()
    for number, questions in zip(numbers, sequences, strict=True):
        is_gone = pair.level is Level.NONE
        pair.ask(pair.begin(number, again=True) if is_gone else questions, STEPS // 2)


def test_it_answers_as_the_memory_store() -> None:
    """X-16, R-10: a restart leaves nothing of either, and the same names are used again."""
    for start in range(0, MEMORY_SEQUENCES, BATCH):
        bench = MemoryBench()
        pair = Pair(bench, Level.NONE)
        compare(pair, range(start, start + BATCH), bench.store.crash)


def test_it_answers_as_the_sqlite_store(tmp_path: Path) -> None:
    """X-16, S-3: the file is closed and opened again in the middle of every sequence."""
    bench = SqliteBench(tmp_path / "store.db")
    pair = Pair(bench, Level.PROCESS)
    for start in range(0, SQLITE_SEQUENCES, BATCH):
        compare(pair, range(start, start + BATCH), bench.reopen)
    bench.store.close()


def test_it_answers_as_the_redis_store(own_redis: RedisServer) -> None:
    """X-16, R-7: the server is killed and started again with its log in the middle of every sequence, and another
    process asks on: the one that had asked before would be told to look again (R-6)."""
    bench = RedisBench(own_redis.url)
    pair = Pair(bench, Level.POWER)

    def restart() -> None:
        own_redis.restart()
        bench.store.close()
        bench.store = bench.another()

    for start in range(0, REDIS_SEQUENCES, BATCH):
        compare(pair, range(start, start + BATCH), restart)
    bench.close()


def test_a_store_that_answers_otherwise_is_found() -> None:
    """X-16: planted: a real store that gives an equal next with an older state a Committed."""

    class Forgetful(MemoryStore):
        def ask(self, request: StoreRequest) -> StoreOutcome:
            found = super().ask(request)
            return Committed() if isinstance(found, Kept) else found

    bench = MemoryBench()
    bench.store = Forgetful(clock=lambda: bench.now)
    with pytest.raises(AssertionError, match="step"):
        compare(Pair(bench, Level.NONE), range(200), bench.store.crash)
