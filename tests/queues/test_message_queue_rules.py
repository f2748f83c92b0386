"""Random calls on every queue in memory, against a dictionary; and proof that they find faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ClassVar, cast

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from surepipe.errors import ContractBroken, ContractViolation
from surepipe.pipes.message_queue import (
    MAX_NUMBER,
    BoundedQueue,
    Enqueued,
    Message,
    OrderedQueue,
    RefusalReason,
)
from surepipe.pipes.message_queue.checked import Checked
from surepipe.queues.message_queue.rules import MessageQueueRules
from tests.pipes.message_queues import FailingQueue, Make, Queue, checked

SMALL: dict[str, Make] = {
    "ordered": OrderedQueue,
    "bounded": lambda: BoundedQueue(4, 12),
    "increasing": lambda: BoundedQueue(4, 12, increasing=True),
    "dense": lambda: BoundedQueue(4, 12, dense=True),
}
EVERY = SMALL | {f"{name}-checked": checked(make) for name, make in SMALL.items()}


def rules_of(make_queue: Make) -> type[MessageQueueRules]:
    """The rules, on queues that this makes."""

    class Rules(MessageQueueRules):
        def make(self) -> Queue:
            return make_queue()

    return Rules


class FailingRules(MessageQueueRules):
    """A queue whose store fails when the rules say so, checked or not."""

    increasing: ClassVar[bool] = False
    watched: ClassVar[bool] = False

    def make(self) -> Queue:
        self.inner = FailingQueue(4, increasing=self.increasing)
        return Checked(self.inner) if self.watched else self.inner

    def fail_next(self, queue: Queue, *, applied: bool) -> bool:
        assert len(queue) == len(self.inner)
        self.inner.fail("after" if applied else "before")
        return True

    def reopen(self, queue: Queue) -> Queue:
        return Checked.adopt(self.inner) if self.watched else queue


def few() -> settings:
    """Fewer examples than the profile has, in the same deterministic order."""
    return settings(max_examples=20, stateful_step_count=40, report_multiple_bugs=False)


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
def test_random_interleavings_equal_a_dictionary(make: Make) -> None:
    """message-queue Q-21, MQ-11: drawn by hypothesis, which would shrink what it finds."""
    run_state_machine_as_test(rules_of(make), settings=few())


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("watched", [False, True])
def test_a_failing_store_leaves_the_contents_before_or_after(
    increasing: bool, watched: bool
) -> None:
    """message-queue Q-21, QI-6: writes fail before and after their effect, and are repeated."""

    class Rules(FailingRules):
        pass

    Rules.increasing, Rules.watched = increasing, watched
    run_state_machine_as_test(Rules, settings=few())


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
def test_ten_thousand_random_steps_equal_a_dictionary(make: Make) -> None:
    """message-queue MQ-11: a seeded walk; the dictionary is compared after each step."""
    walk(make, Random(20), steps=10_000)


def walk(make: Make, random: Random, steps: int) -> None:
    """Call the rules at random, with arguments that keep the queue busy and now and then empty."""
    rules = rules_of(make)()
    rules.begin()
    for _ in range(steps):
        random_step(rules, random)
        rules.equals_the_dictionary()
        if rules.high > MAX_NUMBER - 8:
            rules.begin()


def random_step(rules: MessageQueueRules, random: Random) -> None:
    """One rule with random arguments."""
    near = min(rules.model, default=rules.high) + random.randint(-1, 2)
    near = min(max(near, 0), MAX_NUMBER)
    payloads = [bytes(random.randrange(6)) for _ in range(random.randrange(5))]
    steps: list[Callable[[], object]] = [
        lambda: rules.enqueue(random.choice([near, MAX_NUMBER - random.randrange(9)]), b"ab"),
        lambda: rules.enqueue_near_high(random.randint(-2, 3), b"abc"),
        lambda: rules.enqueue_near_high(1, b""),
        lambda: rules.delete_all(min(near + random.randrange(4), MAX_NUMBER)),
        lambda: rules.enqueue_many([1, random.randint(1, 2)], payloads),
        lambda: rules.enqueue_run(near, payloads),
        lambda: rules.enqueue_run_near_high(random.randint(-2, 3), payloads),
        lambda: rules.pick(random.randrange(6), random.randint(-1, near)),
        lambda: rules.slice_run(near, random.randrange(4)),
        rules.open_again,
        lambda: rules.delete_all(max(rules.high, 0)),
    ]
    # A jump to the end of the numbers is rare: most queues would be full of them for good.
    random.choices(steps, weights=[1, 20, 20, 12, 12, 8, 12, 12, 12, 1, 3])[0]()


class DropsWhenFull(BoundedQueue[Message]):
    """Says ok to what it has no room for."""

    def enqueue(self, message: Message) -> Enqueued:
        super().enqueue(message)
        return Enqueued(True)


class DeletesBelow(BoundedQueue[Message]):
    """Takes the bound of a deletion for exclusive."""

    def delete_all(self, number: int) -> int:
        return super().delete_all(number - 1) if number else 0


@pytest.mark.parametrize("kind", [DropsWhenFull, DeletesBelow])
def test_the_rules_find_a_planted_fault(kind: type[BoundedQueue[Message]]) -> None:
    """message-queue Q-21: two faulty queues, each found by the dictionary and by the check."""
    # What is drawn depends on the modules that are loaded, too. It ends with the first fault that is found.
    found_and_not_shrunk = settings(few(), max_examples=1_000, phases=[Phase.generate])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(rules_of(lambda: kind(4, 12)), settings=found_and_not_shrunk)
    with pytest.raises(ContractBroken):
        walk(checked(lambda: kind(4, 12)), Random(1), steps=1_000)


ANSWERS: dict[str, object] = {
    "enqueue": Enqueued(False, RefusalReason.FULL),
    "enqueue_many": 0,
    "enqueue_run": 0,
    "slice_run": [],
    "pick_one": Message(0),
}


def forgiving(verb: str) -> Make:
    """Makes queues that do nothing where this verb is called against its duty, and answer all the same."""

    class Forgives(BoundedQueue[Message]):
        pass

    strict = cast("Callable[..., object]", getattr(BoundedQueue, verb))

    def forgive(self: Forgives, *arguments: object) -> object:
        try:
            return strict(self, *arguments)
        except ContractViolation:
            return ANSWERS[verb]

    setattr(Forgives, verb, forgive)
    return lambda: Forgives(4, 12)


@pytest.mark.parametrize("verb", ANSWERS)
def test_the_rules_want_broken_duties_refused_by_every_verb(verb: str) -> None:
    """message-queue Q-3, Q-21: to answer as if nothing were amiss is no refusal."""
    rules = rules_of(forgiving(verb))()
    rules.begin()

    def break_duties() -> None:
        rules.pick_from_nothing()
        rules.slice_run(1, 1)
        for number in (1, 1, MAX_NUMBER):
            rules.enqueue(number, b"")
        rules.enqueue_many([1], [b""])
        rules.enqueue_run(1, [b""])

    with pytest.raises(AssertionError, match="must raise ContractViolation"):
        break_duties()


def test_a_walk_is_the_same_again_with_the_same_seed() -> None:
    """Two walks with one seed end in the same contents, and another seed elsewhere."""

    def end(seed: int) -> list[dict[int, bytes]]:
        rules = rules_of(lambda: BoundedQueue(4, 12, increasing=True))()
        rules.begin()
        random = Random(seed)
        states: list[dict[int, bytes]] = []
        for _ in range(300):
            random_step(rules, random)
            states.append(dict(rules.model))
        return states

    assert end(1) == end(1)
    assert end(1) != end(2)
