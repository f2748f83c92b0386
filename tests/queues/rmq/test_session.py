"""One session of a replicated queue: what is decided, what is told, and that no trouble changes it."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from random import Random

import pytest

from surepipe.core.effects import Addressed, NoticeKind
from surepipe.errors import ConfigurationError
from surepipe.queues.rmq.chain import DONE, Block, JobVerdict, ordered, vote_signed
from surepipe.queues.rmq.client import Submitted
from surepipe.queues.rmq.encoding import encode
from surepipe.queues.rmq.epochs import QueueSettings
from surepipe.queues.rmq.receipts import Receipt, pack_signed
from surepipe.queues.rmq.session import Done, Job, Later, Outcome, Refuse
from surepipe.queues.rmq.session import voting as session_voting
from tests.queues.rmq.log_network import (
    MS,
    SECOND,
    SESSION,
    KeyedHash,
    check_always,
    check_end,
    check_proofs,
)
from tests.queues.rmq.queue_network import (
    WALL_MS,
    QueueNetwork,
    QueueNode,
    check_evidence,
    check_queue,
    check_receipts,
)
from tests.queues.rmq.test_log import entry_of

QUICK = QueueSettings(slot_timeout_us=200 * MS, slot_timeout_max_us=2 * SECOND, batch_max=8)


def network(n: int = 4, seed: int = 1, **more: object) -> QueueNetwork:
    """All of its nodes are there."""
    net = QueueNetwork(n, seed, **{"settings": QUICK, **more})  # type: ignore[arg-type]
    net.start()
    net.run(SECOND)
    return net


def never(job: Job, node: QueueNode) -> Outcome:
    """Not now."""
    del job, node
    return Later(SECOND)


def settle(net: QueueNetwork, for_us: int = 5 * SECOND) -> None:
    """Let time pass, and check everything."""
    net.run(for_us)
    check_queue(net)
    check_receipts(net)
    check_always(net)


def kinds(net: QueueNetwork, node: str, message_id: bytes) -> list[str]:
    """The receipts of one node for one message."""
    (found,) = [each for each in net.queue_nodes if each.name == node]
    return [kind for _, _, each, kind in found.receipts() if each == message_id]


def test_messages_are_decided_once_and_every_step_is_told() -> None:
    """rmq RQ-18, RQ-38, RT-8: placed where it was sent; collated, accepted, finalized as everywhere."""
    net = network()
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % number) for number in range(20)]
    settle(net)
    for ticket in tickets:
        assert ticket.outcome is not None
        assert (ticket.outcome.kind, ticket.outcome.value) == ("finalized", ticket.body)
        for name in net.names:
            told = kinds(net, name, ticket.id)
            assert told[-1] == "finalized"
            assert [each for each in told if each != "placed"][:-1] in (
                ["collated", "accepted"],
                ["accepted"],
                ["collated"],
                [],
            )
    assert sum(len(block.verdicts) for block in net.final()) == 20
    for session in net.sessions().values():
        assert {session.status(each.id) for each in tickets} == {"finalized"}


def test_an_idle_queue_has_no_turns() -> None:
    """rmq RQ-20, RT-29: without cause no slot is begun, and nothing but heads is sent."""
    net = network()
    client = net.client("shop-1")
    client.submit(b"one")
    settle(net)
    slots = {session.chain.slot for session in net.sessions().values()}
    net.is_quiet = True
    net.run(60 * SECOND)
    assert net.is_quiet
    assert {session.chain.slot for session in net.sessions().values()} == slots


def test_a_message_that_comes_to_three_nodes_is_one_message() -> None:
    """rmq RQ-14, RT-11: one verdict, a placed receipt of each."""
    net = network()
    client = net.client("shop-1")
    ticket = client.submit(b"one")
    data = encode(("submit", "orders", ticket.header.fields, ticket.body))
    for name in net.names[:3]:
        net.send(client, name, data)
        net.send(client, name, data)
    settle(net)
    placed = [name for name in net.names if "placed" in kinds(net, name, ticket.id)]
    assert set(placed) >= set(net.names[:3])
    assert all(kinds(net, name, ticket.id).count("placed") <= 1 for name in net.names)
    assert [each.id for block in net.final() for each in block.verdicts] == [ticket.id]


def test_the_same_work_is_done_once() -> None:
    """rmq RQ-13, RQ-21, RT-3, RT-5: of one ``dedupe`` key the smallest id; the others are duplicates of it."""
    net = network()
    client = net.client("shop-1")
    tickets = [client.submit(b"tea", dedupe=b"order-17") for _ in range(5)]
    settle(net)
    ended = sorted(each.outcome.kind for each in tickets if each.outcome)
    assert ended == ["duplicate"] * 4 + ["finalized"]
    assert {each.outcome.value for each in tickets if each.outcome} == {b"tea"}
    later = client.submit(b"tea", dedupe=b"order-17")
    settle(net)
    assert later.outcome is not None
    assert (later.outcome.kind, later.outcome.value) == ("duplicate", b"tea")


def test_a_message_that_all_refuse_ends_refused_with_their_reasons() -> None:
    """rmq RQ-21, RQ-24, RQ-27, RT-27: one refusal binds only its author."""

    def no_beer(job: Job, node: QueueNode) -> Outcome:
        return Refuse(f"{node.name} has none") if job.body == b"beer" else Done(job.body)

    net = network(function=no_beer)
    client = net.client("shop-1")
    beer, tea = client.submit(b"beer"), client.submit(b"tea")
    settle(net, 10 * SECOND)
    assert tea.outcome is not None
    assert tea.outcome.kind == "finalized"
    assert beer.outcome is not None
    assert beer.outcome.kind == "refused"
    assert beer.outcome.reason == "; ".join(f"{name}: {name} has none" for name in net.names)
    for name in net.names:
        assert kinds(net, name, beer.id).count("refusal") == 1


def test_a_message_that_one_node_accepts_is_done_where_results_are_trusted() -> None:
    """rmq RQ-27, RT-27: three refusals, then finalized."""

    def only_n4(job: Job, node: QueueNode) -> Outcome:
        return Done(job.body) if node.name == "n4" else Refuse("not here")

    net = network(function=only_n4, settings=replace(QUICK, is_trusting=True))
    ticket = net.client("shop-1").submit(b"tea")
    settle(net, 10 * SECOND)
    assert ticket.outcome is not None
    assert ticket.outcome.kind == "finalized"


def test_a_message_that_nobody_processes_expires_once() -> None:
    """rmq RQ-36, RT-15: by the time of an empty block, which other traffic isn't needed for."""
    net = network(function=never)
    ticket = net.client("shop-1").submit(b"never", ttl_ms=5_000)
    settle(net, 15 * SECOND)
    assert ticket.outcome is not None
    assert ticket.outcome.kind == "expired"
    for name in net.names:
        assert kinds(net, name, ticket.id).count("expired") == 1
    assert sum(len(block.verdicts) for block in net.final()) == 0


def test_a_result_that_differs_is_not_approved() -> None:
    """rmq RQ-44, RQ-75: the node that computes another result declines, and says which ones differ."""

    def random_at_n1(job: Job, node: QueueNode) -> Outcome:
        return Done(b"lie" if node.name == "n1" else job.body)

    net = network(function=random_at_n1)
    tickets = [net.client("shop-1").submit(b"%d" % number) for number in range(3)]
    settle(net, 20 * SECOND)
    for block in net.final():
        assert all(each.result != b"lie" for each in block.verdicts)
    assert all(each.outcome is not None and each.outcome.kind == "finalized" for each in tickets)


def test_a_message_whose_result_nobody_can_repeat_is_refused_and_holds_up_no_other() -> None:
    """rmq RQ-75, RT-43: one of twenty has another result at each node and each time; all say so."""
    drawn = Random(1)

    def one_is_random(job: Job, node: QueueNode) -> Outcome:
        del node
        return Done(b"%d" % drawn.getrandbits(64) if job.body == b"7" else job.body)

    net = network(function=one_is_random)
    tickets = [net.client("shop-1").submit(b"%d" % number) for number in range(20)]
    settle(net, 10 * SECOND)
    ended = {each.body: each.outcome.kind for each in tickets if each.outcome}
    assert ended.pop(b"7") == "refused"
    assert tickets[7].outcome is not None
    assert tickets[7].outcome.reason.count("result differs") == 4
    assert set(ended.values()) == {"finalized"}


def test_what_only_a_liar_has_said_to_one_node_is_decided() -> None:
    """rmq CC-14: 1. A liar says a message in an entry that he shows to n1 only, and another entry of that
    height to all. 2. Nobody may cite him any more, so n1 alone has the header. 3. It says the message itself."""
    net = network()
    net.queue_nodes[3].crash()
    client = net.client("shop-1")
    net.loss = 1.0
    ticket = client.submit(b"one")
    net.loss = 0.0
    hidden = entry_of("n4", None, records=encode((("external", ticket.header.fields),)))
    shown = entry_of("n4", None, records=encode((("say", "another"),)))

    def give(name: str, *fields: object) -> None:
        node = next(each for each in net.queue_nodes if each.name == name)
        frame = Addressed("n4", encode(fields))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - values
        node.step(lambda machine: machine.frame(frame, net.now))

    give("n1", "bodies", SESSION, (b"one",))
    give("n1", "entries", SESSION, (hidden.encode(), shown.encode()))
    give("n2", "entries", SESSION, (shown.encode(),))
    client.machine.close(net.now)
    assert [ticket.id in each.messages for each in net.sessions().values()] == [True, False, False]
    net.run(3 * SECOND)
    assert {each.status(ticket.id) for each in net.sessions().values()} == {"finalized"}


def test_a_client_sends_until_more_than_a_third_have_it() -> None:
    """rmq RQ-40, RT-21: of seven nodes three; then it only listens."""
    net = network(7)
    client = net.client("shop-1")
    ticket = client.submit(b"one")
    settle(net)
    assert 1 <= client.sent <= 3
    assert len(ticket.heard) == 7
    sent = client.sent
    net.run(10 * SECOND)
    assert client.sent == sent


def test_receipts_that_were_lost_are_read_again() -> None:
    """rmq RQ-39, RT-20: nothing is placed twice; the client learns the outcome when it is linked again."""
    net = network()
    client = net.client("shop-1")
    meets = net.meets
    net.meets = lambda one, other: other is not client and meets(one, other)  # type: ignore[method-assign]
    ticket = client.submit(b"one")
    net.run(30 * SECOND)
    assert ticket.history == []
    net.meets = meets  # type: ignore[method-assign]
    settle(net)
    assert ticket.outcome is not None
    assert ticket.outcome.kind == "finalized"
    assert sum(len(block.verdicts) for block in net.final()) == 1


def test_a_forged_pack_of_receipts_is_not_believed() -> None:
    """rmq RQ-41: a terminal outcome needs more nodes than may lie, each with its signature."""
    net = network()
    client = net.client("shop-1")
    net.groups = [set()]
    ticket = client.submit(b"one", ttl_ms=1_000)
    net.run(10 * MS)

    def lie(node: str, key: str, number: int) -> None:
        detail = encode((1, b"lie"))
        receipt = Receipt(number, ticket.id, "finalized", 1, 1, bytes(32), detail, 0)
        text = pack_signed("orders", "shop-1", node, [receipt])
        rows = (receipt.fields,)
        frame = encode(("receipts", "orders", "shop-1", node, rows, KeyedHash(key).sign(text), 0))
        client.step(lambda machine: machine.frame(Addressed("n1", frame), net.now))

    lie("n1", "n1", (1 << 32) + 1)
    lie("n1", "n1", (1 << 32) + 2)
    lie("n2", "n1", (1 << 32) + 1)
    assert ticket.outcome is None
    assert client.machine.counters() == {"bad_pack": 1}
    lie("n2", "n2", (1 << 32) + 1)
    assert ticket.outcome is not None


@pytest.mark.parametrize(
    ("why", "changed"),
    [
        ("ahead", {"epoch": 2}),
        ("too-old", {"expires_ms": WALL_MS}),
        ("ttl", {"expires_ms": WALL_MS + 10_000_000}),
        ("malformed", {"size": 9}),
        ("malformed", {"body_hash": bytes(32)}),
        ("too-large", {"size": 70_000, "body_hash": sha256(bytes(70_000)).digest()}),
    ],
)
def test_a_submit_that_is_refused_leaves_no_trace(why: str, changed: dict[str, object]) -> None:
    """rmq RQ-12, RQ-14, RQ-49: with the reason as answer."""
    net = network()
    client = net.client("shop-1")
    net.loss = 1.0
    ticket = client.submit(b"one")
    net.loss = 0.0
    header = replace(ticket.header, **changed)  # type: ignore[arg-type]
    client.machine.tickets[header.id] = ticket
    client.machine._open[header.id] = ticket  # pyright: ignore[reportPrivateUsage] - as if it had sent this
    body = bytes(70_000) if header.size == 70_000 else b"one"
    net.send(client, "n1", encode(("submit", "orders", header.fields, body)))
    net.run(100 * MS)
    assert ticket.refusals == {"n1": why}
    session = net.sessions()["n1"]
    assert header.id not in session.messages
    assert header.id not in [each[2] for each in net.queue_nodes[0].receipts()]


def test_a_node_that_may_not_write_takes_nothing_in() -> None:
    """rmq RQ-68: ``unavailable``; the client goes on to another node."""
    net = network()
    node = net.queue_nodes[0]
    node.crash()
    node.guard = None
    node.start()
    net.run(SECOND)
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % number) for number in range(12)]
    settle(net)
    assert "unavailable" in {why for each in tickets for why in each.refusals.values()}
    assert all(each.outcome and each.outcome.kind == "finalized" for each in tickets)


def test_a_full_node_says_so() -> None:
    """rmq RQ-14, RQ-15: a bound of what this node lets in, not of what the log brings."""
    net = network(settings=replace(QUICK, pending_max=3), function=never)
    client = net.client("shop-1")
    for number in range(20):
        client.submit(b"%d" % number)
        net.run(50 * MS)
    assert net.sessions()["n1"].counters()["refused_overloaded"] > 0


PARENT = SESSION


def proposal(net: QueueNetwork, change: str) -> Block:
    """What a collator of slot 1 (n2) proposes, unsound in one way."""
    session = net.sessions()["n1"]
    ids = [each for each in session.messages if session.status(each) == "queued"]
    verdicts = tuple(JobVerdict(each, DONE, session.messages[each].body or b"", "") for each in ids)
    in_order = {each.id: each for each in verdicts}
    verdicts = tuple(in_order[each] for each in ordered(PARENT, in_order))
    now_ms = WALL_MS + net.now // MS
    block = Block(SESSION, 1, 0, PARENT, "n2", now_ms, verdicts)
    first = verdicts[0]
    match change:
        case "time":
            return replace(block, time_ms=now_ms + 100_000)
        case "shape":
            return replace(block, verdicts=verdicts[::-1])
        case "expired":
            return replace(block, time_ms=now_ms + 30_000)
        case "refusals":
            return replace(block, verdicts=(replace(first, kind="refused"), *verdicts[1:]))
        case "seal":
            return replace(block, verdicts=(), record=bytes(32))
        case "invalid-result":
            return replace(block, verdicts=(replace(first, result=b"lie"), *verdicts[1:]))
        case _:
            raise AssertionError(change)


@pytest.mark.parametrize("why", ["time", "shape", "expired", "refusals", "invalid-result", "seal"])
def test_an_unsound_proposal_is_declined_with_the_reason(why: str) -> None:
    """rmq RQ-23, RQ-24, RQ-25: it is skipped at once by all, and the messages are decided in a later slot."""
    slow = replace(QUICK, slot_timeout_us=5 * SECOND, clock_skew_ms=60_000, epoch_length_ms=600_000)
    net = network(settings=slow)
    net.queue_nodes[1].crash()
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % number, ttl_ms=20_000) for number in range(3)]
    session = net.sessions()["n1"]
    while [each.body is not None for each in session.messages.values()].count(True) < 3:
        net.run(MS)
    assert session.chain.slot == 1
    block = proposal(net, why)
    head = session.log.causality.head("n2")
    vote = KeyedHash("n2").sign(vote_signed(SESSION, "approve", 1, block.digest))
    items = (("candidate", block.fields), ("vote", "approve", 1, block.digest, vote))
    entry = entry_of("n2", head.entry if head else None, records=encode(items))
    for node in net.queue_nodes:
        frame = Addressed("n2", encode(("entries", SESSION, (entry.encode(),))))
        node.step(lambda machine, frame=frame: machine.frame(frame, net.now))  # type: ignore[misc]
    net.run(100 * MS)
    for name, each in net.sessions().items():
        assert each.counters().get(f"declined_{why}"), name
    settle(net, 40 * SECOND)
    assert block.digest not in [each.digest for each in net.final()]
    assert all(each.outcome for each in tickets)


def test_a_node_that_crashes_at_any_moment_votes_as_before() -> None:
    """rmq RT-16, RT-22: a collator and a voter, after any moment of a slot: one chain, every message once."""
    for crash_after in range(0, 120 * MS, 6 * MS):
        net = network(seed=crash_after + 5)
        client = net.client("shop-1")
        tickets = [client.submit(b"%d" % number) for number in range(3)]
        net.run(crash_after)
        for node in net.queue_nodes[1:3]:
            node.crash()
        net.run(150 * MS)
        for node in net.queue_nodes[1:3]:
            node.start()
        settle(net, 6 * SECOND)
        assert all(each.outcome and each.outcome.kind == "finalized" for each in tickets)
        check_end(net)


def test_a_minority_decides_nothing_and_loses_nothing() -> None:
    """rmq RT-23: both halves place messages; when they meet again all are decided."""
    net = network()
    client = net.client("shop-1")
    net.groups = [{"n1", "n2"}, {"n3", "n4"}]
    tickets = [client.submit(b"%d" % number) for number in range(8)]
    net.run(20 * SECOND)
    assert net.final() == []
    net.groups = []
    settle(net, 10 * SECOND)
    assert all(each.outcome and each.outcome.kind == "finalized" for each in tickets)


def test_a_dead_node_costs_its_turns_and_nothing_else() -> None:
    """rmq RT-22: one of four is killed for good."""
    net = network()
    net.queue_nodes[2].crash()
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % number) for number in range(40)]
    settle(net, 12 * SECOND)
    assert all(each.outcome and each.outcome.kind == "finalized" for each in tickets)


def test_a_dead_node_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """rmq RQ-79: its further turns are nearly free, and it is asked again when it is back."""
    net = network(settings=replace(QUICK, slot_timeout_us=3 * SECOND))
    net.queue_nodes[2].crash()
    client = net.client("shop-1")
    slow = 0
    for number in range(16):
        begin, ticket = net.now, client.submit(b"%d" % number)
        while ticket.outcome is None:
            net.run(10 * MS)
        slow += net.now - begin > 2 * SECOND
    assert slow == 1
    net.queue_nodes[2].start()
    monkeypatch.setattr(session_voting, "SUSPECT_EVERY", 2)
    for number in range(20):
        client.submit(b"later %d" % number)
        net.run(100 * MS)
    assert "n3" in {block.collator for block in net.final()}


def test_a_clock_that_is_wrong_stops_nothing() -> None:
    """rmq RQ-2, RT-46: one of four is an hour ahead; its blocks are declined, the others go on."""
    net = network()
    net.queue_nodes[0].clock_ms = 3_600_000
    client = net.client("shop-1")
    tickets = [client.submit(b"%d" % number) for number in range(20)]
    net.run(SECOND)
    tickets += [client.submit(b"again %d" % number) for number in range(20)]
    settle(net, 15 * SECOND)
    assert all(each.outcome and each.outcome.kind == "finalized" for each in tickets)
    assert {NoticeKind.DECLINED} <= {
        notice.kind for node in net.queue_nodes[1:] for notice in node.notices
    }


def test_settings_that_do_not_fit_together_are_refused() -> None:
    """rmq RT-28: with the names and figures."""
    with pytest.raises(ConfigurationError, match="batch_max 1000 with result_bytes_max 256"):
        QueueSettings(batch_max=1000)


@pytest.mark.parametrize("twins", [0, 1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_queue_agrees_after_any_troubles(seed: int, twins: int) -> None:
    """rmq RQ-29, RQ-40, CL-8, RI-20: loss, partitions, crashes, wrong clocks, twins: every message once."""
    run_troubled(seed, twins)


def run_troubled(seed: int, twins: int) -> QueueNetwork:
    """One run; everything is checked on the way and at its end."""
    draw = Random(seed)
    n = 7 if twins == 2 else 4
    names = tuple(f"n{n - at}" for at in range(twins))
    net = QueueNetwork(n, seed, twins=names, settings=QUICK)
    net.loss, net.repeats = draw.choice((0, 0.1, 0.3)), draw.choice((0, 0.2))
    net.silence = draw.choice((0, 0.1))
    net.start()
    net.run(1500 * MS)
    clients = [net.client("shop-1"), net.client("shop-2")]
    tickets: list[Submitted] = []
    for at in range(10):
        for client in clients:
            dedupe = b"" if draw.random() < 0.7 else b"%d" % draw.randint(1, 3)
            tickets.append(client.submit(b"%s %d" % (client.name.encode(), at), dedupe=dedupe))
        net.run(draw.randint(10, 400) * MS)
        check_queue(net)
        node, cut = draw.choice(net.queue_nodes), draw.randint(1, n - 1)
        match draw.choice(("crash", "crash", "part", "heal", "heal", "redraw", "clock", "")):
            case "crash":
                node.crash()
                net.after(draw.randint(0, 1500) * MS, node.start_if_down)
            case "part":
                net.groups = [set(net.names[:cut]), set(net.names[cut:])]
            case "heal":
                net.groups = []
            case "redraw":
                net.redraw()
            case "clock":
                node.clock_ms = draw.choice((0, 1_000, -1_000, 50_000))
            case _:
                pass
    net.groups, net.loss, net.silence = [], 0, 0
    for node in net.queue_nodes:
        node.clock_ms = 0
        node.start_if_down()
    for _ in range(6):
        net.redraw()
        net.run(3 * SECOND)
    net.run(60 * SECOND)
    check_queue(net)
    check_receipts(net)
    check_always(net)
    check_end(net)
    check_proofs(net)
    check_evidence(net)
    ended = [each.outcome.kind if each.outcome else "open" for each in tickets]
    assert set(ended) <= {"finalized", "duplicate", "expired"}, ended
    return net


def test_a_node_that_is_alone_decides() -> None:
    """rmq RQ-1, RI-20: nobody is there to be told heads, and nobody asks it anything that would wake it."""
    net = network(1)
    client = net.client("shop-1")
    ticket = client.submit(b"one")
    client.machine.close(net.now)
    net.run(SECOND)
    assert net.sessions()["n1"].status(ticket.id) == "finalized"
