"""What a host sees of a machine. Hosts know these protocols; pipes and queues implement them.

A host's step is always the same: take one event, give it to the machine with ``now``, perform the effects in
order, re-arm the one deadline. ``now`` is a monotonic count of microseconds. After it has built a machine, the
host calls ``wake`` once: that is how a machine starts. A wake that is early, late or doubled is harmless.

A host takes any number of machines by name. Where a machine has several routes, each frame comes and goes as
``core.effects.Addressed``, with the name of its route: so queues name their peers, and know no host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from surepipe.core.effects import Cause, Effect, Ranges


class Randomness(Protocol):
    """The only source of chance a machine may use; ``random.Random`` is one."""

    def getrandbits(self, k: int, /) -> int:
        """Return k random bits as an integer."""
        ...


class Machine(Protocol):
    """Inputs that every machine takes."""

    def wake(self, now: int) -> list[Effect]:
        """The deadline has passed, or the machine was just built."""
        ...

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A frame (or the bytes of one) has arrived: any frame, in any state, gives a defined result."""
        ...

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """The outcome of a Persist, Call or DeadLetter."""
        ...

    def close(self, now: int) -> list[Effect]:
        """Take nothing new, finish what is begun."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Everything counted since the machine was built, by name."""
        ...

    def gauges(self) -> Mapping[str, int]:
        """What stands now: messages in flight, in the backlog, held, and the like."""
        ...

    def export(self) -> object:
        """The whole state as a plain value."""
        ...


class SenderMachine(Machine, Protocol):
    """The sending end of a pipe."""

    @property
    def room(self) -> int:
        """How many more messages ``send`` would accept now, were they small."""
        ...

    @property
    def room_bytes(self) -> int:
        """How many more payload bytes ``send`` would accept now."""
        ...

    @property
    def idle(self) -> bool:
        """True when everything accepted is confirmed (or, on a pipe without confirms, was sent)."""
        ...

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """Offer messages; a prefix of them is accepted, the rest rejected."""
        ...

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """What was accepted and is not confirmed, as (epoch, ranges), oldest epoch first."""
        ...


class ReceiverMachine(Machine, Protocol):
    """The receiving end of a pipe."""

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """These messages of the ticket have crossed the boundary."""
        ...

    def failed(
        self, ticket: int, seq: int, error: Cause, now: int, *, final: bool = False
    ) -> list[Effect]:
        """The handler raised for ``seq`` (error type and text); what stands before it is settled.

        ``final``: trying again can't help; it becomes a dead letter at once, where there is a place for it.
        """
        ...

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """These messages were not taken; the carrier must bring them again."""
        ...

    def state_after(self, ticket: int, through: int) -> bytes:
        """The state to commit together with the effect of the ticket's messages up to ``through``."""
        ...


@runtime_checkable
class CommittedMachine(Protocol):
    """A receiver machine whose messages its host commits, in a store that may be away for a while."""

    def again(self, now: int) -> list[Effect]:
        """Nothing is stored of what has no answer: deliver all of it again in its order, under new tickets."""
        ...
