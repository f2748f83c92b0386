"""Storms between the workers and their server: everything that a FaultProxy can do, by seeded schedules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import fields
from random import Random

from surepipe.testing.faults import draw_gusts
from surepipe.testing.proxy import FaultProxy
from surepipe.testing.servers import RedisServer
from tests.kit.redis_bench import Redis
from tests.real.ground import a_server, no_redis, redis_effects
from tests.real.history import History
from tests.real.kills import ENDLESS
from tests.real.stage import Stage, Tally
from tests.real.workers import Worker

SCHEDULES = 100
_LANES = 2
_GUSTS = 3
_BATCH = 20
_ANSWER_S = 0.25
_WRITES = b"EVALSHA"
ERRORS = ("LOADING", "READONLY", "OOM", "NOSCRIPT", "MOVED", "CLUSTERDOWN", "MISCONF", "BUSY")
"""Errors that pass: the store says Unavailable (or teaches the script again) and the pipe goes on."""
_TIMES = 12


class Lane:
    """One server, and a proxy for each of the two workers that use it."""

    def __init__(self, number: int, rng: Random, history: History, stack: ExitStack) -> None:
        self.server: RedisServer = stack.enter_context(
            a_server(number).server(appendonly="yes", appendfsync="no")
        )
        self.proxies = [
            stack.enter_context(FaultProxy(self.server.url, seed=rng.getrandbits(32)))
            for _ in range(2)
        ]
        self.sender = stack.enter_context(Worker("sender", history.hear))
        self.receiver = stack.enter_context(Worker("receiver"))
        before, behind = self.proxies
        self.receiver.play("receive", where=behind.url, answer_s=_ANSWER_S)
        self.sender.play(
            "send", where=before.url, life=1, batch=_BATCH, most=ENDLESS, answer_s=_ANSWER_S
        )
        self.receiver.wait_for("ready")

    def finish(self, history: History, tally: Tally) -> None:
        """Everything through, and the verdict."""
        self.sender.stop()
        self.receiver.kill()
        self.receiver.play("catch_up", where=self.server.url)
        self.receiver.wait_for("done")
        history.settled(redis_effects(self.server.url))
        history.check()
        tally.add("messages", history.accepted)
        for proxy in self.proxies:
            for one in fields(proxy.counts):
                if one.name in ("lost_replies", "lost_executed", "cuts", "resets", "answered"):
                    tally.add(one.name.replace("_", " "), getattr(proxy.counts, one.name))

    def effects(self) -> int:
        """How many there are now."""
        client = Redis(self.server.url)
        found = int(client("LLEN", "sp:{real}:u:effects"))
        client.close()
        return found


def run(rng: Random, tally: Tally) -> None:
    """Two lanes at once, as most of the time is waiting."""
    seeds = [rng.getrandbits(64) for _ in range(_LANES)]
    with ThreadPoolExecutor(_LANES) as pool:
        running = [pool.submit(_run_lane, n, Random(seed), tally) for n, seed in enumerate(seeds)]
        for one in running:
            one.result()


def _run_lane(number: int, rng: Random, tally: Tally) -> None:
    history = History(f"proxies {number}", "real")
    with ExitStack() as stack:
        lane = Lane(number, rng, history, stack)
        for schedule in range(SCHEDULES):
            seed = rng.getrandbits(32)
            with tally.timed(f"schedule {number}/{schedule} seed {seed}"):
                _storm(lane, seed, rng, tally)
            tally.add("schedules")
        lane.finish(history, tally)


def _storm(lane: Lane, seed: int, rng: Random, tally: Tally) -> None:
    """Some gusts at a proxy, fair weather, then one reply that never arrives; the sender must get through."""
    proxy = rng.choice(lane.proxies)
    for gust in draw_gusts(seed, _GUSTS):
        gust.blow(proxy, command=_WRITES)
        tally.add(f"of {gust.kind}")
        time.sleep(rng.uniform(0.01, 0.05))  # the drawn length of the gust
    proxy.clear()
    lane.proxies[0].lose_reply(to=_WRITES, after=rng.randint(0, 2))
    lane.sender.wait_for_new("accepted", 3)


def run_replies(rng: Random, tally: Tally) -> None:
    """Each error in place of replies, to the sender's commands and to the receiver's."""
    history = History("replies", "real")
    with ExitStack() as stack:
        lane = Lane(0, rng, history, stack)
        for error in ERRORS:
            for proxy in lane.proxies:
                with tally.timed(error):
                    before = proxy.counts.answered
                    proxy.answer(_text(error, proxy), times=_TIMES // 2)
                    lane.sender.wait_for_new("accepted", 3)
                    _until_answered(lane, proxy, before + _TIMES // 2)
                tally.add(error, _TIMES // 2)
        lane.finish(history, tally)


def _until_answered(lane: Lane, proxy: FaultProxy, count: int) -> None:
    """The sender goes on, so the receiver asks on."""
    while proxy.counts.answered < count:
        lane.sender.wait_for_new("accepted", 1)


def _text(error: str, proxy: FaultProxy) -> bytes:
    where = f"1234 127.0.0.1:{proxy.port}" if error == "MOVED" else "said the test"
    return f"-{error} {where}".encode()


def names(kinds: Sequence[object]) -> dict[str, int]:
    """Each at least ten times."""
    return {str(kind): 10 for kind in kinds}


STAGE = Stage(
    "proxies",
    "redis",
    run,
    {"schedules": 200, "lost executed": 50, "cuts": 20, "resets": 100},
    no_redis,
    omits="TLS",
)
REPLIES = Stage(
    "replies",
    "redis",
    run_replies,
    names(ERRORS),
    no_redis,
    omits="WRONGTYPE and NOPERM, which last (tests/storage/test_redis_replies.py)",
)
