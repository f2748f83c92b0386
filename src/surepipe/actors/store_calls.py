"""The clerks of an end: they make the store calls of its machine, so that the end's own actor never blocks.

One clerk does one call after the other, so what must not be held up by a store that hangs has a clerk of its own:
the journal when the stream is in another store, dead letters, and a call that only waits for more to read (which
can be told to stop when the end closes). Machines rely on no order between them: whatever must come after a write
is asked for when the write is answered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

from surepipe.core.effects import (
    Call,
    DeadLetter,
    JournalContents,
    Letter,
    Notice,
    NoticeKind,
    Persist,
    Write,
    WriteOutcome,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.store_requests import (
    AppendRun,
    ClaimReader,
    CommitPosition,
    GetPosition,
    ReadFrom,
    Unavailable,
    WaitForMark,
    WaitForMore,
)
from surepipe.errors import ConfigurationError, StoreUnavailable, words_of

logger = logging.getLogger("surepipe")
Request: TypeAlias = Persist | Call | DeadLetter
SILENT_US = 2_000_000
"""A store that has not answered for so long is called silent; until then it is only slow."""
AGAIN_US, SILENT_AGAIN_US = 60_000_000, 10_000_000
"""For a minute after it was told of a store, only a longer silence is: one that is slow for ever fills no log."""
_CLERK, _STREAM, _LETTERS, WAITER = "clerk", "stream-clerk", "letter-clerk", "waiter"


class Journal(Protocol):
    """What a sender needs of its journal. Calls may block; StoreUnavailable means: ask again."""

    def load(self) -> JournalContents: ...

    def write(self, write: Write) -> WriteOutcome:
        """Perform a write; a repeat of it changes nothing."""
        ...


class StateStore(Protocol):
    """What a durable receiver needs. Calls may block; StoreUnavailable means: ask again."""

    def load(self) -> bytes | None:
        """The stored state; None for a new receiver."""
        ...

    def rollback(self) -> str:
        """Say, once, how the last load found the store to have gone back; empty if it had not."""
        ...

    def write(self, write: Write) -> WriteOutcome:
        """Store a state in place of the former."""
        ...


class StreamAccess(Protocol):
    """What an end over a stream needs of its stores. Calls may block."""

    full: str
    """Why the last append found no room; empty when it found some."""

    def call(self, request: object) -> object:
        """The outcome of a store call."""
        ...

    def stop_waiting(self) -> bool:
        """End the waits that are under way; False when the store has no such means."""
        ...

    def end(self) -> tuple[int, int]:
        """The incarnation of the stream, and the index that its next message will get. Raises StoreUnavailable
        when the store does not say, StoreReset when the stream is gone."""
        ...

    def tell_beginning(self, tell: Callable[[str, int, int], object], *, always: bool) -> None:
        """Tell of each producer which message (epoch, seq) a reader begins behind that has no place yet; unless
        ``always``, not of one that begins at the first of all."""
        ...

    def readers(self) -> tuple[str, ...]:
        """Who is registered as reading the stream; nobody where the store does not say."""
        ...


@dataclass(frozen=True, slots=True)
class Stores:
    """Performs a machine's store requests, each kind by its member. None where the machine never makes that
    kind."""

    write: Callable[[Write], WriteOutcome] | None = None
    letter: Callable[[Letter], object] | None = None
    stream: StreamAccess | None = None
    apart: bool = False
    """True when what is written, and the reader's position, are in another store than the stream."""
    kept_in: str = "its store"
    streams_in: str = "its store"
    letters_in: str = "of dead letters"
    """How people call the stores."""

    @classmethod
    def of(
        cls,
        kept: Journal | StateStore | None,
        letter: Callable[[Letter], object] | None,
        stream: StreamAccess | None,
        *,
        apart: bool,
    ) -> Stores:
        """``place``, where one has it, is how people call its store."""
        named = cls()
        beside = getattr(stream, "positions", named.kept_in)
        return cls(
            kept.write if kept is not None else None,
            letter,
            stream,
            apart,
            kept_in=getattr(kept, "place", beside),
            streams_in=getattr(stream, "place", named.streams_in),
            letters_in=getattr(letter, "place", named.letters_in),
        )

    @property
    def names(self) -> frozenset[str]:
        """How people call those that are asked for anything."""
        named = (
            (self.kept_in, self._has_clerk),
            (self.streams_in, self.stream is not None),
            (self.letters_in, self.letter is not None),
        )
        return frozenset(name for name, is_asked in named if is_asked)

    @property
    def any(self) -> bool:
        """True when there is anything to perform."""
        return bool(self.clerks)

    @property
    def clerks(self) -> tuple[str, ...]:
        named = {
            _CLERK: self._has_clerk or self.letter is not None,
            _STREAM: self.stream is not None and self.apart,
            _LETTERS: self._has_letter_clerk,
            WAITER: self.stream is not None,
        }
        return tuple(name for name, is_needed in named.items() if is_needed)

    @property
    def _has_letter_clerk(self) -> bool:
        return self.letter is not None and self._has_clerk

    @property
    def _has_clerk(self) -> bool:
        return self.write is not None or self.stream is not None

    def clerk_for(self, request: Request) -> str:
        """Whose turn a request waits for."""
        match request:
            case Call(_, WaitForMore() | WaitForMark()):
                return WAITER
            case DeadLetter():
                return _LETTERS if self._has_letter_clerk else _CLERK
            case Call(_, ClaimReader() | GetPosition() | CommitPosition()) | Persist():
                return _CLERK
            case Call():
                return _STREAM if self.apart else _CLERK

    def asked_for(self, request: Request) -> tuple[str, str]:
        """How people call the store that a request is for, and what waits for it."""
        match request:
            case DeadLetter():
                return self.letters_in, "a dead letter waits"
            case Call(_, AppendRun()):
                return self.streams_in, "messages wait to be stored"
            case Call(_, ReadFrom() | WaitForMore() | WaitForMark()):
                return self.streams_in, "reading waits"
            case Persist() | Call(_, ClaimReader() | GetPosition() | CommitPosition()):
                return self.kept_in, "what is to be stored of this end waits"
            case Call():
                return self.streams_in, "a question about the stream waits"

    def perform(self, request: Request) -> object:
        """The outcome of a request, from the store that it is for."""
        match request:
            case Persist(_, write) if self.write is not None:
                return self.write(write)
            case DeadLetter(_, letter) if self.letter is not None:
                self.letter(letter)
                return WriteStored()
            case Call(_, call) if self.stream is not None:
                return self.stream.call(call)
            case _:
                raise ConfigurationError(
                    f"a machine asked for {type(request).__name__} and no store performs it"
                )


class Asking(Protocol):
    """Who gets the outcomes: one life of an end."""

    def answered(self, ticket: int, outcome: object) -> None: ...


@dataclass(slots=True)
class _Open:
    """A call without an answer. ``since``: when it was begun, or the first of those in a row that failed."""

    since: int
    what: str
    is_under_way: bool = True
    has_failed: bool = False


@dataclass(slots=True)
class Asked:
    """A block in which a store is called, while it lasts. ``is_answered``: None where the store was not asked."""

    is_answered: bool | None = True


class Silences:
    """Which stores give an end no answer, and since when.

    Whoever calls a store says so here, from any thread; the end's actor asks for ``news`` at each of its looks. A
    call that hangs makes no look by itself, and every store gives up in the end: the news may be as late as that.
    So a run without silence has no event more than it would have without this.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._open: dict[str, dict[object, _Open]] = {}
        self.told: dict[str, int] = {}
        """Since when each store has been silent of which that was told."""
        self._quiet_until: dict[str, int] = {}
        self._raised: dict[object, str] = {}
        """What the last call of each asker raised, with the store's name."""
        self.oldest: int | None = None
        """The start of the oldest call without an answer."""

    def began(self, store: str, asker: object, what: str, patience_us: int = 0) -> None:
        """A call begins, of which ``patience_us`` is to pass before anybody wonders. Each asker has one call."""
        since = self._now() + patience_us
        with self._lock:
            calls = self._open.setdefault(store, {})
            before = calls.get(asker)
            # What failed first is what waits: the questions that come after it are for its sake.
            calls[asker] = (
                _Open(since, what)
                if before is None
                else _Open(before.since, before.what, has_failed=True)
            )
            if self.oldest is None or since < self.oldest:
                self.oldest = since

    def ended(self, store: str, asker: object, *, answered: bool | None) -> None:
        """The call has ended. An answer to one makes up for those of others that had failed before. None: it came
        to no call, so what failed before has still no answer."""
        with self._lock:
            calls = self._open[store]
            if answered is False or (answered is None and calls[asker].has_failed):
                calls[asker].is_under_way = False
                return
            del calls[asker]
            failed = [one for one, call in calls.items() if not call.is_under_way]
            for other in failed if answered else ():
                del calls[other]
            self.oldest = min(
                (call.since for each in self._open.values() for call in each.values()), default=None
            )

    def raised(self, asker: object, why: str) -> bool:
        """Note what a call has raised, empty for nothing; True when that is news."""
        is_news = self._raised.get(asker, "") != why
        self._raised[asker] = why
        return is_news

    @contextmanager
    def asking(self, store: str, asker: object, what: str) -> Generator[Asked]:
        """A block in which a store is called. It has answered unless StoreUnavailable is raised, or the block says
        otherwise."""
        self.began(store, asker, what)
        asked = Asked()
        try:
            yield asked
        except StoreUnavailable:
            asked.is_answered = False
            raise
        finally:
            self.ended(store, asker, answered=asked.is_answered)

    def news(self) -> list[Notice]:
        """Stores that have fallen silent since the last call, and stores that answer again."""
        now = self._now()
        if not self.told and (self.oldest is None or now - self.oldest < SILENT_US):
            return []
        news: list[Notice] = []
        with self._lock:
            for store, calls in self._open.items():
                is_new = now >= self._quiet_until.get(store, now)
                bound = SILENT_US if is_new or store in self.told else SILENT_AGAIN_US
                late = [call for call in calls.values() if now - call.since >= bound]
                since = min((call.since for call in late), default=now)
                if late and store not in self.told:
                    self.told[store], self._quiet_until[store] = since, now + AGAIN_US
                    waits = ", ".join(dict.fromkeys(call.what for call in late))
                    detail = f"store {store} has not answered for {_seconds(now - since)}: {waits}"
                    news.append(Notice(NoticeKind.SILENT, 0, (), detail))
                elif not late and store in self.told:
                    silent_us = now - self.told.pop(store)
                    detail = f"store {store} answers again, after {_seconds(silent_us)}"
                    news.append(Notice(NoticeKind.RECOVERED, 0, (), detail))
        return news

    def silent_us(self) -> Mapping[str, int]:
        """The stores that are silent now, and for how long each has been. From any thread."""
        now = self._now()
        with self._lock:
            longest = {
                store: now - min(call.since for call in calls.values())
                for store, calls in self._open.items()
                if calls
            }
        return {store: us for store, us in longest.items() if us >= SILENT_US}

    def text(self) -> str:
        """Which store is silent now, and for how long, and which raises; empty for none. From any thread."""
        silent = [
            f"store {store} has not answered for {_seconds(us)}"
            for store, us in self.silent_us().items()
        ]
        return " and ".join([*silent, *filter(None, list(self._raised.values()))])


def _seconds(us: int) -> str:
    return f"{us / 1_000_000:.1f} s"


class Clerk:
    """An actor that performs one request after the other. A store that raises has given an unknown outcome."""

    def __init__(self, name: str, stores: Stores, silences: Silences) -> None:
        self._name = name
        self._stores = stores
        self._silences = silences

    def receive(self, message: object) -> None:
        """Perform a request and tell who asked."""
        asking, request = cast("tuple[Asking, Request]", message)
        store, what = self._stores.asked_for(request)
        asked = request.request if isinstance(request, Call) else None
        patience_us = asked.timeout_us if isinstance(asked, WaitForMore | WaitForMark) else 0
        self._silences.began(store, self._name, what, patience_us)
        is_answered = True
        try:
            outcome = self._stores.perform(request)
            is_answered = not isinstance(outcome, Unavailable | WriteUnknown)
            self._silences.raised(self._name, "")
        except Exception as error:  # noqa: BLE001 - done or not done: the machine asks again
            self._tell(store, what, error)
            outcome = WriteUnknown()
            is_answered = not isinstance(error, StoreUnavailable)
        finally:
            self._silences.ended(store, self._name, answered=is_answered)
        asking.answered(request.ticket, outcome)

    def _tell(self, store: str, what: str, error: Exception) -> None:
        """Once for what is raised again and again."""
        why = f"store {store} raised {type(error).__name__}: {words_of(error)}"
        if self._silences.raised(self._name, why):
            logger.warning("%s: %s: %s, and is asked again", self._name, what, why)

    def died(self, error: BaseException) -> None:
        """Only by an exit raised inside a store: requests stay unanswered, which machines are made for."""
        logger.error("%s ended: %s", self._name, type(error).__name__)
