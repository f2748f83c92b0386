"""From a consumer group of Redis Streams to a pipeline, without losing or repeating an entry.

Before: programs read a stream with XREADGROUP and acknowledge with XACK. The steps of the move:

1. Let the old consumers finish what they have (no pending entries), and stop them. Writers go on as before.
2. Remove from the stream what the group has handled: XTRIM with MINID behind its last-delivered-id.
3. Start the pipeline, whose source reads the same stream from its earliest entry. Its place is stored in one
   transaction with what it has accepted: no XACK, no pending list, no claims.

Needs a Redis: name it in REDIS_URL, or have redis-server on the path.
"""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from redis import Redis

from surepipe.pipelines import loads
from surepipe.pipelines.run import run
from surepipe.testing.servers import local_servers

PIPELINE = """
version: 1
name: moved
stores:
  main: {kind: sqlite, path: moved.db}
  old: {kind: redis, url: "${REDIS_URL}"}
sources: {entries: {kind: redis-stream, store: old, stream: orders}}
pipes: {intake: {from: entries, journal: main, state: main, boundary: committed}}
sinks: {out: {from: intake, kind: csv, path: out.csv}}
"""
HANDLED, ALL = 30, 100


def old_program(redis: Any, handled: list[int]) -> None:
    """What read the stream until now."""
    while len(handled) < HANDLED:
        ((_, entries),) = redis.xreadgroup("workers", "w1", {"orders": ">"}, count=10)
        for entry, fields in entries:
            handled.append(int(fields[b"number"]))
            redis.xack("orders", "workers", entry)


def move(redis: Any) -> None:
    """Step 2, after a look whether step 1 is done."""
    (group,) = redis.xinfo_groups("orders")
    assert group["pending"] == 0, "the old consumers have not finished: XPENDING says which entries"
    time, _, count = group["last-delivered-id"].decode().partition("-")
    redis.xtrim("orders", minid=f"{time}-{int(count) + 1}", approximate=False)


def main() -> None:
    """The old program, the move, the pipeline; and again, as after a restart, with more entries."""
    with ExitStack() as held:
        if "REDIS_URL" not in os.environ:
            server = held.enter_context(local_servers()[0].server())
            os.environ["REDIS_URL"] = server.url
        os.chdir(held.enter_context(tempfile.TemporaryDirectory()))
        held.callback(os.chdir, "/")
        redis = cast("Any", Redis).from_url(os.environ["REDIS_URL"])
        held.callback(redis.close)
        redis.xgroup_create("orders", "workers", mkstream=True)
        handled: list[int] = []
        for number in range(ALL // 2):
            redis.xadd("orders", {"number": number})
        old_program(redis, handled)
        move(redis)
        plan = loads(PIPELINE)
        run(plan, once=True)
        for number in range(ALL // 2, ALL):
            redis.xadd("orders", {"number": number})
        run(plan, once=True)
        handled += [int(line) for line in Path("out.csv").read_text().splitlines()[1:]]
    assert handled == list(range(ALL))
    print(
        f"{ALL} entries handled, {HANDLED} by the group and the others by the pipeline, each once"
    )


if __name__ == "__main__":
    main()
