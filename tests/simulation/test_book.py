"""A book served by processes of a world: crashes and silent stores between any two of its writes, in virtual time.

A feeder enqueues by identity, two workers serve, and each of them ends, stands still or is replaced where the seed
says so. They are the actors of production; the store is that of the world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from surepipe.actors.books import ServedBook
from surepipe.audit.findings import Violation
from surepipe.core.store_requests import Batch, CommitPosition, JoinedRequest, Level, StreamInfo
from surepipe.errors import StoreUnavailable
from surepipe.queues.book import (
    BookConfig,
    BookMessage,
    BookQueue,
    Context,
    Cost,
    Producer,
    check_invariants,
)
from surepipe.queues.book.changes import Checkpoint
from surepipe.queues.book.checkpoint import Checkpoints
from surepipe.queues.book.ledger import Ledger
from surepipe.queues.book.log import BookLog
from surepipe.queues.book.page import HEADER, HEADER_BYTES, Page
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.actors.runtime import SimulatedRuntime
from surepipe.simulation.actors.stores import LifeStore, SharedStore
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.options import MS, Options
from surepipe.simulation.promises import Promise
from surepipe.simulation.world import Deployment, World, play, result_of
from tests.simulation.kit import supervised

ORIGINS = "ABC"
CONFIG = BookConfig(
    page_bytes=24,
    quantum=2,
    period_s=0.05,
    lease_s=2.0,
    commit_messages=3,
    retries=50,
    retry_max_s=0.2,
    max_message_cost=None,
    checkpoint_bytes=1 << 10,
    suspend_pages=None,
    resume_pages=None,
    refuse_pages=None,
)
LOOK_US = 100 * MS


def handle(message: BookMessage, context: Context) -> None:
    """One effect in a stream, one value; every fifth message has a child in another queue."""
    context.append("out", f"{message.origin}:".encode() + message.payload)
    context.put(message.payload.decode(), b"done")
    if message.payload.isdigit() and int(message.payload) % 5 == 0:
        context.enqueue("child", b"of " + message.payload)


class BookDeployment(Deployment):
    """A feeder and two workers over one store."""

    def __init__(self, book: type[ServedBook] = ServedBook) -> None:
        self._book = book
        self._is_fed = False
        self._messages = 0
        self.raised: list[str] = []

    def begin(self, world: World) -> None:
        """Feed, and serve until all of it is done."""
        self._messages = world.options.messages
        self._shared = SharedStore(world.add_store("main", Level.POWER))
        programs: dict[str, Callable[[Life], None]] = {
            "feeder": self._feed,
            "one": self._serve,
            "two": self._serve,
        }
        for name, program in programs.items():
            world.add_node(
                name,
                lambda life, program=program: supervised(life, program),  # type: ignore[misc]
                sends=name == "feeder",
                receives=name != "feeder",
            )

    def _opened(self, life: Life, name: str, *, serves: bool) -> ServedBook:
        return self._book(
            "book",
            store=LifeStore(self._shared, life),
            processor=handle,
            cost=Cost(),
            config=CONFIG,
            worker=name,
            workers=2,
            runtime=SimulatedRuntime(life),
            start=serves,
        )

    def _feed(self, life: Life) -> None:
        book = self._opened(life, "feeder", serves=False)
        for number in range(1, self._messages + 1):
            message = (ORIGINS[number % len(ORIGINS)], b"%d" % number)
            book.enqueue_batch([message], producer=Producer("feeder", 1, number))
        self._is_fed = True
        book.close()

    def _serve(self, life: Life) -> None:
        book = self._opened(life, life.node.name, serves=True)
        while not (self._is_fed and self._is_empty(book)):
            if book.failure is not None:
                raise book.failure
            life.sleep(LOOK_US)
        book.close()

    @staticmethod
    def _is_empty(book: ServedBook) -> bool:
        try:
            totals = book.totals()
        except StoreUnavailable:
            return False
        return totals["enqueued"] == totals["done"]

    def end(self, world: World) -> Sequence[Violation]:
        """Each effect is there once, in the order of its queue; the book is sound, and nothing is left in it."""
        if world.limit:
            return [
                Violation(
                    "book", "rest", len(world.rows) - 1, f"it never came to rest: {world.limit}"
                )
            ]
        store = self._shared.store
        store.is_down = False
        return [
            Violation("book", name, len(world.rows) - 1, text) for name, text in self._found(store)
        ]

    def _found(self, store: object) -> Iterator[tuple[str, str]]:
        book = BookQueue.inline(
            "book", store=store, processor=handle, config=CONFIG, worker="judge"
        )
        try:
            check_invariants(book)
        except AssertionError as error:
            yield "invariants", str(error)
        out = [payload.decode().split(":") for payload in _payloads(store, "out")]
        for origin in ORIGINS:
            wanted = [
                str(n) for n in range(1, self._messages + 1) if ORIGINS[n % len(ORIGINS)] == origin
            ]
            got = [payload for name, payload in out if name == origin]
            if got != wanted:
                yield "effects", f"{origin}: {got} in place of {wanted}"
        children = Counter(payload for name, payload in out if name == "child")
        wanted_children = Counter(f"of {n}" for n in range(1, self._messages + 1) if n % 5 == 0)
        if children != wanted_children:
            yield "children", f"{children} in place of {wanted_children}"
        if parked := book.parked():
            yield "parked", f"{parked}"


def _payloads(store: object, stream: str) -> list[bytes]:
    info = store.info(stream)  # type: ignore[attr-defined]
    found: list[bytes] = []
    index = info.earliest if isinstance(info, StreamInfo) else 0
    while isinstance(batch := store.read(stream, index, 100, 1 << 20), Batch):  # type: ignore[attr-defined]
        found += [payload for run in batch.entries for payload in run.payloads]
        index = batch.next
    return found


class BookSubject:
    """What is simulated."""

    name = "book"
    promise = Promise(confirms=False, stores=frozenset({"stream"}))

    def __init__(self, book: type[ServedBook] = ServedBook) -> None:
        self._book = book

    def facts(self) -> dict[str, object]:
        """Nothing beyond what is told of every run."""
        return {}

    def deployment(self) -> BookDeployment:
        """One run."""
        return BookDeployment(self._book)


CALM = Options(messages=20, chaos_us=3_000 * MS, store_us=MS)
TROUBLED = replace(
    CALM,
    sender_crashes=2,
    receiver_crashes=4,
    receiver_zombies=1,
    restart_us=500 * MS,
    crash_within=60,
    store_unknown_ppm=30_000,
    store_lost_ppm=30_000,
)


def run(
    seed: int, options: Options, book: type[ServedBook] = ServedBook
) -> tuple[str, Sequence[Violation]]:
    """The digest of a run, and what its deployment found."""
    chosen = replace(options, seed=seed)
    world = play(BookSubject(book), chosen, SeededChooser(chosen))
    return result_of(world, None).digest, list(world.found)


def test_nothing_is_found_where_nothing_goes_wrong() -> None:
    """The world, the feeder and the workers do come to their end."""
    assert run(0, CALM)[1] == []


LOST_A_MESSAGE = 52
"""1. A page is loaded from a checkpoint without its bytes. 2. Messages are added to it. 3. The one after the next
message was handled in its place."""
KEPT_A_PAGE = 126
"""1. Two processes make checkpoints of different entries at once. 2. The later one did not know the row of a page
that was gone already, and let it stand."""


@pytest.mark.parametrize("seed", [*range(10), LOST_A_MESSAGE, KEPT_A_PAGE])
def test_processes_end_between_any_two_writes(seed: int) -> None:
    """BQ-44: nothing is lost, and every staged effect is there once, in the order of its queue."""
    assert run(seed, TROUBLED)[1] == []


def _reads_from_the_wrong_place(page: Page, offset: int, most: int) -> list[bytes]:
    whole = bytes(page.heap)
    found: list[bytes] = []
    while offset < len(whole) and most:
        behind = offset + HEADER_BYTES + HEADER.unpack_from(whole, offset)[0]
        found.append(whole[offset + HEADER_BYTES : behind])
        offset, most = behind, most - 1
    return found or _upcoming(page, page.base, most)


_upcoming, _written = Page.upcoming, Checkpoints.written


def _over_any(
    checkpoints: Checkpoints, ledger: Ledger, wall: int
) -> tuple[Checkpoint, tuple[JoinedRequest, ...]]:
    entry, (guard, *rows) = _written(checkpoints, ledger, wall)
    assert isinstance(guard, CommitPosition)
    return entry, (replace(guard, tag=1, previous_tag=None), *rows)


def _without_effects(log: BookLog, effects: object) -> tuple[JoinedRequest, ...]:
    del log, effects
    return ()


def _twice_claimed(ledger: Ledger, writer: str, index: int, origin: str) -> bool:
    book = ledger.books.get(origin)
    if book is not None:
        book.lease = None
    return _claim(ledger, writer, index, origin)


_claim = Ledger._claim  # pyright: ignore[reportPrivateUsage] - one of the planted changes


@pytest.mark.parametrize(
    ("where", "name", "change", "seed"),
    [
        (Page, "upcoming", _reads_from_the_wrong_place, LOST_A_MESSAGE),
        (Checkpoints, "written", _over_any, KEPT_A_PAGE),
        (BookLog, "_requests", _without_effects, 0),
        (Ledger, "_claim", _twice_claimed, 1),
    ],
    ids=["wrong-message", "checkpoint-over-another", "cursor-without-effect", "two-claims"],
)
def test_a_planted_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, change: object, seed: int
) -> None:
    """Each of these mistakes was made, or nearly; the seed finds it."""
    monkeypatch.setattr(where, name, change)
    assert run(seed, TROUBLED)[1] != []


def test_a_seed_is_one_run() -> None:
    """The same rows each time."""
    assert run(3, TROUBLED)[0] == run(3, TROUBLED)[0]
