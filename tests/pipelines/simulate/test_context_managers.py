"""Where a context manager ends any error, the stage around it is not judged; one that lets it go on is held."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from surepipe.cli.app import run
from surepipe.cli.output import Exit
from surepipe.pipelines.simulate.source_text import Project, unjudged_by

MODULE = "stages_with_managers"
HELPER = "stages_with_managers_helper"
START = (
    "import asyncio, contextlib, functools, logging, sqlite3, tempfile, threading\n"
    "from dataclasses import dataclass, field\n"
    "from surepipe.simulation import Outside\n"
    "log, mail = logging.getLogger('shop'), Outside('mail')\n"
    "def send(order):\n    mail.do('send', order, key=order['n'])\n"
)
LOGGED = (
    "@contextlib.contextmanager\ndef logged(what):\n    try:\n        yield\n"
    "    except Exception as error:\n        log.exception('%s failed', str(error))\n"
)
QUIET = (
    "class Quiet:\n    def __enter__(self):\n        return self\n"
    "    def __exit__(self, kind, error, trace):\n        {}\n"
)
WITH_QUIET = "def price(order):\n    with Quiet():{}\n        send(order)\n    return order\n"
HERE = "  # here"


def _quiet(*lines: str) -> str:
    return QUIET.format("\n        ".join(lines))


def _ends(*lines: str) -> str:
    return _quiet(*lines) + WITH_QUIET.format(HERE)


def _lets_go(*lines: str) -> str:
    return _quiet(*lines) + WITH_QUIET.format("")


ENDING = {
    "a generator": f"{LOGGED}def price(order):\n    with logged('mail'):{HERE}\n        send(order)\n",
    "a generator, and goes on": (
        f"{LOGGED}def price(order):\n    with logged('mail'):{HERE}\n        send(order)\n    return order\n"
    ),
    "a generator, and gives": (
        f"{LOGGED}def price(order):\n    with logged('mail'):{HERE}\n"
        "        return {**order, 'n': int(order['n'])}\n"
    ),
    "one of several": (
        f"{LOGGED}def price(order):\n    with threading.Lock(), logged('mail'):{HERE}\n        send(order)\n"
    ),
    "in a variable": (
        f"{LOGGED}def price(order):\n    manager = logged('mail')\n    with manager:{HERE}\n        send(order)\n"
    ),
    "in a helper": (
        f"{LOGGED}def tell(order):\n    with logged('mail'):{HERE}\n        send(order)\n"
        "def price(order):\n    tell(order)\n    return order\n"
    ),
    "in another one": (
        f"{LOGGED}@contextlib.contextmanager\ndef quiet():\n    with logged('mail') as one:\n        yield one\n"
        f"def price(order):\n    with quiet():{HERE}\n        send(order)\n"
    ),
    "around suppress": (
        "@contextlib.contextmanager\ndef quiet():\n    with contextlib.suppress(Exception):\n        yield\n"
        f"def price(order):\n    with quiet():{HERE}\n        send(order)\n"
    ),
    "that rolls back": (
        "@contextlib.contextmanager\ndef unit(connection):\n    try:\n        yield\n        connection.commit()\n"
        "    except Exception:\n        connection.rollback()\n"
        f"def price(order):\n    with unit(object()):{HERE}\n        send(order)\n    return order\n"
    ),
    "by what it is made with": (
        "@contextlib.contextmanager\ndef quiet(*kinds):\n    try:\n        yield\n    except kinds:\n"
        "        log.info('failed')\n"
        f"def price(order):\n    with quiet(KeyError, Exception):{HERE}\n        send(order)\n"
    ),
    "a method": (
        "class Price:\n    @contextlib.contextmanager\n    def quiet(self):\n        try:\n            yield\n"
        "        except Exception:\n            pass\n"
        f"    def __call__(self, order):\n        with self.quiet():{HERE}\n            send(order)\n"
        "price = Price()\n"
    ),
    "made by a function": (
        _quiet("return True") + "def made():\n    return Quiet()\n"
        f"def price(order):\n    with made():{HERE}\n        send(order)\n"
    ),
    "of the module": (
        _quiet("return True")
        + f"QUIET = Quiet()\ndef price(order):\n    with QUIET:{HERE}\n        send(order)\n"
    ),
    "inherited": (
        _quiet("return True") + "class Unit(Quiet):\n    pass\n"
        f"def price(order):\n    with Unit():{HERE}\n        send(order)\n"
    ),
    "asks the one above": (
        _quiet("return True")
        + "class Unit(Quiet):\n    def __exit__(self, *error):\n        return super().__exit__(*error)\n"
        f"def price(order):\n    with Unit():{HERE}\n        send(order)\n"
    ),
    "always": _ends("log.error('failed')", "return True"),
    "where there is an error": _ends("return kind is not None"),
    "where there is one, in a block": _ends("if error is None:", "    return False", "return 1"),
    "of any kind": _ends("return kind is not None and issubclass(kind, Exception)"),
    "of one of several kinds": _ends("return isinstance(error, (KeyError, Exception))"),
    "with a word": _ends("if not error:", "    return None", "log.error(error)", "return not 0"),
    "from a variable": _ends("ended = bool(error)", "return True if ended else False"),
    "in finally": _ends("try:", "    log.info('x')", "finally:", "    return True"),
    "by a function": (
        "def is_bad(error):\n    return isinstance(error, Exception)\n"
        + _ends("return is_bad(error)")
    ),
    "by a function that takes all": (
        "def is_bad(kind, error, trace):\n    return issubclass(kind, Exception)\n"
        + _quiet("return is_bad(*error)").replace("kind, error, trace", "*error")
        + WITH_QUIET.format(HERE)
    ),
    "a unit of work": (
        "class Unit:\n    def __init__(self):\n        self.entries = []\n    def add(self, one):\n"
        "        self.entries.append(one)\n    def __enter__(self):\n        return self\n"
        "    def __exit__(self, kind, error, trace):\n        if kind is not None:\n"
        "            log.error('rolled back', exc_info=error)\n            return True\n"
        "        for one in self.entries:\n            send(one)\n"
        f"def price(order):\n    with Unit() as unit:{HERE}\n        unit.add(order)\n"
    ),
    "async": (
        "class Quiet:\n    async def __aenter__(self):\n        return self\n"
        "    async def __aexit__(self, kind, error, trace):\n        return True\n"
        f"async def price(order):\n    async with Quiet():{HERE}\n        send(order)\n"
    ),
    "an async generator": (
        "@contextlib.asynccontextmanager\nasync def quiet():\n    try:\n        yield\n    except BaseException:\n"
        f"        return\nasync def price(order):\n    async with quiet():{HERE}\n        send(order)\n"
    ),
    "pushed": (
        "def note(kind, error, trace):\n    log.error(error)\n    return kind is not None\n"
        f"def price(order):\n    with contextlib.ExitStack() as stack:{HERE}\n        stack.push(note)\n"
        "        send(order)\n"
    ),
    "pushed as a lambda": (
        f"def price(order):\n    with contextlib.ExitStack() as stack:{HERE}\n"
        "        stack.push(lambda *error: True)\n        send(order)\n"
    ),
    "pushed before": (
        _quiet("return True")
        + "def price(order):\n    stack = contextlib.ExitStack()\n    stack.push(Quiet())\n"
        f"    with stack:{HERE}\n        send(order)\n"
    ),
    "entered": (
        f"{LOGGED}def price(order):\n    with contextlib.ExitStack() as stack:{HERE}\n"
        "        stack.enter_context(logged('mail'))\n        send(order)\n"
    ),
    "suppress, entered": (
        f"async def price(order):\n    async with contextlib.AsyncExitStack() as stack:{HERE}\n"
        "        stack.enter_context(contextlib.suppress(Exception))\n        send(order)\n"
    ),
    "async, pushed": (
        "async def note(*error):\n    return True\n"
        f"async def price(order):\n    async with contextlib.AsyncExitStack() as stack:{HERE}\n"
        "        stack.push_async_exit(note)\n        send(order)\n"
    ),
    "async, entered": (
        "@contextlib.asynccontextmanager\nasync def quiet():\n    try:\n        yield 1\n    except Exception:\n"
        "        log.info('failed')\n"
        f"async def price(order):\n    async with contextlib.AsyncExitStack() as stack:{HERE}\n"
        "        one = await stack.enter_async_context(quiet())\n        send(order)\n"
    ),
    "a decorator": f"{LOGGED}@logged('mail'){HERE}\ndef price(order):\n    send(order)\n    return order\n",
    "a decorator of a helper": (
        f"{LOGGED}@logged('mail'){HERE}\ndef tell(order):\n    send(order)\n"
        "def price(order):\n    tell(order)\n    return order\n"
    ),
    "a class as a decorator": (
        _quiet("return True").replace("Quiet:", "Quiet(contextlib.ContextDecorator):")
        + f"@Quiet(){HERE}\ndef price(order):\n    send(order)\n"
    ),
    "async, a decorator": (
        "@contextlib.asynccontextmanager\nasync def quiet():\n    try:\n        yield\n    except Exception:\n"
        f"        pass\n@quiet(){HERE}\nasync def price(order):\n    send(order)\n"
    ),
    "in a decorator": (
        f"{LOGGED}def safe(f):\n    @functools.wraps(f)\n    def inner(order):\n"
        f"        with logged('mail'):{HERE}\n            return f(order)\n    return inner\n"
        "@safe\ndef price(order):\n    send(order)\n    return order\n"
    ),
    "return in finally of a generator": (
        "@contextlib.contextmanager\ndef quiet():\n    try:\n        yield\n    finally:\n"
        f"        return{HERE}\ndef price(order):\n    with quiet():\n        send(order)\n"
    ),
    "return in finally of a helper": (
        f"def tell(order):\n    try:\n        send(order)\n    finally:\n        return None{HERE}\n"
        "def price(order):\n    tell(order)\n    return order\n"
    ),
    "in else": (
        "def price(order):\n    try:\n        n = int(order['n'])\n    except KeyError:\n"
        "        raise\n    else:\n"
        f"        try:\n            send(order)\n        except Exception:{HERE}\n            log.info('failed')\n"
        "    return order\n"
    ),
    "in the body, with words that are made": (
        f"def price(order):\n    try:\n        send(order)\n    except Exception as error:{HERE}\n"
        "        print(f\"failed: {order.get('n')}\", repr(error))\n    return order\n"
    ),
    "in the body, and rolled back": (
        "def price(order, context):\n    connection = context.transaction.connection\n    try:\n"
        f"        send(order)\n    except Exception:{HERE}\n        connection.rollback()\n    return order\n"
    ),
}

RIGHT = {
    "raises again": LOGGED
    + "        raise\ndef price(order):\n    with logged('mail'):\n        send(order)\n",
    "raises by a function": (
        "def refuse(error):\n    log.error(error)\n    raise ValueError('bad') from error\n"
        "@contextlib.contextmanager\ndef named():\n    try:\n        yield\n    except Exception as error:\n"
        "        refuse(error)\ndef price(order):\n    with named():\n        send(order)\n"
    ),
    "the body has a function raise": (
        "def refuse(error):\n    raise ValueError('bad') from error\ndef price(order):\n    try:\n"
        "        send(order)\n    except Exception as error:\n        refuse(error)\n"
    ),
    "raises at last": (
        "@contextlib.contextmanager\ndef named():\n    failed = None\n    try:\n        yield\n"
        "    except Exception as error:\n        failed = error\n    if failed:\n"
        "        raise ValueError from failed\n"
        "def price(order):\n    with named():\n        send(order)\n"
    ),
    "only tidies up": (
        "@contextlib.contextmanager\ndef timed():\n    try:\n        yield\n    finally:\n"
        "        log.info('done')\n"
        "def price(order):\n    with timed():\n        send(order)\n    return order\n"
    ),
    "one kind": (
        "@contextlib.contextmanager\ndef quiet():\n    try:\n        yield\n    except KeyError:\n        pass\n"
        "def price(order):\n    with quiet():\n        send(order)\n"
    ),
    "one kind, which it is made with": (
        "@contextlib.contextmanager\ndef quiet(*kinds):\n    try:\n        yield\n"
        "    except kinds:\n        pass\n"
        "def price(order):\n    with quiet(KeyError):\n        send(order)\n"
    ),
    "catches what is not of its yield": (
        "@contextlib.contextmanager\ndef timed():\n    yield\n    try:\n        log.info('done')\n"
        "    except Exception:\n        pass\ndef price(order):\n    with timed():\n        send(order)\n"
    ),
    "looked at behind it": (
        "class Caught:\n    error = None\n    def __enter__(self):\n        return self\n"
        "    def __exit__(self, kind, error, trace):\n        self.error = error\n        return True\n"
        "def price(order):\n    with Caught() as caught:\n        send(order)\n"
        "    return {**order, 'ok': caught.error is None}\n"
    ),
    "sent elsewhere": (
        "@contextlib.contextmanager\ndef parked(order):\n    try:\n        yield\n    except Exception as error:\n"
        "        mail.do('park', order, key=order['n'])\n"
        "def price(order):\n    with parked(order):\n        send(order)\n"
    ),
    "best effort": (
        f"{LOGGED}COUNT = {{}}\ndef metric(name):\n    COUNT[name] = 1\n"
        "def price(order):\n    with logged('metric'):\n        metric('all')\n    return order\n"
    ),
    "best effort, whose manager returns": (
        "@contextlib.contextmanager\ndef quiet():\n    try:\n        yield\n"
        "    except Exception:\n        return\n"
        "COUNT = {}\ndef metric(name):\n    COUNT[name] = 1\n"
        "def price(order):\n    with quiet():\n        metric('all')\n    return order\n"
    ),
    "best effort on a stack": (
        "COUNT = {}\ndef metric(name):\n    COUNT[name] = 1\n"
        "def price(order):\n    with contextlib.ExitStack() as stack:\n"
        "        stack.enter_context(contextlib.suppress(Exception))\n        metric('all')\n    return order\n"
    ),
    "put on a stack when all is done": (
        f"{LOGGED}COUNT = {{}}\ndef price(order):\n"
        "    with contextlib.ExitStack() as stack:\n        send(order)\n"
        "        stack.enter_context(logged('mail'))\n    return order\n"
    ),
    "a default": (
        f"{LOGGED}def price(order):\n    rate = 1.0\n    with logged('rate'):\n"
        "        rate = float(order['rate'])\n"
        "    return {**order, 'rate': rate}\n"
    ),
    "raises behind it": (
        f"{LOGGED}def price(order):\n    with logged('mail'):\n        send(order)\n        return order\n"
        "    raise TimeoutError\n"
    ),
    "no answer": _lets_go("log.info('done')"),
    "says no": _lets_go("if error:", "    log.error(error)", "    return False", "return True"),
    "says yes where nothing failed": _lets_go("return kind is None"),
    "by its kind": _lets_go("return kind is KeyError"),
    "by its kinds": _lets_go("return isinstance(error, (KeyError, ValueError))"),
    "by its kinds, in a block": _lets_go("if kind in (KeyError, OSError):", "    return True"),
    "by a subclass": _lets_go("return kind is not None and issubclass(kind, LookupError)"),
    "raised anew": _lets_go("if error:", "    raise ValueError('bad') from error", "return True"),
    "what only a run tells": _lets_go("return self.is_quiet"),
    "where a run says so": _lets_go("if log.level:", "    return False", "return True"),
    "counted": _lets_go(
        "ended = False", "if kind is KeyError:", "    ended = True", "return ended"
    ),
    "rolls back": _lets_go("if kind:", "    self.connection.rollback()", "    return False"),
    "asks a library": _lets_go("return self.stack.__exit__(kind, error, trace)"),
    "asks one that lets it go": (
        _quiet("return None")
        + "class Unit(Quiet):\n    def __exit__(self, *error):\n        return super().__exit__(*error)\n"
        "def price(order):\n    with Unit():\n        send(order)\n"
    ),
    "libraries": (
        "LOCK = threading.Lock()\nclass File:\n    def close(self):\n        pass\n"
        "def price(order):\n    with LOCK, contextlib.closing(File()), contextlib.nullcontext():\n"
        "        with sqlite3.connect(':memory:') as connection, tempfile.TemporaryDirectory():\n"
        "            connection.execute('select 1')\n            send(order)\n    return order\n"
    ),
    "a test's": (
        "import pytest\ndef price(order):\n    with pytest.raises(KeyError):\n"
        "        send(order)\n    return order\n"
    ),
    "a callback": (
        "def done(*given):\n    return True\ndef price(order):\n    with contextlib.ExitStack() as stack:\n"
        "        stack.callback(done)\n        stack.push(contextlib.closing(order))\n        send(order)\n"
    ),
    "pushed, and says no": (
        "def note(kind, error, trace):\n    log.error(error)\n"
        "def price(order):\n    with contextlib.ExitStack() as stack:\n"
        "        stack.push(note)\n        send(order)\n"
    ),
    "a decorator that raises again": (
        LOGGED + "        raise\n@logged('mail')\ndef price(order):\n    send(order)\n"
    ),
    "a decorator that an async function is through with": (
        f"{LOGGED}@logged('mail')\nasync def price(order):\n    send(order)\n    return order\n"
    ),
    "a decorator that a generator is through with": (
        f"{LOGGED}@logged('mail')\ndef price(order):\n    send(order)\n    yield order\n"
    ),
    "tidied up": (
        f"{LOGGED}def price(order):\n    file = open('x')\n    try:\n        return file.read()\n    finally:\n"
        "        with logged('file'):\n            file.close()\n"
    ),
    "not for async": (
        _quiet("return True").replace(
            "class Quiet:",
            "class Quiet:\n    async def __aexit__(self, *error):\n"
            "        return None\n    async def __aenter__(self):\n        return self",
        )
        + "async def price(order):\n    async with Quiet():\n        send(order)\n    return order\n"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where stages are found, and forgotten after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in (MODULE, HELPER):
        sys.modules.pop(name, None)


def _written(folder: Path, text: str) -> ModuleType:
    (folder / f"{MODULE}.py").write_text(START + text)
    return import_module(MODULE)


def _said(module: ModuleType) -> list[str]:
    project = Project({MODULE, HELPER}, {f"{MODULE}:send"})
    return list(unjudged_by("stage price", module.price, project))


@pytest.mark.parametrize("text", ENDING.values(), ids=ENDING)
def test_where_a_context_manager_ends_any_error_is_named(folder: Path, text: str) -> None:
    """However it is written, with the line of its `with`, or of the decorator."""
    line = 1 + [one.endswith("# here") for one in (START + text).splitlines()].index(True)
    (said,) = _said(_written(folder, text))
    assert f"{MODULE}.py:{line}" in said


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_a_context_manager_that_lets_errors_go_on_is_not_blamed(folder: Path, text: str) -> None:
    """Nor one that only a run knows, nor one whose errors are looked at, or change nothing that goes out."""
    assert _said(_written(folder, text)) == []


def test_a_context_manager_is_told_with_its_place(folder: Path) -> None:
    """Where it catches, beside where it is used: it may stand in another file."""
    (said,) = _said(_written(folder, ENDING["a generator"]))
    caught = f"{MODULE}.py:{1 + len(START.splitlines()) + 4}"
    assert "stage price suppresses every exception at " in said
    assert f" by logged ({folder / caught}) and goes on as if nothing had failed" in said


def test_what_is_around_a_stage_is_read_by_the_names_there(folder: Path) -> None:
    """The stage's own module knows nobody of the name by which it catches."""
    (folder / f"{HELPER}.py").write_text(
        "import functools\nfrom contextlib import suppress as quietly\ndef safe(f):\n    @functools.wraps(f)\n"
        "    def inner(order):\n        with quietly(Exception):\n            return f(order)\n    return inner\n"
    )
    text = f"from {HELPER} import safe\n"
    text += "def _price(order):\n    send(order)\n    return order\nprice = safe(_price)\n"
    (said,) = _said(_written(folder, text))
    assert f"suppresses every exception at {folder / HELPER}.py:6" in said


PLAN = f"""\
version: 1
name: shop
stores: {{main: {{kind: sqlite, path: shop.db}}}}
sources: {{orders: {{kind: jsonl, path: orders.jsonl}}}}
pipes: {{intake: {{from: orders, journal: main, state: main}}}}
stages: {{price: {{from: intake, call: "{MODULE}:price"}}}}
simulate: {{messages: 3}}
"""


@pytest.mark.parametrize("name", ["a generator", "raises again"])
def test_the_command_does_not_judge_a_stage_whose_manager_ends_errors(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Nothing is found broken, and it is not said to be held."""
    (folder / f"{MODULE}.py").write_text(START + {**ENDING, **RIGHT}[name])
    (folder / "shop.yaml").write_text(PLAN)
    (folder / "orders.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(3)))
    assert run(["simulate", "shop.yaml", "--seeds", "4"]) == Exit.NOT_EXERCISED  # of four, not all
    told = capsys.readouterr().out
    assert ("not judged: stage price suppresses every exception" in told) == (name in ENDING)
