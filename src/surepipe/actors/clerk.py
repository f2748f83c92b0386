"""The clerks of an end: they make the store calls of its machine, so that the end's own actor never blocks.

One clerk does one call after the other. A call that only waits for more to read has a clerk of its own, so that it
holds up nothing, and can be told to stop waiting when the end closes.
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
from surepipe.store_api import WaitForMore

logger = logging.getLogger("surepipe")
Request: TypeAlias = Persist | Call | DeadLetter


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

    @property
    def any(self) -> bool:
        """True when there is anything to perform."""
        return not (self.write is None and self.letter is None and self.stream is None)

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


def only_waits(request: Request) -> bool:
    """True for a call that may block until something happens elsewhere."""
    return isinstance(request, Call) and isinstance(request.request, WaitForMore)


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
