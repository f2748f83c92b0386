"""Stores for books: each row runs on every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from surepipe.queues.book import BookConfig
from tests.kit.book import SMALL, BookUnderTest
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage import conftest as stores
from tests.storage.sqlite_bench import SqliteBench

any_bench = stores.any_bench
running = stores.running
Make: TypeAlias = Callable[..., BookUnderTest]


@pytest.fixture
def make(any_bench: MemoryBench | SqliteBench | RedisBench) -> Make:
    """B-60: opens a book over the store of this test; a second one of another worker is on the same store."""

    def made(config: BookConfig = SMALL, **changes: Any) -> BookUnderTest:
        return BookUnderTest(any_bench.store, config, **changes)

    return made


@pytest.fixture
def make_in_memory() -> Make:
    """The same, over a store in memory."""
    bench = MemoryBench()

    def made(config: BookConfig = SMALL, **changes: Any) -> BookUnderTest:
        return BookUnderTest(bench.store, config, **changes)

    return made
