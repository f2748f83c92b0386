from __future__ import annotations
import pytest
from tests.contracts.store_contract import Bench, StoreContract
from tests.kit.redis_bench import RedisBench

class TestContract(StoreContract):
    """The suite that every store passes."""

    @pytest.fixture
    def bench(self, redis_bench: RedisBench) -> Bench:
        return redis_bench
