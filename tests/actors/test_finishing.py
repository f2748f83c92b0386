"""Loops over a receiving end that is told to finish: what has arrived is taken, and what comes later is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable
from itertools import pairwise

import pytest

from surepipe import (
    AsyncChannel,
    Channel,
    ChannelFace,
    Listener,
    LocalRoute,
    MemoryStore,
    MisuseError,
    Pipe,
    PipeReceiver,
    PipeSender,
    PipeStopped,
    StacksDiffer,
    StreamReceiver,
    StreamSender,
)
from surepipe.actors import StepRuntime
from surepipe.actors.runtime import Runtime
from surepipe.storage.faulty import FaultyStore, Misfortune
from tests.actors.kit import PATIENCE_S

CONFIRMING = ["reliable", "multi-unconfirmed", "continuous-index > multi-unconfirmed", "resend"]
SILENT = ["strict-monotonic", "dedupe", "continuous-index"]


@pytest.mark.parametrize("kind", CONFIRMING)
def test_what_comes_after_finish_is_there_for_the_next_receiver(
    runtime: Runtime, kind: str
) -> None:
    """Sent for each message that is taken, without end: each loop ends, and no message is lost or repeated."""
    route, stack = LocalRoute(), kind.split(" > ")
    seen: list[int] = []
    with PipeSender("orders", stack, route=route, runtime=runtime) as sender:
        sender.send(0)
        for end in (5, 10):
            with PipeReceiver("orders", stack, route=route, runtime=runtime) as receiver:
                for message in receiver:
                    assert isinstance(message, int)
                    seen.append(message)
                    sender.send(message + 1)
                    if message == end:
                        receiver.finish()
        with PipeReceiver("orders", stack, route=route, runtime=runtime) as receiver:
            receiver.receive(seen.append)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            sender.flush(PATIENCE_S)
    assert len(seen) > 10
    assert all(after == before + 1 for before, after in pairwise(seen))


@pytest.mark.parametrize("kind", [*CONFIRMING, *SILENT])
def test_all_that_has_arrived_is_taken(steps: StepRuntime, kind: str) -> None:
    """More frames than a stack without confirms has room for at a time, and some that come too late."""
    route, stack = LocalRoute(), kind.split(" > ")
    sender = PipeSender("orders", stack, route=route, runtime=steps)
    with PipeReceiver("orders", stack, route=route, runtime=steps) as receiver:
        for number in range(300):
            sender.send(number)
        steps.advance(1)
        seen: list[object] = []
        for message in receiver:
            seen.append(message)
            if message == 1:
                receiver.finish()
                steps.advance(1)
                sender.send("late")
                steps.advance(1)
        assert list(receiver) == []
    sender.abort()
    if kind == "resend":  # which sends the next frame when the last is settled
        assert seen == list(range(len(seen)))
    else:
        assert seen == list(range(300))


def test_who_waits_for_the_end_of_a_receiver_has_it_when_all_is_settled() -> None:
    """``wait`` beside a handler: not while messages may come, not before the last is handled, and after close."""
    seen: list[object] = []
    began, go_on = threading.Event(), threading.Event()

    def handle(message: object) -> None:
        began.set()
        assert go_on.wait(PATIENCE_S)
        seen.append(message)

    with Pipe("orders") as pipe:
        pipe.receive(handle)
        assert not pipe.wait(0)
        pipe.send_many(range(3))
        assert began.wait(PATIENCE_S)
        pipe.finish()
        assert not pipe.wait(0)
        go_on.set()
        assert pipe.wait(PATIENCE_S)
        assert seen == [0, 1, 2]
    assert pipe.wait(0)


@pytest.mark.parametrize("kind", [StreamReceiver, Pipe])
def test_who_is_told_to_finish_while_the_store_is_away_ends_when_it_is_back(
    steps: StepRuntime, kind: type[StreamReceiver | Pipe], caplog: pytest.LogCaptureFixture
) -> None:
    """Told once: nothing has ended after a minute without the store, and all is handled after one with it."""
    store, layer, seen = (
        FaultyStore(MemoryStore()),
        {"stream": {"start": "earliest"}},
        list[object](),
    )
    with StreamSender("orders", store=store, runtime=steps) as sender:
        sender.send_many(range(3), until="confirmed")
    if kind is Pipe:
        made: Pipe | StreamReceiver = Pipe("orders", layer, store=store, runtime=steps)
    else:
        made = StreamReceiver("orders", layer, store=store, runtime=steps)
    with made as end:
        store.script(Misfortune.OUTAGE, calls=1_000_000)
        end.finish()
        end.receive(seen.append)
        assert not end.wait(60)
        store.calm()
        assert end.wait(60)
    assert seen == [0, 1, 2]
    assert ("finish waits until the store says" in caplog.text) == (kind is StreamReceiver)


def test_a_handler_does_not_wait_for_its_own_end(runtime: Runtime) -> None:
    """It would wait for itself."""
    told: list[str] = []

    def handle(_message: object) -> None:
        with pytest.raises(MisuseError) as raised:
            pipe.wait()
        told.append(str(raised.value))

    with Pipe("orders", runtime=runtime) as pipe:
        pipe.receive(handle)
        pipe.send(1)
        pipe.flush(PATIENCE_S)
    assert "wait inside the handler of pipe orders" in told[0]


def test_a_program_whose_handler_does_all_the_work_hears_that_another_took_its_place() -> None:
    """``wait`` of the async face raises it, and may be cancelled before without harm."""
    store, layer = MemoryStore(), {"stream": {"start": "earliest"}}
    seen: list[object] = []

    async def handle(message: object) -> None:
        seen.append(message)

    async def main() -> None:
        async with (
            StreamSender("orders", store=store) as sender,
            StreamReceiver("orders", layer, store=store) as older,
        ):
            older.receive(handle)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await older.wait()
            waiting = asyncio.create_task(older.wait(PATIENCE_S))
            await sender.send(1, until="confirmed")
            assert await older.catch_up(PATIENCE_S)
            async with StreamReceiver("orders", layer, store=store) as newer:
                newer.receive(handle)
                assert await newer.catch_up(PATIENCE_S)  # it has taken the place
                await sender.send(2, until="confirmed")
                with pytest.raises(PipeStopped, match="reads as 'orders' now"):
                    await waiting
                await newer.finish()
                assert await newer.wait(PATIENCE_S)
        assert set(seen) == {1, 2}

    asyncio.run(main())


def test_a_loop_that_waits_ends_when_nothing_has_arrived(runtime: Runtime) -> None:
    """Told before it began, by an end that never got anything; and a second time."""
    with PipeReceiver("orders", route=LocalRoute(), runtime=runtime) as receiver:
        receiver.finish()
        receiver.finish()
        assert list(receiver) == []


def test_a_sender_gets_answers_while_its_last_messages_are_taken(steps: StepRuntime) -> None:
    """The body takes a minute for each: the sender asks, and warns of nothing."""
    route, told = LocalRoute(), list[object]()
    with PipeReceiver("orders", route=route, runtime=steps) as receiver:
        sender = PipeSender("orders", route=route, runtime=steps, notices=told.append)
        sender.send_many(range(5))
        for message in receiver:
            if message == 0:
                receiver.finish()
            steps.advance(60)
        sender.close(PATIENCE_S)
    assert told == []


def test_an_end_that_crashes_after_finish_ends_its_loop(steps: StepRuntime) -> None:
    """What it had not settled is there for the next receiver."""
    route = LocalRoute()
    with PipeSender("orders", route=route, runtime=steps) as sender:
        with PipeReceiver("orders", route=route, runtime=steps) as receiver:
            sender.send_many(range(5))
            first: list[object] = []
            for message in receiver:
                first.append(message)
                if message == 1:
                    receiver.finish()
                    steps.advance(1)  # the first is confirmed
                    receiver.receiver.crash()
                    steps.advance(1)
        second: list[object] = []
        with PipeReceiver("orders", route=route, runtime=steps) as receiver:
            receiver.receive(second.append)
            sender.flush(PATIENCE_S)
    assert first == [0, 1]
    assert second == [1, 2, 3, 4]


def test_an_end_that_was_stopped_still_says_why_after_finish(steps: StepRuntime) -> None:
    """The two ends are configured differently."""
    route = LocalRoute()
    with PipeReceiver(
        "orders", "multi-unconfirmed", route=route, runtime=steps, notices=lambda _: None
    ) as receiver:
        sender = PipeSender(
            "orders", "reliable", route=route, runtime=steps, notices=lambda _: None
        )
        steps.advance(1)
        receiver.finish()
        steps.advance(1)
        with pytest.raises(StacksDiffer):
            list(receiver)
        sender.abort()


def test_an_end_of_a_channel_that_has_finished_goes_on_sending(runtime: Runtime) -> None:
    """The other end echoes: the echo of what is sent after finish is not taken, and the message is confirmed."""
    route, echoed = LocalRoute(), list[object]()

    def accept(channel: ChannelFace) -> None:
        def echo(message: object) -> None:
            channel.send(message)
            echoed.append(message)

        channel.receive(echo)

    listener = Listener(route, names="rpc", accept=accept, runtime=runtime)
    with Channel("rpc", route=route, runtime=runtime) as channel:
        channel.send(0)
        seen: list[int] = []
        for message in channel:
            assert isinstance(message, int)
            seen.append(message)
            channel.send(message + 1, until="confirmed", timeout=PATIENCE_S)
            if message == 5:
                channel.finish()
        channel.send("bye", until="confirmed", timeout=PATIENCE_S)
    for end in listener.channels().values():
        end.abort()  # the other end of it never takes those echoes
    listener.close()
    assert seen == list(range(len(seen)))
    assert echoed == [*range(len(seen) + 1), "bye"]


class Reading:
    """A task that takes all messages of an end, and tells when there are two."""

    def __init__(self, end: AsyncIterable[object]) -> None:
        self.seen: list[object] = []
        self.has_two = asyncio.Event()
        self.task = asyncio.ensure_future(self._take_all(end))

    async def _take_all(self, end: AsyncIterable[object]) -> None:
        async for message in end:
            self.seen.append(message)
            if len(self.seen) == 2:
                self.has_two.set()


def test_an_async_for_over_a_receiver_ends_normally() -> None:
    """Told by another task while the loop waits; the sender's block ends, so all of it was confirmed."""

    async def body() -> None:
        route = LocalRoute()
        async with (
            PipeReceiver("orders", route=route) as receiver,
            PipeSender("orders", route=route) as sender,
        ):
            reading = Reading(receiver)
            await sender.send_many(["a", "b"])
            await reading.has_two.wait()
            receiver.finish()
            await asyncio.wait_for(reading.task, PATIENCE_S)
        assert reading.seen == ["a", "b"]

    asyncio.run(body())


def test_an_async_for_over_a_channel_ends_normally() -> None:
    """The same at the listening end."""

    async def body() -> None:
        route = LocalRoute()
        accepted: asyncio.Queue[AsyncChannel] = asyncio.Queue()

        async def accept(channel: ChannelFace) -> None:
            await accepted.put(AsyncChannel(channel))

        async with (
            Listener(route, names="rpc", accept=accept),
            Channel("rpc", route=route) as channel,
        ):
            await channel.send_many(["a", "b"])
            end = await accepted.get()
            reading = Reading(end)
            await reading.has_two.wait()
            end.finish()
            await asyncio.wait_for(reading.task, PATIENCE_S)
        assert reading.seen == ["a", "b"]

    asyncio.run(body())
