"""The Redis server is killed under load, and its file is torn: what was acknowledged is there, once.

``SUREPIPE_KILL_CYCLES`` says how often, over all versions of the server together.
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from surepipe.core.store_requests import (
    KEEP_ALL,
    Ahead,
    AppendRun,
    CommitPosition,
    Committed,
    Created,
    Empty,
    Level,
    Owner,
    Position,
    Stored,
    Unavailable,
)
from surepipe.storage.redis.link import RedisLimits
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import Binary, RedisServer, local_servers
from tests.contracts.store_contract import read_all
from tests.kit.redis_bench import Redis, RedisBench

pytestmark = pytest.mark.long

CYCLES = int(os.environ.get("SUREPIPE_KILL_CYCLES", "100")) // max(1, len(local_servers()))
QUICK = RedisLimits(connect_s=10, answer_s=10, pause_min_s=0.005, pause_max_s=0.02)
GIVES_UP_AFTER_S = 120


@dataclass
class Writer:
    """A producer that appends runs of random length as fast as it can, and notes what was acknowledged.

    What is unavailable it repeats. With ``commits`` it moves a position in the same transaction.
    """

    name: str
    store: RedisStore
    seed: int
    commits: bool
    progress: threading.Semaphore
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: int = 0
    unknown: int = 0
    wrong: list[object] = field(default_factory=list[object])

    def run(self) -> None:
        rng, owner = random.Random(self.seed), self._claim()
        while not self.stop.is_set() and not self.wrong:
            first = self.acknowledged + 1
            count = rng.randint(1, 20)
            self._store(first, [f"{self.name}{first + n}".encode() for n in range(count)], owner)
            self.progress.release()

    def _claim(self) -> int:
        while not isinstance(owner := self.store.claim("in", self.name, 1), Owner):
            continue
        return owner.number

    def _store(self, first: int, payloads: list[bytes], owner: int) -> None:
        """Until it is stored."""
        while isinstance(outcome := self._attempt(first, payloads, owner), Unavailable):
            self.unknown += 1
        if isinstance(outcome, Stored):
            self.acknowledged = outcome.last
        else:
            self.wrong.append(outcome)

    def _attempt(self, first: int, payloads: list[bytes], owner: int) -> object:
        if not self.commits:
            return self.store.append("s", self.name, 1, first, payloads)
        last = first + len(payloads) - 1
        with self.store.transaction() as transaction:
            transaction.append(AppendRun("s", self.name, 1, first, payloads))
            transaction.commit(CommitPosition("in", self.name, owner, 7, last + 1))
        append, commit = transaction.outcomes
        if isinstance(append, Stored) and not isinstance(commit, Committed):
            self.wrong.append(commit)
        return append


def test_nothing_acknowledged_is_lost_or_repeated_by_kills(local_source: Binary) -> None:
    """so11, S-3, R-7: AOF always; SIGKILL at drawn moments under four producers, some in an AOF rewrite."""
    rng = random.Random(20)
    with local_source.server(appendonly="yes", appendfsync="always") as server:
        bench = RedisBench(server.url)
        assert isinstance(bench.store.create("s", 1, KEEP_ALL), Created)
        assert bench.store.level == Level.POWER
        progress = threading.Semaphore(0)
        writers = [
            Writer(name, bench.another(limits=QUICK, pause=None), seed, name in "cd", progress)
            for seed, name in enumerate("abcd")
        ]
        threads = [threading.Thread(target=writer.run) for writer in writers]
        for thread in threads:
            thread.start()
        try:
            kill_again_and_again(server, progress, rng)
        finally:
            for writer in writers:
                writer.stop.set()
            for thread in threads:
                thread.join(GIVES_UP_AFTER_S)
        assert [writer.wrong for writer in writers] == [[], [], [], []]
        assert sum(writer.unknown for writer in writers) >= CYCLES, "every kill was met"
        check(bench, writers)
        bench.close()


def kill_again_and_again(
    server: RedisServer, progress: threading.Semaphore, rng: random.Random
) -> None:
    """Kill after a drawn number of appends, and start again."""
    for cycle in range(CYCLES):
        for _ in range(rng.randint(1, 60)):
            assert progress.acquire(timeout=GIVES_UP_AFTER_S), "the writers stand still"
        if cycle % 5 == 0:
            client = Redis(server.url)
            client("BGREWRITEAOF")
            client.close()
        server.restart()


def check(bench: RedisBench, writers: list[Writer]) -> None:
    """Each producer's messages are there from 1 on, once, in order; positions went with the appends."""
    bench.store = bench.another()
    entries = read_all(bench)
    assert [entry[0] for entry in entries] == list(range(1, len(entries) + 1))
    for writer in writers:
        own = [entry for entry in entries if entry[1] == writer.name]
        assert [entry[3] for entry in own] == list(range(1, writer.acknowledged + 1))
        assert [entry[4] for entry in own] == [f"{writer.name}{entry[3]}".encode() for entry in own]
        if writer.commits:
            position = bench.store.get("in", writer.name)
            assert isinstance(position, Position)
            assert position.next == writer.acknowledged + 1


def aof_of(server: RedisServer) -> Path:
    """The file to which the server appends now."""
    (found,) = [
        path
        for pattern in ("appendonly.aof", "appendonlydir/*.incr.aof")
        for path in server.directory.glob(pattern)
    ]
    return found


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_a_torn_file_keeps_whole_transactions_and_the_reader_is_told(
    local_source: Binary, fsync: str
) -> None:
    """so11, R-7: the end of the AOF is gone at a drawn byte, as after a power cut with everysec.

    Every transaction is there or not at all; what is lost was never claimed (level interval); the reader that had
    gone further is told, then it is Ahead.
    """
    rng = random.Random(fsync)
    with local_source.server(appendonly="yes", appendfsync=fsync) as server:
        bench = RedisBench(server.url)
        assert bench.store.level == (Level.INTERVAL if fsync == "everysec" else Level.POWER)
        assert isinstance(bench.store.create("s", 1, KEEP_ALL), Created)
        # Before the part that is torn: an old server writes the scripts that it is taught into its file, too.
        assert bench.store.read("s", 1, 9, 99) == Empty(1)
        start = aof_of(server).stat().st_size
        owner = bench.store.claim("in", "r", 1)
        assert isinstance(owner, Owner)
        for first in range(1, 31, 3):
            with bench.store.transaction() as transaction:
                payloads = [f"m{first + n}".encode() for n in range(3)]
                transaction.append(AppendRun("s", "p", 1, first, payloads))
                transaction.commit(CommitPosition("in", "r", owner.number, 7, first + 3))
            assert transaction.done
        server.kill()
        whole = aof_of(server).read_bytes()
        for _ in range(20):
            kept = rng.randrange(start, len(whole))
            aof_of(server).write_bytes(whole[:kept])
            server.start()
            assert_is_a_prefix_of_whole_transactions(bench)
            server.kill()
        bench.close()


def assert_is_a_prefix_of_whole_transactions(bench: RedisBench) -> None:
    """As many messages as the position says, in threes; and the reader notices."""
    while isinstance(outcome := bench.store.read("s", 31, 9, 99), Unavailable):
        continue
    assert isinstance(outcome, Ahead)
    entries = read_all(bench)
    assert len(entries) % 3 == 0
    assert len(entries) < 30
    position = bench.store.get("in", "r")
    reached = position.next - 1 if isinstance(position, Position) else 0
    assert reached == len(entries)
