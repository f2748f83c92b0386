"""`Checked` over a queue whose store fails: what was done is known again before anything else is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from surepipe.errors import ContractBroken, ContractViolation, Fenced, StoreUnavailable
from surepipe.pipes.message_queue import Enqueued, Message, OrderedQueue, Run
from surepipe.pipes.message_queue.checked import Checked
from tests.pipes.message_queues import FailingQueue, Queue, fill, held, message


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


BOTH = [message(1), message(2)]
ASKED: list[tuple[Callable[[Queue], object], object]] = [
    (len, 2),
    (lambda queue: queue.size_bytes, sum(len(each.payload) for each in BOTH)),
    (lambda queue: queue.high, 2),
    (lambda queue: queue.empty(), False),
    (lambda queue: queue.pick_one(), BOTH[0]),
    (lambda queue: queue.pick_many(9), BOTH),
    (lambda queue: queue.pick_runs(9), [Run(1, tuple(each.payload for each in BOTH))]),
    (lambda queue: queue.slice_run(1, 2), [each.payload for each in BOTH]),
    (lambda queue: dict(queue.snapshot()), {each.num: each for each in BOTH}),
    (lambda queue: queue.enqueue(BOTH[1]), Enqueued(True)),
    (lambda queue: queue.enqueue_many(BOTH[1:]), 1),
    (lambda queue: queue.enqueue_run(2, [BOTH[1].payload]), 1),
    (lambda queue: queue.delete_all(2), 2),
]


@pytest.mark.parametrize(("ask", "answer"), ASKED)
def test_whatever_is_asked_finds_what_was_stored_without_an_answer(
    ask: Callable[[Queue], object], answer: object
) -> None:
    """message-queue Q-11, Q-18: each verb and view, asked first of all after the answer was lost."""
    inner = FailingQueue()
    queue = fill(Checked(inner, invariants="off"), 1)
    inner.fail("after")
    with pytest.raises(StoreUnavailable):
        queue.enqueue(message(2))
    assert ask(queue) == answer


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
    for each in batch:
        with pytest.raises(ContractViolation):
            queue.enqueue(each)


class Dark(FailingQueue):
    """Its contents can be hidden, as those of a store that is away."""

    dark = False

    def snapshot(self) -> Mapping[int, Message]:
        if self.dark:
            raise StoreUnavailable("nothing to see")
        return super().snapshot()


@pytest.mark.parametrize(("ask", "answer"), ASKED)
def test_nothing_is_done_while_it_is_unknown_what_was_done(
    ask: Callable[[Queue], object], answer: object
) -> None:
    """message-queue Q-18: in doubt and without a look at the store, each call fails, none gets through."""
    inner = Dark()
    queue = fill(Checked(inner, invariants="off"), 1)
    inner.fail("after")
    with pytest.raises(StoreUnavailable):
        queue.enqueue(message(2))
    inner.dark, writes = True, inner.writes
    with pytest.raises(StoreUnavailable):
        ask(queue)
    assert inner.writes == writes
    inner.dark = False
    assert ask(queue) == answer


WRITES: list[Callable[[Queue], object]] = [
    lambda queue: queue.enqueue(message(2)),
    lambda queue: queue.enqueue_many([message(2)]),
    lambda queue: queue.enqueue_run(2, [message(2).payload]),
    lambda queue: queue.delete_all(9),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_doubt_is_not_forgotten_over_the_next_call(write: Callable[[Queue], object]) -> None:
    """message-queue Q-18: a deletion is in doubt, and so is the store: a write is not begun."""
    inner = Dark()
    queue = fill(Checked(inner, invariants="off"), 1)
    inner.fail("after")
    with pytest.raises(StoreUnavailable):
        queue.delete_all(1)
    inner.dark = True
    with pytest.raises(StoreUnavailable):
        write(queue)
    inner.dark = False
    assert held(queue) == []


class Turns(FailingQueue):
    """Says one too much from some moment on."""

    wrong = 0

    @property
    def high(self) -> int:
        return super().high + self.wrong

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + self.wrong

    def __len__(self) -> int:
        return super().__len__() + self.wrong


@pytest.mark.parametrize("ask", [ask for ask, _ in ASKED[:3]], ids=["len", "size_bytes", "high"])
def test_a_view_is_judged_by_what_is_found_out_for_it(ask: Callable[[Queue], object]) -> None:
    """message-queue Q-18: in doubt, the contents are looked at first, and then the answer."""
    inner = Turns()
    queue = fill(Checked(inner, invariants="off"), 1)
    inner.fail("after")
    with pytest.raises(StoreUnavailable):
        queue.enqueue(message(2))
    inner.wrong = 1
    with pytest.raises(ContractBroken, match=r"QI-[45]"):
        ask(queue)


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
