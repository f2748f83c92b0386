"""The async faces: the same promises as the synchronous ones, and no loop is blocked."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, cast

import pytest

from surepipe import (
    AsyncChannel,
    AsyncPipe,
    Channel,
    ChannelFace,
    DeadLetters,
    Listener,
    LocalRoute,
    MisuseError,
    NotConfirmed,
    Pipe,
    PipeClosed,
    PipeFull,
    PipeReceiver,
    PipeSender,
    PipeStopped,
    StreamReceiver,
    StreamSender,
)
from surepipe.actors import Reply, StepRuntime
from surepipe.core.store_requests import CommitPosition, DescribeStream
from surepipe.storage import DeadLetterStream, MemoryStore
from surepipe.storage.faulty import FaultyStore, Misfortune
from tests.actors.kit import PATIENCE_S
from tests.actors.stored_kit import STREAM, ClosesAt, sqlite_store

NARROW = [{"reliable": {"backlog": 4, "window": 2, "run_max": 1}}]


def run(body: Callable[[], Awaitable[None]]) -> None:
    """One loop for each test, which ends or fails in time."""

    async def in_time() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await body()

    asyncio.run(in_time())


class Stopped:
    """A coroutine handler that stands at its first message until it is let through."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, message: object) -> None:
        self.reached.set()
        await self.opened.wait()
        self.seen.append(message)


def test_a_handler_runs_on_the_loop_of_the_block_and_all_is_confirmed_at_its_end() -> None:
    """Send, flush, close: the thread is that of the loop, and nothing is left open."""

    async def body() -> None:
        seen: list[tuple[object, int]] = []

        async def take(message: object) -> None:
            await asyncio.sleep(0)
            seen.append((message, threading.get_ident()))

        async with Pipe("orders") as pipe:
            pipe.receive(take)
            await pipe.send(0)
            assert await pipe.send_many(range(1, 5)) == 4
            await pipe.send_nowait(5)
            await pipe.flush()
            assert len(seen) == 6
            await pipe.send(6, until="accepted")
        assert seen == [(n, threading.get_ident()) for n in range(7)]
        with pytest.raises(PipeClosed):
            await pipe.send(7)
        with pytest.raises(PipeClosed):
            pipe.receive(take)
        with pytest.raises(PipeClosed):
            await anext(aiter(pipe))

    run(body)


def test_waiting_for_room_leaves_the_loop_to_others_and_a_cancelled_send_is_not_accepted() -> None:
    """The pipe is full while its handler stands. Cancelled sends leave no hole, and give back their room."""

    async def body() -> None:
        handler = Stopped()
        async with Pipe("orders", NARROW) as pipe:
            pipe.receive(handler)
            sent = 0
            with contextlib.suppress(PipeFull):
                while sent < 100:
                    await pipe.send(sent, timeout=0.05)
                    sent += 1
            assert sent < 20
            waiting = [asyncio.ensure_future(pipe.send("never")) for _ in range(20)]
            await asyncio.sleep(0)  # the loop is free: this returns, and they stand in the queue
            for task in waiting:
                task.cancel()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(one) for one in ended] == [asyncio.CancelledError] * 20
            handler.opened.set()
            await pipe.send_many(range(sent, sent + 50))
        assert handler.seen == list(range(sent + 50))

    run(body)


def test_a_send_that_is_cancelled_when_room_comes_is_accepted_or_not_and_no_room_is_lost() -> None:
    """The message that makes room and the cancellation meet, in each order; what was accepted comes once."""

    async def body() -> None:
        seen: list[object] = []

        async def take(message: object) -> None:
            await asyncio.sleep(0)
            seen.append(message)

        accepted: list[object] = []
        async with Pipe("orders", NARROW) as pipe:
            pipe.receive(take)
            for number in range(400):
                task = asyncio.ensure_future(pipe.send(number))
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await task
                    accepted.append(number)
                except asyncio.CancelledError:
                    pass
            await pipe.send_many(["end"] * 20)  # more than the pipe holds: all room is there
        assert [one for one in seen if one != "end"] == accepted
        assert seen.count("end") == 20

    run(body)


def test_a_loop_settles_each_message_when_the_next_is_asked_for() -> None:
    """A loop that is left begins again with its last message; finish ends it."""

    async def body() -> None:
        async with Pipe("orders") as pipe:
            await pipe.send_many(range(5))
            async for message in pipe:
                if message == 2:
                    break
            with pytest.raises(NotConfirmed):
                await pipe.flush(0.0)
            pipe.finish()
            assert [message async for message in pipe] == [2, 3, 4]

    run(body)


def test_a_step_of_a_loop_that_is_cancelled_takes_no_message_with_it() -> None:
    """While it waits for one, and while its body has one."""

    async def body() -> None:
        async with Pipe("orders") as pipe:
            messages = pipe.__aiter__()
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await anext(messages)
            await pipe.send_many(["a", "b"])
            assert await anext(messages) == "a"
            step = asyncio.ensure_future(anext(messages))  # "a" is settled, and "b" comes
            assert await step == "b"
            del messages

            async def take() -> None:
                async for message in pipe:
                    seen.append(message)
                    begun.set()
                    await asyncio.Event().wait()

            seen: list[object] = []
            begun = asyncio.Event()
            task = asyncio.ensure_future(take())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            pipe.finish()
            assert [message async for message in pipe] == seen == ["b"]

    run(body)


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_loop_that_is_cancelled_where_others_get_their_turn_leaves_the_pipe_to_the_next(
    *, is_kept: bool
) -> None:
    """Messages wait, and no body has to: such a loop is cancelled only there. Whoever begins again, by another
    loop or the same one's next step, gets every message once and in order."""

    async def body() -> None:
        seen: list[object] = []
        rounds = 0
        async with Pipe("orders") as pipe:
            await pipe.send_many(list(range(300)))
            pipe.finish()
            loop = aiter(pipe)
            while seen[-1:] != [299]:
                rounds += 1
                loop = loop if is_kept else aiter(pipe)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        while (message := await anext(loop, None)) is not None:
                            seen.append(message)
            assert await anext(loop, None) is None
        assert seen == list(range(300))
        assert rounds > 3

    run(body)


def test_a_loop_that_was_cancelled_while_it_waited_leaves_the_pipe_to_the_next() -> None:
    """Another loop, the same one's next step, and a handler, each after a loop that had nothing to take."""

    async def body() -> None:
        async with Pipe("orders") as pipe:
            seen: list[object] = []
            note = seen.append

            async def take() -> None:
                async for message in pipe:
                    note(message)

            async def cancelled() -> None:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await take()

            await cancelled()
            await cancelled()
            kept = pipe.__aiter__()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(kept)
            await pipe.send("a")
            async for message in pipe:
                seen.append(message)
                break
            assert await anext(kept) == "a"  # which the loop that was left had not settled
            await kept.aclose()
            await cancelled()
            pipe.receive(seen.append)
            await pipe.send("b")
            await pipe.flush()
            assert seen == ["a", "a", "b"]

    run(body)


def test_two_tasks_may_not_ask_one_loop_and_no_two_loops_ask_one_pipe() -> None:
    """Either would take the other's order away."""

    async def body() -> None:
        async with Pipe("orders") as pipe:
            messages = pipe.__aiter__()
            first = asyncio.ensure_future(messages.__anext__())
            await asyncio.sleep(0)
            with pytest.raises(MisuseError, match="two tasks ask one loop"):
                await anext(messages)
            await pipe.send(1)
            assert await first == 1
            with pytest.raises(MisuseError, match="has a loop"):
                pipe.__aiter__()
            with pytest.raises(MisuseError, match="has a loop"):
                pipe.receive(print)
            pipe.finish()
            with pytest.raises(StopAsyncIteration):
                await anext(messages)

    run(body)


def test_waiting_for_oneself_is_refused() -> None:
    """In a coroutine handler, in a loop's body, and by the synchronous face on the loop of its handler."""

    async def body() -> None:
        said: list[str] = []

        async def take(message: object) -> None:
            del message
            for call in (pipe.flush(), pipe.close(), pipe.send(1, until="confirmed")):
                with pytest.raises(MisuseError, match="inside the handler"):
                    await call
                said.append("refused")

        async with Pipe("orders") as pipe:
            pipe.receive(take)
            await pipe.send(1)
            await pipe.flush()
            for refused in (pipe.sync.flush, pipe.sync.close):
                with pytest.raises(MisuseError, match="would block the event loop"):
                    refused()
            await asyncio.to_thread(pipe.sync.flush)
        assert said == ["refused"] * 3
        async with Pipe("looped") as other:
            await other.send(1)
            async for _ in other:
                with pytest.raises(MisuseError, match="inside the loop"):
                    await other.flush()
                other.finish()

    run(body)


@pytest.mark.parametrize("how", ["send", "send_many", "loop"])
def test_a_task_that_never_has_to_wait_lets_others_have_a_turn(how: str) -> None:
    """There is always room, or always a message: timers, other tasks and Ctrl-C get their turn all the same."""
    longest, count = 0, 0

    def one(message: object) -> object:
        nonlocal count, longest
        count += 1
        longest = max(longest, count)
        return message

    async def others() -> None:
        nonlocal count
        while True:
            count = 0
            await asyncio.sleep(0)

    async def main() -> None:
        async with Pipe("orders", [{"reliable": {"backlog": 10_000, "window": 5_000}}]) as pipe:
            beside = asyncio.create_task(others())
            if how == "send":
                for number in range(1000):
                    await pipe.send(one(number))
            elif how == "send_many":
                await pipe.send_many(one(number) for number in range(5000))
            else:
                await pipe.send_many(list(range(5000)))
                works = pipe.sync.receiver.works
                await asyncio.to_thread(works.signal.wait, lambda: len(works) > 0, PATIENCE_S)
                async for message in pipe:
                    if one(message) == 4999:
                        pipe.finish()
            beside.cancel()
            pipe.sync.abort()

    run(main)
    assert 0 < longest <= (512 if how == "send_many" else 64)


def test_a_plain_accept_that_wants_an_async_face_is_told_what_to_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has no loop; and a block around the face, in a coroutine function, is not what is meant either."""

    def accept(channel: ChannelFace) -> None:
        AsyncChannel(channel).receive(print)

    async def accept_in_block(channel: ChannelFace) -> None:
        async with cast("Channel", AsyncChannel(channel)) as face:
            face.receive(print)

    async def body() -> None:
        for one in (accept, accept_in_block):
            route = LocalRoute()
            async with Listener(route, names="rpc", accept=one):
                channel = Channel("rpc", route=route)
                channel.send(1)
                await asyncio.to_thread(channel.wait_up, 0.5)
                channel.abort()

    run(body)
    assert "coroutine function, such as async def accept(channel)" in caplog.text
    assert (
        "call what it has (rpc stays open behind accept, and its Listener closes it)" in caplog.text
    )


def test_an_answer_that_is_awaited_by_mistake_is_sent_once() -> None:
    """``await reply(n)``: its handler has not failed, so no attempt sends another."""
    answers: list[object] = []

    async def handle(number: object, reply: Reply) -> None:
        await cast("Awaitable[None]", reply(number))

    async def accept(channel: ChannelFace) -> None:
        AsyncChannel(channel).receive(handle)

    async def body() -> None:
        route = LocalRoute()
        async with (
            Listener(route, names="rpc", accept=accept) as listener,
            Channel("rpc", route=route) as channel,
        ):
            channel.receive(answers.append)
            await channel.send_many(range(5))
            await channel.flush()
            await AsyncChannel(listener.at(channel.sync.address)).flush()

    run(body)
    assert answers == list(range(5))


def test_a_pipe_that_was_finished_says_so_to_whoever_sends() -> None:
    """It is not closed: it goes on to settle what it has."""

    async def body() -> None:
        async with Pipe("orders") as pipe:
            pipe.finish()
            with pytest.raises(PipeClosed, match="orders is finished and takes no more messages"):
                await pipe.send(1)

    run(body)


@pytest.mark.parametrize("how", ["gather", "create_task"])
def test_many_tasks_that_send_one_message_each_keep_the_order_in_which_they_were_made(
    how: str,
) -> None:
    """None of them has had more than its turn, so none is made to wait for one, nor for the pipe to begin: who
    comes early would wait, and who comes late would find room at once."""
    seen: list[object] = []

    async def main() -> None:
        async with Pipe("orders") as pipe:
            assert pipe.sync.sender.intake.limit > 0
            pipe.receive(seen.append)
            if how == "gather":
                await asyncio.gather(*[pipe.send(number) for number in range(500)])
            else:
                tasks = [asyncio.create_task(pipe.send(number)) for number in range(500)]
                await asyncio.wait(tasks)

    run(main)
    assert seen == list(range(500))


def test_a_block_whose_beginning_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    """The store doesn't answer: the pipe has not begun when its block is given up, and nobody would close it."""

    async def body() -> None:
        with sqlite_store(tmp_path) as kept:
            store = FaultyStore(kept)
            for _ in range(1000):
                store.script(Misfortune.OUTAGE, on=DescribeStream)
            pipe = Pipe("orders", journal=store)

            async def enter() -> None:
                async with pipe:
                    raise AssertionError("it has begun")

            task = asyncio.create_task(enter())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(PipeClosed):
                pipe.send(1)

    run(body)


def test_a_plain_loop_does_not_block_the_event_loop_that_its_messages_come_from() -> None:
    """What is there it gives; where it would have to wait it says what to write. Its last message comes again."""

    async def body() -> None:
        seen: list[object] = []
        async with Pipe("orders") as pipe:
            await pipe.send(1)
            async for message in pipe:
                seen.append(message)
                break
            with pytest.raises(MisuseError, match="write async for message in pipe"):
                seen.extend(pipe.sync)
            await pipe.send(2)
            pipe.finish()
            seen.extend([message async for message in pipe])
        assert seen[0] == 1
        assert seen[-1] == 2

    run(body)


def test_the_wrong_face_names_the_right_one() -> None:
    """A loop of the other kind, and a question that is asked of the synchronous face."""

    async def body() -> None:
        async with Pipe("orders") as pipe:
            with pytest.raises(MisuseError, match=r"is async with Pipe\(\.\.\.\) as face"):
                async with cast("Pipe", pipe):
                    pass
            with (
                pytest.raises(
                    MisuseError, match=r"^with AsyncPipe\(\.\.\.\): a block that ends orders"
                ),
                cast("Pipe", pipe),
            ):
                pass
            with pytest.raises(MisuseError, match="write async for over orders"):
                list(cast("list[object]", pipe))
            with pytest.raises(
                AttributeError, match=r"AsyncPipe has no 'counters'.*\.sync\.counters"
            ):
                cast("Pipe", pipe).counters()
            with pytest.raises(AttributeError, match=r"AsyncPipe has no 'nothing'$"):
                _ = cast("NoFace", pipe).nothing
            with pytest.raises(MisuseError, match=r"write async with Pipe\(\.\.\.\) as face"):
                [one async for one in cast("AsyncPipe", pipe.sync)]

    run(body)


class NoFace(Protocol):
    """What no face has."""

    nothing: object


def test_a_face_is_made_where_a_loop_runs_and_in_real_time() -> None:
    """Elsewhere it says what to write."""
    with Pipe("orders") as pipe, pytest.raises(MisuseError, match="async with in a coroutine"):
        AsyncPipe(pipe)

    async def body() -> None:
        pipe = Pipe("steps", runtime=StepRuntime(1))
        with pytest.raises(MisuseError, match="virtual time"):
            AsyncPipe(pipe)
        pipe.close()

    run(body)


def test_a_face_may_be_used_from_another_loop_and_from_threads() -> None:
    """Its handler stays on the loop that it was made on; sending waits wherever it is called."""

    async def body() -> None:
        threads: set[int] = set()

        async def take(message: object) -> None:
            del message
            threads.add(threading.get_ident())

        async with Pipe("orders", NARROW) as pipe:
            pipe.receive(take)

            async def elsewhere() -> None:
                await pipe.send_many(range(50))
                await pipe.flush()

            await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            await asyncio.to_thread(pipe.sync.send_many, range(50))
            await pipe.flush()
            assert pipe.sync.counters()["settled"] == 100
        assert threads == {threading.get_ident()}

    run(body)


def test_lanes_run_side_by_side_on_the_loop_and_a_key_keeps_its_order() -> None:
    """Eight keys wait for each other in the handler; the ninth message of a key waits for its eighth."""

    async def body() -> None:
        met = asyncio.Barrier(8)
        seen: list[int] = []

        async def take(message: object) -> None:
            await met.wait()
            seen.append(cast("int", message))

        async with Pipe("orders", key=lambda n: n % 8, lanes=8) as pipe:
            pipe.receive(take)
            await pipe.send_many(range(40))
        for key in range(8):
            assert [n for n in seen if n % 8 == key] == list(range(key, 40, 8))

    run(body)


def test_a_plain_handler_keeps_its_thread_and_what_it_gives_is_awaited_on_the_loop() -> None:
    """A lambda around a coroutine, too: the body runs on the loop of the face."""

    async def body() -> None:
        seen: list[tuple[object, bool]] = []
        here = threading.get_ident()

        async def take(message: object) -> None:
            seen.append((message, threading.get_ident() == here))

        def plain(message: object) -> object:
            seen.append((message, threading.get_ident() == here))
            return take(message)

        async with Pipe("orders") as pipe:
            pipe.receive(plain)
            await pipe.send(1)
        assert seen == [(1, False), (1, True)]

    run(body)


def test_a_block_that_is_left_by_an_error_ends_at_once_and_keeps_what_is_not_settled() -> None:
    """The handler that stands is cancelled; the stream still has its message for the next reader."""

    async def body() -> None:
        store, handler = MemoryStore(), Stopped()
        async with StreamSender("orders", store=store) as sender:
            await sender.send("a")

        async def fail() -> None:
            async with StreamReceiver("orders", [STREAM], store=store) as receiver:
                receiver.receive(handler)
                await handler.reached.wait()
                raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            await fail()
        assert handler.seen == []
        async with StreamReceiver("orders", [STREAM], store=store) as receiver:
            await receiver.finish()
            assert [message async for message in receiver] == ["a"]
            assert await receiver.catch_up(PATIENCE_S)

    run(body)


class Crowd:
    """Coroutine handlers that stand until they are cancelled, and say so."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.begun: set[object] = set()
        self.running: set[object] = set()
        self.are_there = asyncio.Event()

    async def one(self, message: object) -> None:
        self.begun.add(message)
        self.running.add(message)
        if len(self.begun) == self.count:
            self.are_there.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.running.discard(message)

    async def some(self, messages: list[object]) -> None:
        await self.one(messages[0])

    def given(self, message: object) -> Awaitable[None]:
        """No coroutine function: a thread of each lane waits for what it gives."""
        return self.one(message)


Leave: TypeAlias = "Callable[[AsyncPipe], Awaitable[None]]"


async def _by_error(_face: object) -> None:
    raise ZeroDivisionError


async def _by_cancellation(_face: object) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()


async def _by_close(face: AsyncPipe) -> None:
    await face.close(timeout=0)


async def _by_abort(face: AsyncPipe) -> None:
    await asyncio.to_thread(face.sync.abort)


LEAVING: dict[str, Leave] = {
    "error": _by_error,
    "cancellation": _by_cancellation,
    "close": _by_close,
    "abort": _by_abort,
}


@pytest.mark.parametrize(
    ("kind", "shape", "how"),
    [
        *((Pipe, "one", how) for how in LEAVING),
        *((StreamReceiver, "one", how) for how in LEAVING),
        (Pipe, "some", "error"),
        (Pipe, "given", "error"),
    ],
)
def test_a_block_that_ends_leaves_none_of_its_lanes_running(
    kind: type[Pipe | StreamReceiver], shape: str, how: str
) -> None:
    """Three of four lanes stand in a coroutine when it is left: each of them is cancelled, and has ended."""

    async def body() -> None:
        store, crowd = MemoryStore(), Crowd(3)

        async def block() -> None:
            async with StreamSender("orders", store=store) as sender:
                await sender.send_many(range(3))
            made: Pipe | StreamReceiver
            if kind is Pipe:
                made = Pipe("orders", STREAM, store=store, key=str, lanes=4)
            else:
                made = StreamReceiver("orders", STREAM, store=store, key=str, lanes=4)
            async with made as entered:
                face = cast("AsyncPipe", entered)
                if shape == "some":
                    face.receive_many(crowd.some)
                else:
                    face.receive(getattr(crowd, shape))
                await crowd.are_there.wait()
                await LEAVING[how](face)

        task = asyncio.ensure_future(block())
        await asyncio.wait({task})
        assert crowd.begun == {0, 1, 2}
        assert crowd.running == set()
        with contextlib.suppress(ZeroDivisionError, asyncio.CancelledError, NotConfirmed):
            task.result()

    run(body)


def test_what_a_plain_handler_gives_after_its_block_has_ended_is_not_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It stands in a thread, which nobody can end; the coroutine that it returns in the end has no effect."""
    threads: list[threading.Thread] = []
    go_on, effects = threading.Event(), list[object]()

    async def act(message: object) -> None:
        effects.append(message)

    async def body() -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def handle(message: object) -> Awaitable[None]:
            threads.append(threading.current_thread())
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(PATIENCE_S)
            return act(message)

        with contextlib.suppress(ZeroDivisionError):
            async with Pipe("orders") as pipe:
                pipe.receive(handle)
                await pipe.send(1)
                await begun.wait()
                raise ZeroDivisionError
        go_on.set()
        await asyncio.to_thread(threads[0].join, PATIENCE_S)
        assert not threads[0].is_alive()

    run(body)
    assert effects == []
    assert "pipe orders is closed and its handler is still busy" in caplog.text


def test_a_block_in_a_thread_leaves_none_of_its_lanes_running() -> None:
    """A plain with: its lanes are tasks of the loop that the process owns."""
    running, are_there = set[object](), threading.Barrier(4)

    async def stand(message: object) -> None:
        running.add(message)
        try:
            await asyncio.to_thread(are_there.wait, PATIENCE_S)
            await asyncio.Event().wait()
        finally:
            running.discard(message)

    def block() -> None:
        with Pipe("orders", key=str, lanes=4) as pipe:
            pipe.receive(stand)
            pipe.send_many(range(3))
            are_there.wait(PATIENCE_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert running == set()


@pytest.mark.parametrize("lanes", [None, 4])
def test_a_plain_block_on_the_loop_of_its_handlers_leaves_none_of_them_running(
    lanes: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It can't wait for them there: they are cancelled at the loop's next turn, and the log says so."""

    async def body() -> None:
        count = 3 if lanes else 1
        crowd = Crowd(count)
        with (
            contextlib.suppress(ZeroDivisionError),
            Pipe("orders", key=str if lanes else None, lanes=lanes) as pipe,
        ):
            face = AsyncPipe(pipe)
            face.receive(crowd.one)
            await face.send_many(range(count))
            await crowd.are_there.wait()
            raise ZeroDivisionError
        while crowd.running:
            await asyncio.sleep(0)

    run(body)
    assert "its handler is still busy" in caplog.text


def test_a_block_whose_task_is_cancelled_keeps_what_is_not_settled() -> None:
    """Cancelled in its body, and again while it is being closed: nothing counts that was not done."""

    async def body() -> None:
        store, handler = MemoryStore(), Stopped()
        async with StreamSender("orders", store=store) as sender:
            await sender.send_many(["a", "b"])

        async def take() -> None:
            async with StreamReceiver("orders", [STREAM], store=store) as receiver:
                receiver.receive(handler)
                await asyncio.Event().wait()

        task = asyncio.ensure_future(take())
        await handler.reached.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        before = {thread for thread in threading.enumerate() if thread.name == "surepipe-async"}
        while any(thread.is_alive() for thread in before):
            await asyncio.to_thread(before.pop().join)
        assert handler.seen == []
        async with StreamReceiver("orders", [STREAM], store=store) as receiver:
            await receiver.finish()
            assert [message async for message in receiver] == ["a", "b"]

    run(body)


def test_a_block_that_is_cancelled_while_its_end_waits_ends_at_once_and_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ctrl-C often comes there: all is sent, and the end of the block waits for a message that keeps failing."""

    async def body() -> None:
        has_failed = asyncio.Event()

        async def refuse(message: object) -> None:
            has_failed.set()
            raise ValueError(message)

        async def block() -> None:
            async with Pipe("orders") as pipe:
                pipe.receive(refuse)
                await pipe.send(1)

        task = asyncio.ensure_future(block())
        await has_failed.wait()
        while not (threads := [t for t in threading.enumerate() if t.name == "surepipe-async"]):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(threads[0].join, PATIENCE_S)
        assert not threads[0].is_alive()

    run(body)
    assert "pipe orders ends with 1 message that is not confirmed" in caplog.text
    assert "died" not in caplog.text


@pytest.mark.parametrize("boundary", ["processed", "committed"])
def test_a_coroutine_that_a_thread_waits_for_is_cancelled_with_its_block(
    boundary: Literal["processed", "committed"], tmp_path: Path
) -> None:
    """A plain function that gives one, or a transaction, takes a thread: the coroutine ends before the block."""
    ended: list[str] = []

    async def body() -> None:
        begun = asyncio.Event()

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("handler")

        with sqlite_store(tmp_path) as store:
            pipe = Pipe("orders", state=store, boundary=boundary)
            with contextlib.suppress(ZeroDivisionError):
                async with pipe as face:
                    is_plain = boundary == "processed"
                    face.receive((lambda _: wait()) if is_plain else _in_transaction(wait))
                    await face.send(1)
                    await begun.wait()
                    raise ZeroDivisionError
            ended.append("block")

    run(body)
    assert ended == ["handler", "block"]


def _in_transaction(work: Callable[[], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def handle(message: object, transaction: object) -> None:
        del message, transaction
        await work()

    return handle


def test_a_coroutine_that_fills_its_own_pipe_is_told_that_nothing_makes_room() -> None:
    """It would wait for itself, and so would all behind it."""
    told: list[str] = []

    async def body() -> None:
        is_told = asyncio.Event()
        async with Pipe("orders", NARROW) as pipe:

            async def send() -> None:
                for _ in range(20):
                    await pipe.send("more")

            async def fill(message: object) -> None:
                if message != "first":
                    return
                with pytest.raises(MisuseError) as refused:
                    await send()
                told.append(str(refused.value))
                is_told.set()

            pipe.receive(fill)
            await pipe.send("first")
            await is_told.wait()

    run(body)
    assert told[0].startswith("pipe orders is full, and who sends is its own handler")


def test_an_interrupt_while_a_pipe_is_closed_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one inside of the block does."""
    interrupted = threading.Event()

    def refuse(message: object) -> None:
        try:
            pipe.send_nowait(message)
        except PipeClosed:
            if not interrupted.is_set():
                interrupted.set()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        raise ValueError(message)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    pipe = Pipe("orders", retry_min_s=0.001)
    try:
        pipe.receive(refuse)
        pipe.send(1)
        with pytest.raises(KeyboardInterrupt):
            pipe.close()
    finally:
        signal.signal(signal.SIGINT, former)
    assert "1 message that is not confirmed; it is given up" in caplog.text


def test_a_pipe_between_processes_has_two_async_ends() -> None:
    """Sender and receiver each by itself, over one route."""

    async def body() -> None:
        route, seen = LocalRoute(), list[object]()

        async def take(message: object) -> None:
            seen.append(message)

        async with (
            PipeReceiver("orders", route=route) as receiver,
            PipeSender("orders", route=route) as sender,
        ):
            receiver.receive(take)
            await sender.send_many(range(3))
            await sender.send(3, until="confirmed", timeout=PATIENCE_S)
            assert seen == [0, 1, 2, 3]
            assert sender.name == receiver.name == "orders"
            assert "orders: reliable" in str(sender)

    run(body)


def test_both_ends_of_a_channel_have_an_async_face() -> None:
    """The listener's end is made in an accept that is a coroutine, on the same loop."""

    async def body() -> None:
        here = threading.get_ident()
        ends: list[AsyncChannel] = []
        seen: list[object] = []

        async def take(messages: list[object]) -> None:
            seen.extend(messages)

        async def answer(message: object, reply: Reply) -> None:
            assert threading.get_ident() == here
            await reply.send({"got": message})

        async def accept(channel: ChannelFace) -> None:
            assert threading.get_ident() == here
            end = AsyncChannel(channel)
            end.receive(answer)
            ends.append(end)

        route = LocalRoute()
        async with (
            Listener(route, names="rpc", accept=accept),
            Channel("rpc", route=route) as channel,
        ):
            assert await channel.wait_up(PATIENCE_S)
            assert channel.is_up
            await channel.send_many([1, 2])
            answers: list[object] = []
            async for answer_ in channel:
                answers.append(answer_)
                if answer_ == {"got": 2}:
                    break
            channel.receive_many(take)
            await ends[0].send("bye", until="confirmed", timeout=PATIENCE_S)
        assert answers == [{"got": 1}, {"got": 2}]
        assert seen == [{"got": 2}, "bye"]  # the loop that was left had not settled its last

    run(body)


def test_a_journal_answers_without_blocking_the_loop_and_letters_are_replayed(
    tmp_path: Path,
) -> None:
    """What was accepted is stored; a batch handler; and a letter goes through at the second time."""

    async def body() -> None:
        seen: list[object] = []

        async def fail(messages: list[object]) -> None:
            del messages
            raise ValueError("not today")

        async def take(messages: list[object]) -> None:
            seen.extend(messages)

        with sqlite_store(tmp_path) as store:
            async with Pipe("orders", journal=store, retries=1, dead_letter=store) as pipe:
                pipe.receive_many(fail)
                await pipe.send(1, timeout=PATIENCE_S)
                await pipe.flush(PATIENCE_S)
            async with Pipe("orders", journal=store, dead_letter=store) as pipe:
                pipe.receive_many(take)
                replayed = await pipe.replay(DeadLetterStream(store, "orders/dead"))
            assert str(replayed) == "1 letter replayed, exactly once"
        assert seen == [1]

    run(body)


def test_a_task_that_sends_into_a_closed_journal_is_told(tmp_path: Path) -> None:
    """Closed before it notes what is confirmed: a send without a time raises, and the block can be left."""

    async def main() -> None:
        store = ClosesAt(tmp_path / "pipes.db", CommitPosition, 3)
        async with Pipe("orders", journal=store) as pipe:
            pipe.receive(lambda _: None)
            await pipe.send("a", until="confirmed")
            assert await asyncio.to_thread(store.was_closed.wait, PATIENCE_S)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(PipeStopped, match=r"pipes\.db is closed"):
                    await pipe.send("b")
            await pipe.flush()

    run(main)


def test_what_close_raises_after_its_caller_was_cancelled_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody else would hear that messages were not confirmed."""

    async def body() -> None:
        handler = Stopped()
        pipe = await Pipe("orders", dead_letter=DeadLetters()).__aenter__()
        pipe.receive(handler)
        await pipe.send(1)
        await handler.reached.wait()
        closing = asyncio.ensure_future(pipe.close(0.2))
        while not (threads := [t for t in threading.enumerate() if t.name == "surepipe-async"]):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await asyncio.to_thread(threads[0].join)
        await asyncio.sleep(0)

    run(body)
    assert "ended after its caller was cancelled, with NotConfirmed" in caplog.text


@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "of-another-task"])
def test_the_end_of_a_block_waits_for_a_close_that_is_under_way(*, is_cancelled: bool) -> None:
    """1. A close waits for the handler. 2. Its caller is cancelled, or does not wait for it. 3. The block ends:
    what was accepted is handled by then."""

    async def body() -> None:
        handler = Stopped()
        threads: list[threading.Thread] = []

        async def block() -> None:
            async with Pipe("orders") as pipe:
                pipe.receive(handler)
                await pipe.send_many(range(3))
                closing = asyncio.ensure_future(pipe.close())
                await handler.reached.wait()
                while not (now := [t for t in threading.enumerate() if t.name == "surepipe-async"]):
                    await asyncio.sleep(0)
                threads.extend(now)
                if is_cancelled:
                    closing.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await closing
                asyncio.get_running_loop().call_soon(handler.opened.set)

        await block()
        assert handler.seen == [0, 1, 2]
        await asyncio.to_thread(threads[0].join, PATIENCE_S)

    run(body)


def test_a_close_in_the_body_of_a_loop_does_not_wait_for_itself() -> None:
    """The message in hand can be settled by this loop alone, which stands at the close: it is named at once."""

    async def body() -> None:
        async with Pipe("orders") as pipe:
            await pipe.send(1)
            async for _ in pipe:
                with pytest.raises(NotConfirmed):
                    await pipe.close(2 * PATIENCE_S)
                break

    run(body)
    pipe = Pipe("orders")
    pipe.send(1)
    messages = iter(pipe)
    assert next(messages) == 1
    with pytest.raises(NotConfirmed):
        pipe.close(2 * PATIENCE_S)


def test_a_loop_over_a_stream_is_finished_whether_or_not_that_is_awaited() -> None:
    """As those of other receivers, which ask no store; where no loop runs it says what to write."""

    async def body() -> None:
        store = MemoryStore()
        async with StreamSender("orders", store=store) as sender:
            await sender.send_many(range(3))
            await sender.flush()
        for is_awaited in (False, True):
            layer = [{"stream": {"start": "earliest", "reader": f"reader-{is_awaited}"}}]
            async with StreamReceiver("orders", layer, store=store) as receiver:
                seen: list[object] = []
                async for message in receiver:
                    seen.append(message)
                    if message == 1:
                        finishing = receiver.finish()
                        if is_awaited:
                            await finishing
                assert seen == [0, 1, 2]
                with pytest.raises(MisuseError, match=r"call \.sync\.finish\(\)"):
                    await asyncio.to_thread(receiver.finish)

    run(body)


def test_a_finish_that_the_store_does_not_answer_has_effect_once_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A loop ends that was told once, and the log says what that waits for, even if nobody awaits it."""

    async def body() -> None:
        store = FaultyStore(MemoryStore())
        async with StreamSender("orders", store=store) as sender:
            await sender.send_many(range(3), until="confirmed")
        async with StreamReceiver("orders", STREAM, store=store) as receiver:
            seen: list[object] = []
            async for message in receiver:
                seen.append(message)
                if message == 1:
                    store.script(Misfortune.OUTAGE, calls=1_000_000)
                    await receiver.finish()
                    store.calm()
            assert seen == [0, 1, 2]

    run(body)
    assert "pipe orders: finish waits until the store says where the stream ends, " in caplog.text


def test_a_program_that_only_waits_ends_though_its_store_is_away_at_the_signal() -> None:
    """Its signal comes once, to a handler that takes messages: what the stream has is handled, and it ends."""

    async def body() -> None:
        store, seen = FaultyStore(MemoryStore()), list[object]()
        loop = asyncio.get_running_loop()

        async def handle(message: object) -> None:
            seen.append(message)
            if message == 1:
                store.script(Misfortune.OUTAGE, calls=1_000_000)
                signal.raise_signal(signal.SIGTERM)

        async with StreamSender("orders", store=store) as sender:
            await sender.send_many(range(3), until="confirmed")
        async with StreamReceiver("orders", STREAM, store=store) as receiver:
            loop.add_signal_handler(signal.SIGTERM, _and_then(receiver.finish, store.calm))
            try:
                receiver.receive(handle)
                assert await receiver.wait(PATIENCE_S)
            finally:
                loop.remove_signal_handler(signal.SIGTERM)
        assert seen == [0, 1, 2]

    run(body)


def _and_then(
    finish: Callable[[], asyncio.Future[None]], following: Callable[[], object]
) -> Callable[[], None]:
    return lambda: finish().add_done_callback(lambda _: following())


def test_an_end_that_is_closed_before_its_finish_has_effect_ends_as_any_other() -> None:
    """The store is away at the finish, and stays so: close waits for neither, and nor does whoever waits."""

    async def body() -> None:
        store, handler = FaultyStore(MemoryStore()), Stopped()
        async with StreamSender("orders", store=store) as sender:
            await sender.send_many(range(2), until="confirmed")
        async with StreamReceiver("orders", STREAM, store=store) as receiver:
            receiver.receive(handler)
            await handler.reached.wait()
            store.script(Misfortune.OUTAGE, calls=1_000_000)
            await receiver.finish()
            assert not await receiver.wait(0)
            await receiver.close(timeout=0)
            assert await receiver.wait(PATIENCE_S)
            await receiver.finish()  # of what is closed: it changes nothing
        assert handler.seen == []

    run(body)


@pytest.mark.parametrize("is_left_open", [True, False], ids=["left-open", "left"])
def test_what_a_loop_has_settled_is_committed_by_close(*, is_left_open: bool) -> None:
    """Eight of ten are asked for, so seven are settled. Nobody asks the loop for more, which is still there."""

    async def body() -> None:
        store = MemoryStore()
        async with StreamSender("orders", store=store) as sender:
            await sender.send_many(range(10))
        async with StreamReceiver("orders", [STREAM], store=store) as receiver:
            messages = aiter(receiver)
            got = [await anext(messages) for _ in range(8)]
            if not is_left_open:
                del messages
        assert got == list(range(8))
        async with StreamReceiver("orders", [STREAM], store=store) as receiver:
            await receiver.finish()
            assert [message async for message in receiver] == [7, 8, 9]

    run(body)
