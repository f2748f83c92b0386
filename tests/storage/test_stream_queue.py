"""The stored message queue: the same contract by the same rules and the same walk through every state, on each
kind of store, bare and checked; and what only a stored one can show."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    CommitPosition,
    OpenProducer,
    ReadFrom,
    Retention,
    Store,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
)
from surepipe.errors import (
    ConfigurationError,
    ContractViolation,
    Fenced,
    StoreReset,
    StoreUnavailable,
)
from surepipe.pipes.message_queue import MAX_NUMBER, Checked, Message, RefusalReason
from surepipe.queues.message_queue import ExploredQueue, MessageQueueRules, explore
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.memory import MemoryStore
from surepipe.storage.message_queue import PRODUCER, READER, TRIM_EVERY, StreamQueue
from surepipe.storage.positions import numbered
from surepipe.storage.sqlite.store import SqliteStore
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.pipes import test_message_queue_rows as rows
from tests.pipes.message_queues import Queue, fill, held, message
from tests.queues.test_message_queue_rules import random_step
from tests.storage.sqlite_bench import SqliteBench

AnyBench = MemoryBench | SqliteBench | RedisBench
NAMES, LIVES = count(1), count(1)


class Trouble(FaultyStore):
    """A store whose next append or commit fails."""

    def fail_writes(self, misfortune: Misfortune, *kinds: type[object]) -> None:
        """Once for each kind."""
        for kind in kinds or (AppendRun, CommitPosition):
            self.script(misfortune, on=kind)

    def forget(self) -> None:
        """What was not met is not met any more; what is to come late comes."""
        self._script.clear()


def opened(
    store: Store,
    name: str = "q",
    capacity: int = 6,
    capacity_bytes: int = 100,
    *,
    begin_anew: bool = False,
    deadline_s: float = 0.0,
) -> StreamQueue[Message]:
    """The queue as a new life has it; it asks the store once, unless it is given time."""
    return StreamQueue(
        store,
        name,
        capacity=capacity,
        capacity_bytes=capacity_bytes,
        begin_anew=begin_anew,
        deadline_s=deadline_s,
        pause=lambda _: None,
        number_of_life=lambda: numbered(next(LIVES), 0),
    )


def fresh(bench: AnyBench, capacity: int = 6, capacity_bytes: int = 100) -> Callable[[], Queue]:
    """Makes queues, each in a stream of its own."""
    store = FaultyStore(bench.store)
    return lambda: opened(store, f"q{next(NAMES)}", capacity, capacity_bytes)


# The contract, as every queue shows it.

ROWS = [
    function
    for name, function in vars(rows).items()
    if name.startswith("test_") and list(inspect.signature(function).parameters) == ["make"]
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
@pytest.mark.parametrize("watched", [False, True], ids=["bare", "checked"])
def test_each_row_of_the_contract(
    any_bench: AnyBench, row: Callable[[object], None], watched: bool
) -> None:
    """message-queue MQ-1 to MQ-8, Q-3, Q-4, Q-6, Q-9: the same rows as of the queues in memory."""
    is_bounded = "full_queue" in row.__name__
    make = fresh(any_bench, 2 if is_bounded else 6)
    row((lambda: Checked(make(), invariants="each")) if watched else make)


def test_a_dense_queue_never_takes_a_number_again(any_bench: AnyBench) -> None:
    """message-queue MQ-7, Q-5: stale below high, also after deletion; GAP beyond the next."""
    queue = fill(fresh(any_bench)(), 4, 5)
    assert queue.enqueue(Message(3)).reason is RefusalReason.STALE
    assert queue.delete_all(5) == 2
    assert queue.enqueue(Message(5)).reason is RefusalReason.STALE
    assert queue.enqueue(Message(9)).reason is RefusalReason.GAP
    assert (len(queue), queue.high) == (0, 5)


@pytest.mark.parametrize(("capacity", "states"), [(6, 15), (2, 12)])
def test_every_state_is_reached_without_a_violation(
    any_bench: AnyBench, capacity: int, states: int
) -> None:
    """message-queue MQ-10, Q-20: the states of a dense queue; each reached again by its shortest path."""
    assert explore(fresh(any_bench, capacity)) == ExploredQueue(states, 11 * states)


class StoredRules(MessageQueueRules):
    """A stored queue that is opened again, and whose store fails."""

    bench: AnyBench
    watched = False
    misfortunes = (Misfortune.OUTAGE, Misfortune.LATE)

    def make(self) -> Queue:
        self.store, self.name, self.turn = Trouble(self.bench.store), f"q{next(NAMES)}", count()
        self.inner = opened(self.store, self.name, 4, 12)
        return Checked(self.inner) if self.watched else self.inner

    def reopen(self, queue: Queue) -> Queue:
        del queue
        self.inner = opened(self.store, self.name, 4, 12)
        return Checked.adopt(self.inner) if self.watched else self.inner

    def fail_next(self, queue: Queue, *, applied: bool) -> bool:
        assert len(queue) == len(self.inner)
        undone = self.misfortunes[next(self.turn) % 2]
        self.store.fail_writes(Misfortune.UNKNOWN if applied else undone)
        return True

    def _held(self) -> dict[int, bytes]:
        self.store.forget()
        return super()._held()


@pytest.mark.parametrize("watched", [False, True], ids=["bare", "checked"])
def test_random_interleavings_equal_a_dictionary(any_bench: AnyBench, watched: bool) -> None:
    """message-queue Q-21, QI-6, Q-11: with writes that fail before or after their effect, or are done late, and
    with reopening."""

    class Rules(StoredRules):
        pass

    Rules.bench, Rules.watched = any_bench, watched
    few = settings(max_examples=10, stateful_step_count=30, report_multiple_bugs=False)
    run_state_machine_as_test(Rules, settings=few)


@pytest.mark.long
def test_ten_thousand_random_steps_equal_a_dictionary(any_bench: AnyBench) -> None:
    """message-queue MQ-11: a seeded walk on each kind of store; the dictionary is compared after each step."""

    class Rules(StoredRules):
        pass

    Rules.bench = any_bench
    rules, random = Rules(), Random(20)
    rules.begin()
    for step in range(10_000):
        random_step(rules, random)
        if step % 50 == 0:
            again = bool(step % 200)
            rules.enqueue_unanswered(1, b"ab", bool(step % 100), again)
            rules.delete_unanswered(max(rules.high - 1, 0), bool(step % 150), again)
        rules.equals_the_dictionary()
        if rules.high > MAX_NUMBER - 8:
            rules.begin()


class TakesWhatComesLate(StreamQueue[Message]):
    """Goes on after a doubt without fencing what may come late."""

    def _open(self, *, begin_anew: bool = False) -> None:
        if not self._renewal:
            super()._open(begin_anew=begin_anew)
        self._in_doubt = False


@pytest.mark.parametrize("kind", [StreamQueue, TakesWhatComesLate])
def test_the_rules_find_a_queue_that_does_not_fence_what_comes_late(
    kind: type[StreamQueue[Message]],
) -> None:
    """message-queue Q-21, QI-6: planted: after StoreUnavailable it believes that nothing was done. Message 2 was
    given up, found missing, and another one takes its number, when the first is stored after all."""

    class Rules(StoredRules):
        bench = MemoryBench()
        misfortunes = (Misfortune.LATE, Misfortune.LATE)

        def make(self) -> Queue:
            self.store, self.turn = Trouble(self.bench.store), count()
            self.inner = kind(self.store, "q", deadline_s=0.0, pause=lambda _: None)
            return self.inner

    rules = Rules()
    rules.begin()
    rules.enqueue(1, b"first")
    rules.enqueue_unanswered(1, b"given up", applied=False, again=False)
    rules.enqueue_near_high(1, b"another")
    if kind is StreamQueue:
        rules.equals_the_dictionary()
        return
    with pytest.raises(AssertionError):
        rules.equals_the_dictionary()


# What only a stored queue has.


def test_a_run_is_one_entry_and_is_deleted_in_part(any_bench: AnyBench) -> None:
    """message-queue MQ-9, Q-14, Q-15: 4..9 stored at once; deletion inside moves the position only."""
    queue = opened(FaultyStore(any_bench.store))
    assert queue.enqueue_run(4, [message(n).payload for n in range(4, 10)]) == 6
    assert queue.delete_all(6) == 3
    queue = opened(FaultyStore(any_bench.store))
    assert held(queue) == [7, 8, 9]
    assert isinstance(batch := any_bench.store.read("q", 1, 99, 9999), Batch)
    assert [len(run.payloads) for run in batch.entries] == [6]
    assert queue.delete_all(9) == 3
    assert queue.empty()
    assert queue.enqueue(message(9)).reason is RefusalReason.STALE
    assert queue.enqueue(message(10))


@pytest.mark.parametrize("misfortune", [Misfortune.UNKNOWN, Misfortune.OUTAGE, Misfortune.LATE])
def test_a_lost_answer_is_asked_for_again(any_bench: AnyBench, misfortune: Misfortune) -> None:
    """message-queue MQ-12, Q-11: within the deadline; stored once, ok; deleted once."""
    store = Trouble(any_bench.store)
    queue = opened(store, deadline_s=60.0)
    store.fail_writes(misfortune)
    fill(queue, 1, 2)
    store.fail_writes(misfortune)
    assert queue.delete_all(1) == 1
    assert held(queue) == [2]
    assert any_bench.store.read("q", 3, 1, 1).__class__.__name__ == "Empty"


def test_a_refusal_leaves_no_trace_in_the_store(any_bench: AnyBench) -> None:
    """message-queue Q-10: full, too many bytes, stale, a gap, a broken duty: the stream and its producer are as
    they were."""
    queue = fill(opened(FaultyStore(any_bench.store), capacity=3, capacity_bytes=30), 5, 6, 7)
    before = any_bench.store.info("q"), any_bench.store.get("q", READER)
    answers = [queue.enqueue(Message(8)), queue.enqueue(Message(4)), queue.enqueue(Message(9))]
    reasons = [RefusalReason.FULL, RefusalReason.STALE, RefusalReason.GAP]
    assert [answer.reason for answer in answers] == reasons
    with pytest.raises(ContractViolation):
        queue.enqueue_run(7, [b"x"])
    assert (any_bench.store.info("q"), any_bench.store.get("q", READER)) == before
    assert queue.delete_all(5) == 1
    assert queue.enqueue(Message(8, bytes(31))).reason is RefusalReason.FULL_BYTES
    assert queue.enqueue_many([Message(8, b""), Message(9, b"")]) == 1
    assert queue.high == 8


def test_a_former_owner_is_fenced_whatever_it_tries(any_bench: AnyBench) -> None:
    """message-queue Q-12: appends and deletions change nothing, and each says so, again and again."""
    store = FaultyStore(any_bench.store)
    fill(opened(store), 1, 2)
    oldest, older, old, newest = (opened(store) for _ in range(4))
    acts: list[Callable[[], object]] = [
        lambda: oldest.enqueue(message(3)),
        lambda: older.delete_all(2),
        old.clear,
    ]
    for act in acts:
        for _ in range(2):
            with pytest.raises(Fenced):
                act()
    assert held(newest) == [1, 2]
    fill(newest, 3)
    assert held(newest) == [1, 2, 3]


def test_a_former_owner_that_reads_what_was_deleted_is_told_that_it_is_one(
    any_bench: AnyBench,
) -> None:
    """message-queue Q-12: entries are trimmed by the new owner; that is no loss."""
    store = FaultyStore(any_bench.store)
    former = fill(opened(store), 1, 2, 3)
    opened(store).delete_all(3)
    any_bench.store.trim("q", 3)
    with pytest.raises(Fenced):
        former.pick_one()


def test_a_former_owner_that_appends_while_it_is_replaced_gives_no_number_twice() -> None:
    """message-queue Q-12, Q-15; book BQ-73: between look and fence; the new owner has that message, and goes on
    behind."""
    store = MemoryStore()
    former = fill(opened(store), 1)

    class Between(FaultyStore):
        def ask(self, request: StoreRequest) -> StoreOutcome:
            if isinstance(request, OpenProducer) and former.high < 2:
                former.enqueue(message(former.high + 1))
            return super().ask(request)

    newer = opened(Between(store))
    assert held(newer) == [1, 2]
    assert newer.high == 2
    fill(newer, 3)
    with pytest.raises(Fenced):
        former.enqueue(message(3))
    assert held(opened(store)) == [1, 2, 3]


@pytest.mark.parametrize("first", [0, 1, 7, 2**53, 2**53 + 1, MAX_NUMBER - 1])
def test_high_and_members_are_kept_whatever_the_first_number_is(
    any_bench: AnyBench, first: int
) -> None:
    """message-queue Q-15, MQ-8; book B-111, BQ-73: exact beyond 2^53, in Redis too; emptied and opened again,
    twice."""
    store = FaultyStore(any_bench.store)
    fill(opened(store), first, first + 1)
    queue = opened(store)
    assert held(queue) == [first, first + 1]
    assert queue.delete_all(first + 1) == 2
    for _ in range(2):
        queue = opened(store)
        assert (queue.high, queue.empty(), queue.size_bytes) == (first + 1, True, 0)
        assert queue.enqueue(message(first)).reason is RefusalReason.STALE


@pytest.mark.parametrize("kind", [CommitPosition, AppendRun])
def test_a_first_message_that_was_never_stored_uses_up_no_number(
    any_bench: AnyBench, kind: type[object]
) -> None:
    """message-queue Q-10: it failed before or after the offset was stored; any other number may be the first."""
    store = Trouble(any_bench.store)
    queue = opened(store)
    store.fail_writes(Misfortune.OUTAGE, kind)
    with pytest.raises(StoreUnavailable):
        queue.enqueue(message(100))
    assert (queue.high, queue.empty()) == (-1, True)
    fill(queue, 5)
    assert held(opened(store)) == [5]


def test_clearing_lets_the_numbers_begin_anew(any_bench: AnyBench) -> None:
    """message-queue Q-15; book B-112: everything is gone, ``high`` too; the incarnation stays."""
    store = FaultyStore(any_bench.store)
    queue = opened(store)
    fill(queue, 5, 6)
    before = any_bench.store.info("q")
    queue.clear()
    assert (queue.high, queue.empty(), queue.size_bytes) == (-1, True, 0)
    assert opened(store).high == -1
    fill(opened(store), 2)
    assert held(opened(store)) == [2]
    after = any_bench.store.info("q")
    assert isinstance(before, StreamInfo)
    assert isinstance(after, StreamInfo)
    assert after.incarnation == before.incarnation
    assert [each.producer for each in after.producers] == [PRODUCER]


# Stores that lost something.


def test_a_stream_that_was_made_anew_is_seen(any_bench: AnyBench) -> None:
    """message-queue Q-13: by whoever has it open, in every verb from then on, and by whoever opens it; begun anew
    it is empty, and stores what is known again."""
    store = FaultyStore(any_bench.store)
    queue = fill(opened(store), 1, 2)
    any_bench.store.delete("q")
    any_bench.store.create("q", 1, KEEP_ALL)
    with pytest.raises(StoreReset):
        queue.pick_one()
    for verb in (lambda: queue.enqueue(message(3)), lambda: len(queue), queue.snapshot):
        with pytest.raises(StoreReset):
            verb()
    with pytest.raises(StoreReset, match="begin_anew=True"):
        opened(store)
    anew = opened(store, begin_anew=True)
    assert (anew.high, anew.empty()) == (-1, True)
    fill(anew, 1, 2, 3)
    assert held(opened(store)) == [1, 2, 3]


@pytest.mark.parametrize("verb", ["enqueue", "pick_many"])
def test_a_store_that_went_back_is_seen(any_bench: AnyBench, verb: str) -> None:
    """message-queue Q-13: it lost 3 and 4; who has the queue open is told, nothing is stored in their place."""
    store = FaultyStore(any_bench.store)
    queue = fill(opened(store), 1, 2)
    older = any_bench.store.snapshot()
    fill(queue, 3, 4)
    any_bench.store.roll_back(older)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - its own snapshot
    with pytest.raises(StoreReset):
        queue.enqueue(message(5)) if verb == "enqueue" else queue.pick_many(9)
    assert held(opened(store)) == [1, 2], "as it was then"


def test_a_position_that_is_ahead_of_its_stream_is_seen_when_the_queue_is_opened() -> None:
    """message-queue Q-13: they are in two stores, and that of the stream went back and grew again, or did not."""
    streams, positions = MemoryStore(), MemoryStore()

    def open_it() -> StreamQueue[Message]:
        return StreamQueue(streams, "q", positions=positions, deadline_s=0.0)

    queue = fill(open_it(), 1, 2)
    older = streams.snapshot()
    fill(queue, 3, 4)
    queue.delete_all(3)
    streams.roll_back(older)
    with pytest.raises(StoreReset):
        open_it()
    streams.append("q", PRODUCER, 2**62, 1, [b"another", b"another", b"another"])
    with pytest.raises(StoreReset):
        open_it()


def test_a_position_that_is_gone_is_seen() -> None:
    """message-queue Q-13: without it nobody knows what was deleted, nor what the numbers are."""
    streams, positions = MemoryStore(), MemoryStore()
    fill(StreamQueue(streams, "q", positions=positions), 1)
    positions.crash()
    with pytest.raises(StoreReset, match="position"):
        StreamQueue(streams, "q", positions=positions)


def test_entries_that_somebody_else_removed_are_seen(any_bench: AnyBench) -> None:
    """message-queue Q-13: where reading comes to them."""
    queue = fill(opened(FaultyStore(any_bench.store)), 1, 2)
    any_bench.remove("q", 1)
    with pytest.raises(StoreReset):
        queue.pick_one()


# Places that are no queue's.


def test_a_stream_of_somebody_else_is_refused(any_bench: AnyBench) -> None:
    """message-queue Q-9: another producer writes to it; or it has a bound that a queue does not want."""
    any_bench.store.create("q", 1, KEEP_ALL)
    any_bench.store.append("q", "orders", 1, 1, [b"row"])
    with pytest.raises(ConfigurationError, match="orders writes to it"):
        opened(FaultyStore(any_bench.store))
    any_bench.store.create("bounded", 1, Retention(max_bytes=9))
    with pytest.raises(ConfigurationError, match="retention"):
        opened(FaultyStore(any_bench.store), "bounded")


@pytest.mark.parametrize(("capacity", "capacity_bytes"), [(0, 1), (1, 0), (True, 1)])
def test_a_bound_must_be_one(capacity: int, capacity_bytes: int) -> None:
    """message-queue Q-8: as of the queues in memory."""
    with pytest.raises(ConfigurationError, match="bound"):
        StreamQueue(MemoryStore(), "q", capacity=capacity, capacity_bytes=capacity_bytes)


# What it costs.


class Counting(FaultyStore):
    """Counts the requests that are made of it."""

    def __init__(self, inside: AnyBench) -> None:
        super().__init__(inside.store)
        self.kinds: list[type[object]] = []

    def _meet(
        self, kind: type[object], act: Callable[[], object] | None = None
    ) -> Misfortune | None:
        self.kinds.append(kind)
        return super()._meet(kind, act)


def test_a_batch_is_one_request_and_one_entry_whatever_its_length(any_bench: AnyBench) -> None:
    """message-queue Q-9, Q-16: 100 or 5,000 messages; confirming them is one request more; views ask for no more
    than they give."""
    store = Counting(any_bench)
    queue = opened(store, capacity=20_000, capacity_bytes=1 << 24)
    fill(queue, 1)
    first = 2
    for length in (100, 5_000):
        store.kinds.clear()
        assert queue.enqueue_run(first, [bytes(20)] * length) == length
        assert queue.delete_all(first - 1) > 0
        assert store.kinds == [AppendRun, CommitPosition]
        first += length
    store.kinds.clear()
    assert (len(queue), queue.empty(), queue.high) == (5_000, False, 5_101)
    assert store.kinds == []
    queue.pick_one()
    assert queue.slice_run(200, 3) == [bytes(20)] * 3
    assert store.kinds == [ReadFrom, ReadFrom]
    assert [len(run.payloads) for run in queue.pick_runs(4_500)] == [4_500]


def test_what_is_deleted_leaves_the_store_in_larger_steps(any_bench: AnyBench) -> None:
    """message-queue Q-9: after so many deletions the pages go, up to the one that ends before the position."""
    queue = opened(FaultyStore(any_bench.store), capacity=20_000, capacity_bytes=1 << 24)
    for first in range(1, 2 * TRIM_EVERY, 512):
        assert queue.enqueue_run(first, [b"x"] * 512) == 512
    queue.delete_all(TRIM_EVERY - 1)
    info = any_bench.store.info("q")
    assert isinstance(info, StreamInfo)
    assert info.earliest == 1
    queue.delete_all(TRIM_EVERY + 512)
    info = any_bench.store.info("q")
    assert isinstance(info, StreamInfo)
    assert TRIM_EVERY <= info.earliest <= TRIM_EVERY + 512
    assert [run.first for run in queue.pick_runs(9_999)] == [TRIM_EVERY + 513]


OTHER = """
import sys
from surepipe.errors import Fenced
from surepipe.queues.message_queue import Message, StreamQueue
from surepipe.storage import SqliteStore

with SqliteStore(sys.argv[1]) as store:
    queue = StreamQueue(store, "q", deadline_s=60)
    for line in sys.stdin:
        for _ in range(int(line)):
            try:
                number = queue.high + 1
                said = number if queue.enqueue(Message(number, b"%d" % number)) else "full"
            except Fenced:
                said = "fenced"
            print(said, flush=True)
"""


class OtherProcess:
    """A process with the queue of this file, which says the number of each message that was stored."""

    def __init__(self, path: Path) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, count: int) -> None:
        """Let it enqueue so many."""
        assert self.child.stdin is not None
        self.child.stdin.write(f"{count}\n")
        self.child.stdin.flush()

    def said(self, count: int) -> list[str]:
        """Its next answers."""
        assert self.child.stdout is not None
        return [self.child.stdout.readline().strip() for _ in range(count)]

    def killed(self) -> list[str]:
        """What else it had said when it was killed, whole lines only."""
        self.child.kill()
        with self.child:
            assert self.child.stdout is not None
            rest = self.child.stdout.read().splitlines(keepends=True)
        return [line.strip() for line in rest if line.endswith("\n")]


def test_another_process_of_one_file_is_fenced_and_a_killed_one_loses_nothing(
    tmp_path: Path,
) -> None:
    """message-queue Q-12, Q-15, QI-6: taken over in turns; then kill -9 somewhere in a long series of writes."""
    path = tmp_path / "q.db"
    first = OtherProcess(path)
    first.begin(50)
    assert first.said(50) == [str(number) for number in range(50)]
    with SqliteStore(path) as store:
        queue = StreamQueue(store, "q", deadline_s=60)
        assert (len(queue), queue.high) == (50, 49)
        assert queue.enqueue(Message(50, b"50"))
        first.begin(2)
        assert first.said(2) == ["fenced", "fenced"]
        assert queue.delete_all(9) == 10
        second = OtherProcess(path)
        second.begin(100_000)
        said = second.said(40)
        with pytest.raises(Fenced):
            queue.enqueue(Message(51, b"51"))
        said += second.killed()
        first.killed()
        again = StreamQueue(store, "q", deadline_s=60)
        assert again.high >= int(said[-1])
        assert list(again.snapshot()) == list(range(10, again.high + 1))
        assert all(m.payload == b"%d" % n for n, m in again.snapshot().items())
