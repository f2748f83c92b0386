"""``surepipe run`` lets people look: page, metrics, spans, logs for machines; each only where it is asked for."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from surepipe.cli.output import Exit
from surepipe.observe.serving import ListenAddress, PageServer
from surepipe.observe.status import Status
from surepipe.pipelines import assess, load
from surepipe.pipelines.live import Looks, Observing
from tests.cli.kit import Command

DEADLINE_S = 60.0
FILE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: SOURCE}}
pipes: {intake: {from: lines, state: main}}
stages: {price: {from: intake, call: "shop_stages:price", retries: 1, dead_letter: main/dead}}
sinks: {out: {from: price, kind: jsonl, path: out.jsonl}}
"""
STAGES = '''\
def price(order):
    """The order with its price; 7 has none."""
    if order["n"] == 7:
        raise KeyError("no price")
    return order | {"cents": 5}
'''
EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
TRACED = """\
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from surepipe.cli.app import run
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
code = run(["run", "shop.yaml", "--otel", "2"])
print(sorted((s.name, s.attributes["surepipe.seq"]) for s in exporter.get_finished_spans()), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline that reads nine rows of a file, one of which has no price; the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text(rows(9))
    (tmp_path / "shop.yaml").write_text(FILE.replace("SOURCE", "jsonl, path: rows.jsonl"))
    (tmp_path / "shop_stages.py").write_text(STAGES)
    return tmp_path


def rows(count: int) -> str:
    """As lines."""
    return "".join(json.dumps({"n": number}) + "\n" for number in range(1, count + 1))


def test_a_run_shows_itself_while_it_runs(folder: Path) -> None:
    """Rows come from standard input, so it goes on until that ends; page, status, metrics and log are read."""
    (folder / "shop.yaml").write_text(FILE.replace("SOURCE", "stdin"))
    options = ("--web-port", "0", "--metrics", "0", "--log", "json")
    with subprocess.Popen(
        [sys.executable, "-m", "surepipe", "run", "shop.yaml", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        page, metrics = (process.stderr.readline().split()[1] for _ in range(2))
        process.stdin.write(rows(9))
        process.stdin.flush()
        status = settled(page, 9)
        counted = {part.name: part.counts for part in status.parts}
        scraped = got(metrics)
        shown = got(page)
        _, log = process.communicate(timeout=DEADLINE_S)
    assert (status.state, status.total("dead_letters")) == ("running", 1)
    assert counted["lines"] == {"taken": 9}
    assert counted["out"] == {"taken": 8}
    assert 'surepipe_settled_total{pipe="shop/intake"} 9.0' in scraped
    assert 'surepipe_settled_seconds_count{pipe="shop/intake"} 8.0' in scraped
    assert 'surepipe_part_taken_total{part="shop/out"} 8.0' in scraped
    assert "dead letters 1" in shown
    dead = [one for one in map(json.loads, log.splitlines()) if one.get("kind") == "dead"]
    assert [(one["pipe"], one["ranges"]) for one in dead] == [("shop/intake", [[7, 7]])]
    assert process.returncode == Exit.HELD


def settled(page: str, count: int) -> Status:
    """The status, once so many messages are settled."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        status = Status.model_validate_json(got(f"{page}status.json"))
        if status.total("settled") == count:
            return status
    raise AssertionError(f"not {count} settled")


def got(url: str) -> str:
    """What stands there."""
    with urlopen(url) as answer:
        text: bytes = answer.read()
    return text.decode()


@pytest.mark.parametrize("option", ["--web-port", "--metrics"])
def test_a_port_that_is_taken_stops_the_run_before_it_begins(
    surepipe: Command, folder: Path, option: str
) -> None:
    """One clear line; nothing was opened or written."""
    with PageServer({}, port=0) as other:
        answer = surepipe("run", "shop.yaml", option, other.port)
    assert answer.code == Exit.UNUSABLE
    assert f"served at 127.0.0.1:{other.port}: address already in use" in answer.err
    assert not (folder / "shop.db").exists()


def test_a_place_that_is_none_stops_the_run_before_it_begins(
    surepipe: Command, folder: Path
) -> None:
    """What was written, and what to write."""
    answer = surepipe("run", "shop.yaml", "--metrics", "everywhere")
    assert answer.code == Exit.UNUSABLE
    assert "nobody can listen at 'everywhere': write a port, or host:port" in answer.err
    assert not (folder / "shop.db").exists()


def test_page_and_metrics_are_where_they_were_asked_for_and_tell_how_far_the_run_is(
    folder: Path,
) -> None:
    """A run is starting until whoever runs it says more."""
    places = Looks(ListenAddress.read("127.0.0.2:0"), ListenAddress.read("localhost:0"))
    with Observing(assess(load(folder / "shop.yaml")), "main", dict, places) as looking:
        assert looking.urls["page"].startswith("http://127.0.0.2:")
        assert looking.urls["metrics"].startswith("http://localhost:")
        assert got(looking.urls["metrics"])
        health = f"{looking.urls['page']}health"
        assert got(health) == "starting\n"
        looking.become("running")
        assert got(health) == "running\n"


def test_spans_go_to_the_provider_that_the_process_has(folder: Path) -> None:
    """One message in two, from accepted to confirmed and from delivered to settled."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    wanted = [(f"{name} shop/intake", seq) for name in ("handle", "send") for seq in (2, 4, 6, 8)]
    assert done.stderr.splitlines()[-1] == str(wanted)


def test_without_a_place_for_spans_the_run_does_not_begin(
    surepipe: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what to install. (The module of the exporter is made one that can't be imported.)"""
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    answer = surepipe("run", "shop.yaml", "--otel", "10")
    assert answer.code == Exit.UNUSABLE
    assert "pip install opentelemetry-sdk" in answer.err
    assert not (folder / "shop.db").exists()


def test_a_run_that_nobody_asked_to_look_at_opens_no_port_and_takes_no_trace(
    surepipe: Command, folder: Path
) -> None:
    """The engine gets no trace at all, which costs nothing."""
    answer = surepipe("run", "shop.yaml")
    assert answer.code == Exit.HELD
    assert "http" not in answer.err
    assessment = assess(load(folder / "shop.yaml"))
    with Observing(assessment, "main", dict, Looks()) as nothing:
        assert nothing.trace is None
        assert nothing.urls == {}


def test_two_nodes_with_different_layers_end_as_configuration_errors_that_name_both(
    tmp_path: Path,
) -> None:
    """Two real processes over TCP, each with a file of its own: both end with 2 and say which stacks met."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n')
    processes = dict[str, subprocess.Popen[str]]()
    for node, layers in (("shop", "[dedupe, reliable]"), ("office", "[reliable]")):
        (tmp_path / f"{node}.yaml").write_text(
            "version: 1\nname: two\nsources:\n  lines: {kind: jsonl, path: in.jsonl, node: shop}\n"
            f"pipes:\n  orders: {{from: lines, node: office, layers: {layers},"
            f" route: {{kind: tcp, address: '127.0.0.1:{port}'}}}}\n"
            "sinks:\n  out: {kind: jsonl, path: out.jsonl, from: orders}\n"
        )
        command = [sys.executable, "-m", "surepipe", "run", f"{node}.yaml", "--node", node]
        processes[node] = subprocess.Popen(
            command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
    try:
        said = {node: process.communicate(timeout=120)[1] for node, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    stacks = {"shop": "dedupe > reliable, payloads auto", "office": "reliable, payloads auto"}
    for node, other in (("shop", "office"), ("office", "shop")):
        assert processes[node].returncode == Exit.UNUSABLE, said[node]
        assert f"this end has {stacks[node]}; the other end has {stacks[other]}." in said[node]
        assert "Mismatch" in said[node]
        assert "Fenced" not in said[node]


def test_a_process_whose_node_was_started_again_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    """Two real processes of one node: the older is fenced and ends with 5."""
    (tmp_path / "endless.py").write_text(
        "import time\n\n\ndef ticks():\n    while True:\n        time.sleep(0.01)\n        yield 1\n"
    )
    (tmp_path / "p.yaml").write_text(
        "version: 1\nname: two\nstores:\n  s: {kind: sqlite, path: two.db}\n"
        "sources:\n  tick: {kind: python, call: 'endless:ticks', repeatable: false}\n"
        "pipes:\n  orders: {from: tick, route: {kind: sqlite, store: s},"
        " layers: [{stream: {start: earliest}}], journal: s, boundary: committed}\n"
        "sinks:\n  out: {kind: jsonl, path: out.jsonl, from: orders}\n"
    )
    command = [sys.executable, "-m", "surepipe", "run", "p.yaml"]
    older = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert older.stderr
    while not (tmp_path / "out.jsonl").exists():
        assert older.poll() is None
    newer = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        _, said = older.communicate(timeout=60)
        assert older.returncode == Exit.REPLACED, said
        assert "another process of this node has taken over" in said
    finally:
        for process in (older, newer):
            process.kill()
            process.wait()
        older.stderr.close()
