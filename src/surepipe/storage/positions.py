"""A receiver's durable state over any index store: the state of a position that only its owner moves."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from surepipe.core.effects import (
    SaveState,
    Write,
    WriteFailed,
    WriteFenced,
    WriteOutcome,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.store_requests import (
    FORGOTTEN,
    ClaimOutcome,
    CommitPosition,
    Committed,
    Failed,
    FencedOut,
    Kept,
    Level,
    NoPosition,
    Owner,
    Position,
    ReaderInfo,
    Store,
    StreamInfo,
    Unavailable,
    called,
    is_closed,
    said_of,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable
from surepipe.errors import Fenced as FencedError

# Which commit may take the place of a stored position: the rule that every store keeps (S-9).


def may_replace(stored: Position, request: CommitPosition) -> bool:
    """Whether a commit by the reader's owner is stored over a position that is there.

    A commit that was given up may be executed late, after newer ones of the same owner. It can't take the index
    back; where the index is the same, its lower revision keeps it from taking the state back.
    """
    if stored.tag != request.tag:
        return request.previous_tag == stored.tag
    if request.next != stored.next:
        return request.next > stored.next
    return stored.owner != request.owner or request.revision >= stored.revision


def registered(places: Iterable[tuple[str, int]], end: int) -> list[tuple[str, int]]:
    """Of all that ever had a place in a stream, whose next index is ``end``, those for whom entries are kept."""
    return [(reader, min(place, end)) for reader, place in places if place < FORGOTTEN]


def furthest_behind(places: Sequence[tuple[str, int]], end: int) -> tuple[str, int]:
    """Of all that ever had a place in a stream the one that holds up all that is behind it, and its next index.

    Where nobody ever had one, nobody at 1: whoever comes first is to find all that was appended. Where all of
    them were forgotten, nobody behind the end.
    """
    if not places:
        return "", 1
    readers = registered(places, end)
    return min(readers, key=lambda reader: reader[1], default=("", end + 1))


# Claims of one life: who may take a reader, when a process that was replaced comes back.
#
# A life begins when somebody starts a program, and takes over from whoever was there. Within it an incarnation
# may have to begin anew (its actor died, or a store did not answer): that is a renewal, which claims again, and
# must not take anything back from a life that began later. So claims are numbered: a life by the wall clock,
# its renewals by counting on. The store knows the highest claimant that it ever had, and refuses lower ones for
# good.


CHANCE_BITS = 20
"""Below the milliseconds. It tells two lives of one millisecond apart, and leaves room for a million renewals."""
_CHANCE = (1 << CHANCE_BITS) - 1
_STEP = 1 << 14
"""How far above another life one goes that must not be below it: its renewals fit in between."""


def numbered(wall_ms: int, chance: int) -> int:
    """The number of a life that begins at this time."""
    return (wall_ms << CHANCE_BITS) + (chance & _CHANCE)


def number_now() -> int:
    """The number of a life that begins now. The upper half of the chance is left to those that have to go above
    another one of the same millisecond: past that they would seem to have begun in the next."""
    return numbered(time.time_ns() // 1_000_000, secrets.randbits(CHANCE_BITS - 1))


def began_later(other: int, own: int, now: int) -> bool:
    """Whether the other life began after our own one; all three are numbers of lives.

    One of the same millisecond is taken for earlier. So is one from the future: a clock is wrong, and whoever was
    started must not be refused for that.
    """
    return own >> CHANCE_BITS < other >> CHANCE_BITS < now >> CHANCE_BITS


class Claims:
    """The claims of one life on one reader."""

    def __init__(self, positions: Store, number_of_life: Callable[[], int] = number_now) -> None:
        """The life begins now. ``number_of_life``: of one that begins when it is called, by the clock."""
        self._positions = positions
        self._number_of_life = number_of_life
        self._life = number_of_life()
        self._is_taken = False
        """True once this life was told that it owns the reader."""

    def claim(self, stream: str, reader: str, renewal: int) -> ClaimOutcome:
        """Claim as the how-many-th incarnation of this life; the number counts up from 1.

        The first time takes the reader from whoever has it. Fenced from then on when a life that began later has
        taken it. A repeat of the same renewal: the same owner.
        """
        claimed = self._claim(stream, reader, renewal)
        if isinstance(claimed, FencedOut) and self._is_earlier(claimed.by):
            self._life = claimed.by + _STEP + self._life % _STEP
            claimed = self._claim(stream, reader, renewal)
        return claimed

    def claimant(self, renewal: int) -> int:
        """The number under which this incarnation claims: above those of all lives and incarnations before it."""
        return self._life + renewal

    def rise_above(self, other: int) -> bool:
        """Number this life above another one, which a store beside the claims' own knows; false when that one did
        begin later."""
        if began_later(other, self._life, self._number_of_life()):
            return False
        self._life = max(self._life, other + _STEP + self._life % _STEP)
        return True

    def _claim(self, stream: str, reader: str, renewal: int) -> ClaimOutcome:
        claimed = self._positions.claim(stream, reader, self.claimant(renewal))
        self._is_taken = self._is_taken or isinstance(claimed, Owner)
        return claimed

    def _is_earlier(self, claimant: int) -> bool:
        """True for one whose life is earlier than this one, although its number is higher."""
        is_new = not self._is_taken
        return is_new and not began_later(claimant, self._life, self._number_of_life())


READER = "receiver"
TAG = 1


class ReceiverState:
    """The state of one receiver, for one life of it. Each incarnation calls ``load`` first, which fences the one
    before, unless a life that began later has the receiver by now.

    Saves are counted, and the count is the position: a save that arrives late can't undo a newer one.
    """

    def __init__(
        self,
        positions: Store,
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
        self._fallen: tuple[int, int] | None = None

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
        if isinstance(claimed, FencedOut):
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
        known, self._stored = self._stored, found.next if isinstance(found, Position) else 0
        self._saves = self._stored
        if self._stored < known:
            self._fallen = self._stored, known
        return found.state if isinstance(found, Position) else None

    def rollback(self) -> str:
        """What a load found out since this was asked: the store went back behind a save that it had answered.
        Empty when it has not; told once."""
        fallen, self._fallen = self._fallen, None
        if fallen is None:
            return ""
        found, known = fallen
        return f"{self.place} went back to save {found} of {known} of the receiver's state {self.name!r}"

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
            case FencedOut(by):
                return WriteFenced(by)
            case Failed(reason):
                return WriteFailed(reason, closed=is_closed(self._positions))
            case _:
                return WriteUnknown()

    def _as_error(self, outcome: object) -> Exception:
        kind = StoreUnavailable if isinstance(outcome, Unavailable) else ConfigurationError
        return kind(said_of("the receiver's state", self.name, outcome))


# Readers of a stream, for whoever looks after it.


def readers_of(store: Store, stream: str) -> tuple[ReaderInfo, ...]:
    """The registered readers of a stream, by name: for each the next index that it will read, and how many entries
    are before it. With a bounded retention entries stay until the last of them has read them.

    Raises LookupError where there is no such stream, StoreUnavailable.
    """
    found = store.info(stream)
    if isinstance(found, StreamInfo):
        return found.readers
    if isinstance(found, Failed):
        raise LookupError(f"{called(store)}: {found}")
    raise StoreUnavailable(said_of("the readers of stream", stream, found))


def elsewhere_of(stream: str) -> str:
    """Where readers of a stream leave word whose places are in other stores."""
    return f"{stream}/stacks/elsewhere"


def named_elsewhere(word: Position | None, incarnation: int) -> tuple[str, ...]:
    """Who has left word there since the stream was made."""
    if word is None:
        return ()
    noted, *readers = cast("list[object]", json.loads(word.state))
    return tuple(map(str, readers)) if noted == incarnation else ()


def readers_elsewhere(store: Store, stream: str) -> tuple[str, ...]:
    """The readers of a stream that have said here that their places are in other stores, by name. How far they
    are is not known here, and entries don't stay for them. Raises StoreUnavailable."""
    info = store.info(stream)
    if not isinstance(info, StreamInfo):
        return ()
    found = store.get(elsewhere_of(stream), stream)
    if isinstance(found, Unavailable):
        raise StoreUnavailable(said_of("the readers of stream", stream, found))
    word = found if isinstance(found, Position) else None
    return tuple(sorted(named_elsewhere(word, info.incarnation)))


def forget_reader(store: Store, stream: str, reader: str) -> ReaderInfo:
    """Keep nothing for this reader any more: what it has not read may go, and the stream has room. Gives where it
    was.

    One that is still at work stops with ``Fenced`` at its next commit, and stores nothing more. Its place is kept,
    and so are its dead letters. When it is started again it goes on there, as a registered reader; where entries
    are gone by then it is told which ones (``Trimmed``), and its ``on_trimmed`` applies. After a crash call it
    again: a repeat raises LookupError, as for a reader that the stream has not.

    Raises LookupError, StoreUnavailable, and Fenced when somebody has started the reader meanwhile.
    """
    known = {one.reader: one for one in readers_of(store, stream)}
    if reader not in known:
        has = ", ".join(map(repr, known)) or "none"
        raise LookupError(f"stream {stream!r} has no reader {reader!r}; it has {has}")
    claimed = Claims(store).claim(stream, reader, 1)
    found = store.get(stream, reader) if isinstance(claimed, Owner) else claimed
    if not isinstance(claimed, Owner) or not isinstance(found, Position):
        raise _not_forgotten(stream, reader, found)
    done = store.commit(
        CommitPosition(
            *(stream, reader, claimed.number, found.tag, FORGOTTEN + found.place),
            *(found.anchor, found.state),
            revision=found.revision + 1,
        )
    )
    if not isinstance(done, Committed):
        raise _not_forgotten(stream, reader, done)
    return known[reader]


ELSEWHERE = "stacks/elsewhere"
_CLAIMANT = 1
"""Everybody claims as the same: nobody owns the word that a stream is read."""


def note_read(store: Store, stream: str) -> None:
    """Leave word with a stream that somebody reads it for whom its store keeps nothing, as his place is elsewhere,
    or as he may come too late: its retention lets go then what no registered reader has still to read. The word is
    the place of a reader that is forgotten. A repeat changes nothing.

    Raises StoreUnavailable.
    """
    if isinstance(store.get(stream, ELSEWHERE), Position):
        return
    claimed = store.claim(stream, ELSEWHERE, _CLAIMANT)
    done: object = claimed
    if isinstance(claimed, Owner):
        done = store.commit(
            CommitPosition(stream, ELSEWHERE, claimed.number, TAG, FORGOTTEN + 1, None, b"")
        )
    if not isinstance(done, Committed):
        raise StoreUnavailable(said_of("word that somebody reads stream", stream, done))


def _not_forgotten(stream: str, reader: str, outcome: object) -> Exception:
    kind = FencedError if isinstance(outcome, FencedOut) else StoreUnavailable
    return kind(said_of(f"reader {reader!r} was not forgotten by stream", stream, outcome))
