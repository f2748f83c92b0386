"""The child of a fork: pipes of the parent are refused there, and those that it makes are whole."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from surepipe import (
    AsyncPipe,
    Channel,
    Listener,
    LocalRoute,
    MemoryStore,
    Pipe,
    PipeReceiver,
    PipeSender,
    StreamReceiver,
    StreamSender,
)

HANGING_S = 20
"""A child that is not done by then hangs, and says nothing."""


def said_in_child(act: Callable[[], object]) -> str:
    """What this gives, or raises, in the child of a fork; nothing where it hangs."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGING_S)
        try:
            said = str(act())
        except Exception as error:  # noqa: BLE001 - the parent judges it
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


SENDING: dict[str, Callable[[Any], object]] = {
    "send": lambda end: end.send(1),
    "send with a time": lambda end: end.send(1, timeout=5),
    "send until confirmed": lambda end: end.send(1, until="confirmed"),
    "send_nowait": lambda end: end.send_nowait(1),
    "send_many": lambda end: end.send_many([1, 2]),
    "flush": lambda end: end.flush(),
}
RECEIVING: dict[str, Callable[[Any], object]] = {
    "receive": lambda end: end.receive(print),
    "loop": lambda end: next(iter(end)),
    "wait": lambda end: end.wait(),
}
BOTH = {**SENDING, **RECEIVING}


def refused_there(calls: dict[str, Callable[[Any], object]], end: object, name: str) -> bool:
    """Every one of these calls is, in the child; what stays silent is told by its name."""
    said = {call: said_in_child(lambda use=use: use(end)) for call, use in calls.items()}  # type: ignore[misc]
    told = f"PipeStopped: {name} was made before this process was forked"
    assert {call: text for call, text in said.items() if not text.startswith(told)} == {}
    return True


def test_a_pipe_of_the_parent_is_refused_and_goes_on_there() -> None:
    """What the child sent was accepted, and lay in its memory for ever."""
    got: list[object] = []
    with Pipe("orders") as pipe:
        assert refused_there(BOTH, pipe, "pipe orders")
        pipe.receive(got.append)
        pipe.send("of the parent")
    assert got == ["of the parent"]


def test_the_ends_of_a_pipe_are_refused() -> None:
    """Each by itself."""
    route = LocalRoute()
    with PipeReceiver("p", route=route) as receiver, PipeSender("p", route=route) as sender:
        assert refused_there(SENDING, sender, "pipe p")
        assert refused_there(RECEIVING, receiver, "pipe p")
        receiver.receive(print)


def test_the_ends_of_a_stream_are_refused() -> None:
    """Also where the store would take it."""
    store, layers = MemoryStore(), {"stream": {"start": "earliest"}}
    with (
        StreamSender("s", store=store) as sender,
        StreamReceiver("s", layers, store=store) as receiver,
    ):
        assert refused_there(SENDING, sender, "pipe s")
        assert refused_there(RECEIVING, receiver, "pipe s")


def test_a_channel_is_refused() -> None:
    """Its two directions are one end."""
    route = LocalRoute()
    with (
        Listener(route, names="rpc", accept=lambda one: one.receive(print)),
        Channel("rpc", route=route) as channel,
    ):
        assert channel.wait_up(HANGING_S)
        assert refused_there(BOTH, channel, "channel rpc")


def test_a_pipe_that_is_not_started_is_refused() -> None:
    """Its route is open already."""
    pipe = Pipe("p", start=False)
    assert said_in_child(pipe.start).startswith("PipeStopped: pipe p was made before")
    pipe.start()
    pipe.close()


def test_to_end_a_pipe_of_the_parent_is_no_wait() -> None:
    """By ``close``, by the end of its block, and at the end of the process."""
    with Pipe("p") as pipe:
        pipe.receive(print)
        left = KeyError("the child leaves")
        assert said_in_child(pipe.close) == "None"
        assert said_in_child(lambda: pipe.__exit__(None, None, None)) == "None"
        assert said_in_child(lambda: pipe.__exit__(KeyError, left, None)) == "None"
        assert said_in_child(pipe._at_exit) == "None"  # pyright: ignore[reportPrivateUsage] - as atexit does
        assert said_in_child(pipe.counters).startswith("{")


def test_the_async_face_of_a_pipe_of_the_parent_is_refused() -> None:
    """On a loop of the child."""
    with Pipe("p") as pipe:

        async def send() -> None:
            await AsyncPipe(pipe).send(1)

        async def close() -> None:
            await AsyncPipe(pipe).close()

        told = "PipeStopped: pipe p was made before"
        assert said_in_child(lambda: asyncio.run(send())).startswith(told)
        assert said_in_child(lambda: asyncio.run(close())) == "None"


def test_the_pipes_of_a_child_have_a_clock() -> None:
    """The parent's timer was taken for the child's: a handler that failed was never called again."""
    tries: list[object] = []

    def handle(message: object) -> None:
        tries.append(message)
        if len(tries) < 3:
            raise ValueError("once more")

    def use_one() -> list[object]:
        with Pipe("of the child") as pipe:
            pipe.receive(handle)
            pipe.send(7)
        return tries

    with Pipe("of the parent") as pipe:
        pipe.receive(print)
        assert said_in_child(use_one) == "[7, 7, 7]"


@pytest.mark.parametrize("lock", ["intake", "works"])
def test_a_lock_that_a_thread_of_the_parent_held_is_no_wait(lock: str) -> None:
    """That thread is not in the child, and never lets it go."""
    with Pipe("p") as pipe:
        end = pipe.sender.intake if lock == "intake" else pipe.receiver.works
        with end._lock:  # pyright: ignore[reportPrivateUsage] - a moment inside a call
            assert said_in_child(lambda: pipe.send(1)).startswith("PipeStopped")
            assert said_in_child(lambda: pipe.receive(print)).startswith("PipeStopped")
