"""Processes that come back after they were replaced. The successor goes on, and they stay ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from surepipe import Pipe, PipeStopped, StreamReceiver, StreamSender
from surepipe.actors.steps import StepRuntime
from surepipe.actors.threads import THREADS
from surepipe.core.effects import SaveState, WriteStored
from surepipe.core.store_requests import (
    ClaimReader,
    GetPosition,
    OpenProducer,
    StoreOutcome,
    StoreRequest,
    Transaction,
    Unavailable,
)
from surepipe.core.store_requests import FencedOut as StoreFenced
from surepipe.errors import StoreUnavailable
from surepipe.storage.faulty import FaultyStore, FaultyTransaction, Misfortune
from surepipe.storage.memory import MemoryStore, MemoryTransaction
from surepipe.storage.positions import ReceiverState, numbered
from surepipe.storage.sqlite.store import SqliteStore
from tests.actors.kit import PATIENCE_S, Noted, await_that
from tests.actors.stored_kit import effects_in, make_effects, put_effect, sqlite_store

LAYERS = {"stream": {"start": "earliest"}}


@pytest.fixture(name="inside")
def make_inside(tmp_path: Path) -> Iterator[SqliteStore]:
    """The store that all processes share."""
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        yield store


def put(message: object, transaction: Transaction) -> None:
    """The effect, in the store behind the one that has misfortunes."""
    assert isinstance(transaction, FaultyTransaction)
    put_effect(message, cast("Transaction", transaction.inside))  # pyright: ignore[reportUnknownMemberType]


def receiving(store: FaultyStore, steps: StepRuntime, noted: Noted) -> Pipe:
    """A process with both ends, whose receiver's state is in the store."""
    pipe = Pipe("orders", state=store, boundary="committed", runtime=steps, notices=noted)
    pipe.receive(put)
    return pipe


def sending(store: FaultyStore, steps: StepRuntime, noted: Noted) -> StreamSender:
    """A process that writes into the stream, with a journal."""
    return StreamSender("orders", LAYERS, store=store, journal=store, runtime=steps, notices=noted)


def test_receiver_paused_until_its_commit_had_no_answer(inside: SqliteStore) -> None:
    """receiver: paused: a commit was due while it stood still, and it looks anew at what is stored.

    1. the older one commits and gets no answer; 2. a successor takes the receiver over; 3. the older one begins
    anew, and took the receiver back, so that the successor stopped (S-9, L-7).
    """
    steps, told, noted = StepRuntime(3), Noted(), Noted()
    broken = FaultyStore(inside)
    older = receiving(broken, steps, told)
    older.send(1, until="confirmed")
    broken.script(Misfortune.OUTAGE, on=FaultyTransaction)
    older.send(2)
    steps.advance(0.1)
    newer = receiving(FaultyStore(inside), steps, noted)
    newer.send(3, until="confirmed")
    steps.advance(10)
    with pytest.raises(PipeStopped, match="began later"):
        older.flush(0)
    newer.receiver.crash()
    newer.send(4, until="confirmed")
    assert effects_in(inside) == [1, 3, 4]
    assert "Fenced" in told.kinds()
    assert not noted.kinds()
    newer.close()
    with pytest.raises(PipeStopped):
        older.close()


class Book:
    """Effects in memory, in the transaction of the reader; ``first`` happens before that of its message."""

    def __init__(self) -> None:
        self.messages: list[object] = []
        self.first: dict[object, Callable[[], None]] = {}

    def put(self, message: object, transaction: Transaction) -> None:
        """The effect."""
        assert isinstance(transaction, MemoryTransaction)
        self.first.pop(message, _nothing)()
        transaction.also(lambda: self.messages.append(message))


def _nothing() -> None:
    """Happens before most messages."""


@pytest.mark.parametrize("comes_back_by", ["a store that did not answer", "a crash"])
def test_stream_reader_paused_and_replaced(comes_back_by: str) -> None:
    """stream: reader paused: it comes back with a new incarnation of its own, which claims the reader.

    The successor stopped, because the claim of a renewal counted like that of a new life (S-9, st8).
    """
    store, book, told, noted = MemoryStore(), Book(), Noted(), Noted()
    with ExitStack() as stack:

        def reading(notices: Noted) -> StreamReceiver:
            reader = StreamReceiver(
                "orders", LAYERS, store=store, boundary="committed", notices=notices
            )
            reader.receive(book.put)
            return stack.enter_context(reader)

        sender = stack.enter_context(StreamSender("orders", LAYERS, store=store))
        sender.send(1, until="confirmed")
        older = reading(told)
        assert older.catch_up(10)
        successors: list[StreamReceiver] = []

        def is_replaced() -> None:
            successors.append(reading(noted))
            assert successors[0].catch_up(10)

        def has_no_answer() -> None:
            is_replaced()
            raise StoreUnavailable("too late")

        if comes_back_by == "a crash":
            is_replaced()
            older.receiver.crash()
        else:
            book.first[2] = has_no_answer
        sender.send(2, until="confirmed")
        await_that(THREADS, lambda: older.receiver.works.ended, "the older one has ended")
        newer = successors[0]
        newer.receiver.crash()
        sender.send(3, until="confirmed")
        assert newer.catch_up(10)
        assert book.messages == [1, 2, 3]
        assert "Fenced" in told.kinds()
        assert not noted.kinds()


def test_journal_sender_paused_and_replaced(inside: SqliteStore) -> None:
    """journal: sender paused: its actor died, and the next one opened the journal above its successor.

    The successor was told Fenced at its next message, and both stopped sooner or later (L-2, L-7).
    """
    steps, told, noted = StepRuntime(5), Noted(), Noted()
    broken = FaultyStore(inside)
    older = sending(broken, steps, told)
    older.send(1, until="confirmed")
    older.sender.crash()
    newer = sending(FaultyStore(inside), steps, noted)
    newer.send(2, until="confirmed")
    steps.advance(10)
    with pytest.raises(PipeStopped, match="taken over by life"):
        older.send(3)
    newer.sender.crash()
    newer.send(4, until="confirmed")
    assert "Fenced" in told.kinds()
    assert not noted.kinds()
    newer.close()
    with pytest.raises(PipeStopped):
        older.close()


class JournalAway(FaultyStore):
    """A store that gives one question about the journal no answer, when it is told to, and others one."""

    was_away = True

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """No answer to the one."""
        is_question = isinstance(request, GetPosition) and not request.stream.startswith(
            "orders/stacks"
        )
        if self.was_away or not is_question:
            return super().ask(request)
        self.was_away = True
        return Unavailable("away")


def test_journal_sender_that_could_not_begin_until_it_was_replaced(inside: SqliteStore) -> None:
    """journal: first load late: its store was away when it started, and meanwhile somebody else was started."""
    steps, told = StepRuntime(6), Noted()
    broken = JournalAway(inside)
    older = sending(broken, steps, told)
    broken.was_away = False  # how far the journal was confirmed is known: next is what it holds
    steps.advance(0.1)
    assert broken.was_away
    newer = sending(FaultyStore(inside), steps, Noted())
    newer.send(1, until="confirmed")
    steps.advance(10)
    with pytest.raises(PipeStopped, match="began later"):
        older.send(2)
    newer.send(3, until="confirmed")
    assert told.kinds() == ["Fenced"]
    newer.close()
    with pytest.raises(PipeStopped):
        older.close()


class StreamAway(FaultyStore):
    """A store whose stream of messages does not answer for a while, though its journal does."""

    is_away = False

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """No answer about the messages."""
        if self.is_away and isinstance(request, OpenProducer) and request.stream == "orders":
            return Unavailable("away")
        return super().ask(request)


def test_journal_sender_that_goes_above_its_successor_when_that_one_began_anew(
    inside: SqliteStore,
) -> None:
    """journal: sender paused: the number above its successor was taken, by the next life of that one.

    Both had that life. Each stored its messages under the same numbers, and then either lost its own (L-2, L-7).
    1. the older one opens the journal, and its stream does not answer; 2. a successor is served, dies and begins
    anew, one above; 3. the older one is told of the successor's first life, and goes one above that.
    """
    steps, told, noted = StepRuntime(5), Noted(), Noted()
    first, second = StreamAway(inside), StreamAway(inside)
    first.is_away = True
    older = sending(first, steps, told)
    steps.advance(0.1)
    newer = sending(second, steps, noted)
    newer.send(1, until="confirmed")
    second.is_away = True
    newer.sender.crash()
    newer.send(2)
    steps.advance(1)
    first.is_away = False
    steps.advance(20)
    with pytest.raises(PipeStopped, match="has taken over"):
        older.send("lost")
    second.is_away = False
    newer.send(3, until="confirmed")
    got: list[object] = []
    with StreamReceiver("orders", LAYERS, store=inside) as reader:
        reader.receive(got.append)
        assert reader.catch_up(10)
    assert got == [1, 2, 3]
    assert "Fenced" in told.kinds()
    assert "Fenced" not in noted.kinds()
    newer.close()
    with pytest.raises(PipeStopped):
        older.close()


def test_receiver_that_could_not_begin_until_it_was_replaced(inside: SqliteStore) -> None:
    """receiver: first claim late: its store was away when it started, and meanwhile somebody else was started."""
    steps, told, noted = StepRuntime(7), Noted(), Noted()
    broken = FaultyStore(inside)
    broken.script(Misfortune.OUTAGE, on=ClaimReader)
    older = receiving(broken, steps, told)
    steps.advance(0.05)
    newer = receiving(FaultyStore(inside), steps, noted)
    newer.send(1, until="confirmed")
    steps.advance(10)
    assert older.receiver.works.ended
    newer.send(2, until="confirmed")
    assert effects_in(inside) == [1, 2]
    assert "Fenced" in told.kinds()
    assert not noted.kinds()
    newer.close()
    with pytest.raises(PipeStopped):
        older.close()


def test_receiver_state_late_claim_of_a_dead_incarnation() -> None:
    """receiver state: late claim: given up with its process, done after the next process has claimed.

    It fenced the living one, and nobody received any more (S-2, S-9).
    """
    store = FaultyStore(MemoryStore())
    dead = ReceiverState(store, "pipe", number_of_life=lambda: numbered(1, 0))
    alive = ReceiverState(store, "pipe", number_of_life=lambda: numbered(2, 0))
    store.script(Misfortune.LATE, on=ClaimReader, amount=3)
    with pytest.raises(StoreUnavailable):
        dead.load()
    assert alive.load() is None
    assert alive.write(SaveState(b"one")) == WriteStored()
    assert alive.write(SaveState(b"two")) == WriteStored()
    assert alive.load() == b"two", "a renewal of the living one"
    assert alive.write(SaveState(b"three")) == WriteStored()


class HeldBack(MemoryStore):
    """A store that the first claim of a reader of messages reaches late."""

    def __init__(self) -> None:
        super().__init__()
        self.held: ClaimReader | None = None
        self.is_asked = threading.Event()

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """No answer to the one."""
        if isinstance(request, ClaimReader) and self.held is None and request.stream == "orders":
            self.held = request
            self.is_asked.set()
            return Unavailable("on its way")
        return super().ask(request)

    def arrive(self) -> StoreOutcome:
        """The first claim gets through."""
        assert self.held is not None
        return super().ask(self.held)


def test_stream_late_claim_of_a_dead_incarnation() -> None:
    """stream: late claim: the actor dies before its claim is answered; the claim comes after that of the next.

    The living one was fenced at its next commit by an owner that nobody was.
    """
    noted, got, store = Noted(), list[object](), HeldBack()
    with (
        StreamSender("orders", LAYERS, store=store) as sender,
        StreamReceiver("orders", LAYERS, store=store, notices=noted) as reader,
    ):
        reader.receive(got.append)
        assert store.is_asked.wait(PATIENCE_S)
        reader.receiver.crash()
        sender.send(1, until="confirmed")
        await_that(THREADS, lambda: reader.counters().get("restarts") == 1, "the next life")
        sender.send(2, until="confirmed")
        assert reader.catch_up(10)
        assert isinstance(store.arrive(), StoreFenced)
        sender.send(3, until="confirmed")
        assert reader.catch_up(10)
        assert got[-2:] == [2, 3]
        assert noted.kinds() == []
