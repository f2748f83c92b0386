"""What a run knows of a store that gives its pipes no answer."""

from __future__ import annotations

from surepipe.actors import StepRuntime, StreamSender
from surepipe.pipelines.run import PlanEngine
from surepipe.storage import MemoryStore
from surepipe.storage.faulty import FaultyStore, Misfortune
from tests.pipelines.run.kit import Bench, plan_of

PLAN = """
sources: {numbers: {kind: python, call: "test:numbers"}}
pipes:
  orders: {from: numbers, layers: {stream: {start: earliest}}, route: {kind: memory, store: main}}
sinks: {out: {kind: stdout, from: orders}}
"""


def test_a_run_tells_by_the_names_of_its_plan_which_store_its_pipes_wait_for() -> None:
    """From the third second on, and no more once it has answered. (The one end runs on virtual time.)"""
    plan = plan_of(PLAN, stores="stores: {main: {kind: memory}, other: {kind: memory}}\n")
    engine, steps, store = (
        PlanEngine(plan, "main", Bench(plan)),
        StepRuntime(),
        FaultyStore(MemoryStore()),
    )
    engine.stores |= {"main": store, "other": MemoryStore()}
    layer = {"stream": {"start": "earliest"}}
    with StreamSender("orders", layer, store=store, runtime=steps) as sender:
        engine.faces["orders"] = sender
        sender.send(1)
        sender.flush()
        steps.advance(2)
        assert engine.silent_s() == {}
        store.script(Misfortune.OUTAGE, calls=1_000_000)
        sender.send(2)
        steps.advance(10)
        assert engine.silent_s().keys() == {"main"}
        assert 2 < engine.silent_s()["main"] <= 10
        store.calm()
        sender.flush()
        assert engine.silent_s() == {}
