"""Keys, values and queues: known bytes, one way to write each, and a plain list as the model of a queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.errors import ContractBroken
from surepipe.queues.ibc.ics23 import STORE_SPECS, verify_chained
from surepipe.queues.ibc.keys import (
    MAX_INDEX,
    Part,
    QueueKey,
    QueueKind,
    Receipt,
    SendValue,
    UndecodableValue,
    parse_key,
)
from surepipe.queues.ibc.merkle_store import IbcRefused, MerkleStore, Working
from surepipe.queues.ibc.queue import ProvableQueue
from surepipe.storage.memory import MemoryStore


def opened() -> MerkleStore:
    """An empty store."""
    merkle = MerkleStore(MemoryStore())
    merkle.open()
    return merkle


def queue_in(block: Working, *, is_made: bool = True) -> ProvableQueue:
    """The send queue towards west."""
    queue = ProvableQueue(block, "west", "send")
    if is_made:
        queue.init()
    return queue


def content(queue: ProvableQueue) -> dict[int, bytes]:
    """Everything between head and tail."""
    found = {index: queue.retrieve(index) for index in range(queue.head, queue.tail)}
    return {index: value for index, value in found.items() if value is not None}


def test_keys_and_values_have_known_bytes() -> None:
    """IT-33: of an entry, a message and a receipt."""
    key = QueueKey("west", "send", "entry", 1)
    assert key.encode().hex() == "6962633a776573743a73656e64010000000000000001"
    value = SendValue("greet", b"Ann", timeout_ms=1_700_000_000_000)
    assert value.encode().hex() == "0100000000000000000000018bcfe56800056772656574416e6e"
    assert Receipt(0, b"hello Ann").encode().hex() == "010000000068656c6c6f20416e6e"
    assert SendValue.decode(value.encode()) == value
    assert Receipt.decode(Receipt(100, b"no").encode()) == Receipt(100, b"no")


def test_the_order_of_keys_is_the_order_of_indexes() -> None:
    """IT-4, IB-9: head before all entries, tail behind them; no key is another one's."""
    indexes = [0, 1, 255, 256, 1 << 32, 1 << 63, (1 << 64) - 1]
    entries = [QueueKey("west", "send", "entry", index).encode() for index in indexes]
    head, tail = (QueueKey("west", "send", part).encode() for part in ("head", "tail"))
    assert [head, *entries, tail] == sorted({head, *entries, tail})


NAMES = st.text("abzAZ09_.+-#[]<>", min_size=2, max_size=64)


INDEXES = st.integers(0, 2**64 - 1)
KINDS: tuple[QueueKind, ...] = ("send", "receipt")
COUNTERS: tuple[Part, ...] = ("head", "tail")


@st.composite
def keys(draw: st.DrawFn) -> QueueKey:
    """Of every kind."""
    name, kind = draw(NAMES), draw(st.sampled_from(KINDS))
    return draw(
        st.sampled_from(
            [
                QueueKey(name, kind, draw(st.sampled_from(COUNTERS))),
                QueueKey(name, kind, "entry", draw(INDEXES)),
                QueueKey(name, "receipt", "late", draw(INDEXES)),
                QueueKey(name, "", "connection"),
            ]
        )
    )


@given(keys())
def test_a_key_is_read_as_it_was_written(key: QueueKey) -> None:
    """IB-9: for every connection, queue and part."""
    assert parse_key(key.encode()) == key


@given(
    st.one_of(
        st.binary(max_size=40), st.binary(max_size=12).map(lambda rest: b"ibc:west:send" + rest)
    )
)
def test_other_bytes_are_no_key(data: bytes) -> None:
    """IB-9: what is read is written the same, so there is one way to write each key."""
    key = parse_key(data)
    assert key is None or key.encode() == data


NEARLY = (
    *(
        b"",
        b"ibc",
        b"ibc:west:send",
        b"ibc:west:send\x00\x00",
        b"ibc:w:send\x00",
        b"ibc:west:sent\x00",
    ),
    *(
        b"ibc:west:send\x01" + bytes(7),
        b"ibc:west:send\x01" + bytes(9),
        b"ibc:west:send\x03" + bytes(8),
    ),
    *(
        b"ibc:we/st:send\x00",
        b"ibc:west:connection\x00",
        b"ibc:a:b:send\x00",
        b"ibc:west\n:send\x00",
    ),
)


@pytest.mark.parametrize("data", NEARLY)
def test_what_is_nearly_a_key_is_none(data: bytes) -> None:
    """IB-9: lengths, tags and names that don't fit."""
    assert parse_key(data) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_undecodable(data: bytes) -> None:
    """IB-10: and what is read is written the same."""
    for decode in (SendValue.decode, Receipt.decode):
        try:
            value = decode(data)
        except UndecodableValue:
            continue
        assert value.encode() == data


LIMITS = b"\1" + bytes(16)
NO_MESSAGES = (
    *(b"", bytes(17), LIMITS, LIMITS + b"\0", b"\2" + LIMITS[1:] + b"\1a"),
    *(LIMITS + b"\2a", LIMITS + b"\1A", LIMITS + b"\1\xff"),
)


@pytest.mark.parametrize("value", NO_MESSAGES)
def test_what_is_no_message(value: bytes) -> None:
    """IB-10: too short, another format, a type of no letters, past the end, or of other characters."""
    with pytest.raises(UndecodableValue):
        SendValue.decode(value)


@pytest.mark.parametrize(
    ("height", "time_ms", "is_over"),
    [(9, 99, False), (10, 0, True), (0, 100, True), (11, 101, True)],
)
def test_a_limit_is_reached_at_its_height_or_time(height: int, time_ms: int, is_over: bool) -> None:
    """IB-9: at it, not behind it; without limits never."""
    assert SendValue("t", b"d", 10, 100).is_over(height, time_ms) == is_over
    assert not SendValue("t", b"d").is_over(1 << 62, 1 << 62)


# Queues.


def test_a_new_queue_is_empty_and_that_can_be_proven() -> None:
    """IT-1: peek and pop find nothing and change nothing; both counters are there, as 0."""
    merkle = opened()
    block = merkle.begin()
    queue = queue_in(block)
    version = merkle.commit(block, 1)
    block = merkle.begin()
    queue = queue_in(block, is_made=False)
    assert (queue.head, queue.tail, queue.peek(), queue.pop(), queue.settle(0)) == (
        0,
        0,
        None,
        None,
        None,
    )
    assert merkle.commit(block, 2).root == version.root
    for part in ("head", "tail"):
        key = QueueKey("west", "send", part).encode()
        proof = merkle.prove("ibc", [key], 1)
        assert verify_chained(STORE_SPECS, version.root, proof, (b"ibc", key), bytes(8))
    with pytest.raises(ContractBroken, match="there already"):
        queue_in(merkle.begin())


def test_entries_come_out_in_their_order_and_are_gone() -> None:
    """IT-2, IT-5: indexes 0 1 2; keys are absent afterwards; what was popped is proven at the height before."""
    merkle = opened()
    block = merkle.begin()
    queue = queue_in(block)
    assert [queue.push(value) for value in (b"a", b"b", b"c")] == [0, 1, 2]
    before = merkle.commit(block, 1)
    block = merkle.begin()
    queue = queue_in(block, is_made=False)
    assert [queue.pop() for _ in range(4)] == [b"a", b"b", b"c", None]
    assert (queue.head, queue.tail) == (3, 3)
    after = merkle.commit(block, 2)
    key = queue.key("entry", 1)
    assert verify_chained(
        STORE_SPECS, before.root, merkle.prove("ibc", [key], 1), (b"ibc", key), b"b"
    )
    assert verify_chained(STORE_SPECS, after.root, merkle.prove("ibc", [key]), (b"ibc", key), None)


def test_advancing_past_the_tail_leaves_an_empty_queue_there() -> None:
    """IT-2: the next push gets that index; never backwards; to the head itself nothing happens."""
    queue = queue_in(opened().begin())
    queue.push(b"a")
    queue.advance(7)
    assert (queue.head, queue.tail, queue.peek()) == (7, 7, None)
    queue.advance(7)
    assert queue.push(b"b") == 7
    with pytest.raises(ContractBroken, match="never goes back"):
        queue.advance(6)


def test_advancing_removes_late_entries_and_keeps_the_rest() -> None:
    """IT-24: below the index all of both kinds; from there on byte for byte."""
    block = opened().begin()
    queue = ProvableQueue(block, "west", "receipt")
    queue.init()
    for index in range(4):
        queue.push(b"receipt %d" % index)
        block.set("ibc", queue.key("late", index), b"late %d" % index)
    queue.advance(2)
    assert content(queue) == {2: b"receipt 2", 3: b"receipt 3"}
    assert [block.get("ibc", queue.key("late", n)) for n in range(4)] == [
        None,
        None,
        b"late 2",
        b"late 3",
    ]


def test_the_head_passes_what_was_settled_out_of_turn() -> None:
    """I-1: popping goes on at the lowest entry that is left."""
    queue = queue_in(opened().begin())
    for value in (b"a", b"b", b"c", b"d"):
        queue.push(value)
    assert (queue.settle(1), queue.head) == (b"b", 0)
    assert (queue.pop(), queue.head) == (b"a", 2)
    assert (queue.settle(3), queue.settle(3), queue.pop(), queue.head) == (b"d", None, b"c", 4)


def test_an_index_is_written_once() -> None:
    """I-2: not again while it is there, and not after it was popped; after the last index there is none."""
    block = opened().begin()
    queue = queue_in(block)
    queue.push(b"a")
    queue.pop()
    queue.write(3, b"d")
    for index in (0, 3):
        with pytest.raises(ContractBroken, match="written before"):
            queue.write(index, b"other")
    queue.advance(MAX_INDEX)
    assert queue.push(b"last") == MAX_INDEX
    with pytest.raises(IbcRefused, match="queue-full"):
        queue.push(b"one more")


Steps = st.lists(
    st.tuples(st.sampled_from(("push", "pop", "settle", "advance")), st.integers(0, 12)),
    max_size=40,
)


@given(Steps)
def test_a_queue_holds_what_a_plain_one_holds(steps: list[tuple[str, int]]) -> None:
    """I-1: head and tail in order; entries lie between; the head is the lowest entry, or the tail."""
    queue = queue_in(opened().begin())
    model, head, tail = dict[int, bytes](), 0, 0
    for name, number in steps:
        match name:
            case "push":
                assert queue.push(b"m%d" % tail) == tail
                model[tail] = b"m%d" % tail
                tail += 1
            case "pop":
                assert queue.pop() == model.pop(head, None)
            case "settle":
                assert queue.settle(number) == model.pop(number, None)
            case _ if number >= head:
                queue.advance(number)
                model = {index: value for index, value in model.items() if index >= number}
                tail = max(tail, number)
                head = number
            case _:
                pass
        assert content(queue) == model
        assert queue.tail == tail
        assert queue.head <= queue.tail
        if name != "advance":
            assert queue.head == min(model, default=tail)
        head = queue.head
