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


def pages_of(payloads: Sequence[bytes]) -> Iterator[Page]:
    """The payloads in order, in as few pages as fit."""
    lengths = list(map(len, payloads))
    for start, stop in _cuts(lengths):
        part = lengths[start:stop]
        is_even = min(part) == max(part)
        packed = None if is_even else struct.pack(f"<{len(part)}I", *part)
        yield Page(len(part), sum(part), packed, b"".join(payloads[start:stop]))


def _cuts(lengths: list[int]) -> Iterator[tuple[int, int]]:
    """Where each page starts and stops."""
    if sum(lengths) <= PAGE_MAX_BYTES:
        yield 0, len(lengths)
        return
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
