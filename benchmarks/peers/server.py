"""A client of the Redis server, as narrow as its types allow."""

from __future__ import annotations

from typing import Any, cast

import redis


def client_of(url: str) -> Any:
    """redis-py, with hiredis where that is installed.

    With RESP2, as surepipe's own link has it: the hand-written loop is faster with it than with the default, and
    the yardstick gets the best that it can have.
    """
    return cast("Any", redis.Redis.from_url(url, protocol=2))  # pyright: ignore[reportUnknownMemberType]
