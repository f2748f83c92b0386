from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from surepipe.testing.servers import RedisServer, local_servers
from tests.cli.kit import Command
from tests.pipelines.files import pipe, pipeline

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders.yaml"
WEAK = pipe("expect: {delivery: at-least-once, tolerates: [sender-crash]}")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file shop.yaml in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    path = Path("shop.yaml")
    path.write_text(pipeline(stores=""))
    return path


SOUND_TEXT = (
    "shop  shop.yaml\n"
    "\n"
    "pipe intake  reliable / local\n"
    "  delivers     exactly-once, absolute order\n"
    "  through      network, bad-stage, store-outage, store-crash, store-rollback, store-trim, clock-step\n"
)


def test_a_sound_pipeline_is_explained_pipe_by_pipe_and_end_to_end(
    surepipe: Command, shop: Path
) -> None:
    """What it delivers, what it does not survive with the remedy, and the verdict in the last line."""
    answer = surepipe("check", shop)
    assert answer.code == Exit.HELD
    assert answer.out.startswith(SOUND_TEXT)
    assert "  not through  process-crash: without a journal," in answer.out
    commit = "use boundary committed with receiver state and sink in one store"
    assert f"add  name a journal and {commit}\n" in answer.out
    assert "end to end lines to out  lines -> intake -> price -> out\n" in answer.out
    assert answer.out.endswith("\nheld: nothing is expected; see expect\n")


def test_the_example_is_held(surepipe: Command) -> None:
    """Every expectation in it."""
    answer = surepipe("check", EXAMPLE)
    assert (answer.code, answer.err) == (Exit.HELD, "")
    assert answer.out.endswith("held: 3 expectations\n")


def test_an_expectation_that_is_not_met_is_code_1_at_its_place(
    surepipe: Command, shop: Path
) -> None:
    """On standard error, with file, line, column and remedy."""
    shop.write_text(pipeline(pipes=WEAK))
    answer = surepipe("check", shop)
    assert answer.code == Exit.VIOLATED
    assert "not met: 1 of what is expected does not hold" in answer.out
    first, shown, _ = answer.err.splitlines()
    assert first == (
        "shop.yaml:5:31: expectation: pipe intake: at-least-once, none; tolerates process-crash is expected, and "
        "no-loss does not survive process-crash: without a journal, accepted messages that are not confirmed end "
        "with the sender. Name a journal."
    )
    assert shown.startswith("    5 | pipes: {intake")


def test_a_claim_may_be_required_on_the_command_line(surepipe: Command, shop: Path) -> None:
    """Of each way; several may be given."""
    held = surepipe("check", shop, "--require", "exactly-once, absolute; tolerates route")
    broken = surepipe(
        "check", shop, "-r", "exactly-once", "-r", "at-least-once; tolerates sender-crash"
    )
    assert (held.code, broken.code) == (Exit.HELD, Exit.VIOLATED)
    assert "lines to out: at-least-once, none; tolerates process-crash is expected" in broken.err


def test_a_claim_with_a_slip_is_one_line(surepipe: Command, shop: Path) -> None:
    """And code 2."""
    answer = surepipe("check", shop, "--require", "exactly-one")
    assert answer.code == Exit.UNUSABLE
    assert (
        answer.err
        == "surepipe: 'exactly-one' is no delivery or order: did you mean 'exactly-once'?\n"
    )


def test_a_composition_that_is_refused_is_code_2_at_the_layer(
    surepipe: Command, shop: Path
) -> None:
    """The place is that of the layer that lacks something."""
    options = "route: {kind: tcp, address: 'localhost:1'}, layers: [continuous-index]"
    shop.write_text(pipeline(pipes=pipe(options)))
    answer = surepipe("check", shop)
    assert answer.code == Exit.UNUSABLE
    assert answer.err.startswith(
        "shop.yaml:5:84: unmet-carrier: pipe intake: layer 0 (continuous-index)"
    )
    assert answer.out.endswith("refused: 1 reason\n")


def test_a_broken_file_is_code_2_with_every_problem(surepipe: Command, shop: Path) -> None:
    """As text on standard error; with --json as a document on standard output."""
    shop.write_text(pipeline(name="name: 7", stores="store: {}"))
    plain, machine = surepipe("check", shop), surepipe("check", shop, "--json")
    assert (plain.code, machine.code) == (Exit.UNUSABLE, Exit.UNUSABLE)
    assert plain.out == ""
    assert [row for row in plain.err.splitlines() if row.startswith("shop.yaml")] == [
        "shop.yaml:2:7: name is 7: it must be a word",
        "shop.yaml:3:1: 'store' is no key of a pipeline: did you mean 'stores'?",
    ]
    assert machine.json["errors"] == [
        {"line": 2, "column": 7, "text": "name is 7: it must be a word"},
        {"line": 3, "column": 1, "text": "'store' is no key of a pipeline: did you mean 'stores'?"},
    ]


BOOK = (
    "pipes:\n"
    "  intake: {from: lines, key: 'shop_keys:key', lanes: 2, payload: 'missing.models:Order', route: {kind: book,"
    " store: main, cost: 'shop_keys.costs:cost'}}\n"
)

KEYED = (
    "stages:\n"
    "  keyed: {from: intake, key-by: 'no_keys:key'}\n"
    "  price: {from: keyed, map: 'os.path:basename'}\n"
)


def test_functions_of_modules_that_are_not_there_are_noted(surepipe: Command, shop: Path) -> None:
    """Of stages, keys, payloads and a book's cost; what is beside the file is looked for, and not imported."""
    shop.write_text(pipeline(pipes=BOOK, stages=KEYED))
    Path("shop_keys.py").write_text("raise SystemExit\n")
    answer = surepipe("check", shop)
    assert answer.code == Exit.HELD
    notes = [line for line in answer.out.splitlines() if "there is no module" in line]
    assert [line.partition(", and")[0] for line in notes] == [
        "note  pipe intake: payload is missing.models:Order",
        "note  pipe intake: cost is shop_keys.costs:cost",
        "note  stage keyed: key-by is no_keys:key",
    ]


NAMES = """
import os, json as text
from functools import partial
TABLE = {"a": len}
if os.name:
    def priced(order): ...
else:
    cheap = partial(priced)
class Stage:
    def inner(self): ...
def begin():
    global late
    late = 1
"""


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("priced", ""),
        ("Stage.inner", ""),
        ("late", ""),
        ("cheap", ""),
        ("partial", ""),
        ("text", ""),
        ("prised", "has no 'prised': did you mean 'priced'?: run would end at it"),
        ("inner", "has no 'inner': "),
        ("json", "has no 'json': "),
    ],
)
def test_a_function_that_its_module_does_not_have_is_noted(
    surepipe: Command, shop: Path, call: str, why: str
) -> None:
    """By the text of the module, which is not run."""
    shop.write_text(
        pipeline(stages=f"stages: {{price: {{from: intake, call: 'shop_names:{call}'}}}}\n")
    )
    Path("shop_names.py").write_text(NAMES + "raise SystemExit\n")
    notes = [line for line in surepipe("check", shop).out.splitlines() if "call is" in line]
    assert len(notes) == bool(why)
    assert all(why in note for note in notes)


@pytest.mark.parametrize(
    "more", ["from json import *\n", "globals()['price'] = 1\n", "def __getattr__(name): ...\n"]
)
def test_of_a_module_that_makes_names_nothing_is_said(
    surepipe: Command, shop: Path, more: str
) -> None:
    """Its text does not tell them all."""
    shop.write_text(pipeline(stages="stages: {price: {from: intake, call: 'shop_more:price'}}\n"))
    Path("shop_more.py").write_text(more)
    assert "call is" not in surepipe("check", shop).out


def test_a_module_that_is_no_python_is_noted_with_its_line(surepipe: Command, shop: Path) -> None:
    """And so is what a package lacks; a module within it is none of its names."""
    stages = (
        "stages:\n"
        "  one: {from: intake, call: 'shop_broken:price'}\n"
        "  nulls: {from: one, call: 'shop_nulls:price'}\n"
        "  two: {from: nulls, call: 'shop_package:inside.price'}\n"
        "  three: {from: two, call: 'shop_package:outside.price'}\n"
    )
    shop.write_text(pipeline(stages=stages, sinks="sinks: {out: {from: three, kind: stdout}}"))
    Path("shop_broken.py").write_text("def price(order):\n    return (\n")
    Path("shop_nulls.py").write_bytes(b"def price(order): ...\0")
    Path("shop_package").mkdir()
    Path("shop_package/__init__.py").write_text("")
    Path("shop_package/inside.py").write_text("def price(order): ...\n")
    notes = [line for line in surepipe("check", shop).out.splitlines() if "call is" in line]
    assert len(notes) == 3
    assert "shop_broken.py:2 is no Python: '(' was never closed" in notes[0]
    assert "is no Python: " in notes[1]
    assert "has no 'outside': there is none: run would end at it" in notes[2]


def test_a_file_that_is_not_there_is_one_line(surepipe: Command) -> None:
    """And code 2."""
    answer = surepipe("check", "nowhere.yaml")
    assert answer.code == Exit.UNUSABLE
    assert answer.err == "nowhere.yaml:1:1: can't be read: no such file or directory\n"


def test_json_has_everything_that_the_text_has(surepipe: Command, shop: Path) -> None:
    """For a held and for an unmet file; the keys are the same."""
    held = surepipe("check", shop, "--json").json
    shop.write_text(pipeline(pipes=WEAK))
    answer = surepipe("check", shop, "--json")
    assert answer.code == answer.json["exit"] == Exit.VIOLATED
    assert answer.err == ""
    assert held.keys() == answer.json.keys()
    (intake,) = answer.json["pipes"]
    assert (intake["delivery"], intake["order"], intake["held"]) == (
        "exactly-once",
        "absolute",
        False,
    )
    assert [one["atom"] for one in intake["atoms"]] == [
        "no-loss",
        "no-duplicate",
        "monotonic",
        "gap-free",
    ]
    lack = intake["not_tolerated"][0]
    assert (lack["fault"], lack["word"]) == ("sender-crash", "process-crash")
    assert lack["remedy"].startswith("name a journal and use boundary committed")
    assert intake["through"][:2] == ["network", "bad-stage"]
    assert intake["unmet"][0]["remedies"] == ["name a journal"]
    assert answer.json["ways"][0]["parts"] == ["lines", "intake", "price", "out"]


def test_why_gives_the_reason_for_each_atom(surepipe: Command, shop: Path) -> None:
    """Four lines for a pipe."""
    answer = surepipe("check", shop, "--why")
    assert answer.out.count("  because      ") == 4
    assert "because      no-loss: layer 0 (reliable) sends again" in answer.out


def test_lanes_are_said_in_the_order(surepipe: Command, shop: Path) -> None:
    """Per key, and across keys."""
    shop.write_text(pipeline(stores="", pipes=pipe("lanes: 4, key: customer")))
    answer = surepipe("check", shop)
    assert "delivers     exactly-once, absolute order per key, no order across keys" in answer.out


def test_the_engine_may_be_asked_for(surepipe: Command, shop: Path) -> None:
    """spark SP-2: what Spark can't do is refused; an engine that there is not is one line."""
    spark = surepipe("check", shop, "--engine", "spark")
    assert spark.code == Exit.UNUSABLE
    assert "engine spark: pipe intake: a local route is within one process" in spark.err
    none = surepipe("check", shop, "--engine", "flink")
    assert (none.code, none.err) == (2, "surepipe: engine is 'flink': write actors or spark\n")


def test_no_output_has_a_secret(
    surepipe: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a password that stands in the file nor the value of a variable, in any form of output."""
    monkeypatch.setenv("REDIS_PASSWORD", "hunter3")
    lasting = "{delivery: exactly-once, tolerates: [store-crash]}"
    for url in ("redis://u:hunter2@h", "redis://u:${REDIS_PASSWORD}@h"):
        shop.write_text(
            pipeline(
                stores=f"stores: {{main: {{kind: redis, url: '{url}'}}}}",
                pipes=pipe("route: {kind: redis, store: main}, expect: " + lasting),
                sinks="sinks: {out: {from: price, kind: http, url: x, headers: {Authorization: Bearer hunter2}}}",
            )
        )
        for more in ([], ["--json"], ["--why"], ["--engine", "spark"]):
            answer = surepipe("check", shop, *more)
            assert answer.code != 0
            assert "hunter" not in answer.out + answer.err
        assert "hunter" not in surepipe("graph", shop).out


def test_a_redis_that_is_probed_is_judged_by_its_settings(
    surepipe: Command, shop: Path, durable_redis: RedisServer
) -> None:
    """A server that keeps every write: without asking it, nothing is taken for granted."""
    shop.write_text(
        pipeline(
            stores=f"stores: {{main: {{kind: redis, url: '{durable_redis.url}'}}}}",
            pipes=pipe("route: {kind: redis, store: main}"),
        )
    )
    asked = ("check", shop, "--require", "exactly-once; tolerates store-crash")
    blind, probed = surepipe(*asked), surepipe(*asked, "--probe")
    assert "was not asked what it keeps" in blind.out
    assert blind.code == Exit.VIOLATED
    assert "was not asked what it keeps" not in probed.out
    assert probed.code == Exit.HELD


@pytest.mark.parametrize(
    ("fsync", "declared"), [("everysec", "power"), ("always", "power"), ("always", "interval")]
)
def test_of_what_is_declared_and_what_is_probed_the_weaker_counts(
    surepipe: Command, shop: Path, fsync: str, declared: str
) -> None:
    """A server that may lose a second, declared to lose nothing, is told of once; and the other way round."""
    with local_servers()[0].server(appendonly="yes", appendfsync=fsync) as server:
        stores = f"stores: {{main: {{kind: redis, url: '{server.url}', durability: {declared}}}}}"
        shop.write_text(pipeline(stores=stores, pipes=pipe("route: {kind: redis, store: main}")))
        asked = ("check", shop, "--require", "exactly-once; tolerates store-crash")
        blind, probed = surepipe(*asked), surepipe(*asked, "--probe")
    assert (blind.code == Exit.HELD) is (declared == "power")
    assert (probed.code == Exit.HELD) is ((fsync, declared) == ("always", "power"))
    said = (probed.out + probed.err).count("settings give only interval")
    assert said == (fsync == "everysec")


def test_a_redis_that_would_throw_messages_away_is_refused_when_it_is_probed(
    surepipe: Command, shop: Path
) -> None:
    """By --probe and by run alike: one line says which setting it is, and nothing is made."""
    with local_servers()[0].server(maxmemory_policy="allkeys-lru") as server:
        shop.write_text(
            pipeline(
                stores=f"stores: {{main: {{kind: redis, url: '{server.url}'}}}}",
                pipes=pipe("route: {kind: redis, store: main}"),
            )
        )
        assert surepipe("check", shop).code == Exit.HELD
        for command in (("check", shop, "--probe"), ("run", shop)):
            answer = surepipe(*command)
            assert answer.code == Exit.UNUSABLE
            (line,) = answer.err.splitlines()
            assert "store main: " in line
            assert "maxmemory-policy allkeys-lru" in line
            assert "set it to noeviction" in line


def test_a_redis_that_does_not_answer_is_one_line(surepipe: Command, shop: Path) -> None:
    """With --probe only: without it nothing is opened."""
    shop.write_text(
        pipeline(
            stores="stores: {main: {kind: redis, url: 'redis://127.0.0.1:1'}}",
            pipes=pipe("route: {kind: redis, store: main}"),
        )
    )
    assert surepipe("check", shop).code == Exit.HELD
    answer = surepipe("check", shop, "--probe")
    assert answer.code == Exit.UNUSABLE
    assert len(answer.err.splitlines()) == 1


def test_an_expectation_per_key_is_told_as_that(surepipe: Command, shop: Path) -> None:
    """In the text and in JSON; the one of all messages has no such word."""
    keyed = pipe(
        "key: n, lanes: 2, expect: {delivery: exactly-once, order: absolute, per: key, tolerates: [network]}"
    )
    shop.write_text(pipeline(pipes=keyed))
    assert "exactly-once, absolute per key; tolerates network: held" in surepipe("check", shop).out
    (told,) = surepipe("check", shop, "--json").json["pipes"][0]["expected"]
    assert (told["order"], told["per"]) == ("absolute", "key")
