"""Dead letters in a stream: written once, readable, replayed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.effects import (
    AppendRows,
    Letter,
    OpenLife,
    WriteFailed,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.store_requests import KEEP_ALL, AppendRun, Level, Retention
from surepipe.errors import ConfigurationError, Fenced, StoreReset, StoreUnavailable
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.journal import StoreJournal
from surepipe.storage.letters import DeadLetterStream, NoLetter, Replay, decode, encode, name_of
from surepipe.storage.memory import MemoryStore
from surepipe.storage.sqlite.store import SqliteStore
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench, RewindableRedis
from tests.storage.sqlite_bench import SqliteBench

LETTER = Letter("orders", 0, 7, 3, b"payload\n\x00", 4, 1_000_000, 2_500_000, "ValueError", "no ü")


def letter(seq: int, *, pipe: str = "orders") -> Letter:
    """The letter of a message."""
    return replace(LETTER, pipe=pipe, seq=seq, payload=f"message {seq}".encode())


@pytest.fixture(name="store")
def make_store(any_bench: MemoryBench | SqliteBench | RedisBench) -> FaultyStore:
    """Each store, with misfortunes on demand."""
    return FaultyStore(any_bench.store)


# Writing down.

NUMBERS = st.integers(0, 2**63 - 1)
LETTERS = st.builds(
    Letter,
    pipe=st.text(),
    layer=st.integers(0, 9),
    epoch=NUMBERS,
    seq=NUMBERS,
    payload=st.binary(),
    attempts=NUMBERS,
    first_failure_us=NUMBERS,
    last_failure_us=NUMBERS,
    error_type=st.text(),
    error_text=st.text(st.characters(exclude_categories=())),
    producer=st.text(),
    replays=st.integers(0, 9),
    traceback=st.text(),
)


@given(LETTERS)
def test_a_letter_is_read_as_it_was_written(letter: Letter) -> None:
    """D-3: every field, also texts that are no proper Unicode; the same bytes each time."""
    assert decode(encode(letter)) == letter
    assert encode(decode(encode(letter))) == encode(letter)


def test_the_bytes_of_a_letter_stay_the_same() -> None:
    """D-3: they are kept for years, so a change of the format is a decision."""
    assert encode(LETTER) == (
        b'{"attempts":4,"epoch":7,"error_text":"no \\u00fc","error_type":"ValueError",'
        b'"first_failure_us":1000000,"format":1,"last_failure_us":2500000,"layer":0,"pipe":"orders","producer":"","replays":0,"seq":3}\npayload\n\x00'
    )


@given(st.binary())
def test_other_bytes_are_no_letter(data: bytes) -> None:
    """D-3: any bytes are told apart from a letter, and nothing but NoLetter is raised."""
    with pytest.raises(NoLetter):
        decode(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"format":1', b'"format":2'),
        (b'"seq":3', b'"seq":"3"'),
        (b'"seq":3', b'"seq":true'),
        (b'"pipe":"orders"', b'"pipe":5'),
        (b'"layer":0,', b""),
        (b'"layer":0,', b'"layer":0,"more":1,'),
    ],
)
def test_a_letter_with_a_wrong_field_is_none(old: bytes, new: bytes) -> None:
    """D-3: another format, a number that is text, a field too few or too many."""
    with pytest.raises(NoLetter):
        decode(encode(LETTER).replace(old, new))


def test_two_messages_never_share_a_name() -> None:
    """D-2: slashes in the name of a pipe don't make two messages one."""
    names = {
        name_of(replace(LETTER, pipe=pipe, producer=producer, layer=layer, seq=seq))
        for pipe in ("a", "a/0", "a/0/7", "a%2F0")
        for producer in ("", "0", "0/7")
        for layer in (0, 7)
        for seq in (3, 7)
    }
    assert len(names) == 48


# Storing.


def test_a_letter_stored_again_is_one_letter(store: FaultyStore) -> None:
    """dl2: the answer was lost, or the crash came between letter and confirm: the host stores it again."""
    place = DeadLetterStream(store, "dead")
    store.script(Misfortune.UNKNOWN, on=AppendRun)
    with pytest.raises(StoreUnavailable):
        place(letter(3))
    for _ in range(2):
        place(letter(3))
        place(letter(1))
        DeadLetterStream(store, "dead")(letter(3))
    assert [stored.letter for stored in place.all()] == [letter(3), letter(1)]


def test_an_outage_is_no_loss(store: FaultyStore) -> None:
    """D-4: not stored, told by an exception, stored when the store is back."""
    place = DeadLetterStream(store, "dead")
    store.script(Misfortune.OUTAGE, calls=3)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            place(LETTER)
    place(LETTER)
    assert [stored.letter for stored in place.all()] == [LETTER]
    store.script(Misfortune.OUTAGE)
    assert place.put(LETTER) == WriteUnknown()


def test_a_refusal_names_its_reason(store: FaultyStore) -> None:
    """S-1, D-4: the host keeps the message and asks again."""
    place = DeadLetterStream(store, "dead")
    place(LETTER)
    store.script(Misfortune.REFUSED, on=AppendRun)
    with pytest.raises(ConfigurationError, match="on purpose"):
        place(letter(4))
    place(letter(4))
    assert len([*place.all()]) == 2


def test_a_full_stream_of_letters_takes_no_more_until_they_are_replayed(store: FaultyStore) -> None:
    """D-4, S-8: with a reader on it, the bound refuses; nothing is dropped."""
    size = len(encode(letter(1)))
    place = DeadLetterStream(store, "dead", retention=Retention(max_bytes=2 * size))
    replay = Replay(place, store)
    replay.begin()
    place(letter(1))
    replay.done(next(place.all()))
    place(letter(2))
    place(letter(3))
    outcome = place.put(letter(4))
    assert isinstance(outcome, WriteFailed)
    assert "max_bytes" in outcome.reason
    later = Replay(place, store)
    later.begin()
    for stored in later.waiting():
        later.done(stored)
    place(letter(4))


def test_letters_are_listed_and_shown(store: FaultyStore) -> None:
    """D-3: the list has a line for each, without payload; showing one tells everything."""
    place = DeadLetterStream(store, "dead")
    place(LETTER)
    assert place.put(replace(letter(9), replays=2)) == WriteStored()
    lines = [stored.line() for stored in place.all()]
    assert lines == [
        "1: orders epoch 7 seq 3, 4 attempts: ValueError: no ü",
        "2: orders epoch 7 seq 9, 4 attempts, replayed 2 times: ValueError: no ü",
    ]
    shown = place.show(1)
    assert shown is not None
    assert shown.letter == LETTER
    assert "1970-01-01T00:00:02.500000+00:00" in shown.text()
    assert r"b'payload\n\x00'" in shown.text()
    assert place.show(3) is None


def test_a_stream_of_other_things_is_no_dead_letter_stream(store: FaultyStore) -> None:
    """S-1: the error names the entry."""
    store.create("dead", 1, KEEP_ALL)
    store.append("dead", "p", 1, 1, [b"something"])
    with pytest.raises(ConfigurationError, match="entry 1 of 'dead'"):
        next(DeadLetterStream(store, "dead").all())


# Replaying.


def place_with(store: FaultyStore | SqliteStore, *seqs: int) -> DeadLetterStream:
    """A stream with these letters."""
    place = DeadLetterStream(store, "dead")
    for seq in seqs:
        place(letter(seq))
    return place


def test_an_interrupted_replay_goes_on_at_the_next_letter(store: FaultyStore) -> None:
    """D-5: two of three are done; another run gets the third, and the one after it later letters."""
    place = place_with(store, 1, 2, 3)
    replay = Replay(place, store)
    assert replay.begin() == 1
    for stored in replay.waiting(2):
        anchor = replay.position_after(stored).anchor
        assert anchor == store.identify(place.stream, stored.index), "what tells a lost stream"
        replay.done(stored)
        replay.done(stored)
    again = Replay(place, store)
    assert again.begin() == 3
    assert [stored.letter for stored in again.waiting()] == [letter(3)]
    again.done(again.waiting()[0])
    assert again.waiting() == []
    place(letter(4))
    later = Replay(place, store)
    assert later.begin() == 4
    assert [stored.letter for stored in later.waiting()] == [letter(4)]


def test_a_replay_ends_although_all_that_it_sends_fails_again(store: FaultyStore) -> None:
    """D-5: each letter that is sent becomes another letter at once; those wait for another replay."""
    place = place_with(store, 1, 2)
    replay = Replay(place, store)
    replay.begin()
    sent: list[int] = []
    while (waiting := replay.waiting(1)) and len(sent) < 10:
        for stored in waiting:
            sent.append(stored.letter.seq)
            replay.done(stored)
            place(letter(stored.letter.seq + 2))
    assert sent == [1, 2]
    assert Replay(place, store).begin() == 3


def test_replays_by_other_names_are_their_own(store: FaultyStore) -> None:
    """D-5: each reader has its own place."""
    place = place_with(store, 1)
    first, second = Replay(place, store), Replay(place, store, reader="second")
    first.begin()
    first.done(first.waiting()[0])
    assert second.begin() == 1
    assert len(second.waiting()) == 1


def test_a_replay_that_was_taken_over_says_so(store: FaultyStore) -> None:
    """S-9: two run at once; the older one is stopped at its next letter."""
    place = place_with(store, 1)
    older, newer = Replay(place, store), Replay(place, store)
    older.begin()
    newer.begin()
    with pytest.raises(Fenced):
        older.done(older.waiting()[0])
    newer.done(newer.waiting()[0])


def test_a_replay_over_a_stream_made_anew_stops(store: FaultyStore) -> None:
    """S-7: the position belongs to letters that are gone; nothing is skipped in silence."""
    store.mark()
    place = place_with(store, 1, 2)
    replay = Replay(place, store)
    replay.begin()
    replay.done(replay.waiting()[0])
    inside = store.inside
    assert isinstance(inside, MemoryStore | SqliteStore | RewindableRedis)
    inside.delete("dead")
    with pytest.raises(StoreReset):
        Replay(place_with(store, 5), store).begin()
    with pytest.raises(StoreReset):
        replay.waiting()


class Crash(Exception):
    """The process ends here."""


def relay(store: SqliteStore, life: int, *, crash_in: int | None, crash_after: int | None) -> None:
    """Replay into the journal of a pipe, letter and position in one transaction, with a crash somewhere."""
    journal = StoreJournal(store, store, "target")
    journal.load()
    assert journal.write(OpenLife(life)) == WriteStored()
    replay = Replay(DeadLetterStream(store, "dead"), store)
    replay.begin()
    for count, stored in enumerate(replay.waiting(), 1):
        with store.transaction() as transaction:
            row = AppendRows(life, count, [stored.letter.payload])
            transaction.append(journal.run_of(row))
            transaction.commit(replay.position_after(stored))
            if count == crash_in:
                raise Crash
        assert transaction.done
        if count == crash_after:
            raise Crash


@pytest.mark.parametrize(
    ("crash_in", "crash_after"), [(1, None), (2, None), (3, None), (None, 1), (None, 2), (None, 3)]
)
def test_a_replay_in_one_store_gives_each_letter_once_wherever_it_is_interrupted(
    tmp_path: Path, crash_in: int | None, crash_after: int | None
) -> None:
    """dl5: three letters; the crash is inside a transaction or right behind it; then another life replays."""
    with SqliteStore(tmp_path / "store.db", level=Level.PROCESS) as store:
        place_with(store, 1, 2, 3)
        with pytest.raises(Crash):
            relay(store, 1, crash_in=crash_in, crash_after=crash_after)
        relay(store, 2, crash_in=None, crash_after=None)
        rows = StoreJournal(store, store, "target").load().rows
        replayed = [payload for part in rows for payload in part.payloads]
        assert replayed == [letter(seq).payload for seq in (1, 2, 3)]


def test_the_level_is_that_of_the_store(tmp_path: Path) -> None:
    """S-3: a letter is as safe as its store."""
    with SqliteStore(tmp_path / "store.db") as store:
        assert DeadLetterStream(store, "dead").level is Level.POWER
