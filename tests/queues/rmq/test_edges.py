"""Edges of one session: bodies that are missing, blocks that are by-passed, clocks, frames of any kind, bounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from surepipe.core.effects import Addressed, Effect, Transmit
from surepipe.queues.rmq.catchain import LogMachine, LogOptions
from surepipe.queues.rmq.chain import Block, ordered
from surepipe.queues.rmq.encoding import Malformed, decode, encode
from surepipe.queues.rmq.entries import LogEntry
from surepipe.queues.rmq.receipts import PACK_MAX, Receipt, ReceiptBook
from surepipe.queues.rmq.session import Done, Job, Later, Outcome
from tests.queues.rmq.log_network import MS, SECOND, SESSION, KeyedHash, Network, Party
from tests.queues.rmq.queue_network import (
    QueueNetwork,
    QueueNode,
    check_evidence,
    check_queue,
    check_receipts,
    echo,
)
from tests.queues.rmq.test_session import QUICK, kinds, network, settle


def kind_of(data: bytes) -> str:
    """Of a frame."""
    value = decode(data)
    return str(value[0]) if isinstance(value, tuple) and value else ""


def losing(net: QueueNetwork, *lost: str) -> None:
    """From here on frames of these kinds are lost."""
    send = type(net).send

    def sent(node: Party, peer: str, data: bytes) -> None:
        if kind_of(data) not in lost:
            send(net, node, peer, data)

    net.send = sent  # type: ignore[method-assign]


def test_a_body_is_asked_for_and_a_wrong_one_hinders_nothing() -> None:
    """rmq RQ-19: no body is pushed; each is pulled by its message, of whoever has it, and checked by its hash."""
    net = network()
    pushed = net.send

    def sent(node: Party, peer: str, data: bytes) -> None:
        is_push = kind_of(data) == "bodies" and not any(
            kind_of(each) == "pull-bodies" for each in asked
        )
        if kind_of(data) == "pull-bodies":
            asked.append(data)
        if not is_push:
            pushed(node, peer, data)

    asked: list[bytes] = []
    net.send = sent  # type: ignore[method-assign]
    ticket = net.client("shop-1").submit(b"one")
    for name in net.names:
        net.send(net.clients[0], name, encode(("bodies", SESSION, (b"wrong", b""))))
    settle(net)
    assert asked
    assert ticket.outcome is not None
    assert (ticket.outcome.kind, ticket.outcome.value) == ("finalized", b"one")
    bodies = [each.messages[ticket.id].body for each in net.sessions().values()]
    assert bodies.count(b"one") >= net.quorum


def test_neither_sender_nor_collator_chooses_a_place() -> None:
    """rmq RQ-22: the order in a block follows from the block before it."""
    ids = [bytes([at]) * 32 for at in range(8)]
    assert ordered(SESSION, ids) == ordered(SESSION, ids[::-1])
    assert sorted(ordered(SESSION, ids)) == ids
    assert ordered(SESSION, ids) != ordered(bytes(32), ids)


def by_passed() -> QueueNetwork:
    """n1 alone sees that three approve the first block, and the others skip its slot. The next one lacks a message
    of it, which its collators put off."""

    def put_off(job: Job, node: QueueNode) -> Outcome:
        is_later = job.body == b"one" and net.sessions()["n1"].chain.certified
        return Later(2 * SECOND) if is_later and net.now < 6 * SECOND else echo(job, node)

    trusting = replace(QUICK, slot_timeout_us=400 * MS, is_trusting=True, linger_us=150 * MS)
    net = network(settings=trusting, function=put_off)
    client = net.client("shop-1")
    client.submit(b"one")
    client.submit(b"two")
    meets = net.meets
    net.meets = lambda one, other: "n4" not in (one.name, other.name) and meets(one, other)  # type: ignore[method-assign]
    sessions = net.sessions()
    while not all(sessions[name].chain.blocks for name in ("n1", "n2", "n3")):
        net.run(MS)
    assert len(block_ids(list(sessions["n1"].chain.blocks.values()))) == 2
    net.meets = lambda one, other: other.name in ("n1", "shop-1") and one.name != "n4"  # type: ignore[method-assign]
    while not sessions["n1"].chain.certified:
        net.run(MS)
    net.run(50 * MS)
    (block,) = sessions["n1"].chain.blocks.values()
    assert {sessions["n1"].status(each.id) for each in block.verdicts} == {"accepted"}
    four = next(each for each in net.queue_nodes if each.name == "n4")
    entries = [known.entry for known in sessions["n2"].log.causality.known.values()]
    first = [each.encode() for each in entries if each.items and each.items[0][0] == "external"]
    four.step(
        lambda machine: machine.frame(
            Addressed("n2", encode(("entries", SESSION, tuple(first)))), net.now
        )
    )
    net.groups = [{name} for name in net.names]
    net.meets = meets  # type: ignore[method-assign]
    net.run(SECOND)
    net.groups = [{"n1"}, {"n2", "n3", "n4"}]
    return net


def test_what_one_node_saw_approved_may_be_by_passed_and_one_chain_is_left() -> None:
    """rmq RQ-28, RT-12, RT-25: n1 has the certificate, and finalises; the others skip, and go on without it. When
    all meet again they have one chain, each message is in it once, and what was put off was returned."""
    net = by_passed()
    before = net.sessions()["n1"].chain.certified[1]
    net.run(10 * SECOND)
    net.groups = []
    settle(net, 10 * SECOND)
    check_evidence(net)
    for session in net.sessions().values():
        assert 1 in session.chain.skipped
        assert before not in session.chain.positions
    one, two = net.clients[0].machine.tickets.values()
    for ticket in (one, two):
        assert ticket.outcome is not None
        assert ticket.outcome.kind == "finalized"
        assert kinds(net, "n1", ticket.id)[-1] == "finalized"
    assert any("returned" in kinds(net, name, one.id) for name in net.names)
    assert all("returned" not in kinds(net, name, two.id) for name in net.names)


def test_a_quorum_of_wrong_clocks_does_not_stop_the_chain_when_they_are_right_again() -> None:
    """rmq RQ-80, RT-46: three of four were a day ahead; blocks have the time of the last one until it is over."""
    net = network(settings=replace(QUICK, ttl_max_ms=300_000))
    client = net.client("shop-1")
    for node in net.queue_nodes[:3]:
        node.clock_ms = 60_000
    early = [client.submit(b"early %d" % number, ttl_ms=200_000) for number in range(4)]
    net.run(3 * SECOND)
    ahead = net.final()[-1].time_ms
    for node in net.queue_nodes:
        node.clock_ms = 0
    late = [client.submit(b"late %d" % number, ttl_ms=200_000) for number in range(4)]
    settle(net, 5 * SECOND)
    assert net.final()[-1].time_ms >= ahead
    assert all(each.outcome and each.outcome.kind == "finalized" for each in (*early, *late))


def test_one_worker_of_several_claims_a_job() -> None:
    """rmq RQ-78: what acts outside submits a claim under one ``dedupe`` key; the others are told who has it."""
    net = network()
    clients = [net.client(f"worker-{at}") for at in (1, 2, 3)]
    claims = [each.submit(each.name.encode(), key=b"j", dedupe=b"claim/j/1") for each in clients]
    settle(net)
    outcomes = [each.outcome for each in claims if each.outcome]
    assert sorted(each.kind for each in outcomes) == ["duplicate", "duplicate", "finalized"]
    (winner,) = [each.value for each in outcomes if each.kind == "finalized"]
    assert {each.value for each in outcomes} == {winner}


def test_frames_are_bounded() -> None:
    """rmq RQ-83: each is at most 1 MiB, however much a node that was away lacks."""

    def nothing(job: Job, node: QueueNode) -> Outcome:
        del job, node
        return Done()

    net = network(function=nothing)
    away = net.queue_nodes[3]
    away.crash()
    largest = Counter[str]()
    send = net.send

    def sent(node: Party, peer: str, data: bytes) -> None:
        largest[kind_of(data)] = max(largest[kind_of(data)], len(data))
        send(node, peer, data)

    net.send = sent  # type: ignore[method-assign]
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % at * 60_000) for at in range(9)]
    tickets += [client.submit(b"%04d" % at * 15_000) for at in range(30)]
    net.run(3 * SECOND)
    away.start()
    settle(net)
    assert {each.outcome.kind for each in tickets if each.outcome} == {"finalized"}
    assert 60_000 < max(largest.values()) <= 1 << 20


def test_heights_last_as_long_as_the_session() -> None:
    """rmq RQ-84: a member that has much to say says it at a pace, many records in one entry."""
    net = Network(3, 1, options=LogOptions(pace_us=100 * MS, height_max=1_000, height_reserve=100))
    net.start()
    net.run(SECOND)
    for number in range(2_000):
        net.nodes[0].say(f"{number}", is_urgent=True)
        net.run(10 * MS)
    machine = net.machines()["n1"]
    assert machine.height <= (20 + 10) * 10 + 1
    net.run(12 * SECOND)
    said = {
        item[1] for entry in net.nodes[1].logs[-1] for item in entry.items if entry.author == "n1"
    }
    assert said == {f"{number}" for number in range(2_000)}


def test_receipts_that_nobody_read_come_in_packs_with_the_newest_of_each_message() -> None:
    """rmq RT-9: ten thousand of five hundred messages of three submitters."""
    book = ReceiptBook("orders", "n1", KeyedHash("n1"))
    drawn, newest = Random(1), dict[tuple[str, bytes], int]()
    for at in range(10_000):
        submitter = f"shop-{at % 3}"
        message_id = bytes([drawn.randrange(167), at % 3]) * 16
        number = book.next_number(submitter, 5)
        receipt = Receipt(number, message_id, "collated", 1, 1, bytes(32), b"%d" % at, 0)
        book.add(SESSION, submitter, receipt, is_stored=True)
        newest[submitter, message_id] = number
    for submitter in ("shop-0", "shop-1", "shop-2"):
        book.read(submitter, submitter, 0, 0)
    last: dict[tuple[str, bytes], int] = {}
    for effect in book.tell(0):
        assert isinstance(effect, Transmit)
        assert isinstance(effect.frame, Addressed)
        assert isinstance(effect.frame.frame, bytes)
        assert len(effect.frame.frame) <= 16 << 10
        match decode(effect.frame.frame):
            case ("receipts", "orders", str() as submitter, "n1", tuple() as rows, *_):
                found = [Receipt.of(row) for row in rows]
            case other:
                raise AssertionError(other)
        assert 0 < len(found) <= PACK_MAX
        for each in found:
            assert each.number > max((n for (s, _), n in last.items() if s == submitter), default=0)
            last[submitter, each.id] = each.number
    assert last == newest


def test_what_is_said_fits_what_was_known() -> None:
    """rmq RT-10: eleven members say numbers above all that they have seen; at each delivery the number is above
    those of the causal past, whatever is lost."""
    for seed in range(3):
        net = Network(11, seed)
        net.loss = 0.1
        net.start()
        net.run(2 * SECOND)
        seen = dict.fromkeys(net.names, 0)
        for _ in range(40):
            node = net.rng.choice(net.nodes)
            numbers = [int(str(item[1])) for each in node.logs[-1] for item in each.items]
            seen[node.name] = max([seen[node.name], *numbers]) + 1
            node.say(f"{seen[node.name]}", is_urgent=True)
            net.run(net.rng.randint(1, 100) * MS)
        net.loss = 0.0
        net.run(5 * SECOND)
        for node in net.nodes:
            highest: dict[bytes, int] = {}
            assert node.logs[-1]
            for entry in node.logs[-1]:
                past = max((highest[each] for each in entry.references), default=0)
                own = [int(str(item[1])) for item in entry.items]
                assert not own or min(own) > past
                highest[entry.digest] = max([past, *own])


def test_nodes_that_compute_different_things_say_so() -> None:
    """rmq RQ-77, RT-45: two of four have another price list: nothing is done that they don't agree on, and each
    message ends refused, with what they have."""

    def listed(job: Job, node: QueueNode) -> Outcome:
        is_old = node.name in ("n1", "n2") or job.body == b"milk"
        return Done(b"4.20" if is_old else b"4.50")

    net = network(function=listed)
    client = net.client("shop-1")
    tea, milk = client.submit(b"tea"), client.submit(b"milk")
    settle(net, 10 * SECOND)
    assert milk.outcome is not None
    assert milk.outcome.kind == "finalized"
    assert tea.outcome is not None
    assert tea.outcome.kind == "refused"
    assert "result differs" in tea.outcome.reason


def test_a_store_that_hangs_costs_one_vote() -> None:
    """rmq RT-42: the others go on; what it had taken in is asked of others. It is as good as before afterwards."""
    net = network()
    node = net.queue_nodes[1]
    ask, hangs = node.__class__._ask, [True]  # pyright: ignore[reportPrivateUsage] - the store is behind it
    held: list[tuple[int, object, int]] = []

    def asked(ticket: int, request: object, life: int) -> None:
        if hangs[0]:
            held.append((ticket, request, life))
        else:
            ask(node, ticket, request, life)

    node._ask = asked  # type: ignore[method-assign] # pyright: ignore[reportPrivateUsage] - as above
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % number) for number in range(20)]
    net.run(15 * SECOND)
    assert all(each.outcome and each.outcome.kind == "finalized" for each in tickets)
    hangs[0] = False
    for each in held:
        asked(*each)
    settle(net)
    assert node.session is not None
    assert len(node.session.chain.final) == len(net.final())


def test_any_frame_gives_a_defined_result() -> None:
    """rmq RQ-47, RQ-48: frames of every kind between nodes and clients, cut, altered and repeated."""
    net = network()
    seen: dict[str, bytes] = {}
    send = net.send

    def sent(node: Party, peer: str, data: bytes) -> None:
        seen.setdefault(kind_of(data), data)
        send(node, peer, data)

    net.send = sent  # type: ignore[method-assign]
    client = net.client("shop-1")
    losing_bodies = net.loss
    net.loss = 0.3
    tickets = [client.submit(b"%d" % number) for number in range(8)]
    net.run(5 * SECOND)
    net.loss = losing_bodies
    assert set(seen) >= {"entries", "heads", "bodies", "submit", "receipts", "read"}
    drawn = Random(1)
    for data in seen.values():
        for _ in range(60):
            changed = bytearray(data[: drawn.randrange(1, len(data) + 1)])
            changed[drawn.randrange(len(changed))] ^= 1 << drawn.randrange(8)
            frame = Addressed(drawn.choice(["n2", "n9", "shop-1"]), bytes(changed))
            net.queue_nodes[0].step(lambda machine, f=frame: machine.frame(f, net.now))  # type: ignore[misc]
            client.step(lambda machine, f=frame: machine.frame(f, net.now))  # type: ignore[misc]
    settle(net)
    assert all(each.outcome and each.outcome.kind == "finalized" for each in tickets)


@pytest.mark.parametrize(("n", "pushes"), [(4, 36), (7, 126)])
def test_a_block_costs_what_it_may(n: int, pushes: int) -> None:
    """rmq RQ-87: without faults so many entries are sent to somebody for each block, whatever is in it."""
    net = network(n)
    client = net.client("shop-1")
    client.submit(b"first")
    net.run(2 * SECOND)
    blocks = len(net.final())
    sent = Counter[str]()
    send = net.send

    def count(node: Party, peer: str, data: bytes) -> None:
        value = decode(data)
        if isinstance(value, tuple) and value[0] == "entries" and isinstance(value[2], tuple):
            sent["entries"] += len(value[2])
        send(node, peer, data)

    net.send = count  # type: ignore[method-assign]
    for number in range(200):
        client.submit(b"%d" % number)
        net.run(20 * MS)
    net.run(2 * SECOND)
    made = len(net.final()) - blocks
    assert made > 5
    # Beside the entries of blocks there is one for each message that comes alone.
    assert sent["entries"] <= made * pushes + 200 * (n - 1) * 2


def test_numbers_and_times_are_integers() -> None:
    """rmq RQ-5: what is hashed, signed or stored has no other numbers."""
    with pytest.raises(Malformed):
        encode((1.5,))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - that it is refused is the test


class Listener:
    """A log that is told entries in some order."""

    def __init__(self, net: QueueNetwork, entries: list[LogEntry], order: Random) -> None:
        node = QueueNode(net, "n4", "listener")
        node.guard = None
        node.start()
        assert node.session is not None
        rest = list(entries)
        order.shuffle(rest)
        self.session = node.session
        self.machine: LogMachine = node.session.log
        effects: list[Effect] = []
        for entry in rest:
            frame = Addressed("n1", encode(("entries", SESSION, (entry.encode(),))))
            effects += self.session.frame(frame, net.now, node.wall_ms)
        assert effects


def test_tables_follow_from_what_was_said_in_whatever_order_it_came() -> None:
    """rmq RQ-16, RQ-17, RI-10: the entries of a troubled run, told to listeners in any order: the same ends, the
    same chain."""
    net = network()
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % number, dedupe=b"%d" % (number // 2)) for number in range(12)]
    net.queue_nodes[1].crash()
    net.run(3 * SECOND)
    net.queue_nodes[1].start()
    settle(net)
    one = net.sessions()["n1"]
    entries = [known.entry for known in one.log.causality.known.values() if known.order]
    for seed in range(4):
        found = Listener(net, entries, Random(seed)).session
        assert found.chain.final == one.chain.final
        for ticket in tickets:
            assert found.status(ticket.id) == one.status(ticket.id)
            assert found.ending(ticket.id) == one.ending(ticket.id)


def test_a_node_that_is_started_again_has_the_tables_that_it_had() -> None:
    """rmq RI-10: from its log alone."""
    net = network()
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % number) for number in range(10)]
    settle(net)
    for node in net.queue_nodes:
        assert node.session is not None
        before = [(node.session.status(each.id), node.session.ending(each.id)) for each in tickets]
        final = list(node.session.chain.final)
        node.crash()
        node.start()
        assert [
            (node.session.status(each.id), node.session.ending(each.id)) for each in tickets
        ] == before
        assert node.session.chain.final == final
    check_queue(net)
    check_receipts(net)
    check_evidence(net)


def test_a_status_moves_as_it_may() -> None:
    """rmq RI-2, RI-11: looked at after every step of a run with crashes and cuts: up; down from collated and
    accepted only; an end is for ever."""
    net = network(seed=7)
    client = net.client("shop-1")
    order = ["unknown", "new", "queued", "collated", "accepted"]
    last: dict[tuple[str, int, bytes], str] = {}

    def look() -> None:
        for node in net.queue_nodes:
            for ticket in tickets:
                if node.session is None:
                    continue
                key, now = (node.name, node.life, ticket.id), node.session.status(ticket.id)
                before = last.get(key, now)
                last[key] = now
                if before in order and now in order:
                    is_back = order.index(now) < order.index(before)
                    assert not is_back or (before in ("collated", "accepted") and now != "unknown")
                elif before not in order:
                    assert now == before, "an end changed"

    tickets = [client.submit(b"%d" % number) for number in range(6)]
    net.run(100 * MS, look)
    net.queue_nodes[2].crash()
    net.run(300 * MS, look)
    net.groups = [{"n1", "n2"}, {"n3", "n4"}]
    net.queue_nodes[2].start()
    net.run(500 * MS, look)
    net.groups = []
    net.run(3 * SECOND, look)
    assert {each.outcome.kind for each in tickets if each.outcome} == {"finalized"}


def block_ids(blocks: list[Block]) -> list[bytes]:
    """What they say of messages, in order."""
    return [each.id for block in blocks for each in block.verdicts]
