"""Dead letters in a stream: stored before their source is confirmed, to be listed, shown and replayed.

Each letter has a producer of its own, named by the identity of its message, and seq 1. So a letter that is put
again after a crash is the same letter, in whatever order messages fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from surepipe.effects import Letter, WriteFailed, WriteOutcome, WriteStored, WriteUnknown
from surepipe.errors import ConfigurationError, Fenced, StoreReset, StoreUnavailable
from surepipe.storage.claims import Claims, number_now
from surepipe.storage.letters import NoLetter, decode, encode, name_of
from surepipe.store_api import (
    KEEP_ALL,
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
    IndexStore,
    Level,
    NoPosition,
    Owner,
    Position,
    Retention,
    Store,
    Stored,
    StreamInfo,
    Unavailable,
)
from surepipe.store_api import Fenced as FencedOutcome

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
            f"{self.index}: {letter.pipe} epoch {letter.epoch} seq {letter.seq}, {letter.attempts} attempts"
            f"{replayed_text(letter)}: {letter.error_type}: {letter.error_text}"
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


def replayed_text(letter: Letter) -> str:
    """How a line tells that its message had been replayed before: nothing when it had not."""
    if not letter.replays:
        return ""
    return f", replayed {letter.replays} time{'s' if letter.replays > 1 else ''}"


def _time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat()


class DeadLetterStream:
    """The dead letters of one or many pipes, in one stream of a store.

    Called with a letter it stores it, so it is what a pipe takes as ``dead_letter``: returning means stored,
    raising means that it is asked again, and the message stays with the pipe.
    """

    def __init__(self, streams: Store, stream: str, *, retention: Retention = KEEP_ALL) -> None:
        """The stream is made at the first use. At the bound of its retention letters are refused, not dropped,
        while a replay has not read what is there. Raises ConfigurationError for what is no store, no name or no
        Retention."""
        _check(streams, stream, retention)
        self.stream = stream
        self._streams = streams
        self._retention = retention
        self._incarnation = 0

    @property
    def store(self) -> Store:
        """The store that the letters are in."""
        return self._streams

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

    def sent_again_before(self, positions: IndexStore, reader: str = "replay") -> int:
        """The index of the first letter that no replay of this reader has sent again; 0 where there was none."""
        match positions.get(self.stream, reader):
            case Position(tag, following) if tag == self.incarnation:
                return following
            case Unavailable() as outcome:
                raise _as_error(self.stream, outcome)
            case _:
                return 0

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
        positions: IndexStore,
        *,
        reader: str = "replay",
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        """``number_of_life`` as for ``Claims``: a replay is a life of its own."""
        self._letters = letters
        self._positions = positions
        self._reader = reader
        self._claims = Claims(positions, number_of_life)
        self._owner = 0
        self._next = 0

    def begin(self) -> int:
        """Take the replay over from whoever ran it before; returns the index of the next letter.

        Raises StoreUnavailable (ask again), ``errors.Fenced`` (another replay began after this one and has taken
        over), StoreReset (the stream was made anew since the last replay).
        """
        stream = self._letters.stream
        claimed = self._claims.claim(stream, self._reader, 1)
        if isinstance(claimed, FencedOutcome):
            raise Fenced(f"replay {self._reader!r} of {stream!r} belongs to a later replay now")
        if not isinstance(claimed, Owner):
            raise _as_error(stream, claimed)
        self._owner = claimed.number
        found = self._positions.get(stream, self._reader)
        match found:
            case Position(tag, following) if tag == self._letters.incarnation:
                self._next = following
            case Position():
                raise StoreReset(
                    f"dead letters {stream!r} were made anew since reader {self._reader!r} read them"
                )
            case NoPosition():
                self._next = next((stored.index for stored in self._letters.all()), 1)
            case _:
                raise _as_error(stream, found)
        return self._next

    def waiting(self, letters_max: int = READ_LETTERS) -> list[StoredLetter]:
        """The next letters to replay. Raises as ``DeadLetterStream.read``."""
        return self._letters.read(self._next, letters_max)

    def position_after(self, stored: StoredLetter) -> CommitPosition:
        """The commit that says: replayed up to and with this letter."""
        return CommitPosition(
            self._letters.stream,
            self._reader,
            self._owner,
            self._letters.incarnation,
            stored.index + 1,
            Identity(name_of(stored.letter), 1, 1),
        )

    def done(self, stored: StoredLetter) -> None:
        """This letter and those before it are replayed; a repeat changes nothing.

        Raises StoreUnavailable (say it again) and ``errors.Fenced`` (another replay has taken over).
        """
        outcome = self._positions.commit(self.position_after(stored))
        match outcome:
            case Committed():
                self._next = max(self._next, stored.index + 1)
            case FencedOutcome(by):
                raise Fenced(
                    f"replay {self._reader!r} of {self._letters.stream!r} belongs to owner {by} now"
                )
            case _:
                raise _as_error(self._letters.stream, outcome)


def _as_error(stream: str, outcome: object) -> Exception:
    what = f"dead letters {stream!r}"
    if isinstance(outcome, Unavailable):
        return StoreUnavailable(f"{what}: {outcome.detail or 'no answer'}")
    return ConfigurationError(
        f"{what}: {outcome.reason if isinstance(outcome, Failed) else outcome}"
    )
