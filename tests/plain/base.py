"""What all plain machines have: the part of the machine protocol that says nothing about the pattern.

Everything in a plain machine is immutable values in attributes, so its state is the list of them. ``life`` in
frames and effects is there for the judge alone, which finds a message by (life, number): no plain pattern looks at
it, unless it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from surepipe.core.effects import (
    Accepted,
    Cause,
    Deliver,
    Effect,
    Ranges,
    Reject,
    RejectReason,
    WakeAt,
)
from surepipe.core.machine import Randomness, ReceiverMachine, SenderMachine
from surepipe.core.records import record
from surepipe.pipes.stack.boundary import Boundary

TIMEOUT_US = 1_000_000


@record
class Data:
    """One message under its number."""

    epoch: int
    number: int
    payloads: tuple[bytes]


@record
class Confirm:
    """The message with this number has come out."""

    epoch: int
    number: int


class Plain:
    """The inputs and questions that every machine answers alike."""

    def wake(self, now: int) -> list[Effect]:  # noqa: ARG002
        """Nothing is waited for."""
        return []

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Nothing is listened to."""
        return []

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Nothing is asked."""
        return []

    def close(self, now: int) -> list[Effect]:  # noqa: ARG002
        """Closing says nothing."""
        return []

    def counters(self) -> Mapping[str, int]:
        """Nothing is counted."""
        return {}

    def gauges(self) -> Mapping[str, int]:
        """Nothing is measured."""
        return {}

    def export(self) -> object:
        """All attributes."""
        return [list(pair) for pair in vars(self).items()]

    def restore(self, state: object) -> None:
        """Set all attributes."""
        for name, value in cast("list[tuple[str, object]]", state):
            setattr(self, name, value)


class PlainSender(Plain):
    """Numbers messages 1, 2, 3 ... in each life; a pattern says what else it does with one."""

    bound: ClassVar[int] = 1000

    def __init__(self, life: int) -> None:
        self.life = life
        self.next = 1
        self.waiting: tuple[Data, ...] = ()
        """What is accepted and not confirmed (or not sent yet)."""

    @property
    def room(self) -> int:
        """How many more messages are taken."""
        return self.bound - len(self.waiting)

    @property
    def room_bytes(self) -> int:
        """Messages here are small."""
        return 2**31

    @property
    def idle(self) -> bool:
        """True when nothing waits."""
        return not self.waiting

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """What waits."""
        return [(data.epoch, ((data.number, data.number),)) for data in self.waiting]

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """Accept what there is room for."""
        effects: list[Effect] = []
        taken = payloads[: max(self.room, 0)]
        for payload in taken:
            data = Data(self.life, self.next, (payload,))
            self.next += 1
            effects += [Accepted(self.life, data.number, 1), *self.take(data, now)]
        if len(taken) < len(payloads):
            effects.append(Reject(RejectReason.FULL, len(payloads) - len(taken)))
        return effects

    def take(self, data: Data, now: int) -> list[Effect]:
        """The pattern: an accepted message."""
        raise NotImplementedError


class TimedSender(PlainSender):
    """A sender that sends again what is not confirmed in some time."""

    def __init__(self, life: int) -> None:
        super().__init__(life)
        self.due: int | None = None

    def arm(self, now: int) -> list[Effect]:
        """Wait from now on, as long as there is something to wait for."""
        self.due = now + TIMEOUT_US if self.waiting else None
        return [WakeAt(self.due)]

    def wake(self, now: int) -> list[Effect]:
        """Send again, once the time has come."""
        if self.due is None or now < self.due:
            return []
        return [*self.again(), *self.arm(now)]

    def again(self) -> list[Effect]:
        """The pattern: what is sent again."""
        raise NotImplementedError


class PlainReceiver(Plain):
    """Hands messages over; a pattern says which, and what follows when one has come out."""

    def __init__(self) -> None:
        self.handed: tuple[Data, ...] = ()

    def hand_over(self, data: Data) -> list[Effect]:
        """Deliver a message."""
        self.handed = (*self.handed, data)
        return [Deliver(len(self.handed), data.epoch, data.number, data.payloads, 1)]

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:  # noqa: ARG002
        """A message has come out: the oldest of those handed over."""
        data, self.handed = self.handed[0], self.handed[1:]
        return self.came_out(data)

    def came_out(self, data: Data) -> list[Effect]:  # noqa: ARG002
        """The pattern: what follows."""
        return []

    def failed(
        self,
        ticket: int,  # noqa: ARG002
        seq: int,  # noqa: ARG002
        error: Cause,  # noqa: ARG002
        now: int,  # noqa: ARG002
        *,
        final: bool = False,  # noqa: ARG002
    ) -> list[Effect]:
        """The source says nothing of handlers that fail: as if the message had not come."""
        self.handed = ()
        return []

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:  # noqa: ARG002
        """As if the message had not come."""
        self.handed = ()
        return []

    def state_after(self, ticket: int, through: int) -> bytes:  # noqa: ARG002
        """Nothing is kept."""
        return b""


@dataclass(frozen=True)
class PlainSubject:
    """A plain pattern, to be explored: how to make each end."""

    name: str
    make_sender: type[PlainSender]
    make_receiver: type[PlainReceiver]
    boundary: Boundary = Boundary.PROCESSED
    journaled: bool = False
    durable: bool = False

    def sender(self, *, life_hint: int, rng: Randomness, journal: object) -> SenderMachine:  # noqa: ARG002
        """A new life of the sender, with nothing left of the former one."""
        return self.make_sender(life_hint)

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverMachine:  # noqa: ARG002
        """A new incarnation of the receiver, with nothing left of the former one."""
        return self.make_receiver()
