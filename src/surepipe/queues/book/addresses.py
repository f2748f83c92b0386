"""The address of a message: a text token that is good for this one message and never for another (B-41)."""

from __future__ import annotations

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from zlib import crc32

from surepipe.core.records import record
from surepipe.queues.book.answers import BadAddress

_VERSION = 1
_TOKEN = struct.Struct(">BIIIII")


@record
class Address:
    """What a token says: the page and slot of one generation of a queue, and the CRC of the payload."""

    generation: int
    page: int
    slot: int
    check: int


class Addresses:
    """Makes and reads the tokens of one book, as its store made it (``incarnation``)."""

    def __init__(self, book: str, incarnation: int) -> None:
        self._book = book
        self._seed = crc32(f"{book}\0{incarnation}".encode())

    def token(self, address: Address) -> str:
        """The text of an address."""
        plain = _TOKEN.pack(
            _VERSION, address.generation, address.page, address.slot, address.check, 0
        )[:-4]
        sealed = plain + crc32(plain, self._seed).to_bytes(4, "big")
        return urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def of(self, generation: int, page: int, slot: int, payload: bytes) -> str:
        """The token of a message that is at hand."""
        return self.token(Address(generation, page, slot, crc32(payload)))

    def read(self, token: str) -> Address:
        """Decode a token; raises ``BadAddress`` for one that is damaged or of another book or store."""
        try:
            sealed = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        except (ValueError, binascii.Error, AttributeError) as error:
            raise self._bad(token) from error
        if len(sealed) != _TOKEN.size or self._text(sealed) != token:
            raise self._bad(token)
        version, *parts, check = _TOKEN.unpack(sealed)
        if version != _VERSION or crc32(sealed[:-4], self._seed) != check:
            raise self._bad(token)
        return Address(*parts)

    def _text(self, sealed: bytes) -> str:
        return urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def _bad(self, token: object) -> BadAddress:
        return BadAddress(
            f"{token!r} is no address of a message in book {self._book!r}: it is damaged, or of "
            "another book or store"
        )
