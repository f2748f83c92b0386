"""Re-send with several unconfirmed messages: all are sent at once, and all that are not confirmed again."""

from __future__ import annotations

from surepipe.core.effects import Confirmed, Effect, Transmit
from tests.plain.base import Confirm, Data, PlainSubject, TimedSender
from tests.plain.resend import Receiver


class Sender(TimedSender):
    """Everything that waits is on the way. Ids are unique: a life's number is part of them."""

    def take(self, data: Data, now: int) -> list[Effect]:
        """Send it."""
        self.waiting = (*self.waiting, data)
        return [Transmit(data), *self.arm(now)]

    def again(self) -> list[Effect]:
        """All of them."""
        return [Transmit(data) for data in self.waiting]

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A confirm: that message is done."""
        if not isinstance(frame, Confirm):
            return []
        for place, data in enumerate(self.waiting):
            if self.means(frame, data):
                self.waiting = (*self.waiting[:place], *self.waiting[place + 1 :])
                return [Confirmed(data.epoch, ((data.number, data.number),)), *self.arm(now)]
        return []

    def means(self, confirm: Confirm, data: Data) -> bool:
        """Whether it is the confirm of this message."""
        return confirm.number == data.number and confirm.epoch == data.epoch


class RestartedNumbersSender(Sender):
    """The same with ids that begin again in each life."""

    def means(self, confirm: Confirm, data: Data) -> bool:
        """Only the number is compared."""
        return confirm.number == data.number


MULTI_UNCONFIRMED = PlainSubject("plain multi-unconfirmed", Sender, Receiver)
MULTI_UNCONFIRMED_RESTARTED_NUMBERS = PlainSubject(
    "plain multi-unconfirmed, numbers that restart", RestartedNumbersSender, Receiver
)
