"""Mistakes planted into the book and into the stored queue, and what finds each: the walk through every state.

Those that need two processes at once are found by seeds of the book's simulated world (simulation/test_book).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from surepipe.errors import ContractBroken
from surepipe.pipes.message_queue import RefusalReason
from surepipe.queues.book.changes import Gone, VisitDone
from surepipe.queues.book.ledger import Book, Ledger
from surepipe.queues.book.log import BookLog
from surepipe.queues.book.page import Page
from surepipe.queues.book.ring import Ring
from surepipe.queues.message_queue import Message, StreamQueue, explore
from surepipe.storage import MemoryStore
from tests.kit.book import BookUnderTest
from tests.queues.book import test_book_processes as processes
from tests.queues.book import test_service_rows as rows
from tests.queues.book.conftest import Make
from tests.queues.book.test_book_exhaustive import config_of
from tests.queues.book.test_book_exhaustive import explore as explore_book

# What they replace, of ledgers of production.
_visited: Callable[..., Any] = vars(Ledger)["_visited"]
_pass: Callable[..., Any] = vars(Ledger)["_pass"]
_sweep: Callable[..., Any] = vars(Ledger)["_sweep_now"]
_forget: Callable[..., str] = vars(Ledger)["_forget"]


def loses_staged(ledger: Ledger, writer: str, book: Book, visit: VisitDone, at: int) -> object:
    """What a handler has enqueued is not."""
    return _visited(ledger, writer, book, replace(visit, staged=()), at)


def passes_the_page(ledger: Ledger, book: Book, visit: VisitDone) -> None:
    """The cursor goes to the end of the page: its tail is lost."""
    page = book.pages[min(visit.begin, book.end - 1)]
    _pass(ledger, book, replace(visit, slot=page.slots, offset=page.size))


def counts_swept(ledger: Ledger, book: Book, at: int) -> None:
    """What is swept still counts as queued."""
    queued = ledger.totals["queued"]
    _sweep(ledger, book, at)
    ledger.totals["queued"] = queued


def keeps_the_turn(ledger: Ledger, book: Book, at: int) -> None:
    """A queue that leaves the ring keeps its turn and its deficit."""
    del at
    ledger.ring.unknit(book.origin)
    book.attempts, book.wake, book.blocked = 0, None, None


def forgets(ledger: Ledger, *_: object) -> None:
    """A message that was executed by hand stays parked."""
    del ledger


def settles_nothing(page: Page, slot: int, length: int) -> bool:
    """A page forgets what was processed out of turn."""
    del page, slot, length
    return True


@pytest.mark.parametrize(
    ("where", "name", "change"),
    [
        (Ledger, "_visited", loses_staged),
        (Ledger, "_pass", passes_the_page),
        (Ledger, "_sweep_now", counts_swept),
        (Ledger, "_leave_ring", keeps_the_turn),
        (Ledger, "_mark", forgets),
        (Page, "settle", settles_nothing),
    ],
    ids=["staged-lost", "tail-lost", "sweep-counted", "turn-kept", "by-hand-kept", "settled-lost"],
)
def test_a_mistake_in_a_book_is_found_within_two_steps(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, change: object
) -> None:
    """book BQ-44: from three messages, every schedule of two steps."""
    monkeypatch.setattr(where, name, change)
    with pytest.raises(AssertionError):
        explore_book(config_of("drr"), 3, 2)


def takes_any_token(ledger: Ledger, writer: str, book: Book, token: int) -> bool:
    """A visit counts under any claim, also under one that is over."""
    del ledger, writer, token
    return book.lease is not None


def blames_nobody(ledger: Ledger, worker: str, through: int) -> str:
    """What a process died over is handed out as if nothing had happened."""
    held = {origin: ledger.books[origin].careful for origin in ledger.leased.get(worker, ())}
    done = _forget(ledger, worker, through)
    for origin, careful in held.items():
        ledger.books[origin].careful = careful
    return done


def lets_it_write(log: BookLog, worker: str, wall: int) -> None:
    """The claims of a silent process end, and the store takes from it what comes later."""
    log.write(Gone(wall, worker, log.lives.get(worker, 0) | 1), ())


def keeps_its_place(ring: Ring, origin: str) -> None:
    """A queue whose turn is over stays at the front."""
    del ring, origin


def visits_under_a_claim_that_is_over(make: Make) -> None:
    """The row of a claim that another process has; it needs no store."""
    del make
    processes.test_a_visit_under_a_claim_that_is_over_changes_nothing("of another process")


@pytest.mark.parametrize(
    ("where", "name", "change", "row"),
    [
        (Ledger, "_holds", takes_any_token, visits_under_a_claim_that_is_over),
        (
            *(Ledger, "_forget", blames_nobody),
            processes.test_a_message_that_kills_its_worker_is_given_up,
        ),
        (BookLog, "declare_dead", lets_it_write, processes.test_a_frozen_worker_is_fenced),
        (Ring, "to_tail", keeps_its_place, rows.test_quanta_are_saved_in_few_visits),
    ],
    ids=["any-token", "nobody-blamed", "dead-and-writing", "place-kept"],
)
def test_a_mistake_in_claims_and_turns_is_found_by_its_row(
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    name: str,
    change: object,
    row: Callable[[Make], None],
) -> None:
    """book BQ-31, BQ-37, BQ-38, B-54: what ends well for each message, only under another claim or in another
    order, no balance of messages can show; the row of the rule does."""
    row(partial(BookUnderTest, MemoryStore()))
    monkeypatch.setattr(where, name, change)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        row(partial(BookUnderTest, MemoryStore()))


class DeletesOneMore(StreamQueue[Message]):
    """A confirm deletes the message behind it, too."""

    def delete_all(self, number: int) -> int:
        return super().delete_all(number + (0 <= number < self.high))


class ForgetsItsHeight(StreamQueue[Message]):
    """An empty queue takes numbers again."""

    def _profile_refusal(self, number: int) -> RefusalReason | None:
        return None if self.empty() else super()._profile_refusal(number)


@pytest.mark.parametrize("kind", [DeletesOneMore, ForgetsItsHeight])
def test_a_mistake_in_a_stored_queue_is_found(kind: type[StreamQueue[Message]]) -> None:
    """message-queue Q-20: by the walk through every state of three numbers; the queue without it passes."""
    names = iter(range(10_000))
    store = MemoryStore()

    def make(of: type[StreamQueue[Message]]) -> StreamQueue[Message]:
        return of(store, f"q{next(names)}", capacity=2)

    explore(lambda: make(StreamQueue[Message]), numbers=3)
    with pytest.raises(ContractBroken):
        explore(lambda: make(kind), numbers=3)
