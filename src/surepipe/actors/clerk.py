"""The clerk of an end: makes the store calls that a machine asks for, so that the end's own actor never blocks."""

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


@dataclass(frozen=True, slots=True)
class Stores:
    """Who performs what a machine asks for; None where it never will."""

    write: Callable[[Write], WriteOutcome] | None = None
    letter: Callable[[Letter], object] | None = None
    call: Callable[[object], object] | None = None

    @property
    def any(self) -> bool:
        """True when there is anything to perform."""
        return not (self.write is None and self.letter is None and self.call is None)

    def perform(self, request: Request) -> object:
        """The outcome of a request, from the store that it is for."""
        match request:
            case Persist(_, write) if self.write is not None:
                return self.write(write)
            case DeadLetter(_, letter) if self.letter is not None:
                self.letter(letter)
                return WriteStored()
            case Call(_, call) if self.call is not None:
                return self.call(call)
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
