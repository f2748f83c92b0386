"""A letter that is replayed and fails again: how often is counted, travels with it, and is shown (pipes D-5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from surepipe import DeadLetters, Pipe
from surepipe.actors.codecs import (
    AutoCodec,
    BytesCodec,
    CodecChoice,
    JsonCodec,
    choose_codec,
    guarded,
    marked,
    unmarked,
)
from surepipe.storage import DeadLetterStream
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import SqliteBench

AnyBench = MemoryBench | SqliteBench | RedisBench


class Order(BaseModel):
    """A typed message."""

    number: int


class Upside:
    """A codec of the user's own, whose payloads may begin with anything."""

    def encode(self, message: object) -> bytes:
        """The bytes from behind."""
        return bytes(message)[::-1] if isinstance(message, bytes) else b""

    def decode(self, payload: bytes) -> object:
        """The bytes from behind."""
        return payload[::-1]


class Refuses:
    """A handler that refuses everything, and notes it."""

    def __init__(self) -> None:
        self.got: list[object] = []

    def __call__(self, message: object) -> None:
        self.got.append(message)
        raise ValueError("never")


LOOKS_REPLAYED = b"\x1e\x127\x1esay"


@pytest.mark.parametrize("journaled", [True, False], ids=["exactly-once", "at-least-once"])
def test_a_letter_that_fails_again_says_how_often_it_was_replayed(
    any_bench: AnyBench, journaled: bool
) -> None:
    """D-5: first letter none, then one, then two; in the list, in what is shown, and as a number."""
    store = any_bench.store
    letters = DeadLetterStream(store, "orders/dead")
    refuses = Refuses()
    with Pipe("orders", retries=1, dead_letter=letters) as pipe:
        pipe.receive(refuses)
        pipe.send({"order": 7})
    journal = store if journaled else None
    # A store in memory is no journal: it would be gone with the process.
    journal = None if isinstance(any_bench, MemoryBench) else journal
    for _ in range(2):
        with Pipe("orders", journal=journal, retries=1, dead_letter=letters) as pipe:
            pipe.receive(refuses)
            assert pipe.replay(letters, letters_max=1).count == 1
    found = list(letters.all())
    assert [stored.replays for stored in found] == [0, 1, 2]
    assert refuses.got == [{"order": 7}] * 3
    assert len({stored.letter.payload for stored in found}) == 1, "payloads are what was sent"
    assert [("replayed" in stored.line()) for stored in found] == [False, True, True]
    assert ", replayed 1 time:" in found[1].line()
    shown = letters.show(3)
    assert shown is not None
    assert ", replayed 2 times:" in shown.text()


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ("auto", LOOKS_REPLAYED),
        ("auto", b""),
        ("auto", {"a": 1}),
        ("json", "text"),
        ("bytes", LOOKS_REPLAYED),
        ("bytes", b"\x1e"),
        (Order, Order(number=5)),
        (Upside(), LOOKS_REPLAYED[::-1]),
    ],
    ids=["auto-mark", "auto-empty", "auto-json", "json", "bytes-mark", "bytes", "model", "own"],
)
def test_whatever_the_codec_a_replayed_message_is_the_one_that_was_sent(
    codec: CodecChoice, message: object
) -> None:
    """D-5: also bytes that look like a replayed letter, to a handler and in batches."""
    store = MemoryBench().store
    letters = DeadLetterStream(store, "orders/dead")
    refuses = Refuses()
    with Pipe("orders", codec=codec, retries=1, dead_letter=letters) as pipe:
        pipe.receive(refuses)
        pipe.send_many([message])
        pipe.flush(10)
        pipe.replay(letters, letters_max=1)
    assert [stored.replays for stored in letters.all()] == [0, 1]
    with Pipe("orders", codec=codec) as pipe:
        batches: list[object] = []
        pipe.receive_many(batches.extend)
        pipe.replay(letters)
    assert [*refuses.got, *batches] == [message] * 3


def test_letters_in_memory_tell_it_too() -> None:
    """D-5: DeadLetters shows the count; the payload has no mark."""
    stored = DeadLetterStream(MemoryBench().store, "orders/dead")
    kept = DeadLetters()
    with Pipe("orders", retries=1, dead_letter=stored) as pipe:
        pipe.receive(Refuses())
        pipe.send(b"x")
    with Pipe("orders", retries=1, dead_letter=kept) as pipe:
        pipe.receive(Refuses())
        pipe.replay(stored)
    (letter,) = kept
    assert (letter.payload, letter.replays) == (b"x", 1)
    assert "replayed 1 time," in kept.show()


def test_a_message_as_long_as_the_bound_is_replayed_without_its_count() -> None:
    """D-5: a mark would make it too long; rather no count than a letter that can't be replayed."""
    layers = {"reliable": {"message_max_bytes": 10}}
    letters = DeadLetterStream(MemoryBench().store, "orders/dead")
    with Pipe("orders", layers, retries=1, dead_letter=letters) as pipe:
        pipe.receive(Refuses())
        pipe.send_many([b"0123456789", b"01234"])
        pipe.flush(10)
        pipe.replay(letters, letters_max=2)
    assert sorted((stored.letter.payload, stored.replays) for stored in letters.all()) == [
        (b"01234", 0),
        (b"01234", 1),
        (b"0123456789", 0),
        (b"0123456789", 0),
    ]


@given(st.binary() | st.binary().map(lambda rest: b"\x1e\x12" + rest), st.integers(1, 999))
def test_marks_are_told_from_payloads(payload: bytes, replays: int) -> None:
    """D-5: any bytes, marked or guarded, come back with their number; no codec takes one for the other."""
    assert unmarked(marked(payload, replays)) == (payload, replays)
    assert unmarked(guarded(payload)) == (payload, 0)
    for codec in (BytesCodec(), AutoCodec(), choose_codec(Upside())):
        sent = codec.encode(payload)
        assert codec.decode(sent) == payload
        assert codec.decode(marked(unmarked(sent)[0], replays)) == payload
    text = JsonCodec().encode(payload.hex())
    assert JsonCodec().decode(marked(text, replays)) == payload.hex()


def test_a_letter_deleted_while_a_replay_stands_before_it_is_not_sent(any_bench: AnyBench) -> None:
    """The replay has read it already, and looks at the marks once more before it sends: on each store."""
    store = any_bench.store
    letters = DeadLetterStream(store, "orders/dead")
    with Pipe("orders", retries=1, dead_letter=letters) as pipe:
        pipe.receive(Refuses())
        pipe.send_many([1, 2, 3])

    class Deleting(DeadLetterStream):
        def note_sent(self, index: int, at_us: int, number: tuple[int, int] | None) -> None:
            super().note_sent(index, at_us, number)
            DeadLetterStream(store, "orders/dead").delete(2)

    got: list[object] = []
    journal = None if isinstance(any_bench, MemoryBench) else store
    with Pipe("orders", journal=journal) as pipe:
        pipe.receive(got.append)
        assert pipe.replay(Deleting(store, "orders/dead")).count == 2
        assert pipe.replay(letters, index=2).count == 0
    assert got == [1, 3]
    fates = DeadLetterStream(store, "orders/dead").fates()
    assert [fates.is_sent(index) for index in (1, 2, 3)] == [True, False, True]
    assert list(fates.deleted) == [2]
    assert fates.deleted[2]["at_us"] > 1_700_000_000_000_000  # now, as none was given


def test_one_letter_sent_out_of_its_turn_is_not_sent_by_any_later_replay(
    any_bench: AnyBench,
) -> None:
    """The position remembers it without the marks, which are for those who look: here they are lost."""
    store = any_bench.store
    letters = DeadLetterStream(store, "orders/dead")
    with Pipe("orders", retries=1, dead_letter=letters) as pipe:
        pipe.receive(Refuses())
        pipe.send_many([1, 2, 3, 4])

    class Unmarked(DeadLetterStream):
        def note_sent(self, index: int, at_us: int, number: tuple[int, int] | None) -> None:
            """The process ended before this."""

    got: list[object] = []
    journal = None if isinstance(any_bench, MemoryBench) else store
    for index in (3, 3, 2, 3, None, None):
        with Pipe("orders", journal=journal) as pipe:
            pipe.receive(got.append)
            pipe.replay(Unmarked(store, "orders/dead"), index=index)
    assert got == [3, 2, 1, 4]
    fates = letters.fates()
    assert all(fates.is_sent(index) for index in (1, 2, 3, 4))
    assert fates.said(3) == ["sent again; when is not known"]
