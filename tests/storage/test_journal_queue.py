"""A sender's journal seen as a message queue: it refines the same contract, on each kind of store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from surepipe.core.effects import AppendRows, ForgetRows, OpenLife, Write, WriteStored, WriteUnknown
from surepipe.core.store_requests import Store
from surepipe.errors import StoreUnavailable
from surepipe.pipes.message_queue import (
    BoundedQueue,
    Checked,
    Enqueued,
    Message,
    MessageQueue,
    RefusalReason,
)
from surepipe.queues.message_queue import ExploredQueue, MessageQueueRules, explore
from surepipe.storage.faulty import Misfortune
from surepipe.storage.journal import StoreJournal
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import SqliteBench
from tests.storage.test_stream_queue import Trouble

AnyBench = MemoryBench | SqliteBench | RedisBench
T = TypeVar("T")
NAMES = count(1)
CAPACITY, BYTES = 4, 12


class JournalQueue(BoundedQueue[Message]):
    """One epoch of a journal, whose first message is 1: the memory decides, the journal is what is held.

    Bounds are kept in memory, as the sender's window does; ``snapshot`` is told by the journal alone.
    """

    __slots__ = ("inside", "journal", "life", "pipe", "store", "unanswered")

    def __init__(self, store: Store, pipe: str, size_bytes: int = BYTES) -> None:
        super().__init__(CAPACITY, size_bytes, dense=True)
        self.store, self.pipe, self.inside = store, pipe, False
        self.unanswered: dict[int, bytes] = {}
        self.journal = StoreJournal(store, store, pipe)
        self.life = self.journal.load().last_life + 1
        assert isinstance(self.journal.write(OpenLife(self.life)), WriteStored)

    def told(self) -> tuple[dict[int, bytes], int]:
        """What another reader finds in the journal: members, and the highest number ever stored."""
        contents = StoreJournal(self.store, self.store, self.pipe).load()
        rows = [each for each in contents.rows if each.epoch == self.life]
        found = {n: p for each in rows for n, p in enumerate(each.payloads, each.first)}
        epoch, through = contents.confirmed
        return found, max([-1, *found, through if epoch == self.life and through else -1])

    def snapshot(self) -> Mapping[int, Message]:
        return {number: Message(number, payload) for number, payload in self.told()[0].items()}

    def enqueue(self, message: Message) -> Enqueued:
        number, payload = message.num, message.payload
        if self.unanswered.get(number) == payload and number in self.told()[0]:
            del self.unanswered[number]
            return Enqueued(True)
        if self.high < 0 and number != 1:
            BoundedQueue[Message](CAPACITY, BYTES).enqueue(
                message
            )  # whoever breaks a duty hears of it
            return Enqueued(False, RefusalReason.FULL)
        return self.kept({number: payload}, lambda: super(JournalQueue, self).enqueue(message))

    def enqueue_many(self, messages: Sequence[Message]) -> int:
        if self.high < 0 and messages and messages[0].num != 1:
            BoundedQueue[Message](CAPACITY, BYTES).enqueue_many(messages)
            return 0
        offered = {message.num: message.payload for message in messages}
        return self.kept(offered, lambda: super(JournalQueue, self).enqueue_many(messages))

    def enqueue_run(self, first: int, payloads: Sequence[bytes]) -> int:
        if self.high < 0 and first != 1:
            BoundedQueue[Message](CAPACITY, BYTES).enqueue_run(first, payloads)
            return 0
        offered = dict(enumerate(payloads, first))
        return self.kept(offered, lambda: super(JournalQueue, self).enqueue_run(first, payloads))

    def kept(self, offered: dict[int, bytes], call: Callable[[], T]) -> T:
        """What the memory took is written; when nobody answers, the memory is what the journal holds."""
        if self.inside:
            return call()
        before, self.inside = self.high, True
        try:
            answer = call()
        finally:
            self.inside = False
        for run in self.pick_runs(CAPACITY, before):
            self.write(AppendRows(self.life, run.first, list(run.payloads)), offered)
        return answer

    def delete_all(self, number: int) -> int:
        removed = super().delete_all(number)
        if self.high > 0 and number > 0:
            self.write(ForgetRows(self.life, min(number, self.high)), {})
        return removed

    def write(self, write: Write, offered: dict[int, bytes]) -> None:
        outcome = self.journal.write(write)
        if isinstance(outcome, WriteStored):
            return
        assert isinstance(outcome, WriteUnknown), outcome
        held, high = self.told()
        super().__init__(CAPACITY, BYTES, dense=True)
        if held:
            super().enqueue_run(min(held), list(held.values()))
        elif high >= 0:
            super().enqueue_run(high, [b""])
            super().delete_all(high)
        self.unanswered = offered
        raise StoreUnavailable(f"{write}: no answer; done or not")


class JournalRules(MessageQueueRules):
    """With a store that fails, and a second reader that finds the same."""

    bench: AnyBench
    watched = False
    refuses_exactly = False  # the first number of an epoch is 1

    def make(self) -> MessageQueue[Message]:
        self.store = Trouble(self.bench.store)
        queue = JournalQueue(self.store, f"j{next(NAMES)}")
        return Checked(queue) if self.watched else queue

    def fail_next(self, queue: MessageQueue[Message], *, applied: bool) -> bool:
        del queue
        self.store.fail_writes(Misfortune.UNKNOWN if applied else Misfortune.OUTAGE)
        return True

    def _held(self) -> dict[int, bytes]:
        self.store.forget()
        return super()._held()


@pytest.mark.parametrize("watched", [False, True], ids=["bare", "checked"])
def test_a_journal_refines_the_queue(any_bench: AnyBench, watched: bool) -> None:
    """message-queue Q-21, Q-25, QI-6: random calls, with writes that fail before or after their effect."""

    class Rules(JournalRules):
        pass

    Rules.bench, Rules.watched = any_bench, watched
    few = settings(max_examples=15, stateful_step_count=30, report_multiple_bugs=False)
    run_state_machine_as_test(Rules, settings=few)


def test_every_state_of_a_journal_with_few_numbers(any_bench: AnyBench) -> None:
    """message-queue Q-20: numbers 1 to 3, as the first of an epoch is 1."""
    found = explore(lambda: JournalQueue(any_bench.store, f"j{next(NAMES)}", 36))
    assert found == ExploredQueue(10, 110)
