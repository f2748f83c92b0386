"""Records on a connection: a length of four bytes, then one sealed record, whose first byte says what it is."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from surepipe.actors.links.greeting import Greeting, Said, Seal, Stranger

LENGTH = 4


class What(IntEnum):
    """The first byte of a record."""

    FRAME = 1
    PING = 2
    PONG = 3
    BYE = 4


class TooLong(Stranger):
    """A record longer than agreed: nobody who speaks this protocol sends one."""


def sealed_record(seal: Seal, what: What, body: bytes = b"") -> bytes:
    """The bytes of one record."""
    record = bytes((what,)) + body
    length = (len(record) + seal.overhead).to_bytes(LENGTH, "big")
    return length + seal.close(length, record)


class Incoming:
    """Cuts what arrives into the messages of a greeting and then into records; holds one of them at the most.

    ``replies`` is what the greeting wants said; whoever sends it empties the list. ``seal`` is there when the
    greeting is over.
    """

    def __init__(self, greeting: Greeting, record_max: int) -> None:
        self._greeting = greeting
        self._record_max = record_max
        self._waiting = bytearray()
        self.seal: Seal | None = None
        self.replies: list[bytes] = []
        self._heed(greeting.begin())

    def _heed(self, said: Said) -> None:
        self.seal = said.seal
        if said.reply:
            self.replies.append(said.reply)

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The records that are whole now. Raises Stranger, after which nothing more must be taken."""
        self._waiting += data
        at = 0
        try:
            while (end := self._end_of_next(at)) is not None:
                piece = bytes(self._waiting[at:end])
                at = end
                if self.seal is None:
                    self._heed(self._greeting.take(piece))
                else:
                    record = self.seal.open(piece[:LENGTH], piece[LENGTH:])
                    if not record:
                        raise Stranger("an empty record")
                    yield record[0], record[1:]
        finally:
            del self._waiting[:at]

    def _end_of_next(self, at: int) -> int | None:
        """Where the message that begins at ``at`` ends; None while it is not whole."""
        size = self._greeting.wants if self.seal is None else self._length(at)
        return at + size if size is not None and len(self._waiting) - at >= size else None

    def _length(self, at: int) -> int | None:
        if len(self._waiting) - at < LENGTH:
            return None
        assert self.seal is not None
        length = int.from_bytes(self._waiting[at : at + LENGTH], "big")
        if not 0 < length <= self._record_max + self.seal.overhead:
            raise TooLong(f"a record of {length} bytes")
        return LENGTH + length
