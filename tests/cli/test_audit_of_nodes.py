"""``surepipe audit cluster.yaml``: the stores of four nodes with real signatures, judged by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from surepipe.audit.replicated import read_node
from surepipe.cli.app import run
from surepipe.core.store_requests import Stored
from surepipe.pipelines.clusters import ClusterFile
from surepipe.queues.rmq import Done, Job, QueueSettings
from surepipe.queues.rmq.encoding import Value, decode, encode
from surepipe.queues.rmq.receipts import Receipt
from surepipe.queues.rmq.stored_log import open_log
from surepipe.storage import SqliteStore
from tests.real.nodes import free_port

WAIT_S = 60.0
NAMES = ("n1", "n2", "n3", "n4")


def echo(message: Job, context: object) -> Done:
    """Its body."""
    del context
    return Done(message.body)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a queue whose nodes have decided some messages, and have ended."""
    port = free_port()
    addresses = {name: f"127.0.0.1:{port + at}" for at, name in enumerate(NAMES)}
    quick = QueueSettings(slot_timeout_us=300_000)
    found = ClusterFile.new(tmp_path / "cluster.yaml", "orders", addresses, settings=quick)
    with found.open(*NAMES, process=echo) as cluster:
        client = cluster.client("shop-1")
        tickets = [client.submit(b"%d" % (at // 2), dedupe=b"%d" % (at // 2)) for at in range(8)]
        kinds = [each.result(timeout_s=WAIT_S).kind for each in tickets]
    assert sorted(kinds) == ["duplicate"] * 4 + ["finalized"] * 4
    return found.path


def test_nodes_that_kept_their_word_are_held_to_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """rmq RT-51, RQ-92: 0 with all stores, in words and as JSON; nothing is written."""
    before = {path.name: path.read_bytes() for path in file.parent.glob("*.db")}
    assert run(["audit", str(file)]) == 0
    told = capsys.readouterr().out
    assert "4 finalized, 4 duplicate" in told
    assert "held: epoch 1: signed logs, proof of who signs two entries, agreement" in told
    assert run(["audit", str(file), "--json"]) == 0
    assert {each["standing"] for each in json.loads(capsys.readouterr().out)["judged"]} == {"held"}
    assert {path.name: path.read_bytes() for path in file.parent.glob("*.db")} == before


def test_a_store_that_is_away_leaves_something_open(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """rmq RT-51: 3, and which one; with its copy, named, all is known again."""
    copy = file.parent / "copy-of-n2"
    (file.parent / "n2.db").rename(copy)
    assert run(["audit", str(file)]) == 3
    assert "agreement, because the store of n2 isn't at hand" in capsys.readouterr().out
    assert run(["audit", str(file), f"n2={copy}"]) == 0
    assert run(["audit", str(file), "n2=nowhere.db"]) == 2
    assert run(["audit", str(file), str(copy)]) == 2
    assert "write NAME=STORE" in capsys.readouterr().err
    assert run(["audit", str(file), f"n2={file.parent / 'n1.db'}"]) == 2


def rewritten(file: Path, name: str, change: Callable[[Value], Value]) -> Path:
    """A copy of a node's store with other rows."""
    with SqliteStore(file.parent / f"{name}.db") as store:
        rows = read_node(store, "orders", name)
    path = file.parent / f"{name}-altered.db"
    with SqliteStore(path) as store:
        place = f"rmq/orders/{name}"
        streams = {f"{place}/epochs": [rows.epochs]}
        for (number, lo), log in rows.logs.items():
            streams[f"{place}/{number}-{lo.hex()}"] = [encode(change(decode(row))) for row in log]
        for stream, payloads in streams.items():
            open_log(store, stream, name, 1)
            assert isinstance(store.append(stream, name, 1, 1, tuple(payloads)), Stored)
    return path


def test_one_altered_row_is_found(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """rmq RT-51: 1; a receipt that says another thing than was decided."""

    def refused(row: Value) -> Value:
        match row:
            case ("receipt", str() as submitter, fields):
                told = Receipt.of(fields)
                kind = "refused" if told.kind == "finalized" else told.kind
                return ("receipt", submitter, (*told.fields[:2], kind, *told.fields[3:]))
            case _:
                return row

    same = rewritten(file, "n1", lambda row: row)
    assert run(["audit", str(file), f"n1={same}"]) == 0
    same.unlink()
    other = rewritten(file, "n1", refused)
    capsys.readouterr()
    assert run(["audit", str(file), f"n1={other}"]) == 1
    assert "broken: epoch 1: true receipts: n1 told that" in capsys.readouterr().out
