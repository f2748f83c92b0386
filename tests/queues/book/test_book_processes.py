"""Several processes on one book: claims, deaths, repeats, and whoever comes too late."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from surepipe.core.store_requests import (
    Batch,
    Store,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
    Unavailable,
)
from surepipe.errors import ConfigurationError, Fenced, StoreUnavailable
from surepipe.queues.book import (
    Accepted,
    BookConfig,
    BookMessage,
    Budget,
    Context,
    Refused,
    RefusedBecause,
    check_invariants,
)
from surepipe.queues.book.changes import Commit, End, Enqueue, Entry, Gone, Items, VisitDone
from surepipe.queues.book.ledger import Applied, Ledger
from surepipe.queues.book.page import HEADER_BYTES, packed
from surepipe.storage import MemoryStore
from tests.kit.book import BookUnderTest, Clocks, Death
from tests.queues.book.conftest import Make


def appended(store: Store, stream: str) -> list[bytes]:
    """What a stream holds."""
    info = store.info(stream)
    assert isinstance(info, StreamInfo)
    found: list[bytes] = []
    index = info.earliest
    while isinstance(batch := store.read(stream, index, 100, 1 << 20), Batch):
        found += [payload for run in batch.entries for payload in run.payloads]
        index = batch.next
    return found


def note(message: BookMessage, context: Context) -> None:
    """An effect that counts: the payload, in a stream of the store."""
    context.append("out", message.payload)


def test_a_handler_that_always_raises_is_given_up(make: Make) -> None:
    """BQ-34, B-38: three calls with waits between, then it is parked and the rest is served."""
    book = make(retries=3)

    def fails(message: BookMessage, _context: Context) -> None:
        if message.payload == b"bad":
            raise ValueError("no")

    book.always = fails
    book.put(A="bad good")
    for _ in range(12):
        book.svc()
        book.clocks.advance(0.05)
    assert book.took() == "bad bad bad good"
    (one,) = book.book.parked()
    assert (one.reason.value, one.attempts) == ("poison", 3)


def test_two_workers_have_one_queue_each(make: Make) -> None:
    """BQ-35: what one has claimed the other passes; a third gets nothing."""
    first, second, third = (make(worker=name) for name in ("one", "two", "three"))
    first.put(A="a1 a2", B="b1 b2")
    seen: list[tuple[int, int]] = []

    def inside(_message: BookMessage, _context: Context) -> None:
        if not seen:
            seen.append((0, 0))
            served = second.served(1)
            seen.append((served.ran, third.served().ran))

    first.always = inside

    def third_too(_message: BookMessage, _context: Context) -> None:
        seen.append((third.served().ran, 0))

    second.acts[b"b1"] = third_too
    first.svc(1)
    assert first.origins()[0] == "A"
    assert second.origins() == "B"
    assert all(ran == 0 for ran, _ in seen[1:2])
    first.check()


def test_a_dead_worker_repeats_calls_and_no_effects(make: Make) -> None:
    """BQ-36, B-55, B-56: it dies after its handlers, before the commit; the other one goes on when the lease is
    over."""
    clocks = Clocks()
    first, second = (make(worker=name, clocks=clocks) for name in ("one", "two"))
    for book in (first, second):
        book.always = note
    first.put(A="1 2 3 4 5 6")
    calls = 0

    def dies(message: BookMessage, context: Context) -> None:
        nonlocal calls
        calls += 1
        note(message, context)
        if calls == 4:
            first.book.crash()

    first.always = dies
    with pytest.raises(Death):
        first.svc()
    second.svc()
    assert second.took() == ""
    clocks.advance(31)
    while second.ring():
        second.svc()
    assert second.took() == "1 2 3 4 5 6"
    assert appended(first.store, "out") == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_frozen_worker_is_fenced(make: Make) -> None:
    """BQ-37: it comes back after its lease, when the other one has finished."""
    clocks = Clocks()
    first, second = (make(worker=name, clocks=clocks) for name in ("one", "two"))
    second.always = note
    first.put(A="1 2")

    def freezes(message: BookMessage, context: Context) -> None:
        note(message, context)
        if message.payload == b"1":
            second.svc()  # sees the claim
            clocks.advance(31)
            while second.ring():
                second.svc()

    first.always = freezes
    with pytest.raises(Fenced, match="declared dead"):
        first.svc()
    assert second.took() == "1 2"
    assert appended(first.store, "out") == [b"1", b"2"]
    assert second.feet("A") == (0, 0, 0, 0)
    with pytest.raises(Fenced):
        first.book.enqueue("A", b"late")


class Outage(MemoryStore):
    """A store that is silent for a minute when told so: it gives no answer, or a late one."""

    how = ""
    clocks: Clocks

    def ask(self, request: StoreRequest) -> StoreOutcome:
        if self.how == "no answer":
            return Unavailable("silent")
        if self.how == "a late answer":
            self.how = ""
            self.clocks.advance(60)
        return super().ask(request)


@pytest.mark.parametrize("how", ["no answer", "a late answer"])
def test_an_outage_of_the_store_makes_nobody_dead(how: str) -> None:
    """B-91: 1. A store is silent for longer than a lease. 2. The first one that it answers has heard of nobody
    else, as it heard of nobody at all. 3. It would end the claims of all others, and they their service."""
    store, clocks = Outage(), Clocks()
    store.clocks = clocks
    first, second = (BookUnderTest(store, worker=name, clocks=clocks) for name in ("one", "two"))

    def silence(message: BookMessage, _context: Context) -> None:
        if message.payload == b"1":
            second.svc()  # sees the claim
            store.how = how
            if how == "no answer":
                with pytest.raises(StoreUnavailable):
                    second.svc()
                clocks.advance(60)
                store.how = ""
            second.svc()

    first.always = silence
    first.put(A="1 2")
    first.svc()
    first.svc()
    assert (first.took(), second.took()) == ("1 2", "")
    first.check()


@pytest.mark.parametrize("whose", ["of another process", "of its own that is over"])
def test_a_visit_under_a_claim_that_is_over_changes_nothing(whose: str) -> None:
    """B-54, BI-13: 1. A claim is given back, and the queue claimed again. 2. The visit of the first claim is
    written down. 3. It names the queue as lost, and the second one's visit counts."""
    ledger = Ledger(BookConfig())
    second = "two" if whose == "of another process" else "one"
    items = Items("A", 2, packed([b"1", b"2"]))
    ledger.apply("feeder", 1, Enqueue(0, (items,)))
    ledger.apply("one", 2, Commit(0, claims=("A",)))
    ledger.apply("one", 3, Commit(0, released=("A",)))
    ledger.apply(second, 4, Commit(0, claims=("A",)))

    def visit(token: int) -> VisitDone:
        return VisitDone("A", token, 0, 1, HEADER_BYTES + 1, End.BUDGET)

    late = ledger.apply("one", 5, Commit(0, (visit(2),)))
    assert isinstance(late, Applied)
    assert late.lost == ("A",)
    assert ledger.totals["done"] == 0
    check_invariants(ledger)
    counts = ledger.apply(second, 6, Commit(0, (visit(4),)))
    assert isinstance(counts, Applied)
    assert counts.lost == ()
    assert ledger.totals["done"] == 1
    check_invariants(ledger)


def test_a_message_that_kills_its_worker_is_given_up(make: Make) -> None:
    """BQ-38, B-57: three deaths, and its neighbours have their effects once. A named worker is served again at
    once."""
    clocks = Clocks()
    deaths = 0
    book = make(worker="w", clocks=clocks, retries=2)
    book.put(A="0 1 2")
    for _ in range(10):
        book = make(worker="w", clocks=clocks, retries=2)

        def kills(message: BookMessage, context: Context, book: BookUnderTest = book) -> None:
            note(message, context)
            if message.payload == b"1":
                book.book.crash()

        book.always = kills
        try:
            while book.ring():
                book.svc()
            break
        except Death:
            deaths += 1
    assert deaths == 3
    assert [
        (each.reason.value, book.book.payload(each.address)) for each in book.book.parked()
    ] == [("poison", b"1")]
    assert appended(book.store, "out") == [b"0", b"2"]


def test_messages_of_a_producer_are_stored_once(make: Make) -> None:
    """BQ-39, B-14: repeats are skipped, a gap and an older epoch are refused; BI-17."""
    book = make(refuse_pages=None, suspend_pages=None, resume_pages=None)
    assert isinstance(book.feed("p", 1, 1, 10), Accepted)
    again = book.feed("p", 1, 6, 15)
    assert isinstance(again, Accepted)
    assert (again.count, again.duplicates) == (5, 5)
    gap = book.feed("p", 1, 21, 21)
    assert isinstance(gap, Refused)
    assert (gap.reason, gap.expected) == (RefusedBecause.GAP, 16)
    higher = book.feed("p", 2, 1, 3)
    assert isinstance(higher, Accepted)
    assert higher.count == 3
    older = book.feed("p", 1, 16, 16)
    assert isinstance(older, Refused)
    assert older.reason is RefusedBecause.FENCED
    assert book.feet("A")[2] == 18
    repeated = book.feed("p", 2, 1, 3)
    assert isinstance(repeated, Accepted)
    assert (repeated.count, repeated.duplicates) == (0, 3)


def test_a_full_queue_keeps_the_producers_watermark(make: Make) -> None:
    """B-15: What was refused for fullness is not taken for a repeat when it comes again."""
    book = make(page_bytes=16, refuse_pages=2, suspend_pages=None, resume_pages=None)
    assert isinstance(book.feed("p", 1, 1, 4), Accepted)
    full = book.feed("p", 1, 5, 6)
    assert isinstance(full, Refused)
    assert full.reason is RefusedBecause.FULL
    book.svc()
    later = book.feed("p", 1, 5, 6)
    assert isinstance(later, Accepted)
    assert (later.count, later.duplicates) == (2, 0)


def test_a_book_is_the_same_after_it_was_opened_again(make: Make) -> None:
    """B-1: With and without checkpoints: order, parked messages, weights, deficits, addresses."""
    clocks = Clocks()
    for every in (1 << 10, 1 << 30):
        name = f"b{every}"
        book = make(name=name, clocks=clocks, checkpoint_bytes=every, policy="drr", quantum=3)
        book.book.set_weight("B", 2)
        book.put(A="a1 a2 weight=500 a3", B="b1 b2 b3 b4", C="c1")
        book.book.sweep("C")
        book.svc(4)
        book.put(A="a4 a5 a6 a7 a8 a9 a10 a11 a12", D="d1")
        book.book.pause("D")
        listed, ring = book.book.parked(), book.ring()
        before = [(book.feet(origin), origin) for origin in book.book.origins()]
        again = make(name=name, clocks=clocks, checkpoint_bytes=every, policy="drr", quantum=3)
        again.check()
        assert again.ring() == ring
        assert again.book.parked() == listed
        assert [(again.feet(origin), origin) for _, origin in before] == before
        again.book.unpause("D")
        expected = make(name=name, clocks=clocks, checkpoint_bytes=every, policy="drr", quantum=3)
        while expected.ring():
            expected.svc()
        assert sorted(expected.took().split()) == sorted(
            {"a1", "a2", *(f"a{n}" for n in range(3, 13)), "b1", "b2", "b3", "b4", "d1"}
            - set(book.took().split())
        )
        expected.check()


def test_processes_with_other_settings_are_refused(make: Make) -> None:
    """They would not agree on what an entry means."""
    make()
    with pytest.raises(ConfigurationError, match="page_bytes is 40 there and 64 here"):
        make(page_bytes=64)


@pytest.mark.parametrize("every", [1 << 10, 1 << 20])
def test_a_call_that_several_make_at_once_is_kept_apart(
    make: Make, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-58: Three processes enqueue and serve in turn: nothing is lost, nothing is handled twice, all see one
    book. They fall behind each other's checkpoints, and pages leave the memory as soon as they are stored."""
    monkeypatch.setattr("surepipe.queues.book.checkpoint.CACHE_BYTES", 0)
    clocks = Clocks()
    books = [
        make(worker=name, clocks=clocks, policy="drr", quantum=2, checkpoint_bytes=every)
        for name in ("one", "two", "three")
    ]
    for number in range(300):
        books[(number // 40) % 3].put(**{"ABCD"[number % 4]: f"m{number}"})
        if number % 5 == 4:
            books[(number // 40) % 3].svc(3)
    while books[0].ring():
        for book in books:
            book.svc(2)
    took = [word for book in books for word in book.took().split()]
    assert sorted(took) == sorted(f"m{number}" for number in range(300))
    for book in books:
        book.check()
        assert book.book.totals()["done"] == 300


def test_a_queue_that_went_while_a_handler_took_long_is_not_looked_for(make: Make) -> None:
    """B-52, B-101: meanwhile another process serves the next queue, forgets it, and trims the log; the first one
    loads the book anew and goes on with what is there."""
    changes: dict[str, Any] = {"idle_ttl_s": 0, "checkpoint_bytes": 1 << 10, "policy": "drr"}
    one = make(BookConfig(), worker="one", **changes)
    other = make(BookConfig(), worker="other", clocks=one.clocks, **changes)
    one.put(A="a", B="b", C="c")

    def meanwhile(_message: BookMessage, _context: Context) -> None:
        other.served()
        for _ in range(3):
            other.book.enqueue_many("D", [b"d" * 20] * 40)
            while other.served().ran:
                pass

    one.acts[b"a"] = meanwhile
    one.served()
    assert one.ran == [("A", b"a")]
    assert other.ran[:2] == [("B", b"b"), ("C", b"c")]
    assert dict(one.book.totals()) == dict(other.book.totals())
    check_invariants(one.book)


def test_a_claim_that_was_lost_with_its_queue_ends_with_the_process(make: Make) -> None:
    """B-93: 1. A handler stands still. 2. Its process is held for dead; another one serves the queue, forgets it
    and trims the log. 3. A second thread of the first process hears of that. 4. The handler returns."""
    changes: dict[str, Any] = {"idle_ttl_s": 0, "checkpoint_bytes": 1 << 10, "lease_s": 30}
    one = make(BookConfig(), worker="one", **changes)
    other = make(BookConfig(), worker="other", clocks=one.clocks, **changes)
    one.put(A="a a2")

    def meanwhile(_message: BookMessage, _context: Context) -> None:
        other.served()
        one.clocks.advance(31)
        while other.served().ran:
            pass
        for _ in range(3):
            other.book.enqueue_many("D", [b"d" * 20] * 40)
            while other.served().ran:
                pass
        assert "A" not in other.book.ledger.books
        listing = threading.Thread(target=one.book.parked)
        listing.start()
        listing.join()

    one.always = meanwhile
    with pytest.raises(Fenced):
        one.served()
    assert [each for each in other.ran if each[0] == "A"] == [("A", b"a"), ("A", b"a2")]


def test_a_visit_begins_where_the_log_says_after_it_was_trimmed(make: Make) -> None:
    """B-56, BQ-36: 1. A process looks at a queue. 2. It claims the queue, and finds the log trimmed meanwhile: all
    is loaded anew. 3. What others have handled in that queue is not handled again."""
    changes: dict[str, Any] = {"checkpoint_bytes": 1 << 10, "quantum": 1}
    one = make(BookConfig(), worker="one", **changes)
    other = make(BookConfig(), worker="other", clocks=one.clocks, **changes)
    one.put(A="a", B="b1 b2 b3")

    def meanwhile(_message: BookMessage, _context: Context) -> None:
        assert other.served(1).ran == 1
        other.book.enqueue_many("D", [b"d" * 20] * 100)

    one.acts[b"a"] = meanwhile
    one.served(4)
    assert other.ran == [("B", b"b1")]
    assert [payload for origin, payload in one.ran if origin == "B"][:1] == [b"b2"]


def test_a_dead_process_of_which_nothing_was_heard_is_told_from_its_claims(make: Make) -> None:
    """B-91: 1. A process claims a queue and dies. 2. Another one writes a checkpoint, which has the claim, and
    trims the log, which has all that was ever heard of the dead one. 3. A third one begins behind that."""
    one = make(BookConfig(), worker="one", checkpoint_bytes=1 << 10)
    one.put(A="a")
    one.always = lambda _message, _context: one.book.crash()
    with pytest.raises(Death):
        one.served()
    other = make(BookConfig(), worker="other", clocks=one.clocks, checkpoint_bytes=1 << 10)
    other.book.enqueue_many("D", [b"d" * 20] * 100)
    other.book.close()
    third = make(BookConfig(), worker="third", clocks=one.clocks, checkpoint_bytes=1 << 10)
    for _ in range(5):
        third.served()
        third.clocks.advance(31)
    assert ("A", b"a") in third.ran


def test_a_process_that_began_anew_is_not_taken_for_the_one_before(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-93: 1. A process dies over a queue. 2. Another one fences it. 3. It begins anew and claims the queue. 4.
    Only now the other one says that it is dead: that ends no claim of the later life."""
    one = make(BookConfig(), worker="one")
    one.put(A="a")
    one.always = lambda _message, _context: one.book.crash()
    with pytest.raises(Death):
        one.served()
    other = make(BookConfig(), worker="other", clocks=one.clocks)
    other.always = note
    other.served()
    one.clocks.advance(31)
    log = other.book._log  # pyright: ignore[reportPrivateUsage] - the moment is between two of its writes
    write, again = log.write, list[BookUnderTest]()

    def late(entry: Entry, effects: tuple[()]) -> object:
        if not isinstance(entry, Gone):
            return write(entry, effects)
        again.append(make(BookConfig(), worker="one", clocks=one.clocks))
        told: list[object] = []

        def meanwhile(message: BookMessage, context: Context) -> None:
            told.append(write(entry, effects))
            note(message, context)

        again[0].always = meanwhile
        again[0].served()
        return told[0]

    monkeypatch.setattr(log, "write", late)
    other.served()
    assert again[0].ran == [("A", b"a")]
    assert appended(one.store, "out") == [b"a"]
    assert other.ran == []
    assert not again[0].book.ring()


def test_who_executes_by_hand_and_was_held_for_dead_changes_nothing(make: Make) -> None:
    """B-43, B-93: meanwhile another process has executed the message and forgotten its queue."""
    changes: dict[str, Any] = {"idle_ttl_s": 0, "checkpoint_bytes": 1 << 10}
    one = make(BookConfig(), worker="one", max_message_cost=Budget(units=5), **changes)
    other = make(
        BookConfig(), worker="other", clocks=one.clocks, max_message_cost=Budget(units=5), **changes
    )
    one.put(A="weight=9")
    one.served()
    (parked,) = one.book.parked()

    def meanwhile(_message: BookMessage, _context: Context) -> None:
        other.served()
        one.clocks.advance(31)
        other.served()
        other.always = note
        assert other.book.execute(parked.address).ok
        other.book.enqueue_many("D", [b"d" * 20] * 100)
        other.served()
        listing = threading.Thread(target=one.book.parked)
        listing.start()
        listing.join()

    one.always = meanwhile
    with pytest.raises(Fenced):
        one.book.execute(parked.address)
    assert appended(one.store, "out").count(b"weight=9") == 1
