"""What a receiver that commits effects gives up is in the letters or processed, never both: over each kind of
store."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from surepipe.actors import Pipe, StreamReceiver
from surepipe.core.effects import Letter
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    CommitPosition,
    Store,
    Transaction,
)
from surepipe.errors import PipeStopped, StoreUnavailable
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.letters import DeadLetterStream
from surepipe.storage.memory import MemoryStore
from tests.actors.kit import PATIENCE_S, await_that
from tests.actors.stored_kit import STREAM
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import SqliteBench


@pytest.fixture(name="store")
def make_store(any_bench: MemoryBench | SqliteBench | RedisBench) -> Store:
    """Each store, with a stream of effects."""
    store = MemoryStore() if isinstance(any_bench, MemoryBench) else any_bench.store
    store.create("effects", 1, KEEP_ALL)
    return store


def put_effect(message: object, transaction: Transaction) -> None:
    """One effect of each message."""
    transaction.append(AppendRun("effects", f"of {message}", 1, 1, [f"{message}".encode()]))


class RefusesOnce:
    """Puts an effect, and raises the first time that it sees a 2."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def __call__(self, message: object, transaction: Transaction) -> None:
        self.calls.append(message)
        put_effect(message, transaction)
        if message == 2 and self.calls.count(2) == 1:
            raise KeyError("price")


def payloads_in(store: Store, stream: str) -> list[bytes]:
    """All that is in a stream."""
    found = store.read(stream, 1, 100, 1 << 20)
    entries = found.entries if isinstance(found, Batch) else ()
    return [payload for run in entries for payload in run.payloads]


def check_a_crash(place_of: Store, store: Store, roles: Mapping[str, Any], *, stored: bool) -> None:
    """A pipe whose receiver is killed when its letter is stored, or is about to be."""
    letters = DeadLetterStream(place_of, "orders/dead")
    crashed: list[Letter] = []

    def place(letter: Letter) -> None:
        if stored or crashed:
            letters(letter)
        if not crashed:
            crashed.append(letter)
            pipe.receiver.crash()
            raise StoreUnavailable("killed")

    handle = RefusesOnce()
    with Pipe("orders", boundary="committed", retries=1, dead_letter=place, **roles) as pipe:
        pipe.receive(handle)
        pipe.send_many([1, 2, 3])
        pipe.flush(PATIENCE_S)
    (found,) = letters.all()
    assert (found.letter.seq, found.letter.error_type) == (2, "KeyError")
    assert found.letter.payload == crashed[0].payload
    assert payloads_in(store, "effects") == [b"1", b"3"]
    assert handle.calls == [1, 2, 3]


@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_crash_around_a_letter_leaves_a_letter_and_no_effect(
    store: Store, is_stored: bool, is_elsewhere: bool
) -> None:
    """1. A message is given up. 2. The receiver is killed when its letter is about to be stored, or just is.
    3. The message comes again, and the handler would take it now (pipes D-2, S-11)."""
    place_of = MemoryStore() if is_elsewhere else store
    check_a_crash(place_of, store, {"layers": STREAM, "store": store}, stored=is_stored)


@pytest.mark.parametrize("is_stored", [False, True])
def test_so_it_is_where_the_state_stands_by_itself(
    any_bench: MemoryBench | SqliteBench | RedisBench, store: Store, is_stored: bool
) -> None:
    """The same over a route, with a stored state. One in memory is refused, so there it is a stream once more."""
    is_volatile = isinstance(any_bench, MemoryBench)
    roles = {"layers": STREAM, "store": store} if is_volatile else {"state": store}
    check_a_crash(store, store, roles, stored=is_stored)


def test_a_receiver_that_was_replaced_writes_no_letter(store: Store) -> None:
    """1. A message fails for the last time, and its receiver stands still. 2. Another one takes over and handles
    the message. 3. The first wakes up, and may give nothing up any more (storage S-9, D-2)."""
    is_reached, may_go_on = threading.Event(), threading.Event()

    def stand_still(micros: int) -> None:
        del micros
        is_reached.set()
        assert may_go_on.wait(PATIENCE_S)

    def refuse(message: object, transaction: Transaction) -> None:
        del transaction
        slow.script(Misfortune.SLOW, on=CommitPosition)
        raise KeyError(message)

    slow = FaultyStore(store, sleep=stand_still)
    letters = DeadLetterStream(store, "orders/dead")
    first = Pipe("orders", STREAM, store=slow, boundary="committed", retries=1, dead_letter=letters)
    first.receive(refuse)
    first.send(2)
    assert is_reached.wait(PATIENCE_S)
    with StreamReceiver("orders", STREAM, store=store, boundary="committed") as second:
        second.receive(put_effect)
        assert second.catch_up(PATIENCE_S)
        may_go_on.set()
        await_that(first.receiver.runtime, lambda: first.receiver.works.ended, "the end")
        with pytest.raises(PipeStopped):
            first.close()
    assert payloads_in(store, "effects") == [b"2"]
    assert list(letters.all()) == []
