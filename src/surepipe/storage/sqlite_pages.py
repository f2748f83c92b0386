"""Pages: runs of messages as rows, each a body of joined payloads and their lengths."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from surepipe.storage.packed import Packed, cuts

PAGE_MAX_BYTES = 64 * 1024
"""A longer run takes several pages. A longer message has one of its own."""


@dataclass(frozen=True, slots=True)
class Page:
    """Payloads as one row holds them. Payloads of one length need no list of lengths."""

    count: int
    size_bytes: int
    lengths: bytes | None
    body: bytes


def pages_of(payloads: Sequence[bytes]) -> list[Page]:
    """The payloads in order, in as few pages as fit."""
    if isinstance(payloads, Packed):
        return [_packed_page(payloads[a:b]) for a, b in cuts(payloads, PAGE_MAX_BYTES)]
    body = b"".join(payloads)
    if len(body) <= PAGE_MAX_BYTES:
        return [_page(payloads, body)]
    parts = [payloads[start:stop] for start, stop in cuts(payloads, PAGE_MAX_BYTES)]
    return [_page(part, b"".join(part)) for part in parts]


def _page(payloads: Sequence[bytes], body: bytes) -> Page:
    count = len(payloads)
    is_even = len(set(map(len, payloads))) == 1
    packed = None if is_even else struct.pack(f"<{count}I", *map(len, payloads))
    return Page(count, len(body), packed, body)


def _packed_page(payloads: Packed) -> Page:
    shortest, longest = payloads.extremes()
    body = payloads.body.tobytes()
    lengths = None if shortest == longest else payloads.lengths(4)
    return Page(len(payloads), len(body), lengths, body)


def payloads_of(page: Page) -> list[bytes]:
    """The payloads of a page."""
    if page.lengths is None:
        length = page.size_bytes // page.count
        if not length:
            return [b""] * page.count
        return [page.body[at : at + length] for at in range(0, page.size_bytes, length)]
    lengths = struct.unpack(f"<{page.count}I", page.lengths)
    return [page.body[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]
