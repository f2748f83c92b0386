"""A page: a bounded heap of messages, one behind the other, and how far they are served (B-6 to B-10).

The heap is (header, payload) for each message. A header has five bytes: the length of the payload, and a flag.
What is stored of a page only grows, so adding one message writes that message and nothing else. What became of
the messages stands beside the heap: the cursor, the slots that were parked, and those that were processed out of
turn. ``encode`` puts these into the flags, so a page that is handed around is one string of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from surepipe.core.records import record

HEADER = struct.Struct("<IB")
HEADER_BYTES = HEADER.size
WAITING, PROCESSED, PARKED = 0, 1, 2
"""Flags of a header: as it was written; processed out of turn; passed and kept."""
_CURSOR = struct.Struct("<IIII")
_NONE: Mapping[int, int] = {}
"""Nothing is parked or done, as of most pages: one without dictionaries and lists of its own is made in half
the time, and the collector has less to look at."""


class PageCorrupt(ValueError):
    """These bytes are no page."""


@record
class Slot:
    """One message of a page: where its header begins, whether it is processed, and its bytes."""

    offset: int
    processed: bool
    payload: bytes


def packed(payloads: Iterable[bytes]) -> bytes:
    """The messages as they stand in a heap."""
    head = HEADER.pack
    parts: list[bytes] = []
    for payload in payloads:
        parts.append(head(len(payload), WAITING))
        parts.append(payload)
    return b"".join(parts)


def fitting(chunk: bytes | bytearray, start: int, room: int) -> tuple[int, int]:
    """How many of the packed messages from ``start`` on fit into the room, and where the next one begins."""
    count, offset, end = 0, start, min(len(chunk), start + room)
    while offset + HEADER_BYTES <= end:
        behind = offset + HEADER_BYTES + HEADER.unpack_from(chunk, offset)[0]
        if behind > end:
            break
        count, offset = count + 1, behind
    return count, offset


class Page:
    """A page of at most ``page_bytes``, from its first message to the last one that fitted.

    The bytes before ``base`` may be away (``unload``): then they are in a store, and ``load`` brings them back.
    Counters and cursor are always here.
    """

    __slots__ = (
        "_kept_bytes", "_offsets", "base", "done", "first", "first_index", "heap", "number",
        "page_bytes", "parked", "pieces", "size", "slots",
    )  # fmt: skip

    def __init__(self, page_bytes: int, number: int = 1) -> None:
        self.page_bytes = page_bytes
        self.number = number
        """Of the message in slot 0, counting all arrivals of the queue from 1."""
        self.heap = bytearray()
        self.base = 0
        self.size = 0
        self.slots = 0
        self.first = 0
        self.first_index = 0
        self.parked: Mapping[int, int] = _NONE
        """Slots before the cursor that are not processed, with their lengths."""
        self.done: Mapping[int, int] = _NONE
        """Slots at or behind the cursor that are processed (of a swept page), with their lengths."""
        self.pieces: Sequence[int] = ()
        """Where each piece of it ends that is in a store."""
        self._kept_bytes = 0
        self._offsets: Sequence[int] = ()

    @property
    def remaining(self) -> int:
        """Messages that are not processed."""
        return self.slots - self.first_index + len(self.parked) - len(self.done)

    @property
    def remaining_bytes(self) -> int:
        """Their lengths together."""
        ahead = self.slots - self.first_index
        return self.size - self.first - HEADER_BYTES * ahead + self._kept_bytes

    @property
    def is_loaded(self) -> bool:
        """Whether all of its bytes are here."""
        return self.base == 0

    def room_for(self, size: int) -> bool:
        """Whether so many bytes, headers included, fit in."""
        return self.size + size <= self.page_bytes

    # Growing.

    def try_append(self, payload: bytes) -> bool:
        """Add a message if it fits; False and no change if it doesn't."""
        if not self.room_for(HEADER_BYTES + len(payload)):
            return False
        self.append_packed(HEADER.pack(len(payload), WAITING) + payload, 1)
        return True

    def append_packed(self, chunk: bytes, count: int) -> None:
        """Add packed messages, which must fit."""
        self.heap += chunk
        self.size += len(chunk)
        self.slots += count

    # Serving in order.

    def peek(self) -> bytes | None:
        """The next message; None at the end."""
        if self.first_index >= self.slots:
            return None
        length = HEADER.unpack_from(self.heap, self.first)[0]
        start = self.first + HEADER_BYTES
        return bytes(self.heap[start : start + length])

    def upcoming(self, offset: int, most: int) -> list[bytes]:
        """At most so many messages, from the one whose header is at ``offset``; its bytes are here."""
        found: list[bytes] = []
        offset -= self.base
        add, unpack = found.append, HEADER.unpack_from
        with memoryview(self.heap) as heap:
            size = len(heap)
            while offset < size and most:
                start = offset + HEADER_BYTES
                offset = start + unpack(heap, offset)[0]
                add(heap[start:offset].tobytes())
                most -= 1
        return found

    def advance(self, processed: bool) -> None:
        """Pass the next message: it is processed, or parked."""
        length = HEADER.unpack_from(self.heap, self.first)[0]
        if not processed:
            self.park(self.first_index, length)
        self.pass_to(self.first_index + 1, self.first + HEADER_BYTES + length)

    def pass_to(self, slot: int, offset: int) -> None:
        """Set the cursor further: what is passed and not parked is processed."""
        self.first_index, self.first = slot, offset

    def park(self, slot: int, length: int) -> None:
        """This slot, which the cursor passes now, is not processed."""
        if self.parked:
            cast("dict[int, int]", self.parked)[slot] = length
        else:
            self.parked = {slot: length}
        self._kept_bytes += length

    def settle(self, slot: int, length: int) -> bool:
        """A passed slot is processed; False and no change when it was already."""
        if slot < self.first_index:
            if slot not in self.parked:
                return False
            self._kept_bytes -= cast("dict[int, int]", self.parked).pop(slot)
            return True
        if slot in self.done:
            return False
        self._finish(slot, length)
        return True

    def _finish(self, slot: int, length: int) -> None:
        if self.done:
            cast("dict[int, int]", self.done)[slot] = length
        else:
            self.done = {slot: length}
        self._kept_bytes -= length

    # Any slot.

    def read(self, slot: int) -> Slot | None:
        """The message in this slot; parses the heap once and keeps the offsets."""
        if not 0 <= slot < self.slots:
            return None
        offsets = cast("list[int]", self._offsets or [])
        self._offsets = offsets
        offset = offsets[-1] if offsets else 0
        while len(offsets) <= slot:
            if offsets:
                offset += HEADER_BYTES + HEADER.unpack_from(self.heap, offset)[0]
            offsets.append(offset)
        offset = offsets[slot]
        start = offset + HEADER_BYTES
        payload = bytes(self.heap[start : start + HEADER.unpack_from(self.heap, offset)[0]])
        return Slot(offset, self.is_processed(slot), payload)

    def is_processed(self, slot: int) -> bool:
        """Whether the message in this slot is done with."""
        return slot in self.done if slot >= self.first_index else slot not in self.parked

    def mark(self, slot: int) -> bool:
        """Process a slot out of turn; False and no change when it is processed (or not there)."""
        found = self.read(slot)
        return found is not None and self.settle(slot, len(found.payload))

    # Storing.

    @property
    def saved(self) -> int:
        """So many bytes are in a store."""
        return self.pieces[-1] if self.pieces else 0

    def offsets_stored(self) -> list[int]:
        """Where each stored piece begins."""
        return [0, *self.pieces[:-1]] if self.pieces else []

    def stored(self, start: int, end: int) -> None:
        """A piece was stored, in place of those behind its beginning."""
        self.pieces = [each for each in self.pieces if each <= start] + [end]

    def unload(self) -> None:
        """Drop the bytes that are in a store."""
        if self.saved > self.base:
            del self.heap[: self.saved - self.base]
            self.base = self.saved
            self._offsets = ()

    def load(self, stored: bytes) -> None:
        """Take back the bytes that were dropped; ``stored`` begins at the beginning of the page. When they are not
        those of this page: raises PageCorrupt, and nothing changed."""
        if len(stored) < self.base:
            raise PageCorrupt(f"{len(stored)} bytes are stored of a page that needs {self.base}")
        heap = stored[: self.base] + self.heap
        found = fitting(heap, 0, len(heap))
        if found != (self.slots, self.size):
            raise PageCorrupt(
                f"{found[0]} messages in {found[1]} bytes are stored, {self.slots} in {self.size} were"
            )
        self.heap[:0] = stored[: self.base]
        self.base = 0

    def copy(self) -> Page:
        """Another one that is equal."""
        twin = Page(self.page_bytes, self.number)
        for name in Page.__slots__:
            value = getattr(self, name)
            setattr(
                twin, name, value.copy() if isinstance(value, bytearray | dict | list) else value
            )
        return twin

    def encode(self) -> bytes:
        """The page as bytes, with a flag for each message that was parked or processed out of turn."""
        heap = bytearray(self.heap)
        for slots, flag in ((self.parked, PARKED), (self.done, PROCESSED)):
            for slot in slots:
                found = self.read(slot)
                if found:
                    heap[found.offset + HEADER_BYTES - 1] = flag
        return _CURSOR.pack(self.page_bytes, self.first_index, self.first, self.size) + heap

    @staticmethod
    def decode(data: bytes) -> Page:
        """The page that ``encode`` wrote; raises ``PageCorrupt`` for anything else."""
        if len(data) < _CURSOR.size:
            raise PageCorrupt(f"{len(data)} bytes are too few for a page")
        page_bytes, first_index, first, size = _CURSOR.unpack_from(data)
        page = Page(page_bytes)
        heap = data[_CURSOR.size :]
        if len(heap) != size or size > page_bytes:
            raise PageCorrupt(
                f"a heap of {len(heap)} bytes where {size} of at most {page_bytes} are announced"
            )
        offset = 0
        while offset < size:
            if offset + HEADER_BYTES > size:
                raise PageCorrupt(f"half a header at byte {offset}")
            length, flag = HEADER.unpack_from(heap, offset)
            behind = offset + HEADER_BYTES + length
            slot = page.slots
            if behind > size or flag > PARKED or (flag == PARKED and slot >= first_index):
                raise PageCorrupt(
                    f"slot {slot} at byte {offset} has length {length} and flag {flag}"
                )
            if slot == first_index and offset != first:
                raise PageCorrupt(f"slot {slot} begins at byte {offset}, the cursor says {first}")
            page.append_packed(
                HEADER.pack(length, WAITING) + heap[offset + HEADER_BYTES : behind], 1
            )
            if flag == PARKED:
                page.park(slot, length)
            elif flag == PROCESSED and slot >= first_index:
                page._finish(slot, length)
            offset = behind
        if first_index > page.slots or (first_index == page.slots and first != size):
            raise PageCorrupt(
                f"the cursor is at slot {first_index}, byte {first}, behind the last message"
            )
        page.pass_to(first_index, first)
        return page
