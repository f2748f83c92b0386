"""`Checked` finds each way to break the contract, and blames the right side."""

# ruff: noqa: ARG002 - faulty queues keep the signatures of the verbs and look at no argument

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

import pytest

from surepipe.errors import ConfigurationError, ContractBroken, ContractViolation, StoreUnavailable
from surepipe.pipes.message_queue import (
    BoundedQueue,
    Enqueued,
    Message,
    OrderedQueue,
    RefusalReason,
    Run,
)
from surepipe.pipes.message_queue.checked import Checked, Invariants
from tests.pipes.message_queues import FailingQueue, Queue, fill, held, message


class FilesUnderAnotherNumber(OrderedQueue[Message]):
    """Its snapshot puts each message one too high."""

    def snapshot(self) -> Mapping[int, Message]:
        return {number + 1: each for number, each in super().snapshot().items()}


class AltersPayloads(OrderedQueue[Message]):
    """Keeps a message without its last byte."""

    def enqueue(self, message: Message) -> Enqueued:
        return super().enqueue(Message(message.num, message.payload[:-1]))


class Forgets(OrderedQueue[Message]):
    """Answers that it took number 3, and doesn't take it."""

    def enqueue(self, message: Message) -> Enqueued:
        return Enqueued(True) if message.num == 3 else super().enqueue(message)


class DeletesOneTooFew(OrderedQueue[Message]):
    """Keeps the message at the bound and says the right count."""

    def delete_all(self, number: int) -> int:
        return super().delete_all(max(number - 1, 0)) + 1


class KeepsArrivalOrder(OrderedQueue[Message]):
    """Its snapshot begins with the greatest number."""

    def snapshot(self) -> Mapping[int, Message]:
        return dict(sorted(super().snapshot().items(), reverse=True))


class PicksTheGreatest(OrderedQueue[Message]):
    """Promises the least and gives the greatest."""

    def pick_one(self) -> Message:
        return self.pick_many(len(self))[-1]


class FallsBack(OrderedQueue[Message]):
    """Takes the greatest number from what is held now."""

    @property
    def high(self) -> int:
        return max(self.snapshot(), default=-1)


class CountsWrong(OrderedQueue[Message]):
    """Says one more than it holds."""

    def __len__(self) -> int:
        return super().__len__() + 1


class WeighsWrong(OrderedQueue[Message]):
    """Counts messages for bytes."""

    @property
    def size_bytes(self) -> int:
        return len(self)


class Overflows(OrderedQueue[Message]):
    """States a bound and doesn't keep it."""

    def __init__(self) -> None:
        super().__init__()
        self.capacity = 2


class DeletesHalf(FailingQueue):
    """A deletion that fails has deleted something, and not all."""

    def delete_all(self, number: int) -> int:
        super().delete_all(number - 1)
        raise StoreUnavailable("half done")


class StoresAHole(FailingQueue):
    """A batch that fails has stored its end, and not its beginning."""

    def enqueue_many(self, messages: Sequence[Message]) -> int:
        super().enqueue_many(messages[-1:])
        raise StoreUnavailable("half done")


class StoresSomethingElse(FailingQueue):
    """An enqueue that fails has stored another payload."""

    def enqueue(self, message: Message) -> Enqueued:
        super().enqueue(Message(message.num, b"garbage"))
        raise StoreUnavailable("the answer was lost")


def _enqueue_three(queue: Queue) -> None:
    fill(queue, 1, 2, 3)


def _delete_two_of_three(queue: Queue) -> None:
    fill(queue, 1, 2, 3)
    queue.delete_all(2)


def _delete_everything(queue: Queue) -> None:
    fill(queue, 1, 2, 3)
    queue.delete_all(3)


def _fail_to_delete(queue: Queue) -> None:
    fill(queue, 1, 2, 3)
    with pytest.raises(StoreUnavailable):
        queue.delete_all(2)
    queue.empty()


def _fail_to_enqueue(queue: Queue) -> None:
    with pytest.raises(StoreUnavailable):
        queue.enqueue(message(1))
    queue.empty()


def _fail_to_enqueue_many(queue: Queue) -> None:
    with pytest.raises(StoreUnavailable):
        queue.enqueue_many([message(1), message(2)])
    queue.empty()


@pytest.mark.parametrize(
    ("make", "act", "clause"),
    [
        (FilesUnderAnotherNumber, _enqueue_three, r"QI-1 .*enqueue\(1\).* 1 under 2"),
        (AltersPayloads, _enqueue_three, r"QI-2 .*enqueue\(1\).*altered 1"),
        (Forgets, _enqueue_three, r"QI-2 .*enqueue\(3\).*missing 3"),
        (DeletesOneTooFew, _delete_two_of_three, r"QI-2 .*delete_all\(2\).*too many 2"),
        (KeepsArrivalOrder, _enqueue_three, r"QI-3 .*order.*enqueue\(2\)"),
        (PicksTheGreatest, _enqueue_three, r"QI-3 .*first.*gave 2, the least is 1"),
        (FallsBack, _delete_everything, r"QI-4 .*delete_all\(3\).*says -1, and it is 3"),
        (CountsWrong, _enqueue_three, r"QI-5 .*sums.*enqueue\(1\)"),
        (WeighsWrong, _enqueue_three, r"QI-5 .*sums.*\(1, 1\).*\(1, 9\)"),
        (Overflows, _enqueue_three, r"QI-5 .*bounds.*enqueue\(3\).*3 of 2"),
        (DeletesHalf, _fail_to_delete, r"QI-6 .*delete_all\(2\).*too many 2"),
        (StoresSomethingElse, _fail_to_enqueue, r"QI-6 .*enqueue\(1\).*altered 1"),
        (StoresAHole, _fail_to_enqueue_many, r"QI-6 .*enqueue_many\(\(1, 2\)\).*too many 2"),
    ],
)
def test_each_invariant_that_is_broken_is_named(
    make: Callable[[], Queue], act: Callable[[Queue], None], clause: str
) -> None:
    """message-queue QI-1 to QI-6, Q-17: one faulty queue for each, and what the message must say."""
    with pytest.raises(ContractBroken, match=clause):
        act(Checked(make(), invariants="each"))


class AnswersAtRandom(BoundedQueue[Message]):
    """Gives the answer that it was told to give, to whatever it is asked, and changes nothing."""

    def __init__(self, answer: object, *, increasing: bool = False, dense: bool = False) -> None:
        super().__init__(9, 99, increasing=increasing, dense=dense)
        self.answer: object = None
        self.given = answer

    def enqueue(self, message: Message) -> Enqueued:
        return cast(Enqueued, self.answer) if self.answer is not None else super().enqueue(message)

    def empty(self) -> bool:
        return super().empty() if self.answer is None else cast(bool, self.answer)

    def pick_one(self) -> Message:
        return cast(Message, self.answer) if self.answer is not None else super().pick_one()

    def delete_all(self, number: int) -> int:
        return cast(int, self.answer)

    def enqueue_many(self, messages: Sequence[Message]) -> int:
        return cast(int, self.answer)

    def enqueue_run(self, first: int, payloads: Sequence[bytes]) -> int:
        return cast(int, self.answer)

    def pick_many(self, limit: int, after: int = -1) -> list[Message]:
        return cast("list[Message]", self.answer)

    def pick_runs(self, limit: int, after: int = -1) -> list[Run]:
        return cast("list[Run]", self.answer)

    def slice_run(self, first: int, count: int) -> list[bytes]:
        return cast("list[bytes]", self.answer)


Ask: TypeAlias = Callable[[Queue], object]

STALE = Enqueued(False, RefusalReason.STALE)
GAP = Enqueued(False, RefusalReason.GAP)


WRONG_ANSWERS: list[tuple[object, Ask, str]] = [
    (True, lambda q: q.empty(), "empty is true exactly when"),
    (message(9), lambda q: q.pick_one(), "pick_one gives a member"),
    (Message(4, b"altered"), lambda q: q.pick_one(), "pick_one gives a member"),
    ("nonsense", lambda q: q.pick_one(), "pick_one gives a member"),
    (message(5), lambda q: q.pick_one(), "QI-3"),
    (3, lambda q: q.delete_all(5), "delete_all says how many"),
    (3, lambda q: q.enqueue_many([message(6), message(7)]), "enqueue_many says how many"),
    (-1, lambda q: q.enqueue_run(6, [b"6"]), "enqueue_run says how many"),
    ([message(4)], lambda q: q.pick_many(9), "pick_many gives what the members are"),
    ([Run(4, (b"",))], lambda q: q.pick_runs(9), "pick_runs gives what the members are"),
    ([b""], lambda q: q.slice_run(4, 1), "slice_run gives what the members are"),
    (STALE, lambda q: q.enqueue(message(6)), "STALE only at or below high"),
    (GAP, lambda q: q.enqueue(message(6)), r"GAP only beyond high \+ 1"),
    (Enqueued(False), lambda q: q.enqueue(message(6)), "a refusal has a reason"),
    (Enqueued(True, RefusalReason.GAP), lambda q: q.enqueue(message(6)), "a refusal has a reason"),
    (Enqueued(True), lambda q: q.enqueue(message(3)), "takes only numbers above high"),
    (Enqueued(True), lambda q: q.enqueue(message(7)), "takes only the next number"),
    (1, lambda q: q.enqueue_run(7, [b""]), "takes only the next number"),
    (1, lambda q: q.enqueue_many([message(7)]), "takes only the next number"),
]


@pytest.mark.parametrize(("answer", "ask", "clause"), WRONG_ANSWERS)
def test_each_wrong_answer_of_a_verb_is_found_without_looking_at_snapshots(
    answer: object, ask: Ask, clause: str
) -> None:
    """message-queue Q-17, Q-19: a dense queue holds 4 and 5; invariants are off."""
    inner = AnswersAtRandom(answer, dense=True)
    queue = fill(Checked(inner, invariants="off"), 4, 5)
    inner.answer = inner.given
    with pytest.raises(ContractBroken, match=clause):
        ask(queue)


def test_a_queue_that_never_held_anything_has_no_gap() -> None:
    """message-queue Q-5: the first message of a dense queue may have any number."""
    inner = AnswersAtRandom(GAP, dense=True)
    queue = Checked(inner, invariants="off")
    inner.answer = inner.given
    with pytest.raises(ContractBroken, match=r"GAP only beyond high \+ 1"):
        queue.enqueue(message(6))


def test_an_increasing_queue_must_not_take_a_number_again() -> None:
    """message-queue Q-5: the greatest number ever, which was deleted, is not above itself."""

    inner = AnswersAtRandom(Enqueued(True), increasing=True)
    queue = fill(Checked(inner, invariants="off"), 1)
    inner.answer = 1
    assert queue.delete_all(1) == 1
    inner.answer = inner.given
    with pytest.raises(ContractBroken, match="takes only numbers above high"):
        queue.enqueue(message(1))


def test_a_picked_message_must_stay_the_same_where_any_may_be_picked() -> None:
    """The source's contract: a queue that doesn't promise the least picks another one the second time."""

    class PicksInTurn(OrderedQueue[Message]):
        picks_least = False
        turn = 0

        def pick_one(self) -> Message:
            self.turn += 1
            return self.pick_many(9)[self.turn % 2]

    queue = fill(Checked(PicksInTurn()), 1, 2)
    queue.pick_one()
    with pytest.raises(ContractBroken, match="the same message until a change"):
        queue.pick_one()


class CountsCalls(OrderedQueue[Message]):
    """Counts its calls, and can lay a fault upon its caller."""

    calls = 0
    snapshots = 0
    blames = False

    def enqueue(self, message: Message) -> Enqueued:
        self.calls += 1
        if self.blames:
            raise ContractViolation("you did it")
        return super().enqueue(message)

    def pick_one(self) -> Message:
        self.calls += 1
        return super().pick_one()

    def snapshot(self) -> Mapping[int, Message]:
        self.snapshots += 1
        return super().snapshot()


def test_the_queue_is_not_called_when_the_caller_broke_a_duty() -> None:
    """message-queue Q-17: the contents and the number of inner calls stay."""
    inner = CountsCalls()
    queue = Checked(inner, invariants="off")
    with pytest.raises(ContractViolation):
        queue.pick_one()
    fill(queue, 1)
    with pytest.raises(ContractViolation):
        queue.enqueue(Message(1, b"another"))
    assert inner.calls == 1
    assert dict(queue.contents) == {1: message(1)}


def test_a_queue_that_blames_a_caller_without_fault_is_broken_itself() -> None:
    """message-queue Q-17: the inner queue raises ContractViolation where the ghost sees no reason."""
    inner = CountsCalls()
    queue = Checked(inner)
    inner.blames = True
    with pytest.raises(ContractBroken, match=r"the queue blames it.*you did it"):
        queue.enqueue(message(1))


@pytest.mark.parametrize(
    ("invariants", "members", "snapshots"),
    [
        *(("each", 10, 100), ("off", 10, 0), (None, 10, 100), (None, 300, 1)),
        *(("sampled", 10, 2), ("sampled", 24, 2), ("sampled", 25, 1)),
    ],
)
def test_snapshots_are_compared_as_often_as_was_said(
    invariants: Invariants | None, members: int, snapshots: int
) -> None:
    """message-queue Q-19: one hundred calls; every 64th is a sample, with more than 16 members every fourth
    times as many; up to 256 members each one."""
    inner = CountsCalls()
    for number in range(members):
        inner.enqueue(message(number))
    queue = Checked.adopt(inner, invariants=invariants)
    inner.snapshots = 0
    for _ in range(100):
        queue.empty()
    assert inner.snapshots == snapshots


def test_an_unknown_way_of_looking_is_refused() -> None:
    """A misspelt argument must not switch checks off."""
    with pytest.raises(ConfigurationError, match="'sampled'"):
        Checked(OrderedQueue(), invariants=cast(Invariants, "sometimes"))


def test_in_production_a_fault_is_reported_once_and_work_goes_on() -> None:
    """message-queue Q-19: on_broken collects; the ghost starts again from what the queue holds."""
    broken: list[ContractBroken] = []
    queue = Checked(Forgets(), invariants="each", on_broken=broken.append)
    assert queue.enqueue(message(2))
    assert queue.enqueue(message(3))
    assert queue.enqueue(message(4))
    assert held(queue) == [2, 4]
    assert queue.delete_all(4) == 2
    assert [str(error)[:4] for error in broken] == ["QI-2"]


def test_only_a_new_queue_is_checked_without_adopting_it() -> None:
    """message-queue Q-17: one that holds something, and one that did."""
    inner = fill(OrderedQueue(), 1)
    with pytest.raises(ContractViolation, match="adopt"):
        Checked(inner)
    inner.delete_all(1)
    with pytest.raises(ContractViolation, match="adopt"):
        Checked(inner)


def test_an_adopted_queue_is_checked_from_what_it_holds() -> None:
    """message-queue Q-17: contents and high come from the queue, and are held against it afterwards."""
    inner = fill(BoundedQueue(increasing=True), 1, 2, 3)
    inner.delete_all(1)
    queue = Checked.adopt(inner)
    assert held(queue) == [2, 3]
    assert queue.high == 3
    fill(queue, 4)
    inner.delete_all(2)
    with pytest.raises(ContractBroken, match=r"QI-2.*missing 2"):
        queue.empty()


def test_the_views_of_a_checked_queue_are_held_to_the_ghost() -> None:
    """The queue is changed behind the back of its check: each view notices."""
    views: list[Ask] = [len, lambda q: q.size_bytes, lambda q: q.high, lambda q: q.snapshot()]
    for ask in views:
        inner = OrderedQueue()
        queue = Checked(inner, invariants="off")
        fill(inner, 7)
        with pytest.raises(ContractBroken, match=r"QI-[245]"):
            ask(queue)


def test_a_checked_queue_is_what_the_queue_inside_is() -> None:
    """Profile, bounds and composition are passed on."""
    inner = BoundedQueue(3, 50, dense=True)
    queue = Checked(inner)
    assert queue.queue is inner
    assert (queue.picks_least, queue.increasing, queue.dense) == (True, True, True)
    assert (queue.capacity, queue.capacity_bytes) == (3, 50)
    assert repr(queue) == "Checked(BoundedQueue(0 of 3 messages, 0 of 50 bytes, dense))"
