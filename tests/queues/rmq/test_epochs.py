"""A queue through many epochs: what one session hands to the next, who comes and goes, and what is forgotten."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from surepipe.core.effects import Addressed, NoticeKind
from surepipe.core.store_requests import NoStream
from surepipe.errors import ConfigurationError
from surepipe.queues.rmq.client import Submitted
from surepipe.queues.rmq.encoding import FIRST_POINT, encode, point
from surepipe.queues.rmq.epochs import EpochChain, ProvenRecord, QueueSettings
from surepipe.queues.rmq.session import Job, Later, Outcome, Refuse
from surepipe.storage import MemoryStore
from tests.queues.rmq.cluster_network import (
    ADMIN,
    EpochNetwork,
    EpochNode,
    Function,
    LastingGuard,
    echo,
)
from tests.queues.rmq.log_network import MS, SECOND, KeyedHash, Party

SHORT = QueueSettings(
    slot_timeout_us=200 * MS,
    slot_timeout_max_us=2 * SECOND,
    batch_max=8,
    epoch_length_ms=3_000,
    ttl_max_ms=3_000,
    clock_skew_ms=300,
    stagger_us=100 * MS,
)
HALF = b"\x80" + bytes(7)


def network(n: int = 4, seed: int = 1, **more: object) -> EpochNetwork:
    """All of its nodes are there."""
    net = EpochNetwork(n, seed, **{"settings": SHORT, **more})  # type: ignore[arg-type]
    net.start()
    net.run(SECOND)
    return net


def kinds(tickets: list[Submitted]) -> Counter[str]:
    """How many ended how."""
    return Counter(each.outcome.kind if each.outcome else "open" for each in tickets)


def until(net: EpochNetwork, number: int, for_us: int = 60 * SECOND) -> None:
    """Let time pass until all nodes know this epoch."""
    end = net.now + for_us
    while any(each.record.number < number for each in net.all_nodes().values()):
        assert net.now < end, f"epoch {number} did not come"
        net.run(100 * MS)


def never_before(epoch: int) -> Function:
    """A function that puts every message off until an epoch."""

    def process(job: Job, node: EpochNode) -> Outcome:
        assert node.node is not None
        return echo(job, node) if node.node.record.number >= epoch else Later(200 * MS)

    return process


def test_sessions_follow_each_other_and_are_forgotten() -> None:
    """rmq RQ-7, RQ-8, RQ-37, RT-2: a seal an epoch, each message once; two sessions are kept, in the store too."""
    net = network()
    client = net.client("shop-1")
    tickets: list[Submitted] = []
    for number in range(24):
        tickets.append(client.submit(b"%d" % number))
        net.run(500 * MS)
    until(net, 5)
    net.run(2 * SECOND)
    assert kinds(tickets) == {"finalized": 24}
    net.check_clients()
    for host in net.epoch_nodes:
        assert host.node is not None
        assert len(host.node.sessions()) <= 2
        assert len(host.memory.signed) <= 3
        newest = host.node.record.number
        for number in range(1, newest - 1):
            stream = f"rmq/orders/{host.name}/{number}-{FIRST_POINT.hex()}"
            assert isinstance(host.store.info(stream), NoStream), f"{stream} is still there"


def test_an_idle_queue_has_one_seal_an_epoch() -> None:
    """rmq RT-29: between seals nothing but heads is sent."""
    net = network(seed=3)
    client = net.client("shop-1")
    client.submit(b"first")
    until(net, 3)
    client.machine.close(net.now)
    net.run(1500 * MS)
    net.is_quiet = True
    net.run(SECOND)
    assert net.is_quiet
    sealed = [each for each in net.epoch_nodes[0].notices if each.kind is NoticeKind.SEALED]
    assert len(sealed) == 2


def test_work_of_the_epoch_before_is_not_done_again() -> None:
    """rmq RQ-13, RT-2, RT-13: its id and its dedupe key are remembered in the next epoch, with the result."""
    net = network()
    client = net.client("shop-1")
    first = client.submit(b"tea", key=b"k", dedupe=b"order-17")
    net.run(SECOND)
    assert first.outcome is not None
    until(net, 2)
    net.run(200 * MS)
    again = client.submit(b"tea", key=b"k", dedupe=b"order-17")
    data = encode(("submit", "orders", first.header.fields, first.body))
    for name in net.names:
        net.send(client, name, data)
    net.run(2 * SECOND)
    assert again.outcome is not None
    assert (again.outcome.kind, again.outcome.value, again.outcome.epoch) == (
        "duplicate",
        b"tea",
        1,
    )
    assert net.verdicts[first.id][1] == "done"
    assert again.id not in net.verdicts


def test_what_a_seal_leaves_is_decided_in_the_next_epoch() -> None:
    """rmq RQ-31, RQ-34, handed over once where all ranks are up, unchanged; the client sees one outcome."""
    net = network(function=never_before(2))
    client = net.client("shop-1")
    net.run(200 * MS)
    client.submit(b"early", ttl_ms=500)
    net.run(1500 * MS)
    tickets = [client.submit(b"%d" % number, ttl_ms=3_000) for number in range(6)]
    until(net, 2)
    net.run(4 * SECOND)
    assert kinds(tickets) == {"finalized": 6}
    handed = sum(each.counters().get("handed_over", 0) for each in net.all_nodes().values())
    assert handed == 6
    assert all(net.epoch_of[net.verdicts[each.id][0]] == 2 for each in tickets)
    assert all(each.header.epoch == 1 for each in tickets)


@pytest.mark.parametrize("down", ["n1", "n2", "n3", "n4"])
def test_a_message_is_handed_over_though_one_who_has_it_is_down(down: str) -> None:
    """rmq RQ-34: the next in rank does it, and the body is found."""
    longer = replace(SHORT, epoch_length_ms=5_000, ttl_max_ms=5_000)
    net = network(function=never_before(2), settings=longer)
    client = net.client("shop-1")
    client.submit(b"early", ttl_ms=500)
    net.run(3500 * MS)
    tickets = [client.submit(b"%d" % number, ttl_ms=5_000) for number in range(4)]
    net.run(300 * MS)
    next(each for each in net.epoch_nodes if each.name == down).crash()
    net.run(6 * SECOND)
    assert kinds(tickets) == {"finalized": 4}
    assert {net.epoch_of[net.verdicts[each.id][0]] for each in tickets} == {2}


def test_what_nobody_processes_expires_once() -> None:
    """rmq RQ-36, RT-4, RT-6: over the hand-over; nothing of it is left two epochs later."""
    net = network(function=never_before(99))
    client = net.client("shop-1")
    net.run(1500 * MS)
    ticket = client.submit(b"never", ttl_ms=3_000)
    until(net, 4)
    assert ticket.outcome is not None
    assert ticket.outcome.kind == "expired"
    for node in net.all_nodes().values():
        assert node.status(ticket.id) == "unknown"


def test_members_are_replaced_by_a_plan() -> None:
    """rmq RQ-9, RQ-40, RT-7: from the next epoch on; clients find the new ones, and what was decided is known."""
    net = network(spares=1)
    client = net.client("shop-1")
    first = client.submit(b"tea", key=b"k", dedupe=b"order-17")
    plan = client.plan(
        ("add_node", "n5", KeyedHash("n5").public, "10.0.0.5:7101"),
        ("members", FIRST_POINT, ("n5", "n2", "n3")),
    )
    until(net, 2)
    net.run(SECOND)
    assert plan.outcome is not None
    assert plan.outcome.kind == "finalized"
    again = client.submit(b"tea", key=b"k", dedupe=b"order-17")
    more = [client.submit(b"%d" % number) for number in range(4)]
    net.run(2 * SECOND)
    assert first.outcome is not None
    assert again.outcome is not None
    assert again.outcome.kind == "duplicate"
    assert kinds(more) == {"finalized": 4}
    assert net.records[2].lead.members == ("n5", "n2", "n3")
    until(net, 4)
    session = net.all_nodes()["n5"].sessions()[-1]
    assert session.log.members == ("n5", "n2", "n3")


@pytest.mark.parametrize(
    ("operations", "by", "reason"),
    [
        ((("split", FIRST_POINT),), KeyedHash("stranger"), "not signed by an admin"),
        ((("split", HALF),), ADMIN, "no partition begins at 80"),
        ((("merge", FIRST_POINT),), ADMIN, "nothing lies to the right"),
        ((("members", FIRST_POINT, ("n9",)),), ADMIN, "are no nodes"),
        ((("members", FIRST_POINT, ()),), ADMIN, "0 members"),
        ((("remove_node", "n1"),), ADMIN, "name other members first"),
        ((("config", "slot", 1),), ADMIN, "there is no setting 'slot'"),
        ((("config", "dedupe_epochs", 1),), ADMIN, "dedupe_epochs 1 is below 2"),
        ((("split", FIRST_POINT), ("split", FIRST_POINT)), ADMIN, "split or merged already"),
    ],
)
def test_a_plan_that_can_not_be_followed_is_refused(
    operations: tuple[tuple[object, ...], ...], by: KeyedHash, reason: str
) -> None:
    """rmq RQ-9: by all nodes, with the reason; the next epoch is as this one."""
    net = network()
    client = net.client("shop-1")
    plan = client.plan(*operations, by=by)  # type: ignore[arg-type]
    until(net, 2)
    net.run(SECOND)
    assert plan.outcome is not None
    assert plan.outcome.kind == "refused"
    assert reason in plan.outcome.reason
    assert net.records[2].partitions == net.records[1].partitions
    assert net.records[2].settings == net.records[1].settings


def test_a_partition_is_split_and_merged_again() -> None:
    """rmq RQ-31, RT-7, RT-13, RT-32: each message in the heir that owns its key; what was done is known there."""
    net = network(settings=SHORT)
    client = net.client("shop-1")
    tickets: list[Submitted] = []
    done = [client.submit(b"%d" % at, key=b"%d" % at, dedupe=b"x") for at in range(12)]
    plans = [client.plan(("split", FIRST_POINT))]
    until(net, 2)
    net.run(500 * MS)
    assert [each.lo for each in net.records[2].partitions] == [FIRST_POINT, HALF]
    again = [client.submit(b"%d" % at, key=b"%d" % at, dedupe=b"x") for at in range(12)]
    tickets += [client.submit(b"a %d" % number) for number in range(12)]
    net.run(SECOND)
    plans.append(client.plan(("merge", FIRST_POINT)))
    until(net, 3)
    net.run(2 * SECOND)
    tickets += [client.submit(b"b %d" % number) for number in range(12)]
    net.run(2 * SECOND)
    assert kinds(done) == {"finalized": 12}
    assert kinds(again) == {"duplicate": 12}
    assert kinds(tickets) == {"finalized": 24}
    assert kinds(plans) == {"finalized": 2}
    assert len(net.records[3].partitions) == 1
    for ticket in tickets:
        session, _ = net.verdicts[ticket.id]
        found = net.records[net.epoch_of[session]]
        assert session == found.session(found.owner(point(ticket.header.key)).lo)
    net.check_clients()


def sealed_parts(net: EpochNetwork, epoch: int) -> list[set[bytes]]:
    """Where the sealed parts of an epoch begin, by node."""
    return [
        {each.partition.lo for each in node.sessions() if each.epoch == epoch and each.seal}
        for node in net.all_nodes().values()
    ]


def test_what_two_parts_leave_that_merge_is_handed_over() -> None:
    """rmq RQ-31: 1. The lead's seal is final, and that of the other part isn't before an outage. 2. Until then the
    log behind both isn't open. 3. All who held what the lead left took it for settled, and it was lost."""
    net = network(function=never_before(3))
    client = net.client("shop-1")
    client.plan(("split", FIRST_POINT))
    until(net, 2)
    net.run(200 * MS)
    client.plan(("merge", FIRST_POINT))
    net.run(1200 * MS)
    tickets = [client.submit(b"%d" % number, ttl_ms=3_000) for number in range(12)]
    while not all(FIRST_POINT in each for each in sealed_parts(net, 2)):
        net.run(MS)
    assert all(HALF not in each for each in sealed_parts(net, 2))
    net.groups = [{name} for name in net.names]
    net.run(600 * MS)
    net.groups = []
    net.run(4 * SECOND)
    assert kinds(tickets) == {"finalized": 12}
    assert {net.epoch_of[net.verdicts[each.id][0]] for each in tickets} == {3}
    assert {each.header.epoch for each in tickets} == {2}


def test_parts_of_the_keys_end_one_after_the_other() -> None:
    """rmq CC-16, RQ-37: the guard forgets an epoch when all of its sessions are over, and then all of them."""
    net = network()
    client = net.client("shop-1")
    net.run(200 * MS)
    client.plan(("split", FIRST_POINT))
    until(net, 5)
    net.run(2 * SECOND)
    assert all(len(host.memory.signed) <= 6 for host in net.epoch_nodes)
    ticket = client.submit(b"still here")
    net.run(SECOND)
    assert ticket.outcome is not None


def test_partitions_of_different_nodes_merge() -> None:
    """rmq RQ-6, RQ-11, RT-26: who was in one of them only learns from the others how theirs ended."""
    names = ("n1", "n2", "n3", "n4"), ("n5", "n6", "n7", "n8")
    net = network(8, partitions=names)
    client = net.client("shop-1")
    done = [client.submit(b"%d" % at, key=b"%d" % at, dedupe=b"x") for at in range(8)]
    plan = client.plan(("merge", FIRST_POINT))
    until(net, 2)
    net.run(2 * SECOND)
    again = [client.submit(b"%d" % at, key=b"%d" % at, dedupe=b"x") for at in range(8)]
    net.run(2 * SECOND)
    assert plan.outcome is not None
    assert plan.outcome.kind == "finalized"
    assert kinds(done) == {"finalized": 8}
    assert kinds(again) == {"duplicate": 8}
    assert len(net.records[2].lead.members) == 8


def test_a_node_that_was_away_for_epochs_takes_part_again() -> None:
    """rmq RQ-10, RQ-71: it learns the newest record by its proof, and what to remember; it says what it missed."""
    net = network()
    client = net.client("shop-1")
    client.submit(b"first")
    net.run(500 * MS)
    away = net.epoch_nodes[3]
    away.crash()
    until(net, 6)
    done = client.submit(b"tea", key=b"k", dedupe=b"x")
    net.run(SECOND)
    assert done.outcome is not None
    away.start()
    until(net, 8)
    net.run(2 * SECOND)
    assert [each.kind for each in away.notices].count(NoticeKind.MISSED) == 1
    net.epoch_nodes[0].crash()
    ticket = client.submit(b"needed")  # three of four: the one that was away is needed
    net.run(3 * SECOND)
    assert ticket.outcome is not None
    assert ticket.outcome.kind == "finalized"


def seal_in_the_air(net: EpochNetwork) -> None:
    """Let time pass until a seal is approved at some node and final at none, and part all nodes."""

    def is_there() -> bool:
        for node in net.all_nodes().values():
            for each in node.sessions():
                found = [each.chain.blocks.get(key) for key in each.chain.certified.values()]
                if each.seal is None and any(block and block.record for block in found):
                    return True
        return False

    while not is_there():
        net.run(MS)
    net.groups = [{name} for name in net.names]


def test_what_was_taken_in_while_a_seal_was_in_the_air_is_handed_over() -> None:
    """rmq RQ-8, RQ-31: the outage is longer than an epoch; counted from the seal's time, the next one would have
    been over before it began."""
    net = network()
    client = net.client("shop-1")
    client.submit(b"first")
    seal_in_the_air(net)
    net.run(2_500 * MS)
    tickets = [client.submit(b"%d" % number) for number in range(5)]
    net.run(1_500 * MS)
    assert all(each.heard and each.outcome is None for each in tickets)
    net.groups = []
    net.run(4 * SECOND)
    assert kinds(tickets) == {"finalized": 5}


def test_a_plan_is_followed_once_though_its_key_belongs_to_another_part() -> None:
    """rmq RQ-9, RQ-13: the lead decides it, so a newcomer to the lead of the next epoch remembers it."""
    net = network(spares=1)
    client = net.client("shop-1")
    client.plan(("split", FIRST_POINT))
    until(net, 2)
    net.run(200 * MS)
    plan = client.plan(
        ("add_node", "n5", KeyedHash("n5").public, ""),
        ("members", FIRST_POINT, ("n1", "n2", "n3", "n5")),
    )
    net.run(SECOND)
    assert kinds([plan]) == {"finalized": 1}
    until(net, 3)
    net.run(500 * MS)
    net.send(client, "n5", encode(("submit", "orders", plan.header.fields, plan.body)))
    net.run(SECOND)  # the network compares all verdicts
    new = net.epoch_nodes[4]
    assert new.node is not None
    assert new.node.status(plan.id) == "finalized"


def test_a_node_that_begins_again_tells_no_end_twice() -> None:
    """rmq RQ-38: nor one that follows from what was decided in the epoch before."""
    net = network()
    client = net.client("shop-1")
    client.submit(b"tea", key=b"k", dedupe=b"order-17")
    until(net, 2)
    net.run(200 * MS)
    again = client.submit(b"tea", key=b"k", dedupe=b"order-17")
    net.run(SECOND)
    assert kinds([again]) == {"duplicate": 1}
    host = net.epoch_nodes[0]
    host.crash()
    host.start()
    net.run(200 * MS)
    assert host.node is not None
    told = [
        each.kind for each in host.node.receipts.by_submitter()["shop-1"] if each.id == again.id
    ]
    assert told.count("duplicate") == 1


def test_a_message_that_had_expired_is_no_duplicate_in_the_next_epoch() -> None:
    """rmq RQ-18, RQ-36: 1. It expires, and then other work of its key is done. 2. A liar hands it over. 3. Who
    hears of it there looks at what was done, and would call it a duplicate; others had told that it expired."""

    def not_slow(job: Job, node: EpochNode) -> Outcome:
        return Later(50 * MS) if job.body == b"slow" else echo(job, node)

    net = network(function=not_slow)
    client = net.client("shop-1")
    net.run(200 * MS)
    slow = client.submit(b"slow", key=b"k", dedupe=b"x", ttl_ms=400)
    net.run(500 * MS)
    done = client.submit(b"quick", key=b"k", dedupe=b"x")
    net.run(SECOND)
    assert (kinds([slow]), kinds([done])) == ({"expired": 1}, {"finalized": 1})
    until(net, 2)
    net.run(100 * MS)
    node = net.all_nodes()["n1"]
    (before, now) = node.sessions()
    assert now.log.append(("handed_over", slow.header.fields, before.log.session), net.now)
    net.run(SECOND)
    for host in net.epoch_nodes:
        assert host.node is not None
        assert host.node.sessions()[-1].status(slow.id) == "expired"
        told = [each.kind for each in host.node.receipts.by_submitter()["shop-1"]]
        assert told.count("expired") == 1


def test_who_was_caught_in_one_epoch_stays_so_in_the_next_ones() -> None:
    """rmq CC-13, RQ-25: also over restarts, and for who was away meanwhile; until he has another key. Nobody waits
    for his turns, and messages are decided."""
    net = network(twins=("n4",), spares=1)
    client = net.client("shop-1")
    away = net.epoch_nodes[2]
    members = net.names[:3]
    while not all("n4" in net.all_nodes()[name].blamed() for name in members):
        client.submit(b"%d" % net.now)
        net.run(200 * MS)
        net.redraw()
        assert net.now < 20 * SECOND
    twin = net.nodes.pop()  # from here on it is one process, as any other
    net.twins = ()
    assert isinstance(twin, EpochNode)
    twin.crash()
    until(net, max(net.records) + 1)
    away.crash()
    away.store, away.memory = MemoryStore(), LastingGuard()
    until(net, max(net.records) + 2)
    away.start()
    until(net, max(net.records) + 2)
    for host in net.epoch_nodes[:3]:
        host.crash()
        host.start()
        net.run(100 * MS)
        assert host.node is not None
        assert "n4" in host.node.blamed(), host.name
        assert all(not each.log.blamed for each in host.node.sessions())
    net.run(SECOND)
    begin = max(net.records)
    tickets = [client.submit(b"later %d" % number) for number in range(8)]
    net.run(2 * SECOND)
    assert kinds(tickets) == {"finalized": 8}
    late = [b for s, blocks in net.finals.items() if net.epoch_of[s] >= begin for b in blocks]
    assert {each.collator for each in late} <= {"n1", "n2", "n3"}
    client.plan(
        ("add_node", "n5", KeyedHash("n5").public, ""),
        ("members", FIRST_POINT, ("n1", "n2", "n3", "n5")),
        ("remove_node", "n4"),
    )
    until(net, begin + 2)
    net.run(SECOND)
    assert all(not node.blamed() for node in net.all_nodes().values())


def test_a_client_that_was_away_for_epochs_goes_on() -> None:
    """rmq RQ-10, RQ-40: it follows the proofs from the record that it knows."""
    net = network()
    early = net.client("shop-1")
    early.submit(b"first")
    until(net, 6)
    client = net.client("shop-2")
    net.run(200 * MS)
    assert client.machine.is_oriented(net.now)
    ticket = client.submit(b"late")
    net.run(2 * SECOND)
    assert ticket.header.epoch >= 6
    assert ticket.outcome is not None
    assert ticket.outcome.kind == "finalized"


def test_a_record_that_nobody_sealed_is_not_believed() -> None:
    """rmq RQ-10: nor one with the votes of too few, nor one that is altered."""
    net = network()
    net.client("shop-1").submit(b"first")
    until(net, 3)
    node = next(iter(net.all_nodes().values()))
    chain = EpochChain(net.foundation.record, KeyedHash("x"))
    good = node.epochs.after(1)
    first = ProvenRecord.of(good[0])
    for cut in (1, 2):
        fewer = replace(first, proof=replace(first.proof, votes=first.proof.votes[cut:]))
        assert not chain.learn([fewer.fields])
    renamed = replace(first, record=replace(first.record, admins=(KeyedHash("liar").public,)))
    assert not chain.learn([renamed.fields])
    assert chain.newest.number == 1
    assert chain.learn(good)
    assert chain.newest.number == node.record.number


def test_a_memory_that_no_seal_names_is_not_believed() -> None:
    """rmq RQ-70: newcomers take what a quorum has sealed, from whoever gives it."""
    net = network(spares=1)
    client = net.client("shop-1")
    client.submit(b"tea", key=b"k", dedupe=b"x")
    client.plan(
        ("add_node", "n5", KeyedHash("n5").public, ""),
        ("members", FIRST_POINT, ("n5", "n2", "n3", "n4")),
    )
    meets = net.meets
    net.meets = lambda one, other: "n5" not in (one.name, other.name) and meets(one, other)  # type: ignore[method-assign]
    until_known = net.epoch_nodes[0]
    while until_known.node is not None and until_known.node.record.number < 2:
        net.run(100 * MS)
    net.meets = meets  # type: ignore[method-assign]
    new, old = net.epoch_nodes[4], net.epoch_nodes[1]
    asked = net.records[1].session()

    def lied(peer: str, data: bytes) -> None:
        new.tell(lambda node: node.frame(Addressed(peer, data), net.now, new.wall_ms))

    assert old.node is not None
    sealed = old.node.sessions()[0]
    proof = sealed.seal_proof()
    assert proof is not None
    while new.node is not None and not new.node.sessions():
        net.run(5 * MS)
    assert new.node is not None
    lied("n2", encode(("memory", asked, (bytes(32),), 0, b"", proof.fields)))
    net.run(3 * SECOND)
    assert client.machine is not None
    (first, *_) = new.node.sessions()
    assert first.is_active


def test_a_client_that_ends_goes_on_with_its_journal() -> None:
    """rmq RQ-81: nothing is sent before it is stored; what has ended isn't submitted again."""
    net = network(seed=5)
    client = net.client("shop-1")
    net.run(200 * MS)
    done = client.submit(b"done")
    net.run(SECOND)
    assert done.outcome is not None
    client.submit(b"lost")
    client.restart()  # before it was stored
    net.run(SECOND)
    assert client.machine.tickets == {}
    placed = client.submit(b"placed")
    net.run(30 * MS)
    client.restart()
    (ticket,) = client.machine.tickets.values()
    assert ticket.id == placed.id
    net.run(2 * SECOND)
    assert ticket.outcome is not None
    assert ticket.outcome.kind == "finalized"
    client.restart()
    assert client.machine.tickets == {}
    assert {each.submitter for each in net.submitted.values()} == {"shop-1"}
    assert len(net.verdicts) == 2


def run_change(name: str, at: int, *, lost: int | None = None) -> tuple[int, int]:
    """Three nodes change from one epoch to the next, two messages are handed over, and a node ends at one event of
    that and begins again, or one frame of it is lost. Give the number of events and of frames; everything is
    checked."""
    net = EpochNetwork(3, 1, settings=SHORT, function=never_before(2), faults="crash")
    net.start()
    net.run(SECOND)
    client = net.client("shop-1")
    client.submit(b"early", ttl_ms=500)
    net.run(2400 * MS)
    tickets = [client.submit(b"%d" % number, ttl_ms=3_000) for number in range(2)]
    net.run(300 * MS)
    events = frames = 0
    carry = net.send

    def send(node: Party, peer: str, data: bytes) -> None:
        nonlocal frames
        if frames != lost:
            carry(node, peer, data)
        frames += 1

    def crash() -> None:
        nonlocal events
        host = next((each for each in net.epoch_nodes if each.name == name), None)
        if events == at and host is not None:
            host.crash()
            net.after(150 * MS, host.start_if_down)
        events += 1

    net.send = send  # type: ignore[method-assign]
    net.run(1500 * MS, crash)
    counted = events, frames
    net.run(4 * SECOND)
    net.check_clients()
    assert set(kinds(tickets)) <= {"finalized"}, (name, at, lost, kinds(tickets))
    return counted


@pytest.mark.parametrize("name", ["n1", "n2", "n3"])
def test_a_node_that_ends_at_any_event_of_a_change_of_epochs_loses_nothing(name: str) -> None:
    """rmq RT-16, RQ-31, RQ-34: here at some of them; the sweep does it at each."""
    for at in range(30, 330, 100):
        run_change(name, at)


def test_a_frame_of_a_change_of_epochs_that_is_lost_loses_nothing() -> None:
    """rmq RQ-31, RQ-34: here some of them; the sweep loses each."""
    for lost in range(20, 420, 100):
        run_change("", 0, lost=lost)


def test_settings_of_epochs_that_do_not_fit_are_refused() -> None:
    """rmq RT-28: with the names and figures."""
    with pytest.raises(ConfigurationError, match="ttl_max_ms 9000 is above epoch_length_ms 5000"):
        QueueSettings(ttl_max_ms=9_000, epoch_length_ms=5_000)
    with pytest.raises(ConfigurationError, match="dedupe_epochs 1 is below 2"):
        QueueSettings(dedupe_epochs=1)
    with pytest.raises(ConfigurationError, match="clock_skew_ms 2000 is above a tenth"):
        QueueSettings(ttl_max_ms=5_000, epoch_length_ms=5_000)


def no_beer(job: Job, node: EpochNode) -> Outcome:
    """All but one item are done."""
    return Refuse("none") if job.body == b"beer" else echo(job, node)


def test_a_queue_agrees_over_epochs_after_any_troubles() -> None:
    """rmq RT-32, CL-8: split and merge, members, crashes, cuts, loss, a twin, clocks. Without a liar
    ``test_feed.py`` has such runs, with two the next test, and the night (``make nightly``) many more."""
    run_epochs(1, 1)


def test_a_node_numbers_no_receipt_before_it_has_read_all_of_its_logs() -> None:
    """rmq RQ-38: 1. A node begins again, and the log of its later epoch is read first. 2. The one before it has
    the highest number of a submitter. 3. Whoever is answered in between would get a number twice."""
    run_epochs(8, 2)


def run_epochs(seed: int, twins: int, *, has_feeds: bool = False) -> EpochNetwork:
    """One run; everything is checked on the way and at its end."""
    draw = Random(seed)
    n = 7 if twins == 2 else 4
    names = tuple(f"n{n - at}" for at in range(twins))
    net = EpochNetwork(
        n, seed, twins=names, settings=SHORT, spares=1, function=no_beer, has_feeds=has_feeds
    )
    net.loss, net.repeats = draw.choice((0, 0.05, 0.2)), draw.choice((0, 0.2))
    net.silence = draw.choice((0, 0.1))
    net.start()
    net.run(1500 * MS)
    clients = [net.client("shop-1"), net.client("shop-2")]
    net.run(500 * MS)
    tickets: list[Submitted] = []
    is_new_known = False
    for at in range(16):
        for client in clients:
            dedupe = b"" if draw.random() < 0.7 else b"%d" % draw.randint(1, 3)
            body = b"beer" if draw.random() < 0.05 else b"%s %d" % (client.name.encode(), at)
            tickets.append(client.submit(body, dedupe=dedupe, key=b"%d" % draw.randint(1, 5)))
        net.run(draw.randint(100, 900) * MS)
        node, cut = draw.choice(net.epoch_nodes), draw.randint(1, n - 1)
        known = clients[0].machine.epochs.newest
        part = draw.choice(known.partitions)
        match draw.choice(
            (
                "crash",
                "crash",
                "part",
                "heal",
                "heal",
                "redraw",
                "clock",
                "split",
                "merge",
                "members",
                "client",
            )
        ):
            case "crash":
                node.crash()
                net.after(draw.randint(0, 2500) * MS, node.start_if_down)
            case "part":
                net.groups = [{*net.names[:cut]}, {*net.names[cut:]}]
            case "heal":
                net.groups = []
            case "redraw":
                net.redraw()
            case "clock":
                node.clock_ms = draw.choice((0, 200, -200, 50_000))
            case "client":
                draw.choice(clients).restart()
            case "split":
                clients[0].plan(("split", part.lo))
            case "merge":
                clients[0].plan(("merge", known.lead.lo))
            case "members":
                spare = f"n{n + 1}"
                added = () if is_new_known else (("add_node", spare, KeyedHash(spare).public, ""),)
                is_new_known = True
                clients[0].plan(*added, ("members", part.lo, (*net.names[:n], spare)))
    net.groups, net.loss, net.silence = [], 0, 0
    for node in net.epoch_nodes:
        node.clock_ms = 0
        node.start_if_down()
    for _ in range(6):
        net.redraw()
        net.run(3 * SECOND)
    last = [client.submit(b"last") for client in clients]
    net.run(10 * SECOND)
    net.check_clients()
    assert set(kinds(last)) <= {"finalized"}, kinds(last)
    latest: dict[bytes, Submitted] = {}
    for client in clients:
        latest |= {**client.machine.tickets, **client.ended}
    last_seen = [latest.get(each.id, each) for each in tickets]
    ended = kinds([each for each in last_seen if each.heard])
    assert set(ended) <= {"finalized", "duplicate", "expired", "refused"}, ended
    numbers = {each.record.number for each in net.all_nodes().values()}
    assert max(numbers) - min(numbers) <= 1
    return net
