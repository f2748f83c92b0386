"""Stores of a simulated world: the full contract in virtual time, and every way in which a store goes wrong.

A ``SimulatedStore`` holds streams, positions, journals, receivers' states and dead letters, like any store. It has
two halves: what it answers from, and what of that outlives a crash of its process or a power cut. ``declared`` is
the level that it shows, ``actual`` the one that it has: below the declared one it lies.

What it answers is answered by a ``MemoryStore``; what befalls it is here:

* between calls, on the word of the world: ``crash``, ``power_cut``, ``lose_last``, ``roll_back``, ``corrupt``,
  ``trim_unread``, ``is_down``;
* at a call, by the call's ``Fate``: slow, lost on the way, done and unanswered, refused, done late.

Who decides is a ``StoreFates``, asked under the name of the call (see ``store_calls``), so a run can be repeated
from its decisions. A stream and its positions that are to fail independently are in two stores.

Two ways to use it. A world that keeps the time itself says ``call`` and brings the answer when it is due. Actors
on a step runtime have it as their store; then slow calls and waits let virtual time pass through ``pause``::

    SimulatedStore(fates=..., pause=lambda over, us: runtime.run_until(over, us / 1_000_000))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, cast

from surepipe.core.store_requests import (
    AllDone,
    AppendRun,
    Batch,
    Changed,
    ChangeRetention,
    CommitPosition,
    Committed,
    Created,
    CreateStream,
    DropStream,
    DropValues,
    Failed,
    IdentifyEntry,
    Level,
    LoadTable,
    Marked,
    Owner,
    ProducerOpened,
    PutValues,
    RaiseMark,
    ReadFrom,
    ReadKeys,
    Store,
    Stored,
    StoreOutcome,
    StoreRequest,
    StreamDropped,
    StreamInfo,
    Together,
    TogetherOutcome,
    TrimBefore,
    Trimmed,
    TrimOutcome,
    Unavailable,
    WaitForMark,
    WaitForMore,
    lent_for_block,
    partition_of,
)
from surepipe.simulation.stores.calls import (
    PLAIN,
    CallFate,
    NoFates,
    StoreFates,
    is_write,
    name_of,
    refusal_of,
)
from surepipe.storage.memory import MemoryPart, MemoryState, MemoryStore, MemoryTransaction

INCARNATION_STEP = 1_000_003
FLUSH_US = 1_000_000
REMEMBER = 64


@dataclass(frozen=True, slots=True)
class _Undo:
    """How one write is taken back: what its streams, readers, values and marks were before."""

    streams: tuple[str, ...]
    before: MemoryPart


def _stands() -> int:
    return 0


Pause: TypeAlias = Callable[[Callable[[], bool], int], object]
"""Lets virtual time pass until the predicate holds, so many microseconds at the most."""


def _no_time(over: Callable[[], bool], longest_us: int) -> None:
    del over, longest_us


def _never() -> bool:
    return False


class SimulatedStore(Store):
    """A store whose process and whose disk belong to a world. See the module.

    The last ``remember`` writes can be taken back, by crashes and power cuts as far as the level allows, by
    ``lose_last`` at any level; older ones only by ``roll_back``.
    """

    def __init__(
        self,
        name: str = "store",
        *,
        declared: Level = Level.POWER,
        actual: Level | None = None,
        kind: str = "simulated",
        clock: Callable[[], int] = _stands,
        fates: StoreFates | None = None,
        pause: Pause = _no_time,
        flush_us: int = FLUSH_US,
        remember: int = REMEMBER,
        new_incarnation: Callable[[], int] | None = None,
        seed: int = 1,
    ) -> None:
        """``clock`` gives virtual wall-clock microseconds. ``flush_us`` is how often a store syncs that does not
        do so at each write. The incarnations of streams follow from ``seed``, unless
        ``new_incarnation`` gives them."""
        self.name = name
        self.kind = kind
        self._declared = declared
        self.actual = declared if actual is None else actual
        self.is_down = False
        """While it is, no call is done or answered."""
        self.writes = 0
        self.on_write: Callable[[], None] | None = None
        """Called after each write that was done: what waits for more may look again."""
        self._incarnation = seed
        self._inside = MemoryStore(
            clock=clock,
            new_incarnation=new_incarnation or self._next_incarnation,
            pause=lambda _condition, _us: None,
        )
        self._clock = clock
        self._fates = fates or NoFates()
        self._pause = pause
        self._interrupts = 0
        self._flush_us = flush_us
        self._flush_at = clock() + flush_us
        self._unflushed = 0
        self._undo: deque[_Undo] = deque(maxlen=remember)
        self._damaged: dict[str, list[int]] = {}
        self.refused: dict[tuple[str, int], int] = {}
        """How often damaged entries were asked for."""
        self._late: list[StoreRequest] = []
        self._asked: dict[str, int] = {}

    def _next_incarnation(self) -> int:
        self._incarnation += INCARNATION_STEP
        return self._incarnation

    @property
    def level(self) -> Level:
        """The durability that it declares."""
        return self._declared

    # For a world that keeps the time.

    def call(self, request: StoreRequest, fate: CallFate = PLAIN) -> StoreOutcome | None:
        """Let the store do a call, and give what it will answer; None: nobody will hear of it.

        The delay is the world's business. A wait is answered at once: ``has_more`` says whether it would be over.
        """
        done = self._under(request, fate, lambda: self._execute(request))
        return cast("StoreOutcome | None", done)

    def has_more(self, request: WaitForMore | WaitForMark) -> bool:
        """Whether what a wait is for is there, or never will be, or the stream went back."""
        if isinstance(request, WaitForMark):
            return self._inside.wait_for_mark(request.mark, request.seen, 0) != Marked(request.seen)
        found = self._inside.info(request.stream)
        return not isinstance(found, StreamInfo) or found.next != request.index

    def _under(self, call: StoreRequest, fate: CallFate, act: Callable[[], object]) -> object:
        if self.is_down:
            return None
        self._catch_up()
        match fate.verb:
            case "lost":
                return None
            case "unknown":
                act()
                return None
            case "late":
                self._late.append(call)
                return None
            case "refuse":
                return refusal_of(call, fate.reason)
            case _:
                return act()

    def _catch_up(self) -> None:
        late, self._late = self._late, []
        for call in late:
            self._execute(call)

    # Doing.

    def _execute(
        self, request: StoreRequest, changes: Sequence[Callable[[], None]] = ()
    ) -> StoreOutcome:
        """``changes``: those of the caller's own that happen together with the request."""
        if not is_write(request):
            return self._undamaged(request, self._inside.ask(request))
        streams = self._streams_of(request)
        before = self._before(request, streams)
        outcome = (
            self._inside.do_together(request, changes)
            if isinstance(request, Together)
            else self._inside.ask(request)
        )
        if _has_changed(outcome):
            self._note(streams, before)
        return outcome

    def _streams_of(self, request: StoreRequest) -> tuple[str, ...]:
        """The streams that a write may change."""
        match request:
            case CreateStream(stream, partitions) if partitions > 1:
                return tuple(partition_of(stream, n) for n in range(partitions))
            case DropStream(stream) | ChangeRetention(stream):
                return tuple(self._inside.partitions(stream))
            case Together(requests):
                named = (one for one in requests if isinstance(one, AppendRun | CommitPosition))
                return tuple(dict.fromkeys(one.stream for one in named))
            case ReadKeys() | LoadTable() | WaitForMark():
                return ()
            case _:
                return (request.stream,)

    def _before(self, request: StoreRequest, streams: tuple[str, ...]) -> MemoryPart:
        """What a write may have to be taken back to."""
        if not self._undo.maxlen:
            return self._inside.part(())
        requests = request.requests if isinstance(request, Together) else ()
        values = [
            (one.table, key)
            for one in requests
            if isinstance(one, PutValues | DropValues)
            for key in (one.pairs if isinstance(one, PutValues) else one.keys)
        ]
        marks = [one.mark for one in requests if isinstance(one, RaiseMark)]
        return self._inside.part(streams, values, marks)

    def _note(self, streams: tuple[str, ...], before: MemoryPart) -> None:
        """Something was written."""
        self._flush_if_due()
        self._undo.append(_Undo(streams, before))
        self.writes += 1
        self._unflushed += 1
        if self.on_write is not None:
            self.on_write()

    def _flush_if_due(self) -> None:
        if self._clock() >= self._flush_at:
            self.flush()

    def flush(self) -> None:
        """Sync: what was written so far outlives a power cut, but for level ``none``."""
        self._unflushed = 0
        self._flush_at = self._clock() + self._flush_us

    # What befalls it.

    def at_risk(self, *, power: bool = False) -> int:
        """How many of its last writes a crash (or a power cut) may take: the world draws up to so many."""
        match self.actual:
            case Level.NONE:
                return self.writes
            case Level.INTERVAL:
                return min(self._unflushed, len(self._undo))
            case Level.PROCESS:
                return min(self._unflushed, len(self._undo)) if power else 0
            case Level.POWER:
                return 0

    def crash(self, lost: int = 0, *, power: bool = False) -> int:
        """The process of the store ends and starts again; returns how many writes are gone.

        ``lost`` is how many of its last writes it had not made safe; no more go than its actual level lets go, and
        at level ``none`` all do. Calls that were to be done late never are.
        """
        self._late.clear()
        gone = min(lost, self.at_risk(power=power))
        if self.actual is Level.NONE:
            gone = self.writes
            self._inside.crash()
            self._forget_history()
        else:
            self._take_back(gone)
        self.flush()
        return gone

    def power_cut(self, lost: int = 0, *, torn: bool = False) -> int:
        """The machine of the store loses its power: what its disk has is a prefix of what was written.

        ``torn``: the first of the lost records is there in part. It fails its checksum when the store starts
        again, so it is gone like those after it. A store at level ``power`` answered for none that can be torn.
        """
        at_risk = self.at_risk(power=True)
        return self.crash(max(lost, 1) if torn and at_risk else lost, power=True)

    def lose_last(self, writes: int) -> int:
        """The store forgets its last writes, whatever its level; returns how many it did remember to forget."""
        gone = min(writes, len(self._undo))
        self._take_back(gone)
        return gone

    def _take_back(self, writes: int) -> None:
        for _ in range(writes):
            undo = self._undo.pop()
            self._inside.put_back(undo.before, undo.streams)
        self._unflushed = max(0, self._unflushed - writes)
        self._heal()

    def snapshot(self) -> MemoryState:
        """Everything that it holds, for ``roll_back``; an empty store is ``MemoryState()``."""
        return self._inside.snapshot()

    def roll_back(self, state: MemoryState) -> None:
        """Go back to a snapshot, as after a failover to a replica that lagged, or a restored backup."""
        self._inside.roll_back(state)
        self._forget_history()

    def _forget_history(self) -> None:
        self._undo.clear()
        self._unflushed = 0
        self._heal()

    def _heal(self) -> None:
        """What is gone is not damaged any more, nor is what will be written in its place."""
        for stream, indexes in self._damaged.items():
            found = self._inside.info(stream)
            end = found.next if isinstance(found, StreamInfo) else 0
            indexes[:] = [index for index in indexes if index < end]

    def corrupt(self, stream: str, index: int) -> None:
        """The entry is damaged at rest. Its checksum tells: what reads it fails, what ends before it does not."""
        self._damaged.setdefault(stream, []).append(index)

    def restore(self, stream: str, index: int) -> int:
        """The entry is as it was, from a copy. How often it was asked for in the meantime."""
        self._damaged[stream] = [one for one in self._damaged[stream] if one != index]
        return self.refused.pop((stream, index), 0)

    def _undamaged(self, request: StoreRequest, outcome: StoreOutcome) -> StoreOutcome:
        if not isinstance(request, ReadFrom | IdentifyEntry):
            return outcome
        damaged = [i for i in self._damaged.get(request.stream, ()) if i >= request.index]
        if not damaged:
            return outcome
        first = min(damaged)
        failed = Failed(f"entry {first} of {request.stream!r} is damaged: restore it from a copy")
        if isinstance(outcome, Batch) and request.index < first < outcome.next:
            assert isinstance(request, ReadFrom)
            shorter = min(request.max_messages, first - request.index)
            return self._inside.read(request.stream, request.index, shorter, request.max_bytes)
        if first != request.index or isinstance(outcome, Failed):
            return outcome
        self.refused[request.stream, first] = self.refused.get((request.stream, first), 0) + 1
        return failed

    def trim_unread(self, stream: str) -> TrimOutcome:
        """Everything goes that the stream's retention lets go: with ``force`` what nobody has read yet, too."""
        found = self._inside.info(stream)
        if not isinstance(found, StreamInfo):
            return found
        outcome = self._execute(TrimBefore(stream, found.next))
        return cast("TrimOutcome", outcome)

    def places_of(self, stream: str) -> tuple[int, int]:
        """The index of the first entry, and the first that some reader has still to read; (0, 0) without it."""
        found = self._inside.info(stream)
        if not isinstance(found, StreamInfo):
            return 0, 0
        return found.earliest, unread_of(found)

    def end_of(self, stream: str) -> int:
        """The index of the next entry, 1 where the stream is gone; also of a store that is away."""
        found = self._inside.info(stream)
        return found.next if isinstance(found, StreamInfo) else 1

    def remove(self, stream: str, first: int, last: int) -> None:
        """Somebody else takes entries out. What was written before is not taken back any more."""
        self._inside.remove(stream, first, last)
        self._forget_history()

    def delete(self, stream: str) -> None:
        """Forget a stream with all its partitions, but not the positions of its readers."""
        self._inside.delete(stream)
        self._forget_history()

    # For actors: each call meets its fate.

    def ask(self, request: StoreRequest) -> StoreOutcome:
        if isinstance(request, WaitForMore | WaitForMark) and not self.has_more(request):
            seen = self._interrupts
            self._pause(
                lambda: self.has_more(request) or seen != self._interrupts, request.timeout_us
            )
        outcome = self.call(request, self._met(request))
        return Unavailable("no answer, on purpose") if outcome is None else outcome

    def _met(self, call: StoreRequest) -> CallFate:
        name = name_of(call)
        count = self._asked[name] = self._asked.get(name, 0) + 1
        asked = name if count == 1 else f"{name} #{count}"
        fate = self._fates.store(self.name, asked, is_write=is_write(call))
        if fate.delay_us:
            self._pause(_never, fate.delay_us)
        return fate

    def stop_waiting(self) -> None:
        """Every ``wait`` that is under way is over."""
        self._interrupts += 1

    @contextmanager
    def transaction(self) -> Generator[MemoryTransaction]:
        """See ``surepipe.core.store_requests.Transaction``; it is one call, so one fate befalls all of it."""
        transaction = MemoryTransaction()
        with lent_for_block(transaction):
            yield transaction
        request = transaction.joined()
        done = self._under(
            request, self._met(request), lambda: self._execute(request, transaction.changes)
        )
        unheard = Unavailable("no answer, on purpose")
        transaction.settle(unheard if done is None else cast("TogetherOutcome", done))


def unread_of(found: StreamInfo) -> int:
    """The first index that some reader has still to read; without readers the earliest."""
    return min((reader.next for reader in found.readers), default=found.earliest)


def _has_changed(outcome: object) -> bool:
    """False for refusals and for a run that was stored already. Any other repeat counts as one more write."""
    if isinstance(outcome, Stored):
        return outcome.new > 0
    if isinstance(outcome, AllDone):
        return any(map(_has_changed, outcome.outcomes))
    written = Created | ProducerOpened | Trimmed | Owner | Committed | Changed | StreamDropped
    return isinstance(outcome, written)
