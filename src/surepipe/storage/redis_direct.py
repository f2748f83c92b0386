"""Reading whole pages past the scripts: for readers in bulk, whose pages are large.

A script copies each page into Lua and out again, which costs the server two to four times as much as XRANGE by
itself (seen with 7.0.15). So a reader that knows the stream's incarnation, and stands where a page begins, sends
XRANGE and looks at the stream's head behind it, in one go. The order makes it safe without a transaction:

1. The pages are read.
2. A trim, or another life of the stream, may come in between.
3. The head is read: it shows either one, and then the pages are not used.

Whatever is not plain (a trim, another incarnation, the end, an error) is left to ``read.lua``, which says what.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile

from surepipe.storage.raw_pages import RawBatch, RawPage
from surepipe.storage.redis_caller import Caller
from surepipe.storage.redis_keys import LAYOUT_VERSION, Keys
from surepipe.storage.redis_link import Command, Reply
from surepipe.storage.redis_pages import PAGE_MAX_BYTES
from surepipe.storage.redis_values import list_of, number_of, raw_page_of
from surepipe.store_api import ReadFrom


@dataclass(frozen=True, slots=True)
class _Found:
    """What one exchange gave: pages without a hole before them, and the stream's next index."""

    pages: list[RawPage]
    end: int


def direct_pages(caller: Caller, keys: Keys, request: ReadFrom) -> RawBatch | None:
    """Pages from the request's index on, until a bound is reached; None when a script must look.

    The bounds are goals: where pages are longer than ``PAGE_MAX_BYTES``, because their only message is, up to
    ``max_bytes / PAGE_MAX_BYTES`` of them come at once.
    """
    if request.incarnation is None:
        return None
    pages: list[RawPage] = []
    end, index, left = 0, request.index, request.max_bytes
    stop = request.index + request.max_messages
    while left > 0 and index < stop:
        found = _exchange(caller, keys, request, (index, stop, left))
        if found is None:
            break
        pages += found.pages
        end, index = found.end, pages[-1].stop
        left -= sum(page.payload_bytes for page in found.pages)
        if index >= end:
            break
    return RawBatch(tuple(pages), end) if pages else None


def _exchange(
    caller: Caller, keys: Keys, request: ReadFrom, bounds: tuple[int, int, int]
) -> _Found | None:
    index, stop, left = bounds
    tag, name = keys.tag(request.stream), request.stream
    count = max(1, left // PAGE_MAX_BYTES)
    commands: list[Command] = [
        ("XRANGE", keys.pages(name), f"{index}-0", f"({stop}-0", "COUNT", count),
        ("HMGET", keys.head(name), "incarnation", "next", "earliest"),
        ("GET", keys.layout(tag)),
    ]
    replies = caller.look(tag, commands)
    if replies is None or replies[2] != LAYOUT_VERSION.encode():
        return None
    end = _end_of(list_of(replies[1]), request.incarnation, index)
    return None if end is None else _checked(list_of(replies[0]), index, end)


def _end_of(head: list[Reply], incarnation: int | None, index: int) -> int | None:
    """The stream's next index, if it is still the same stream and has the index."""
    if any(value is None for value in head) or number_of(head[0]) != incarnation:
        return None
    return number_of(head[1]) if number_of(head[2]) <= index else None


def _checked(entries: list[Reply], index: int, end: int) -> _Found | None:
    try:
        pages = [raw_page_of(entry) for entry in entries]
    except ValueError:  # damaged: the script's reply tells where
        return None
    if not pages or pages[0].index != index:
        return None
    # Where somebody has removed pages it ends, and read.lua says what is gone.
    whole = takewhile(lambda two: two[0].stop == two[1].index, pairwise(pages))
    return _Found([pages[0], *(page for _, page in whole)], end)
