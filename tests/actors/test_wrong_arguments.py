"""Arguments that can't be meant are refused before anything happens, by every face in the same way."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from surepipe import (
    AsyncChannel,
    AsyncPipe,
    Channel,
    ConfigurationError,
    Listener,
    LocalRoute,
    MisuseError,
    NotConfirmed,
    Pipe,
    PipeReceiver,
    PipeSender,
    ServedBook,
    StreamReceiver,
    StreamSender,
)
from surepipe.actors.async_face import AsyncFace
from surepipe.actors.books import AsyncBook
from surepipe.actors.ends.face import Named
from surepipe.actors.ends.remote import AsyncReceiver, AsyncSender, AsyncStreamReceiver
from surepipe.storage import DeadLetterStream, MemoryStore
from tests.actors.kit import PATIENCE_S
from tests.actors.stored_kit import STREAM

NO_SECONDS: list[object] = ["3", float("nan"), float("inf"), True, [], 10**12]
WAITS = ("timeout", "wait_s")
"""The names of arguments that are times to wait."""
NEEDED: dict[str, object] = {
    "message": 1,
    "messages": [1],
    "letters": DeadLetterStream(MemoryStore(), "shop/dead"),
    "origin": "A",
    "payload": b"one",
    "payloads": [b"one"],
}


def listener(name: Any, **options: Any) -> Listener:
    """Made of names, as the others of a name."""
    return Listener(names=name, accept=print, **options)


def new(kind: str, name: Any = "p", **options: Any) -> Any:
    """A face of this kind."""
    make, needed = MADE_OF[kind]()
    return make(name, **needed | options)


MADE_OF: dict[str, Callable[[], tuple[Callable[..., Any], dict[str, Any]]]] = {
    "Pipe": lambda: (Pipe, {}),
    "PipeSender": lambda: (PipeSender, {"route": LocalRoute()}),
    "PipeReceiver": lambda: (PipeReceiver, {"route": LocalRoute()}),
    "StreamSender": lambda: (StreamSender, {"store": MemoryStore()}),
    "StreamReceiver": lambda: (StreamReceiver, {"layers": STREAM, "store": MemoryStore()}),
    "Channel": lambda: (Channel, {"route": LocalRoute()}),
    "Listener": lambda: (listener, {"route": LocalRoute()}),
    "ServedBook": lambda: (ServedBook, {"store": MemoryStore(), "processor": print}),
}
ASYNC: dict[str, type[AsyncFace[Any]]] = {
    "Pipe": AsyncPipe,
    "PipeSender": AsyncSender,
    "PipeReceiver": AsyncReceiver,
    "StreamSender": AsyncSender,
    "StreamReceiver": AsyncStreamReceiver,
    "Channel": AsyncChannel,
    "ServedBook": AsyncBook,
}


def waiting_calls(face: object) -> Iterator[tuple[str, Callable[..., Any], str, bool]]:
    """Each public method with a time to wait, under its name, with the argument's and whether None is one."""
    for name, method in inspect.getmembers(face, inspect.ismethod):
        parameters = inspect.signature(method).parameters
        for wait in () if name.startswith("_") else parameters.keys() & set(WAITS):
            given: dict[str, Any] = {one: NEEDED[one] for one in parameters if one in NEEDED}
            if name == "enqueue_batch":
                given["messages"] = [("A", b"one")]
            takes_none = parameters[wait].default is None
            yield name, partial(_call, partial(method, **given), wait), wait, takes_none


def _call(method: Callable[..., Any], wait: str, value: object) -> Any:
    return method(**{wait: value})


@contextmanager
def made(kind: str) -> Generator[Any]:
    """A face that is ended at once."""
    with ExitStack() as stack:
        face = new(kind)
        stack.callback(face.abort if isinstance(face, Named) else face.close)
        yield face


def refused(error: MisuseError, wait: str, value: object) -> bool:
    """The error names the argument, what it was, and what to give."""
    return f"{wait} is {value!r}; give a number of seconds" in str(error)


@pytest.mark.parametrize("kind", MADE_OF)
def test_what_is_no_time_to_wait_is_refused_by_every_method(kind: str) -> None:
    """Each method that has one, with each value; nothing was closed or sent by that."""
    with made(kind) as face:
        calls = list(waiting_calls(face))
        assert "close" in [name for name, *_ in calls]
        for name, call, wait, takes_none in calls:
            for value in NO_SECONDS if takes_none else [*NO_SECONDS, None]:
                if wait == "wait_s" and not value:
                    continue  # 0 by another name
                with pytest.raises(MisuseError) as refusal:
                    call(value)
                assert refused(refusal.value, wait, value), (name, value, str(refusal.value))
        if isinstance(face, Pipe):
            assert face.counters().get("accepted", 0) == 0
            face.send(1, timeout=PATIENCE_S)


@pytest.mark.parametrize("kind", ASYNC)
def test_the_async_faces_refuse_the_same(kind: str) -> None:
    """By the same sentence, when the call is awaited."""

    async def body(face: Any) -> None:
        for name, call, wait, takes_none in waiting_calls(ASYNC[kind](face)):
            for value in NO_SECONDS if takes_none else [*NO_SECONDS, None]:
                if wait == "wait_s" and not value:
                    continue
                with pytest.raises(MisuseError) as refusal:
                    await call(value)
                assert refused(refusal.value, wait, value), (name, value, str(refusal.value))

    with made(kind) as face:
        asyncio.run(body(face))


def test_until_is_one_of_two_words() -> None:
    """A list is no word, and not hashable either."""
    with made("Pipe") as pipe:
        for until in ("bogus", None, ["accepted"]):
            for send in (pipe.send, pipe.send_many):
                with pytest.raises(MisuseError, match="write 'accepted' or 'confirmed'"):
                    send([1], until=until)


@pytest.mark.parametrize("kind", sorted(MADE_OF.keys() - {"ServedBook"}))
@pytest.mark.parametrize("name", ["", 5, None, b"p"])
def test_a_name_is_text(kind: str, name: object) -> None:
    """Before a route is asked for the frames of that name."""
    with pytest.raises(ConfigurationError, match=r" needs (a name.* is none$|names)"):
        new(kind, name)


@pytest.mark.parametrize("names", [5, None, [], [5], {"a": 1, 5: 2}])
def test_a_listener_is_given_names(names: Any) -> None:
    """What is no iterable, too."""
    with pytest.raises(ConfigurationError, match="a listener needs names"):
        Listener(LocalRoute(), names=names, accept=print)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"letters": 5}, "letters is 5; give a DeadLetterStream"),
        ({"reader": 5}, "reader is 5; give a name"),
        ({"letters_max": "3"}, "letters_max is '3'; give a whole number from 0"),
        ({"index": 1.5}, "index is 1.5; give the index of a letter"),
    ],
)
def test_a_replay_says_what_it_takes(given: dict[str, Any], message: str) -> None:
    """Each argument."""
    with made("Pipe") as pipe, pytest.raises(MisuseError) as refusal:
        pipe.replay(**{"letters": NEEDED["letters"]} | given)
    assert message in str(refusal.value)


@pytest.mark.parametrize("kind", sorted(ASYNC.keys() - {"StreamSender"}))
def test_an_async_face_is_made_of_what_it_is_the_face_of(kind: str) -> None:
    """Of a name, with options as for the pipe itself, or of a face, it says what to write."""

    async def body(mine: Any) -> None:
        face: Any = ASYNC[kind]
        for given, options in (
            ((5,), {}),
            (("orders",), {"route": 3}),
            ((mine, "reliable"), {}),
            ((mine,), {"route": 3}),
            ((face(mine),), {}),
        ):
            with pytest.raises(
                MisuseError, match=rf"{face.__name__} got .* write async with {kind}"
            ):
                face(*given, **options)

    with made(kind) as mine:
        asyncio.run(body(mine))


def test_a_face_of_another_kind_is_refused() -> None:
    """A receiver is no pipe."""

    async def body(receiver: Any) -> None:
        with pytest.raises(
            MisuseError, match=r"AsyncPipe got .*takes one Pipe that is there already"
        ):
            AsyncPipe(receiver)

    with made("PipeReceiver") as receiver:
        asyncio.run(body(receiver))


@pytest.mark.parametrize(
    ("kind", "option", "message"),
    [
        ("PipeSender", "retries", "it is an option of Pipe, PipeReceiver"),
        ("StreamSender", "route", "it is an option of Pipe, PipeSender, PipeReceiver"),
        ("PipeSender", "window", "it is an option of a layer"),
        ("PipeSender", "jurnal", "did you mean 'journal'?"),
    ],
)
def test_an_option_of_another_end_is_told_as_that(kind: str, option: str, message: str) -> None:
    """Not by a word that looks like it."""
    with pytest.raises(TypeError) as refusal:
        new(kind, **{option: 3})
    assert message in str(refusal.value)


def test_a_time_that_is_too_long_is_told_how_long_one_may_be() -> None:
    """Three hundred centuries; who means for ever writes None."""
    pipe = Pipe("p")
    with pytest.raises(
        MisuseError, match=r"timeout is 1000000000000; .* up to 1,000,000,000, or None to wait for"
    ):
        pipe.flush(10**12)
    with pytest.raises(MisuseError, match=r"timeout is 1000000000000; .* from 0 to 1,000,000,000"):
        pipe.close(10**12)
    pipe.close()


def test_what_is_left_of_a_deadline_that_has_passed_waits_for_nothing() -> None:
    """``deadline - now`` is negative at the worst of times: then what is said is what was not done in time."""
    late = -0.5
    pipe = Pipe("p")
    pipe.send("a")  # which nobody takes
    with pytest.raises(NotConfirmed):
        pipe.flush(late)
    with pytest.raises(NotConfirmed):
        pipe.send("b", until="confirmed", timeout=late)
    with pytest.raises(MisuseError, match=r"timeout is -0.5; give a number of seconds from 0"):
        pipe.close(late)  # which would give up what is left
    with pytest.raises(NotConfirmed):
        pipe.close(0)
