"""One plain pattern over another: what the outer one puts on its route is a message of the inner one.

In each of these stacks one layer confirms at most, so everything that comes back is meant for that one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from surepipe.core.effects import Accepted, Confirmed, Deliver, Effect, Ranges, Transmit, WakeAt
from surepipe.core.machine import Randomness, ReceiverMachine, SenderMachine
from surepipe.core.timing import earlier
from surepipe.pipes.stack.boundary import Boundary
from tests.plain.base import Data, PlainReceiver, PlainSender, PlainSubject, TimedSender
from tests.plain.continuous import CONTINUOUS
from tests.plain.multi_unconfirmed import MULTI_UNCONFIRMED
from tests.plain.resend import RESEND
from tests.plain.resend import Receiver as Confirming
from tests.plain.strict import STRICT


def packed(data: Data) -> bytes:
    """A frame of the outer pattern as a message of the inner one."""
    return json.dumps([data.epoch, data.number, data.payloads[0].decode()]).encode()


def unpacked(payload: bytes) -> Data:
    """The frame again."""
    epoch, number, text = json.loads(payload)
    return Data(epoch, number, (text.encode(),))


class StackedSender(PlainSender):
    """Two senders; the outer one numbers what it is given, the inner one carries it."""

    def __init__(self, life: int, outer: PlainSender, inner: PlainSender) -> None:
        super().__init__(life)
        self.outer, self.inner = outer, inner

    @property
    def room(self) -> int:
        """What the outer one has room for; the inner one is as large."""
        return self.outer.room

    @property
    def idle(self) -> bool:
        """True when nothing waits in either."""
        return self.outer.idle and self.inner.idle

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """What waits in the outer one."""
        return self.outer.unconfirmed()

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """The outer one takes them."""
        return self.carried(self.outer.send(payloads, now), now)

    def frame(self, frame: object, now: int) -> list[Effect]:
        """Whichever confirms understands it."""
        above = self.carried(self.outer.frame(frame, now), now)
        return self.own(self.inner.frame(frame, now)) + above

    def wake(self, now: int) -> list[Effect]:
        """Each one looks at its own deadline."""
        above = self.carried(self.outer.wake(now), now)
        return self.own(self.inner.wake(now)) + above

    def carried(self, effects: Sequence[Effect], now: int) -> list[Effect]:
        """The inner one sends what the outer one puts on its route."""
        done: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Transmit):
                done += self.own(self.inner.send([packed(cast("Data", effect.frame))], now))
            else:
                done.append(self.deadline() if isinstance(effect, WakeAt) else effect)
        return done

    def own(self, effects: Sequence[Effect]) -> list[Effect]:
        """What the inner one puts out, without what it says of its messages: they are not those of the stack."""
        return [
            self.deadline() if isinstance(effect, WakeAt) else effect
            for effect in effects
            if not isinstance(effect, Accepted | Confirmed)
        ]

    def deadline(self) -> Effect:
        """The earlier of the two."""
        dues = [end.due for end in (self.outer, self.inner) if isinstance(end, TimedSender)]
        first: int | None = None
        for due in dues:
            first = earlier(first, due)
        return WakeAt(first)

    def export(self) -> object:
        """All attributes of both."""
        return [self.outer.export(), self.inner.export()]

    def restore(self, state: object) -> None:
        """Set all attributes of both."""
        outer, inner = cast("list[object]", state)
        self.outer.restore(outer)
        self.inner.restore(inner)


class StackedReceiver(PlainReceiver):
    """Two receivers; to hand over is, for the inner one, to give a frame to the outer one."""

    def __init__(self, outer: PlainReceiver, inner: PlainReceiver) -> None:
        super().__init__()
        self.outer, self.inner = outer, inner

    def frame(self, frame: object, now: int) -> list[Effect]:
        """The inner one hands over, then goes on as if that had come out."""
        done: list[Effect] = []
        for effect in self.inner.frame(frame, now):
            if isinstance(effect, Deliver):
                done += self.outer.frame(unpacked(effect.payloads[0]), now)
                done += self.inner.settled(effect.ticket, ((effect.first, effect.first),), now)
            else:
                done.append(effect)
        return done

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """A message of the outer one has come out."""
        return self.outer.settled(ticket, ranges, now)

    def export(self) -> object:
        """All attributes of both."""
        return [self.outer.export(), self.inner.export()]

    def restore(self, state: object) -> None:
        """Set all attributes of both."""
        outer, inner = cast("list[object]", state)
        self.outer.restore(outer)
        self.inner.restore(inner)


@dataclass(frozen=True)
class PlainStack:
    """One plain pattern over another, to be explored."""

    outer: PlainSubject
    inner: PlainSubject
    boundary: Boundary = Boundary.PROCESSED
    journaled: bool = False
    durable: bool = False

    def __post_init__(self) -> None:
        if all(issubclass(end.make_receiver, Confirming) for end in (self.outer, self.inner)):
            raise ValueError(f"{self.name}: both confirm, and a confirm does not say whose it is")

    @property
    def name(self) -> str:
        """Outer over inner."""
        return f"{self.outer.name} over {self.inner.name}"

    def sender(self, *, life_hint: int, rng: Randomness, journal: object) -> SenderMachine:  # noqa: ARG002
        """A new life of both senders."""
        outer, inner = self.outer.make_sender(life_hint), self.inner.make_sender(life_hint)
        return StackedSender(life_hint, outer, inner)

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverMachine:  # noqa: ARG002
        """A new incarnation of both receivers."""
        return StackedReceiver(self.outer.make_receiver(), self.inner.make_receiver())


STACKS: Mapping[str, PlainStack] = {
    "CI over RS": PlainStack(CONTINUOUS, RESEND),
    "CI over RM": PlainStack(CONTINUOUS, MULTI_UNCONFIRMED),
    "SM over RS": PlainStack(STRICT, RESEND),
    "SM over RM": PlainStack(STRICT, MULTI_UNCONFIRMED),
    "RS over SM": PlainStack(RESEND, STRICT),
    "RS over CI": PlainStack(RESEND, CONTINUOUS),
}
