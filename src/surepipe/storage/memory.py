"""A store in memory: streams, positions, tables with the full semantics, gone with the process (level ``none``).

For one process, for tests and for trying things out. Threads may share it. A test can make it crash
(``crash``), go back to an earlier state (``snapshot``, ``roll_back``) and forget a stream (``delete``).
"""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from surepipe.core.store_requests import (
    STATE_MAX_BYTES,
    Absent,
    Ahead,
    AllDone,
    AppendOutcome,
    AppendRun,
    Batch,
    Changed,
    ChangeRetention,
    ClaimReader,
    CommitOutcome,
    CommitPosition,
    Committed,
    Created,
    CreateStream,
    DescribeStream,
    Diverged,
    DropOutcome,
    DropStream,
    DropValues,
    Empty,
    Entries,
    Exists,
    Failed,
    FencedOut,
    FoundValues,
    Full,
    Gap,
    GetPosition,
    Held,
    Hint,
    IdentifyEntry,
    Identity,
    JoinedOutcome,
    JoinedRequest,
    Kept,
    KeyedRequest,
    Level,
    LoadTable,
    Marked,
    Mismatch,
    NoneDone,
    NoPosition,
    OpenProducer,
    Owner,
    Position,
    ProducerInfo,
    ProducerOpened,
    PutValues,
    RaiseMark,
    ReaderInfo,
    ReadFrom,
    ReadKeys,
    Reset,
    Retention,
    Store,
    Stored,
    StoreOutcome,
    StoreRequest,
    StreamDropped,
    StreamInfo,
    TableRows,
    Together,
    Transaction,
    TrimBefore,
    Trimmed,
    WaitForMark,
    WaitForMore,
    difference_of,
    in_time,
    lent_for_block,
    missing,
    one_of_several,
    partition_of,
    taken_back,
)
from surepipe.storage.complaints import tell_removed
from surepipe.storage.positions import furthest_behind, may_replace, registered
from surepipe.storage.together import perform_together, was_done_before, why_not

# One stream in memory: pages of entries, and what is remembered of its producers. No locks: the store has one.


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """The messages of one append, or the rest of them after a trim."""

    entries: Entries
    size_bytes: int
    stored_us: int

    @property
    def index(self) -> int:
        """The index of the first entry."""
        return self.entries.index

    @property
    def end(self) -> int:
        """The index after the last entry."""
        return self.entries.index + len(self.entries.payloads)


def _part(entries: Entries, start: int, stop: int | None = None) -> Entries:
    return replace(
        entries,
        index=entries.index + start,
        first=entries.first + start,
        payloads=entries.payloads[start:stop],
    )


@dataclass(frozen=True, slots=True)
class ToldRemoval:
    """What a run was told that somebody else had removed, by index, and the last message of that run."""

    removed: tuple[int, int]
    producer: str
    epoch: int
    seq: int

    def again(self, producer: str, epoch: int, first: int, last: int) -> tuple[int, int] | None:
        """The same for who asks about these messages, when the run that was told ended among them."""
        is_same = (self.producer, self.epoch) == (producer, epoch)
        return self.removed if is_same and first <= self.seq <= last else None


@dataclass(slots=True)
class MemoryStream:
    """The entries from ``earliest`` to ``next - 1``."""

    incarnation: int
    partitions: int
    retention: Retention
    pages: list[MemoryPage] = field(default_factory=list[MemoryPage])
    earliest: int = 1
    next: int = 1
    size_bytes: int = 0
    producers: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    told: ToldRemoval | None = None

    def copy(self) -> MemoryStream:
        """An independent copy; pages never change, so they are shared."""
        return replace(self, pages=list(self.pages), producers=dict(self.producers))

    # Writing.

    def open_producer(self, producer: str, epoch: int, base: int) -> ProducerOpened | FencedOut:
        """Take the epoch, and say what was stored of it."""
        known_epoch, last = self.producers.get(producer, (epoch, base - 1))
        if epoch < known_epoch:
            return FencedOut(known_epoch)
        if epoch > known_epoch:
            last = 0
        lost = (last + 1, base - 1) if last < base - 1 else None
        last = max(last, base - 1)
        self.producers[producer] = (epoch, last)
        removed = self.told.again(producer, epoch, 1, last) if self.told else None
        return ProducerOpened(self.incarnation, last, lost, removed)

    def append(
        self, run: AppendRun, now_us: int, unread: int, reader: str = ""
    ) -> tuple[AppendOutcome, Callable[[], None] | None]:
        """Append what is new of the run; also returns how to take it back (None: nothing to take back).

        ``unread`` is the lowest index that some reader has not read, and ``reader`` that reader. Trimming at the
        bound is not taken back: what it removes could have gone at any time.
        """
        epoch, last = self.producers.get(run.producer, (run.epoch, 0))
        if run.epoch < epoch:
            return FencedOut(epoch), None
        if run.epoch > epoch:
            last = 0
        if run.first > last + 1:
            return Gap(last + 1), None
        new = tuple(run.payloads[last + 1 - run.first :])
        if not new:
            return Stored(last, 0, None, self._told_before(run)), None
        size = sum(map(len, new))
        if bound := self._make_room(size, now_us, unread):
            return Full(bound, reader, unread, self.next - unread), None
        return self._store(run, last, new, size, now_us)

    def _store(
        self, run: AppendRun, last: int, new: tuple[bytes, ...], size: int, now_us: int
    ) -> tuple[Stored, Callable[[], None]]:
        remembered, earliest = self.producers.get(run.producer), self.earliest
        told, removed = self.told, self._removed_by_others()
        index = self.next
        entries = Entries(index, run.producer, run.epoch, last + 1, new)
        self.pages.append(MemoryPage(entries, size, now_us))
        self.next += len(new)
        self.size_bytes += size
        self.producers[run.producer] = (run.epoch, last + len(new))
        self.earliest = self.pages[
            0
        ].index  # so what was removed in front of it is told to no other run
        if removed:
            self.told = ToldRemoval(removed, run.producer, run.epoch, run.last)

        def take_back() -> None:
            self.pages.pop()
            self.earliest, self.told = earliest, told
            self.next -= len(new)
            self.size_bytes -= size
            if remembered is None:
                del self.producers[run.producer]
            else:
                self.producers[run.producer] = remembered

        return Stored(last + len(new), len(new), index, removed), take_back

    def _told_before(self, run: AppendRun) -> tuple[int, int] | None:
        told = self.told
        return told.again(run.producer, run.epoch, run.first, run.last) if told else None

    def _removed_by_others(self) -> tuple[int, int] | None:
        """The first and last index of what is missing at either end; who reads in between meets a hole there."""
        first = self.pages[0].index if self.pages else self.next
        last = self.pages[-1].end if self.pages else self.earliest
        if (first, last) == (self.earliest, self.next) or self.earliest == self.next:
            return None
        gone_first = self.earliest if first > self.earliest else last
        return gone_first, self.next - 1 if last < self.next else first - 1

    def _make_room(self, size: int, now_us: int, unread: int) -> str:
        """Let old pages go; returns the bound that would be broken all the same."""
        keep = self.next if self.retention.force else unread - 1
        while self.pages and self.pages[0].end <= keep and self._broken(size, now_us, 0):
            self.trim(self.pages[0].end)
        # Read pages that stay as anchors are no reason to refuse new messages for ever.
        return "" if self.retention.force else self._broken(size, now_us, unread)

    def _broken(self, size: int, now_us: int, start: int) -> str:
        """The bound that the entries from ``start`` on break together with ``size`` new bytes."""
        limit, age = self.retention.max_bytes, self.retention.max_age_us
        if limit is not None and self.size_bytes + size > limit:
            unread = (page.size_bytes for page in self.pages if page.end > start)
            kept = self.size_bytes if start <= self.earliest else sum(unread)
            if kept and kept + size > limit:
                return f"max_bytes={limit}"
        if age is not None:
            oldest = max(0, self._page_of(start))
            if start < self.next and self.pages and now_us - self.pages[oldest].stored_us > age:
                return f"max_age_us={age}"
        return ""

    def trim(self, before: int) -> None:
        """Forget the entries below ``before``, cutting a page in two where it falls."""
        before = min(before, self.next)
        whole = 0
        while whole < len(self.pages) and self.pages[whole].end <= before:
            self.size_bytes -= self.pages[whole].size_bytes
            whole += 1
        del self.pages[:whole]
        if self.pages and self.pages[0].index < before:
            page = self.pages[0]
            rest = _part(page.entries, before - page.index)
            left = MemoryPage(rest, sum(map(len, rest.payloads)), page.stored_us)
            self.size_bytes -= page.size_bytes - left.size_bytes
            self.pages[0] = left
        self.earliest = max(self.earliest, before)

    def remove(self, first: int, last: int) -> None:
        """Entries are gone, and nothing else says so: somebody else took them out."""
        kept: list[MemoryPage] = []
        for page in self.pages:
            for start, stop in ((page.index, min(page.end, first)), (last + 1, page.end)):
                if (start := max(start, page.index)) < stop:
                    rest = _part(page.entries, start - page.index, stop - page.index)
                    kept.append(MemoryPage(rest, sum(map(len, rest.payloads)), page.stored_us))
        self.pages = kept
        self.size_bytes = sum(page.size_bytes for page in kept)

    # Reading.

    def read(  # noqa: PLR0911 - one line per outcome
        self, request: ReadFrom
    ) -> Batch | Empty | Trimmed | Reset | Ahead | Diverged:
        if request.incarnation is not None and request.incarnation != self.incarnation:
            return Reset(self.incarnation)
        if request.index < self.earliest:
            return Trimmed(self.earliest)
        if request.index > self.next:
            return Ahead(self.next)
        before = self.identify(request.index - 1)
        if request.anchor is not None and before != request.anchor and isinstance(before, Identity):
            return Diverged(before)
        if request.index == self.next:
            return Empty(self.next)
        if (place := self._page_of(request.index)) < 0 or self.pages[place].end <= request.index:
            behind = self.pages[place + 1 :]
            return Trimmed(behind[0].index if behind else self.next)
        entries = self._cut(request.index, request.max_messages, request.max_bytes)
        last = entries[-1]
        return Batch(tuple(entries), last.index + len(last.payloads), self.next)

    def _cut(self, index: int, messages: int, size: int) -> list[Entries]:
        """The longest run of entries within both bounds, one at least."""
        found: list[Entries] = []
        for page in self.pages[self._page_of(index) :]:
            if page.index > index:
                break  # a hole: it is for who reads there
            start = index - page.index
            wanted = _part(page.entries, start, start + messages)
            count = _fitting(wanted.payloads, size) or (0 if found else 1)
            if count:
                found.append(_part(wanted, 0, count))
            messages -= count
            size -= sum(map(len, wanted.payloads[:count]))
            index = page.end
            if count < len(page.entries.payloads) - start or not messages:
                break
        return found

    def _page_of(self, index: int) -> int:
        return bisect_right(self.pages, index, key=lambda page: page.index) - 1

    def identify(self, index: int) -> Identity | Trimmed | Absent:
        """Who wrote the entry at an index."""
        if not 1 <= index < self.next:
            return Absent()
        if index < self.earliest:
            return Trimmed(self.earliest)
        if (place := self._page_of(index)) < 0 or self.pages[place].end <= index:
            return Trimmed(index + 1)  # somebody else has removed it
        entries = self.pages[place].entries
        return Identity(entries.producer, entries.epoch, entries.first + index - entries.index)

    def described(self, registered: list[tuple[str, int]]) -> StreamInfo:
        """How it stands, with these readers and where they are."""
        producers = [ProducerInfo(name, *known) for name, known in sorted(self.producers.items())]
        readers = [ReaderInfo(name, next, self.next - next) for name, next in registered]
        return StreamInfo(
            self.incarnation,
            self.earliest,
            self.next,
            self.size_bytes,
            tuple(producers),
            tuple(readers),
        )


def _fitting(payloads: Sequence[bytes], size: int) -> int:
    """How many of the first payloads fit into so many bytes."""
    for count, payload in enumerate(payloads):
        size -= len(payload)
        if size < 0:
            return count
    return len(payloads)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reader of one stream: who owns it, and where it stands."""

    owner: int
    claimant: int | None
    position: Position | None = None


class MemoryTable:
    """Values under keys. Loading sorts the keys once, and again when one has come or gone."""

    def __init__(self, values: Mapping[bytes, bytes] | None = None) -> None:
        self.values = dict(values or {})
        self._sorted: list[bytes] | None = None

    def set(self, key: bytes, value: bytes | None) -> bytes | None:
        """Give the key a value, or none; what it had."""
        before = self.values.get(key)
        if (before is None) is not (value is None):
            self._sorted = None
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value
        return before

    def load(self, after: bytes, limit: int) -> TableRows:
        """So many rows behind a key."""
        if self._sorted is None:
            self._sorted = sorted(self.values)
        start = bisect_right(self._sorted, after)
        keys = self._sorted[start : start + limit]
        is_end = start + limit >= len(self._sorted)
        return TableRows([(key, self.values[key]) for key in keys], None if is_end else keys[-1])


@dataclass(slots=True)
class MemoryState:
    """Everything a memory store holds, at one moment."""

    streams: dict[str, MemoryStream] = field(default_factory=dict[str, MemoryStream])
    readers: dict[str, dict[str, _Reader]] = field(default_factory=dict[str, dict[str, _Reader]])
    tables: dict[str, MemoryTable] = field(default_factory=dict[str, MemoryTable])
    marks: dict[str, int] = field(default_factory=dict[str, int])

    def copy(self) -> MemoryState:
        return MemoryState(
            {name: stream.copy() for name, stream in self.streams.items()},
            {name: dict(readers) for name, readers in self.readers.items()},
            {name: MemoryTable(table.values) for name, table in self.tables.items()},
            dict(self.marks),
        )


@dataclass(slots=True)
class MemoryPart:
    """What some streams with their readers, some keys and some marks are at one moment."""

    state: MemoryState
    values: dict[tuple[str, bytes], bytes | None]
    marks: dict[str, int]


def _wall_clock_us() -> int:
    return time.time_ns() // 1000


def _random_incarnation() -> int:
    return secrets.randbits(62) + 1


def _wait_on_condition(condition: threading.Condition, timeout_us: int) -> None:
    condition.wait(timeout_us / 1_000_000)


class MemoryStore(Store):
    """A store that can do all in one transaction."""

    kind = "memory"
    name = "memory"

    def __init__(
        self,
        *,
        clock: Callable[[], int] = _wall_clock_us,
        new_incarnation: Callable[[], int] = _random_incarnation,
        pause: Callable[[threading.Condition, int], None] = _wait_on_condition,
    ) -> None:
        """``clock`` gives wall-clock microseconds (for retention by age). ``pause`` is how ``wait`` waits: it
        is called with the condition held and the longest time in microseconds."""
        self._clock = clock
        self._new_incarnation = new_incarnation
        self._pause = pause
        self._changed = threading.Condition(threading.RLock())
        self._state = MemoryState()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open here; what it holds stays as long as somebody has it."""

    @property
    def level(self) -> Level:
        """It keeps nothing."""
        return Level.NONE

    def ask(self, request: StoreRequest) -> StoreOutcome:  # noqa: PLR0911 - one line per kind
        """See ``Store.ask``. Trims to the message."""
        with self._changed:
            match request:
                case AppendRun():
                    return self._append(request)[0]
                case CommitPosition():
                    return self._commit(request)[0]
                case ClaimReader():
                    return self._claim(request)
                case GetPosition(stream, reader):
                    return self._reader(stream, reader).position or NoPosition()
                case CreateStream():
                    return self._create(request)
                case ChangeRetention():
                    return self._change_retention(request)
                case ReadKeys() | LoadTable() | WaitForMark() | DropStream() | Together():
                    return why_not(request) or self._ask_keyed(request)
                case _:
                    found = self._state.streams.get(request.stream)
                    return self._ask_stream(request, found) if found else missing(request.stream)

    # Streams.

    def _create(self, request: CreateStream) -> Created | Exists | Mismatch:
        stream, partitions, retention = request.stream, request.partitions, request.retention
        known = self._state.streams.get(stream) or self._state.streams.get(partition_of(stream, 0))
        if known is not None:
            what = difference_of((known.partitions, known.retention), (partitions, retention))
            return Mismatch(what) if what else Exists(known.incarnation)
        incarnation = self._new_incarnation()
        names = (
            [stream] if partitions == 1 else [partition_of(stream, n) for n in range(partitions)]
        )
        for name in names:
            self._state.streams[name] = MemoryStream(incarnation, partitions, retention)
        return Created(incarnation)

    def _change_retention(self, request: ChangeRetention) -> Changed | Failed:
        found = [self._state.streams[name] for name in self.partitions(request.stream)]
        if not found:
            return missing(request.stream)
        if found[0].partitions != len(found):
            return one_of_several(request.stream)
        for one in found:
            one.retention = request.retention
        return Changed()

    def _ask_stream(
        self,
        request: ReadFrom
        | WaitForMore
        | OpenProducer
        | IdentifyEntry
        | TrimBefore
        | DescribeStream,
        found: MemoryStream,
    ) -> StoreOutcome:
        match request:
            case ReadFrom():
                return found.read(request)
            case WaitForMore(_, index, timeout_us):
                if found.next == index:
                    self._pause(self._changed, timeout_us)
                return Hint()
            case OpenProducer(_, producer, epoch, base):
                return found.open_producer(producer, epoch, base)
            case IdentifyEntry(_, index):
                return found.identify(index)
            case TrimBefore(stream, before):
                return self._trim(found, before, self._registered(stream, found))
            case DescribeStream(stream):
                return found.described(self._registered(stream, found))

    def _append(self, run: AppendRun) -> tuple[AppendOutcome, Callable[[], None] | None]:
        found = self._state.streams.get(run.stream)
        if found is None:
            return missing(run.stream), None
        reader, unread = furthest_behind(self._places(run.stream), found.next)
        outcome, take_back = found.append(run, self._clock(), unread, reader)
        if take_back:
            self._changed.notify_all()
            tell_removed(run.stream, outcome.removed if isinstance(outcome, Stored) else None)
        return outcome, take_back

    def _places(self, stream: str) -> list[tuple[str, int]]:
        """All that ever had a position in a stream, by name, and the index that it says."""
        return [
            (name, reader.position.next)
            for name, reader in sorted(self._state.readers.get(stream, {}).items())
            if reader.position
        ]

    def _registered(self, stream: str, found: MemoryStream) -> list[tuple[str, int]]:
        """The readers for whom entries are kept, and their next index."""
        return registered(self._places(stream), found.next)

    def _trim(
        self, found: MemoryStream, before: int, registered: list[tuple[str, int]]
    ) -> Trimmed | Held:
        passed = [(name, next) for name, next in registered if next < min(before, found.next)]
        if found.retention.force:
            found.trim(before)
            return Trimmed(found.earliest, tuple(name for name, _ in passed))
        if passed:
            return Held(*min(passed, key=lambda reader: reader[1]))
        found.trim(min([before, *(next - 1 for _, next in registered)]))
        return Trimmed(found.earliest)

    def stop_waiting(self) -> None:
        """Every wait that is under way returns now."""
        with self._changed:
            self._changed.notify_all()

    # Positions.

    def _reader(self, stream: str, reader: str) -> _Reader:
        return self._state.readers.get(stream, {}).get(reader) or _Reader(0, None)

    def _claim(self, request: ClaimReader) -> Owner | FencedOut:
        known = self._reader(request.stream, request.reader)
        if request.claimant < (known.claimant or 0):
            return FencedOut(known.claimant or 0)
        if known.claimant != request.claimant:
            known = replace(known, owner=known.owner + 1, claimant=request.claimant)
            self._state.readers.setdefault(request.stream, {})[request.reader] = known
        return Owner(known.owner)

    def _commit(self, request: CommitPosition) -> tuple[CommitOutcome, Callable[[], None] | None]:
        known = self._reader(request.stream, request.reader)
        if request.owner < known.owner:
            return FencedOut(known.owner), None
        if len(request.state) > STATE_MAX_BYTES:
            size = len(request.state)
            return Failed(f"a state of {size} bytes is above {STATE_MAX_BYTES}"), None
        if known.position and not may_replace(known.position, request):
            return Kept(known.position), None
        position = Position(
            *(request.tag, request.next, request.anchor, request.state, request.owner),
            request.revision,
        )
        readers = self._state.readers.setdefault(request.stream, {})
        readers[request.reader] = replace(known, owner=request.owner, position=position)

        def take_back() -> None:
            readers[request.reader] = known

        return Committed(), take_back

    # Tables, marks, and several requests in one step.

    def _ask_keyed(self, request: KeyedRequest) -> StoreOutcome:
        match request:
            case ReadKeys(table, keys):
                values = self._table(table).values
                return FoundValues([values.get(key) for key in keys])
            case LoadTable(table, after, limit):
                return self._table(table).load(after, limit)
            case WaitForMark(mark, seen, timeout_us):
                if self._state.marks.get(mark, 0) == seen:
                    self._pause(self._changed, timeout_us)
                return Marked(self._state.marks.get(mark, 0))
            case DropStream():
                return self._drop(request)
            case Together():
                return self._together(request, ())

    def _table(self, name: str) -> MemoryTable:
        return self._state.tables.get(name) or MemoryTable()

    def _drop(self, request: DropStream) -> DropOutcome:
        names = self.partitions(request.stream)
        if not names:
            return Absent()
        producers = (self._state.streams[name].producers.values() for name in names)
        highest = max((epoch for each in producers for epoch, _ in each), default=0)
        if request.epoch < highest:
            return FencedOut(highest)
        for name in names:
            del self._state.streams[name]
            self._state.readers.pop(name, None)
        self._changed.notify_all()
        return StreamDropped()

    def partitions(self, stream: str) -> list[str]:
        """The streams that one of this name consists of; none where there is no such stream."""
        return [n for n in self._state.streams if n == stream or n.startswith(f"{stream}#")]

    @contextmanager
    def transaction(self) -> Generator[MemoryTransaction, None, None]:
        """See ``surepipe.core.store_requests.Transaction``. Other threads see all of it or nothing."""
        transaction = MemoryTransaction()
        with lent_for_block(transaction):
            yield transaction
        transaction.settle(self.do_together(transaction.joined(), transaction.changes))

    def do_together(
        self, request: Together, changes: Iterable[Callable[[], None]] = ()
    ) -> AllDone | NoneDone | Failed:
        """``Store.together``, with changes of the caller's own in the same step."""
        with self._changed:
            return why_not(request) or self._together(request, changes)

    def _together(
        self, request: Together, changes: Iterable[Callable[[], None]]
    ) -> AllDone | NoneDone:
        undo: list[Callable[[], None]] = []

        def do(part: JoinedRequest) -> JoinedOutcome:
            outcome, take_back = self._do_part(part)
            undo.extend([take_back] if take_back else [])
            return outcome

        outcome = perform_together(request, do)
        if isinstance(outcome, NoneDone):
            for undone in reversed(undo):
                undone()
        elif not was_done_before(request, outcome):
            for change in changes:
                change()
        return outcome

    def _do_part(self, part: JoinedRequest) -> tuple[JoinedOutcome, Callable[[], None] | None]:
        match part:
            case AppendRun():
                return self._append(part)
            case CommitPosition():
                return self._commit(part)
            case PutValues(table, pairs):
                return self._set_values(table, pairs)
            case DropValues(table, keys):
                return self._set_values(table, dict.fromkeys(keys))
            case RaiseMark(mark):
                marks = self._state.marks
                before = marks.get(mark)
                marks[mark] = (before or 0) + 1
                self._changed.notify_all()
                return Changed(), lambda: _set(marks, mark, before)

    def _set_values(
        self, name: str, values: Mapping[bytes, bytes | None]
    ) -> tuple[Changed, Callable[[], None]]:
        table = self._state.tables.setdefault(name, MemoryTable())
        before = {key: table.set(key, value) for key, value in values.items()}

        def take_back() -> None:
            for key, value in before.items():
                table.set(key, value)

        return Changed(), take_back

    # Misfortunes, on demand.

    def part(
        self,
        streams: Iterable[str],
        values: Iterable[tuple[str, bytes]] = (),
        marks: Iterable[str] = (),
    ) -> MemoryPart:
        """What these streams with their readers, these keys of tables and these marks are, for ``put_back``."""
        with self._changed:
            kept, names = self._state, list(streams)
            state = MemoryState(
                {name: kept.streams[name].copy() for name in names if name in kept.streams},
                {name: dict(kept.readers[name]) for name in names if name in kept.readers},
            )
            found = {(name, key): self._table(name).values.get(key) for name, key in values}
            return MemoryPart(state, found, {mark: kept.marks.get(mark, 0) for mark in marks})

    def put_back(self, part: MemoryPart, streams: Iterable[str]) -> None:
        """Let these streams, and what else the part holds, be what they were; the part is used up."""
        with self._changed:
            for name in streams:
                _set(self._state.streams, name, part.state.streams.get(name))
                _set(self._state.readers, name, part.state.readers.get(name))
            for (table, key), value in part.values.items():
                self._state.tables.setdefault(table, MemoryTable()).set(key, value)
            self._state.marks.update(part.marks)
            self._changed.notify_all()

    def crash(self) -> None:
        """The store's process ends and starts again, with nothing: level ``none`` keeps nothing."""
        self.roll_back(MemoryState())

    def snapshot(self) -> MemoryState:
        """A copy of everything, for ``roll_back``."""
        with self._changed:
            return self._state.copy()

    def roll_back(self, state: MemoryState) -> None:
        """Go back to an earlier state, as a store restored from a backup does."""
        with self._changed:
            self._state = state.copy()
            self._changed.notify_all()

    def remove(self, stream: str, first: int, last: int) -> None:
        """Take entries out by index, as somebody else does to a file or a server: nobody is told but who comes to
        the place."""
        with self._changed:
            self._state.streams[stream].remove(first, last)

    def delete(self, stream: str) -> None:
        """Forget a stream with all its partitions, but not the positions of its readers."""
        with self._changed:
            for name in self.partitions(stream):
                del self._state.streams[name]
            self._changed.notify_all()


class MemoryTransaction(Transaction):
    """What a transaction of a memory store will do when its block ends."""

    is_full = False
    """It takes any number of parts."""

    def __init__(self, changes: list[Callable[[], None]] | None = None) -> None:
        self.changes = [] if changes is None else changes
        super().__init__(self.changes, threading.RLock())

    def also(self, change: Callable[[], None]) -> None:
        """Make a change of the caller's own in the same step. It must not raise."""
        if not callable(change):  # told to the caller, and not to the store when it commits
            raise TypeError(f"also() takes a function without parameters, not {change!r}")
        with in_time(self):
            self.changes.append(change)

    if not TYPE_CHECKING:  # a checker says so by itself

        @property
        def connection(self) -> NoReturn:
            raise AttributeError(
                "a transaction of a memory store has no connection: only SQLite has SQL"
            )

    def part(self) -> AbstractContextManager[None]:
        """When this inner block raises, what was added in it is taken back, and the rest stays."""
        return taken_back(self)


def _set(kept: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        kept.pop(name, None)
    else:
        kept[name] = value
