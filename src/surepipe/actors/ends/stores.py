"""Assigns stores to the tasks of a pipe, rates their durability, and connects them to its machines."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Protocol, TypeAlias, cast, runtime_checkable

from surepipe.actors.codecs import Codec, wire_form
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.runtime import Runtime
from surepipe.actors.store_calls import StateStore
from surepipe.core.effects import (
    Notice,
    NoticeKind,
    SaveState,
    Write,
    WriteFailed,
    WriteFenced,
    WriteOutcome,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.store_requests import (
    KEEP_ALL,
    Ahead,
    AppendRun,
    Batch,
    ClaimReader,
    CommitPosition,
    Committed,
    Created,
    Diverged,
    Empty,
    Exists,
    Failed,
    FencedOut,
    Full,
    GetPosition,
    Identity,
    IndexRequest,
    Kept,
    Level,
    NoPosition,
    NoStream,
    OtherStack,
    Owner,
    Position,
    Reset,
    Retention,
    Store,
    StoreRequest,
    StreamInfo,
    TransactionalStore,
    Trimmed,
    Unavailable,
    called,
    is_closed,
    said_of,
    said_of_full,
)
from surepipe.errors import (
    ConfigurationError,
    MisuseError,
    StacksDiffer,
    StoreReset,
    StoreUnavailable,
)
from surepipe.guarantees import hops
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.agreement import LAYER_ABOVE, Terms, difference, stack_text
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.options import Stream, stream_layer
from surepipe.pipes.stream.position import commit_of
from surepipe.storage.journal import StoreJournal
from surepipe.storage.letters import DeadLetterStream
from surepipe.storage.positions import (
    CHANCE_BITS,
    Claims,
    ReceiverState,
    elsewhere_of,
    named_elsewhere,
    note_read,
    numbered,
)

# Which stack wrote a stream: a record beside it, for readers that are configured apart from the writers.
#
# A writer notes its terms, in a position of the same store, before it writes; a reader compares them with its
# own before it hands up the first message of each life of a writer, and leaves word where they differ, which
# the writer finds when it appends. Beside these stands what the whole stream is written as, and from which index
# on: a writer with other terms, also one that is new, begins only when all before it is read. A stream without a
# record was written by an earlier version, and is taken as it is.


LOOK_AGAIN_US = 5_000_000
STRETCHES_MAX = 16
OTHERS_MAX = 64
"""So many other producers are asked for their layers: who has more of them has sinks, which have none."""
TAG = 1
TRIES = 8


def sink_of(producer: str) -> str:
    """Who noted the terms of a sink: without a transaction each of its messages is a producer of its own,
    PIPELINE/SINK/IDENTITY."""
    return "/".join(producer.split("/", 2)[:2])


def bare_terms(codec: Codec) -> Terms:
    """Those of a sink or source of a pipeline: a stream, and no layers above it."""
    return Terms(stack_text([Stream()]), wire_form(codec))


@dataclass(frozen=True, slots=True)
class Stretch:
    """The terms of all that was written by lives above ``above``."""

    above: int
    terms: Terms


@dataclass(frozen=True, slots=True)
class Chapter:
    """The terms of all that the stream has from this index on."""

    index: int
    terms: Terms


class StackRecords:
    """The records of one stream, as one end of a pipe reads and writes them. All calls may block."""

    def __init__(
        self,
        store: Store,
        stream: str,
        incarnation: int,
        terms: Terms,
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._stream = stream
        self._incarnation = incarnation
        self._terms = terms
        self._runtime = runtime
        self._compared: dict[str, int] = {}
        self._sinks: set[str] = set()
        """Those whose terms are as they should be."""
        self._words_seen = 0
        self._looked_at = 0
        self.told: Callable[[str], object] | None = None
        """What a writer does when a reader has left word."""

    # The writer.

    def begin_to_write(self, producer: str, holds_rows: Callable[[], bool]) -> None:
        """Note the terms of this writer. ``holds_rows``: whether its journal has messages that are not confirmed,
        and were accepted with other terms.

        Raises StacksDiffer where something that is still to be read, or to be written, is of other terms; and
        StoreUnavailable.
        """
        stretches = self._written_by(producer)
        known = stretches[-1].terms if stretches else None
        words = self._get(self._words, producer)
        self._words_seen = words.next if words is not None else 0
        self._looked_at = self._runtime.now()
        self.require_alone(producer)
        if known is not None and not known.fits(self._terms) and holds_rows():
            raise StacksDiffer(
                f"stream {self._stream!r}: {producer!r} wrote it, and its journal holds messages for it, as "
                f"{known}; this sender has {self._terms}. {_FORMER_FIRST}"
            )
        self._begin_chapter(known)
        if known is not None and known.says_no_less_than(self._terms):
            return
        above = 0
        if known is not None:
            producers = self._described().producers
            above = max((one.epoch for one in producers if one.producer == producer), default=0)
        stretches = [*stretches, Stretch(above, self._terms)][-STRETCHES_MAX:]
        lines = [_line(one.above, one.terms) for one in stretches]
        self._put(self._notes, producer, [self._incarnation, *lines])

    def _begin_chapter(self, known: Terms | None) -> None:
        """See that what is not read is of these terms. ``known``: those of this writer, for a stream of an earlier
        version, which has only them."""
        noted = self._chapters()
        chapters = noted or ([Chapter(1, known)] if known is not None else [])
        begin = 1
        if chapters:
            current = chapters[-1].terms
            if noted and current.says_no_less_than(self._terms):
                return
            info = self._described()
            if not current.fits(self._terms):
                self._require_read(info, current)
            begin = info.next
        chapters = [*chapters, Chapter(begin, self._terms)][-STRETCHES_MAX:]
        lines = [_line(one.index, one.terms) for one in chapters]
        self._put(self._all, self._stream, [self._incarnation, *lines])

    def _require_read(self, info: StreamInfo, current: Terms) -> None:
        """Whose place is elsewhere can't be asked how far it is: it stops by itself, and leaves word that it is
        there. Without any reader the messages wait for one, and the former configuration might be forgotten."""
        if info.earliest == info.next:
            return
        late = [reader for reader in info.readers if reader.next < info.next]
        if not late and (info.readers or self._read_elsewhere()):
            return
        who = ", ".join(f"{one.reader!r} is at {one.next} of {info.next}" for one in late)
        raise StacksDiffer(
            f"stream {self._stream!r}: who wrote it did so as {current}, and not all of that is read "
            f"({who or 'no reader has begun'}); this sender has {self._terms}. {_FORMER_FIRST}"
        )

    def _described(self) -> StreamInfo:
        info = self._info()
        if isinstance(info, NoStream):
            raise StoreUnavailable(said_of("stream", self._stream, info))
        return info

    def look_for_words(self, producer: str) -> None:
        """Tell what a reader said since the last look, now and then."""
        if self.told is None or self._runtime.now() - self._looked_at < LOOK_AGAIN_US:
            return
        self._looked_at = self._runtime.now()
        try:
            words = self._get(self._words, producer)
        except StoreUnavailable:
            return  # the append that comes now tells that
        if words is None or words.next <= self._words_seen:
            return
        self._words_seen = words.next
        reader, *terms = cast("list[str]", json.loads(words.state))
        met = Terms(*terms)
        if not self._terms.fits(met):
            self.told(f"reader {reader!r}: {difference(self._terms, met)}")

    # The reader.

    def compared(self, reader: str, batch: Batch) -> Batch | OtherStack | Unavailable:
        """The batch as far as all that wrote it have the terms of this reader."""
        for number, entries in enumerate(batch.entries):
            why = self._why_not(entries.producer, entries.epoch, entries.index)
            if why is not None and number:  # met again when the reader comes to it
                return Batch(batch.entries[:number], entries.index, batch.end)
            if why is not None:
                if isinstance(why, OtherStack):
                    self._leave_word(entries.producer, reader)
                return why
        return batch

    def may_begin_at(self, reader: str, index: int) -> OtherStack | Unavailable | None:
        """Why a reader that has no place yet may not begin here; None where it may, or nothing is there yet."""
        found = self._store.identify(self._stream, index)
        if isinstance(found, Unavailable):
            return found
        if not isinstance(found, Identity):
            return None
        why = self._why_not(found.producer, found.epoch, index)
        if not isinstance(why, OtherStack):
            return why
        self._leave_word(found.producer, reader)
        return OtherStack(f"{why.reason}{self._other_beginning(index)}")

    def _why_not(self, producer: str, epoch: int, index: int) -> OtherStack | Unavailable | None:
        sink = sink_of(producer)
        if self._compared.get(producer) == epoch or sink in self._sinks:
            return None
        try:
            stretches = self._written_by(producer)
            terms = [stretch.terms for stretch in stretches if stretch.above < epoch]
            if not terms and sink != producer:
                terms = [stretch.terms for stretch in self._written_by(sink)]
                if terms and terms[-1].fits(self._terms):
                    self._sinks.add(sink)
            if not terms or terms[-1].fits(self._terms):
                self.require_alone(producer)
                self._compared[producer] = epoch
                return None
        except StoreUnavailable as error:
            return Unavailable(str(error))
        except StacksDiffer as error:
            return OtherStack(str(error))
        return OtherStack(
            f"stream {self._stream!r}, written by {producer!r}: "
            f"{difference(self._terms, terms[-1])}. If the layers were changed: what stands from entry "
            f"{index} on is read with those of its writer, and a reader of the same name goes on behind it "
            "with its own"
        )

    def _other_beginning(self, index: int) -> str:
        """Where else a new reader may begin; nothing where that is not known."""
        try:
            chapters = self._chapters()
        except StoreUnavailable:
            return ""
        for one in chapters:
            if one.index > index and one.terms.fits(self._terms):
                return f"; or leave that to other readers, and begin at {one.index} (start: {one.index})"
        return ""

    def note_reader_elsewhere(self, reader: str) -> Unavailable | None:
        """Leave word that somebody reads whose place is in another store; why that could not be done, if so."""
        try:
            known = self._read_elsewhere()
            if reader not in known:
                self._put(self._elsewhere, self._stream, [self._incarnation, *known, reader])
            note_read(self._store, self._stream)  # its retention waits for no other reader
        except StoreUnavailable as error:
            return Unavailable(str(error))
        return None

    def _read_elsewhere(self) -> tuple[str, ...]:
        return named_elsewhere(self._get(self._elsewhere, self._stream), self._incarnation)

    def _leave_word(self, producer: str, reader: str) -> None:
        try:
            self._put(self._words, producer, [reader, self._terms.stack, self._terms.payloads])
        except (StoreUnavailable, ConfigurationError) as error:
            logger.warning("%s was not told that %s can't read it: %s", producer, reader, error)

    # Both.

    def require_alone(self, producer: str) -> None:
        """Layers above a stream follow the numbers of one sender, and would drop those of another one as former.

        Raises StacksDiffer where somebody else has written with layers, and StoreUnavailable.
        """
        if LAYER_ABOVE not in self._terms.stack:
            return
        info = self._info()
        producers = info.producers if isinstance(info, StreamInfo) else ()
        others = (one.producer for one in producers if one.last and one.producer != producer)
        layered = filter(self._has_layers, islice(others, OTHERS_MAX))
        if (other := next(layered, None)) is not None:
            raise StacksDiffer(
                f"stream {self._stream!r}: {producer!r} and {other!r} both write it, and the layers above it "
                f"({self._terms.stack}) follow the numbers of one sender: they would drop what the other one "
                "sends. Give each sender a stream of its own, or leave the layers out: a stream alone delivers "
                "once and in order, whoever sends"
            )

    def _has_layers(self, producer: str) -> bool:
        """Whether a producer has ever written with layers above the stream."""
        return any(LAYER_ABOVE in one.terms.stack for one in self._written_by(producer))

    def _info(self) -> StreamInfo | NoStream:
        info = self._store.info(self._stream)
        if not isinstance(info, StreamInfo | NoStream):
            raise StoreUnavailable(said_of("stream", self._stream, info))
        return info

    # The records.

    @property
    def _notes(self) -> str:
        return f"{self._stream}/stacks"

    @property
    def _words(self) -> str:
        return f"{self._stream}/stacks/readers"

    @property
    def _all(self) -> str:
        return f"{self._stream}/stacks/all"

    @property
    def _elsewhere(self) -> str:
        return elsewhere_of(self._stream)

    def _written_by(self, producer: str) -> list[Stretch]:
        """What this producer noted."""
        return [Stretch(*one) for one in self._lines(self._notes, producer)]

    def _chapters(self) -> list[Chapter]:
        """What the stream was written as, one after the other."""
        return [Chapter(*one) for one in self._lines(self._all, self._stream)]

    def _lines(self, stream: str, name: str) -> list[tuple[int, Terms]]:
        """What was noted here; nothing where the stream was made anew since."""
        found = self._get(stream, name)
        if found is None:
            return []
        incarnation, *lines = json.loads(found.state)
        if incarnation != self._incarnation:
            return []
        return [(number, Terms(*terms)) for number, *terms in lines]

    def _get(self, stream: str, name: str) -> Position | None:
        found = self._store.get(stream, name)
        if isinstance(found, Unavailable):
            raise StoreUnavailable(f"{stream!r}: {found.detail or 'no answer'}")
        return found if isinstance(found, Position) else None

    def _put(self, stream: str, name: str, value: object) -> None:
        """Write a record. Two that write at once have different claims, and the later one reads first."""
        claimant = numbered(self._runtime.wall_ms(), 0)
        state = json.dumps(value).encode()
        for _ in range(TRIES):
            claimed = self._store.claim(stream, name, claimant)
            if isinstance(claimed, FencedOut):  # nobody owns a record: whoever comes is the next
                claimant = claimed.by + 1
                continue
            if not isinstance(claimed, Owner):
                raise StoreUnavailable(f"{stream!r}: {claimed}")
            before = self._get(stream, name)
            following = before.next + 1 if before is not None else 1
            done = self._store.commit(
                CommitPosition(
                    stream, name, claimed.number, TAG, following, None, state, previous_tag=TAG
                )
            )
            if isinstance(done, Committed):
                return
            if isinstance(done, Failed):
                raise ConfigurationError(f"{stream!r}: {done.reason}")
        raise StoreUnavailable(f"{stream!r}: the record could not be written")


_FORMER_FIRST = (
    "Let the readers read all of that first, with the former configuration at both ends; or give the stream "
    "another name"
)


def _line(number: int, terms: Terms) -> list[object]:
    return [number, terms.stack, terms.payloads]


logger = logging.getLogger("surepipe")
Letters: TypeAlias = Store | DeadLetterPlace
"""Where dead letters go: a store (into a stream of it), a ``DeadLetterStream``, or any callable."""

NumberOfLife: TypeAlias = Callable[[], int]
"""The number of a life that begins now; see ``surepipe.storage.positions``."""

_LETTERS = hops.DeclaredStore("dead letters", Level.NONE, kind="memory")


@dataclass(frozen=True, slots=True)
class StoreRoles:
    """The store for each task of a pipe.

    ``stream``: the messages of a stream layer. ``journal``: what the sender has accepted and not seen confirmed.
    ``state``: how far the receiver is. ``letters``: messages that could not be settled.
    """

    stream: Store | None = None
    journal: Store | None = None
    state: Store | None = None
    letters: Letters | None = None
    retention: Retention = KEEP_ALL

    @property
    def may_begin_away(self) -> bool:
        """True when a sender can begin while its stream's store is away: what it accepts is kept elsewhere."""
        return self.journal is not None and self.journal is not self.stream


@runtime_checkable
class _Described(Protocol):
    """A store that says what it is."""

    kind: str
    name: str


@runtime_checkable
class KeepsLetters(Protocol):
    """A callable for letters that says where it stores them. Of another one nobody knows what survives."""

    @property
    def stores(self) -> Sequence[Store]:
        """Each store that a letter may go to; at least one."""
        ...


class _WithLevel(Protocol):
    @property
    def level(self) -> Level: ...


def described(store: _WithLevel, *, may_be_away: bool = False) -> hops.DeclaredStore:
    """A store as the algebra sees it. Raises StoreUnavailable where the level must be asked for and nobody
    answers. ``may_be_away``: then a level that was declared counts."""
    known = store if isinstance(store, _Described) else None
    can_transact = isinstance(store, TransactionalStore)
    try:
        level, is_declared = store.level, bool(getattr(store, "level_is_declared", False))
    except StoreUnavailable:
        declared: object = getattr(store, "declared_level", None)
        if not may_be_away or not isinstance(declared, Level):
            raise
        level, is_declared = declared, True
    return hops.DeclaredStore(
        known.name if known else type(store).__name__,
        level,
        kind=known.kind if known else "other",
        transactional=can_transact and bool(getattr(store, "one_slot", True)),
        declared=is_declared,
    )


def letter_place(
    pipe: str, layers: tuple[LayerOptions, ...], letters: Letters | None
) -> DeadLetterPlace | None:
    """What the pipe calls with each letter: for a store, a stream of it named ``<pipe>/dead``. A reader with a
    name of its own has its own: what failed there did not fail at the others."""
    if letters is None or callable(letters):
        return letters
    return DeadLetterStream(letters, _belonging_to(pipe, "dead", stream_layer(layers).reader))


def journal_of(
    pipe: str, layers: tuple[LayerOptions, ...], store: Store | None, terms: Terms
) -> StoreJournal | None:
    """The journal of a pipe's sender with these terms, in the stream ``<pipe>/journal``. A producer with a name of
    its own has its own: another one would send what this one has still to send, as its own messages."""
    if store is None:
        return None
    stream = _belonging_to(pipe, "journal", stream_layer(layers).producer)
    return StoreJournal(store, store, pipe, stream=stream, terms=terms)


def _belonging_to(pipe: str, what: str, owner: str | None) -> str:
    return f"{pipe}/{what}" if owner in (None, pipe) else f"{pipe}/{what}/{owner}"


def hop_of(
    pipe: str,
    layers: tuple[LayerOptions, ...],
    route: hops.DeclaredRoute,
    roles: StoreRoles,
    *,
    boundary: Boundary,
    retries: int | None,
    lanes: int = 0,
) -> hops.Hop:
    """The pipe as the algebra sees it. Raises ConfigurationError for a store that has no use."""
    has_stream = any(isinstance(layer, Stream) for layer in layers)
    if roles.stream is not None and not has_stream:
        raise ConfigurationError(
            f"pipe {pipe}: store keeps the messages of a stream layer, and there is none in "
            f"{' > '.join(map(str, layers))}; add one, or name the store as journal or state"
        )
    positions = roles.state or roles.stream
    return hops.Hop(
        pipe,
        layers,
        route=route,
        boundary=boundary,
        journal=described(roles.journal) if roles.journal else None,
        receiver_state=described(roles.state) if roles.state else None,
        sink=described(positions, may_be_away=roles.may_begin_away and positions is roles.stream)
        if positions and boundary is Boundary.COMMITTED
        else None,
        stream=described(roles.stream, may_be_away=roles.may_begin_away) if roles.stream else None,
        dead_letters=_described_letters(roles.letters),
        retries=retries,
        lanes=lanes,
        forced_trim=_may_pass_reader(roles),
    )


def _described_letters(letters: Letters | None) -> hops.DeclaredStore | None:
    if letters is None:
        return None
    if isinstance(letters, DeadLetterStream):
        return described(letters.store)
    asked: object = letters
    if isinstance(asked, KeepsLetters):
        places = [described(store, may_be_away=True) for store in asked.stores]
        return min(places, key=lambda place: place.level)
    return _LETTERS if callable(letters) else described(letters)


def _may_pass_reader(roles: StoreRoles) -> bool:
    """A stream can't spare what a reader has still to read if the reader's position is in another store."""
    retention = roles.retention
    is_bounded = retention.max_bytes is not None or retention.max_age_us is not None
    is_elsewhere = roles.state is not None and roles.state is not roles.stream
    return retention.force or (is_bounded and is_elsewhere)


class ReaderBeginning:
    """Finds out behind which message of each producer a reader begins that does not read all of its stream, for a
    trace: who audits it can't tell what was there before from what got lost.

    A reader that begins at the end is behind all that the store has. Of one that begins elsewhere the first
    message of a producer that it meets tells it, if nothing was trimmed away before.
    """

    def __init__(
        self, store: Store, stream: str, tell: Callable[[str, int, int], object], always: bool
    ) -> None:
        self._store = store
        self._stream = stream
        self._tell = tell
        self._is_told_always = always
        self._met: set[str] | None = None
        """The producers that were told of; None while there is nothing to tell."""
        self._before: set[str] = set()
        """The producers that had anything in the stream when the reader began."""

    def see(self, request: object, outcome: object, *, has_no_place: bool) -> None:
        """An answer of the store. ``has_no_place``: the reader was not registered when it was asked."""
        if isinstance(request, CommitPosition) and has_no_place and isinstance(outcome, Committed):
            self._begin(request.next)
        elif self._met is not None and isinstance(outcome, Batch):
            for one in outcome.entries:
                if one.producer not in self._met:
                    self._met.add(one.producer)
                    is_new = one.producer not in self._before
                    self._tell(one.producer, *((0, 0) if is_new else (one.epoch, one.first - 1)))
        elif isinstance(outcome, Trimmed | Reset | Ahead | Diverged):
            self._met = None

    def _begin(self, index: int) -> None:
        info = self._store.info(self._stream)
        if not isinstance(info, StreamInfo) or (index == 1 and not self._is_told_always):
            return
        self._met, self._before = set(), {one.producer for one in info.producers}
        if info.next == index:
            self._met |= self._before
            for one in info.producers:
                self._tell(one.producer, one.epoch, one.last)


class StreamStores:
    """The stores of one stream layer: where its messages are, and where its reader's position is."""

    def __init__(
        self, streams: Store, positions: Store, stream: str, number_of_life: NumberOfLife
    ) -> None:
        self.stream = stream
        self._streams = streams
        self._positions = positions
        self._claims = Claims(positions, number_of_life)
        self.place, self.positions = called(streams), called(positions)
        """How people call its stores."""
        self.records: StackRecords | None = None
        self.full = ""
        self._reader = ""
        self._beginning: ReaderBeginning | None = None
        self._has_no_place = False
        """True while the reader is not registered with the stream: it is refused before that."""
        self._is_known = positions is streams
        """False until whoever writes can know that the stream is read."""
        self._making = threading.Lock()
        self._to_make: list[Callable[[], None]] = []
        """What is to be done before the next call: what the store was away for when its sender began, say."""
        self._refused = ""
        self._is_writing = False
        self._unheard: list[Notice] = []
        self.refuse: Callable[[ConfigurationError], object] = lambda _: None
        """Told why the stream can't be used, where that is found only then."""
        self.told: Callable[[str], object] = lambda _: None
        """Told what a reader says of who writes."""
        self.lost: Callable[[Notice], object] = self._unheard.append
        """Told what the stream lacks that the journal knows to have been in it."""

    def make(
        self, retention: Retention, terms: Terms, runtime: Runtime, *, may_be_away: bool = False
    ) -> None:
        """Make the stream, if it is not there, for an end with these terms. Raises StoreUnavailable, and
        ConfigurationError when it was made differently. ``may_be_away``: what needs the store is done when it is
        there, before the first call."""
        self._now_or_later(partial(self._make, retention, terms, runtime), may_be_away)

    def write_as(
        self,
        producer: str,
        holds_rows: Callable[[], bool],
        confirmed: tuple[int, int],
        *,
        alone: bool,
    ) -> None:
        """Note who writes, for readers, and see whether the stream still has what the journal knows to be
        ``confirmed`` (epoch and seq). ``alone``: no layer above the stream has numbers of its own. Raises
        StacksDiffer, StoreUnavailable."""
        is_away = bool(self._to_make)
        held = holds_rows() if is_away else False  # later it holds what this life has accepted, too

        def write() -> None:
            assert self.records is not None
            self.records.begin_to_write(producer, (lambda: held) if is_away else holds_rows)
            self.records.told = self._reader_said
            if confirmed[1] and (gone := self._gone(producer, confirmed, alone=alone)):
                self.lost(gone)

        self._now_or_later(write, is_away)

    def listen(
        self,
        refuse: Callable[[ConfigurationError], object],
        told: Callable[[str], object],
        lost: Callable[[Notice], object],
    ) -> None:
        """Who hears from now on what is found of the stream, and of what was found by now."""
        self.refuse, self.told, self.lost = refuse, told, lost
        for notice in self._unheard:
            lost(notice)
        self._unheard.clear()

    def _gone(self, producer: str, confirmed: tuple[int, int], *, alone: bool) -> Notice | None:
        """What the stream had confirmed by the journal, and does not know of. It does not matter who made it
        anew."""
        info = self._streams.info(self.stream)
        if not isinstance(info, StreamInfo):
            return None  # whoever asks next is told
        epoch, through = confirmed
        known = next((one for one in info.producers if one.producer == producer), None)
        if known is not None and (not alone or (known.epoch, known.last) >= confirmed):
            return None
        first = known.last + 1 if known is not None and known.epoch == epoch else 1
        detail = (
            f"stream {self.stream!r} lacks what it had confirmed before, by the journal of {producer!r}: it was "
            f"emptied, made anew, or went back. Of epoch {epoch}, {first}..{through} are gone, and what earlier "
            "epochs had in it: were they read?"
        )
        return Notice(NoticeKind.STORE_ROLLBACK, epoch, ((first, through),), detail)

    def _reader_said(self, why: str) -> None:
        self.told(why)

    def _now_or_later(self, step: Callable[[], None], may_be_away: bool) -> None:
        try:
            if not self._to_make:
                step()
                return
        except StoreUnavailable as error:
            if not may_be_away:
                raise
            logger.warning(
                "stream %s: its store is away, what comes stays in the journal: %s",
                self.stream,
                error,
            )
        self._to_make.append(step)

    def _why_not_made(self) -> Unavailable | Failed | None:
        """Do what was left to do; why that can't be done, if so. From any clerk: one does it, and nobody waits for
        that one, because clerks of a simulation share a thread."""
        if self._refused:
            return Failed(self._refused)
        if not self._making.acquire(blocking=False):
            return Unavailable(f"stream {self.stream!r} is being looked at")
        try:
            while self._to_make:
                self._to_make[0]()
                del self._to_make[0]
        except StoreUnavailable as error:
            return Unavailable(str(error))
        except ConfigurationError as error:
            self._refused = str(error)
            self.refuse(error)
            return Failed(self._refused)
        finally:
            self._making.release()
        return None

    def _make(self, retention: Retention, terms: Terms, runtime: Runtime) -> None:
        outcome = self._streams.create(self.stream, 1, retention)
        match outcome:
            case Created(incarnation) | Exists(incarnation):
                self.records = StackRecords(self._streams, self.stream, incarnation, terms, runtime)
            case Unavailable():
                raise StoreUnavailable(said_of("stream", self.stream, outcome))
            case _:
                raise ConfigurationError(said_of("stream", self.stream, outcome))

    def call(self, request: object) -> object:
        """The outcome of a store call. A machine claims as the how-many-th of this life."""
        if isinstance(request, AppendRun) and self.records is not None and not self._is_writing:
            self._is_writing = (
                True  # somebody else may have begun to write since this sender was made
            )
            self._to_make.append(partial(self.records.require_alone, request.producer))
        if (self._to_make or self._refused) and (why := self._why_not_made()) is not None:
            return why
        if isinstance(request, ClaimReader):
            self._reader = request.reader
            return self._claims.claim(request.stream, request.reader, request.claimant)
        if self.records is not None and isinstance(request, AppendRun):
            self.records.look_for_words(request.producer)
        if self._has_no_place and isinstance(request, CommitPosition):
            assert self.records is not None
            why = self.records.may_begin_at(request.reader, request.next)
            if why is not None:
                return why
        store = self._positions if isinstance(request, IndexRequest) else self._streams
        return self._found(request, store.ask(cast("StoreRequest", request)))

    def _found(self, request: object, outcome: object) -> object:
        """The outcome as this end may see it."""
        if isinstance(request, AppendRun):
            self.full = said_of_full(self.stream, outcome) if isinstance(outcome, Full) else ""
        if self.records is None:
            return outcome
        if self._beginning is not None:
            self._beginning.see(request, outcome, has_no_place=self._has_no_place)
        if isinstance(request, GetPosition | CommitPosition):
            self._has_no_place = isinstance(outcome, NoPosition) or (
                self._has_no_place and isinstance(outcome, Unavailable)
            )
        if isinstance(outcome, Batch):
            outcome = self.records.compared(self._reader, outcome)
        if isinstance(outcome, Reset):  # the one that was made anew knows of nobody
            self._is_known = self._positions is self._streams
        if not self._is_known and isinstance(outcome, Batch | Empty):
            why = self.records.note_reader_elsewhere(self._reader)
            if why is not None:
                return why
            self._is_known = True
        return outcome

    def tell_beginning(self, tell: Callable[[str, int, int], object], *, always: bool) -> None:
        """Tell of each producer which message a reader begins behind that has no place yet; unless ``always``, not
        of one that begins at the first of all."""
        self._beginning = ReaderBeginning(self._streams, self.stream, tell, always)

    def stop_waiting(self) -> bool:
        """End the waits that are under way; False when the store has no such means."""
        stop = getattr(self._streams, "stop_waiting", None)
        return stop is not None and stop() is not False

    def end(self) -> tuple[int, int]:
        """The incarnation of the stream, and the index that its next message will get. Raises StoreUnavailable
        when the store does not say, StoreReset when the stream is gone."""
        outcome = self._streams.info(self.stream)
        if isinstance(outcome, NoStream):
            raise StoreReset(said_of("stream", self.stream, outcome))
        if not isinstance(outcome, StreamInfo):
            raise StoreUnavailable(f"{said_of('stream', self.stream, outcome)}; ask again")
        return outcome.incarnation, outcome.next

    def readers(self) -> tuple[str, ...]:
        """Who is registered as reading the stream; nobody where the store does not say."""
        outcome = self._streams.info(self.stream)
        return (
            tuple(one.reader for one in outcome.readers) if isinstance(outcome, StreamInfo) else ()
        )


@runtime_checkable
class CommittableState(StateStore, Protocol):
    """A receiver's state that can be stored together with effects."""

    def request(self, state: bytes) -> CommitPosition:
        """The commit that stores this state, for a transaction."""
        ...

    def done(self, request: CommitPosition) -> None:
        """The transaction of this commit was done."""
        ...

    def look_again(self, request: CommitPosition | None) -> bool | None:
        """Whether the commit of a transaction that nobody heard of is stored; None: a new incarnation must look.

        Raises StoreUnavailable (ask again) and ``errors.Fenced``.
        """
        ...


class StreamState:
    """The state of a stack over a stream: it stands in the committed position of its reader."""

    def __init__(self, positions: Store) -> None:
        self._positions = positions
        self.place = called(positions)

    def load(self) -> bytes | None:
        """Nothing: the machine finds its position by itself."""
        return None

    def rollback(self) -> str:
        """Nothing: the machine tells what becomes of its stream."""
        return ""

    def request(self, state: bytes) -> CommitPosition:
        """The commit that stores this state."""
        return commit_of(state)

    def done(self, request: CommitPosition) -> None:
        """The machine reads its position itself."""

    def look_again(self, request: CommitPosition | None) -> bool | None:
        """None: the machine finds its position by itself, when it begins."""
        del request
        return None

    def write(self, write: Write) -> WriteOutcome:
        """Perform a ``SaveState``; a repeat changes nothing. WriteFenced: a later owner reads now."""
        if not isinstance(write, SaveState):
            raise MisuseError(f"{type(write).__name__} is for a sender's journal, not for a reader")
        request = self.request(write.state)
        outcome = self._positions.commit(request)
        match outcome:
            case Committed():
                return WriteStored()
            case Kept(position) if position.tag == request.tag:
                return WriteStored()  # further already
            case FencedOut(by):
                return WriteFenced(by)
            case Failed(reason):
                return WriteFailed(reason, closed=is_closed(self._positions))
            case _:
                return WriteUnknown()


def lives_of(runtime: Runtime) -> NumberOfLife:
    """Numbers lives by this clock; the chance in them is drawn when the first is asked for."""
    chance = cache(lambda: runtime.rng(None).getrandbits(CHANCE_BITS))
    return lambda: numbered(runtime.wall_ms(), chance())


def stream_of(
    pipe: str, layers: tuple[LayerOptions, ...], roles: StoreRoles, number_of_life: NumberOfLife
) -> StreamStores | None:
    """How the ends of a pipe reach their stream, where they have one."""
    layer = next((layer for layer in layers if isinstance(layer, Stream)), None)
    if layer is None or roles.stream is None:
        return None
    positions = roles.state or roles.stream
    return StreamStores(roles.stream, positions, layer.stream or pipe, number_of_life)


def state_of(
    pipe: str, boundary: Boundary, roles: StoreRoles, number_of_life: NumberOfLife
) -> CommittableState | None:
    """Where the host stores the receiver's state; None where nobody does, or a stream's reader does by itself."""
    if roles.stream is None:
        if roles.state is None:
            return None
        return ReceiverState(roles.state, pipe, number_of_life=number_of_life)
    if boundary in (Boundary.BEFORE, Boundary.COMMITTED):
        return StreamState(roles.state or roles.stream)
    return None
