"""What handlers and callers may give a book, and what it says to the rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from surepipe.errors import MisuseError, PayloadTooLarge, PipeClosed
from surepipe.queues.book import (
    BadAddress,
    BookConfig,
    BookMessage,
    BookQueue,
    Budget,
    Context,
    ContextClosed,
    Cost,
    Done,
    EnqueueRefused,
    Rejected,
)
from surepipe.queues.book.events import Failed, Processed
from surepipe.storage import MemoryStore
from tests.kit.book import SMALL, changed_config
from tests.queues.book.conftest import Make


async def coroutine(_message: BookMessage, context: Context) -> Done:
    """A handler that is awaited."""
    context.put("key", b"1")
    return Done()


def bound(_extra: int, _message: BookMessage, _context: Context) -> None:
    """A handler that gets an argument beforehand."""


class HandlerObject:
    """A handler that is an object."""

    async def __call__(self, message: BookMessage, context: Context) -> None:
        """Awaited, too."""


def generator(_message: BookMessage, _context: Context) -> Iterator[None]:
    """Nobody would run this."""
    yield None


def book_of(processor: Any, cost: Any = Cost(), **changes: Any) -> BookQueue:  # noqa: B008 - it never changes
    """A book in memory."""
    return BookQueue.inline(
        "b", store=MemoryStore(), processor=processor, cost=cost, config=changed_config(**changes)
    )


@pytest.mark.parametrize(
    "handler", [coroutine, partial(bound, 1), HandlerObject(), partial(coroutine)]
)
def test_functions_coroutines_and_partials_run(handler: Callable[..., object]) -> None:
    """BQ-67, B-97: each settles its message."""
    book = book_of(handler)
    book.enqueue("A", b"m")
    assert book.service().ran == 1
    assert book.totals()["done"] == 1


def test_generators_and_async_costs_are_refused() -> None:
    """BQ-67: at construction, with the name."""
    for what in (generator, partial(generator)):
        with pytest.raises(MisuseError, match="generator is a generator function"):
            book_of(what)

    async def late(_payload: bytes) -> Cost:
        return Cost()

    with pytest.raises(MisuseError, match="late is a coroutine function"):
        book_of(coroutine, late)
    with pytest.raises(MisuseError, match="processor is 3"):
        book_of(3)
    with pytest.raises(MisuseError, match="cost is 3"):
        book_of(coroutine, 3)


@pytest.mark.parametrize("answer", [True, "x", Cost(), Done, generator(None, None)])  # type: ignore[arg-type]
def test_any_other_answer_is_a_failed_attempt(answer: object) -> None:
    """BQ-67: nothing is settled unseen, and the event names the function."""
    told: list[object] = []

    def strange(_message: BookMessage, _context: Context) -> object:
        return answer

    book = book_of(strange, retries=2)
    book.subscribe(told.append)
    book.enqueue("A", b"m")
    book.service()
    (failed,) = [event for event in told if isinstance(event, Failed)]
    assert "strange returned" in failed.detail
    assert book.footprint("A").messages == 1
    assert book.totals()["done"] == 0


@pytest.mark.parametrize("given", [ValueError("no"), -1, 1, None])
def test_a_cost_that_is_none_is_a_failed_attempt(given: object) -> None:
    """BQ-67: it raises, or gives no Cost."""

    def price(_payload: bytes) -> Cost:
        if isinstance(given, Exception):
            raise given
        if given == -1:
            return Cost(-1)
        return given  # type: ignore[return-value]

    told: list[object] = []
    book = book_of(coroutine, price)
    book.subscribe(told.append)
    book.enqueue("A", b"m")
    assert book.service().ran == 0
    (failed,) = [event for event in told if isinstance(event, Failed)]
    assert failed.detail
    assert book.footprint("A").messages == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interruption_goes_on_to_the_caller(error: type[BaseException]) -> None:
    """What was done before it is committed; the message it came in is not counted, and served again."""
    calls: list[bytes] = []

    def stop(message: BookMessage, _context: Context) -> None:
        calls.append(message.payload)
        if message.payload == b"2" and calls.count(b"2") == 1:
            raise error

    book = book_of(stop, page_bytes=64)
    book.enqueue_many("A", [b"1", b"2", b"3"])
    with pytest.raises(error):
        book.service()
    assert book.totals()["done"] == 1
    assert book.service().ran == 2
    assert calls == [b"1", b"2", b"2", b"3"]
    assert book.ledger.books["A"].attempts == 0


def test_a_context_is_over_with_its_handler() -> None:
    """B-36: what it is told later is refused."""
    kept: list[Context] = []

    def keep(_message: BookMessage, context: Context) -> None:
        kept.append(context)

    book = book_of(keep)
    book.enqueue("A", b"m")
    book.service()
    with pytest.raises(ContextClosed):
        kept[0].enqueue("A", b"late")
    assert book.footprint("A").messages == 0


def test_a_context_takes_so_much_and_no_more() -> None:
    """B-36: above ``max_batch_bytes`` it raises, and that is the handler's failed attempt."""

    def much(_message: BookMessage, context: Context) -> None:
        for _ in range(100):
            context.enqueue("B", b"x" * 30)

    book = book_of(much, max_batch_bytes=200)
    book.enqueue("A", b"m")
    book.service()
    assert (book.footprint("A").messages, book.footprint("B").messages) == (1, 0)


@pytest.mark.parametrize("payload", ["text", bytearray(b"x"), memoryview(b"x"), None, 3])
def test_payloads_are_bytes(payload: Any) -> None:
    """B-99: anything else is refused, before anything changes."""
    book = book_of(coroutine)
    with pytest.raises(MisuseError, match="takes bytes"):
        book.enqueue("A", payload)
    with pytest.raises(MisuseError, match="takes bytes"):
        book.enqueue_batch([("A", b"good"), ("B", payload)])
    assert book.origins() == []


@pytest.mark.parametrize("origin", ["", "x" * 257, "é" * 129, "\ud800", None, 7, b"A"])
def test_origins_are_short_texts(origin: Any) -> None:
    """BQ-70: a lone surrogate, too much, too little, and no text."""
    book = book_of(coroutine)
    for call in (lambda: book.enqueue(origin, b"m"), lambda: book.pause(origin)):
        with pytest.raises(MisuseError):
            call()
    assert book.origins() == []
    book.enqueue("é" * 128, b"m")
    book.enqueue("\x00\n", b"m")
    assert len(book.origins()) == 2


def test_huge_payloads_are_refused_whole() -> None:
    """BQ-70, B-11, B-83: a payload of a mebibyte, and a call above its bound."""
    book = book_of(coroutine)
    with pytest.raises(PayloadTooLarge, match="at most 35"):
        book.enqueue("A", bytes(1 << 20))
    small = book_of(coroutine, max_batch_bytes=100)
    with pytest.raises(PayloadTooLarge, match="max_batch_bytes=100"):
        small.enqueue_many("A", [b"x" * 30] * 4)
    assert book.origins() == small.origins() == []


def test_an_ignored_refusal_raises() -> None:
    """BQ-68, B-99: on a full queue."""
    book = book_of(coroutine, refuse_pages=1, suspend_pages=None, resume_pages=None)
    book.enqueue("A", b"x" * 35)
    with pytest.raises(EnqueueRefused, match="refuse_pages") as raised:
        book.enqueue("A", b"m")
    assert raised.value.refused.footprint.ready_pages == 1
    assert book.totals()["enqueued"] == 1


def test_more_origins_than_allowed_are_refused() -> None:
    """B-101: the longest empty one goes first; only when there is none is a new one refused."""
    book = book_of(coroutine, max_origins=2)
    book.enqueue("A", b"m")
    book.enqueue("B", b"m")
    with pytest.raises(EnqueueRefused, match="max_origins"):
        book.enqueue("C", b"m")
    book.service()
    book.enqueue("C", b"m")
    assert book.origins() == ["B", "C"]


def test_addresses_are_good_for_one_message() -> None:
    """B-41, B-3, BI-20: damaged and foreign tokens raise; one of a later generation is another."""
    book, other = book_of(coroutine), book_of(coroutine)
    answer = book.enqueue("A", b"weight=500")
    token = getattr(answer, "first")  # noqa: B009 - Accepted or Refused
    with pytest.raises(BadAddress):
        other.execute(token)
    for place in range(len(token)):
        damaged = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises(BadAddress):
            book.payload(damaged)
    for text in ("", "x", "é", token + "=", token[:-1]):
        with pytest.raises(BadAddress):
            book.execute(text)


def test_a_listener_that_raises_is_counted() -> None:
    """B-68: the book goes on, and so do the other listeners."""
    told: list[object] = []

    def named(_message: BookMessage, _context: Context) -> Done:
        return Done(id="mine")

    book = book_of(named)

    def broken(_event: object) -> None:
        raise ValueError

    book.subscribe(broken)
    book.subscribe(told.append)
    book.enqueue("A", b"m")
    book.service()
    assert book.listener_failures == len(told) == 3
    (done,) = [event for event in told if isinstance(event, Processed)]
    assert done.id == "mine"


def test_a_closed_book_takes_nothing() -> None:
    """And it can be opened again by its name."""
    with book_of(coroutine) as book:
        book.enqueue("A", b"m")
    for call in (lambda: book.enqueue("A", b"m"), book.service, lambda: book.pause("A")):
        with pytest.raises(PipeClosed):
            call()


def test_rejections_have_four_reasons() -> None:
    """Any other one is the handler's mistake."""
    with pytest.raises(MisuseError, match="BAD_FORMAT"):
        Rejected("bad")


def test_queues_share_by_deficit(make_in_memory: Make) -> None:
    """BQ-32, B-31: random costs, four queues; the most and the least served never differ by more than 35."""
    rng = random.Random(32)
    book = make_in_memory(
        policy="drr", quantum=10, refuse_pages=None, suspend_pages=None, resume_pages=None
    )
    served = dict.fromkeys("ABCD", 0)
    for origin in served:
        book.book.enqueue_many(origin, [b"weight=%d" % rng.randint(1, 25) for _ in range(1_600)])
    for _ in range(300):
        book.book.service(Budget(units=60))
        for origin, payload in book.ran:
            served[origin] += int(payload.removeprefix(b"weight="))
        book.ran.clear()
        assert max(served.values()) - min(served.values()) <= 35
    book.check()


def test_many_queues_are_drained_exactly(make_in_memory: Make) -> None:
    """BQ-41, B-5, BI-12: Pareto counts and sizes, twenty rounds of enqueueing and partial service, then all of
    it."""
    rng = random.Random(41)
    book = make_in_memory(
        changed_config(page_bytes=4_096, refuse_pages=None, suspend_pages=None, resume_pages=None),
        listen=False,
    )
    total = 0
    for _ in range(20):
        batch = [
            (f"o{rng.randrange(400)}", b"x" * min(4_000, int(rng.paretovariate(1) * 10)))
            for _ in range(min(400, int(rng.paretovariate(1) * 100)))
        ]
        total += len(batch)
        book.book.enqueue_batch(batch)
        units = rng.randrange(200)
        waiting = book.book.totals()["queued"]
        assert book.svc(units) == min(units, waiting)
    book.svc()
    assert len(book.ran) == book.book.totals()["done"] == total
    assert (book.ring(), book.book.ledger.totals["queued"]) == ("", 0)
    assert not any(each.pages for each in book.book.ledger.books.values())


def test_what_handlers_enqueue_runs_once(make_in_memory: Make) -> None:
    """BQ-42: up to a thousand messages from one handler."""
    rng = random.Random(42)
    book = make_in_memory(
        changed_config(page_bytes=512, refuse_pages=None, suspend_pages=None, resume_pages=None)
    )
    made = 0

    def spread(message: BookMessage, context: Context) -> None:
        nonlocal made
        if message.payload.startswith(b"seed"):
            for _ in range(rng.randrange(1_000)):
                made += 1
                context.enqueue(f"o{rng.randrange(20)}", b"%d" % made)

    book.always = spread
    for number in range(8):
        book.book.enqueue("seeds", b"seed%d" % number)
    while book.book.ring():
        book.svc(500)
    ran = [payload for _, payload in book.ran if not payload.startswith(b"seed")]
    assert sorted(ran, key=int) == [b"%d" % number for number in range(1, made + 1)]


def test_settings_have_sensible_defaults() -> None:
    """They are valid, and the small ones of these tests are too."""
    assert BookConfig().max_message == 65_531
    assert SMALL.max_message == 35


@pytest.mark.parametrize("is_awaited", [False, True])
def test_no_handler_sees_the_context_of_another_message(*, is_awaited: bool) -> None:
    """Each call finds what is set around it, and what it sets itself is gone with its message."""
    who: ContextVar[str] = ContextVar("who", default="nobody")
    found: list[str] = []

    def note(message: BookMessage, _context: Context) -> None:
        found.append(who.get())
        who.set(message.payload.decode())

    async def note_later(message: BookMessage, context: Context) -> None:
        note(message, context)

    book = book_of(note_later if is_awaited else note)
    for payload in (b"one", b"two"):
        book.enqueue("A", payload)
    while book.service().ran:
        pass
    assert found == ["nobody", "nobody"]
    assert who.get() == "nobody"
