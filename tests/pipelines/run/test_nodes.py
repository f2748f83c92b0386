from __future__ import annotations

import socket
from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError
from surepipe.pipelines.engine import Engine
from tests.pipelines.run.kit import DONE_S, Bench, plan_of, read_lines, until, write_lines

pytestmark = pytest.mark.usefixtures("folder")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


NODES = """\
sources: {lines: {kind: jsonl, path: in.jsonl, node: shop}}
pipes:
  road:
    from: lines
    node: warehouse
    journal: main
    state: far
    boundary: committed
    route: {kind: tcp, address: "127.0.0.1:PORT", secret: "${ROAD_KEY}"}
stages: {priced: {from: road, map: "test:price"}}
sinks: {out: {from: priced, kind: jsonl, path: out.jsonl}}
"""
STORES = (
    "stores:\n"
    "  main: {kind: sqlite, path: shop.db, durability: process}\n"
    "  far: {kind: sqlite, path: warehouse.db, durability: process}\n"
)


def price(number: int) -> int:
    """Twice the number."""
    return number * 2


def test_two_nodes_are_joined_by_a_route_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each opens only its own stores; the receiving one is killed half way and comes back."""
    monkeypatch.setenv("ROAD_KEY", "k" * 32)
    write_lines("in.jsonl", range(3_000))
    plan = plan_of(NODES.replace("PORT", str(free_port())), stores=STORES)
    assert plan.nodes == ("shop", "warehouse")
    bench = Bench(plan)
    shop = Engine(plan, "shop", bench, once=True)
    warehouse = Engine(plan, "warehouse", Bench(plan, price=price), once=True)
    end = bench.clock.monotonic() + DONE_S
    shop.start()
    warehouse.start()
    try:
        assert set(shop.stores) == {"main"}
        assert set(warehouse.stores) == {"far"}
        is_again = False
        while not shop.look():
            assert bench.clock.monotonic() < end, (shop.counters(), warehouse.counters())
            if not is_again and warehouse.counters()["road"]["settled"] > 500:
                warehouse.close(0.01)
                warehouse = Engine(plan, "warehouse", Bench(plan, price=price), once=True)
                warehouse.start()
                is_again = True
            shop.wait(0.005)
    finally:
        shop.close(1.0)
        warehouse.close(1.0)
    assert is_again
    assert read_lines("out.jsonl") == [n * 2 for n in range(3_000)]


def test_a_look_raises_what_ended_a_source_and_so_does_the_next_one() -> None:
    """A line that is no JSON: what stands before it goes through."""
    Path("in.jsonl").write_text("1\n2\nthree\n4\n")
    plan = plan_of(
        "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
        "pipes: {intake: {from: lines, journal: main, state: main}}\n"
        "sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}\n"
    )
    bench = Bench(plan)
    engine = Engine(plan, "main", bench, once=True)
    engine.start()
    try:
        until(engine, lambda: bool(bench.failures))
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=r"in\.jsonl") as raised:
                engine.look()
            assert bench.failures == [raised.value]
    finally:
        engine.close(DONE_S)
    assert read_lines("out.jsonl") == [1, 2]


def test_a_node_that_the_plan_does_not_have_is_refused() -> None:
    """With those that it has."""
    plan = plan_of(NODES.replace("PORT", "1"), stores=STORES)
    with pytest.raises(ConfigurationError, match="its nodes are shop, warehouse"):
        Engine(plan, "main", Bench(plan))
    assert not Path("shop.db").exists()
