"""Pages: runs of messages as rows, each a body of joined payloads and their lengths."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

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
    body = b"".join(payloads)
    if len(body) <= PAGE_MAX_BYTES:
        return [_page(payloads, body)]
    cuts = _cuts(list(map(len, payloads)))
    return [_page(payloads[start:stop], b"".join(payloads[start:stop])) for start, stop in cuts]


def _page(payloads: Sequence[bytes], body: bytes) -> Page:
    count = len(payloads)
    is_even = len(set(map(len, payloads))) == 1
    packed = None if is_even else struct.pack(f"<{count}I", *map(len, payloads))
    return Page(count, len(body), packed, body)


def _cuts(lengths: list[int]) -> Iterator[tuple[int, int]]:
    """Where each page starts and stops."""
    start = size = 0
    for at, length in enumerate(lengths):
        if size + length > PAGE_MAX_BYTES and at > start:
            yield start, at
            start, size = at, 0
        size += length
    yield start, len(lengths)


def payloads_of(page: Page) -> list[bytes]:
    """The payloads of a page."""
    if page.lengths is None:
        length = page.size_bytes // page.count
        if not length:
            return [b""] * page.count
        return [page.body[at : at + length] for at in range(0, page.size_bytes, length)]
    lengths = struct.unpack(f"<{page.count}I", page.lengths)
    return [page.body[start:stop] for start, stop in pairwise(accumulate(lengths, initial=0))]
