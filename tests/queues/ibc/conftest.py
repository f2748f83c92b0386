"""Stores for Merkle stores: each row runs on every kind."""

from __future__ import annotations

from tests.storage import conftest as stores

any_bench = stores.any_bench
running = stores.running
