"""Pages: many messages in one entry of a Redis stream.

A body is one byte that says how the lengths are written, the lengths, and the payloads one after the other.
Lengths take one, two or four bytes each, and four bytes in all when they are equal, so a message of 100 bytes
costs at most one byte more, and what is done per message on either side is a length and a slice.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from surepipe.storage.pages import Packed, cuts

PAGE_MAX_BYTES = 64 * 1024
"""A page holds so many payload bytes at most, unless its only message is longer."""

_EQUAL = 0
_WIDTHS = {1: "B", 2: "H", 4: "I"}


@dataclass(frozen=True, slots=True)
class RedisPage:
    """Some messages of a run: their first seq, how many, their payload bytes, and the body that holds them."""

    first: int
    count: int
    size: int
    body: bytes


def paged(
    first: int, payloads: Sequence[bytes], limit: int = PAGE_MAX_BYTES
) -> Iterator[RedisPage]:
    """The pages of a run."""
    if isinstance(payloads, Packed):
        for start, stop in cuts(payloads, limit):
            yield _packed_page(first + start, payloads[start:stop])
        return
    lengths = list(map(len, payloads))
    if sum(lengths) <= limit:
        if payloads:
            yield _page(first, payloads, lengths)
        return
    for start, stop in cuts(payloads, limit):
        yield _page(first + start, payloads[start:stop], lengths[start:stop])


def _page(first: int, payloads: Sequence[bytes], lengths: list[int]) -> RedisPage:
    return RedisPage(first, len(payloads), sum(lengths), _head(lengths) + b"".join(payloads))


def _packed_page(first: int, payloads: Packed) -> RedisPage:
    shortest, longest = payloads.extremes()
    width = _width(shortest, longest)
    head = payloads.lengths(width) if width else longest.to_bytes(4, "little")
    body = payloads.body
    return RedisPage(first, len(payloads), len(body), b"".join((bytes([width]), head, body)))


def _head(lengths: list[int]) -> bytes:
    longest = max(lengths)
    width = _width(min(lengths), longest)
    if width == _EQUAL:
        return bytes([_EQUAL]) + longest.to_bytes(4, "little")
    return bytes([width]) + _little_endian(array(_WIDTHS[width], lengths)).tobytes()


def _width(shortest: int, longest: int) -> int:
    if shortest == longest:
        return _EQUAL
    return 1 if longest < 1 << 8 else 2 if longest < 1 << 16 else 4


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def unpaged(body: bytes, count: int) -> list[bytes]:
    """The payloads of a body. ValueError for a body that ``paged`` did not make."""
    width = body[0] if body else -1
    if width == _EQUAL:
        return _equal_payloads(body, count)
    if width not in _WIDTHS:
        raise ValueError(f"a page begins with {body[:1]!r}: written by another version, or damaged")
    lengths: array[int] = array(_WIDTHS[width])
    start = 1 + width * count
    lengths.frombytes(body[1:start])
    offsets = list(accumulate(_little_endian(lengths), initial=start))
    if len(lengths) != count or offsets[-1] != len(body):
        raise ValueError(f"a page of {count} messages has {len(body)} bytes: damaged")
    return [body[begin:end] for begin, end in pairwise(offsets)]


def _equal_payloads(body: bytes, count: int) -> list[bytes]:
    length = int.from_bytes(body[1:5], "little")
    if len(body) != 5 + length * count:
        raise ValueError(f"a page of {count} messages has {len(body)} bytes: damaged")
    if not length:
        return [b""] * count
    return [body[at : at + length] for at in range(5, len(body), length)]


def measures_of(body: bytes, count: int) -> tuple[int, memoryview, int]:
    """How a body says its lengths (bytes per length, 0 when all are equal), where, and where the payloads begin.

    ValueError for a body that ``paged`` did not make. The lengths are not summed up: that is for who uses them.
    """
    width = body[0] if body else -1
    if width == _EQUAL:
        if len(body) != 5 + int.from_bytes(body[1:5], "little") * count:
            raise ValueError(f"a page of {count} messages has {len(body)} bytes: damaged")
        return 0, memoryview(b""), 5
    if width not in _WIDTHS:
        raise ValueError(f"a page begins with {body[:1]!r}: written by another version, or damaged")
    start = 1 + width * count
    if len(body) < start:
        raise ValueError(f"a page of {count} messages has {len(body)} bytes: damaged")
    return width, memoryview(body)[1:start], start
