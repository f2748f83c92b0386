"""Strict monotonic index: only a message with a higher index than the last one goes on."""

from __future__ import annotations

from surepipe.core.effects import Effect, Transmit
from tests.plain.base import Data, PlainReceiver, PlainSender, PlainSubject


class Sender(PlainSender):
    """Gives each message the next index and sends it, once."""

    def take(self, data: Data, now: int) -> list[Effect]:  # noqa: ARG002
        """Send it and forget it."""
        return [Transmit(data)]


class Receiver(PlainReceiver):
    """Keeps the index of the last message that went on."""

    def __init__(self) -> None:
        super().__init__()
        self.current = 0

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """A message with a higher index goes on; all others are dropped."""
        if not isinstance(frame, Data) or frame.number <= self.current:
            return []
        self.current = frame.number
        return self.hand_over(frame)


STRICT = PlainSubject("plain strict monotonic", Sender, Receiver)
