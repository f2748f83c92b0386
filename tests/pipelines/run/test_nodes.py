from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError
from surepipe.pipelines.run import PlanEngine
from tests.pipelines.run.kit import DONE_S, Bench, finish, plan_of, read_lines, until, write_lines

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


CHAIN = """\
sources: {lines: {kind: jsonl, path: in.jsonl, node: shop}}
pipes:
  road:
    from: lines
    node: depot
    journal: main
    INTAKE
    route: {kind: tcp, address: "127.0.0.1:PORT1", secret: "${ROAD_KEY}"}
  onward:
    from: priced
    node: warehouse
    journal: middle
    state: far
    boundary: committed
    route: {kind: tcp, address: "127.0.0.1:PORT2", secret: "${ROAD_KEY}"}
stages: {priced: {from: road, map: "test:price"}}
sinks: {out: {from: onward, kind: jsonl, path: out.jsonl}}
"""
CHAIN_STORES = STORES + "  middle: {kind: sqlite, path: depot.db, durability: process}\n"


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
    shop = PlanEngine(plan, "shop", bench, once=True)
    warehouse = PlanEngine(plan, "warehouse", Bench(plan, price=price), once=True)
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
                warehouse = PlanEngine(plan, "warehouse", Bench(plan, price=price), once=True)
                warehouse.start()
                is_again = True
            shop.wait(0.005)
    finally:
        shop.close(1.0)
        warehouse.close(1.0)
    assert is_again
    assert read_lines("out.jsonl") == [n * 2 for n in range(3_000)]


@pytest.mark.parametrize("until_idle", [False, True])
@pytest.mark.parametrize("intake", ["state: middle", "state: middle\n    boundary: committed"])
def test_a_node_between_two_others_keeps_its_way_out_open_while_it_is_idle(
    monkeypatch: pytest.MonkeyPatch, intake: str, *, until_idle: bool
) -> None:
    """It is looked at before the first node starts; what comes then goes through, and told to stop it ends."""
    monkeypatch.setenv("ROAD_KEY", "k" * 32)
    write_lines("in.jsonl", range(20))
    text = CHAIN.replace("INTAKE", intake)
    for port in ("PORT1", "PORT2"):
        text = text.replace(port, str(free_port()))
    plan = plan_of(text, stores=CHAIN_STORES)
    bench = Bench(plan, price=price)
    shop = PlanEngine(plan, "shop", bench, once=True)
    depot = PlanEngine(plan, "depot", Bench(plan, price=price), once=True, until_idle=until_idle)
    warehouse = PlanEngine(plan, "warehouse", Bench(plan, price=price), once=True)
    try:
        warehouse.start()
        depot.start()
        until(depot, lambda: depot.look() is until_idle)
        shop.start()
        finish(shop, bench)

        def is_through() -> bool:
            depot.look()
            return warehouse.counters()["onward"]["settled"] == 20

        until(depot, is_through)
        for node in (depot, warehouse):
            node.stop_sources()
            finish(node, bench)
    finally:
        for node in (shop, depot, warehouse):
            node.close(1.0)
    assert read_lines("out.jsonl") == [n * 2 for n in range(20)]


STREAMED = """\
sources: {lines: {kind: jsonl, path: in.jsonl, node: shop}}
pipes:
  intake: {from: lines, node: depot, route: {kind: sqlite, store: main}, state: main}
  onward: {from: priced, node: warehouse, route: {kind: sqlite, store: main}, state: main}
stages: {priced: {from: intake, map: "test:price"}}
sinks: {out: {from: onward, kind: jsonl, path: out.jsonl}}
"""


def test_a_node_that_is_told_to_stop_keeps_its_way_out_open_for_the_message_that_it_is_at() -> None:
    """The stage of the middle node stands still meanwhile; what it answers then goes on, and it is not called
    for more."""
    write_lines("in.jsonl", range(5))
    plan = plan_of(STREAMED, stores=STORES)
    called, go_on = threading.Event(), threading.Event()
    prices: list[int] = []

    def price_late(number: int) -> int:
        prices.append(number)
        called.set()
        assert go_on.wait(DONE_S)
        return number * 2

    bench = Bench(plan, price=price_late)
    depot = PlanEngine(plan, "depot", bench)
    try:
        for node in ("shop", "warehouse"):
            shop = PlanEngine(plan, node, bench, once=True)
            shop.start()
            finish(shop, bench)
            shop.close(1.0)
        depot.start()
        assert called.wait(DONE_S)
        depot.stop_sources()
        assert not depot.look()
        go_on.set()
        finish(depot, bench)
        assert depot.counters()["onward"]["accepted"] == 1
    finally:
        go_on.set()
        depot.close(1.0)
    assert prices == [0]


def test_a_look_raises_what_ended_a_source_and_so_does_the_next_one() -> None:
    """A line that is no JSON: what stands before it goes through."""
    Path("in.jsonl").write_text("1\n2\nthree\n4\n")
    plan = plan_of(
        "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
        "pipes: {intake: {from: lines, journal: main, state: main}}\n"
        "sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}\n"
    )
    bench = Bench(plan)
    engine = PlanEngine(plan, "main", bench, once=True)
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
        PlanEngine(plan, "main", Bench(plan))
    assert not Path("shop.db").exists()
