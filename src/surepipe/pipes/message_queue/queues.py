"""Message queues in memory: `OrderedQueue` without a bound, and `BoundedQueue`, which the pipes
use.

The words and the contract are in `surepipe.pipes.message_queue.contract` and are public here too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar, cast, overload

from surepipe.core.payloads import Payloads
from surepipe.errors import ConfigurationError
from surepipe.pipes.message_queue.contract import (
    ACCEPTED,
    MAX_NUMBER,
    Enqueued,
    M,
    Message,
    MessageForm,
    MessageQueue,
    RefusalReason,
    Run,
    broken_duty,
    message_form,
    require_count,
    require_number,
    require_run,
)

__all__ = [
    "MAX_NUMBER",
    "BoundedQueue",
    "Enqueued",
    "Message",
    "MessageForm",
    "MessageQueue",
    "OrderedQueue",
    "RefusalReason",
    "Run",
]


# Where a message queue keeps its members: one shelf for messages as objects, one for runs of bytes.
#
# A shelf keeps and finds. It decides nothing: whether a message may come in was settled before it is added.


V = TypeVar("V")

CHUNK_MAX = 4096
"""Messages to a chunk: what is cut off the front of one moves at most so many pointers."""

SMALL_MAX = 64
"""Runs up to this length are put together in one chunk."""

_COMPACT_AT = 64


class KeyedValues(Generic[V]):
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
        if count == len(self.keys) - self.start:
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
    """Stores the members of a queue."""

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
        self._row: KeyedValues[M] = KeyedValues()
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
        return joined(
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
        self._row: KeyedValues[list[bytes]] = KeyedValues()
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
        chunks = row.values
        is_next = first == self._next and is_small and bool(chunks)
        if is_next and type(chunks[-1]) is list and len(chunks[-1]) + count <= CHUNK_MAX:
            row.values[-1].extend(payloads)
        elif count <= CHUNK_MAX:  # above all others, as the numbers of runs increase
            row.keys.append(first)
            row.values.append(list(payloads) if is_small else payloads)
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
        place = bisect_right(row.keys, number, row.start) - 1
        if place < row.start:
            return 0
        within = number - row.keys[place] + 1
        whole = place - row.start + (within >= len(row.values[place]))
        removed = 0
        for chunk in islice(row.values, row.start, row.start + whole):
            removed += len(chunk)
            if isinstance(chunk, Payloads):
                self.size_bytes -= chunk.size_bytes
            else:
                self.size_bytes -= sum(map(len, chunk))
        if removed == self.count:
            row.keys.clear()
            row.values.clear()
            row.start = 0
        else:
            row.cut(whole)
        if row.start < len(row.keys) and row.keys[row.start] <= number:
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
        return joined(self._pieces(after + 1, limit))

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


def joined(pieces: Iterator[tuple[int, list[bytes]]]) -> list[Run]:
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


CAPACITY = 65_536
CAPACITY_BYTES = 64 * 1024 * 1024

_NO_BOUND = 2**63
_REFUSED = {reason: Enqueued(False, reason) for reason in RefusalReason}


class _ShelvedQueue(Generic[M]):
    """The duties, the profile and the bounds, over a shelf that keeps what was let in."""

    __slots__ = (
        "_form",
        "_high",
        "_most",
        "_most_bytes",
        "_shelf",
        "capacity",
        "capacity_bytes",
        "dense",
        "increasing",
    )

    picks_least = True

    def __init__(
        self,
        form: MessageForm[M],
        shelf: Shelf[M],
        capacity: int | None,
        capacity_bytes: int | None,
        *,
        increasing: bool,
        dense: bool,
    ) -> None:
        self._form = form
        self._shelf = shelf
        self._high = -1
        self._most = _NO_BOUND if capacity is None else capacity
        self._most_bytes = _NO_BOUND if capacity_bytes is None else capacity_bytes
        self.capacity = capacity
        self.capacity_bytes = capacity_bytes
        self.increasing = increasing
        self.dense = dense

    @property
    def form(self) -> MessageForm[M]:
        """How messages are read and made."""
        return self._form

    @property
    def high(self) -> int:
        """The greatest number ever accepted, -1 at first."""
        return self._high

    @property
    def size_bytes(self) -> int:
        """The bytes of all members' payloads."""
        return self._shelf.size_bytes

    def __len__(self) -> int:
        return self._shelf.count

    def empty(self) -> bool:
        """True exactly when there is no member."""
        return not self._shelf.count

    def enqueue(self, message: M) -> Enqueued:
        """Add a message, or refuse it without a trace.

        Raises `ContractViolation` when a member has the number or the message has none that may be.
        """
        number = self._form.number_of("enqueue", message)
        if number <= self._high and self._shelf.holds(number):
            raise broken_duty("enqueue", number, "no member may have the number already")
        payload = self._form.payload(message)
        reason = self._refusal(number, len(payload))
        if reason is not None:
            return _REFUSED[reason]
        self._shelf.add(number, message, payload)
        self._high = max(self._high, number)
        return ACCEPTED

    def _refusal(self, number: int, size_bytes: int) -> RefusalReason | None:
        """Why not. What waiting can't help comes first."""
        reason = self._profile_refusal(number) if self.increasing else None
        if reason is not None:
            return reason
        shelf = self._shelf
        if shelf.count >= self._most:
            return RefusalReason.FULL
        if shelf.size_bytes + size_bytes > self._most_bytes:
            return RefusalReason.FULL_BYTES
        return None

    def _profile_refusal(self, number: int) -> RefusalReason | None:
        if number <= self._high:
            return RefusalReason.STALE
        if self.dense and self._high >= 0 and number != self._high + 1:
            return RefusalReason.GAP
        return None

    def pick_one(self) -> M:
        """The member with the least number; `ContractViolation` when there is none."""
        if not self._shelf.count:
            raise broken_duty("pick_one", self, "there must be a member")
        return self._shelf.least()

    def delete_all(self, number: int) -> int:
        """Remove the members numbered up to ``number``; how many there were, 0 on a repeat."""
        if type(number) is not int or not 0 <= number <= MAX_NUMBER:
            require_number("delete_all", number)
        return self._shelf.remove_through(number)

    def enqueue_many(self, messages: Sequence[M]) -> int:
        """Add messages up to the first refusal; how many were added.

        Raises `ContractViolation`, with nothing added, when any of them breaks a duty of
        ``enqueue``.
        """
        self._require_new(messages)
        accepted = 0
        for message in messages:
            if not self.enqueue(message):
                break
            accepted += 1
        return accepted

    def _require_new(self, messages: Sequence[M]) -> None:
        seen: dict[int, None] = {}
        for message in messages:
            number = self._form.number_of("enqueue_many", message)
            if number in seen or self._shelf.holds(number):
                raise broken_duty("enqueue_many", number, "no member may have the number already")
            seen[number] = None

    def enqueue_run(self, first: int, payloads: Sequence[bytes]) -> int:
        """Add messages numbered from ``first`` on, up to the first refusal; how many were added.

        Raises `ContractViolation`, with nothing added, when a number of the run is in use or above
        the end.
        """
        if type(first) is not int or not 0 <= first <= MAX_NUMBER - len(payloads):
            require_run("enqueue_run", first, len(payloads))
        if self._form.build is None:
            self._form.builder("enqueue_run")
        if payloads and first <= self._high:
            held = self._shelf.first_held(first, first + len(payloads) - 1)
            if held is not None:
                raise broken_duty("enqueue_run", held, "no member may have the number already")
        if not payloads or (self.increasing and self._profile_refusal(first) is not None):
            return 0
        shelf = self._shelf
        room = self._most - shelf.count
        taken, size = fitting(payloads, room, self._most_bytes - shelf.size_bytes)
        if taken:
            shelf.add_run(first, taken, size)
            self._high = max(self._high, first + len(taken) - 1)
        return len(taken)

    def pick_many(self, limit: int, after: int = -1) -> list[M]:
        """The least members numbered above ``after``, in order, at most ``limit``."""
        require_count("pick_many", limit)
        require_number("pick_many", after, least=-1)
        return self._shelf.above(after, limit)

    def pick_runs(self, limit: int, after: int = -1) -> list[Run]:
        """The same as runs, each as long as can be; ``limit`` counts messages."""
        require_count("pick_runs", limit)
        require_number("pick_runs", after, least=-1)
        return self._shelf.runs_above(after, limit)

    def slice_run(self, first: int, count: int) -> list[bytes]:
        """The payloads of ``count`` consecutive members from ``first`` on.

        Raises `ContractViolation` when one of these numbers is not a member's.
        """
        require_number("slice_run", first)
        require_count("slice_run", count)
        found = self._shelf.slice_run(first, count)
        if len(found) < count:
            missing = first + len(found)
            raise broken_duty("slice_run", first, f"{count} members from here, {missing} is none")
        return found

    def snapshot(self) -> Mapping[int, M]:
        """All members by number, in increasing order, as they are now."""
        return self._shelf.snapshot()


class OrderedQueue(_ShelvedQueue[M]):
    """Any number of messages in order of their numbers; never refuses.

    For tests, tools, and places where something else bounds what comes in. ``number`` and
    ``payload`` read a message (by default its attributes ``num`` and ``payload``; one without a
    payload weighs nothing), and ``build`` makes one from a number and bytes, for the run verbs.
    """

    __slots__ = ()

    @overload
    def __init__(self: OrderedQueue[Message]) -> None: ...

    @overload
    def __init__(
        self,
        *,
        number: Callable[[M], int],
        payload: Callable[[M], bytes] | None = None,
        build: Callable[[int, bytes], M] | None = None,
    ) -> None: ...

    def __init__(
        self,
        *,
        number: Callable[[M], int] | None = None,
        payload: Callable[[M], bytes] | None = None,
        build: Callable[[int, bytes], M] | None = None,
    ) -> None:
        form = message_form(number, payload, build, keeps_bytes=False)
        super().__init__(form, MessageShelf(form), None, None, increasing=False, dense=False)

    def __repr__(self) -> str:
        return f"OrderedQueue({len(self)} messages)"


class BoundedQueue(_ShelvedQueue[M]):
    """At most ``capacity`` messages and ``capacity_bytes`` of payload; refuses beyond either bound.

    A message larger than ``capacity_bytes`` is refused even when the queue is empty. A message that
    was refused for want of room is taken after a ``delete_all`` that made it.

    ``increasing=True`` takes only numbers above ``high`` and keeps runs of bytes, no object per
    message: what it gives out is made anew each time. ``dense=True`` is increasing and takes only
    ``high + 1`` after the first. The other arguments are those of `OrderedQueue`; an increasing
    queue of messages of another kind needs all three. `ConfigurationError` when that is missing or
    a bound is below 1.
    """

    __slots__ = ()

    @overload
    def __init__(
        self: BoundedQueue[Message],
        capacity: int = CAPACITY,
        capacity_bytes: int = CAPACITY_BYTES,
        *,
        increasing: bool = False,
        dense: bool = False,
    ) -> None: ...

    @overload
    def __init__(
        self,
        capacity: int = CAPACITY,
        capacity_bytes: int = CAPACITY_BYTES,
        *,
        increasing: bool = False,
        dense: bool = False,
        number: Callable[[M], int],
        payload: Callable[[M], bytes] | None = None,
        build: Callable[[int, bytes], M] | None = None,
    ) -> None: ...

    def __init__(
        self,
        capacity: int = CAPACITY,
        capacity_bytes: int = CAPACITY_BYTES,
        *,
        increasing: bool = False,
        dense: bool = False,
        number: Callable[[M], int] | None = None,
        payload: Callable[[M], bytes] | None = None,
        build: Callable[[int, bytes], M] | None = None,
    ) -> None:
        require_bound("capacity", capacity)
        require_bound("capacity_bytes", capacity_bytes)
        increasing = increasing or dense
        form = message_form(number, payload, build, keeps_bytes=increasing)
        shelf: Shelf[M]
        shelf = RunShelf(form.builder("BoundedQueue")) if increasing else MessageShelf(form)
        super().__init__(form, shelf, capacity, capacity_bytes, increasing=increasing, dense=dense)

    def __repr__(self) -> str:
        profile = ", dense" if self.dense else ", increasing" if self.increasing else ""
        bounds = f"{len(self)} of {self.capacity} messages"
        return f"BoundedQueue({bounds}, {self.size_bytes} of {self.capacity_bytes} bytes{profile})"


def require_bound(name: str, bound: object) -> None:
    """Refuse what is no bound. Raises `ConfigurationError`."""
    if type(bound) is not int or bound < 1:
        raise ConfigurationError(f"{name}={bound!r}: a bound must be an int, 1 or more")
