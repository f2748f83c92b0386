"""The clerks of an end: they make the store calls of its machine, so that the end's own actor never blocks.

One clerk does one call after the other, so what must not be held up by a store that hangs has a clerk of its own:
the journal when the stream is in another store, dead letters, and a call that only waits for more to read (which
can be told to stop when the end closes). Machines rely on no order between them: whatever must come after a write
is asked for when the write is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

from surepipe.effects import (
    Call,
    DeadLetter,
    JournalContents,
    Letter,
    Persist,
    Write,
    WriteOutcome,
    WriteStored,
    WriteUnknown,
)
from surepipe.errors import ConfigurationError
from surepipe.store_api import ClaimReader, CommitPosition, GetPosition, WaitForMore

logger = logging.getLogger("surepipe")
Request: TypeAlias = Persist | Call | DeadLetter
_CLERK, _STREAM, _LETTERS, WAITER = "clerk", "stream-clerk", "letter-clerk", "waiter"


class Journal(Protocol):
    """What a sender needs of its journal. Calls may block; StoreUnavailable means: ask again."""

    def load(self) -> JournalContents:
        """What a new life finds."""
        ...

    def write(self, write: Write) -> WriteOutcome:
        """Perform a write; a repeat of it changes nothing."""
        ...


class StateStore(Protocol):
    """What a durable receiver needs. Calls may block; StoreUnavailable means: ask again."""

    def load(self) -> bytes | None:
        """The stored state; None for a new receiver."""
        ...

    def write(self, write: Write) -> WriteOutcome:
        """Store a state in place of the former."""
        ...


class StreamAccess(Protocol):
    """What an end over a stream needs of its stores. Calls may block."""

    def call(self, request: object) -> object:
        """The outcome of a store call."""
        ...

    def stop_waiting(self) -> bool:
        """End the waits that are under way; False when the store has no such means."""
        ...

    def end(self) -> int:
        """The index that the next message will get. Raises StoreUnavailable when the store does not say."""
        ...


@dataclass(frozen=True, slots=True)
class Stores:
    """Who performs what a machine asks for; None where it never will."""

    write: Callable[[Write], WriteOutcome] | None = None
    letter: Callable[[Letter], object] | None = None
    stream: StreamAccess | None = None
    apart: bool = False
    """True when what is written, and the reader's position, are in another store than the stream."""

    @property
    def any(self) -> bool:
        """True when there is anything to perform."""
        return bool(self.clerks)

    @property
    def clerks(self) -> tuple[str, ...]:
        """The clerks that are needed."""
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
            case Call(_, WaitForMore()):
                return WAITER
            case DeadLetter():
                return _LETTERS if self._has_letter_clerk else _CLERK
            case Call(_, ClaimReader() | GetPosition() | CommitPosition()) | Persist():
                return _CLERK
            case Call():
                return _STREAM if self.apart else _CLERK

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

    def answered(self, ticket: int, outcome: object) -> None:
        """The outcome of a request."""
        ...


class Clerk:
    """An actor that performs one request after the other. A store that raises has given an unknown outcome."""

    def __init__(self, name: str, stores: Stores) -> None:
        self._name = name
        self._stores = stores

    def receive(self, message: object) -> None:
        """Perform a request and tell who asked."""
        asking, request = cast("tuple[Asking, Request]", message)
        try:
            outcome = self._stores.perform(request)
        except Exception as error:  # noqa: BLE001 - done or not done: the machine asks again
            logger.warning(
                "%s: %s failed: %s", self._name, type(request).__name__, type(error).__name__
            )
            outcome = WriteUnknown()
        asking.answered(request.ticket, outcome)

    def died(self, error: BaseException) -> None:
        """Only by an exit raised inside a store: requests stay unanswered, which machines are made for."""
        logger.error("%s ended: %s", self._name, type(error).__name__)
