"""The behaviour that every message queue shows, whatever it is made of (message-queue MQ-1 to MQ-8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from surepipe.errors import ContractViolation
from surepipe.pipes.message_queue import MAX_NUMBER, BoundedQueue, Message, RefusalReason
from tests.pipes.message_queues import EVERY, Make, checked, fill, held

every_queue = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())

BOUNDED: dict[str, Make] = {
    "plain": lambda: BoundedQueue(2, 100),
    "increasing": lambda: BoundedQueue(2, 100, increasing=True),
    "dense": lambda: BoundedQueue(2, 100, dense=True),
}
bounded_queues = pytest.mark.parametrize(
    "make", [*BOUNDED.values(), *map(checked, BOUNDED.values())]
)


@every_queue
def test_a_new_queue_is_empty_until_a_message_is_accepted(make: Make) -> None:
    """message-queue MQ-1: asked before and after one enqueue."""
    queue = make()
    assert queue.empty() is True
    assert queue.high == -1
    fill(queue, 1)
    assert queue.empty() is False


@every_queue
def test_a_number_in_use_is_the_callers_fault_and_changes_nothing(make: Make) -> None:
    """message-queue MQ-2, Q-3: another message under number 5, one by one, as a batch, as a run."""
    queue = fill(make(), 5)
    with pytest.raises(ContractViolation, match=r"enqueue\(5\): no member may have the number"):
        queue.enqueue(Message(5, b"another"))
    with pytest.raises(ContractViolation, match=r"enqueue_many\(.*"):
        queue.enqueue_many([Message(5, b"another"), Message(6, b"new")])
    with pytest.raises(ContractViolation, match=r"enqueue_run\(.*"):
        queue.enqueue_run(4, [b"new", b"another"])
    assert held(queue) == [5]
    assert queue.high == 5


@every_queue
def test_deleting_twice_removes_once(make: Make) -> None:
    """message-queue MQ-3: delete_all(2) of 1..4, and again."""
    queue = fill(make(), 1, 2, 3, 4)
    assert queue.delete_all(2) == 2
    assert queue.delete_all(2) == 0
    assert held(queue) == [3, 4]


@every_queue
def test_deleting_includes_the_bound_and_nothing_above_it(make: Make) -> None:
    """message-queue MQ-4: below the only member, then at it."""
    queue = fill(make(), 3)
    assert queue.delete_all(2) == 0
    assert held(queue) == [3]
    assert queue.delete_all(3) == 1
    assert queue.empty()


@bounded_queues
def test_a_full_queue_refuses_until_room_was_made(make: Make) -> None:
    """message-queue MQ-5, Q-8: the same message is refused, then accepted."""
    queue = fill(make(), 1, 2)
    refused = queue.enqueue(Message(3, b"payload 3"))
    assert not refused
    assert refused.reason is RefusalReason.FULL
    assert held(queue) == [1, 2]
    assert queue.high == 2
    queue.delete_all(1)
    fill(queue, 3)
    assert held(queue) == [2, 3]


@every_queue
def test_the_greatest_number_can_be_held_and_deleted(make: Make) -> None:
    """message-queue MQ-6: its successor does not wrap around."""
    queue = fill(make(), MAX_NUMBER)
    assert queue.delete_all(MAX_NUMBER) == 1
    assert queue.empty()
    assert queue.high == MAX_NUMBER


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("watched", [False, True])
def test_an_increasing_queue_never_takes_a_number_again(dense: bool, watched: bool) -> None:
    """message-queue MQ-7, Q-5: stale below high, also after deletion; only a dense queue minds a gap."""

    def bare() -> BoundedQueue[Message]:
        return BoundedQueue(increasing=True, dense=dense)

    make: Make = checked(bare) if watched else bare
    queue = fill(make(), 4, 5)
    assert queue.enqueue(Message(3)).reason is RefusalReason.STALE
    assert queue.delete_all(5) == 2
    assert queue.enqueue(Message(5)).reason is RefusalReason.STALE
    assert queue.empty()
    assert queue.enqueue(Message(9)).reason is (RefusalReason.GAP if dense else None)
    assert len(queue) == (0 if dense else 1)
    assert queue.high == (5 if dense else 9)


@every_queue
def test_numbers_that_a_float_cannot_tell_apart_are_two(make: Make) -> None:
    """message-queue MQ-8: 2**53 and its successor."""
    queue = fill(make(), 2**53, 2**53 + 1)
    assert queue.pick_one().num == 2**53
    assert queue.delete_all(2**53) == 1
    assert held(queue) == [2**53 + 1]


@every_queue
def test_picking_gives_the_least_and_the_same_again(make: Make) -> None:
    """message-queue Q-4: three times, then after a deletion; and never from an empty queue."""
    queue = fill(make(), 7, 8)
    assert queue.picks_least
    assert [queue.pick_one().num for _ in range(3)] == [7, 7, 7]
    queue.delete_all(7)
    assert queue.pick_one().num == 8
    queue.delete_all(8)
    with pytest.raises(ContractViolation, match="there must be a member"):
        queue.pick_one()


@every_queue
@pytest.mark.parametrize("number", [-1, MAX_NUMBER + 1, True, 1.0, "1", None])
def test_what_is_no_number_is_refused_by_every_verb(make: Make, number: int) -> None:
    """message-queue Q-1, Q-3: out of range, and what only looks like a number."""
    queue = fill(make(), 1)
    calls: list[Callable[[], object]] = [
        lambda: queue.enqueue(Message(number)),
        lambda: queue.enqueue_many([Message(2), Message(number)]),
        lambda: queue.enqueue_run(number, [b"a"]),
        lambda: queue.delete_all(number),
        lambda: queue.slice_run(number, 1),
    ]
    for call in calls:
        with pytest.raises(ContractViolation, match="number"):
            call()
    assert held(queue) == [1]
    assert queue.high == 1


@every_queue
@pytest.mark.parametrize("after", [-2, MAX_NUMBER + 1, True, 1.0])
def test_what_is_no_number_is_no_place_to_look_from_either(make: Make, after: int) -> None:
    """message-queue Q-1, Q-3: -1 is one, before all numbers, and so is the greatest."""
    queue = fill(make(), 1)
    for call in (queue.pick_many, queue.pick_runs):
        with pytest.raises(ContractViolation, match="number"):
            call(9, after)
        assert [len(call(9, place)) for place in (-1, 0, 1, MAX_NUMBER)] == [1, 1, 0, 0]


@every_queue
def test_a_run_must_end_within_the_numbers(make: Make) -> None:
    """message-queue Q-1: two numbers from the greatest on are one too many."""
    queue = make()
    with pytest.raises(ContractViolation, match="end above"):
        queue.enqueue_run(MAX_NUMBER, [b"a", b"b"])
    assert queue.high == -1
    assert queue.enqueue_run(MAX_NUMBER, [b"a"]) == 1


@every_queue
@pytest.mark.parametrize("limit", [-1, True, 1.0])
def test_a_limit_must_be_a_whole_number_of_messages(make: Make, limit: int) -> None:
    """message-queue Q-3: for each verb that takes one."""
    queue = fill(make(), 1)
    calls: list[Callable[[int], object]] = [
        queue.pick_many,
        queue.pick_runs,
        lambda count: queue.slice_run(1, count),
    ]
    for call in calls:
        with pytest.raises(ContractViolation, match="count"):
            call(limit)


@every_queue
def test_a_batch_and_a_run_do_what_one_by_one_would_do(make: Make) -> None:
    """message-queue Q-6: three queues are filled in three ways beyond their bound, and cut alike."""
    one_by_one, batch, run = make(), make(), make()
    messages = [Message(number, b"x" * number) for number in range(1, 20)]
    accepted = 0
    for each in messages:
        if not one_by_one.enqueue(each):
            break
        accepted += 1
    assert batch.enqueue_many(messages) == accepted
    assert run.enqueue_run(1, [each.payload for each in messages]) == accepted
    for queue in (one_by_one, batch, run):
        assert queue.delete_all(2) == 2
        assert dict(queue.snapshot()) == dict(one_by_one.snapshot())
        assert queue.pick_many(3, after=3) == messages[3:6]
        assert [r.first for r in queue.pick_runs(100)] == [3]
        assert queue.slice_run(4, 2) == [b"x" * 4, b"x" * 5]
        assert (len(queue), queue.size_bytes, queue.high) == (
            len(one_by_one),
            one_by_one.size_bytes,
            one_by_one.high,
        )
    assert run.pick_runs(2, after=3) == one_by_one.pick_runs(2, after=3)


@every_queue
def test_an_empty_batch_changes_nothing(make: Make) -> None:
    """message-queue Q-6: also where the number given is in use."""
    queue = fill(make(), 1)
    assert queue.enqueue_many([]) == 0
    assert queue.enqueue_run(1, []) == 0
    assert queue.pick_many(0) == []
    assert queue.pick_runs(0) == []
    assert queue.slice_run(1, 0) == []
    assert held(queue) == [1]


@every_queue
def test_a_number_that_comes_twice_in_a_batch_is_refused_whole(make: Make) -> None:
    """message-queue Q-3: nothing of the batch is added."""
    queue = make()
    with pytest.raises(ContractViolation, match="enqueue_many"):
        queue.enqueue_many([Message(1), Message(2), Message(1)])
    assert queue.empty()
    assert queue.high == -1


@every_queue
def test_a_slice_with_a_number_that_is_not_held_is_the_callers_fault(make: Make) -> None:
    """message-queue Q-6: beyond the end, and from below the beginning."""
    queue = fill(make(), 4, 5)
    with pytest.raises(ContractViolation, match="6 is none"):
        queue.slice_run(4, 3)
    with pytest.raises(ContractViolation, match="3 is none"):
        queue.slice_run(3, 2)
