"""A book that is served in the background: its workers are actors, each with a call to ``service`` at a time.

Whoever enqueues rings the workers that have nothing to do. What other processes enqueue is heard of by one more
actor, which waits at the log while all workers rest; and one tells the others that this process is alive while its
handlers take long. None of them decides anything about messages: that is the book's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar, copy_context
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from surepipe.actors.async_face import AsyncFace
from surepipe.actors.consuming.coroutines import (
    CANCEL_S,
    Coroutines,
    LoopEnded,
    in_thread,
    is_loop_of,
)
from surepipe.actors.ends.face import OneClose
from surepipe.actors.ends.stores import lives_of
from surepipe.actors.notices import NoticeCallback, Notices, log_notice
from surepipe.actors.runtime import Alarm, Running, Runtime
from surepipe.actors.store_calls import Silences
from surepipe.actors.threads import THREADS
from surepipe.core.callables import require_seconds
from surepipe.core.effects import Notice, NoticeKind
from surepipe.core.store_requests import CommitPosition, Store, called
from surepipe.core.timing import BackOff
from surepipe.errors import (
    Fenced,
    MisuseError,
    StoreReset,
    StoreUnavailable,
    SurepipeError,
    described,
)
from surepipe.queues.book.answers import AnyOutcome, Later, Raised
from surepipe.queues.book.changes import Commit, Spend
from surepipe.queues.book.config import (
    MESSAGES,
    MICROS,
    NOTHING,
    UNITS,
    BookConfig,
    Budget,
    Cost,
    CostOf,
    Vector,
    micros,
)
from surepipe.queues.book.queue import BookMessage, BookQueue, Context, Handler, Work
from surepipe.queues.book.service import WriteEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from surepipe.queues.book.answers import Accepted, Producer, Refused, Serviced, Undecided
    from surepipe.queues.book.by_hand import ByHand
    from surepipe.queues.book.changes import Items
    from surepipe.queues.book.ledger import NotPlaced, Placed
    from surepipe.queues.book.log import BookWrite
    from surepipe.queues.book.service import LoadPages, Request, Worker

logger = logging.getLogger("surepipe")
T = TypeVar("T")
WORKERS_MAX = 1_024
AGAIN = BackOff.of_seconds(0.05, 5.0)
"""The waits after a store did not answer."""
CLOSE_S = 30.0
LEFT_S = 1.0
"""How long handlers have whose block is left by an error or a cancellation."""
HELP_US = 10_000
"""How long a handler may take before workers that rest are given what waits behind it. A commit takes about as
long, so quick handlers don't pay one for each other."""
NOW = 0
_SERVING: ContextVar[object] = ContextVar("serving", default=None)
"""The book whose handler this is: coroutines and threads that it waits for know it, too."""


class ServedBook(BookQueue):
    """A book whose messages are handled in the background, from when it is made until it is closed.

    ``workers`` handlers run at a time, each for another queue. With ``idle_budget=None`` the ``period_budget`` is
    what all processes of the book together may spend in ``period_s``; else each is the budget of one call. The
    handler may be a coroutine function: it runs on the event loop that the process shares. Whatever it raises,
    ``SystemExit`` too, is a failed attempt at its message.
    """

    _exits_are_failures = True

    def __init__(
        self,
        name: str,
        *,
        store: Store | str,
        processor: Handler,
        cost: CostOf = Cost(),  # noqa: B008 - it never changes
        config: BookConfig | None = None,
        worker: str | None = None,
        workers: int = 1,
        time_limit_s: float | None = None,
        notices: NoticeCallback = log_notice,
        runtime: Runtime = THREADS,
        clock: Callable[[], int] | None = None,
        seed: int | None = None,
        start: bool = True,
    ) -> None:
        """Open the book and serve it (``start=False``: from ``start()`` on). Raises what ``BookQueue`` raises.

        An attempt that takes longer than ``time_limit_s`` has failed: its worker goes on with other queues, and
        its own queue waits until the handler has returned, whose outcome counts for nothing.
        """
        if type(workers) is not int or not 1 <= workers <= WORKERS_MAX:
            raise MisuseError(
                f"workers is {workers!r}; give a whole number from 1 to {WORKERS_MAX}"
            )
        is_number = isinstance(cast("object", time_limit_s), int | float)
        if time_limit_s is not None and not (is_number and time_limit_s > 0):
            raise MisuseError(f"time_limit_s is {time_limit_s!r}; give seconds above 0, or None")
        self._time_limit_s = time_limit_s
        self._is_limited = time_limit_s is not None
        self._helpers: list[_Helper] = []
        """Those that run handlers with a time limit,"""
        self._free: list[_Helper] = []
        """and which of them have nothing to do."""
        self.runtime = runtime
        self._coroutines: Coroutines = runtime.coroutines()
        self._earlier: list[Coroutines] = []
        """Those that began to run coroutines before there was an async face."""
        self.silences = Silences(runtime.now)
        self.failure: SurepipeError | None = None
        """Why it is served no more."""
        self.calls = 0
        self._troubles = count()
        self._notices = Notices(name, "book", notices)
        self._changed = runtime.signal()
        self._changes = self._rung_for = 0
        self._servers = [_Server(self, number) for number in range(workers)]
        self._watcher = _Watcher(self)
        self._pulse = _Pulse(self)
        self._is_started = self._is_ending = self._is_cut_off = False
        self._one_close = OneClose()
        super().__init__(
            name,
            store=store,
            processor=processor,
            cost=cost,
            config=config,
            worker=worker,
            clock=clock or _wall_clock(runtime),
            monotonic=runtime.now,
            rng=runtime.rng(seed),
            lock=runtime.lock(),
            number_of_life=lives_of(runtime),
        )
        if start:
            self.start()

    @property
    def is_started(self) -> bool:
        """Whether it is, or was, served."""
        return self._is_started

    def start(self) -> None:
        """Begin to serve; a second call does nothing."""
        if self._is_started:
            return
        self._check_open()
        self._is_started = True
        for actor in (*self._servers, self._watcher, self._pulse):
            actor.begin(self.runtime)

    @property
    def time_limit_s(self) -> float | None:
        """How long an attempt may take."""
        return self._time_limit_s

    # What actors ask.

    def serve(self) -> tuple[Serviced | None, int | None]:
        """One call within what is left of the budget; and after how many microseconds to look again (None: when
        somebody rings). Raises StoreUnavailable, and what ends the service."""
        before = self.changes
        rate = self.config.rate
        with self.silences.asking(called(self._log.store), self.runtime.here(), "serving waits"):
            if rate is None:
                served = self.service(self.config.bounding)
            else:
                wait = self._heard_and_waits()
                if wait != NOW:
                    return None, NOW if before != self.changes else wait
                reserved = self._reserve(rate)
                if reserved is None:
                    return None, self._until_next_period()
                charged_to, granted = reserved
                served = self.service(_budget_of(granted, rate))
                self._give_back(charged_to, granted, served.consumed, rate)
        self.calls += 1
        if served.ran or served.parked:
            self._ring()  # handlers may have enqueued for queues that another worker can take
            return served, NOW
        if before != self.changes:
            return served, NOW
        if rate is not None and served.stopped in ("budget", "too-small"):
            return served, self._until_next_period()
        return served, self._until_next_attempt()

    def _heard_and_waits(self) -> int | None:
        """Until a queue may be served, as things stand now in the log: what can't be served costs no budget."""
        with self._lock:
            self._check_open()
            self._log.follow()
            self._end_silent()
            return self._until_a_move()

    def _reserve(self, rate: Budget) -> tuple[int, Vector] | None:
        """A share of what the period has left, large enough for any message, and the period that it was taken
        from, which is the next one where others are there already; None when nothing is left."""
        largest = self.config.max_message_cost
        over = self.config.overheads.of_one
        limits = rate.limits()
        with self._lock:
            self._check_open()
            self._log.follow()
            period = self._period()
            spent = self.ledger.period[1] if self.ledger.is_present(period) else NOTHING
            wanted: list[int] = []
            for place, most in enumerate(limits):
                if most is None:
                    wanted.append(0)
                    continue
                left = max(0, most - spent[place])
                cost = None if largest is None else largest.limits()[place]
                least = left if cost is None else cost + (over if place == UNITS else 0)
                wanted.append(min(left, max(least, left // 4, 1)))
            if any(most and not part for most, part in zip(limits, wanted, strict=True)):
                return None
            amount = (wanted[0], wanted[1], wanted[2], wanted[3])
            done = self._log.write(Spend(self._clock(), period, amount, limits), ())
        charged_to, granted = cast("tuple[int, Vector]", done)
        if any(want and not got for want, got in zip(amount, granted, strict=True)):
            return None
        return charged_to, granted

    def _give_back(self, period: int, granted: Vector, used: Vector, rate: Budget) -> None:
        rest = [
            0 if most is None else part - spent
            for part, spent, most in zip(granted, used, rate.limits(), strict=True)
        ]
        if any(rest):
            with self._lock:
                back = (rest[0], rest[1], rest[2], rest[3])
                entry = Spend(self._clock(), period, back, rate.limits(), is_return=True)
                self._log.write(entry, ())

    @property
    def period(self) -> int:
        """The number of the present period."""
        return self._period()

    def _period(self) -> int:
        return self._clock() // micros(self.config.period_s)

    def _until_next_period(self) -> int:
        length = micros(self.config.period_s)
        return length - self._clock() % length + 1

    def _until_next_attempt(self) -> int | None:
        """How long until it is worth a look: nothing that could move now was moved by the last one."""
        with self._lock:
            wait = self._until_a_move()
        return self._look_again_us if wait == NOW else wait

    @property
    def _look_again_us(self) -> int:
        """For queues that are for later, or claimed by a process that may be dead."""
        return micros(min(self.config.period_s, self.config.lease_s / 3))

    def _until_a_move(self) -> int | None:
        """How long until a queue may be served; None when only a person, or what is enqueued, can change that.

        A book of which all ready queues are paused or blocked costs no request (B-65).
        """
        wall, soonest = self._clock(), None
        for origin in self.ledger.ring.walk():
            book = self.ledger.books[origin]
            if self._session.is_left(origin):
                return NOW  # who comes commits what was done of it, and goes on
            if book.paused or book.blocked is not None or origin in self._session.active:
                continue  # the worker that is at it rings when it is done
            wait = NOW
            if book.is_waiting(wall) and book.wake is not None:
                wait = max(1, sum(book.wake) - wall)
            elif book.lease is not None and book.lease.worker != self.worker:
                wait = self._look_again_us
            if wait == NOW:
                return NOW
            soonest = wait if soonest is None else min(wait, soonest)
        return soonest

    def hear(self) -> bool:
        """Apply what others have written, and let the workers look at it, if anything is new.

        1. Others write. 2. Somebody looks at the totals, which applies it. 3. Nothing is left to apply here, and
        yet no worker has heard of it. So what counts is what has come since the workers were rung for it.
        """
        with self._lock:
            self._log.follow()
        if self._log.news == self._rung_for:
            return False
        self._rung_for = self._log.news
        self._ring()
        return True

    @property
    def is_resting(self) -> bool:
        """Whether no worker is at work."""
        return all(server.is_idle for server in self._servers)

    @property
    def changes(self) -> int:
        """Counts what was written and heard here: another number, another look."""
        return self._changes + self._log.news

    def rested(self) -> None:
        """A worker has nothing to do."""
        self._changed.notify()
        with self._lock:
            self._enters()
        if self.is_resting and not self._is_ending:
            self._watcher.tell()

    @property
    def is_ending(self) -> bool:
        return self._is_ending or self.failure is not None

    def trouble(self, error: BaseException) -> None:
        """The service is over: another process has taken this one's place, or the store is another one. Of several
        workers that find that the first one tells."""
        if next(self._troubles):  # counting is one step, also where several threads count
            return
        kind = NoticeKind.FENCED if isinstance(error, Fenced) else NoticeKind.RESET
        is_ours = isinstance(error, SurepipeError)
        why = str(error) if is_ours else described(error)
        if isinstance(error, StoreReset):
            waited = self.ledger.totals["queued"]
            why += f"; {waited} messages waited in it when it was last heard of"
        self.failure = error if isinstance(error, SurepipeError) else StoreUnavailable(why)
        self._session.stopping = True
        logger.error(
            "book %s is served no more: %s", self.name, why, exc_info=None if is_ours else error
        )
        self._notices.tell(Notice(kind, 0, (), why))
        self._changed.notify()

    def wait_for_more(self, timeout_us: int) -> None:
        """Until somebody writes to the log."""
        self._log.store.wait(self._log.stream, self.ledger.index + 1, timeout_us)

    def pulse(self) -> None:
        """Tell the others that this process is alive, if it has claimed anything and has written nothing lately;
        and let nothing wait behind a handler that takes long."""
        self.relieve()
        with self._lock:
            has_claims = (
                bool(self.ledger.leased.get(self.worker))
                or self.worker in self.ledger.taken.values()
            )
            is_silent = self._monotonic() - self._log.renewed >= micros(self.config.lease_s) // 4
        if has_claims and is_silent and not self._is_closed:
            self.beat()

    def _perform(self, request: WriteEntry | LoadPages) -> object:
        """1. A worker is at work in a queue, and the others rest. 2. It commits, gives the queue back, and goes on
        with one whose handler stands still. 3. Nobody else would take what was given back."""
        entry = request.entry if isinstance(request, WriteEntry) else None
        if not isinstance(entry, Commit):
            return super()._perform(request)
        before = dict(self.ledger.totals)
        done = super()._perform(request)
        # 1. A call has budget for nothing, and gives back what it claimed. 2. If that rang another worker, whose
        # call has no more, each would ring the other for ever.
        if self._has_help and before != self.ledger.totals and self._frees(entry):
            self._ring()
        return done

    @property
    def _has_help(self) -> bool:
        """Whether a worker has nothing to do."""
        return any(server.is_idle for server in self._servers)

    def _enters(self) -> None:
        """1. A worker has more than it is at. 2. Its handler takes long. 3. Who rests would not hear of that."""
        if not self._pulse.is_soon and self._has_help and self._session.is_withheld():
            self._pulse.soon(self._patience_us())

    def _patience_us(self) -> int:
        is_withheld = self._has_help and self._session.is_withheld()
        return min(self.config.commit_us, HELP_US) if is_withheld else self.config.commit_us

    @property
    def patience_us(self) -> int:
        """How long a handler may take now before others are given what waits behind it."""
        with self._lock:
            return self._patience_us()

    def _frees(self, entry: Commit) -> bool:
        """Whether this commit left queues that another worker can take."""
        books = self.ledger.books
        for visit in entry.visits:
            book = books.get(visit.origin)
            if visit.staged or (book is not None and book.is_ready and book.lease is None):
                return True
        return bool(entry.released)

    def _relieve(self, worker: Worker, origin: str) -> None:
        try:
            super()._relieve(worker, origin)
        finally:
            self._ring()  # where the store did not answer, what was to be given back is settled by who writes next

    # Handlers that take too long.

    def _called(self, work: Work, message: BookMessage, context: Context) -> AnyOutcome:
        with self._lock:
            helper = self._free.pop() if self._free else None
            if helper is None:
                helper = _Helper(self, len(self._helpers) + 1)
                self._helpers.append(helper)
        call = super()._called
        around = copy_context()
        return helper.run(work, lambda: around.run(call, work, message, context))

    def is_free(self, helper: _Helper) -> None:
        """It has nothing to do any more."""
        self._free.append(helper)

    def late(self, work: Work) -> AnyOutcome:
        """Treat an attempt that takes too long as failed."""
        work.is_late = True
        return Raised(
            "TimeLimit",
            f"it took longer than {self._time_limit_s} s, and may have had its effect elsewhere",
            is_late=True,
        )

    def returned(self, work: Work) -> None:
        """A handler that was too late has come to its end."""
        try:
            self._returned(work)
        except SurepipeError as error:  # what is written next settles it, or says so again
            logger.warning("book %s: %s", self.name, error)
        self._ring()

    def _notice(self, notice: Notice) -> None:
        self._notices.tell(notice)

    def _stalls(self, origin: str, error: Exception) -> None:
        self._notices.tell(Notice(NoticeKind.STALLED, 0, (), f"queue {origin!r}: {error}"))

    # As a book.

    def _enqueue(
        self,
        items: tuple[Items, ...],
        ends: tuple[bytes, bytes],
        producer: Producer | None,
        refused: str,
        wait_s: float = 0.0,
    ) -> Accepted | Refused:
        answer = super()._enqueue(items, ends, producer, refused, wait_s)
        self._ring()
        return answer

    def admit(
        self, messages: Iterable[tuple[str, bytes]], beside: CommitPosition | None = None
    ) -> Placed | NotPlaced:
        answer = super().admit(messages, beside)
        self._ring()
        return answer

    def admitted(self, undecided: Undecided) -> Placed:
        placed = super().admitted(undecided)
        self._ring()
        return placed

    def _written(self, write: BookWrite, ends: tuple[bytes, bytes]) -> object:
        """1. Nobody answers an enqueue. 2. Its ``again`` stores it, much later. 3. No worker has heard of it."""
        placed = super()._written(write, ends)
        self._ring()
        return placed

    def _by_hand(self, what: str, make: Callable[[ByHand], Generator[Request, object, T]]) -> T:
        done = super()._by_hand(what, make)
        self._ring()
        return done

    def _change(self, verb: str, origin: str, number: int = 0) -> object:
        done = super()._change(verb, origin, number)
        self._ring()
        return done

    def _ring(self) -> None:
        self._changes += 1
        for server in self._servers:
            if server.is_idle:
                server.tell()

    def _awaited(self, answer: Awaitable[object]) -> object:
        try:
            return self._coroutines.wait(answer)
        except asyncio.CancelledError:
            if not self._is_cut_off:
                raise
            return Later()  # by the end of the book: it comes again, and this was no attempt
        except LoopEnded as error:
            self.trouble(error)
            return Later()

    def run_coroutines_on(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        """Handlers that are begun from now on run on this loop, if they are coroutine functions."""
        self._earlier.append(self._coroutines)
        self._coroutines = self.runtime.coroutines(loop, thread)

    async def __aenter__(self) -> AsyncBook:
        """The async face, for the loop that runs here."""
        return AsyncBook(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As ``__exit__``, without blocking the loop, on which handlers come to their end. When it is cancelled
        while it waits, handlers have a second."""
        try:
            await in_thread(lambda: self._one_close.run(lambda: self.__exit__(kind, error, trace)))
        except asyncio.CancelledError:
            await in_thread(self._cut_short)
            raise

    def _cut_short(self) -> None:
        """Let handlers end at once, while ``close`` waits for them in another thread, or is about to."""
        self.stop_serving()
        self._busy_after(LEFT_S)

    def closing(self, timeout: float) -> Callable[[], None]:
        """``close``, for another thread: it joins one under way."""
        require_seconds(f"book {self.name}", timeout, or_none=False)
        return lambda: self._one_close.run(lambda: self.close(timeout))

    def check_outside(self, what: str, *, loops: bool = True) -> None:
        """Refuse to wait in a handler for the handlers' end, and (``loops``) on the loop that they need."""
        if _SERVING.get() is self:
            raise MisuseError(f"book {self.name}: {what} in its own handler would wait for itself")
        if loops and self._earlier and is_loop_of(self._coroutines.thread):
            raise MisuseError(
                f"book {self.name}: {what} would block the event loop that its handlers run on: write await "
                f"book.{what}(...)"
            )

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to be served, as far as this process has heard. False when that takes longer
        than ``timeout`` seconds, or when the book ends before.

        What is for later (``Later``, the next attempt of a message that failed, the budget of the next period) and
        what another process has claimed is waited for. What waits for a person is not: messages that are parked,
        and queues that are paused or blocked. Raises MisuseError for a book that is not started, and where the
        wait would be for itself.
        """
        require_seconds(f"book {self.name}", timeout)
        self.check_outside("wait_until_idle")
        if not self._is_started:
            raise MisuseError(
                f"book {self.name} is not started, and serves nothing: call start() before wait_until_idle()"
            )
        self._changed.wait(lambda: self.is_ending or self._is_idle(), timeout)
        return self._is_idle()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the book is closed. False when that takes longer than ``timeout`` seconds.

        Raises what stopped it for good, Fenced or StoreReset say: a program whose handler does all the work hears
        of that here. Raises MisuseError where the wait would be for itself.
        """
        require_seconds(f"book {self.name}", timeout)
        self.check_outside("wait")
        self._changed.wait(lambda: self._is_closed or self.failure is not None, timeout)
        if self.failure is not None:
            raise self.failure
        return self._is_closed

    def is_through(self) -> bool:
        """Whether all that can be served is, what other processes have enqueued included. Does not wait."""
        if not (self.is_ending or self.is_resting):
            return False
        with self._lock:
            self._log.follow()
            return self._is_idle()

    def stop_serving(self) -> bool:
        """Begin no more message; True when none is being handled, and what was done is stored.

        Messages are still taken in, and stay for the next life.
        """
        if not self._is_started:
            return True
        if not self._is_ending:
            self._is_ending = self._session.stopping = True
            for server in self._servers:
                server.tell()
        return self.is_resting

    def _is_idle(self) -> bool:
        return self.is_resting and not any(
            not (book.paused or book.blocked is not None)
            for book in map(self.ledger.books.__getitem__, self.ledger.ring.order())
        )

    def close(self, timeout: float = CLOSE_S) -> None:
        """Serve no more: handlers that run come to their end, what they did is committed, and claims are released.

        A coroutine that still runs after ``timeout`` seconds is cancelled: its message comes again, and that was
        no attempt. Anything else is left to its claim, and said so; it ends with the process.
        """
        require_seconds(f"book {self.name}", timeout, or_none=False)
        if self._is_closed:
            return
        self._is_ending = True
        self._session.stopping = True
        stop_waiting = getattr(self._log.store, "stop_waiting", None)
        if callable(stop_waiting) and self._is_started:
            stop_waiting()
        for actor in self._actors:
            actor.stop()
        busy = self._busy_after(timeout)
        self._is_closed = True
        for coroutines in (*self._earlier, self._coroutines):
            coroutines.close()
        handling = [actor for actor in busy if isinstance(actor, _Server | _Helper)]
        if handling:
            logger.warning(
                "book %s is closed while %d handlers still run: their queues are served by others after lease_s",
                self.name,
                len(handling),
            )
        else:
            self._close_store()
        self._changed.notify()

    @property
    def _actors(self) -> tuple[_Part | _Helper, ...]:
        return (*self._servers, self._watcher, self._pulse, *self._helpers)

    def _busy_after(self, timeout: float) -> list[_Part | _Helper]:
        """Who still runs after so long, and, where that waits for a coroutine, after that one was cancelled."""
        busy = self._not_joined(timeout)
        if not busy:
            return busy
        self._is_cut_off = True
        runners = (*self._earlier, self._coroutines)
        is_ending = [coroutines.cancel() for coroutines in runners]
        return self._not_joined(CANCEL_S) if any(is_ending) else busy

    def _not_joined(self, timeout: float) -> list[_Part | _Helper]:
        end = self.runtime.now() + round(timeout * 1_000_000)
        return [
            actor
            for actor in self._actors
            if not actor.join(max(0, end - self.runtime.now()) / 1_000_000)
        ]

    def abort(self) -> None:
        """End without waiting for handlers."""
        self.close(0.0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(CLOSE_S if kind is None else LEFT_S)


class AsyncBook(AsyncFace[ServedBook]):
    """The async face of a served book: ``async with ServedBook(...) as book``.

    Each method is that of the book, and waits on a thread of its own: two calls are in order where the first was
    awaited. One that is cancelled goes on there, so a call is stored as a whole, or not at all. Handlers that are
    coroutine functions run on the loop of this face.
    """

    _of = (ServedBook,)

    def _prepare(self) -> None:
        self.sync.run_coroutines_on(self._loop, self._thread)

    def _elsewhere(self, name: str) -> str:
        return f"write await book.ask(lambda book: book.{name}(...)), as it may wait for the store"

    async def enqueue(
        self,
        origin: str,
        payload: bytes,
        *,
        refused: Literal["raise", "return"] = "raise",
        wait_s: float = 0.0,
    ) -> Accepted | Refused:
        """Store one message. Raises what the synchronous ``enqueue`` raises."""
        return await self.ask(
            lambda book: book.enqueue(origin, payload, refused=refused, wait_s=wait_s)
        )

    async def enqueue_many(
        self,
        origin: str,
        payloads: Iterable[bytes],
        *,
        refused: Literal["raise", "return"] = "raise",
        wait_s: float = 0.0,
    ) -> Accepted | Refused:
        """Store messages of one origin: all of them, or none."""
        return await self.ask(
            lambda book: book.enqueue_many(origin, payloads, refused=refused, wait_s=wait_s)
        )

    async def enqueue_batch(
        self,
        messages: Iterable[tuple[str, bytes]],
        *,
        producer: Producer | None = None,
        refused: Literal["raise", "return"] = "raise",
        wait_s: float = 0.0,
    ) -> Accepted | Refused:
        """Store messages of any origins: all of them, or none."""
        return await self.ask(
            lambda book: book.enqueue_batch(
                messages, producer=producer, refused=refused, wait_s=wait_s
            )
        )

    async def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to be served; see the synchronous ``wait_until_idle`` for what that means."""
        return await self.ask(lambda book: book.wait_until_idle(timeout))

    async def wait(self, timeout: float | None = None) -> bool:
        """As the synchronous ``wait``: until the book is closed. Raises what stopped it for good."""
        return await self.ask(lambda book: book.wait(timeout))

    async def ask(self, work: Callable[[ServedBook], T]) -> T:
        """Anything else that the book can do: ``await book.ask(lambda book: book.discard(address, "typo"))``."""
        return await in_thread(lambda: work(self.sync))


def _wall_clock(runtime: Runtime) -> Callable[[], int]:
    """Wall-clock microseconds. Within a life it goes on as the runtime's own clock does."""
    since = runtime.wall_ms() * 1000 - runtime.now()
    return lambda: since + runtime.now()


def _budget_of(granted: Vector, rate: Budget) -> Budget:
    limits = rate.limits()
    return Budget(
        None if limits[MESSAGES] is None else granted[MESSAGES],
        None if limits[1] is None else granted[1],
        None if limits[UNITS] is None else granted[UNITS],
        None if limits[MICROS] is None else granted[MICROS] / 1_000_000,
    )


class _Part:
    """An actor of a served book: told to go on by rings of its alarm and of others."""

    title = ""

    def __init__(self, book: ServedBook) -> None:
        self.book = book
        self._running: Running | None = None
        self._alarm: Alarm | None = None
        self._failures = 0

    def begin(self, runtime: Runtime) -> None:
        """Start it, with its first turn."""
        self._running = runtime.start(self, f"{self.book.name}/{self.title}")
        self._alarm = runtime.alarm(self.tell)
        self.tell()

    def tell(self) -> None:
        """Let it have a turn."""
        if self._running is not None:
            self._running.tell("go on")

    def after(self, us: int) -> None:
        """Let it have one after so long."""
        if self._alarm is not None:
            self._alarm.set(self.book.runtime.now() + us)

    def stop(self) -> None:
        """End it after the turn that it is at."""
        if self._alarm is not None:
            self._alarm.close()
        if self._running is not None:
            self._running.stop()

    def join(self, timeout: float) -> bool:
        """Wait for its end."""
        return self._running is None or self._running.join(timeout)

    def receive(self, message: object) -> None:
        """One turn. A store that does not answer is asked again; what ends the service is told."""
        del message
        if self.book.is_ending:
            self.ended()
            return
        try:
            self.turn()
            self._failures = 0
        except StoreUnavailable as error:
            self._failures += 1
            if self._failures == 1:
                logger.warning("book %s: %s", self.book.name, error)
            self.after(AGAIN.calm(self._failures))
        except (Fenced, StoreReset) as error:
            self.ended()
            self.book.trouble(error)
        except SurepipeError as error:
            self.ended()
            if not self.book.is_ending:
                self.book.trouble(error)

    def turn(self) -> None:
        """What it does."""
        raise NotImplementedError

    def ended(self) -> None:
        """It does nothing more."""

    def died(self, error: BaseException) -> None:
        """By a defect, or by an exit outside of a handler: the service is over, and says so."""
        self.ended()
        if not self.book.is_ending:
            self.book.trouble(error)


class _Server(_Part):
    """Runs handlers."""

    def __init__(self, book: ServedBook, number: int) -> None:
        super().__init__(book)
        self.title = f"worker-{number + 1}"
        self.is_idle = False

    def tell(self) -> None:
        self.is_idle = False
        super().tell()

    def turn(self) -> None:
        seen = self.book.changes
        serving = _SERVING.set(self.book)
        try:
            _, pause_us = self.book.serve()
        finally:
            _SERVING.reset(serving)
        if pause_us == NOW:
            self.tell()
            return
        self.is_idle = True
        # 1. This call found nothing. 2. Somebody enqueues, and finds nobody idle. 3. This look finds it.
        if self.book.changes != seen:
            self.tell()
            return
        if pause_us is not None:
            self.after(pause_us)
        self.book.rested()

    def ended(self) -> None:
        self.is_idle = True
        self.book.rested()


class _Watcher(_Part):
    """Hears of what other processes write, while all workers rest."""

    title = "watcher"

    def turn(self) -> None:
        if not self.book.is_resting or self.book.hear():
            return
        self.book.wait_for_more(micros(self.book.config.period_s))
        if self.book.is_ending:
            return
        self.book.hear()
        if self.book.is_resting:
            self.tell()


class _Pulse(_Part):
    """Tells other processes that this one is alive."""

    title = "pulse"
    is_soon = False

    def soon(self, us: int) -> None:
        """Let it have a turn after so long, and not only when it is due."""
        self.is_soon = True
        self.after(us)

    def turn(self) -> None:
        self.is_soon = False
        self.book.pulse()
        self.after(max(self.book.patience_us, 1))


class _Helper:
    """Runs handlers for workers that don't wait for them longer than the time limit."""

    def __init__(self, book: ServedBook, number: int) -> None:
        self.book = book
        self._signal = book.runtime.signal()
        self._lock = threading.Lock()
        self._work: Work | None = None
        self._outcome: AnyOutcome | BaseException | None = None
        self._running = book.runtime.start(self, f"{book.name}/handler-{number}")

    def run(self, work: Work, call: Callable[[], AnyOutcome]) -> AnyOutcome:
        """Call it, and give its outcome, or that it took too long."""
        self._begin(work)
        self._running.tell(call)
        self._signal.wait(lambda: self._outcome is not None, self.book.time_limit_s)
        with self._lock:
            outcome = self._outcome
            if outcome is None:
                return self.book.late(work)
        self.book.is_free(self)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _begin(self, work: Work) -> None:
        self._work, self._outcome = work, None

    def receive(self, message: object) -> None:
        """One call."""
        outcome: AnyOutcome | BaseException
        try:
            outcome = cast("Callable[[], AnyOutcome]", message)()
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an outcome
            outcome = error
        work = self._work
        assert work is not None, "it runs for somebody"
        with self._lock:
            self._outcome = outcome
            is_late = work.is_late
        self._signal.notify()
        if is_late:
            self.book.returned(work)
            self.book.is_free(self)

    def died(self, error: BaseException) -> None:
        """By a defect of this class: the service is over, and says so."""
        self.book.trouble(error)

    def stop(self) -> None:
        """End it after what it runs."""
        self._running.stop()

    def join(self, timeout: float) -> bool:
        """Wait for its end."""
        return self._running.join(timeout)
