"""``BookQueue``: a book as its users see it, over a store."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import secrets
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar, cast
from zlib import crc32

from surepipe.core.machine import Randomness
from surepipe.core.store_requests import Store
from surepipe.errors import MisuseError, PayloadTooLarge, PipeClosed
from surepipe.queues.book.addresses import Address, Addresses
from surepipe.queues.book.answers import (
    DONE,
    Accepted,
    AnyOutcome,
    ContextClosed,
    Done,
    EnqueueRefused,
    Later,
    Manual,
    Outcome,
    Parked,
    Producer,
    Raised,
    Reaped,
    Reentrant,
    Refused,
    Rejected,
    Serviced,
    TooHeavy,
    Why,
)
from surepipe.queues.book.by_hand import ByHand
from surepipe.queues.book.changes import Change, Enqueue, Items
from surepipe.queues.book.config import NOTHING, BookConfig, Budget, Cost, CostOf
from surepipe.queues.book.events import BookEvent, Footprint, Reason
from surepipe.queues.book.ledger import Book, Ledger, NotPlaced, Place, Placed
from surepipe.queues.book.log import BookLog
from surepipe.queues.book.page import HEADER, WAITING, packed
from surepipe.queues.book.service import (
    Append,
    Effect,
    Handled,
    LoadPages,
    Put,
    Ran,
    Request,
    RunMessages,
    Session,
    Worker,
    WriteEntry,
    text_of,
)
from surepipe.storage import MemoryStore, open_store
from surepipe.storage.positions import number_now

ORIGIN_MAX_BYTES = 256
T = TypeVar("T")
Handler: TypeAlias = "Callable[[BookMessage, Context], Outcome | Awaitable[Outcome | None] | None]"
Listener: TypeAlias = Callable[[BookEvent], object]
_handling: ContextVar[tuple[int, ...]] = ContextVar("surepipe_book_handling", default=())
"""The books whose handlers the caller is in."""


class BookMessage:
    """What a handler gets. ``attempts``: how often it was tried before. ``address`` stays the same when the
    message comes again, so it tells a repeat from a new message wherever an effect leaves the store."""

    __slots__ = ("_addresses", "_place", "attempts", "number", "origin", "payload")

    def __init__(  # noqa: PLR0917 - made for each message
        self,
        origin: str,
        payload: bytes,
        attempts: int,
        place: tuple[int, int, int],
        number: int,
        addresses: Addresses,
    ) -> None:
        self.origin = origin
        self.payload = payload
        self.attempts = attempts
        self.number = number
        self._place = place
        self._addresses = addresses

    @property
    def generation(self) -> int:
        """Of its queue, within which ``number`` counts what arrived, from 1."""
        return self._place[0]

    @property
    def address(self) -> str:
        """The token of this message."""
        return self._addresses.of(*self._place, self.payload)

    def __repr__(self) -> str:
        return f"BookMessage({self.origin!r}, {self.payload!r}, attempts={self.attempts})"


class Context:
    """What a handler may change: all of it is stored with the end of its message, or none of it."""

    __slots__ = ("_book", "_bytes", "_effects", "_is_open", "_items", "_origin")

    def __init__(self, book: BookQueue, origin: str) -> None:
        self._book = book
        self._origin = origin
        self._items: list[Items] = []
        self._effects: list[Effect] = []
        self._bytes = 0
        self._is_open = True

    def _check(self, size: int) -> None:
        if not self._is_open:
            raise ContextClosed(
                "the handler of this context has returned, so nothing can be added to its message"
            )
        most = self._book.config.max_batch_bytes
        if self._bytes + size > most:
            raise PayloadTooLarge(
                f"one message may stage {most} bytes (max_batch_bytes); {self._bytes} are, {size} more are not"
            )
        self._bytes += size

    def enqueue(self, origin: str, payload: bytes) -> None:
        """Enqueue a message when this one is done."""
        items = self._book.items_of(origin, (payload,))
        self._check(len(items.chunk))
        self._items.append(items)

    def put(self, key: str, value: bytes) -> None:
        """Let the book's store have this value under the key when this message is done."""
        if not isinstance(cast("object", value), bytes):
            raise MisuseError(f"put {key!r}: a value is {type(value).__name__}; give bytes")
        if not key or len(_utf8("a key", key)) > ORIGIN_MAX_BYTES:
            raise MisuseError(
                f"put {key!r}: a key is text of 1 to {ORIGIN_MAX_BYTES} bytes of UTF-8"
            )
        self._check(len(value))
        self._effects.append(Put(key, value))

    def get(self, key: str) -> bytes | None:
        """The value under the key, as ``put`` by this handler or by one whose message is done."""
        for effect in reversed(self._effects):
            if isinstance(effect, Put) and effect.key == key:
                return effect.value
        return self._book.value(key)

    def append(self, stream: str, payload: bytes) -> None:
        """Append to a stream of the book's store when this message is done."""
        _check_payload(payload)
        self._check(len(payload))
        self._book.make_stream(stream)
        self._effects.append(Append(stream, payload))

    def close(self) -> tuple[tuple[Items, ...], tuple[Effect, ...]]:
        """What was staged; nothing more can be."""
        self._is_open = False
        return tuple(self._items), tuple(self._effects)

    @property
    def is_unused(self) -> bool:
        """Whether nothing was staged."""
        return not (self._items or self._effects)


def _utf8(what: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise MisuseError(f"{what} is {type(text).__name__} {text!r}; give text")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MisuseError(f"{what} is {text!r}, which is no text that UTF-8 can write") from error


def _check_payload(payload: object) -> None:
    if not isinstance(payload, bytes):
        raise MisuseError(
            f"a payload is {type(payload).__name__}; a book takes bytes: encode it, as by "
            "json.dumps(...).encode()"
        )


def _wall_us() -> int:
    return time.time_ns() // 1_000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


class BookQueue:
    """Many queues in one store, served fairly within a budget.

    ``inline`` makes one that runs handlers on the thread that calls ``service``. Any number of threads may call,
    and any number of processes may open the same book.
    """

    def __init__(
        self,
        name: str,
        *,
        store: Store | str,
        processor: Handler,
        cost: CostOf = Cost(),  # noqa: B008 - it never changes
        config: BookConfig | None = None,
        worker: str | None = None,
        clock: Callable[[], int] = _wall_us,
        monotonic: Callable[[], int] = _monotonic_us,
        rng: Randomness | None = None,
        lock: AbstractContextManager[object] | None = None,
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        """Open the book; it is made at the first use.

        ``store`` is a store or its address, such as ``sqlite:///orders.db``; one that is opened here is closed
        with the book. ``cost`` is a Cost or a function of the payload. ``worker`` names this process: one that is
        started again under its name goes on at once with what it had claimed; without a name that takes
        ``lease_s``.
        ``clock`` and ``monotonic`` give microseconds; ``lock`` keeps the callers of this object apart, where they
        are no threads. Raises ConfigurationError, StoreUnavailable, Fenced.
        """
        _utf8("the name of a book", name)
        if not name:
            raise MisuseError("the name of a book is empty")
        _refuse_generators(processor, cost)
        self.name = name
        self.config = config if config is not None else BookConfig()
        self.worker = worker or f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(4)}"
        self._processor = cast("Callable[[BookMessage, Context], object]", processor)
        self._clock = clock
        self._monotonic = monotonic
        self._lock = lock or threading.RLock()
        self._owned = open_store(store, name) if isinstance(store, str) else None
        self._log = BookLog(
            cast("Store", self._owned or store),
            name,
            self.worker,
            self.config,
            number_of_life=number_of_life,
        )
        self._log.open(clock())
        self._addresses = Addresses(name, self._log.incarnation)
        self._session = Session(
            self.worker,
            self._log.ledger,
            self.config,
            cost,
            self._addresses,
            rng or random.Random(secrets.randbits(64)),
        )
        self._listeners: list[Listener] = []
        self._silent: dict[str, tuple[int, int]] = {}
        """Worker to how many entries were heard of it, and since when there are no more."""
        self._values: dict[str, bytes] = {}
        """What handlers have put and the store does not have yet."""
        self._is_closed = False
        self.listener_failures = 0

    @classmethod
    def inline(cls, name: str, **options: Any) -> Self:
        """A book that is served by the thread that calls ``service``, and by nothing else."""
        return cls(name, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    _exits_are_failures = False
    """Whether a handler that raises ``SystemExit`` and the like has failed; else that goes on to the caller."""

    @property
    def ledger(self) -> Ledger:
        """The book as this process knows it, to look at."""
        return self._log.ledger

    @property
    def store_requests(self) -> int:
        """How often the store was asked to read or write the log."""
        return self._log.requests

    # Enqueueing.

    def enqueue(
        self, origin: str, payload: bytes, *, refused: Literal["raise", "return"] = "raise"
    ) -> Accepted | Refused:
        """Store one message; see ``enqueue_batch``."""
        return self._enqueue(
            (self.items_of(origin, (payload,)),), (payload, payload), None, refused
        )

    def enqueue_many(
        self,
        origin: str,
        payloads: Sequence[bytes],
        *,
        refused: Literal["raise", "return"] = "raise",
    ) -> Accepted | Refused:
        """Store messages of one origin; see ``enqueue_batch``."""
        items = self.items_of(origin, payloads)
        if not payloads:
            return Accepted(0)
        return self._enqueue((items,), (payloads[0], payloads[-1]), None, refused)

    def enqueue_batch(
        self,
        messages: Iterable[tuple[str, bytes]],
        *,
        producer: Producer | None = None,
        refused: Literal["raise", "return"] = "raise",
    ) -> Accepted | Refused:
        """Store all messages, or none of them. They are stored when this returns.

        With a ``producer`` each message has a number, and what is stored already is not stored again. Raises
        EnqueueRefused (or returns ``Refused``), PayloadTooLarge and MisuseError: nothing is stored. Raises
        StoreUnavailable: all of it is stored or nothing, and the same call under a producer tells.
        """
        batch = list(messages)
        if not batch:
            return Accepted(0)
        items: list[Items] = []
        if producer is None:
            grouped: dict[str, list[bytes]] = {}
            for origin, payload in batch:
                grouped.setdefault(origin, []).append(payload)
            items = [self.items_of(origin, payloads) for origin, payloads in grouped.items()]
            ends = (batch[0][1], next(reversed(grouped.values()))[-1])
        else:
            # Numbers follow the order of the call, so only neighbours of one origin go together.
            start = 0
            for end in range(1, len(batch) + 1):
                if end == len(batch) or batch[end][0] != batch[start][0]:
                    items.append(
                        self.items_of(batch[start][0], [each for _, each in batch[start:end]])
                    )
                    start = end
            ends = (batch[0][1], batch[-1][1])
        return self._enqueue(tuple(items), ends, producer, refused)

    def items_of(self, origin: str, payloads: Sequence[bytes]) -> Items:
        """Packed messages for one origin; raises MisuseError and PayloadTooLarge."""
        is_plain = type(origin) is str and origin.isascii()
        if not is_plain or not 0 < len(origin) <= ORIGIN_MAX_BYTES:
            size = len(_utf8("an origin", origin))
            if not 0 < size <= ORIGIN_MAX_BYTES:
                raise MisuseError(
                    f"an origin has {size} bytes of UTF-8; give 1 to {ORIGIN_MAX_BYTES}"
                )
        most = self.config.max_message
        for payload in payloads:
            if type(payload) is not bytes:
                _check_payload(payload)
            if len(payload) > most:
                raise PayloadTooLarge(
                    f"a payload of {len(payload)} bytes does not fit into a page: at most {most} (page_bytes - 5)"
                )
        if len(payloads) == 1:
            return Items(origin, 1, HEADER.pack(len(payloads[0]), WAITING) + payloads[0])
        return Items(origin, len(payloads), packed(payloads))

    def _enqueue(
        self,
        items: tuple[Items, ...],
        ends: tuple[bytes, bytes],
        producer: Producer | None,
        refused: str,
    ) -> Accepted | Refused:
        self._guard("enqueue")
        size = sum(len(item.chunk) for item in items)
        if size > self.config.max_batch_bytes + 5 * sum(item.count for item in items):
            raise PayloadTooLarge(
                f"{size} bytes in one call are above max_batch_bytes={self.config.max_batch_bytes}; make "
                "several calls"
            )
        with self._lock:
            self._check_open()
            placed: object = self._full(items) if producer is None else None
            if placed is None:
                entry = Enqueue(self._clock(), items)
                if producer is not None:
                    who = (producer.id, producer.epoch, producer.first, producer.base)
                    entry = Enqueue(self._clock(), items, *who)
                placed = self._log.write(entry, ())
                self._checkpoint()
        self._publish()
        if isinstance(placed, NotPlaced):
            answer = Refused(placed.reason, placed.origin, placed.footprint, placed.expected)
            if refused == "raise":
                raise EnqueueRefused(answer)
            return answer
        assert isinstance(placed, Placed), "an enqueue is answered with what became of it"
        first = self._token(placed.first, ends[0]) if not placed.duplicates else ""
        return Accepted(
            placed.count,
            first,
            self._token(placed.last, ends[1]),
            placed.duplicates,
            placed.suspended,
        )

    def _full(self, items: tuple[Items, ...]) -> NotPlaced | None:
        """A refusal that needs no entry. Others may have served meanwhile, so they are heard first."""
        if self._log.ledger.full(items) is None:
            return None
        self._log.follow()
        return self._log.ledger.full(items)

    def _token(self, place: Place | None, payload: bytes) -> str:
        if place is None:
            return ""
        return self._addresses.of(place.generation, place.page, place.slot, payload)

    # Service.

    def service(self, budget: Budget | None = None) -> Serviced:
        """Serve the queues within the budget; without one, as many messages as are waiting now.

        Raises Reentrant, StoreUnavailable, StoreReset, and Fenced when this process was declared dead.
        """
        self._guard("service")
        with self._lock:
            self._check_open()
            self._log.follow()
            self._end_silent()
        worker = Worker(self._session)
        try:
            return self._drive(worker.service(budget))
        finally:
            worker.abandon()

    def _drive(self, steps: Generator[Request, object, T]) -> T:
        """Do what the steps ask for until they are over. The lock is held but while a handler runs.

        1. The commit of one worker claims a queue in vain. 2. Another worker claims it. 3. The first one takes
        note of the answer, and for it the queue is free. So nobody comes between an answer and its step.
        """
        answer: object = None
        served: T
        interruption: list[BaseException] = []
        while True:
            with self._lock:
                self._session.wall = self._clock()
                try:
                    request = steps.send(answer)
                    while not isinstance(request, RunMessages):
                        answer = self._perform(request)
                        self._session.wall = self._clock()
                        request = steps.send(answer)
                except StopIteration as over:
                    served = cast("T", over.value)
                    break
            answer = self._run(request, interruption)
        self._publish()
        if interruption:
            self._session.stopping = self._is_closed
            raise interruption[0]
        return served

    def _perform(self, request: WriteEntry | LoadPages) -> object:
        if isinstance(request, LoadPages):
            self._log.load_pages(request.origin, request.pages)
            return None
        done = self._log.write(request.entry, request.effects)
        for effect in request.effects:
            if isinstance(effect, Put):
                self._values.pop(effect.key, None)
        self._checkpoint()
        return done

    def _run(self, request: RunMessages, interruption: list[BaseException]) -> Ran:
        """Call the handler for one message after the other."""
        handled: list[Done | Handled] = []
        began = self._monotonic()
        token = _handling.set((*_handling.get(), id(self._log)))
        attempts, slot, left = request.attempts, request.slot, request.left_us
        listening = self._log.ledger.listening
        processor, addresses, origin = self._processor, self._addresses, request.origin
        generation, page, declared = request.generation, request.page, request.declared_us
        try:
            for number, payload in enumerate(request.payloads):
                if (
                    number
                    and left is not None
                    and self._monotonic() - began + declared[number] > left
                ):
                    break
                place = (generation, page, slot + number)
                message = BookMessage(
                    origin, payload, attempts, place, request.number + number, addresses
                )
                context = Context(self, origin)
                try:
                    outcome = self._outcome(processor(message, context))
                except Exception as error:  # noqa: BLE001 - whatever a handler raises is an outcome
                    outcome = _raised(error)
                except BaseException as error:
                    if not self._exits_are_failures:
                        raise
                    outcome = _raised(error)
                attempts = 0
                if isinstance(outcome, Done):
                    is_plain = outcome is DONE or not listening
                    if is_plain and context.is_unused:
                        context.close()
                        handled.append(DONE)
                        continue
                    items, effects = context.close()
                    for effect in effects:
                        if isinstance(effect, Put):
                            self._values[effect.key] = effect.value
                    handled.append(Handled(outcome, items, effects))
                    continue
                context.close()
                handled.append(Handled(outcome))
                break
        except BaseException as error:  # noqa: BLE001 - it goes on behind the commit
            interruption.append(error)
            self._session.stopping = True
        finally:
            _handling.reset(token)
        return Ran(handled, self._monotonic() - began)

    def _outcome(self, answer: object) -> AnyOutcome:
        if answer is None:
            return DONE
        if isinstance(answer, Done | Rejected | Later | TooHeavy):
            return answer
        if inspect.isawaitable(answer):
            return self._outcome(self._awaited(answer))
        if inspect.isgenerator(answer):
            answer.close()
        name = getattr(self._processor, "__qualname__", repr(self._processor))
        return Raised(
            "MisuseError",
            f"handler {name} returned {type(answer).__name__} {answer!r:.100}; return Done(), Rejected(...), "
            "Later(...), TooHeavy(...) or None",
        )

    def _awaited(self, answer: Awaitable[object]) -> object:
        async def whole() -> object:
            return await answer

        with asyncio.Runner() as runner:
            return runner.run(whole(), context=copy_context())

    def _end_silent(self) -> None:
        """A process that has claimed queues and is not heard of for ``lease_s`` is declared dead."""
        now, lease = self._monotonic(), round(self.config.lease_s * 1_000_000)
        holders = {
            *self.ledger.taken.values(),
            *(name for name, held in self.ledger.leased.items() if held),
        }
        for worker in sorted(holders - {self.worker}):
            heard = self._log.heard.get(worker, 0)
            known, since = self._silent.get(worker, (-1, now))
            if known != heard:
                self._silent[worker] = (heard, now)
            elif now - since >= lease:
                self._log.declare_dead(worker, self._clock())
                self._silent.pop(worker, None)

    # By hand.

    def parked(
        self,
        origin: str | None = None,
        *,
        reason: Reason | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Parked]:
        """Messages that wait for a person, oldest first per origin; ``after`` is the last address of the list
        before."""
        found: list[Parked] = []
        behind = None if after is None else self._addresses.read(after)
        with self._lock:
            self._log.follow()
            for book, number, slot, facts in self.ledger.parked(origin):
                place = (book.generation, number, slot)
                if behind is not None and place <= (behind.generation, behind.page, behind.slot):
                    continue
                why = facts.reason if facts is not None else Reason.SWEPT
                if reason is not None and why is not reason:
                    continue
                found.append(self._listed(book, number, slot))
                if len(found) >= limit:
                    break
        return found

    def _listed(self, book: Book, number: int, slot: int) -> Parked:
        facts = book.parked.get((number, slot))
        if facts is None and number == book.begin:
            facts = book.blocked
        if facts is not None:
            token = self._addresses.token(Address(book.generation, number, slot, facts.check))
            return Parked(
                token,
                book.origin,
                facts.reason,
                facts.cost,
                facts.attempts,
                facts.bytes,
                facts.since,
            )
        payload = self._stored_payload(book, number, slot)
        token = self._addresses.of(book.generation, number, slot, payload)
        return Parked(token, book.origin, Reason.SWEPT, NOTHING, 0, len(payload), 0)

    def _stored_payload(self, book: Book, number: int, slot: int) -> bytes:
        page = book.pages[number]
        if not page.is_loaded:
            self._log.load_pages(book.origin, (number,))
        found = page.read(slot)
        assert found is not None, "the slot was just listed"
        return found.payload

    def payload(self, address: str) -> bytes | None:
        """The bytes of a message that waits for a person; None when nothing waits under this address."""
        return self._by_hand("payload", lambda hand: hand.payload(address))

    def execute(self, address: str, budget: Budget | None = None) -> Manual:
        """Run one message that waits for a person through the handler, however heavy it is."""
        return self._by_hand("execute", lambda hand: hand.execute(address, budget))

    def discard(self, address: str, note: str) -> Manual:
        """Give a message up: it goes to the dead letters, with the note."""
        return self._by_hand("discard", lambda hand: hand.discard(address, note))

    def requeue(self, address: str, origin: str | None = None) -> Manual:
        """Move a message to the tail of its own or another queue. The answer has its new address."""
        if origin is not None:
            self.items_of(origin, ())
        return self._by_hand("requeue", lambda hand: hand.requeue(address, origin))

    def reap(self, origin: str, limit: int = 1) -> list[Reaped]:
        """Remove the oldest pages of parked messages, as far as there are too many; they become dead letters."""
        found: list[Reaped] = []
        self._guard("reap")
        with self._lock:
            self._log.follow()
            book = self.ledger.books.get(origin)
            numbers = sorted(number for number in book.pages if number < book.begin) if book else []
        for number in numbers:
            if len(found) == limit:
                break
            done = self._by_hand("reap", partial(ByHand.reap, origin=origin, number=number))
            if not done.ok:
                break
            found.append(done)
        return found

    def reap_page(self, address: str) -> Reaped:
        """Remove the page that this message is in, if it may be reaped."""
        place = self._addresses.read(address)
        origin = self.ledger.generations.get(place.generation)
        if origin is None:
            return Reaped(False, Why.NOT_FOUND, place.page)
        return self._by_hand("reap", lambda hand: hand.reap(origin, place.page))

    def _by_hand(self, what: str, make: Callable[[ByHand], Generator[Request, object, T]]) -> T:
        self._guard(what)
        with self._lock:
            self._check_open()
            self._log.follow()
        hand = ByHand(self._session)
        try:
            return self._drive(make(hand))
        finally:
            hand.close()

    def sweep(self, origin: str) -> None:
        """Take everything that waits out of the service; it is kept, and listed as parked."""
        self._change("sweep", origin)

    def pause(self, origin: str) -> None:
        """Serve this queue no more until ``unpause``; it takes messages all the same."""
        self._change("pause", origin)

    def unpause(self, origin: str) -> None:
        """Serve this queue again."""
        self._change("unpause", origin)

    def set_weight(self, origin: str, weight: int) -> None:
        """Give this queue so many times the share of a queue of weight 1."""
        if type(weight) is not int or not 1 <= weight <= 1_000:
            raise MisuseError(f"a weight is {weight!r}; give a whole number from 1 to 1000")
        self._change("weight", origin, weight)

    def force_head(self, origin: str) -> bool:
        """Let the next call begin at this queue; False when nothing of it waits to be served."""
        return bool(self._change("force", origin))

    def _change(self, verb: str, origin: str, number: int = 0) -> object:
        self._guard(verb)
        self.items_of(origin, ())
        with self._lock:
            self._check_open()
            done = self._log.write(Change(self._clock(), verb, origin, number), ())
        self._publish()
        return done

    # Looking.

    def footprint(self, origin: str) -> Footprint:
        """How much the queue holds; zeros for one that is not known."""
        with self._lock:
            self._log.follow()
            return self.ledger.footprint(origin)

    def origins(self) -> list[str]:
        """The queues that there are."""
        with self._lock:
            self._log.follow()
            return list(self.ledger.books)

    def ring(self) -> list[str]:
        """The ready queues, the head first."""
        with self._lock:
            self._log.follow()
            return self.ledger.ring.order()

    def totals(self) -> Mapping[str, int]:
        """What was enqueued, and what became of it, since the book was made."""
        with self._lock:
            self._log.follow()
            return dict(self.ledger.totals)

    def explain(self, address: str) -> tuple[str | None, int, int, int]:
        """For diagnosis: origin, generation, page and slot of an address."""
        place = self._addresses.read(address)
        origin = self.ledger.generations.get(place.generation)
        return (origin, place.generation, place.page, place.slot)

    def address(self, origin: str, page: int, slot: int) -> str:
        """For diagnosis: the address of a message. One that is not stored has one too, which finds nothing."""
        with self._lock:
            book = self.ledger.books.get(origin)
            if book is None or page not in book.pages or slot >= book.pages[page].slots:
                generation = book.generation if book else 0
                return self._addresses.token(Address(generation, page, slot, 0))
            payload = self._stored_payload(book, page, slot)
            return self._addresses.token(Address(book.generation, page, slot, crc32(payload)))

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with every event of this process, behind the change. One that raises is counted."""
        self._listeners.append(listener)
        self._log.ledger.listening = True

    def _publish(self) -> None:
        if not self._listeners:
            return
        with self._lock:
            events, self._log.ledger.events = self._log.ledger.events, []
        for event in events:
            for listener in self._listeners:
                try:
                    listener(event)
                except Exception:  # noqa: BLE001 - it must not disturb the book
                    self.listener_failures += 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.origins())

    # For contexts.

    def value(self, key: str) -> bytes | None:
        """What a handler has put under the key, for ``ctx.get``."""
        if key in self._values:
            return self._values[key]
        with self._lock:
            return self._log.value(key)

    def make_stream(self, stream: str) -> None:
        """Let there be a stream, for ``ctx.append``."""
        with self._lock:
            self._log.make_stream(stream)

    # The rest.

    def _guard(self, what: str) -> None:
        if id(self._log) in _handling.get():
            raise Reentrant(
                f"{what} of book {self.name!r} was called by a handler of this book; use the handler's context: "
                "what it stages is stored with the message"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise PipeClosed(f"book {self.name!r} is closed")

    def _checkpoint(self) -> None:
        self._log.checkpoint_if_due(self._clock())

    def beat(self) -> None:
        """Tell the other processes that this one is alive, while a handler takes long."""
        with self._lock:
            self._log.beat(self._clock())

    def close(self) -> None:
        """Take no more calls. A call to ``service`` that is under way commits what it has done and returns."""
        self._session.stopping = True
        self._is_closed = True
        self._close_store()

    def _close_store(self) -> None:
        """Of a store that was opened here, once nobody is at work in it."""
        owned, self._owned = self._owned, None
        if owned is not None and not isinstance(owned, MemoryStore):
            with self._lock:
                owned.close()


def _raised(error: BaseException) -> Raised:
    return Raised(
        type(error).__name__,
        text_of(error),
        "".join(traceback.format_exception(error)),
        isinstance(error, RecursionError),
    )


def _refuse_generators(processor: object, cost: object) -> None:
    for what, function in (("processor", processor), ("cost", cost)):
        inner = function
        while hasattr(inner, "func"):
            inner = cast("partial[object]", inner).func
        name = getattr(inner, "__qualname__", repr(inner))
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise MisuseError(
                f"{what} {name} is a generator function; nobody would run it: let it return its result"
            )
        if what == "cost" and inspect.iscoroutinefunction(inner):
            raise MisuseError(
                f"cost {name} is a coroutine function; a cost is told at once: make it a plain function"
            )
    if not callable(processor):
        raise MisuseError(
            f"processor is {processor!r}; give a function of a message and its context"
        )
    if not callable(cost) and not isinstance(cost, Cost):
        raise MisuseError(
            f"cost is {cost!r}; give a Cost, or a function of the payload that returns one"
        )
