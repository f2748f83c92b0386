"""The transaction that a stage is given: in a simulation it is what it is in a run."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from surepipe.cli.output import Exit
from surepipe.core.store_requests import Transaction
from surepipe.errors import MisuseError
from surepipe.pipelines.loading import load
from surepipe.pipelines.run.real import RealClock
from surepipe.pipelines.simulate.campaign import CannotSimulate, run_one
from surepipe.pipelines.simulate.functions import Functions
from surepipe.pipelines.simulate.reference import plainly
from surepipe.pipelines.simulate.simulating import simulation_of_plan
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import About, Context
from surepipe.simulation.options import Options
from surepipe.storage import MemoryStore, RedisTransaction, SqliteStore
from tests.pipelines.simulate.kit import command, imported_by_a_test, shop, simulated

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


def test_a_stage_that_takes_its_context_for_the_transaction_is_told_where_that_is() -> None:
    """As a handler of a pipe does, which gets the transaction itself."""
    with MemoryStore().transaction() as transaction:
        context: Any = Context(About("intake", 1, 1), "price", 1, RealClock(), transaction)
        with pytest.raises(AttributeError, match="'connection': the transaction is"):
            context.connection.execute("SELECT 1")


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


PAGE = (Path(__file__).parents[3] / "docs" / "simulation.md").read_text()
COMMITTED = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [reliable], journal: main, state: main, boundary: committed}
stages: {price: {from: intake, call: "shop_stages:price", retries: 5, dead_letter: main/dead}}
sinks: {out: {from: price, kind: jsonl, path: out.jsonl}}
"""


def test_a_cursor_that_a_library_makes_itself_fails_and_crashes_nobody(tmp_path: Path) -> None:
    """It goes past the methods of the connection: the interpreter ended with a segmentation fault."""

    def makes_a_cursor(transaction: Any) -> object:
        with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
            sqlite3.Cursor(transaction.connection).execute("select 1")
        seen.append(transaction)
        return None

    seen: list[object] = []
    assert _dead(tmp_path, "sqlite", makes_a_cursor) == 0
    assert seen


def test_what_the_page_says_of_a_database_is_held(tmp_path: Path) -> None:
    """Its stage, its double and its line of the plan, through crashes and processes that were replaced: the total
    is right although the double is no part of the transaction (simulation X-25)."""
    blocks = re.findall(r"```python\n# (shop_stages|doubles)\.py\n(.*?)```", PAGE, re.DOTALL)
    told = dict(blocks)
    (replaced,) = re.findall(r"`(simulate: {replace: {\"shop_stages:add\".*?})`", PAGE)
    file = shop(tmp_path, told["shop_stages"], f"{COMMITTED}{replaced}\n")
    (tmp_path / "doubles.py").write_text(told["doubles"])
    rows = (f'{{"n": {n}, "count": {n % 3 + 1}}}\n' for n in range(8))
    (tmp_path / "lines.jsonl").write_text("".join(rows))
    done = command(file, "--seeds", "20")
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stdout + done.stderr
    assert "not judged" not in done.stdout


CONNECT = """\
import sqlite3
DB = sqlite3.connect("prices.db")
DB.execute("CREATE TABLE IF NOT EXISTS prices (n, cents)")
DB.execute("INSERT INTO prices VALUES (0, 7)")
DB.commit()
"""
CHANGES = {
    "by a statement that was prepared before": "DB.execute('INSERT INTO prices VALUES (0, 7)')",
    "by the connection": "DB.execute('INSERT INTO prices VALUES (1, 2)')",
    "by a cursor": "DB.cursor().execute('DELETE FROM prices')",
    "in a block": "\n    with DB:\n        DB.execute('UPDATE prices SET cents = 1')",
    "with its errors swallowed": (
        "\n    try:\n        DB.execute('DROP TABLE prices')\n    except sqlite3.Error:\n        pass"
    ),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_database_that_a_module_connected_to_is_not_changed(tmp_path: Path, how: str) -> None:
    """While it was imported nothing was refused, and the connection stays: no simulated row gets into a real
    database (simulation X-25)."""
    stages = f"{CONNECT}def price(order):\n    {CHANGES[how]}\n    return order\n"
    done = simulated(tmp_path, stages)
    assert done.returncode == Exit.UNUSABLE, done.stdout
    assert "changes the database" in done.stderr
    assert done.stderr.count("shop_stages.py:") == 1
    assert '"shop_stages:NAME": "doubles:NAME"' in done.stderr
    with closing(sqlite3.connect(tmp_path / "prices.db")) as database:
        assert set(database.execute("SELECT n, cents FROM prices")) == {(0, 7)}


def test_a_database_that_a_module_connected_to_may_be_read(tmp_path: Path) -> None:
    """A table of prices, say."""
    stages = (
        f"{CONNECT}def price(order):\n"
        "    (cents,) = DB.execute('SELECT cents FROM prices').fetchone()\n"
        "    return {**order, 'cents': cents}\n"
    )
    done = simulated(tmp_path, stages)
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stderr
    assert "not judged" not in done.stdout


ATTACHED = """\
import sqlite3
with sqlite3.connect("prices.db") as real:
    real.execute("CREATE TABLE prices (n, cents)")
    real.execute("INSERT INTO prices VALUES (0, 7)")
"""
ATTACHES = {
    "at import": (
        "DB = sqlite3.connect(':memory:')\nDB.execute(\"ATTACH 'prices.db' AS real\")\n",
        "DB.execute('INSERT INTO real.prices VALUES (1, 2)')\n    DB.commit()",
        "changes the database",
    ),
    "in a stage": (
        "DB = sqlite3.connect(':memory:')\n",
        "DB.execute(\"ATTACH 'prices.db' AS real\")",
        "opens the database prices.db",
    ),
    "by a parameter": (
        "DB = sqlite3.connect(':memory:')\n",
        "DB.execute('ATTACH ? AS real', ('prices.db',))",
        "opens a database",
    ),
    "to what a stage makes": (
        "",
        "sqlite3.connect(':memory:').execute(\"ATTACH 'prices.db' AS real\")",
        "opens the database prices.db",
    ),
    "as a copy": (
        "DB = sqlite3.connect(':memory:')\n",
        "DB.execute(\"VACUUM INTO 'copy.db'\")",
        "opens the database copy.db",
    ),
}


@pytest.mark.parametrize("how", ATTACHES)
def test_a_database_in_memory_opens_no_other_one(tmp_path: Path, how: str) -> None:
    """Nothing but SQLite itself hears of it (simulation X-25)."""
    before, attach, said = ATTACHES[how]
    stages = f"{ATTACHED}{before}def price(order):\n    {attach}\n    return order\n"
    done = simulated(tmp_path, stages)
    assert done.returncode == Exit.UNUSABLE, done.stdout
    assert said in done.stderr
    assert not (tmp_path / "copy.db").exists()
    with closing(sqlite3.connect(tmp_path / "prices.db")) as database:
        assert set(database.execute("SELECT n, cents FROM prices")) == {(0, 7)}


def test_a_database_in_memory_may_have_another_one_beside_it(tmp_path: Path) -> None:
    """Made at import or by the stage, and changed: nobody else sees that."""
    stages = (
        "import sqlite3\n"
        "def price(order):\n"
        "    database = sqlite3.connect(':memory:')\n"
        "    database.execute(\"ATTACH ':memory:' AS other\")\n"
        "    database.execute('CREATE TABLE other.seen (n)')\n"
        "    database.execute('INSERT INTO other.seen VALUES (?)', (order['n'],))\n"
        "    database.commit()\n"
        "    database.execute('VACUUM')\n"
        "    return order\n"
    )
    done = simulated(tmp_path, stages)
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stderr


def test_a_database_of_a_module_that_was_imported_before_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a test, say, that simulates it then."""
    change = "DB.execute('INSERT INTO prices VALUES (0, 7)')"
    file = shop(tmp_path, f"{CONNECT}def price(order):\n    {change}\n    return order\n")
    monkeypatch.chdir(tmp_path)
    module = imported_by_a_test(file, monkeypatch)
    with closing(module.DB), pytest.raises(CannotSimulate, match="changes the database"):
        simulation_of_plan(load(file)).run(range(1))
