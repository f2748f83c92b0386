"""Sequential confirm: the next message leaves when the former one is confirmed. There is no deadline."""

from __future__ import annotations

from surepipe.core.effects import Confirmed, Effect, Transmit
from tests.plain.base import Confirm, Data, PlainSender, PlainSubject
from tests.plain.resend import Receiver


class Sender(PlainSender):
    """The first of those that wait is on the way."""

    def take(self, data: Data, now: int) -> list[Effect]:  # noqa: ARG002
        """Send it, unless another one is on the way."""
        self.waiting = (*self.waiting, data)
        return [Transmit(data)] if len(self.waiting) == 1 else []

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Its confirm: it is done, and the next one is sent."""
        if not (isinstance(frame, Confirm) and self.waiting and self.means(frame)):
            return []
        data, *rest = self.waiting
        self.waiting = tuple(rest)
        confirmed = Confirmed(data.epoch, ((data.number, data.number),))
        return [confirmed, *map(Transmit, self.waiting[:1])]

    def means(self, confirm: Confirm) -> bool:
        """Whether it is the confirm of the message that is on the way."""
        return confirm == Confirm(self.waiting[0].epoch, self.waiting[0].number)


class RestartedNumbersSender(Sender):
    """The same with ids that begin again in each life."""

    def means(self, confirm: Confirm) -> bool:
        """Only the number is compared."""
        return confirm.number == self.waiting[0].number


SEQUENTIAL = PlainSubject("plain sequential confirm", Sender, Receiver)
SEQUENTIAL_RESTARTED_NUMBERS = PlainSubject(
    "plain sequential confirm, numbers that restart", RestartedNumbersSender, Receiver
)
