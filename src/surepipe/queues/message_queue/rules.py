"""`MessageQueueRules`: random calls of every verb, against a plain dictionary. Needs hypothesis.

    from surepipe.queues.message_queue import MessageQueueRules

    class MyQueueRules(MessageQueueRules):
        def make(self):
            return MyQueue()

    TestMyQueue = MyQueueRules.TestCase

pytest and unittest find and run that, and hypothesis shrinks what it finds to a few calls. A queue
that is stored tells also how it is opened again (``reopen``) and how its store can be made to fail
(``fail_next``).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from surepipe.errors import ContractViolation, StoreUnavailable
from surepipe.pipes.message_queue.contract import MAX_NUMBER, Message, MessageQueue, RefusalReason

__all__ = ["MessageQueueRules"]

PAYLOADS = st.binary(max_size=6)
BATCHES = st.lists(PAYLOADS, max_size=5)
NUMBERS = st.one_of(st.integers(0, 12), st.integers(MAX_NUMBER - 6, MAX_NUMBER))
STEPS = st.integers(-2, 3)
LIMITS = st.integers(0, 6)


class MessageQueueRules(RuleBasedStateMachine):
    """Any interleaving of all verbs: after each, the queue equals a dictionary of what it must
    hold.
    """

    refuses_exactly = True
    """The queue refuses only what its bounds and its profile say. The contract allows it to refuse
    more.
    """

    def make(self) -> MessageQueue[Message]:
        """A new, empty queue. To be overridden."""
        raise NotImplementedError("MessageQueueRules needs make(), which gives a new queue")

    def reopen(self, queue: MessageQueue[Message]) -> MessageQueue[Message]:
        """The same queue, opened again after its owner has gone. A queue in memory stays as it is."""
        return queue

    def fail_next(self, queue: MessageQueue[Message], *, applied: bool) -> bool:  # noqa: ARG002
        """Let the next write raise `StoreUnavailable`, after its effect or without it; False:
        can't.
        """
        return False

    @initialize()
    def begin(self) -> None:
        """A new queue and an empty dictionary."""
        self.queue = self.make()
        self.model: dict[int, bytes] = {}
        self.unanswered: dict[int, bytes] = {}
        """Members that were found after a failed call and not asked for again: each may still be."""
        self.high = -1

    # Writes.

    @rule(number=NUMBERS, payload=PAYLOADS)
    def enqueue(self, number: int, payload: bytes) -> None:
        """Any number, most of them small."""
        self._enqueue(number, payload)

    @rule(step=STEPS, payload=PAYLOADS)
    def enqueue_near_high(self, step: int, payload: bytes) -> None:
        """A number near the greatest so far, which is where the profiles differ."""
        self._enqueue(min(max(self.high + step, 0), MAX_NUMBER), payload)

    @rule(step=STEPS, payload=PAYLOADS, applied=st.booleans(), again=st.booleans())
    def enqueue_unanswered(
        self, step: int, payload: bytes, applied: bool, again: bool = True
    ) -> None:
        """The store fails; the contents are those before or after; the repeat stores it once. Without
        a repeat they stay what they were found to be.
        """
        number = min(max(self.high + step, 0), MAX_NUMBER)
        if number in self.model or self._refusal(number, payload) is not None:
            return
        if not self.fail_next(self.queue, applied=applied):
            return
        message = Message(number, payload)
        try:
            answer = self.queue.enqueue(message)
        except StoreUnavailable:
            found = self._held()
            assert found in (self.model, self.model | {number: payload})
            if not again:
                if number in found:
                    self._accept(number, payload)
                    self.unanswered[number] = payload
                return
            answer = self.queue.enqueue(message)
        if answer:
            self._accept(number, payload)
        else:
            assert not self.refuses_exactly

    @rule(number=NUMBERS)
    def delete_all(self, number: int) -> None:
        """Delete to any number, twice: there is nothing left for the second time."""
        assert self.queue.delete_all(number) == self._delete(number)
        assert self.queue.delete_all(number) == 0

    @rule(number=NUMBERS, applied=st.booleans(), again=st.booleans())
    def delete_unanswered(self, number: int, applied: bool, again: bool = True) -> None:
        """The store fails; all of it is gone or nothing; the repeat finishes it. Without one it stays so."""
        if not self.fail_next(self.queue, applied=applied):
            return
        before = dict(self.model)
        self._delete(number)
        try:
            self.queue.delete_all(number)
        except StoreUnavailable:
            found = self._held()
            assert found in (before, self.model)
            if not again:
                self.model = found
                self._forget_unanswered()
                return
        self.queue.delete_all(number)

    @rule(steps=st.lists(st.integers(1, 2), min_size=1, max_size=4), payloads=BATCHES)
    def enqueue_many(self, steps: list[int], payloads: list[bytes]) -> None:
        """A batch with a hole here and there, near the greatest number."""
        number, messages = self.high, list[Message]()
        for place, payload in enumerate(payloads):
            number += steps[place % len(steps)]
            messages.append(Message(number, payload))
        if any(message.num in self.unanswered for message in messages):
            return
        if number > MAX_NUMBER or any(message.num in self.model for message in messages):
            self._violates(lambda: self.queue.enqueue_many(messages))
        else:
            accepted = self.queue.enqueue_many(messages)
            self._accept_beginning([(m.num, m.payload) for m in messages], accepted)

    @rule(first=NUMBERS, payloads=BATCHES)
    def enqueue_run(self, first: int, payloads: list[bytes]) -> None:
        """A run from any number."""
        self._enqueue_run(first, payloads)

    @rule(step=STEPS, payloads=BATCHES)
    def enqueue_run_near_high(self, step: int, payloads: list[bytes]) -> None:
        """A run that goes on, leaves a hole, or overlaps."""
        self._enqueue_run(min(max(self.high + step, 0), MAX_NUMBER), payloads)

    @rule()
    def open_again(self) -> None:
        """Nothing is lost by opening again, ``high`` included."""
        for number, payload in dict(self.unanswered).items():
            self._enqueue(number, payload)
        self.queue = self.reopen(self.queue)

    # Views.

    @rule(limit=LIMITS, after=st.one_of(st.just(-1), NUMBERS))
    def pick(self, limit: int, after: int) -> None:
        """The batch views show what the dictionary holds."""
        expected = [(n, p) for n, p in sorted(self.model.items()) if n > after][:limit]
        picked = self.queue.pick_many(limit, after)
        assert [(message.num, message.payload) for message in picked] == expected
        runs = self.queue.pick_runs(limit, after)
        assert [pair for run in runs for pair in enumerate(run.payloads, run.first)] == expected
        assert all(one.last + 1 < other.first for one, other in pairwise(runs))

    @rule(first=NUMBERS, count=LIMITS)
    def slice_run(self, first: int, count: int) -> None:
        """Members are sliced; a range with a number that is none is the caller's fault."""
        wanted = range(first, first + count)
        if all(number in self.model for number in wanted):
            assert self.queue.slice_run(first, count) == [self.model[n] for n in wanted]
        else:
            self._violates(lambda: self.queue.slice_run(first, count))

    @precondition(lambda self: not self.model)
    @rule()
    def pick_from_nothing(self) -> None:
        """``pick_one`` of an empty queue is the caller's fault."""
        self._violates(self.queue.pick_one)

    @invariant()
    def equals_the_dictionary(self) -> None:
        """Contents, order, sums, ``high``, ``empty`` and ``pick_one``."""
        queue, model = self.queue, self.model
        assert self._held() == model
        assert list(queue.snapshot()) == sorted(model)
        assert len(queue) == len(model)
        assert queue.size_bytes == sum(map(len, model.values()))
        assert queue.high == self.high
        assert queue.empty() is (not model)
        if model:
            picked = queue.pick_one()
            assert model[picked.num] == picked.payload
            assert not queue.picks_least or picked.num == min(model)

    # The dictionary.

    def _held(self) -> dict[int, bytes]:
        return {number: message.payload for number, message in self.queue.snapshot().items()}

    def _enqueue(self, number: int, payload: bytes) -> None:
        message = Message(number, payload)
        if self.unanswered.get(number) == payload:
            del self.unanswered[number]
            assert self.queue.enqueue(message)
            return
        if number in self.model:
            self._violates(lambda: self.queue.enqueue(message))
            return
        expected = self._refusal(number, payload)
        answer = self.queue.enqueue(message)
        assert bool(answer) is answer.ok is (answer.reason is None)
        assert expected is None or not answer
        assert answer.reason is expected or (not answer and not self.refuses_exactly)
        if answer:
            self._accept(number, payload)

    def _enqueue_run(self, first: int, payloads: list[bytes]) -> None:
        last = first + len(payloads) - 1
        if any(first <= number <= last for number in self.unanswered):
            return
        if last > MAX_NUMBER or any(first <= number <= last for number in self.model):
            self._violates(lambda: self.queue.enqueue_run(first, payloads))
        else:
            accepted = self.queue.enqueue_run(first, payloads)
            self._accept_beginning(list(enumerate(payloads, first)), accepted)

    def _refusal(self, number: int, payload: bytes) -> RefusalReason | None:
        queue = self.queue
        if queue.increasing and number <= self.high:
            return RefusalReason.STALE
        if queue.dense and -1 < self.high < number - 1:
            return RefusalReason.GAP
        if queue.capacity is not None and len(self.model) >= queue.capacity:
            return RefusalReason.FULL
        size = sum(map(len, self.model.values())) + len(payload)
        if queue.capacity_bytes is not None and size > queue.capacity_bytes:
            return RefusalReason.FULL_BYTES
        return None

    def _accept(self, number: int, payload: bytes) -> None:
        self.model[number] = payload
        self.high = max(self.high, number)

    def _accept_beginning(self, offered: list[tuple[int, bytes]], accepted: int) -> None:
        """A batch does what ``enqueue`` one by one would do, up to the first refusal."""
        taken = 0
        for number, payload in offered:
            if self._refusal(number, payload) is not None or taken == accepted:
                break
            self._accept(number, payload)
            taken += 1
        assert accepted == taken
        if self.refuses_exactly and taken < len(offered):
            assert self._refusal(*offered[taken]) is not None

    def _delete(self, number: int) -> int:
        doomed = [member for member in self.model if member <= number]
        for member in doomed:
            del self.model[member]
        self._forget_unanswered()
        return len(doomed)

    def _forget_unanswered(self) -> None:
        self.unanswered = {n: p for n, p in self.unanswered.items() if n in self.model}

    def _violates(self, call: Callable[[], object]) -> None:
        try:
            call()
        except ContractViolation:
            return
        raise AssertionError("a broken duty of the caller must raise ContractViolation")
