"""A store with misfortunes around any other store: by script, call for call, and by seed.

    store = FaultyStore(MemoryStore())
    store.script(Misfortune.UNKNOWN, on=AppendRun)      # the next append is done, and nobody hears of it

Going back (``ROLL_BACK``, ``LOSE_LAST``) needs a store that can: one with ``snapshot`` and ``roll_back``;
``REMOVE`` one with ``remove``.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar, runtime_checkable

from surepipe.core.store_requests import (
    AppendRun,
    ChangeRetention,
    ClaimReader,
    CommitPosition,
    CreateStream,
    DropStream,
    Failed,
    JoinedRequest,
    KeyedRequest,
    Level,
    OpenProducer,
    Store,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
    Together,
    Transaction,
    TransactionalStore,
    TrimBefore,
    Unavailable,
)
from surepipe.errors import MisuseError

T = TypeVar("T")
S = TypeVar("S")
WRITES = (
    *(CreateStream, ChangeRetention, OpenProducer, AppendRun, TrimBefore, DropStream),
    *(ClaimReader, CommitPosition, Together),
)


class Misfortune(StrEnum):
    """What may happen to a call."""

    OUTAGE = "outage"
    """Not done; Unavailable."""
    UNKNOWN = "unknown"
    """Done; Unavailable all the same."""
    REFUSED = "refused"
    """Not done; Failed."""
    SLOW = "slow"
    """Done after a while."""
    ROLL_BACK = "roll back"
    """Before the call the store goes back to the last ``mark``."""
    LOSE_LAST = "lose last"
    """Before the call the store loses its last writes."""
    TRIM = "trim"
    """Before the call everything in the streams that forces trimming is trimmed."""
    LATE = "late"
    """Not done now; Unavailable. Done before a later call, when the caller may have asked for something else."""
    REMOVE = "remove"
    """Before the call somebody else removes the last entries of every stream, read or not."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Probabilities per call; no more than one misfortune happens to a call.

    An outage lasts 1 to ``outage_calls_max`` calls. ``slow_us`` is the range of delays, ``lose_max`` the most
    writes that are lost at once, ``late_calls_max`` the most calls after which a late one is done.
    """

    outage: float = 0.0
    unknown: float = 0.0
    refused: float = 0.0
    slow: float = 0.0
    roll_back: float = 0.0
    lose_last: float = 0.0
    trim: float = 0.0
    late: float = 0.0
    remove: float = 0.0
    outage_calls_max: int = 20
    slow_us: tuple[int, int] = (1_000, 1_000_000)
    lose_max: int = 5
    late_calls_max: int = 5


@runtime_checkable
class GoesBack(Protocol[S]):
    """A store that can return to an earlier state."""

    def snapshot(self) -> S: ...

    def roll_back(self, state: S) -> None: ...


@runtime_checkable
class LosesEntries(Protocol):
    """A store whose entries can be taken out as by somebody else."""

    def remove(self, stream: str, first: int, last: int) -> None: ...


@dataclass(slots=True)
class _Scripted:
    """A misfortune for calls to come."""

    misfortune: Misfortune
    on: type[object]
    calls: int
    amount: int


@dataclass(slots=True)
class _Late:
    """A call that will be done before the last of so many later calls."""

    calls: int
    act: Callable[[], object]


def _no_sleep(micros: int) -> None:
    """Slow calls take no time unless somebody says how."""
    del micros


class FaultyStore(Store):
    """Passes every call on, unless something happens to it. What happens depends on the seed and the calls only.

    Safe for threads as far as the store inside is; with several threads the order of their calls decides.
    """

    def __init__(
        self,
        inside: Store,
        *,
        rates: Rates | None = None,
        seed: int = 0,
        sleep: Callable[[int], None] = _no_sleep,
        remember: int = 0,
    ) -> None:
        """``sleep`` is called with the microseconds of a slow call. ``remember`` is how many last writes can be
        lost: a snapshot is kept for each."""
        self.inside = inside
        self.rates = rates or Rates()
        self.happened: Counter[Misfortune] = Counter()
        self._rng = random.Random(seed)
        self._sleep = sleep
        self._remember = remember
        self._lock = threading.RLock()
        self._script: list[_Scripted] = []
        self._late: list[_Late] = []
        self._open = 0
        self._outage_left = 0
        self._names: set[str] = set()
        self._marked: object = None
        self._before: deque[object] = deque(maxlen=remember)

    @property
    def level(self) -> Level:
        return self.inside.level

    @property
    def closed(self) -> bool:
        return bool(getattr(self.inside, "closed", False))

    def beside(self, name: str) -> Store:
        inside = self.inside.beside(name)
        if inside is self.inside:
            return self
        seed = self._rng.getrandbits(32)
        return FaultyStore(inside, rates=self.rates, seed=seed, sleep=self._sleep)

    # Script.

    def script(
        self,
        misfortune: Misfortune,
        *,
        on: type[object] = object,
        calls: int = 1,
        amount: int = 1,
    ) -> None:
        """The next calls (of the request type ``on``) have this misfortune.

        ``amount``: microseconds of a slow call, writes to lose, entries to remove, or after how many calls
        a late one is done. Scripts are used up in their order. A transaction is a call of type
        ``FaultyTransaction``; a late one whose block used ``inside`` is never done, because nobody knows what it
        wrote there.
        """
        self._script.append(_Scripted(misfortune, on, calls, amount))

    def calm(self) -> None:
        """From here on nothing happens any more; what was to be done late never is."""
        with self._lock:
            self._script.clear()
            self._late.clear()
            self._outage_left = 0
            self.rates = Rates()

    def mark(self) -> None:
        """Where ``ROLL_BACK`` goes back to."""
        self._marked = self._rewindable().snapshot()

    def _rewindable(self) -> GoesBack[object]:
        if isinstance(self.inside, GoesBack):
            return self.inside
        raise MisuseError(
            f"{type(self.inside).__name__} can't go back: it has no snapshot and roll_back"
        )

    # What happens to a call.

    def _fate(self, kind: type[object]) -> tuple[Misfortune | None, int]:
        for scripted in self._script:
            if issubclass(kind, scripted.on):
                scripted.calls -= 1
                if not scripted.calls:
                    self._script.remove(scripted)
                return scripted.misfortune, scripted.amount
        return self._drawn()

    def _drawn(self) -> tuple[Misfortune | None, int]:
        if self._outage_left:
            self._outage_left -= 1
            return Misfortune.OUTAGE, 0
        rates = self.rates
        drawn = self._rng.random()
        for misfortune in Misfortune:
            drawn -= getattr(rates, misfortune.name.lower())
            if drawn < 0:
                return misfortune, self._amount(misfortune)
        return None, 0

    def _amount(self, misfortune: Misfortune) -> int:
        match misfortune:
            case Misfortune.OUTAGE:
                self._outage_left = self._rng.randint(1, self.rates.outage_calls_max) - 1
                return 0
            case Misfortune.SLOW:
                return self._rng.randint(*self.rates.slow_us)
            case Misfortune.LOSE_LAST | Misfortune.REMOVE:
                return self._rng.randint(1, self.rates.lose_max)
            case Misfortune.LATE:
                return self._rng.randint(1, self.rates.late_calls_max)
            case _:
                return 0

    def _meet(
        self, kind: type[object], act: Callable[[], object] | None = None
    ) -> Misfortune | None:
        """Draw what happens to a call, and let happen what happens before it."""
        with self._lock:
            self._do_what_is_late()
            misfortune, amount = self._fate(kind)
            if misfortune is Misfortune.LATE and act is not None:
                self._late.append(_Late(amount, act))
            if misfortune is not None:
                self.happened[misfortune] += 1
            self._happen(misfortune, amount)
            if self._remember and issubclass(kind, (*WRITES, FaultyTransaction)):
                self._before.append(self._rewindable().snapshot())
        if misfortune is Misfortune.SLOW:
            self._sleep(amount)
        return misfortune

    def _do_what_is_late(self) -> None:
        if self._open:  # a store makes one transaction after the other
            return
        for late in self._late:
            late.calls -= 1
        due = [late for late in self._late if late.calls <= 0]
        self._late = [late for late in self._late if late.calls > 0]
        for late in due:
            late.act()

    def _happen(self, misfortune: Misfortune | None, amount: int) -> None:
        match misfortune:
            case Misfortune.ROLL_BACK:
                if self._marked is None:
                    raise MisuseError("nothing to go back to: call mark() first")
                self._rewindable().roll_back(self._marked)
                self._before.clear()
            case Misfortune.LOSE_LAST:
                self._lose_last(amount)
            case Misfortune.TRIM:
                self._trim_all()
            case Misfortune.REMOVE:
                self._remove_last(amount)
            case _:
                return

    def _lose_last(self, writes: int) -> None:
        if not self._remember:
            raise MisuseError("no writes are remembered: FaultyStore(..., remember=5)")
        state = None
        for _ in range(min(writes, len(self._before))):
            state = self._before.pop()
        if state is not None:
            self._rewindable().roll_back(state)

    def _trim_all(self) -> None:
        for name in sorted(self._names):
            found = self.inside.info(name)
            if isinstance(found, StreamInfo):
                self.inside.trim(name, found.next)

    def _remove_last(self, entries: int) -> None:
        if not isinstance(self.inside, LosesEntries):
            raise MisuseError(f"{type(self.inside).__name__} has no remove")
        for name in sorted(self._names):
            found = self.inside.info(name)
            if isinstance(found, StreamInfo) and found.next > 1:
                self.inside.remove(name, max(1, found.next - entries), found.next - 1)

    def ask(self, request: StoreRequest) -> StoreOutcome:
        if isinstance(request, Together):
            appends = (part for part in request.requests if isinstance(part, AppendRun))
            self._names.update(run.stream for run in appends)
        elif not isinstance(request, KeyedRequest):
            self._names.add(request.stream)
        return self._met(type(request), lambda: self.inside.ask(request))

    def _met(self, kind: type[StoreRequest], act: Callable[[], StoreOutcome]) -> StoreOutcome:
        match self._meet(kind, act):
            case Misfortune.OUTAGE:
                return Unavailable("an outage, on purpose")
            case Misfortune.LATE:
                return Unavailable("to be done later, on purpose")
            case Misfortune.REFUSED:
                return Failed("refused, on purpose")
            case Misfortune.UNKNOWN:
                act()
                return Unavailable("done, and the answer was lost, on purpose")
            case _:
                return act()

    def stop_waiting(self) -> bool:
        """End the waits of the store inside that are under way; False when it has no means to."""
        stop = getattr(self.inside, "stop_waiting", None)
        if stop is not None:
            stop()
        return stop is not None

    @contextmanager
    def transaction(self) -> Generator[FaultyTransaction[Transaction]]:
        """A transaction of the store inside: with an outage nothing of it is done, with an unknown outcome all."""
        if not isinstance(self.inside, TransactionalStore):
            raise MisuseError(f"{type(self.inside).__name__} has no transactions")
        requests: list[Together] = []
        misfortune = self._meet(FaultyTransaction, lambda: self._transact(requests))
        faulty: FaultyTransaction[Transaction] | None = None
        self._note_open(1)
        try:
            with self.inside.transaction() as transaction:
                faulty = FaultyTransaction(transaction)
                yield faulty
                if misfortune in (Misfortune.OUTAGE, Misfortune.REFUSED, Misfortune.LATE):
                    raise _NotDone
        except _NotDone:
            assert faulty is not None
            if not faulty.is_opened:
                requests.append(faulty.joined())
            outcome = (
                Failed("refused, on purpose") if misfortune is Misfortune.REFUSED else Unavailable()
            )
        else:
            if misfortune is not Misfortune.UNKNOWN:
                faulty.take_over()
                return
            outcome = Unavailable("done, and the answer was lost, on purpose")
        finally:
            self._note_open(-1)
        faulty.settle(outcome)

    def _note_open(self, by: int) -> None:
        with self._lock:
            self._open += by

    def _transact(self, requests: Sequence[Together]) -> None:
        """What a late transaction was to do; nobody hears what came of it."""
        for request in requests:
            self.inside.ask(request)


class _NotDone(Exception):
    """Makes the transaction inside undo everything."""


class FaultyTransaction(Transaction, Generic[T]):
    """A transaction whose end may be lost. ``inside`` is the store's own, for what only that one has."""

    def __init__(self, inside: T) -> None:
        super().__init__()
        self.is_opened = False
        """Whether somebody asked for ``inside``."""
        self._inside = inside

    @property
    def inside(self) -> T:
        self.is_opened = True
        return self._inside

    def add(self, request: JoinedRequest) -> None:
        assert isinstance(self._inside, Transaction)
        self._inside.add(request)
        super().add(request)

    def decided_by(self, request: AppendRun) -> None:
        super().decided_by(request)
        assert isinstance(self._inside, Transaction)
        self._inside.is_decided = True

    def take_over(self: FaultyTransaction[Transaction]) -> None:
        """What came of the transaction inside came of this one."""
        self.outcomes, self.done = self._inside.outcomes, self._inside.done
