"""What the queues in memory add to the contract: bounds, kinds of messages, gaps, and their cost."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

import pytest

from surepipe.errors import ConfigurationError, ContractViolation
from surepipe.pipes.message_queue import (
    BoundedQueue,
    Enqueued,
    Message,
    OrderedQueue,
    RefusalReason,
    Run,
)
from surepipe.pipes.message_queue.queues import CHUNK_MAX


@dataclass(frozen=True)
class Order:
    """A message of a user's own kind."""

    serial: int
    body: bytes


def test_an_answer_is_true_exactly_when_the_message_was_accepted() -> None:
    """message-queue Q-2: in a condition, and as it prints."""
    assert Enqueued(True)
    assert not Enqueued(False, RefusalReason.FULL)
    assert f"{RefusalReason.FULL}" == "FULL"


@pytest.mark.parametrize("increasing", [False, True])
def test_a_message_above_the_byte_bound_is_refused_by_an_empty_queue(increasing: bool) -> None:
    """message-queue Q-8: one byte too many, alone, and as the rest of a run."""
    queue = BoundedQueue(10, 4, increasing=increasing)
    assert queue.enqueue(Message(1, b"12345")).reason is RefusalReason.FULL_BYTES
    assert queue.empty()
    assert queue.enqueue_run(1, [b"12", b"34", b"", b"5", b""]) == 3
    assert queue.size_bytes == 4
    assert queue.delete_all(1) == 1
    assert queue.enqueue(Message(4, b"56"))
    assert queue.size_bytes == 4


@pytest.mark.parametrize(("capacity", "capacity_bytes"), [(0, 1), (1, 0), (True, 1), (1, 1.0)])
def test_a_bound_must_be_a_whole_number_above_zero(capacity: int, capacity_bytes: int) -> None:
    """Each bound in turn."""
    with pytest.raises(ConfigurationError, match="a bound must be an int"):
        BoundedQueue(capacity, capacity_bytes)


def test_an_ordered_queue_never_refuses_and_takes_any_order() -> None:
    """message-queue Q-7: numbers backwards, far more than any bound would be small for."""
    queue = OrderedQueue()
    assert all(queue.enqueue(Message(number)) for number in range(5_000, 0, -1))
    assert [m.num for m in queue.pick_many(3)] == [1, 2, 3]
    assert queue.delete_all(4_999) == 4_999
    assert queue.enqueue(Message(1))
    assert list(queue.snapshot()) == [1, 5_000]
    assert queue.high == 5_000


def test_messages_of_another_kind_are_held_as_they_are() -> None:
    """message-queue Q-1: a key function is enough for a plain queue; runs need all three."""
    queue = OrderedQueue(number=lambda order: order.serial, payload=_body)
    order = Order(3, b"abc")
    assert queue.enqueue(order)
    assert queue.pick_one() is order
    assert queue.size_bytes == 3
    with pytest.raises(ContractViolation, match="build="):
        queue.enqueue_run(4, [b"d"])


def _body(order: Order) -> bytes:
    return order.body


def test_an_increasing_queue_of_another_kind_gives_back_that_kind() -> None:
    """message-queue Q-1, Q-8: three functions; without the last one it can't be made."""
    queue = BoundedQueue(9, increasing=True, number=_serial, payload=_body, build=Order)
    assert queue.enqueue(Order(3, b"abc"))
    assert queue.enqueue_run(4, [b"d"]) == 1
    assert queue.pick_many(9) == [Order(3, b"abc"), Order(4, b"d")]
    with pytest.raises(ConfigurationError, match="build="):
        BoundedQueue(9, increasing=True, number=_serial, payload=_body)


def _serial(order: Order) -> int:
    return order.serial


def test_a_message_that_would_come_back_as_something_else_is_refused() -> None:
    """An increasing queue of plain messages gets one of a subclass: its other fields would be lost."""

    @dataclass(frozen=True)
    class Labelled(Message):
        label: str = ""

    queue = BoundedQueue(9, increasing=True)
    with pytest.raises(ContractViolation, match="gives back Message"):
        queue.enqueue(Labelled(1, b"", "lost"))
    assert queue.empty()


def test_a_message_without_a_number_is_the_callers_fault() -> None:
    """message-queue Q-1: an object without the attribute."""
    queue: OrderedQueue[object] = OrderedQueue(number=attrgetter("num"))
    with pytest.raises(ContractViolation, match="must have a number"):
        queue.enqueue(object())


def test_an_increasing_queue_joins_runs_that_touch_and_keeps_gaps() -> None:
    """message-queue Q-6: runs, single messages, gaps; each view says the same."""
    queue = BoundedQueue(increasing=True)
    assert queue.enqueue_run(1, [b"1", b"2"]) == 2
    assert queue.enqueue(Message(3, b"3"))
    assert queue.enqueue_run(10, [b"10", b"11"]) == 2
    assert queue.enqueue_run(12, [b"12"]) == 1
    assert queue.pick_runs(100) == [Run(1, (b"1", b"2", b"3")), Run(10, (b"10", b"11", b"12"))]
    assert queue.pick_runs(2, after=2) == [Run(3, (b"3",)), Run(10, (b"10",))]
    assert queue.pick_runs(9, after=5) == [Run(10, (b"10", b"11", b"12"))]
    assert queue.pick_runs(9, after=12) == []
    assert queue.slice_run(10, 3) == [b"10", b"11", b"12"]
    with pytest.raises(ContractViolation, match="4 is none"):
        queue.slice_run(2, 9)
    assert queue.delete_all(10) == 4
    assert queue.pick_one() == Message(11, b"11")
    assert queue.enqueue_run(11, []) == 0
    with pytest.raises(ContractViolation, match=r"enqueue_run\(11\)"):
        queue.enqueue_run(9, [b"", b"", b""])
    assert queue.enqueue_run(9, [b"", b""]) == 0


def test_a_run_longer_than_a_chunk_is_one_run_to_every_view() -> None:
    """Chunks are an inner matter: the run is cut in the middle of one, and read across two."""
    queue = BoundedQueue(increasing=True)
    payloads = [b"%d" % number for number in range(3 * CHUNK_MAX + 7)]
    assert queue.enqueue_run(0, payloads) == len(payloads)
    assert queue.delete_all(CHUNK_MAX + 4) == CHUNK_MAX + 5
    assert queue.pick_runs(10**6) == [Run(CHUNK_MAX + 5, tuple(payloads[CHUNK_MAX + 5 :]))]
    across = 2 * CHUNK_MAX - 3
    assert queue.slice_run(across, 6) == payloads[across : across + 6]
    assert queue.size_bytes == sum(map(len, payloads[CHUNK_MAX + 5 :]))


def test_the_list_of_a_caller_stays_the_callers() -> None:
    """A run is handed in as a list that is changed afterwards, and a slice is changed after reading."""
    queue = BoundedQueue(increasing=True)
    payloads = [b"1", b"2"]
    queue.enqueue_run(1, payloads)
    payloads.append(b"3")
    queue.slice_run(1, 2).clear()
    assert queue.pick_runs(9) == [Run(1, (b"1", b"2"))]


@pytest.mark.parametrize("increasing", [False, True])
def test_what_was_deleted_is_let_go_at_once(increasing: bool) -> None:
    """Bounded in bytes: after each deletion nobody but the test refers to a deleted payload."""
    queue = BoundedQueue(increasing=increasing)
    payloads = [b"payload %d" % number for number in range(200)]
    of_the_test = [sys.getrefcount(payload) for payload in payloads]
    assert queue.enqueue_run(0, payloads) == 200
    for number in range(0, 200, 10):
        queue.delete_all(number)
        now = [sys.getrefcount(payload) for payload in payloads]
        assert now[: number + 1] == of_the_test[: number + 1]
        assert all(a > b for a, b in zip(now[number + 1 :], of_the_test[number + 1 :], strict=True))


def test_an_increasing_queue_makes_no_object_per_message() -> None:
    """pipes P-10: 10,000 messages in 20 runs; the objects the collector knows grow by the runs."""
    payloads = [b"payload"] * 500
    queue = BoundedQueue(increasing=True)
    gc.collect()
    before = len(gc.get_objects())
    for first in range(0, 10_000, 500):
        queue.enqueue_run(first, payloads)
    assert len(queue) == 10_000
    assert len(gc.get_objects()) - before < 100


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (OrderedQueue, "OrderedQueue(1 messages)"),
        (lambda: BoundedQueue(2, 9), "BoundedQueue(1 of 2 messages, 3 of 9 bytes)"),
        (
            lambda: BoundedQueue(2, 9, dense=True),
            "BoundedQueue(1 of 2 messages, 3 of 9 bytes, dense)",
        ),
    ],
)
def test_a_queue_prints_what_it_is(make: Callable[[], OrderedQueue[Message]], text: str) -> None:
    """With one message of three bytes."""
    queue = make()
    queue.enqueue(Message(1, b"abc"))
    assert repr(queue) == text
