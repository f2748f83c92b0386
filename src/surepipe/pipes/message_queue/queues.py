"""Message queues in memory: `OrderedQueue` without a bound, and `BoundedQueue`, which the pipes
use.

The words and the contract are in `surepipe.pipes.message_queue.contract` and are public here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, overload

from surepipe.errors import ConfigurationError
from surepipe.pipes.message_queue.contract import (
    ACCEPTED,
    MAX_NUMBER,
    Enqueued,
    M,
    Message,
    MessageForm,
    MessageQueue,
    Reason,
    Run,
    broken_duty,
    message_form,
    require_count,
    require_number,
    require_run,
)
from surepipe.pipes.message_queue.shelves import MessageShelf, RunShelf, Shelf, fitting

__all__ = [
    "MAX_NUMBER",
    "BoundedQueue",
    "Enqueued",
    "Message",
    "MessageForm",
    "MessageQueue",
    "OrderedQueue",
    "Reason",
    "Run",
]

CAPACITY = 65_536
CAPACITY_BYTES = 64 * 1024 * 1024

_NO_BOUND = 2**63
_REFUSED = {reason: Enqueued(False, reason) for reason in Reason}


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

    def _refusal(self, number: int, size_bytes: int) -> Reason | None:
        """Why not. What waiting can't help comes first."""
        reason = self._profile_refusal(number) if self.increasing else None
        if reason is not None:
            return reason
        shelf = self._shelf
        if shelf.count >= self._most:
            return Reason.FULL
        if shelf.size_bytes + size_bytes > self._most_bytes:
            return Reason.FULL_BYTES
        return None

    def _profile_refusal(self, number: int) -> Reason | None:
        if number <= self._high:
            return Reason.STALE
        if self.dense and self._high >= 0 and number != self._high + 1:
            return Reason.GAP
        return None

    def pick_one(self) -> M:
        """The member with the least number; `ContractViolation` when there is none."""
        if not self._shelf.count:
            raise broken_duty("pick_one", self, "there must be a member")
        return self._shelf.least()

    def delete_all(self, number: int) -> int:
        """Remove the members numbered up to ``number``; how many there were, 0 on a repeat."""
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
        require_run("enqueue_run", first, len(payloads))
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
        _require_bound("capacity", capacity)
        _require_bound("capacity_bytes", capacity_bytes)
        increasing = increasing or dense
        form = message_form(number, payload, build, keeps_bytes=increasing)
        shelf: Shelf[M]
        shelf = RunShelf(form.builder("BoundedQueue")) if increasing else MessageShelf(form)
        super().__init__(form, shelf, capacity, capacity_bytes, increasing=increasing, dense=dense)

    def __repr__(self) -> str:
        profile = ", dense" if self.dense else ", increasing" if self.increasing else ""
        bounds = f"{len(self)} of {self.capacity} messages"
        return f"BoundedQueue({bounds}, {self.size_bytes} of {self.capacity_bytes} bytes{profile})"


def _require_bound(name: str, bound: object) -> None:
    if type(bound) is not int or bound < 1:
        raise ConfigurationError(f"{name}={bound!r}: a bound must be an int, 1 or more")
