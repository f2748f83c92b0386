"""A book under test: its clock stands, its handler does what payloads say, its events are kept."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace

from surepipe.core.store_requests import Store
from surepipe.queues.book import (
    BookConfig,
    BookMessage,
    BookQueue,
    Budget,
    Context,
    Cost,
    Done,
    Later,
    Producer,
    Rejected,
    Serviced,
    check_invariants,
)
from surepipe.queues.book.events import BookEvent, QueueChanged
from surepipe.queues.book.service import LoadPages, WriteEntry

SMALL = BookConfig(
    page_bytes=40,
    max_stale_pages=2,
    policy="rotate",
    period_budget=Budget(units=100),
    idle_budget=Budget(units=100),
)
"""The settings of most rows: pages of forty bytes, so that a few messages make several."""
SECOND = 1_000_000
Act = Callable[[BookMessage, Context], object]


def cost(payload: bytes) -> Cost:
    """One unit, or N where the payload begins ``weight=N``."""
    if not payload.startswith(b"weight="):
        return Cost()
    digits = payload.removeprefix(b"weight=")
    return Cost(int(digits[: len(digits) - len(digits.lstrip(b"0123456789"))] or digits))


OUTCOMES = {
    b"badformat": Rejected("BAD_FORMAT"),
    b"corrupt": Rejected("CORRUPT"),
    b"unsupported": Rejected("UNSUPPORTED"),
    b"stacklimitreached": Rejected("DEPTH"),
    b"yield": Later(),
}


class Death(BaseException):
    """The process of a worker ends here."""


class Mortal(BookQueue):
    """A book whose process can end at any moment: from then on it does nothing more."""

    is_dead = False

    def crash(self) -> None:
        """The process ends."""
        self.is_dead = True
        raise Death

    def _perform(self, request: WriteEntry | LoadPages) -> object:
        if self.is_dead:
            raise Death
        return super()._perform(request)


class Gate:
    """Handlers wait here until the test lets them go on, or is over; no limit of theirs can race its own."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self.set = self._opened.set
        self.is_set = self._opened.is_set

    def wait(self) -> None:
        """Until the gate is open."""
        self._opened.wait()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.set()


class Clocks:
    """Wall clock and monotonic clock of everybody, which go on when a test says so."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000 * SECOND
        self.now = 0

    def advance(self, seconds: float) -> None:
        """Both go on."""
        self.wall += round(seconds * SECOND)
        self.now += round(seconds * SECOND)


class BookUnderTest:
    """A book with everything that a row of the table needs. Invariants are checked after every step."""

    def __init__(
        self,
        store: Store,
        config: BookConfig = SMALL,
        *,
        name: str = "b",
        worker: str = "w",
        clocks: Clocks | None = None,
        listen: bool = True,
        **changes: object,
    ) -> None:
        self.store = store
        self.clocks = clocks or Clocks()
        self.ran: list[tuple[str, bytes]] = []
        self.events: list[BookEvent] = []
        self.acts: dict[bytes, Act] = {}
        self.always: Act | None = None
        self.outcomes = dict(OUTCOMES)
        self.book = Mortal.inline(
            name,
            store=store,
            processor=self._handle,
            cost=cost,
            config=replace(config, **changes),  # type: ignore[arg-type]
            worker=worker,
            clock=lambda: self.clocks.wall,
            monotonic=lambda: self.clocks.now,
            rng=random.Random(1),
        )
        if listen:
            self.book.subscribe(self._note)

    def _note(self, event: BookEvent) -> None:
        self.events.append(event)

    def _handle(self, message: BookMessage, context: Context) -> object:
        self.ran.append((message.origin, message.payload))
        act = self.acts.get(message.payload, self.always)
        if act is not None:
            return act(message, context)
        for suffix, outcome in self.outcomes.items():
            if message.payload.endswith(suffix):
                return outcome
        return Done()

    def check(self) -> None:
        """All invariants hold."""
        check_invariants(self.book)

    def put(self, **queues: str) -> None:
        """Enqueue words, one by one: ``put(A="a b", B="x")``."""
        for origin, words in queues.items():
            for word in words.split():
                self.book.enqueue(origin, word.encode())
                self.check()

    def svc(self, units: int | None = None) -> int:
        """Serve so many units, or without a budget; returns the units that were consumed."""
        return self.served(units).consumed[2]

    def served(self, units: int | None = None) -> Serviced:
        """Serve so many units, or without a budget."""
        served = self.book.service(None if units is None else Budget(units=units))
        self.check()
        return served

    def took(self) -> str:
        """The payloads that were handled since the last question."""
        words = " ".join(payload.decode() for _, payload in self.ran)
        self.ran.clear()
        return words

    def origins(self) -> str:
        """The origins that were served since the last question."""
        letters = "".join(origin for origin, _ in self.ran)
        self.ran.clear()
        return letters

    def changed(self) -> list[tuple[str, int, int]]:
        """Notifications since the last question: origin, messages, bytes."""
        found = [event for event in self.events if isinstance(event, QueueChanged)]
        self.events.clear()
        return [(each.origin, each.footprint.messages, each.footprint.bytes) for each in found]

    def told(self, kind: type) -> list[BookEvent]:
        """Events of a kind since the last question."""
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found

    def feet(self, origin: str) -> tuple[int, int, int, int]:
        """Pages, ready pages, messages and bytes."""
        foot = self.book.footprint(origin)
        return (foot.pages, foot.ready_pages, foot.messages, foot.bytes)

    def execute(self, origin: str, page: int, slot: int, units: int | None = None) -> str:
        """Execute by hand; returns why."""
        budget = None if units is None else Budget(units=units)
        answer = self.book.execute(self.book.address(origin, page, slot), budget)
        self.check()
        return answer.why.name

    def feed(self, who: str, epoch: int, first: int, last: int, base: int = 1) -> object:
        """Enqueue by identity: one message for each number."""
        batch = [("A", b"%d" % number) for number in range(first, last + 1)]
        answer = self.book.enqueue_batch(
            batch, producer=Producer(who, epoch, first, base), refused="return"
        )
        self.check()
        return answer

    def ring(self) -> str:
        """The ready queues, the head first."""
        return "".join(self.book.ring())


def changed_config(**changes: object) -> BookConfig:
    """The small settings with some others."""
    return replace(SMALL, **changes)  # type: ignore[arg-type]
