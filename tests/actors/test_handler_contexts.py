"""Context variables in handlers: each call has what was set where ``receive`` was called, and nothing else."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

import pytest

from surepipe import Channel, ChannelFace, Listener, LocalRoute, Pipe, StreamReceiver, StreamSender
from surepipe.actors import StepRuntime
from surepipe.storage import MemoryStore
from tests.actors.kit import PATIENCE_S
from tests.actors.stored_kit import STREAM

COUNT = 6
WHO: ContextVar[str] = ContextVar("who", default="nobody")
"""Set by whoever calls ``receive``, and again by each handler."""


class Witness:
    """Handlers of every shape, which note what is set when they begin, and set something else."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.kept: list[bool] = []

    def plain(self, message: object, *_: object) -> None:
        self.found.append(WHO.get())
        WHO.set(f"of {message}")

    async def awaited(self, message: object, *_: object) -> None:
        self.plain(message)
        await asyncio.sleep(0)  # others run meanwhile
        inner = await asyncio.create_task(self.inner())
        self.kept.append(WHO.get() == inner == f"of {message}")

    async def inner(self) -> str:
        """A task that the handler begins has what the handler has set."""
        return WHO.get()

    def gives_awaitable(self, message: object, *_: object) -> Awaitable[None]:
        self.plain(message)
        return self.rest(message)

    async def rest(self, message: object) -> None:
        """What a plain handler gave to be awaited goes on where the handler was."""
        await asyncio.sleep(0)
        self.kept.append(WHO.get() == f"of {message}")

    def stays_apart(self, calls: int) -> bool:
        """Each call found what the caller of ``receive`` had set, and kept its own."""
        return self.found == ["caller"] * calls and all(self.kept)


SHAPES = ("plain", "awaited", "gives_awaitable")
OPTIONS: dict[str, dict[str, Any]] = {
    "one after the other": {},
    "in lanes": {"key": str, "lanes": 3},
}


def as_caller(face: Any, handler: Callable[..., object], how: str = "receive") -> None:
    """Give a handler where something is set, which is taken back at once."""
    token = WHO.set("caller")
    getattr(face, how)(handler)
    WHO.reset(token)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_no_handler_sees_what_another_message_has_set(
    shape: str, options: Mapping[str, Any]
) -> None:
    """On threads and the loop of the process, one delivery with all the messages."""
    witness = Witness()
    with Pipe("orders", start=False, **options) as pipe:
        as_caller(pipe, getattr(witness, shape))
        pipe.start()
        pipe.send_many(list(range(COUNT)))
        pipe.flush(PATIENCE_S)
    assert witness.stays_apart(COUNT)
    assert WHO.get() == "nobody"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_is_so_on_the_callers_loop(shape: str, options: Mapping[str, Any]) -> None:
    """The async face."""
    witness = Witness()

    async def body() -> None:
        async with asyncio.timeout(PATIENCE_S), Pipe("orders", **options) as pipe:
            as_caller(pipe, getattr(witness, shape))
            await pipe.send_many(list(range(COUNT)))

    asyncio.run(body())
    assert witness.stays_apart(COUNT)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_so_of_batches(shape: str) -> None:
    """A batch that fails comes again one by one: one call with all, then one for each message."""
    witness = Witness()

    def refuse(messages: list[object]) -> None:
        witness.plain(len(messages))
        if len(messages) > 1:
            raise ValueError("one by one, please")

    async def refuse_later(messages: list[object]) -> None:
        await witness.awaited(len(messages))
        if len(messages) > 1:
            raise ValueError("one by one, please")

    def give(messages: list[object]) -> Awaitable[None]:
        return refuse_later(messages)

    handlers = {"plain": refuse, "awaited": refuse_later, "gives_awaitable": give}
    runtime = StepRuntime(7)
    with Pipe("orders", runtime=runtime, start=False) as pipe:
        as_caller(pipe, handlers[shape], "receive_many")
        pipe.start()
        pipe.send_many([1, 2, 3])
        pipe.flush(PATIENCE_S)
    assert witness.stays_apart(4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["receive", "receive_many"])
def test_it_is_so_inside_a_transaction_of_a_stream(shape: str, how: str) -> None:
    """A handler with a transaction; a batch comes for each message that is sent alone."""
    store, witness = MemoryStore(), Witness()
    with (
        StreamSender("orders", store=store) as sender,
        StreamReceiver("orders", STREAM, store=store, boundary="committed") as receiver,
    ):
        calls = getattr(witness, shape)
        as_caller(receiver, functools.partial(calls), how)
        for number in range(2):
            sender.send(number)
            sender.flush(PATIENCE_S)
            assert receiver.catch_up(PATIENCE_S)
    assert witness.stays_apart(2)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_so_at_both_ends_of_a_channel(shape: str) -> None:
    """The handler of an end that a listener made has what ``accept`` had set."""
    route, witness = LocalRoute(), Witness()

    def accept(channel: ChannelFace) -> None:
        as_caller(channel, getattr(witness, shape))

    with Listener(route, names="rpc", accept=accept), Channel("rpc", route=route) as channel:
        channel.send_many(list(range(COUNT)))
        channel.flush(PATIENCE_S)
    assert witness.stays_apart(COUNT)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_each_accept_has_what_was_set_where_the_listener_was_made(*, is_awaited: bool) -> None:
    """Two channels: what is set for one is there for its handler, and not for the other."""
    route, found, handled = LocalRoute(), list[str](), list[str]()

    def accept(channel: ChannelFace) -> None:
        found.append(WHO.get())
        WHO.set(channel.name)
        channel.receive(lambda _: handled.append(WHO.get()))

    async def accept_later(channel: ChannelFace) -> None:
        accept(channel)

    token = WHO.set("maker")
    listener = Listener(route, names=["one", "two"], accept=accept_later if is_awaited else accept)
    WHO.reset(token)
    with listener:
        for name in ("one", "two"):
            with Channel(name, route=route) as channel:
                channel.send(1, until="confirmed", timeout=PATIENCE_S)
    assert found == ["maker", "maker"]
    assert handled == ["one", "two"]


def test_a_coroutine_handler_is_cancelled_in_its_own_context() -> None:
    """What a handler does when it is cancelled still has what it had set."""
    seen: list[str] = []

    async def body() -> None:
        begun = asyncio.Event()

        async def stand(message: object) -> None:
            WHO.set(f"of {message}")
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                seen.append(WHO.get())

        async with asyncio.timeout(PATIENCE_S), Pipe("orders") as pipe:
            pipe.receive(stand)
            await pipe.send(1)
            await begun.wait()
            raise RuntimeError("out of here")

    with pytest.raises(RuntimeError, match="out of here"):
        asyncio.run(body())
    assert seen == ["of 1"]
