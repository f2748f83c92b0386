from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from surepipe.core.store_requests import (
    GetPosition,
    Store,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
    Unavailable,
)
from surepipe.errors import StoreUnavailable
from surepipe.pipelines.models.stores import AnyStore
from surepipe.pipelines.run import PlanEngine
from surepipe.storage import MemoryStore, SqliteStore
from surepipe.testing.servers import NONE_FOUND, RedisServer, local_servers
from tests.pipelines.run.kit import Bench, plan_of, read_lines, run, write_lines

pytestmark = pytest.mark.usefixtures("folder")
TEXT = """\
sources: {lines: {kind: jsonl, path: in.jsonl}}
pipes:
  first: {from: lines, journal: main, state: main, boundary: committed}
  second: {from: odd, journal: main, state: main, boundary: committed}
stages: {odd: {from: first, filter: "test:odd"}}
sinks:
  out: {from: second, kind: jsonl, path: out.jsonl}
  all: {from: first, kind: stream, store: main, stream: all}
"""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A server. None at all is a failure, never a skip."""
    found = local_servers()
    if not found:
        pytest.fail(NONE_FOUND)
    with found[0].server() as server:
        yield server


def odd(number: int) -> bool:
    """Every other one."""
    return number % 2 == 1


def test_pipes_commit_and_hand_over_on_redis_too(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction for each message, as Redis has no savepoints; a restart finds nothing to do."""
    monkeypatch.setenv("SHOP_REDIS", redis.url)
    plan = plan_of(
        TEXT, stores='stores: {main: {kind: redis, url: "${SHOP_REDIS}", durability: process}}\n'
    )
    write_lines("in.jsonl", range(200))
    run(plan, odd=odd)
    assert "lines" not in run(plan, odd=odd)
    assert read_lines("out.jsonl") == list(range(1, 200, 2))


def test_without_anything_durable_a_restart_is_a_new_run() -> None:
    """A stream in memory between source and sink, for trying things out."""
    plan = plan_of(
        "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
        "pipes: {road: {from: lines, route: {kind: memory, store: main}}}\n"
        "sinks: {out: {from: road, kind: jsonl, path: out.jsonl}}\n",
        stores="stores: {main: {kind: memory}}\n",
    )
    write_lines("in.jsonl", range(50))
    run(plan)
    run(plan)
    assert read_lines("out.jsonl") == [*range(50), *range(50)]


BEHIND = """\
sources: {lines: {kind: jsonl, path: in.jsonl}}
pipes:
  first: {from: lines, route: {kind: sqlite, store: main}, node: away, boundary: BOUNDARY, journal: main}
  second: {from: odd, route: {kind: memory, store: other}, node: away}
stages: {odd: {from: first, filter: "test:odd"}}
sinks: {out: {from: second, kind: jsonl, path: out.jsonl}}
"""


class Away(MemoryStore):
    """A store that does not answer, and knows which ends were at work when it was asked. Routes may be open by
    then, with threads that nobody has given anything to do."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work: set[str] = set()

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """Nothing is heard of it: a writer asks for the record of its stack first."""
        if not isinstance(request, GetPosition):
            return super().ask(request)
        names = {one.name for one in threading.enumerate() if "/receiver" in one.name}
        self.at_work |= {one for one in names if not one.endswith(("-clerk", "-waiter"))}
        return Unavailable("away")


class BenchWithAway(Bench):
    """Its second store does not answer."""

    away: Away

    def store(self, part: AnyStore) -> Store:
        """That of the first pipe is a real one."""
        if part.name != "other":
            return super().store(part)
        self.away = Away()
        return self.away


@pytest.mark.parametrize("boundary", ["handed", "before"])
def test_nothing_is_taken_before_every_end_is_open(boundary: str) -> None:
    """Else the message that a receiver has settled before its handler had it ends with a start that fails: the
    store of the second pipe does not answer. (Plan 121 of the generated ones, seed 6.)"""
    stores = "stores: {main: {kind: sqlite, path: main.db}, other: {kind: memory}}\n"
    plan = plan_of(BEHIND.replace("BOUNDARY", boundary), stores=stores)
    write_lines("in.jsonl", range(9))
    run(plan, "main", odd=odd)
    bench = BenchWithAway(plan, odd=odd)
    before = threading.active_count()
    with pytest.raises(StoreUnavailable):
        PlanEngine(plan, "away", bench, once=True).start()
    assert bench.away.at_work == set()
    assert threading.active_count() == before
    with SqliteStore("main.db") as store:
        info = store.info("shop/first")
        assert isinstance(info, StreamInfo)
        assert [reader.next for reader in info.readers] in ([], [1])
    assert "second" in run(plan, "away", odd=odd)
    assert read_lines("out.jsonl") == [1, 3, 5, 7]
