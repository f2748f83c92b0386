"""An orderly end with lanes: nothing stays settled behind what is not, so nothing that was handled comes again."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from surepipe.actors import LocalRoute, PipeReceiver, PipeSender, StreamReceiver, StreamSender
from surepipe.storage import SqliteStore
from tests.actors.kit import PATIENCE_S, await_that
from tests.actors.stored_kit import QUICK_STREAM, sqlite_store

Receiver = StreamReceiver | PipeReceiver


class Hands:
    """Handles numbers, and stops at some of them until it is let through."""

    def __init__(self, *stops: int) -> None:
        self.done: list[int] = []
        self.stops = set(stops)
        self.reached: set[int] = set()
        self.opened = threading.Event()

    def begin(self, *numbers: object) -> bool:
        """True when the handler is to wait."""
        found = self.stops.intersection(numbers)
        self.reached |= found
        return bool(found)

    def end(self, *numbers: object) -> None:
        """Note them as handled."""
        self.done += [number for number in numbers if isinstance(number, int)]

    def one(self, number: object) -> None:
        if self.begin(number):
            assert self.opened.wait(PATIENCE_S), "nobody opened"
        self.end(number)

    def many(self, numbers: list[object]) -> None:
        if self.begin(*numbers):
            assert self.opened.wait(PATIENCE_S), "nobody opened"
        self.end(*numbers)

    async def one_in_task(self, number: object) -> None:
        if self.begin(number):
            assert await asyncio.to_thread(self.opened.wait, PATIENCE_S), "nobody opened"
        self.end(number)

    async def many_in_task(self, numbers: list[object]) -> None:
        if self.begin(*numbers):
            assert await asyncio.to_thread(self.opened.wait, PATIENCE_S), "nobody opened"
        self.end(*numbers)


class Bench(Protocol):
    """Forty numbers that were sent, and receivers of them, one after the other."""

    def receiver(self, keys: int) -> Receiver: ...


class OfStream:
    def __init__(self, store: SqliteStore, state: SqliteStore | None = None) -> None:
        self._store, self._state = store, state
        with StreamSender("orders", store=store) as sender:
            sender.send_many(range(40))

    def receiver(self, keys: int) -> Receiver:
        """With two lanes, and so many keys."""
        return StreamReceiver(
            "orders",
            QUICK_STREAM,
            store=self._store,
            state=self._state,
            key=_modulo(keys),
            lanes=2,
            start=False,
        )


class OfPipe:
    """Over ``reliable``, which confirms how far it is by one number."""

    def __init__(self) -> None:
        self.route = LocalRoute()
        self.sender = PipeSender("orders", route=self.route)
        self.sender.send_many(range(40))

    def receiver(self, keys: int) -> Receiver:
        return PipeReceiver("orders", route=self.route, key=_modulo(keys), lanes=2, start=False)


def _modulo(keys: int) -> Callable[[int], int]:
    return lambda number: number % keys


def _stand_still(receiver: Receiver, hands: Hands, others: set[int]) -> None:
    """Begin, and wait until both lanes are at their stops, and these are handled."""
    receiver.start()
    runtime = receiver.receiver.runtime
    await_that(
        runtime, lambda: hands.reached == hands.stops and set(hands.done) == others, "they stand"
    )


def _end_and_open(receiver: Receiver, hands: Hands, end: Callable[[], None]) -> None:
    """End it while both lanes stand; they are let through when they have been told that nothing follows."""
    ending = threading.Thread(target=end)
    ending.start()
    works = receiver.receiver.works
    await_that(
        receiver.receiver.runtime,
        lambda: all(work.is_cut for work in works.running()),
        "they are told",
    )
    hands.opened.set()
    ending.join(PATIENCE_S)
    assert not ending.is_alive()


def _rest_of(bench: Bench, keys: int, rest: int) -> list[int]:
    """What the next receiver gets, so much at least."""
    hands = Hands()
    with bench.receiver(keys) as receiver:
        receiver.receive(hands.one)
        receiver.start()
        await_that(receiver.receiver.runtime, lambda: len(set(hands.done)) >= rest, "the rest")
    return hands.done


@pytest.mark.parametrize("kind", ["stream", "with a state", "pipe"])
@pytest.mark.parametrize("way", ["thread", "task"])
def test_an_orderly_end_leaves_nothing_settled_behind_what_is_not(
    tmp_path: Path, kind: str, way: str
) -> None:
    """0 is at its lane when 1 to 9 (odd) are handled and 11 is at the other: 2 to 10 are handled, and no 12."""
    hands = Hands(0, 11)
    with sqlite_store(tmp_path) as store:
        state = store if kind == "with a state" else None
        bench: Bench = OfPipe() if kind == "pipe" else OfStream(store, state)
        receiver = bench.receiver(2)
        receiver.receive(hands.one if way == "thread" else hands.one_in_task)
        _stand_still(receiver, hands, {1, 3, 5, 7, 9})
        _end_and_open(receiver, hands, lambda: receiver.close(PATIENCE_S))
        assert sorted(hands.done) == list(range(12))
        assert sorted(_rest_of(bench, 2, 28)) == list(range(12, 40))
        if isinstance(bench, OfPipe):
            bench.sender.close(PATIENCE_S)


@pytest.mark.parametrize("way", ["thread", "task"])
def test_batches_end_where_what_is_handled_ends(tmp_path: Path, way: str) -> None:
    """Four keys in two lanes, each a batch: those of 0 and 1 are in hand, 37 is the last of them."""
    hands = Hands(0, 1)
    with sqlite_store(tmp_path) as store:
        bench = OfStream(store)
        receiver = bench.receiver(4)
        receiver.receive_many(hands.many if way == "thread" else hands.many_in_task)
        _stand_still(receiver, hands, set())
        _end_and_open(receiver, hands, lambda: receiver.close(PATIENCE_S))
        assert sorted(hands.done) == list(range(38))
        assert sorted(_rest_of(bench, 4, 2)) == [38, 39]


@pytest.mark.parametrize("way", ["thread", "task"])
def test_a_block_that_is_left_by_an_error_begins_nothing_more(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages in hand are handled; 3 to 11 come again, and the log says how many."""
    hands = Hands(0, 11)
    caplog.set_level(logging.WARNING, "surepipe")
    with sqlite_store(tmp_path) as store:
        bench = OfStream(store)
        receiver = bench.receiver(2)
        receiver.receive(hands.one if way == "thread" else hands.one_in_task)
        _stand_still(receiver, hands, {1, 3, 5, 7, 9})
        _end_and_open(receiver, hands, receiver.abort)
        assert sorted(hands.done) == [0, 1, 3, 5, 7, 9, 11]
        assert sorted(_rest_of(bench, 2, 38)) == list(range(2, 40))
    said = "is closed before an older message was handled: 5 messages that were handled come again"
    assert said in caplog.text


@pytest.mark.parametrize("timeout", [0.0, 0.05])
def test_when_the_time_is_up_what_is_settled_behind_a_failing_message_comes_again(
    tmp_path: Path, timeout: float, caplog: pytest.LogCaptureFixture
) -> None:
    """0 fails for ever, and the odd ones are handled: the log says that they come again."""
    hands = Hands()
    caplog.set_level(logging.WARNING, "surepipe")

    def handle(number: object) -> None:
        if number == 0:
            raise ValueError("not today")
        hands.one(number)

    odd = list(range(1, 40, 2))
    with sqlite_store(tmp_path) as store:
        bench = OfStream(store)
        receiver = bench.receiver(2)
        receiver.receive(handle)
        _stand_still(receiver, hands, set(odd))
        receiver.close(timeout)
        assert sorted(hands.done) == odd
        assert sorted(_rest_of(bench, 2, 40)) == list(range(40))
    assert "20 messages that were handled come again" in caplog.text


def test_a_message_that_fails_once_is_handled_before_the_end(tmp_path: Path) -> None:
    """0 fails while the receiver is closed, is tried again, and what is behind it in its key follows."""
    hands, tries = Hands(0, 11), list[object]()

    def handle(number: object) -> None:
        if number == 0 and not tries:
            tries.append(number)
            hands.begin(number)
            assert hands.opened.wait(PATIENCE_S), "nobody opened"
            raise ValueError("not yet")
        hands.one(number)

    with sqlite_store(tmp_path) as store:
        bench = OfStream(store)
        receiver = bench.receiver(2)
        receiver.receive(handle)
        _stand_still(receiver, hands, {1, 3, 5, 7, 9})
        _end_and_open(receiver, hands, lambda: receiver.close(PATIENCE_S))
        assert sorted(hands.done) == list(range(12))
        assert sorted(_rest_of(bench, 2, 28)) == list(range(12, 40))


def test_where_each_is_confirmed_by_itself_the_end_waits_for_nothing(tmp_path: Path) -> None:
    """Over ``multi-unconfirmed`` nothing comes again that was handled, whatever is not: only the messages in hand
    are waited for."""
    del tmp_path
    hands = Hands(0, 11)
    route = LocalRoute()

    def receiver() -> PipeReceiver:
        return PipeReceiver(
            "orders", "multi-unconfirmed", route=route, key=_modulo(2), lanes=2, start=False
        )

    with PipeSender("orders", "multi-unconfirmed", route=route) as sender:
        sender.send_many(range(40))
        first = receiver()
        first.receive(hands.one)
        _stand_still(first, hands, {1, 3, 5, 7, 9})
        _end_and_open(first, hands, lambda: first.close(PATIENCE_S))
        assert sorted(hands.done) == [0, 1, 3, 5, 7, 9, 11]
        with receiver() as second:
            second.receive(hands.one)
            second.start()
            sender.flush(PATIENCE_S)
    assert sorted(hands.done) == list(range(40))
