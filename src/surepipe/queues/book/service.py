"""How a book is served: whose turn it is, what fits the budget, what comes of each message.

``Worker.service`` and the operations by hand are generators. They yield what their host is to do, one thing at a
time, and get its result: ``RunMessages`` (call the handler), ``WriteEntry`` (add a change to the log, with what
belongs to it) and ``LoadPages``. There is no clock, no store and no thread in here.

A slice is what is served between two commits. The queues of a slice are claimed with the commit of the one
before, each is visited once in it, and a slice ends when a handler has enqueued something. So at the end of each
slice the book is as if every visit had been committed by itself. Several workers share their slices: a commit of
any of them takes along what all have ended, in that order, so no queue waits for the handler of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast
from zlib import crc32

from surepipe.core.effects import Notice, NoticeKind
from surepipe.core.machine import Randomness
from surepipe.core.records import record
from surepipe.core.timing import backoff
from surepipe.queues.book.addresses import Addresses
from surepipe.queues.book.answers import (
    DONE,
    ERROR_SHOWN,
    REJECTIONS,
    AnyOutcome,
    Done,
    Later,
    Raised,
    Rejected,
    Serviced,
    Stopped,
    TooHeavy,
)
from surepipe.queues.book.changes import Commit, End, Entry, Facts, Items, VisitDone
from surepipe.queues.book.config import (
    BYTES,
    MESSAGES,
    MICROS,
    NOTHING,
    UNITS,
    BookConfig,
    Budget,
    Cost,
    CostOf,
    Meter,
    Vector,
    cost_of,
    micros,
)
from surepipe.queues.book.events import BookEvent, Failed, Parked, Processed, Reason
from surepipe.queues.book.ledger import Applied, Book, Ledger, is_ahead
from surepipe.queues.book.page import HEADER_BYTES

PLACES = 256
"""How far a claim looks along the ring."""
READ_AHEAD = 32
"""Messages that are taken out of a page at once where each has its own cost."""
JITTER = 0.2
WARN_AFTER = 5
"""Attempts after which a message that fails is told of, as in pipes; or the last one, where there are fewer."""


# What a host is asked to do.


@record
class Put:
    """``ctx.put``."""

    key: str
    value: bytes


@record
class Append:
    """``ctx.append``."""

    stream: str
    payload: bytes


@record
class DeadMessage:
    """A message that goes to the dead letters."""

    origin: str
    generation: int
    page: int
    slot: int
    number: int
    payload: bytes
    attempts: int
    at: int
    address: str
    kind: str
    text: str
    traceback: str = ""


Effect: TypeAlias = Put | Append | DeadMessage


@record
class Handled:
    """The outcome of one message, with what its handler has staged."""

    outcome: AnyOutcome
    enqueued: tuple[Items, ...] = ()
    effects: tuple[Effect, ...] = ()


@record
class RunMessages:
    """Handle these messages in order; stop behind the first whose outcome is not Done.

    Stop as well before one whose declared microseconds don't fit into what is left of ``left_us``; the first one
    runs in any case.
    """

    origin: str
    generation: int
    page: int
    slot: int
    attempts: int
    payloads: Sequence[bytes]
    declared_us: Sequence[int]
    left_us: int | None
    number: int = 0
    """Of the first one, counting the arrivals of its queue."""


@record
class Ran:
    """The outcomes of the messages that ran, ``DONE`` itself where there is nothing else to say, and how long it
    took. ``is_late``: the handler of the last one has not returned yet, and nobody waits for it any more."""

    handled: Sequence[Done | Handled]
    elapsed_us: int
    is_late: bool = False


@record
class WriteEntry:
    """Add the entry to the log and these effects to the store, all or nothing; the result is what it did."""

    entry: Entry
    effects: tuple[Effect, ...] = ()


@record
class LoadPages:
    """Bring back the bytes of these pages of a queue. The result is True when they are here, False when they are
    gone, and None when the store does not answer."""

    origin: str
    pages: tuple[int, ...]


Request: TypeAlias = RunMessages | WriteEntry | LoadPages


@dataclass
class Session:
    """What all workers of one process share."""

    name: str
    ledger: Ledger
    config: BookConfig
    cost: CostOf
    addresses: Addresses
    rng: Randomness
    wall: int = 0
    """Wall-clock microseconds, told by the host before each step."""
    active: set[str] = field(default_factory=set[str])
    """Queues that a worker of this process has claimed and not given back."""
    workers: list[Worker] = field(default_factory=lambda: cast("list[Worker]", []))
    """Those that are in a call."""
    ended: dict[str, Ended] = field(default_factory=lambda: cast("dict[str, Ended]", {}))
    """Visits that go with the next commit of any worker, in the order in which they ended."""
    heavy: dict[tuple[int, int, int], Vector] = field(
        default_factory=dict[tuple[int, int, int], Vector]
    )
    """What handlers have said of single messages with TooHeavy."""
    reach: int = 1
    """How many queues a claim takes: twice as many as the slice before has finished, so a worker that is slow
    takes no queues from others."""
    stopping: bool = False
    late: set[str] = field(default_factory=set[str])
    """Queues that a handler is at for which nobody waits any more: they stay claimed until it returns."""
    reserved: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])
    """Messages that somebody in this process deals with by hand now."""
    visits: int = 0
    notice: Callable[[Notice], object] | None = None
    """Is told once of each message whose handler keeps failing."""
    passed: Callable[[Passed], object] | None = None
    """Hears of each message that no handler will see any more, in the order of its queue, before it is stored."""
    left: Callable[[str], object] | None = None
    """Hears of each queue of which a call that failed had claimed or handled something: that is served again."""

    def is_left(self, origin: str) -> bool:
        """Whether a visit of this queue has ended, and another one may follow as soon as that is committed."""
        ended = self.ended.get(origin)
        if ended is None or ended.visit.blocked is not None:
            return False
        book, visit = self.ledger.books.get(origin), ended.visit
        waits = visit.wake is not None and is_ahead(visit.wake, self.wall)
        if book is None or book.paused or waits:
            return False
        page = book.pages.get(visit.begin)
        return visit.begin + 1 < book.end or (page is not None and visit.slot < page.slots)

    def is_withheld(self) -> bool:
        """Whether workers that stand in handlers have what others could serve."""
        return any(map(self.is_left, self.ended)) or any(one.unbegun for one in self.workers)


@record
class Passed:
    """A message that the service leaves behind unhandled. ``kept``: it waits for a person."""

    origin: str
    generation: int
    number: int
    why: str
    kept: bool


@record
class Ended:
    """A visit that is to be committed, with what goes into the same write."""

    worker: Worker
    visit: VisitDone
    effects: tuple[Effect, ...]


@dataclass(slots=True)
class _Visit:
    """A visit that is under way: the cursor, and what to write down of it."""

    book: Book
    begin: int
    slot: int
    offset: int
    attempts: int
    deficit: int
    turn_open: bool
    ran: int = 0
    charged: int = -1
    """The page that was paid for."""
    parks: list[tuple[int, int, Facts]] = field(default_factory=list[tuple[int, int, Facts]])
    parked: int = 0
    rejected: int = 0
    dead: int = 0
    wake: tuple[int, int] | None = None
    blocked: Facts | None = None
    staged: list[Items] = field(default_factory=list[Items])
    effects: list[Effect] = field(default_factory=list[Effect])
    events: list[BookEvent] = field(default_factory=list[BookEvent])
    short: tuple[int, Vector] = (0, NOTHING)
    """At the end for lack of deficit: the charge and the cost of the message at the cursor."""
    moved: bool = False
    """Whether a message was passed."""
    applied: Applied | None = None
    """What the commit did, where the visit is committed already."""

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.book.generation, self.begin, self.slot)

    def step(self, size: int) -> None:
        """Go on behind a message of this size."""
        self.slot += 1
        self.offset += HEADER_BYTES + size
        self.attempts = 0
        self.moved = True

    def done(self, token: int, end: End) -> VisitDone:
        """The visit, or the part of it since the last commit, as it is written down."""
        if end in (End.LATER, End.BLOCKED):
            self.deficit = 0
        is_open = end not in (End.DEFICIT, End.LATER, End.BLOCKED)
        record = VisitDone(
            self.book.origin,
            token,
            self.begin,
            self.slot,
            self.offset,
            end,
            tuple(self.parks),
            self.rejected,
            self.dead,
            self.deficit,
            self.turn_open and is_open,
            self.attempts,
            self.wake,
            self.blocked,
            tuple(self.staged),
            tuple(self.events),
        )
        self.parks, self.staged, self.events, self.effects = [], [], [], []
        self.rejected = self.dead = 0
        return record


Steps: TypeAlias = Generator[Request, object, None]


class Worker:
    """Serves queues one after the other. Several workers of a process share a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ledger = session.ledger
        self._config = session.config
        self._is_drr = session.config.policy == "drr"
        self._commit_messages = session.config.commit_messages
        self._commit_us = session.config.commit_us or (1 << 62)
        self._fair = {"units": UNITS, "messages": MESSAGES, "bytes": BYTES}[session.config.fair_by]
        cost = session.cost
        self._constant = cost if isinstance(cost, Cost) else None
        self._plain: Vector | None = None
        """What each message of this call costs, where none of them can be overweight."""
        self._visit_now: _Visit | None = None
        self.entered = 0
        """The entry that was the last one when its handler was called;"""
        self._taken: list[str] = []
        """What another worker had claimed and not begun: given back, or claimed, with the next commit."""
        self._count_ended = 0
        """Visits of this worker since its last commit."""
        self._held: dict[str, int] = {}
        self._slots = 0
        self._elapsed_us = 0
        """Of handlers since the last commit."""
        self._bump = False
        self._in_request = set[str]()
        """Queues of the last commit; when it failed they are claimed, or not."""
        self._credits: tuple[tuple[str, int], ...] = ()
        """Deficit that queues get with the next commit."""

    # The call.

    def service(  # noqa: PLR0912, PLR0915 - one call, told in its order
        self, budget: Budget | None = None
    ) -> Generator[Request, object, Serviced]:
        """One call (B-25). ``budget`` None: as many messages as are waiting now."""
        ring, over, session = self._ledger.ring, self._config.overheads, self._session
        session.workers.append(self)
        limits = budget.limits() if budget else (self._ledger.totals["queued"], None, None, None)
        meter = Meter(limits)
        units = limits[UNITS]
        if units is not None and units < over.of_one:
            return Serviced(NOTHING, 0, 0, 0, Stopped.TOO_SMALL)
        if ring.head is None:
            return Serviced(NOTHING, 0, 0, 0, Stopped.EMPTY)
        meter.take_units(over.bump)
        cut_off = self._config.cut_off(limits)
        self._plain = self._plain_cost(cut_off, limits)
        self._bump = not self._is_drr
        ran = parked = visits = quiet = 0
        ended = set[str]()
        short: dict[str, tuple[int, int, Vector]] = {}
        left_for_budget = ""
        stopped = Stopped.IDLE
        at: str | None = ring.head
        while len(ring):
            at = at if at is not None and at in ring else ring.head
            if session.stopping:
                stopped = Stopped.STOPPING
                break
            if not meter.take_units(over.visit):
                stopped = Stopped.BUDGET
                break
            visits += 1
            at = self._owed(at)
            book = self._ledger.books[at]
            visit, end = None, None
            if self._can_move(book) and at not in ended:
                if meter.is_out_of(self._constant):
                    end = End.BUDGET  # nothing can run, so there is nothing to claim
                elif (yield from self._hold(at, meter)):
                    # To claim it the log is read, and where that was trimmed all is loaded anew: the book too.
                    book = self._ledger.books[at]
                    visit, end = yield from self._visit(book, meter, cut_off)
                    ran, parked = ran + visit.ran, parked + visit.parked
            if visit is not None and (visit.moved or visit.ran or end is End.EMPTY):
                quiet = 0
                short.clear()
            else:
                quiet += 1
            if end is End.DEFICIT and visit is not None:
                charge, cost = visit.short
                short[at] = (self._rounds(book, charge - visit.deficit), charge, cost)
            elif end in (End.LATER, End.BLOCKED):
                ended.add(at)
            elif end is End.BUDGET:
                stopped = Stopped.BUDGET
                left_for_budget = left_for_budget or at
                if ran if self._is_drr else meter.is_used_up:
                    break
            if self._is_drr and ran and meter.is_used_up:
                stopped = Stopped.BUDGET
                break
            if visit is not None and visit.applied is not None:
                at = visit.applied.position
            else:
                following = ring.after(at)
                if self._is_due(at, following):
                    at = yield from self._behind(at, meter, was_visited=visit is not None)
                else:
                    at = following
            if len(ring) and quiet >= len(ring):
                left = [
                    origin
                    for origin, each in session.ended.items()
                    if each.worker is not self and origin not in ended and session.is_left(origin)
                ]
                if left and not meter.is_used_up:
                    # Nothing else is free: what others have done of these is stored, and this worker goes on.
                    yield from self._flush(left[: session.reach], forced=True)
                    at, quiet = left[0], 0
                    continue
                self._credits = self._saved(short, meter, ran)
                if not self._credits:
                    break
                yield from self._flush(self._wanted(at, meter))
                quiet = 0
                short.clear()
        yield from self._finish(left_for_budget if self._is_drr else "")
        stopped = stopped if len(ring) else Stopped.EMPTY
        session.visits += visits
        used = meter.used
        return Serviced((used[0], used[1], used[2], used[3]), ran, parked, visits, stopped)

    def _plain_cost(
        self, cut_off: tuple[int | None, ...], limits: tuple[int | None, ...]
    ) -> Vector | None:
        """A constant cost for which no message needs to be looked at by itself."""
        counts_bytes = cut_off[BYTES] is not None or limits[BYTES] is not None
        if self._constant is None or counts_bytes or (self._is_drr and self._fair == BYTES):
            return None
        cost = self._constant.vector(0)
        return None if _is_over(cost, cut_off) else cost

    def _can_move(self, book: Book) -> bool:
        """Whether a visit may do something: what can't move is passed without a request."""
        if not self._is_free(book):
            return False
        if book.lease is None or book.origin in self._held:
            return True
        return book.lease.worker == self._session.name and book.origin not in self._session.active

    def _is_free(self, book: Book) -> bool:
        """Whether nothing but a claim may be in the way of a visit."""
        is_held_up = book.paused or book.blocked is not None or book.is_waiting(self._session.wall)
        return not is_held_up and book.origin not in self._session.late

    @property
    def unbegun(self) -> list[str]:
        """What it has claimed and may only serve when the handler that it stands in has returned."""
        now = self._visit_now
        return [each for each in self._held if now is None or each != now.book.origin]

    def _owed(self, origin: str) -> str:
        """The queue that is served in place of this one, as the other one's turn comes first.

        1. A worker claims some queues, and stands in the handler of the first. 2. Another one serves what is
        free. 3. All that is free has had its turn meanwhile, and would have another one. So it takes what was not
        begun.
        """
        books, session = self._ledger.books, self._session
        turned = books[origin].turned
        for other in session.workers if turned and len(session.workers) > 1 else ():
            if other is self or (origin in self._held and other.entered == self._ledger.index):
                continue  # it has just gone on, and may come to them itself before the next commit
            owed = [
                each
                for each in other.unbegun
                if other._held[each] < turned and each in books and self._is_free(books[each])
            ]
            for each in owed:
                del other._held[each]
            if owed:
                session.active.difference_update(owed)
                self._taken = owed
                return owed[0]
        return origin

    def _rounds(self, book: Book, missing: int) -> int:
        """How many more turns bring so much deficit."""
        return -(-missing // (self._config.quantum * book.weight))

    def _saved(
        self, short: dict[str, tuple[int, int, Vector]], meter: Meter, ran: int
    ) -> tuple[tuple[str, int], ...]:
        """After a round in which nothing moved: the deficit that k further rounds would bring, at once (B-30)."""
        item = self._config.overheads.item
        able = [
            rounds
            for rounds, _, cost in short.values()
            if ran or meter.fits((cost[0], cost[1], cost[2] + item, cost[3]))
        ]
        if not able:
            return ()
        least, quantum, books = min(able), self._config.quantum, self._ledger.books
        return tuple(
            (origin, (min(least, rounds) - 1) * quantum * books[origin].weight)
            for origin, (rounds, _, _) in short.items()
            if origin in books
        )

    # Slices.

    def _hold(self, origin: str, meter: Meter) -> Generator[Request, object, bool]:
        """Whether the queue is claimed by this worker; claims it, with those behind it, when it is not."""
        if origin not in self._held or self._is_full:
            yield from self._flush(self._wanted(origin, meter))
        return origin in self._held

    def _wanted(self, start: str | None, meter: Meter) -> list[str]:
        """The queues that the next slice should have: from ``start`` on, until they make a full commit."""
        messages, units = meter.left(MESSAGES), meter.left(UNITS)
        room = self._config.commit_messages
        room = room if messages is None else min(room, messages)
        if units is not None and self._constant is not None and self._constant.units:
            room = min(room, -(-units // self._constant.units))
        room = max(1, room)
        found: list[str] = []
        ledger, held = self._ledger, self._held
        for places, origin in enumerate(ledger.ring.walk(start)):
            if places >= PLACES or room <= 0 or len(found) >= self._session.reach:
                break
            book = ledger.books[origin]
            if origin in held:
                room -= book.waiting
            elif self._can_move(book) or self._has_ended(origin):
                found.append(origin)
                room -= min(book.waiting, self._config.commit_messages)
        return found

    def _flush(
        self,
        claims: Sequence[str] = (),
        head: str = "",
        released: Sequence[str] = (),
        *,
        forced: bool = False,
    ) -> Generator[Request, object, Applied | None]:
        """Commit what all workers have ended and claim what the next slice needs."""
        session = self._session
        stale = [
            origin
            for origin in claims
            if origin not in session.ended
            and (lease := self._ledger.books[origin].lease) is not None
            and lease.worker == session.name
        ]
        if not (
            forced or self._count_ended or claims or released or head or self._bump or self._credits
        ):
            return None
        if self._count_ended:
            session.reach = min(PLACES, 2 * self._count_ended)
        ended, session.ended = session.ended, {}
        released = (*released, *(each for each in self._taken if each not in claims))
        self._taken = []
        commit = Commit(
            *(
                session.wall,
                tuple([each.visit for each in ended.values()]),
                tuple(claims),
                (*released, *stale),
                self._bump,
                head,
            ),
            self._credits,
        )
        effects = [effect for each in ended.values() for effect in each.effects]
        request = WriteEntry(commit, tuple(effects))
        self._count_ended = self._slots = self._elapsed_us = 0
        self._bump, self._credits = False, ()
        session.active.update(claims)
        self._in_request = {*ended, *released, *claims}
        applied = yield request
        assert isinstance(applied, Applied), "a commit is answered with what it did"
        # From now on another worker of this process may claim what was given back.
        self._in_request = set[str]()
        session.active.difference_update(ended, released, claims)
        session.active.update(applied.granted)
        self._held.update(applied.granted)
        return applied

    def _has_ended(self, origin: str | None) -> bool:
        """Whether this worker has visited the queue since the last commit."""
        ended = self._session.ended.get(origin) if origin is not None else None
        return ended is not None and ended.worker is self

    def _is_due(self, at: str, following: str | None) -> bool:
        """Whether the slice ends here: it is full, a handler has enqueued, or the next queue was in it already."""
        if self._is_full or self._has_ended(following):
            return True
        return self._has_ended(at) and bool(self._session.ended[at].visit.staged)

    def _behind(
        self, origin: str, meter: Meter, *, was_visited: bool
    ) -> Generator[Request, object, str | None]:
        """Commit, and the queue behind this one, as the ring is before this one moves or leaves."""
        following = self._ledger.ring.after(origin)
        claims = [] if meter.is_used_up else self._wanted(following, meter)
        applied = yield from self._flush(claims)
        if was_visited and applied is not None:
            return applied.position
        return self._ledger.ring.after(origin)

    def _finish(self, head: str) -> Steps:
        released = list(self._held)
        self._held.clear()
        yield from self._flush((), head if head != self._ledger.ring.head else "", released)

    @property
    def _is_full(self) -> bool:
        """Whether what is handled makes a commit: by its number, or by the time that it took."""
        return self._slots >= self._commit_messages or self._elapsed_us >= self._commit_us

    def relieve(self, origin: str) -> Steps:
        """While a handler of this queue takes long: commit what is done, and give back what is not begun (B-85).

        The service itself stands at its ``RunMessages`` meanwhile, and finds the slice shorter behind that.
        """
        released = [each for each in self._held if each != origin]
        for each in released:
            del self._held[each]
        if not released and not self._session.ended:
            return
        try:
            yield from self._flush((), released=released, forced=True)
        finally:  # without an answer they may be claimed again: that settles this commit first
            self._session.active.difference_update(self._in_request)

    def put_before(self, key: str) -> bytes | None:
        """What a handler of this slice has put under the key, if that is not on its way to the store yet."""
        visit = self._visit_now
        stages = [each.effects for each in self._session.ended.values() if each.worker is self]
        for effects in reversed([*stages, visit.effects if visit is not None else ()]):
            for effect in reversed(effects):
                if isinstance(effect, Put) and effect.key == key:
                    return effect.value
        return None

    def abandon(self) -> None:
        """The call is over, however it ended: what it still had claimed may be claimed again."""
        session = self._session
        ended = [origin for origin, each in session.ended.items() if each.worker is self]
        for origin in ended:
            del session.ended[origin]
        if session.left is not None:
            for origin in sorted({*self._held, *ended, *self._in_request}):
                session.left(origin)
        session.active.difference_update(self._held, ended, self._in_request)
        if self in session.workers:
            session.workers.remove(self)

    # One visit.

    def _visit(
        self, book: Book, meter: Meter, cut_off: tuple[int | None, ...]
    ) -> Generator[Request, object, tuple[_Visit, End]]:
        """Serve one queue as far as its turn and the budget go. The queue is claimed."""
        visit = _Visit(book, *book.cursor, book.attempts, book.deficit, book.turn_open)
        if self._is_drr and not visit.turn_open:
            visit.deficit += self._config.quantum * book.weight
            visit.turn_open = True
        while True:
            self._visit_now = visit
            end = yield from self._serve(visit, meter, cut_off)
            self._visit_now = None
            self._forget_costs_before(visit)
            token = self._held.pop(book.origin)
            effects = tuple(visit.effects)
            done = visit.done(token, end)
            self._session.ended[book.origin] = Ended(self, done, effects)
            self._count_ended += 1
            goes_on = end is End.CUT or (end is End.EMPTY and bool(done.staged))
            if book.origin in self._session.late:
                # It stays claimed until the handler returns, which is none of this call's business.
                visit.applied = yield from self._flush([book.origin])
                self._held.pop(book.origin, None)
                return visit, end
            if not goes_on:
                return visit, end
            # Too much for one commit, or the handlers have enqueued for this very queue: it goes on behind that.
            applied = yield from self._flush([book.origin])
            if book.origin not in self._held:
                visit.applied = applied
                return visit, end
            # It may be another object, when the log was trimmed meanwhile and the book was loaded anew.
            book = visit.book = self._ledger.books[book.origin]
            visit.begin, visit.slot, visit.offset = book.cursor
            visit.attempts = book.attempts

    def _serve(  # noqa: PLR0911, PLR0912 - each end of a visit, in its order
        self, visit: _Visit, meter: Meter, cut_off: tuple[int | None, ...]
    ) -> Generator[Request, object, End]:
        """Step 4 of a visit, up to the end of the slice."""
        book, over = visit.book, self._config.overheads
        is_careful = book.careful is not None
        is_spent = is_careful and book.lease is not None and book.lease.spent
        if is_spent or (visit.attempts >= self._config.retries and not is_careful):
            return (yield from self._give_up(visit, is_spent=is_spent))
        while True:
            # It may be another object than before, when the book was loaded anew while a handler ran.
            book = visit.book = self._ledger.books[book.origin]
            page = book.pages[visit.begin]
            if visit.slot >= page.slots:
                if visit.begin + 1 >= book.end:
                    # The cursor stays on the last page: what others add to it before the commit is not passed.
                    return End.EMPTY
                visit.begin, visit.slot, visit.offset = visit.begin + 1, 0, 0
                continue
            if visit.charged != visit.begin:
                if not meter.take_units(over.page):
                    return End.BUDGET
                visit.charged = visit.begin
            room = 1 if is_careful else self._config.commit_messages - self._slots
            if room <= 0 or self._is_full:
                return End.CUT
            if visit.offset < page.base and not (yield from self._load(visit)):
                return End.LATER
            most, left_us = min(room, page.slots - visit.slot), meter.left(MICROS)
            payloads, costs, stop = self._plan(visit, meter, cut_off, most)
            if payloads:
                behind = visit.slot + len(payloads)
                self.entered = self._ledger.index
                ran = yield self._request(visit, payloads, costs, left_us)
                assert isinstance(ran, Ran), "messages are answered with what came of them"
                if self._is_lost(visit):
                    return End.LATER
                end = self._outcomes(visit, meter, payloads, costs, ran, counted=is_careful)
                if ran.is_late:
                    self._session.late.add(book.origin)
                    return end or End.LATER
                if self._session.stopping:
                    return end or End.BUDGET
                if end is not None:
                    return end
                if visit.slot != behind:
                    stop = None  # the handler was stopped earlier, so what stands behind is not due yet
            if isinstance(stop, tuple):
                stop = self._stop_at(visit, meter, *stop)
            if stop is not None:
                return stop
            if is_careful:
                return End.CUT

    def _is_lost(self, visit: _Visit) -> bool:
        """Whether the claim is over, so that nothing of the visit counts.

        1. A handler stands still for longer than a lease. 2. Another process holds this one for dead, serves the
        queue, and its pages, or all of it, go. 3. This process hears of that in another thread. 4. The handler
        returns. The commit of the visit will be refused, and until then there is nothing to look into.
        """
        book = self._ledger.books.get(visit.book.origin)
        lease = None if book is None else book.lease
        return lease is None or lease.token != self._held.get(visit.book.origin)

    def _give_up(self, visit: _Visit, *, is_spent: bool) -> Generator[Request, object, End]:
        """The message at the cursor has no attempt left, and no handler is called for it."""
        if not (yield from self._load(visit)):
            return End.LATER
        what = (
            "its worker died"
            if is_spent
            else "its handler did not return in time, or its worker died,"
        )
        raised = Raised("WorkerDied", f"{what} at each of {visit.book.attempts} attempts")
        if is_spent:
            self._tell_poison(visit, raised, visit.attempts)
        self._poison(visit, self._payload(visit), raised, visit.attempts)
        return End.BLOCKED if visit.blocked else End.CUT

    def _load(self, visit: _Visit) -> Generator[Request, object, bool]:
        """Whether the bytes of the page are here. Without them the queue waits, and no other one (B-95)."""
        if visit.offset >= visit.book.pages[visit.begin].base:
            return True
        is_there = yield LoadPages(visit.book.origin, (visit.begin,))
        if not is_there:
            config, lease = self._config, visit.book.lease
            visit.attempts -= lease is not None and lease.counted  # its handler did not run
            wait_s = config.retry_min_s if is_there is None else config.retry_max_s
            visit.wake = (self._session.wall, micros(wait_s))
        return bool(is_there)

    def _payload(self, visit: _Visit) -> bytes:
        return visit.book.pages[visit.begin].upcoming(visit.offset, 1)[0]

    def _request(
        self, visit: _Visit, payloads: list[bytes], costs: list[Vector], left_us: int | None
    ) -> RunMessages:
        """The messages at the cursor, for a handler."""
        book = visit.book
        return RunMessages(
            book.origin,
            book.generation,
            visit.begin,
            visit.slot,
            visit.attempts,
            payloads,
            [cost[MICROS] for cost in costs],
            left_us,
            book.pages[visit.begin].number + visit.slot,
        )

    def _plan(
        self, visit: _Visit, meter: Meter, cut_off: tuple[int | None, ...], most: int
    ) -> tuple[list[bytes], list[Vector], End | tuple[bytes, Vector | Raised] | None]:
        """The messages that may run now, with their costs, which are charged here; and what stands behind them:
        the end of the visit (B-24), or a message that can't run with what is the matter with it."""
        page = visit.book.pages[visit.begin]
        cost = self._plain
        if cost is not None:
            count = self._count(visit, meter, cost, most)
            if count:
                payloads = page.upcoming(visit.offset, count)
                _, _, units, us = cost
                meter.take((1, 0, units + self._config.overheads.item, us), count)
                meter.used[BYTES] += sum(map(len, payloads))
                meter.ran = True
                visit.deficit -= cost[self._fair] * count * self._is_drr
                return payloads, [(1, len(each), units, us) for each in payloads], None
            most = 1
        return self._plan_singly(
            visit, meter, cut_off, page.upcoming(visit.offset, min(most, READ_AHEAD))
        )

    def _count(self, visit: _Visit, meter: Meter, cost: Vector, most: int) -> int:
        """How many messages of one constant cost may run; 0 also where that must be looked at one by one."""
        heavy = self._session.heavy
        if heavy and visit.place in heavy:
            return 0
        charged = (1, 0, cost[UNITS] + self._config.overheads.item, cost[MICROS])
        used = meter.used
        for place, limit in meter.bounds:
            part, left = charged[place], limit - used[place]
            if part:
                most = min(most, left // part)
            elif left < 0:
                return 0
        charge = cost[self._fair]
        if self._is_drr and charge:
            most = min(most, visit.deficit // charge)
        return max(0, most)

    def _plan_singly(
        self, visit: _Visit, meter: Meter, cut_off: tuple[int | None, ...], upcoming: list[bytes]
    ) -> tuple[list[bytes], list[Vector], End | tuple[bytes, Vector | Raised] | None]:
        item = self._config.overheads.item
        payloads: list[bytes] = []
        costs: list[Vector] = []
        generation = visit.book.generation
        for number, payload in enumerate(upcoming):
            if not meter.fits((0, 0, item, 0)):
                return payloads, costs, End.BUDGET
            cost = self._session.heavy.get((generation, visit.begin, visit.slot + number))
            if cost is None:
                try:
                    cost = cost_of(self._session.cost, payload)
                except Exception as error:  # noqa: BLE001 - it is somebody else's function
                    return payloads, costs, (payload, Raised(type(error).__name__, text_of(error)))
            if _is_over(cost, cut_off):
                return payloads, costs, (payload, cost)
            charge = cost[self._fair]
            if self._is_drr and charge > visit.deficit:
                visit.short = (charge, cost)
                return payloads, costs, End.DEFICIT
            charged = (cost[0], cost[1], cost[2] + item, cost[3])
            if not meter.fits(charged):
                return payloads, costs, End.BUDGET
            meter.take(charged)
            meter.ran = True
            visit.deficit -= charge * self._is_drr
            payloads.append(payload)
            costs.append(cost)
        return payloads, costs, None

    # What comes of a message.

    def _outcomes(
        self,
        visit: _Visit,
        meter: Meter,
        payloads: list[bytes],
        costs: list[Vector],
        ran: Ran,
        *,
        counted: bool,
    ) -> End | None:
        """Take note of what ran; what was planned and did not run is given back."""
        handled, count = ran.handled, len(ran.handled)
        meter.used[MICROS] += ran.elapsed_us
        for cost in costs[:count]:
            meter.used[MICROS] -= cost[MICROS]
        for cost in costs[count:]:
            meter.take((1, cost[1], cost[2] + self._config.overheads.item, cost[3]), -1)
            visit.deficit += cost[self._fair] * self._is_drr
        self._elapsed_us += ran.elapsed_us
        self._slots += count
        visit.ran += count
        if handled and handled[-1] is DONE and handled.count(DONE) == count:
            if self._ledger.listening:
                # A run may end before all that was planned: what no handler was called for is not done.
                for payload, cost in zip(payloads[:count], costs, strict=False):
                    self._processed(visit, payload, cost, DONE)
                    visit.step(len(payload))
            else:
                size = sum(map(len, payloads if count == len(payloads) else payloads[:count]))
                visit.slot += count
                visit.offset += HEADER_BYTES * count + size
                visit.attempts = 0
                visit.moved = True
            return None
        for payload, cost, each in zip(payloads, costs, handled, strict=False):
            outcome: AnyOutcome = each.outcome if isinstance(each, Handled) else each
            if isinstance(each, Handled):
                visit.staged += each.enqueued
                visit.effects += each.effects
            end = self._outcome(visit, meter, payload, cost, outcome, counted=counted)
            if end is not None:
                return end
        return None

    def _outcome(
        self,
        visit: _Visit,
        meter: Meter,
        payload: bytes,
        cost: Vector,
        outcome: AnyOutcome,
        *,
        counted: bool,
    ) -> End | None:
        match outcome:
            case Done():
                self._processed(visit, payload, cost, outcome)
                visit.step(len(payload))
                return None
            case Rejected(reason):
                self._rejected(visit, payload, cost, REJECTIONS[reason], reason)
                return None
            case Later(after_s):
                self._did_not_count(visit, meter, cost)
                if after_s:
                    visit.wake = (self._session.wall, micros(after_s))
                return End.LATER
            case TooHeavy(heavy):
                return self._too_heavy(visit, meter, payload, cost, heavy, counted=counted)
            case Raised():
                if outcome.depth:
                    self._tell_poison(visit, outcome, visit.attempts + 1)
                    self._rejected(visit, payload, cost, Reason.DEPTH, outcome.text)
                    return None
                return self._failed(visit, payload, outcome, counted=counted)

    def _too_heavy(
        self,
        visit: _Visit,
        meter: Meter,
        payload: bytes,
        cost: Vector,
        heavy: Cost,
        *,
        counted: bool,
    ) -> End | None:
        """It comes again when so much is allowed. Who says it again then has failed."""
        told = heavy.vector(len(payload))
        if self._session.heavy.get(visit.place) == cost and not _is_over(told, cost):
            return self._failed(visit, payload, _not_enough(cost), counted=counted)
        self._did_not_count(visit, meter, cost)
        self._session.heavy[visit.place] = told
        # One that is overweight is looked at again, and dealt with as if that had been declared.
        return None if _is_over(told, self._config.cut_off(meter.limits)) else End.BUDGET

    def _forget_costs_before(self, visit: _Visit) -> None:
        """What handlers told of messages of this queue that are behind it now, however these ended."""
        heavy, generation = self._session.heavy, visit.book.generation
        for place in [one for one in heavy if one[0] == generation and one < visit.place]:
            del heavy[place]

    def _did_not_count(self, visit: _Visit, meter: Meter, cost: Vector) -> None:
        """The handler was called, and only that and its time is charged."""
        meter.take((1, cost[1], cost[2], 0), -1)
        visit.deficit += cost[self._fair] * self._is_drr
        visit.ran -= 1
        self._slots -= 1

    def _id(self, visit: _Visit, payload: bytes, outcome: Done = DONE) -> tuple[str, str]:
        address = self._session.addresses.of(*visit.place, payload)
        return (outcome.id if outcome.id is not None else address), address

    def _processed(self, visit: _Visit, payload: bytes, cost: Vector, outcome: Done) -> None:
        if self._ledger.listening:
            name, address = self._id(visit, payload, outcome)
            visit.events.append(Processed(name, visit.book.origin, address, cost, outcome.success))

    def _tell_failed(
        self, visit: _Visit, payload: bytes, reason: Reason, attempt: int, text: str
    ) -> None:
        if self._ledger.listening:
            name, address = self._id(visit, payload)
            visit.events.append(Failed(name, visit.book.origin, address, reason, attempt, text))

    def _rejected(
        self, visit: _Visit, payload: bytes, cost: Vector, reason: Reason, text: str
    ) -> None:
        self._tell_failed(visit, payload, reason, visit.attempts + 1, text)
        if self._config.on_rejected == "park":
            self._park(visit, payload, Reason.REJECTED, cost, visit.attempts + 1, text)
            return
        if self._config.on_rejected == "dead_letter":
            self._bury(visit, payload, "Rejected", reason.value, visit.attempts + 1)
        else:
            self._tell_passed(visit, reason.value)
        visit.rejected += 1
        visit.step(len(payload))

    def _failed(
        self, visit: _Visit, payload: bytes, raised: Raised, *, counted: bool
    ) -> End | None:
        attempts = visit.attempts + (not counted)
        self._tell_failed(visit, payload, Reason.ERROR, attempts, f"{raised.kind}: {raised.text}")
        if attempts == min(WARN_AFTER, self._config.retries):
            self._tell_poison(visit, raised, attempts)
        if attempts >= self._config.retries and not raised.is_late:
            self._poison(visit, payload, raised, attempts)
            return End.BLOCKED if visit.blocked else None
        visit.attempts = attempts
        wait = backoff(
            micros(self._config.retry_min_s),
            micros(self._config.retry_max_s),
            attempts,
            JITTER,
            self._session.rng,
        )
        visit.wake = (self._session.wall, wait)
        return End.LATER

    def _tell_poison(self, visit: _Visit, raised: Raised, attempts: int) -> None:
        if self._session.notice is not None:
            book = visit.book
            number = book.pages[visit.begin].number + visit.slot
            tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
            detail = f"queue {book.origin!r}, {tries}, the last raised {raised.said}"
            of_it = ((number, number),)
            self._session.notice(Notice(NoticeKind.POISON, book.generation, of_it, detail))

    def _poison(self, visit: _Visit, payload: bytes, raised: Raised, attempts: int) -> None:
        match self._config.on_poison:
            case "park":
                cost = (1, len(payload), 0, 0)
                self._park(visit, payload, Reason.POISON, cost, attempts, raised.said)
            case "block":
                visit.attempts = attempts
                cost = (1, len(payload), 0, 0)
                self._block(visit, payload, Reason.POISON, cost, attempts, raised.said)
            case "dead_letter":
                self._bury(visit, payload, raised.kind, raised.text, attempts, raised.traceback)
                visit.rejected += 1
                visit.step(len(payload))

    def _stop_at(
        self, visit: _Visit, meter: Meter, payload: bytes, why: Vector | Raised
    ) -> End | None:
        """A message can't run: it is overweight, or its cost is not to be had."""
        item = (1, 0, self._config.overheads.item, 0)
        if not meter.fits(item):
            return End.BUDGET
        meter.take(item)
        self._slots += 1
        if isinstance(why, Raised):
            return self._failed(visit, payload, why, counted=visit.book.careful is not None)
        self._session.heavy.pop(visit.place, None)
        match self._config.on_overweight:
            case "park":
                self._park(visit, payload, Reason.OVERWEIGHT, why, visit.attempts)
            case "block":
                self._block(visit, payload, Reason.OVERWEIGHT, why, visit.attempts)
                return End.BLOCKED
            case "dead_letter":
                self._bury(
                    visit, payload, "Overweight", f"it costs {why[UNITS]} units", visit.attempts
                )
                visit.rejected += 1
                visit.step(len(payload))
        return None

    def _facts(
        self, payload: bytes, reason: Reason, cost: Vector, attempts: int, error: str
    ) -> Facts:
        wall, check = self._session.wall, crc32(payload)
        return Facts(reason, cost, attempts, len(payload), wall, check, error[:ERROR_SHOWN])

    def _park(  # noqa: PLR0917 - the facts of one message
        self,
        visit: _Visit,
        payload: bytes,
        reason: Reason,
        cost: Vector,
        attempts: int,
        error: str = "",
    ) -> None:
        self._tell_parked(visit, payload, reason, cost)
        self._tell_passed(visit, reason.value, kept=True)
        facts = self._facts(payload, reason, cost, attempts, error)
        visit.parks.append((visit.begin, visit.slot, facts))
        visit.parked += 1
        visit.step(len(payload))

    def _block(  # noqa: PLR0917 - the facts of one message
        self,
        visit: _Visit,
        payload: bytes,
        reason: Reason,
        cost: Vector,
        attempts: int,
        error: str = "",
    ) -> None:
        self._tell_parked(visit, payload, reason, cost)
        visit.blocked = self._facts(payload, reason, cost, attempts, error)

    def _tell_parked(self, visit: _Visit, payload: bytes, reason: Reason, cost: Vector) -> None:
        if self._ledger.listening:
            name, address = self._id(visit, payload)
            visit.events.append(Parked(name, visit.book.origin, address, reason, cost))

    def _bury(  # noqa: PLR0917 - the facts of one letter
        self,
        visit: _Visit,
        payload: bytes,
        kind: str,
        text: str,
        attempts: int,
        traceback: str = "",
    ) -> None:
        book = visit.book
        number = book.pages[visit.begin].number + visit.slot
        address = self._session.addresses.of(*visit.place, payload)
        visit.effects.append(
            DeadMessage(
                *(book.origin, book.generation, visit.begin, visit.slot, number, payload),
                *(attempts, self._session.wall, address, kind, text, traceback),
            )
        )
        visit.dead += 1
        self._tell_passed(visit, kind)

    def _tell_passed(self, visit: _Visit, why: str, *, kept: bool = False) -> None:
        if self._session.passed is not None:
            book = visit.book
            number = book.pages[visit.begin].number + visit.slot
            self._session.passed(Passed(book.origin, book.generation, number, why, kept))


def _is_over(cost: Vector, cut_off: tuple[int | None, ...]) -> bool:
    """Whether the cost is above the cut-off in a dimension that has one."""
    return any(
        limit is not None and part > limit for part, limit in zip(cost, cut_off, strict=True)
    )


def _not_enough(cost: Vector) -> Raised:
    """A message told its cost, was allowed that much, and its handler says again that it is too heavy."""
    asked = f"{cost[UNITS]} units and {cost[MICROS] / 1_000_000:g} s"
    return Raised("TooHeavy", f"it was given the {asked} that it asked for, and says it again")


def text_of(error: BaseException) -> str:
    """What an error says."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - whatever it raises, it is not ours
        return f"(its text can't be told: that raises {type(failure).__name__})"
