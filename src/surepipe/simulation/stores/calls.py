"""Store calls of a world: how they are named in decisions and traces, and what may befall them.

A call is named by what it says, never by when it is made. A ``StoreFates`` is asked for its fate under that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Protocol

from surepipe.core.store_requests import (
    AppendRun,
    ChangeRetention,
    ClaimReader,
    CommitPosition,
    CreateStream,
    DescribeStream,
    DropStream,
    DropValues,
    Failed,
    Full,
    GetPosition,
    IdentifyEntry,
    JoinedRequest,
    LoadTable,
    OpenProducer,
    PutValues,
    RaiseMark,
    ReadFrom,
    ReadKeys,
    StoreRequest,
    Together,
    TrimBefore,
    Unavailable,
    WaitForMark,
    WaitForMore,
)
from surepipe.errors import MisuseError


def is_write(call: StoreRequest) -> bool:
    """True for what may change the store."""
    streams = CreateStream | ChangeRetention | OpenProducer | AppendRun | TrimBefore | DropStream
    return isinstance(call, streams | ClaimReader | CommitPosition | Together)


def name_of(call: StoreRequest | JoinedRequest) -> str:  # noqa: PLR0911, PLR0912 - one line per request
    """The name of a call, such as ``append orders p e1 5+3``. A repeat has the same; the caller counts them."""
    match call:
        case CreateStream(stream, partitions):
            return f"create {stream} {partitions}"
        case ChangeRetention(stream, retention):
            return f"retention {stream} {retention}"
        case OpenProducer(stream, producer, epoch, base):
            return f"open {stream} {producer} e{epoch} {base}"
        case AppendRun(stream, producer, epoch, first, payloads):
            return f"append {stream} {producer} e{epoch} {first}+{len(payloads)}"
        case ReadFrom(stream, index):
            return f"read {stream} {index}"
        case IdentifyEntry(stream, index):
            return f"identify {stream} {index}"
        case TrimBefore(stream, before):
            return f"trim {stream} {before}"
        case WaitForMore(stream, index):
            return f"wait {stream} {index}"
        case DescribeStream(stream):
            return f"info {stream}"
        case ClaimReader(stream, reader):
            return f"claim {stream} {reader}"
        case GetPosition(stream, reader):
            return f"get {stream} {reader}"
        case CommitPosition(stream, reader, owner, _, following):
            return f"commit {stream} {reader} o{owner} {following}"
        case DropStream(stream, epoch):
            return f"drop {stream} e{epoch}"
        case ReadKeys(table, keys):
            return f"keys {table} {len(keys)} {_named(keys)}"
        case LoadTable(table, after):
            return f"load {table} {_named([after])}"
        case WaitForMark(mark, seen):
            return f"wait-mark {mark} {seen}"
        case PutValues(table, pairs):
            return f"put {table} {len(pairs)} {_named(list(pairs))}"
        case DropValues(table, keys):
            return f"drop-keys {table} {len(keys)} {_named(keys)}"
        case RaiseMark(mark):
            return f"raise {mark}"
        case Together(requests):
            return f"all of ({'; '.join(map(name_of, requests))})"


def _named(keys: Sequence[bytes]) -> str:
    """Keys in a few letters, the same for the same keys."""
    return blake2s(repr(list(keys)).encode(), digest_size=4).hexdigest()


REFUSALS: Mapping[str, Failed | Unavailable | Full] = {
    "bound": Full("max_bytes, on purpose"),
    "busy": Unavailable("locked by another process, on purpose"),
    "disk-full": Unavailable("no room on the disk, on purpose"),
    "io": Unavailable("the disk gave an error, on purpose"),
    "loading": Unavailable("LOADING, on purpose"),
    "moved": Unavailable("MOVED, on purpose"),
    "out-of-memory": Unavailable("OOM, on purpose"),
    "read-only": Failed("it can't be written, on purpose"),
    "rights": Failed("NOPERM, on purpose"),
    "wrong-type": Failed("WRONGTYPE, on purpose"),
}
"""What stores say in place of doing a call, and what that is to the caller. Only appends can be told ``bound``."""


class CallFate(Protocol):
    """What befalls a call.

    ``verb``: empty (nothing), ``slow`` (after ``delay_us``), ``lost`` (not done, no answer), ``unknown`` (done, no
    answer), ``refuse`` (not done; ``reason`` is a key of ``REFUSALS``), ``late`` (no answer; done before the next
    call, when the caller may have given it up).
    """

    @property
    def verb(self) -> str: ...

    @property
    def delay_us(self) -> int: ...

    @property
    def reason(self) -> str: ...


class StoreFates(Protocol):
    """Decides the fate of store calls, as the chooser of a world does."""

    def store(self, store: str, call: str, *, is_write: bool) -> CallFate:
        """The fate of a call, by the name of the store and of the call."""
        ...


@dataclass(frozen=True, slots=True)
class PlainFate:
    """A fate as a record; as built: nothing."""

    verb: str = ""
    delay_us: int = 0
    reason: str = ""


PLAIN = PlainFate()


class NoFates:
    """Nothing befalls any call."""

    def store(self, store: str, call: str, *, is_write: bool) -> CallFate:
        """Nothing."""
        del store, call, is_write
        return PLAIN


def refusal_of(call: StoreRequest, reason: str) -> Failed | Unavailable | Full:
    """A store's answer when it refuses for this reason. Raises MisuseError for one that no store has."""
    if reason not in REFUSALS:
        raise MisuseError(f"no store refuses for {reason!r}; reasons are {', '.join(REFUSALS)}")
    found = REFUSALS[reason]
    return (
        Unavailable(found.bound)
        if isinstance(found, Full) and not isinstance(call, AppendRun)
        else found
    )


# The methods of a store as requests: for a store that is asked by requests, so that it can be called too.
