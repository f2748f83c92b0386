"""The queues that the message-queue tests run on, bare and checked, and one whose store can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from surepipe.errors import StoreUnavailable
from surepipe.pipes.message_queue import BoundedQueue, Enqueued, Message, MessageQueue, OrderedQueue
from surepipe.pipes.message_queue.checked import Checked

Queue: TypeAlias = MessageQueue[Message]
Make: TypeAlias = Callable[[], Queue]

BARE: dict[str, Make] = {
    "ordered": OrderedQueue,
    "bounded": lambda: BoundedQueue(6, 100),
    "increasing": lambda: BoundedQueue(6, 100, increasing=True),
    "dense": lambda: BoundedQueue(6, 100, dense=True),
}


def checked(make: Make) -> Make:
    """The same queues, with every invariant compared at each call."""
    return lambda: Checked(make(), invariants="each")


EVERY: dict[str, Make] = BARE | {f"{name}-checked": checked(make) for name, make in BARE.items()}


def fill(queue: Queue, *numbers: int) -> Queue:
    """Enqueue messages with these numbers, each with a payload of its own."""
    for number in numbers:
        assert queue.enqueue(message(number))
    return queue


def message(number: int) -> Message:
    """The message that ``fill`` uses for a number."""
    return Message(number, b"payload %d" % (number % 100))


def held(queue: Queue) -> list[int]:
    """The numbers held, after a look that each message is the one that ``fill`` put in."""
    snapshot = queue.snapshot()
    assert all(member == message(number) for number, member in snapshot.items())
    return list(snapshot)


class FailingQueue(BoundedQueue[Message]):
    """A queue whose store can be told to fail, before or after the effect of a write.

    What was not answered may come again: it is stored once and accepted.
    """

    def __init__(self, capacity: int = 6, *, increasing: bool = False) -> None:
        super().__init__(capacity, 100, increasing=increasing)
        self.failing: Literal["before", "after"] | None = None
        self.writes_before_failure = 0
        self.unanswered: dict[int, Message] = {}
        self.writes = 0

    def fail(self, when: Literal["before", "after"], writes_before: int = 0) -> None:
        """Let a write fail, the next one or one after ``writes_before`` that succeed."""
        self.failing = when
        self.writes_before_failure = writes_before

    def enqueue(self, message: Message) -> Enqueued:
        stored = self._stored(message)
        failing = self._failure()
        if failing is not None:
            self.unanswered[message.num] = message
        if failing == "before":
            raise StoreUnavailable("enqueue was not done")
        answer = Enqueued(True) if stored else super().enqueue(message)
        if failing == "after":
            raise StoreUnavailable("the answer to enqueue was lost")
        self.unanswered.pop(message.num, None)
        return answer

    def enqueue_many(self, messages: Sequence[Message]) -> int:
        self._require_new([each for each in messages if not self._stored(each)])
        try:
            for place, each in enumerate(messages):
                if not self.enqueue(each):
                    return place
        except StoreUnavailable:
            # The whole batch is without an answer, also what was stored of it.
            self.unanswered.update({each.num: each for each in messages})
            raise
        return len(messages)

    def enqueue_run(self, first: int, payloads: Sequence[bytes]) -> int:
        return self.enqueue_many([Message(n, payload) for n, payload in enumerate(payloads, first)])

    def delete_all(self, number: int) -> int:
        failing = self._failure()
        if failing == "before":
            raise StoreUnavailable("delete_all was not done")
        removed = super().delete_all(number)
        if failing == "after":
            raise StoreUnavailable("the answer to delete_all was lost")
        return removed

    def _stored(self, message: Message) -> bool:
        """True for a repeat of what was stored and not answered."""
        return self.unanswered.get(message.num) == message and message.num in self.snapshot()

    def _failure(self) -> Literal["before", "after"] | None:
        self.writes += 1
        if self.failing is None or self.writes_before_failure:
            self.writes_before_failure -= self.failing is not None
            return None
        failing, self.failing = self.failing, None
        return failing
