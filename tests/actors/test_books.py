"""A book that is served in the background: by whom, how fast, until when, and what its close leaves."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from surepipe.actors.books import AsyncBook, ServedBook
from surepipe.actors.notices import PipeNotice
from surepipe.core.store_requests import (
    AppendOutcome,
    AppendRun,
    Failed,
    Hint,
    Store,
    StoreOutcome,
    StoreRequest,
    Together,
    Unavailable,
)
from surepipe.errors import ConfigurationError, Fenced, MisuseError, PayloadTooLarge, PipeClosed
from surepipe.queues.book import BookConfig, BookMessage, BookQueue, Budget, Context, Cost, Later
from surepipe.queues.book.answers import Accepted, EnqueueUnknown
from surepipe.queues.book.changes import Spend
from surepipe.queues.book.config import NOTHING
from surepipe.queues.book.ledger import Ledger
from surepipe.queues.book.service import Worker
from surepipe.storage import MemoryStore, SqliteStore
from tests.kit.book import Gate
from tests.queues.book.test_book_processes import appended

WITHIN_S = 60.0
"""Longer than anything takes: only a defect ends here."""


class Seen:
    """A handler that tells what it got."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()

    def __call__(self, message: BookMessage, context: Context) -> None:
        context.append("out", message.payload)
        self.messages.put((message.origin, message.payload))

    def take(self, count: int) -> list[bytes]:
        """The next so many, once they are there."""
        return [self.messages.get(timeout=WITHIN_S)[1] for _ in range(count)]


def test_messages_are_handled_while_nobody_calls_service(tmp_path: Path) -> None:
    """B-64: at an address of a file, by two workers, each origin in its order; the file closes with it."""
    seen = Seen()
    with ServedBook("b", store=f"sqlite:///{tmp_path}/b.db", processor=seen, workers=2) as book:
        for number in range(40):
            book.enqueue("AB"[number % 2], b"%d" % number)
        assert book.wait_until_idle(WITHIN_S)
        assert book.totals()["done"] == 40
    with pytest.raises(PipeClosed):
        book.enqueue("A", b"late")
    with SqliteStore(tmp_path / "b.db") as store:
        out = [int(payload) for payload in appended(store, "out")]
    assert [each for each in out if each % 2] == list(range(1, 40, 2))
    assert [each for each in out if not each % 2] == list(range(0, 40, 2))


def test_workers_of_a_process_never_share_a_queue() -> None:
    """B-52: threads take turns as often as they can, while queues empty and fill again; each effect is once."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(5):
            store = MemoryStore()
            with ServedBook("b", store=store, processor=Seen(), workers=3) as book:
                for number in range(60):
                    book.enqueue("AB"[number % 2], b"%d" % number)
                assert book.wait_until_idle(WITHIN_S)
                assert book.failure is None
            out = sorted(int(payload) for payload in appended(store, "out"))
            assert out == list(range(60))
    finally:
        sys.setswitchinterval(before)


class Watched(MemoryStore):
    """A store whose waits return when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waiting, self.may_return = threading.Event(), Gate()

    def wait(self, stream: str, index: int, timeout_us: int) -> Hint | Failed | Unavailable:
        self.is_waiting.set()
        self.may_return.wait()
        return super().wait(stream, index, min(timeout_us, 1))


def test_what_somebody_looked_at_is_served_all_the_same() -> None:
    """1. All workers rest. 2. Another process enqueues. 3. A look at the totals hears of it, before the watcher
    does. 4. The watcher finds nothing new, and nobody else would ring the workers."""
    store, seen = Watched(), Seen()
    with store.may_return, ServedBook("b", store=store, processor=seen) as book:
        assert store.is_waiting.wait(WITHIN_S)
        BookQueue.inline("b", store=store, processor=seen).enqueue("A", b"1")
        assert book.totals()["queued"] == 1
        store.may_return.set()
        assert seen.take(1) == [b"1"]


class Untaking(Watched):
    """One that takes no entry of a log for a while."""

    is_silent = False

    def append(
        self, stream: str, producer: str, epoch: int, first: int, payloads: Sequence[bytes]
    ) -> AppendOutcome:
        if self.is_silent:
            return Unavailable("away")
        return super().append(stream, producer, epoch, first, payloads)


def test_what_is_stored_when_it_is_tried_again_is_served() -> None:
    """1. Nobody answers an enqueue. 2. Its ``again`` stores it. 3. All workers rest, and have to be told."""
    store, seen = Untaking(), Seen()
    with store.may_return, ServedBook("b", store=store, processor=seen) as book:
        assert store.is_waiting.wait(WITHIN_S)
        store.is_silent = True
        with pytest.raises(EnqueueUnknown) as unknown:
            book.enqueue("A", b"1")
        store.is_silent = False
        unknown.value.again()
        assert seen.take(1) == [b"1"]
        store.may_return.set()


def test_another_address_is_refused() -> None:
    """The error says what an address looks like."""
    with pytest.raises(ConfigurationError, match=r"sqlite:///orders\.db"):
        ServedBook("b", store="postgres://here", processor=Seen())


def test_workers_are_counted() -> None:
    """None at all would serve nothing."""
    with pytest.raises(MisuseError, match="from 1 to 1024"):
        ServedBook("b", store=MemoryStore(), processor=Seen(), workers=0)


def test_a_coroutine_handler_is_awaited() -> None:
    """B-97: on the loop that the process shares; two queues are in their handlers at once."""
    store, entered = MemoryStore(), list[asyncio.Future[None]]()

    async def handle(message: BookMessage, context: Context) -> None:
        entered.append(asyncio.get_running_loop().create_future())
        if len(entered) == 2:
            for each in entered:
                each.set_result(None)
        await entered[-1] if len(entered) == 1 else None
        context.append("out", message.payload)

    with ServedBook("b", store=store, processor=handle, workers=2) as book:
        book.enqueue("A", b"a")
        book.enqueue("B", b"b")
        assert book.wait_until_idle(WITHIN_S)
    assert sorted(appended(store, "out")) == [b"a", b"b"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, RuntimeError])
def test_a_handler_that_exits_has_failed_at_its_message(error: type[BaseException]) -> None:
    """B-64: it ends no worker; after its attempts the message is parked, and what is behind it is served."""
    store = MemoryStore()

    def handle(message: BookMessage, context: Context) -> None:
        if message.payload == b"bad":
            raise error
        context.append("out", message.payload)

    config = BookConfig(retries=2, retry_min_s=0.001, retry_max_s=0.001)
    with ServedBook("b", store=store, processor=handle, config=config) as book:
        book.enqueue_many("A", [b"bad", b"good"])
        assert book.wait_until_idle(WITHIN_S)
        (parked,) = book.parked()
        assert (parked.reason.value, parked.attempts) == ("poison", 2)
    assert appended(store, "out") == [b"good"]


@pytest.mark.parametrize("retries", [2, 7])
def test_a_handler_that_keeps_failing_is_told_once(retries: int) -> None:
    """B-38: with the error, after five attempts or the last one; and ``parked`` keeps what the last one raised."""
    attempts, told = list[int](), list[PipeNotice]()

    def handle(message: BookMessage, context: Context) -> None:
        del context
        attempts.append(message.attempts)
        raise ValueError(f"no such customer, try {len(attempts)}")

    config = BookConfig(retries=retries, retry_min_s=0.001, retry_max_s=0.001)
    with ServedBook(
        "b", store=MemoryStore(), processor=handle, config=config, notices=told.append
    ) as book:
        book.enqueue("A", b"1")
        assert book.wait_until_idle(WITHIN_S)
        (parked,) = book.parked()
        assert parked.error == f"ValueError: no such customer, try {retries}"
        done = book.execute(parked.address)
        assert (done.ok, done.error) == (False, f"ValueError: no such customer, try {retries + 1}")
        assert book.parked()[0].error == done.error
    (notice,) = told
    tries = min(retries, 5)
    assert str(notice) == (
        f"pipe b (book): Poison, epoch 1, message 1: queue 'A', {tries} attempts, the last raised "
        f"ValueError: no such customer, try {tries}"
    )


def test_a_book_without_a_host_logs_what_its_handler_raises(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """B-38, B-40: one line; who opens the book later finds the error there."""

    def handle(message: BookMessage, context: Context) -> None:
        del message, context
        raise KeyError("tenant")

    address = f"sqlite:///{tmp_path}/b.db"
    config = BookConfig(retries=1)
    with BookQueue.inline("b", store=address, processor=handle, config=config) as book:
        book.enqueue("A", b"1")
        book.service()
    (line,) = caplog.messages
    assert (
        line
        == "book b: Poison, message 1: queue 'A', 1 attempt, the last raised KeyError: 'tenant'"
    )
    with BookQueue.inline("b", store=address, processor=handle, config=config) as book:
        assert [one.error for one in book.parked()] == ["KeyError: 'tenant'"]


def test_what_another_process_enqueues_is_served() -> None:
    """B-89: the one that serves rests, and hears of it."""
    store, seen = MemoryStore(), Seen()
    with ServedBook("b", store=store, processor=seen) as book:
        assert book.wait_until_idle(WITHIN_S)
        BookQueue.inline("b", store=store, processor=seen, worker="other").enqueue("A", b"1")
        assert seen.take(1) == [b"1"]


def test_a_message_for_later_comes_again_by_itself() -> None:
    """B-94: nobody enqueues anything meanwhile."""
    store, came = MemoryStore(), threading.Event()
    answers = [Later(0.01), Later()]

    def handle(message: BookMessage, context: Context) -> Later | None:
        del message, context
        if answers:
            return answers.pop()
        came.set()
        return None

    config = BookConfig(period_s=0.01)
    with ServedBook("b", store=store, processor=handle, config=config) as book:
        book.enqueue("A", b"1")
        assert came.wait(WITHIN_S)


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.us


RATED = BookConfig(
    period_s=0.05,
    period_budget=Budget(units=10),
    idle_budget=None,
    max_message_cost=Budget(units=1),
)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_budget_of_a_period_is_one_for_all_processes(workers: int) -> None:
    """B-102, BQ-69: three books on one store run ten units in a period, and ten in the next; one that was killed
    keeps what it had reserved."""
    store, clock, seen = MemoryStore(), Clock(), Seen()
    books = [
        ServedBook(
            "b",
            store=store,
            processor=seen,
            cost=Cost(units=1),
            config=RATED,
            worker=f"w{number}",
            workers=workers,
            clock=clock,
        )
        for number in range(3)
    ]
    try:
        books[0].enqueue_many("A", [b"a"] * 100)
        books[0].enqueue_many("B", [b"b"] * 100)
        for period in range(1, 4):
            seen.take(10)
            reader = BookQueue.inline(
                "b", store=store, processor=seen, config=RATED, worker="reader"
            )
            # All of it is reserved, or spent: nothing more runs while the clock stands.
            assert reader.ledger.period[1][2] <= 10
            assert seen.messages.empty()
            assert reader.totals()["done"] <= 10 * period
            clock.us += 50_000
    finally:
        for book in books:
            book.close()


@pytest.mark.parametrize("config", [RATED, BookConfig()], ids=["a-rate", "a-budget-a-call"])
def test_a_book_that_can_not_move_writes_nothing_and_looks_no_more(config: BookConfig) -> None:
    """B-65: all that waits is paused; who releases it rings, and a message for later sets the time of the look."""
    store = MemoryStore()
    answers: list[Later] = [Later(5.0)]
    with ServedBook(
        "b",
        store=store,
        processor=lambda _message, _context: answers.pop(),
        config=config,
        clock=Clock(),
        start=False,
    ) as book:
        book.enqueue("A", b"1")
        book.pause("A")
        before, rung = book.ledger.index, book.changes
        assert book.serve()[1] is None
        assert book.ledger.index == before
        book.unpause("A")
        assert book.changes != rung
        book.serve()
        before = book.ledger.index
        wait = book.serve()[1]
        assert wait is not None
        assert 4_000_000 < wait <= 5_000_000
        assert book.ledger.index == before


def test_a_clock_that_is_behind_begins_no_period_anew() -> None:
    """B-102: two processes whose clocks differ by less than a period share its budget; one that was set back for
    good begins another."""
    store, clock, seen = MemoryStore(), Clock(), Seen()
    with ServedBook("b", store=store, processor=seen, config=RATED, clock=clock) as book:
        book.enqueue_many("A", [b"a"] * 100)
        seen.take(10)
        clock.us -= 49_999
        with ServedBook(
            "b", store=store, processor=seen, config=RATED, clock=clock, worker="2"
        ) as late:
            assert late.serve()[0] is None or not late.totals()["queued"]
            assert late.totals()["done"] <= 10
        clock.us -= 86_400_000_000
        assert seen.take(1) == [b"a"]


class Silent:
    """A store that answers no write while it is told so."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.is_silent = False
        self.asked = threading.Event()

    def __getattr__(self, name: str) -> object:
        found = getattr(self.store, name)
        if name not in {"append", "read", "ask"} or not self.is_silent:
            return found

        def silent(*_: object, **__: object) -> Unavailable:
            self.asked.set()
            return Unavailable("nobody answers")

        return silent


def test_it_goes_on_when_its_store_answers_again() -> None:
    """A store that is away ends no service: what was enqueued before comes when it is back."""
    silent, seen, entered, leave = Silent(), Seen(), threading.Event(), Gate()

    def handle(message: BookMessage, context: Context) -> None:
        entered.set()
        leave.wait()
        seen(message, context)

    store: Store = silent  # type: ignore[assignment]
    with leave, ServedBook("b", store=store, processor=handle) as book:
        book.enqueue("A", b"1")
        assert entered.wait(WITHIN_S)
        silent.is_silent = True
        leave.set()
        assert silent.asked.wait(WITHIN_S)
        silent.is_silent = False
        assert book.wait_until_idle(WITHIN_S)
    assert appended(silent.store, "out") == [b"1"]


def test_a_process_that_was_replaced_says_so_and_serves_no_more() -> None:
    """B-93: a later one under its name; the first one's service ends with Fenced, and so do its calls."""
    store, told = MemoryStore(), threading.Event()
    notices: list[str] = []

    def note(notice: object) -> None:
        notices.append(str(notice))
        told.set()

    first = ServedBook("b", store=store, processor=Seen(), worker="w", notices=note)
    try:
        with ServedBook("b", store=store, processor=Seen(), worker="w") as second:
            second.enqueue("A", b"1")
            with pytest.raises(Fenced):
                first.enqueue("A", b"2")
            assert second.wait_until_idle(WITHIN_S)
    finally:
        first.close()


def test_a_wait_ends_with_the_book_or_raises_what_stopped_it() -> None:
    """B-93: False while it is served, True when it is closed, and Fenced when another one took its place; awaited
    just as well."""
    store, entered, leave = MemoryStore(), threading.Event(), Gate()

    def stand(_message: BookMessage, _context: Context) -> None:
        entered.set()
        leave.wait()

    with leave, ServedBook("b", store=store, processor=stand, worker="w") as first:
        first.enqueue("A", b"1")
        assert entered.wait(WITHIN_S)
        assert first.wait(0) is False
        with pytest.raises(MisuseError, match="timeout"):
            first.wait("soon")  # type: ignore[arg-type]
        with ServedBook("b", store=store, processor=Seen(), worker="w") as second:
            leave.set()  # its commit is refused
            with pytest.raises(Fenced):
                first.wait(WITHIN_S)
        assert second.wait(WITHIN_S) is True

    async def awaited() -> None:
        async with ServedBook("c", store=MemoryStore(), processor=Seen()) as book:
            assert await book.wait(0) is False
            waiting = asyncio.create_task(book.wait(WITHIN_S))
        assert await waiting is True

    asyncio.run(awaited())


def test_closing_waits_for_handlers_that_run() -> None:
    """B-67: what the handler did is committed; what waited behind it is left for the next process, at once."""
    store, entered, leave = MemoryStore(), threading.Event(), Gate()

    def handle(message: BookMessage, context: Context) -> None:
        entered.set()
        leave.wait()
        context.append("out", message.payload)

    config = BookConfig(commit_messages=1)
    with leave:
        book = ServedBook("b", store=store, processor=handle, config=config)
        book.enqueue_many("A", [b"1", b"2"])
        assert entered.wait(WITHIN_S)
        closing = threading.Thread(target=book.close)
        closing.start()
        leave.set()
        closing.join(WITHIN_S)
        assert not closing.is_alive()
    assert appended(store, "out")[:1] == [b"1"]
    with ServedBook("b", store=store, processor=Seen(), config=config, worker="next") as following:
        assert following.wait_until_idle(WITHIN_S)
    assert appended(store, "out") == [b"1", b"2"]


def test_a_handler_that_never_ends_is_left_to_its_claim(caplog: pytest.LogCaptureFixture) -> None:
    """B-67: the close says so, and does not wait for ever."""
    entered, leave = threading.Event(), Gate()

    def handle(message: BookMessage, context: Context) -> None:
        del message, context
        entered.set()
        leave.wait()

    with leave:
        book = ServedBook("b", store=MemoryStore(), processor=handle)
        book.enqueue("A", b"1")
        assert entered.wait(WITHIN_S)
        book.close(0.01)
    for thread in threading.enumerate():
        if thread.name == "b/worker-1":
            thread.join(WITHIN_S)
    assert "1 handlers still run" in caplog.text


def test_a_slow_handler_is_no_dead_process() -> None:
    """B-53: another process sees its pulse, however long the handler takes."""
    store, entered, leave = MemoryStore(), threading.Event(), Gate()
    config = BookConfig(lease_s=0.5, period_s=0.01)

    def handle(message: BookMessage, context: Context) -> None:
        entered.set()
        leave.wait()
        context.append("out", message.payload)

    with (
        leave,
        ServedBook("b", store=store, processor=handle, config=config, worker="slow") as slow,
        ServedBook("b", store=store, processor=handle, config=config, worker="other") as other,
    ):
        slow.enqueue("A", b"1")
        assert entered.wait(WITHIN_S)
        before, heard = slow.ledger.index, 0
        while heard < 7:  # a pulse comes three times in a lease
            store.wait("b/log", slow.ledger.index + 1, 1_000_000)
            heard = slow.ledger.index - before
        leave.set()
        assert slow.wait_until_idle(WITHIN_S)
        assert other.failure is None
        assert slow.failure is None
    assert appended(store, "out") == [b"1"]


def test_a_call_that_is_over_takes_nothing_from_the_next_one() -> None:
    """B-52: 1. A worker's call has ended, and it has not returned. 2. Another worker of the process claims the
    queue. 3. The first one returns. 4. A third must not take the queue for one that nobody serves."""
    store, calls = MemoryStore(), list[bytes]()
    third: list[int] = []

    def handle(message: BookMessage, context: Context) -> None:
        calls.append(message.payload)
        context.append("out", message.payload)
        if message.payload == b"2":
            over.abandon()
            thread = threading.Thread(target=lambda: third.append(book.service().ran))
            thread.start()
            thread.join(WITHIN_S)

    book = BookQueue.inline("b", store=store, processor=handle)
    book.enqueue("A", b"1")
    over = Worker(book._session)  # pyright: ignore[reportPrivateUsage] - a moment inside a call
    assert book._drive(over.service()).ran == 1  # pyright: ignore[reportPrivateUsage] - as above
    book.enqueue_many("A", [b"2", b"3"])
    assert book.service().ran == 2
    assert third == [0]
    assert calls == appended(store, "out") == [b"1", b"2", b"3"]


def test_what_is_given_back_late_adds_nothing_to_the_next_period() -> None:
    """B-102: 1. A process takes ten of a period, and is slow. 2. Another one takes ten of the next. 3. The first
    one gives its ten back: the next period has nothing left all the same."""
    ledger, most = Ledger(RATED), (None, None, 10, None)
    ten = (0, 0, 10, 0)
    assert ledger.apply("one", 1, Spend(0, 7, ten, most)) == (7, ten)
    assert ledger.apply("two", 2, Spend(0, 8, ten, most)) == (8, ten)
    ledger.apply("one", 3, Spend(0, 7, ten, most, is_return=True))
    assert ledger.apply("two", 4, Spend(0, 8, ten, most)) == (8, NOTHING)
    ledger.apply("two", 5, Spend(0, 8, (0, 0, 4, 0), most, is_return=True))
    assert ledger.apply("one", 6, Spend(0, 7, ten, most)) == (8, (0, 0, 4, 0))


def test_who_waited_long_for_the_store_begins_no_period_anew() -> None:
    """B-102: 1. A process looks at the clock, and its entry comes three periods later. 2. It gets what the present
    one has left. 3. Others get no more of that either. A clock that was set back by a day begins another."""
    ledger, most = Ledger(RATED), (None, None, 10, None)
    ten = (0, 0, 10, 0)
    day = 86_400 * 20
    assert ledger.apply("one", 1, Spend(0, day + 7, ten, most)) == (day + 7, ten)
    assert ledger.apply("one", 2, Spend(0, day + 10, (0, 0, 9, 0), most)) == (
        day + 10,
        (0, 0, 9, 0),
    )
    assert ledger.apply("late", 3, Spend(0, day + 7, ten, most)) == (day + 10, (0, 0, 1, 0))
    assert ledger.apply("one", 4, Spend(0, day + 10, ten, most)) == (day + 10, NOTHING)
    assert ledger.apply("back", 5, Spend(0, 10, ten, most)) == (10, ten)


def test_whose_clock_is_behind_gives_back_what_it_does_not_need() -> None:
    """B-102: 1. One process is in the next period already. 2. Another one, a little behind, takes two of it and
    needs one. 3. The other one is there for whoever comes."""
    store, seen = MemoryStore(), Seen()
    clocks = [Clock(), Clock()]
    ahead, behind = (
        ServedBook(
            "b", store=store, processor=seen, config=RATED, clock=clock, worker=name, start=False
        )
        for name, clock in zip(("ahead", "behind"), clocks, strict=True)
    )
    with ahead, behind:
        clocks[0].us += 50_000
        for book in (ahead, behind):
            book.enqueue("A", b"1")
            book.serve()
        ahead.totals()
        assert ahead.ledger.period == (ahead.period, (0, 0, 2, 0))
        assert behind.period == ahead.period - 1


# Until nothing is left to be served.


def test_who_waits_until_it_is_idle_waits_for_what_will_be_tried_again() -> None:
    """For messages that fail until they are parked, and for one that is for later; not for paused queues."""
    answers: list[Later | Exception | None] = [ValueError(), ValueError(), Later(0.001), None]

    def handle(message: BookMessage, context: Context) -> Later | None:
        del message, context
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    config = BookConfig(retries=2, retry_min_s=0.001, retry_max_s=0.001)
    with ServedBook("b", store=MemoryStore(), processor=handle, config=config) as book:
        book.pause("B")
        book.enqueue("B", b"paused")
        book.enqueue_many("A", [b"fails", b"later"])
        assert book.wait_until_idle(WITHIN_S)
        assert not answers
        assert [one.origin for one in book.parked()] == ["A"]


def test_a_book_that_ends_before_it_is_idle_says_so() -> None:
    """Who waits was told that all was served."""
    began = threading.Event()

    def handle(message: BookMessage, context: Context) -> Later:
        del message, context
        began.set()
        return Later(WITHIN_S)

    with ServedBook("b", store=MemoryStore(), processor=handle) as book:
        book.enqueue("A", b"1")
        assert began.wait(WITHIN_S)
        closing = threading.Thread(target=book.close)
        closing.start()
        assert not book.wait_until_idle(WITHIN_S)
        closing.join()


def test_a_wait_that_would_never_end_is_refused() -> None:
    """Before the book is started, in its own handler, and on the loop that its handlers need."""
    told: list[str] = []

    def handle(message: BookMessage, context: Context) -> None:
        del message, context
        with pytest.raises(MisuseError) as refused:
            book.wait_until_idle()
        told.append(str(refused.value))

    with ServedBook("b", store=MemoryStore(), processor=handle, start=False) as book:
        with pytest.raises(MisuseError, match=r"not started.*call start\(\)"):
            book.wait_until_idle()
        book.start()
        book.enqueue("A", b"1")
        assert book.wait_until_idle(WITHIN_S)

    async def serve() -> None:
        async with ServedBook("b", store=MemoryStore(), processor=Endless()) as face:
            face.sync.wait_until_idle()

    with pytest.raises(MisuseError, match="would block the event loop"):
        asyncio.run(serve())
    assert told == ["book b: wait_until_idle in its own handler would wait for itself"]


# The async face.


def test_tasks_enqueue_and_handlers_run_on_the_loop_of_the_face() -> None:
    """B-99: while calls wait, the loop goes on; what is refused is raised in the task."""
    store, seen = MemoryStore(), list[tuple[asyncio.AbstractEventLoop, bytes]]()

    async def handle(message: BookMessage, context: Context) -> None:
        await asyncio.sleep(0)
        context.append("out", message.payload)
        seen.append((asyncio.get_running_loop(), message.payload))

    async def serve() -> None:
        async with ServedBook("b", store=store, processor=handle, workers=2) as book:
            await book.enqueue("A", b"1")
            await book.enqueue_many("A", [b"2", b"3"])
            stored = await book.enqueue_batch([("A", b"4"), ("B", b"5")])
            assert isinstance(stored, Accepted)
            assert stored.count == 2
            with pytest.raises(PayloadTooLarge):
                await book.enqueue("A", bytes(1 << 20))
            assert await book.wait_until_idle(WITHIN_S)
            assert (await book.ask(ServedBook.totals))["done"] == 5
            assert {loop for loop, _ in seen} == {asyncio.get_running_loop()}
        with pytest.raises(AttributeError, match=r"await book\.ask\(lambda book: book\.totals"):
            book.totals()  # type: ignore[attr-defined]
        with pytest.raises(PipeClosed):
            await book.enqueue("A", b"late")

    asyncio.run(serve())
    assert [each for each in appended(store, "out") if each != b"5"] == [b"1", b"2", b"3", b"4"]


class Standing(MemoryStore):
    """Writes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = threading.Event(), threading.Event()
        self.go.set()

    def ask(self, request: StoreRequest) -> StoreOutcome:
        if isinstance(request, AppendRun | Together) and not self.go.is_set():
            self.reached.set()
            assert self.go.wait(WITHIN_S)
        return super().ask(request)


def test_a_call_that_is_cancelled_is_stored_whole() -> None:
    """B-99: the task ends at once, the call on its thread goes on, and its messages are all there."""
    store, seen = Standing(), Seen()

    async def serve() -> None:
        async with ServedBook("b", store=store, processor=seen, start=False) as book:
            store.go.clear()
            call = asyncio.create_task(book.enqueue_many("A", [b"1", b"2", b"3"]))
            await asyncio.to_thread(store.reached.wait, WITHIN_S)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            store.go.set()
            await book.ask(ServedBook.start)
            assert await asyncio.to_thread(seen.take, 3) == [b"1", b"2", b"3"]
            assert await book.wait_until_idle(WITHIN_S)

    asyncio.run(serve())


def test_a_handler_that_would_wait_for_its_own_end_is_told_so() -> None:
    """B-99: close in a handler raises there; the message is tried again, and the book goes on."""
    told: list[str] = []
    face: list[AsyncBook] = []

    async def handle(_message: BookMessage, _context: Context) -> None:
        try:
            await face[0].close()
        except MisuseError as error:
            told.append(str(error))

    async def serve() -> None:
        served = ServedBook("b", store=MemoryStore(), processor=handle, start=False)
        async with served as book:
            face.append(book)
            served.start()
            await book.enqueue("A", b"1")
            assert await book.wait_until_idle(WITHIN_S)

    asyncio.run(serve())
    assert told == ["book b: close in its own handler would wait for itself"]


class Endless:
    """A coroutine handler that waits for ever, and tells how it was ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, message: BookMessage, context: Context) -> None:
        del message, context
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("handler")


@pytest.mark.parametrize("limit_s", [None, WITHIN_S])
@pytest.mark.parametrize("waits", ["body", "end"])
def test_a_block_that_is_cancelled_cancels_its_handlers(
    waits: str, limit_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-67: in its body or at its end, which waits for the handler; none of them goes on behind the block. The
    message comes again, and that was no attempt."""
    monkeypatch.setattr("surepipe.actors.books.LEFT_S", 0.0)
    store, handle, config = MemoryStore(), Endless(), BookConfig(retries=1)

    async def block(is_left: asyncio.Event) -> None:
        async with ServedBook(
            "b", store=store, processor=handle, config=config, time_limit_s=limit_s
        ) as book:
            await book.enqueue("A", b"1")
            await handle.begun.wait()
            is_left.set()
            if waits == "body":
                await asyncio.Event().wait()

    async def serve() -> None:
        is_left = asyncio.Event()
        task = asyncio.create_task(block(is_left))
        await is_left.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        handle.ended.append("block")

    asyncio.run(serve())
    assert handle.ended == ["handler", "block"]
    seen = Seen()
    with ServedBook("b", store=store, processor=seen, config=config) as book:
        assert seen.take(1) == [b"1"]
        assert book.wait_until_idle(WITHIN_S)
        assert book.totals()["done"] == 1


def test_a_book_whose_loop_is_closed_blames_no_message() -> None:
    """B-97: it is served no more and says so; the message waits as before."""

    async def handle(message: BookMessage, context: Context) -> None:
        del message, context

    book = ServedBook(
        "b", store=MemoryStore(), processor=handle, config=BookConfig(retries=1), start=False
    )

    async def face() -> None:
        AsyncBook(book)

    asyncio.run(face())
    with book:
        book.start()
        book.enqueue("A", b"1")
        assert not book.wait_until_idle(WITHIN_S)
        assert "the event loop that its handler runs on is closed" in str(book.failure)
        assert book.parked() == []
        assert book.totals()["queued"] == 1
