"""Re-send: one unconfirmed message at a time, sent again until it is confirmed; the others wait in a buffer."""

from __future__ import annotations

from surepipe.core.effects import Confirmed, Effect, Transmit
from tests.plain.base import Confirm, Data, PlainReceiver, PlainSubject, TimedSender


class Sender(TimedSender):
    """The first of those that wait is on the way. Ids are unique: a life's number is part of them."""

    def take(self, data: Data, now: int) -> list[Effect]:
        """Send it, unless another one is on the way."""
        self.waiting = (*self.waiting, data)
        return [Transmit(data), *self.arm(now)] if len(self.waiting) == 1 else []

    def again(self) -> list[Effect]:
        """The one that is on the way."""
        return [Transmit(self.waiting[0])]

    def frame(self, frame: object, now: int) -> list[Effect]:
        """Its confirm: it is done, and the next one is sent."""
        if not (isinstance(frame, Confirm) and self.waiting and self.means(frame)):
            return []
        data, self.waiting = self.waiting[0], self.waiting[1:]
        confirmed = Confirmed(data.epoch, ((data.number, data.number),))
        return [confirmed, *map(Transmit, self.waiting[:1]), *self.arm(now)]

    def means(self, confirm: Confirm) -> bool:
        """Whether it is the confirm of the message that is on the way."""
        first = self.waiting[0]
        return confirm.number == first.number and confirm.epoch == first.epoch


class RestartedNumbersSender(Sender):
    """The same with ids that begin again in each life."""

    def means(self, confirm: Confirm) -> bool:
        """Only the number is compared."""
        return confirm.number == self.waiting[0].number


class Receiver(PlainReceiver):
    """Forwards what comes, and confirms it."""

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """A message: hand it over."""
        return self.hand_over(frame) if isinstance(frame, Data) else []

    def came_out(self, data: Data) -> list[Effect]:
        """Confirm it."""
        return [Transmit(Confirm(data.epoch, data.number))]


RESEND = PlainSubject("plain re-send", Sender, Receiver)
RESEND_RESTARTED_NUMBERS = PlainSubject(
    "plain re-send, numbers that restart", RestartedNumbersSender, Receiver
)
