"""Application code of a party: it says who may send which messages, and acts when they arrive or come back.

A module owns a space of the tree, and types of messages. What its functions do, they do through a ``Transaction``:
it is committed with the message, or undone with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast

from surepipe.core.callables import require_call
from surepipe.errors import MisuseError
from surepipe.queues.ibc.keys import APPLICATION_CODES, TYPE

if TYPE_CHECKING:
    from surepipe.queues.ibc.merkle_store import Working

OnRaise: TypeAlias = Literal["stop", "park"]


class Deferral:
    """What a handler returns when it will answer later (``Module.acknowledge``)."""

    def __repr__(self) -> str:
        return "DEFER"


DEFER: Final = Deferral()


@dataclass(frozen=True, slots=True)
class Fail:
    """A handler's refusal of a message: what it did is undone, and the sender rolls back with this code."""

    code: int
    result: bytes = b""

    def __post_init__(self) -> None:
        if type(self.code) is not int or self.code not in APPLICATION_CODES:
            raise MisuseError(
                f"a message can't fail with code {self.code!r}: give a number from {APPLICATION_CODES[0]} to "
                f"{APPLICATION_CODES[-1]}"
            )


@dataclass(frozen=True, slots=True)
class Sending:
    """A message for ``Module.send_many``."""

    type: str
    data: bytes
    timeout_height: int = 0
    timeout_ms: int = 0
    timeout_after_s: float | None = None


OnReceive: TypeAlias = Callable[["Transaction", bytes], "bytes | Fail | Deferral"]
OnCommit: TypeAlias = Callable[["Transaction", bytes, bytes], object]
OnRollback: TypeAlias = Callable[["Transaction", bytes, int, bytes], object]
_CALLED = {
    "on_receive": "tx, data",
    "on_commit": "tx, data, result",
    "on_rollback": "tx, data, code, result",
}


@dataclass(frozen=True, slots=True)
class MessageType:
    """A type of messages: which module it belongs to, and what is called for it."""

    name: str
    owner: str
    on_receive: OnReceive | None = None
    on_commit: OnCommit | None = None
    on_rollback: OnRollback | None = None
    senders: frozenset[str] = frozenset()
    may_defer: bool = False
    on_callback_error: OnRaise = "stop"

    def __post_init__(self) -> None:
        if not TYPE.fullmatch(self.name):
            raise MisuseError(f"{self.name!r} is no type: give 1 to 64 of a-z 0-9 . _ / -")
        if self.on_callback_error not in ("stop", "park"):
            raise MisuseError(
                f'on_callback_error is {self.on_callback_error!r}; give "stop" or "park"'
            )
        for what, arguments in _CALLED.items():
            called = getattr(self, what)
            if called is not None:
                check_plain(called)
                require_call(f"{what} of {self.name}", called, arguments)


def check_plain(called: object) -> None:
    """Raises MisuseError for a function that would be over before its work is done."""
    inner = getattr(called, "__call__", called)  # noqa: B004 - an object may be called by an async method
    for each in (called, inner):
        if (
            inspect.iscoroutinefunction(each)
            or inspect.isgeneratorfunction(each)
            or inspect.isasyncgenfunction(each)
        ):
            raise MisuseError(
                f"{called!r} is a coroutine or generator function, and its work must be over when its block is "
                "stored: return DEFER, do the work elsewhere and call acknowledge"
            )


class BlockOfCall(Protocol):
    """The open block, as far as a call may change it."""

    height: int
    time_ms: int
    working: Working
    items: list[tuple[str, bytes]]
    letters: list[tuple[str, str, bytes]]
    check_caller: Callable[[], None]

    def get(self, space: str, key: bytes) -> bytes | None: ...

    def set(self, space: str, key: bytes, value: bytes) -> None: ...

    def delete(self, space: str, key: bytes) -> None: ...

    def send(self, module: str, connection: str, sending: Sending) -> int: ...


class Transaction:
    """What application code may do within its call. It is of no use afterwards."""

    def __init__(
        self,
        block: BlockOfCall,
        module: str,
        connection: str = "",
        index: int | None = None,
        relayer: bytes = b"",
    ) -> None:
        self._block: BlockOfCall | None = block
        self._module = module
        self.connection = connection
        """By which the message came or comes back; empty in ``execute``."""
        self.index = index
        self.relayer = relayer
        """Whoever brought it, by its own word."""

    def _open(self) -> BlockOfCall:
        if self._block is None:
            raise MisuseError("this transaction is over: it is of use within its call only")
        self._block.check_caller()
        return self._block

    @property
    def height(self) -> int:
        """Of the block."""
        return self._open().height

    @property
    def time_ms(self) -> int:
        """Of the block: the only clock that a handler may look at."""
        return self._open().time_ms

    def get(self, key: bytes) -> bytes | None:
        """The value in the module's space, or None."""
        return self._open().get(self._module, key)

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Sequence[tuple[bytes, bytes]]:
        """The keys of a range with their values, in order."""
        return tuple(self._open().working.scan(self._module, start, stop))

    def set(self, key: bytes, value: bytes) -> None:
        """Let the key of the module's space have this value. Neither may be empty."""
        for what, given in (("key", key), ("value", value)):
            if not isinstance(cast("object", given), bytes) or not given:
                raise MisuseError(f"a {what} is {given!r}; give bytes that are not empty")
        self._open().set(self._module, key, value)

    def delete(self, key: bytes) -> None:
        """Remove the key."""
        self._open().delete(self._module, key)

    def send(
        self,
        connection: str,
        type: str,
        data: bytes,
        *,
        timeout_height: int = 0,
        timeout_ms: int = 0,
        timeout_after_s: float | None = None,
    ) -> int:
        """Send a message with the call; its index. Raises IbcRefused."""
        sending = Sending(type, data, timeout_height, timeout_ms, timeout_after_s)
        return self.push(connection, sending)

    def push(self, connection: str, message: Sending) -> int:
        """Send a message that is told as a whole."""
        return self._open().send(self._module, connection, message)

    def append(self, stream: str, payload: bytes) -> None:
        """Append to a stream of the party's store with the call. Only this party may write into that stream."""
        if stream.startswith("ibc/"):
            raise MisuseError(f"the stream {stream!r} is the party's own; write into another one")
        self._open().items.append((stream, payload))

    def append_once(self, stream: str, name: str, payload: bytes) -> None:
        """Append to a stream into which others write, too, as the only entry of a producer of this name."""
        self._open().letters.append((stream, name, payload))

    def close(self) -> None:
        """Nothing more can be done."""
        self._block = None
