"""The transaction that a stage is given: in a simulation it is what it is in a run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from surepipe.core.store_requests import Transaction
from surepipe.errors import MisuseError
from surepipe.pipelines.loading import load
from surepipe.pipelines.simulate.campaign import run_one
from surepipe.pipelines.simulate.functions import Functions
from surepipe.pipelines.simulate.reference import plainly
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import Context
from surepipe.simulation.options import Options
from surepipe.storage import MemoryStore, RedisTransaction, SqliteStore

STORES = {
    "memory": "{kind: memory}",
    "sqlite": "{kind: sqlite, path: shop.db}",
    "redis": '{kind: redis, url: "redis://localhost:1/0", durability: power}',
}
KINDS = pytest.mark.parametrize("kind", STORES)
PLAN = """\
version: 1
name: shop
stores: {{main: {store}}}
sources: {{lines: {{kind: jsonl, path: lines.jsonl}}}}
pipes:
  intake: {{from: lines, route: {{kind: {kind}, store: main}}, boundary: committed}}
stages: {{price: {{from: intake, call: "shop:price", retries: 1, dead_letter: main/dead}}}}
sinks: {{out: {{from: price, kind: jsonl, path: out.jsonl}}}}
"""
Use = Callable[[Any], object]


def _subject(folder: Path, kind: str, use: Use) -> PlanSubject:
    """A plan over such a store, whose stage does this with its transaction."""
    (folder / "shop.yaml").write_text(PLAN.format(kind=kind, store=STORES[kind]))

    def price(order: object, context: Context) -> object:
        use(context.transaction)
        return order

    plan = load(folder / "shop.yaml")
    return PlanSubject(plan, {"lines": [1, 2]}, lambda: Functions(given={"shop:price": price}))


def _dead(folder: Path, kind: str, use: Use) -> int:
    """How many of two messages a stage that does this fails for ever."""
    _, outcome = run_one(_subject(folder, kind, use), Options(messages=2))
    return outcome.dead


@contextmanager
def _real(kind: str, folder: Path) -> Generator[Transaction]:
    """What a stage is given in a run. That of Redis asks its server only when it ends."""
    if kind == "memory":
        with MemoryStore().transaction() as transaction:
            yield transaction
    elif kind == "sqlite":
        with SqliteStore(folder / "real.db") as store, store.transaction() as transaction:
            yield transaction
    else:
        yield RedisTransaction()


def _face(transaction: object) -> set[str]:
    return {name for name in dir(transaction) if not name.startswith("_")}


@KINDS
def test_it_has_in_a_simulation_what_it_has_in_a_run_and_no_more(tmp_path: Path, kind: str) -> None:
    """Names and class, in simulated runs and where stages are called one after the other (simulation X-25)."""
    seen: list[object] = []
    subject = _subject(tmp_path, kind, seen.append)
    run_one(subject, Options(messages=2))
    in_runs = len(seen)
    plainly(subject, Options(messages=2))
    assert 0 < in_runs < len(seen)
    with _real(kind, tmp_path) as real:
        for one in seen:
            assert isinstance(one, type(real))
            assert _face(one) == _face(real)


def _changes(transaction: Any) -> None:
    transaction.also(lambda: None)


def _asks_the_server(transaction: Any) -> None:
    transaction.also("SET", "key", "value", keys=["key"])


def _asks_the_server_twice(transaction: Any) -> None:
    _asks_the_server(transaction)
    _asks_the_server(transaction)


def _has_a_connection(transaction: Any) -> object:
    return transaction.connection


@pytest.mark.parametrize(
    ("kind", "use", "error"),
    [
        ("memory", _changes, None),
        ("memory", _asks_the_server, TypeError),
        ("memory", _has_a_connection, AttributeError),
        ("sqlite", _changes, AttributeError),
        ("sqlite", _asks_the_server, AttributeError),
        ("redis", _changes, TypeError),
        ("redis", _asks_the_server, None),
        ("redis", _has_a_connection, AttributeError),
        ("redis", _asks_the_server_twice, MisuseError),
    ],
)
def test_a_stage_fails_in_a_simulation_where_it_fails_in_a_run(
    tmp_path: Path, kind: str, use: Use, error: type[Exception] | None
) -> None:
    """It asks for what another kind of store has, or for more than one takes: all messages become dead letters."""
    assert _dead(tmp_path, kind, use) == (0 if error is None else 2)
    with _real(kind, tmp_path) as real:
        if error is None:
            use(real)
        else:
            with pytest.raises(error):
                use(real)
        real.requests.clear()
