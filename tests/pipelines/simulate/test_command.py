"""``surepipe simulate``: what it says of a file, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from surepipe.cli import simulating
from surepipe.cli.app import run
from surepipe.cli.output import Exit
from surepipe.pipelines.simulate.subject import explore_plan_hops
from tests.pipelines.simulate.kit import SHOP, command, shop, simulated


@pytest.mark.long
def test_a_pipeline_that_holds_is_said_to_hold(tmp_path: Path) -> None:
    """Few seeds of all faults at few messages: held or not exercised, never violated (simulation X-22, X-23)."""
    file = shop(tmp_path, "def price(order):\n    return {**order, 'cents': 5}\n")
    done = command(file, "--seeds", "25", "--faults", "receiver-crash,route-loss")
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stdout + done.stderr
    assert "in 25 schedules" in done.stdout
    assert not (tmp_path / "shop.db").exists()
    assert not (tmp_path / ".surepipe").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("faults", "through", "why"),
    [
        (
            "process-crash",
            "; through process-crash",
            "store-trim, clock-step, as --faults leaves it out",
        ),
        ("none", "; no fault was tried", "store-trim, clock-step, as --faults leaves it out"),
        (
            "claim",
            "store-outage, store-crash, ",
            "store-trim, as no pipe goes through a stream of a store",
        ),
    ],
)
def test_what_held_is_said_only_of_faults_that_struck_and_the_others_have_a_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    faults: str,
    through: str,
    why: str,
) -> None:
    """X-4, X-29: the plan promises more than these schedules show."""
    file = shop(tmp_path, "def price(order):\n    return order\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop_stages", raising=False)
    run(["simulate", str(file), "--seeds", "20", "--jobs", "1", "--faults", faults])
    told = [
        line
        for line in capsys.readouterr().out.splitlines()
        if "lines to out: " in line or "tried: " in line
    ]
    assert through in told[0]
    assert "store-trim" not in told[0]
    assert told[1].endswith(why)


def held_of(folder: Path, stages: str, pipeline: str, *options: str) -> dict[str, object]:
    """What the command says in JSON of each promise, and its exit code."""
    done = simulated(folder, stages, "--json", *options, pipeline=pipeline)
    said = cast("dict[str, object]", json.loads(done.stdout))
    assert said["exit"] == done.returncode
    return said


TWO_ENDS = SHOP.replace("sinks: {", "sinks: {all: {from: intake, kind: jsonl, path: all.jsonl}, ")
CRASHES = ("--seeds", "20", "--faults", "receiver-crash")
ONLY_A_NAME = "from uuid import uuid4\n\n\ndef price(order):\n    return str(uuid4())\n"


@pytest.mark.long
def test_what_was_judged_is_told_beside_what_was_not(tmp_path: Path) -> None:
    """X-4: one end of which too little can be compared takes nothing from the pipe and the other end; the code is
    that of what was not judged."""
    said = held_of(tmp_path, ONLY_A_NAME, TWO_ENDS, *CRASHES)
    assert said["verdicts"] == {
        "intake": "held",
        "lines to all": "held",
        "lines to out": "not judged",
    }
    assert said["exit"] == Exit.NOT_EXERCISED
    (why,) = cast("list[str]", said["unjudged"])
    assert why.startswith("out, because ")
    told = simulated(tmp_path, ONLY_A_NAME, *CRASHES, pipeline=TWO_ENDS).stdout
    assert "held in 20 schedules  lines to all: " in told
    assert "not judged in 20 schedules, see below  lines to out: " in told


@pytest.mark.long
def test_an_end_that_gets_nothing_is_not_exercised_and_the_other_one_held(tmp_path: Path) -> None:
    """X-21: messages came through the pipe, and to the other end."""
    none = "def price(order):\n    return None\n"
    said = held_of(tmp_path, none, TWO_ENDS, *CRASHES)
    assert said["verdicts"] == {
        "intake": "held",
        "lines to all": "held",
        "lines to out": "not exercised",
    }
    alone = held_of(tmp_path, none, SHOP, *CRASHES)
    assert set(cast("dict[str, str]", alone["verdicts"]).values()) == {"not exercised"}


def test_a_promise_is_told_in_the_words_of_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of lanes it is one for each key, which simulate told as no order at all."""
    laned = SHOP.replace("boundary: committed", "boundary: processed, key: n, lanes: 2")
    file = shop(tmp_path, "def price(order):\n    return order\n", laned)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop_stages", raising=False)
    promise = "exactly-once, absolute order per key, no order across keys"
    run(["check", str(file)])
    assert f"  delivers     {promise}\n" in capsys.readouterr().out
    run(["simulate", str(file), "--seeds", "4", "--jobs", "1", "--faults", "route-loss"])
    assert f"lines to out: {promise}; through network (route-loss)\n" in capsys.readouterr().out


@pytest.mark.long
def test_too_few_seeds_are_not_exercised(tmp_path: Path) -> None:
    """The marks that are missing are named (simulation X-29, XT-10)."""
    file = shop(tmp_path, "def price(order):\n    return order\n")
    done = command(file, "--seeds", "2", "--faults", "claim", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == told["exit"] == Exit.NOT_EXERCISED
    assert told["missing"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("states", "code"), [(200, Exit.NOT_EXERCISED), (60_000, Exit.HELD)], ids=["bounded", "whole"]
)
def test_an_exploration_that_came_to_no_end_is_not_exercised(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    states: int,
    code: Exit,
) -> None:
    """The pipe is explored with few states, and with enough (simulation X-53, XT-9)."""
    text = SHOP.replace("journal: main, state: main, boundary: committed", "")
    text = text.replace("layers: [reliable],", "layers: [strict-monotonic]")
    file = shop(tmp_path, "def price(order):\n    return order\n", text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop_stages", raising=False)
    explore = partial(explore_plan_hops, messages=2, states_max=states)
    monkeypatch.setattr(simulating, "explore_plan_hops", explore)
    options = ("--seeds", "25", "--faults", "none", "--jobs", "1", "--explore")
    assert run(["simulate", file.name, *options]) == code
    assert ("bounded, not exhausted" in capsys.readouterr().out) == (code is not Exit.HELD)


@pytest.mark.long
def test_an_effect_beside_the_transaction_is_found(tmp_path: Path) -> None:
    """The stage has an effect outside, without a key: the check breaks (simulation X-26)."""
    stages = (
        "from surepipe.simulation import Outside\n"
        "banks = []\n"
        "class Price:\n"
        "    def __init__(self):\n"
        "        self.bank = Outside('bank')\n"
        "    def __call__(self, order):\n"
        "        self.bank.do('charge', order['n'])\n"
        "        return order\n"
        "def once(run):\n"
        "    times = [n for bank in run.outsides for n in bank.count('charge')]\n"
        "    return len(times) == len(set(times))\n"
    )
    pipeline = SHOP.replace(":price", ":Price") + 'simulate: {check: "shop_stages:once"}\n'
    done = command(shop(tmp_path, stages, pipeline), "--out", "pages")
    assert done.returncode == Exit.VIOLATED, done.stdout + done.stderr
    assert "check once VIOLATED" in done.stdout
    assert len(list((tmp_path / "pages").glob("*.html"))) == 1
    (script,) = (tmp_path / "pages").glob("*.json")
    assert command(tmp_path / "shop.yaml", "--replay", str(script)).returncode == Exit.VIOLATED


def test_a_stage_that_opens_a_socket_is_refused_with_the_lines_to_add(tmp_path: Path) -> None:
    """Exit 2, file and line, and the ``replace`` of its function (simulation X-26, XT-4)."""
    stages = "import socket\n\ndef price(order):\n    socket.socket()\n    return order\n"
    done = command(shop(tmp_path, stages), "--seeds", "2")
    assert done.returncode == Exit.UNUSABLE
    assert "shop_stages.py:4: a stage opens a socket" in done.stderr
    assert "held" not in done.stdout
    assert '"shop_stages:NAME": "doubles:NAME"' in done.stderr
    assert "of a stage that has one itself, here shop_stages:price)" in done.stderr


def test_one_schedule_and_a_number_of_them_are_not_asked_for_together(tmp_path: Path) -> None:
    """Exit 2: one of them would count for nothing, and which is not for the command to say."""
    file = shop(tmp_path, "def price(order):\n    return order\n")
    done = command(file, "--seed", "3", "--seeds", "4")
    assert (done.returncode, done.stdout) == (Exit.UNUSABLE, "")
    assert (
        done.stderr == "surepipe: give --seed (that one schedule) or --seeds (so many), not both\n"
    )
    done = command(file, "--seed", "3", "--seeds", "4", "--json")
    assert json.loads(done.stdout)["error"].startswith("give --seed (that one schedule) or")


IN_A_TASK = """
import asyncio, threading
async def price(order):
    return await asyncio.create_task(asyncio.to_thread(dict, order))
"""
BY_THE_LOOP = """
import asyncio, threading
async def price(order):
    asyncio.get_running_loop().call_soon(threading.Thread(target=print).start)
    await asyncio.sleep(1)
"""


def test_what_is_refused_within_a_task_is_told_where_that_was_made(tmp_path: Path) -> None:
    """None of the user's code is running then; where the loop itself does it, the stage is named, and no function
    is asked to be replaced that nobody knows (simulation X-26)."""
    done = command(shop(tmp_path, IN_A_TASK), "--seeds", "2")
    assert "shop_stages.py:4: a stage starts a thread" in done.stderr
    assert (
        "or wait for the thread before the stage returns (a double would hide that)" in done.stderr
    )
    assert done.stderr.endswith('  replace:\n    "shop_stages:NAME": "doubles:NAME"\n')
    done = command(shop(tmp_path, BY_THE_LOOP), "--seeds", "2")
    assert done.returncode == Exit.UNUSABLE, done.stdout + done.stderr
    assert done.stderr.startswith(
        "surepipe: within price: a stage starts a thread, which a simulation can't"
    )
    assert done.stderr.endswith("give what does that a double (simulate: replace:)\n"), done.stderr


@pytest.mark.long
def test_messages_that_no_stage_can_use_are_told_of(tmp_path: Path) -> None:
    """Most of them become dead letters, which is no violation, and shows little (simulation X-4)."""
    pipeline = SHOP.replace(
        'call: "shop_stages:price"', 'call: "shop_stages:price", retries: 1, dead_letter: main/dead'
    )
    stage = "def price(order):\n    return order['n'] if order['n'] < 1 else order['price']\n"
    file = shop(tmp_path, stage, pipeline)
    done = command(file, "--seeds", "2", "--faults", "none", "--json")
    told = "even without faults there are dead letters (3): call price (shop_stages:price) fails for 3 of 4"
    assert told in json.loads(done.stdout)["notes"][0]
    good = shop(tmp_path, "def price(order):\n    return order['n']\n", pipeline)
    assert (
        json.loads(command(good, "--seeds", "2", "--faults", "none", "--json").stdout)["notes"]
        == []
    )


@pytest.mark.long
def test_a_double_takes_its_place(tmp_path: Path) -> None:
    """The same with ``replace`` (simulation X-26)."""
    stages = "import socket\n\ndef price(order):\n    socket.socket()\n\ndef double(order):\n    return order\n"
    replaced = 'simulate: {replace: {"shop_stages:price": "shop_stages:double"}}\n'
    done = command(shop(tmp_path, stages, SHOP + replaced), "--seeds", "2")
    assert done.returncode == Exit.NOT_EXERCISED, done.stderr


def test_a_double_that_acts_outside_itself_is_not_to_have_a_double(tmp_path: Path) -> None:
    """It was told to take its own place (simulation X-26)."""
    stages = "import socket\n\ndef price(order):\n    return order\n\ndef double(order):\n    socket.socket()\n"
    replaced = 'simulate: {replace: {"shop_stages:price": "shop_stages:double"}}\n'
    done = command(shop(tmp_path, stages, SHOP + replaced), "--seeds", "2")
    assert done.returncode == Exit.UNUSABLE
    assert "shop_stages:double is a double already: let it only tell an Outside" in done.stderr
    assert "replace:" not in done.stderr


@pytest.mark.long
def test_a_stage_that_asks_a_generator_of_its_module_is_not_judged_and_the_generator_is_named(
    tmp_path: Path,
) -> None:
    """On two processes no seed is the same again, which is no riddle: it is known why (simulation X-25)."""
    stages = (
        "import itertools\n"
        "numbers = (number for number in itertools.count())\n"
        "def price(order):\n    return {**order, 'number': next(numbers)}\n"
    )
    done = command(shop(tmp_path, stages), "--seeds", "20", "--faults", "receiver-crash", jobs=2)
    assert done.returncode == Exit.NOT_EXERCISED, done.stdout + done.stderr
    assert "not judged: shop_stages.numbers (shop_stages.py:2) is a generator, which" in done.stdout


A_CLOCK_OF_ITS_OWN = """
import datetime
from pydantic import BaseModel, Field
class Priced(BaseModel):
    at: datetime.datetime = Field(default_factory=datetime.datetime.now)
def price(order):
    return {**order, **Priced().model_dump(mode="json")}
"""


@pytest.mark.long
def test_a_way_whose_stage_goes_another_way_each_time_is_not_judged_and_its_clock_is_named(
    tmp_path: Path,
) -> None:
    """The stage is told once, though each process sees other answers, and the way is not said to hold; what a
    library keeps beside a class is no memory (simulation X-22, X-25)."""
    done = command(
        shop(tmp_path, A_CLOCK_OF_ITS_OWN), "--seeds", "20", "--faults", "receiver-crash", jobs=2
    )
    assert done.returncode == Exit.NOT_EXERCISED, done.stdout + done.stderr
    assert re.search(r"^not judged in 20 schedules, see below +lines to out: ", done.stdout, re.M)
    assert done.stdout.count("not judged: stage price") == 1, done.stdout
    assert "_abc_impl" not in done.stdout
    clock = "not judged: shop_stages.py:5 takes datetime.datetime.now of the real clock"
    assert clock in done.stdout, done.stdout


@pytest.mark.long
def test_an_answer_that_depends_on_the_hash_seed_is_not_deterministic(tmp_path: Path) -> None:
    """Exit 4, the stage and both answers (simulation X-25, XT-3)."""
    stages = "def price(order):\n    return {'hash': hash('bread')}\n"
    done = command(shop(tmp_path, stages), "--seeds", "2", "--faults", "none")
    assert done.returncode == Exit.NOT_DETERMINISTIC, done.stdout + done.stderr
    told = "stage price (shop_stages.py:1) answered differently for the same message"
    assert told in done.stderr, done.stderr


@pytest.mark.long
def test_what_is_noted_of_a_failure_is_told_once(tmp_path: Path) -> None:
    """As "Note" in its report, and as "note" behind it (simulation X-22)."""
    stages = "seen = []\ndef price(order):\n    seen.append(order)\n    return {**order, 'n': len(seen)}\n"
    done = command(shop(tmp_path, stages), "--seeds", "20", "--faults", "process-crash")
    assert done.returncode == Exit.VIOLATED, done.stdout + done.stderr
    assert done.stdout.lower().count("note: stages keep shop_stages.seen") == 1


@pytest.mark.long
def test_lanes_that_depend_on_the_hash_seed_are_told_as_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other lanes give another order, so stages answer for other messages: no two of these are held against each
    other, and none of them is accused (simulation X-25). Two seeds by chance may give four rows the same lanes."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    by_hash = (
        SHOP.replace("lines.jsonl}", 'lines.jsonl, key: "shop_stages:lane"}')
        .replace(", boundary: committed", ", lanes: 3")
        .replace("layers: [reliable], ", "")
    )
    stages = "def lane(row):\n    return hash(f'row {row}') % 3\ndef price(row):\n    return row\n"
    done = command(shop(tmp_path, stages, by_hash), "--seeds", "4", "--faults", "bad-stage")
    assert done.returncode == Exit.NOT_DETERMINISTIC, done.stdout + done.stderr
    told = (
        "shop_stages:lane (shop_stages.py:1), which tells the keys of pipe intake, answered differently for the "
        "same message: "
    )
    assert told in done.stderr


@pytest.mark.long
def test_a_key_that_depends_on_the_hash_seed_is_not_deterministic(tmp_path: Path) -> None:
    """Another process gives the effect another key, so it is repeated; no answer shows that (simulation X-25)."""
    stages = (
        "from surepipe.simulation import Outside\nbank = Outside('bank')\n"
        "def price(order):\n    bank.do('charge', order['n'], key=hash(f\"order {order['n']}\"))\n"
        "    return order\n"
    )
    done = command(shop(tmp_path, stages), "--seeds", "2", "--faults", "none")
    assert done.returncode == Exit.NOT_DETERMINISTIC, done.stdout + done.stderr
    by = "the effect on bank by stage price (shop_stages.py:3) differs for the same message: "
    assert f"{by}charge 0 with the key " in done.stderr, done.stderr


def test_a_file_that_check_refuses_is_not_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Committed without a state (simulation X-21, XT-6)."""
    file = shop(tmp_path, "", SHOP.replace(" state: main,", ""))
    assert run(["simulate", str(file)]) == Exit.UNUSABLE
    assert "refuse" in capsys.readouterr().err


BREAKS = """\
def price(order):
    return order
def few(run):
    return len(run.delivered["out"]) < 4
"""


@pytest.mark.long
@pytest.mark.parametrize("is_broken", [False, True], ids=["held", "violated"])
def test_what_is_found_does_not_depend_on_the_number_of_processes(
    tmp_path: Path, is_broken: bool
) -> None:
    """The same document from one and from three: the first failing seed in order wins (simulation X-25)."""
    check = 'simulate: {check: "shop_stages:few"}\n' if is_broken else ""
    file = shop(tmp_path, BREAKS, SHOP + check)
    options = ("--seeds", "10", "--messages", "4", "--faults", "handler-failure", "--json")
    alone, shared = (command(file, *options, jobs=jobs) for jobs in (1, 3))
    assert alone.stdout == shared.stdout
    assert alone.returncode == shared.returncode, alone.stderr + shared.stderr
    assert (alone.returncode == Exit.VIOLATED) is is_broken


def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    """Ctrl-C, which every process of the terminal gets: 130, how far it came in one line, and nobody is left
    (simulation X-22)."""
    file = shop(tmp_path, "def price(order):\n    return order\n")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "surepipe",
            "simulate",
            file.name,
            "--seeds",
            "100000",
            "--jobs",
            "2",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        assert "nothing broke" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    told = r"surepipe: interrupted after \d+ of 100000 schedules: nothing broke in these, .*"
    assert re.fullmatch(told, complaint.strip()), complaint
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


CHECKED = """
last = []
def price(order):
    last.append(order["n"])
    return order
def wrong(run):
    return not run.delivered["out"]
"""


@pytest.mark.long
def test_a_violation_has_its_verdicts_and_notes_in_json(tmp_path: Path) -> None:
    """The way that broke is violated, and no promise is said to hold; what stages keep stands beside."""
    said = held_of(tmp_path, CHECKED, SHOP + 'simulate: {check: "shop_stages:wrong"}\n')
    assert (said["exit"], said["violated"]) == (Exit.VIOLATED, "user")
    assert said["verdicts"] == {"intake": "not judged", "lines to out": "violated"}
    (why,) = cast("list[str]", said["unjudged"])
    assert why.startswith("intake, because the schedules ended ")
    assert any("shop_stages.last" in note for note in cast("list[str]", said["notes"]))


def test_an_expectation_that_is_not_met_is_told_in_json_as_that(tmp_path: Path) -> None:
    """P15: before anything runs."""
    weak = SHOP.replace("journal: main, state", "state").replace(
        "stores:", "expect: {delivery: exactly-once, tolerates: [process-crash]}\nstores:"
    )
    said = held_of(tmp_path, "def price(order):\n    return order\n", weak)
    assert (said["exit"], said["violated"]) == (Exit.VIOLATED, "P15")
    assert "violated" in cast("dict[str, str]", said["verdicts"]).values()


@pytest.mark.long
def test_messages_that_are_refused_for_a_known_reason_are_not_told_of_twice(tmp_path: Path) -> None:
    """The reason is exact; that rows may be unlike their own would only lead away from it."""
    pipeline = SHOP.replace('price"', 'price", retries: 1, dead_letter: main/dead')
    done = simulated(tmp_path, "def price(order):\n    return {1, 2}\n", pipeline=pipeline)
    assert done.returncode == Exit.NOT_EXERCISED, done.stdout
    assert "which it can't take" in done.stdout
    assert "dead letters" not in done.stdout.partition("not exercised: ")[2]
