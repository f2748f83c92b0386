"""Defines a message queue: the words, the interface, and the duties of its callers.

A message queue holds what was sent to one receiver and is not confirmed yet. Abstractly it is a set
of messages in which no two have the same number, and four verbs are enough to use it:

==================  ================================  ============================================
verb                before: the caller's duty         after: the queue's duty
==================  ================================  ============================================
``enqueue(m)``      no member has the number of m     taken: ``m`` was added; refused: no change
``empty()``                                           true exactly when there is no member
``pick_one()``      there is a member                 a member, the same one until a change
``delete_all(n)``   ``0 <= n <= MAX_NUMBER``          exactly the members up to ``n`` are gone
==================  ================================  ============================================

A broken duty raises `ContractViolation` before anything changes. A refusal is a value and not an
error: it is how a sender learns that it must wait. The other verbs (batches, runs, views) add
nothing that could not be said with these four, only the speed of saying it for many messages at
once.

Queues come in three profiles. *Plain* takes any number that is not in use. *Increasing* takes only
numbers above every number it ever took. *Dense* takes exactly the next number, after a first one.

Queues are single-threaded values: whoever owns one makes all its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Generic, Protocol, TypeVar, cast

from surepipe.errors import ConfigurationError, ContractViolation

M = TypeVar("M")

MAX_NUMBER = 2**63 - 2
"""The greatest number: its successor still fits in a signed 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Message:
    """The message a queue holds unless it is told of another kind: a number and its bytes."""

    num: int
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Run:
    """Messages with consecutive numbers, from ``first`` on, without an object for each."""

    first: int
    payloads: tuple[bytes, ...]

    @property
    def last(self) -> int:
        """The number of the last message."""
        return self.first + len(self.payloads) - 1


class RefusalReason(StrEnum):
    """Why a message was refused."""

    FULL = "FULL"
    """As many messages as the queue may hold: it is taken once some were deleted."""
    FULL_BYTES = "FULL_BYTES"
    """As many payload bytes as the queue may hold, or this one message alone is above that."""
    STALE = "STALE"
    """An increasing queue has had this number, or a greater one: it is never taken."""
    GAP = "GAP"
    """A dense queue takes another number next."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer to ``enqueue``: true in a condition exactly when the message was taken."""

    ok: bool
    reason: RefusalReason | None = None

    def __bool__(self) -> bool:
        return self.ok


ACCEPTED = Enqueued(True)


def broken_duty(verb: str, argument: object, clause: str) -> ContractViolation:
    """The error for a caller who broke a duty: which call, and which clause of the contract."""
    return ContractViolation(f"{verb}({argument!r}): {clause}. Nothing was changed.")


def require_number(verb: str, number: object, least: int = 0) -> None:
    """Refuse what is no int between ``least`` and `MAX_NUMBER`; ``True`` and ``1.0`` are none."""
    if type(number) is not int or not least <= number <= MAX_NUMBER:
        raise broken_duty(verb, number, f"a number must be an int, {least} <= number <= 2**63 - 2")


def require_count(verb: str, count: object) -> None:
    """Refuse what is not a whole number of messages."""
    if type(count) is not int or count < 0:
        raise broken_duty(verb, count, "a count of messages must be an int, 0 or more")


def require_run(verb: str, first: object, count: int) -> None:
    """Refuse a run that begins or ends outside the numbers that exist."""
    if type(first) is not int or not 0 <= first <= MAX_NUMBER:
        require_number(verb, first)
    if cast(int, first) + count - 1 > MAX_NUMBER:
        raise broken_duty(verb, first, f"{count} numbers from here end above 2**63 - 2")


_NUM: Callable[[object], int] = attrgetter("num")


def _payload_if_any(message: object) -> bytes:
    return cast(bytes, getattr(message, "payload", b""))


@dataclass(frozen=True, slots=True)
class MessageForm(Generic[M]):
    """How a queue reads a message, and how it makes one again from a number and bytes."""

    number: Callable[[M], int]
    payload: Callable[[M], bytes]
    build: Callable[[int, bytes], M] | None
    only: type[object] | None = None
    """Messages of exactly this type, where another would come back as something else."""

    def number_of(self, verb: str, message: M) -> int:
        """The number of a message; `ContractViolation` when it has none that a queue may hold."""
        try:
            number = self.number(message)
        except (AttributeError, TypeError, LookupError) as error:
            raise broken_duty(verb, type(message), "a message must have a number") from error
        if type(number) is not int or not 0 <= number <= MAX_NUMBER:
            require_number(verb, number)
        if self.only is not None and type(message) is not self.only:
            clause = f"this queue keeps bytes and gives back {self.only.__name__}; give it build="
            raise broken_duty(verb, type(message), clause)
        return number

    def builder(self, verb: str) -> Callable[[int, bytes], M]:
        """What makes a message of a number and bytes; `ContractViolation` when nobody said how."""
        if self.build is None:
            raise broken_duty(
                verb, self.number, "a run needs to be made into messages; give build="
            )
        return self.build


def message_form(
    number: Callable[[M], int] | None,
    payload: Callable[[M], bytes] | None,
    build: Callable[[int, bytes], M] | None,
    *,
    keeps_bytes: bool,
) -> MessageForm[M]:
    """The form that the arguments describe; `ConfigurationError` when they don't suffice."""
    of_message = number is None and payload is None and build is None
    if keeps_bytes and build is None and not of_message:
        raise ConfigurationError(
            "an increasing queue keeps numbers and bytes: to give back messages of your own kind "
            "it needs build=, a function of a number and a payload, besides number= and payload="
        )
    return MessageForm(
        number=number or cast("Callable[[M], int]", _NUM),
        payload=payload or cast("Callable[[M], bytes]", _payload_if_any),
        build=cast("Callable[[int, bytes], M]", Message) if of_message else build,
        only=Message if of_message and keeps_bytes else None,
    )


class MessageQueue(Protocol[M]):
    """The interface of every message queue, in memory or stored.

    Each verb raises `ContractViolation`, before anything changes, when the caller broke a duty.
    Stored queues raise besides: `StoreUnavailable` (the contents are those before the call or those
    after it: repeat the call), `Fenced` (a newer owner has taken over; nothing changed) and
    `StoreReset` (what was stored is gone).
    """

    @property
    def form(self) -> MessageForm[M]:
        """How messages are read and made."""
        ...

    @property
    def picks_least(self) -> bool:
        """True when ``pick_one`` gives the message with the least number, which progress needs."""
        ...

    @property
    def increasing(self) -> bool:
        """True when only numbers above ``high`` are taken."""
        ...

    @property
    def dense(self) -> bool:
        """True when only the number ``high + 1`` is taken, once there was a first message."""
        ...

    @property
    def capacity(self) -> int | None:
        """How many messages the queue may hold; None without a bound."""
        ...

    @property
    def capacity_bytes(self) -> int | None:
        """How many bytes of payload the queue may hold; None without a bound."""
        ...

    def enqueue(self, message: M) -> Enqueued:
        """Add a message whose number no member has. A refusal changes nothing at all."""
        ...

    def empty(self) -> bool:
        """True exactly when there is no member."""
        ...

    def pick_one(self) -> M:
        """A member, the same one until the contents change. There must be a member."""
        ...

    def delete_all(self, number: int) -> int:
        """Remove exactly the members numbered up to ``number`` and say how many; 0 on a repeat."""
        ...

    def enqueue_many(self, messages: Sequence[M]) -> int:
        """Add messages up to the first that is refused and say how many were added.

        The duties are looked at for the whole batch first: a number in use, or twice in the batch,
        raises.
        """
        ...

    def enqueue_run(self, first: int, payloads: Sequence[bytes]) -> int:
        """``enqueue_many`` for messages with consecutive numbers from ``first`` on."""
        ...

    def pick_many(self, limit: int, after: int = -1) -> list[M]:
        """The least members numbered above ``after``, in order, at most ``limit`` of them."""
        ...

    def pick_runs(self, limit: int, after: int = -1) -> list[Run]:
        """``pick_many`` as runs, each as long as consecutive numbers allow; ``limit`` counts
        messages.
        """
        ...

    def slice_run(self, first: int, count: int) -> list[bytes]:
        """The payloads of ``count`` consecutive members from ``first`` on; all of them must be
        members.
        """
        ...

    def __len__(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """The bytes of all members' payloads."""
        ...

    @property
    def high(self) -> int:
        """The greatest number ever accepted, -1 at first; it never falls."""
        ...

    def snapshot(self) -> Mapping[int, M]:
        """All members by number, in increasing order, as they are now."""
        ...
