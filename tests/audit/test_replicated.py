"""What the stores of a replicated queue's nodes show: of troubled queues, of stores that somebody altered, and of
queues that were made up, with every signature in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from surepipe.audit.replicated import NodeRows, QueueAudit, judge_queue, read_node
from surepipe.audit.replicated import judging as promises
from surepipe.audit.trace_audit import Standing
from surepipe.errors import ConfigurationError
from surepipe.queues.rmq.chain import (
    APPROVE,
    DONE,
    FINALISE,
    REFUSED,
    SKIP,
    Block,
    JobVerdict,
    ordered,
    vote_signed,
)
from surepipe.queues.rmq.encoding import FIRST_POINT, MessageHeader, Value, decode, encode
from surepipe.queues.rmq.entries import ForkProof, LogEntry, Member
from surepipe.queues.rmq.epochs import Foundation, QueueSettings
from surepipe.queues.rmq.node import NodeMachine
from surepipe.queues.rmq.receipts import Receipt
from surepipe.queues.rmq.session import SessionMachine
from tests.queues.rmq.cluster_network import EpochNetwork
from tests.queues.rmq.log_network import MS, SECOND, KeyedHash
from tests.queues.rmq.test_epochs import network, never_before, no_beer, run_epochs, until

NAMES = ("n1", "n2", "n3", "n4")
KEYS = KeyedHash("auditor")
ALL = (
    promises.LOGS,
    promises.FORKS,
    promises.AGREEMENT,
    promises.APPROVED,
    promises.RULES,
    promises.ONCE,
    promises.NO_LOSS,
    promises.RECEIPTS,
)


def rows_of(net: EpochNetwork, *names: str) -> list[NodeRows]:
    """What the nodes of a network have stored."""
    found: list[NodeRows] = []
    for host in net.epoch_nodes:
        try:
            found.append(read_node(host.store, "orders", host.name))
        except ConfigurationError:
            continue  # it has never begun
    return [each for each in found if not names or each.name in names]


def audit(net: EpochNetwork, rows: Sequence[NodeRows] | None = None) -> QueueAudit:
    """Judge all of them."""
    return judge_queue(net.foundation, rows_of(net) if rows is None else rows, KEYS)


def standings(found: QueueAudit) -> dict[str, set[Standing]]:
    """Of each promise."""
    out: dict[str, set[Standing]] = {}
    for each in found.judged:
        out.setdefault(each.promise, set()).add(each.standing)
    return out


# Queues that are as they should be.


def test_a_queue_at_rest_is_held_to_all_it_promises() -> None:
    """rmq RQ-90, RQ-92: done, refused, repeated and expired messages; nothing waits, nothing is unknown."""
    net = network(function=no_beer)
    client = net.client("shop-1")
    for body, dedupe in ((b"tea", b"1"), (b"tea", b"1"), (b"milk", b""), (b"beer", b"")):
        client.submit(body, key=b"k", dedupe=dedupe)
    net.run(SECOND)
    found = audit(net)
    assert standings(found) == {each: {Standing.HELD} for each in ALL}
    assert found.notes == ("epoch 1: 4 final blocks; 2 finalized, 1 refused, 1 duplicate",)


@pytest.mark.parametrize("twins", [0, 1])
def test_an_audit_in_the_midst_of_any_troubles_accuses_nobody_who_did_nothing(
    monkeypatch: pytest.MonkeyPatch, twins: int
) -> None:
    """rmq RQ-89, RQ-90: at many moments, with crashes, cuts, wrong clocks, split and merge; who lied is named."""
    found: list[QueueAudit] = []
    run = EpochNetwork.run
    turns = count()

    def run_and_audit(net: EpochNetwork, for_us: int) -> None:
        run(net, for_us)
        if next(turns) % 2 == 0:
            found.append(audit(net))

    monkeypatch.setattr(EpochNetwork, "run", run_and_audit)
    for seed in (2, 5):
        run_epochs(seed, twins)
    assert [each for one in found for each in one.broken] == []
    held = {each.promise for one in found for each in one.judged if each.standing is Standing.HELD}
    assert held >= {promises.ONCE, promises.NO_LOSS, promises.RECEIPTS, promises.MEMORY}
    lied = {note.split(": ")[1].split()[0] for one in found for note in one.notes if "lied" in note}
    assert lied == ({"n4"} if twins else set())


def test_a_store_that_is_not_at_hand_leaves_open_what_only_it_can_tell() -> None:
    """rmq RT-51: what the others show is judged all the same."""
    net = network()
    net.client("shop-1").submit(b"tea")
    net.run(SECOND)
    found = standings(audit(net, rows_of(net, "n1", "n2", "n3")))
    unknown = {each for each, how in found.items() if how == {Standing.UNJUDGED}}
    assert unknown == {promises.LOGS, promises.FORKS, promises.AGREEMENT}


def test_what_waits_is_not_lost_before_all_is_at_rest() -> None:
    """rmq RQ-92: a message that nobody has decided yet is no loss, unless nothing more will come."""
    net = network(function=never_before(9))
    ticket = net.client("shop-1").submit(b"tea")
    net.run(500 * MS)
    (row,) = [each for each in audit(net).judged if each.promise == promises.NO_LOSS]
    assert row.standing is Standing.UNJUDGED
    assert ticket.id.hex()[:8] in row.why
    at_rest = judge_queue(net.foundation, rows_of(net), KEYS, at_rest=True)
    assert [each.promise for each in at_rest.broken] == [promises.NO_LOSS]


# Stores that were altered.

Change = Callable[[Value], list[Value]]


def altered(rows: NodeRows, epoch: int, change: Change) -> NodeRows:
    """The same with other rows in one log: each as ``change`` gives it."""
    key = epoch, FIRST_POINT
    logs = dict(rows.logs)
    logs[key] = [encode(new) for row in rows.logs[key] for new in change(decode(row))]
    return replace(rows, logs=logs)


def _entries_of_n2_say_more(row: Value) -> list[Value]:
    match row:
        case ("entry", bytes() as data) if LogEntry.decode(data).author == "n2":
            entry = LogEntry.decode(data)
            more = encode((*entry.items, ("refusal", bytes(32), 1, "no")))
            return [("entry", replace(entry, records=more).encode())]
        case _:
            return [row]


def _without_first_of_n2(row: Value) -> list[Value]:
    match row:
        case ("entry", bytes() as data):
            entry = LogEntry.decode(data)
            return [] if (entry.author, entry.height) == ("n2", 1) else [row]
        case _:
            return [row]


def _told(row: Value, change: Callable[[Receipt], list[Receipt]]) -> list[Value]:
    match row:
        case ("receipt", str() as submitter, fields):
            return [("receipt", submitter, each.fields) for each in change(Receipt.of(fields))]
        case _:
            return [row]


def _ends_are_expiries(row: Value) -> list[Value]:
    return _told(
        row, lambda each: [replace(each, kind="expired") if each.kind == "finalized" else each]
    )


def _ends_come_twice(row: Value) -> list[Value]:
    return _told(
        row,
        lambda each: (
            [each, replace(each, number=each.number + 100)] if each.kind == "finalized" else [each]
        ),
    )


def _numbers_repeat(row: Value) -> list[Value]:
    return _told(row, lambda each: [replace(each, number=7)])


def _memory_is_gone(row: Value) -> list[Value]:
    match row:
        case ("remembered", _):
            return []
        case _:
            return [row]


def _n3_is_blamed(row: Value) -> list[Value]:
    proof = ForkProof("n3", 1, bytes(32), bytes(64), b"\1" * 32, bytes(64))
    return [row, ("proof", proof.fields)]


def _something_else(row: Value) -> list[Value]:
    return [row, ("nonsense", 1)]


@pytest.mark.parametrize(
    ("change", "promise", "words"),
    [
        (_entries_of_n2_say_more, promises.LOGS, "of n2, which n2 has not signed"),
        (_without_first_of_n2, promises.LOGS, "which stands before what it cites"),
        (_something_else, promises.LOGS, "of a kind that isn't known"),
        (_n3_is_blamed, promises.LOGS, "n1 blames n3, and its proof proves nothing"),
        (_ends_are_expiries, promises.RECEIPTS, "was expired, and it was finalized"),
        (_ends_come_twice, promises.RECEIPTS, "n1 told the end of"),
        (_numbers_repeat, promises.RECEIPTS, "number 7 after a later one"),
        (_memory_is_gone, promises.MEMORY, "n2 and n1 remember different things"),
    ],
)
def test_a_store_that_was_altered_is_told(change: Change, promise: str, words: str) -> None:
    """rmq RT-51: one row of one node, and which promise it breaks."""
    net = network()
    client = net.client("shop-1")
    first = client.submit(b"first")
    until(net, 2)
    client.submit(b"tea")
    net.run(500 * MS)
    assert first.outcome is not None
    epoch = 2
    mine, *others = rows_of(net)
    found = audit(net, [altered(mine, epoch, change), *others])
    assert [each.promise for each in found.broken] == [promise]
    assert words in found.broken[0].why


def test_a_session_without_a_proof_of_its_epoch_is_told() -> None:
    """rmq RQ-10: nobody knows who its members are."""
    net = network()
    net.client("shop-1").submit(b"tea")
    until(net, 3)
    rows = rows_of(net)
    bare = replace(rows[0], epochs=encode(((), ((3, FIRST_POINT),), (), ())))
    (broken,) = audit(net, [bare, *rows[1:]]).broken
    assert broken.why == "n1 has a session of epoch 3, and no proof of that epoch"


def test_a_fork_without_a_proof_is_told() -> None:
    """rmq CC-13: who holds two entries of one author for one height has to have shown it."""
    net = network(seed=0, twins=("n4",))
    client = net.client("shop-1")
    net.run(500 * MS)
    for number in range(8):
        client.submit(b"%d" % number)
        net.redraw()
        net.run(200 * MS)
    net.run(500 * MS)
    whole = audit(net)
    assert standings(whole)[promises.FORKS] == {Standing.HELD}
    assert any("n4 lied: it signed two entries" in note for note in whole.notes)

    def forgotten(row: Value) -> list[Value]:
        match row:
            case ("proof", _):
                return []
            case _:
                return [row]

    mine, *others = rows_of(net)
    (broken,) = audit(net, [altered(mine, 1, forgotten), *others]).broken
    assert broken.promise == promises.FORKS
    assert "n1 has both and no proof" in broken.why


# Queues that were made up: every node signs what it is told to.


class MadeUp:
    """The log of a first session, written by hand; all four nodes have the same rows."""

    def __init__(self) -> None:
        members = tuple(Member(name, KeyedHash(name).public) for name in NAMES)
        self.foundation = Foundation("orders", members, QueueSettings())
        self.session = self.foundation.session
        self._rows: list[Value] = []
        self._chains: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self._messages = 0
        self.tip: Block | None = None

    def say(self, author: str, *records: tuple[Value, ...]) -> None:
        """An entry with these records."""
        chain = self._chains[author]
        previous = chain[-1] if chain else self.session
        entry = LogEntry(self.session, author, len(chain) + 1, previous, (), encode(tuple(records)))
        entry = entry.with_signature(KeyedHash(author).sign(entry.signed))
        chain.append(entry.digest)
        self._rows.append(("entry", entry.encode()))

    def message(self, *, dedupe: bytes = b"", expires_ms: int = 9_000) -> MessageHeader:
        """One that n1 has taken in."""
        self._messages += 1
        nonce = self._messages.to_bytes(16, "big")
        header = MessageHeader(
            "orders", "work", "shop-1", nonce, 1, expires_ms, b"k", dedupe, bytes(32), 0
        )
        self.say("n1", ("external", header.fields))
        return header

    def vote(self, kind: str, slot: int, block: bytes, *names: str) -> None:
        """Votes, each in an entry of its own."""
        for name in names:
            signed = KeyedHash(name).sign(vote_signed(self.session, kind, slot, block))
            self.say(name, ("vote", kind, slot, block, signed))

    def block(
        self,
        *headers: MessageHeader,
        slot: int = 0,
        collator: str = "",
        time_ms: int = 1_000,
        kind: str = DONE,
        approved: int = 3,
        is_unordered: bool = False,
        record: bytes = b"",
    ) -> Block:
        """A block that is proposed, approved and final."""
        slot = slot or (self.tip.slot if self.tip else 0) + 1
        parent = self.tip.digest if self.tip else self.session
        in_order = ordered(parent, [each.id for each in headers])
        ids = in_order[::-1] if is_unordered else in_order
        reason = "no" if kind == REFUSED else ""
        verdicts = tuple(JobVerdict(each, kind, b"", reason) for each in ids)
        collator = collator or NAMES[slot % 4]
        before = self.tip.slot if self.tip else 0
        found = Block(self.session, slot, before, parent, collator, time_ms, verdicts, record)
        self.say(collator, ("candidate", found.fields))
        self.vote(APPROVE, slot, found.digest, *NAMES[:approved])
        self.vote(FINALISE, slot, found.digest, *NAMES[:3])
        self.tip = found
        return found

    def audit(self) -> QueueAudit:
        """Judge it."""
        epochs = encode(((), ((1, FIRST_POINT),), (), ()))
        rows = [encode(each) for each in self._rows]
        nodes = [NodeRows(name, epochs, {(1, FIRST_POINT): rows}) for name in NAMES]
        return judge_queue(self.foundation, nodes, KEYS)


def _good(queue: MadeUp) -> None:
    queue.block(queue.message(), queue.message())
    queue.vote(SKIP, 2, b"", *NAMES[:3])
    queue.block(queue.message(), slot=3)


def _twice(queue: MadeUp) -> None:
    header = queue.message()
    queue.block(header)
    queue.block(header)


def _work_twice(queue: MadeUp) -> None:
    queue.block(queue.message(dedupe=b"order-17"))
    queue.block(queue.message(dedupe=b"order-17"))


def _too_late(queue: MadeUp) -> None:
    queue.block(queue.message(expires_ms=2_000), time_ms=2_001)


def _not_his_turn(queue: MadeUp) -> None:
    queue.block(queue.message(), collator="n4")


def _back_in_time(queue: MadeUp) -> None:
    queue.block(queue.message(), time_ms=2_000)
    queue.block(queue.message(), time_ms=1_000)


def _chosen_order(queue: MadeUp) -> None:
    queue.block(*(queue.message() for _ in range(3)), is_unordered=True)


def _refused_by_one(queue: MadeUp) -> None:
    header = queue.message()
    queue.say("n1", ("refusal", header.id, 1, "no"))
    queue.block(header, kind=REFUSED)


def _behind_seal(queue: MadeUp) -> None:
    queue.block(record=b"\1" * 32)
    queue.block(queue.message())


def _too_few(queue: MadeUp) -> None:
    queue.block(queue.message(), approved=2)


def _jumped(queue: MadeUp) -> None:
    queue.block(queue.message())
    queue.vote(SKIP, 2, b"", *NAMES[:2])
    queue.block(queue.message(), slot=3)


@pytest.mark.parametrize(
    ("make", "promise", "words"),
    [
        (_good, "", ""),
        (_twice, promises.ONCE, "is decided in block 1 and 2"),
        (_work_twice, promises.ONCE, "is done in block 1 and 2"),
        (_too_late, promises.RULES, "which had expired"),
        (_not_his_turn, promises.RULES, "block 1 is by n4, whose turn it wasn't"),
        (_back_in_time, promises.RULES, "block 2 is earlier than the one before it"),
        (_chosen_order, promises.RULES, "in an order that its collator chose"),
        (_refused_by_one, promises.RULES, "which not all have refused"),
        (_behind_seal, promises.RULES, "block 2 has messages behind the seal"),
        (_too_few, promises.APPROVED, "block 1 was not approved by 3"),
        (_jumped, promises.APPROVED, "jumps slot 2, which 3 have not skipped"),
    ],
)
def test_what_a_queue_must_not_decide_is_told(
    make: Callable[[MadeUp], None], promise: str, words: str
) -> None:
    """rmq RQ-24, RQ-90: signed by all, and against the rules all the same."""
    queue = MadeUp()
    make(queue)
    found = queue.audit()
    assert [each.promise for each in found.broken] == ([promise] if promise else [])
    assert all(words in each.why for each in found.broken)


def test_with_more_liars_than_the_queue_bears_nothing_was_promised() -> None:
    """rmq RQ-90: two blocks are final in one slot, and who voted for both is named."""
    queue = MadeUp()
    first = queue.block(queue.message())
    queue.tip = None
    queue.vote(APPROVE, 1, b"\1" * 32, "n4")
    second = queue.block(queue.message(), slot=1, approved=4, time_ms=1_001)
    assert first.digest != second.digest
    found = queue.audit()
    assert found.broken == ()
    (row,) = [each for each in found.judged if each.promise == promises.AGREEMENT]
    assert row.standing is Standing.UNJUDGED
    assert "n1, n2, n3, n4 lied, and 1 of 4 may: nothing is promised then" in row.why
    assert "a quorum has finalised a block in slot 1 beside the final chain" in row.why


# Queues with a planted mistake.


def _seen(net: EpochNetwork, for_us: int) -> set[str]:
    """The promises that were broken, at any moment of a while."""
    found: set[str] = set()
    for _ in range(for_us // (500 * MS)):
        net.run(500 * MS)
        found |= {each.promise for each in audit(net).broken}
    return found


def _nothing(*_: object) -> int:
    return 0


def _no_rows(*_: object) -> list[object]:
    return []


def test_what_is_not_handed_over_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """rmq RQ-31, RQ-34: a node that was away still has what it was; the others have ended the epoch behind."""
    monkeypatch.setattr(NodeMachine, "_hand_one", _nothing)
    net = network(function=never_before(3))
    client = net.client("shop-1")
    client.submit(b"early", ttl_ms=500)
    net.run(2_400 * MS)
    client.submit(b"tea")
    until(net, 2)
    net.epoch_nodes[3].crash()
    assert promises.NO_LOSS in _seen(net, 6 * SECOND)


def test_what_is_not_remembered_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """rmq RQ-13, RQ-70: the next epoch knows nothing of what this one decided."""
    monkeypatch.setattr(SessionMachine, "_memory_behind", _no_rows)
    net = network()
    net.client("shop-1").submit(b"tea")
    assert promises.MEMORY in _seen(net, 4 * SECOND)
