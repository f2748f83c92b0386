"""Functions of the user's beside handlers: what a call of them gives is never dropped, or they are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from surepipe import ConfigurationError, DeadLetters, MisuseError, Pipe
from surepipe.actors import PipeNotice
from surepipe.actors.notices import Notices
from surepipe.actors.runtime import Runtime
from surepipe.audit.trace import Row
from surepipe.core.effects import Letter, Notice, NoticeKind
from tests.actors.kit import PATIENCE_S


async def later(given: object) -> str:
    """A call of it runs nothing."""
    return str(given)


def yields(given: object) -> Generator[object]:
    """Nor does a call of this."""
    yield given


async def yields_later(given: object) -> AsyncGenerator[object]:
    """Nor of this."""
    yield given


class LateCodec:
    """Its encode is no coroutine function, its decode is."""

    def encode(self, message: object) -> bytes:
        return str(message).encode()

    async def decode(self, payload: bytes) -> object:
        return payload


class Promising:
    """Its decode gives a coroutine without being a coroutine function."""

    def encode(self, message: object) -> bytes:
        return str(message).encode()

    def decode(self, payload: bytes) -> object:
        call = later(payload)
        call.close()
        return call


class LateTrace:
    """A sink of rows that would be lost."""

    with_digests = False

    async def write(self, row: Row) -> None:
        del row


def test_what_nobody_would_await_is_refused_when_it_is_given() -> None:
    """A codec, a key, a callback for notices, a trace: no thread is left behind, and it says what to give."""
    refused: list[tuple[str, dict[str, Any]]] = [
        ("decode of the codec is a coroutine function", {"codec": LateCodec()}),
        ("the key of pipe p is a coroutine function", {"key": later, "lanes": 2}),
        ("the key of pipe p is a generator function", {"key": yields, "lanes": 2}),
        ("notices of pipe p is a coroutine function", {"notices": later}),
        ("write of the trace is a coroutine function", {"trace": LateTrace()}),
    ]
    for said, given in refused:
        with pytest.raises(ConfigurationError, match=said):
            Pipe("p", **given)
    for place in (yields, yields_later):
        with pytest.raises(MisuseError, match="generator function"):
            Pipe("p", dead_letter=place)


def test_a_codec_whose_message_nobody_has_run_fails_its_message() -> None:
    """It becomes a letter at once: the handler would take the coroutine for the message."""
    letters, seen = DeadLetters(), list[object]()
    with Pipe("orders", codec=Promising(), dead_letter=letters) as pipe:
        pipe.receive(seen.append)
        pipe.send("a")
        pipe.flush(PATIENCE_S)
    assert seen == []
    assert "decode gave a coroutine" in letters.list()[0].error_text


def test_a_letter_counts_as_stored_when_a_coroutine_has_stored_it(runtime: Runtime) -> None:
    """It fails twice, and is asked again; only then the message is out of the way."""
    stored: list[bytes] = []
    calls: list[int] = []

    async def bury(letter: Letter) -> None:
        await asyncio.sleep(0)
        calls.append(letter.seq)
        if len(calls) < 3:
            raise OSError("no paper")
        stored.append(letter.payload)

    def fail(message: object) -> None:
        raise ValueError(message)

    with Pipe("orders", runtime=runtime, retries=1, dead_letter=bury) as pipe:
        pipe.receive(fail)
        pipe.send(b"a")
        pipe.flush(PATIENCE_S)
    assert (stored, len(calls)) == ([b"a"], 3)


def test_a_callback_for_notices_that_gives_a_coroutine_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It can't be told from a lambda; the pipe goes on."""

    def tell(notice: PipeNotice) -> object:
        return later(notice)

    Notices("orders", "receiver", tell).tell(Notice(NoticeKind.UP, 1, (), ""))
    assert "the notices callback of pipe orders raised" in caplog.text
    assert "whose body nobody would run" in caplog.text
