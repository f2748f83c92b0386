"""What can't be meant is refused when a pipe is made: one error that names the value and the fix, no thread."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

from surepipe import (
    Channel,
    ConfigurationError,
    FaultyRoute,
    Listener,
    LocalRoute,
    MisuseError,
    Pipe,
    Reliable,
    ServedBook,
    StreamReceiver,
)
from surepipe.actors import StepRuntime
from surepipe.queues.book import BookQueue
from surepipe.storage import MemoryStore

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "a pipe needs a name, its ends and its traces are found by it; '' is none"),
    ({"name": 5}, "a pipe needs a name, its ends and its traces are found by it; 5 is none"),
    (
        {"name": "a\nb"},
        "a pipe needs a name, its ends and its traces are found by it; 'a\\nb' is none",
    ),
    (
        {"route": "lossy"},
        "pipe p: route is 'lossy': give a route, such as LocalRoute() or FaultyRoute(...)",
    ),
    (
        {"journal": "shop.db"},
        "pipe p: journal is 'shop.db': give an open store, such as SqliteStore('shop.db')",
    ),
    (
        {"state": 5},
        "pipe p: state is 5: give an open store, such as SqliteStore('shop.db')",
    ),
    (
        {"dead_letter": 7},
        "pipe p: dead_letter is 7: give DeadLetters(), a store, or a function that takes a letter",
    ),
    ({"retries": "5", "dead_letter": print}, "retries is '5': it must be a whole number from 1"),
    ({"retries": "5"}, "retries is '5': it must be a whole number from 1"),
    ({"retry_min_s": "1"}, "retry_min_s is '1': it must be a number of seconds above 0"),
    ({"retry_max_s": "1"}, "retry_max_s is '1': it must be a number of seconds above 0"),
    ({"lanes": "3"}, "pipe p: lanes is '3': it must be a whole number from 1 to 256"),
    ({"seed": "7"}, "Pipe: seed is '7'; give a whole number"),
    ({"retries": 0, "dead_letter": print}, "retries is 0: it must be a whole number from 1"),
    ({"retries": True, "dead_letter": print}, "retries is True: it must be a whole number from 1"),
    ({"retry_min_s": -1.0}, "retry_min_s is -1.0: it must be a number of seconds above 0"),
    ({"retry_min_s": 60.0}, "retry_min_s (60.0) is above retry_max_s (30.0); raise retry_max_s"),
    ({"layers": []}, "layers is empty: a pipe needs one at least, such as 'reliable'"),
    ({"layers": 3}, "layers is 3: give a list of layers, such as ['reliable']"),
    ({"layers": [Reliable]}, "layer 0 is a class: write Reliable()"),
    ({"frames_max": "x"}, "Pipe: frames_max is 'x'; give a whole number from 1"),
    ({"restarts": 3}, "Pipe: restarts is 3; give RestartPolicy(...)"),
    ({"runtime": 3}, "Pipe: runtime is 3; give one, as StepRuntime(7)"),
    ({"trace": "rows.jsonl"}, "Pipe: trace is 'rows.jsonl'; give one, as TraceRecorder(path)"),
    ({"notices": None}, "Pipe: notices is None; give a function that is called with (notice)"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_pipe_that_can_not_be_meant_is_refused(wrong: dict[str, Any], message: str) -> None:
    """The message is pinned; nothing was started."""
    arguments: dict[str, Any] = {"name": "p"} | wrong
    before = threading.enumerate()
    with pytest.raises(ConfigurationError) as refusal:
        Pipe(**arguments)
    assert str(refusal.value) == message
    assert threading.enumerate() == before


def test_a_reader_of_a_stream_without_layers_is_told_what_to_write() -> None:
    """There is no default: where it starts is for its owner to say."""
    with pytest.raises(ConfigurationError, match="pipe o: a StreamReceiver needs layers"):
        StreamReceiver("o", store=MemoryStore())


CHANNEL: list[tuple[dict[str, Any], str]] = [
    ({"boundary": "procesed"}, "boundary is 'procesed': write one of 'handed', 'before', 'processed', "),
    ({"dead_letter": "x"}, "channel c: dead_letter is 'x'; give a function that is called with (letter)"),
    ({"opening": 3}, "channel c: opening is 3; give ChannelOptions()"),
    ({"route": "tcp://x"}, "channel c: route is 'tcp://x': give a route, such as LocalRoute()"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), CHANNEL)
def test_a_channel_that_can_not_be_meant_is_refused(wrong: dict[str, Any], message: str) -> None:
    """At both of its ends."""
    given: dict[str, Any] = {"route": LocalRoute()} | wrong
    with pytest.raises(ConfigurationError) as refusal:
        Channel("c", **given)
    assert str(refusal.value).startswith(message)
    with pytest.raises(ConfigurationError) as refusal:
        Listener(names="c", accept=print, **given)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("names", [None, [], [3], [""]])
def test_a_listener_of_no_names_is_refused(names: Any) -> None:
    """It would wait for nobody."""
    with pytest.raises(ConfigurationError, match="a listener needs names"):
        Listener(LocalRoute(), names=names, accept=print)


BOOK: list[tuple[dict[str, Any], str]] = [
    ({"store": None}, "the store of book 'b' is None; give an open store, or its address, such as sqlite:///orders.db"),
    ({"config": {"retries": 1}}, "the config of book 'b' is {'retries': 1}; give BookConfig(...)"),
    ({"worker": 5}, "the name of a worker is int 5; give text"),
    ({"time_limit_s": "5"}, "time_limit_s is '5'; give seconds above 0, or None"),
]  # fmt: skip


def _done(message: object, context: object) -> None:
    del message, context


@pytest.mark.parametrize(("wrong", "message"), BOOK)
def test_a_book_that_can_not_be_meant_is_refused(wrong: dict[str, Any], message: str) -> None:
    """Before it has asked its store for anything."""
    given: dict[str, Any] = {"store": MemoryStore(), "processor": _done} | wrong
    with pytest.raises(MisuseError) as refusal:
        ServedBook("b", **given)
    assert str(refusal.value) == message


UNKNOWN: list[tuple[type, str, str]] = [
    (Pipe, "bundary", "did you mean 'boundary'?"),
    (
        Pipe,
        "backlog",
        "it is an option of a layer, such as layers=[{'reliable': {'backlog': ...}}]",
    ),
    (Pipe, "colour", "known are boundary, codec, dead_letter, frames_max, journal, key, lanes, "),
    (Listener, "retrys", "did you mean 'retries'?"),
    (ServedBook, "wokers", "did you mean 'workers'?"),
]


@pytest.mark.parametrize(("face", "word", "message"), UNKNOWN)
def test_a_name_that_there_is_not_is_answered_with_the_one_that_was_meant(
    face: type, word: str, message: str
) -> None:
    """Or with where it belongs, or with all that there are."""
    of_listener = {"names": "c", "accept": print, "route": LocalRoute()}
    needed: dict[str, Any] = of_listener if face is Listener else {"name": "b"}
    with pytest.raises(TypeError) as refusal:
        cast("Callable[..., object]", face)(**needed, **{word: 3})
    what = f"{face.__name__} got an unexpected keyword argument {word!r}: "
    assert str(refusal.value).startswith(what + message)


async def _later() -> AsyncGenerator[bytes]:
    yield b"1"


ONE_OR_NONE: list[tuple[Callable[[], object], str]] = [
    (lambda: b"1", "got one bytes: use .* for it, or put it in a list"),
    (lambda: {"a": 1}, "got one dict: use .* for it"),
    (_later, "got async_generator, which only async for goes through"),
    (lambda: None, "got NoneType: give a list of messages, or another iterable"),
]


@pytest.mark.parametrize(("make", "message"), ONE_OR_NONE)
def test_what_is_not_several_messages_is_refused(make: Callable[[], Any], message: str) -> None:
    """By all that take several; nothing was accepted."""
    with (
        Pipe("p", runtime=StepRuntime(1)) as pipe,
        ServedBook("b", store=MemoryStore(), processor=_done, start=False) as book,
    ):
        takers: list[Callable[..., object]] = [
            pipe.send_many,
            partial(book.enqueue_many, "A"),
            book.enqueue_batch,
        ]
        for send in takers:
            with pytest.raises(MisuseError, match=message):
                send(make())
        assert pipe.counters()["accepted"] == book.totals()["enqueued"] == 0


def test_a_book_takes_what_a_loop_gives_and_batches_of_pairs() -> None:
    """A generator is as good as a list; what is no pair is named."""
    with BookQueue.inline("b", store=MemoryStore(), processor=_done) as book:
        book.enqueue_many("A", (b"%d" % number for number in range(3)))
        batch: Any
        for batch in ([b"x"], [("A", b"x", 3)], [(["A"], b"x")]):
            with pytest.raises(MisuseError, match="pairs of an origin and a payload"):
                book.enqueue_batch(batch)
        with pytest.raises(MisuseError, match="refused is 'no'; write 'raise' or 'return'"):
            book.enqueue("A", b"x", refused=cast("Any", "no"))
        assert book.totals()["enqueued"] == 3


def test_a_guarantee_prints_as_what_it_promises() -> None:
    """One line; ``explain`` gives the reasons."""
    route = FaultyRoute(LocalRoute(), loss=0.1)
    with Pipe("orders", route=route) as pipe:
        assert str(pipe.guarantee).startswith("orders: exactly-once, absolute; tolerates network, ")


def test_send_many_of_an_iterator_says_what_was_accepted_before_it_stopped(
    steps: StepRuntime,
) -> None:
    """By a bad message, by a full pipe, and by the iterator itself: whoever sends again must know."""

    def until_broken(count: int) -> Iterator[int]:
        yield from range(count)
        raise KeyError("gone")

    seen: list[object] = []
    with Pipe("p", runtime=steps) as pipe:
        pipe.receive(seen.append)
        with pytest.raises(MisuseError) as bad:
            pipe.send_many(iter([*range(5000), {1, 2}]))
        pipe.flush()
        text = str(bad.value)
        assert "nothing of this piece was accepted" in text
        assert f"; {len(seen)} messages of the pieces before it were accepted" in text
        assert 0 < len(seen) < 5000
        seen.clear()
        with pytest.raises(KeyError) as broken:
            pipe.send_many(until_broken(5000))
        pipe.flush()
        assert broken.value.__notes__ == [
            f"send_many had sent {len(seen)} messages by then, which are accepted"
        ]


def test_a_codec_that_gives_no_bytes_is_named(steps: StepRuntime) -> None:
    """At the message, and not by what fails on it further on."""

    class Text:
        def encode(self, message: object) -> str:
            return str(message)

        def decode(self, payload: bytes) -> object:
            return payload

    with (
        Pipe("p", codec=cast("Any", Text()), runtime=steps) as pipe,
        pytest.raises(MisuseError, match="gave a str for a message of type int; nothing was"),
    ):
        pipe.send(1)
