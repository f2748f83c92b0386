"""Each shape of callable in every place that takes one: it is run, its message fails, or it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
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
)
from surepipe.actors import StepRuntime
from surepipe.storage import SqliteStore

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
