from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pydantic import BaseModel

from surepipe import NotConfirmed, PipeSender, StreamSender
from surepipe.actors import DeadLetters, LocalRoute, Pipe, StepRuntime
from surepipe.actors.codecs import CodecChoice
from surepipe.core.effects import Letter
from surepipe.storage import DeadLetterStream, SqliteStore
from surepipe.storage.letters import decode, encode

LETTER = Letter("orders", 0, 7, 3, b"secret", 3, 10, 20, "ValueError", "no")


def test_a_letter_stored_twice_is_one_letter() -> None:
    """The machine asks again when it doesn't know the outcome (pipes D-2)."""
    letters = DeadLetters()
    letters(LETTER)
    letters(LETTER)
    letters(replace(LETTER, seq=4))
    assert [letter.seq for letter in letters] == [3, 4]
    assert len(letters) == 2


def test_messages_of_several_producers_with_one_number_have_a_letter_each() -> None:
    """What was forwarded into a stream under names of its own is all number 1 of epoch 1 (pipes D-3)."""
    letters = DeadLetters()
    for producer in ("out/1", "out/2", "out/1"):
        letters(replace(LETTER, epoch=1, seq=1, producer=producer))
    assert [letter.producer for letter in letters] == ["out/1", "out/2"]


def test_a_full_list_refuses_and_loses_nothing() -> None:
    """The message stays with its pipe until there is room (pipes D-4)."""
    letters = DeadLetters(letters_max=1)
    letters(LETTER)
    with pytest.raises(OverflowError, match="1 dead letters"):
        letters(replace(LETTER, seq=4))
    assert letters.take() == LETTER
    letters(replace(LETTER, seq=4))
    letters.clear()
    assert letters.take() is None


def test_what_is_shown_names_the_message_and_not_its_payload() -> None:
    """One line for each letter."""
    letters = DeadLetters()
    letters(LETTER)
    assert letters.show() == "orders epoch 7 seq 3: 3 attempts, ValueError: no"


@pytest.mark.parametrize("steps", [None, StepRuntime()], ids=["threads", "virtual-time"])
def test_a_letter_says_where_its_handler_raised_but_in_virtual_time(
    steps: StepRuntime | None,
) -> None:
    """What stands in a traceback depends on the machine, and a simulation says the same on each. It is shown by
    nobody who prints a letter."""
    letters = list[Letter]()
    raised = RuntimeError("no price")

    def price(order: object) -> None:
        del order
        raise raised

    with Pipe("orders", runtime=steps, retries=1, dead_letter=letters.append) as pipe:
        pipe.receive(price)
        pipe.send(7)
        pipe.flush(10)
    (letter,) = letters
    assert letter.error_text == "no price"
    assert ("in price\n" in letter.traceback) is (steps is None)
    assert "in price" not in repr(letter)
    assert decode(encode(letter)) == letter
    assert (b"traceback" in encode(letter)) is (steps is None)


def priced(order: object) -> None:
    """A handler whose own call has failed."""
    try:
        json.loads(str(order))
    except ValueError as error:
        raise LookupError("no price") from error


async def priced_on_a_loop(order: object) -> None:
    """The same, awaited."""
    priced(order)


@pytest.mark.parametrize("handler", [priced, priced_on_a_loop])
def test_the_traceback_of_a_letter_begins_in_the_handler(
    handler: Callable[[object], object],
) -> None:
    """What called it says nothing of the error; what it called does."""
    letters = list[Letter]()
    with Pipe("orders", retries=1, dead_letter=letters.append) as pipe:
        pipe.receive(handler)
        pipe.send("seven")
        pipe.flush(10)
    cause, _, last = letters[0].traceback.partition("\nThe above exception")
    begin = 'Traceback (most recent call last):\n  File "' + __file__
    assert cause.startswith(begin)
    assert "json/decoder.py" in cause
    assert begin in last
    assert "surepipe/actors" not in cause + last


def test_an_error_that_never_was_in_the_users_code_is_shown_whole() -> None:
    """A function of a library as the handler: what there is, is all that there is to see."""
    letters = list[Letter]()
    with Pipe("orders", retries=1, dead_letter=letters.append) as pipe:
        pipe.receive(cast("Callable[[object], object]", json.loads))
        pipe.send("seven")
        pipe.flush(10)
    assert "surepipe/actors" in letters[0].traceback
    assert "json/decoder.py" in letters[0].traceback


class Order(BaseModel):
    item: str


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ("auto", {"item": "tea"}),
        ("auto", b"\x1etea"),
        ("json", [1, None]),
        ("bytes", b"tea"),
        (Order, Order(item="tea")),
    ],
)
def test_a_pipe_reads_the_message_out_of_its_letter(
    tmp_path: Path, codec: CodecChoice, message: object
) -> None:
    """As its handler got it, also after it was replayed, which its bytes say. Bytes alone tell nobody."""

    def refuse(got: object) -> None:
        assert got == message
        raise ValueError("no")

    with (
        SqliteStore(tmp_path / "letters.db") as store,
        Pipe("orders", codec=codec, retries=1, dead_letter=store) as pipe,
    ):
        pipe.receive(refuse)
        pipe.send(message)
        pipe.flush(10)
        letters = pipe.dead_letters
        assert isinstance(letters, DeadLetterStream)
        pipe.replay(letters)
        pipe.flush(10)
        assert [pipe.message_of(stored.letter) for stored in letters.all()] == [message, message]


def test_whoever_replays_letters_reads_them(tmp_path: Path) -> None:
    """The sending ends, whose pipe has its handler elsewhere; an async face says where to ask."""
    with SqliteStore(tmp_path / "letters.db") as store:
        for sender in (
            StreamSender("orders", store=store, codec="json"),
            PipeSender("orders", route=LocalRoute(), codec="json"),
        ):
            assert sender.message_of(replace(LETTER, payload=b'{"n": 1}')) == {"n": 1}
            with pytest.raises(ValueError, match="the letter holds no message of pipe orders"):
                sender.message_of(replace(LETTER, payload=b"{"))
            sender.abort()


async def _asks_where_it_is_told(store: SqliteStore) -> None:
    async with StreamSender("orders", store=store, codec="json") as sender:
        with pytest.raises(AttributeError, match=r"ask \.sync\.message_of"):
            sender.message_of  # type: ignore[attr-defined]  # noqa: B018
        assert sender.sync.message_of(replace(LETTER, payload=b"5")) == 5


def test_an_async_sender_says_where_a_letter_is_read(tmp_path: Path) -> None:
    """Beside what it waits for."""
    with SqliteStore(tmp_path / "letters.db") as store:
        asyncio.run(_asks_where_it_is_told(store))


def test_what_no_handler_could_get_is_no_message() -> None:
    """Its letter has the bytes all the same."""
    with (
        Pipe("orders", codec=Order, runtime=StepRuntime()) as pipe,
        pytest.raises(ValueError, match="the letter holds no message of pipe orders"),
    ):
        pipe.message_of(LETTER)


def test_a_place_of_dead_letters_that_raises_is_told_once_and_named_by_who_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With its own words: that the handler raised is no reason any more, as its last attempt is over."""
    letters = DeadLetters(letters_max=1)

    def refuse(message: object) -> None:
        raise RuntimeError(str(message))

    with Pipe("orders", runtime=StepRuntime(), retries=1, dead_letter=letters) as pipe:
        pipe.receive(refuse)
        pipe.send_many([1, 2])
        why = "of dead letters raised OverflowError: 1 dead letters are stored and none was taken"
        with pytest.raises(NotConfirmed, match=why):
            pipe.flush(30)
        letters.clear()
        pipe.flush(30)
        assert len(letters) == 1
    assert [why in record.message for record in caplog.records].count(True) == 1
