"""The rights that a user of a Redis server needs: for all of a pipeline's keys, or only to read them.

From Redis 7 on a user may be let read keys without being let write them (``%R~``), and then no script that it
loads writes them either: the server looks at each command of a script with the rights of whoever runs it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

READING = (
    *("script|load", "evalsha_ro", "info", "config|get", "type", "get", "hget", "hmget", "hgetall"),
    *("hscan", "hexists", "xrange", "xrevrange", "xread"),
)
"""Commands that reading takes, those within scripts included."""
WRITING = (
    *("evalsha", "wait", "set", "del", "hset", "hdel", "hlen", "hkeys", "hvals"),
    *("xadd", "xlen", "xtrim", "time"),
)
"""Those that writing takes beside them."""


def acl_line(user: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> str:
    """The ACL line for a user who may read the keys of some pipelines and write those of others. Redis 7 or
    newer, where it reads any."""
    keys = [f"%R~{_pattern(pipeline)}" for pipeline in reads]
    keys += [f"~{_pattern(pipeline)}" for pipeline in writes]
    commands = [*READING, *(WRITING if writes else ())]
    rights = [*keys, "-@all", *(f"+{command}" for command in commands)]
    return f"ACL SETUSER {user} on >SECRET resetkeys {' '.join(rights)}"


def _pattern(pipeline: str) -> str:
    """Its keys. A pattern holds no blank, so a mark for any character stands there."""
    return "sp:{" + re.sub(r"\s", "?", re.sub(r"([*?\[\]\\])", r"\\\1", pipeline)) + "}:*"


__all__ = ["READING", "WRITING", "acl_line"]
