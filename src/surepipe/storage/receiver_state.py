"""A receiver's durable state over any index store: the state of a position that only its owner moves."""

from __future__ import annotations

from collections.abc import Callable

from surepipe.effects import (
    SaveState,
    Write,
    WriteFailed,
    WriteFenced,
    WriteOutcome,
    WriteStored,
    WriteUnknown,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable
from surepipe.errors import Fenced as FencedError
from surepipe.storage.claims import Claims, number_now
from surepipe.store_api import (
    CommitPosition,
    Committed,
    Failed,
    Fenced,
    IndexStore,
    Kept,
    Level,
    NoPosition,
    Owner,
    Position,
    Unavailable,
    called,
)

READER = "receiver"
TAG = 1


class ReceiverState:
    """The state of one receiver, for one life of it. Each incarnation calls ``load`` first, which fences the one
    before, unless a life that began later has the receiver by now.

    Saves are counted, and the count is the position: a save that arrives late can't undo a newer one.
    """

    def __init__(
        self,
        positions: IndexStore,
        pipe: str,
        *,
        name: str | None = None,
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        """``name`` is the stream part of the position's name; by default ``<pipe>/state``. ``number_of_life`` as
        for ``Claims``."""
        self.name = name or f"{pipe}/state"
        self._positions = positions
        self._claims = Claims(positions, number_of_life)
        self._loaded = 0
        """How many incarnations have loaded it."""
        self._owner = 0
        self._saves = 0
        self._stored = 0
        """The highest save that is known to be stored."""

    @property
    def place(self) -> str:
        """How people call its store."""
        return called(self._positions)

    @property
    def level(self) -> Level:
        """What survives of an answered write."""
        return self._positions.level

    def load(self) -> bytes | None:
        """Take the receiver over and return its stored state; None for a new one.

        Raises StoreUnavailable (ask again), ``errors.Fenced`` (a life that began later receives now, and this one
        never will again) and ConfigurationError (the store refuses).
        """
        claimed = self._claims.claim(self.name, READER, self._loaded + 1)
        if isinstance(claimed, Fenced):
            raise FencedError(
                f"the receiver's state {self.name!r} was taken over by a process that began later"
            )
        if not isinstance(claimed, Owner):
            raise self._as_error(claimed)
        found = self._positions.get(self.name, READER)
        if not isinstance(found, Position | NoPosition):
            raise self._as_error(found)
        self._loaded += 1  # a later load is another incarnation
        self._owner = claimed.number
        self._saves = self._stored = found.next if isinstance(found, Position) else 0
        return found.state if isinstance(found, Position) else None

    def request(self, state: bytes) -> CommitPosition:
        """The commit that saves a state: to be done in one transaction with the effects that it stands for."""
        self._saves += 1
        return CommitPosition(
            self.name, READER, self._owner, TAG, self._saves, None, state, previous_tag=TAG
        )

    def done(self, request: CommitPosition) -> None:
        """The transaction of this commit was done."""
        self._stored = request.next

    def look_again(self, request: CommitPosition | None) -> bool | None:
        """After a transaction that nobody heard of: whether its commit is stored (None: it never got so far).

        It asks as another incarnation, so what is still on its way will be refused and the answer stays true.
        None: the store holds neither this commit nor what was there before. Raises what ``load`` raises.
        """
        before = self._stored
        self.load()
        if request is not None and self._stored == request.next:
            return True
        return False if self._stored == before else None

    def write(self, write: Write) -> WriteOutcome:
        """Perform a ``SaveState``; a repeat changes nothing. WriteFenced: another incarnation has taken over."""
        if not isinstance(write, SaveState):
            raise MisuseError(
                f"{type(write).__name__} is for a sender's journal, not for a receiver's state"
            )
        outcome = self._positions.commit(self.request(write.state))
        if isinstance(outcome, Kept):  # we are the owner, so it is our own count that is behind
            self._saves = outcome.position.next
            outcome = self._positions.commit(self.request(write.state))
        match outcome:
            case Committed():
                self._stored = self._saves
                return WriteStored()
            case Fenced(by):
                return WriteFenced(by)
            case Failed(reason):
                return WriteFailed(reason)
            case _:
                return WriteUnknown()

    def _as_error(self, outcome: object) -> Exception:
        what = f"the receiver's state {self.name!r}"
        if isinstance(outcome, Unavailable):
            return StoreUnavailable(f"{what}: {outcome.detail or 'no answer'}")
        return ConfigurationError(f"{what}: {outcome}")
