"""``surepipe plan``: a queue changes its nodes and settings, by commands, while it runs over TCP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surepipe.actors.clusters import Cluster
from surepipe.cli.app import run
from surepipe.pipelines.clusters import ClusterFile
from surepipe.queues.rmq import Done, Job, QueueSettings
from tests.real.nodes import free_port

WAIT_S = 60.0
NAMES = ("n1", "n2", "n3", "n4")
QUICK = QueueSettings(
    slot_timeout_us=300_000, epoch_length_ms=3_000, ttl_max_ms=3_000, clock_skew_ms=300
)


def echo(message: Job, context: object) -> Done:
    """Its body."""
    del context
    return Done(message.body)


@pytest.fixture
def port() -> int:
    """The first of five."""
    return free_port(5)


@pytest.fixture
def file(tmp_path: Path, port: int) -> ClusterFile:
    """A queue of short epochs."""
    addresses = {name: f"127.0.0.1:{port + at}" for at, name in enumerate(NAMES)}
    return ClusterFile.new(tmp_path / "cluster.yaml", "orders", addresses, settings=QUICK)


@pytest.fixture
def cluster(file: ClusterFile) -> Iterator[Cluster]:
    """Its nodes."""
    with file.open(*NAMES, process=echo) as found:
        found.client("first").submit(b"1", ttl_s=3).result(timeout_s=WAIT_S)
        yield found


@pytest.mark.long
def test_a_node_comes_and_another_one_goes(
    cluster: Cluster, file: ClusterFile, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """rmq RQ-9, RQ-96: n5 takes the place of n4, and is needed when n1 is killed; who submits finds it."""
    address, path = f"127.0.0.1:{port + 4}", str(file.path)
    assert run(["plan", "add", path, "n5", address]) == 0
    assert f"surepipe node {path} --name n5 --listen {address}" in capsys.readouterr().out
    assert run(["plan", "members", path, "n1", "n2", "n3", "n5"]) == 0
    assert "holds from the next one on" in capsys.readouterr().out
    with file.open("n5", process=echo, joining={"n5": address}) as other, file.connect() as asking:
        client = asking.client("shop-1")
        heard: set[str] = set()
        for _ in range(100):
            ticket = client.submit(b"2", ttl_s=3)
            ticket.result(timeout_s=WAIT_S)
            heard = {each.node for each in ticket.history()}
            if "n5" in heard:
                break
        assert "n5" in heard
        cluster.kill("n1")
        submitted = (client.submit(b"3", ttl_s=3) for _ in range(20))  # some may expire
        assert any(each.result(timeout_s=WAIT_S).kind == "finalized" for each in submitted)
        assert other.seen("n5").epoch >= 2
        assert run(["plan", "remove", path, "n4"]) == 0
        assert run(["plan", "remove", path, "n3"]) == 1
        assert "still a member: name other members first" in capsys.readouterr().err


def test_a_plan_that_does_not_fit_is_refused(
    cluster: Cluster, file: ClusterFile, capsys: pytest.CaptureFixture[str]
) -> None:
    """rmq RQ-9, RQ-96: by the queue, which says why; or before it is asked."""
    del cluster
    path = str(file.path)
    assert run(["plan", "set", path, "batch_max", "16"]) == 0
    assert run(["plan", "split", path]) == 0
    assert run(["plan", "merge", path]) == 1
    assert run(["plan", "set", path, "batch_maxx", "16"]) == 2
    assert "batch_max" in capsys.readouterr().err
    assert run(["plan", "split", path, "--part", "12"]) == 2
    assert "write 16 digits" in capsys.readouterr().err
    assert run(["plan", "add", path, "n5", "nowhere"]) == 2
    (file.path.parent / "admin.key").unlink()
    assert run(["plan", "merge", path]) == 2
    assert "admin.key isn't there" in capsys.readouterr().err
