"""What stands in the space ``ibc`` of a party: the keys of its queues, and the bytes of messages and receipts.

One byte between the name of a queue and the rest keeps its head before all entries and its tail behind them, and
the order of bytes is the order of indexes. No key of one name is the beginning of another one's, as no name has a
colon.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from surepipe.queues.ibc.headers import NAME
from surepipe.queues.ibc.proof import ProofError

MAX_INDEX = 2**63 - 2
"""The last index that a queue gives out."""
TYPE = re.compile(r"[a-z0-9._/\-]{1,64}")
"""Of types of messages."""
GENESIS_KEY = b"ibc"

TIMED_OUT, UNSUPPORTED_TYPE, UNDECODABLE, HANDLER_RAISED, RESULT_TOO_LARGE = 1, 2, 3, 4, 5
ABANDONED = 6
APPLICATION_CODES = range(100, 4_294_967_295)
DEFERRED = 4_294_967_295
"""Codes of receipts; 0 is success, and an application gives those from 100 on."""

QueueKind: TypeAlias = Literal["send", "receipt"]
Part: TypeAlias = Literal["head", "entry", "tail", "late", "connection"]
_TAGS: dict[Part, bytes] = {"head": b"\0", "entry": b"\1", "tail": b"\2", "late": b"\3"}
_PARTS: dict[int, Part] = {tag[0]: part for part, tag in _TAGS.items()}
_KEY = re.compile(rb"ibc:([^:]*):(send|receipt|connection)(.*)", re.DOTALL)


class UndecodableValue(ProofError):
    """These bytes are no message, or no receipt."""

    code = "undecodable"


@dataclass(frozen=True, slots=True)
class QueueKey:
    """A key of the space: the connection, one of its two queues (empty: the connection's record), and the
    entry."""

    connection: str
    queue: QueueKind | Literal[""]
    part: Part
    index: int | None = None

    def encode(self) -> bytes:
        if self.part == "connection":
            return f"ibc:{self.connection}:connection".encode()
        index = b"" if self.index is None else self.index.to_bytes(8, "big")
        return f"ibc:{self.connection}:{self.queue}".encode() + _TAGS[self.part] + index


def parse_key(key: bytes) -> QueueKey | None:
    """What a key means; None when it is none. There is one way only to write each."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    name, kind, rest = found[1].decode("latin-1"), found[2].decode(), found[3]
    if not NAME.fullmatch(name):
        return None
    if kind == "connection":
        return None if rest else QueueKey(name, "", "connection")
    part = _PARTS.get(rest[0]) if rest else None
    has_index = part in ("entry", "late")
    is_late_message = part == "late" and kind == "send"
    if part is None or is_late_message or len(rest) != (9 if has_index else 1):
        return None
    queue: QueueKind = "send" if kind == "send" else "receipt"
    return QueueKey(name, queue, part, int.from_bytes(rest[1:], "big") if has_index else None)


@dataclass(frozen=True, slots=True)
class SendValue:
    """A message. The limits are heights and milliseconds of the receiver; 0 is none."""

    type: str
    data: bytes
    timeout_height: int = 0
    timeout_ms: int = 0

    def encode(self) -> bytes:
        limits = self.timeout_height.to_bytes(8, "big") + self.timeout_ms.to_bytes(8, "big")
        name = self.type.encode()
        return b"\1" + limits + bytes((len(name),)) + name + self.data

    @staticmethod
    def decode(value: bytes) -> SendValue:
        """Raises UndecodableValue."""
        length = value[17] if len(value) > 17 else 0
        name = value[18 : 18 + length].decode("latin-1")
        if value[:1] != b"\1" or len(name) != length or not TYPE.fullmatch(name):
            raise UndecodableValue("it is too short, of another format, or its type can't be one")
        height, time_ms = int.from_bytes(value[1:9], "big"), int.from_bytes(value[9:17], "big")
        return SendValue(name, value[18 + length :], height, time_ms)

    def is_over(self, height: int, time_ms: int) -> bool:
        """Whether a limit is reached at this height and time of the receiver."""
        by_height = 0 < self.timeout_height <= height
        return by_height or 0 < self.timeout_ms <= time_ms


@dataclass(frozen=True, slots=True)
class Receipt:
    """What came of a message: code 0 is success, with a result."""

    code: int
    result: bytes = b""

    def encode(self) -> bytes:
        return b"\1" + self.code.to_bytes(4, "big") + self.result

    @staticmethod
    def decode(value: bytes) -> Receipt:
        """Raises UndecodableValue."""
        if value[:1] != b"\1" or len(value) < 5:
            raise UndecodableValue("it is too short, or of another format")
        return Receipt(int.from_bytes(value[1:5], "big"), value[5:])
