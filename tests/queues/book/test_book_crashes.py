"""A process dies, or a store is silent, at each write of a story: nothing is lost, and effects happen once."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from surepipe.core.store_requests import Store, Together, Unavailable
from surepipe.errors import StoreUnavailable
from surepipe.queues.book import Accepted, BookMessage, Context, Rejected
from tests.kit.book import Act, BookUnderTest, Clocks, Death, changed_config
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.queues.book.test_book_processes import appended
from tests.storage.sqlite_bench import SqliteBench

CONFIG = changed_config(
    page_bytes=16, policy="drr", quantum=1, commit_messages=2, retries=2, checkpoint_bytes=1 << 10
)
NEVER = 1 << 30
WRITES = frozenset({"append", "ask", "trim", "open_producer"})
MESSAGES = {"A": "a1 a2 a3", "B": "b1 b2 weight=500", "C": "c1 fine corrupt"}


class Troubled:
    """A store where something happens at one write: before it, or when it is done and nobody knows."""

    def __init__(self, store: Any, at: int, *, done: bool, times: int, death: bool) -> None:
        self._store = store
        self._at = at
        self._done = done
        self._times = times
        self._death = death
        self.writes = 0

    def aim(self, at: int) -> None:
        """Let it happen at this write from now."""
        self.writes, self._at = 0, at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in WRITES:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            if name == "ask" and not isinstance(arguments[0], Together):
                return found(*arguments, **options)
            self.writes += 1
            if not self._at <= self.writes < self._at + self._times:
                return found(*arguments, **options)
            if self._done:
                found(*arguments, **options)
            if self._death:
                raise Death
            return Unavailable("nobody answers")

        return call


def handle(out: str) -> Act:
    """Each message leaves one effect of every kind."""

    def done(message: BookMessage, context: Context) -> object:
        context.append(out, message.payload)
        context.put(message.payload.decode(), message.address.encode())
        if message.payload == b"a2":
            context.enqueue("D", b"d1")
        return Rejected("CORRUPT") if message.payload == b"corrupt" else None

    return done


def story(book: BookUnderTest, done: dict[str, object]) -> None:
    """What happens; ``done`` remembers what was confirmed to whoever enqueued."""
    book.always = handle(f"{book.book.name}/out")
    for origin, words in MESSAGES.items():
        for word in words.split():
            if word not in done:
                answer = book.book.enqueue(origin, word.encode())
                assert isinstance(answer, Accepted)
                done[word] = answer.last
    for _ in range(8):
        book.book.service()
        book.clocks.advance(1)
    for parked in book.book.parked():
        book.book.execute(parked.address)
    while book.book.ring():
        book.book.service()


def judge(book: BookUnderTest, done: dict[str, object], unsure: set[str]) -> None:
    """Everything that was confirmed is dealt with, each effect is there once, and the book is empty and sound."""
    book.check()
    out = Counter(payload.decode() for payload in appended(book.store, f"{book.book.name}/out"))
    wanted = Counter(word for word in done if word not in ("corrupt", *unsure))
    assert {word: out[word] for word in wanted} == dict(wanted)
    assert out.pop("d1") == out["a2"]  # what a message enqueues is there as often as the message
    assert all(count <= 1 + (word in unsure) for word, count in out.items()), out
    totals = book.book.totals()
    assert totals["queued"] == 0
    assert totals["dead_lettered"] == totals["rejected"] >= 1
    assert len(appended(book.store, f"{book.book.name}/dead")) == totals["dead_lettered"]


Kind = MemoryBench | SqliteBench | RedisBench


def total_writes(bench: Kind) -> int:
    """Writes of the story when nothing happens."""
    store = Troubled(bench.store, 0, done=False, times=0, death=False)
    book = BookUnderTest(cast("Store", store), CONFIG, name="plain")
    story(book, {})
    assert appended(bench.store, "plain/out")
    return store.writes


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_process_may_die_at_any_write(any_bench: Kind, done: bool) -> None:
    """BQ-44, B-59, K1 to K5: another one goes on with the book; what nobody confirmed is stored once more at
    most."""
    writes = _writes(any_bench)
    for at in range(1, writes + 1, _step(any_bench)):
        clocks = Clocks()
        store = Troubled(any_bench.store, at, done=done, times=1, death=True)
        confirmed: dict[str, object] = {}
        unsure: set[str] = set()
        with contextlib.suppress(Death):
            book = BookUnderTest(
                cast("Store", store), CONFIG, name=f"b{at}", worker="first", clocks=clocks
            )
            story(book, confirmed)
        words = [word for words in MESSAGES.values() for word in words.split()]
        unsure.update([word for word in words if word not in confirmed][:1])
        again = BookUnderTest(
            any_bench.store, CONFIG, name=f"b{at}", worker="second", clocks=clocks
        )
        again.always = handle(f"b{at}/out")
        again.check()
        again.book.service()
        clocks.advance(31)
        story(again, confirmed)
        judge(again, confirmed, unsure)


@pytest.mark.parametrize("done", [False, True], ids=["not-done", "done"])
@pytest.mark.parametrize("times", [1, 3, 4], ids=["one-answer", "a-call", "two-calls"])
def test_answers_may_be_lost_at_any_write(any_bench: Kind, done: bool, times: int) -> None:
    """BQ-66, B-63, K4 and K5: repeats are recognised; a call that gave up is settled by the next one."""
    writes = _writes(any_bench)
    for at in range(1, writes + 1, _step(any_bench)):
        store = Troubled(any_bench.store, at, done=done, times=times, death=False)
        confirmed: dict[str, object] = {}
        unsure: set[str] = set()
        book: BookUnderTest | None = None
        for _ in range(20):
            try:
                book = book or BookUnderTest(
                    cast("Store", store), CONFIG, name=f"b{at}", worker="first"
                )
                story(book, confirmed)
                break
            except StoreUnavailable:
                words = [word for words in MESSAGES.values() for word in words.split()]
                unsure.update([word for word in words if word not in confirmed][:1])
        assert book is not None
        judge(book, confirmed, unsure)


def _step(bench: Kind) -> int:
    """In memory each write; elsewhere, where a story takes longer, each seventh."""
    return 1 if isinstance(bench, MemoryBench) else 7


def _writes(bench: Kind) -> int:
    writes = total_writes(bench)
    assert writes > 20
    return writes


def _counted(store: object, writes: int) -> tuple[BookUnderTest, Callable[[], None]]:
    """A book whose handlers count in the store, and a call that serves it until all is done."""
    book = BookUnderTest(cast("Store", store), CONFIG, name="counting", listen=False)

    def count(message: BookMessage, context: Context) -> None:
        if message.payload == b"2":
            thread = threading.Thread(target=enqueue_beside)
            thread.start()
            thread.join()
        context.put("count", b"%d" % (int(context.get("count") or 0) + 1))

    def enqueue_beside() -> None:
        with contextlib.suppress(StoreUnavailable):
            book.book.enqueue("B", b"beside")

    def serve() -> None:
        for _ in range(writes):
            with contextlib.suppress(StoreUnavailable):
                book.book.service()
            book.clocks.advance(1)

    book.always = count
    return book, serve


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_what_handlers_count_in_the_store_is_right_whichever_write_is_not_answered(
    done: bool,
) -> None:
    """B-36, B-56: a handler reads what is stored, and not what one has put whose message comes again.

    1. A handler reads 1 and puts 2. 2. Its commit waits for an enqueue that nobody answers, and is never asked
    of the store. 3. Its message comes again: it reads 1.
    """
    for at in range(1, 25):
        store = Troubled(MemoryBench().store, NEVER, done=done, times=6, death=False)
        book, serve = _counted(store, 12)
        book.book.enqueue_many("A", [b"%d" % number for number in range(1, 6)])
        store.aim(at)
        serve()
        totals = book.book.totals()
        assert totals["queued"] == 0
        assert book.book.value("count") == b"%d" % totals["done"], at


def test_a_handler_reads_what_another_process_has_put_after_a_silence() -> None:
    """B-36: 1. Nobody answers the commit of a put. 2. It is found stored. 3. Another process puts its own."""
    bench = MemoryBench()
    store = Troubled(bench.store, NEVER, done=True, times=3, death=False)
    one = BookUnderTest(cast("Store", store), CONFIG, name="b", worker="one")
    two = BookUnderTest(bench.store, CONFIG, name="b", worker="two", clocks=one.clocks)
    read: list[bytes | None] = []

    def read_and_put(message: BookMessage, context: Context) -> None:
        read.append(context.get("key"))
        context.put("key", message.payload)

    one.always = two.always = read_and_put
    one.put(A="1")
    store.aim(2)  # behind the claim
    with pytest.raises(StoreUnavailable):
        one.svc()
    two.put(A="2")
    one.book.beat()
    two.svc()
    one.put(A="3")
    one.svc()
    assert read == [None, b"1", b"2"]
