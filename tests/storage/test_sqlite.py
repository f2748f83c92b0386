"""The SQLite store: the contract at both levels, what it refuses, and what it says when the file is in a bad way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surepipe.store_api import Level
from tests.contracts.store_contract import Bench, StoreContract
from tests.storage.sqlite_bench import SqliteBench


@pytest.fixture(name="bench", params=[Level.PROCESS, Level.POWER], ids=str)
def open_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteBench]:
    """A new file at each level."""
    bench = SqliteBench(tmp_path / "store.db", request.param)
    yield bench
    bench.store.close()


class TestContract(StoreContract):
    """The suite that every store passes, so1-so10 and so12, at both levels."""

    @pytest.fixture
    def bench(self, bench: SqliteBench) -> Bench:
        return bench
