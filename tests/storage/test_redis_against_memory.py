"""The Redis store and the memory store are asked the same, at random, and must answer the same."""

from __future__ import annotations

import random

import pytest

from surepipe.core.store_requests import Created, Retention
from surepipe.storage.memory import MemoryStore
from tests.kit.redis_bench import RedisBench
from tests.kit.store_questions import RETENTIONS, Questions, comparable

STEPS = 150


@pytest.mark.parametrize(("longest", "retention"), RETENTIONS, ids=str)
def test_both_stores_answer_the_same(
    redis_bench: RedisBench, longest: int, retention: Retention
) -> None:
    """All of S-4 to S-11, in ten random orders for each retention; the message names the step that differs."""
    for seed in range(10):
        name = f"{redis_bench.pipeline}-{seed}"
        bench = RedisBench(redis_bench.url, pipeline=name)
        created = bench.store.create("s", 1, retention)
        assert isinstance(created, Created)
        memory = twin_of(bench, created.incarnation)
        memory.create("s", 1, retention)
        questions = Questions(random.Random(seed), longest, retention)
        for step in range(STEPS):
            question = questions.draw()
            found, expected = question(bench.store), question(memory)
            assert comparable(found) == comparable(expected), f"seed {seed}, step {step}"
            bench.advance(100)
        bench.remove_keys()
        bench.close()


def twin_of(bench: RedisBench, incarnation: int) -> MemoryStore:
    """A memory store with the same clock and the same incarnation."""
    return MemoryStore(clock=lambda: bench.now, new_incarnation=lambda: incarnation)
