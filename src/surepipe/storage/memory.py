"""A store in memory: streams and positions with the full semantics, gone with the process (level ``none``).

For one process, for tests and for trying things out. Threads may share it. A test can make it crash
(``crash``), go back to an earlier state (``snapshot``, ``roll_back``) and forget a stream (``delete``).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, TypeVar

from surepipe.storage.complaints import tell_removed
from surepipe.storage.memory_stream import MemoryStream
from surepipe.storage.positions import may_replace
from surepipe.store_api import (
    STATE_MAX_BYTES,
    AppendOutcome,
    AppendRun,
    ClaimOutcome,
    CommitOutcome,
    CommitPosition,
    Committed,
    Created,
    CreateOutcome,
    Exists,
    Failed,
    Fenced,
    GetOutcome,
    Held,
    Hint,
    IdentifyOutcome,
    InfoOutcome,
    Kept,
    Level,
    Mismatch,
    NoPosition,
    OpenOutcome,
    Owner,
    Position,
    ProducerInfo,
    ReaderInfo,
    ReadFrom,
    ReadOutcome,
    Retention,
    Stored,
    StreamInfo,
    Trimmed,
    TrimOutcome,
    partition_of,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reader of one stream: who owns it, and where it stands."""

    owner: int
    claimant: int | None
    position: Position | None = None


@dataclass(slots=True)
class MemoryState:
    """Everything a memory store holds, at one moment."""

    streams: dict[str, MemoryStream] = field(default_factory=dict[str, MemoryStream])
    readers: dict[str, dict[str, _Reader]] = field(default_factory=dict[str, dict[str, _Reader]])

    def copy(self) -> MemoryState:
        """An independent copy."""
        return MemoryState(
            {name: stream.copy() for name, stream in self.streams.items()},
            {name: dict(readers) for name, readers in self.readers.items()},
        )


def _wall_clock_us() -> int:
    return time.time_ns() // 1000


def _random_incarnation() -> int:
    return secrets.randbits(62) + 1


def _wait_on_condition(condition: threading.Condition, timeout_us: int) -> None:
    condition.wait(timeout_us / 1_000_000)


class MemoryStore:
    """A ``StreamStore`` and an ``IndexStore`` that can do both in one transaction."""

    kind = "memory"
    name = "memory"
    level = Level.NONE

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is open here; what it holds stays as long as somebody has it."""

    # Streams.

    def create(self, stream: str, partitions: int, retention: Retention) -> CreateOutcome:
        """See ``StreamStore.create``."""
        names = (
            [stream] if partitions == 1 else [partition_of(stream, n) for n in range(partitions)]
        )
        with self._changed:
            known = self._find(stream)
            if known is not None:
                what = _difference(known, partitions, retention)
                return Mismatch(what) if what else Exists(known.incarnation)
            incarnation = self._new_incarnation()
            for name in names:
                self._state.streams[name] = MemoryStream(incarnation, partitions, retention)
            return Created(incarnation)

    def _find(self, stream: str) -> MemoryStream | None:
        streams = self._state.streams
        return streams.get(stream) or streams.get(partition_of(stream, 0))

    def open_producer(self, stream: str, producer: str, epoch: int, base: int) -> OpenOutcome:
        """See ``StreamStore.open_producer``."""
        with self._changed:
            found = self._state.streams.get(stream)
            return found.open_producer(producer, epoch, base) if found else _missing(stream)

    def append(
        self, stream: str, producer: str, epoch: int, first: int, payloads: Sequence[bytes]
    ) -> AppendOutcome:
        """See ``StreamStore.append``."""
        with self._changed:
            outcome, _ = self._append(AppendRun(stream, producer, epoch, first, payloads))
            return outcome

    def _append(self, run: AppendRun) -> tuple[AppendOutcome, Callable[[], None] | None]:
        found = self._state.streams.get(run.stream)
        if found is None:
            return _missing(run.stream), None
        unread = min((next for _, next in self._registered(run.stream)), default=found.next + 1)
        outcome, take_back = found.append(run, self._clock(), unread)
        if take_back:
            self._changed.notify_all()
            tell_removed(run.stream, outcome.removed if isinstance(outcome, Stored) else None)
        return outcome, take_back

    def _registered(self, stream: str) -> list[tuple[str, int]]:
        """The readers of a stream that have a position in this incarnation, and their next index."""
        found = self._state.streams.get(stream)
        return [
            (name, min(reader.position.next, found.next))
            for name, reader in sorted(self._state.readers.get(stream, {}).items())
            if found and reader.position
        ]

    def read(
        self,
        stream: str,
        index: int,
        max_messages: int,
        max_bytes: int,
        incarnation: int | None = None,
    ) -> ReadOutcome:
        """See ``StreamStore.read``."""
        with self._changed:
            found = self._state.streams.get(stream)
            request = ReadFrom(stream, index, max_messages, max_bytes, incarnation)
            return found.read(request) if found else _missing(stream)

    def identify(self, stream: str, index: int) -> IdentifyOutcome:
        """See ``StreamStore.identify``."""
        with self._changed:
            found = self._state.streams.get(stream)
            return found.identify(index) if found else _missing(stream)

    def trim(self, stream: str, before: int) -> TrimOutcome:
        """See ``StreamStore.trim``. Trims to the message."""
        with self._changed:
            found = self._state.streams.get(stream)
            if found is None:
                return _missing(stream)
            registered = self._registered(stream)
            passed = [(name, next) for name, next in registered if next < min(before, found.next)]
            if found.retention.force:
                found.trim(before)
                return Trimmed(found.earliest, tuple(name for name, _ in passed))
            if passed:
                return Held(*min(passed, key=lambda reader: reader[1]))
            found.trim(min([before, *(next - 1 for _, next in registered)]))
            return Trimmed(found.earliest)

    def wait(self, stream: str, index: int, timeout_us: int) -> Hint | Failed:
        """See ``StreamStore.wait``."""
        with self._changed:
            found = self._state.streams.get(stream)
            if found is None:
                return _missing(stream)
            if found.next <= index:
                self._pause(self._changed, timeout_us)
            return Hint()

    def stop_waiting(self) -> None:
        """Every ``wait`` that is under way returns now."""
        with self._changed:
            self._changed.notify_all()

    def info(self, stream: str) -> InfoOutcome:
        """See ``StreamStore.info``."""
        with self._changed:
            found = self._state.streams.get(stream)
            if found is None:
                return _missing(stream)
            producers = [
                ProducerInfo(name, *known) for name, known in sorted(found.producers.items())
            ]
            readers = [
                ReaderInfo(name, next, found.next - next) for name, next in self._registered(stream)
            ]
            return StreamInfo(
                found.incarnation,
                found.earliest,
                found.next,
                found.size_bytes,
                tuple(producers),
                tuple(readers),
            )

    # Positions.

    def claim(self, stream: str, reader: str, claimant: int) -> ClaimOutcome:
        """See ``IndexStore.claim``."""
        with self._changed:
            known = self._reader(stream, reader)
            if claimant < (known.claimant or 0):
                return Fenced(known.claimant or 0)
            if known.claimant != claimant:
                known = replace(known, owner=known.owner + 1, claimant=claimant)
                self._state.readers.setdefault(stream, {})[reader] = known
            return Owner(known.owner)

    def _reader(self, stream: str, reader: str) -> _Reader:
        return self._state.readers.get(stream, {}).get(reader) or _Reader(0, None)

    def get(self, stream: str, reader: str) -> GetOutcome:
        """See ``IndexStore.get``."""
        with self._changed:
            return self._reader(stream, reader).position or NoPosition()

    def commit(self, request: CommitPosition) -> CommitOutcome:
        """See ``IndexStore.commit``."""
        with self._changed:
            outcome, _ = self._commit(request)
            return outcome

    def _commit(self, request: CommitPosition) -> tuple[CommitOutcome, Callable[[], None] | None]:
        known = self._reader(request.stream, request.reader)
        if request.owner < known.owner:
            return Fenced(known.owner), None
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

    # Both in one step.

    @contextmanager
    def transaction(self) -> Generator[MemoryTransaction, None, None]:
        """See ``surepipe.store_api.Transaction``. Other threads see all of it or nothing."""
        transaction = MemoryTransaction()
        yield transaction
        self.finish(transaction)

    def finish(self, transaction: MemoryTransaction) -> None:
        """Do what the transaction holds, or nothing of it, and give it its outcomes."""
        with self._changed:
            self._finish(transaction)

    def _finish(self, transaction: MemoryTransaction) -> None:
        undo: list[Callable[[], None]] = []
        outcomes: list[AppendOutcome | CommitOutcome] = []
        for request in transaction.requests:
            outcome, take_back = (
                self._append(request) if isinstance(request, AppendRun) else self._commit(request)
            )
            outcomes.append(outcome)
            undo += [take_back] if take_back else []
        transaction.outcomes = tuple(outcomes)
        transaction.done = all(isinstance(outcome, Stored | Committed) for outcome in outcomes)
        if not transaction.done:
            for undone in reversed(undo):
                undone()
        for change in transaction.changes if transaction.done else []:
            change()

    # Misfortunes, on demand.

    def part(self, *streams: str) -> MemoryState:
        """A copy of what these streams and their readers are, for ``put_back``."""
        with self._changed:
            kept = self._state
            return MemoryState(
                {name: kept.streams[name].copy() for name in streams if name in kept.streams},
                {name: dict(kept.readers[name]) for name in streams if name in kept.readers},
            )

    def put_back(self, part: MemoryState, *streams: str) -> None:
        """Let these streams and their readers be what they were; the part is used up."""
        with self._changed:
            for name in streams:
                _set(self._state.streams, name, part.streams.get(name))
                _set(self._state.readers, name, part.readers.get(name))
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
            for name in [
                n for n in self._state.streams if n == stream or n.startswith(f"{stream}#")
            ]:
                del self._state.streams[name]
            self._changed.notify_all()


class MemoryTransaction:
    """What a transaction of a memory store will do when its block ends."""

    is_full = False
    """It takes any number of parts."""

    def __init__(self) -> None:
        self.done = False
        self.outcomes: tuple[AppendOutcome | CommitOutcome, ...] = ()
        self.requests: list[AppendRun | CommitPosition] = []
        self.changes: list[Callable[[], None]] = []

    def append(self, request: AppendRun) -> None:
        """Add an append."""
        self.requests.append(request)

    def commit(self, request: CommitPosition) -> None:
        """Add a commit."""
        self.requests.append(request)

    def also(self, change: Callable[[], None]) -> None:
        """Make a change of the caller's own in the same step. It must not raise."""
        self.changes.append(change)

    @contextmanager
    def part(self) -> Generator[None]:
        """When this inner block raises, what was added in it is taken back, and the rest stays."""
        requests, changes = len(self.requests), len(self.changes)
        try:
            yield
        except BaseException:
            del self.requests[requests:], self.changes[changes:]
            raise


def _set(kept: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        kept.pop(name, None)
    else:
        kept[name] = value


def _missing(stream: str) -> Failed:
    return Failed(f"stream {stream!r} does not exist; create it first")


def _difference(known: MemoryStream, partitions: int, retention: Retention) -> str:
    if known.partitions != partitions:
        return f"it has {known.partitions} partitions, not {partitions}"
    if known.retention != retention:
        return f"its retention is {known.retention}, not {retention}"
    return ""
