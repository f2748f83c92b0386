from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from tests.cli.kit import Command
from tests.pipelines.run.kit import read_lines, write_lines

ROOT = Path(__file__).parents[3]
ORDERS = ROOT / "examples" / "orders.yaml"
SIMPLE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: .surepipe/shop.db}}
sources: {lines: {kind: jsonl, path: in.jsonl}}
pipes: {intake: {from: lines, journal: main, state: main, boundary: committed}}
sinks: {out: {from: intake, kind: jsonl, path: out/out.jsonl}}
"""


def _with_stage(function: str) -> str:
    stage = f'stages: {{price: {{from: intake, call: "{function}"}}}}\nsinks:'
    return SIMPLE.replace("{from: intake, kind", "{from: price, kind").replace("sinks:", stage)


@pytest.fixture
def surepipe(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, in this process."""
    return Command(capsys)


@pytest.fixture
def shop(folder: Path) -> Path:
    """A small pipeline in the current folder."""
    path = folder / "shop.yaml"
    path.write_text(SIMPLE)
    return path


@pytest.fixture
def orders(folder: Path) -> Path:
    """The example, with its data in the current folder; one of its 40 orders has no price."""
    data = folder / "examples" / "data" / "orders.jsonl"
    data.parent.mkdir(parents=True)
    data.write_bytes((ROOT / "examples" / "data" / "orders.jsonl").read_bytes())
    quick = ORDERS.read_text().replace("retries: 5", "retries: 2\n    retry_min_s: 0.001")
    path = folder / "orders.yaml"
    path.write_text(quick)
    return path


def test_a_run_says_what_its_promise_does_not_survive(
    surepipe: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stored: a kill of the process takes what was accepted."""
    monkeypatch.chdir(tmp_path)
    write_lines("in.jsonl", [1])
    Path("plain.yaml").write_text(
        "version: 1\nname: plain\nsources: {lines: {kind: jsonl, path: in.jsonl}}\n"
        "pipes: {p: {from: lines}}\nsinks: {out: {from: p, kind: jsonl, path: out.jsonl}}\n"
    )
    (told,) = (line for line in surepipe("run", "plain.yaml").out.splitlines() if "order" in line)
    assert told.endswith("; not through process-crash, host-power-loss: see surepipe check")


def test_the_example_runs_to_its_end_and_a_second_run_finds_nothing_to_do(
    surepipe: Command, orders: Path
) -> None:
    """What holds is said before, what came of it afterwards, and the trace is clean."""
    answer = surepipe("run", orders, "--trace", "trace.jsonl")
    assert (answer.code, answer.err.count("Poison")) == (Exit.HELD, 0)
    lines = answer.out.splitlines()
    assert lines[1] == "lines to out  exactly-once, absolute order"
    assert "lines       40 taken" in lines
    assert "price       39 passed, 2 failed" in lines
    assert "1 dead letter in main/orders.dead: see surepipe dlq list" in lines
    assert len(read_lines("out/orders.jsonl")) == 39
    again = surepipe("run", orders)
    assert "intake  nothing to do" in again.out
    assert len(read_lines("out/orders.jsonl")) == 39
    audited = surepipe("audit", "trace.jsonl")
    assert audited.code == Exit.HELD
    last = audited.out.splitlines()[-1]
    assert (
        last
        == "held: orders/intake: integrity, no-loss, no-duplicate, monotonic, gap-free, identity"
    )


def collected_late(message: dict[str, int]) -> dict[str, object]:
    """A stage that looks how the process collects its garbage."""
    return {"id": message["id"], "young": gc.get_threshold()[0], "kept": gc.get_freeze_count() > 0}


@pytest.mark.parametrize(("before", "during"), [(700, 10_000), (50_000, 50_000), (0, 0)])
def test_garbage_is_collected_seldom_while_a_run_lasts_unless_somebody_said_how(
    surepipe: Command, shop: Path, before: int, during: int
) -> None:
    """Behind the run it is as it was; a collector that asks for more, or is off, stays so."""
    shop.write_text(_with_stage(f"{__name__}:collected_late"))
    write_lines("in.jsonl", [{"id": 1}])
    asked, kept = gc.get_threshold(), gc.get_freeze_count()
    try:
        gc.set_threshold(before)
        assert surepipe("run", shop, "--once").code == Exit.HELD
        assert gc.get_threshold()[0] == before
        assert gc.get_freeze_count() <= kept
    finally:
        gc.set_threshold(*asked)
    assert read_lines("out/out.jsonl") == [{"id": 1, "young": during, "kept": True}]


def test_dead_letters_are_listed_shown_and_sent_again(surepipe: Command, orders: Path) -> None:
    """A replay goes through the pipeline once; what fails again is a new letter, which a later replay sends."""
    surepipe("run", orders)
    listed = surepipe("dlq", "list", orders)
    assert listed.out.startswith("main/orders.dead  1 letter\n  1: orders/intake epoch ")
    assert listed.out.endswith("2 attempts: NoPrice: saffron\n")
    shown = surepipe("dlq", "show", orders, "main/orders.dead", 1, "--json")
    assert shown.json["payload"]["article"] == "saffron"
    assert surepipe("dlq", "show", orders, "main/orders.dead", 2).code == Exit.UNUSABLE
    replayed = surepipe("dlq", "replay", orders, "main/orders.dead")
    assert replayed.out == "1 letter replayed, exactly once; 1 failed again\n"
    assert replayed.code == Exit.VIOLATED
    letters = surepipe("dlq", "list", orders, "--json").json["main/orders.dead"]
    assert [one["replays"] for one in letters] == [0, 1]
    assert surepipe("dlq", "list", orders, "main/other").code == Exit.UNUSABLE


def test_what_cannot_keep_its_expectation_is_not_started(surepipe: Command, shop: Path) -> None:
    """Code 1, at the line; no store is made."""
    shop.write_text(
        SIMPLE.replace("journal: main, ", "").replace(
            "pipes:", "expect: {delivery: exactly-once, tolerates: [sender-crash]}\npipes:"
        )
    )
    answer = surepipe("run", shop)
    assert answer.code == Exit.VIOLATED
    assert "shop.yaml:5:1: " in answer.err
    assert "nothing was started" in answer.err
    assert not Path(".surepipe").exists()


def test_a_source_that_is_not_there_is_one_clear_line(surepipe: Command, shop: Path) -> None:
    """Code 2; a later run begins as if nothing had been."""
    answer = surepipe("run", shop)
    assert (answer.code, answer.err) == (
        Exit.UNUSABLE,
        "surepipe: in.jsonl can't be read: no such file or directory\n",
    )
    write_lines("in.jsonl", [1, 2])
    assert surepipe("run", shop).code == Exit.HELD
    assert read_lines("out/out.jsonl") == [1, 2]


def test_a_line_that_is_no_json_stops_the_run_and_once_mended_it_goes_on(
    surepipe: Command, shop: Path
) -> None:
    """What stands before it is through; nothing is passed over, and nothing repeated."""
    Path("in.jsonl").write_text("1\n2\nthree\n4\n")
    answer = surepipe("run", shop)
    assert answer.code == Exit.UNUSABLE
    assert answer.err.startswith("surepipe: in.jsonl, line 3, byte 4: no JSON: ")
    Path("in.jsonl").write_text("1\n2\n3\n4\n")
    assert surepipe("run", shop).code == Exit.HELD
    assert read_lines("out/out.jsonl") == [1, 2, 3, 4]


def test_a_function_that_is_not_there_is_named(surepipe: Command, shop: Path) -> None:
    """The module, and the folder it was looked for in."""
    shop.write_text(_with_stage("no_such_module:price"))
    write_lines("in.jsonl", [1])
    answer = surepipe("run", shop)
    assert answer.code == Exit.UNUSABLE
    assert "no_such_module:price: no_such_module can't be imported from" in answer.err


WRONG_FUNCTIONS = {
    "prize": "wrong_stages:prize: wrong_stages has no 'prize': did you mean 'price'?",
    "sell": "wrong_stages:sell: wrong_stages has no 'sell': known are price",
    "PRICES": "wrong_stages:PRICES is not a function",
}


@pytest.mark.parametrize("name", WRONG_FUNCTIONS)
def test_a_name_that_is_no_function_of_the_module_is_one_clear_line(
    surepipe: Command, shop: Path, name: str
) -> None:
    """What was probably meant, else what is there."""
    Path("wrong_stages.py").write_text("PRICES = {}\ndef price(order): return order\n")
    shop.write_text(_with_stage(f"wrong_stages:{name}"))
    write_lines("in.jsonl", [1])
    answer = surepipe("run", shop)
    assert (answer.code, answer.err) == (Exit.UNUSABLE, f"surepipe: {WRONG_FUNCTIONS[name]}\n")


BROKEN_MODULES = {
    "broken_syntax": ("def price(order)\n", "broken_syntax.py:1: SyntaxError: expected ':'"),
    "broken_name": ("PRICE = prise\n", "broken_name.py:1: NameError: name 'prise' is not defined"),
    "broken_exit": ("raise SystemExit(3)\n", "broken_exit.py:1: SystemExit: 3"),
}


@pytest.mark.parametrize("module", BROKEN_MODULES)
def test_a_module_that_fails_while_it_is_imported_is_one_clear_line(
    surepipe: Command, shop: Path, module: str
) -> None:
    """Not a traceback through the import machinery."""
    text, why = BROKEN_MODULES[module]
    Path(f"{module}.py").write_text(text)
    shop.write_text(_with_stage(f"{module}:price"))
    write_lines("in.jsonl", [1])
    answer = surepipe("run", shop)
    assert answer.code == Exit.UNUSABLE
    assert answer.err.endswith(f"/{why}\n")
    assert answer.err.count("\n") == 1


def test_a_trace_that_cannot_be_written_or_read_is_one_clear_line(
    surepipe: Command, shop: Path
) -> None:
    """Before anything is opened; --trace makes no folders."""
    write_lines("in.jsonl", [1])
    answer = surepipe("run", shop, "--trace", "none/trace.jsonl")
    said = "surepipe: the trace none/trace.jsonl can't be written: no such file or directory\n"
    assert (answer.code, answer.err) == (Exit.UNUSABLE, said)
    assert not Path(".surepipe").exists()
    answer = surepipe("audit", "none.jsonl")
    said = "surepipe: none.jsonl can't be read: no such file or directory\n"
    assert (answer.code, answer.err) == (Exit.UNUSABLE, said)


def test_lines_that_a_full_disk_did_not_take_are_no_success(surepipe: Command, shop: Path) -> None:
    """They are committed and not in the file: said at the end, and in the exit code."""
    shop.write_text(shop.read_text().replace("path: out/out.jsonl", "path: /dev/full"))
    write_lines("in.jsonl", [1, 2])
    answer = surepipe("run", shop)
    assert answer.code == Exit.VIOLATED
    assert "/dev/full: the last lines could not be written. They are stored" in answer.err


def test_a_node_must_be_named_where_there_are_several(surepipe: Command, shop: Path) -> None:
    """And be one of them."""
    shop.write_text(
        SIMPLE.replace(
            "pipes: {intake: {",
            "pipes: {intake: {node: far, route: {kind: tcp, address: 'localhost:1'}, ",
        )
    )
    assert "shop has several nodes: write --node with one of main, far" in surepipe("run", shop).err
    assert "shop has no node 'near'" in surepipe("run", shop, "--node", "near").err


def test_the_end_of_a_run_for_machines(surepipe: Command, shop: Path) -> None:
    """--json: one document with the counters."""
    write_lines("in.jsonl", [1, 2, 3])
    told = surepipe("run", shop, "--json").json
    assert (told["exit"], told["node"], told["dead_letters"]) == (0, "main", {})
    assert told["counters"]["out"] == {"taken": 3}


def test_one_interrupt_finishes_what_was_taken(shop: Path) -> None:
    """A process that follows its file gets SIGINT: it commits, says so, and ends with 130."""
    shop.write_text(SIMPLE.replace("path: in.jsonl", "path: in.jsonl, follow: true"))
    write_lines("in.jsonl", range(50))
    process = subprocess.Popen(
        [sys.executable, "-m", "surepipe", "run", str(shop)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()  # what it guarantees: from here on signals are heard
        out = Path("out/out.jsonl")
        while not (out.exists() and out.read_text().count("\n") == 50):
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        told, complaint = process.communicate(timeout=30)
    assert process.returncode == Exit.INTERRUPTED
    assert "finishing what was taken; once more to stop now" in complaint
    assert "intake  50 accepted, 50 settled, 50 confirmed" in told


def test_an_audit_of_a_trace_that_was_cut_short_tells_no_success(
    surepipe: Command, orders: Path
) -> None:
    """The trace of a kill: what had not come yet is not lost, and not proven either."""
    surepipe("run", orders, "--trace", "trace.jsonl")
    rows = Path("trace.jsonl").read_text().splitlines()
    cut = [row for row in rows if json.loads(row)["kind"] not in ("end", "confirmed", "settled")]
    Path("cut.jsonl").write_text("\n".join(cut) + "\n")
    answer = surepipe("audit", "cut.jsonl", "--json")
    assert answer.code == Exit.NOT_EXERCISED
    assert answer.json["exit"] == Exit.NOT_EXERCISED


@pytest.mark.parametrize("missing", ["the stage", "the rows"])
def test_a_run_from_another_folder_leaves_nothing_there(
    surepipe: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Paths are those of the current folder: what is not there is told, and nothing is made."""
    (folder / "shop.yaml").write_text(
        _with_stage("nowhere_at_all:price" if missing == "the stage" else "json:dumps")
    )
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    if missing == "the stage":
        write_lines(str(elsewhere / "in.jsonl"), [{"order": 1}])
    before = sorted(elsewhere.rglob("*"))
    monkeypatch.chdir(elsewhere)
    answer = surepipe("run", folder / "shop.yaml")
    assert answer.code == Exit.UNUSABLE
    assert ("can't be imported from" if missing == "the stage" else "can't be read") in answer.err
    assert sorted(elsewhere.rglob("*")) == before
