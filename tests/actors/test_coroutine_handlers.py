"""Handlers that are coroutines, or give what is to be awaited: run, and only then are their messages settled."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import re
import selectors
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from surepipe import (
    AsyncPipe,
    Channel,
    ChannelFace,
    DeadLetters,
    Listener,
    LocalRoute,
    MisuseError,
    Pipe,
    PipeStopped,
    StreamReceiver,
    StreamSender,
)
from surepipe.actors import Reply, StepRuntime
from surepipe.actors.consuming.coroutines import HandlerKind, kind_of, unrun_in
from surepipe.actors.runtime import Runtime
from surepipe.core.store_requests import KEEP_ALL, Created
from surepipe.storage import MemoryStore, SqliteTransaction
from tests.actors.kit import PATIENCE_S, await_that
from tests.actors.stored_kit import STREAM, effects_in, make_effects, put_effect, sqlite_store


class Taker:
    """Takes messages as a coroutine in every shape that a handler may have."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def take(self, message: object) -> None:
        await asyncio.sleep(0)
        self.seen.append(message)

    async def __call__(self, message: object) -> None:
        await self.take(message)

    async def with_more(self, more: int, message: object) -> int:
        await self.take(message)
        return more


def around(handler: Callable[..., object]) -> Callable[..., object]:
    """A plain function, whose call gives what is to be awaited."""

    def call(*given: object) -> object:
        return handler(*given)

    return call


SHAPES: dict[str, Callable[[Taker], Callable[[object], object]]] = {
    "a bound coroutine function": lambda taker: taker.take,
    "an object": lambda taker: taker,
    "a partial": lambda taker: functools.partial(taker.with_more, 1),
    "a partial of a partial of an object": lambda taker: functools.partial(
        functools.partial(taker.__call__)
    ),
    "a lambda around one": lambda taker: around(taker.take),
    "a lambda around two": lambda taker: lambda message: _twice(taker, message),
}


async def _twice(taker: Taker, message: object) -> object:
    return taker.take(message)  # a coroutine that gives a coroutine


@pytest.mark.parametrize("shape", SHAPES)
def test_a_coroutine_is_run_before_its_message_is_settled(runtime: Runtime, shape: str) -> None:
    """Five sent, five bodies run, in order (pipes D-1: settled when the handler has returned)."""
    taker = Taker()
    with Pipe("orders", runtime=runtime) as pipe:
        pipe.receive(SHAPES[shape](taker))
        pipe.send_many(range(5))
        pipe.flush(PATIENCE_S)
        assert taker.seen == [0, 1, 2, 3, 4]
        assert pipe.counters()["settled"] == 5


def test_a_batch_may_be_taken_by_a_coroutine(runtime: Runtime) -> None:
    """``receive_many`` with a coroutine function, and with a lambda around one."""
    seen: list[object] = []

    async def take(messages: list[object]) -> None:
        await asyncio.sleep(0)
        seen.extend(messages)

    for handler in (take, around(take)):
        with Pipe("orders", runtime=runtime) as pipe:
            pipe.receive_many(handler)
            pipe.send_many(range(5))
            pipe.flush(PATIENCE_S)
        assert seen == [0, 1, 2, 3, 4]
        seen.clear()


def test_a_stream_moves_with_the_coroutines_that_were_run() -> None:
    """A receiver of its own; the position moves with the bodies that were run."""
    store, taker = MemoryStore(), Taker()
    with StreamSender("orders", store=store) as sender:
        sender.send_many(range(5))
    with StreamReceiver("orders", [STREAM], store=store) as receiver:
        receiver.receive(taker.take)
        assert receiver.catch_up(PATIENCE_S)
    assert taker.seen == [0, 1, 2, 3, 4]


def test_both_ends_of_a_channel_may_be_coroutines_and_answer(runtime: Runtime) -> None:
    """``await reply.send(...)``; the accept callback is a coroutine function, too."""
    answers: list[object] = []

    async def answer(message: object, reply: Reply) -> None:
        await asyncio.sleep(0)
        await reply.send({"got": message})

    async def accept(channel: ChannelFace) -> None:
        await asyncio.sleep(0)
        channel.receive(answer)

    async def take(message: object) -> None:
        answers.append(message)

    route = LocalRoute()
    with (
        Listener(route, names="rpc", accept=accept, runtime=runtime),
        Channel("rpc", route=route, runtime=runtime) as channel,
    ):
        channel.receive(take)
        channel.send_many([1, 2])
        await_that(runtime, lambda: len(answers) == 2, "two answers")
    assert answers == [{"got": 1}, {"got": 2}]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        asyncio.CancelledError(),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
    ],
)
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_whatever_a_coroutine_raises_fails_its_message_and_nothing_else(
    runtime: Runtime, error: BaseException, *, is_wrapped: bool
) -> None:
    """It is tried again like any other, neither lost nor settled (pipes D-1, H-2); the next comes behind it."""
    seen: list[object] = []

    async def take(message: object) -> None:
        await asyncio.sleep(0)
        seen.append(message)
        if message == 1 and seen.count(1) < 3:
            raise error

    with Pipe("orders", runtime=runtime, retry_min_s=0.001) as pipe:
        pipe.receive(around(take) if is_wrapped else take)
        pipe.send_many(range(3))
        pipe.flush(PATIENCE_S)
    assert seen == [0, 1, 1, 1, 2]


async def _nothing() -> None:
    """Would do something."""


def _yields(message: object) -> Generator[object]:
    yield message


async def _yields_later(message: object) -> AsyncGenerator[object]:
    yield message


UNRUN: dict[str, Callable[[object], object]] = {
    "a generator": lambda message: (one for one in [message]),
    "a block": contextlib.contextmanager(_yields),
    "an async block": contextlib.asynccontextmanager(_yields_later),
    "a map": lambda message: map(str, [message]),
    "a filter": lambda message: filter(None, [message]),
    "a starmap": lambda message: itertools.starmap(str, [(message,)]),
    "a list of coroutines": lambda message: [_nothing(), _nothing()] if message else [_nothing()],
    "an async generator": lambda message: _each_of([message]),
    "a zip": lambda message: zip([message], strict=True),
    "a set of coroutines": lambda message: {_nothing()} if message else set[object](),
    "a coroutine function": lambda message: _nothing if message else functools.partial(_nothing),
    "a partial of a coroutine function": lambda message: [functools.partial(_nothing), message],
}


async def _each_of(messages: list[object]) -> AsyncGenerator[object]:
    for message in messages:
        yield message


@pytest.mark.parametrize("what", UNRUN)
def test_a_result_whose_body_nobody_would_run_is_the_failure_of_its_message(
    runtime: Runtime, what: str
) -> None:
    """It can't be told from the function. The message becomes a letter that says why, and isn't settled before."""
    letters = DeadLetters()
    with Pipe("orders", runtime=runtime, retries=2, retry_min_s=0.001, dead_letter=letters) as pipe:
        pipe.receive(UNRUN[what])
        pipe.send(1)
        pipe.flush(PATIENCE_S)
    (letter,) = letters.list()
    assert letter.attempts == 2
    assert re.match(
        r"what came back is (a [^aeiou]|an [aeiou]).*, whose body nobody would run",
        letter.error_text,
    )


class _Yielding:
    def __call__(self, message: object) -> Generator[object]:
        yield message

    async def later(self, messages: object) -> AsyncGenerator[object]:
        yield messages


@pytest.mark.parametrize(
    "handler",
    [
        _yields,
        _Yielding(),
        _Yielding().later,
        functools.partial(_yields),
        functools.partial(_Yielding()),
    ],
)
def test_a_generator_function_is_refused_when_it_is_given(
    handler: Callable[[object], object],
) -> None:
    """In every place that takes a handler; nothing has changed then."""
    with Pipe("orders") as pipe:
        with pytest.raises(MisuseError, match="generator function: a call of it runs nothing"):
            pipe.receive(handler)
        with pytest.raises(MisuseError, match="generator function"):
            pipe.receive_many(handler)
        pipe.receive(print)
    route = LocalRoute()
    with pytest.raises(MisuseError, match="generator function"):
        Listener(route, names="a", accept=handler)
    with Channel("rpc", route=route) as channel:
        with pytest.raises(MisuseError, match="generator function"):
            channel.receive(handler)
        with pytest.raises(MisuseError, match="generator function"):
            channel.receive_many(handler)
        channel.abort()
    with (
        Pipe("orders", [STREAM], store=MemoryStore(), boundary="committed") as pipe,
        pytest.raises(MisuseError, match="generator function"),
    ):
        pipe.receive(handler)


def test_one_function_tells_what_a_call_gives() -> None:
    """Seen through partials, bound methods and objects; what only the result shows is told of the result."""
    taker = Taker()
    kinds = [kind_of(one) for one in (print, taker, taker.take, functools.partial(_yields), int)]
    assert kinds == [
        HandlerKind.PLAIN,
        HandlerKind.COROUTINE,
        HandlerKind.COROUTINE,
        HandlerKind.GENERATOR,
        HandlerKind.PLAIN,
    ]
    results: list[object] = [None, 3, [1], "abc", {1: 2}, map(str, [1])]
    assert [unrun_in(result) for result in results] == [""] * 5 + ["map"]


def test_work_that_a_handler_gives_to_a_pool_is_waited_for() -> None:
    """A future of threads is no awaitable, and just as easily forgotten."""
    done: list[object] = []
    opened = threading.Event()
    with ThreadPoolExecutor(1) as pool, Pipe("orders") as pipe:

        def later(message: object) -> None:
            assert opened.wait(PATIENCE_S)
            done.append(message)

        pipe.receive(lambda message: pool.submit(later, message))
        pipe.send(1)
        assert pipe.counters().get("settled", 0) == 0
        opened.set()
        pipe.flush(PATIENCE_S)
        assert done == [1]


def test_lanes_of_a_coroutine_handler_are_tasks_and_each_key_keeps_its_order() -> None:
    """Eight keys meet in one handler, on one thread; three messages of each come in order."""
    seen: list[tuple[int, int]] = []
    threads: set[int] = set()
    met = asyncio.Event()

    async def meet(message: object) -> None:
        key, number = cast("list[int]", message)
        threads.add(threading.get_ident())
        seen.append((key, number))
        if len({key for key, _ in seen}) == 8:
            met.set()
        await asyncio.wait_for(met.wait(), PATIENCE_S)

    with Pipe("orders", key="0", lanes=8) as pipe:
        pipe.receive(meet)
        pipe.send_many([[key, n] for n in range(3) for key in range(8)])
        pipe.flush(PATIENCE_S)
        assert sorted({lease.lane for lease in pipe.leases()}) == []
    assert len(threads) == 1
    for key in range(8):
        assert [n for one, n in seen if one == key] == [0, 1, 2]


def test_lanes_in_virtual_time_wait_for_coroutines_in_their_turns(steps: StepRuntime) -> None:
    """The same handler, on one thread and a seed."""
    taker = Taker()
    with Pipe("orders", key=lambda n: n % 3, lanes=3, runtime=steps) as pipe:
        pipe.receive(taker.take)
        pipe.send_many(range(9))
        pipe.flush(PATIENCE_S)
    for key in range(3):
        assert [n for n in taker.seen if isinstance(n, int) and n % 3 == key] == [
            key,
            key + 3,
            key + 6,
        ]


def test_time_in_a_coroutine_is_the_time_of_its_runtime(steps: StepRuntime) -> None:
    """An hour passes in no time, and a limit of the handler's own is kept."""
    seen: list[object] = []

    async def slow(message: object) -> None:
        begun = steps.now()
        await asyncio.sleep(60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(20), 1)
        seen.append((message, (steps.now() - begun) // 1_000_000))

    with Pipe("orders", runtime=steps) as pipe:
        pipe.receive(slow)
        pipe.send(1)
        pipe.flush(100_000)
    assert seen == [(1, 61)]


# With a transaction.


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_transaction_stays_open_until_the_coroutine_is_done(
    tmp_path: Path, *, is_batch: bool
) -> None:
    """What it writes behind an ``await`` is there once for each message; what failed is taken back."""
    failed: set[object] = set()

    async def book(message: object, transaction: SqliteTransaction) -> None:
        await asyncio.sleep(0)
        put_effect(message, transaction)
        await asyncio.sleep(0)
        if message == 3 and 3 not in failed:
            failed.add(3)
            raise asyncio.CancelledError

    async def book_all(messages: list[object], transaction: SqliteTransaction) -> None:
        for message in messages:
            await book(message, transaction)

    with sqlite_store(tmp_path) as store:
        make_effects(store)
        with Pipe(
            "orders", state=store, journal=store, boundary="committed", retry_min_s=0.001
        ) as pipe:
            if is_batch:
                pipe.receive_many(book_all)
            else:
                pipe.receive(around(book))
            pipe.send_many(range(1, 6))
            pipe.flush(PATIENCE_S)
        assert effects_in(store) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("where", ["loop", "thread", "task"])
def test_a_coroutine_with_a_transaction_may_not_wait_for_its_own_store(
    tmp_path: Path, where: str
) -> None:
    """It would hold its loop, which has to end the transaction, or wait for a thread that waits for its end:
    refused in all that it begins, as on the thread of a handler. What goes on afterwards may write."""
    said: list[str] = []
    later: list[asyncio.Task[object]] = []
    is_over = threading.Event()
    with sqlite_store(tmp_path) as store:
        make_effects(store)

        async def afterwards() -> object:
            await asyncio.to_thread(is_over.wait)
            return await asyncio.to_thread(store.create, "after", 1, KEEP_ALL)

        async def book(message: object, transaction: SqliteTransaction) -> None:
            await asyncio.sleep(0)
            later.append(asyncio.create_task(afterwards()))
            try:
                if where == "loop":
                    store.create("more", 1, KEEP_ALL)
                else:
                    call = asyncio.to_thread(store.create, "more", 1, KEEP_ALL)
                    await (asyncio.create_task(call) if where == "task" else call)
            except MisuseError as error:
                said.append(str(error))
            put_effect(message, transaction)

        with Pipe("orders", state=store, journal=store, boundary="committed") as pipe:
            pipe.receive(book)
            pipe.send(1)
            pipe.flush(PATIENCE_S)
            is_over.set()
            assert asyncio.run_coroutine_threadsafe(ended(later[0]), later[0].get_loop()).result(
                PATIENCE_S
            )
        assert effects_in(store) == [1]
        assert isinstance(store.create("more", 1, KEEP_ALL), Created)
    assert "inside a transaction of the same store" in said[0]
    assert "transaction.append(AppendRun(" in said[0]


async def ended(task: asyncio.Task[object]) -> bool:
    """True when a task has made its stream."""
    return isinstance(await task, Created)


@pytest.mark.parametrize("is_coroutine", [True, False])
@pytest.mark.parametrize("how", ["send", "send_many", "send_nowait", "until", "flush"])
def test_a_handler_with_a_transaction_may_not_wait_for_a_pipe_that_writes_to_its_store(
    tmp_path: Path, how: str, *, is_coroutine: bool
) -> None:
    """Its journal would wait for the end of the transaction, whichever thread writes it. Nothing is accepted."""
    said: list[str] = []
    seen: list[object] = []

    async def body() -> None:
        with sqlite_store(tmp_path) as store:
            async with (
                Pipe("next", journal=store) as out,
                Pipe("orders", state=store, boundary="committed") as pipe,
            ):
                way: Any = out if is_coroutine else out.sync
                calls: dict[str, Callable[[], Any]] = {
                    "send": lambda: way.send("a"),
                    "send_many": lambda: way.send_many(["a"]),
                    "send_nowait": lambda: way.send_nowait("a"),
                    "until": lambda: way.send("a", until="confirmed"),
                    "flush": way.flush,
                }

                async def forward(message: object, transaction: object) -> None:
                    del message, transaction
                    try:
                        await calls[how]()
                    except MisuseError as error:
                        said.append(str(error))

                def forward_plainly(message: object, transaction: object) -> None:
                    del message, transaction
                    try:
                        calls[how]()
                    except MisuseError as error:
                        said.append(str(error))

                out.receive(seen.append)
                pipe.receive(forward if is_coroutine else forward_plainly)
                await pipe.send(1)
                await pipe.flush(PATIENCE_S)
                await out.send("later")

    asyncio.run(body())
    assert len(said) == 1
    assert "wait for pipe next" in said[0]
    assert "inside a transaction of the same store" in said[0]
    assert seen == ["later"]


def test_other_tasks_of_the_loop_are_not_inside_the_transaction_of_a_coroutine(
    tmp_path: Path,
) -> None:
    """They wait for it where that leaves them their loop; what would hold the loop that it needs is refused, and
    told so."""
    seen: list[object] = []

    async def body() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()
        with sqlite_store(tmp_path) as store:

            async def book(message: object, transaction: object) -> None:
                del message, transaction
                begun.set()
                await may_end.wait()

            async with (
                Pipe("next", journal=store) as out,
                Pipe("orders", state=store, boundary="committed") as pipe,
            ):
                out.receive(seen.append)
                pipe.receive(book)
                await pipe.send(1)
                await begun.wait()
                with pytest.raises(MisuseError, match="to_thread; nothing was done"):
                    store.create("more", 1, KEEP_ALL)
                with pytest.raises(MisuseError, match="to_thread; nothing was done"):
                    out.sync.send("blocks")
                sending = asyncio.create_task(out.send("waits"))
                making = asyncio.create_task(asyncio.to_thread(store.create, "more", 1, KEEP_ALL))
                await asyncio.sleep(0)
                may_end.set()
                await sending
                assert isinstance(await making, Created)

    asyncio.run(body())
    assert seen == ["waits"]


# The loop that the process owns.


def test_a_coroutine_must_not_block_the_loop_of_all(tmp_path: Path) -> None:
    """A synchronous wait inside one would be for itself: it is refused, and the message fails with that."""
    del tmp_path
    letters = DeadLetters()
    with Pipe("full", [{"reliable": {"backlog": 2, "window": 2, "run_max": 1}}]) as full:

        async def forward(message: object) -> None:
            full.send(message)

        with Pipe("orders", retries=1, dead_letter=letters) as pipe:
            pipe.receive(forward)
            pipe.send_many(range(8))
            pipe.flush(PATIENCE_S)
        full.receive(list[object]().append)
    assert letters.list()
    assert "would block the event loop" in letters.list()[0].error_text


def test_an_exit_in_a_task_of_a_handler_does_not_end_the_loop() -> None:
    """Python raises it out of the loop; the loop goes on, and with it the handlers of all pipes."""
    taker = Taker()

    async def leave() -> None:
        raise SystemExit(3)

    async def take(message: object) -> None:
        task = asyncio.ensure_future(leave())
        await asyncio.wait({task})
        await taker.take(message)

    with Pipe("orders") as pipe:
        pipe.receive(take)
        pipe.send_many(range(3))
        pipe.flush(PATIENCE_S)
    assert taker.seen == [0, 1, 2]


def test_a_coroutine_that_does_not_end_is_cancelled_when_its_pipe_is_closed() -> None:
    """Its message is not settled: the next receiver gets it."""
    store = MemoryStore()
    begun, ended = threading.Event(), threading.Event()

    async def hang(message: object) -> None:
        del message
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    layers = [{"stream": {"start": "earliest"}}]
    with StreamSender("orders", store=store) as sender:
        sender.send("a")
    receiver = StreamReceiver("orders", layers, store=store)
    receiver.receive(hang)
    assert begun.wait(PATIENCE_S)
    receiver.close(0.0)
    assert ended.wait(PATIENCE_S)
    taker = Taker()
    with StreamReceiver("orders", layers, store=store) as again:
        again.receive(taker.take)
        assert again.catch_up(PATIENCE_S)
    assert taker.seen == ["a"]


async def _cancels_itself(how: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    if how == "meets it":
        await asyncio.Event().wait()
    elif how == "catches it":
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["meets it", "returns before", "catches it", "GeneratorExit"])
@pytest.mark.parametrize("shape", ["one", "wrapped", "batch", "lanes", "stream", "committed"])
def test_a_handler_that_cancels_its_own_task_has_failed_once_and_nothing_else_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shape: str, how: str
) -> None:
    """Attempts and letters count as ever (pipes H-2); no actor dies of it, and no other message is taken twice.
    What it has caught is over."""
    seen: list[object] = []

    async def take(message: object, transaction: object = None) -> None:
        del transaction
        seen.append(message)
        if message == 1 and how == "GeneratorExit":
            raise GeneratorExit
        if message == 1:
            await _cancels_itself(how)
        if how != "returns before":
            await asyncio.sleep(0)

    async def take_all(messages: list[object]) -> None:
        for message in messages:
            await take(message)

    handler = around(take) if shape == "wrapped" else take
    letters = DeadLetters()
    with sqlite_store(tmp_path) as store, contextlib.ExitStack() as stack:
        if shape == "stream":
            sender = stack.enter_context(StreamSender("orders", store=store))
            receiver = stack.enter_context(
                StreamReceiver(
                    "orders",
                    [{"stream": {"start": "earliest"}}],
                    store=store,
                    retries=2,
                    retry_min_s=0.001,
                    dead_letter=letters,
                )
            )
            receiver.receive(handler)
            sender.send_many(range(4))
            sender.flush(PATIENCE_S)
            assert receiver.catch_up(PATIENCE_S)
        else:
            options: dict[str, Any] = {
                "lanes": {"key": str, "lanes": 3},
                "committed": {"state": store, "boundary": "committed"},
            }.get(shape, {})
            made = Pipe("orders", retries=2, retry_min_s=0.001, dead_letter=letters, **options)
            pipe = stack.enter_context(made)
            if shape == "batch":
                pipe.receive_many(take_all)
                for number in range(4):
                    pipe.send(number)
                    pipe.flush(PATIENCE_S)
            else:
                pipe.receive(handler)
                pipe.send_many(range(4))
            pipe.flush(PATIENCE_S)
    is_caught = how == "catches it"
    tried = [one for one in seen if one == 1]
    assert len(tried) == (1 if is_caught else 2)
    assert Counter(one for one in seen if one != 1) == Counter([0, 2, 3])
    assert [letter.attempts for letter in letters.list()] == ([] if is_caught else [2])
    assert "died of" not in caplog.text


@pytest.mark.parametrize("is_function", [True, False])
@pytest.mark.parametrize(("lanes", "key"), [(None, None), (3, str)])
def test_a_handler_whose_own_loop_is_closed_stops_its_pipe_and_says_so(
    lanes: int | None, key: Callable[[object], str] | None, *, is_function: bool
) -> None:
    """Not message after message: no attempt is spent on that."""
    letters = DeadLetters()
    taker = Taker()
    pipe = Pipe("orders", lanes=lanes, key=key, retries=1, dead_letter=letters)

    async def bind() -> None:
        AsyncPipe(pipe).receive(taker.take if is_function else around(taker.take))
        await asyncio.sleep(0)

    asyncio.run(bind())
    with pytest.raises(PipeStopped, match="the event loop that its handler runs on is closed"):
        pipe.send_many(range(100_000), timeout=PATIENCE_S)
    pipe.abort()
    assert letters.list() == taker.seen == []


@pytest.mark.parametrize("shape", ["wrapped", "committed"])
def test_a_coroutine_that_is_awaited_for_a_thread_may_not_wait_for_its_own_pipe(
    tmp_path: Path, shape: str
) -> None:
    """Its message can't be confirmed before it returns, whichever task it runs in."""
    said: list[str] = []

    async def body() -> None:
        with sqlite_store(tmp_path) as store:
            options: dict[str, Any] = {
                "committed": {"state": store, "boundary": "committed"},
            }.get(shape, {})
            async with Pipe("orders", **options) as pipe:

                async def take(message: object, transaction: object = None) -> None:
                    del message, transaction
                    with pytest.raises(MisuseError) as caught:
                        await pipe.flush(PATIENCE_S)
                    said.append(str(caught.value))

                pipe.receive(around(take) if shape == "wrapped" else take)
                await pipe.send(1)

    asyncio.run(body())
    assert len(said) == 1
    assert "inside the handler of pipe orders" in said[0]


class Rows:
    """Async generators that hold something until their end, which takes a while."""

    def __init__(self, *, are_kept: bool) -> None:
        self.released = 0
        self._kept: list[AsyncGenerator[int]] | None = [] if are_kept else None

    def read(self) -> AsyncGenerator[int]:
        """A generator: it lives as long as the handler that reads it, or for ever."""
        made = self._read()
        if self._kept is not None:
            self._kept.append(made)
        return made

    async def _read(self) -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            self.released += 1


@pytest.mark.parametrize("are_kept", [False, True])
def test_what_a_handler_leaves_in_the_middle_of_its_rows_is_given_back_by_the_end_of_the_pipe(
    runtime: Runtime, are_kept: bool
) -> None:
    """Nobody else closes them once their loop is gone: a connection that they hold would stay open."""
    rows = Rows(are_kept=are_kept)

    async def first(message: object) -> None:
        async for row in rows.read():
            assert row == 1
            return
        assert message is None

    with Pipe("orders", runtime=runtime) as pipe:
        pipe.receive(first)
        pipe.send_many(range(3))
    assert rows.released == 3


@pytest.mark.parametrize("are_kept", [False, True])
def test_what_a_handler_holds_that_is_cancelled_in_the_middle_of_its_rows_is_given_back(
    are_kept: bool,
) -> None:
    """The block is left by an error while the handler stands at its first row."""
    rows, is_there = Rows(are_kept=are_kept), threading.Event()

    async def stand(message: object) -> None:
        async for row in rows.read():
            is_there.set()
            await asyncio.Event().wait()
            assert row == message

    def block() -> None:
        with Pipe("orders") as pipe:
            pipe.receive(stand)
            pipe.send(1)
            assert is_there.wait(PATIENCE_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert rows.released == 1


if sys.platform == "linux":
    from surepipe.actors.consuming.coroutines import SELECT_MAX, PromptSelector

    class FarSelector(PromptSelector):
        """One of a process that has many files open."""

        def fileno(self) -> int:
            return SELECT_MAX

    @pytest.mark.parametrize("kind", [PromptSelector, FarSelector])
    def test_the_loop_of_coroutines_hears_of_sockets_in_short_waits_and_in_long_ones(
        kind: type[PromptSelector],
    ) -> None:
        """A pair of sockets, of which nothing is to be read, and then something."""
        here, there = socket.socketpair()
        with kind() as waits, here, there:
            key = waits.register(here, selectors.EVENT_READ)
            assert [waits.select(wait) for wait in (0, 0.0005, 0.002)] == [[], [], []]
            there.send(b"x")
            told = [(key, selectors.EVENT_READ)]
            assert [waits.select(wait) for wait in (0, 0.0005, 60, None)] == [told] * 4
