"""`Checked` over a queue whose store fails: what was done is known again before anything else is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from surepipe.errors import ContractBroken, ContractViolation, Fenced, StoreUnavailable
from surepipe.pipes.message_queue import Message, OrderedQueue
from surepipe.pipes.message_queue.checked import Checked
from tests.pipes.message_queues import FailingQueue, fill, held, message


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_unanswered_enqueue_may_be_repeated_and_is_stored_once(
    when: str, increasing: bool
) -> None:
    """message-queue Q-11, Q-18: the store fails before or after the effect, twice."""
    inner = FailingQueue(increasing=increasing)
    queue = fill(Checked(inner), 1)
    for _ in range(2):
        inner.fail("before" if when == "before" else "after")
        with pytest.raises(StoreUnavailable):
            queue.enqueue(message(2))
        assert held(queue) == ([1] if when == "before" else [1, 2])
    assert queue.enqueue(message(2))
    assert held(queue) == [1, 2]
    with pytest.raises(ContractViolation):
        queue.enqueue(message(2))


def test_another_message_under_an_unanswered_number_is_the_callers_fault() -> None:
    """message-queue Q-11: only the same message may be repeated, the payload included."""
    inner = FailingQueue()
    queue = Checked(inner)
    inner.fail("after")
    with pytest.raises(StoreUnavailable):
        queue.enqueue(message(1))
    with pytest.raises(ContractViolation, match="no member may have the number"):
        queue.enqueue(Message(1, b"another"))
    assert queue.enqueue(message(1))


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_unanswered_deletion_was_done_or_not(when: str) -> None:
    """message-queue Q-18: the repeat removes what is left."""
    inner = FailingQueue()
    queue = fill(Checked(inner), 1, 2, 3)
    inner.fail("before" if when == "before" else "after")
    with pytest.raises(StoreUnavailable):
        queue.delete_all(2)
    assert queue.delete_all(2) == (2 if when == "before" else 0)
    assert held(queue) == [3]


def test_a_deletion_ends_the_right_to_repeat_an_unanswered_message() -> None:
    """message-queue Q-11: it was stored, deleted and stored anew, with an answer; once more is a broken duty."""
    inner = FailingQueue()
    queue = Checked(inner)
    inner.fail("after")
    with pytest.raises(StoreUnavailable):
        queue.enqueue(message(1))
    assert queue.delete_all(1) == 1
    assert queue.enqueue(message(1))
    with pytest.raises(ContractViolation, match="no member may have the number"):
        queue.enqueue(message(1))


def test_a_slice_finds_what_was_stored_without_an_answer() -> None:
    """message-queue Q-11: asked first of all verbs after the answer was lost."""
    inner = FailingQueue()
    queue = fill(Checked(inner), 1)
    inner.fail("after")
    with pytest.raises(StoreUnavailable):
        queue.enqueue(message(2))
    assert queue.slice_run(1, 2) == [message(1).payload, message(2).payload]


@pytest.mark.parametrize("as_run", [False, True])
def test_a_batch_that_failed_on_the_way_is_finished_by_its_repeat(as_run: bool) -> None:
    """message-queue Q-6, Q-18: two of four messages were stored when the store went away."""
    inner = FailingQueue()
    queue = Checked(inner)
    batch = [message(number) for number in (1, 2, 3, 4)]

    def offer() -> int:
        if as_run:
            return queue.enqueue_run(1, [each.payload for each in batch])
        return queue.enqueue_many(batch)

    inner.fail("before", writes_before=2)
    with pytest.raises(StoreUnavailable):
        offer()
    assert held(queue) == [1, 2]
    assert offer() == 4
    assert held(queue) == [1, 2, 3, 4]
    with pytest.raises(ContractViolation):
        offer()


class Dark(FailingQueue):
    """Its contents can be hidden, as those of a store that is away."""

    dark = False

    def snapshot(self) -> Mapping[int, Message]:
        if self.dark:
            raise StoreUnavailable("nothing to see")
        return super().snapshot()


def test_nothing_is_done_while_it_is_unknown_what_was_done() -> None:
    """message-queue Q-18: in doubt and without a look at the store, each call fails, none gets through."""
    inner = Dark()
    queue = fill(Checked(inner), 1)
    inner.fail("after")
    with pytest.raises(StoreUnavailable):
        queue.delete_all(1)
    inner.dark, writes = True, inner.writes
    for ask in (queue.empty, queue.pick_one, lambda: queue.delete_all(9), lambda: len(queue)):
        with pytest.raises(StoreUnavailable):
            ask()
    assert inner.writes == writes
    inner.dark = False
    assert queue.empty()


def test_a_call_that_was_answered_stays_answered_when_nobody_can_look_after_it() -> None:
    """The store goes away between the answer and the look: the look is made up for later."""
    inner = Dark()
    queue = Checked(inner)
    inner.dark = True
    assert queue.enqueue_run(1, [message(1).payload]) == 1
    inner.dark = False
    fill(queue, 2)
    assert held(queue) == [1, 2]


def test_what_a_former_owner_tries_changes_nothing() -> None:
    """message-queue Q-12: Fenced passes through, and the ghost stays."""

    class Taken(OrderedQueue[Message]):
        def delete_all(self, number: int) -> int:
            raise Fenced(f"delete_all({number}) by a former owner")

    queue = fill(Checked(Taken()), 1)
    with pytest.raises(Fenced):
        queue.delete_all(1)
    assert held(queue) == [1]


def test_a_half_done_call_is_reported_once_where_faults_are_counted() -> None:
    """message-queue QI-6, Q-19: after the report the ghost is what the store really holds."""

    class DeletesHalf(OrderedQueue[Message]):
        def delete_all(self, number: int) -> int:
            super().delete_all(number - 1)
            raise StoreUnavailable("half done")

    broken: list[ContractBroken] = []
    queue = fill(Checked(DeletesHalf(), on_broken=broken.append), 1, 2, 3)
    with pytest.raises(StoreUnavailable):
        queue.delete_all(2)
    assert held(queue) == [2, 3]
    fill(queue, 4)
    assert held(queue) == [2, 3, 4]
    assert [str(error)[:4] for error in broken] == ["QI-6"]
