"""Slices, clocks, pages and stores that are gone, slow handlers, calls without an answer, full queues."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from surepipe.actors.books import ServedBook
from surepipe.core.effects import NoticeKind
from surepipe.core.store_requests import (
    AllDone,
    CommitPosition,
    DropValues,
    FoundValues,
    Position,
    PutValues,
    Store,
    Unavailable,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreReset, StoreUnavailable
from surepipe.queues.book import (
    Accepted,
    BookConfig,
    BookMessage,
    BookQueue,
    Budget,
    Context,
    EnqueueRefused,
    EnqueueUnknown,
    Refused,
    check_invariants,
)
from surepipe.queues.book.events import Processed
from surepipe.storage import MemoryStore, SqliteStore
from tests.kit.book import BookUnderTest, Clocks, Death, Gate, changed_config
from tests.queues.book.conftest import Make
from tests.queues.book.test_book_processes import appended, note

WITHIN_S = 60.0
"""Longer than anything takes: only a defect ends here."""
DAY_S = 86_400
FREE = changed_config(
    page_bytes=1_024, policy="drr", quantum=4, suspend_pages=None, resume_pages=None, refuse_pages=None,
    max_origins=20_000, on_rejected="drop",
)  # fmt: skip


# Round trips.


@pytest.mark.parametrize("origins", [1, 1_000])
def test_a_message_costs_few_requests_however_many_queues_there_are(
    make: Make, origins: int
) -> None:
    """BQ-60, B-90: each queue holds one message all the time; three requests for a hundred messages."""
    book = make(FREE, quantum=100, listen=False)

    def fill() -> None:
        book.book.enqueue_batch([(f"o{number % origins}", b"m") for number in range(200)])

    fill()
    before, ran = book.book.store_requests, 0
    for _ in range(10):
        ran += book.book.service().ran
        enqueued = book.book.store_requests
        fill()
        before += book.book.store_requests - enqueued
    assert ran == 2_000
    assert book.book.store_requests - before <= 0.03 * ran


def test_paused_queues_cost_no_request(make_in_memory: Make) -> None:
    """BQ-60, B-87: one ready queue behind ten thousand paused ones."""
    book = make_in_memory(FREE, listen=False)
    names = [f"o{number}" for number in range(10_000)]
    for start in range(0, len(names), 1_000):
        book.book.enqueue_batch([(name, b"m") for name in names[start : start + 1_000]])
    for name in names:
        book.book.pause(name)
    book.book.enqueue("ready", b"m")
    before = book.book.store_requests
    assert book.book.service().ran == 1
    assert book.book.store_requests - before <= 40


@pytest.mark.parametrize("every", [1 << 14, 1 << 30], ids=["with-checkpoints", "as-a-log"])
def test_a_queue_of_one_message_takes_little_room(tmp_path: Path, every: int) -> None:
    """B-88: two thousand queues that hold 200 bytes each, in a file."""
    config = BookConfig(checkpoint_bytes=every)
    with SqliteStore(tmp_path / "b.db") as store:
        book = BookQueue.inline("b", store=store, processor=note, config=config)
        for start in range(0, 2_000, 500):
            book.enqueue_batch([(f"origin-{start + each}", b"x" * 200) for each in range(500)])
        book.close()
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 2_000 * 2_048


def test_the_order_does_not_depend_on_the_length_of_a_slice(make: Make) -> None:
    """BQ-61, B-86: handlers enqueue for queues that are claimed; slices of one, seven and a hundred."""
    found: list[object] = []
    for commit in (1, 7, 100):
        book = make(FREE, name=f"b{commit}", quantum=2, commit_messages=commit, listen=False)

        def spread(message: BookMessage, context: Context, out: str = f"out{commit}") -> None:
            context.append(out, message.origin.encode() + message.payload)
            number = int(message.payload)
            if number % 3 == 0 and number < 60:
                context.enqueue("ABCD"[number % 4], b"%d" % (number + 60))

        book.always = spread
        for number in range(60):
            book.book.enqueue("ABCD"[number % 4], b"%d" % number)
        book.svc(7)
        while book.ring():
            book.svc(13)
        out = appended(book.store, f"out{commit}")
        assert len(out) == 80
        found.append((out, dict(book.book.totals()), book.origins()))
    assert found[0] == found[1] == found[2]


def test_what_waits_behind_a_slow_handler_is_served_by_others() -> None:
    """BQ-62, B-85: one handler stands still among a hundred queues, and its worker had claimed some of them. All
    messages of the other 99 queues are stored as done meanwhile; those of its own queue go with its commit."""
    leave, standing, done = Gate(), threading.Event(), threading.Event()
    out: list[bytes] = []

    def handle(message: BookMessage, _context: Context) -> None:
        if message.payload == b"slow":
            standing.set()
            leave.wait()
        out.append(message.payload)

    config = BookConfig(commit_s=0.02, lease_s=5.0, period_s=0.02)
    store = MemoryStore()
    with (
        leave,
        ServedBook(
            "b", store=store, processor=handle, config=config, workers=4, start=False
        ) as book,
    ):
        for number in range(300):  # so a claim takes many queues, as those before were fast
            book.enqueue(f"o{number % 100}", b"%d" % number)
        for number in range(100):
            book.enqueue(f"o{number}", b"slow" if number == 50 else b"again")
        seen = BookQueue.inline("b", store=store, processor=handle, config=config, worker="seen")

        def watch() -> None:
            while not leave.is_set():
                if seen.totals()["done"] >= 4 * 99 and not any(
                    seen.footprint(f"o{number}").messages for number in range(100) if number != 50
                ):
                    done.set()
                    return
                store.wait("b/log", seen.ledger.index + 1, 1_000_000)

        watcher = threading.Thread(target=watch)
        watcher.start()
        book.start()
        assert standing.wait(WITHIN_S)
        assert done.wait(WITHIN_S)
        assert book.footprint("o50").messages
        leave.set()
        watcher.join(WITHIN_S)
        assert book.wait_until_idle(WITHIN_S)
    assert len(out) == 400
    check_invariants(book)


class Resting(ServedBook):
    """One that tells when a worker of it rests, and relieves nobody before a handler stands still for good."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self.rests, self.stands = threading.Event(), threading.Event()
        super().__init__(*given, **options)

    def relieve(self) -> None:
        if self.stands.is_set():
            super().relieve()

    def rested(self) -> None:
        super().rested()
        self.rests.set()


@pytest.mark.parametrize("how", ["enqueued by a handler", "left by a visit"])
def test_who_rests_hears_of_what_is_given_back_behind_a_slow_handler(how: str) -> None:
    """BQ-62: 1. One of two workers is in a handler, the other one finds nothing that is free, and rests. 2. The
    first one's next handler stands still. 3. What was committed between the two is for the second one."""
    leave, served = Gate(), threading.Event()

    def handle(message: BookMessage, context: Context) -> None:
        match message.payload:
            case b"first":
                book.rests.wait()
                if how == "enqueued by a handler":
                    context.enqueue("C", b"free")
            case b"slow":
                book.stands.set()
                leave.wait()
            case _:
                served.set()

    config = BookConfig(commit_s=0.02, lease_s=5.0, quantum=1, period_s=60.0)
    with (
        leave,
        Resting(
            "b", store=MemoryStore(), processor=handle, config=config, workers=2, start=False
        ) as book,
    ):
        book._session.reach = 256  # pyright: ignore[reportPrivateUsage] - as after fast handlers
        book.enqueue("A", b"first")
        book.enqueue("B", b"slow")
        if how == "left by a visit":
            book.enqueue("A", b"free")
        book.start()
        assert served.wait(WITHIN_S)
        leave.set()


@pytest.mark.parametrize("how", ["left by a visit", "claimed and not begun"])
def test_who_rests_is_given_what_waits_behind_a_slow_handler_long_before_a_commit_is_due(
    how: str,
) -> None:
    """B-85: 1. One of two workers rests. 2. The other one comes to a handler that stands still, with a queue that
    it has served before, or has claimed to serve behind it. 3. A commit is not due before the test is over."""
    leave, served, rests = Gate(), threading.Event(), threading.Event()

    class Telling(ServedBook):
        def rested(self) -> None:
            super().rested()
            rests.set()

    def handle(message: BookMessage, _context: Context) -> None:
        match message.payload:
            case b"first":
                rests.wait()
            case b"slow":
                leave.wait()
            case _:
                served.set()

    config = BookConfig(commit_s=90.0, lease_s=300.0, quantum=1, period_s=60.0)
    with (
        leave,
        Telling(
            "b", store=MemoryStore(), processor=handle, config=config, workers=2, start=False
        ) as book,
    ):
        book._session.reach = 256  # pyright: ignore[reportPrivateUsage] - as after fast handlers
        book.enqueue("A", b"first")
        book.enqueue("B", b"slow")
        book.enqueue("A" if how == "left by a visit" else "C", b"free")
        book.start()
        assert served.wait(WITHIN_S)
        leave.set()


@pytest.mark.parametrize("reach", [1, 2, 3, 256])
@pytest.mark.parametrize("line", ["3 slow 1", "1 slow 3", "slow 3 1", "slow 1 3", "3 1 slow"])
@pytest.mark.parametrize("quantum", [1, 4])
def test_a_slow_handler_takes_no_turn_from_what_its_worker_has_claimed(
    make_in_memory: Make, reach: int, line: str, quantum: int
) -> None:
    """B-31, B-85: one worker has claimed so many of three queues and stands in a handler, time and again; another
    one serves the others meanwhile. Divided by their weights these never differ by more than a quantum and a
    message of each, and one quantum more for each such handler."""
    book = make_in_memory(FREE, quantum=quantum)
    order: list[str] = []

    def handle(message: BookMessage, _context: Context) -> None:
        order.append(message.origin)
        if message.origin != "slow":
            return
        other = threading.Thread(target=lambda: book.book.service(Budget(units=17 * quantum)))
        other.start()
        other.join()

    book.always = handle
    book.book.set_weight("3", 3)
    for origin in line.split():
        book.book.enqueue_many(origin, [b"m"] * (30 if origin == "slow" else 900 * quantum))
    book.book._session.reach = reach  # pyright: ignore[reportPrivateUsage]
    while order.count("1") < 190 * quantum:
        book.svc(30 * quantum)
    assert order.count("slow") == 30
    for end in range(len(order)):
        one, three, slow = (order[:end].count(origin) for origin in ("1", "3", "slow"))
        assert abs(one - three / 3) <= (1 + slow) * quantum + 1 + 1 / 3, order[:end]
    check_invariants(book.book)


def test_what_is_staged_goes_with_its_own_visit(make_in_memory: Make) -> None:
    """B-36, B-85: 1. A visit goes on over the end of a page. 2. The next handler is slow, and meanwhile is stored
    what was done before. 3. The process dies: the message before the slow one comes again, and its effects are
    there once."""
    clocks = Clocks()
    book = make_in_memory(FREE, clocks=clocks, commit_s=1.0, quantum=100, page_bytes=40)
    book.book._session.reach = 256  # pyright: ignore[reportPrivateUsage] - as after fast handlers

    def handle(message: BookMessage, context: Context) -> None:
        context.put("last", message.payload[:1])
        note(message, context)
        if message.payload[:1] == b"2":
            clocks.advance(2)
            book.book.relieve()
            book.book.crash()

    book.always = handle
    book.book.enqueue_many("A", [b"1" * 30, b"2" * 30])
    book.book.enqueue("B", b"b")
    with pytest.raises(Death):
        book.svc()
    again = make_in_memory(FREE, clocks=clocks, commit_s=1.0, quantum=100, page_bytes=40)
    again.always = note
    for _ in range(3):
        again.svc()
    assert sorted(appended(again.store, "out")) == [b"1" * 30, b"2" * 30, b"b"]


def test_what_took_long_is_committed_before_more_is_begun(make_in_memory: Make) -> None:
    """B-85: each handler takes half of ``commit_s``; the second one fills a commit."""
    clocks = Clocks()
    book = make_in_memory(FREE, clocks=clocks, commit_s=1.0, quantum=100)
    stored: list[int] = []

    def takes_long(message: BookMessage, context: Context) -> None:
        stored.append(len(appended(book.store, "out")) if stored else 0)
        note(message, context)
        clocks.advance(0.5)

    book.always = takes_long
    book.put(A="1 2 3 4 5", B="6")
    book.svc()
    assert stored == [0, 0, 2, 2, 4, 5]  # behind the fifth its queue is empty


@pytest.mark.parametrize("listens", [False, True])
def test_what_no_handler_was_called_for_is_not_done(make_in_memory: Make, listens: bool) -> None:
    """B-56, BI-11: 1. Six messages are planned for one visit. 2. Handlers take long, so the visit ends behind two.
    3. The others are called for later, also where somebody listens to events."""
    clocks = Clocks()
    book = make_in_memory(FREE, clocks=clocks, commit_s=1.0, quantum=100, listen=listens)
    book.always = lambda _message, _context: clocks.advance(0.6)
    book.book.enqueue_many("A", [b"1", b"2", b"3", b"4", b"5", b"6"])
    while book.ring():
        book.svc()
    assert book.took() == "1 2 3 4 5 6"
    assert len(book.told(Processed)) == 6 * listens


def test_a_commit_has_time_before_a_process_is_taken_for_dead() -> None:
    """The settings say so, and a short lease has a short default."""
    with pytest.raises(
        ConfigurationError, match=r"commit_s=2.0 is not below a third of lease_s=5.0"
    ):
        BookConfig(commit_s=2.0, lease_s=5.0)
    assert BookConfig(lease_s=2.0).commit_us == 500_000
    with pytest.raises(ConfigurationError, match=r"lease_s=0.001 is below 0.05"):
        BookConfig(lease_s=0.001, commit_s=1.0)
    assert BookConfig().commit_us == 1_000_000


# Clocks and claims.


@pytest.mark.parametrize("days", [-1, 1])
def test_wall_clocks_that_jump_end_no_claim_and_hold_up_nobody(make: Make, days: int) -> None:
    """BQ-63, B-91, B-94: in the middle of a handler, and while a message waits for its next attempt."""
    one, two = Clocks(), Clocks()
    first = make(FREE, worker="one", clocks=one, retries=9, retry_min_s=5.0, retry_max_s=5.0)
    second = make(FREE, worker="two", clocks=two, retries=9, retry_min_s=5.0, retry_max_s=5.0)
    first.put(A="a1", B="b1")
    jumps: list[int] = []

    def jump(message: BookMessage, context: Context) -> None:
        if not jumps:
            jumps.append(days)
            for clocks in (one, two):
                clocks.wall += days * DAY_S * 1_000_000
            second.svc()
        note(message, context)

    first.always = jump
    second.always = note
    first.svc()
    assert sorted([*first.took().split(), *second.took().split()]) == ["a1", "b1"]
    assert sorted(appended(first.store, "out")) == [b"a1", b"b1"]

    def fails(_message: BookMessage, _context: Context) -> None:
        raise ValueError("no")

    first.always = fails
    first.put(A="a2")
    first.svc()
    second.svc()
    assert (first.took(), second.took()) == ("a2", "")
    two.wall += days * DAY_S * 1_000_000
    second.svc()
    assert (
        second.took() == "a2"
    )  # it waits no longer than its own length, nor for a clock to come back


def test_no_handler_begins_while_others_may_hold_the_process_for_dead() -> None:
    """B-92: 1. A claim is stored. 2. Its answer takes longer than two thirds of a lease; then the store is silent.
    3. No handler begins. 4. When it answers again, everybody hears of the process first, and it goes on."""
    clocks = Clocks()

    class Late(Silent):
        is_armed = False
        is_silent = False

        def append(self, *given: Any) -> Any:
            if self.is_silent:
                return Unavailable("nobody answers")
            answer = self.store.append(*given)
            if self.is_armed:
                clocks.advance(21)
                self.is_silent = True
                self.is_armed = False
            return answer

    store = Late()
    book = BookUnderTest(cast("Store", store), FREE, clocks=clocks, quantum=100)
    book.always = note
    book.put(A="1 2 3")
    store.is_armed = True
    with pytest.raises(StoreUnavailable):
        book.book.service()
    assert book.took() == ""
    store.is_silent = False
    book.svc()
    assert book.took() == "1 2 3"
    assert appended(store.store, "out") == [b"1", b"2", b"3"]


def test_what_is_claimed_behind_a_slow_handler_is_given_back(make: Make) -> None:
    """B-85: the host looks while the handler runs; what was handled before it is stored, what is behind it is
    served by another process, and the handler's own message is its own."""
    clocks = Clocks()
    first = make(FREE, worker="one", clocks=clocks, commit_s=1.0)
    second = make(FREE, worker="two", clocks=clocks, commit_s=1.0)
    first.book._session.reach = 256  # pyright: ignore[reportPrivateUsage] - as after fast handlers
    first.put(A="a1", B="slow", C="c1", D="d1")
    seen: list[object] = []

    def handle(message: BookMessage, context: Context) -> None:
        note(message, context)
        if message.payload == b"slow":
            first.book.relieve()
            seen.append(second.svc())
            clocks.advance(2)
            first.book.relieve()
            seen.append(appended(first.store, "out"))
            second.svc()

    first.always, second.always = handle, note
    first.svc()
    assert seen == [0, [b"a1"]]
    assert (first.took(), second.took()) == ("a1 slow", "c1 d1")
    assert sorted(appended(first.store, "out")) == [b"a1", b"c1", b"d1", b"slow"]
    first.check()


# Stores that lost something.


def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages leave the memory as soon as they are stored."""
    monkeypatch.setattr("surepipe.queues.book.checkpoint.CACHE_BYTES", 0)


KEPT = changed_config(
    page_bytes=64, policy="drr", quantum=2, checkpoint_bytes=1 << 10, suspend_pages=None, resume_pages=None,
    refuse_pages=None,
)  # fmt: skip


@pytest.mark.parametrize("how", ["gone", "another"])
def test_a_page_that_is_gone_stops_its_queue_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """BQ-65, B-95: it is named with its numbers, never skipped, and found again when it is back."""
    small_pages(monkeypatch)
    book = make(KEPT, listen=False)
    for number in range(60):
        book.book.enqueue("AB"[number % 2], b"%08d" % number)
    ledger = book.book.ledger
    damaged = ledger.books["A"].pages[1]
    assert not damaged.is_loaded
    key = b"1.1.0"
    table = "b/heaps"
    found = book.store.read_keys(table, [key])
    assert isinstance(found, FoundValues)
    before = found.values[0] or b""
    assert before
    if how == "gone":
        others_write(book.store, DropValues(table, [key]))
    else:
        others_write(book.store, PutValues(table, {key: b"\xff" * len(before)}))
    for _ in range(12):
        book.svc()
    took = book.took().split()
    assert [word for word in took if int(word) % 2] == [f"{n:08}" for n in range(1, 60, 2)]
    even = [word for word in took if not int(word) % 2]
    assert even == [f"{n:08}" for n in range(0, 2 * damaged.number - 2, 2)]
    assert (
        f"messages {damaged.number}..{damaged.number + damaged.slots - 1}" in book.book.stalled["A"]
    )
    others_write(book.store, PutValues(table, {key: before}))
    book.clocks.advance(31)
    while book.ring():
        book.svc()
    assert book.took().split() == [f"{n:08}" for n in range(2 * damaged.number - 2, 60, 2)]
    assert book.book.stalled == {}


def others_write(store: Store, request: DropValues | PutValues) -> None:
    """What somebody else does to the store; values go together with some position."""
    known = store.get("elsewhere", "else")
    place = known.next + 1 if isinstance(known, Position) else 1
    assert isinstance(
        store.together(CommitPosition("elsewhere", "else", 1, place, 0), request), AllDone
    )


def test_a_store_that_is_emptied_is_told_by_every_call(make: Make, any_bench: Any) -> None:
    """BQ-65: whoever enqueues or serves hears of it; nothing of the old book is handled, and no old address finds
    a message of the book that is made in its place."""
    book = make(FREE)
    book.put(A="weight=500 a")
    book.svc()
    (parked,) = book.book.parked()
    any_bench.delete("b/log")
    for call in (lambda: book.book.enqueue("A", b"x"), book.book.service, book.book.totals):
        with pytest.raises(StoreReset):
            call()
    assert book.took() == "a"
    others_write(any_bench.store, DropValues("b/head", [b"head"]))
    anew = make(FREE, worker="anew")
    anew.put(A="weight=500 a")
    anew.svc()
    with pytest.raises(MisuseError, match="of another book or store"):
        anew.book.payload(parked.address)


def test_a_store_that_went_back_is_told_and_old_addresses_find_nothing_else() -> None:
    """BQ-65, B-41: an older copy is put back; what comes in the place of another message has another address."""
    store = MemoryStore()
    book = BookUnderTest(store, FREE)
    book.put(A="first")
    copy = store.snapshot()
    book.put(A="weight=500")
    book.svc()
    (parked,) = book.book.parked()
    store.roll_back(copy)
    with pytest.raises(StoreReset):
        book.book.enqueue("A", b"x")
    anew = BookUnderTest(store, FREE, worker="anew")
    anew.put(A="weight=501")
    anew.svc()
    assert anew.book.payload(parked.address) is None
    assert anew.book.parked()[0].address != parked.address


def test_a_served_book_tells_once_what_was_lost_with_its_store() -> None:
    """BQ-65, B-95: each of its workers finds it; how much waited stands in the notice and in the error's log."""
    store, notices, told = MemoryStore(), list[Any](), threading.Event()
    empty = store.snapshot()

    def notice(one: Any) -> None:
        notices.append(one)
        told.set()

    book = ServedBook("b", store=store, processor=note, workers=3, notices=notice, start=False)
    book.enqueue_many("A", [b"1", b"2"])
    store.roll_back(empty)
    with book:
        book.start()
        assert told.wait(WITHIN_S)
    assert [one.kind for one in notices] == [NoticeKind.RESET]
    assert "2 messages waited" in notices[0].detail
    assert isinstance(book.failure, StoreReset)


# Calls without an answer.


class Silent:
    """A store that answers nothing while it is told so; what is asked of it is done or not."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.is_silent: bool = False
        self.does_it = False
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if name not in {"append", "read", "ask", "open_producer"} or not self.is_silent:
            return found

        def silent(*arguments: Any, **options: Any) -> Unavailable:
            self.asked.append(name)
            if self.does_it:
                found(*arguments, **options)
            return Unavailable("nobody answers")

        return silent


@pytest.mark.parametrize("does_it", [False, True])
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_call_without_an_answer_goes_on_under_its_numbers(does_it: bool, meanwhile: bool) -> None:
    """B-96: ``again`` stores it once, whether it was stored or not, and whatever was enqueued meanwhile."""
    silent = Silent()
    book = BookUnderTest(cast("Store", silent), FREE)
    book.put(A="before")
    silent.is_silent, silent.does_it = True, does_it
    with pytest.raises(EnqueueUnknown, match=r"error.again\(\)") as caught:
        book.book.enqueue("A", b"1")
    with pytest.raises(EnqueueUnknown):
        caught.value.again()
    silent.is_silent = False
    if meanwhile:
        book.put(A="other")
    first = caught.value.again()
    assert isinstance(first, Accepted)
    assert caught.value.again() == first
    book.svc()
    assert sorted(book.took().split()) == sorted(["1", "before", *["other"] * meanwhile])


def test_a_call_that_was_not_begun_is_begun_by_again() -> None:
    """B-96: the one before it has no answer either, and is settled first."""
    silent = Silent()
    book = BookUnderTest(cast("Store", silent), FREE)
    silent.is_silent = True
    with pytest.raises(EnqueueUnknown):
        book.book.enqueue("A", b"1")
    with pytest.raises(EnqueueUnknown) as caught:
        book.book.enqueue("A", b"2")
    silent.is_silent = False
    caught.value.again()
    book.svc()
    assert book.took() == "1 2"


class Hanging(MemoryStore):
    """A store that hangs for one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.leave = threading.Event(), Gate()

    def __getattribute__(self, name: str) -> Any:
        if name in {"read", "read_keys"} and threading.current_thread().name == "listing":
            self.hangs.set()
            self.leave.wait()
        return super().__getattribute__(name)


@pytest.mark.parametrize("what", ["totals", "parked", "footprint"])
def test_a_listing_that_hangs_holds_up_nobody(what: str) -> None:
    """B-96: the store does not answer the listing, and messages are enqueued, served and committed meanwhile."""
    store = Hanging()
    found: list[object] = []
    with store.leave, ServedBook("b", store=store, processor=note) as book:
        listing: Any = getattr(book, what)
        given = ["A"] if what == "footprint" else []
        thread = threading.Thread(target=lambda: found.append(listing(*given)), name="listing")
        thread.start()
        assert store.hangs.wait(WITHIN_S)
        book.enqueue("A", b"1")
        assert book.wait_until_idle(WITHIN_S)
        store.leave.set()
        thread.join(WITHIN_S)
    assert len(found) == 1
    assert appended(store, "out") == [b"1"]


# Handlers that take too long.


def test_an_attempt_that_takes_too_long_has_failed() -> None:
    """B-98: another queue is served meanwhile, its own is not; its late outcome counts for nothing."""
    leave, standing, other = Gate(), threading.Event(), threading.Event()
    calls: list[bytes] = []

    def handle(message: BookMessage, context: Context) -> None:
        calls.append(message.payload)
        if message.payload == b"slow" and len(calls) == 1:
            standing.set()
            leave.wait()
            context.append("out", b"too late")
        if message.payload == b"other":
            other.set()
        context.append("out", message.payload)

    config = BookConfig(retries=3, retry_min_s=0.001, retry_max_s=0.001, period_s=0.01)
    store = MemoryStore()
    with (
        leave,
        ServedBook("b", store=store, processor=handle, config=config, time_limit_s=0.02) as book,
    ):
        book.enqueue_many("A", [b"slow", b"behind"])
        assert standing.wait(WITHIN_S)
        book.enqueue("B", b"other")
        assert other.wait(WITHIN_S)
        assert calls == [b"slow", b"other"]
        (late,) = [each for each in book.leases() if each.is_late]
        assert (late.origin, late.number, late.attempt) == ("A", 1, 1)
        leave.set()
        assert book.wait_until_idle(WITHIN_S)
        assert book.leases() == []
        assert book.parked() == []
    assert appended(store, "out") == [b"other", b"slow", b"behind"]
    check_invariants(book)


def test_a_message_that_always_takes_too_long_is_given_up() -> None:
    """B-98: after its attempts, and only when its handler has returned."""
    calls: list[bytes] = []
    gates: list[Gate] = []

    def handle(message: BookMessage, context: Context) -> None:
        calls.append(message.payload)
        if message.payload == b"slow":
            gates.append(over.enter_context(Gate()))
            gates[-1].wait()
        else:
            note(message, context)

    config = BookConfig(retries=2, retry_min_s=0.001, retry_max_s=0.001, period_s=0.01)
    store, told = MemoryStore(), threading.Event()
    with (
        ExitStack() as over,
        ServedBook("b", store=store, processor=handle, config=config, time_limit_s=0.01) as book,
    ):
        book.subscribe(lambda event: told.set() if type(event).__name__ == "Failed" else None)
        book.enqueue_many("A", [b"slow", b"behind"])
        for attempt in range(2):
            assert told.wait(WITHIN_S)
            told.clear()
            gates[attempt].set()
        assert book.wait_until_idle(WITHIN_S)
        (parked,) = book.parked()
        assert (parked.reason.value, parked.attempts) == ("poison", 2)
    assert appended(store, "out") == [b"behind"]
    assert calls == [b"slow", b"slow", b"behind"]


def test_a_coroutine_and_an_exit_within_the_limit_are_what_they_are() -> None:
    """B-98: the limit changes nothing for what keeps it."""
    store = MemoryStore()

    async def handle(message: BookMessage, context: Context) -> None:
        if message.payload == b"exits":
            raise SystemExit
        context.append("out", message.payload)

    config = BookConfig(retries=1)
    with ServedBook(
        "b", store=store, processor=handle, config=config, time_limit_s=WITHIN_S
    ) as book:
        book.enqueue_many("A", [b"1", b"exits", b"2"])
        assert book.wait_until_idle(WITHIN_S)
        assert [each.reason.value for each in book.parked()] == ["poison"]
    assert appended(store, "out") == [b"1", b"2"]
    with pytest.raises(MisuseError, match="give seconds above 0"):
        ServedBook("b", store=store, processor=handle, time_limit_s=0)


def test_a_queue_that_waits_for_its_page_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-95: as a notice, once; what others hold is served."""
    small_pages(monkeypatch)
    store, notices, told = MemoryStore(), list[Any](), threading.Event()

    def notice(one: Any) -> None:
        notices.append(one)
        told.set()

    with ServedBook(
        "b", store=store, processor=note, config=KEPT, notices=notice, start=False
    ) as book:
        for number in range(60):
            book.enqueue("AB"[number % 2], b"%08d" % number)
        others_write(store, DropValues("b/heaps", [b"1.1.0"]))
        book.start()
        assert told.wait(WITHIN_S)
        while book.footprint("B").messages:
            store.wait("b/log", book.ledger.index + 1, 100_000)
        assert book.failure is None
        book.close()
    assert [one.kind for one in notices] == [NoticeKind.STALLED]
    assert "queue 'A'" in notices[0].detail


# Full queues.


def test_whoever_enqueues_may_wait_for_room() -> None:
    """B-99: until the service makes some, or until the time is over."""
    leave, standing = Gate(), threading.Event()

    def handle(_message: BookMessage, _context: Context) -> None:
        standing.set()
        leave.wait()

    config = BookConfig(page_bytes=16, refuse_pages=2, suspend_pages=None, resume_pages=None)
    answers: list[object] = []
    with leave, ServedBook("b", store=MemoryStore(), processor=handle, config=config) as book:
        book.enqueue_many("A", [b"0123456789"] * 2)
        assert standing.wait(WITHIN_S)
        with pytest.raises(EnqueueRefused, match="wait_s"):
            book.enqueue("A", b"3")
        assert isinstance(book.enqueue("A", b"3", refused="return", wait_s=0.01), Refused)
        thread = threading.Thread(
            target=lambda: answers.append(book.enqueue("A", b"3", wait_s=WITHIN_S))
        )
        thread.start()
        leave.set()
        thread.join(WITHIN_S)
        assert isinstance(answers[0], Accepted)
        assert book.wait_until_idle(WITHIN_S)
        assert book.totals()["done"] == 3


def test_a_queue_is_idle_from_when_it_was_emptied(make: Make) -> None:
    """B-4: it was made long before; its messages go on counting, until it was empty for all of the time."""
    book = make(BookConfig(idle_ttl_s=100))
    book.put(A="a b")
    book.svc(1)
    book.clocks.advance(200)
    book.svc()
    book.put(A="c", B="x")
    book.svc()
    assert book.book.ledger.books["A"].next_number == 4
    book.clocks.advance(101)
    book.put(B="y")
    book.svc()
    assert "A" not in book.book.ledger.books
