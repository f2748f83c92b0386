"""``surepipe bench`` gives figures of pipes, and leaves everything that is its user's as it was."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from surepipe.cli.benching import bench
from surepipe.cli.benching import bench as running
from surepipe.cli.benching.harmless import PREFIX
from surepipe.cli.output import Exit
from surepipe.storage.redis.link import RedisLimits, RedisLink, Reply, settings_of
from surepipe.testing.servers import RedisServer
from tests.cli.kit import Command

DEADLINE_S = 60.0
BRIEF = ("--messages", 300, "--seconds", 1, "--json")
SHOP = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: data/shop.db, durability: process}}
sources: {lines: {kind: jsonl, path: rows.jsonl}}
pipes:
  intake: {from: lines, journal: main, state: main, boundary: committed}
  onward: {from: price, route: {kind: sqlite, store: main}, state: main, boundary: committed}
stages:
  price: {from: intake, call: "bench_stages:price", retries: 2, dead_letter: main/dead}
sinks:
  out: {from: onward, kind: jsonl, path: out.jsonl}
  letters: {from: price, kind: stream, store: main, stream: priced}
"""
STAGES = """\
from pathlib import Path

def price(order):
    Path("entered").touch()
    return order

def double(order):
    Path("doubled").touch()
    return order

def fail(order):
    raise ValueError("never")
"""


@pytest.fixture(autouse=True)
def short_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain loop need not be exact here."""
    monkeypatch.setattr(bench, "LOOP_S", 0.01)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline of two pipes, its rows and its stages; the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bench_stages", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "bench_stages.py").write_text(STAGES)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(10)))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below, but for what Python compiles."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def keys_of(server: RedisServer) -> dict[bytes, Reply]:
    """Everything that lies on a server."""
    link = RedisLink(settings_of(server.url, RedisLimits()), limits=RedisLimits())
    found = link.call("", [("KEYS", "*")])
    assert isinstance(found, list)
    assert isinstance(found[0], list)
    keys = sorted(key for key in found[0] if isinstance(key, bytes))
    dumps = link.call("", [("DUMP", key) for key in keys])
    link.close()
    assert isinstance(dumps, list)
    return dict(zip(keys, dumps, strict=True))


def pipes_of(document: Any) -> Mapping[str, Any]:
    """The figures of each pipe, by its name."""
    return {pipe["name"]: pipe for one in document["pipelines"] for pipe in one["pipes"]}


def stores_of(document: Any) -> Mapping[str, Any]:
    """The figures of each store, by the names of pipeline and store."""
    return {
        f"{one['name']}/{store['name']}": store
        for one in document["pipelines"]
        for store in one["stores"]
    }


def test_without_a_file_the_usual_pipes_are_measured_beside_a_plain_loop(
    surepipe: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message comes through, each rate is told as a part of the loop's, and the folder is empty again."""
    monkeypatch.chdir(tmp_path)
    answer = surepipe("bench", *BRIEF)
    assert answer.code == Exit.HELD
    pipes = pipes_of(answer.json)
    assert list(pipes) == ["memory", "ordered", "tcp", "sqlite-stream", "sqlite-committed"]
    for pipe in pipes.values():
        assert pipe["messages"] == 300
        assert pipe["of_loop"] == pytest.approx(pipe["per_s"] / answer.json["loop_per_s"], rel=0.01)
        for times in (pipe["under_load_ms"], pipe["alone_ms"]):
            assert 0 < times["p50"] <= times["p99"]
    stores = stores_of(answer.json)
    assert set(stores) == {"sqlite-stream/file", "sqlite-committed/file"}
    assert all(store["commits"] > 0 for store in stores.values())
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_measured_without_a_trace_of_it(surepipe: Command, folder: Path) -> None:
    """After a real run, no byte of its store, of its outputs or of anything else changes; no stage is entered."""
    assert surepipe("run", "shop.yaml").code == Exit.HELD
    (folder / "entered").unlink()
    before = contents(folder)
    answer = surepipe("bench", "shop.yaml", *BRIEF)
    assert answer.code == Exit.HELD
    assert contents(folder) == before
    assert [pipe["messages"] for pipe in pipes_of(answer.json).values()] == [300, 300]
    assert stores_of(answer.json)["shop/main"]["commands_per_message"] > 0


def test_stages_are_entered_only_when_asked_and_then_by_their_doubles(
    surepipe: Command, folder: Path
) -> None:
    """First the function of the file, then the one that simulate names for it."""
    assert surepipe("bench", "shop.yaml", "--stages", *BRIEF).code == Exit.HELD
    assert (folder / "entered").exists()
    (folder / "entered").unlink()
    with (folder / "shop.yaml").open("a") as file:
        file.write('simulate: {replace: {"bench_stages:price": "bench_stages:double"}}\n')
    assert surepipe("bench", "shop.yaml", "--stages", *BRIEF).code == Exit.HELD
    assert (folder / "doubled").exists()
    assert not (folder / "entered").exists()


@pytest.mark.long
def test_every_kind_of_stage_lanes_and_mutual_tls_between_nodes_are_measured(
    surepipe: Command, folder: Path
) -> None:
    """Functions and certificates that are nowhere: none is asked for."""
    (folder / "wide.yaml").write_text("""\
version: 1
name: wide
sources: {lines: {kind: http, listen: "127.0.0.1:1", key: customer, node: shop}}
pipes:
  road:
    from: each
    node: far
    route: {kind: tcp, address: "far.example:7400", tls: {cert: a.pem, key: a.key, ca: ca.pem}}
  lanes: {from: keyed, lanes: 4, payload: "nowhere:Model"}
stages:
  each: {from: lines, flat-map: "nowhere:each"}
  some: {from: road, filter: "nowhere:some"}
  keyed: {from: some, key-by: "nowhere:key"}
  few: {from: lanes, map: "nowhere:few"}
sinks: {out: {from: few, kind: http, url: "http://nowhere.example/"}}
""")
    answer = surepipe("bench", "wide.yaml", *BRIEF)
    assert answer.code == Exit.HELD, answer.err
    assert [pipe["messages"] for pipe in pipes_of(answer.json).values()] == [300, 300]


def test_over_redis_nothing_stays_on_the_server(
    surepipe: Command, durable_redis: RedisServer, folder: Path
) -> None:
    """What others have there is as before; the commands for a message are counted."""
    (folder / "stored.yaml").write_text(f"""\
version: 1
name: stored
stores: {{main: {{kind: redis, url: "{durable_redis.url}"}}}}
sources: {{lines: {{kind: jsonl, path: rows.jsonl}}}}
pipes: {{intake: {{from: lines, route: {{kind: redis, store: main}}, state: main}}}}
sinks: {{out: {{from: intake, kind: jsonl, path: out.jsonl}}}}
""")
    assert surepipe("run", "stored.yaml").code == Exit.HELD
    before = keys_of(durable_redis)
    answer = surepipe("bench", "stored.yaml", *BRIEF)
    assert answer.code == Exit.HELD, answer.err
    assert keys_of(durable_redis) == before
    store = stores_of(answer.json)["stored/main"]
    assert 0 < store["commands_per_message"] < 1
    assert store["commits"] is None


@pytest.mark.usefixtures("folder")
def test_the_table_names_each_pipe_and_store_with_its_figures(
    surepipe: Command,
) -> None:
    """As people read it."""
    answer = surepipe("bench", "shop.yaml", "--messages", 100, "--seconds", 0.5)
    lines = answer.out.splitlines()
    assert lines[0].startswith("plain loop  ")
    heads = ["pipe", "messages/s", "of loop", "under load p50 / p99", "alone p50 / p99"]
    at = next(number for number, line in enumerate(lines) if line.startswith("pipe "))
    assert re.split(r"  +", lines[at]) == heads
    pipes = lines[at + 1 : at + 3]
    assert [line.split()[0] for line in pipes] == ["shop/intake", "shop/onward"]
    assert all(" 1/" in line for line in pipes)
    assert [line.count(" ms") for line in pipes] == [2, 0]  # stored, and never accepted
    assert any(line.startswith("shop/main  sqlite  ") for line in lines[at + 3 :])


def test_what_does_not_come_through_is_waited_for_in_bounded_time_and_said(
    surepipe: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that always fails, without a limit on its retries: code 3."""
    monkeypatch.setattr(running, "DRAIN_S", 0.2)
    text = SHOP.replace(":price", ":fail").replace(", retries: 2, dead_letter: main/dead", "")
    (folder / "stuck.yaml").write_text(text)
    answer = surepipe("bench", "stuck.yaml", "--stages", "--seconds", 0.1)
    assert answer.code == Exit.NOT_EXERCISED
    assert "shop: not all that was taken came through in time" in answer.err
    assert not list(folder.rglob(f"{PREFIX}*"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("version: 1", "version: 1\nengine: spark"), "bench measures actors"),
        (("data/shop.db", "'${BENCH_NOWHERE}'"), "needs BENCH_NOWHERE, which is not set"),
        (
            ("journal: main, ", "journal: main, lanes: 4, key: n, layers: [resend], "),
            "see surepipe check",
        ),
    ],
)
def test_a_file_that_can_not_be_measured_is_refused(
    surepipe: Command, folder: Path, change: tuple[str, str], said: str
) -> None:
    """Code 2 and one line, before anything is written."""
    (folder / "other.yaml").write_text(SHOP.replace(*change))
    answer = surepipe("bench", "other.yaml")
    assert (answer.code, answer.out) == (Exit.UNUSABLE, "")
    assert said in answer.err
    assert list((folder / "data").iterdir()) == []


def test_messages_that_come_back_to_a_node_are_refused(surepipe: Command, folder: Path) -> None:
    """There and back again."""
    (folder / "circle.yaml").write_text("""\
version: 1
name: circle
sources: {lines: {kind: stdin, node: shop}}
pipes:
  there: {from: lines, node: far, route: {kind: tcp, address: "127.0.0.1:1"}}
  back: {from: there, node: shop, route: {kind: tcp, address: "127.0.0.1:2"}}
sinks: {out: {from: back, kind: stdout}}
""")
    answer = surepipe("bench", "circle.yaml")
    assert answer.code == Exit.UNUSABLE
    assert "messages come back to a node (shop and far)" in answer.err


@pytest.mark.usefixtures("folder")
def test_a_redis_for_the_built_in_set_is_asked_before_anything_is_measured(
    surepipe: Command,
) -> None:
    """One that is not there, and one beside a file."""
    assert "does not answer" in surepipe("bench", "--redis", "redis://127.0.0.1:1").err
    assert "names its own stores" in surepipe("bench", "shop.yaml", "--redis", "redis://a").err


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_bench_that_is_stopped_removes_what_it_has_written(
    folder: Path, number: signal.Signals
) -> None:
    """As soon as its store is there."""
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "surepipe",
            "bench",
            "shop.yaml",
            "--messages",
            "100000000",
            "--seconds",
            "50",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        pause = Event()
        while not list(folder.glob(f"data/{PREFIX}*/*.db")):
            assert process.poll() is None, process.communicate()
            pause.wait(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (Exit.INTERRUPTED, ""), err
    assert not list(folder.rglob(f"{PREFIX}*"))


def test_a_bench_ends_when_it_was_told_to_while_nobody_could_hear_it(folder: Path) -> None:
    """An interrupt during a callback of SQLite is lost, but noted."""
    request = bench.BenchRequest(
        None, messages=100_000_000, seconds=50, failures=[KeyboardInterrupt()]
    )
    with pytest.raises(KeyboardInterrupt):
        bench.bench_all(request)
    assert not list(folder.rglob(f"{PREFIX}*"))


@pytest.mark.usefixtures("folder")
def test_the_document_tells_the_machine_that_it_was_made_on(
    surepipe: Command,
) -> None:
    """So that figures of two machines are not compared by mistake."""
    document = surepipe("bench", "shop.yaml", "--messages", 5, "--seconds", 0.2, "--json").json
    assert {"python", "machine", "processors", "loop_per_s", "exit"} < set(document)
    assert json.dumps(document)
