"""Where a message queue keeps its members: one shelf for messages as objects, one for runs of
bytes.

A shelf keeps and finds. It decides nothing: whether a message may come in was settled before it is
added.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar, cast

from surepipe.pipes.message_queue.contract import M, MessageForm, Run
from surepipe.pipes.payloads import Payloads, size_of

V = TypeVar("V")

CHUNK_MAX = 4096
"""Messages to a chunk: what is cut off the front of one moves at most so many pointers."""

SMALL_MAX = 64
"""Runs up to this length are put together in one chunk."""

_COMPACT_AT = 64


class Row(Generic[V]):
    """Values under increasing keys. Cheap to grow at the end and to cut at the front; sorted in
    between.

    Cutting only moves ``start``, so it costs what it removes: the dead places before ``start`` let
    go of their values at once and are cleared away when they are more than half of the row.
    """

    __slots__ = ("_places", "keys", "start", "values")

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.values: list[V] = []
        self.start = 0
        # The same list, under the type that lets a dead place hold nothing. Nobody reads before
        # ``start``.
        self._places = cast("list[V | None]", self.values)

    def __len__(self) -> int:
        return len(self.keys) - self.start

    def put(self, key: int, value: V) -> None:
        """Add a value under a key that is not there yet."""
        if not self.keys or key > self.keys[-1]:
            self.keys.append(key)
            self.values.append(value)
        else:
            place = bisect_left(self.keys, key, self.start)
            self.keys.insert(place, key)
            self.values.insert(place, value)

    def place_of(self, number: int) -> int:
        """Where the greatest key up to ``number`` stands; before ``start`` when there is none."""
        return bisect_right(self.keys, number, self.start) - 1

    def cut(self, count: int) -> None:
        """Remove the ``count`` least keys."""
        if count == len(self):
            self.keys.clear()
            self.values.clear()
            self.start = 0
            return
        start = self.start + count
        self._places[self.start : start] = [None] * count
        self.start = start
        if start >= _COMPACT_AT and start * 2 > len(self.keys):
            del self.keys[:start]
            del self.values[:start]
            self.start = 0


class Shelf(Protocol[M]):
    """What a queue asks of the place where it keeps its members."""

    count: int
    size_bytes: int

    def holds(self, number: int) -> bool:
        """True when a member has this number."""
        ...

    def first_held(self, first: int, last: int) -> int | None:
        """The least member's number in first..last, or None."""
        ...

    def add(self, number: int, message: M, payload: bytes) -> None:
        """Put in a message whose number no member has."""
        ...

    def add_run(self, first: int, payloads: list[bytes], size_bytes: int) -> None:
        """Put in a run none of whose numbers a member has. A plain list belongs to the shelf from now
        on; a run that knows its size is never changed.
        """
        ...

    def remove_through(self, number: int) -> int:
        """Take out all members numbered up to ``number`` and say how many."""
        ...

    def least(self) -> M:
        """The member with the least number; there must be one."""
        ...

    def above(self, after: int, limit: int) -> list[M]:
        """At most ``limit`` members numbered above ``after``, least first."""
        ...

    def runs_above(self, after: int, limit: int) -> list[Run]:
        """The same as maximal runs."""
        ...

    def slice_run(self, first: int, count: int) -> list[bytes]:
        """Payloads of consecutive members, as many as there are from ``first`` on, at most
        ``count``.
        """
        ...

    def snapshot(self) -> Mapping[int, M]:
        """All members by number, in order."""
        ...


class MessageShelf(Generic[M]):
    """Message objects in order of their numbers."""

    __slots__ = ("_form", "_row", "count", "size_bytes")

    def __init__(self, form: MessageForm[M]) -> None:
        self._form = form
        self._row: Row[M] = Row()
        self.count = 0
        self.size_bytes = 0

    def holds(self, number: int) -> bool:
        """True when a member has this number."""
        row = self._row
        place = row.place_of(number)
        return place >= row.start and row.keys[place] == number

    def first_held(self, first: int, last: int) -> int | None:
        """The least member's number in first..last, or None."""
        keys = self._row.keys
        place = bisect_left(keys, first, self._row.start)
        return keys[place] if place < len(keys) and keys[place] <= last else None

    def add(self, number: int, message: M, payload: bytes) -> None:
        """Put in a message whose number no member has."""
        self._row.put(number, message)
        self.count += 1
        self.size_bytes += len(payload)

    def add_run(self, first: int, payloads: list[bytes], size_bytes: int) -> None:
        """Put in a run, made into messages."""
        build = self._form.builder("enqueue_run")
        messages = [build(number, payload) for number, payload in enumerate(payloads, first)]
        for number, message in enumerate(messages, first):
            self._row.put(number, message)
        self.count += len(messages)
        self.size_bytes += size_bytes

    def remove_through(self, number: int) -> int:
        """Take out all members numbered up to ``number``."""
        row = self._row
        end = row.place_of(number) + 1
        doomed = row.values[row.start : end]
        self.size_bytes -= sum(map(len, map(self._form.payload, doomed)))
        self.count -= len(doomed)
        row.cut(len(doomed))
        return len(doomed)

    def least(self) -> M:
        """The member with the least number."""
        return self._row.values[self._row.start]

    def above(self, after: int, limit: int) -> list[M]:
        """At most ``limit`` members numbered above ``after``."""
        begin = self._row.place_of(after) + 1
        return self._row.values[begin : begin + limit]

    def runs_above(self, after: int, limit: int) -> list[Run]:
        """The same as maximal runs."""
        begin = self._row.place_of(after) + 1
        numbers = self._row.keys[begin : begin + limit]
        payloads = map(self._form.payload, self._row.values[begin : begin + limit])
        return _joined(
            (number, [payload]) for number, payload in zip(numbers, payloads, strict=True)
        )

    def slice_run(self, first: int, count: int) -> list[bytes]:
        """Payloads of consecutive members from ``first`` on."""
        runs = self.runs_above(first - 1, count)
        return list(runs[0].payloads) if runs and runs[0].first == first else []

    def snapshot(self) -> Mapping[int, M]:
        """All members by number, in order."""
        row = self._row
        return dict(zip(row.keys[row.start :], row.values[row.start :], strict=True))


class RunShelf(Generic[M]):
    """Bytes in chunks of consecutive numbers: no object and no dictionary entry per message.

    A chunk is a plain list, which is the shelf's own, or a run that knows its size, which others keep too: it is
    copied before anything is added to it or cut off. Numbers must be added in increasing order.
    """

    __slots__ = ("_build", "_next", "_row", "count", "size_bytes")

    def __init__(self, build: Callable[[int, bytes], M]) -> None:
        self._build = build
        self._row: Row[list[bytes]] = Row()
        self._next = 0  # the number that would go on from the last member
        self.count = 0
        self.size_bytes = 0

    def holds(self, number: int) -> bool:
        """True when a member has this number."""
        return self.first_held(number, number) is not None

    def first_held(self, first: int, last: int) -> int | None:
        """The least member's number in first..last, or None."""
        row = self._row
        place = row.place_of(first)
        if place >= row.start and first < row.keys[place] + len(row.values[place]):
            return first
        place += 1
        return row.keys[place] if place < len(row.keys) and row.keys[place] <= last else None

    def add(self, number: int, message: M, payload: bytes) -> None:  # noqa: ARG002
        """Put in a message numbered above all members; only its bytes are kept."""
        row = self._row
        if number == self._next and self._may_extend(1):
            row.values[-1].append(payload)
        else:
            row.put(number, [payload])
        self._next = number + 1
        self.count += 1
        self.size_bytes += len(payload)

    def add_run(self, first: int, payloads: list[bytes], size_bytes: int) -> None:
        """Put in a run numbered above all members; one that fits a chunk is kept as it is."""
        row = self._row
        count = len(payloads)
        is_small = count <= SMALL_MAX
        if first == self._next and is_small and self._may_extend(count):
            row.values[-1].extend(payloads)
        elif is_small:
            row.put(first, list(payloads))
        elif count <= CHUNK_MAX:
            row.put(first, payloads)
        else:
            for begin in range(0, count, CHUNK_MAX):
                row.put(first + begin, payloads[begin : begin + CHUNK_MAX])
        self._next = first + count
        self.count += count
        self.size_bytes += size_bytes

    def _may_extend(self, count: int) -> bool:
        """Whether the last chunk is the shelf's own and has room."""
        chunks = self._row.values
        return bool(chunks) and type(chunks[-1]) is list and len(chunks[-1]) + count <= CHUNK_MAX

    def remove_through(self, number: int) -> int:
        """Take out whole chunks, then the beginning of the one that holds ``number``."""
        row = self._row
        place = row.place_of(number)
        if place < row.start:
            return 0
        within = number - row.keys[place] + 1
        whole = place - row.start + (within >= len(row.values[place]))
        removed = 0
        for chunk in islice(row.values, row.start, row.start + whole):
            removed += len(chunk)
            self.size_bytes -= size_of(chunk)
        row.cut(whole)
        if row and row.keys[row.start] <= number:
            removed += self._cut_front_chunk(within)
        self.count -= removed
        return removed

    def _cut_front_chunk(self, count: int) -> int:
        row = self._row
        chunk = row.values[row.start]
        if isinstance(chunk, Payloads):
            self.size_bytes -= chunk.part(0, count).size_bytes
            row.values[row.start] = chunk[count:]
        else:
            self.size_bytes -= sum(map(len, islice(chunk, count)))
            del chunk[:count]
        row.keys[row.start] += count
        return count

    def least(self) -> M:
        """The member with the least number, made again."""
        row = self._row
        return self._build(row.keys[row.start], row.values[row.start][0])

    def above(self, after: int, limit: int) -> list[M]:
        """At most ``limit`` members numbered above ``after``, made again."""
        build = self._build
        return [
            build(number, payload)
            for first, payloads in self._pieces(after + 1, limit)
            for number, payload in enumerate(payloads, first)
        ]

    def runs_above(self, after: int, limit: int) -> list[Run]:
        """At most ``limit`` members numbered above ``after``, as maximal runs."""
        return _joined(self._pieces(after + 1, limit))

    def slice_run(self, first: int, count: int) -> list[bytes]:
        """Payloads of consecutive members from ``first`` on."""
        found: list[bytes] = []
        for begin, payloads in self._pieces(first, count):
            if begin != first + len(found):
                break
            found += payloads
        return found

    def snapshot(self) -> Mapping[int, M]:
        """All members by number, in order, made again."""
        build = self._build
        return {
            number: build(number, payload)
            for first, payloads in self._pieces(0, self.count)
            for number, payload in enumerate(payloads, first)
        }

    def _pieces(self, begin: int, limit: int) -> Iterator[tuple[int, list[bytes]]]:
        """Copies out of the chunks, from number ``begin`` on, ``limit`` messages in all."""
        row = self._row
        place = max(row.place_of(begin), row.start)
        while limit > 0 and place < len(row.keys):
            first = row.keys[place]
            skip = max(begin - first, 0)
            piece = row.values[place][skip : skip + limit]
            if piece:
                yield first + skip, piece
            limit -= len(piece)
            place += 1


def _joined(pieces: Iterator[tuple[int, list[bytes]]]) -> list[Run]:
    """Make runs of pieces in increasing order, those that touch becoming one."""
    joined: list[tuple[int, list[bytes]]] = []
    for first, payloads in pieces:
        if joined and joined[-1][0] + len(joined[-1][1]) == first:
            joined[-1][1].extend(payloads)
        else:
            joined.append((first, payloads))
    return [Run(first, tuple(payloads)) for first, payloads in joined]


def fitting(payloads: Sequence[bytes], messages: int, size_bytes: int) -> tuple[list[bytes], int]:
    """The longest beginning within both bounds, and its bytes. A plain list is copied."""
    if (
        isinstance(payloads, Payloads)
        and len(payloads) <= messages
        and payloads.size_bytes <= size_bytes
    ):
        return payloads, payloads.size_bytes
    taken = list(payloads[:messages])
    total = sum(map(len, taken))
    while total > size_bytes:
        total -= len(taken.pop())
    return taken, total
