"""What a log asks of its host: to be opened, read and forgotten in a store, and to have its entries signed by a
guard that remembers the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from surepipe.core.records import record
from surepipe.core.store_requests import (
    KEEP_ALL,
    Batch,
    Created,
    Empty,
    Exists,
    FencedOut,
    ProducerOpened,
    Store,
    Trimmed,
    Unavailable,
)
from surepipe.errors import ConfigurationError, Fenced, StoreUnavailable


@record
class StoredLog:
    """The stream of one member's session, which this life owns, with the rows that are in it."""

    stream: str
    producer: str
    epoch: int
    rows: Sequence[bytes] = ()
    end: int = 1
    """The index behind the last of them."""


@record
class OpenLog:
    """A request: take this log over and read it (``open_log``), and say what the guard knows. Answered
    ``OpenedLog``, ``FencedOut`` or ``Unavailable``."""

    stream: str
    producer: str
    life: int
    session: bytes
    epoch: int


@record
class OpenedLog:
    """``guarded`` as ``LogMachine`` takes it."""

    stored: StoredLog
    guarded: tuple[int, bytes] | None


@record
class CloseLog:
    """A request: forget this log, and let the guard forget these sessions and sign nothing of this epoch or an
    earlier one any more."""

    stream: str
    life: int
    sessions: tuple[bytes, ...]
    epoch: int


class SessionGuard(Protocol):
    """What was signed last in each session; beside the key."""

    def last(self, session: bytes, epoch: int = 0) -> tuple[int, bytes] | None:
        """Height and digest; (0, b"") for none; None when that can't be known, as of forgotten epochs."""
        ...

    def forget(self, session: bytes, epoch: int) -> None:
        """Nothing of this epoch, or of an earlier one that isn't known, is signed any more."""
        ...


def served_log(store: Store, guard: SessionGuard, request: OpenLog | CloseLog) -> object:
    """The outcome of such a request. The guard forgets first: a log that is gone while its session may still be
    signed for would be begun anew."""
    if isinstance(request, CloseLog):
        for session in request.sessions:
            guard.forget(session, request.epoch)
        return store.drop_stream(request.stream, request.life)
    try:
        stored = open_log(store, request.stream, request.producer, request.life)
    except StoreUnavailable as error:
        return Unavailable(str(error))
    except Fenced:
        return FencedOut(request.life)
    return OpenedLog(stored, guard.last(request.session, request.epoch))


def open_log(store: Store, stream: str, producer: str, life: int) -> StoredLog:
    """Take the log over for this life, which fences the one before, then read it to the end.

    Raises StoreUnavailable (ask again) and Fenced (a later life has it).
    """
    made = store.create(stream, 1, KEEP_ALL)
    opened = store.open_producer(stream, producer, life, 1) if _is_there(made) else made
    if isinstance(opened, FencedOut):
        raise Fenced(f"the log {stream!r} was taken over by a process that began later")
    rows: list[bytes] = []
    index = 1
    found: object = opened
    if isinstance(opened, ProducerOpened):
        while isinstance(found := store.read(stream, index, 1000, 4 << 20), Batch | Trimmed):
            if isinstance(found, Trimmed) and found.earliest <= index:
                break
            if isinstance(found, Batch):
                rows += [payload for run in found.entries for payload in run.payloads]
            index = found.next if isinstance(found, Batch) else found.earliest
    if isinstance(found, Unavailable):
        raise StoreUnavailable(f"the log {stream!r}: {found.detail or 'no answer'}")
    if not isinstance(found, Empty):
        raise ConfigurationError(f"the log {stream!r} can't be opened: {found}")
    return StoredLog(stream, producer, life, rows, index)


def _is_there(made: object) -> bool:
    return isinstance(made, Created | Exists)


@record
class Release:
    """A request: note in the guard that this entry is the last one, and sign it. Answered ``Released``, or
    ``Withheld`` when the guard knows another entry there or above; ``Unavailable`` means ask again."""

    session: bytes
    height: int
    digest: bytes
    signed: bytes


@record
class Released:
    """The signature may be shown to others."""

    signature: bytes


@record
class Withheld:
    """The guard has seen this node sign something else."""

    height: int
    digest: bytes
