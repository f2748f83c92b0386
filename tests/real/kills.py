"""The Redis server is killed under load, hundreds of times; a sender and a receiver in their processes go on."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from random import Random

from redis.exceptions import RedisError

from surepipe.testing.servers import RedisServer
from tests.kit.redis_bench import Redis
from tests.real.ground import a_server, no_redis, redis_effects
from tests.real.history import CLAIMED, ON_INTERVAL, History
from tests.real.stage import Stage, Tally
from tests.real.workers import Said, Worker

CYCLES = 150
BATCH = 50
LEAST_BATCHES = (
    7  # before each kill: the minimum of messages stands on this, not on the machine's speed
)
ENDLESS = 10**9
_REWRITES_SLOWLY_US = "20000"
_BUSY = """
redis.call('INCR', KEYS[1])
local begun = redis.call('TIME')
local spent
repeat
  local now = redis.call('TIME')
  spent = (now[1] - begun[1]) * 1000000 + now[2] - begun[2]
until spent > 60000
redis.call('INCR', KEYS[2])
"""
_BEGUN, _DONE = "begun", "done"


def run(rng: Random, tally: Tally) -> None:
    """Two servers at once, where there are two of different versions: one syncs always, one every second."""
    seeds = [rng.getrandbits(64) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(_run_one, n, Random(seed), tally) for n, seed in enumerate(seeds)]
        for one in running:
            one.result()


def _run_one(number: int, rng: Random, tally: Tally) -> None:
    fsync = ("always", "everysec")[number]
    history = History(f"kills {fsync}", "real")
    with ExitStack() as stack:
        server = stack.enter_context(a_server(number).server(appendonly="yes", appendfsync=fsync))
        tally.note(f"{server.binary.name} {fsync}")
        alarms = Counter[str]()

        def hear(said: Said) -> None:
            history.hear(said)
            if said["say"] == "alarm":
                alarms[str(said["kind"])] += 1

        sender = stack.enter_context(Worker("sender", hear))
        receiver = stack.enter_context(Worker("receiver", hear))
        receiver.play("receive", where=server.url)
        sender.play("send", where=server.url, life=1, batch=BATCH, most=ENDLESS)
        for cycle in range(CYCLES):
            with tally.timed(f"{fsync} cycle {cycle}"):
                sender.wait_for_new("accepted", rng.randint(LEAST_BATCHES, LEAST_BATCHES + 2))
                _kill(server, rng, cycle, tally)
                history.crashed("server", cycle)
                server.start()
        sender.stop()
        receiver.kill()
        receiver.play("catch_up", where=server.url)  # whatever is there now
        receiver.wait_for("done")
        history.settled(redis_effects(server.url))
        _check_scripts(server)
    if fsync == "always":
        history.check(CLAIMED)
    else:
        _judge_interval(history, alarms, tally)
    tally.add("messages", history.accepted)


def _judge_interval(history: History, alarms: Counter[str], tally: Tally) -> None:
    """Level ``interval`` promises less: a kill may lose the last moments, and then somebody is told.

    A server that syncs every second postpones its writes, too, while a sync is under way, and answers all the
    same. Where the disk is busy it loses to SIGKILL what other servers would have in the page cache.
    """
    history.check(ON_INTERVAL)
    lost = history.lost()
    tally.add("lost at level interval", lost)
    tally.add("alarms", alarms.total())
    assert alarms or not lost, f"{lost} messages are lost and nobody was told"


def _kill(server: RedisServer, rng: Random, cycle: int, tally: Tally) -> None:
    ways: list[Callable[[RedisServer, Random], str]] = [_anyhow, _in_rewrite, _in_script, _anyhow]
    tally.add(ways[cycle % len(ways)](server, rng))
    tally.add("server kills")


def _anyhow(server: RedisServer, rng: Random) -> str:
    """At a drawn moment of the load."""
    _wait(rng.uniform(0, 0.01))
    server.kill()
    return "in mid-pipeline"


def _in_rewrite(server: RedisServer, rng: Random) -> str:
    """While a child of the server rewrites its file."""
    client = Redis(server.url)
    client("CONFIG", "SET", "rdb-key-save-delay", _REWRITES_SLOWLY_US)
    client("BGREWRITEAOF")
    is_rewriting = client.info("persistence")["aof_rewrite_in_progress"] == "1"
    client.close()
    _wait(rng.uniform(0, 0.03))
    server.kill()
    return "in an AOF rewrite" if is_rewriting else "in mid-pipeline"


def _in_script(server: RedisServer, rng: Random) -> str:
    """While a script runs that has written already; what waits behind it has not begun."""
    client = Redis(server.url)

    def run_script() -> None:
        with suppress(RedisError, OSError):  # the server dies under it
            client("EVAL", _BUSY, 2, _BEGUN, _DONE)

    thread = threading.Thread(target=run_script)
    thread.start()
    _wait(rng.uniform(0.01, 0.04))
    server.kill()
    thread.join()
    client.close()
    return "in a script"


def _check_scripts(server: RedisServer) -> None:
    """No script was left half done."""
    client = Redis(server.url)
    begun, done = client("GET", _BEGUN), client("GET", _DONE)
    client.close()
    assert begun == done, f"a script was left half done: begun {begun}, done {done}"


def _wait(seconds: float) -> None:
    """Until the drawn moment; what happens meanwhile is what the stage is about."""
    time.sleep(seconds)


STAGE = Stage(
    "kills",
    "redis",
    run,
    {
        "server kills": 300,
        "in mid-pipeline": 100,
        "in an AOF rewrite": 40,
        "in a script": 40,
        "messages": 2 * CYCLES * LEAST_BATCHES * BATCH,
    },
    no_redis,
    omits="power (see power), replicas, cluster",
)
