"""Dead letters in a stream: stored before their source is confirmed, to be listed, shown and replayed.

Each letter has a producer of its own, named by the identity of its message, and seq 1. So a letter that is put
again after a crash is the same letter, in whatever order messages fail.

A stream forgets nothing but its beginning. So what was deleted, and what became of what was replayed, stands in a
stream beside it, ``<stream>/marks``: one line of JSON for each.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Self, cast
from urllib.parse import quote

from surepipe.core.effects import Letter, WriteFailed, WriteOutcome, WriteStored, WriteUnknown
from surepipe.core.store_requests import (
    KEEP_ALL,
    STATE_MAX_BYTES,
    AppendRun,
    Batch,
    CommitPosition,
    Committed,
    Created,
    Empty,
    Exists,
    Failed,
    Full,
    Identity,
    Level,
    NoPosition,
    NoStream,
    Owner,
    Position,
    Retention,
    Store,
    Stored,
    StreamInfo,
    Unavailable,
    called,
    said_of,
)
from surepipe.core.store_requests import FencedOut as FencedOutcome
from surepipe.errors import ConfigurationError, Fenced, StoreReset, StoreUnavailable
from surepipe.storage.positions import Claims, number_now

# How a dead letter is written down: one line of JSON with sorted keys, then the payload as it is.
#
# The same letter always gives the same bytes. Times are microseconds.


FORMAT = 1
_KEYS = {field.name for field in fields(Letter)} - {"payload", "place"} | {"format"}
_MAYBE = {"traceback"}


class NoLetter(ValueError):
    """These bytes are not a letter."""


def encode(letter: Letter) -> bytes:
    """The bytes of a letter."""
    head: dict[str, object] = {**asdict(letter), "format": FORMAT}
    del head["payload"], head["place"]
    if not letter.traceback:
        del head["traceback"]  # as letters were written before there was any
    line = json.dumps(head, sort_keys=True, separators=(",", ":"))
    return line.encode() + b"\n" + letter.payload


def decode(data: bytes) -> Letter:
    """The letter that these bytes are; raises NoLetter when they are none."""
    line, newline, payload = data.partition(b"\n")
    if not newline:
        raise NoLetter(f"only one line: {line[:80]!r}")
    head = _Head(line)
    return Letter(
        pipe=head.text("pipe"),
        layer=head.number("layer"),
        epoch=head.number("epoch"),
        seq=head.number("seq"),
        payload=payload,
        attempts=head.number("attempts"),
        first_failure_us=head.number("first_failure_us"),
        last_failure_us=head.number("last_failure_us"),
        error_type=head.text("error_type"),
        error_text=head.text("error_text"),
        producer=head.text("producer"),
        replays=head.number("replays"),
        traceback=head.text("traceback", absent=""),
    )


class _Head:
    """The first line of a letter."""

    def __init__(self, line: bytes) -> None:
        try:
            found: object = json.loads(line)
        except ValueError as error:
            raise NoLetter(f"no line of JSON: {line[:80]!r}") from error
        if not isinstance(found, dict) or set(cast("dict[str, object]", found)) | _MAYBE != _KEYS:
            raise NoLetter(f"not the keys of a letter: {line[:80]!r}")
        self._values = cast("dict[str, object]", found)
        if self._values["format"] != FORMAT:
            raise NoLetter(f"format {self._values['format']!r}; this version reads {FORMAT}")

    def number(self, key: str) -> int:
        value = self._values[key]
        if type(value) is not int:
            raise NoLetter(f"{key} is {value!r}, no number")
        return value

    def text(self, key: str, absent: str | None = None) -> str:
        value = self._values.get(key, absent)
        if not isinstance(value, str):
            raise NoLetter(f"{key} is {value!r}, no text")
        return value


def name_of(letter: Letter) -> str:
    """The name of a message for all time. Also the producer of its letter, so that one message has one letter."""
    pipe, producer = (
        quote(part, safe=" ", errors="surrogatepass") for part in (letter.pipe, letter.producer)
    )
    return f"{pipe}/{producer}/{letter.layer}/{letter.epoch}/{letter.seq}"


READ_LETTERS = 256
READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A letter and its index in the stream."""

    index: int
    letter: Letter

    @property
    def replays(self) -> int:
        """How often the message had been replayed before it failed this time."""
        return self.letter.replays

    def line(self) -> str:
        """What a list shows: no payload."""
        letter = self.letter
        return (
            f"{self.index}: {identity_text(letter)}, {attempts_text(letter)}: "
            f"{letter.error_type}: {letter.error_text}"
        )

    def about(self) -> str:
        """Everything that is known of it but the payload."""
        letter = self.letter
        since, last = _time(letter.first_failure_us), _time(letter.last_failure_us)
        times = f"  layer {letter.layer}, failed first at {since} and last at {last}"
        return f"{self.line()}\n{times}"

    def text(self) -> str:
        """Everything that is known of it, with the payload."""
        payload = f"  {len(self.letter.payload)} bytes: {self.letter.payload!r}"
        return f"{self.about()}\n{payload}"


_OF_A_ROW = re.compile(r" [0-9a-f]{16}\Z")
"""So ends what a letter of a source has as its producer: the place and content of its row."""


def whose(letter: Letter) -> str:
    """The producer, where epoch and number alone say nothing to a person: of a stream that others write into than
    a sender of its name. Letters of sources and books have a name of the one message there instead."""
    producer, pipe = letter.producer, letter.pipe
    return "" if producer == pipe or "@" in pipe or _OF_A_ROW.search(producer) else producer


def identity_text(letter: Letter) -> str:
    """Which message it was."""
    by = f" producer {producer!r}" if (producer := whose(letter)) else ""
    return f"{letter.pipe}{by} epoch {letter.epoch} seq {letter.seq}"


def attempts_text(letter: Letter) -> str:
    """How often its message was tried, and replayed before that if it was."""
    tried = f"{letter.attempts} attempt{'s' if letter.attempts != 1 else ''}"
    times = f"{letter.replays} time{'s' if letter.replays > 1 else ''}"
    return f"{tried}, replayed {times}" if letter.replays else tried


def _time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat()


@dataclass(slots=True)
class Fates:
    """The letters of a stream that were sent again, and those that were deleted."""

    incarnation: int
    before: int = 0
    """All letters below this index were sent again, but those that had been deleted."""
    alone: frozenset[int] = frozenset()
    """Those that were sent again by themselves, out of their turn."""
    sent: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])
    """When, and as which epoch and seq; 0 where that is not known. Older versions noted none."""
    deleted: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])
    """When, and whether it had been sent again by then."""
    read_next: int = 1

    def is_sent(self, index: int) -> bool:
        """Whether a replay has sent this letter."""
        if index in self.sent or index in self.alone:
            return True
        deleted = self.deleted.get(index)
        return bool(deleted["sent"]) if deleted else index < self.before

    def add(self, mark: dict[str, int | str]) -> None:
        """Take one mark in. Those of a stream that was made anew since say nothing of this one."""
        if mark["of"] != self.incarnation:
            return
        kept = self.deleted if mark["mark"] == "deleted" else self.sent
        kept[int(mark["letter"])] = {
            key: value
            for key, value in mark.items()
            if isinstance(value, int) and key not in ("of", "letter")
        }

    def said(self, index: int) -> list[str]:
        """What became of a letter, in words: nothing when nothing did."""
        words: list[str] = []
        if sent := self.sent.get(index):
            number = f" as epoch {sent['epoch']} seq {sent['seq']}" if sent["epoch"] else ""
            words.append(f"sent again at {_time(sent['at_us'])}{number}")
        elif self.is_sent(index):
            words.append("sent again; when is not known")
        if gone := self.deleted.get(index):
            words.append(f"deleted at {_time(gone['at_us'])}")
        return words


def _indexes(state: bytes) -> frozenset[int]:
    """The letters that were sent out of their turn, as a position of a replay has them."""
    return frozenset(json.loads(state)) if state else frozenset()


class DeadLetterStream:
    """The dead letters of one or many pipes, in one stream of a store.

    Called with a letter it stores it, so it is what a pipe takes as ``dead_letter``: returning means stored,
    raising means that it is asked again, and the message stays with the pipe.
    """

    def __init__(self, streams: Store, stream: str, *, retention: Retention = KEEP_ALL) -> None:
        """The stream is made at the first use. At the bound of its retention letters are refused, not dropped,
        until a replay has read what is there. Raises ConfigurationError for what is no store, no name or no
        Retention."""
        _check(streams, stream, retention)
        self.stream = stream
        self._streams = streams
        self._retention = retention
        self._incarnation = 0

    @classmethod
    def found(cls, streams: Store, stream: str) -> Self:
        """The letters of a stream that is there already, whatever its retention is. Makes nothing. Raises
        LookupError where there is no such stream, StoreUnavailable."""
        info = streams.info(stream)
        if isinstance(info, NoStream):
            raise LookupError(f"there is no stream {stream!r}, so no letter was put there")
        if not isinstance(info, StreamInfo):
            raise _as_error(stream, info)
        letters = cls(streams, stream)
        letters._incarnation = info.incarnation
        return letters

    @property
    def store(self) -> Store:
        """The store that the letters are in."""
        return self._streams

    @property
    def place(self) -> str:
        """How people call its store."""
        return called(self._streams)

    @property
    def level(self) -> Level:
        """What survives of a stored letter."""
        return self._streams.level

    @property
    def incarnation(self) -> int:
        """That of the stream; makes it when it is not there. Raises StoreUnavailable, ConfigurationError."""
        if not self._incarnation:
            outcome = self._streams.create(self.stream, 1, self._retention)
            if not isinstance(outcome, Created | Exists):
                raise _as_error(self.stream, outcome)
            self._incarnation = outcome.incarnation
        return self._incarnation

    def __call__(self, letter: Letter) -> None:
        """Store a letter. Raises StoreUnavailable (ask again) and ConfigurationError (the store refuses)."""
        match self.put(letter):
            case WriteStored():
                return
            case WriteFailed(reason):
                raise ConfigurationError(f"dead letters {self.stream!r}: {reason}")
            case _:
                raise StoreUnavailable(
                    f"dead letters {self.stream!r}: no answer; put the letter again"
                )

    def put(self, letter: Letter) -> WriteOutcome:
        """Store a letter; a repeat changes nothing, for ever. The first one of a message stays."""
        try:
            _ = self.incarnation
        except StoreUnavailable:
            return WriteUnknown()
        run = self.run_of(letter)
        outcome = self._streams.append(run.stream, run.producer, run.epoch, run.first, run.payloads)
        match outcome:
            case Stored():
                return WriteStored()
            case Failed(reason):
                self._incarnation = 0  # perhaps the stream was deleted: made again at the next try
                return WriteFailed(reason)
            case Full(bound):
                return WriteFailed(f"full: {bound}; replay letters, or remove some")
            case _:
                return WriteUnknown()

    def run_of(self, letter: Letter) -> AppendRun:
        """The append that stores a letter, for a transaction with other writes of the same store."""
        return AppendRun(self.stream, name_of(letter), 1, 1, [encode(letter)])

    def all(self) -> Iterator[StoredLetter]:
        """All letters, oldest first. Raises StoreUnavailable, ConfigurationError."""
        _ = self.incarnation
        found = self._streams.info(self.stream)
        if not isinstance(found, StreamInfo):
            raise _as_error(self.stream, found)
        index = found.earliest
        while letters := self.read(index):
            yield from letters
            index = letters[-1].index + 1

    def end(self) -> int:
        """The index behind the last letter. Raises StoreUnavailable, ConfigurationError."""
        found = self._streams.info(self.stream)
        if not isinstance(found, StreamInfo):
            raise _as_error(self.stream, found)
        return found.next

    def fates(self, positions: Store | None = None, reader: str = "replay") -> Fates:
        """What became of the letters: sent again by this reader, or deleted. Raises StoreUnavailable."""
        fates = Fates(self.incarnation)
        found = (positions or self._streams).get(self.stream, reader)
        if isinstance(found, Unavailable):
            raise _as_error(self.stream, found)
        if isinstance(found, Position) and found.tag == self.incarnation:
            fates.before, fates.alone = found.next, _indexes(found.state)
        self.refresh(fates)
        return fates

    def refresh(self, fates: Fates) -> None:
        """Take in the marks that were made since. Raises StoreUnavailable."""
        name = f"{self.stream}/marks"
        found = self._streams.info(name)
        if isinstance(found, Unavailable):
            raise _as_error(name, found)
        if not isinstance(found, StreamInfo):
            return  # nobody has marked anything
        fates.read_next = max(fates.read_next, found.earliest)
        while fates.read_next < found.next:
            outcome = self._streams.read(name, fates.read_next, READ_LETTERS, READ_BYTES)
            if not isinstance(outcome, Batch):
                raise _as_error(name, outcome)
            for run in outcome.entries:
                for payload in run.payloads:
                    fates.add(json.loads(payload))
            fates.read_next = outcome.next

    def delete(self, index: int, at_us: int | None = None) -> bool:
        """Mark a letter deleted: no list shows it, and no replay sends it. False when it was deleted before.

        ``at_us``: when, in microseconds since 1970; now if it is not given. The stream keeps its bytes until it is
        trimmed. A letter that a replay is sending at this moment is sent all the same. Raises LookupError for a
        letter that is not there, StoreUnavailable (ask again).
        """
        if self.show(index) is None:
            raise LookupError(f"{self.stream} has no letter {index}")
        fates = self.fates()
        if index in fates.deleted:
            return False
        when = time.time_ns() // 1000 if at_us is None else at_us
        self._mark("deleted", index, {"at_us": when, "sent": fates.is_sent(index)})
        return True

    def note_sent(self, index: int, at_us: int, number: tuple[int, int] | None) -> None:
        """Remember that a letter was sent again, when, and, if known, under which number."""
        epoch, seq = number or (0, 0)
        self._mark("sent", index, {"at_us": at_us, "epoch": epoch, "seq": seq})

    def _mark(self, kind: str, index: int, facts: dict[str, object]) -> None:
        """A mark has a producer of its own, so one that is put again is the same mark."""
        name, of = f"{self.stream}/marks", self.incarnation
        made = self._streams.create(name, 1, KEEP_ALL)
        if not isinstance(made, Created | Exists):
            raise _as_error(name, made)
        mark = json.dumps({"mark": kind, "letter": index, "of": of, **facts}, sort_keys=True)
        outcome = self._streams.append(name, f"{kind}/{of}/{index}", 1, 1, [mark.encode()])
        if not isinstance(outcome, Stored):
            raise _as_error(name, outcome)

    def show(self, index: int) -> StoredLetter | None:
        """The letter at an index; None when there is none."""
        outcome = self._streams.read(self.stream, index, 1, READ_BYTES)
        if isinstance(outcome, Batch):
            return self._letters(outcome)[0]
        if isinstance(outcome, Failed | Unavailable):
            raise _as_error(self.stream, outcome)
        return None

    def read(self, index: int, letters_max: int = READ_LETTERS) -> list[StoredLetter]:
        """Letters from an index on; none when there are no more. Raises as ``all``, and StoreReset when the
        index is no longer, or not yet, one of this stream."""
        outcome = self._streams.read(self.stream, index, letters_max, READ_BYTES, self.incarnation)
        match outcome:
            case Batch():
                return self._letters(outcome)
            case Empty():
                return []
            case Failed() | Unavailable():
                raise _as_error(self.stream, outcome)
            case _:
                self._incarnation = 0
                raise StoreReset(
                    f"dead letters {self.stream!r} have no letter {index} to go on with: {outcome}"
                )

    def _letters(self, batch: Batch) -> list[StoredLetter]:
        found: list[StoredLetter] = []
        for run in batch.entries:
            for index, data in enumerate(run.payloads, run.index):
                try:
                    found.append(StoredLetter(index, decode(data)))
                except NoLetter as error:
                    raise ConfigurationError(
                        f"entry {index} of {self.stream!r} is no letter: {error}"
                    ) from error
        return found


def _check(streams: object, stream: object, retention: object) -> None:
    wrong = (
        f"the store is {streams!r}"
        if not hasattr(type(streams), "append")
        else f"the name of the stream is {stream!r}"
        if not isinstance(stream, str) or not stream
        else f"retention is {retention!r}"
        if not isinstance(retention, Retention)
        else ""
    )
    if wrong:
        raise ConfigurationError(
            f"dead letters: {wrong}; write DeadLetterStream(store, 'orders/dead'), with "
            "retention=Retention(max_bytes=...) if it is to have a bound"
        )


class Replay:
    """Where a replay of dead letters stands: a reader of the stream, so that an interrupted replay goes on.

    Send each letter of ``waiting`` as a new message, then say ``done``: a crash in between sends that letter
    twice. With ``position_after`` in the transaction that stores the message in the target's journal (of the same
    store) each letter is replayed exactly once.
    """

    def __init__(
        self,
        letters: DeadLetterStream,
        positions: Store,
        *,
        reader: str = "replay",
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        """``number_of_life`` as for ``Claims``: a replay is a life of its own."""
        self.letters = letters
        self._positions = positions
        self._reader = reader
        self._claims = Claims(positions, number_of_life)
        self.owner = 0
        self._next = 0
        self._end = 0
        """Behind the last letter that there was at the beginning."""
        self._revision = 0
        self._alone: frozenset[int] = frozenset()
        self._fates = Fates(0)

    @property
    def name(self) -> str:
        """What its position is called among those of all streams."""
        return f"{self.letters.stream}/{self._reader}"

    def taken_over(self, by: int) -> Fenced:
        """What to raise when another replay has this reader."""
        return Fenced(
            f"replay {self._reader!r} of {self.letters.stream!r} belongs to owner {by} now"
        )

    def begin(self) -> int:
        """Take the replay over from whoever ran it before; returns the index of the next letter.

        Raises StoreUnavailable (ask again), ``errors.Fenced`` (another replay began after this one and has taken
        over), StoreReset (the stream was made anew since the last replay).
        """
        stream = self.letters.stream
        claimed = self._claims.claim(stream, self._reader, 1)
        if isinstance(claimed, FencedOutcome):
            raise Fenced(f"replay {self._reader!r} of {stream!r} belongs to a later replay now")
        if not isinstance(claimed, Owner):
            raise _as_error(stream, claimed)
        self.owner = claimed.number
        found = self._positions.get(stream, self._reader)
        match found:
            case Position(tag, following) if tag == self.letters.incarnation:
                self._next, self._alone = following, _indexes(found.state)
            case Position():
                raise StoreReset(
                    f"dead letters {stream!r} were made anew since reader {self._reader!r} read them"
                )
            case NoPosition():
                self._next = next((stored.index for stored in self.letters.all()), 1)
            case _:
                raise _as_error(stream, found)
        self._fates = Fates(self.letters.incarnation)
        self._end = self.letters.end()
        return self._next

    def waiting(self, letters_max: int = READ_LETTERS) -> list[StoredLetter]:
        """The next letters to replay: those that were deleted, or sent out of their turn, are passed over.

        1. A letter is sent. 2. Its message fails at once, and has a letter. 3. If that were sent as well, a replay
        of what can't be handled would never end. So this ends with the last letter that was there at ``begin``.

        Raises as ``DeadLetterStream.read``.
        """
        while self._next < self._end:
            found = self.letters.read(self._next, letters_max)
            letters = [stored for stored in found if stored.index < self._end]
            if not letters:
                break
            self.letters.refresh(self._fates)
            waiting = [stored for stored in letters if self._is_waiting(stored.index)]
            if waiting:
                return waiting
            self.done(letters[-1])
        return []

    def is_waiting(self, stored: StoredLetter) -> bool:
        """Whether this letter is still to be sent, with the marks that there are now. Raises StoreUnavailable."""
        self.letters.refresh(self._fates)
        return self._is_waiting(stored.index)

    def why_not(self, index: int) -> str:
        """Why this letter was not sent, by the marks that ``is_waiting`` has seen; empty for one that waits."""
        if self._is_waiting(index):
            return ""
        became = "deleted" if index in self._fates.deleted else "sent again before"
        return f"letter {index} of {self.letters.stream} was {became}"

    def _is_waiting(self, index: int) -> bool:
        is_sent = index < self._next or index in self._alone
        return not is_sent and index not in self._fates.deleted

    def position_after(self, stored: StoredLetter, *, alone: bool = False) -> CommitPosition:
        """The commit that says: replayed up to and with this letter, or, ``alone``, this one out of its turn.

        Raises ConfigurationError when too many were sent out of their turn to be remembered.
        """
        following = self._next if alone else stored.index + 1
        is_new = alone and stored.index not in self._alone
        kept = self._alone | {stored.index} if alone else self._alone
        state = json.dumps(sorted(index for index in kept if index >= following))
        if len(state) > STATE_MAX_BYTES:
            raise ConfigurationError(
                f"dead letters {self.letters.stream!r}: {len(kept)} were replayed one by one, and more can't be "
                "remembered: replay all that are left, or delete those before"
            )
        return CommitPosition(
            self.letters.stream,
            self._reader,
            self.owner,
            self.letters.incarnation,
            following,
            Identity(name_of(stored.letter), 1, 1),
            b"" if state == "[]" else state.encode(),
            revision=self._revision + is_new,
        )

    def done(self, stored: StoredLetter, *, alone: bool = False) -> None:
        """This letter and those before it, or this one alone, are replayed; a repeat changes nothing.

        Raises StoreUnavailable (say it again) and ``errors.Fenced`` (another replay has taken over).
        """
        position = self.position_after(stored, alone=alone)
        outcome = self._positions.commit(position)
        match outcome:
            case Committed():
                self._next = max(self._next, position.next)
                self._revision = position.revision
                self._alone = _indexes(position.state)
            case FencedOutcome(by):
                raise self.taken_over(by)
            case _:
                raise _as_error(self.letters.stream, outcome)


def _as_error(stream: str, outcome: object) -> Exception:
    kind = StoreUnavailable if isinstance(outcome, Unavailable) else ConfigurationError
    return kind(said_of("dead letters", stream, outcome))
