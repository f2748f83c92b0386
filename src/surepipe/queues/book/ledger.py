"""What a book is: the queues, their pages, the ring and the totals, as the entries of the log make them.

``Ledger.apply`` takes one entry after the other and has no other input, so all processes that read one log hold
equal books. A claim is the first entry that asks for a free queue, a refusal is an entry that came when the
queue was full, and who is too late for something finds that in the answer to its own entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from surepipe.core.records import record
from surepipe.queues.book.answers import RefusedBecause, Why
from surepipe.queues.book.changes import (
    Beat,
    Change,
    Checkpoint,
    Commit,
    End,
    Enqueue,
    Entry,
    Facts,
    Founded,
    Gone,
    Items,
    Settle,
    Spend,
    Take,
    VisitDone,
)
from surepipe.queues.book.config import NOTHING, BookConfig, Vector
from surepipe.queues.book.events import (
    NO_FOOTPRINT,
    BookEvent,
    Flow,
    Footprint,
    PageReaped,
    QueueChanged,
    Signal,
)
from surepipe.queues.book.page import HEADER, HEADER_BYTES, Page, fitting
from surepipe.queues.book.ring import Ring

SHARED = (
    "page_bytes", "max_stale_pages", "suspend_pages", "resume_pages", "refuse_pages", "max_origins",
    "commit_messages", "retries",
)  # fmt: skip
"""Settings that decide what an entry does: all processes of a book must have the same."""
CLOSING = frozenset({End.DEFICIT, End.LATER, End.BLOCKED})
"""A visit that ends so closes the turn of its queue."""
LATE_PERIODS = 8
"""Whose clock, or whose answer of the store, is so many periods behind shares the budget of the present one."""
DELETED_AT_ONCE = 100
"""Idle books that go in one commit."""


@record
class Lease:
    """A claim: who visits the queue, the number of the claim, and the last slot that was handed out.

    ``counted``: the attempt at the message was stored with the claim. ``spent``: it had no attempt left.
    """

    worker: str
    token: int
    upto: tuple[int, int]
    counted: bool = False
    spent: bool = False


def is_ahead(wake: tuple[int, int], wall: int) -> bool:
    """Whether a wait of this begin and length is not over yet."""
    return wake[0] <= wall < wake[0] + wake[1]


class Book:
    """One queue (B-1): its pages and everything that is known of it beside them."""

    __slots__ = (
        "attempts", "begin", "blocked", "bytes", "careful", "deficit", "end", "generation", "idle_since", "lease",
        "messages", "next_number", "origin", "pages", "parked", "paused", "suspended", "sweeping", "turn_open",
        "turned", "waiting", "wake", "weight",
    )  # fmt: skip

    def __init__(self, origin: str, generation: int) -> None:
        self.origin = origin
        self.generation = generation
        self.begin = 0
        self.end = 0
        self.pages: dict[int, Page] = {}
        self.parked: dict[tuple[int, int], Facts] = {}
        self.messages = 0
        self.bytes = 0
        self.waiting = 0
        """Messages at or behind the cursor."""
        self.weight = 1
        self.paused = False
        self.suspended = False
        self.deficit = 0
        self.turn_open = False
        self.turned = 0
        """The entry with which its last visit was committed, as far as this process has seen one."""
        self.blocked: Facts | None = None
        self.attempts = 0
        self.wake: tuple[int, int] | None = None
        self.careful: tuple[int, int] | None = None
        """Up to this slot messages are handed out one by one: somebody died over one of them."""
        self.lease: Lease | None = None
        self.sweeping = False
        self.next_number = 1
        self.idle_since = 0

    @property
    def is_ready(self) -> bool:
        """Whether there is a message to be served."""
        return self.begin < self.end

    @property
    def cursor(self) -> tuple[int, int, int]:
        """Page, slot and byte of the next message."""
        page = self.pages.get(self.begin)
        return (self.begin, page.first_index, page.first) if page else (self.begin, 0, 0)

    @property
    def footprint(self) -> Footprint:
        """How much it holds."""
        return Footprint(
            len(self.pages),
            self.end - self.begin,
            self.messages,
            self.bytes,
            self.messages - self.waiting,
        )

    def is_waiting(self, wall: int) -> bool:
        """Whether its next attempt is still to come; a clock that was set back ends the wait (B-94)."""
        return self.wake is not None and is_ahead(self.wake, wall)


@record
class Place:
    """A message: its book, page and slot."""

    origin: str
    generation: int
    page: int
    slot: int


@record
class Placed:
    """An enqueue was done."""

    count: int
    first: Place | None
    last: Place | None
    duplicates: int
    suspended: bool
    numbers: tuple[tuple[str, int, int, int], ...] = ()
    """Of a sure one: origin, generation, number of the first message, and how many."""


@record
class NotPlaced:
    """An enqueue was refused; nothing changed but the end of the log."""

    reason: RefusedBecause
    origin: str
    footprint: Footprint
    expected: int = 0


@record
class Applied:
    """A commit was done: where the service goes on (None: nowhere), the tokens of the queues that were claimed,
    and the visited queues that other entries had taken from the writer."""

    position: str | None
    granted: dict[str, int]
    lost: tuple[str, ...] = ()


class Ledger:
    """All queues of one book."""

    def __init__(self, config: BookConfig) -> None:
        self.config = config
        self.index = 0
        """The last entry that was applied."""
        self.books: dict[str, Book] = {}
        self.ring = Ring()
        self.generations: dict[int, str] = {}
        self.last_generation = 0
        self.totals: dict[str, int] = dict.fromkeys(
            (
                "enqueued",
                "done",
                "rejected",
                "discarded",
                "reaped",
                "requeued",
                "dead_lettered",
                "queued",
            ),
            0,
        )
        self.producers: dict[str, tuple[int, int]] = {}
        self.taken: dict[tuple[int, int, int], str] = {}
        self.leased: dict[str, set[str]] = {}
        """Worker to the queues that it has claimed."""
        self.idle: dict[str, int] = {}
        """Empty books with default settings, the longest empty one first."""
        self.founded: dict[str, int | None] | None = None
        self.checkpoint = 0
        self.period: tuple[int, Vector] = (0, NOTHING)
        """The number of the last period that something was spent of, and what."""
        # What the next checkpoint has to write, each with the entry that changed it last.
        self.dirty: dict[str, int] = {}
        self.dirty_pages: dict[tuple[str, int], int] = {}
        self.dirty_producers: dict[str, int] = {}
        self.gone_books: dict[str, int] = {}
        self.gone_pages: dict[tuple[int, int, int], int] = {}
        """Stored pieces (generation, page, offset) of pages that are gone."""
        self.listening = False
        self.events: list[BookEvent] = []

    # Entries.

    def apply(self, writer: str, index: int, entry: Entry) -> object:
        """Do what the entry says and return what its writer wants to know."""
        self.index = index
        done = self._apply(writer, index, entry)
        changed = self.ring.changed
        if changed:
            self.dirty.update(dict.fromkeys(changed, index))
            changed.clear()
        return done

    def reset(self) -> None:
        """Know nothing any more. It is the same object with the same ring, as a service that is under way holds
        them; and what is to be told to listeners is kept."""
        kept = {"listening": self.listening, "events": self.events, "ring": self.ring}
        self.ring.restore({}, None)
        self.ring.changed.clear()
        vars(self).update({**vars(Ledger(self.config)), **kept})

    def _apply(  # noqa: PLR0911 - one line per entry
        self, writer: str, index: int, entry: Entry
    ) -> object:
        match entry:
            case Enqueue():
                return self._enqueue(entry)
            case Commit():
                return self._commit(writer, index, entry)
            case Change():
                return self._change(entry)
            case Take(_, generation, page, slot):
                return self._take(writer, generation, page, slot)
            case Settle():
                return self._settle(writer, entry)
            case Gone(_, worker, _, through):
                return self._forget(worker, through or index)
            case Founded(_, settings):
                self.founded = self.founded or dict(settings)
                return self.founded
            case Checkpoint():
                return self._stored(entry)
            case Spend():
                return self._spend(entry)
            case Beat():
                return index

    def footprint(self, origin: str) -> Footprint:
        """How much a queue holds; nothing for one that is not known."""
        book = self.books.get(origin)
        return book.footprint if book else NO_FOOTPRINT

    def _tell(self, event: BookEvent) -> None:
        if self.listening:
            self.events.append(event)

    def _changed(self, book: Book) -> None:
        if self.listening:
            self.events.append(QueueChanged(book.origin, book.footprint))

    def _spend(self, entry: Spend) -> tuple[int, Vector]:
        """As much of what is asked for as the period has left, and the period that it is taken from, to which it
        may be given back.

        1. A process looks at the clock, and waits for its store. 2. Others spend this period, and two more. 3. Its
        entry comes. It must not begin a period again that is over, with all of its budget, nor let the next one
        who writes do that to the present one. A clock that was set back for good begins another.
        """
        number, spent = self.period
        if entry.is_return and entry.period != number:
            return number, NOTHING  # of a period that is over
        if not self.is_present(entry.period):
            number, spent = entry.period, NOTHING
        granted: list[int] = []
        for part, used, most in zip(entry.amount, spent, entry.most, strict=True):
            granted.append(
                -part
                if entry.is_return
                else part
                if most is None
                else max(0, min(part, most - used))
            )
        one, two, three, four = (
            max(0, used + part) for used, part in zip(spent, granted, strict=True)
        )
        self.period = (number, (one, two, three, four))
        return number, (granted[0], granted[1], granted[2], granted[3])

    def is_present(self, period: int) -> bool:
        """Whether what is asked for in this period comes out of the budget of the one that was begun last."""
        return 0 <= self.period[0] - period <= LATE_PERIODS

    # Enqueueing.

    def _enqueue(self, entry: Enqueue) -> Placed | NotPlaced:
        items, duplicates, last = entry.items, 0, 0
        if entry.producer:
            epoch, last = self.producers.get(entry.producer, (entry.epoch, entry.base - 1))
            if entry.epoch < epoch:
                return self._refused(RefusedBecause.FENCED, items, epoch)
            if entry.epoch > epoch:
                last = 0
            if entry.first > last + 1:
                return self._refused(RefusedBecause.GAP, items, last + 1)
            count = sum(item.count for item in items)
            duplicates = min(count, last + 1 - entry.first)
            items = _without(items, duplicates)
        refused = self._refusal(items)
        if refused and not entry.is_sure:
            return refused
        if entry.producer:
            through = max(last, entry.first + duplicates + sum(item.count for item in items) - 1)
            self.producers[entry.producer] = (entry.epoch, through)
            self.dirty_producers[entry.producer] = self.index
        if not entry.is_sure:
            return self._place(items, duplicates, entry.at)
        placed = self._place(items, duplicates, entry.at)
        return replace(placed, numbers=tuple(self._numbers(items)))

    def _numbers(self, items: tuple[Items, ...]) -> Iterator[tuple[str, int, int, int]]:
        """What the messages that were just placed are called; each origin is there once."""
        for item in items:
            book = self.books[item.origin]
            yield item.origin, book.generation, book.next_number - item.count, item.count

    def _refused(
        self, why: RefusedBecause, items: tuple[Items, ...], expected: int = 0
    ) -> NotPlaced:
        origin = items[0].origin if items else ""
        return NotPlaced(why, origin, self.footprint(origin), expected)

    def _refusal(self, items: tuple[Items, ...]) -> NotPlaced | None:
        full = self.full(items)
        if full is not None or len(self.books) + len(items) <= self.config.max_origins:
            return full
        new = {item.origin for item in items if item.origin not in self.books}
        missing = len(self.books) + len(new) - self.config.max_origins
        if new and missing > 0:
            # A book that only waits for the end of its idle time makes room for one that has messages.
            leaving = [
                origin for origin in self.idle if origin not in {item.origin for item in items}
            ]
            if len(leaving) < missing:
                return self._refused(
                    RefusedBecause.ORIGINS, tuple(item for item in items if item.origin in new)
                )
            for origin in leaving[:missing]:
                self._delete(origin)
        return None

    def without_room(self, items: tuple[Items, ...]) -> NotPlaced | None:
        """The refusal of an enqueue as things stand; nothing is changed."""
        new = {item.origin for item in items if item.origin not in self.books}
        spare = sum(item.origin in self.idle for item in items)
        missing = len(self.books) + len(new) - self.config.max_origins
        if new and missing > len(self.idle) - spare:
            return self._refused(
                RefusedBecause.ORIGINS, tuple(item for item in items if item.origin in new)
            )
        return self.full(items)

    def full(self, items: tuple[Items, ...]) -> NotPlaced | None:
        """The refusal of an enqueue for lack of room, as things stand."""
        refuse = self.config.refuse_pages
        for item in items if refuse is not None else ():
            book = self.books.get(item.origin)
            if book is not None and refuse is not None and book.end - book.begin >= refuse:
                return self._refused(RefusedBecause.FULL, (item,))
        return None

    def _place(self, items: tuple[Items, ...], duplicates: int, at: int) -> Placed:
        first: Place | None = None
        book: Book | None = None
        count, known, index = 0, self.books, self.index
        touched: dict[str, Book] = {}
        for item in items:
            origin = item.origin
            book = known.get(origin)
            if book is None or not book.messages:  # an empty one may wait for the end of its time
                book = self._book(origin, at)
            touched[origin] = book
            size = len(item.chunk)
            number = book.end - 1
            tail = book.pages[number] if book.begin <= number else None
            if tail is not None and tail.size + size <= tail.page_bytes:
                # It fits into the last page, as nearly always.
                added, slot = item.count, tail.slots
                self.dirty_pages[origin, number] = index
                tail.heap += item.chunk
                tail.size += size
                tail.slots += added
                book.messages += added
                book.waiting += added
                book.bytes += size - HEADER_BYTES * added
                book.next_number += added
            else:
                was_ready = tail is not None
                number, slot = self._append(book, item)
                if not was_ready:
                    self.ring.knit(origin)
            if first is None:
                first = Place(origin, book.generation, number, slot)
            count += item.count
        last: Place | None = None
        if book is not None:
            page = book.end - 1
            last = Place(book.origin, book.generation, page, book.pages[page].slots - 1)
        self.totals["enqueued"] += count
        self.totals["queued"] += count
        suspended = False
        self.dirty.update(dict.fromkeys(touched, index))
        has_thresholds = self.config.suspend_pages is not None
        if has_thresholds or self.listening:
            for book in touched.values():
                if has_thresholds:
                    self._signal(book)
                if self.listening:
                    self._changed(book)
                suspended = suspended or book.suspended
        return Placed(count, first, last, duplicates, suspended)

    def _book(self, origin: str, at: int) -> Book:
        book = self.books.get(origin)
        if book is None:
            self.last_generation += 1
            book = self.books[origin] = Book(origin, self.last_generation)
            book.idle_since = at
            self.generations[book.generation] = origin
            self.gone_books.pop(origin, None)
        self.idle.pop(origin, None)
        return book

    def _append(self, book: Book, item: Items) -> tuple[int, int]:
        """Next fit (B-9): into the last page of the window, else into a new one. Where the first one is."""
        chunk, all_of_it = item.chunk, item.count
        start, left = 0, all_of_it
        begun: tuple[int, int] | None = None
        while left:
            number = book.end - 1
            page = book.pages[number] if book.begin <= number else None
            if page is None:
                count, behind = 0, start
            elif page.size + len(chunk) - start <= page.page_bytes:
                count, behind = left, len(chunk)
            else:
                count, behind = fitting(chunk, start, page.page_bytes - page.size)
            if page is not None:  # one that is left now is stored whole
                self.dirty_pages[book.origin, number] = self.index
            if count == 0 or page is None:
                begins_with = book.next_number + all_of_it - left
                book.pages[book.end] = Page(self.config.page_bytes, begins_with)
                book.end += 1
                continue
            begun = begun or (number, page.slots)
            page.append_packed(chunk[start:behind] if count < all_of_it else chunk, count)
            start, left = behind, left - count
        book.messages += all_of_it
        book.waiting += all_of_it
        book.bytes += len(chunk) - HEADER_BYTES * all_of_it
        book.next_number += all_of_it
        assert begun is not None, "somebody enqueued nothing"
        return begun

    def _signal(self, book: Book) -> None:
        """The number of ready pages may have crossed a threshold (B-49)."""
        suspend, resume = self.config.suspend_pages, self.config.resume_pages
        if suspend is None or resume is None:
            return
        ready = book.end - book.begin
        if not book.suspended and ready >= suspend:
            book.suspended = True
            self._tell(Signal(book.origin, Flow.SUSPEND))
        elif book.suspended and ready <= resume:
            book.suspended = False
            self._tell(Signal(book.origin, Flow.RESUME))

    # Service.

    def _commit(self, writer: str, index: int, entry: Commit) -> Applied:
        if entry.bump:
            self.ring.bump()
        position: str | None = None
        lost: list[str] = []
        for visit in entry.visits:
            book = self.books.get(visit.origin)
            if book is None or not self._holds(writer, book, visit.token):
                lost.append(visit.origin)
                continue
            position = self._visited(writer, book, visit, entry.at)
        for origin in entry.released:
            book = self.books.get(origin)
            if book is not None and book.lease is not None and book.lease.worker == writer:
                book.attempts -= book.lease.counted  # its handler did not run
                self._release(book, writer)
        for origin, amount in entry.credits:
            book = self.books.get(origin)
            if book is not None and book.is_ready:
                book.deficit += amount
                self.dirty[origin] = index
        if entry.head:
            self.ring.force(entry.head)
        granted = {origin: index for origin in entry.claims if self._claim(writer, index, origin)}
        self._delete_idle(entry.at)
        return Applied(position, granted, tuple(lost))

    def _holds(self, writer: str, book: Book, token: int) -> bool:
        return book.lease is not None and book.lease.worker == writer and book.lease.token == token

    def _visited(self, writer: str, book: Book, visit: VisitDone, at: int) -> str | None:
        """Apply a visit; returns the queue behind it, as the ring is before this one moves or leaves."""
        self.dirty[book.origin] = self.index
        # What handlers enqueued comes before the cursor moves: so it does not matter how many messages a commit
        # covers, a queue that fills itself never looks empty in between.
        if visit.staged:
            self._place(visit.staged, 0, at)
        before = book.messages
        self._pass(book, visit)
        processed = before - book.messages
        self.totals["rejected"] += visit.rejected
        self.totals["dead_lettered"] += visit.dead
        self.totals["done"] += processed - visit.rejected
        book.deficit, book.turn_open = visit.deficit, visit.turn_open
        book.turned = self.index
        book.attempts, book.wake, book.blocked = visit.attempts, visit.wake, visit.blocked
        if book.careful is not None and book.cursor[:2] > book.careful:
            book.careful = None
        following = self.ring.after(book.origin)
        if book.begin >= book.end:
            self._leave_ring(book, at)
        elif visit.end in CLOSING and self.config.policy == "drr":
            self.ring.to_tail(book.origin)
        self._release(book, writer)
        self.events += visit.events if self.listening else ()
        if processed:
            self._changed(book)
        self._signal(book)
        return following

    def _pass(self, book: Book, visit: VisitDone) -> None:
        """Move the cursor, with what it left behind."""
        parks: dict[int, list[tuple[int, Facts]]] = {}
        for number, slot, facts in visit.parks:
            parks.setdefault(number, []).append((slot, facts))
        passed = size = kept = kept_bytes = 0
        for number in range(book.begin, min(visit.begin, book.end - 1) + 1):
            page = book.pages[number]
            for slot, facts in parks.get(number, ()):
                page.park(slot, facts.bytes)
                book.parked[number, slot] = facts
                kept, kept_bytes = kept + 1, kept_bytes + facts.bytes
            is_left = number < visit.begin
            slot, offset = (page.slots, page.size) if is_left else (visit.slot, visit.offset)
            passed += slot - page.first_index
            size += offset - page.first
            page.first_index, page.first = slot, offset
            self.dirty_pages[book.origin, number] = self.index
        # Nothing ahead of a cursor is processed yet (BI-7), so what was passed and not parked is processed now.
        book.waiting -= passed
        book.messages -= passed - kept
        book.bytes -= size - HEADER_BYTES * passed - kept_bytes
        self.totals["queued"] -= passed
        self._leave_pages(book)

    def _account(self, book: Book, page: Page, messages: int, size: int, ahead: int) -> None:
        """The page had so many messages, bytes and slots ahead before it changed."""
        book.messages += page.remaining - messages
        book.bytes += page.remaining_bytes - size
        in_window = page.slots - page.first_index - ahead
        book.waiting += in_window
        self.totals["queued"] += in_window

    def _leave_pages(self, book: Book) -> None:
        """The window begins at the first page that has a message ahead; complete pages go."""
        while (
            book.begin < book.end
            and book.pages[book.begin].first_index == book.pages[book.begin].slots
        ):
            book.begin += 1
            self._drop_if_complete(book, book.begin - 1)

    def _drop_if_complete(self, book: Book, number: int) -> None:
        if not book.pages[number].remaining:
            self._drop_page(book, number)

    def _drop_page(self, book: Book, number: int) -> None:
        page = book.pages.pop(number)
        self.dirty_pages.pop((book.origin, number), None)
        for offset in page.offsets_stored():
            self.gone_pages[book.generation, number, offset] = self.index

    def _leave_ring(self, book: Book, at: int) -> None:
        self.ring.unknit(book.origin)
        book.idle_since = at  # if it is empty; the claim may still be there
        book.deficit, book.turn_open = 0, False
        book.attempts, book.wake, book.blocked = 0, None, None
        self._idle(book, at)

    def _idle(self, book: Book, at: int) -> None:
        if not book.messages and book.weight == 1 and not book.paused and book.lease is None:
            book.idle_since = at
            self.idle.setdefault(book.origin, at)

    def _delete_idle(self, at: int) -> None:
        """Books whose idle time is over go with the next commit of anybody (B-101)."""
        ttl = round(self.config.idle_ttl_s * 1_000_000)
        over: list[str] = []
        for origin, since in self.idle.items():
            if since + ttl > at or len(over) == DELETED_AT_ONCE:
                break
            over.append(origin)
        for origin in over:
            self._delete(origin)

    def _delete(self, origin: str) -> None:
        book = self.books.pop(origin)
        del self.generations[book.generation]
        self.idle.pop(origin, None)
        self.dirty.pop(origin, None)
        self.gone_books[origin] = self.index

    def _claim(self, writer: str, index: int, origin: str) -> bool:
        """The first who asks for a ready queue that nobody has, has it."""
        book = self.books.get(origin)
        if (
            book is None
            or book.lease is not None
            or not book.is_ready
            or book.paused
            or book.blocked
        ):
            return False
        page = book.pages[book.begin]
        if book.careful is None:
            book.lease = Lease(writer, index, self._handed_out(book))
        else:
            # The attempt is stored before the handler runs, so a death over this message is counted.
            spent = book.attempts >= self.config.retries
            book.attempts += not spent
            book.lease = Lease(writer, index, (book.begin, page.first_index), not spent, spent)
        self.leased.setdefault(writer, set()).add(origin)
        self.dirty[origin] = self.index
        return True

    def _handed_out(self, book: Book) -> tuple[int, int]:
        """The last slot that one claim hands out."""
        number, slot, _ = book.cursor
        left = self.config.commit_messages
        while book.pages[number].slots - slot < left and number + 1 < book.end:
            left -= book.pages[number].slots - slot
            number, slot = number + 1, 0
        return number, min(book.pages[number].slots, slot + left) - 1

    def _release(self, book: Book | None, worker: str) -> None:
        if book is None or book.lease is None or book.lease.worker != worker:
            return
        book.lease = None
        self.leased.get(worker, set()).discard(book.origin)
        self.dirty[book.origin] = self.index
        if book.sweeping:
            self._sweep_now(book, book.idle_since)
        elif not book.messages:
            self._idle(book, book.idle_since)

    def _forget(self, worker: str, through: int) -> str:
        """A process is dead: whoever goes on with its queues is careful (B-57).

        1. A process is fenced. 2. It begins anew, and claims a queue. 3. Only now the entry comes that says that
        it is dead. What was claimed behind ``through`` belongs to the later life.
        """
        for origin in sorted(self.leased.get(worker, ())):
            book = self.books[origin]
            lease = book.lease
            assert lease is not None, f"{origin!r} is listed as claimed"
            if lease.token > through:
                continue
            self.leased[worker].discard(origin)
            book.careful = max(book.careful or lease.upto, lease.upto)
            book.lease = None
            self.dirty[origin] = self.index
            if book.sweeping:
                self._sweep_now(book, book.idle_since)
        for place in [place for place, owner in self.taken.items() if owner == worker]:
            del self.taken[place]
        return worker

    # Operators.

    def _change(self, entry: Change) -> object:
        match entry.verb:
            case "pause" | "unpause":
                book = self._settings(entry.origin, entry.at)
                book.paused = entry.verb == "pause"
                self._idle(book, entry.at)
            case "weight":
                book = self._settings(entry.origin, entry.at)
                book.weight = entry.number
                self._idle(book, entry.at)
            case "force":
                return self.ring.force(entry.origin)
            case "sweep":
                self._sweep(entry)
            case _:
                return self._reap(entry.origin, entry.number, dead=entry.dead)
        return entry.verb

    def _settings(self, origin: str, at: int) -> Book:
        book = self._book(origin, at)
        self.dirty[origin] = self.index
        return book

    def _sweep(self, entry: Change) -> None:
        book = self.books.get(entry.origin)
        if book is not None and book.is_ready:
            book.idle_since = entry.at
            book.sweeping = True
            if book.lease is None:
                self._sweep_now(book, entry.at)

    def _sweep_now(self, book: Book, at: int) -> None:
        """All that waits is passed and kept (B-47). A message that is being handled is waited for."""
        book.sweeping = False
        for number in range(book.begin, book.end):
            self.dirty_pages[book.origin, number] = self.index
        self.totals["queued"] -= book.waiting
        book.waiting = 0
        book.begin = book.end
        book.careful = None
        self._leave_ring(book, at)
        self._signal(book)
        self.dirty[book.origin] = self.index

    def eligible(self, book: Book, number: int) -> bool:
        """Whether a stale page may be reaped (B-46)."""
        most = self.config.max_stale_pages
        overflow = len(book.pages) - (book.end - book.begin) - most
        return overflow > 0 and number < book.begin - max(most**2 // overflow, most)

    def reapable(self, origin: str, number: int) -> Why:
        """What reaping this page would be answered."""
        book = self.books.get(origin)
        if book is None:
            return Why.NOT_FOUND
        if number >= book.begin:
            return Why.NOT_REAPABLE
        if number not in book.pages:
            return Why.NOT_FOUND
        if not self.eligible(book, number):
            return Why.NOT_REAPABLE
        return Why.DONE

    def _reap(self, origin: str, number: int, *, dead: bool) -> tuple[Why, int, int]:
        why = self.reapable(origin, number)
        if why is not Why.DONE:
            return why, 0, 0
        book = self.books[origin]
        page = book.pages[number]
        messages, size = page.remaining, page.remaining_bytes
        book.messages -= messages
        book.bytes -= size
        for place in [place for place in book.parked if place[0] == number]:
            del book.parked[place]
        self.taken.pop((book.generation, number, -1), None)
        self._drop_page(book, number)
        self.dirty[origin] = self.index
        self.totals["reaped"] += messages
        self.totals["dead_lettered"] += messages if dead else 0
        self._tell(PageReaped(origin, number, messages, size))
        self._changed(book)
        self._idle(book, book.idle_since)
        return why, messages, size

    # One message by hand.

    def standing(self, generation: int, number: int, slot: int, worker: str = "") -> Why:
        """The checks of B-42 from 4 to 7; DONE means that it may be dealt with. What ``worker`` has reserved and
        not settled, it may reserve again."""
        origin = self.generations.get(generation)
        book = self.books.get(origin) if origin is not None else None
        page = book.pages.get(number) if book is not None else None
        if book is None or page is None:
            # A page that is gone was processed whole, but nobody can tell that from one that never was.
            return Why.NOT_FOUND
        if slot >= page.slots:
            return Why.NOT_FOUND
        blocked = book.blocked is not None and (number, slot) == book.cursor[:2]
        if number >= book.begin and slot >= page.first_index and not blocked:
            return Why.STILL_QUEUED
        if page.is_processed(slot):
            return Why.ALREADY_PROCESSED
        owners = {self.taken.get((generation, number, each)) for each in (slot, -1)}
        if owners - {None, worker}:
            return Why.BUSY
        return Why.DONE

    def _take(self, writer: str, generation: int, number: int, slot: int) -> Why:
        if slot < 0:
            busy = any(
                place[:2] == (generation, number) and (place[2] >= 0 or owner != writer)
                for place, owner in self.taken.items()
            )
            why = Why.BUSY if busy else self.reapable(self.generations.get(generation, ""), number)
        else:
            why = self.standing(generation, number, slot, writer)
        if why is Why.DONE:
            self.taken[generation, number, slot] = writer
        return why

    def _settle(self, writer: str, entry: Settle) -> object:
        place = (entry.generation, entry.page, entry.slot)
        if self.taken.get(place) != writer:
            return Why.BUSY
        del self.taken[place]
        if entry.how == "released":
            return Why.DONE
        book = self.books[self.generations[entry.generation]]
        self.dirty[book.origin] = self.index
        if entry.how == "tried":
            self._note_attempts(book, entry)
            return Why.DONE
        if entry.how == "requeued" and (refused := self._refusal(entry.staged)):
            return refused
        placed = self._place(entry.staged, 0, entry.at) if entry.staged else None
        self._mark(book, entry)
        if entry.how == "requeued":
            self.totals["requeued"] += 1
        else:
            self.totals[entry.how] += 1
        self.totals["dead_lettered"] += entry.dead
        self._changed(book)
        self._signal(book)
        self._idle(book, entry.at)
        return placed or Why.DONE

    def _note_attempts(self, book: Book, entry: Settle) -> None:
        known = book.parked.get((entry.page, entry.slot))
        if known is not None:
            book.parked[entry.page, entry.slot] = _tried(known, entry)
        elif book.blocked is not None and (entry.page, entry.slot) == book.cursor[:2]:
            book.blocked = _tried(book.blocked, entry)

    def _mark(self, book: Book, entry: Settle) -> None:
        """The message is processed, out of turn or as the one that the queue stands still at."""
        page = book.pages[entry.page]
        messages, size, ahead = page.remaining, page.remaining_bytes, page.slots - page.first_index
        self.dirty_pages[book.origin, entry.page] = self.index
        if entry.page >= book.begin and entry.slot == page.first_index:
            page.pass_to(entry.slot + 1, page.first + HEADER_BYTES + entry.length)
            book.blocked, book.attempts, book.wake = None, 0, None
            self._account(book, page, messages, size, ahead)
            self._leave_pages(book)
            if not book.is_ready:
                self._leave_ring(book, entry.at)
            return
        page.settle(entry.slot, entry.length)
        book.parked.pop((entry.page, entry.slot), None)
        book.messages += page.remaining - messages
        book.bytes += page.remaining_bytes - size
        self._drop_if_complete(book, entry.page)

    # Checkpoints.

    def _stored(self, entry: Checkpoint) -> int:
        """All up to an entry is stored, and so much of these pages; what changed since stays to be done."""
        self.checkpoint = max(self.checkpoint, entry.through)
        for changed in (
            *(self.dirty, self.dirty_pages, self.dirty_producers, self.gone_books, self.gone_pages),
        ):
            for name in [name for name, index in changed.items() if index <= entry.through]:
                del changed[name]  # type: ignore[arg-type]
        for generation, number, start, end in entry.pieces:
            origin = self.generations.get(generation)
            page = self.books[origin].pages.get(number) if origin is not None else None
            if page is None:
                self.gone_pages[generation, number, start] = self.index
            else:
                page.stored(start, end)  # pieces that it replaces went with the entry
        return self.checkpoint

    # Listings.

    def parked(self, origin: str | None = None) -> Iterator[tuple[Book, int, int, Facts | None]]:
        """Every message that waits for a person, oldest first per origin; no facts are known of swept ones."""
        books: Iterable[Book] = sorted(self.books.values(), key=lambda book: book.generation)
        if origin is not None:
            books = [self.books[origin]] if origin in self.books else []
        for book in books:
            for number in sorted(book.pages):
                page = book.pages[number]
                if number >= book.begin:
                    for slot in sorted(page.parked):
                        yield book, number, slot, book.parked[number, slot]
                    if number == book.begin and book.blocked is not None:
                        yield book, number, page.first_index, book.blocked
                    continue
                for slot in range(page.slots):
                    if not page.is_processed(slot):
                        yield book, number, slot, book.parked.get((number, slot))


def _tried(known: Facts, entry: Settle) -> Facts:
    return replace(known, attempts=entry.attempts, error=entry.error or known.error)


def _without(items: tuple[Items, ...], skipped: int) -> tuple[Items, ...]:
    """The items without their first messages."""
    left: list[Items] = []
    for item in items:
        if skipped >= item.count:
            skipped -= item.count
            continue
        offset = 0
        for _ in range(skipped):
            offset += HEADER_BYTES + HEADER.unpack_from(item.chunk, offset)[0]
        left.append(replace(item, count=item.count - skipped, chunk=item.chunk[offset:]))
        skipped = 0
    return tuple(left)
