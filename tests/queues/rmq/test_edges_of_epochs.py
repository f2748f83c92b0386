"""Edges between epochs: who hands over, lost bodies, members who are all replaced, stores, and outages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from surepipe.core.store_requests import NoStream, Unavailable
from surepipe.queues.rmq.catchain import Voice
from surepipe.queues.rmq.encoding import FIRST_POINT, decode, encode
from surepipe.queues.rmq.stored_log import OpenLog
from surepipe.storage import MemoryStore, RedisStore, SqliteStore, open_store
from surepipe.testing.servers import NONE_FOUND, local_servers
from tests.queues.rmq.cluster_network import EpochNetwork, EpochNode, LastingGuard
from tests.queues.rmq.log_network import MS, SECOND, KeyedHash, Party
from tests.queues.rmq.test_epochs import SHORT, kinds, network, never_before, until


class NewGuard(LastingGuard):
    """A guard that was made anew in the first epoch: it can't know what was signed there."""

    def of(self, session: bytes, epoch: int) -> tuple[int, bytes] | None:
        """As the other, but for that epoch."""
        return None if epoch == 1 else super().of(session, epoch)


def hosts(net: EpochNetwork, *names: str) -> list[EpochNode]:
    """By name."""
    return [each for each in net.epoch_nodes if each.name in names]


def added(first: int, last: int) -> list[tuple[object, ...]]:
    """Operations that add these nodes."""
    return [("add_node", f"n{at}", KeyedHash(f"n{at}").public, "") for at in range(first, last + 1)]


def test_who_only_hands_over_says_nothing_else() -> None:
    """rmq CC-8, RQ-35: 1. n1 and n4 are no members any more. 2. They write into the log of the next epoch, and
    what they say there of messages and votes counts for nothing."""
    net = network(spares=1)
    client = net.client("shop-1")
    members = ("members", FIRST_POINT, ("n5", "n2", "n3"))
    client.plan(*added(5, 5), members)  # type: ignore[arg-type]
    until(net, 2)
    net.run(300 * MS)
    former = net.all_nodes()["n1"].sessions()[-1]
    assert former.epoch == 2
    net.loss = 1.0
    ticket = client.submit(b"one")
    net.loss = 0.0
    client.machine.close(net.now)
    said = [
        ("external", ticket.header.fields),
        ("refusal", ticket.id, 1, "no"),
        ("vote", "skip", former.chain.slot, b"", bytes(64)),
        ("candidate", ()),
    ]
    for item in said:
        assert former.log.append(item, net.now, is_urgent=True)
    net.run(SECOND)
    for host in hosts(net, "n2", "n3", "n5"):
        assert host.node is not None
        session = next(each for each in host.node.sessions() if each.epoch == 2)
        assert ticket.id not in session.messages
        assert session.counters()["unknown_record"] >= len(said)


def test_nobody_votes_before_it_is_known_how_the_sessions_before_ended() -> None:
    """rmq RQ-32, RI-9: a newcomer's log is open and takes messages in before it has got what is to be remembered;
    looked at after every step."""
    net = network(spares=1)
    client = net.client("shop-1")
    client.submit(b"tea", key=b"k", dedupe=b"x")
    client.plan(*added(5, 5), ("members", FIRST_POINT, ("n5", "n2", "n3", "n4")))  # type: ignore[arg-type]
    send, were_open = net.send, 0

    def sent(node: Party, peer: str, data: bytes) -> None:
        value = decode(data)
        if not isinstance(value, tuple) or value[0] != "memory" or net.now > 6 * SECOND:
            send(node, peer, data)

    def look() -> None:
        nonlocal were_open
        for node in net.all_nodes().values():
            for session in node.sessions():
                if session.is_active:
                    continue
                were_open += 1
                own = session.log.causality.chains.get(node.name, [])
                said = [session.log.causality.known[each].entry.items for each in own]
                assert not [i for items in said for i in items if i[0] in ("vote", "candidate")]

    net.send = sent  # type: ignore[method-assign]
    while net.now < 7 * SECOND:
        net.run(100 * MS, look)
        client.submit(b"%d" % net.now)
    net.run(SECOND, look)
    assert were_open
    assert net.all_nodes()["n5"].sessions()[-1].is_active


def test_what_was_placed_where_nobody_looked_is_handed_over_when_the_cut_heals() -> None:
    """rmq RQ-33: n4 takes a message in and is cut off; the others end the epoch. It shows up in a session that is
    sealed, and is decided in the next one."""
    longer = replace(SHORT, epoch_length_ms=4_000, ttl_max_ms=4_000)
    net = network(settings=longer)
    client = net.client("shop-1")
    client.submit(b"first")
    net.run(2_000 * MS)
    net.groups = [{"n1", "n2", "n3"}, {"n4"}]
    net.loss = 1.0
    ticket = client.submit(b"hidden", ttl_ms=4_000)
    client.machine.close(net.now)
    net.loss = 0.0
    net.send(client, "n4", encode(("submit", "orders", ticket.header.fields, ticket.body)))
    until_known = net.all_nodes()["n1"]
    while until_known.record.number < 2:
        net.run(50 * MS)
    net.groups = []
    net.run(2 * SECOND)
    session, verdict = net.verdicts[ticket.id]
    assert verdict == "done"
    assert net.epoch_of[session] == 2


def test_a_body_that_one_has_is_found_in_the_next_epoch() -> None:
    """rmq RT-14: bodies are neither pushed nor pulled before the change; whoever hands a message over may lack its
    own, and it is pulled from a member that has it."""
    net = network(function=never_before(2))
    client = net.client("shop-1")
    net.run(200 * MS)
    client.submit(b"early", ttl_ms=500)
    net.run(1_500 * MS)
    send = net.send

    def sent(node: Party, peer: str, data: bytes) -> None:
        value = decode(data)
        kind = value[0] if isinstance(value, tuple) else ""
        if kind not in ("bodies", "pull-bodies") or max(net.records, default=1) > 1:
            send(node, peer, data)

    net.send = sent  # type: ignore[method-assign]
    tickets = [client.submit(b"%d" % number, ttl_ms=3_000) for number in range(6)]
    until(net, 2)
    net.run(3 * SECOND)
    assert kinds(tickets) == {"finalized": 6}
    assert {net.epoch_of[net.verdicts[each.id][0]] for each in tickets} == {2}


def test_where_nobody_lies_a_minority_may_be_down() -> None:
    """rmq RT-24: two of five are killed; with the third it stands still, and goes on when one is back."""
    longer = replace(SHORT, epoch_length_ms=60_000, ttl_max_ms=60_000)
    net = network(5, faults="crash", settings=longer)
    client = net.client("shop-1")
    for host in hosts(net, "n4", "n5"):
        host.crash()
    tickets = [client.submit(b"%d" % number, ttl_ms=60_000) for number in range(6)]
    net.run(5 * SECOND)
    assert kinds(tickets) == {"finalized": 6}
    (third,) = hosts(net, "n3")
    third.crash()
    late = [client.submit(b"late %d" % number, ttl_ms=60_000) for number in range(4)]
    net.run(10 * SECOND)
    assert kinds(late) == {"open": 4}
    third.start()
    net.run(5 * SECOND)
    assert kinds(late) == {"finalized": 4}


def test_a_node_that_may_have_forgotten_listens_until_the_next_epoch() -> None:
    """rmq RT-30: its store is deleted, and its guard is new; in the next epoch it takes part again."""
    net = network()
    client = net.client("shop-1")
    client.submit(b"first")
    net.run(500 * MS)
    (host,) = hosts(net, "n3")
    host.crash()
    host.store = MemoryStore()
    host.memory = NewGuard()
    host.start()
    net.run(500 * MS)
    assert host.node is not None
    assert [each.log.voice for each in host.node.sessions()] == [Voice.SILENT]
    until(net, 2)
    net.run(500 * MS)
    assert host.node.voice is Voice.SPEAKING
    assert all(not node.blamed() for node in net.all_nodes().values())


def test_all_are_killed_at_once_and_go_on() -> None:
    """rmq RT-41: at many moments under load; nothing that was placed is lost."""
    for moment in range(0, 400, 80):
        net = network(seed=moment + 1)
        client = net.client("shop-1")
        tickets = [client.submit(b"%d" % number) for number in range(6)]
        net.run(moment * MS)
        for host in net.epoch_nodes:
            host.crash()
        net.run(100 * MS)
        for host in net.epoch_nodes:
            host.start()
        net.run(3 * SECOND)
        assert kinds(tickets) == {"finalized": 6}


def test_work_is_remembered_though_all_members_were_replaced_twice() -> None:
    """rmq RT-49: what three groups of nodes after each other decided; a memory of five epochs."""
    settings = replace(SHORT, dedupe_epochs=5)
    net = network(3, spares=6, faults="crash", settings=settings)
    client = net.client("shop-1")
    first = [client.submit(b"%d" % at, key=b"%d" % at, dedupe=b"x") for at in range(4)]
    for begin in (4, 7):
        names = tuple(f"n{at}" for at in range(begin, begin + 3))
        client.plan(*added(begin, begin + 2), ("members", FIRST_POINT, names))  # type: ignore[arg-type]
        number = max(net.records)
        while max(net.records) < number + 1:
            net.run(100 * MS)
        net.run(500 * MS)
    assert net.records[max(net.records)].lead.members == ("n7", "n8", "n9")
    again = [client.submit(b"%d" % at, key=b"%d" % at, dedupe=b"x") for at in range(4)]
    net.run(2 * SECOND)
    assert kinds(first) == {"finalized": 4}
    assert kinds(again) == {"duplicate": 4}


def chains(net: EpochNetwork) -> list[list[bytes]]:
    """Of each session what became final."""
    return [[each.digest for each in blocks] for _, blocks in sorted(net.finals.items())]


def test_the_same_events_give_the_same_chains_on_every_store(tmp_path: Path) -> None:
    """rmq RT-33: memory, SQLite and Redis; with restarts that read them."""
    if not (sources := local_servers()):
        pytest.fail(NONE_FOUND)
    found: list[list[list[bytes]]] = []
    with sources[0].server() as server:
        for kind in ("memory", "sqlite", "redis"):
            net = EpochNetwork(3, 1, settings=SHORT, faults="crash")
            for host in net.epoch_nodes:
                if kind == "sqlite":
                    host.store = SqliteStore(tmp_path / f"{host.name}.db")  # type: ignore[assignment] # pyright: ignore[reportAttributeAccessIssue] - a store
                if kind == "redis":
                    host.store = open_store(server.url, host.name)  # type: ignore[assignment] # pyright: ignore[reportAttributeAccessIssue] - a store
            net.start()
            net.run(SECOND)
            client = net.client("shop-1")
            for number in range(8):
                client.submit(b"%d" % number)
                net.run(300 * MS)
                if number % 3 == 1:
                    host = net.epoch_nodes[number % 3]
                    host.crash()
                    host.start()
            net.run(2 * SECOND)
            found.append(chains(net))
            for host in net.epoch_nodes:
                host.crash()
                store: object = host.store
                if isinstance(store, SqliteStore | RedisStore):
                    store.close()
    assert found[0]
    assert found[0] == found[1] == found[2]


def test_a_store_holds_two_epochs_and_no_stream_of_others() -> None:
    """rmq RQ-45, RQ-61, RI-14, RI-15: by name; records are numbered without a hole."""
    net = network()
    client = net.client("shop-1")
    names: dict[str, set[str]] = {each.name: set() for each in net.epoch_nodes}
    for host in net.epoch_nodes:
        ask = host.store.ask

        def asked(request: object, host: EpochNode = host, ask: object = ask) -> object:
            names[host.name].add(str(getattr(request, "stream", "")))
            return ask(request)  # type: ignore[operator] # pyright: ignore[reportCallIssue, reportUnknownVariableType] - the store's

        host.store.ask = asked  # type: ignore[assignment, method-assign] # pyright: ignore[reportAttributeAccessIssue] - it looks on
    client.submit(b"first")
    until(net, 6)
    net.run(SECOND)
    assert sorted(net.records) == list(range(1, max(net.records) + 1))
    for host in net.epoch_nodes:
        assert host.node is not None
        place = f"rmq/orders/{host.name}"
        assert all(not each or each.startswith(place) for each in names[host.name])
        held = [
            each
            for each in names[host.name]
            if each and not isinstance(host.store.info(each), NoStream)
        ]
        sessions = {
            f"{place}/{each.epoch}-{each.partition.lo.hex()}" for each in host.node.sessions()
        }
        assert set(held) == {f"{place}/epochs", *sessions}
        assert len(sessions) <= 2


def test_an_undecided_message_goes_on_in_one_heir_as_it_was() -> None:
    """rmq RI-3: over a split, of each message one session has it; with the same header and body everywhere."""
    net = network(function=never_before(3))
    client = net.client("shop-1")
    client.plan(("split", FIRST_POINT))
    net.run(1_200 * MS)
    tickets = [client.submit(b"%d" % number, ttl_ms=3_000) for number in range(16)]
    until(net, 2)
    net.run(1_200 * MS)
    for ticket in tickets:
        heirs: set[bytes] = set()
        for node in net.all_nodes().values():
            for session in node.sessions():
                if session.epoch == 2 and ticket.id in session.messages:
                    heirs.add(session.partition.lo)
                    assert session.header(ticket.id) == ticket.header
                    assert session.body(ticket.id) in (None, ticket.body)
        assert len(heirs) == 1
    assert len({net.records[2].owner(each.header.point).lo for each in tickets}) == 2


def test_nodes_whose_files_differ_say_where() -> None:
    """rmq RQ-96: they have other sessions, and would hear nobody without a word. All name the setting."""
    net = EpochNetwork(4, 1, settings=SHORT)
    other, note = replace(SHORT, batch_max=9), net.note

    def noted(host: EpochNode) -> None:
        if host.name != "n3":
            note(host)

    net.note = noted  # type: ignore[method-assign]
    for host in net.epoch_nodes:
        if host.name == "n3":
            same, net.foundation = net.foundation, replace(net.foundation, settings=other)
            host.start()
            net.foundation = same
        else:
            host.start()
    net.run(3 * SECOND)
    nodes = net.all_nodes()
    for name in ("n1", "n2", "n4"):
        assert nodes[name].strangers == {"n3": "batch_max is 9 there and 8 here"}
    assert set(nodes["n3"].strangers) == {"n1", "n2", "n4"}
    ticket = net.client("shop-1").submit(b"one")
    net.run(2 * SECOND)
    assert kinds([ticket]) == {"finalized": 1}


def test_a_client_believes_no_node_that_has_not_read_which_epoch_it_is() -> None:
    """rmq RQ-12, RQ-81: all nodes begin again, and their stores give them first nothing, then their records
    without the logs. Nobody tells which epoch it is, or that a message belongs elsewhere: what was submitted by a
    wrong word would be too old for ever."""
    net = network(2)
    net.client("shop-0").submit(b"first")
    until(net, 3)
    given = {host.name: host.outcome_of for host in net.epoch_nodes}
    is_there = {"records": False, "logs": False}

    def outcome(name: str, request: object) -> object:
        kept = isinstance(request, OpenLog) and ("logs" if request.epoch else "records")
        return Unavailable() if kept and not is_there[kept] else given[name](request)

    for host in net.epoch_nodes:
        host.crash()
        host.outcome_of = partial(outcome, host.name)  # type: ignore[method-assign]
        host.start()
    client = net.client("shop-1")
    early = client.submit(b"early")
    for what in is_there:
        net.run(SECOND)
        assert not client.machine.is_oriented(net.now)
        assert set(early.refusals.values()) == {"unavailable"}
        assert [each.gauges() for each in net.all_nodes().values()] == [{}, {}]
        is_there[what] = True
    while not client.machine.is_oriented(net.now):
        net.run(50 * MS)
    late = client.submit(b"late")
    assert late.header.epoch >= 3
    net.run(SECOND)
    assert kinds([late]) == {"finalized": 1}
