"""Lanes as applications use them: ``Pipe(key=..., lanes=...)`` on threads and in virtual time."""

from __future__ import annotations

import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from enum import Enum
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from surepipe.actors import (
    DeadLetters,
    FaultyRoute,
    LocalRoute,
    Pipe,
    StepRuntime,
    StreamReceiver,
    StreamSender,
)
from surepipe.actors.codecs import AutoCodec, BytesCodec, Undecodable
from surepipe.actors.consuming.consumer import Work, each
from surepipe.actors.consuming.lanes import LaneQueue, NoKey, key_reader, plain_key
from surepipe.actors.inbox import Bell
from surepipe.actors.runtime import Runtime
from surepipe.actors.threads import ThreadRuntime
from surepipe.core.effects import Deliver
from surepipe.core.store_requests import KEEP_ALL, AppendRun, Transaction
from surepipe.errors import (
    CompositionError,
    ConfigurationError,
    MisuseError,
    NotConfirmed,
    PipeFull,
)
from surepipe.pipes.stack.boundary import Boundary
from surepipe.storage import SqliteStore
from surepipe.storage.letters import DeadLetterStream
from tests.actors.kit import PATIENCE_S, Noted, await_that
from tests.actors.stored_kit import (
    QUICK_STREAM,
    STREAM,
    effects_in,
    make_effects,
    put_effect,
    sqlite_store,
)

Message = dict[str, object]


def message(key: str, number: int) -> Message:
    """One order of a customer."""
    return {"customer": key, "number": number}


def read(received: object) -> tuple[str, int]:
    """Customer and number of an order, as a handler gets it."""
    order = cast("dict[str, object]", received)
    return str(order["customer"]), cast("int", order["number"])


def numbered(keys: str, count: int) -> list[Message]:
    """So many messages, over these keys in turn."""
    return [message(keys[number % len(keys)], number) for number in range(count)]


class Book:
    """A handler that keeps what it got, by key. ``stops``: keys whose handler waits until let through."""

    def __init__(self, *stops: str) -> None:
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.order: list[int] = []
        self.busy: set[str] = set()
        self.overlaps = 0
        self.stops = set(stops)
        self.opened = threading.Event()
        self.reached = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, received: object) -> None:
        key, number = read(received)
        with self._lock:
            self.overlaps += key in self.busy
            self.busy.add(key)
        if key in self.stops:
            self.reached.set()
            assert self.opened.wait(PATIENCE_S), "nobody opened"
        with self._lock:
            self.busy.discard(key)
            self.by_key[key].append(number)
            self.order.append(number)

    def is_in_order(self) -> bool:
        return all(numbers == sorted(numbers) for numbers in self.by_key.values())


# In parallel, and in order.


def test_handlers_of_different_keys_run_at_the_same_time() -> None:
    """Three handlers meet at a barrier: none of them could leave it alone."""
    barrier = threading.Barrier(3, timeout=PATIENCE_S)
    with Pipe("orders", key="customer", lanes=3) as pipe:
        pipe.receive(lambda _: barrier.wait())
        pipe.send_many(numbered("abc", 3))
        pipe.flush(PATIENCE_S)
    assert not barrier.broken


def test_messages_of_one_key_stay_in_order_and_never_overlap(runtime: Runtime) -> None:
    """Three hundred messages of seven keys in four lanes."""
    book = Book()
    with Pipe("orders", key="customer", lanes=4, runtime=runtime) as pipe:
        pipe.receive(book)
        pipe.send_many(numbered("abcdefg", 300))
        pipe.flush(PATIENCE_S)
    assert sorted(book.order) == list(range(300))
    assert book.is_in_order()
    assert book.overlaps == 0


def test_a_slow_key_holds_up_nobody_else() -> None:
    """The handler of a waits; everything of b and c is handled meanwhile."""
    book = Book("a")
    with Pipe("orders", key="customer", lanes=2) as pipe:
        pipe.receive(book)
        pipe.send_many(numbered("abc", 90))
        assert book.reached.wait(PATIENCE_S)
        await_that(pipe.receiver.runtime, lambda: len(book.order) == 60, "b and c go on")
        assert "a" not in book.by_key
        book.opened.set()
        pipe.flush(PATIENCE_S)
    assert book.is_in_order()


def test_in_virtual_time_lanes_take_turns_the_same_way_for_the_same_seed() -> None:
    """Two runs are equal step by step; another seed gives other turns (pipes P-12)."""

    def order(seed: int) -> tuple[list[str], list[int]]:
        runtime, book = StepRuntime(seed), Book()
        with Pipe("orders", key="customer", lanes=3, runtime=runtime, seed=1) as pipe:
            pipe.receive(book)
            pipe.send_many(numbered("abcde", 60))
            pipe.flush(PATIENCE_S)
        return runtime.trace, book.order

    assert order(5) == order(5)
    assert order(5)[0] != order(6)[0]


@pytest.mark.parametrize("seed", range(12))
def test_keys_stay_in_order_and_nothing_is_lost_through_failures_and_crashes(seed: int) -> None:
    """A route with faults, handlers that fail, receiver and lanes that die: per key gap-free, all settled."""
    runtime, failures, letters = StepRuntime(seed), {7: 1, 20: 2, 33: 99}, DeadLetters()
    seen: dict[str, list[int]] = defaultdict(list)
    deaths: dict[int, Callable[[], None]] = {}

    def handle(received: object) -> None:
        key, number = read(received)
        if failures.get(number, 0):
            failures[number] -= 1
            raise ValueError(number)
        seen[key].append(number)
        if number in deaths:
            deaths.pop(number)()

    route = FaultyRoute(LocalRoute(), loss=0.1, duplicate=0.1, reorder=0.2, seed=seed)
    with Pipe(
        "orders",
        {"reliable": {"run_max": 4, "rto_initial_s": 0.2}},
        route=route,
        key="customer",
        lanes=3,
        retries=3,
        dead_letter=letters,
        runtime=runtime,
        seed=seed,
    ) as pipe:
        deaths[25 + seed] = pipe.receiver.crash
        deaths[40 + seed] = partial(pipe.receiver.crash_consumer, seed % 3)
        pipe.receive(handle)
        pipe.send_many(numbered("abcde", 90))
        pipe.flush(600)
    assert [letter.error_text for letter in letters] == ["33"]
    for at, key in enumerate("abcde"):
        highest, own = -1, [n for n in range(at, 90, 5) if n != 33]
        for number in seen[key]:
            place = own.index(number)
            assert place <= highest + 1, f"seed {seed}: {key} skipped to {number}"
            highest = max(highest, place)
        assert highest == len(own) - 1, f"seed {seed}: {key} is not complete"


def test_without_crashes_each_message_is_handled_once_though_some_fail(runtime: Runtime) -> None:
    """Two messages fail twice each, and their keys wait for them."""
    failures, book = {11: 2, 12: 2}, Book()

    def handle(received: object) -> None:
        _, number = read(received)
        if failures.get(number, 0):
            failures[number] -= 1
            raise ValueError(number)
        book(received)

    with Pipe("orders", key="customer", lanes=4, retry_min_s=0.01, runtime=runtime) as pipe:
        pipe.receive(handle)
        pipe.send_many(numbered("abcde", 60))
        pipe.flush(PATIENCE_S)
    assert sorted(book.order) == list(range(60))
    assert book.is_in_order()


def test_a_poisoned_key_becomes_letters_and_the_others_never_wait(runtime: Runtime) -> None:
    """All of a fails: each of its messages is a letter, in order; b is whole."""
    letters, book = DeadLetters(), Book()

    def handle(received: object) -> None:
        if read(received)[0] == "a":
            raise ValueError("not a")
        book(received)

    with Pipe(
        "orders",
        key="customer",
        lanes=2,
        retries=2,
        retry_min_s=0.01,
        dead_letter=letters,
        runtime=runtime,
    ) as pipe:
        pipe.receive(handle)
        pipe.send_many(numbered("ab", 20))
        pipe.flush(PATIENCE_S)
    assert [letter.seq for letter in letters] == list(range(1, 20, 2))
    assert book.by_key == {"b": list(range(1, 20, 2))}


def _send_until_full(pipe: Pipe) -> int:
    """One message of a, then of b, until there is no room for half a second."""
    for sent in range(5_000):
        try:
            pipe.send(message("b" if sent else "a", sent), timeout=0.5)
        except PipeFull:
            return sent
    raise AssertionError("it never got full")


@pytest.mark.parametrize("layer", ["continuous-index", "strict-monotonic", "dedupe"])
def test_where_nobody_sends_again_a_failing_key_leads_to_backpressure_and_not_to_loss(
    layer: str, steps: StepRuntime
) -> None:
    """A window of 64 on a route without confirms: a's first message fails until the sender finds no room; then all
    comes, in order within each key (pipes P-9)."""
    book, noted, is_failing = Book(), Noted(), [True]

    def handle(received: object) -> None:
        if read(received)[1] == 0 and is_failing[0]:
            raise ValueError("not yet")
        book(received)

    with Pipe(
        "orders",
        {layer: {"run_max": 4, "receive_window": 64}},
        key="customer",
        lanes=2,
        frames_max=4,
        notices=noted,
        runtime=steps,
    ) as pipe:
        pipe.receive(handle)
        sent = _send_until_full(pipe)
        assert len(book.by_key["b"]) < 64
        assert "Stalled" in noted.kinds()
        is_failing[0] = False
        pipe.flush(PATIENCE_S)
    assert sorted(book.order) == list(range(sent))
    assert book.is_in_order()


def test_a_handler_that_outlives_its_receiver_keeps_its_key_to_itself() -> None:
    """The receiver dies while a is being handled. Its next incarnation has a again, and starts it only when the
    old handler has returned; b and c go on (pipes L-9)."""
    book = Book("a")
    with Pipe("orders", {"reliable": {"rto_initial_s": 0.1}}, key="customer", lanes=3) as pipe:
        pipe.receive(book)
        pipe.send_many(numbered("abc", 3))
        assert book.reached.wait(PATIENCE_S)
        pipe.receiver.crash()
        await_that(pipe.receiver.runtime, lambda: pipe.counters()["restarts"] > 0, "it dies")
        pipe.send_many([message("b", 10), message("c", 11)])
        await_that(pipe.receiver.runtime, lambda: {10, 11} <= set(book.order), "b and c go on")
        assert book.overlaps == 0
        book.opened.set()
        pipe.flush(PATIENCE_S)
    assert book.overlaps == 0
    assert set(book.by_key["a"]) == {0}


# Looking in.


class Deaf:
    """The owner of a work, which nobody asks."""

    def taken(self, work: Work) -> None:
        """Nothing."""

    def finished(self, work: Work) -> None:
        """Nothing."""

    def passed_over(self, work: Work, first: int, last: int, failure: BaseException) -> None:
        """Nothing."""


def work_of(key: str, *seqs: int, attempt: int = 1) -> Work:
    """A delivery of one key; payloads are the numbers."""
    payloads = [b"%d" % seq for seq in seqs]
    return Work(Deliver(seqs[0], 1, seqs[0], payloads, attempt, "", key, seqs), Deaf())


def test_a_further_attempt_waits_for_one_message_and_not_for_a_run(steps: StepRuntime) -> None:
    """One lane, a run of four and a second one that waits: the further attempt is next, then the rest of the run,
    whole and in order, before what came behind it."""
    queue = LaneQueue(steps, 1)
    queue.put(work_of("long", 1, 2, 3, 4))
    queue.put(work_of("other", 5, 6))
    handled: list[bytes] = []

    def handle(payload: object) -> None:
        handled.append(cast("bytes", payload))
        if payload == b"2":
            queue.put(work_of("failed", 7, attempt=2))

    loop = each(handle, BytesCodec())
    while (work := queue.take_for(0)) is not None:
        loop(work)
        queue.finish_in(0)
    assert handled == [b"1", b"2", b"7", b"3", b"4", b"5", b"6"]


def test_keys_that_keep_failing_leave_every_other_turn_to_the_rest(steps: StepRuntime) -> None:
    """Three further attempts and three first ones wait for one lane."""
    queue = LaneQueue(steps, 1)
    for seq in range(1, 4):
        queue.put(work_of(f"well {seq}", seq))
        queue.put(work_of(f"failing {seq}", 10 + seq, attempt=3))
    order: list[int] = []
    while (work := queue.take_for(0)) is not None:
        order.append(work.attempt)
        work.done = work.last
        queue.finish_in(0)
    assert order == [3, 1, 3, 1, 3, 1]


class CountedBell(Bell):
    """Counts how often it told its lane."""

    def __init__(self) -> None:
        super().__init__(self.told)
        self.count = 0

    def told(self, message: object) -> None:
        """Count."""
        del message
        self.count += 1


def idle_lanes(steps: StepRuntime, *, one_at_a_time: bool) -> tuple[LaneQueue, list[CountedBell]]:
    """Three lanes with nothing to do."""
    queue, bells = LaneQueue(steps, 3), [CountedBell() for _ in range(3)]
    queue.serve_lanes(bells, one_at_a_time=one_at_a_time)
    for lane in range(3):
        assert queue.take_for(lane) is None
    return queue, bells


def test_a_lane_that_is_on_its_way_wakes_the_next_one(steps: StepRuntime) -> None:
    """One is told for three works; each that takes one tells the next as long as there is more."""
    queue, bells = idle_lanes(steps, one_at_a_time=True)
    for seq, key in enumerate("abc", 1):
        queue.put(work_of(key, seq))
    told = [[bell.count for bell in bells]]
    for lane, bell in enumerate(bells):
        bell.rung = False
        assert queue.take_for(lane) is not None
        told.append([bell.count for bell in bells])
    assert told == [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]


def test_a_lane_that_died_on_its_way_keeps_no_other_from_being_woken(steps: StepRuntime) -> None:
    """It was told and never looks: the next life of the receiver hands out anew, and another lane is told."""
    queue, bells = idle_lanes(steps, one_at_a_time=True)
    queue.put(work_of("a", 1))
    queue.begin()
    queue.put(work_of("a", 1))
    assert [bell.count for bell in bells] == [1, 1, 0]
    assert queue.take_for(1) is not None


def test_a_further_attempt_finds_its_lane_though_another_lane_is_on_its_way(
    steps: StepRuntime,
) -> None:
    """The lane that was told takes it first; the other work wakes the next lane."""
    queue, bells = idle_lanes(steps, one_at_a_time=True)
    queue.put(work_of("a", 1))
    queue.put(work_of("failed", 2, attempt=2))
    first = queue.take_for(0)
    assert first is not None
    assert first.attempt == 2
    assert [bell.count for bell in bells] == [1, 1, 0]


def test_tasks_are_woken_in_one_turn_of_their_loop(steps: StepRuntime) -> None:
    """A bell for each work at once."""
    queue, bells = idle_lanes(steps, one_at_a_time=False)
    for seq, key in enumerate("abc", 1):
        queue.put(work_of(key, seq))
    assert [bell.count for bell in bells] == [1, 1, 1]


def handled_by(queue: LaneQueue, lane: int) -> Work:
    """The lane handles one message, leaves the work, and waits for no disk."""
    work = queue.take_for(lane)
    assert work is not None
    queue.hold(work)
    return work


def is_stored(queue: LaneQueue, work: Work) -> None:
    """The message that was left is known to be through."""
    work.done += 1
    queue.release(work)


@pytest.mark.parametrize("when", ["before it left", "while it leaves", "when it has left"])
def test_a_work_that_was_left_goes_on_with_its_next_message(steps: StepRuntime, when: str) -> None:
    """Whenever it becomes known what came of the first: the second is there, once, and then nothing more."""
    queue = LaneQueue(steps, 1)
    queue.put(work_of("a", 1, 2))
    work = handled_by(queue, 0)
    if when == "before it left":
        is_stored(queue, work)
        assert not queue.leave(work), "the lane goes on by itself"
    else:
        assert queue.leave(work)
        if when == "while it leaves":
            is_stored(queue, work)
        queue.finish_in(0)
        if when == "when it has left":
            assert work in queue
            assert queue.running() == [work]
            is_stored(queue, work)
        assert queue.take_for(0) is work
    assert (work.done, work.left[work.done - work.last :]) == (1, [b"2"])
    work.done = work.last
    queue.finish_in(0)
    assert queue.take_for(0) is None
    assert work not in queue


def test_the_key_of_a_work_that_was_left_is_busy(steps: StepRuntime) -> None:
    """A later delivery of the same key, as a new life of the receiver gives it, waits; another key does not."""
    queue = LaneQueue(steps, 2)
    queue.put(work_of("a", 1))
    queue.put(work_of("a", 2))
    work = handled_by(queue, 0)
    assert queue.leave(work)
    queue.finish_in(0)
    queue.put(work_of("b", 3))
    other = queue.take_for(1)
    assert other is not None
    assert other.key == "b"
    is_stored(queue, work)
    again = queue.take_for(0)
    assert again is not None
    assert again.seqs == (2,)


@pytest.mark.parametrize("what", ["cancelled", "failed"])
def test_a_work_that_was_left_and_failed_or_is_cancelled_does_not_go_on(
    steps: StepRuntime, what: str
) -> None:
    """Its owner hears of its end, and its key is free."""
    queue = LaneQueue(steps, 1)
    queue.put(work_of("a", 1, 2))
    work = handled_by(queue, 0)
    assert queue.leave(work)
    queue.finish_in(0)
    if what == "cancelled":
        work.cancel()
    else:
        work.failure = (1, ValueError("planted"))
    queue.release(work)
    assert work not in queue
    queue.put(work_of("a", 3))
    assert queue.take_for(0) is not None


def test_leases_say_which_messages_are_in_work() -> None:
    """Two keys wait in their handlers: lane, key, number, what follows, attempt."""
    book = Book("a", "b")
    with Pipe("orders", key="customer", lanes=2) as pipe:
        pipe.receive(book)
        pipe.send_many(numbered("ab", 6))
        await_that(pipe.receiver.runtime, lambda: len(pipe.leases()) == 2, "both are in work")
        await_that(pipe.receiver.runtime, lambda: len(book.busy) == 2, "both handlers run")
        leases = pipe.leases()
        assert {lease.key: (lease.seq, lease.attempt) for lease in leases} == {
            "a": (1, 1),
            "b": (2, 1),
        }
        assert [lease.lane for lease in leases] == [0, 1]
        assert all(lease.held_s >= 0 and lease.following <= 2 for lease in leases)
        book.opened.set()
        pipe.flush(PATIENCE_S)
        assert pipe.leases() == []


def test_without_lanes_there_are_no_leases(steps: StepRuntime) -> None:
    """An empty list."""
    with Pipe("orders", runtime=steps) as pipe:
        assert pipe.leases() == []


def test_batches_are_of_one_key_each(runtime: Runtime) -> None:
    """receive_many: each batch has one customer, in order."""
    batches: list[list[object]] = []
    with Pipe("orders", key="customer", lanes=3, runtime=runtime) as pipe:
        pipe.receive_many(batches.append)
        pipe.send_many(numbered("abc", 60))
        pipe.flush(PATIENCE_S)
    rows = [[read(order) for order in batch] for batch in batches]
    assert all(len({key for key, _ in row}) == 1 for row in rows)
    for key in "abc":
        own = [number for row in rows for of, number in row if of == key]
        assert own == sorted(own)
    assert sum(map(len, rows)) == 60


def test_the_guarantee_of_the_pipe_says_what_lanes_keep(steps: StepRuntime) -> None:
    """In the words that check prints."""
    with Pipe("orders", key="customer", runtime=steps) as pipe:
        assert str(pipe.guarantee).endswith("; order: absolute per key, none across keys")
        assert isinstance(pipe.receiver.works, LaneQueue)
        assert pipe.receiver.works.lanes == 4


# The end.


def test_close_waits_for_all_lanes() -> None:
    """At the end of the block everything was handled, though three lanes were busy when it came."""
    book = Book("a", "b", "c")
    with Pipe("orders", key="customer", lanes=3) as pipe:
        pipe.receive(book)
        pipe.send_many(numbered("abc", 30))
        await_that(pipe.receiver.runtime, lambda: len(book.busy) == 3, "all lanes are busy")
        book.opened.set()
    assert sorted(book.order) == list(range(30))


def test_what_would_wait_for_itself_is_refused_in_every_lane() -> None:
    """flush inside a handler, on two lane threads at once."""
    barrier, refused = threading.Barrier(2, timeout=PATIENCE_S), list[str]()

    def handle(_: object) -> None:
        barrier.wait()
        try:
            pipe.flush(1)
        except MisuseError as error:
            refused.append(str(error))

    with Pipe("orders", key="customer", lanes=2) as pipe:
        pipe.receive(handle)
        pipe.send_many(numbered("ab", 2))
    assert len(refused) == 2


def test_a_loop_over_a_pipe_with_lanes_is_refused(steps: StepRuntime) -> None:
    """It takes one message after the other."""
    with (
        Pipe("orders", key="customer", runtime=steps) as pipe,
        pytest.raises(MisuseError, match="lanes"),
    ):
        iter(pipe)


# Over a stream.


def test_both_ends_of_a_stream_with_lanes(tmp_path: Path) -> None:
    """A key that fails for ever holds up itself; the next receiver begins before it, others are repeated."""
    book, noted = Book(), Noted()

    def handle(received: object) -> None:
        if read(received)[1] == 0:
            raise ValueError("not today")
        book(received)

    with sqlite_store(tmp_path) as store:
        with StreamSender("orders", store=store) as sender:
            sender.send_many(numbered("ab", 40))
        lanes = {"key": "customer", "lanes": 2, "store": store, "notices": noted}
        with StreamReceiver("orders", STREAM, **lanes) as receiver:  # type: ignore[arg-type]
            receiver.receive(handle)
            await_that(receiver.receiver.runtime, lambda: len(book.by_key["b"]) == 20, "b goes on")
            receiver.close(0)
        assert "a" not in book.by_key
        with StreamReceiver("orders", STREAM, **lanes) as receiver:  # type: ignore[arg-type]
            receiver.receive(book)
            assert receiver.catch_up(PATIENCE_S)
    assert book.by_key["a"] == list(range(0, 40, 2))
    assert book.by_key["b"] == 2 * list(range(1, 40, 2))


def test_a_pipe_over_a_stream_delivers_each_key_in_order(tmp_path: Path) -> None:
    """Five hundred messages; at the end of the block all were handled."""
    book = Book()
    with (
        sqlite_store(tmp_path) as store,
        Pipe("orders", STREAM, store=store, key="customer", lanes=3) as pipe,
    ):
        pipe.receive(book)
        pipe.send_many(numbered("abcdefg", 500))
    assert sorted(book.order) == list(range(500))
    assert book.is_in_order()


def test_with_journal_and_state_the_next_pipe_of_the_name_goes_on(tmp_path: Path) -> None:
    """The first pipe ends while a waits in its handler: the second gets a, and of b at most what was repeated."""
    first, second = Book("a"), Book()
    with sqlite_store(tmp_path) as store:
        pipe = Pipe("orders", journal=store, state=store, key="customer", lanes=2)
        pipe.receive(first)
        pipe.send_many(numbered("ab", 20))
        await_that(pipe.receiver.runtime, lambda: len(first.by_key["b"]) == 10, "b goes on")
        with pytest.raises(NotConfirmed):
            pipe.close(0.05)
        first.opened.set()
        await_that(pipe.receiver.runtime, lambda: not first.busy, "the handler returns")
        with Pipe("orders", journal=store, state=store, key="customer", lanes=2) as pipe:
            pipe.receive(second)
            pipe.flush(PATIENCE_S)
    assert second.by_key["a"] == list(range(0, 20, 2))
    assert second.by_key["b"] == list(range(1, 20, 2))


# What a handler forwards: each message has a producer of its own, and all are number 1 of epoch 1.


def forward(received: object, transaction: Transaction) -> None:
    """Into the stream "out", in the transaction in which the message is done."""
    number = read(received)[1]
    payload = json.dumps(received).encode()
    transaction.append(AppendRun("out", f"out/{number}", 1, 1, [payload]))


def forward_all(store: SqliteStore, messages: list[Message]) -> None:
    """Send these through a pipe that forwards them."""
    with Pipe("in", journal=store, state=store, boundary="committed") as pipe:
        pipe.receive(forward)
        pipe.send_many(messages)
        pipe.flush(PATIENCE_S)


def test_a_forwarded_message_that_waits_holds_up_its_own_key_and_no_other(tmp_path: Path) -> None:
    """The handler of a waits: everything of b to e is handled meanwhile. The lease names the message."""
    book = Book("a")
    with sqlite_store(tmp_path) as store:
        store.create("out", 1, KEEP_ALL)
        forward_all(store, numbered("abcde", 100))
        with StreamReceiver(
            "out", STREAM, store=store, codec="json", key="customer", lanes=2
        ) as receiver:
            receiver.receive(book)
            await_that(receiver.receiver.runtime, lambda: len(book.order) == 80, "others go on")
            (lease,) = receiver.leases()
            assert (lease.key, lease.producer, lease.epoch, lease.seq) == ("a", "out/0", 1, 1)
            book.opened.set()
            assert receiver.catch_up(PATIENCE_S)
    assert book.is_in_order()
    assert sorted(book.order) == list(range(100))


@pytest.mark.parametrize("seed", range(4))
def test_through_crashes_nothing_that_was_forwarded_is_lost_and_each_letter_is_its_own(
    seed: int, tmp_path: Path
) -> None:
    """Handlers that fail, a receiver and a lane that die with several in work, and a second receiver: each key in
    order and whole; three messages that fail for good are three letters with names of their own."""
    letters = DeadLetters()
    failures = {7: 1, 20: 99, 21: 99, 33: 99}
    seen: dict[str, list[int]] = defaultdict(list)
    deaths: dict[int, Callable[[], None]] = {}

    def handle(received: object) -> None:
        key, number = read(received)
        if failures.get(number, 0):
            failures[number] -= 1
            raise ValueError(number)
        seen[key].append(number)
        if number in deaths:
            deaths.pop(number)()

    with sqlite_store(tmp_path) as store:
        store.create("out", 1, KEEP_ALL)
        forward_all(store, numbered("abcde", 90))
        for is_last in (False, True):
            with StreamReceiver(
                "out",
                QUICK_STREAM,
                store=store,
                codec="json",
                key="customer",
                lanes=3,
                retries=3,
                retry_min_s=0.01,
                dead_letter=letters,
            ) as receiver:
                if not is_last:
                    deaths[25 + seed] = receiver.receiver.crash
                    deaths[40 + seed] = partial(receiver.receiver.crash_consumer, seed % 3)
                receiver.receive(handle)
                assert receiver.catch_up(PATIENCE_S)
    assert not deaths
    assert {(one.producer, one.epoch, one.seq) for one in letters} == {
        (f"out/{number}", 1, 1) for number in (20, 21, 33)
    }
    for at, key in enumerate("abcde"):
        highest, own = -1, [n for n in range(at, 90, 5) if n not in (20, 21, 33)]
        for number in seen[key]:
            place = own.index(number)
            assert place <= highest + 1, f"seed {seed}: {key} skipped to {number}"
            highest = max(highest, place)
        assert highest == len(own) - 1, f"seed {seed}: {key} is not complete"


@pytest.mark.parametrize("seed", range(4))
def test_committed_what_was_forwarded_has_its_effect_once_through_crashes(
    seed: int, tmp_path: Path
) -> None:
    """One after the other, with the effect in the transaction of the place: the receiver dies twice."""
    deaths: dict[object, Callable[[], None]] = {}

    def handle(received: object, transaction: Transaction) -> None:
        number = read(received)[1]
        put_effect(number, transaction)
        if number in deaths:
            deaths.pop(number)()

    with sqlite_store(tmp_path) as store:
        make_effects(store)
        store.create("out", 1, KEEP_ALL)
        forward_all(store, numbered("abc", 60))
        with StreamReceiver(
            "out",
            QUICK_STREAM,
            store=store,
            codec="json",
            boundary="committed",
        ) as receiver:
            deaths[5 + seed], deaths[30 + seed] = receiver.receiver.crash, receiver.receiver.crash
            receiver.receive(handle)
            assert receiver.catch_up(PATIENCE_S)
        assert not deaths
        assert effects_in(store) == list(range(60))


def test_notices_and_letters_of_forwarded_messages_say_whose_they_are(tmp_path: Path) -> None:
    """All are "epoch 1, message 1": only the producer tells them apart, in words and as a field."""
    noted, letters = Noted(), DeadLetters()

    def refuse(_: object) -> None:
        raise ValueError("no")

    with sqlite_store(tmp_path) as store:
        store.create("out", 1, KEEP_ALL)
        forward_all(store, numbered("ab", 2))
        with StreamReceiver(
            "out",
            QUICK_STREAM,
            store=store,
            codec="json",
            key="customer",
            lanes=2,
            retries=1,
            dead_letter=letters,
            notices=noted,
        ) as receiver:
            receiver.receive(refuse)
            assert receiver.catch_up(PATIENCE_S)
    told = sorted(noted.notices, key=lambda notice: notice.producer)
    assert [notice.producer for notice in told] == ["out/0", "out/1"]
    assert "Poison, producer 'out/0', epoch 1, message 1: 1 attempt" in str(told[0])
    lines = sorted(letters.show().splitlines())
    assert lines[0].startswith("out producer 'out/0' epoch 1 seq 1: 1 attempt")
    assert lines[1].startswith("out producer 'out/1' epoch 1 seq 1: 1 attempt")


# Keys.


class Colour(Enum):
    """A key that is an enum."""

    RED = "red"


class Order:
    """A message of a user's own codec."""

    customer = "a"
    items = ({"id": 7},)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("a", "a"),
        (1, 1),
        (1.0, 1),
        (1.5, "1.5"),
        (True, True),
        (None, None),
        (b"x", b"x"),
        (Colour.RED, "red"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (["a", (1, 2.0)], ("a", (1, 2))),
    ],
)
def test_a_key_is_a_plain_value(value: object, key: object) -> None:
    """What has one, as a value that can be stored."""
    assert plain_key(value) == key


def test_what_has_no_plain_value_is_no_key() -> None:
    """The message names the type, never the value."""
    with pytest.raises(NoKey, match="a set is no key"):
        plain_key({"secret"})


def test_a_key_is_told_by_a_function_a_name_or_a_path() -> None:
    """Items of mappings and lists, attributes of anything else."""
    codec = AutoCodec()
    payload = codec.encode({"order": {"customer": "a", "items": [{"id": 7}]}})
    assert key_reader("order.customer", codec)(payload) == "a"
    assert key_reader("order.items.0.id", codec)(payload) == 7
    assert key_reader(lambda received: received["order"]["customer"], codec)(payload) == "a"

    class OrderCodec:
        def encode(self, message: object) -> bytes:
            raise NotImplementedError

        def decode(self, payload: bytes) -> object:
            del payload
            return Order()

    assert key_reader("customer", OrderCodec())(b"") == "a"
    assert key_reader("items.0.id", OrderCodec())(b"") == 7


@pytest.mark.parametrize("path", ["nothing", "order.nothing", "order.items.5", "order.items.x"])
def test_a_message_that_lacks_its_key_says_what_is_missing(path: str) -> None:
    """Without a word of its content."""
    codec = AutoCodec()
    payload = codec.encode({"order": {"items": []}})
    with pytest.raises(NoKey, match=f"has no '{path.rpartition('.')[2]}'"):
        key_reader(path, codec)(payload)


def test_an_undecodable_payload_is_a_letter_in_lanes_too(steps: StepRuntime) -> None:
    """Its key can't be told (pipes D-3)."""
    letters, book = DeadLetters(), Book()
    with pytest.raises(Undecodable):
        key_reader("customer", AutoCodec())(b"\x1e{")
    with Pipe("orders", key="customer", dead_letter=letters, retries=3, runtime=steps) as pipe:
        pipe.receive(book)
        pipe.send_many([message("a", 1), b"no mapping", message("a", 2)])
        pipe.flush(PATIENCE_S)
    assert book.by_key == {"a": [1, 2]}
    assert [letter.error_type for letter in letters] == ["NoKey"]


@pytest.mark.parametrize("is_left", [True, False])
def test_what_was_given_up_behind_an_unsettled_message_comes_again_after_a_close(
    tmp_path: Path, is_left: bool
) -> None:
    """A position is one number. The first message is never done, those behind it go to the letters, and the pipe
    is closed: the next life handles all of them. Where none is left, nothing comes again."""
    go, got, given_up = threading.Event(), list[object](), 5 if is_left else 6

    def fail(number: object) -> None:
        if is_left and number == 0:
            go.wait(PATIENCE_S)
        raise ValueError(number)

    with sqlite_store(tmp_path) as store:

        def opened() -> Pipe:
            return Pipe(
                "pay",
                key=lambda number: number,
                journal=store,
                state=store,
                dead_letter=store,
                retries=1,
                notices=Noted(),
            )

        pipe = opened()
        pipe.receive(fail)
        pipe.send_many(range(6))
        is_so = partial(_has_given_up, pipe, given_up)
        await_that(ThreadRuntime(), is_so, "they are in the letters")
        with pytest.raises(NotConfirmed) if is_left else nullcontext():
            pipe.close(timeout=0 if is_left else PATIENCE_S)
        go.set()
        with opened() as pipe:
            pipe.receive(got.append)
            pipe.flush(PATIENCE_S)
            letters = pipe.dead_letters
            assert isinstance(letters, DeadLetterStream)
            assert len(list(letters.all())) == given_up
    assert sorted(map(str, got)) == (list("012345") if is_left else [])


def _has_given_up(pipe: Pipe, count: int) -> bool:
    return pipe.counters().get("dead_lettered") == count


# What is refused before anything starts.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lanes": 3}, "give a key"),
        ({"key": ""}, "key is ''"),
        ({"key": "a..b"}, "key is 'a..b'"),
        ({"key": 5}, "key is 5"),
        ({"key": "a", "lanes": 0}, "lanes is 0"),
        ({"key": "a", "lanes": 257}, "from 1 to 256"),
        ({"key": "a", "lanes": "many"}, "lanes is 'many'"),
    ],
)
def test_lanes_that_make_no_sense_are_refused(options: dict[str, object], says: str) -> None:
    """ConfigurationError, and no thread is left."""
    with pytest.raises(ConfigurationError, match=says):
        Pipe("orders", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("boundary", [Boundary.COMMITTED, Boundary.BEFORE, Boundary.HANDED])
def test_other_boundaries_are_refused_with_the_remedy(tmp_path: Path, boundary: Boundary) -> None:
    """By the algebra, before anything starts (pipes G-9)."""
    with (
        sqlite_store(tmp_path) as store,
        pytest.raises(CompositionError, match="Drop lanes, or use boundary processed"),
    ):
        Pipe("orders", state=store, boundary=boundary, key="customer")
