"""Cuts the bytes of a connection into what a proxy treats as one message.

``RespValues`` knows Redis's protocol and gives whole commands and replies; ``Chunks`` knows none, and takes what
comes in one read as a message.
"""

from __future__ import annotations

from typing import Protocol


class Splitter(Protocol):
    """Takes bytes as they come, one instance for each connection and direction."""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete."""
        ...


class Chunks:
    """Every read is a message."""

    def feed(self, data: bytes) -> list[bytes]:
        """These bytes."""
        return [data]


class RespValues:
    """Whole values of the protocol of Redis, versions 2 and 3; the rest is held until it is complete."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The values that these bytes complete. Raises ValueError for what is no such protocol."""
        self._held += data
        values: list[bytes] = []
        start = 0
        while (end := _end_of_value(self._held, start)) is not None:
            values.append(bytes(self._held[start:end]))
            start = end
        del self._held[:start]
        return values


def is_error(reply: bytes) -> bool:
    """Whether a reply says that the command failed."""
    return reply[:1] in (b"-", b"!")


_SIZED = b"$!="
_HOLDING = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2}


def _end_of_value(held: bytearray, start: int) -> int | None:
    """Where the value at ``start`` ends; None while it is not complete."""
    line = held.find(b"\r\n", start)
    if line < 0:
        return None
    kind, end = held[start], line + 2
    if kind in _SIZED:
        size = int(held[start + 1 : line])
        end += size + 2 if size >= 0 else 0
        return end if end <= len(held) else None
    for _ in range(int(held[start + 1 : line]) * _HOLDING[kind] if kind in _HOLDING else 0):
        inner = _end_of_value(held, end)
        if inner is None:
            return None
        end = inner
    return end
