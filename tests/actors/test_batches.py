"""Batches that fail: which of their messages are tried again, and how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from surepipe.actors import Channel, DeadLetters, Listener, LocalRoute, Pipe, StepRuntime
from surepipe.actors.channels.channel import ChannelFace
from surepipe.actors.runtime import Runtime
from surepipe.core.store_requests import AppendRun, Transaction
from surepipe.pipes.stack.boundary import Boundary
from surepipe.storage import SqliteTransaction
from surepipe.storage.faulty import FaultyStore, FaultyTransaction, Misfortune
from tests.actors.kit import PATIENCE_S
from tests.actors.stored_kit import effects_in, make_effects, put_effect, sqlite_store

ALL = [1, 2, 3, 4, 5]
FOUND = [ALL, [1], [2], [3], [3], [3], [4, 5]]
"""What a handler is given that can't take 3, where retries is 3."""


class Spoiled:
    """A batch handler that can't take a 3."""

    def __init__(self, error: BaseException | None = None, left: int = 99) -> None:
        self.calls: list[list[object]] = []
        self.left = left
        self._error = error or ValueError("no 3")

    def __call__(self, messages: list[object]) -> None:
        self.calls.append(messages)
        if 3 in messages and self.left:
            self.left -= 1
            raise self._error

    async def later(self, messages: list[object]) -> None:
        """The same as a coroutine."""
        await asyncio.sleep(0)
        self(messages)

    def committed(self, messages: list[object], transaction: Transaction) -> None:
        """The same with effects, those of a batch that fails too."""
        for message in messages:
            put_effect(message, transaction)
        self(messages)

    async def committed_later(self, messages: list[object], transaction: Transaction) -> None:
        """That as a coroutine."""
        await asyncio.sleep(0)
        self.committed(messages, transaction)


@pytest.mark.parametrize("is_coroutine", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no 3"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
)
def test_of_a_batch_that_fails_only_the_message_to_blame_uses_up_its_retries(
    runtime: Runtime, error: BaseException, *, is_coroutine: bool
) -> None:
    """pipes D-1: its messages come one by one, in order, and what is behind the letter as a batch again."""
    handler, letters = Spoiled(error), DeadLetters()
    with Pipe("orders", retries=3, retry_min_s=0.001, dead_letter=letters, runtime=runtime) as pipe:
        pipe.receive_many(handler.later if is_coroutine else handler)
        pipe.send_many(ALL)
        pipe.flush(PATIENCE_S)
    assert handler.calls == FOUND
    assert [(letter.seq, letter.attempts) for letter in letters.list()] == [(3, 3)]


def test_a_failed_batch_is_no_attempt_of_its_first_message(steps: StepRuntime) -> None:
    """retries is 1, and none of the good ones is a letter."""
    handler, letters = Spoiled(), DeadLetters()
    with Pipe("orders", retries=1, dead_letter=letters, runtime=steps) as pipe:
        pipe.receive_many(handler)
        pipe.send_many(ALL)
    assert handler.calls == [ALL, [1], [2], [3], [4, 5]]
    assert [(letter.seq, letter.attempts) for letter in letters.list()] == [(3, 1)]


def test_a_batch_of_one_that_fails_is_not_taken_apart(steps: StepRuntime) -> None:
    """Each call is an attempt."""
    handler, letters = Spoiled(), DeadLetters()
    with Pipe("orders", retries=2, retry_min_s=0.001, dead_letter=letters, runtime=steps) as pipe:
        pipe.receive_many(handler)
        pipe.send(3)
    assert handler.calls == [[3], [3]]
    assert [letter.attempts for letter in letters.list()] == [2]


def test_a_batch_that_returns_what_nobody_runs_fails_message_by_message(
    steps: StepRuntime,
) -> None:
    """A generator: each message has a letter of its own."""
    letters = DeadLetters()
    with Pipe("orders", retries=1, dead_letter=letters, runtime=steps) as pipe:
        pipe.receive_many(lambda messages: (one for one in messages))
        pipe.send_many(ALL)
    assert [letter.seq for letter in letters.list()] == ALL
    assert {letter.error_type for letter in letters.list()} == {"MisuseError"}


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_with_lanes_a_batch_that_fails_holds_up_its_own_key_only(
    runtime: Runtime, *, is_coroutine: bool
) -> None:
    """Odd and even: 3 and what follows it fail, the even ones are one batch."""
    handler, letters = Spoiled(), DeadLetters()
    with Pipe(
        "orders",
        key=lambda number: number % 2,
        lanes=2,
        retries=2,
        retry_min_s=0.001,
        dead_letter=letters,
        runtime=runtime,
    ) as pipe:
        pipe.receive_many(handler.later if is_coroutine else handler)
        pipe.send_many(ALL)
        pipe.flush(PATIENCE_S)
    odd = [call for call in handler.calls if call != [2, 4]]
    assert odd == [[1, 3, 5], [1], [3], [3], [5]]
    assert [letter.seq for letter in letters.list()] == [3]


def test_a_channel_takes_a_batch_apart_too(runtime: Runtime) -> None:
    """At the listening end."""
    handler, letters, route = Spoiled(), DeadLetters(), LocalRoute()

    def accept(channel: ChannelFace) -> None:
        channel.receive_many(handler)

    with (
        Listener(
            route,
            names="rpc",
            accept=accept,
            retries=3,
            retry_min_s=0.001,
            dead_letter=letters,
            runtime=runtime,
        ),
        Channel("rpc", route=route, runtime=runtime) as channel,
    ):
        channel.send_many(ALL)
        channel.flush(PATIENCE_S)
    assert handler.calls == FOUND
    assert [letter.seq for letter in letters.list()] == [3]


def test_handed_over_is_handled_once_also_where_a_batch_fails(steps: StepRuntime) -> None:
    """There nothing is tried again."""
    handler = Spoiled()
    with Pipe("orders", boundary=Boundary.HANDED, runtime=steps) as pipe:
        pipe.receive_many(handler)
        pipe.send_many(ALL)
    assert handler.calls == [ALL]


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_committed_each_message_of_a_failed_batch_has_a_transaction_of_its_own(
    tmp_path: Path, *, is_coroutine: bool
) -> None:
    """No effect of the failed batch, none of the bad message, and each other one once."""
    handler, letters = Spoiled(), DeadLetters()
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        with Pipe(
            "orders",
            state=store,
            boundary="committed",
            retries=3,
            retry_min_s=0.001,
            dead_letter=letters,
        ) as pipe:
            pipe.receive_many(handler.committed_later if is_coroutine else handler.committed)
            pipe.send_many(ALL)
            pipe.flush(PATIENCE_S)
        assert effects_in(store) == [1, 2, 4, 5]
    assert handler.calls == FOUND
    assert [(letter.seq, letter.attempts) for letter in letters.list()] == [(3, 3)]


def test_committed_a_batch_whose_effects_are_refused_is_taken_apart(tmp_path: Path) -> None:
    """3 appends to a stream that is not there, which only the end of the transaction shows."""
    letters, calls = DeadLetters(), list[list[object]]()

    def handle(messages: list[object], transaction: Transaction) -> None:
        calls.append(messages)
        for message in messages:
            put_effect(message, transaction)
        if 3 in messages:
            transaction.append(AppendRun("nowhere", "relay", 1, 1, [b"3"]))

    with sqlite_store(tmp_path) as store:
        make_effects(store)
        with Pipe(
            "orders", state=store, boundary="committed", retries=1, dead_letter=letters
        ) as pipe:
            pipe.receive_many(handle)
            pipe.send_many(ALL)
            pipe.flush(PATIENCE_S)
        assert effects_in(store) == [1, 2, 4, 5]
    assert calls == [ALL, [1], [2], [3], [4, 5]]
    assert [letter.seq for letter in letters.list()] == [3]


@pytest.mark.parametrize("misfortune", [Misfortune.OUTAGE, Misfortune.UNKNOWN])
def test_committed_a_store_that_is_away_in_between_costs_no_message_an_attempt(
    tmp_path: Path, misfortune: Misfortune
) -> None:
    """The commit of 2 alone is lost, or not heard of: each effect is there once, and 3 alone is a letter."""
    letters, script = DeadLetters(), list[Callable[[], None]]()

    def handle(messages: list[object], transaction: Transaction) -> None:
        for message in messages:
            put_effect(message, cast("FaultyTransaction[SqliteTransaction]", transaction).inside)
        if messages == [2] and script:
            script.pop()()
        if 3 in messages:
            raise ValueError("no 3")

    with sqlite_store(tmp_path) as inside:
        make_effects(inside)
        store = FaultyStore(inside)
        script.append(lambda: store.script(misfortune, on=FaultyTransaction))
        with Pipe(
            "orders", state=store, boundary="committed", retries=1, dead_letter=letters
        ) as pipe:
            pipe.receive_many(handle)
            pipe.send_many(ALL)
            pipe.flush(PATIENCE_S)
        assert effects_in(inside) == [1, 2, 4, 5]
    assert not script
    assert [(letter.seq, letter.attempts) for letter in letters.list()] == [(3, 1)]


@pytest.mark.parametrize("how", ["meets it", "returns before", "raises before"])
def test_a_batch_handler_that_cancels_its_own_task_has_failed_and_is_taken_apart(how: str) -> None:
    """Each attempt has a task of its own, so the next one is not cancelled."""
    calls, letters = list[list[object]](), DeadLetters()

    async def handle(messages: list[object]) -> None:
        calls.append(messages)
        if 3 in messages:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if how == "raises before":
                raise ValueError("no 3")
            if how == "meets it":
                await asyncio.Event().wait()

    with Pipe("orders", retries=3, retry_min_s=0.001, dead_letter=letters) as pipe:
        pipe.receive_many(handle)
        pipe.send_many(ALL)
        pipe.flush(PATIENCE_S)
    assert calls == FOUND
    assert [(letter.seq, letter.attempts) for letter in letters.list()] == [(3, 3)]


def test_whoever_cancels_all_tasks_in_between_loses_no_message_of_the_batch() -> None:
    """2 alone stands in the handler: the pipe's tasks begin again, and 3 is the only letter."""
    seen, letters = set[object](), DeadLetters()

    async def body() -> None:
        reached = asyncio.Event()

        async def handle(messages: list[object]) -> None:
            if messages == [2] and not reached.is_set():
                reached.set()
                await asyncio.Event().wait()
            if 3 in messages:
                raise ValueError("no 3")
            seen.update(messages)

        async with Pipe("orders", retries=1, dead_letter=letters) as pipe:
            pipe.receive_many(handle)
            await pipe.send_many(ALL)
            await reached.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                assert task is not None
                task.cancel()
            await pipe.flush(PATIENCE_S)

    asyncio.run(body())
    assert seen == {1, 2, 4, 5}
    assert [letter.seq for letter in letters.list()] == [3]
