"""Lanes of a receiver: several consumers of one queue, each with messages of another key.

The machine hands out one delivery of a key at a time, so lanes may take whatever lies there. Only a new
incarnation of the machine may hand out a key whose handler is still busy for the former one: that waits until
the handler has returned, so that a key is never in two lanes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, cast
from uuid import UUID

from surepipe.actors.codecs import Codec
from surepipe.actors.consuming.consumer import (
    Loop,
    TaskLoop,
    Work,
    WorkOwner,
    WorkQueue,
    consume,
    consume_in_task,
)
from surepipe.actors.consuming.coroutines import require_plain
from surepipe.actors.inbox import Bell
from surepipe.actors.runtime import Runtime
from surepipe.actors.supervision import Kill, Killed
from surepipe.core.callables import require_call
from surepipe.core.effects import Key
from surepipe.errors import ConfigurationError
from surepipe.pipes.stack.boundary import LANES_MAX


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What one lane has in work: the message that its handler has now, and how many of its key follow at once.

    ``attempt`` counts how often this message was handed to a handler, by this incarnation of the receiver.
    ``held_s``: for how long the lane has been at this delivery. ``producer``: who numbered it, where it comes
    straight out of a stream.
    """

    lane: int
    key: Key
    epoch: int
    seq: int
    following: int
    attempt: int
    held_s: float
    producer: str = ""


TURN_US = 5_000


class LaneQueue(WorkQueue):
    """Works that wait for a free lane."""

    def __init__(self, runtime: Runtime, lanes: int) -> None:
        super().__init__(runtime)
        self.lanes = lanes
        self.now = runtime.now
        self._running: dict[int, tuple[Work, int]] = {}
        self._held: dict[Work, None] = {}
        """Those that wait for a sink, in no lane."""
        self._keys: dict[Key, int] = {}
        """Of both, and how many of each."""
        self._threads: dict[int, object] = {}
        self._idle: deque[int] = deque()
        self._woken: int | None = None
        """The lane that was woken last, until it looks, where one at a time is."""
        self._one_at_a_time = True
        self._bells: Sequence[Bell] = ()
        self._tried_again = False

    def serve_lanes(self, bells: Sequence[Bell], *, one_at_a_time: bool = True) -> None:
        """Ring the bell of a free lane when there is work. Called before any lane begins.

        ``one_at_a_time``: to wake a lane costs more than a message, and a stage that does not wait needs one of
        them: so whoever is on its way to look wakes the next. Tasks of a loop are all woken in one turn of it.
        """
        self._bells = bells
        self._one_at_a_time = one_at_a_time

    def put(self, work: Work) -> None:
        """Add a work, and wake a lane that has nothing to do.

        A further attempt waits for no run of other messages: where all lanes are busy, one makes way for it after
        the message that it is at.
        """
        with self._lock:
            if self._is_too_late_for(work):
                return
            self._insert(work)
            free = self._next_to_wake()
            if work.attempt > 1 and free is None:
                self._make_way()
        self._wake(free)
        self.signal.notify()

    def _next_to_wake(self) -> int | None:
        """A lane that has nothing to do, or the one that is on its way to look: to ring again costs nothing."""
        if not self._one_at_a_time:
            return self._idle.popleft() if self._idle else None
        if self._woken is None and self._idle:
            self._woken = self._idle.popleft()
        return self._woken

    def _wake(self, lane: int | None) -> None:
        if lane is not None:
            self._bells[lane].ring()

    def _insert(self, work: Work) -> None:
        """Further attempts go first, in the order in which they came."""
        if work.attempt > 1:
            self._works.insert(sum(other.attempt > 1 for other in self._works), work)
        else:
            self._works.append(work)

    def _make_way(self) -> None:
        """The longest run stops after the message that it is at, and goes on when its turn comes again."""
        runs = [work for work, _ in self._running.values() if not work.is_cut]
        longest = max(runs, key=_not_begun, default=None)
        if longest is not None and _not_begun(longest) > 0:
            longest.park()

    def take_for(self, lane: int) -> Work | None:
        """The oldest work whose key is not busy; without one the lane is free from now on.

        After a further attempt comes the oldest first attempt, so keys that keep failing leave others their turns.
        """
        with self._lock:
            if lane in self._running:  # of a former life of the lane
                self._end_key(self._running.pop(lane)[0])
                self._threads.pop(lane, None)
            was_woken = self._woken == lane
            if was_woken:
                self._woken = None
            work = self._next()
            self._tried_again = work is not None and work.attempt > 1
            if work is None:
                if lane not in self._idle:
                    self._idle.append(lane)
                return None
            busy, key = self._keys, work.key
            busy[key] = busy.get(key, 0) + 1
            self._running[lane] = (work, self.now())
            self._threads[lane] = self.here()
            more = self._next_to_wake() if self._works and self._one_at_a_time else None
            if was_woken and more is None and self._works and self._works[0].attempt > 1:
                self._make_way()  # it came while this lane was on its way, and is not what this lane took
        self._wake(more)
        work.holder = self
        work.owner.taken(work)
        return work

    def _next(self) -> Work | None:
        """Take out the work whose turn it is."""
        works, busy = self._works, self._keys
        if works and works[0].attempt == 1 and works[0].key not in busy:
            return works.popleft()
        work = next((work for work in works if work.key not in busy), None)
        if work is not None and work.attempt > 1 and self._tried_again:
            fresh = (w for w in works if w.attempt == 1 and w.key not in busy)
            work = next(fresh, work)
        if work is not None:
            works.remove(work)
        return work

    def _end_key(self, work: Work) -> None:
        keys, key = self._keys, work.key
        if keys[key] == 1:
            del keys[key]
        else:
            keys[key] -= 1

    def finish_in(self, lane: int) -> None:
        """The lane came to the end of its work, or has left it."""
        with self._lock:
            work, _ = self._running.pop(lane)
            self._threads.pop(lane, None)
            if work.has_left and work.is_held:
                self._held[work] = None
                return
            self._end_key(work)
            self._go_on(work)
        work.owner.finished(work)

    def _go_on(self, work: Work) -> bool:
        """Nobody is at this work. If it was left in the middle its turn comes again: True then."""
        if work.has_left and work.parked is None:
            work.park()
        work.has_left = False
        may_go_on = work.unpark()
        if may_go_on:
            self._works.insert(sum(other.attempt > 1 for other in self._works), work)
        return may_go_on

    def hold(self, work: Work) -> None:
        work.is_held = True

    def leave(self, work: Work) -> bool:
        with self._lock:
            work.has_left = is_held = work.is_held
            return is_held

    def release(self, work: Work) -> None:
        """A lane that is still at it goes on; if it has left, the next lane that is free does."""
        free = None
        with self._lock:
            work.is_held = False
            if work not in self._held:
                return
            del self._held[work]
            self._end_key(work)
            if self._go_on(work) or self._works:
                free = self._next_to_wake()
        self._wake(free)
        work.owner.finished(work)

    def running(self) -> list[Work]:
        with self._lock:
            return [*self._held, *(work for work, _ in self._running.values())]

    def recall(self, owner: WorkOwner) -> list[Work]:
        """Let lanes end after the message that each is at. Returns what no lane had begun, which is out of the
        queue; the rest of what is in work comes back when its lane has left it."""
        with self._lock:
            waiting = [work for work in self._works if work.owner is owner]
            self._works = deque(work for work in self._works if work.owner is not owner)
            for work in waiting:
                work.cancel()
            for work in (*self._held, *(work for work, _ in self._running.values())):
                if work.owner is owner:
                    work.recall()
            return waiting

    def is_handling_here(self) -> bool:
        """True on a thread that runs the handler."""
        return self.here() in list(self._threads.values())

    def leases(self) -> list[LaneWork]:
        """What is in work, lane by lane."""
        now = self.now()
        with self._lock:
            running = sorted(self._running.items(), key=lambda item: item[0])
        return [_lease(lane, work, now - since) for lane, (work, since) in running]

    def __contains__(self, work: Work) -> bool:
        """True while this work has not come to its end."""
        with self._lock:
            at = (work for work, _ in self._running.values())
            return work in self._works or work in self._held or any(work is one for one in at)

    def newest(self) -> Work | None:
        """The work that was put last, unless it came to its end."""
        with self._lock:
            running = [*self._held, *(work for work, _ in self._running.values())]
            return self._works[-1] if self._works else max(running, key=_ticket_of, default=None)

    def _cancel_all(self) -> None:
        super()._cancel_all()
        self._woken = None  # it may have died on its way
        for work in self._held:
            work.cancel()
        for work, _ in self._running.values():
            work.cancel()


def _not_begun(work: Work) -> int:
    return work.last - work.done - 1


def _ticket_of(work: Work) -> int:
    return work.ticket


def _lease(lane: int, work: Work, held_us: int) -> LaneWork:
    at = min(work.done + 1, work.last)
    attempt = work.attempt if at == work.first else 1
    held_s = held_us / 1_000_000
    return LaneWork(
        *(lane, work.key, work.epoch, work.seq_at(at), work.last - at, attempt, held_s),
        producer=work.producer,
    )


class LaneActor:
    """One lane: takes works for a short turn, so that others on the same thread get theirs."""

    def __init__(
        self,
        lane: int,
        queue: LaneQueue,
        loop: Loop,
        bell: Bell,
        on_death: Callable[[int, BaseException], None],
    ) -> None:
        self._lane = lane
        self._queue = queue
        self._loop = loop
        self._bell = bell
        self._on_death = on_death

    def receive(self, message: object) -> None:
        """Ring, and the start of a life: take what is there. What is left for the next turn rings again."""
        if isinstance(message, Kill):
            raise Killed("the lane was told to die")
        self._bell.rung = False
        end = self._queue.now() + TURN_US
        while (work := self._queue.take_for(self._lane)) is not None:
            self.run(work)
            if self._queue.now() >= end:
                self._bell.ring()
                return

    def run(self, work: Work) -> None:
        """Take one work through the loop."""
        try:
            consume(self._loop, work)
        finally:  # also when its loop has ended: what is not done is not settled
            self._queue.finish_in(self._lane)

    def died(self, error: BaseException) -> None:
        """Pass it on: the receiver's end starts over."""
        self._on_death(self._lane, error)


class LaneTask:
    """One lane of a coroutine handler: all lanes are tasks of one loop, so many may wait without a thread each."""

    def __init__(
        self,
        lane: int,
        queue: LaneQueue,
        loop: TaskLoop,
        bell: Bell,
        on_death: Callable[[int, BaseException], None],
    ) -> None:
        self._lane = lane
        self._queue = queue
        self._loop = loop
        self._bell = bell
        self._on_death = on_death

    async def receive(self, message: object) -> None:
        if isinstance(message, Kill):
            raise Killed("the lane was told to die")
        self._bell.rung = False
        end = self._queue.now() + TURN_US
        while (work := self._queue.take_for(self._lane)) is not None:
            try:
                await consume_in_task(self._loop, work)
            finally:  # also when the task is ended: what is not done is not settled
                self._queue.finish_in(self._lane)
            if self._queue.now() >= end:  # others on the loop get a turn, if nothing was waited for
                await asyncio.sleep(0)
                end = self._queue.now() + TURN_US

    def died(self, error: BaseException) -> None:
        """Pass it on: the receiver's end starts over."""
        self._on_death(self._lane, error)


# What messages that must stay in order have in common: a key, told by a function or by the place it stands at.


# Any: whoever writes the function knows what the messages of this pipe are.
KeyChoice: TypeAlias = str | Callable[[Any], object]
"""A function of the message, the name of an attribute or item, or a path of them such as ``order.customer``."""

DEFAULT_LANES = 4


class NoKey(Exception):
    """The key of a message can't be told. It goes to the dead letters; its neighbours take no notice."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """How many messages are handled at once, and what keeps those of one key in order."""

    key: KeyChoice
    count: int = DEFAULT_LANES


def chosen_lanes(pipe: str, key: KeyChoice | None, lanes: int | None) -> Lanes | None:
    """Check the lanes that were asked for; None for one message after the other. Raises ConfigurationError."""
    count: object = DEFAULT_LANES if lanes is None else lanes
    if type(count) is not int or not 1 <= count <= LANES_MAX:
        raise ConfigurationError(
            f"pipe {pipe}: lanes is {lanes!r}: it must be a whole number from 1 to {LANES_MAX}"
        )
    if key is None:
        if lanes is not None:
            raise ConfigurationError(
                f"pipe {pipe}: lanes is {lanes!r}, and nothing says which messages must stay in order; "
                "give a key: a function of the message, or the name of what tells it"
            )
        return None
    if not _is_choice(key):
        raise ConfigurationError(
            f"pipe {pipe}: key is {key!r}: give a function of the message, or a name such as "
            "'customer' or 'order.customer'"
        )
    require_plain(
        f"the key of pipe {pipe}", key, "it is asked for each message; give a plain function"
    )
    if not isinstance(key, str):
        require_call(f"the key of pipe {pipe}", key, "message", ConfigurationError)
    return Lanes(key, count)


def _is_choice(key: object) -> bool:
    return callable(key) or (isinstance(key, str) and all(key.split(".")))


def key_reader(choice: KeyChoice, codec: Codec) -> Callable[[bytes], Key]:
    """What tells the key of a payload. It raises Undecodable, NoKey, or what the user's function raises."""
    tell = value_reader(choice)
    return lambda payload: plain_key(tell(codec.decode(payload)))


def value_reader(choice: KeyChoice) -> Callable[[object], object]:
    """Reads this value from a message: by the user's function, or at the path. Raises what those raise."""
    return _at_path(choice.split(".")) if isinstance(choice, str) else choice


def plain_key(value: object) -> Key:
    """The key as a plain value: equal keys stay equal. Raises NoKey for what has no plain value."""
    if type(value) is str:  # most are
        return value
    match value:
        case None | bool() | bytes():
            plain: Key = value
        case Enum():
            plain = plain_key(cast("object", value.value))
        case int():
            plain = int(value)
        case str() | UUID():
            plain = str(value)
        case float():
            plain = int(value) if value.is_integer() else repr(value)
        case list() | tuple():
            plain = tuple(plain_key(item) for item in cast("Sequence[object]", value))
        case _:
            kind = type(value).__name__
            raise NoKey(f"a {kind} is no key: give text, a number, bytes, or a tuple of them")
    return plain


def _at_path(names: Sequence[str]) -> Callable[[object], object]:
    def tell(message: object) -> object:
        found = message
        for name in names:
            found = _inside(found, name)
        return found

    return tell


def _inside(value: object, name: str) -> object:
    whole = value  # as it came: of no known kind
    try:
        if type(value) is dict:  # most are, and to ask for a mapping takes longer
            return cast("dict[str, object]", value)[name]
        if isinstance(value, Mapping):
            return cast("Mapping[str, object]", value)[name]
        if isinstance(value, list | tuple):
            return cast("Sequence[object]", value)[int(name)]
        found: object = getattr(whole, name)
        return found
    except (LookupError, ValueError, AttributeError):
        raise NoKey(f"a {type(whole).__name__} has no {name!r}") from None
