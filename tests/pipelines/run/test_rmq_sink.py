"""A replicated queue as a sink: each message is decided there once, and what it refuses fails here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from surepipe.actors.clusters import Cluster
from surepipe.pipelines.assessing import assess
from surepipe.pipelines.clusters import ClusterFile
from surepipe.pipelines.models.stages import RmqSink
from surepipe.pipelines.sinks.others import Submitting
from surepipe.pipelines.stages import About
from surepipe.queues.rmq import Done, Job, QueueSettings, Refuse
from tests.pipelines.run.kit import DONE_S, plan_of, read_lines, run, write_lines
from tests.real.nodes import free_port

pytestmark = pytest.mark.usefixtures("folder")
SINK = (
    "out: {from: lines-in, kind: rmq, cluster: q/cluster.yaml, retries: 1, dead_letter: main/dead}"
)
TEXT = f"""\
sources: {{lines: {{kind: jsonl, path: in.jsonl, key: n}}}}
pipes: {{lines-in: {{from: lines, lanes: 8}}}}
sinks: {{{SINK}}}
"""
NAMES = ("n1", "n2", "n3", "n4")


def odd_is_refused(message: Job, context: object) -> Done | Refuse:
    """Some are refused by all nodes."""
    del context
    return Refuse("thirteen") if json.loads(message.body)["n"] == 13 else Done(message.body)


@pytest.fixture
def file() -> ClusterFile:
    """A file of a queue."""
    port = free_port()
    addresses = {name: f"127.0.0.1:{port + at}" for at, name in enumerate(NAMES)}
    quick = QueueSettings(slot_timeout_us=300_000)
    return ClusterFile.new(Path("q") / "cluster.yaml", "orders", addresses, settings=quick)


@pytest.fixture
def cluster(file: ClusterFile) -> Iterator[Cluster]:
    """Its nodes, which run here and speak over TCP."""
    with file.open(*NAMES, process=odd_is_refused) as found:
        yield found


def done(cluster: Cluster) -> list[bytes]:
    """The results in the chain of a node, in its order."""
    return [v.result for block in cluster.chain("n1") for v in block.verdicts if v.kind == "done"]


def test_each_message_of_a_pipeline_is_decided_once(cluster: Cluster) -> None:
    """rmq RQ-95: as a sink, with one of four nodes away."""
    wanted = [{"n": number} for number in range(12)]
    write_lines("in.jsonl", wanted)
    cluster.kill("n4")
    counted = run(plan_of(TEXT))
    assert counted["lines-in"]["settled"] == 12
    assert sorted((json.loads(each) for each in done(cluster)), key=lambda one: one["n"]) == wanted


def test_what_the_queue_refuses_is_a_dead_letter(cluster: Cluster) -> None:
    """rmq RQ-95: the others are decided meanwhile."""
    write_lines("in.jsonl", [{"n": number} for number in (12, 13, 14)])
    counted = run(plan_of(TEXT))
    assert counted["lines-in"]["dead_lettered"] == 1
    assert sorted(json.loads(each)["n"] for each in done(cluster)) == [12, 14]


def test_a_repeat_is_the_same_work(cluster: Cluster, file: ClusterFile) -> None:
    """rmq RQ-95: ``dedupe`` is the message's identity; a pipeline of another name has other identities."""
    part = RmqSink.model_validate({"from": ["a"], "kind": "rmq", "cluster": "q/cluster.yaml"})
    for plan in ("shop", "shop", "other"):
        sink = Submitting(file.connect(), plan, part.model_copy(update={"name": "out"}))
        sink.put({"n": 1}, About("a", 7, 1), None)
        sink.close()
    assert len(done(cluster)) == 2


def test_a_check_says_what_it_rests_on() -> None:
    """rmq RQ-3: with and without the file."""
    plan = plan_of(TEXT)

    def said() -> str:
        return " ".join(each for each in assess(plan).notes if "sink out rests on" in each)

    assert "which isn't there yet: surepipe node new writes it" in said()
    addresses = {name: f"127.0.0.1:{at + 1}" for at, name in enumerate(NAMES)}
    ClusterFile.new(Path("q") / "cluster.yaml", "orders", addresses)
    assert "at most 1 of 4 nodes lie" in said()
    assert "3 of 4 that don't lie are up, their clocks within 2 s" in said()
    assert "a message that it refuses fails here" in said()


READING = """\
sources: {decided: {kind: stream, store: n1, stream: decided}}
pipes: {booking: {from: decided, journal: main, state: main, boundary: committed}}
sinks: {booked: {from: booking, kind: jsonl, path: booked.jsonl}}
"""
STORES = """\
stores:
  main: {kind: sqlite, path: books.db}
  n1: {kind: sqlite, path: q/n1-decided.db}
"""


def test_what_is_decided_goes_through_a_pipeline_once(file: ClusterFile) -> None:
    """rmq RQ-43, RQ-95: from one pipeline into the queue, and out of it by another, which is run again and again
    while the node whose stream it reads is killed."""
    text = file.path.read_text()
    file.path.write_text(text.replace("nodes:", "decided: true\nnodes:"))
    write_lines("in.jsonl", [{"n": number} for number in range(9, 16)])
    with ClusterFile.read(file.path).open(*NAMES, process=odd_is_refused) as cluster:
        run(plan_of(TEXT))
        run(plan_of(READING, stores=STORES))
        cluster.kill("n1")
        client = cluster.client("by-hand")
        tickets = [client.submit(json.dumps({"n": number}).encode()) for number in (16, 17)]
        assert all(each.result(timeout_s=DONE_S).kind == "finalized" for each in tickets)
        cluster.start("n1")
        for _ in range(200):  # it catches up
            run(plan_of(READING, stores=STORES))
            if len(read_lines("booked.jsonl")) >= 9:
                break
    with ClusterFile.read(file.path).open(*NAMES, process=odd_is_refused):
        run(plan_of(READING, stores=STORES))
    booked = read_lines("booked.jsonl")
    refused = [each["body"]["n"] for each in booked if each["outcome"] == "refused"]
    assert refused == [13]
    values = sorted(each["value"]["n"] for each in booked if each["outcome"] == "done")
    assert values == [9, 10, 11, 12, 14, 15, 16, 17]
