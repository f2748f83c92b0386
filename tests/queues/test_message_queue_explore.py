"""The walk through every state finds exactly those that the contract has, and faults in any of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from surepipe.errors import ContractBroken, ContractViolation
from surepipe.queues.message_queue import (
    BoundedQueue,
    Enqueued,
    ExploredQueue,
    Message,
    OrderedQueue,
    explore,
)
from tests.pipes.message_queues import Make


@pytest.mark.parametrize(
    ("make", "explored"),
    [
        (OrderedQueue, ExploredQueue(states=16, steps=176)),
        (lambda: BoundedQueue(2), ExploredQueue(states=11, steps=121)),
        (lambda: BoundedQueue(dense=True), ExploredQueue(states=15, steps=165)),
        (lambda: BoundedQueue(increasing=True), ExploredQueue(states=20, steps=220)),
        (lambda: BoundedQueue(2, dense=True), ExploredQueue(states=12, steps=132)),
    ],
)
def test_every_state_of_four_numbers_is_reached_without_a_violation(
    make: Make, explored: ExploredQueue
) -> None:
    """message-queue MQ-10: 16, 11 and 15 states as the contract counts them; 11 calls in each."""
    assert explore(make, numbers=4) == explored


class WrapsAround(OrderedQueue[Message]):
    """A deletion above everything removes nothing: a fault that only that argument shows."""

    def delete_all(self, number: int) -> int:
        return 0 if number == 3 else super().delete_all(number)


class TakesTwice(OrderedQueue[Message]):
    """Puts a second message in the place of the first."""

    def enqueue(self, message: Message) -> Enqueued:
        if message.num in self.snapshot():
            return Enqueued(True)
        return super().enqueue(message)


class LosesOnRefusal(OrderedQueue[Message]):
    """Refuses what repeats a number, and deletes up to it."""

    def enqueue(self, message: Message) -> Enqueued:
        try:
            return super().enqueue(message)
        except ContractViolation:
            self.delete_all(message.num)
            raise


class LosesTheThird(OrderedQueue[Message]):
    """With three members, one is lost to view."""

    def snapshot(self) -> Mapping[int, Message]:
        members = dict(super().snapshot())
        if len(members) == 3:
            members.popitem()
        return members


@pytest.mark.parametrize(
    ("make", "clause"),
    [
        (WrapsAround, r"QI-2 .*delete_all\(3\)|delete_all says how many"),
        (TakesTwice, r"a broken duty raises ContractViolation: \('enqueue', 0\)"),
        (LosesOnRefusal, r"QI-2 .*missing 0"),
        (LosesTheThird, r"QI-2 .*missing 2"),
    ],
)
def test_a_fault_in_one_state_is_found(make: Make, clause: str) -> None:
    """message-queue Q-20: each fault shows in a few of the states only."""
    with pytest.raises(ContractBroken, match=clause):
        explore(make, numbers=3)


def test_the_package_needs_hypothesis_only_for_the_rules() -> None:
    """message-queue Q-21: a fresh interpreter imports all but the rules without loading it."""
    program = (
        "import sys, surepipe.queues.message_queue as q\n"
        "assert 'hypothesis' not in sys.modules\n"
        "q.MessageQueueRules\n"
        "assert 'hypothesis' in sys.modules\n"
        "assert not hasattr(q, 'Unknown')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
