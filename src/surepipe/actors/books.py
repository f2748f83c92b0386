"""A book that is served in the background: its workers are actors, each with a call to ``service`` at a time.

Whoever enqueues rings the workers that have nothing to do. What other processes enqueue is heard of by one more
actor, which waits at the log while all workers rest; and one tells the others that this process is alive while its
handlers take long. None of them decides anything about messages: that is the book's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from surepipe.actors.consuming.coroutines import Coroutines
from surepipe.actors.ends.stores import lives_of
from surepipe.actors.notices import NoticeCallback, Notices, log_notice
from surepipe.actors.runtime import Alarm, Running, Runtime
from surepipe.actors.store_calls import Silences
from surepipe.actors.threads import THREADS
from surepipe.core.effects import Notice, NoticeKind
from surepipe.core.store_requests import Store, called
from surepipe.core.timing import BackOff
from surepipe.errors import Fenced, MisuseError, StoreReset, StoreUnavailable, SurepipeError
from surepipe.queues.book.changes import Spend
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
from surepipe.queues.book.queue import BookQueue, Handler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from surepipe.queues.book.answers import Accepted, Producer, Refused, Serviced
    from surepipe.queues.book.by_hand import ByHand
    from surepipe.queues.book.changes import Items
    from surepipe.queues.book.service import Request

logger = logging.getLogger("surepipe")
T = TypeVar("T")
WORKERS_MAX = 1_024
AGAIN = BackOff.of_seconds(0.05, 5.0)
"""The waits after a store did not answer."""
CLOSE_S = 30.0
NOW = 0


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
        notices: NoticeCallback = log_notice,
        runtime: Runtime = THREADS,
        clock: Callable[[], int] | None = None,
        seed: int | None = None,
        start: bool = True,
    ) -> None:
        """Open the book and serve it (``start=False``: from ``start()`` on). Raises what ``BookQueue`` raises."""
        if type(workers) is not int or not 1 <= workers <= WORKERS_MAX:
            raise MisuseError(
                f"workers is {workers!r}; give a whole number from 1 to {WORKERS_MAX}"
            )
        self.runtime = runtime
        self._coroutines: Coroutines = runtime.coroutines()
        self.silences = Silences(runtime.now)
        self.failure: SurepipeError | None = None
        """Why it is served no more."""
        self.calls = 0
        self._notices = Notices(name, "book", notices)
        self._changed = runtime.signal()
        self._changes = 0
        self._servers = [_Server(self, number) for number in range(workers)]
        self._watcher = _Watcher(self)
        self._pulse = _Pulse(self)
        self._is_started = self._is_ending = False
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

    # What actors ask.

    def serve(self) -> tuple[Serviced | None, int | None]:
        """One call within what is left of the budget; and after how many microseconds to look again (None: when
        somebody rings). Raises StoreUnavailable, and what ends the service."""
        before = self._changes
        rate = self.config.rate
        with self.silences.asking(called(self._log.store), self.runtime.here(), "serving waits"):
            if rate is None:
                served = self.service(self.config.bounding)
            else:
                period = self._period()
                granted = self._reserve(rate, period)
                if granted is None:
                    return None, self._until_next_period()
                served = self.service(_budget_of(granted, rate))
                self._give_back(period, granted, served.consumed, rate)
        self.calls += 1
        if served.ran or served.parked:
            self._ring()  # handlers may have enqueued for queues that another worker can take
            return served, NOW
        if before != self._changes:
            return served, NOW
        if rate is not None and served.stopped in ("budget", "too-small"):
            return served, self._until_next_period()
        return served, self._until_next_attempt()

    def _reserve(self, rate: Budget, period: int) -> Vector | None:
        """A share of what the period has left, large enough for any message; None when nothing is left."""
        largest = self.config.max_message_cost
        over = self.config.overheads.of_one
        limits = rate.limits()
        with self._lock:
            self._check_open()
            self._log.follow()
            if not len(self.ledger.ring):
                return NOTHING
            number, spent = self.ledger.period
            spent = spent if period in (number, number - 1) else NOTHING
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
            granted = self._log.write(Spend(self._clock(), period, amount, limits), ())
        found = cast("Vector", granted)
        return (
            None
            if any(want and not got for want, got in zip(amount, found, strict=True))
            else found
        )

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

    def _period(self) -> int:
        return self._clock() // micros(self.config.period_s)

    def _until_next_period(self) -> int:
        length = micros(self.config.period_s)
        return length - self._clock() % length + 1

    def _until_next_attempt(self) -> int | None:
        """How long until a queue that waits may be served again, and a silent process may be declared dead."""
        with self._lock:
            wall = self._clock()
            waits = [
                sum(book.wake) - wall
                for origin in self.ledger.ring.walk()
                if (book := self.ledger.books[origin]).wake is not None and book.is_waiting(wall)
            ]
            if len(
                self.ledger.ring
            ):  # some may be claimed by a process that is dead, or be for later
                waits.append(micros(min(self.config.period_s, self.config.lease_s / 3)))
        return max(1, min(waits)) if waits else None

    def hear(self) -> None:
        """Apply what others have written, and let the workers look at it."""
        with self._lock:
            before = self.ledger.index
            self._log.follow()
            is_new = self.ledger.index != before
        if is_new:
            self._ring()

    @property
    def is_resting(self) -> bool:
        """Whether no worker is at work."""
        return all(server.is_idle for server in self._servers)

    @property
    def changes(self) -> int:
        """Counts what was written and heard here: another number, another look."""
        return self._changes

    def rested(self) -> None:
        """A worker has nothing to do."""
        self._changed.notify()
        if self.is_resting and not self._is_ending:
            self._watcher.tell()

    @property
    def is_ending(self) -> bool:
        return self._is_ending or self.failure is not None

    def trouble(self, error: BaseException) -> None:
        """The service is over: another process has taken this one's place, or the store is another one."""
        kind = NoticeKind.FENCED if isinstance(error, Fenced) else NoticeKind.RESET
        self.failure = error if isinstance(error, SurepipeError) else StoreUnavailable(str(error))
        self._session.stopping = True
        logger.error("book %s is served no more: %s", self.name, error)
        self._notices.tell(Notice(kind, 0, (), str(error)))
        self._changed.notify()

    def wait_for_more(self, timeout_us: int) -> None:
        """Until somebody writes to the log."""
        self._log.store.wait(self._log.stream, self.ledger.index + 1, timeout_us)

    def pulse(self) -> None:
        """Tell the others that this process is alive, if it has claimed anything."""
        with self._lock:
            has_claims = (
                bool(self.ledger.leased.get(self.worker))
                or self.worker in self.ledger.taken.values()
            )
        if has_claims and not self._is_closed:
            self.beat()

    # As a book.

    def _enqueue(
        self,
        items: tuple[Items, ...],
        ends: tuple[bytes, bytes],
        producer: Producer | None,
        refused: str,
    ) -> Accepted | Refused:
        answer = super()._enqueue(items, ends, producer, refused)
        self._ring()
        return answer

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
        return self._coroutines.wait(answer)

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Wait until all that can be served is; what is paused, blocked or waits for its next attempt is left."""
        return self._changed.wait(lambda: self.is_ending or self._is_idle(), timeout)

    def _is_idle(self) -> bool:
        return self.is_resting and not any(
            not (book.paused or book.blocked is not None)
            for book in map(self.ledger.books.__getitem__, self.ledger.ring.order())
        )

    def close(self, timeout: float = CLOSE_S) -> None:
        """Serve no more: handlers that run come to their end, what they did is committed, and claims are released.

        What still runs after ``timeout`` seconds is left to its claim, and said so; it ends with the process.
        """
        if self._is_closed:
            return
        self._is_ending = True
        self._session.stopping = True
        end = self.runtime.now() + round(timeout * 1_000_000)
        stop_waiting = getattr(self._log.store, "stop_waiting", None)
        if callable(stop_waiting) and self._is_started:
            stop_waiting()
        actors = (*self._servers, self._watcher, self._pulse)
        for actor in actors:
            actor.stop()
        busy = [
            actor
            for actor in actors
            if not actor.join(max(0, end - self.runtime.now()) / 1_000_000)
        ]
        self._is_closed = True
        self._coroutines.close()
        if any(isinstance(actor, _Server) for actor in busy):
            logger.warning(
                "book %s is closed while %d handlers still run: their queues are served by others after lease_s",
                self.name,
                sum(isinstance(actor, _Server) for actor in busy),
            )
        else:
            self._close_store()
        self._changed.notify()

    def abort(self) -> None:
        """End without waiting for handlers."""
        self.close(0.0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(CLOSE_S if kind is None else 1.0)


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
        _, pause_us = self.book.serve()
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
        if not self.book.is_resting:
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

    def turn(self) -> None:
        self.book.pulse()
        self.after(micros(self.book.config.lease_s / 3))
