"""Parties: each check of each call by itself, what a refusal leaves alone, and what comes back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event

import pytest

from surepipe.errors import MisuseError
from surepipe.queues.ibc import (
    DEFER,
    Fail,
    IbcRefused,
    Item,
    ItemKind,
    Ledger,
    Party,
    Sending,
    SendValue,
    Submission,
    Transaction,
)
from surepipe.queues.ibc.keys import QueueKey, Receipt
from surepipe.queues.ibc.module import Deferral
from tests.queues.ibc.party_pair import START_MS, Pair


def refused(act: Callable[[], object], code: str) -> None:
    """It is refused under this code."""
    with pytest.raises(IbcRefused) as refusal:
        act()
    assert refusal.value.code == code


def state(party: Party) -> tuple[object, ...]:
    """Everything of it that a refused call could have moved."""
    return party.merkle.latest.height, party.merkle.latest.root, len(list(party.merkle.blocks()))


# Sending.


def test_a_message_is_provable_from_its_block_on() -> None:
    """IT-5: its index is the old tail."""
    pair = Pair()
    height = pair.east.merkle.latest.height
    assert pair.send(b"first") == 0
    assert pair.send(b"second") == 1
    pair.east.view.refresh()
    key = QueueKey("west", "send", "entry", 0)
    assert pair.east.view.get(key, height) is None
    assert pair.east.view.get(key, height + 1) == SendValue("note", b"first").encode()


def test_each_check_of_sending_refuses_and_changes_nothing() -> None:
    """IT-6, I-9: in the order of the table."""
    pair = Pair()
    stranger = pair.east.module("stranger")
    before = state(pair.east)
    app = pair.east_app
    refused(lambda: app.send("nowhere", "note", b"x"), "unregistered-destination")
    refused(lambda: app.send("west", "unheard", b"x"), "unsupported-type")
    refused(lambda: stranger.send("west", "note", b"x"), "not-permitted")
    refused(lambda: app.send("west", "note", b""), "empty-data")
    refused(lambda: app.send("west", "note", bytes(262_145)), "too-large")
    newest = pair.east.client("west")
    assert newest is not None
    header = newest.newest.header
    refused(lambda: app.send("west", "note", b"x", timeout_height=header.height), "timeout-elapsed")
    refused(lambda: app.send("west", "note", b"x", timeout_ms=header.time_ms), "timeout-elapsed")
    assert state(pair.east) == before


def test_a_type_has_one_owner_and_named_senders() -> None:
    """IB-13."""
    pair = Pair()
    pair.east.module("friend")
    pair.east_app.handle("gift", senders=["friend"])
    with pytest.raises(MisuseError, match="belongs to module"):
        pair.east.module("friend").handle("gift")
    assert pair.east.module("friend").send("west", "gift", b"x") == 0


def test_what_raises_sends_nothing() -> None:
    """IT-7: an execute that sends, sets, and then raises."""
    pair = Pair()
    before = state(pair.east)

    def work(tx: Transaction) -> None:
        tx.set(b"key", b"value")
        tx.send("west", "note", b"x")
        raise KeyError("no")

    with pytest.raises(KeyError):
        pair.east_app.execute(work)
    assert state(pair.east) == before
    assert pair.east_app.get(b"key") is None


# Receiving.


def test_messages_are_executed_once_and_in_order() -> None:
    """IT-8, IT-10, IB-16, I-3, I-9: 1 before 0 is refused, and accepted after it; a repeat changes nothing."""
    pair = Pair()
    pair.send(b"a")
    pair.send(b"b")
    assert pair.receive(1).code == "out-of-order"
    assert pair.receive(0).kind == "done"
    before = state(pair.west)
    repeated = pair.receive(0, trusts=False)
    assert (repeated.kind, repeated.code) == ("redundant", "already-received")
    assert state(pair.west) == before
    assert pair.receive(1).kind == "done"
    assert pair.told == [("received", "west", 0, b"a"), ("received", "west", 1, b"b")]
    assert pair.counters(pair.west, "east", "receipt") == (0, 2)


def test_the_first_check_that_fails_decides() -> None:
    """IT-9, IT-11, IT-12: each with a later fault beside it."""
    pair = Pair()
    pair.send(b"a")
    east, west, receive = pair.east, pair.west, ItemKind.RECEIVE
    own = QueueKey("west", "send", "entry", 0)
    known = west.connections["east"].known_as
    assert known == "west"
    third = Party("third", keys=[bytes([3]) * 32], clock=pair.time.wall_ms)
    third.register("west", west.identity())
    third.module("app").handle("note")
    third.module("app").send("west", "note", b"x")
    outcome = pair.brought(third, west, receive, QueueKey("west", "send", "entry", 0))
    assert outcome.code == "unregistered-sender"
    receipt = QueueKey("west", "receipt", "entry", 0)
    assert pair.brought(east, west, receive, receipt, value=b"x").code == "not-a-send"
    other = QueueKey("elsewhere", "send", "entry", 0)
    assert pair.brought(east, west, receive, other, value=b"x").code == "wrong-chain"
    head = QueueKey("west", "send", "head")
    assert pair.brought(east, west, receive, head).code == "not-a-message"
    late = QueueKey("west", "send", "entry", 5)
    assert pair.brought(east, west, receive, late, value=b"x", trusts=False).code == "out-of-order"
    pair.send(b"b")
    assert pair.brought(east, west, receive, own, trusts=False).code == "unknown-header"
    assert pair.receive(0, flip=1).code == "invalid-proof"
    assert pair.receive(0).kind == "done"


def test_results_of_handlers_become_receipts_and_the_queue_goes_on() -> None:
    """IT-13: a refusal, an exception after writes and sends, a type nobody handles, then a good one."""
    pair = Pair()

    def picky(tx: Transaction, data: bytes) -> bytes | Fail:
        tx.set(b"seen", data)
        tx.send("east", "note", b"undone")
        if data == b"raise":
            raise ValueError("no")
        return Fail(100, b"why") if data == b"fail" else b"ok"

    pair.west_app.handle("picky", on_receive=picky)
    for kind in ("picky", "unheard"):
        pair.east_app.handle(kind)
    for kind, data in (("picky", b"fail"), ("picky", b"raise"), ("unheard", b"x")):
        pair.east_app.send("west", kind, data)
    pair.send(b"good")
    assert [pair.receive(index).kind for index in range(4)] == ["done"] * 4
    pair.west.view.refresh()
    found = pair.west.view.entries("east", "receipt", 0, 4, pair.west.view.height)
    assert [Receipt.decode(found[index]) for index in range(4)] == [
        Receipt(100, b"why"),
        Receipt(4),
        Receipt(2),
        Receipt(0, b"done good"),
    ]
    assert pair.west_app.get(b"seen") is None
    assert pair.counters(pair.west, "east", "send") == (0, 0)


@pytest.mark.parametrize("kind", ["coroutine", "generator"])
def test_a_handler_that_would_be_over_too_early_is_refused(kind: str) -> None:
    """IT-67, IB-114: by its kind at once; one that returns a coroutine when it does, without a receipt."""
    pair = Pair()

    async def later(tx: Transaction, data: bytes) -> bytes:
        del tx
        return data

    def generates(tx: Transaction, data: bytes) -> object:
        del tx
        yield data

    chosen: object = later if kind == "coroutine" else generates
    with pytest.raises(MisuseError, match="coroutine or generator"):
        pair.west_app.handle("slow", on_receive=chosen)  # type: ignore[arg-type]

    def hidden(tx: Transaction, data: bytes) -> bytes:
        return chosen(tx, data)  # type: ignore[operator, no-any-return]

    pair.west_app.handle("slow", on_receive=hidden)
    pair.east_app.handle("slow")
    pair.east_app.send("west", "slow", b"x")
    assert pair.receive(0).code == "handler-misuse"
    assert pair.counters(pair.west, "east", "receipt") == (0, 0)


def test_what_is_no_fault_of_the_application_ends_the_block() -> None:
    """IT-68: no receipt says so, and the message is executed again."""
    pair = Pair()
    raised: list[BaseException] = [MemoryError(), KeyboardInterrupt(), SystemExit()]

    def handler(tx: Transaction, data: bytes) -> bytes:
        tx.set(b"seen", data)
        if raised:
            raise raised.pop(0)
        return b"ok"

    pair.west_app.handle("hard", on_receive=handler)
    pair.east_app.handle("hard")
    pair.east_app.send("west", "hard", b"x")
    for kind in (MemoryError, KeyboardInterrupt, SystemExit):
        before = state(pair.west)
        with pytest.raises(kind):
            pair.receive(0)
        assert state(pair.west) == before
    assert pair.receive(0).kind == "done"


def test_a_message_that_is_nested_too_deeply_is_answered_as_one_that_failed() -> None:
    """IB-114: what a stranger writes can make a handler recurse; that must not hold up its party."""
    pair = Pair()

    def parse(tx: Transaction, data: bytes) -> bytes:
        tx.set(b"seen", data)
        return str(json.loads(data)).encode()

    pair.west_app.handle("json", on_receive=parse)
    pair.east_app.handle("json")
    for data in (b"[" * 100_000, b"[1]"):
        pair.east_app.send("west", "json", data)
    assert [pair.receive(index).kind for index in (0, 1)] == ["done", "done"]
    pair.west.view.refresh()
    entry = pair.west.view.get(QueueKey("east", "receipt", "entry", 0), pair.west.view.height)
    assert entry == Receipt(4).encode()
    assert pair.west.get("app", b"seen") == b"[1]"


def test_a_handler_can_only_enter_its_party_by_its_transaction() -> None:
    """IB-5: it is an error of the application, so the queue goes on; a transaction is dead after its call."""
    pair = Pair()
    kept: list[Transaction] = []

    def handler(tx: Transaction, data: bytes) -> bytes:
        kept.append(tx)
        pair.east_app.send("west", "note", data)
        return b"ok"

    pair.west_app.handle("nosy", on_receive=handler)
    pair.east_app.handle("nosy")
    pair.east_app.send("west", "nosy", b"x")
    assert pair.receive(0).kind == "done"
    pair.west.view.refresh()
    entry = pair.west.view.get(QueueKey("east", "receipt", "entry", 0), pair.west.view.height)
    assert entry == Receipt(4).encode()
    with pytest.raises(MisuseError, match="over"):
        kept[0].set(b"key", b"value")
    assert pair.send(b"after") == 1


# What comes back.


def test_a_receipt_commits_or_rolls_back_once() -> None:
    """IT-15, I-4: with the result or the code; a repeat calls nobody."""
    pair = Pair()

    def no(_: Transaction, data: bytes) -> Fail:
        return Fail(200, data)

    pair.west_app.handle("no", on_receive=no)
    pair.east_app.handle("no", on_rollback=lambda _, data, code, __: pair.told.append((data, code)))
    pair.send(b"a")
    pair.east_app.send("west", "no", b"b")
    for index in range(2):
        pair.receive(index)
    pair.told.clear()
    assert pair.receipt(1).code == "out-of-order"
    key = QueueKey("west", "send", "entry", 0)
    outcome = pair.brought(pair.west, pair.east, ItemKind.RECEIPT, key, value=b"x")
    assert outcome.code == "not-a-receipt"
    assert [pair.receipt(0).kind, pair.receipt(1).kind] == ["done", "done"]
    assert pair.receipt(0).code == "already-resolved"
    assert pair.told == [("committed", "east", 0, b"a", b"done a"), (b"b", 200)]
    assert pair.counters(pair.east, "west", "send") == (2, 2)


def test_a_callback_that_raises_stops_the_queue_until_it_is_mended() -> None:
    """IT-16: nothing changes, and it may be repeated."""
    pair = Pair()
    pair.send(b"a")
    pair.receive(0)
    pair.broken = True
    pair.receipt(0)
    before = pair.east.merkle.latest.root
    assert pair.receipt(0).code == "callback-failed"
    assert pair.east.merkle.latest.root == before
    pair.broken = False
    assert pair.receipt(0).kind == "done"
    assert pair.east_app.get(b"called") == b"back"


def test_a_callback_that_raises_is_parked_where_that_is_wanted() -> None:
    """IB-133, IT-16: the queue goes on; the callback is repeated by hand."""
    pair = Pair(callbacks="park")
    pair.send(b"a")
    pair.send(b"b")
    pair.receive(0)
    pair.receive(1)
    pair.broken = True
    assert pair.receipt(0).kind == "done"
    assert pair.east_app.get(b"called") is None
    refused(lambda: pair.east.retry_parked("west", 0), "callback-failed")
    pair.broken = False
    assert pair.receipt(1).kind == "done"
    assert pair.east.parked("west") == [0]
    pair.east.retry_parked("west", 0)
    assert pair.told[-1] == ("committed", "east", 0, b"a", b"done a")
    assert pair.east.parked("west") == []


def test_a_receipt_of_a_later_format_waits_for_an_upgrade() -> None:
    """IT-71, IB-118: it is neither committed nor rolled back."""
    pair = Pair()
    pair.send(b"a")
    pair.receive(0)
    west = pair.west
    block = west.merkle.begin()
    key = QueueKey("east", "receipt", "entry", 0)
    block.set("ibc", key.encode(), b"\2 something new")
    west.merkle.commit(block, pair.time.ms + 50)
    west.sign()
    assert pair.receipt(0).code == "newer-format"
    assert pair.counters(pair.east, "west", "send") == (0, 1)


# Limits.


def test_a_message_is_executed_before_its_limit_and_answered_as_late_at_it() -> None:
    """IT-18: by the receiver's height."""
    pair = Pair()
    now = pair.west.merkle.latest.height
    pair.send(b"in time", timeout_height=now + 2)
    pair.send(b"late", timeout_height=now + 2)
    assert pair.receive(0).kind == "done"
    assert pair.receive(1).kind == "done"
    pair.west.view.refresh()
    found = pair.west.view.entries("east", "receipt", 0, 2, pair.west.view.height)
    assert [Receipt.decode(each).code for each in found.values()] == [0, 1]
    assert pair.told == [("received", "west", 0, b"in time")]


def test_a_message_times_out_when_the_other_party_shows_that_it_had_not_come() -> None:
    """IT-19, IT-20, IB-4: before its limit not; after it once; the receiver goes on behind it after a cleanup."""
    pair = Pair()
    pair.send(b"a", timeout_ms=START_MS + 1_000)
    pair.send(b"b", timeout_ms=START_MS + 1_000)
    pair.send(b"c")
    assert pair.timed_out(0).code == "timeout-not-reached"
    pair.time.sleep(10)
    assert pair.west.tick().kind == "done"
    assert pair.timed_out(1).code == "out-of-order"
    assert pair.timed_out(0).kind == "done"
    assert pair.timed_out(1).kind == "done"
    assert pair.timed_out(1).code == "already-resolved"
    assert pair.told == [("rolled back", "east", 0, b"a", 1), ("rolled back", "east", 1, b"b", 1)]
    assert pair.receive(2).code == "out-of-order"
    assert pair.cleaned().kind == "done"
    assert pair.receive(2).kind == "done"


def test_what_was_received_does_not_time_out() -> None:
    """IT-19, I-5: the receiver's tail shows it."""
    pair = Pair()
    pair.send(b"a", timeout_ms=START_MS + 5_000)
    pair.receive(0)
    pair.time.sleep(10)
    pair.west.tick()
    assert pair.timed_out(0).code == "receipt-exists"


def test_an_unordered_message_times_out_by_the_absence_of_its_receipt() -> None:
    """IT-21: the message comes late then, and is refused."""
    pair = Pair(order="unordered")
    pair.send(b"a", timeout_ms=START_MS + 5_000)
    pair.send(b"b")
    pair.time.sleep(10)
    pair.west.tick()
    assert pair.receive(1).kind == "done"
    height = pair.east.merkle.latest.height
    key = QueueKey("east", "receipt", "entry", 0)
    outcome = pair.brought(pair.west, pair.east, ItemKind.TIMEOUT, key, index=0)
    assert outcome.kind == "done"
    assert pair.receive(0, height=height).code == "timeout-elapsed"
    assert pair.counters(pair.east, "west", "send") == (1, 2)


def test_a_party_that_never_registered_us_lets_messages_time_out() -> None:
    """IT-22: the absence of its tail shows it."""
    pair = Pair()
    lonely = Party("lonely", keys=[bytes([5]) * 32], clock=pair.time.wall_ms)
    lonely.register("west", pair.west.identity())
    lonely.module("app").handle("note")
    lonely.module("app").send("west", "note", b"x", timeout_ms=START_MS + 5_000)
    pair.time.sleep(10)
    pair.west.tick()
    key = QueueKey("lonely", "receipt", "tail")
    source = pair.west
    source.view.refresh()
    item = Item(ItemKind.TIMEOUT, key.encode(), b"", index=0)
    height = source.view.height
    submission = Submission(
        "west", (source.view.header(height),), height, source.view.prove([key], height), (item,)
    )
    assert lonely.submit(submission).items[0].kind == "done"


def test_a_connection_that_closes_gives_back_what_is_pending() -> None:
    """IT-23, IB-15: ours is rolled back, theirs is settled, then it is closed for good."""
    pair = Pair()
    pair.send(b"never arrives")
    pair.west_app.send("east", "note", b"theirs")
    pair.relay.paths[0].refresh()
    pair.west.close_connection("east")
    assert pair.receive(0).code == "connection-closed"
    pair.relay.settle(5)
    assert ("rolled back", "east", 0, b"never arrives", 1) in pair.told
    assert ("committed", "west", 0, b"theirs", b"done theirs") in pair.told
    assert pair.west.connections["east"].state.name == "CLOSED"
    refused(lambda: pair.west_app.send("east", "note", b"x"), "connection-closed")


# Cleanup, deferral, forms.


def test_a_cleanup_drops_receipts_below_the_proven_head() -> None:
    """IT-24: later ones stay byte for byte; the same head again is redundant."""
    pair = Pair()
    for index in range(3):
        pair.send(b"%d" % index)
        pair.receive(index)
    assert pair.cleaned().code == "must-go-forward"
    pair.receipt(0)
    pair.receipt(1)
    assert pair.cleaned().kind == "done"
    assert pair.counters(pair.west, "east", "receipt") == (2, 3)
    pair.west.view.refresh()
    found = pair.west.view.entries("east", "receipt", 0, 3, pair.west.view.height)
    assert found == {2: Receipt(0, b"done 2").encode()}
    assert (pair.cleaned().kind, pair.cleaned().code) == ("redundant", "must-go-forward")


def test_an_answer_may_come_later_and_settles_the_message_then() -> None:
    """IB-115, IT-69, IT-26, I-19: until then a receipt is refused and changes nothing; its owner answers once."""
    pair = Pair()

    def later(_: Transaction, __: bytes) -> Deferral:
        return DEFER

    def commit(_: Transaction, __: bytes, result: bytes) -> None:
        pair.told.append(("slow", result))

    pair.west_app.handle("slow", on_receive=later, may_defer=True)
    pair.east_app.handle("slow", on_commit=commit)
    pair.east_app.send("west", "slow", b"x")
    pair.receive(0)
    assert pair.receipt(0).code == "receipt-deferred"
    app = pair.west_app
    refused(lambda: pair.west.module("other").acknowledge("east", 0, b"r"), "not-permitted")
    refused(lambda: app.acknowledge("east", 7, b"r"), "unknown-message")
    app.acknowledge("east", 0, b"at last")
    refused(lambda: app.acknowledge("east", 0, b"again"), "already-acknowledged")
    assert pair.receipt(0, "late").kind == "done"
    assert pair.told == [("slow", b"at last")]


def test_in_the_hash_form_the_tree_has_33_bytes_and_the_handler_the_message() -> None:
    """IT-27: another body doesn't fit the proof."""
    pair = Pair(form="hash")
    body = bytes(200 << 10)
    pair.send(body)
    pair.east.view.refresh()
    height = pair.east.view.height
    stored = pair.east.view.get(QueueKey("west", "send", "entry", 0), height)
    assert stored is not None
    assert len(stored) == 33
    key = QueueKey("west", "send", "entry", 0)
    wrong = SendValue("note", b"other").encode()
    outcome = pair.brought(pair.east, pair.west, ItemKind.RECEIVE, key, value=wrong)
    assert outcome.code == "invalid-proof"
    assert pair.receive(0).kind == "done"
    assert pair.told == [("received", "west", 0, body)]
    assert pair.receipt(0).kind == "done"


def test_several_messages_are_sent_in_one_block_or_none() -> None:
    """IB-5."""
    pair = Pair()
    height = pair.east.merkle.latest.height
    assert pair.east_app.send_many("west", [Sending("note", b"a"), Sending("note", b"b")]) == [0, 1]
    assert pair.east.merkle.latest.height == height + 1
    refused(
        lambda: pair.east_app.send_many("west", [Sending("note", b"c"), Sending("no", b"d")]),
        "unsupported-type",
    )
    assert pair.counters(pair.east, "west", "send") == (0, 2)


def test_a_handler_that_looks_outside_is_found_out() -> None:
    """IB-114: executed twice it does something else."""
    seen = iter(range(100))
    pair = Pair(check=True)

    def impure(tx: Transaction, data: bytes) -> bytes:
        tx.set(b"n", b"%d" % next(seen))
        return data

    pair.west_app.handle("impure", on_receive=impure)
    pair.east_app.handle("impure")
    pair.east_app.send("west", "impure", b"x")
    refused(lambda: pair.receive(0), "impure-handler")


# Time.


def test_a_clock_that_is_set_back_goes_on_slowly() -> None:
    """IT-66, IB-113: times of blocks go up, and the wall clock is caught up with."""
    pair = Pair()
    last = pair.east.merkle.latest.time_ms
    pair.time.ms -= 3_600_000
    pair.send(b"a")
    pair.send(b"b")
    assert last < pair.east.merkle.latest.time_ms < last + 10
    pair.time.ms += 3_700_000
    pair.send(b"c")
    assert pair.east.merkle.latest.time_ms == pair.time.ms


def test_a_clock_that_jumps_ahead_is_not_believed() -> None:
    """IT-66: no block opens until somebody has looked at it."""
    pair = Pair()
    party = Party("north", clock=pair.time.wall_ms, monotonic=lambda: 0)
    pair.time.ms += 15 * 24 * 3_600_000
    party.module("app").handle("note")
    refused(lambda: party.module("app").execute(lambda tx: tx.set(b"k", b"v")), "clock-jump")
    party.accept_time()
    party.module("app").execute(lambda tx: tx.set(b"k", b"v"))


def test_a_submission_is_read_as_it_was_written() -> None:
    """IB-28: with headers, a proof and items of each kind."""
    pair = Pair(form="hash")
    pair.send(b"a")
    pair.east.view.refresh()
    height = pair.east.view.height
    key = QueueKey("west", "send", "entry", 0)
    proof = pair.east.view.prove([key], height)
    items = tuple(
        Item(kind, key.encode(), b"value", is_hashed=kind is ItemKind.RECEIVE, index=7, record=b"r")
        for kind in ItemKind
    )
    header = pair.east.view.header(height)
    submission = Submission("east", (header,), height, proof, items, b"me")
    assert Submission.decode(submission.encode()) == submission
    assert Submission.decode(Submission("east").encode()) == Submission("east")


@pytest.mark.parametrize(
    "damage", [b"\xff", b"\x0a\x02a", b"\x2a\x02\x08\x09", b"\x2a\x04\x20\x02\x08\x01"]
)
def test_bytes_that_are_no_submission_are_refused(damage: bytes) -> None:
    """IB-121, IB-28: an unknown kind, an unknown form, and what can't be read; nothing of it is done."""
    pair = Pair()
    before = state(pair.west)
    refused(lambda: pair.west.submit(damage), "malformed-batch")
    assert state(pair.west) == before


def test_no_damaged_submission_is_executed_as_something_else() -> None:
    """IT-11, I-9, IB-28: changed bytes are refused, or mean what they meant; nothing else happens."""
    pair, rng = Pair(), Random(7)
    pair.send(b"genuine message")
    pair.west_app.send("east", "note", b"theirs")
    pair.east.view.refresh()
    height = pair.east.view.height
    key = QueueKey("west", "send", "entry", 0)
    item = Item(ItemKind.RECEIVE, key.encode(), pair.east.view.get(key, height) or b"")
    whole = Submission(
        "east",
        (pair.east.view.header(height),),
        height,
        pair.east.view.prove([key], height),
        (item,),
    ).encode()
    refusals = Counter[str]()
    for _ in range(1_500):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 5))):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        given = bytes(damaged) if rng.random() < 0.9 else whole[: rng.randrange(len(whole))]
        before = pair.west.merkle.latest
        try:
            outcome = pair.west.submit(given)
        except IbcRefused as refusal:
            refusals[refusal.code] += 1
            assert pair.west.merkle.latest == before
            continue
        done = [each for each in (*outcome.headers, *outcome.items) if each.kind == "done"]
        refusals.update(each.code for each in outcome.items)
        if not done:
            assert pair.west.merkle.latest.root == before.root
    assert pair.told in ([], [("received", "west", 0, b"genuine message")])
    assert {"malformed-batch", "invalid-proof", "unknown-header"} <= refusals.keys()


def test_ledgers_are_read_while_a_handler_runs() -> None:
    """IB-103, IT-62: whoever reads the store waits for no handler, and sees the block before."""
    pair, begun, may_end = Pair(), Event(), Event()
    pair.send(b"a")

    def slow(tx: Transaction) -> None:
        tx.set(b"k", b"v")
        begun.set()
        assert may_end.wait(60)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(pair.east_app.execute, slow)
        assert begun.wait(60)
        ledger = Ledger(pair.east.store)
        assert ledger.refresh()
        key = QueueKey("west", "send", "entry", 0)
        assert ledger.prove([key], ledger.height)
        assert ledger.merkle.get("app", b"k") is None
        may_end.set()
        done.result(60)
    assert pair.east_app.get(b"k") == b"v"
