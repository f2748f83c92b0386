"""A client of the Redis server, as narrow as its types allow."""

from __future__ import annotations

from typing import Any, cast

import redis


def client_of(url: str) -> Any:
    """redis-py as it comes; with hiredis, where that is installed."""
    return cast("Any", redis.Redis.from_url(url))  # pyright: ignore[reportUnknownMemberType]
