"""Continuous index: what comes too early waits in a send queue until the right index has come."""

from __future__ import annotations

from surepipe.core.effects import Effect
from tests.plain.base import Data, PlainReceiver, PlainSubject
from tests.plain.strict import Sender


class Receiver(PlainReceiver):
    """Keeps the index of the last message that went on, and those that came before their turn."""

    def __init__(self) -> None:
        super().__init__()
        self.current = 0
        self.queue: tuple[Data, ...] = ()

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """The right one goes on, and what follows it in the queue; a later one is put in the queue."""
        if not isinstance(frame, Data) or frame.number <= self.current:
            return []
        if all(frame.number != held.number for held in self.queue):
            self.queue = tuple(sorted((*self.queue, frame), key=lambda data: data.number))
        effects: list[Effect] = []
        while self.queue and self.queue[0].number == self.current + 1:
            data, *rest = self.queue
            self.queue, self.current = tuple(rest), data.number
            effects += self.hand_over(data)
        return effects


CONTINUOUS = PlainSubject("plain continuous index", Sender, Receiver)
