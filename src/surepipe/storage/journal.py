"""A sender's journal over any stream store and index store, so that what was accepted outlives the sender.

The journal is one stream with the pipe as its only producer, and one position on it. The epoch of the producer
is the life of the sender: the store itself fences older lives. Message ``n`` of an epoch is row ``n + 1`` of it;
row 1 is a head that says which older epochs the rows of this one replace, and which messages they were. So to
number messages again is a single append of head and rows, which every store does wholly or not at all; no
transaction is needed anywhere.

The position says how far the stream may be trimmed. Its state holds what is confirmed, and which epoch was
transmitted. Contents are told by identities alone; an index that is not known costs space, nothing else.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, repeat

from surepipe.core.effects import (
    AppendRows,
    ForgetRows,
    JournalContents,
    JournalRows,
    NoteTransmitted,
    OpenLife,
    Renumber,
    Renumbered,
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
    AppendOutcome,
    AppendRun,
    Batch,
    CommitPosition,
    Committed,
    Created,
    Entries,
    Exists,
    Failed,
    FencedOut,
    Full,
    Gap,
    Identity,
    JoinedOutcome,
    Kept,
    Level,
    NoPosition,
    Owner,
    Position,
    ProducerOpened,
    Store,
    Stored,
    StreamInfo,
    TransactionalStore,
    Trimmed,
    Unavailable,
    called,
    is_closed,
    said_of,
)
from surepipe.errors import ConfigurationError, MisuseError, StacksDiffer, StoreUnavailable
from surepipe.errors import Fenced as FencedError
from surepipe.pipes.stack.agreement import Terms

# What a journal writes down, and what it remembers of it.


def head_of(replaces: Sequence[int], moved: Sequence[Renumbered] = ()) -> bytes:
    """Row 1 of an epoch."""
    facts: dict[str, object] = {"replaces": list(replaces)}
    if moved:
        facts["moved"] = [
            (one.epoch, one.first, one.count, one.new_epoch, one.new_first) for one in moved
        ]
    return json.dumps(facts, separators=(",", ":")).encode()


def read_head(head: bytes) -> tuple[list[int], list[Renumbered]]:
    """The epochs that a head replaces, and what became of their messages."""
    facts = json.loads(head)
    return facts["replaces"], [Renumbered(*numbers) for numbers in facts.get("moved", ())]


@dataclass(slots=True)
class ConfirmedState:
    """What the state of the position holds. ``stack``, ``payloads``: as what the rows were accepted, where that
    was noted."""

    transmitted: int = 0
    epoch: int = 0
    through: int = 0
    stack: str = ""
    payloads: str = ""

    @property
    def terms(self) -> Terms | None:
        """The same; None for a journal of an earlier version."""
        return Terms(self.stack, self.payloads) if self.stack else None

    def encode(self) -> bytes:
        """As the state of a position."""
        noted = [self.stack, self.payloads] if self.stack else []
        return json.dumps([self.transmitted, self.epoch, self.through, *noted]).encode()

    @classmethod
    def decode(cls, state: bytes) -> ConfirmedState:
        """From the state of a position."""
        return cls(*json.loads(state)) if state else cls()


@dataclass(slots=True)
class OwnRows:
    """The rows of this life that are not confirmed: to store them again if the store loses them."""

    epoch: int = 0
    head: bytes = b""
    first: int = 1
    payloads: list[bytes] = field(default_factory=list[bytes])

    def begin(self, epoch: int, head: bytes) -> None:
        """A new epoch, without rows yet."""
        self.epoch, self.head, self.first = epoch, head, 1
        self.payloads = []

    def add(self, first: int, payloads: Sequence[bytes]) -> None:
        """Rows were stored; some of them may be known already."""
        known = self.first + len(self.payloads) - first
        if known < 0:  # what is between was stored by somebody else, in a transaction
            self.first, self.payloads, known = first, [], 0
        self.payloads.extend(payloads[known:])

    def forget(self, through: int) -> tuple[int, int]:
        """Rows were confirmed; returns how many, and their bytes."""
        count = max(0, through + 1 - self.first)
        size = sum(map(len, self.payloads[:count]))
        del self.payloads[:count]
        self.first += count
        return count, size

    def from_row(self, row: int) -> tuple[int, list[bytes]]:
        """The rows from ``row`` on, or from the first that is still known."""
        if row <= 1 and self.first == 1:
            return 1, [self.head, *self.payloads]
        start = max(0, row - 1 - self.first)
        return self.first + 1 + start, self.payloads[start:]


def extend(parts: list[JournalRows], rows: JournalRows) -> None:
    """Add rows to those before them, when they follow at once."""
    if parts and parts[-1].first + len(parts[-1].payloads) == rows.first:
        assert isinstance(parts[-1].payloads, list)
        parts[-1].payloads.extend(rows.payloads)
    else:
        parts.append(JournalRows(rows.epoch, rows.first, list(rows.payloads)))


READER = "confirmed"
LOAD_BYTES = 1 << 20
LOAD_MESSAGES = 1 << 16
TRIM_AFTER_MESSAGES = 4_096
TRIM_AFTER_BYTES = 4 << 20
"""Confirmed rows are removed from the stream when this much of them has gathered."""


class Beside(bytes):
    """A payload that can be told from any other of the same bytes."""

    number: tuple[int, int] | None = None
    """The epoch and seq of the message, once it is stored."""


class _Positions:
    """Those of one reader behind each of some payloads. One is made when it is needed, and once: a write that is
    repeated has the same."""

    def __init__(self, reader: str, make: Callable[[int], CommitPosition]) -> None:
        self.reader = reader
        self._make = make
        self._made: dict[int, CommitPosition] = {}

    def behind(self, count: int) -> CommitPosition:
        if count not in self._made:
            self._made[count] = self._make(count)
        return self._made[count]


class StoreJournal:
    """The journal of one pipe. Safe for threads; each life of the sender calls ``load`` first.

    Every write may be repeated. After a crash the next ``load`` has each write that was answered ``WriteStored``;
    one that was not answered it has wholly or not at all.
    """

    def __init__(
        self,
        streams: Store,
        positions: Store,
        pipe: str,
        *,
        stream: str | None = None,
        terms: Terms | None = None,
    ) -> None:
        """``stream`` names the stream of the journal; by default it is ``<pipe>/journal``. ``terms``: as what this
        sender accepts messages; rows with payloads of another form are refused."""
        self.stream = stream or f"{pipe}/journal"
        self._streams = streams
        self._positions = positions
        self._pipe = pipe
        self._terms = terms
        self._incarnation = 0
        self._previous_tag: int | None = None
        self._owner = 0
        self._lives = 0
        """The highest life that was begun through this object."""
        self._revision = 0
        self._next = 1
        """The position as committed last: indexes below it are not needed."""
        self._state = ConfirmedState()
        self._holds_rows = False
        """Whether it held rows when it was loaded."""
        self._own = OwnRows()
        self._places: dict[int, tuple[int, int]] = {}
        """For an epoch, the index of one of its rows."""
        self._needed_from = 1
        """The first index of the oldest epoch with rows, when the journal was loaded."""
        self._loaded: object = None
        self._changed: tuple[int, JournalContents] | None = None
        """What the opening of a life answered, until that life writes on: a repeat answers the same."""
        # A new life may load while a write of the former one is still under way.
        self._lock = threading.RLock()
        self._beside: dict[int, tuple[bytes, _Positions, int]] = {}
        """By the identity of the payload, which is kept with it."""
        self.taken_over: dict[str, int] = {}
        """Readers whose position an older owner sent beside its payloads, and who has them now: such a write is
        refused as a whole, with what else it has."""
        self._untrimmed = [0, 0]

    @property
    def place(self) -> str:
        """How people call its store."""
        return called(self._streams)

    @property
    def level(self) -> Level:
        """What survives of an answered write."""
        return min(self._streams.level, self._positions.level)

    # Loading.

    def load(self) -> JournalContents:
        """What the journal holds; makes it when it is not there.

        Raises StoreUnavailable (ask again), ``errors.Fenced`` (a life that was begun elsewhere has the journal
        since; the lives of this object never will again), StacksDiffer (it holds messages that another codec
        wrote) and ConfigurationError (the stream is used for something else, or the store refuses).
        """
        with self._lock:
            return self._load()

    def confirmed(self) -> tuple[int, int]:
        """Epoch and seq of the last message that is known to be confirmed, (0, 0) for none. Reads nothing else,
        and makes nothing. Raises StoreUnavailable, ConfigurationError."""
        position = self._position()
        state = ConfirmedState.decode(position.state) if position else ConfirmedState()
        return state.epoch, state.through

    def require_own_payloads(self) -> None:
        """Raise StacksDiffer now where ``load`` would. Makes nothing, and reads the rows only where another codec
        was noted. Raises what ``load`` raises."""
        with self._lock:
            position = self._position()
            noted = ConfirmedState.decode(position.state) if position else ConfirmedState()
            if self._are_other_payloads(noted.terms):
                self._load()

    def holds_rows_of_others(self) -> bool:
        """Whether messages are not confirmed that were accepted with other terms, or before that was noted. Raises
        what ``load`` raises."""
        with self._lock:
            self._load()
            noted, own = self._state.terms, self._terms
            is_own = noted is not None and own is not None and noted.fits(own)
            return self._holds_rows and not is_own

    def _are_other_payloads(self, noted: Terms | None) -> bool:
        own = self._terms
        if noted is None or own is None or not (noted.payloads and own.payloads):
            return False
        return noted.payloads != own.payloads

    def _load(self) -> JournalContents:
        self._incarnation = self._made()
        self._own = OwnRows()
        self._places = {}
        position = self._position()
        self._previous_tag = position.tag if position else None
        self._next = position.next if position and position.tag == self._incarnation else 1
        self._state = ConfirmedState.decode(position.state) if position else ConfirmedState()
        info = self._info()
        rows, renumbered = self._rows(info)
        self._holds_rows = bool(rows)
        self._loaded = (info.incarnation, info.next, position)
        last_life = max((known.epoch for known in info.producers), default=0)
        if 0 < self._lives < last_life:
            raise FencedError(f"journal {self.stream!r} was taken over by life {last_life}")
        if rows and self._are_other_payloads(self._state.terms):
            raise StacksDiffer(
                f"journal {self.stream!r} holds messages that were accepted by a sender with {self._state.terms}; "
                f"this one has {self._terms}, and would send them as something else. Start it as it was then "
                "until all is confirmed, and change the codec after that"
            )
        confirmed = (self._state.epoch, self._state.through)
        return JournalContents(
            last_life, rows, self._state.transmitted, confirmed, tuple(renumbered)
        )

    def _made(self) -> int:
        outcome = self._streams.create(self.stream, 1, KEEP_ALL)
        match outcome:
            case Created(incarnation) | Exists(incarnation):
                return incarnation
            case _:
                raise _as_error("journal stream", self.stream, outcome)

    def _position(self) -> Position | None:
        outcome = self._positions.get(self.stream, READER)
        match outcome:
            case Position():
                return outcome
            case NoPosition():
                return None
            case _:
                raise _as_error("the position of journal", self.stream, outcome)

    def _info(self) -> StreamInfo:
        outcome = self._streams.info(self.stream)
        if isinstance(outcome, StreamInfo):
            return outcome
        raise _as_error("journal stream", self.stream, outcome)

    def _rows(self, info: StreamInfo) -> tuple[list[JournalRows], list[Renumbered]]:
        """The rows that are neither replaced nor confirmed, oldest epoch first; and all renumberings, in order."""
        found: dict[int, list[JournalRows]] = {}
        renumbered: list[Renumbered] = []
        starts: dict[int, int] = {}
        for run in self._read_all(info):
            first, payloads = run.first - 1, run.payloads
            starts.setdefault(run.epoch, run.index)
            self._places[run.epoch] = (run.index, run.first)
            if run.first == 1:
                replaces, moved = read_head(payloads[0])
                for replaced in replaces:
                    found.pop(replaced, None)
                renumbered += moved
                first, payloads = 1, payloads[1:]
            extend(found.setdefault(run.epoch, []), JournalRows(run.epoch, first, payloads))
        parts = [part for epoch in sorted(found) for part in found[epoch]]
        kept = [rest for part in parts if (rest := self._unconfirmed(part)).payloads]
        self._needed_from = starts[kept[0].epoch] if kept else info.next
        return kept, renumbered

    def _read_all(self, info: StreamInfo) -> Iterator[Entries]:
        index = info.earliest
        while index < info.next:
            outcome = self._streams.read(self.stream, index, LOAD_MESSAGES, LOAD_BYTES)
            if isinstance(outcome, Trimmed) and self._info().earliest > index:
                raise StoreUnavailable(
                    f"journal stream {self.stream!r}: an earlier life is still confirming; ask again"
                )
            if not isinstance(outcome, Batch):
                raise _as_error("journal stream", self.stream, outcome)
            yield from outcome.entries
            index = outcome.next

    def _unconfirmed(self, rows: JournalRows) -> JournalRows:
        if rows.epoch > self._state.epoch:
            return rows
        through = (
            self._state.through
            if rows.epoch == self._state.epoch
            else rows.first + len(rows.payloads)
        )
        start = max(0, through + 1 - rows.first)
        return JournalRows(rows.epoch, rows.first + start, rows.payloads[start:])

    # Writing.

    def write(self, write: Write) -> WriteOutcome:
        """Perform a write. WriteUnknown: done or not, ask again. See the effects for each of them."""
        with self._lock:
            outcome = self._write(write)
        if isinstance(outcome, WriteFailed) and self._is_closed:
            return WriteFailed(outcome.reason, closed=True)
        return outcome

    @property
    def _is_closed(self) -> bool:
        return any(map(is_closed, (self._streams, self._positions)))

    def _write(self, write: Write) -> WriteOutcome:
        if not isinstance(write, OpenLife):
            self._changed = None
        match write:
            case OpenLife(life):
                return self._open_life(life)
            case AppendRows():
                return self._append_rows(write)
            case NoteTransmitted(epoch):
                self._state.transmitted = max(self._state.transmitted, epoch)
                return self._commit(epoch)
            case ForgetRows(epoch, through):
                return self._forget(epoch, through)
            case Renumber():
                return self._renumber(write)
            case SaveState():
                raise MisuseError("a receiver's state is not for a journal: use ReceiverState")

    def _open_life(self, life: int) -> WriteOutcome:
        """From here on the store fences every older life, so what it holds now is all it will hold of them.

        Messages that are accepted from now on are of these terms; so that is noted, if none are held of others.

        1. A life loads the journal. 2. The one that it replaces stores rows, and tells that they are accepted.
        3. The new life is opened; that more is there now is loaded here, and the answer does not get through.
        4. It is opened again. Nothing has changed since 3, and a plain "stored" would let it go on without those
        rows, which nobody would send any more.
        """
        self._lives = max(self._lives, life)
        refused = self._take_over(life)
        if refused is not None:
            return refused
        try:
            changed = self._contents_if_changed()
        except StoreUnavailable:
            return WriteUnknown()
        except StacksDiffer as error:
            return WriteFailed(str(error))
        if (refused := self._note_terms(life)) is not None:
            return refused
        if changed is not None:
            self._changed = (life, changed)
        elif self._changed is not None and self._changed[0] == life:
            changed = self._changed[1]
        self._own.begin(life, head_of(()))
        self._streams.trim(self.stream, self._needed_from)  # not done: the next life will
        return changed or WriteStored()

    def _note_terms(self, life: int) -> WriteOutcome | None:
        """As what messages are accepted from now on; None when that is noted."""
        before, own = self._state, self._terms
        if own is None or before.terms == own or (self._holds_rows and before.terms is not None):
            return None
        self._state = replace(before, stack=own.stack, payloads=own.payloads)
        self._next = max(self._next, self._needed_from)
        outcome = self._commit(life)
        if isinstance(outcome, WriteStored):
            return None
        self._state = before
        return outcome

    def _take_over(self, life: int) -> WriteOutcome | None:
        """Fence older lives from rows and from the position; None when that is done.

        Both refuse a lower life, so one that is half way through this, or comes late, takes nothing back.
        """
        opened = self._streams.open_producer(self.stream, self._pipe, life, 1)
        if not isinstance(opened, ProducerOpened):
            return _refusal(opened)
        claimed = self._positions.claim(self.stream, READER, life)
        if not isinstance(claimed, Owner):
            return _refusal(claimed)
        self._owner = claimed.number
        return None

    def _contents_if_changed(self) -> JournalContents | None:
        info = self._info()
        if self._loaded == (info.incarnation, info.next, self._position()):
            return None
        return self._load()

    def run_of(self, write: AppendRows) -> AppendRun:
        """The append that a write is, for a transaction with other writes of the same store."""
        if write.first == 1:
            head = self._own.head if self._own.epoch == write.epoch else head_of(())
            return self._run(write.epoch, 1, [head, *write.payloads])
        return self._run(write.epoch, write.first + 1, write.payloads)

    def _run(self, epoch: int, row: int, payloads: Sequence[bytes]) -> AppendRun:
        return AppendRun(self.stream, self._pipe, epoch, row, payloads)

    def _append_rows(self, write: AppendRows) -> WriteOutcome:
        if self._own.epoch != write.epoch:
            self._own.begin(write.epoch, head_of(()))
            self._own.first = write.first
        outcome, again = self._append(self.run_of(write)), 0
        if isinstance(outcome, Gap) or (isinstance(outcome, Failed) and self._made_anew()):
            outcome, again = self._store_again(write, outcome)
        if not isinstance(outcome, Stored):
            return _refusal(outcome)
        self._own.add(write.first, write.payloads)
        return WriteStored(((again, write.first - 1),) if 0 < again < write.first else ())

    # Commits that go with a message.

    def can_commit_beside(self, positions: object) -> bool:
        """True when a commit in this store can be one step with a write of this journal."""
        return positions is self._streams and isinstance(self._streams, TransactionalStore)

    def commit_beside(
        self, payloads: Sequence[bytes], reader: str, behind: Callable[[int], CommitPosition]
    ) -> None:
        """When such a payload is stored as a row, commit in the same transaction the position behind so many of
        them: both or neither. Each is an object of its own, as those of ``Beside`` are.

        Where one write has several of these payloads the position behind the last is committed, and no other is
        made. Payloads of another call are asked for by themselves, as that may be by an owner who was replaced.
        """
        numbered = zip(payloads, repeat(_Positions(reader, behind)), count(1), strict=False)
        self._beside.update(zip(map(id, payloads), numbered, strict=False))

    def withdraw_beside(self, payloads: Sequence[bytes]) -> None:
        """These were refused, and come no more."""
        for one in map(id, payloads):
            self._beside.pop(one, None)

    def _append_run(self, run: AppendRun) -> AppendOutcome:
        ids = list(map(id, run.payloads))
        beside = list(filter(None, map(self._beside.get, ids)))
        if not beside:
            return self._streams.append(
                run.stream, run.producer, run.epoch, run.first, run.payloads
            )
        assert isinstance(self._streams, TransactionalStore)
        with self._streams.transaction() as transaction:
            transaction.append(run)
            latest = {id(positions): (positions, number) for _, positions, number in beside}
            for positions, number in latest.values():
                transaction.commit(positions.behind(number))
        stored, *committed = transaction.outcomes
        if not transaction.done:
            for (positions, _), outcome in zip(latest.values(), committed, strict=False):
                if isinstance(outcome, FencedOut):
                    self.taken_over[positions.reader] = outcome.by
            return _first_refusal(stored, committed)
        for row, (one, payload) in enumerate(zip(ids, run.payloads, strict=True), run.first):
            if self._beside.pop(one, None) is not None and type(payload) is Beside:
                payload.number = (run.epoch, row - 1)  # row 1 of an epoch is its head
        assert isinstance(stored, Stored)
        return stored

    def _append(self, run: AppendRun) -> object:
        outcome = self._append_run(run)
        if isinstance(outcome, Stored) and outcome.first_index is not None:
            self._places[run.epoch] = (outcome.first_index, outcome.last - outcome.new + 1)
        return outcome

    def _renumber(self, write: Renumber) -> WriteOutcome:
        if write.by:
            asking = self._streams.open_producer(self.stream, self._pipe, write.by, 1)
            if isinstance(asking, Unavailable):
                return WriteUnknown()
            # Fenced by the new epoch, begun here: a repeat of what was done. A life that began elsewhere may have
            # this very number, because both went one above the same life.
            if isinstance(asking, FencedOut) and not asking.by == write.epoch == self._lives:
                return _refusal(asking)
        self._lives = max(self._lives, write.epoch)
        head = head_of(write.replaces, write.moved)
        outcome = self._append(self._run(write.epoch, 1, [head, *write.payloads]))
        if not isinstance(outcome, Stored):
            return _refusal(outcome)
        self._own.begin(write.epoch, head)
        self._own.add(1, write.payloads)
        return WriteStored()

    # After the store went back.

    def _made_anew(self) -> bool:
        """Whether the stream had vanished; now it is there again, empty."""
        outcome = self._streams.create(self.stream, 1, KEEP_ALL)
        if not isinstance(outcome, Created):
            return False
        self._previous_tag, self._incarnation = self._incarnation, outcome.incarnation
        self._next = 1
        return True

    def _store_again(self, write: AppendRows, why: Gap | Failed) -> tuple[object, int]:
        """The store has lost rows of this life: they are still here, as far as they are not confirmed. Also
        returns the first message that it gets again."""
        expected = why.expected if isinstance(why, Gap) else 1
        wanted = OwnRows(write.epoch, self._own.head, self._own.first, [*self._own.payloads])
        if wanted.first + len(wanted.payloads) < write.first:
            return Failed(f"the journal lacks rows before {write.first} and nobody has them"), 0
        wanted.add(write.first, write.payloads)
        row, payloads = wanted.from_row(expected)
        self._places = {}
        if row > expected:  # what is between is confirmed
            opened = self._streams.open_producer(self.stream, self._pipe, write.epoch, row)
            if not isinstance(opened, ProducerOpened):
                return opened, 0
        return self._append(self._run(write.epoch, row, payloads)), max(1, row - 1)

    # What is confirmed.

    def _forget(self, epoch: int, through: int) -> WriteOutcome:
        state = self._state
        state.epoch, state.through = max((state.epoch, state.through), (epoch, through))
        if epoch in self._places:
            index, row = self._places[epoch]
            self._next = max(self._next, index + (through + 1 - row) + 1)
        outcome = self._commit(epoch, through)
        if isinstance(outcome, WriteStored):
            self._trim_now_and_then(epoch, through)
        return outcome

    def _trim_now_and_then(self, epoch: int, through: int) -> None:
        count, size = self._untrimmed
        if epoch == self._own.epoch:
            rows, row_bytes = self._own.forget(through)
            count += rows
            size += row_bytes
        else:
            count += TRIM_AFTER_MESSAGES
        self._untrimmed = [count, size]
        if count >= TRIM_AFTER_MESSAGES or size >= TRIM_AFTER_BYTES:
            self._trim_through(epoch, through)
            self._untrimmed = [0, 0]

    def _trim_through(self, epoch: int, through: int) -> None:
        """Remove what stands before a confirmed row. When that is not where it was, the store went back, and
        other rows may stand there: then nothing is removed before the next life."""
        index, row = self._places.get(epoch, (0, 0))
        index += through + 1 - row
        row_there = self._streams.identify(self.stream, index) if epoch in self._places else None
        if row_there == Identity(self._pipe, epoch, through + 1):
            self._streams.trim(self.stream, index + 1)  # not done: the next time

    def _commit(self, epoch: int, through: int | None = None) -> WriteOutcome:
        """Store the position. One who is fenced takes over anew: a later life refuses that."""
        anchor = None if through is None else Identity(self._pipe, epoch, through + 1)
        outcome: object = Unavailable()
        for _ in range(3):
            outcome = self._positions.commit(self._request(anchor))
            match outcome:
                case Committed():
                    self._previous_tag = self._incarnation
                    return WriteStored()
                case Kept(position):
                    self._next = max(self._next, position.next)
                    self._revision = max(self._revision, position.revision)
                    self._previous_tag = position.tag
                case FencedOut():
                    refused = self._take_over(max(epoch, self._own.epoch))
                    if refused is not None:
                        return refused
                case _:
                    return _refusal(outcome)
        return WriteUnknown()

    def _request(self, anchor: Identity | None) -> CommitPosition:
        """The next commit. Its index often stays where it was, and one that was given up must not undo it."""
        self._revision += 1
        return CommitPosition(
            self.stream, READER, self._owner, self._incarnation, self._next, anchor,
            self._state.encode(), self._previous_tag, self._revision,
        )  # fmt: skip


def _first_refusal(stored: JoinedOutcome, committed: Sequence[object]) -> AppendOutcome:
    """Why nothing was done. A position that belongs to somebody else by now does not fence the journal."""
    if isinstance(stored, Gap | FencedOut | Full | Failed | Unavailable):
        return stored
    refused = next(outcome for outcome in committed if not isinstance(outcome, Committed))
    if isinstance(refused, Unavailable):
        return refused
    return Failed(f"the position to be committed with it was refused: {refused}")


def _refusal(outcome: object) -> WriteOutcome:
    """What a store's refusal is for a machine."""
    match outcome:
        case FencedOut(by):
            return WriteFenced(by)
        case Failed(reason):
            return WriteFailed(reason)
        case Full(bound):
            return WriteFailed(f"the journal's stream is full: {bound}")
        case Gap(expected):
            return WriteFailed(f"the journal lacks rows from {expected} on: its store went back")
        case _:
            return WriteUnknown()


def _as_error(what: str, stream: str, outcome: object) -> Exception:
    kind = StoreUnavailable if isinstance(outcome, Unavailable) else ConfigurationError
    return kind(said_of(what, stream, outcome))
