"""Writing into streams of a store: of sinks, and on the way from one pipe to the next.

In a transaction messages are appended by a producer of this process, whose older lives are fenced with the
receiver's state. Without one each message is a producer of its own, named by its identity, so that a repeat adds
nothing, in whatever order messages come.
"""

from __future__ import annotations

from collections.abc import Callable

from surepipe.actors.codecs import Codec
from surepipe.effects import SaveState, WriteFailed, WriteFenced, WriteStored
from surepipe.errors import ConfigurationError, Fenced, StoreUnavailable
from surepipe.pipelines.assembly import About
from surepipe.storage.claims import number_now
from surepipe.storage.receiver_state import ReceiverState
from surepipe.store_api import (
    KEEP_ALL,
    AppendRun,
    CommitPosition,
    Created,
    Exists,
    Failed,
    Retention,
    Store,
    Stored,
    StreamInfo,
    Transaction,
    Unavailable,
)
from surepipe.store_api import (
    Fenced as FencedOutcome,
)


class StoreCursor:
    """A durable text in a store, which only its latest owner moves."""

    def __init__(
        self, store: Store, name: str, number_of_life: Callable[[], int] = number_now
    ) -> None:
        """``number_of_life`` as for ``Claims``."""
        self._state = ReceiverState(store, name, name=name, number_of_life=number_of_life)
        self._name = name

    def load(self) -> str | None:
        """What was stored last. Raises StoreUnavailable, ``errors.Fenced``, ConfigurationError."""
        found = self._state.load()
        return None if found is None else found.decode()

    def save(self, text: str) -> None:
        """Store it now. Raises StoreUnavailable, ``errors.Fenced``, ConfigurationError."""
        match self._state.write(SaveState(text.encode())):
            case WriteStored():
                return
            case WriteFenced(by):
                raise Fenced(
                    f"{self._name} belongs to owner {by} now: another process runs this pipeline"
                )
            case WriteFailed(reason):
                raise ConfigurationError(f"{self._name}: {reason}")
            case _:
                raise StoreUnavailable(f"{self._name}: no answer")

    def request(self, text: str) -> CommitPosition:
        """The commit that stores it, for a transaction."""
        return self._state.request(text.encode())


class StreamWriter:
    """A sink into a stream. ``producer`` names who writes there."""

    def __init__(
        self,
        store: Store,
        stream: str,
        producer: str,
        codec: Codec,
        retention: Retention = KEEP_ALL,
    ) -> None:
        """Makes the stream when it is not there. Raises StoreUnavailable, ConfigurationError."""
        self.stream = stream
        self._store = store
        self._producer = producer
        self._codec = codec
        self._epoch = 0
        self._next = 1
        self._pending: list[bytes] = []
        self._sealed = 0
        self._last: Transaction | None = None
        outcome = store.create(stream, 1, retention)
        if not isinstance(outcome, Created | Exists):
            raise _as_error(stream, outcome)

    def begin(self, transaction: Transaction | None) -> None:
        """Count what the last transaction stored; after one that did nothing, begin a new life."""
        if transaction is None:
            return
        if self._last is not None and self._last.done:
            self._next += self._sealed
        elif self._last is not None or not self._epoch:
            self._open()
        self._last, self._sealed = None, 0
        self._pending.clear()

    def _open(self) -> None:
        """A life of the producer that no other has; its first append fences the older ones.

        Only looked up: inside a transaction the store takes no other write.
        """
        info = self._store.info(self.stream)
        if not isinstance(info, StreamInfo):
            raise _as_error(self.stream, info)
        known = [one.epoch for one in info.producers if one.producer == self._producer]
        self._epoch = max([self._epoch, *known]) + 1
        self._next = 1

    def mark(self) -> int:
        """How many messages wait for the seal."""
        return len(self._pending)

    def back_to(self, mark: int) -> None:
        """Forget those behind."""
        del self._pending[mark:]

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Append a message: with the transaction, or at once, by its identity."""
        payload = self._codec.encode(message)
        if transaction is not None:
            self._pending.append(payload)
            return
        producer = f"{self._producer}/{about.key}"
        outcome = self._store.append(self.stream, producer, 1, 1, [payload])
        if not isinstance(outcome, Stored):
            raise _as_error(self.stream, outcome)

    def seal(self, transaction: Transaction | None) -> None:
        """Add what waits to the transaction."""
        if transaction is None or not self._pending:
            return
        self._last, self._sealed = transaction, len(self._pending)
        transaction.append(
            AppendRun(self.stream, self._producer, self._epoch, self._next, self._pending[:])
        )
        self._pending.clear()

    def close(self) -> None:
        """The store is not ours to close."""


def _as_error(stream: str, outcome: object) -> Exception:
    if isinstance(outcome, Unavailable):
        return StoreUnavailable(f"stream {stream!r}: {outcome.detail or 'no answer'}")
    if isinstance(outcome, FencedOutcome):
        return Fenced(f"stream {stream!r}: another process writes there as {outcome.by}")
    reason = outcome.reason if isinstance(outcome, Failed) else str(outcome)
    return ConfigurationError(f"stream {stream!r}: {reason}")
