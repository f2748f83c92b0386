"""What stages keep in globals of their module: a process has it for itself, from its start to its end."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from surepipe.cli.app import run
from surepipe.cli.output import Exit
from surepipe.errors import ConfigurationError
from surepipe.pipelines.simulate.campaign import CannotSimulate
from surepipe.pipelines.simulate.ends import RunOutcome
from surepipe.pipelines.simulate.memory import LARGE, ProcessMemory, project_modules
from surepipe.pipelines.simulate.simulating import NotExercised, SimulationFailed, simulation_of
from surepipe.pipelines.simulate.source_text import Project, unjudged_by

PIPELINE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {orders: {kind: jsonl, path: orders.jsonl}}
pipes:
  intake: {from: orders, layers: [reliable], journal: main, state: main, boundary: committed}
stages: {price: {from: intake, call: "MODULE:price", retries: 5, dead_letter: main/orders.dead}}
sinks: {out: {from: price, kind: jsonl, path: out.jsonl}}
simulate: {sample: {orders: [{order: 1}, {order: 2}, {order: 3}]}, messages: 3}
"""
MODULE = "stages_that_remember"

SEEN_BEFORE = """
SEEN = set()
def price(order):
    if order["order"] in SEEN:
        return None
    SEEN.add(order["order"])
    return {**order, "cents": 320}
"""
HELPER = "stages_that_remember_helper"
HELPED = f"""
import json
from {HELPER} import is_new
def price(order):
    return {{**order, "cents": json.loads("320")}} if is_new(order["order"]) else None
"""
HELPED_LATE = f"""
def price(order):
    from {HELPER} import is_new
    return {{**order, "cents": 320}} if is_new(order["order"]) else None
"""
SEEN_BY_A_HELPER = """
SEEN = {}
def is_new(order):
    was_seen = order in SEEN
    SEEN[order] = True
    return not was_seen
"""
NUMBERED = """
number = 0
def price(order):
    global number
    number += 1
    return {**order, "number": number}
"""
CACHED = """
from functools import cache
TABLE = {}
@cache
def cents(order):
    return 320
def price(order):
    TABLE[order["order"]] = cents(order["order"])
    return {**order, "cents": TABLE[order["order"]]}
"""
SWALLOWED = """
def price(order):
    try:
        return {**order, "cents": 320}
    except Exception:
        return None
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With a pipeline; what is written into its ``stages`` is imported anew."""
    (tmp_path / "shop.yaml").write_text(PIPELINE.replace("MODULE", MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in (MODULE, HELPER):
        sys.modules.pop(name, None)
    yield tmp_path
    for name in (MODULE, HELPER):
        module = sys.modules.pop(name, None)
        for kept in vars(module).values() if module else ():
            if isinstance(kept, sqlite3.Connection):  # which nobody else would close
                kept.close()


def _stages(folder: Path, text: str) -> Path:
    (folder / f"{MODULE}.py").write_text(text)
    return folder / "shop.yaml"


def test_a_message_that_only_a_failed_attempt_has_seen_is_found_lost(folder: Path) -> None:
    """A home-made dedupe drops the second attempt; its first one was never committed (simulation X-24, X-25)."""
    with pytest.raises(
        SimulationFailed,
        match=rf"P2 no loss[\s\S]*stages keep {MODULE}\.SEEN \({MODULE}\.py:6\) between calls",
    ):
        simulation_of(_stages(folder, SEEN_BEFORE)).run(range(40))


PAID = """
from surepipe.simulation import Outside
bank, done = Outside("bank"), set()
def price(order):
    if order["order"] not in done:
        PAYS
    return {**order, "paid": True}
"""
PAYS = ['bank.do("pay", order["order"], key=order["order"])', 'done.add(order["order"])']


@pytest.mark.parametrize("is_noted_first", [True, False])
def test_what_is_noted_as_done_before_the_outside_refused_it_is_found_undone(
    folder: Path, is_noted_first: bool
) -> None:
    """The attempt fails where it does something outside, and the next one finds its own note: nothing was paid.
    Noted behind it, the memory is only a matter of repeats, and these have their key."""
    pays = "\n        ".join(reversed(PAYS) if is_noted_first else PAYS)
    simulation = simulation_of(_stages(folder, PAID.replace("PAYS", pays)), faults="bad-stage")
    if not is_noted_first:
        simulation.run(range(60))
        return
    with pytest.raises(SimulationFailed, match="bank pay 3 was never done") as found:
        simulation.run(range(60))
    assert "price fails as bank refuses pay" in " ".join(str(found.value).split())


GUARDED = """
from surepipe.simulation import Outside
bank, rates = Outside("bank"), Outside("rates")
class Down(Exception):
    pass
def rate(order):
    try:
        rates.do("ask", order["order"], key=order["order"])
        return 2
    except Exception as error:
        return 1
def paid(order):
    try:
        bank.do("pay", order["order"], key=order["order"])
    except Exception as error:
        raise Down("the bank") from error
def price(order):
    WORK
    return {**order, "rate": rate(order)} if ASKS else order
"""


@pytest.mark.parametrize(
    ("work", "asks"), [("paid(order)", False), ("paid(order)", True), ("pass", True)]
)
def test_a_stage_that_handles_errors_of_the_outside_is_held(
    folder: Path, work: str, *, asks: bool
) -> None:
    """No handler of the stage's gets hold of that: what it does without an answer is not tried."""
    stages = _stages(folder, GUARDED.replace("WORK", work).replace("ASKS", str(asks)))
    simulation_of(stages, faults="bad-stage").run(range(60))


@pytest.mark.parametrize("stages", [HELPED, HELPED_LATE], ids=["at the top", "in the function"])
def test_what_a_helper_of_the_project_remembers_is_found_too(folder: Path, stages: str) -> None:
    """The stage imports it, from beside the file; of the libraries nothing is set back (simulation X-24, X-25)."""
    (folder / f"{HELPER}.py").write_text(SEEN_BY_A_HELPER)
    found = simulation_of(_stages(folder, stages)).campaign(range(40), stop_at_first=True)
    assert found.violated["P2"] == 1
    assert found.memory == (f"{HELPER}.SEEN",)


PROJECT = {
    "shelf/__init__.py": "",
    "shelf/stages.py": "import json, yaml, shelf_tools\nfrom . import prices\nfrom .codes import CODES\n",
    "shelf/prices.py": "import lib_of_others\n",
    "shelf/codes.py": "CODES = {}\n",
    "shelf/nobodys.py": "",
    "shelf_tools.py": "import shelf_doubles\n",
    "shelf_doubles.py": "",
    "venv/site-packages/lib_of_others.py": "",
}


def test_only_what_stages_import_of_the_same_project_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not libraries, not doubles, and nothing that nobody imports (simulation X-25)."""
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    places = [str(tmp_path), str(tmp_path / "venv" / "site-packages")]
    monkeypatch.setattr(sys, "path", [*places, *sys.path])
    stages, doubles, nobodys = map(
        import_module, ("shelf.stages", "shelf_doubles", "shelf.nobodys")
    )
    found = {module.__name__ for module in project_modules([stages], tmp_path, without=[doubles])}
    assert found == {"shelf", "shelf.stages", "shelf.prices", "shelf.codes", "shelf_tools"}
    of_package = {module.__name__ for module in project_modules([stages])}
    assert of_package == found - {"shelf_tools"}
    for name in (
        "shelf",
        *found,
        nobodys.__name__,
        "shelf_tools",
        "shelf_doubles",
        "lib_of_others",
    ):
        sys.modules.pop(name, None)


def test_numbers_that_begin_anew_after_a_crash_are_found(folder: Path) -> None:
    """A counter in a global numbers what the stage gives (simulation X-25)."""
    with pytest.raises(
        SimulationFailed,
        match=rf"P[234] [\s\S]*stages keep {MODULE}\.number \({MODULE}\.py:5\) between calls",
    ):
        simulation_of(_stages(folder, NUMBERED)).run(range(40))


def test_a_cache_breaks_nothing_and_is_named(folder: Path) -> None:
    """One of the stage's own, and one of the standard library (simulation X-25)."""
    found = simulation_of(_stages(folder, CACHED)).run(range(5))
    assert found.memory == (f"{MODULE}.TABLE", f"{MODULE}.cents")


TIMED = """
import time
def price(order):
    return {**order, "at": time.time()}
"""


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (CACHED, "That is fine for a cache"),
        (TIMED, "of what out gets, at was not compared"),
    ],
    ids=["cached", "timed"],
)
def test_the_command_says_it_of_a_pipeline_that_holds(
    folder: Path, capsys: pytest.CaptureFixture[str], stages: str, said: str
) -> None:
    """In a note; the exit code stays as it is (simulation X-22, X-25)."""
    file = _stages(folder, stages)
    code = run(["simulate", str(file), "--seeds", "2", "--faults", "none", "--jobs", "1"])
    assert code in (Exit.HELD, Exit.NOT_EXERCISED)
    assert said in capsys.readouterr().out


RUNNING_TOTAL = """
total = 0
def price(order):
    global total
    total += order["order"]
    return {**order, "total": total}
"""
TOTAL_IN_AN_INSTANCE = """
class price:
    def __init__(self):
        self.total = 0
    def __call__(self, order):
        self.total += order["order"]
        return {**order, "total": self.total}
"""
TWO_SOURCES = (
    PIPELINE.replace(
        "sources: {orders:", "sources: {more: {kind: jsonl, path: more.jsonl}, orders:"
    )
    .replace("{from: orders,", "{from: [orders, more],")
    .replace("sample: {orders:", "sample: {more: [{order: 5}, {order: 6}], orders:")
    .replace("messages: 3", "messages: 5")
)


@pytest.mark.parametrize(
    ("stages", "code"),
    [
        (RUNNING_TOTAL, Exit.NOT_EXERCISED),
        (TOTAL_IN_AN_INSTANCE, Exit.NOT_EXERCISED),
        (CACHED, Exit.HELD),
    ],
    ids=["total", "in an instance", "cached"],
)
def test_a_total_over_two_sources_is_not_said_to_hold(
    folder: Path, capsys: pytest.CaptureFixture[str], stages: str, code: Exit
) -> None:
    """simulation X-25: it differs with the order, so no run shows what a crash does; a cache is no matter."""
    file = _stages(folder, stages)
    file.write_text(TWO_SOURCES.replace("MODULE", MODULE))
    asked = ["simulate", str(file), "--seeds", "20", "--faults", "none", "--jobs", "1"]
    assert run(asked) == code
    told = capsys.readouterr().out
    keeps = (
        "not judged: what out gets differs between runs without faults, and stage price keeps "
        f"{MODULE}.{'price.' if stages is TOTAL_IN_AN_INSTANCE else ''}total ({MODULE}.py:"
    )
    assert (keeps in told) == (code is Exit.NOT_EXERCISED)


def test_a_stage_that_swallows_what_fails_is_not_said_to_hold(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its messages are dropped without faults too, so no run can judge it: exit 3, and a failure under pytest."""
    file = _stages(folder, SWALLOWED)
    asked = ["simulate", str(file), "--seeds", "2", "--faults", "none", "--jobs", "1"]
    assert run(asked) == Exit.NOT_EXERCISED
    told = capsys.readouterr().out
    assert "not judged: stage price catches every exception at " in told
    words = dict(re.findall(r"^(.*?) in 2 schedules.*  (.+?): ", told, re.MULTILINE))
    assert words == {"held": "intake", "not judged": "orders to out"}, told
    with pytest.raises(NotExercised, match="catches every exception"):
        simulation_of(file, faults="none").run(range(2))


TWO_NODES = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources:
  left: {kind: jsonl, path: left.jsonl}
  right: {kind: jsonl, path: right.jsonl}
pipes:
  one: {from: left, journal: main, node: first, route: {kind: tcp, address: "localhost:1"}}
  two: {from: right, journal: main, node: second, route: {kind: tcp, address: "localhost:2"}}
stages:
  price: {from: one, call: "MODULE:hold"}
  pack: {from: two, call: "MODULE:hold"}
sinks:
  priced: {from: price, kind: jsonl, path: priced.jsonl}
  packed: {from: pack, kind: jsonl, path: packed.jsonl}
simulate: {messages: 10, sample: {left: [l1, l2, l3, l4, l5], right: [r1, r2, r3, r4, r5]}}
"""
HELD_OVER_A_SLEEP = """
held = None
def hold(text, context):
    global held
    held = text
    context.sleep(0.3)
    return held
"""


def test_a_stage_that_sleeps_finds_its_own_memory_again(folder: Path) -> None:
    """Meanwhile another process was called, whose stage is in the same module (simulation X-25)."""
    (folder / f"{MODULE}.py").write_text(HELD_OVER_A_SLEEP)
    (folder / "two.yaml").write_text(TWO_NODES.replace("MODULE", MODULE))

    def keeps_apart(run: RunOutcome) -> bool:
        came = {sink: {str(text)[0] for text in texts} for sink, texts in run.delivered.items()}
        return came == {"priced": {"l"}, "packed": {"r"}}

    simulation_of(folder / "two.yaml", check=keeps_apart, faults="none").run(range(2))


@pytest.mark.long
def test_a_run_that_stages_left_no_time_is_not_judged(folder: Path) -> None:
    """A correct stage that waits for hours: it was called a run that never came to rest (simulation X-8)."""
    waiting = (
        "import asyncio\nasync def price(order):\n    await asyncio.sleep(7200)\n    return order\n"
    )
    with pytest.raises(
        CannotSimulate, match=r"stage price waits for \d+ s .* let the stage wait for less"
    ):
        simulation_of(_stages(folder, waiting), messages=1).run(range(1))


MODULE_OF_ALL = """
import itertools, threading
from enum import Enum
class Colour(Enum):
    RED = 1
class Stage:
    seen = set()
MISSING = object()
nested, same, numbers = {"a": [MISSING]}, None, itertools.count(1)
same = nested["a"]
stage, lock, total = Stage(), threading.Lock(), 0
"""
CHANGES = """
nested["b"] = 1
same.append(2)
next(numbers)
Stage.seen.add(3)
stage.count = 4
total += 5
late = []
del lock
"""


def _module() -> ModuleType:
    module = ModuleType("stages")
    exec(MODULE_OF_ALL, vars(module))
    return module


def _content(module: ModuleType) -> list[str]:
    """As text, for it is to be compared with what it is later."""
    said = "[*nested], len(same), numbers, Stage.seen, vars(stage), total, 'late' in vars(), 'lock' in vars()"
    return [repr(one) for one in eval(said, vars(module))]


def test_each_process_has_its_own_and_takes_it_up_again() -> None:
    """Of two that take turns, neither sees what the other keeps; a third one begins anew (simulation X-25)."""
    module = _module()
    fresh, memory = _content(module), ProcessMemory([module])
    memory.enter("first")
    exec(CHANGES, vars(module))
    changed = _content(module)
    memory.enter("second")
    assert _content(module) == fresh
    memory.enter("first")
    assert _content(module) == changed
    assert module.nested["a"] is module.same
    assert module.nested["a"][0] is module.MISSING
    memory.reset()
    assert _content(module) == fresh
    memory.enter("third")
    assert _content(module) == fresh


def test_what_was_changed_is_named_when_a_run_is_over() -> None:
    """Also what cannot be copied and what is new (simulation X-25)."""
    module = _module()
    memory = ProcessMemory([module])
    memory.enter("first")
    exec(CHANGES, vars(module))
    memory.reset()
    named = "Stage.seen late lock nested numbers same stage total"
    assert memory.changed == tuple(f"stages.{name}" for name in named.split())


def test_a_large_table_is_shared_and_its_growth_is_named() -> None:
    """To copy it for each process would take most of the time (simulation X-25)."""
    module = ModuleType("stages")
    exec(f"table = {{n: [n] for n in range({LARGE})}}; small = [1]", vars(module))
    table, small, memory = module.table, module.small, ProcessMemory([module])
    memory.enter("first")
    assert (module.table is table, module.small is small) == (True, False)
    memory.reset()
    assert not memory.changed
    memory.enter("second")
    module.table[-1] = []
    memory.reset()
    assert memory.changed == ("stages.table",)


def _raises_again(message: object) -> object:
    try:
        return message
    except Exception:
        raise


def _expects_one(message: object) -> object:
    try:
        return message
    except KeyError:
        return None


def _falls_back(message: object) -> object:
    try:
        return message
    except Exception:  # noqa: BLE001
        return 0


class _Swallows:
    def __init__(self) -> None:
        self.last: object = None

    def __call__(self, message: object) -> None:
        try:
            self.last = message
        except:  # noqa: E722
            self.last = None


@pytest.mark.parametrize("stage", [_raises_again, _expects_one, _falls_back, len])
def test_a_stage_that_lets_the_rest_be_raised_is_not_blamed(stage: type) -> None:
    """It raises again, expects one kind, gives something else, or has no source."""
    assert list(unjudged_by("stage price", stage)) == []


@pytest.mark.parametrize("stage", [_Swallows, _Swallows()])
def test_a_class_is_read_where_it_is_called(stage: type) -> None:
    """By its bare ``except`` at the end, with file and line."""
    (said,) = unjudged_by("stage price", stage)
    assert f"stage price catches every exception at {__file__}:" in said


OUTSIDE = "from surepipe.simulation import Outside\nmail = Outside('mail')\n"
MAY_RAISE = f"{OUTSIDE}def check(one):\n    if one != 'a':\n        raise ValueError(one)\n"
SWALLOWING = {
    "returns before it acts": (
        f"{MAY_RAISE}def price(order, context):\n    try:\n        check(order['n'])\n"
        "    except Exception:  # here\n        return order\n"
        "    mail.do('send', order, key=context.id.key)\n    return order\n"
    ),
    "returns as if it had acted": (
        f"{OUTSIDE}def price(order, context):\n    try:\n        mail.do('send', order, key=context.id.key)\n"
        "    except Exception:  # here\n        return order\n    return order\n"
    ),
    "returns as if it had acted, at the end": (
        f"{OUTSIDE}def price(order, context):\n    try:\n        mail.do('send', order, key=context.id.key)\n"
        "        return order\n    except Exception as error:  # here\n        print(error)\n"
        "        return order\n"
    ),
    "returns before it acts by a helper": (
        f"{OUTSIDE}def send(order):\n    mail.do('send', order, key=order['n'])\n    return True\n"
        "def price(order):\n    if order['n']:\n        try:\n            to = order['to']\n"
        "        except Exception as error:  # here\n            print(error)\n            return order\n"
        "    is_sent = send(order)\n    return order\n"
    ),
    "returns where the transaction is not written": (
        "def price(order, context):\n    try:\n        int(order['n'])\n    except Exception:  # here\n"
        "        return {**order}\n    context.transaction.execute('insert', order)\n"
        "    return {**order}\n"
    ),
    "a helper that returns before it acts": (
        f"{OUTSIDE}def send(order):\n    try:\n        int(order['n'])\n    except Exception:  # here\n"
        "        return False\n    mail.do('send', order, key=order['n'])\n    return True\n"
        "def price(order):\n    send(order)\n    return order\n"
    ),
    "acts in else": (
        f"{OUTSIDE}def price(order):\n    try:\n        int(order['n'])\n    except Exception:  # here\n"
        "        print('bad')\n    else:\n        mail.do('send', order, key=order['n'])\n"
        "    return order\n"
    ),
    "continues before it acts": (
        f"{OUTSIDE}def price(order):\n    for one in order['to']:\n        try:\n            to = one['to']\n"
        "        except Exception:  # here\n            continue\n"
        "        mail.do('send', one, key=order['n'])\n    return order\n"
    ),
    "breaks before the other rounds act": (
        f"{OUTSIDE}def price(order):\n    for one in order['to']:\n"
        "        mail.do('send', one, key=order['n'])\n        try:\n            int(one)\n"
        "        except Exception:  # here\n            break\n    return order\n"
    ),
    "continues before it keeps one": (
        "def price(order):\n    found = []\n    for one in order['to']:\n        try:\n"
        "            int(one)\n        except Exception:  # here\n            continue\n"
        "        found.append(one)\n    return found\n"
    ),
    "continues before it gives one": (
        "def price(order):\n    for one in order['to']:\n        try:\n            int(one)\n"
        "        except Exception:  # here\n            continue\n        yield one\n"
    ),
    "suppress": (
        "import contextlib\ndef price(order):\n    with contextlib.suppress(Exception):  # here\n"
        "        return {**order, 'n': int(order['n'])}\n"
    ),
    "suppress all": (
        "from contextlib import suppress\ndef price(order):\n    with suppress(KeyError, BaseException):  # here\n"
        "        order['n'] = int(order['n'])\n    return order\n"
    ),
    "return in finally": (
        "def price(order):\n    found = None\n    try:\n        found = {**order, 'n': int(order['n'])}\n"
        "    finally:\n        return found  # here\n"
    ),
    "continue in finally": (
        "def price(orders):\n    for order in orders:\n        try:\n            order['n'] = int(order['n'])\n"
        "        finally:\n            continue  # here\n    return orders\n"
    ),
    "a helper": (
        "def number(order):\n    try:\n        return {**order, 'n': int(order['n'])}\n"
        "    except Exception:  # here\n        return None\ndef price(order):\n    return number(order)\n"
    ),
    "a method": (
        "class Price:\n    def __call__(self, order):\n        return self.number(order)\n"
        "    def number(self, order):\n        try:\n            return {**order, 'n': int(order['n'])}\n"
        "        except Exception:  # here\n            return None\nprice = Price()\n"
    ),
    "a decorator": (
        "from functools import wraps\ndef safe(f):\n    @wraps(f)\n    def inner(order):\n        try:\n"
        "            return f(order)\n        except Exception:  # here\n            return None\n"
        "    return inner\n@safe\ndef price(order):\n    return order\n"
    ),
    "nothing kept": (
        "def price(order):\n    found = None\n    try:\n        found = {**order, 'n': int(order['n'])}\n"
        "    except Exception as error:  # here\n        print('bad', error)\n    return found\n"
    ),
    "batch": (
        "def price(orders):\n    found = []\n    for order in orders:\n        try:\n"
        "            found.append(int(order['n']))\n        except Exception:  # here\n            continue\n"
        "    return found\n"
    ),
    "passed on": (
        "def price(order):\n    try:\n        order['n'] = int(order['n'])\n    except:  # here\n        pass\n"
        "    return order\n"
    ),
    "by another name": (
        "Whatever = Exception\ndef price(order):\n    try:\n        return int(order)\n"
        "    except Whatever:  # here\n        return None\n"
    ),
    "suppress by another name": (
        "from contextlib import suppress as quietly\ndef price(order):\n"
        "    with quietly(Exception):  # here\n        order['n'] = int(order['n'])\n    return order\n"
    ),
    "inherited": (
        "class Base:\n    def number(self, order):\n        try:\n            return int(order['n'])\n"
        "        except Exception:  # here\n            return None\n"
        "class Price(Base):\n    def __call__(self, order):\n        return super().number(order)\n"
        "price = Price()\n"
    ),
    "a helper that changes the message": (
        "def fill(order):\n    order['n'] = int(order['n'])\ndef price(order):\n    try:\n"
        "        fill(order)\n    except Exception:  # here\n        pass\n    return order\n"
    ),
    "a helper whose answer is given as it is": (
        "def number(order):\n    try:\n        return int(order)\n    except Exception:  # here\n"
        "        return None\ndef price(order):\n    found = number(order)\n    return found\n"
    ),
    "a helper whose answer is given where there is one": (
        "def number(order):\n    try:\n        return int(order)\n    except Exception:  # here\n"
        "        return None\ndef price(order):\n    found = number(order)\n    if found:\n"
        "        return found\n"
    ),
    "somebody who is handed in": (
        "class Price:\n    def __init__(self):\n        self.bank = object()\n"
        "    def __call__(self, order):\n        try:\n            self.bank.charge(1)\n"
        "        except Exception:  # here\n            pass\n        return order\nprice = Price()\n"
    ),
    "keeps the error, and never looks at it": (
        f"{OUTSIDE}def send(order):\n    last = None\n    for _ in range(3):\n        try:\n"
        "            return mail.do('send', order, key=order['n'])\n"
        "        except Exception as error:  # here\n            last = error\n"
        "def price(order):\n    send(order)\n    return order\n"
    ),
    "says that it is done with a message of a book": (
        f"{OUTSIDE}from surepipe.queues.book import Done\ndef price(order):\n    try:\n"
        "        mail.do('send', order, key=order['n'])\n"
        "    except Exception:  # here\n        return Done()\n    return order\n"
    ),
    "gathered": (
        "import asyncio\nasync def price(order):\n"
        "    await asyncio.gather(asyncio.sleep(0), return_exceptions=True)  # here\n    return order\n"
    ),
}


def _written(folder: Path, text: str) -> ModuleType:
    _stages(folder, text)
    return import_module(MODULE)


@pytest.mark.parametrize("text", SWALLOWING.values(), ids=SWALLOWING)
def test_where_any_error_ends_is_named(folder: Path, text: str) -> None:
    """However it is written, also in what the stage calls, with its line."""
    line = 1 + [one.endswith("# here") for one in text.splitlines()].index(True)
    (said,) = unjudged_by("stage price", _written(folder, text).price)
    assert f"{MODULE}.py:{line}" in said


COUNTED = "COUNT = {}\ndef metric(name):\n    COUNT[name] = COUNT.get(name, 0) + 1\n"
RATE = (
    "def rate(order):\n    try:\n        return float(order['rate'])\n    except Exception:\n"
    "        return None\n"
)
RIGHT = {
    "says that it came to nothing": (
        f"{OUTSIDE}from surepipe.queues.book import Done\ndef price(order):\n    try:\n"
        "        mail.do('send', order, key=order['n'])\n"
        "    except Exception:\n        return Done(success=False)\n    return order\n"
    ),
    "keeps the error, and raises it in the end": (
        f"{OUTSIDE}def send(order):\n    last = None\n    for _ in range(3):\n        try:\n"
        "            return mail.do('send', order, key=order['n'])\n"
        "        except Exception as error:\n            last = error\n    raise last\n"
        "def price(order):\n    send(order)\n    return order\n"
    ),
    "says so where it acts": (
        f"{OUTSIDE}def price(order):\n    try:\n        mail.do('send', order, key=order['n'])\n"
        "    except Exception as error:\n        return {**order, 'error': str(error)}\n"
        "    return order\n"
    ),
    "asks, and goes on without": (
        f"{OUTSIDE}def price(order):\n    try:\n        rate = mail.do('rate', order['n'])\n"
        "    except Exception:\n        return order\n    return {**order, 'rate': rate}\n"
    ),
    "says so before it acts": (
        f"{OUTSIDE}def price(order):\n    try:\n        int(order['n'])\n    except Exception as error:\n"
        "        return {**order, 'error': str(error)}\n"
        "    mail.do('send', order, key=order['n'])\n    return order\n"
    ),
    "acts otherwise": (
        f"{OUTSIDE}def price(order):\n    try:\n        int(order['n'])\n    except Exception:\n"
        "        mail.do('refuse', order, key=order['n'])\n        return order\n"
        "    mail.do('send', order, key=order['n'])\n    return order\n"
    ),
    "expects one kind before it acts": (
        f"{MAY_RAISE}def price(order):\n    try:\n        check(order['n'])\n    except ValueError:\n"
        "        return order\n    mail.do('send', order, key=order['n'])\n    return order\n"
    ),
    "raises again before it acts": (
        f"{MAY_RAISE}def price(order):\n    try:\n        check(order['n'])\n    except Exception as error:\n"
        "        if isinstance(error, ValueError):\n            return order\n        raise\n"
        "    mail.do('send', order, key=order['n'])\n    return order\n"
    ),
    "acts in another branch": (
        f"{OUTSIDE}def price(order):\n    if order['n']:\n        try:\n            int(order['n'])\n"
        "        except Exception:\n            return order\n    else:\n"
        "        mail.do('send', order, key=order['n'])\n    return order\n"
    ),
    "acts before": (
        f"{OUTSIDE}def price(order):\n    mail.do('send', order, key=order['n'])\n    try:\n"
        "        int(order['n'])\n    except Exception:\n        return order\n    return order\n"
    ),
    "acts in finally": (
        f"{OUTSIDE}def price(order):\n    try:\n        try:\n            int(order['n'])\n"
        "        except Exception:\n            return order\n    finally:\n"
        "        mail.do('send', order, key=order['n'])\n    return order\n"
    ),
    "left as it is": (
        "def price(order):\n    try:\n        rate = float(order['rate'])\n    except Exception:\n"
        "        return order\n    lines = [order.get('n')]\n    lines.append(rate)\n    lines.sort()\n"
        "    order.update(lines=lines)\n    return order\n"
    ),
    "best effort behind": (
        f"{COUNTED}def price(order):\n    try:\n        int(order['n'])\n    except Exception:\n"
        "        return order\n    metric(order['n'])\n    print(order.get('n'))\n    return order\n"
    ),
    "tried again before it acts": (
        f"{OUTSIDE}def price(order, context):\n    for _ in range(3):\n        try:\n            int(order['n'])\n"
        "        except Exception:\n            context.sleep(1)\n            continue\n"
        "        mail.do('send', order, key=order['n'])\n        return order\n    raise TimeoutError\n"
    ),
    "a lookup whose answer is looked at before it acts": (
        f"{OUTSIDE}{RATE}def price(order):\n    found = rate(order)\n    if found is not None:\n"
        "        mail.do('send', found, key=order['n'])\n    return order\n"
    ),
    "raised from": (
        "def price(order):\n    try:\n        return int(order)\n    except Exception as error:\n"
        "        print(error)\n        raise ValueError('bad') from error\n"
    ),
    "one kind": (
        "from contextlib import suppress\ndef price(order):\n    with suppress(KeyError):\n"
        "        del order['n']\n    return order\n"
    ),
    "tried again": (
        "def price(order, context):\n    for _ in range(3):\n        try:\n            return int(order)\n"
        "        except Exception:\n            context.sleep(1)\n    raise TimeoutError\n"
    ),
    "told at last": (
        "def price(order, context):\n    for n in range(3):\n        try:\n            return int(order)\n"
        "        except Exception as error:\n            last = error\n    raise last\n"
    ),
    "tidied up": (
        "from contextlib import suppress\ndef price(order):\n    file = open('x')\n    try:\n"
        "        return int(file.read())\n    finally:\n        with suppress(Exception):\n"
        "            file.close()\n"
    ),
    "loop in finally": (
        "def price(order):\n    try:\n        return order\n    finally:\n        for one in order:\n"
        "            break\n"
    ),
    "default": (
        "def price(order):\n    rate = 1.0\n    try:\n        rate = float(order['rate'])\n"
        "    except Exception:\n        print('no rate')\n    return {**order, 'rate': rate}\n"
    ),
    "default at the end": (
        "from contextlib import suppress\ndef price(order):\n    with suppress(Exception):\n"
        "        return int(order)\n    return 0\n"
    ),
    "told in the message": (
        "def price(order):\n    try:\n        order['n'] = int(order['n'])\n    except Exception as error:\n"
        "        order['error'] = str(error)\n    return order\n"
    ),
    "kept aside": (
        "def price(orders):\n    found = []\n    for one in orders:\n        try:\n"
        "            found.append(int(one))\n        except Exception as error:\n"
        "            found.append(str(error))\n    return found\n"
    ),
    "looked at": (
        "import asyncio\nasync def price(order):\n"
        "    came = await asyncio.gather(asyncio.sleep(0), return_exceptions=True)\n"
        "    for one in came:\n        if isinstance(one, Exception):\n            raise one\n    return order\n"
    ),
    "best effort": (
        f"{COUNTED}def price(order):\n    try:\n        metric(order['n'])\n    except Exception:\n"
        "        pass\n    return order\n"
    ),
    "best effort with suppress": (
        "import contextlib\n"
        f"{COUNTED}def price(order):\n    with contextlib.suppress(Exception):\n        metric(order)\n"
        "    return order\n"
    ),
    "best effort at the end": (
        f"{COUNTED}def price(order):\n    metric('all')\n    try:\n        metric(order['n'])\n"
        "    except Exception:\n        pass\n"
    ),
    "best effort of a helper": (
        f"{COUNTED}def tell(order):\n    try:\n        metric(order['n'])\n    except Exception:\n"
        "        return None\ndef price(order):\n    tell(order)\n    return order\n"
    ),
    "best effort of a library": (
        "import statistics\ndef price(order):\n    try:\n        statistics.mean([1])\n"
        "    except Exception:\n        pass\n    return order\n"
    ),
    "no answer of a helper, looked at": (
        f"{RATE}def price(order):\n    found = rate(order)\n    if found is None:\n        found = 1.0\n"
        "    return {**order, 'rate': found}\n"
    ),
    "no answer of a helper, replaced": (
        f"{RATE}def price(order):\n    found = rate(order)\n    if found is None:\n        found = 1.0\n"
        "    return found\n"
    ),
    "no answer of a helper, or a default": (
        f"{RATE}def price(order):\n    return {{**order, 'rate': rate(order) or 1.0}}\n"
    ),
    "of a library": "import inspect\ndef price(order):\n    return inspect.getdoc(order)\n",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_raises_in_the_end_or_gives_a_default_is_not_blamed(folder: Path, text: str) -> None:
    """Tidying up after the work is not the work."""
    assert list(unjudged_by("stage price", _written(folder, text).price)) == []


FILTER = """
def price(order):
    try:
        return int(order["n"]) > 0
    except Exception:
        return False
"""


def test_a_filter_that_says_no_to_any_error_drops_its_message(folder: Path) -> None:
    """Where the same is no filter, it is an answer."""
    price = _written(folder, FILTER).price
    assert not list(unjudged_by("stage price", price))
    assert "gives nothing" in "".join(unjudged_by("stage price", price, is_filter=True))


CALLS_A_DOUBLE = f"import {HELPER}\ndef price(order):\n    return {HELPER}.number(order)\n"
DROPS = """
def number(order):
    try:
        return int(order["n"])
    except Exception:
        return None
"""


def test_what_other_modules_of_the_project_swallow_is_named_but_not_what_has_a_double(
    folder: Path,
) -> None:
    """A function that is replaced is never called."""
    (folder / f"{HELPER}.py").write_text(DROPS)
    price = _written(folder, CALLS_A_DOUBLE).price
    (said,) = unjudged_by("stage price", price, Project({HELPER}))
    assert f"{HELPER}.py:5, in number," in said
    assert not list(unjudged_by("stage price", price, Project({HELPER}, {f"{HELPER}:number"})))


TELLS_A_DOUBLE = f"""
from {HELPER} import number
def price(order):
    try:
        number(1)
    except Exception:
        pass
    return order
"""


def test_what_has_a_double_is_more_than_best_effort(folder: Path) -> None:
    """It does something outside, which is lost; where it has none, nothing outside is done."""
    (folder / f"{HELPER}.py").write_text("def number(order):\n    return order\n")
    price = _written(folder, TELLS_A_DOUBLE).price
    assert not list(unjudged_by("stage price", price, Project({HELPER})))
    (said,) = unjudged_by("stage price", price, Project({HELPER}, {f"{HELPER}:number"}))
    assert f"{MODULE}.py:6 and goes on" in said


POSTS = f"from {HELPER} import post\ndef price(order):\n    post(order)\n    return order\n"


def test_what_a_replaced_function_has_is_not_kept_by_stages(folder: Path) -> None:
    """Its defaults and attributes are out of sight while its double stands there, and nothing has changed them."""
    (folder / f"{HELPER}.py").write_text("def post(order, key=None): ...\npost.calls = 0\n")
    (folder / "doubles_of_posts.py").write_text("def post(order, key=None): ...\n")
    file = _with_double(_stages(folder, POSTS))
    assert simulation_of(file).campaign(range(2)).memory == ()


def _with_double(file: Path) -> Path:
    replaced = f"simulate: {{replace: {{'{HELPER}:post': 'doubles_of_posts:post'}}, "
    file.write_text(file.read_text().replace("simulate: {", replaced))
    return file


COUNTED_BY_A_DOUBLE = """
counts = {}
def post(order, key=None):
    counts["all"] = counts.get("all", 0) + 1
    return counts["all"]
"""


def test_a_double_that_keeps_something_between_runs_is_named(folder: Path) -> None:
    """X-25: it stands for what is outside, and is not set back with the memory of stages."""
    (folder / f"{HELPER}.py").write_text("def post(order, key=None): ...\n")
    (folder / "doubles_of_counts.py").write_text(COUNTED_BY_A_DOUBLE)
    file = _with_double(
        _stages(
            folder,
            POSTS.replace(
                "    post(order)\n    return order", "    return {**order, 'n': post(order)}"
            ),
        )
    )
    file.write_text(file.read_text().replace("doubles_of_posts", "doubles_of_counts"))
    (said,) = simulation_of(file, faults="none").campaign(range(1)).retold
    assert "repeated: doubles_of_counts.counts of its doubles stays as a run has left it" in said


OWN_CHANCE = """
import random
CHANCE = random.Random(7)
def price(order):
    return {**order, "lot": CHANCE.random()}
"""
BOOKED_LATER = """
from surepipe.simulation import Outside
BOOKS = Outside("books")
HELD = []
def price(order):
    HELD.append(order["order"])
    if len(HELD) == 3:
        while HELD:
            BOOKS.do("book", HELD[0], key=HELD[0])
            del HELD[0]
    return order
"""


def test_chance_that_a_simulation_cannot_replace_is_found_with_its_line(folder: Path) -> None:
    """X-25: all runs of one process go one way, so no run shows it."""
    with pytest.raises(
        SimulationFailed, match=rf"stage price draws from CHANCE at .*{MODULE}\.py:5,"
    ):
        simulation_of(_stages(folder, OWN_CHANCE)).run(range(2))


def test_chance_of_its_own_is_found_in_a_helper_too(folder: Path) -> None:
    """X-25: in another module of the project, by the line that names it."""
    (folder / f"{HELPER}.py").write_text(OWN_CHANCE.replace("price", "number"))
    price = _written(folder, CALLS_A_DOUBLE).price
    (said,) = unjudged_by("stage price", price, Project({HELPER}))
    assert f"stage price draws from CHANCE at {folder / HELPER}.py:5, which" in said


def test_an_effect_that_was_put_off_and_lost_with_its_process_is_found(folder: Path) -> None:
    """X-24, X-25: the messages are at the sink, and settled; what was to be done with them is done by nobody."""
    with pytest.raises(
        SimulationFailed,
        match=rf"books book \d was never done[\s\S]*without faults price\s+\({MODULE}\.py:9\)",
    ) as found:
        simulation_of(_stages(folder, BOOKED_LATER)).run(range(40))
    told = " ".join(str(found.value).split())
    ends = (
        rf"decides: the process ends, and what price \({MODULE}\.py:\d\) has put off is gone, of #1"
    )
    assert re.search(ends, told), told
    assert "A stage's defect." not in told  # which names none: the sentence above has


KEY_OF_ATTEMPT = """
from surepipe.simulation import Outside
BOOKS = Outside("books")
class price:
    def __call__(self, order, context):
        BOOKS.do("book", order["order"], key=f"{order['order']}/{context.attempt}")
        return order
"""
ONE_KEY = """
from surepipe.simulation import Outside
BOOKS = Outside("books")
def price(order):
    BOOKS.do("book", order["order"], key="book")
    return order
"""


@pytest.mark.parametrize(
    ("stages", "message"),
    [(KEY_OF_ATTEMPT, 1), (ONE_KEY, 2)],
    ids=["of the attempt", "one for all"],
)
def test_a_wrong_key_is_shown_at_the_effect_that_it_was_given_to(
    folder: Path, stages: str, message: int
) -> None:
    """X-36: the report follows the message, and the step that decides is not the end of the run. A stage that is a
    class is named with the line of what is called."""
    with pytest.raises(SimulationFailed) as found:
        simulation_of(_stages(folder, stages), faults="none").run(range(2))
    told = str(found.value)
    line = 1 + stages.splitlines().index(
        next(x for x in stages.splitlines() if "order" in x and "def" in x)
    )
    decides = rf"Step (\d+) decides: price \({MODULE}\.py:{line}\) gives this effect its key for #{message}\."
    matched = re.search(decides, " ".join(told.split()))
    assert matched, told
    assert re.search(rf"(?m)^ *{matched[1]}  books +book {message}\b.*!!$", told), told
    assert f"#{message} is accepted" in told
    if stages == KEY_OF_ATTEMPT:
        assert "is tried again (1/1, then 1/2), so it is repeated" in " ".join(told.split())


KEY_OF_THE_DAY = """
from datetime import datetime
from surepipe.simulation import Outside
BOOKS = Outside("books")
def price(order):
    BOOKS.do("book", order["order"], key=f"{datetime.now():%Y-%m-%d}/{order['order']}")
    return order
"""


def test_a_key_of_the_day_is_not_said_to_hold(folder: Path) -> None:
    """X-25: no attempt of a run comes after midnight; a message that is tried again then has another key."""
    key = r"gives books book \d the key \S+/\d, and on another day \S+/\d, so it is done once more"
    with pytest.raises(NotExercised, match=key) as found:
        simulation_of(_stages(folder, KEY_OF_THE_DAY)).run(range(2))
    assert str(found.value).count("on another day") == 1


@pytest.mark.parametrize("key", ["context.id.key", "context.random.random()", "order['order']"])
def test_a_key_that_follows_from_the_message_is_the_same_on_any_day(folder: Path, key: str) -> None:
    """X-25: what makes it may be the context as well."""
    stages = KEY_OF_ATTEMPT.replace("f\"{order['order']}/{context.attempt}\"", key)
    assert simulation_of(_stages(folder, stages)).campaign(range(2)).retold == {}


OPENED_ONCE = """
from surepipe.simulation import Outside
BOOKS = Outside("books")
def price(order):
    BOOKS.do("open", "the shop", key="shop")
    BOOKS.do("book", order["order"], key=order["order"])
    return order
"""
ANOTHER_ANSWER = """
def price(order, context):
    return order if context.attempt == 1 else None
"""


@pytest.mark.parametrize("stages", [ANOTHER_ANSWER, SEEN_BEFORE], ids=["by attempt", "by memory"])
def test_a_stage_that_answers_otherwise_when_a_message_is_tried_again_is_never_held(
    folder: Path, stages: str
) -> None:
    """X-24, X-25: no fault is needed, and so no luck: each stage is called once more as a second attempt. Where a
    run shows what follows from it, that is shown."""
    with pytest.raises(NotExercised) as found:
        simulation_of(_stages(folder, stages), faults="none").run(range(1))
    assert f"stage price ({MODULE}.py:" in str(found.value)
    assert "and None when that is tried again" in str(found.value)


def test_an_effect_that_belongs_to_another_message_is_found_without_a_crash(folder: Path) -> None:
    """X-24, X-25: messages that are committed together come again together, so few crashes would show it."""
    simulation = simulation_of(_stages(folder, BOOKED_LATER), faults="none")
    (said,) = simulation.campaign(range(1)).retold
    assert f"stage price ({MODULE}.py:9) does books book" in said


@pytest.mark.parametrize(
    "stages", [OPENED_ONCE, CACHED, NUMBERED], ids=["one effect for all", "a cache", "a counter"]
)
def test_what_is_no_matter_of_attempts_is_not_called_so(folder: Path, stages: str) -> None:
    """An effect is done once, whichever message comes first; a cache changes no answer; what counts messages
    answers otherwise in every run, and is found by what comes out."""
    simulation = simulation_of(_stages(folder, stages), faults="none")
    assert simulation.campaign(range(1)).retold == {}


NO_KEY = """
from surepipe.simulation import Outside
BOOKS = Outside("books")
def price(order):
    BOOKS.do("book", order["order"])
    return order
"""


def _looks_at_the_sinks(run: RunOutcome) -> bool:
    return len(run.delivered) > 0


def _looks_outside(run: RunOutcome) -> bool:
    return any([*outside.done()] for outside in run.outsides)


def test_an_effect_without_a_key_is_not_judged_unless_a_check_speaks_of_it(folder: Path) -> None:
    """X-24: whatever makes a message come again repeats it, and no sink shows that; a check may want just that."""
    plan = _stages(folder, NO_KEY)
    with pytest.raises(NotExercised) as found:
        simulation_of(plan, faults="none").run(range(1))
    assert f"does books book 1 without a key ({MODULE}.py:5)" in str(found.value)
    checked = simulation_of(plan, faults="none", check=_looks_outside)
    assert checked.campaign(range(1)).retold == {}
    elsewhere = simulation_of(plan, faults="none", check=_looks_at_the_sinks)
    assert [*elsewhere.campaign(range(1)).retold.values()] == ["price"]


KEY_OF_A_CUSTOMER = """
from surepipe.simulation import Outside
BOOKS = Outside("books")
def price(order):
    BOOKS.do("bill", order["order"] % 2, key=order["order"] % 2)
    return order
"""


def test_a_key_that_messages_share_is_not_judged_unless_a_check_speaks_of_it(folder: Path) -> None:
    """X-36: all but the first of them do nothing, as in each run; a check may want just that."""
    plan = _stages(folder, KEY_OF_A_CUSTOMER)
    with pytest.raises(NotExercised) as found:
        simulation_of(plan, faults="none").run(range(1))
    told = str(found.value)
    assert f"stage price ({MODULE}.py:5) does books bill 1 with the key 1 for " in told
    assert 'such as {"order":1} and {"order":3}, so it is done for the first of them alone' in told
    checked = simulation_of(plan, faults="none", check=_looks_outside)
    assert checked.campaign(range(1)).retold == {}


SEEN_IN_A_DATABASE = """
import sqlite3
DB = sqlite3.connect(":memory:", check_same_thread=False)
DB.execute("CREATE TABLE seen (id PRIMARY KEY)")
def price(order):
    if DB.execute("SELECT 1 FROM seen WHERE id = ?", (order["order"],)).fetchone():
        return None
    DB.execute("INSERT INTO seen VALUES (?)", (order["order"],))
    return order
"""


def test_a_stage_that_knows_all_messages_from_an_earlier_run_is_told_of_as_that(
    folder: Path,
) -> None:
    """X-25: no message of a source would get through, so none is advised."""
    with pytest.raises(NotExercised) as found:
        simulation_of(_stages(folder, SEEN_IN_A_DATABASE), faults="none").run(range(1))
    import_module(MODULE).DB.close()
    told = str(found.value)
    assert f"{MODULE}.DB ({MODULE}.py:3) is an object of sqlite3.Connection, which can't be" in told
    assert "Give the sources messages" not in told


WITH_A_TIMER = """
import threading
class price:
    def __init__(self):
        self.timer = threading.Timer(60, list)
        self.timer.start()
    def __call__(self, order):
        return order
"""
BEGUN_AT = """
import time, uuid
class price:
    def __init__(self):
        self.begun, self.name = time.time_ns(), str(uuid.uuid4())
    def __call__(self, order):
        return {**order, "begun": self.begun, "name": self.name}
"""


def test_a_thread_that_a_stage_begins_with_is_refused(folder: Path) -> None:
    """X-25: what a class does when it is made is user code too; a thread would run beside virtual time."""
    with pytest.raises(CannotSimulate, match=rf"{MODULE}\.py:6: a stage starts a thread") as found:
        simulation_of(_stages(folder, WITH_A_TIMER), faults="none").campaign(range(1))
    assert {one.function for one in found.value.refusals} == {f"{MODULE}:price"}


def test_clock_and_chance_are_virtual_where_a_stage_is_made(folder: Path) -> None:
    """X-25: two campaigns see the same."""
    simulation = simulation_of(_stages(folder, BEGUN_AT), faults="none")
    digests = [simulation.campaign(range(2)).digests for _ in range(2)]
    assert digests[0] == digests[1]


NUMBERED_BY_AN_OBJECT = """
class Numbering:
    def __init__(self):
        self.last = 0
    def __call__(self, order):
        self.last += 1
        return {**order, "number": self.last}
price = Numbering()
"""


def test_without_faults_an_object_of_the_module_begins_as_a_fresh_process_has_it(
    folder: Path,
) -> None:
    """X-36: an object of the module that has been called in many runs does not lend its memory to the reference,
    and the message that the report follows is one that got another number."""
    with pytest.raises(SimulationFailed) as found:
        simulation_of(_stages(folder, NUMBERED_BY_AN_OBJECT)).run(range(40))
    told = " ".join(str(found.value).split())
    decides = re.search(
        r"decides: price \S+ gives [^}]*'number': (\d+)\} for #(\d+)[^#}]*'number': (\d+)\}", told
    )
    assert decides, told
    given, message, usual = map(int, decides.groups())
    assert given != message == usual, told


CHECKED = """
def price(order):
    return order
def checked(run):
    return run.delivered["nowhere"]
"""


def test_a_check_that_raises_is_shown_with_its_line(folder: Path) -> None:
    """X-36: it is the user's code as much as a stage is."""
    file = _stages(folder, CHECKED)
    checked = f"messages: 3, check: '{MODULE}:checked'"
    file.write_text(file.read_text().replace("messages: 3", checked))
    with pytest.raises(SimulationFailed) as found:
        simulation_of(file, faults="none").run(range(1))
    assert f"it raised KeyError: 'nowhere' at {MODULE}.py:5" in " ".join(str(found.value).split())


@pytest.mark.parametrize(
    ("says", "line"),
    [
        ("all(order['n'] for order in run.delivered['out'])", 5),
        ("len(run.delivered['out']) == 3", 5),
        ("not run.dead", 5),
        ("print(all(order['n'] for order in run.delivered['out']))", 5),
        ("print('right:', 3 == len(run.delivered['out']) or run.dead)", 5),
        ("for order in run.delivered['out']: print(order['n'] == 1)", 5),
        ("return print(not run.dead)", 5),
        ("print(run.dead == 0); assert len(run.delivered['out']) == 3", 0),
        ("print(run.dead == 0); return len(run.delivered['out']) == 3", 0),
        ("looked_at(run.dead); print(run.dead == 0)", 0),
        ("seen = looked_at(run.dead); print(seen == 0)", 0),
        ("run.dead.looked_at(); print(run.dead == 0)", 0),
        ("print(run.dead)", 0),
        ("return all(order['n'] for order in run.delivered['out'])", 0),
        ("assert len(run.delivered['out']) == 3", 0),
        ("for order in run.delivered['out']: assert order['n']", 0),
    ],
)
def test_a_check_that_says_what_nobody_hears_is_refused_with_its_line(
    says: str, line: int, folder: Path
) -> None:
    """X-36: `return` or `assert` was forgotten, and it would hold whatever happens."""
    file = _stages(folder, CHECKED.replace('return run.delivered["nowhere"]', says))
    checked = f"messages: 3, check: '{MODULE}:checked'"
    file.write_text(file.read_text().replace("messages: 3", checked))
    if line:
        with pytest.raises(ConfigurationError, match=f"at {MODULE}.py:{line}, so it would always"):
            simulation_of(file, faults="none")
    else:
        simulation_of(file, faults="none")


KEPT_IN_FUNCTIONS = {
    "price.count": """
def price(order):
    price.count = getattr(price, "count", 0) + 1
    return {**order, "number": price.count}
""",
    "price.total": """
def made():
    total = 0
    def price(order):
        nonlocal total
        total += 1
        return {**order, "number": total}
    return price
price = made()
""",
    "price.seen": """
def price(order, seen=[]):
    seen.append(1)
    return {**order, "number": len(seen)}
""",
    "HANDLERS.total": """
def made():
    total = 0
    def price(order):
        nonlocal total
        total += 1
        return {**order, "number": total}
    return price
HANDLERS = {"price": made()}
def price(order):
    return HANDLERS["price"](order)
""",
    "price.__call__.totals": """
def made():
    totals = []
    class Price:
        def __call__(self, order):
            totals.append(1)
            return {**order, "number": len(totals)}
    return Price()
price = made()
""",
    "STATE": """
from types import SimpleNamespace
STATE = SimpleNamespace(total=0)
def price(order):
    STATE.total += 1
    return {**order, "number": STATE.total}
""",
    "WAITING": """
from queue import Queue
WAITING = Queue()
def price(order):
    WAITING.put(order)
    return {**order, "number": WAITING.qsize()}
""",
}
KEPT_IN_OBJECTS = {
    "price": """
from functools import partial
def priced(seen, order):
    seen.append(1)
    return {**order, "number": len(seen)}
price = partial(priced, [])
""",
    "NUMBERS": """
from threading import Condition, Lock
class Numbers:
    def __init__(self):
        self.lock, self.last = Lock(), 0
        self.known = Condition(self.lock)
    def next(self):
        with self.known:
            self.last += 1
            self.known.notify_all()
            return self.last
NUMBERS = Numbers()
def price(order):
    return {**order, "number": NUMBERS.next()}
""",
}
KEPT_IN_OBJECTS["TEXT"] = """
import io
TEXT = io.StringIO()
def price(order):
    TEXT.write("x")
    return {**order, "number": len(TEXT.getvalue())}
"""
KEPT_IN_OBJECTS["CHANCE"] = """
import random
CHANCE = random.Random(7)
def price(order):
    return {**order, "number": CHANCE.random()}
"""


@pytest.mark.parametrize("kept", KEPT_IN_FUNCTIONS)
def test_what_a_function_keeps_is_named(folder: Path, kept: str) -> None:
    """An attribute, a variable around it, a default; of functions in a table or object too (simulation X-25)."""
    simulation = simulation_of(_stages(folder, KEPT_IN_FUNCTIONS[kept]))
    simulation.campaign(range(4))
    assert simulation.memory == (f"{MODULE}.{kept}",)
    (note,) = (one for one in simulation.notes() if "between calls" in one)
    assert f"{MODULE}.{kept} ({MODULE}.py:" in note


@pytest.mark.parametrize("kept", KEPT_IN_FUNCTIONS | KEPT_IN_OBJECTS)
def test_numbers_that_a_function_keeps_begin_anew_after_a_crash_and_in_each_run(
    folder: Path, kept: str
) -> None:
    """They leaked from run to run, and so were taken for chance and not compared (simulation X-25)."""
    with pytest.raises(SimulationFailed, match=r"P[234] ") as found:
        simulation_of(_stages(folder, (KEPT_IN_FUNCTIONS | KEPT_IN_OBJECTS)[kept])).run(range(40))
    told = " ".join(str(found.value).split())
    place = f" ({MODULE}.py:" if kept in KEPT_IN_FUNCTIONS else ""
    assert f"price keeps {MODULE}.{kept}{place}" in told, told


IN_THE_ENVIRONMENT = """
import os
def price(order):
    number = int(os.environ.get("ORDERS_SEEN", "0")) + 1
    os.environ["ORDERS_SEEN"] = str(number)
    return {**order, "number": number}
"""


def test_variables_of_the_environment_begin_anew_after_a_crash_and_in_each_run(
    folder: Path,
) -> None:
    """They leaked from run to run, and into the process that runs the same seeds again (simulation X-25)."""
    with pytest.raises(SimulationFailed, match=r"P[234] ") as found:
        simulation_of(_stages(folder, IN_THE_ENVIRONMENT)).run(range(40))
    told = " ".join(str(found.value).split())
    assert "os.environ['ORDERS_SEEN']" in told, told
    assert "ORDERS_SEEN" not in os.environ


NOWHERE_TO_BE_SEEN = {
    "in a generator": """
def counted():
    number = 0
    while True:
        number += 1
        yield number
class price:
    def __init__(self):
        self.numbers = counted()
    def __call__(self, order):
        return {**order, "number": next(self.numbers)}
""",
    "in a database": """
import sqlite3
class price:
    def __init__(self):
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    def __del__(self):
        self.database.close()
    def __call__(self, order):
        self.database.execute("INSERT INTO numbers VALUES (NULL)")
        (number,) = self.database.execute("SELECT count(*) FROM numbers").fetchone()
        return {**order, "number": number}
""",
}


@pytest.mark.parametrize("where", NOWHERE_TO_BE_SEEN)
def test_a_stage_whose_memory_can_not_be_seen_is_told_what_to_do_all_the_same(
    folder: Path, where: str
) -> None:
    """Its answers show that it has one; to keep it in a class is no advice, as a crash loses that too."""
    with pytest.raises(SimulationFailed, match=r"P[234] ") as found:
        simulation_of(_stages(folder, NOWHERE_TO_BE_SEEN[where])).run(range(40))
    told = " ".join(str(found.value).split())
    assert "price goes by more than its message" in told
    assert "Answer from the message alone, or keep it in a store by context.transaction" in told


def test_an_attribute_of_a_function_belongs_to_one_process() -> None:
    """As what is kept in a class does (simulation X-25)."""
    module = ModuleType("stages")
    exec("def price(order): return order", vars(module))
    memory = ProcessMemory([module])
    memory.enter("first")
    module.price.count = 1
    memory.enter("second")
    assert not vars(module.price)
    memory.enter("first")
    assert module.price.count == 1
    memory.reset()
    assert (vars(module.price), memory.changed) == ({}, ("stages.price.count",))


HIDDEN = """
from functools import cache, wraps
def shared():
    total, empty, last = 0, [], None
    @cache
    def known(order):
        return order
    def price(order):
        nonlocal total, last
        total, last = total + known(order), order
        empty.append(order)
        return total, empty
    def kept():
        return total, empty
    return price, kept
def counted(function):
    calls = []
    @wraps(function)
    def called(*given):
        calls.append(1)
        return len(calls), function(*given)
    return called
price, kept = shared()
@counted
def by_default(order, seen=[]):
    seen.append(order)
    return list(seen)
class Stage:
    def __call__(self, order, *, seen=set()):
        seen.add(order)
        return sorted(seen)
"""


def test_what_functions_hold_around_them_and_by_default_belongs_to_one_process() -> None:
    """A variable that two share, those of a decorator, of what it decorates, and of a method (simulation X-25)."""
    module = ModuleType("stages")
    exec(HIDDEN, vars(module))
    memory = ProcessMemory([module])

    def called(order: int) -> list[object]:
        return [module.price(order), module.kept(), module.by_default(order), module.Stage()(order)]

    fresh = repr([(1, [1]), (1, [1]), (1, [1]), [1]])
    memory.enter("first")
    assert repr(called(1)) == fresh
    memory.enter("second")
    assert repr(called(1)) == fresh
    memory.enter("first")
    assert repr(called(2)) == repr([(3, [1, 2]), (3, [1, 2]), (2, [1, 2]), [1, 2]])
    memory.reset()
    assert repr(called(1)) == fresh
    named = "Stage.__call__.seen by_default.calls by_default.function.seen price.empty price.known price.last"
    assert memory.changed == tuple(f"stages.{name}" for name in (*named.split(), "price.total"))


BOUND_IN = """
import itertools
from functools import partial
class Kept:
    def __init__(self):
        self.seen = []
    def add(self, one):
        self.seen.append(one)
        return list(self.seen)
"""
BOUND = {
    "a method": "call = Kept().add",
    "a method of a list": "call = [].append",
    "the next of an iterator": "call = itertools.count().__next__",
    "a partial": "call = partial(lambda kept, one: kept.append(one) or list(kept), [])",
    "a partial of a method": "call = partial(Kept().add)",
    "a partial with a name": "call = partial(lambda one, kept: kept.append(one) or list(kept), kept=[])",
}


@pytest.mark.parametrize("bound", BOUND.values(), ids=list(BOUND))
def test_what_a_method_or_a_partial_was_made_with_belongs_to_one_process(bound: str) -> None:
    """It is kept between calls as a global of its own would be, and its change is named (simulation X-25)."""
    module = ModuleType("stages")
    exec(BOUND_IN, vars(module))
    exec(bound, vars(module))
    memory = ProcessMemory([module])

    def called(one: int) -> object:
        is_next = "__next__" in bound
        found = module.call() if is_next else module.call(one)
        return list(module.call.__self__) if found is None else found

    memory.enter("first")
    fresh = called(7)
    memory.enter("second")
    assert called(7) == fresh
    memory.enter("first")
    assert called(7) != fresh
    memory.reset()
    assert memory.changed == ("stages.call",)


UNWILLING = {
    "a class that lets nothing be set": "class Meta(type):\n"
    "    def __setattr__(cls, name, value): raise TypeError\n"
    "    def __delattr__(cls, name): raise TypeError\n"
    "class kept(metaclass=Meta):\n"
    "    seen = []\n",
    "a mapping that raises": "from collections.abc import Mapping\n"
    "class Lazy(Mapping):\n"
    "    def __getitem__(self, key): raise OSError\n"
    "    def __iter__(self): raise OSError\n"
    "    def __len__(self): raise OSError\n"
    "kept = Lazy()\n",
    "an object without fields": "class Odd:\n"
    "    @property\n"
    "    def __dict__(self): raise ValueError\n"
    "    def __eq__(self, other): raise ValueError\n"
    "    def __repr__(self): raise ValueError\n"
    "    __hash__ = None\n"
    "kept = Odd()\n",
    "a copy that ends the process": "class Odd:\n"
    "    def __deepcopy__(self, memo): raise SystemExit(3)\n"
    "kept = Odd()\n",
    "a thread": "import threading\nkept = threading.Thread(target=print)\n",
    "a lock": "import threading\nkept = threading.Lock()\n",
    "a socket": "import socket\nkept = socket.socket()\nkept.close()\n",
    "a database": "import sqlite3\nkept = sqlite3.connect(':memory:')\nkept.close()\n",
    "a loop": "import asyncio\nkept = asyncio.new_event_loop()\nkept.close()\n",
    "a reference": "import weakref\nclass Kind: pass\nkept = weakref.ref(Kind())\n",
    "a list of itself": "kept = []\nkept.append(kept)\n",
    "very deep": "kept = []\nfor _ in range(5000): kept = [kept]\n",
    "a generator that is through": "kept = iter(one for one in ())\nlist(kept)\n",
    "an async generator": "async def given(): yield 1\nkept = given()\n",
}


@pytest.mark.parametrize("text", UNWILLING.values(), ids=list(UNWILLING))
def test_an_object_that_does_not_let_itself_be_read_or_copied_stays_one_for_all(text: str) -> None:
    """And nothing raises for it (simulation X-25)."""
    module = ModuleType("stages")
    exec(text, vars(module))
    kept = module.kept
    memory = ProcessMemory([module])
    for life in ("first", "second", "first"):
        memory.enter(life)
        vars(module)["added"] = [life]
    memory.reset()
    assert module.kept is kept
    assert memory.changed == ("stages.added",)


NUMBERED_BY_A_GENERATOR = """
def counted():
    number = 0
    while True:
        number += 1
        yield number
numbers = counted()
def price(order):
    return {**order, "number": next(numbers)}
"""


@pytest.mark.parametrize("check", [None, bool], ids=["without a check", "with a check"])
def test_what_cannot_be_set_back_between_runs_is_not_judged(
    folder: Path, check: type | None
) -> None:
    """It looked like chance, and was not compared; a check sees what other runs left (simulation X-25)."""
    file = _stages(folder, NUMBERED_BY_A_GENERATOR)
    simulation = simulation_of(file, check=check, faults="none")
    (said,) = simulation.campaign(range(1)).retold
    assert f"stage price ({MODULE}.py:8) answers" in said
    assert "when the same run is repeated: it keeps something between runs" in said
    assert "Answer from the message alone, or keep it in a store by context.transaction" in said
    assert simulation.memory == (f"{MODULE}.numbers",)
    with pytest.raises(NotExercised) as found:
        simulation.run(range(2))
    line = 1 + NUMBERED_BY_A_GENERATOR.splitlines().index("numbers = counted()")
    assert f"{MODULE}.numbers ({MODULE}.py:{line}) is a generator, which can't be set" in str(
        found.value
    )


def test_what_is_done_for_every_third_message_by_a_count_in_memory_is_not_said_to_hold(
    folder: Path,
) -> None:
    """simulation X-25: for which it is done depends on the order, so no run shows which ones a crash has lost."""
    every_second = BOOKED_LATER.replace("== 3", "== 2").replace("while HELD:", "if HELD:")
    stages = every_second.replace("del HELD[0]", "HELD.clear()")
    simulation = simulation_of(_stages(folder, stages))
    with pytest.raises(NotExercised, match="what price does outside differs with the order"):
        simulation.run(range(4))


HELD_BACK_BY_A_GENERATOR = """
def threes():
    held, given = [], []
    while True:
        held.append((yield given))
        given = []
        if len(held) == 3:
            held, given = [], held
HELD = threes()
next(HELD)
def price(order):
    return HELD.send(order)
"""


def test_a_run_that_goes_another_way_each_time_is_told_as_that_and_not_shrunk(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can't be set back broke a run and not its repeats; the command ended by an error of the shrinker."""
    file = _stages(folder, HELD_BACK_BY_A_GENERATOR)
    text = file.read_text().replace("call:", "flat-map:").replace("messages: 3", "messages: 20")
    file.write_text(text)
    assert run(["simulate", str(file), "--seeds", "10", "--jobs", "1"]) in (
        Exit.NOT_EXERCISED,
        Exit.NOT_DETERMINISTIC,
    )
    told = "".join(capsys.readouterr())
    assert "can't be shrunk" not in told
    assert "price" in told
    assert f"{MODULE}.HELD" in told


NUMBERED_IN = """
import sqlite3
OWN = sqlite3.connect(":memory:", check_same_thread=False)
OWN.execute("CREATE TABLE orders (id)")
def price(order):
    OWN.execute("INSERT INTO orders VALUES (?)", (order["order"],))
    (number,) = OWN.execute("SELECT count(*) FROM orders").fetchone()
    return {**order, "number": number}
def from_one(run):
    assert [row["number"] for row in run.delivered["out"]] == [1, 2, 3]
"""
NOTED_IN = """
import sqlite3
OWN = sqlite3.connect(":memory:", check_same_thread=False)
OWN.execute("CREATE TABLE orders (id)")
def price(order):
    OWN.execute("INSERT INTO orders VALUES (?)", (order["order"],))
    return order
def from_one(run):
    assert OWN.execute("SELECT count(*) FROM orders").fetchone() == (3,)
"""
NUMBERED_BY = """
def numbers():
    number = 0
    while True:
        number += 1
        yield number
OWN = numbers()
def price(order):
    return {**order, "number": next(OWN)}
def from_one(run):
    assert [row["number"] for row in run.delivered["out"]] == [1, 2, 3]
"""
ONCE_IN = """
import sqlite3
OWN = sqlite3.connect(":memory:", check_same_thread=False)
OWN.execute("CREATE TABLE orders (id PRIMARY KEY)")
def price(order):
    new = OWN.execute("INSERT OR IGNORE INTO orders VALUES (?)", (order["order"],)).rowcount
    return order if new else None
def from_one(run):
    assert len(run.delivered["out"]) == 3
"""


@pytest.mark.parametrize(
    ("stages", "found"),
    [(NUMBERED_IN, "is"), (NUMBERED_BY, "is"), (NOTED_IN, "(is|may be)"), (ONCE_IN, "may be")],
    ids=["a connection", "a generator", "only the check looks", "nothing is new any more"],
)
def test_a_check_that_fails_for_what_earlier_runs_have_left_is_told_that_first(
    folder: Path, capsys: pytest.CaptureFixture[str], stages: str, found: str
) -> None:
    """X-56: people were sent to the check, and to what the stages give; of both nothing is wrong."""
    file = _stages(folder, stages)
    text = file.read_text().replace("messages: 3", f'messages: 3, check: "{MODULE}:from_one"')
    file.write_text(text)
    assert run(["simulate", str(file), "--seeds", "4", "--jobs", "1"]) == Exit.VIOLATED
    told = " ".join("".join(capsys.readouterr()).split())
    left = (
        rf"{MODULE}\.OWN \({MODULE}\.py:\d+\) is (an object of sqlite3\.Connection|a generator), which can't be "
        rf"set back to what a fresh process has: what it holds {found} left over from earlier simulated runs"
    )
    named = re.search(left, told)
    assert named, told
    assert named.start() < told.index("your check fails without any fault")
    assert "mend first what is left over from earlier runs" in told


PAYS_BY_A_DOUBLE = """
def pay(order):
    raise OSError("no bank here")
def price(order):
    return {**order, "number": pay(order)}
"""
DOUBLES = {
    "a connection": """
import sqlite3
OWN = sqlite3.connect(":memory:", check_same_thread=False)
OWN.execute("CREATE TABLE orders (id)")
def pay(order):
    OWN.execute("INSERT INTO orders VALUES (?)", (order["order"],))
    return OWN.execute("SELECT count(*) FROM orders").fetchone()[0]
""",
    "a list": """
OWN = []
def pay(order):
    OWN.append(order["order"])
    return len(OWN)
""",
}


@pytest.mark.parametrize("double", DOUBLES)
def test_a_check_that_fails_for_what_a_double_keeps_is_told_that_first(
    folder: Path, capsys: pytest.CaptureFixture[str], double: str
) -> None:
    """X-56: what belongs to doubles is not set back at all."""
    checks = "def from_one(run):\n    return [row['number'] for row in run.delivered['out']] == [1, 2, 3]\n"
    (folder / f"{HELPER}.py").write_text(DOUBLES[double] + checks)
    file = _stages(folder, PAYS_BY_A_DOUBLE)
    settings = f'check: "{HELPER}:from_one", replace: {{"{MODULE}:pay": "{HELPER}:pay"}}'
    file.write_text(file.read_text().replace("messages: 3", f"messages: 3, {settings}"))
    assert run(["simulate", str(file), "--seeds", "4", "--jobs", "1"]) == Exit.VIOLATED
    told = " ".join("".join(capsys.readouterr()).split())
    before, _, _ = told.partition("your check fails without any fault")
    assert f"{HELPER}.OWN" in before, told
    assert "keep that in an Outside" in before
    assert "mend first what is left over from earlier runs" in told
