"""A message queue in a store: a stream with one producer, and a position for what was deleted (message-queue Q-9).

    with SqliteStore("shop.db") as store:
        queue = StreamQueue(store, "to the warehouse")
        queue.enqueue(Message(1, b"payload"))

Dense and bounded, and as durable as its store. It stands with the stores because its verbs wait for one; the
queue's contract, its monitor and its proofs are those of `surepipe.pipes.message_queue`.

The entry at index ``i`` has the number ``i + offset``. The offset is written with the position before the first
message is, because a first number may be anything up to 2^63 and no store counts from there: Redis' scripts count
in doubles. Members are the entries from the position on. Whatever else is in memory (the bytes of each member,
which epoch wrote which) is counted once when the queue is opened.

What makes a failed write safe (Q-11, QI-6). A write whose answer stays away until the deadline may be done at any
later time:

1. ``delete_all(5)`` is given up. 2. The caller reads 1..9 and works with that. 3. The store does the deletion.

So after a deadline the queue is opened anew before anything else is done: another claim fences the commit that may
come late, a higher epoch the append. From then on it is known what was done, and it stays so.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar, cast, overload

from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendOutcome,
    Batch,
    ClaimOutcome,
    CommitPosition,
    Committed,
    Created,
    Entries,
    Exists,
    Failed,
    FencedOut,
    Full,
    Identity,
    NoPosition,
    NoStream,
    Owner,
    Position,
    ProducerOpened,
    Store,
    Stored,
    StreamInfo,
    Trimmed,
    Unavailable,
    called,
)
from surepipe.errors import ConfigurationError, Fenced, StoreReset, StoreUnavailable
from surepipe.pipes.message_queue.contract import (
    ACCEPTED,
    Enqueued,
    M,
    Message,
    RefusalReason,
    Run,
    broken_duty,
    message_form,
    require_count,
    require_number,
    require_run,
)
from surepipe.pipes.message_queue.queues import CAPACITY, CAPACITY_BYTES, joined, require_bound
from surepipe.storage.positions import Claims, number_now

PRODUCER = READER = "queue"
DEADLINE_S = 5.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.01, 0.5
READ_MAX_BYTES = 1 << 20
READ_MAX_MESSAGES = 4096
TRIM_EVERY = 4096
"""Entries are trimmed when so many were deleted since the last time: a trim costs as much as a deletion."""

T = TypeVar("T")


class StreamQueue(Generic[M]):
    """At most ``capacity`` messages and ``capacity_bytes`` of payload, in the stream ``name`` of a store.

    Opened again it holds what it held, and ``high`` is the last number ever accepted. Whoever opens it fences who
    had it before: that one's writes raise `Fenced`. `StoreReset` says that the store has lost or replaced what it
    held; ``begin_anew`` opens such a queue empty (`clear`). A call that the store does not answer within
    ``deadline_s`` raises `StoreUnavailable`: it was done or it was not, and may be repeated with the same message.

    Opening raises these errors as well, and ConfigurationError where the stream is somebody else's.
    """

    picks_least = True
    increasing = True
    dense = True

    @overload
    def __init__(
        self: StreamQueue[Message],
        store: Store,
        name: str,
        *,
        capacity: int = ...,
        capacity_bytes: int = ...,
        positions: Store | None = ...,
        begin_anew: bool = ...,
        deadline_s: float = ...,
        clock: Callable[[], float] = ...,
        pause: Callable[[float], object] = ...,
        number_of_life: Callable[[], int] = ...,
    ) -> None: ...

    @overload
    def __init__(
        self,
        store: Store,
        name: str,
        *,
        capacity: int = ...,
        capacity_bytes: int = ...,
        positions: Store | None = ...,
        begin_anew: bool = ...,
        deadline_s: float = ...,
        number: Callable[[M], int],
        payload: Callable[[M], bytes],
        build: Callable[[int, bytes], M],
        clock: Callable[[], float] = ...,
        pause: Callable[[float], object] = ...,
        number_of_life: Callable[[], int] = ...,
    ) -> None: ...

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        capacity: int = CAPACITY,
        capacity_bytes: int = CAPACITY_BYTES,
        positions: Store | None = None,
        begin_anew: bool = False,
        deadline_s: float = DEADLINE_S,
        number: Callable[[M], int] | None = None,
        payload: Callable[[M], bytes] | None = None,
        build: Callable[[int, bytes], M] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        """``positions``: another store for what was deleted. ``clock`` and ``pause``: seconds, and how it waits
        before it asks again. ``number_of_life``: see ``surepipe.storage.positions``."""
        require_bound("capacity", capacity)
        require_bound("capacity_bytes", capacity_bytes)
        self.form = message_form(number, payload, build, keeps_bytes=True)
        self.capacity: int | None = capacity
        self.capacity_bytes: int | None = capacity_bytes
        self.name = name
        self._most, self._most_bytes = capacity, capacity_bytes
        self._streams, self._positions = store, positions or store
        self._claims = Claims(self._positions, number_of_life)
        self._deadline_s, self._clock, self._pause = deadline_s, clock, pause
        self._build = self.form.builder("StreamQueue")
        self._renewal = self._owner = self._epoch = self._revision = self._incarnation = 0
        self._base = self._next = self._floor = self._trimmed_to = 1
        self._last = self._offset = 0
        self._sizes: deque[int] = deque()
        self._size_bytes = 0
        self._epochs: list[tuple[int, int]] = []
        """The first index of each epoch's entries, in order; of what is still needed."""
        self._tried: tuple[int, ...] = ()
        """Payload bytes of an append that nobody heard of."""
        self._unanswered: dict[int, bytes] = {}
        self._in_doubt = False
        self._ended: Exception | None = None
        self._open(begin_anew=begin_anew)

    def __repr__(self) -> str:
        bounds = f"{self._next - self._base} of {self.capacity} messages"
        return f"StreamQueue({self.name!r} in {called(self._streams)}, {bounds})"

    # Asking the store.

    def _ask(self, call: Callable[[], T | Unavailable]) -> T:
        """The answer, asked for until the deadline; then StoreUnavailable."""
        give_up_at, pause_s = self._clock() + self._deadline_s, PAUSE_MIN_S
        while isinstance(outcome := call(), Unavailable):
            if self._clock() >= give_up_at:
                raise StoreUnavailable(
                    f"{self!r} got no answer for {self._deadline_s} s: {outcome.detail or 'done or not done'}; "
                    "ask again"
                )
            self._pause(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return outcome

    def _write(self, call: Callable[[], T | Unavailable]) -> T:
        """The same for a write, which is in doubt without an answer."""
        self._in_doubt = True
        outcome = self._ask(call)
        self._in_doubt = False
        return outcome

    def _end(self, error: Exception) -> Exception:
        """From now on every verb says this."""
        self._ended = error
        return error

    def _reset(self, what: str) -> Exception:
        return self._end(
            StoreReset(
                f"the store of {self!r} has lost or replaced what it held ({what}): store what is still known "
                "again, in a queue that is opened with begin_anew=True"
            )
        )

    def _fenced(self, by: int) -> Exception:
        return self._end(Fenced(f"{self!r} belongs to a process that began later ({by})"))

    def _refused(self, outcome: object) -> Exception:
        """For what is no answer to a queue's question."""
        match outcome:
            case FencedOut(by):
                return self._fenced(by)
            case NoStream():
                return self._reset("its stream is gone")
            case _:
                why = outcome.reason if isinstance(outcome, Failed) else outcome
                return ConfigurationError(f"{self!r} can't be used: {why}")

    # Opening, for the first time and after every doubt.

    def _open(self, *, begin_anew: bool = False) -> None:
        made = self._ask(lambda: self._streams.create(self.name, 1, KEEP_ALL))
        if not isinstance(made, Created | Exists):
            raise ConfigurationError(f"stream {self.name!r} can't hold a queue: {made}")
        self._renewal += 1
        self._take_over()
        position = self._where()
        found = self._begin_to_write()
        if begin_anew:
            self._begin_anew(position, found)
        else:
            self._go_on(position, found)
        self._in_doubt = False

    def _take_over(self) -> None:
        claimed = self._ask(self._claim)
        if not isinstance(claimed, Owner):
            raise self._refused(claimed)
        self._owner = claimed.number

    def _claim(self) -> ClaimOutcome:
        return self._claims.claim(self.name, READER, self._renewal)

    def _where(self) -> Position | NoPosition:
        found = self._ask(lambda: self._positions.get(self.name, READER))
        if isinstance(found, Position | NoPosition):
            return found
        raise self._refused(found)

    def _begin_to_write(self) -> StreamInfo:
        """Take the producer under this claim's number, and see the stream as it is behind that.

        A former owner may append between the first look and the fence. 1. We look: its last seq is 7. 2. It
        appends 8. 3. We open at 8. Now 8 would be given twice. So the stream is looked at again, and opened behind
        what came.
        """
        found = self._look()
        while True:
            before = found
            self._last = next((each.last for each in before.producers), 0)
            opened = self._ask(self._open_producer)
            if isinstance(opened, FencedOut) and self._claims.rise_above(opened.by):
                self._take_over()
                continue
            if not isinstance(opened, ProducerOpened):
                raise self._refused(opened)
            found = self._look()
            if found.next == before.next:
                self._last = opened.last
                return found
            found = _with_last(found, self._last + found.next - before.next)

    def _look(self) -> StreamInfo:
        found = self._ask(lambda: self._streams.info(self.name))
        if not isinstance(found, StreamInfo):
            raise self._refused(found)
        others = [each.producer for each in found.producers if each.producer != PRODUCER]
        if others:
            raise ConfigurationError(
                f"stream {self.name!r} is no queue's: {', '.join(others)} writes to it; choose another name"
            )
        return found

    def _open_producer(self) -> object:
        self._epoch = self._claims.claimant(self._renewal)
        return self._streams.open_producer(self.name, PRODUCER, self._epoch, self._last + 1)

    def _go_on(self, position: Position | NoPosition, found: StreamInfo) -> None:
        if isinstance(position, NoPosition):
            if found.next > 1:
                raise self._reset("its position is gone")
            place, floor, offset, seen = 1, 1, 0, 1
        else:
            place = position.next
            floor, offset, seen = map(int, position.state.split())
            self._revision = position.revision
            self._require_same(position, found, seen)
        is_first = not self._incarnation
        if self._incarnation and self._incarnation != found.incarnation:
            raise self._reset("its stream was made anew")
        stored = found.next - self._next
        if not is_first and not (self._next <= found.next <= self._next + len(self._tried)):
            raise self._reset(f"its next index is {found.next}, not {self._next}")
        self._incarnation, self._floor, self._offset = found.incarnation, floor, offset
        self._next = found.next
        if is_first:
            self._base = self._trimmed_to = place
            self._count_members()
        else:
            self._add(self._tried[:stored])
            self._forget(place)
        self._tried = ()
        self._epochs.append((self._next, self._epoch))

    def _require_same(self, position: Position, found: StreamInfo, seen: int) -> None:
        """Whether the stream is the one that the position was committed on, and has not gone back since."""
        if position.tag != found.incarnation:
            raise self._reset("its stream was made anew")
        if found.next < max(position.next, seen):
            raise self._reset(f"its next index is {found.next}, and was {max(position.next, seen)}")
        anchor = position.anchor
        if anchor is None:
            return
        known = self._ask(lambda: self._streams.identify(self.name, position.next - 1))
        if known != anchor and not isinstance(known, Trimmed):
            raise self._reset(f"entry {position.next - 1} is another one")

    def _count_members(self) -> None:
        """Read all members once, for the bounds."""
        for run in self._entries(self._base, self._next - self._base):
            self._epochs.append((run.index, run.epoch))
            self._add([len(payload) for payload in run.payloads])

    def _begin_anew(self, position: Position | NoPosition, found: StreamInfo) -> None:
        self._incarnation, self._next = found.incarnation, found.next
        previous = position.tag if isinstance(position, Position) else None
        if isinstance(position, Position):
            self._revision = position.revision
        self._move(found.next, found.next, 0, previous)
        self._sizes.clear()
        self._size_bytes, self._unanswered, self._tried = 0, {}, ()
        self._base, self._epochs = found.next, [(found.next, self._epoch)]

    def clear(self) -> None:
        """Delete everything, and forget ``high``: the next number may be any. For tools."""
        self._begin("clear")
        self._renewal += 1
        self._take_over()
        position = self._where()
        self._begin_anew(position, self._begin_to_write())
        self._trim()

    def _begin(self, verb: str) -> None:
        """Before every verb that asks the store."""
        del verb
        if self._ended is not None:
            raise self._ended
        if self._in_doubt:
            self._open()

    # Writing.

    def enqueue(self, message: M) -> Enqueued:
        """See ``MessageQueue.enqueue``; stored when it returns."""
        number = self.form.number_of("enqueue", message)
        payload = self.form.payload(message)
        self._begin("enqueue")
        if self._is_repeat(number, payload):
            del self._unanswered[number]
            return ACCEPTED
        self._require_free("enqueue", number)
        reason = self._refusal(number, len(payload))
        if reason is not None:
            return Enqueued(False, reason)
        self._append(number, [payload])
        return ACCEPTED

    def enqueue_many(self, messages: Sequence[M]) -> int:
        """See ``MessageQueue.enqueue_many``: one append."""
        numbers = [self.form.number_of("enqueue_many", message) for message in messages]
        return self._enqueue_all(
            "enqueue_many", numbers, [self.form.payload(message) for message in messages]
        )

    def enqueue_run(self, first: int, payloads: Sequence[bytes]) -> int:
        """See ``MessageQueue.enqueue_run``: one append."""
        require_run("enqueue_run", first, len(payloads))
        return self._enqueue_all("enqueue_run", range(first, first + len(payloads)), payloads)

    def _enqueue_all(self, verb: str, numbers: Sequence[int], payloads: Sequence[bytes]) -> int:
        self._begin(verb)
        repeats = 0
        while repeats < len(numbers) and self._is_repeat(numbers[repeats], payloads[repeats]):
            repeats += 1
        seen = dict.fromkeys(numbers[:repeats])
        for number in numbers[repeats:]:
            self._require_free(verb, number)
            if number in seen:
                raise broken_duty(verb, number, "no member may have the number already")
            seen[number] = None
        for number in numbers[:repeats]:
            del self._unanswered[number]
        count = self._fitting(numbers[repeats:], payloads[repeats:])
        if count:
            self._append(numbers[repeats], payloads[repeats : repeats + count])
        return repeats + count

    def _fitting(self, numbers: Sequence[int], payloads: Sequence[bytes]) -> int:
        """How many of the first are taken: consecutive, and within the bounds."""
        if not numbers or self._profile_refusal(numbers[0]) is not None:
            return 0
        room, room_bytes = self._most - len(self), self._most_bytes - self._size_bytes
        for count, (number, payload) in enumerate(zip(numbers, payloads, strict=True)):
            room_bytes -= len(payload)
            if count >= room or room_bytes < 0 or number != numbers[0] + count:
                return count
        return len(numbers)

    def _is_repeat(self, number: int, payload: bytes) -> bool:
        return self._holds(number) and self._unanswered.get(number) == payload

    def _holds(self, number: int) -> bool:
        return self._base <= number - self._offset < self._next

    def _require_free(self, verb: str, number: int) -> None:
        if self._holds(number):
            raise broken_duty(verb, number, "no member may have the number already")

    def _refusal(self, number: int, size: int) -> RefusalReason | None:
        reason = self._profile_refusal(number)
        if reason is not None:
            return reason
        if len(self) >= self._most:
            return RefusalReason.FULL
        return RefusalReason.FULL_BYTES if self._size_bytes + size > self._most_bytes else None

    def _profile_refusal(self, number: int) -> RefusalReason | None:
        high = self._high
        if number <= high:
            return RefusalReason.STALE
        return RefusalReason.GAP if high >= 0 and number != high + 1 else None

    def _append(self, number: int, payloads: Sequence[bytes]) -> None:
        if self._next == self._floor:
            self._move(self._next, self._floor, number - self._next, self._incarnation)
        self._tried = tuple(map(len, payloads))
        self._unanswered.update(enumerate(payloads, number))
        outcome = self._write(lambda: self._append_run(payloads))
        if not isinstance(outcome, Stored):
            raise self._not_appended(cast("AppendOutcome", outcome))
        if outcome.last != self._last + len(payloads):
            raise self._reset(f"its producer stands at {outcome.last}, not at {self._last}")
        for taken in range(number, number + len(payloads)):
            del self._unanswered[taken]
        self._last = outcome.last
        self._next += len(payloads)
        self._add(self._tried)
        self._tried = ()

    def _append_run(self, payloads: Sequence[bytes]) -> AppendOutcome:
        return self._streams.append(self.name, PRODUCER, self._epoch, self._last + 1, payloads)

    def _not_appended(self, outcome: AppendOutcome) -> Exception:
        self._tried = ()
        if isinstance(outcome, Full):
            return ConfigurationError(
                f"{self!r}: its stream has a bound of its own: {outcome.bound}"
            )
        if isinstance(outcome, FencedOut | Failed):
            return self._refused(outcome)
        return self._reset(f"its producer's entries are gone: {outcome}")

    def _add(self, sizes: Sequence[int]) -> None:
        self._sizes.extend(sizes)
        self._size_bytes += sum(sizes)

    # Deleting.

    def delete_all(self, number: int) -> int:
        """See ``MessageQueue.delete_all``: a commit, and now and then a trim."""
        require_number("delete_all", number)
        self._begin("delete_all")
        place = min(max(number - self._offset + 1, self._base), self._next)
        count = place - self._base
        if count:
            self._move(place, self._floor, self._offset, self._incarnation)
            self._forget(place)
            if self._base - self._trimmed_to >= TRIM_EVERY:
                self._trim()
        return count

    def _move(self, place: int, floor: int, offset: int, previous_tag: int | None) -> None:
        """Commit where the members begin, and what their numbers follow from."""
        self._revision += 1
        state = f"{floor} {offset} {self._next}".encode()
        anchor = self._identity_of(place - 1)
        request = CommitPosition(
            *(self.name, READER, self._owner, self._incarnation, place, anchor, state),
            *(previous_tag, self._revision),
        )
        outcome = self._write(lambda: self._positions.commit(request))
        if isinstance(outcome, FencedOut):
            raise self._fenced(outcome.by)
        if not isinstance(outcome, Committed):
            raise self._reset(f"its position is {outcome}")
        self._floor, self._offset = floor, offset

    def _identity_of(self, index: int) -> Identity | None:
        """Who wrote the entry, as far as that is known here."""
        epoch = next((epoch for first, epoch in reversed(self._epochs) if first <= index), None)
        return None if epoch is None else Identity(PRODUCER, epoch, self._seq_of(index))

    def _seq_of(self, index: int) -> int:
        return self._last + 1 - (self._next - index)

    def _forget(self, place: int) -> None:
        """The members below an index are gone."""
        for number in range(self._base + self._offset, place + self._offset):
            self._unanswered.pop(number, None)
        for _ in range(place - self._base):
            self._size_bytes -= self._sizes.popleft()
        self._base = place
        while len(self._epochs) > 1 and self._epochs[1][0] < place:
            del self._epochs[0]

    def _trim(self) -> None:
        """Entries below the position go, as whole pages; if not now, then next time."""
        if isinstance(self._streams.trim(self.name, self._base), Trimmed):
            self._trimmed_to = self._base

    # Views.

    def empty(self) -> bool:
        """See ``MessageQueue.empty``."""
        return not len(self)

    def __len__(self) -> int:
        self._begin("len")
        return self._next - self._base

    @property
    def size_bytes(self) -> int:
        """See ``MessageQueue.size_bytes``."""
        self._begin("size_bytes")
        return self._size_bytes

    @property
    def high(self) -> int:
        """See ``MessageQueue.high``."""
        self._begin("high")
        return self._high

    @property
    def _high(self) -> int:
        return self._next - 1 + self._offset if self._next > self._floor else -1

    def pick_one(self) -> M:
        """See ``MessageQueue.pick_one``."""
        picked = self.pick_many(1)
        if not picked:
            raise broken_duty("pick_one", self, "there must be a member")
        return picked[0]

    def pick_many(self, limit: int, after: int = -1) -> list[M]:
        """See ``MessageQueue.pick_many``."""
        build = self._build
        return [
            build(number, payload)
            for first, payloads in self._pieces("pick_many", limit, after)
            for number, payload in enumerate(payloads, first)
        ]

    def pick_runs(self, limit: int, after: int = -1) -> list[Run]:
        """See ``MessageQueue.pick_runs``."""
        return joined(self._pieces("pick_runs", limit, after))

    def slice_run(self, first: int, count: int) -> list[bytes]:
        """See ``MessageQueue.slice_run``."""
        require_number("slice_run", first)
        require_count("slice_run", count)
        self._begin("slice_run")
        if count and not (self._holds(first) and self._holds(first + count - 1)):
            held = range(self._base + self._offset, self._next + self._offset)
            missing = next(n for n in (*range(first, first + count),) if n not in held)
            raise broken_duty("slice_run", first, f"{count} members from here, {missing} is none")
        found = self._pieces("slice_run", count, first - 1)
        return [payload for _, payloads in found for payload in payloads]

    def snapshot(self) -> Mapping[int, M]:
        """See ``MessageQueue.snapshot``: reads all of it."""
        self._begin("snapshot")
        members = self.pick_many(self._next - self._base)
        return {self.form.number(member): member for member in members}

    def _pieces(self, verb: str, limit: int, after: int) -> Iterator[tuple[int, list[bytes]]]:
        require_count(verb, limit)
        require_number(verb, after, least=-1)
        self._begin(verb)
        start = min(max(after + 1 - self._offset, self._base), self._next)
        wanted = min(limit, self._next - start)
        pieces = [
            (run.index + self._offset, list(run.payloads)) for run in self._entries(start, wanted)
        ]
        return iter(pieces)

    def _entries(self, index: int, count: int) -> Iterator[Entries]:
        """So many entries from an index on, each where it belongs."""
        while count > 0:
            run = self._ask(lambda at=index, most=count: self._read(at, most))  # type: ignore[misc]
            if not isinstance(run, Batch):
                raise self._gone(index, run)
            for entries in run.entries:
                if (entries.producer, entries.first) != (PRODUCER, self._seq_of(entries.index)):
                    raise self._reset(f"entry {entries.index} is another one")
                yield entries
            count -= run.next - index
            index = run.next

    def _gone(self, index: int, found: object) -> Exception:
        """Why an entry can't be read: a later owner has deleted it, or the store has lost it."""
        position = self._where()
        if isinstance(position, Position) and position.owner > self._owner:
            return self._fenced(position.owner)
        return self._reset(f"entry {index} is gone: {found}")

    def _read(self, index: int, count: int) -> object:
        most = min(count, READ_MAX_MESSAGES)
        return self._streams.read(self.name, index, most, READ_MAX_BYTES, self._incarnation or None)


def _with_last(found: StreamInfo, last: int) -> StreamInfo:
    """The same, with what a former owner has appended under our base counted."""
    return replace(found, producers=tuple(replace(each, last=last) for each in found.producers))
