"""The stream of what a queue decides: each message once, in the order of the blocks, at every node."""

from __future__ import annotations

from typing import Any, cast

import pytest

from surepipe.actors.clusters.decided import KEPT, STREAM, DecidedStream, value_of
from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import Batch, Stored, StreamInfo, Unavailable
from surepipe.queues.rmq.encoding import FIRST_POINT
from surepipe.queues.rmq.feed import AppendDecided, MissedEpoch, OpenFeed
from surepipe.storage import MemoryStore
from tests.queues.rmq.cluster_network import EpochNetwork, EpochNode
from tests.queues.rmq.log_network import MS, SECOND, KeyedHash
from tests.queues.rmq.test_epochs import network, no_beer, run_epochs, until


def stream(host: EpochNode) -> list[dict[str, Any]]:
    """All that is in the stream of a node."""
    found = host.decided_store.read(STREAM, 1, 1_000_000, 1 << 30)
    payloads = (
        [each for run in found.entries for each in run.payloads] if isinstance(found, Batch) else []
    )
    codec = AutoCodec()
    return [cast("dict[str, Any]", codec.decode(each)) for each in payloads]


def decided(rows: list[dict[str, Any]]) -> list[str]:
    """The ids of messages, without what was missed."""
    return [each["id"] for each in rows if each["outcome"] != "missed"]


def check_streams(net: EpochNetwork) -> None:
    """No message twice anywhere; of each session the messages of its blocks, in their order, and none left out."""
    order: list[list[str]] = []
    for blocks in net.finals.values():
        verdicts = [each.id for block in blocks for each in block.verdicts]
        order.append([each.hex() for each in verdicts if net.submitted[each].kind == "work"])
    for host in net.epoch_nodes:
        ids = decided(stream(host))
        assert len(set(ids)) == len(ids), f"{host.name}: twice in the stream"
        for work in order:
            mine = [each for each in ids if each in work]
            assert mine == work[: len(mine)], f"{host.name}: another order than that of the blocks"
        assert set(ids) <= {each for work in order for each in work}


def test_all_nodes_have_the_same_stream() -> None:
    """rmq RQ-43, RI-16: done and refused messages of several epochs, with what became of each."""
    net = network(function=no_beer, has_feeds=True)
    client = net.client("shop-1")
    for number in range(12):
        client.submit(b"beer" if number == 3 else b'{"n": %d}' % number, key=b"k")
        net.run(500 * MS)
    until(net, 3)
    net.run(SECOND)
    streams = [stream(host) for host in net.epoch_nodes]
    assert all(each == streams[0] for each in streams)
    assert len(decided(streams[0])) == 12
    assert [each["body"] for each in streams[0] if each["outcome"] == "refused"] == ["beer"]
    first = streams[0][0]
    assert (first["outcome"], first["body"], first["value"]) == ("done", {"n": 0}, {"n": 0})
    assert {each["epoch"] for each in streams[0]} >= {1, 2}
    check_streams(net)


def test_a_stream_that_nobody_reads_lets_go_what_is_older_than_a_week() -> None:
    """rmq RQ-76: it has no reader by its nature, and never waits for one."""
    now_us = 0
    store = MemoryStore(clock=lambda: now_us)
    decided, age_us = DecidedStream(store), KEPT.max_age_us
    assert age_us is not None
    for number in (1, 2, 3):
        decided.call(OpenFeed(b"part", 1))
        outcome = decided.call(AppendDecided(b"part", 1, number, (MissedEpoch(number),)))
        assert isinstance(outcome, Stored)
        now_us += age_us // 2 + 1
    info = store.info(STREAM)
    assert isinstance(info, StreamInfo)
    assert (info.earliest, info.next, info.readers) == (2, 4, ())


@pytest.mark.parametrize("seed", [1, 3])
def test_streams_hold_each_message_once_after_any_troubles(seed: int) -> None:
    """rmq RQ-43, RQ-76: crashes, cuts, stores that say nothing, split and merge; nobody's stream lacks a message
    but where it says so."""
    net = run_epochs(seed, 0, has_feeds=True)
    check_streams(net)
    wanted = {each.hex() for each in net.verdicts if net.submitted[each].kind == "work"}
    whole = [
        host for host in net.epoch_nodes if all(r["outcome"] != "missed" for r in stream(host))
    ]
    served = [host for host in whole if host.name in net.records[1].partitions[0].members]
    assert any(set(decided(stream(host))) == wanted for host in served)


def test_a_stream_whose_store_is_away_keeps_its_session_and_no_vote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """rmq RQ-76: it goes on where it was, when the store is back; blocks are decided meanwhile."""
    net = network(has_feeds=True)
    client = net.client("shop-1")
    host = net.epoch_nodes[0]
    is_away = True
    call = host.decided.call

    def asked(request: OpenFeed | AppendDecided) -> object:
        return Unavailable() if is_away else call(request)

    monkeypatch.setattr(host.decided, "call", asked)
    tickets = [client.submit(b"%d" % number) for number in range(5)]
    until(net, 4)
    assert host.node is not None
    assert host.node.sessions()[0].epoch == 1
    tickets.append(client.submit(b"last"))
    net.run(SECOND)
    assert all(each.outcome is not None for each in tickets)
    is_away = False
    net.run(3 * SECOND)
    assert decided(stream(host)) == decided(stream(net.epoch_nodes[1]))
    assert len(decided(stream(host))) == 6
    until(net, 6)
    assert host.node.sessions()[0].epoch >= 4


def test_who_comes_later_says_what_is_missing() -> None:
    """rmq RQ-71: no hole in the stream is silent."""
    net = network(spares=1, has_feeds=True)
    client = net.client("shop-1")
    client.submit(b"first")
    client.plan(
        ("add_node", "n5", KeyedHash("n5").public, ""),
        ("members", FIRST_POINT, ("n5", "n2", "n3", "n4")),
    )
    until(net, 2)
    client.submit(b"second")
    net.run(2 * SECOND)
    new, left = net.epoch_nodes[4], net.epoch_nodes[0]
    rows = stream(new)
    assert [(each["outcome"], each["epoch"], each.get("body")) for each in rows] == [
        ("missed", 1, None),
        ("done", 2, "second"),
    ]
    assert [each["body"] for each in stream(left)] == ["first"]
    new.crash()
    new.start()
    net.run(SECOND)
    assert stream(new) == rows


def test_bytes_are_told_as_readers_like_them() -> None:
    """JSON objects and lists, text, and all else."""
    assert value_of(b'{"a": [1]}') == {"a": [1]}
    assert value_of(b"12") == "12"
    assert value_of(b"{no json") == "{no json"
    assert value_of(b"[NaN]") == "[NaN]"
    assert value_of(b"\xff\x00") == {"base64": "/wA="}
