"""``BookQueue``: a book as its users see it, over a store."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, cast
from zlib import crc32

from surepipe.core.callables import (
    refuse_unknown,
    require_call,
    require_seconds,
    require_several,
    traceback_of,
)
from surepipe.core.effects import Notice
from surepipe.core.machine import Randomness
from surepipe.core.store_requests import CommitPosition, Store
from surepipe.errors import (
    MisuseError,
    PayloadTooLarge,
    PipeClosed,
    StoreReset,
    StoreUnavailable,
)
from surepipe.queues.book.addresses import Address, Addresses
from surepipe.queues.book.answers import (
    DONE,
    Accepted,
    AnyOutcome,
    ContextClosed,
    Done,
    EnqueueRefused,
    EnqueueUnknown,
    InWork,
    Later,
    Manual,
    Outcome,
    Parked,
    Producer,
    Raised,
    Reaped,
    Reentrant,
    Refused,
    RefusedBecause,
    Rejected,
    Serviced,
    TooHeavy,
    Undecided,
    Why,
)
from surepipe.queues.book.by_hand import ByHand
from surepipe.queues.book.changes import Change, Commit, Enqueue, Facts, Items
from surepipe.queues.book.config import NOTHING, BookConfig, Budget, Cost, CostOf
from surepipe.queues.book.events import BookEvent, Footprint, Reason
from surepipe.queues.book.ledger import Ledger, NotPlaced, Place, Placed
from surepipe.queues.book.log import BookLog, BookWrite
from surepipe.queues.book.page import HEADER, HEADER_BYTES, WAITING, Page, packed
from surepipe.queues.book.service import (
    Append,
    Effect,
    Handled,
    LoadPages,
    Passed,
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

logger = logging.getLogger("surepipe")
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

    __slots__ = ("_book", "_bytes", "_effects", "_is_open", "_items", "_work")

    def __init__(self, book: BookQueue, work: Work) -> None:
        self._book = book
        self._work = work
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
        return self._book.value_in(self._work, key)

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


def _payload_in(page: Page, slot: int) -> bytes:
    found = page.read(slot)
    assert found is not None, "the slot was just listed"
    return found.payload


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
        _check_functions(processor, cost)
        if not isinstance(store, str) and not hasattr(store, "ask"):
            raise MisuseError(
                f"the store of book {name!r} is {store!r}; give an open store, or its address, such as "
                "sqlite:///orders.db"
            )
        if not isinstance(cast("object", config), BookConfig | None):
            raise MisuseError(f"the config of book {name!r} is {config!r}; give BookConfig(...)")
        self.name = name
        self.config = config if config is not None else BookConfig()
        if worker is not None:
            _utf8("the name of a worker", worker)
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
            monotonic=monotonic,
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
        self._session.notice = self._notice
        self._listeners: list[Listener] = []
        self._silent: dict[str, tuple[int, int]] = {}
        """Worker to how many entries were heard of it, and since when there are no more."""
        self._works: dict[int, Work] = {}
        """What each call runs handlers for now,"""
        self._late: dict[str, Work] = {}
        """and by queue, handlers that nobody waits for any more."""
        self._stale_us = round(self.config.lease_s * 2_000_000 / 3)
        self._commit_us = self.config.commit_us
        self.stalled: dict[str, str] = {}
        """Queues that wait because a page of theirs can't be had, and why."""
        self._is_closed = False
        self.listener_failures = 0

    if not TYPE_CHECKING:  # a checker knows the names

        def __new__(cls, *_positional, **options):
            known = inspect.signature(cls.__init__).parameters
            if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
                refuse_unknown(cls.__name__, options, known.keys() - {"self"})
            return super().__new__(cls)

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

    _is_limited = False
    """Whether an attempt may take only so long, so that ``_called`` does more than call."""
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
        self,
        origin: str,
        payload: bytes,
        *,
        refused: Literal["raise", "return"] = "raise",
        wait_s: float = 0.0,
    ) -> Accepted | Refused:
        """Store one message; see ``enqueue_batch``."""
        items = (self.items_of(origin, (payload,)),)
        return self._enqueue(items, (payload, payload), None, refused, wait_s)

    def enqueue_many(
        self,
        origin: str,
        payloads: Iterable[bytes],
        *,
        refused: Literal["raise", "return"] = "raise",
        wait_s: float = 0.0,
    ) -> Accepted | Refused:
        """Store messages of one origin; see ``enqueue_batch``."""
        require_several("enqueue_many", payloads, "enqueue")
        payloads = payloads if isinstance(payloads, list | tuple) else list(payloads)
        items = self.items_of(origin, payloads)
        if not payloads:
            return Accepted(0)
        return self._enqueue((items,), (payloads[0], payloads[-1]), None, refused, wait_s)

    def enqueue_batch(
        self,
        messages: Iterable[tuple[str, bytes]],
        *,
        producer: Producer | None = None,
        refused: Literal["raise", "return"] = "raise",
        wait_s: float = 0.0,
    ) -> Accepted | Refused:
        """Store all messages, or none of them. They are stored when this returns.

        With a ``producer`` each message has a number, and what is stored already is not stored again. ``wait_s``:
        how long to wait for room in a queue that is full. Raises EnqueueRefused (or returns ``Refused``),
        PayloadTooLarge and MisuseError: nothing is stored. Raises StoreUnavailable, here as EnqueueUnknown: all of
        it is stored or nothing, and its ``again()`` goes on without storing anything twice.
        """
        require_several("enqueue_batch", messages, "enqueue")
        batch = list(messages)
        if not batch:
            return Accepted(0)
        try:
            items, ends = self._items_of_batch(batch, in_order=producer is not None)
        except (TypeError, ValueError) as error:
            raise MisuseError(
                f"enqueue_batch takes pairs of an origin and a payload, and not all of these are: {error}"
            ) from error
        return self._enqueue(tuple(items), ends, producer, refused, wait_s)

    def _items_of_batch(
        self, batch: list[tuple[str, bytes]], *, in_order: bool
    ) -> tuple[list[Items], tuple[bytes, bytes]]:
        """Packed messages by origin, and the first and the last of them. Raises what unpacking raises."""
        items: list[Items] = []
        if not in_order:
            grouped: dict[str, list[bytes]] = {}
            for origin, payload in batch:
                known = grouped.get(origin)
                if known is None:
                    grouped[origin] = [payload]
                else:
                    known.append(payload)
            items = self._items_of_many(grouped)
            return items, (batch[0][1], next(reversed(grouped.values()))[-1])
        # Numbers follow the order of the call, so only neighbours of one origin go together.
        start = 0
        for end in range(1, len(batch) + 1):
            if end == len(batch) or batch[end][0] != batch[start][0]:
                items.append(self.items_of(batch[start][0], [each for _, each in batch[start:end]]))
                start = end
        return items, (batch[0][1], batch[-1][1])

    def _items_of_many(self, grouped: Mapping[str, list[bytes]]) -> list[Items]:
        """The same for many origins; for a single message to a queue that is there, without a look at the name."""
        books, most, pack = self._log.ledger.books, self.config.max_message, HEADER.pack
        found: list[Items] = []
        for origin, payloads in grouped.items():
            payload = payloads[0]
            if (
                len(payloads) == 1
                and type(payload) is bytes
                and len(payload) <= most
                and origin in books
            ):
                found.append(Items(origin, 1, pack(len(payload), WAITING) + payload))
            else:
                found.append(self.items_of(origin, payloads))
        return found

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
        wait_s: float = 0.0,
    ) -> Accepted | Refused:
        self._guard("enqueue")
        if refused not in ("raise", "return"):
            raise MisuseError(f"refused is {refused!r}; write 'raise' or 'return'")
        size, most = sum([len(item.chunk) for item in items]), self.config.max_batch_bytes
        if size > most and size > most + HEADER_BYTES * sum(item.count for item in items):
            raise PayloadTooLarge(
                f"{size} bytes in one call are above max_batch_bytes={self.config.max_batch_bytes}; make "
                "several calls"
            )
        if wait_s:
            require_seconds(f"book {self.name!r}", wait_s, "wait_s", or_none=False)
        give_up_at = self._monotonic() + round(wait_s * 1_000_000) if wait_s else 0
        while True:
            answer, behind = self._try_enqueue(items, ends, producer)
            left = give_up_at - self._monotonic() if wait_s else 0
            if (
                not isinstance(answer, Refused)
                or answer.reason is not RefusedBecause.FULL
                or left <= 0
            ):
                break
            self._log.store.wait(self._log.stream, behind, left)  # room is made by a commit
        if isinstance(answer, Refused) and refused == "raise":
            raise EnqueueRefused(answer)
        return answer

    def _try_enqueue(
        self, items: tuple[Items, ...], ends: tuple[bytes, bytes], producer: Producer | None
    ) -> tuple[Accepted | Refused, int]:
        """Once; and which entry of the log is the next one, as of the answer."""
        with self._lock:
            self._check_open()
            placed: object = self._full(items) if producer is None else None
            if placed is None:
                entry = Enqueue(self._clock(), items)
                if producer is not None:
                    who = (producer.id, producer.epoch, producer.first, producer.base)
                    entry = Enqueue(self._clock(), items, *who)
                placed = self._written(BookWrite(entry), ends)
                self._checkpoint()
            behind = self._log.ledger.index + 1
        self._publish()
        return self._answer(placed, ends), behind

    def _written(self, write: BookWrite, ends: tuple[bytes, bytes]) -> object:
        try:
            return self._log.finish(write)
        except StoreUnavailable as error:

            def again() -> Accepted | Refused:
                with self._lock:
                    self._check_open()
                    placed = self._written(write, ends)
                self._publish()
                return self._answer(placed, ends)

            raise EnqueueUnknown(str(error), again) from error

    def _answer(self, placed: object, ends: tuple[bytes, bytes]) -> Accepted | Refused:
        if isinstance(placed, NotPlaced):
            return Refused(placed.reason, placed.origin, placed.footprint, placed.expected)
        assert isinstance(placed, Placed), "an enqueue is answered with what became of it"
        first = self._token(placed.first, ends[0]) if not placed.duplicates else ""
        return Accepted(
            placed.count,
            first,
            self._token(placed.last, ends[1]),
            placed.duplicates,
            placed.suspended,
        )

    def admit(
        self, messages: Iterable[tuple[str, bytes]], beside: CommitPosition | None = None
    ) -> Placed | NotPlaced:
        """Store all messages, and in the same step how far whoever gives them has come; or say who has no room.

        Room is looked for first. 1. There is some. 2. Another process fills it. 3. This entry stands behind the
        other one, and if it were refused there, the place would have moved and the messages were nowhere. So what
        was let in is stored, and a queue may hold somewhat more than ``refuse_pages``.

        Raises as ``enqueue_batch``, and Fenced where the place has another owner. Raises Undecided when the store
        gave no answer to the write itself: ``admitted`` tells later what came of it.
        """
        grouped: dict[str, list[bytes]] = {}
        for origin, payload in messages:
            grouped.setdefault(origin, []).append(payload)
        items = tuple(self.items_of(origin, payloads) for origin, payloads in grouped.items())
        self._guard("admit")
        with self._lock:
            self._check_open()
            if self._log.ledger.without_room(items) is not None:
                self._log.follow()  # others may have served meanwhile
            refused = self._log.ledger.without_room(items)
            if refused is not None:
                return refused
            write = BookWrite(Enqueue(self._clock(), items, is_sure=True))
            try:
                placed = self._log.finish(write, () if beside is None else (beside,))
            except StoreUnavailable as error:
                if write.run is None:
                    raise  # nothing of it was asked of the store
                raise Undecided(str(error), write) from error
            self._checkpoint()
        self._publish()
        assert isinstance(placed, Placed), "what was let in is stored"
        return placed

    def admitted(self, undecided: Undecided) -> Placed:
        """Repeat the write of this error under its number, and say what it did; nothing is stored twice.

        Raises StoreUnavailable while the store does not say, and what ended the write.
        """
        write = undecided.write
        assert isinstance(write, BookWrite)
        with self._lock:
            try:
                placed = self._log.finish(write)
            except StoreUnavailable:
                if write.failure is None:
                    raise
                placed = None  # it is stored, and what it did can't be told any more
        self._publish()
        return placed if isinstance(placed, Placed) else Placed(0, None, None, 0, suspended=False)

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
            return self._drive(worker.service(budget), worker)
        finally:
            with self._lock:  # others look through what it has ended
                worker.abandon()

    def _drive(self, steps: Generator[Request, object, T], worker: Worker | None = None) -> T:
        """Do what the steps ask for until they are over. The lock is held but while a handler runs.

        1. The commit of one worker claims a queue in vain. 2. Another worker claims it. 3. The first one takes
        note of the answer, and for it the queue is free. So nobody comes between an answer and its step.
        """
        answer: object = None
        served: T
        interruption: list[BaseException] = []
        work: Work | None = None
        try:
            while True:
                with self._lock:
                    self._session.wall = self._clock()
                    if isinstance(answer, Ran) and answer.is_late:
                        answer = self._settled_late(answer, work)
                    try:
                        request = steps.send(answer)
                        while not isinstance(request, RunMessages):
                            answer = self._served(request) if worker else self._perform(request)
                            self._session.wall = self._clock()
                            request = steps.send(answer)
                    except StopIteration as over:
                        served = cast("T", over.value)
                        break
                    if self._is_stale():
                        # Others may hold this process for dead; it starts no handler before they heard (B-92).
                        self._log.beat(self._clock())
                    self._enters()
                work = self._works[id(steps)] = Work(worker, request)
                answer = self._run(work, interruption)
                del self._works[id(steps)]
        finally:
            self._works.pop(id(steps), None)
        self._publish()
        if interruption:
            self._session.stopping = self._is_closed
            raise interruption[0]
        return served

    def _enters(self) -> None:
        """A handler is about to be called."""

    def _is_stale(self) -> bool:
        return self._monotonic() - self._log.renewed > self._stale_us

    def _perform(self, request: WriteEntry | LoadPages) -> object:
        if isinstance(request, LoadPages):
            self._log.load_pages(request.origin, request.pages)
            return True
        done = self._log.write(request.entry, request.effects)
        self._checkpoint()
        return done

    def _served(self, request: WriteEntry | LoadPages) -> object:
        """While it is served, a page that can't be had stops its own queue and no other one (B-95)."""
        if not isinstance(request, LoadPages):
            return self._perform(request)
        try:
            self._perform(request)
        except StoreUnavailable:
            return None
        except StoreReset as error:
            if self.stalled.get(request.origin) != str(error):
                self.stalled[request.origin] = str(error)
                self._stalls(request.origin, error)
            return False
        if self.stalled:
            self.stalled.pop(request.origin, None)
        return True

    def _notice(self, notice: Notice) -> None:
        """A message keeps failing: of a book without a host, a line of the log."""
        number = notice.ranges[0][0]
        logger.warning("book %s: %s, message %d: %s", self.name, notice.kind, number, notice.detail)

    def _stalls(self, origin: str, error: Exception) -> None:
        """A queue waits; whoever hosts the book tells it."""

    def _run(  # noqa: PLR0912, PLR0915 - one run, told in its order
        self, work: Work, interruption: list[BaseException]
    ) -> Ran:
        """Call the handler for one message after the other."""
        request = work.request
        handled: list[Done | Handled] = []
        now = self._monotonic
        began = now()
        ends = began + (self._commit_us or 1 << 62)
        log, session, stale_us = self._log, self._session, self._stale_us
        token = _handling.set((*_handling.get(), id(self._log)))
        attempts, slot, left = request.attempts, request.slot, request.left_us
        listening = self._log.ledger.listening
        addresses, origin = self._addresses, request.origin
        generation, page, declared = request.generation, request.page, request.declared_us
        work.since, is_late = began, False
        try:
            for number, payload in enumerate(request.payloads):
                if number:
                    at = work.since = now()
                    if (
                        at >= ends
                        or at - log.renewed > stale_us
                        or session.stopping
                        or (left is not None and at - began + declared[number] > left)
                    ):
                        break
                work.number = number
                place = (generation, page, slot + number)
                message = BookMessage(
                    origin, payload, attempts, place, request.number + number, addresses
                )
                context = Context(self, work)
                try:
                    run = copy_context().run  # what a handler sets there is gone with its message
                    if self._is_limited:
                        outcome = run(self._called, work, message, context)
                    else:
                        outcome = run(self._handled, message, context)
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
                            work.values[effect.key] = effect.value
                    handled.append(Handled(outcome, items, effects))
                    continue
                context.close()
                handled.append(Handled(outcome))
                is_late = isinstance(outcome, Raised) and outcome.is_late
                break
        except BaseException as error:  # noqa: BLE001 - it goes on behind the commit
            interruption.append(error)
            self._session.stopping = True
        finally:
            _handling.reset(token)
        return Ran(handled, now() - began, is_late)

    def _called(self, work: Work, message: BookMessage, context: Context) -> AnyOutcome:
        """What the handler gives."""
        del work
        return self._handled(message, context)

    def _handled(self, message: BookMessage, context: Context) -> AnyOutcome:
        return self._outcome(self._processor(message, context))

    def _settled_late(self, ran: Ran, work: Work | None) -> Ran:
        """The handler that nobody waits for may have returned meanwhile, before its queue was said to be late."""
        assert work is not None, "what ran has a work"
        if work.is_over:
            return Ran(ran.handled, ran.elapsed_us)
        self._late[work.request.origin] = work
        return ran

    def _returned(self, work: Work) -> None:
        """A handler has returned for which nobody waits any more: its queue may be served again."""
        origin = work.request.origin
        with self._lock:
            work.is_over = True
            if self._late.get(origin) is not work or self._is_closed:
                return
            del self._late[origin]
            self._session.late.discard(origin)
            self._session.active.discard(origin)
            book = self.ledger.books.get(origin)
            if book is not None and book.lease is not None and book.lease.worker == self.worker:
                self._log.write(Commit(self._clock(), released=(origin,)), ())

    def leases(self) -> list[InWork]:
        """What handlers of this process have in work now, by origin."""
        now = self._monotonic()
        found: list[InWork] = []
        for work in (*self._works.copy().values(), *self._late.copy().values()):
            request, number = work.request, work.number
            following = 0 if work.is_late else len(request.payloads) - number - 1
            found.append(
                InWork(
                    *(request.origin, request.generation, request.number + number, following),
                    request.attempts * (not number) + 1,
                    (now - work.since) / 1_000_000,
                    work.is_late,
                )
            )
        return sorted(found, key=lambda each: each.origin)

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
        now, lease = self._log.hearing, round(self.config.lease_s * 1_000_000)
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
        places: list[tuple[str, int, int, int, Facts | None, Page]] = []
        copies: dict[tuple[int, int], Page] = {}
        behind = None if after is None else self._addresses.read(after)
        self._look()
        with self._lock:
            for book, number, slot, facts in self.ledger.parked(origin):
                place = (book.generation, number, slot)
                if behind is not None and place <= (behind.generation, behind.page, behind.slot):
                    continue
                why = facts.reason if facts is not None else Reason.SWEPT
                if reason is not None and why is not reason:
                    continue
                page = book.pages[number]
                if facts is None:
                    page = copies.setdefault(place[:2], page)
                    if page is book.pages[number]:
                        page = copies[place[:2]] = page.copy()
                places.append((book.origin, *place, facts, page))
                if len(places) >= limit:
                    break
        # Of swept messages nothing is known but their bytes, and those are read while others go on.
        return [self._listed(*place) for place in places]

    def _listed(  # noqa: PLR0917 - what is known of one message
        self, origin: str, generation: int, number: int, slot: int, facts: Facts | None, page: Page
    ) -> Parked:
        if facts is not None:
            token = self._addresses.token(Address(generation, number, slot, facts.check))
            return Parked(
                *(token, origin, facts.reason, facts.cost, facts.attempts, facts.bytes),
                facts.since,
                facts.error,
            )
        if not page.is_loaded:
            self._log.load_page(generation, number, page)
        payload = _payload_in(page, slot)
        token = self._addresses.of(generation, number, slot, payload)
        return Parked(token, origin, Reason.SWEPT, NOTHING, 0, len(payload), 0)

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

    def _look(self) -> None:
        """Hear what others have written, before an answer is given; without holding up those who work."""
        self._log.look(self._lock)

    def footprint(self, origin: str) -> Footprint:
        """How much the queue holds; zeros for one that is not known."""
        self._look()
        with self._lock:
            return self.ledger.footprint(origin)

    def origins(self) -> list[str]:
        """The queues that there are."""
        self._look()
        with self._lock:
            return list(self.ledger.books)

    def ring(self) -> list[str]:
        """The ready queues, the head first."""
        self._look()
        with self._lock:
            return self.ledger.ring.order()

    def totals(self) -> Mapping[str, int]:
        """Counts since the book was made: messages enqueued, and their outcomes."""
        self._look()
        with self._lock:
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
            if not book.pages[page].is_loaded:
                self._log.load_page(book.generation, page, book.pages[page])
            payload = _payload_in(book.pages[page], slot)
            return self._addresses.token(Address(book.generation, page, slot, crc32(payload)))

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with every event of this process, behind the change. One that raises is counted."""
        require_call("a listener", listener, "event")
        self._listeners.append(listener)
        self._log.ledger.listening = True

    def hear_of_passed(self, listener: Callable[[Passed], object]) -> None:
        """Call the listener for each message that the service leaves behind unhandled, before that is stored.

        After a crash the same may be told again. It is called while the book is locked.
        """
        self._session.passed = listener

    def hear_of_left(self, listener: Callable[[str], object]) -> None:
        """Call the listener for each queue that a call, as it failed, had claimed or served: what was handled of
        it may not be stored, and is handled again then. It is called while the book is locked."""
        self._session.left = listener

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
        """What a handler has put under the key, once its message is stored as done."""
        with self._lock:
            return self._log.value(key)

    def value_in(self, work: Work, key: str) -> bytes | None:
        """The same for ``ctx.get``: what stands before it in its own slice counts as well, and goes with it. What
        another worker has put is not seen before it is stored, as its messages may come again."""
        with self._lock:
            found = work.values.get(key)
            if found is None and work.worker is not None:
                found = work.worker.put_before(key)
            return self._log.value(key) if found is None else found

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
        """Tell the other processes that this one is alive, while a handler takes long; and ``relieve`` it."""
        self.relieve()
        with self._lock:
            self._log.beat(self._clock())

    def relieve(self) -> None:
        """Commit what was handled before handlers that take longer than ``commit_s``, and give back the queues
        that were claimed to be served behind them (B-85). Called by another thread than theirs."""
        for work in list(self._works.values()):
            with self._lock:
                is_at_work = work in self._works.values() and work.worker is not None
                if is_at_work and self._monotonic() - work.since >= self._patience_us():
                    self._relieve(cast("Worker", work.worker), work.request.origin)

    def _patience_us(self) -> int:
        """How long a handler may take before others are given what waits behind it."""
        return self.config.commit_us

    def _relieve(self, worker: Worker, origin: str) -> None:
        steps, answer = worker.relieve(origin), None
        try:
            while True:
                request = steps.send(answer)
                assert isinstance(request, WriteEntry), "it only commits"
                answer = self._perform(request)
        except StopIteration:
            return
        finally:
            steps.close()

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


class Work:
    """Messages whose handlers run: for which worker (None: by hand), which one is being handled, and since
    when."""

    __slots__ = ("is_late", "is_over", "number", "request", "since", "values", "worker")

    def __init__(self, worker: Worker | None, request: RunMessages) -> None:
        self.worker = worker
        self.request = request
        self.number = 0
        self.values: dict[str, bytes] = {}
        """What its handlers have put, as long as their slice does not know of it."""
        self.since = 0
        self.is_late = False
        """Nobody waits for the handler any more;"""
        self.is_over = False
        """it has returned."""


def _raised(error: BaseException) -> Raised:
    return Raised(
        type(error).__name__,
        text_of(error),
        traceback_of(error),
        isinstance(error, RecursionError),
    )


def _check_functions(processor: object, cost: object) -> None:
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
    require_call("the processor", processor, "message, context")
    if isinstance(cost, Cost):
        return
    if not callable(cost):
        raise MisuseError(
            f"cost is {cost!r}; give a Cost, or a function of the payload that returns one"
        )
    require_call("cost", cost, "payload")
