"""Requests to stores and their answers: the words that machines, hosts and stores share.

A store keeps streams: entries with dense indexes 1, 2, 3 ..., appended by identity; positions: the next index that
a reader will read; values under keys in named tables, and marks that go up when something has changed. Values and
marks are written ``Together`` with appends and commits, all or nothing. A ``Store`` answers requests by one
method, and its verbs make them. A machine asks by ``Call(ticket, request)``, and its host answers the ticket with
the outcome.

Every call answers with one of its outcomes, with ``Unavailable`` or with ``Failed``; exceptions of client
libraries stop inside the store. Every write may be repeated, and says below what a repeat returns.

A stream of several partitions is several streams: ``partition_of("orders", 3)`` names one of them. Indexes,
producers and positions of one partition know nothing of another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import ClassVar, Protocol, TypeAlias, cast, runtime_checkable

from surepipe.errors import ConfigurationError, MisuseError, TransactionEnded

STATE_MAX_BYTES = 64 * 1024
"""The longest ``state`` that a position may carry."""
KEY_MAX_BYTES = 1024
VALUE_MAX_BYTES = 4 << 20
KEYS_MAX = 65_536
"""A key of a table has 1 to so many bytes, a value at most so many, and one request at most so many keys."""


class Level(IntEnum):
    """What a store still has when it returns. Each level keeps what the one before it keeps."""

    NONE = 0
    """Gone with the process."""
    INTERVAL = 1
    """A crash loses the last moments."""
    PROCESS = 2
    """A crash of the process loses nothing."""
    POWER = 3
    """Loss of power loses nothing."""

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a stream keeps entries. Without a bound it keeps all.

    At a bound the oldest entries go, but none that a registered reader (one with a position) has still to read,
    nor the entry before its position, and none at all before the first reader ever is registered: when nothing may
    go, ``append`` answers ``Full``. ``force`` lets entries go before they are read.
    """

    max_bytes: int | None = None
    max_age_us: int | None = None
    force: bool = False

    def __post_init__(self) -> None:
        for name, bound in (("max_bytes", self.max_bytes), ("max_age_us", self.max_age_us)):
            if bound is not None and (type(bound) is not int or bound <= 0):
                raise ConfigurationError(
                    f"{name} of a retention is {bound!r}: give a whole number above 0, or None for no bound"
                )

    def __str__(self) -> str:
        bounds = [f"max_bytes={self.max_bytes}"] if self.max_bytes is not None else []
        bounds += [f"max_age_us={self.max_age_us}"] if self.max_age_us is not None else []
        bounds += ["force"] if self.force else []
        return ", ".join(bounds) or "keep all"


KEEP_ALL = Retention()


def partition_of(stream: str, partition: int) -> str:
    """The name of one partition (from 0) of a stream that has several."""
    return f"{stream}#{partition}"


@dataclass(frozen=True, slots=True)
class _Told:
    """What may stand in an error, in words for people: ``WORDS``, with the fields."""

    WORDS: ClassVar[str]

    def __str__(self) -> str:
        return self.WORDS.format_map({one.name: getattr(self, one.name) for one in fields(self)})


@dataclass(frozen=True, slots=True)
class Identity(_Told):
    """Who wrote an entry: message ``seq`` of this producer's epoch."""

    WORDS: ClassVar[str] = "message {seq} of {producer!r} (epoch {epoch})"

    producer: str
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Entries:
    """A run of entries: indexes from ``index`` on, of one producer and epoch, seqs from ``first`` on."""

    index: int
    producer: str
    epoch: int
    first: int
    payloads: Sequence[bytes]


# Requests. Each has a verb of ``Store``, which says what it does.


@dataclass(frozen=True, slots=True)
class CreateStream:
    """``Store.create``."""

    stream: str
    partitions: int
    retention: Retention


@dataclass(frozen=True, slots=True)
class ChangeRetention:
    """``Store.change_retention``."""

    stream: str
    retention: Retention


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """``Store.open_producer``."""

    stream: str
    producer: str
    epoch: int
    base: int


@dataclass(frozen=True, slots=True)
class AppendRun:
    """``Store.append``."""

    stream: str
    producer: str
    epoch: int
    first: int
    payloads: Sequence[bytes]

    @property
    def last(self) -> int:
        """The seq of the last message of the run."""
        return self.first + len(self.payloads) - 1


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """``Store.read``."""

    stream: str
    index: int
    max_messages: int
    max_bytes: int
    incarnation: int | None = None
    anchor: Identity | None = None


@dataclass(frozen=True, slots=True)
class IdentifyEntry:
    """``Store.identify``."""

    stream: str
    index: int


@dataclass(frozen=True, slots=True)
class TrimBefore:
    """``Store.trim``."""

    stream: str
    before: int


@dataclass(frozen=True, slots=True)
class WaitForMore:
    """``Store.wait``."""

    stream: str
    index: int
    timeout_us: int


@dataclass(frozen=True, slots=True)
class DescribeStream:
    """``Store.info``."""

    stream: str


@dataclass(frozen=True, slots=True)
class ClaimReader:
    """``Store.claim``."""

    stream: str
    reader: str
    claimant: int


@dataclass(frozen=True, slots=True)
class GetPosition:
    """``Store.get``."""

    stream: str
    reader: str


@dataclass(frozen=True, slots=True)
class CommitPosition:
    """``Store.commit``."""

    stream: str
    reader: str
    owner: int
    tag: int
    next: int
    anchor: Identity | None = None
    state: bytes = b""
    previous_tag: int | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class DropStream:
    """``Store.drop_stream``."""

    stream: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ReadKeys:
    """``Store.read_keys``."""

    table: str
    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class LoadTable:
    """``Store.load_table``."""

    table: str
    after: bytes
    limit: int


@dataclass(frozen=True, slots=True)
class WaitForMark:
    """``Store.wait_for_mark``."""

    mark: str
    seen: int
    timeout_us: int


# Three writes that are made only together with a write that says what it expects.


@dataclass(frozen=True, slots=True)
class PutValues:
    """Let these keys of the table have these values. A table is there with its first key."""

    table: str
    pairs: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class DropValues:
    """Let the table have none of these keys."""

    table: str
    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class RaiseMark:
    """Let the mark go up by one, so that who waits for it looks again."""

    mark: str


JoinedRequest: TypeAlias = AppendRun | CommitPosition | PutValues | DropValues | RaiseMark


@dataclass(frozen=True, slots=True)
class Together:
    """``Store.together``."""

    requests: Sequence[JoinedRequest]
    is_decided: bool = False


IndexRequest: TypeAlias = ClaimReader | GetPosition | CommitPosition
KeyedRequest: TypeAlias = DropStream | ReadKeys | LoadTable | WaitForMark | Together
StoreRequest: TypeAlias = (
    CreateStream
    | ChangeRetention
    | OpenProducer
    | AppendRun
    | ReadFrom
    | IdentifyEntry
    | TrimBefore
    | WaitForMore
    | DescribeStream
    | IndexRequest
    | KeyedRequest
)


# Outcomes that any call may have.


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Not done, or done and nobody knows. The caller asks again."""

    detail: str = ""

    def __str__(self) -> str:
        return self.detail or "no answer"


@dataclass(frozen=True, slots=True)
class Failed(_Told):
    """Not done, and asking again will not help; the reason says what to change."""

    WORDS: ClassVar[str] = "{reason}"

    reason: str


@dataclass(frozen=True, slots=True)
class NoStream(Failed):
    """Not done: the stream is not there, or not any more."""


def missing(stream: str) -> NoStream:
    """The answer about a stream that isn't there, to all requests but ``Create``."""
    return NoStream(
        f"stream {stream!r} does not exist; create it first, or if it was there before, the store was emptied "
        "and what it held is lost"
    )


@dataclass(frozen=True, slots=True)
class OtherStack(Failed):
    """Not done: the other end of the stream is configured differently; the reason says how."""


@dataclass(frozen=True, slots=True)
class FencedOut(_Told):
    """Not done: a higher epoch of the producer, a later owner of the reader, or a higher claimant (of a claim) has
    taken over."""

    WORDS: ClassVar[str] = "{by} has taken over"

    by: int


# Outcomes of streams.


@dataclass(frozen=True, slots=True)
class Created:
    """The stream is there now."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Exists:
    """The stream was there already, made in the same way."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Mismatch(_Told):
    """A stream of that name exists and was made differently; nothing was changed."""

    WORDS: ClassVar[str] = "it was made differently: {what}"

    what: str


def difference_of(known: tuple[int, Retention], wanted: tuple[int, Retention]) -> str:
    """In which way a stream was made differently, by its partitions and its retention; empty for in none."""
    if known[0] != wanted[0]:
        return f"it has {known[0]} partitions, not {wanted[0]}"
    if known[1] != wanted[1]:
        how = "surepipe.storage.change_retention gives it another one"
        return f"its retention is {known[1]}, not {wanted[1]}; {how}"
    return ""


def one_of_several(stream: str) -> Failed:
    """The answer to a change that is one of all partitions together."""
    return Failed(
        f"stream {stream!r} is one partition of several: give the name that they were created under"
    )


@dataclass(frozen=True, slots=True)
class ProducerOpened:
    """The producer may append from ``last + 1``. ``lost`` are confirmed messages that are gone; ``removed`` as in
    ``Stored``, of a run of this producer and epoch."""

    incarnation: int
    last: int
    lost: tuple[int, int] | None = None
    removed: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """All messages of the run are in the stream.

    ``last`` is the last seq stored of that producer and epoch, so all up to it are in the stream. ``new`` were
    stored by this call, from index ``first_index`` on (None when all had been there). ``removed``: the first and
    last index of entries that somebody else has removed since the last write, as far as the store sees it. It is
    told to whoever writes next, whose answer may be lost: so again to a repeat of that run, and to openings.
    """

    last: int
    new: int
    first_index: int | None
    removed: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Gap(_Told):
    """Nothing was stored: the run starts above ``expected``, the next seq of this producer and epoch."""

    WORDS: ClassVar[str] = "what comes before is missing, from {expected} on"

    expected: int


@dataclass(frozen=True, slots=True)
class Full(_Told):
    """Nothing was stored: the retention's bound is reached and nothing may be trimmed, as ``reader`` has still to
    read ``lag`` entries, from index ``next`` on. Of several it is the one that is furthest behind; empty, with
    ``next`` 1, where nobody has ever read the stream, and with 0 where a store does not say."""

    WORDS: ClassVar[str] = "it is full ({bound})"

    bound: str
    reader: str = ""
    next: int = 0
    lag: int = 0

    def __str__(self) -> str:
        return f"it is {self.words}"

    @property
    def words(self) -> str:
        """The same, of something that is named before."""
        entries = "1 entry" if self.lag == 1 else f"{self.lag:,} entries"
        behind = f": reader {self.reader!r} has still to read {entries}, from {self.next} on"
        if self.is_unread:
            behind = ": nobody has read it yet, and until then nothing may go"
        return f"full ({self.bound}){behind if self.next else ''}"

    @property
    def is_unread(self) -> bool:
        """True where it waits for the first reader of all."""
        return not self.reader and self.next > 0

    @property
    def max_bytes(self) -> int | None:
        """The bound, where it is one of bytes."""
        name, _, limit = self.bound.partition("=")
        return int(limit) if name == "max_bytes" else None


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries without a hole, the first at the index that was asked for.

    ``next`` is the index after the last of them, ``end`` the next index that an append will get.
    """

    entries: Sequence[Entries]
    next: int
    end: int


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing there yet; ``next`` (the index asked for) will come."""

    next: int


@dataclass(frozen=True, slots=True)
class Trimmed(_Told):
    """The entries below ``earliest`` are gone: all of them, or (where somebody else has removed some) those from
    the index asked for on. ``passed`` names readers that had not read all of them."""

    WORDS: ClassVar[str] = (
        "the entries before {earliest} are gone: trimmed, or removed by somebody else"
    )

    earliest: int
    passed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reset(_Told):
    """The stream was made anew: this is its incarnation now."""

    WORDS: ClassVar[str] = "it was made anew"

    incarnation: int


@dataclass(frozen=True, slots=True)
class Ahead(_Told):
    """The index asked for is beyond ``next``, the next that will be given out: the store went back."""

    WORDS: ClassVar[str] = "it went back, to {next}"

    next: int


@dataclass(frozen=True, slots=True)
class Diverged(_Told):
    """The entry before the index asked for is ``found``, and not the one that was read there: the store went back
    and was written on."""

    WORDS: ClassVar[str] = "it went back and was written on: the entry before is {found} now"

    found: Identity


@dataclass(frozen=True, slots=True)
class Absent(_Told):
    """No entry has had this index yet; there is no stream of this name (any more)."""

    WORDS: ClassVar[str] = "there is none"


@dataclass(frozen=True, slots=True)
class Held(_Told):
    """Nothing was trimmed: this reader has still to read from index ``next`` on."""

    WORDS: ClassVar[str] = "reader {reader!r} has still to read from {next} on"

    reader: str
    next: int


@dataclass(frozen=True, slots=True)
class Hint:
    """There may be more to read, or the time is over."""


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """What a stream remembers of a producer."""

    producer: str
    epoch: int
    last: int


@dataclass(frozen=True, slots=True)
class ReaderInfo:
    """Where a registered reader is, and how many entries are still before it."""

    reader: str
    next: int
    lag: int


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as it is now. Producers and readers are sorted by name."""

    incarnation: int
    earliest: int
    next: int
    bytes: int
    producers: tuple[ProducerInfo, ...]
    readers: tuple[ReaderInfo, ...]


# Outcomes of positions.


@dataclass(frozen=True, slots=True)
class Owner:
    """The reader belongs to the claimant now."""

    number: int


FORGOTTEN = 1 << 52
"""Added to the place of a reader that was forgotten: a position from here on is that of no registered reader.
Indexes stay below it."""


@dataclass(frozen=True, slots=True)
class NoPosition:
    """This reader never committed anything on this stream. Not the same as position 1."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader goes on: ``next`` is the next index to read, ``anchor`` the entry before it."""

    tag: int
    next: int
    anchor: Identity | None
    state: bytes
    owner: int
    revision: int = 0

    @property
    def place(self) -> int:
        """The next index to read, also of a reader that was forgotten."""
        return self.next - FORGOTTEN if self.is_forgotten else self.next

    @property
    def is_forgotten(self) -> bool:
        """True when nothing is kept for this reader any more (``surepipe.storage.forget_reader``)."""
        return self.next >= FORGOTTEN


@dataclass(frozen=True, slots=True)
class Committed:
    """The position is stored, with its state."""


@dataclass(frozen=True, slots=True)
class Kept(_Told):
    """Not stored: the stored position is further or newer, or has a tag that was not expected."""

    WORDS: ClassVar[str] = "a later state is stored already"

    position: Position


# Outcomes of tables, of marks, and of several requests together.


@dataclass(frozen=True, slots=True)
class StreamDropped:
    """The stream is gone, with its producers, its readers' positions and all its partitions."""


@dataclass(frozen=True, slots=True)
class FoundValues:
    """The values of the keys, in their order; None where there is none."""

    values: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class TableRows:
    """Keys and values of a table in no order that means anything; ``after`` is where loading goes on, None at the
    end."""

    pairs: Sequence[tuple[bytes, bytes]]
    after: bytes | None


@dataclass(frozen=True, slots=True)
class Marked:
    """The mark stands at this number; 0 if it was never raised."""

    number: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The values are as they were to be, or the mark is up, or the stream has its retention."""


@dataclass(frozen=True, slots=True)
class Untouched:
    """Not looked at: the append that decides was refused, or it was stored before and this was done with it."""


CreateOutcome: TypeAlias = Created | Exists | Mismatch | Failed | Unavailable
RetentionOutcome: TypeAlias = Changed | Failed | Unavailable
OpenOutcome: TypeAlias = ProducerOpened | FencedOut | Failed | Unavailable
AppendOutcome: TypeAlias = Stored | Gap | FencedOut | Full | Failed | Unavailable
ReadOutcome: TypeAlias = Batch | Empty | Trimmed | Reset | Ahead | Diverged | Failed | Unavailable
IdentifyOutcome: TypeAlias = Identity | Trimmed | Absent | Failed | Unavailable
TrimOutcome: TypeAlias = Trimmed | Held | Failed | Unavailable
InfoOutcome: TypeAlias = StreamInfo | Failed | Unavailable
ClaimOutcome: TypeAlias = Owner | FencedOut | Failed | Unavailable
GetOutcome: TypeAlias = NoPosition | Position | Failed | Unavailable
CommitOutcome: TypeAlias = Committed | Kept | FencedOut | Failed | Unavailable
DropOutcome: TypeAlias = StreamDropped | Absent | FencedOut | Failed | Unavailable
ReadKeysOutcome: TypeAlias = FoundValues | Failed | Unavailable
LoadOutcome: TypeAlias = TableRows | Failed | Unavailable
MarkOutcome: TypeAlias = Marked | Failed | Unavailable
JoinedOutcome: TypeAlias = AppendOutcome | CommitOutcome | Changed | Untouched


@dataclass(frozen=True, slots=True)
class AllDone:
    """All of it is done; one outcome for each request, in order."""

    outcomes: tuple[JoinedOutcome, ...]


@dataclass(frozen=True, slots=True)
class NoneDone:
    """Nothing of it was done; the outcomes say why: Stored, Committed and Changed are what would have been."""

    outcomes: tuple[JoinedOutcome, ...]

    def __str__(self) -> str:
        return said_together(self.outcomes)


TogetherOutcome: TypeAlias = AllDone | NoneDone | Failed | Unavailable
StoreOutcome: TypeAlias = (
    CreateOutcome
    | RetentionOutcome
    | OpenOutcome
    | AppendOutcome
    | ReadOutcome
    | IdentifyOutcome
    | TrimOutcome
    | InfoOutcome
    | ClaimOutcome
    | GetOutcome
    | CommitOutcome
    | DropOutcome
    | ReadKeysOutcome
    | LoadOutcome
    | MarkOutcome
    | TogetherOutcome
    | Hint
)


class Store(ABC):
    """Streams, positions and tables in one object: it answers requests, and each verb asks one.

    All requests but ``CreateStream`` answer ``Failed`` for a stream that does not exist. A position is that of one
    reader on one stream, which need not exist.
    """

    @property
    @abstractmethod
    def level(self) -> Level:
        """What survives; an outcome is given only after this is reached."""

    @abstractmethod
    def ask(self, request: StoreRequest) -> StoreOutcome:
        """The outcome of the request. Waits block as long as they say."""

    def beside(self, name: str) -> Store:
        """A store for what somebody else may be let write who may only read this one. It ends with this one, and
        no transaction spans both. This store itself where a right can't be given for a part (memory, a file)."""
        del name
        return self

    # Streams.

    def create(self, stream: str, partitions: int, retention: Retention) -> CreateOutcome:
        """Make a stream with a new random incarnation.

        Created; Mismatch when it exists with other partitions or another retention. A repeat: Exists.
        """
        return cast("CreateOutcome", self.ask(CreateStream(stream, partitions, retention)))

    def change_retention(self, stream: str, retention: Retention) -> RetentionOutcome:
        """Let the stream, in all its partitions, keep entries in another way from the next append on.

        Changes nothing else: what the new retention lets go goes by that append, not before. A repeat: Changed.
        """
        return cast("RetentionOutcome", self.ask(ChangeRetention(stream, retention)))

    def open_producer(self, stream: str, producer: str, epoch: int, base: int) -> OpenOutcome:
        """Take ``epoch`` for the producer, whose first unconfirmed message is ``base``.

        Opened tells the last seq stored of this epoch. A stream that never heard of the producer believes it:
        last is base - 1. One that remembers less than base - 1 has lost confirmed messages: it names them in
        ``lost`` and goes on from base - 1. Fenced when a higher epoch is known. From now on lower epochs are
        fenced. A repeat gives the same last, and no ``lost`` any more.
        """
        return cast("OpenOutcome", self.ask(OpenProducer(stream, producer, epoch, base)))

    def append(
        self, stream: str, producer: str, epoch: int, first: int, payloads: Sequence[bytes]
    ) -> AppendOutcome:
        """Add the messages (epoch, first), (epoch, first + 1) ...: all of the new ones, or none.

        Those already stored under their identity are skipped, so a repeat is Stored with ``new`` 0, for ever,
        trimmed or not. Gap when seqs before ``first`` are missing (a higher epoch starts at 1), Fenced for a
        lower epoch, Full at the retention's bound; these three change nothing.
        """
        run = AppendRun(stream, producer, epoch, first, payloads)
        return cast("AppendOutcome", self.ask(run))

    def read(
        self,
        stream: str,
        index: int,
        max_messages: int,
        max_bytes: int,
        incarnation: int | None = None,
        *,
        anchor: Identity | None = None,
    ) -> ReadOutcome:
        """Entries from ``index`` on, within both bounds, but one at least where there is one.

        Empty at the end, Trimmed below the earliest, Ahead beyond the end, Reset when ``incarnation`` is given
        and is not the stream's. ``anchor`` is the entry before ``index`` as the reader knows it: Diverged when
        another one is there, also at the end. One that is gone is not compared. Changes nothing.
        """
        request = ReadFrom(stream, index, max_messages, max_bytes, incarnation, anchor)
        return cast("ReadOutcome", self.ask(request))

    def identify(self, stream: str, index: int) -> IdentifyOutcome:
        """Who wrote the entry at ``index``; Trimmed when it is gone, Absent when it never was."""
        return cast("IdentifyOutcome", self.ask(IdentifyEntry(stream, index)))

    def trim(self, stream: str, before: int) -> TrimOutcome:
        """Forget entries below ``before``. A store may keep whole pages, so Trimmed may say less.

        Never passes a registered reader (Held, nothing changed) and keeps the entry before each reader's
        position, unless the stream's retention forces it. A repeat: Trimmed.
        """
        return cast("TrimOutcome", self.ask(TrimBefore(stream, before)))

    def wait(self, stream: str, index: int, timeout_us: int) -> Hint | Failed | Unavailable:
        """Return when the entry ``index`` may be there, or is not the next one because the store went back, or
        after the timeout. Early returns are fine."""
        request = WaitForMore(stream, index, timeout_us)
        return cast("Hint | Failed | Unavailable", self.ask(request))

    def info(self, stream: str) -> InfoOutcome:
        return cast("InfoOutcome", self.ask(DescribeStream(stream)))

    # Positions.

    def claim(self, stream: str, reader: str, claimant: int) -> ClaimOutcome:
        """Take the reader over from lower claimants: Owner with a number above all earlier ones.

        A repeat by the claimant that was the last gives the same number, so a lost answer does not fence the one
        who asks again. Fenced, with the claimant that was the last, for a lower one: a claim that comes late, or
        from somebody who was replaced, changes nothing. Whoever begins must be above those before, which
        ``surepipe.storage.positions`` sees to.
        """
        return cast("ClaimOutcome", self.ask(ClaimReader(stream, reader, claimant)))

    def get(self, stream: str, reader: str) -> GetOutcome:
        return cast("GetOutcome", self.ask(GetPosition(stream, reader)))

    def commit(self, request: CommitPosition) -> CommitOutcome:
        """Store the position with its state.

        Fenced for an owner below the latest. (One above it claimed before the store went back, and counts.)
        Under the stored tag a lower next is Kept, a higher one Committed. So is an equal one, unless its
        ``revision`` is below the one that the same owner stored: then it is a commit that was given up and
        arrives late, and Kept. An owner raises the number with each state that it commits (below 2^53).
        Another tag is Committed only when ``previous_tag`` names the stored one, else Kept. A state above
        ``STATE_MAX_BYTES`` has Failed. A repeat: Committed.
        """
        return cast("CommitOutcome", self.ask(request))

    # Tables, marks, and several requests in one step.

    def read_keys(self, table: str, keys: Sequence[bytes]) -> ReadKeysOutcome:
        """The values of these keys, all of one moment. Changes nothing, makes no table."""
        return cast("ReadKeysOutcome", self.ask(ReadKeys(table, keys)))

    def load_table(self, table: str, after: bytes = b"", limit: int = 1000) -> LoadOutcome:
        """About ``limit`` keys with their values, from the beginning or from where the answer before ended.

        What is there from the first answer to the last comes at least once, perhaps again; what is written
        meanwhile comes or doesn't. So a table is loaded by its owner, who fenced the one before and writes nothing
        meanwhile. ``after`` means something to this store object only. Changes nothing.
        """
        return cast("LoadOutcome", self.ask(LoadTable(table, after, limit)))

    def wait_for_mark(self, mark: str, seen: int, timeout_us: int) -> MarkOutcome:
        """Return when the mark stands elsewhere than at ``seen``, or after the timeout, with where it stands.

        Early returns are fine. A store that went back may come to stand at ``seen`` again: a mark says when to
        look, not what is there, and who waits looks now and then all the same.
        """
        return cast("MarkOutcome", self.ask(WaitForMark(mark, seen, timeout_us)))

    def drop_stream(self, stream: str, epoch: int) -> DropOutcome:
        """Remove the stream with all its partitions, entries, producers and positions, read or not.

        Fenced when a producer has a higher epoch; Absent when there is no stream, so also for a repeat. What comes
        later for it has Failed, and makes no stream. A name is used again under a higher epoch only, or not at
        all: a drop that was given up may be done late.
        """
        return cast("DropOutcome", self.ask(DropStream(stream, epoch)))

    def together(self, *requests: JoinedRequest, is_decided: bool = False) -> TogetherOutcome:
        """All requests in one step, or none of them. One outcome for each, in ``AllDone`` or ``NoneDone``.

        Values and marks have no identity by which a late repeat could be told from a newer write. So they are
        written only beside something that has: the append that decides, or a commit, which is Kept when it comes
        late. Other requests with them have Failed.

        With ``is_decided`` the first request, an append, decides by its identity. New: all is done with it. Stored
        before: all was done with it, so nothing is touched, and the answer is AllDone with Stored (``new`` 0) and
        Untouched. Refused: NoneDone. An unknown outcome is asked again, with the same requests, until it is known.
        Beside a run that is new every other append must be wholly new, and Failed says where one is not: somebody
        else wrote under its identity.
        """
        return cast("TogetherOutcome", self.ask(Together(requests, is_decided)))


class Loan:
    """That a transaction is lent: for its whole block, or to one of the calls in it.

    What a handler has begun and does not await may go on when its message is done and another one has the same
    transaction. So it is its loan that must be open, and not the transaction alone.
    """

    def __init__(
        self, transaction: Transaction, lock: AbstractContextManager[object] | None = None
    ) -> None:
        self.transaction = transaction
        self.lock: AbstractContextManager[object] = nullcontext() if lock is None else lock
        """Of all loans of a transaction: held by whoever writes, so that none ends in the middle of that."""
        self.is_over = False

    def require(self) -> None:
        """Raises TransactionEnded when it is over."""
        if self.is_over:
            raise TransactionEnded(LATE)

    def end(self) -> None:
        with self.lock:
            self.is_over = True


_LOANS: ContextVar[tuple[Loan, ...]] = ContextVar("surepipe_loans", default=())
"""The calls that this code was begun in. A task and ``asyncio.to_thread`` inherit it."""


class Transaction:
    """Writes that happen together when the block ends, or not at all.

    Each store adds its own means for the caller's own writes. After the block ``outcomes`` has one outcome per
    request, in order. ``done`` is true when all of it is done (by this block, or before where an append decides);
    otherwise nothing was written, by the requests or by the caller. An exception in the block writes nothing and
    goes on to the caller.
    """

    def __init__(
        self,
        changes: list[Callable[[], None]] | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """``changes``: what is called in the step that does all of it, where the store is in this process.
        ``lock``: one that a thread may take again, where several threads may write."""
        self.done = False
        self.outcomes: tuple[JoinedOutcome, ...] = ()
        self.requests: list[JoinedRequest] = []
        self.is_decided = False
        self._changes = changes
        self._whole = self._loan = Loan(self, lock)

    def add(self, request: JoinedRequest) -> None:
        with in_time(self):
            self.requests.append(request)

    def append(self, request: AppendRun) -> None:
        self.add(request)

    def commit(self, request: CommitPosition) -> None:
        self.add(request)

    def decided_by(self, request: AppendRun) -> None:
        """Add the append that decides (``Store.together``): before all others, else MisuseError."""
        if self.requests:
            raise MisuseError(
                "the append that decides a transaction comes first: begin with decided_by"
            )
        self.add(request)
        self.is_decided = True

    def put(self, table: str, pairs: Mapping[bytes, bytes]) -> None:
        """Add values: beside the append that decides, or a commit."""
        self.add(PutValues(table, pairs))

    def drop(self, table: str, keys: Sequence[bytes]) -> None:
        """Add keys that are to go: beside the append that decides, or a commit."""
        self.add(DropValues(table, keys))

    def raise_mark(self, mark: str) -> None:
        """Add a mark that goes up: beside the append that decides, or a commit."""
        self.add(RaiseMark(mark))

    @property
    def is_over(self) -> bool:
        """True when what the caller did has ended it inside of the block, so that nothing of it is left."""
        return False

    def joined(self) -> Together:
        """What was added, as one request."""
        return Together(tuple(self.requests), self.is_decided and bool(self.requests))

    def settle(self, outcome: TogetherOutcome) -> None:
        self.done = isinstance(outcome, AllDone)
        if isinstance(outcome, AllDone | NoneDone):
            self.outcomes = outcome.outcomes
        else:
            self.outcomes = (outcome,) * len(self.requests)


def when_done(transaction: Transaction, change: Callable[[], None]) -> bool:
    """Have this called in the step that does the transaction, even if its answer gets lost; False where the store
    can't do that."""
    changes = _changes_of(transaction)
    if changes is None:
        return False
    changes.append(change)
    return True


def _changes_of(transaction: Transaction) -> list[Callable[[], None]] | None:
    """No method, as stages see the transaction."""
    return transaction._changes  # pyright: ignore[reportPrivateUsage]


OVER = (
    "a statement ended the transaction that this ran in (INSERT OR ROLLBACK, ON CONFLICT ROLLBACK, "
    "RAISE(ROLLBACK) in a trigger, a closed connection), and nothing of it is left: use ABORT in place of "
    "ROLLBACK, and leave the end to the pipe"
)


LATE = (
    "this comes late: the call that was lent the transaction has ended (its message was handled, or failed and "
    "comes again), and nothing of this was done. Await every task and thread that uses a transaction before the "
    "handler returns or raises: asyncio.TaskGroup does; asyncio.gather leaves the others running when one raises, "
    "and asyncio.wait those that its timeout finds"
)


@contextmanager
def in_time(transaction: Transaction) -> Generator[None]:
    """What is done in this block is done before the transaction ends. Raises TransactionEnded where it has ended,
    or the call that this code was begun in."""
    whole = whole_loan_of(transaction)
    with whole.lock:
        whole.require()
        for loan in _LOANS.get():
            if loan.transaction is transaction:
                loan.require()
        yield


@contextmanager
def lent_for_block(transaction: Transaction) -> Generator[None]:
    """For the store, around what it yields the transaction to: behind that nothing is taken any more."""
    try:
        yield
    finally:
        whole_loan_of(transaction).end()


@contextmanager
def lent_to_call(transaction: Transaction) -> Generator[None]:
    """Around a part of the block that is taken back alone. A part within it is of the same call."""
    with in_time(transaction):
        whole = whole_loan_of(transaction)
        is_inside = loan_of(transaction) is not whole
    if is_inside:
        yield
        return
    loan, around = Loan(transaction, whole.lock), _LOANS.get()
    _lend(transaction, loan)
    _LOANS.set((*around, loan))
    try:
        yield
    finally:
        loan.end()
        _lend(transaction, whole)
        _LOANS.set(around)


def whole_loan_of(transaction: Transaction) -> Loan:
    """No method, as stages see the transaction."""
    return transaction._whole  # pyright: ignore[reportPrivateUsage]


def loan_of(transaction: Transaction) -> Loan:
    """The one to the call that is in the transaction now. No method, as above."""
    return transaction._loan  # pyright: ignore[reportPrivateUsage]


def _lend(transaction: Transaction, loan: Loan) -> None:
    transaction._loan = loan  # pyright: ignore[reportPrivateUsage]


def require_open(transaction: Transaction) -> None:
    """For whoever has lent it, behind each call of the borrower's: raises TransactionEnded."""
    if transaction.is_over:
        raise TransactionEnded(OVER)


@contextmanager
def taken_back(transaction: Transaction) -> Generator[None]:
    """When this inner block raises, what was added in it is taken back, and the rest stays."""
    requests, changes = transaction.requests, _changes_of(transaction) or []
    before = len(requests), len(changes)
    try:
        with lent_to_call(transaction):
            yield
    except BaseException:
        del requests[before[0] :], changes[before[1] :]
        raise


@runtime_checkable
class TransactionalStore(Protocol):
    """A store that can do appends, commits and the caller's own writes in one atomic step."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin; see ``Transaction``."""
        ...


def is_closed(store: object) -> bool:
    """Whether somebody has closed this store, as far as its kind tells: then no later request is done."""
    return bool(getattr(store, "closed", False))


def called(store: object) -> str:
    """How people call a store: its kind, and its name where it has one."""
    kind = str(getattr(store, "kind", type(store).__name__))
    name = str(getattr(store, "name", kind))
    return kind if name == kind else f"{kind} {name}"


def said_of(what: str, stream: str, outcome: object) -> str:
    """Word a store's unexpected answer for people: ``what`` was wanted of the stream, and what came in its place.

    A store names the stream in some of its answers, as they may be read alone; here the name stands once.
    """
    why = str(outcome).removeprefix(f"stream {stream!r}").lstrip(": ")
    return f"{what} {stream!r}: {why}"


def said_of_full(stream: str, full: Full) -> str:
    """Word for people that a stream has no room: who holds it up, and what to do."""
    advice = ""
    if full.reader:
        advice = (
            ". Let it read on, or forget it if it never comes back (surepipe.storage.forget_reader)"
        )
    elif full.is_unread:
        advice = (
            ". Let its reader begin; or, if entries may go unread, give it a retention with force=True "
            "(surepipe.storage.change_retention)"
        )
    return f"stream {stream!r} is {full.words}{advice}"


def said_together(outcomes: Iterable[object]) -> str:
    """Word the answers to requests that were to be done together: those that say why they were not."""
    whys = [str(one) for one in outcomes if isinstance(one, _Told | Unavailable)]
    return "; ".join(dict.fromkeys(whys)) or "nobody says why"
