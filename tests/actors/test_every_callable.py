"""Each shape of callable in every place that takes one: it is run, its message fails, or it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from surepipe import (
    Channel,
    ConfigurationError,
    Listener,
    LocalRoute,
    MisuseError,
    NotConfirmed,
    Pipe,
    ServedBook,
)
from surepipe.actors import StepRuntime
from surepipe.actors.clusters.worker import checked_function
from surepipe.queues.ibc.module import MessageType
from surepipe.storage import MemoryStore, SqliteStore

Function = Callable[..., Any]
Place = Callable[[Function, Path], None]
WITHIN_S = 2.0
ran: list[object] = []


class _Exit(BaseException):
    pass


async def later(*given: object) -> None:
    """A call of it runs nothing."""
    ran.append(given)
    await asyncio.sleep(0)


def yields(*given: object) -> Generator[object]:
    """Nor does a call of this."""
    ran.append(given)
    yield given


async def yields_later(*given: object) -> AsyncGenerator[object]:
    """Nor of this."""
    ran.append(given)
    yield given


class Later:
    """Its calls are coroutines."""

    async def __call__(self, *given: object) -> None:
        ran.append(given)

    def method(self, *given: object) -> Coroutine[object, object, None]:
        """A plain method that gives one."""
        return later(*given)


class Yielding:
    """Its calls are generators."""

    def __call__(self, *given: object) -> Generator[object]:
        ran.append(given)
        yield given


def _raising(error: BaseException) -> Function:
    def fail(*given: object) -> None:
        del given
        raise error

    return fail


RUN: dict[str, Function] = {
    "coroutine": later,
    "partial": partial(later),
    "object": Later(),
    "method": Later().method,
    "lambda": lambda *given: later(*given),  # noqa: PLW0108 - the call is what gives the coroutine
}
NOT_RUN: dict[str, Function] = {
    "generator": yields,
    "async generator": yields_later,
    "partial of a generator": partial(yields),
    "object that yields": Yielding(),
    "lambda of a generator": lambda *given: yields(*given),  # noqa: PLW0108
    "lambda of an async generator": lambda *given: yields_later(*given),  # noqa: PLW0108
    "BaseException": _raising(_Exit()),
    "KeyboardInterrupt": _raising(KeyboardInterrupt()),
    "SystemExit": _raising(SystemExit(3)),
}


def _one(pipe: Pipe, take: Callable[[Pipe], object]) -> None:
    try:
        take(pipe)
        pipe.send(1)
        pipe.flush(WITHIN_S)
    finally:
        pipe.abort()


def _quiet(notice: object) -> None:
    del notice


def _receive(function: Function, folder: Path) -> None:
    del folder
    pipe = Pipe("p", runtime=StepRuntime(1), notices=_quiet, retry_max_s=0.2)
    _one(pipe, lambda pipe: pipe.receive(function))


def _receive_many(function: Function, folder: Path) -> None:
    del folder
    pipe = Pipe("p", runtime=StepRuntime(1), notices=_quiet, retry_max_s=0.2)
    _one(pipe, lambda pipe: pipe.receive_many(function))


def _lanes(function: Function, folder: Path) -> None:
    del folder
    pipe = Pipe("p", runtime=StepRuntime(1), notices=_quiet, retry_max_s=0.2, key=str, lanes=2)
    _one(pipe, lambda pipe: pipe.receive(function))


def _committed(function: Function, folder: Path) -> None:
    with SqliteStore(folder / "s.db") as store:
        pipe = Pipe(
            "p",
            state=store,
            boundary="committed",
            runtime=StepRuntime(1),
            notices=_quiet,
            retry_max_s=0.2,
        )
        _one(pipe, lambda pipe: pipe.receive(function))


def _channel(function: Function, folder: Path) -> None:
    del folder
    runtime, route = StepRuntime(1), LocalRoute()
    listener = Listener(
        route,
        names=["t"],
        accept=lambda channel: channel.receive(function),
        runtime=runtime,
        notices=_quiet,
    )
    channel = Channel("t", route=route, runtime=runtime, notices=_quiet)
    try:
        channel.send(1)
        channel.flush(WITHIN_S)
    finally:
        channel.abort()
        listener.close(0.1)


def _key(function: Function, folder: Path) -> None:
    del folder
    pipe = Pipe("p", runtime=StepRuntime(1), notices=_quiet, retry_max_s=0.2, key=function, lanes=2)
    _one(pipe, lambda pipe: pipe.receive(_quiet))


HANDLERS: dict[str, Place] = {
    "receive": _receive,
    "receive_many": _receive_many,
    "lanes": _lanes,
    "committed": _committed,
    "channel": _channel,
}


@pytest.mark.parametrize("place", HANDLERS)
def test_what_can_be_awaited_is_run_wherever_a_handler_is_taken(place: str, tmp_path: Path) -> None:
    """Its message counts as settled, and its body has run once."""
    for number, (shape, function) in enumerate(RUN.items()):
        ran.clear()
        folder = tmp_path / str(number)
        folder.mkdir()
        HANDLERS[place](function, folder)
        assert len(ran) == 1, shape


@pytest.mark.parametrize("place", HANDLERS)
@pytest.mark.filterwarnings("ignore:coroutine method 'aclose'")
def test_what_nobody_would_run_settles_no_message_anywhere(place: str, tmp_path: Path) -> None:
    """Refused when it is given, or its message is not confirmed."""
    for number, (shape, function) in enumerate(NOT_RUN.items()):
        ran.clear()
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises((MisuseError, ConfigurationError, NotConfirmed)):
            HANDLERS[place](function, folder)
        assert not ran, shape


@pytest.mark.parametrize("shape", ["coroutine", "partial", "object"])
def test_a_key_that_somebody_would_have_to_await_is_refused(shape: str, tmp_path: Path) -> None:
    """It is asked for each message, in the actor of the receiver."""
    with pytest.raises(ConfigurationError, match="the key of pipe p is a coroutine function"):
        _key(RUN[shape], tmp_path)


@pytest.mark.parametrize("shape", NOT_RUN)
def test_a_key_that_gives_nothing_of_use_settles_no_message(shape: str, tmp_path: Path) -> None:
    """Whatever it gives or raises."""
    with pytest.raises((MisuseError, ConfigurationError, NotConfirmed)):
        _key(NOT_RUN[shape], tmp_path)


def _two(one: object, two: object) -> None:
    """Takes more than a message."""
    del one, two


def _nothing() -> None:
    """Takes no message."""


def _named(message: object, *, currency: str) -> None:
    """Nobody gives it the last one."""
    del message, currency


def _pipe(**options: Function) -> Place:
    """A pipe with options that are made of the function."""

    def make(function: Function, folder: Path) -> None:
        del folder
        given: dict[str, Any] = {name: option(function) for name, option in options.items()}
        Pipe("p", runtime=StepRuntime(1), **given).abort()

    return make


def _channel_of(receive: Callable[[Channel, Function], object]) -> Place:
    def make(function: Function, folder: Path) -> None:
        del folder
        channel = Channel("t", route=LocalRoute(), runtime=StepRuntime(1))
        try:
            receive(channel, function)
        finally:
            channel.abort()

    return make


def _listener(function: Function, folder: Path) -> None:
    del folder
    Listener(LocalRoute(), names="t", accept=function, runtime=StepRuntime(1)).close(0.1)


def _book(function: Function, folder: Path) -> None:
    del folder
    ServedBook("b", store=MemoryStore(), processor=function, start=False).abort()


def _cost(function: Function, folder: Path) -> None:
    del folder
    ServedBook("b", store=MemoryStore(), processor=_two, cost=function, start=False).abort()


def _node(function: Function, folder: Path) -> None:
    del folder
    checked_function(function)


def _type_of(callback: str) -> Place:
    def make(function: Function, folder: Path) -> None:
        del folder
        given: dict[str, Any] = {callback: function}
        MessageType("t", "m", **given)

    return make


def _same(function: Function) -> Function:
    return function


def _encoding(function: Function) -> SimpleNamespace:
    return SimpleNamespace(encode=function, decode=_same)


def _decoding(function: Function) -> SimpleNamespace:
    return SimpleNamespace(encode=_same, decode=function)


PLACES: dict[str, tuple[Place, Function]] = {
    "receive": (_receive, _two),
    "receive_many": (_receive_many, _two),
    "committed": (_committed, _nothing),
    "channel": (_channel_of(lambda channel, handle: channel.receive(handle)), _nothing),
    "channel_many": (_channel_of(lambda channel, handle: channel.receive_many(handle)), _two),
    "accept": (_listener, _two),
    "key": (_pipe(key=_same), _two),
    "notices": (_pipe(notices=_same), _two),
    "dead letters": (_pipe(dead_letter=_same), _two),
    "encode": (_pipe(codec=_encoding), _two),
    "decode": (_pipe(codec=_decoding), _two),
    "book": (_book, _same),
    "cost of a book": (_cost, _two),
    "replicated queue": (_node, _same),
    "on_receive": (_type_of("on_receive"), _same),
    "on_commit": (_type_of("on_commit"), _two),
    "on_rollback": (_type_of("on_rollback"), _two),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_takes_other_arguments_is_refused_when_it_is_given(place: str, tmp_path: Path) -> None:
    """It would fail at every message; so would one that wants a keyword, which nobody gives."""
    take, other = PLACES[place]
    for function in (other, _named):
        with pytest.raises((MisuseError, ConfigurationError), match="argument"):
            take(function, tmp_path)
