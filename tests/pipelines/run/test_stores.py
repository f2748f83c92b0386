from __future__ import annotations

from collections.abc import Iterator

import pytest

from surepipe.testing.servers import NONE_FOUND, RedisServer, local_servers
from tests.pipelines.run.kit import plan_of, read_lines, run, write_lines

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
